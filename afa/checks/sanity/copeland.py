"""Gate: the Copeland ranking, and with it every top-k, does not depend on the order that the entities come in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from afa.checks.sanity.gate import Failure, Gate, Outcome
from afa.checks.sanity.subject import Subject, generator
from afa.copeland import copeland_wins, ranking
from afa.engine.paths import snapshots
from afa.mrf import Floats
from afa.preference import duels_of

SHUFFLES, TIED_MATRICES = 2, 20
Rank = Callable[..., list[str]]


def check(subject: Subject, *, rank: Rank = ranking) -> Outcome:
    """Score matrices of all patients, and random ones full of ties, ranked as they are and with entities shuffled."""
    names = subject.bundle.entities
    draw = generator(f"copeland\0{subject.bundle.name}")
    shuffles = [draw.permutation(len(names)) for _ in range(SHUFFLES)]
    total = Outcome()
    for case, scores, tie in (*_of_patients(subject), *_tied(len(names), draw)):
        expected = rank(scores, names, tie=tie)
        for shuffle in shuffles:
            found = rank(scores[np.ix_(shuffle, shuffle)], [names[v] for v in shuffle], tie=tie)
            failure = partial(_describe, f"{subject.bundle.name}, {case}", expected, found)
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


def _describe(case: str, expected: Sequence[str], found: Sequence[str], _: int) -> Failure:
    place = next(i for i, (one, other) in enumerate(zip(expected, found, strict=True)) if one != other)
    return Failure(f"{case}, rank {place + 1}", f"{found[place]} with entities shuffled", f"{expected[place]}")


GATE = Gate(
    "copeland",
    check,
    (partial(check, rank=by_position),),
    "report this with the bundle: the ranking depends on the order of the entities",
)
