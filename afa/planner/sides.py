"""The sides of a duel in the explicit gauge: what each entity says of the features, laid out once for all patients.

Every entity has two models on the features that it speaks of: its own, and one without it. S_v is their difference.
Where several entities may hold, the second is the entity's own *without*; where exactly one does, it is the background,
which cancels between entities (docs/decisions.md, F3 and F6). A duel is D_ab = S_a - S_b either way.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from afa.inference.class_odds import known_log_ratio, log_ratio
from afa.model.bundle import Bundle
from afa.model.bundle.rates import bundle_models, group_states, hypotheses_of
from afa.model.mrf import ROUNDING, VALUES, Floats, PairwiseMRF, pair_terms
from afa.scores.belief import ScoreTable

Indices = NDArray[np.int64]


class Repeats(NamedTuple):
    """How much the findings of a side repeat each other (docs/decisions.md, F16).

    own : (n,) variances of the log-ratios of its features within a class, the mean of both. together : (n, n) the same
    with the covariances that the couplings make, to first order. least : a lower bound on the share that is believed.
    """

    own: Floats
    together: Floats
    least: float

    def believed(self, seen: NDArray[np.bool_]) -> Floats:
        """(...,) the part of the log-odds that is believed once the features `seen` (..., n) are known, at most 1."""
        own, together = seen @ self.own, ((seen @ self.together) * seen).sum(axis=-1)
        return np.asarray(np.divide(own, together, out=np.ones_like(own), where=together > own))


class Side(NamedTuple):
    """One entity, or nothing at all: its models, on the features `at`, (n,) ascending indices.

    links : (p, 2) the pairs that either model couples, by index of the bundle. pair_terms : (p, 9) what they add to
    E_1 - E_0 at each pair of values, NaN at those that cannot occur. members : by exclusive group, (2, g), the
    probabilities that each of its features is +1, in either class. repeats : of a side that is believed by how much its
    findings repeat each other; its models have no couplings then.
    """

    one: PairwiseMRF
    zero: PairwiseMRF
    at: Indices
    links: Indices
    pair_terms: Floats
    members: tuple[Floats, ...]
    repeats: Repeats | None = None


class Fixed(NamedTuple):
    """What no observation changes.

    holder : (N, M) the place of a feature in a side, -1 where it is silent. background, possible : (M, 3).
    groups : the exclusive ones. measured_at_once : of each, whether all its features come from one measurement.
    kappa : (N,) log Z_1 - log Z_0 at no observation, as far as the models leave it out and it is known; else 0.
    tie : a score of at most this magnitude is rounding. ranges : of `links_of`, by duel, the last `KEPT` of them.
    """

    sides: tuple[Side, ...]
    holder: Indices
    background: Floats
    possible: NDArray[np.bool_]
    groups: tuple[Indices, ...]
    measured_at_once: tuple[bool, ...]
    kappa: Floats
    tie: float
    ranges: dict[tuple[int, ...], tuple[Indices, Floats]]

    @property
    def n_features(self) -> int:
        """M."""
        return len(self.background)

    def links_of(self, *sides: int) -> tuple[Indices, Floats]:
        """The pairs (p, 2) that one side, or either of a duel, couples, and (2, p) the least and most each can add.

        Neither sign is on the wrong side of 0: a pair that is never measured adds nothing (docs/decisions.md, F12).
        """
        if sides not in self.ranges:
            if len(self.ranges) >= KEPT:
                self.ranges.clear()
            links = np.concatenate([self.sides[v].links for v in sides])
            terms = np.concatenate(
                [sign * self.sides[v].pair_terms for sign, v in zip((1.0, -1.0), sides, strict=False)]
            )
            links, place = np.unique(links, axis=0, return_inverse=True)
            joined = np.zeros((len(links), 9))
            np.add.at(joined, place.ravel(), np.nan_to_num(terms))
            ends = np.stack([joined.min(axis=1, initial=0.0), joined.max(axis=1, initial=0.0)])
            self.ranges[sides] = links, ends
        return self.ranges[sides]


KEPT = 5000
"""Duels whose couplings are kept joined."""
KNOWN: WeakKeyDictionary[Bundle, dict[tuple[str, bool, str | None, bool], Fixed]] = WeakKeyDictionary()


def sides_for(
    bundle: Bundle, holds: str, *, exactly: bool, entity: str | None = None, discounted: bool = False
) -> Fixed:
    """The sides of the duels: all entities, or one entity against nothing; laid out once.

    holds : as of `afa.model.bundle.rates.Rates`. exactly : whether kappa is that of exact inference, not mean-field's
        0.
    discounted : whether couplings discount what is believed instead of entering the models (docs/decisions.md, F16).
    """
    known = KNOWN.setdefault(bundle, {})
    key = holds, exactly, entity, discounted
    if key not in known:
        known[key] = _laid_out(bundle, holds, exactly=exactly, entity=entity, discounted=discounted)
    return known[key]


def score_table_of(fixed: Fixed, entities: tuple[str, ...], features: tuple[str, ...]) -> ScoreTable:
    """Return the scores S_v of all sides, one class less the other, for the belief about them (docs/frontier.md)."""
    constant, slots, couplings = np.zeros(len(fixed.sides)), list[tuple[int, int, Floats]](), list[tuple[float, ...]]()
    for v, side in enumerate(fixed.sides):
        difference = side.one - side.zero
        constant[v] = difference.prior
        terms = {int(j): row for j, row in zip(side.at, difference.terms, strict=True)}
        for group, classes in zip(fixed.groups, side.members, strict=True):
            none = np.log1p(-classes.sum(axis=1))
            constant[v] += none[0] - none[1]
            for j, chance in zip(group, np.log(classes[0] / classes[1]), strict=True):
                terms[int(j)] = np.array([0.0, 0.0, chance - none[0] + none[1]])
        slots += [(v, j, np.where(np.isfinite(terms[j]), terms[j], 0.0)) for j in sorted(terms)]
        upper = sp.triu(difference.couplings).tocoo()
        couplings += [(v, side.at[i], side.at[j], psi) for i, j, psi in zip(*upper.coords, upper.data, strict=True)]
    place = {(v, j): i for i, (v, j, _) in enumerate(slots)}
    ends = [[place[int(v), int(pair[end])] for v, *pair in couplings] for end in (0, 1)]
    return ScoreTable(
        entities,
        features,
        constant,
        np.array([v for v, _, _ in slots], dtype=np.int64),
        np.array([j for _, j, _ in slots], dtype=np.int64),
        np.array([terms for _, _, terms in slots]).reshape(-1, 3),
        np.array([v for v, *_ in couplings], dtype=np.int64),
        np.array(ends, dtype=np.int64).reshape(2, -1),
        np.array([psi for *_, psi in couplings], dtype=np.float64),
        fixed.groups,
    )


def _laid_out(bundle: Bundle, holds: str, *, exactly: bool, entity: str | None, discounted: bool) -> Fixed:
    background = bundle.background
    groups = tuple(np.array(members, dtype=np.int64) for _, members in bundle.exclusive)
    models, classes = [], []
    if entity is not None or holds == "several":
        for name in bundle.entities if entity is None else (entity,):
            with_entity, without, at = bundle.how_often(name)
            models.append((*bundle_models(bundle, name, 0.0, at), at))
            classes.append((with_entity, without))
    else:
        for name, (one, at) in zip(bundle.entities, hypotheses_of(bundle), strict=True):
            alone = PairwiseMRF.of_probabilities(background[at], 0 * one.couplings, 0.0, one.features)
            models.append((one, alone, at))
            classes.append((bundle.how_often(name)[0], background))
    if entity is not None:
        nothing = PairwiseMRF.of_probabilities(np.empty((0, 3)), np.empty((0, 0)))
        models.append((nothing, nothing, np.empty(0, dtype=np.intp)))
        classes.append((background, background))
    sides, kappa = list[Side](), np.zeros(len(models))
    for v, ((*pair, at), shares) in enumerate(zip(models, classes, strict=True)):
        repeats = _repeats(*pair) if discounted else None
        one, zero = (_again(model, 0 * model.couplings, 0.0) for model in pair) if discounted else pair
        kappa[v] = (log_ratio if exactly else known_log_ratio)(one, zero)
        if exactly:
            one, kappa[v] = _again(one, one.couplings, -kappa[v]), 0.0
        row, column = sp.triu(abs(one.couplings) + abs(zero.couplings)).nonzero()
        members = tuple(np.stack([group_states(p[group, 2], bundle.floor) for p in shares]) for group in groups)
        links = np.column_stack([at[row], at[column]]).astype(np.int64)
        terms = pair_terms(one, zero, row, column).reshape(-1, 9)
        sides.append(Side(one, zero, at.astype(np.int64), links, terms, members, repeats))
    holder = np.full((len(sides), len(bundle.features)), -1, dtype=np.int64)
    for v, side in enumerate(sides):
        holder[v, side.at] = np.arange(len(side.at))
    together = [set(members) for _, members in (bundle.rates.measurements if bundle.rates else ())]
    at_once = tuple(any(set(group.tolist()) <= members for members in together) for group in groups)
    tie = ROUNDING * max(side.one.reach + side.zero.reach for side in sides)
    return Fixed(tuple(sides), holder, background, bundle.possible, groups, at_once, kappa, tie, {})


def _repeats(one: PairwiseMRF, zero: PairwiseMRF) -> Repeats:
    """Variances and covariances of log-ratios u within a class, to first order psi_jl cov(u_j, x_j) cov(u_l, x_l)."""
    n, x = one.n_features, np.array(VALUES)
    u = np.where(one.possible, one.terms, 0.0) - np.where(one.possible, zero.terms, 0.0)
    own, together = np.zeros(n), np.zeros((n, n))
    for model in (one, zero):
        p = np.where(model.possible, np.exp(model.terms), 0.0)
        mean = (p * u).sum(axis=1, keepdims=True)
        own += (p * (u - mean) ** 2).sum(axis=1) / 2
        with_value = (p * (u - mean) * x).sum(axis=1)
        together += model.couplings.toarray() * np.outer(with_value, with_value) / 2
    added = np.maximum(together, 0.0).sum(axis=1)
    least = float(np.divide(own, own + added, out=np.ones(n), where=own + added > 0).min(initial=1.0))
    return Repeats(own, together + np.diag(own), least)


def _again(model: PairwiseMRF, couplings: sp.csr_array, by: float) -> PairwiseMRF:
    """The model of the same probabilities with other couplings, and `by` added to its constant."""
    return PairwiseMRF.of_probabilities(np.exp(model.terms), couplings, model.prior + by, model.features)
