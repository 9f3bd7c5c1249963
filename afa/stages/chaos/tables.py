"""Chaotic patients: whose duels change side often while features come in, and what inference gains there (supp:chaos).

A pair *flips* when the sign of its score turns round; a tie keeps the sign before it. Who counts as chaotic is decided
on one set of orders, and what `linearity` gains over `wald` is counted on others too: a patient chosen for orders on
which `wald` wanders has, on those orders, a `wald` that wanders (decisions.md A10). The groups need the whole cohort
and are formed in `chaos_summary`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.engine.course import SCORES
from afa.engine.duels import all_pairs
from afa.engine.paths import SignPaths, Signs, sign_paths
from afa.errors import ConfigError, Fault
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.orders import random_order

METHODS = ("linearity", "wald")
SELECTING, MEASURING = "selecting", "measuring"
EARLY = 50
"""The last round that the early definitions look at."""
BLOCK_BYTES = 64 * 2**20
"""Signs held at once, patients being followed block by block."""


class Definition(NamedTuple):
    """What makes a patient chaotic: the score whose signs flip, until which round; and the round of the magnitude."""

    score: str
    flips_until: int | None
    magnitude_at: int | None


DEFINITIONS: Mapping[str, Definition] = {
    "wald": Definition("wald", None, None),
    "wald_50": Definition("wald", EARLY, None),
    "linearity": Definition("linearity", None, None),
    # the only one that is known before a run is over
    "early_50": Definition("wald", EARLY, EARLY),
}
"""None is full observation. The first is the definition of decisions.md A10, the others stand beside it."""


def chaos(
    bundle: Bundle,
    cohort: Cohort,
    patients: Sequence[int],
    *,
    selecting_seeds: Sequence[int] = (0, 1, 2),
    measuring_seeds: Sequence[int] = (3, 4, 5),
    solver: Solver,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Follow the chosen patients (row indices of the cohort) through one random order per seed.

    Returns three tables, `seed_set` being `selecting` or `measuring`:

    `flips`, by (patient, seed_set, definition): `flips`, changes of side summed over `runs`, which are all pairs under
    all orders of the set; `magnitude`, the mean over pairs of abs(D) in nats, at full observation or, for `early_50`,
    after 50 observations and averaged over the orders; `nonzero`, how many of the patient's values are not 0.

    `rounds`, by (patient, seed_set, method, t): `right`, duels called right, a tie counting one half, of `duels` with
    a winner at full observation, both summed over the orders of the set.

    `duels`, by (patient, entity_a, entity_b): `winner`, +1 for a, -1 for b, 0 a tie.

    Raises
    ------
    ConfigError : a set of seeds is empty or holds one twice, or the two sets have one in common.

    """
    _check_seeds(selecting_seeds, measuring_seeds)
    sets = {SELECTING: slice(0, len(selecting_seeds)), MEASURING: slice(len(selecting_seeds), None)}
    seeds = [*selecting_seeds, *measuring_seeds]
    parts: dict[str, list[pd.DataFrame]] = {"flips": [], "rounds": [], "duels": []}
    for block in _blocks(bundle, patients, len(seeds)):
        names = [cohort.patients[p] for p in block]
        drawn = [[random_order(bundle.features, patient=name, seed=seed) for seed in seeds] for name in names]
        orders = np.array(drawn, dtype=np.int64).reshape(len(names), len(seeds), len(bundle.features))
        values = cohort.values[list(block)]
        paths = sign_paths(bundle, values, orders, solver=solver, threads=threads)
        winners = paths.signs["wald"][:, 0, -1]
        for seed_set, among in sets.items():
            parts["flips"].append(_flips(bundle, values, orders[:, among], paths, among, names, seed_set))
            parts["rounds"].append(_rounds(paths, among, winners, names, seed_set))
        parts["duels"].append(_duels(paths, winners, names, bundle))
    tables = {name: pd.concat(blocks, ignore_index=True) for name, blocks in parts.items()}
    tables = {name: table.sort_values("patient", kind="stable", ignore_index=True) for name, table in tables.items()}
    return {name: table.assign(cohort=cohort.name, bundle=bundle.name) for name, table in tables.items()}


def _check_seeds(selecting: Sequence[int], measuring: Sequence[int]) -> None:
    step = "give each set at least one seed, and no seed twice or in both"
    for name, seeds in ((SELECTING, selecting), (MEASURING, measuring)):
        if not seeds or len(set(seeds)) < len(seeds):
            found = f"seeds {', '.join(map(str, seeds)) or 'none'}"
            raise ConfigError(Fault(f"chaos, {name} orders", found, "distinct seeds, at least one", step))
    common = sorted(set(selecting) & set(measuring))
    if common:
        found = f"{', '.join(map(str, common))} in both sets of seeds"
        raise ConfigError(Fault("chaos", found, "groups formed on some orders and compared on others", step))


def _blocks(bundle: Bundle, patients: Sequence[int], n_orders: int) -> Iterator[Sequence[int]]:
    """The patients in runs whose signs fit into `BLOCK_BYTES`; one empty run where there is no patient."""
    rounds, pairs = len(bundle.features) + 1, len(all_pairs(len(bundle.entities)))
    size = max(1, BLOCK_BYTES // max(1, len(SCORES) * n_orders * rounds * pairs))
    for first in range(0, max(1, len(patients)), size):
        yield patients[first : first + size]


def _flips(
    bundle: Bundle,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    paths: SignPaths,
    among: slice,
    names: Sequence[str],
    seed_set: str,
) -> pd.DataFrame:
    nonzero = np.count_nonzero(values, axis=1)
    tables = []
    for name, definition in DEFINITIONS.items():
        last = _round(definition.flips_until, bundle)
        flips = count_flips(paths.signs[definition.score][:, among, : last + 1])
        # at full observation all orders have seen the same
        distinct = orders[:, :1] if definition.magnitude_at is None else orders
        magnitude = magnitudes(bundle, values, distinct, _round(definition.magnitude_at, bundle))
        table = pd.DataFrame({"patient": list(names), "seed_set": seed_set, "definition": name})
        runs = orders.shape[1] * len(paths.pairs)
        tables.append(table.assign(flips=flips.sum(axis=1), runs=runs, magnitude=magnitude, nonzero=nonzero))
    return pd.concat(tables, ignore_index=True)


def _round(t: int | None, bundle: Bundle) -> int:
    return len(bundle.features) if t is None else min(t, len(bundle.features))


def count_flips(signs: Signs) -> NDArray[np.int64]:
    """(P, S) how often signs (P, S, T, Q) change side along T rounds, summed over Q duels.

    A 0 keeps the sign before it, and the first sign that is not 0 is no flip.

    >>> count_flips(np.array([0, 1, 0, -1, 0, -1, 1], dtype=np.int8).reshape(1, 1, 7, 1)).tolist()
    [[2]]
    """
    flips = np.zeros(signs.shape[:2], dtype=np.int64)
    standing = signs[:, :, 0]
    for t in range(1, signs.shape[2]):
        now = signs[:, :, t]
        flips += np.count_nonzero(now * standing < 0, axis=2)
        standing = np.where(now == 0, standing, now)
    return flips


def magnitudes(bundle: Bundle, values: NDArray[np.int8], orders: NDArray[np.int64], t: int) -> Floats:
    """(P,) mean over pairs and orders of abs(Lambda_ab) after t observations, in nats; at t = M it is abs(D(x)).

    values : (P, M). orders : (P, S, M). What is not observed adds nothing to Lambda (supp:Wald_simple), just as a 0.
    """
    first, second = all_pairs(len(bundle.entities)).T
    owner = np.repeat(np.arange(len(bundle.entities)), np.diff(bundle.packed.pointer))
    found = np.zeros(orders.shape[:2])
    for patient, order in np.ndindex(*orders.shape[:2]):
        seen = orders[patient, order, :t]
        x = np.zeros(len(bundle.features))
        x[seen] = values[patient, seen]
        terms = bundle.packed.value * x[bundle.packed.row] * x[bundle.packed.column]
        pairwise = np.bincount(owner, weights=terms, minlength=len(bundle.entities))
        energy = bundle.priors + bundle.unary @ x + pairwise
        found[patient, order] = np.abs(energy[first] - energy[second]).mean()
    mean: Floats = found.mean(axis=1)
    return mean


def _rounds(paths: SignPaths, among: slice, winners: Signs, names: Sequence[str], seed_set: str) -> pd.DataFrame:
    rounds = range(paths.solves.shape[2])
    index = pd.MultiIndex.from_product([list(names), rounds], names=["patient", "t"])
    decided = np.count_nonzero(winners, axis=1) * paths.solves[:, among].shape[1]
    tables = []
    for method in METHODS:
        table = pd.DataFrame({"seed_set": seed_set, "method": method}, index=index)
        table["right"] = _right(paths.signs[method][:, among], winners, decided).ravel()
        table["duels"] = np.repeat(decided, len(rounds)).astype(np.int32)
        tables.append(table.reset_index())
    return pd.concat(tables, ignore_index=True)


def _right(signs: Signs, winners: Signs, decided: NDArray[np.int64]) -> Floats:
    """(P, M + 1) duels called right over all orders of signs (P, S, M + 1, Q); exact, all terms being integers."""
    right = np.empty((len(signs), signs.shape[2]))
    for patient in range(len(signs)):
        agreement = signs[patient].astype(np.float32) @ winners[patient].astype(np.float32)
        right[patient] = (agreement.sum(axis=0, dtype=np.float64) + decided[patient]) / 2
    return right


def _duels(paths: SignPaths, winners: Signs, names: Sequence[str], bundle: Bundle) -> pd.DataFrame:
    entities = np.array(bundle.entities, dtype=object)
    return pd.DataFrame(
        {
            "patient": np.repeat(np.array(names, dtype=object), len(paths.pairs)),
            "entity_a": np.tile(entities[paths.pairs[:, 0]], len(names)),
            "entity_b": np.tile(entities[paths.pairs[:, 1]], len(names)),
            "winner": winners.ravel(),
        }
    )
