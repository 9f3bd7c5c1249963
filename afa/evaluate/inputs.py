"""What an experiment starts from: a bundle and a cohort on the same features, and which patients are its share."""

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
from numpy.typing import NDArray

from afa.cohort.cohort import Cohort, load_cohort
from afa.errors import BundleError, CohortError, ConfigError, Fault
from afa.inference.exact import sample
from afa.model.bundle import Bundle, load_bundle
from afa.model.closure import COUPLINGS, Closure, half_potentials
from afa.model.mrf import Floats, PairwiseMRF
from afa.model.orders import generator_of
from afa.scores.preference import tie_of

Item = TypeVar("Item")
Made = TypeVar("Made")
Reference = Literal["controls", "ranges", "cohort"]
"""What values are encoded against; the first two are of a run's own cohort."""


def load_inputs(bundle_folder: Path, cohort_folder: Path) -> tuple[Bundle, Cohort]:
    """Bundle and cohort; features that the cohort had to drop leave the bundle too (decisions.md D3).

    Raises
    ------
    CohortError : the cohort has a feature that the bundle lacks, or lacks one without saying that it was dropped.

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
    """The paper's tables as transcribed, by file name without its ending.

    Raises
    ------
    ConfigError : the folder holds no table.

    """
    tables = {path.stem: pd.read_csv(path) for path in sorted(folder.glob("*.csv"))}
    if not tables:
        raise ConfigError(Fault(str(folder), "no CSV file", "the paper's tables", "pass resources/paper"))
    return tables


def check_duels(bundle: Bundle, folder: Path) -> None:
    """A `BundleError` where a bundle has one entity only, and so no duel."""
    if len(bundle.entities) < 2:
        step = "add entities, or ask for the binary task alone: snakemake binary"
        raise BundleError(Fault(str(folder), "one entity", "two or more, to have a duel", step))


def check_encoding(bundle: Bundle, cohort: Cohort) -> None:
    """A `CohortError` where probabilities are of values that are encoded otherwise (docs/decisions.md, F10a)."""
    asked = None if bundle.rates is None else bundle.rates.encoding
    is_of = (cohort.provenance.get("encoding") or {}).get("reference")
    if asked is not None and is_of is not None and asked != is_of:
        found, expected = f"values encoded by {is_of}", f"by {asked}: the bundle's probabilities are of such values"
        raise CohortError(Fault(f"cohort {cohort.name}", found, expected, "encode it so, or take another coupling"))


def explicit_references(bundle: Bundle) -> list[Reference]:
    """The references of which the bundle states probabilities: as it says, else any (docs/decisions.md, F10a)."""
    if bundle.rates is None or (bundle.ternary and not bundle.says_how_often):
        return []
    known: list[Reference] = ["controls", "ranges", "cohort"]
    return [reference for reference in known if bundle.rates.encoding in (None, reference)]


def closures_beside(bundle: Bundle, cohort: Cohort, own: Closure) -> list[Closure]:
    """The closures of binary tasks that are shown: a run's own first.

    Where the bundle says how often of values as the cohort's, also every other that it has; the paper's are of three
    values.
    """
    reference = (cohort.provenance.get("encoding") or {}).get("reference")
    known = explicit_references(bundle)
    if not known or reference not in (None, *known):
        return [own]
    return list(dict.fromkeys([own, *(COUPLINGS if bundle.ternary else ()), "explicit"]))


def check_possible(bundle: Bundle, cohort: Cohort, measured: NDArray[np.bool_] | None = None) -> None:
    """A `CohortError` that names the first value, of those that were measured, that its feature cannot take (F1)."""
    wrong = ~np.take_along_axis(bundle.possible[None], cohort.values[:, :, None].astype(np.intp) + 1, axis=2)[:, :, 0]
    if measured is not None:
        wrong &= measured
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        can_be = ", ".join(str(x - 1) for x in np.flatnonzero(bundle.possible[column]))
        where = f"cohort {cohort.name}, patient {cohort.patients[row]}, feature {bundle.features[column]}"
        step = "encode it by features.csv of the bundle"
        raise CohortError(Fault(where, str(cohort.values[row, column]), f"{can_be} ({wrong.sum()} such cells)", step))


def labels_of(bundle: Bundle, cohort: Cohort) -> Floats:
    """(P, N) labels in bundle order, 0 or 1, NaN where missing."""
    labels = cohort.labels.reindex(index=list(cohort.patients), columns=list(bundle.entities))
    return labels.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)


def final_differences(bundle: Bundle, values: NDArray[np.int8]) -> Floats:
    """(P, Q) D_ab(x) = S_a(x) - S_b(x) of every duel at full observation, in nats; 0 where it is rounding."""
    energy, (first, second) = bundle.energies(values), np.triu_indices(len(bundle.entities), 1)
    difference: Floats = energy[:, first] - energy[:, second]
    difference[np.abs(difference) <= tie_of([bundle.mrf(entity) for entity in bundle.entities])] = 0.0
    return difference


def drawn_patients(mrf: PairwiseMRF, labels: NDArray[np.int8], *names: object) -> NDArray[np.int8]:
    """(n, M) profiles, each from p_1 or p_0 by its label in (n,) (eq:half-potential); `names` make the seed.

    An `InferenceError` tells of a model too dense to draw from.
    """
    values = np.empty((len(labels), mrf.n_features), dtype=np.int8)
    for label, model in zip((1, 0), half_potentials(mrf), strict=True):
        chosen = labels == label
        generator = generator_of(*names, label)
        values[chosen] = sample(model, None, int(chosen.sum()), generator=generator)
    return values


def each_in_threads(make: Callable[[Item], Made], items: Iterable[Item], threads: int | None) -> list[Made]:
    """What `make` gives for each item, in their order, in at most `threads` threads; all cores where None."""
    with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(make, items))


def note(text: str) -> None:
    """A line for the log of a job."""
    typer.echo(text)


def top_k_size(bundle: Bundle, k: int) -> int:
    """The size of the top set: k, or one less than the entities where there are no more of them, which is noted."""
    size = min(k, len(bundle.entities) - 1)
    if size < k:
        note(f"k = {size}, since the bundle has {len(bundle.entities)} entities")
    return size


def shard_of(n: int, shard: str) -> range:
    """The indices below n of part I of N, from a text `I/N` or `I-of-N`; parts differ in size by at most one."""
    left, _, right = shard.replace("-of-", "/").partition("/")
    if not (left.isdecimal() and right.isdecimal() and 1 <= int(left) <= int(right)):
        raise ConfigError(Fault("--shard", repr(shard), "I/N with 1 <= I <= N", "pass for example --shard 1/4"))
    part, parts = int(left) - 1, int(right)
    return range(part * n // parts, (part + 1) * n // parts)


def rounds_up_to(rounds: Sequence[int], n_features: int) -> list[int]:
    """The rounds that exist with so many features, with 0 and the last, in order."""
    return sorted({0, *(t for t in rounds if t < n_features), n_features})


def amounts(option: str, text: str) -> list[float]:
    """Numbers of 0 or more from a comma-separated text, at least one and none twice."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 <= part < float("inf") for part in found) or len(set(found)) < len(found):
        expected, step = "distinct numbers of 0 or more with commas between", "pass e.g. 0.5,1"
        raise ConfigError(Fault(option, repr(text), expected, step))
    return found


def words(option: str, text: str, known: Sequence[str]) -> list[str]:
    """Words from a comma-separated text, each one of `known`, at least one and none twice."""
    parts = [part.strip() for part in text.split(",")]
    if not set(parts) <= set(known) or len(set(parts)) < len(parts):
        raise ConfigError(
            Fault(option, repr(text), f"a choice from {', '.join(known)}, each once", f"pass e.g. {known[0]}")
        )
    return parts


@lru_cache(maxsize=4096)
def shuffled_genes(n_features: int, permutation: int, kinds: tuple[int, ...] = ()) -> NDArray[np.int64]:
    """(M,) the gene whose values each gene is given; the same for every task and setting; not to be changed.

    kinds : (M,) of `Bundle.kinds` where features do not all take the same values: shuffled are those of one kind.
    """
    return shuffled_alike(np.array(kinds or (0,) * n_features), generator_of("labels", "shuffled genes", permutation))


def shuffled_alike(kinds: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
    """(M,) features in another order, each in the place of one of its kind (M,)."""
    places = np.arange(len(kinds))
    for kind in np.unique(kinds):
        alike = np.flatnonzero(kinds == kind)
        places[alike] = generator.permutation(alike)
    return places
