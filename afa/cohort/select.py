"""Which samples of a series take part, and which of them are patients and which controls."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from afa.cohort.config import CohortConfig, Derived, Group, OnePer
from afa.errors import CohortError, Fault

_MISSING = frozenset({"", "na", "nan", "n/a", "unknown"})


@dataclass(frozen=True)
class Selected:
    """The samples that take part, in the order of the series.

    `samples` holds their characteristics (index: sample name); `steps` pairs each step of the selection with
    the number of samples left after it, the two groups last.
    """

    samples: pd.DataFrame
    controls: tuple[str, ...]
    patients: tuple[str, ...]
    steps: tuple[tuple[str, int], ...]


def is_missing(value: str) -> bool:
    """Whether a characteristic says that nothing was recorded: empty, NA or unknown, in any case."""
    return value.strip().casefold() in _MISSING


def column(samples: pd.DataFrame, key: str, asked_by: str) -> pd.Series[str]:
    """The characteristic `key` of every sample, as strings; a `CohortError` lists the keys that there are."""
    if key not in samples.columns:
        known = ", ".join(map(str, samples.columns))
        raise CohortError(
            Fault(
                asked_by, f"no sample characteristic {key!r}", f"one of: {known}", "correct the key in the cohort file"
            )
        )
    return samples[key].fillna("").astype(str)


def select(samples: pd.DataFrame, config: CohortConfig) -> Selected:
    """Apply `derive`, `keep`, `drop` and `one_per`, in that order, then split patients from controls.

    `samples` is indexed by sample name, with one column of strings per characteristic. A key that the series
    lacks, a selection without controls or without patients, and a sample in both groups are `CohortError`s.
    """
    where = f"cohort {config.name}"
    steps = [("in the series", len(samples))]
    samples = _derive(samples, config.select.derive, where)
    for name, wanted, keeps in (("keep", config.select.keep, True), ("drop", config.select.drop, False)):
        for key, values in wanted.items():
            found = column(samples, key, f"{where}, key select.{name}").isin(values)
            samples = samples[found if keeps else ~found]
            steps.append((f"{name} {key}: {', '.join(values)}", len(samples)))
    if config.select.one_per is not None:
        samples = _one_per(samples, config.select.one_per, where)
        steps.append((f"one per {config.select.one_per.key}", len(samples)))
    controls = _group(samples, config.controls, f"{where}, key controls")
    patients = _group(samples, config.patients, f"{where}, key patients")
    if both := sorted(set(controls) & set(patients)):
        raise CohortError(
            Fault(
                f"{where}, keys controls and patients",
                f"{len(both)} samples in both, such as {both[0]}",
                "each sample in one group at most",
                "make the two groups' values disjoint",
            )
        )
    steps += [("controls", len(controls)), ("patients", len(patients))]
    chosen = samples[samples.index.isin({*controls, *patients})]
    return Selected(chosen, controls, patients, tuple(steps))


def _derive(samples: pd.DataFrame, derive: Mapping[str, Derived], where: str) -> pd.DataFrame:
    """Add each derived characteristic: the first group of its pattern, empty where the pattern is not found."""
    samples = samples.copy()
    for name, rule in derive.items():
        place = f"{where}, key select.derive.{name}"
        if name in samples.columns:
            raise CohortError(
                Fault(place, "a characteristic of the series by that name", "a new name", "rename what is derived")
            )
        source = column(samples, rule.source, place)
        matches = [re.search(rule.pattern, value) for value in source]
        samples[name] = [(match.group(1) or "") if match else "" for match in matches]
        if len(samples) and not any(matches):
            raise CohortError(
                Fault(
                    place,
                    f"no sample whose {rule.source} matches {rule.pattern!r}, the first being {source.iloc[0]!r}",
                    "at least one",
                    "correct the pattern",
                )
            )
    return samples


def _one_per(samples: pd.DataFrame, rule: OnePer, where: str) -> pd.DataFrame:
    """One sample for each value of `rule.key`: best by `prefer`, then least `then`, then first by sample name."""
    place = f"{where}, key select.one_per"
    owner = column(samples, rule.key, place)
    _refuse(samples.index[owner.map(is_missing).to_numpy(bool)], place, f"no {rule.key}", "a value for every sample")
    order = pd.DataFrame(index=samples.index)
    for key, values in rule.prefer.items():
        rank = {value: position for position, value in enumerate(values)}
        order[f"prefer {key}"] = [rank.get(value, len(rank)) for value in column(samples, key, f"{place}.prefer")]
    if rule.then is not None:
        number = pd.to_numeric(column(samples, rule.then, f"{place}.then"), errors="coerce")
        _refuse(samples.index[~np.isfinite(number)], place, f"no number in {rule.then}", "a number for every sample")
        order["then"] = number
    order["name"] = order.index.astype(str)
    best = order.sort_values(list(order.columns), kind="stable").index
    first = owner[best].drop_duplicates().index
    return samples[samples.index.isin(first)]


def _group(samples: pd.DataFrame, group: Group, where: str) -> tuple[str, ...]:
    """Names of the samples in a group, in the order of the series; an empty group is a `CohortError`."""
    found = column(samples, group.key, where)
    names = tuple(map(str, samples.index[found.isin(group.values).to_numpy(bool)]))
    if not names:
        wanted = ", ".join(map(repr, group.values))
        values = (
            ", ".join(f"{value!r} ({count})" for value, count in found.value_counts().items()) or "no sample at all"
        )
        raise CohortError(
            Fault(
                where,
                f"no sample with {group.key} in {wanted}; after the selection there is {values}",
                "at least one",
                "correct the values, or the selection before them; a series without controls cannot be encoded",
            )
        )
    return names


def _refuse(names: Sequence[str] | pd.Index[str], where: str, found: str, expected: str) -> None:
    if len(names):
        shown = ", ".join(map(str, names[:3]))
        raise CohortError(
            Fault(where, f"{found} in {len(names)} samples, such as {shown}", expected, "correct the rule or drop them")
        )
