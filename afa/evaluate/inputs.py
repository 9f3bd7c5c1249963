"""Read and check the inputs of an experiment: the bundle, the cohort, the shard, and other options."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import pandas as pd
import typer

from afa.cohort.cohort import Cohort, load_cohort
from afa.errors import BundleError, CohortError, ConfigError, Fault
from afa.model.arrays import Codes, Floats, Ints
from afa.model.bundle import Bundle, load_bundle
from afa.model.closure import COUPLINGS, Closure
from afa.model.orders import generator_of
from afa.scores.preference import tie_of

Item = TypeVar("Item")
Made = TypeVar("Made")
ReferenceVariant = Literal["controls", "ranges", "cohort"]
"""Reference of the encoding; `controls` and `ranges` belong to the run's own cohort."""


def load_inputs(bundle_folder: Path, cohort_folder: Path) -> tuple[Bundle, Cohort]:
    """Load the bundle and the cohort of an experiment.

    Features that were dropped from the cohort are also dropped from the bundle (decisions.md D3).

    Raises
    ------
    CohortError : the cohort has a feature that the bundle lacks, or lacks a feature without listing it as dropped.

    """
    bundle, cohort = load_bundle(bundle_folder), load_cohort(cohort_folder)
    dropped = set(cohort.provenance.get("dropped_features") or ())
    expected = [name for name in bundle.features if name not in dropped]
    if list(cohort.features) != expected:
        missing = sorted(set(expected) - set(cohort.features))
        extra = sorted(set(cohort.features) - set(expected))
        found = f"{len(missing)} features missing ({', '.join(missing[:5])}), {len(extra)} too many"
        if not missing and not extra:
            found = "the bundle's features in another order"
        step = "build the cohort for this bundle"
        raise CohortError(Fault(str(cohort_folder), found, f"the features of {bundle_folder}", step))
    return bundle.restrict(expected), cohort


def paper_tables(folder: Path) -> dict[str, pd.DataFrame]:
    """Return the transcribed tables of the paper, by file name without suffix.

    Raises
    ------
    ConfigError : the folder has no table.

    """
    tables = {path.stem: pd.read_csv(path) for path in sorted(folder.glob("*.csv"))}
    if not tables:
        raise ConfigError(Fault(str(folder), "no CSV file", "the paper's tables", "pass resources/paper"))
    return tables


def check_duels(bundle: Bundle, folder: Path) -> None:
    """Raise a `BundleError` if a bundle has only one entity, so that no two entities can be compared."""
    if len(bundle.entities) < 2:
        step = "add entities, or ask for the binary task alone: snakemake binary"
        raise BundleError(Fault(str(folder), "one entity", "two or more, to have a duel", step))


def explicit_references(bundle: Bundle) -> list[ReferenceVariant]:
    """Return the names of the encodings for which the bundle's probabilities are valid (docs/decisions.md, F10a).

    The encoding of measured numbers as -1, 0 or +1 is named after its reference: `controls`, `ranges` or `cohort`. If
    the bundle has probabilities but does not name an encoding, all three names are returned.
    """
    if bundle.rates is None or (bundle.ternary and not bundle.has_probabilities):
        return []
    known: list[ReferenceVariant] = ["controls", "ranges", "cohort"]
    return [reference for reference in known if bundle.rates.encoding in (None, reference)]


def closures_beside(bundle: Bundle, cohort: Cohort, own: Closure) -> list[Closure]:
    """Return the closures to compare on binary tasks. The first is `own`, the closure that the run uses elsewhere.

    A closure is a way to make the models of the two classes, with and without an entity. If the bundle's probabilities
    are valid for the way in which the cohort's values were encoded, the closure `explicit` is added to the list. If, in
    addition, all features have three values, the closures `differential` and `shared` are added too.
    """
    reference = (cohort.provenance.get("encoding") or {}).get("reference")
    known = explicit_references(bundle)
    if not known or reference not in (None, *known):
        return [own]
    return list(dict.fromkeys([own, *(COUPLINGS if bundle.ternary else ()), "explicit"]))


def label_matrix(bundle: Bundle, cohort: Cohort) -> Floats:
    """Return the labels, 0, 1 or NaN if missing, with entities in the order of the bundle, (P, N) float64."""
    labels = cohort.labels.reindex(index=list(cohort.patients), columns=list(bundle.entities))
    return labels.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)


def final_differences(bundle: Bundle, values: Codes) -> Floats:
    """Return the difference D_ab(x) = S_a(x) - S_b(x) of all pairs of entities at full observation, (P, Q), in nats.

    Differences within rounding error are set to 0.

    Parameters
    ----------
    values : (P, M) int8

    """
    energy, (first, second) = bundle.energies(values), np.triu_indices(len(bundle.entities), 1)
    difference: Floats = energy[:, first] - energy[:, second]
    difference[np.abs(difference) <= tie_of([bundle.mrf(entity) for entity in bundle.entities])] = 0.0
    return difference


def each_in_threads(make: Callable[[Item], Made], items: Iterable[Item], threads: int | None) -> list[Made]:
    """Return `make(item)` for each item, in the order of the items.

    At most `threads` threads are used, or all cores if `threads` is None.
    """
    with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(make, items))


def note(text: str) -> None:
    """Print a line to the log of a job."""
    typer.echo(text)


def top_k_size(bundle: Bundle, k: int) -> int:
    """Return the size of the top set: k, or N - 1 if the bundle has only N <= k entities.

    If the size is below k, a line is printed to the job's log.
    """
    size = min(k, len(bundle.entities) - 1)
    if size < k:
        note(f"k = {size}, since the bundle has {len(bundle.entities)} entities")
    return size


def shard_of(n: int, shard: str) -> range:
    """Split n indices into N parts of almost equal size, and return part I; `shard` is `I/N` or `I-of-N`."""
    left, _, right = shard.replace("-of-", "/").partition("/")
    if not (left.isdecimal() and right.isdecimal() and 1 <= int(left) <= int(right)):
        raise ConfigError(Fault("--shard", repr(shard), "I/N with 1 <= I <= N", "pass for example --shard 1/4"))
    part, parts = int(left) - 1, int(right)
    return range(part * n // parts, (part + 1) * n // parts)


def rounds_up_to(rounds: Sequence[int], n_features: int) -> list[int]:
    """Return the given rounds below `n_features`, with 0 and `n_features` added, in ascending order."""
    return sorted({0, *(t for t in rounds if t < n_features), n_features})


def amounts(option: str, text: str) -> list[float]:
    """Return the numbers in a comma-separated text.

    Raise a `ConfigError` unless the numbers are distinct and not negative.
    """
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 <= part < float("inf") for part in found) or len(set(found)) < len(found):
        expected, step = "distinct numbers of 0 or more with commas between", "pass e.g. 0.5,1"
        raise ConfigError(Fault(option, repr(text), expected, step))
    return found


@lru_cache(maxsize=4096)
def shuffled_genes(n_features: int, permutation: int, kinds: tuple[int, ...] = ()) -> Ints:
    """Return a random permutation of the genes, (M,) int64.

    In the shuffled data, gene j gets the values of gene `result[j]`.

    The permutation is the same for every task and setting. The returned array is cached and must not be changed.

    Parameters
    ----------
    kinds : (M,) from `Bundle.kinds` if features differ in their possible values. Genes are permuted within each kind

    """
    return shuffled_alike(np.array(kinds or (0,) * n_features), generator_of("labels", "shuffled genes", permutation))


def shuffled_alike(kinds: Ints, generator: np.random.Generator) -> Ints:
    """Return a random permutation that exchanges only features of the same kind, (M,) int64.

    Parameters
    ----------
    kinds : (M,) int64

    """
    places = np.arange(len(kinds))
    for kind in np.unique(kinds):
        alike = np.flatnonzero(kinds == kind)
        places[alike] = generator.permutation(alike)
    return places
