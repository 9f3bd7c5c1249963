"""Two gates: at full observation every score is the energy itself, and ranks do not depend on the entities' order.

The energy is S(x), whichever way it was reached (eq:diff-decomposition). The rank is Copeland's, and with it every
top-k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from afa.bundle import Bundle
from afa.checks.sanity.gate import Failure, Gate, Outcome, Subject
from afa.copeland import copeland_wins, ranking
from afa.engine.paths import Snapshots, snapshots
from afa.mrf import ROUNDING, Evidence, Floats
from afa.orders import generator_of
from afa.preference import duels_of

READABLE_PATIENTS = 3
SHUFFLES, TIED_MATRICES = 2, 20
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
        read, direct, names = _at_the_end(subject, closed), energy[:, [v]], [subject.tasks[v]]
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
    return _at_the_end(subject, subject.bundle)


def _at_the_end(subject: Subject, bundle: Bundle) -> Snapshots:
    rounds = [len(bundle.features)]
    values, orders = subject.values, subject.orders[:, 0]
    return snapshots(bundle, values, orders, rounds, solver=subject.solver, threads=subject.threads)


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
    orders = subject.orders[:, 0]
    values, solver, threads = subject.values, subject.solver, subject.threads
    read = snapshots(subject.bundle, values, orders, rounds, solver=solver, duels=False, threads=threads)
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
