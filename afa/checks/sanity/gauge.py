"""Gate: `wald`, `l1` and every full-observation decision are functions of S alone, whatever the common gauge g is.

Class models p_1 ~ exp(S/2 + G) and p_0 ~ exp(-S/2 + G) have the same log-ratio for every G. Scores that rest on
inference do depend on it at intermediate states (decisions.md B5, against supp:sanity): by how much is reported, not
judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bracket import GAMMA
from afa.bundle import Bundle
from afa.checks.sanity.gate import Failure, Gate, Outcome, Subject, bundle_of
from afa.engine.duels import BRACKETS, Duel
from afa.engine.paths import Snapshots
from afa.mrf import ROUNDING, Floats
from afa.orders import generator_of

PATIENTS, ROUNDS, OUTSIDE = 24, 9, 3
WHOLE = (1.0, 1.0)
WIDTH = Duel._fields.index("spread"), Duel._fields.index("beta")


def check(subject: Subject, *, share: tuple[float, float] = WHOLE, everywhere: bool = True) -> Outcome:
    """A gauge on both classes of each binary task, then a constant on every S_v.

    share : how much of G each class takes. everywhere : whether all entities take the constant, or the first alone.
    """
    total = Outcome()
    compared = subject.once(gauge_readings) if share == WHOLE else gauge_readings(subject, share)
    for task, (plain, gauged) in zip(subject.tasks, compared, strict=True):
        total += _same_decisions(subject, plain, gauged, [task])
    return total + _constant_added(subject, everywhere=everywhere)


def gauge_readings(subject: Subject, share: tuple[float, float] = WHOLE) -> list[tuple[Snapshots, Snapshots]]:
    """Each binary task without and with a random gauge, for a few patients and rounds."""
    return [(_read(subject, closed), _read(subject, with_gauge(closed, share))) for closed in subject.closures]


def gauge_change(subject: Subject) -> pd.DataFrame:
    """How `two_elbo`, `stack_a` and the Hanson-Wright interval change with the gauge, by number of observations.

    states : of a patient and a binary task. changed : states whose decision, the sign or the side that is called,
    changes. mean_change, max_change : of the score, in nats for `two_elbo`; of the end of the interval that moves more.
    """
    compared = subject.once(gauge_readings)
    tables = []
    for score, value, decision in (
        ("two_elbo", _two_elbo, lambda read: _signs(_two_elbo(read), read.packed.tie)),
        ("stack_a", lambda read: read.stack_a, lambda read: np.sign(read.stack_a)),
        ("hanson_wright", _hanson_wright, lambda read: read.calls[..., BRACKETS.index("hanson_wright")]),
    ):
        change = np.stack([np.abs(value(gauged) - value(plain)).max(axis=-1) for plain, gauged in compared])
        changed = np.stack([(decision(gauged) != decision(plain))[..., 0] for plain, gauged in compared])
        table = pd.DataFrame({"subject": subject.bundle.name, "score": score, "t": compared[0][0].rounds})
        tables.append(
            table.assign(
                states=changed.shape[0] * changed.shape[1],
                changed=changed.sum(axis=(0, 1)),
                mean_change=change.mean(axis=(0, 1)),
                max_change=change.max(axis=(0, 1)),
            )
        )
    return pd.concat(tables, ignore_index=True)


def with_gauge(closed: Bundle, share: tuple[float, float]) -> Bundle:
    """A closed bundle with G added to its two classes in these shares, G a random pairwise model named by the bundle.

    G lives on the support of S and a few features outside it. Its potentials are multiples of 1/8, so that the sums of
    a bundle of whole potentials stay exact.
    """
    draw = generator_of("sanity", "gauge", closed.name)
    m = len(closed.features)
    support = closed.support(closed.entities[0])
    outside = draw.permutation(np.setdiff1d(np.arange(m), support))[:OUTSIDE]
    inside = np.sort(np.concatenate([support, outside]))
    unary, couplings = np.zeros(m), np.zeros((m, m))
    unary[inside] = draw.integers(-8, 9, len(inside)) / 8
    strength = draw.integers(-8, 9, (len(inside),) * 2) / 8
    couplings[np.ix_(inside, inside)] = strength * (draw.random(strength.shape) < 0.2)
    shares = np.array(share)
    upper = np.stack([np.triu(closed.couplings(entity).toarray(), 1) for entity in closed.entities])
    return bundle_of(
        closed.name,
        closed.entities,
        closed.features,
        closed.unary + shares[:, None] * unary,
        upper + shares[:, None, None] * np.triu(couplings, 1),
        closed.priors,
    )


def _read(subject: Subject, bundle: Bundle) -> Snapshots:
    return subject.read(bundle, subject.rounds(ROUNDS), subject.some(PATIENTS))


def _same_decisions(subject: Subject, plain: Snapshots, other: Snapshots, names: Sequence[str]) -> Outcome:
    """`wald`, the `l1` budgets and calls at every round read, and the signs of all scores at full observation."""
    tie = 4 * max(plain.packed.tie, other.packed.tie) + ROUNDING
    alike = partial(_alike, subject, names, plain.rounds)
    at_the_end = partial(_alike, subject, names, plain.rounds[-1:])
    total = Outcome()
    for what, of in (("wald", _lead), ("l1 budget", lambda read: read.sums[..., 0]), ("l1 couplings", _between)):
        total += alike(what, of(plain), of(other), tie)
    for i, bracket in enumerate(BRACKETS[:2]):
        total += alike(f"call of {bracket}", plain.calls[..., i], other.calls[..., i])
    for what, of in (("wald", _lead), ("linearity", lambda read: read.mean), ("two_elbo", _two_elbo)):
        signs = [_signs(of(read)[:, -1:], tie) for read in (plain, other)]
        total += at_the_end(f"decision of {what}", signs[0], signs[1])
    return total + at_the_end("decision of stack_a", *np.sign([plain.stack_a[:, -1:], other.stack_a[:, -1:]]))


def _constant_added(subject: Subject, *, everywhere: bool) -> Outcome:
    """More than the largest |S| added to every S_v: no duel moves, every binary decision becomes 1."""
    bundle = subject.bundle
    added = np.zeros(len(bundle.entities))
    added[: None if everywhere else 1] = 1.0 + np.ceil(np.abs(subject.direct_energies()).max(initial=0.0))
    plain, shifted = (_read(subject, each) for each in (bundle, replace(bundle, priors=bundle.priors + added)))
    total = _same_decisions(subject, plain, shifted, [f"{pair}, equal priors added" for pair in subject.pairs])
    for v, entity in enumerate(bundle.entities if everywhere else ()):
        closed, task = subject.once(gauge_readings)[v][0], subject.closures[v]
        halves = np.array([added[v], -added[v]]) / 2
        moved = _read(subject, replace(task, priors=task.priors + halves))
        alike = partial(_alike, subject, [subject.tasks[v]])
        tie = 4 * moved.packed.tie + ROUNDING
        total += alike(closed.rounds, f"wald of {entity} and a constant", _lead(closed) + added[v], _lead(moved), tie)
        decision = _signs(_lead(moved)[:, -1:], moved.packed.tie)
        total += alike(closed.rounds[-1:], "decision with a constant added", np.ones_like(decision), decision)
    return total


def _lead(read: Snapshots) -> Floats:
    a, b = read.pairs.T
    return read.constant[..., a] - read.constant[..., b]


def _between(read: Snapshots) -> Floats:
    return read.sums[..., Duel._fields.index("between")]


def _two_elbo(read: Snapshots) -> Floats:
    a, b = read.pairs.T
    return read.elbo[..., a] - read.elbo[..., b]


def _hanson_wright(read: Snapshots) -> Floats:
    """(P, R, 2) ends of the interval of one duel, as `afa.bracket.hanson_wright_interval`."""
    spread, beta = (read.sums[..., 0, i] for i in WIDTH)
    mean, score = read.mean[..., 0], read.stack_a[..., 0]
    deviation = np.sqrt(2 * spread * np.log(2 / GAMMA) * (1 + beta))
    width = np.divide(np.abs(score) * deviation, np.abs(mean), out=np.full(mean.shape, 2.0), where=mean != 0)
    width[spread == 0] = 0.0
    return np.stack([np.maximum(-1.0, score - width), np.minimum(1.0, score + width)], axis=-1)


def _signs(values: Floats, tie: float) -> Floats:
    return np.where(np.abs(values) <= tie, 0.0, np.sign(values))


def _alike(
    subject: Subject,
    names: Sequence[str],
    rounds: NDArray[np.int64],
    what: str,
    expected: NDArray[Any],
    found: NDArray[Any],
    tolerance: float = 0.0,
) -> Outcome:
    """Cases by patient, round and duel, both arrays (P, R, Q)."""
    chosen = subject.some(PATIENTS)

    def describe(p: int, r: int, q: int) -> Failure:
        case = f"{names[q]}, patient {subject.patients[chosen[p]]}, t = {rounds[r]}"
        return Failure(case, f"{what} {found[p, r, q]:.12g}", f"{expected[p, r, q]:.12g}, as without the gauge")

    difference = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    return Outcome.of(~(difference <= tolerance), describe)


GAUGE = Gate(
    "gauge",
    check,
    (partial(check, share=(1.0, 0.0)), partial(check, everywhere=False)),
    "report this with the bundle: a score that should depend on S alone depends on the classes' common part",
)
