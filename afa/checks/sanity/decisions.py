"""Three gates on decisions: scores at full observation, ranks of entities in any order, calls of rigorous brackets.

At full observation every score is the energy itself, ranks do not depend on the entities' order, and a rigorous bracket
calls what full observation says. The energy is S(x), whichever way it was reached (eq:diff-decomposition). The rank is
Copeland's, and with it every top-k. Calls of the heuristic brackets are reported (decisions.md B4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.checks.sanity.gate import Failure, Gate, Outcome, Subject
from afa.copeland import copeland_wins, ranking
from afa.engine.duels import BRACKETS, RIGOROUS, all_pairs
from afa.engine.paths import Snapshots
from afa.engine.rounds import CALLED, EARLY, TIED, WRONG, CallPaths, shared_order_calls
from afa.mrf import ROUNDING, Evidence, Floats
from afa.orders import generator_of
from afa.preference import duels_of, tie_of
from afa.stats.tables import rows_of

READABLE_PATIENTS = 3
SHUFFLES, TIED_MATRICES = 2, 20
POPULATIONS = ("duels", "binary")
WORDS = {1: "a call for the first", -1: "a call for the second", 0: "no call, a tie"}
Rank = Callable[..., list[str]]


def check_energies(subject: Subject, *, altered: Callable[[Bundle], Bundle] | None = None) -> Outcome:
    """Running constants, `linearity`, `stack_a` and the closure's `two_elbo` at |B| = M against S and D.

    S is computed from the potentials alone; `altered` changes the bundle that it is computed from.
    """
    energy = subject.direct_energies(altered(subject.bundle) if altered else None)
    read = subject.once(full_readings)
    a, b = read.pairs.T
    total = _compare(subject, subject.names, "running constant", read.constant[:, 0], energy, read.packed.tie)
    total += _readable_constants(subject, energy, read.packed.tie)
    total += _mean_and_sign(subject, subject.pairs, read, energy[:, a] - energy[:, b])
    for v, closed in enumerate(subject.closures):
        # the binary task of an entity is the duel of its two classes, whose difference is S
        read, direct, names = subject.read(closed, [len(closed.features)]), energy[:, [v]], [subject.tasks[v]]
        bound = read.elbo[:, 0, [0]] - read.elbo[:, 0, [1]]
        total += _compare(subject, names, "two_elbo", bound, direct, 2 * read.packed.tie)
        total += _mean_and_sign(subject, names, read, direct)
    return total


def one_potential_changed(bundle: Bundle) -> Bundle:
    """A copy whose first unary potential is 1 higher."""
    unary = bundle.unary.copy()
    unary[0, 0] += 1.0
    return replace(bundle, unary=unary)


def full_readings(subject: Subject) -> Snapshots:
    """All patients with every feature observed, in the order of the first seed."""
    return subject.read(subject.bundle, [len(subject.bundle.features)])


def _readable_constants(subject: Subject, energy: Floats, tie: float) -> Outcome:
    """The running constants by `Evidence`, for a few patients."""
    chosen, found = subject.some(READABLE_PATIENTS), energy.copy()
    for v, entity in enumerate(subject.bundle.entities):
        model = subject.bundle.mrf(entity)
        for p in chosen:
            evidence = Evidence.of(model)
            for feature in subject.orders[p, 0]:
                evidence = evidence.observe(int(feature), int(subject.values[p, feature]))
            found[p, v] = evidence.constant
    whole = _compare(subject, subject.names, "running constant (readable)", found, energy, tie)
    return replace(whole, cases=len(chosen) * energy.shape[1])


def _mean_and_sign(subject: Subject, names: Sequence[str], read: Snapshots, direct: Floats) -> Outcome:
    tie = 4 * read.packed.tie
    sign = np.where(np.abs(direct) <= tie, 0.0, np.sign(direct))
    means = _compare(subject, names, "linearity", read.mean[:, 0], direct, tie)
    return means + _compare(subject, names, "stack_a", read.stack_a[:, 0], sign, 0.0)


def _compare(
    subject: Subject, names: Sequence[str], what: str, found: Floats, expected: Floats, tolerance: float
) -> Outcome:
    """Cases by patient and entity or pair; not a number is never equal."""

    def describe(p: int, v: int) -> Failure:
        case = f"{names[v]}, patient {subject.patients[p]}, t = {len(subject.bundle.features)}"
        return Failure(case, f"{what} {found[p, v]:.12g}", f"{expected[p, v]:.12g} from the potentials")

    return Outcome.of(~(np.abs(found - expected) <= tolerance + ROUNDING), describe)


def check_ranks(subject: Subject, *, rank: Rank = ranking) -> Outcome:
    """Score matrices of all patients, and random ones full of ties, ranked as they are and with entities shuffled."""
    names = subject.bundle.entities
    draw = generator_of("sanity", "copeland", subject.bundle.name)
    shuffles = [draw.permutation(len(names)) for _ in range(SHUFFLES)]
    total = Outcome()
    for case, scores, tie in (*_of_patients(subject), *_tied(len(names), draw)):
        expected = rank(scores, names, tie=tie)
        for shuffle in shuffles:
            found = rank(scores[np.ix_(shuffle, shuffle)], [names[v] for v in shuffle], tie=tie)
            failure = partial(_moved, f"{subject.bundle.name}, {case}", expected, found)
            total += Outcome.of(np.array([found != expected]), failure)
    return total


def by_position(scores: Floats, names: Sequence[str], *, tie: float = 0.0) -> list[str]:
    """A ranking that leaves ties between wins to the order of the entities: what must not be done."""
    wins = copeland_wins(scores, tie=tie)
    return [names[v] for v in sorted(range(len(names)), key=lambda v: -wins[v])]


def _of_patients(subject: Subject) -> Iterator[tuple[str, Floats, float]]:
    """`wald` and `linearity` before any observation, halfway and at the end."""
    m = len(subject.bundle.features)
    rounds = sorted({0, m // 2, m})
    read = subject.read(subject.bundle, rounds, duels=False)
    for p, patient in enumerate(subject.patients):
        for r, t in enumerate(rounds):
            constant = read.constant[p, r]
            yield f"wald, patient {patient}, t = {t}", constant[:, None] - constant[None, :], read.packed.tie
            yield f"linearity, patient {patient}, t = {t}", duels_of(read.cross[p, r]), read.packed.tie


def _tied(n: int, draw: np.random.Generator) -> Iterator[tuple[str, Floats, float]]:
    for i in range(TIED_MATRICES):
        upper = np.triu(draw.integers(-1, 2, (n, n)), 1).astype(np.float64)
        yield f"random scores {i} with ties", upper - upper.T, 0.0


def _moved(case: str, expected: Sequence[str], found: Sequence[str], _: int) -> Failure:
    place = next(i for i, (one, other) in enumerate(zip(expected, found, strict=True)) if one != other)
    return Failure(f"{case}, rank {place + 1}", f"{found[place]} with entities shuffled", f"{expected[place]}")


def check_calls(subject: Subject, *, budget_share: float = 1.0) -> Outcome:
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
    calls = np.stack([summed[0], np.sum(summed[1:], axis=0)]).reshape(len(decided), -1)
    table = rows_of(**{"population": POPULATIONS, by: cells, "bracket": BRACKETS}).assign(decided=decided)
    return table.assign(called=calls[:, CALLED], wrong=calls[:, WRONG], tied_called=calls[:, TIED])


FULL_OBSERVATION = Gate(
    "full_observation",
    check_energies,
    (partial(check_energies, altered=one_potential_changed),),
    "report this with the bundle: the engine does not condition as the model demands",
)
COPELAND = Gate(
    "copeland",
    check_ranks,
    (partial(check_ranks, rank=by_position),),
    "report this with the bundle: the ranking depends on the order of the entities",
)
SOUNDNESS = Gate(
    "bracket_soundness",
    check_calls,
    (partial(check_calls, budget_share=0.0),),
    "report this with the bundle: a rigorous bracket that is wrong once is a fault of the program, not a rate",
)
