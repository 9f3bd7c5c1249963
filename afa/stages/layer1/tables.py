"""Layer 1 among duels: when each bracket calls each pair, by random and by informed orders (tab:layer1_informed).

A call is checked against full observation (decisions.md B4). One wrong call of a rigorous bracket stops the stage;
those of the heuristic brackets are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.engine.duels import BRACKETS, all_pairs
from afa.engine.rounds import (
    CALLED,
    TIED,
    TO_ITS_END,
    TO_THE_END,
    WRONG,
    CallPaths,
    own_order_calls,
    shared_order_calls,
)
from afa.errors import Fault, SanityError
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.orders import random_order
from afa.preference import tie_of

ALLOCATIONS = ("random", "informed", "informed_pair")
SHOWN_FAULTS = 5


@dataclass(frozen=True)
class Runs:
    """All orders of one kind: `seeds` names them, None where there is one order for all seeds."""

    allocation: str
    seeds: Sequence[int | None]
    calls: CallPaths


def layer1(
    bundle: Bundle,
    cohort: Cohort,
    patients: Sequence[int],
    *,
    seeds: Sequence[int],
    solver: Solver,
    threads: int | None = None,
    budget_share: float = 1.0,
) -> dict[str, pd.DataFrame]:
    """Follow the chosen patients (row indices of the cohort) through one random order per seed and two informed ones.

    `informed` is one order for all pairs, `informed_pair` each pair's own. budget_share : the part of the `l1` budgets
    that is counted; below 1 the rigorous brackets are broken on purpose.

    Returns four tables.

    `calls`, by (patient, allocation, seed, bracket, t): `called`, of the duels with a winner at full observation;
    `wrong`, of these against the winner; `tied`, duels called that are tied at full observation.

    `steps`, by (patient, allocation, seed, bracket, step): `called` after so many features of a duel's own two
    supports; a duel that has fewer stays at its end.

    `pairs`, by patient: `duels` with a winner, and `tied`.

    `left_open`, by (patient, allocation, bracket, magnitude), over the duels of all orders whose abs(D(x)) is
    `magnitude`, in nats to two significant digits, 0 a tie: their number `duels`; `never` called before full
    observation; `never_support`, never before the last feature of their own two supports.

    Raises
    ------
    SanityError : a rigorous bracket called a duel against full observation, or one that is tied there.

    """
    names, values = [cohort.patients[p] for p in patients], cohort.values[list(patients)]
    differences = final_differences(bundle, values)
    winners = np.sign(differences).astype(np.int8)
    drawn = [[random_order(bundle.features, patient=name, seed=seed) for seed in seeds] for name in names]
    random = np.array(drawn, dtype=np.int64).reshape(len(names), len(seeds), len(bundle.features))
    informed = np.tile(informed_order(bundle), (len(names), 1, 1))

    def follow(calls_along: Callable[..., CallPaths], orders: NDArray[np.int64]) -> CallPaths:
        return calls_along(bundle, values, orders, winners, solver=solver, threads=threads, budget_share=budget_share)

    runs = [
        Runs("random", list(seeds), follow(shared_order_calls, random)),
        Runs("informed", [None], follow(shared_order_calls, informed)),
        Runs("informed_pair", [None], follow(own_order_calls, informed_pair_orders(bundle))),
    ]
    raise_on_wrong_calls(runs, bundle, names, differences)
    decided = np.count_nonzero(winners, axis=1).astype(np.int32)
    tied = np.int32(winners.shape[1]) - decided
    tables = {
        "calls": _by_round(runs, names),
        "steps": _by_step(runs, names),
        "pairs": pd.DataFrame({"patient": np.array(names, dtype=object), "duels": decided, "tied": tied}),
        "left_open": _left_open(runs, names, differences),
    }
    return {name: table.assign(cohort=cohort.name, bundle=bundle.name) for name, table in tables.items()}


def final_differences(bundle: Bundle, values: NDArray[np.int8]) -> Floats:
    """(P, Q) D_ab(x) = S_a(x) - S_b(x) of every duel at full observation, in nats; 0 where it is rounding."""
    models = [bundle.mrf(entity) for entity in bundle.entities]
    energy = np.array([[model.energy(x) for model in models] for x in values]).reshape(len(values), len(models))
    first, second = all_pairs(len(models)).T
    difference: Floats = energy[:, first] - energy[:, second]
    difference[np.abs(difference) <= tie_of(models)] = 0.0
    return difference


def informed_order(bundle: Bundle) -> NDArray[np.int64]:
    """(M,) features by descending sum over pairs of abs(alpha_a - alpha_b), then by name (decisions.md A9)."""
    weight = np.sum([np.abs(bundle.unary[a] - bundle.unary[b]) for a, b in all_pairs(len(bundle.entities))], axis=0)
    # sums of the same terms in another order must not part features that are level
    weight = np.array([float(f"{total:.12g}") for total in weight])
    order = sorted(range(len(weight)), key=lambda j: (-weight[j], bundle.features[j]))
    return np.array(order, dtype=np.int64)


def informed_pair_orders(bundle: Bundle) -> NDArray[np.int64]:
    """(Q, M) features by descending abs(alpha_a - alpha_b), then those of the two supports, then by name."""
    supported = np.zeros(bundle.unary.shape, dtype=np.bool_)
    for v, entity in enumerate(bundle.entities):
        supported[v, bundle.support(entity)] = True
    by_name = np.argsort(np.argsort(np.array(bundle.features, dtype=object), kind="stable"), kind="stable")
    orders = [
        np.lexsort((by_name, ~(supported[a] | supported[b]), -np.abs(bundle.unary[a] - bundle.unary[b])))
        for a, b in all_pairs(len(bundle.entities))
    ]
    return np.array(orders, dtype=np.int64).reshape(-1, len(bundle.features))


def raise_on_wrong_calls(runs: Sequence[Runs], bundle: Bundle, names: Sequence[str], differences: Floats) -> None:
    """Raise a `SanityError` with the first calls of rigorous brackets that full observation contradicts, or return."""
    faults = list(_faults(runs, bundle, names, differences))
    if faults:
        raise SanityError(faults[:SHOWN_FAULTS])


def _faults(runs: Sequence[Runs], bundle: Bundle, names: Sequence[str], differences: Floats) -> Iterator[Fault]:
    pairs = all_pairs(len(bundle.entities))
    for one in runs:
        for p, s in np.argwhere(one.calls.first[..., 0] >= 0):
            t, place, bracket, call = (int(number) for number in one.calls.first[p, s])
            a, b = (bundle.entities[v] for v in pairs[place])
            seed = "" if one.seeds[s] is None else f", seed {one.seeds[s]}"
            where = f"layer 1, patient {names[p]}, pair {a} and {b}, {one.allocation} order{seed}, t = {t}"
            found = f"a call for {a if call > 0 else b} by {BRACKETS[bracket]}"
            step = "report this with the bundle: a rigorous bracket that is wrong once is a fault of the program"
            yield Fault(where, found, f"the sign of D = {differences[p, place]:.12g} at full observation", step)


def _by_round(runs: Sequence[Runs], names: Sequence[str]) -> pd.DataFrame:
    cube = np.concatenate([one.calls.counts for one in runs], axis=1).transpose(0, 1, 3, 2, 4)
    table = _keys(runs, names, cube.shape[3], "t")
    for name, kind in (("called", CALLED), ("wrong", WRONG), ("tied", TIED)):
        table[name] = cube[..., kind].ravel()
    return table


def _by_step(runs: Sequence[Runs], names: Sequence[str]) -> pd.DataFrame:
    cube = np.concatenate([one.calls.steps for one in runs], axis=1).transpose(0, 1, 3, 2)
    return _keys(runs, names, cube.shape[3], "step").assign(called=cube.ravel())


def _keys(runs: Sequence[Runs], names: Sequence[str], n_times: int, time: str) -> pd.DataFrame:
    """Rows by patient, order, bracket and time, so that tables of parts of the patients follow on each other."""
    orders = [(one.allocation, seed) for one in runs for seed in one.seeds]
    a_run, n_runs = len(BRACKETS) * n_times, len(orders)
    allocation = np.array([name for name, _ in orders], dtype=object)
    seed = pd.array([seed for _, seed in orders], dtype="Int64")
    return pd.DataFrame(
        {
            "patient": np.repeat(np.array(names, dtype=object), n_runs * a_run),
            "allocation": np.tile(np.repeat(allocation, a_run), len(names)),
            "seed": seed[np.tile(np.repeat(np.arange(n_runs), a_run), len(names))],
            "bracket": np.tile(np.repeat(np.array(BRACKETS, dtype=object), n_times), len(names) * n_runs),
            time: np.tile(np.arange(n_times, dtype=np.int32), len(names) * n_runs * len(BRACKETS)),
        }
    )


def _left_open(runs: Sequence[Runs], names: Sequence[str], differences: Floats) -> pd.DataFrame:
    columns = ["patient", "allocation", "bracket", "magnitude", "duels", "never", "never_support"]
    parts = []
    for p, name in enumerate(names):
        magnitudes, level = two_digits(np.abs(differences[p]))
        duels = np.bincount(level, minlength=len(magnitudes))
        for one in runs:
            still_open = one.calls.open[p].sum(axis=0, dtype=np.int64)
            for i, bracket in enumerate(BRACKETS):
                never, never_support = (
                    np.bincount(level, weights=still_open[:, i, kind], minlength=len(magnitudes)).astype(np.int32)
                    for kind in (TO_THE_END, TO_ITS_END)
                )
                total = (len(one.seeds) * duels).astype(np.int32)
                row = (name, one.allocation, bracket, magnitudes, total, never, never_support)
                parts.append(pd.DataFrame(dict(zip(columns, row, strict=True))))
    if not parts:
        numbers = {"magnitude": "float64", "duels": "int32", "never": "int32", "never_support": "int32"}
        return pd.DataFrame(columns=columns).astype(numbers)
    return pd.concat(parts, ignore_index=True)


def two_digits(numbers: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """The distinct numbers, each rounded to two significant digits, ascending; and which of these each number is.

    >>> levels, place = two_digits(np.array([4.0, 0.0, 3.96, 12.34]))
    >>> levels.tolist(), place.tolist()
    ([0.0, 4.0, 12.0], [1, 0, 1, 2])
    """
    rounded = np.array([float(f"{number:.2g}") for number in numbers])
    levels, places = np.unique(rounded, return_inverse=True)
    return levels, places
