"""Three acceptance tests of scores: at full observation, after changes of the models, and for shuffled entities.

At full observation, the scores `linearity` and `two_elbo` must equal the energy S(x) (eq:diff-decomposition). The score
`stack_a` must equal the sign of S(x). A gauge is a function G of the features that is added to the exponents of both
class models: p_1 ~ exp(S/2 + G) and p_0 ~ exp(-S/2 + G). G cancels in the log-ratio of the class models. For this
reason, `wald`, `l1` and every decision at full observation do not depend on G. Before full observation, scores that use
inference do depend on G (decisions.md B5, in contrast to supp:sanity). The stage reports how much G changes these
scores, but no test checks this change. Entities are ranked by Copeland's rule, so that ranks and top k do not depend on
the order of the entities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.engine.duels import BRACKETS, Duel
from afa.engine.paths import StateSamples
from afa.model.arrays import Floats, Ints
from afa.model.bundle import Bundle
from afa.model.mrf import ROUNDING, Evidence
from afa.model.orders import generator_of
from afa.paper.sanity import CheckResult, Failure, Gate, Subject, bundle_of
from afa.scores.bracket import GAMMA
from afa.scores.copeland import copeland_wins, ranking
from afa.scores.preference import duels_of

READABLE_PATIENTS = 3
N_SHUFFLES, TIED_MATRICES = 2, 20
PATIENTS, ROUNDS, OUTSIDE = 24, 9, 3
WHOLE_SHARES = (1.0, 1.0)
BETWEEN, SPREAD, BETA = map(Duel._fields.index, ("between", "spread", "beta"))
Rank = Callable[..., list[str]]


def check_energies(subject: Subject, *, altered: Callable[[Bundle], Bundle] | None = None) -> CheckResult:
    """Check that all scores at full observation (|B| = M) equal the energy S or the difference D = S_a - S_b.

    The checked scores are the energy of the observed features, `linearity`, `stack_a` and, for binary tasks,
    `two_elbo`. In duels, `stack_a` must equal the sign of D. In binary tasks, `stack_a` must equal the sign of S. S is
    computed directly from the potentials.

    Parameters
    ----------
    altered : function that returns a changed bundle, from which S is then computed

    """
    energy = altered(subject.bundle).energies(subject.values) if altered else subject.energies
    read = subject.once(full_scores)
    a, b = read.pairs.T
    total = _check_at_full_observation(
        subject, subject.names, "running constant", energy, read.constant[:, 0], read.packed.tie
    )
    total += _check_readable_constants(subject, energy, read.packed.tie)
    total += _check_mean_and_sign(subject, subject.pairs, read, energy[:, a] - energy[:, b])
    for v, closed in enumerate(subject.closures):
        # The binary task of an entity compares two class models. The difference of their energies is S.
        read, direct, names = subject.read(closed, [len(closed.features)]), energy[:, [v]], [subject.tasks[v]]
        total += _check_at_full_observation(
            subject, names, "two_elbo", direct, _two_elbo(read)[:, 0], 2 * read.packed.tie
        )
        total += _check_mean_and_sign(subject, names, read, direct)
    return total


def one_potential_changed(bundle: Bundle) -> Bundle:
    """Return a copy of the bundle in which the first unary potential is increased by 1."""
    unary = bundle.unary.copy()
    unary[0, 0] += 1.0
    return replace(bundle, unary=unary)


def full_scores(subject: Subject) -> StateSamples:
    """Return the inference results of all patients at full observation."""
    return subject.read(subject.bundle, [len(subject.bundle.features)])


def _check_readable_constants(subject: Subject, energy: Floats, tie: float) -> CheckResult:
    """Check for a few patients that, after all observations, `Evidence.constant` equals the given energy."""
    chosen, found = subject.some(READABLE_PATIENTS), energy.copy()
    for v, entity in enumerate(subject.bundle.entities):
        model = subject.bundle.mrf(entity)
        for p in chosen:
            evidence = Evidence.of(model)
            for feature in subject.orders[p, 0]:
                evidence = evidence.observe(int(feature), int(subject.values[p, feature]))
            found[p, v] = evidence.constant
    whole = _check_at_full_observation(subject, subject.names, "running constant (readable)", energy, found, tie)
    return replace(whole, cases=len(chosen) * energy.shape[1])


def _check_mean_and_sign(subject: Subject, names: Sequence[str], read: StateSamples, direct: Floats) -> CheckResult:
    tie = 4 * read.packed.tie
    means = _check_at_full_observation(subject, names, "linearity", direct, read.mean[:, 0], tie)
    return means + _check_at_full_observation(
        subject, names, "stack_a", _signs_with_ties(direct, tie), read.stack_a[:, 0], 0.0
    )


def _check_at_full_observation(
    subject: Subject, names: Sequence[str], what: str, direct: Floats, found: Floats, tolerance: float
) -> CheckResult:
    """Check that a score at full observation equals the sum of the potentials.

    Parameters
    ----------
    direct, found : (P, N) or (P, Q) float64

    """
    alike = partial(_check_equal, subject, names, [len(subject.bundle.features)], said=" from the potentials")
    return alike(what, direct[:, None], found[:, None], tolerance + ROUNDING)


def check_ranks(subject: Subject, *, rank: Rank = ranking) -> CheckResult:
    """Check that the ranking of the entities stays the same when the entities are shuffled.

    The check ranks entities by two kinds of scores: the scores of the patients in `subject`, and random scores with
    many ties.

    Parameters
    ----------
    rank : the ranking function to check

    """
    names = subject.bundle.entities
    draw = generator_of("sanity", "copeland", subject.bundle.name)
    shuffles = [draw.permutation(len(names)) for _ in range(N_SHUFFLES)]
    total = CheckResult()
    for case, scores, tie in _score_matrices(subject, draw):
        expected = rank(scores, names, tie=tie)
        for shuffle in shuffles:
            found = rank(scores[np.ix_(shuffle, shuffle)], [names[v] for v in shuffle], tie=tie)
            moved = [place for place, name in enumerate(expected) if found[place] != name]
            total += CheckResult(1)
            for place in moved[:1]:
                where, other = (
                    f"{subject.bundle.name}, {case}, rank {place + 1}",
                    f"{found[place]} with entities shuffled",
                )
                total += CheckResult(0, 1, (Failure(where, other, expected[place]),))
    return total


def by_position(scores: Floats, names: Sequence[str], *, tie: float = 0.0) -> list[str]:
    """Return a ranking that breaks ties by the order of the entities.

    This ranking is wrong on purpose. Perturbed checks use it.

    Parameters
    ----------
    scores : (N, N) float64, scores of duels

    """
    wins = copeland_wins(scores, tie=tie)
    return [names[v] for v in sorted(range(len(names)), key=lambda v: -wins[v])]


def _score_matrices(subject: Subject, draw: np.random.Generator) -> Iterator[tuple[str, Floats, float]]:
    """Yield (name, matrix of duel scores, largest magnitude that counts as a tie).

    Some matrices contain the score `wald` or `linearity` of one patient with none, half or all of the features
    observed. The other matrices contain random scores with many ties.
    """
    m, n = len(subject.bundle.features), len(subject.bundle.entities)
    rounds = sorted({0, m // 2, m})
    read = subject.read(subject.bundle, rounds, duels=False)
    for p, patient in enumerate(subject.patients):
        for r, t in enumerate(rounds):
            constant = read.constant[p, r]
            yield f"wald, patient {patient}, t = {t}", constant[:, None] - constant[None, :], read.packed.tie
            yield f"linearity, patient {patient}, t = {t}", duels_of(read.cross[p, r]), read.packed.tie
    for i in range(TIED_MATRICES):
        upper = np.triu(draw.integers(-1, 2, (n, n)), 1).astype(np.float64)
        yield f"random scores {i} with ties", upper - upper.T, 0.0


def check_gauge(subject: Subject, *, share: tuple[float, float] = WHOLE_SHARES, everywhere: bool = True) -> CheckResult:
    """Check that decisions stay the same after two changes of the models.

    The first change adds a random model G (the gauge) to both class models of each binary task. The second change adds
    a constant to the score S_v of every entity v.

    Parameters
    ----------
    share : for each class, the share of the gauge G that is added
    everywhere : True to add the constant to all entities, False to add it only to the first entity

    """
    total = CheckResult()
    compared = subject.once(gauge_differences) if share == WHOLE_SHARES else gauge_differences(subject, share)
    for task, (plain, gauged) in zip(subject.tasks, compared, strict=True):
        total += _check_same_decisions(subject, plain, gauged, [task])
    return total + _check_added_constant(subject, everywhere=everywhere)


def gauge_differences(
    subject: Subject, share: tuple[float, float] = WHOLE_SHARES
) -> list[tuple[StateSamples, StateSamples]]:
    """Return the inference results of each binary task twice: without and with a gauge (random further potentials).

    A gauge is a set of potentials that are added to the potentials of both class models of a binary task. Only some
    patients and rounds are used.
    """
    return [
        (_read_samples(subject, closed), _read_samples(subject, with_gauge(closed, share)))
        for closed in subject.closures
    ]


def gauge_change(subject: Subject) -> pd.DataFrame:
    """Return a table of the changes that a gauge causes in `two_elbo`, `stack_a` and the Hanson-Wright interval.

    A gauge is a set of random potentials that are added to the potentials of both class models of a binary task. For
    each t, the table has one row for each of the two scores and one row for the interval. `states` is the number of
    pairs of a patient and a binary task. `changed` is the number of pairs whose decision changes. For a score, the
    decision is the sign of the score. For an interval, the decision is the sign of the numbers in the interval, or 0 if
    the interval contains 0. A change of a score is the absolute difference between its values without and with the
    gauge. `mean_change` and `max_change` are the mean and the largest change of a score over all pairs of a patient and
    a task. The changes of `two_elbo` are in nats. The change of an interval is the larger of the changes of its two
    ends.
    """
    compared = subject.once(gauge_differences)
    tables = []
    for score, value, decision in (
        ("two_elbo", _two_elbo, lambda read: _signs_with_ties(_two_elbo(read), read.packed.tie)),
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
    """Return the bundle of a binary task after random potentials (a gauge G) were added to both class models.

    The bundle's name determines the seed of G. G has potentials for the support of S and a few more features. The
    potentials of G are multiples of 1/8, so that sums in a bundle with integer potentials stay exact.

    Parameters
    ----------
    share : share of G that is added to each class

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


def _read_samples(subject: Subject, bundle: Bundle) -> StateSamples:
    return subject.read(bundle, subject.rounds(ROUNDS), subject.some(PATIENTS))


def _check_same_decisions(
    subject: Subject, plain: StateSamples, other: StateSamples, names: Sequence[str]
) -> CheckResult:
    """Check that decisions are the same before and after a change of the models.

    The change of the models must not affect the score `wald` at any round. At any round, the change must affect neither
    two sums in the `l1` bounds nor the decisions made from the bounds `l1_tight` and `l1_paper`. At full observation,
    the change must not affect the signs of `wald`, `linearity`, `two_elbo` and `stack_a`.
    """
    tie = 4 * max(plain.packed.tie, other.packed.tie) + ROUNDING
    alike = partial(_check_equal, subject, names, plain.rounds)
    at_the_end = partial(_check_equal, subject, names, plain.rounds[-1:])
    total = CheckResult()
    for what, of in (
        ("wald", _wald),
        ("l1 budget", lambda read: read.sums[..., 0]),
        ("l1 couplings", lambda read: read.sums[..., BETWEEN]),
    ):
        total += alike(what, of(plain), of(other), tie)
    for i, bracket in enumerate(BRACKETS[:2]):
        total += alike(f"call of {bracket}", plain.calls[..., i], other.calls[..., i])
    for what, of in (("wald", _wald), ("linearity", lambda read: read.mean), ("two_elbo", _two_elbo)):
        signs = [_signs_with_ties(of(read)[:, -1:], tie) for read in (plain, other)]
        total += at_the_end(f"decision of {what}", signs[0], signs[1])
    return total + at_the_end("decision of stack_a", *np.sign([plain.stack_a[:, -1:], other.stack_a[:, -1:]]))


def _check_added_constant(subject: Subject, *, everywhere: bool) -> CheckResult:
    """Check how decisions change if a constant larger than any |S| is added to every S_v.

    The decisions in duels must stay the same. With the added constant, every binary task must be decided for the entity
    (decision 1) at full observation.
    """
    bundle = subject.bundle
    added = np.zeros(len(bundle.entities))
    added[: None if everywhere else 1] = 1.0 + np.ceil(np.abs(subject.energies).max(initial=0.0))
    plain, shifted = (_read_samples(subject, each) for each in (bundle, replace(bundle, priors=bundle.priors + added)))
    total = _check_same_decisions(subject, plain, shifted, [f"{pair}, equal priors added" for pair in subject.pairs])
    for v, entity in enumerate(bundle.entities if everywhere else ()):
        closed, task = subject.once(gauge_differences)[v][0], subject.closures[v]
        halves = np.array([added[v], -added[v]]) / 2
        moved = _read_samples(subject, replace(task, priors=task.priors + halves))
        alike = partial(_check_equal, subject, [subject.tasks[v]])
        tie = 4 * moved.packed.tie + ROUNDING
        total += alike(closed.rounds, f"wald of {entity} and a constant", _wald(closed) + added[v], _wald(moved), tie)
        decision = _signs_with_ties(_wald(moved)[:, -1:], moved.packed.tie)
        total += alike(closed.rounds[-1:], "decision with a constant added", np.ones_like(decision), decision)
    return total


def _wald(read: StateSamples) -> Floats:
    a, b = read.pairs.T
    return read.constant[..., a] - read.constant[..., b]


def _two_elbo(read: StateSamples) -> Floats:
    a, b = read.pairs.T
    return read.elbo[..., a] - read.elbo[..., b]


def _hanson_wright(read: StateSamples) -> Floats:
    """Return both ends of one duel's Hanson-Wright interval, (P, R, 2) float64.

    The formula is in `afa.scores.bracket.hanson_wright_interval`.
    """
    spread, beta = (read.sums[..., 0, i] for i in (SPREAD, BETA))
    mean, score = read.mean[..., 0], read.stack_a[..., 0]
    deviation = np.sqrt(2 * spread * np.log(2 / GAMMA) * (1 + beta))
    width = np.divide(np.abs(score) * deviation, np.abs(mean), out=np.full(mean.shape, 2.0), where=mean != 0)
    width[spread == 0] = 0.0
    return np.stack([np.maximum(-1.0, score - width), np.minimum(1.0, score + width)], axis=-1)


def _signs_with_ties(values: Floats, tie: float) -> Floats:
    return np.where(np.abs(values) <= tie, 0.0, np.sign(values))


def _check_equal(
    subject: Subject,
    names: Sequence[str],
    rounds: Sequence[int] | Ints,
    what: str,
    expected: NDArray[Any],
    found: NDArray[Any],
    tolerance: float = 0.0,
    said: str = ", as without the gauge",
) -> CheckResult:
    """Check that two arrays with the axes patient, round and duel are equal. A NaN counts as a failure.

    Parameters
    ----------
    expected, found : (P, R, Q) arrays for all or some patients

    """
    chosen = subject.some(len(found))

    def describe(p: int, r: int, q: int) -> Failure:
        case = f"{names[q]}, patient {subject.patients[chosen[p]]}, t = {rounds[r]}"
        return Failure(case, f"{what} {found[p, r, q]:.12g}", f"{expected[p, r, q]:.12g}{said}")

    difference = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    return CheckResult.of(~(difference <= tolerance), describe)


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
GAUGE = Gate(
    "gauge",
    check_gauge,
    (partial(check_gauge, share=(1.0, 0.0)), partial(check_gauge, everywhere=False)),
    "report this with the bundle: a score that should depend on S alone depends on the classes' common part",
)
