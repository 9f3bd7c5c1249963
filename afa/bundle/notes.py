"""What of a sound bundle folder is worth a word: notes, which are never errors."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from afa.bundle.format import HEADER, PROVENANCE_KEYS, REQUIRED_COLUMNS, Content
from afa.bundle.rates import Rates
from afa.csvfile import CsvTable

ALIKE = 0.9
"""Share of their letters that two names have in common, from which they are taken for one."""
MOST_COMPARED = 500


def notes_of(folder: Path, content: Content, rows: Mapping[str, CsvTable]) -> list[str]:
    """The notes on a bundle folder, given what was read of it and the rows of its files."""
    header = content.header
    notes = []
    lacking = [key for key in PROVENANCE_KEYS if key not in header.provenance]
    if lacking:
        notes.append(f"{HEADER}: provenance does not say {', '.join(lacking)}")
    if header.licence is None:
        notes.append(f"{HEADER}: no licence")
    if not header.digests:
        notes.append(f"{HEADER}: no digests, so a later edit goes unseen; `afa bundle stamp {folder}` adds them")
    for name, listed, uses in (
        ("entities", header.entities, _uses(len(content.entities), content.unary.entity, content.pairwise.entity)),
        ("features", header.features, _uses(len(content.features), content.unary.features, content.pairwise.features)),
    ):
        names = getattr(content, name)
        idle = [names[index] for index in np.flatnonzero(uses == 0)]
        if idle:
            notes.append(f"{name} without any potential ({len(idle)}): {_some(idle)}")
        if listed is None:
            notes += [
                f"{HEADER}: no list of {name}, and {once}, in one row only, is much like {other}; "
                "correct it if the two are one"
                for once, other in _much_alike(names, uses)
            ]
    without_prior = len(content.entities) - len(rows["priors.csv"])
    if len(rows["priors.csv"]) and without_prior:
        notes.append(f"priors.csv: entities without a row have log-odds 0 ({without_prior})")
    if content.rates is not None:
        notes += _notes_on_rates(content, content.rates)
    known = (HEADER, *REQUIRED_COLUMNS)
    for entry in sorted(path.name for path in folder.iterdir() if path.name not in known):
        close = difflib.get_close_matches(entry, known, n=1, cutoff=0.8)
        notes += [f"{entry} is not read; if it is meant as {name}, rename it" for name in close]
    return notes


def _notes_on_rates(content: Content, rates: Rates) -> Iterator[str]:
    """Shares that are raised to the floor, directions against their probabilities, backgrounds that nobody states."""
    stated = rates.stated
    can_be = rates.possible[stated.feature]
    extreme = np.zeros(len(stated), dtype=bool)
    for part in (stated.with_entity, stated.without):
        extreme |= ((part <= 0) & can_be).any(axis=1)
    named = [f"{content.entities[v]} {content.features[j]}" for v, j in zip(stated.entity, stated.feature, strict=True)]
    if extreme.any():
        yield (
            f"unary.csv: a share of 0 or 1 for a value that can occur counts as the floor, {rates.floor:g}, or what it "
            f"leaves ({extreme.sum()}): {_some(itertools.compress(named, extreme))}"
        )
    rank = {(int(v), int(j)): i for i, (v, j) in enumerate(zip(stated.entity, stated.feature, strict=True))}
    potential = np.zeros(len(stated))
    for v, j, value in zip(content.unary.entity, content.unary.features[:, 0], content.unary.value, strict=True):
        if (int(v), int(j)) in rank:
            potential[rank[int(v), int(j)]] = value
    against = potential * rates.directions() < 0
    if against.any():
        shown = _some(itertools.compress(named, against))
        yield f"unary.csv: a potential against its probabilities ({against.sum()}): {shown}"
    spoken = np.zeros(len(content.features), dtype=bool)
    for features in (stated.feature, content.unary.features.ravel(), content.pairwise.features.ravel()):
        spoken[features] = True
    uniform = spoken & ~rates.background_stated
    if len(stated) and uniform.any():
        names = itertools.compress(content.features, uniform)
        yield (
            f"features whose background nobody states, taken as uniform ({uniform.sum()}): {_some(names)}; "
            "give p_low and p_high in features.csv"
        )


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:5]) + (", ..." if len(listed) > 5 else "")


def _uses(count: int, *indices: NDArray[np.int64]) -> NDArray[np.intp]:
    """How often each of `count` indices stands in a row."""
    return sum((np.bincount(index.ravel(), minlength=count) for index in indices), np.zeros(count, dtype=np.intp))


def _much_alike(names: Sequence[str], uses: NDArray[np.intp]) -> Iterator[tuple[str, str]]:
    """Names in one row only that may be another one misspelt, each with that one; none in a large bundle.

    Digits and the last letter tell names apart, as they do for genes, and so does all of a short name.
    """
    if len(names) > MOST_COMPARED:
        return
    for once in (names[index] for index in np.flatnonzero(uses == 1).tolist()):
        others = [name for name in names if name != once and _differ_in_letters(once, name)]
        for other in difflib.get_close_matches(once, others, n=1, cutoff=ALIKE):
            if uses[names.index(other)] > 1 or other > once:  # of two names in one row each, one pair
                yield once, other


def _differ_in_letters(one: str, other: str) -> bool:
    return re.findall(r"\d", one) == re.findall(r"\d", other) and one[:-1] != other[:-1]
