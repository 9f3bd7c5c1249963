"""Gate: a rigorous bracket calls what full observation says; heuristic brackets are reported (decisions.md B4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.checks.sanity.gate import Failure, Gate, Outcome, Subject
from afa.engine.duels import BRACKETS, RIGOROUS, all_pairs
from afa.engine.rounds import CALLED, EARLY, TIED, WRONG, CallPaths, shared_order_calls
from afa.mrf import ROUNDING, Floats
from afa.preference import tie_of

POPULATIONS = ("duels", "binary")
WORDS = {1: "a call for the first", -1: "a call for the second", 0: "no call, a tie"}


def check(subject: Subject, *, budget_share: float = 1.0) -> Outcome:
    """Every call of `l1_tight` and `l1_paper` in all duels and binary tasks, along the orders of all seeds.

    A call must be the sign at full observation, a tie must not be called, and `l1_paper` calls nothing that `l1_tight`
    leaves open. budget_share : the part of the budgets that is counted.
    """
    duels, tasks = subject.once(all_calls) if budget_share == 1.0 else all_calls(subject, budget_share)
    total = _judged(subject, duels, None)
    for v, task in enumerate(tasks):
        total += _judged(subject, task, v)
    return total


def all_calls(subject: Subject, budget_share: float = 1.0) -> tuple[CallPaths, list[CallPaths]]:
    """Calls of all duels, and those of each binary task."""
    energy = subject.direct_energies()
    a, b = all_pairs(energy.shape[1]).T

    def calls(bundle: Bundle, final: Floats) -> CallPaths:
        return shared_order_calls(
            bundle,
            subject.values,
            subject.orders,
            _winners(bundle, final),
            solver=subject.solver,
            threads=subject.threads,
            budget_share=budget_share,
        )

    tasks = [calls(closed, energy[:, [v]]) for v, closed in enumerate(subject.closures)]
    return calls(subject.bundle, energy[:, a] - energy[:, b]), tasks


def bracket_table(subject: Subject) -> pd.DataFrame:
    """By (population, bracket, t), over patients and seeds: `decided` duels or tasks, `called` and `wrong` among them.

    `decided` have a winner at full observation. A call stands at every t at which the interval excludes 0, so that
    each is counted at each t. `tied_called` are calls of duels that are tied in the end: no call of them is right.
    """
    rounds = range(len(subject.bundle.features) + 1)
    decided = [count.sum() for count in _decided(subject)]
    return _counted(subject, (0, 1), "t", rounds, np.repeat(decided, len(rounds) * len(BRACKETS)))


def bracket_patients_table(subject: Subject) -> pd.DataFrame:
    """As `bracket_table`, by (population, bracket, patient), summed over all t."""
    decided = np.concatenate(_decided(subject)) * (len(subject.bundle.features) + 1)
    return _counted(subject, (1, 2), "patient", subject.patients, np.repeat(decided, len(BRACKETS)))


def _winners(bundle: Bundle, final: Floats) -> NDArray[np.int8]:
    tie = 4 * tie_of([bundle.mrf(entity) for entity in bundle.entities]) + ROUNDING
    return np.where(np.abs(final) <= tie, 0, np.sign(final)).astype(np.int8)


def _judged(subject: Subject, paths: CallPaths, task: int | None) -> Outcome:
    pairs = all_pairs(len(subject.bundle.entities) if task is None else 2)
    counts = paths.counts[..., : len(RIGOROUS), :].sum(axis=(0, 1, 2, 3))

    def describe(p: int, s: int) -> Failure:
        t, q, bracket, call = (int(number) for number in paths.first[p, s])
        name = subject.pairs[q] if task is None else subject.tasks[task]
        case = f"{name}, patient {subject.patients[p]}, seed {subject.seeds[s]}, t = {t}"
        return Failure(case, f"{WORDS[call]} by {BRACKETS[bracket]}", _expected(subject, task, p, pairs[q], call))

    outcome = Outcome.of(paths.first[..., 0] >= 0, describe)
    evaluated = int(np.prod(paths.counts.shape[:3])) * len(pairs) * len(RIGOROUS)
    return replace(outcome, cases=evaluated, failures=int(counts[[WRONG, TIED, EARLY]].sum()))


def _expected(subject: Subject, task: int | None, p: int, pair: NDArray[np.int64], call: int) -> str:
    energy = subject.direct_energies()[p]
    a, b = pair
    final = energy[task] if task is not None else energy[a] - energy[b]
    bundle = subject.bundle if task is None else subject.closures[task]
    winner = int(_winners(bundle, np.array([final]))[0])
    if winner == call:
        return "a call by l1_tight no later than by l1_paper"
    return f"{WORDS[winner]}: {final:.12g} at full observation"


def _decided(subject: Subject) -> list[NDArray[np.int64]]:
    """Per population, (P,) how many duels or tasks have a winner, each counted once for each seed."""
    energy = subject.direct_energies()
    pairs = all_pairs(energy.shape[1])
    difference = _winners(subject.bundle, energy[:, pairs[:, 0]] - energy[:, pairs[:, 1]])
    signs = [_winners(closed, energy[:, v]) for v, closed in enumerate(subject.closures)]
    return [len(subject.seeds) * (winners != 0).sum(axis=1) for winners in (difference, np.stack(signs, axis=1))]


def _counted(
    subject: Subject, axes: tuple[int, ...], by: str, cells: Sequence[object], decided: NDArray[np.int64]
) -> pd.DataFrame:
    """Counts of the calls of both populations, summed over these axes."""
    duels, tasks = subject.once(all_calls)
    summed = [paths.counts.sum(axis=axes, dtype=np.int64) for paths in (duels, *tasks)]
    index = pd.MultiIndex.from_product([POPULATIONS, cells, BRACKETS], names=["population", by, "bracket"])
    flat = np.stack([summed[0], np.sum(summed[1:], axis=0)]).reshape(len(index), -1)
    columns = {"decided": decided, "called": flat[:, CALLED], "wrong": flat[:, WRONG], "tied_called": flat[:, TIED]}
    return pd.DataFrame(columns, index=index).reset_index()


SOUNDNESS = Gate(
    "bracket_soundness",
    check,
    (partial(check, budget_share=0.0),),
    "report this with the bundle: a rigorous bracket that is wrong once is a fault of the program, not a rate",
)
