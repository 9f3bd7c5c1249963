"""Gate: at full observation every score is the energy itself, whichever way it was reached (eq:diff-decomposition)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from afa.bundle import Bundle
from afa.checks.sanity.gate import Failure, Gate, Outcome
from afa.checks.sanity.subject import Subject
from afa.engine.paths import Snapshots, snapshots
from afa.mrf import ROUNDING, Evidence, Floats

READABLE_PATIENTS = 3


def check(subject: Subject, *, altered: Callable[[Bundle], Bundle] | None = None) -> Outcome:
    """Running constants, `linearity`, `stack_a` and the closure's `two_elbo` at |B| = M against S and D.

    S is computed from the potentials alone; `altered` changes the bundle that it is computed from.
    """
    energy = subject.direct_energies(altered(subject.bundle) if altered else None)
    return (_constants(subject, energy) + _readable_constants(subject, energy) + _duels(subject, energy)) + _closures(
        subject, energy
    )


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


def _constants(subject: Subject, energy: Floats) -> Outcome:
    read = subject.once(full_readings)
    return _compare(read.constant[:, 0], energy, read.packed.tie, "running constant", subject.named, subject)


def _readable_constants(subject: Subject, energy: Floats) -> Outcome:
    """The same by `Evidence`, for a few patients."""
    tie, chosen = subject.once(full_readings).packed.tie, subject.some(READABLE_PATIENTS)
    found = energy.copy()
    for v, entity in enumerate(subject.bundle.entities):
        model = subject.bundle.mrf(entity)
        for p in chosen:
            evidence = Evidence.of(model)
            for feature in subject.orders[p, 0]:
                evidence = evidence.observe(int(feature), int(subject.values[p, feature]))
            found[p, v] = evidence.constant
    whole = _compare(found, energy, tie, "running constant (readable)", subject.named, subject)
    return replace(whole, cases=len(chosen) * energy.shape[1])


def _duels(subject: Subject, energy: Floats) -> Outcome:
    read = subject.once(full_readings)
    a, b = read.pairs.T
    difference = energy[:, a] - energy[:, b]
    return _mean_and_sign(subject, read, difference, lambda q: subject.named_pair(int(a[q]), int(b[q])))


def _closures(subject: Subject, energy: Floats) -> Outcome:
    """The binary task of each entity: the duel of its two classes, whose difference is S."""
    total = Outcome()
    for v, closed in enumerate(subject.closures):
        read = _at_the_end(subject, closed)

        def named(_: int, v: int = v) -> str:
            return f"{subject.named(v)} as a binary task"

        direct = energy[:, [v]]
        bound = read.elbo[:, 0, [0]] - read.elbo[:, 0, [1]]
        total += _compare(bound, direct, 2 * read.packed.tie, "two_elbo", named, subject)
        total += _mean_and_sign(subject, read, direct, named)
    return total


def _mean_and_sign(subject: Subject, read: Snapshots, direct: Floats, named: Callable[[int], str]) -> Outcome:
    tie = 4 * read.packed.tie
    sign = np.where(np.abs(direct) <= tie, 0.0, np.sign(direct))
    return _compare(read.mean[:, 0], direct, tie, "linearity", named, subject) + _compare(
        read.stack_a[:, 0], sign, 0.0, "stack_a", named, subject
    )


def _compare(
    found: Floats, expected: Floats, tolerance: float, what: str, named: Callable[[int], str], subject: Subject
) -> Outcome:
    """Cases by patient and entity or pair; not a number is never equal."""

    def describe(p: int, v: int) -> Failure:
        case = f"{named(v)}, patient {subject.patients[p]}, t = {len(subject.bundle.features)}"
        return Failure(case, f"{what} {found[p, v]:.12g}", f"{expected[p, v]:.12g} from the potentials")

    return Outcome.of(~(np.abs(found - expected) <= tolerance + ROUNDING), describe)


GATE = Gate(
    "full_observation",
    check,
    (lambda subject: check(subject, altered=one_potential_changed),),
    "report this with the bundle: the engine does not condition as the model demands",
)
