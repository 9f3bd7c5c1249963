"""Store the models of all hypotheses, for bundles with class-conditional probabilities.

The models are stored once for all patients. A hypothesis states that an entity is present. A side contains the two
models of one hypothesis. The first model describes patients with the entity. The score S_v of the hypothesis is the
energy of the first model minus the energy of the second model. If a patient can have several entities, or if the
question is binary, the second model describes patients without the entity. If a patient can have at most one entity,
the second model describes all people (the background). The background then cancels in the difference of two scores
(docs/decisions.md, F3 and F6). A duel compares the scores S_a and S_b of two hypotheses a and b.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp

from afa.inference.class_odds import known_log_ratio, log_ratio
from afa.model.arrays import Bools, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.bundle.rates import bundle_models, group_states, hypotheses_of
from afa.model.mrf import ROUNDING, VALUES, PairwiseMRF, pair_terms
from afa.scores.belief import ScoreTable


class Repeats(NamedTuple):
    """How strongly the features of one hypothesis are correlated (docs/decisions.md, F16).

    Correlated observations repeat evidence, so the log-odds are shrunk by a factor.

    Attributes
    ----------
    own : (n,) float64, variance of each feature's log-ratio within a class; the mean over both classes
    together : (n, n) float64, covariances of the log-ratios: `own` on the diagonal, and elsewhere the covariances
        caused by couplings, to first order
    least : lower bound on the factor that the method `believed` returns

    """

    own: Floats
    together: Floats
    least: float

    def believed(self, seen: Bools) -> Floats:
        """Return the factor by which the log-odds are multiplied after observing some features.

        The factor is at most 1. The mask `seen` has the shape (..., n) and marks the observed features.
        """
        own, together = seen @ self.own, ((seen @ self.together) * seen).sum(axis=-1)
        return np.asarray(np.divide(own, together, out=np.ones_like(own), where=together > own))


class Side(NamedTuple):
    """The two models of one hypothesis, and other data that do not depend on observations.

    Attributes
    ----------
    one, zero : models of the class with the entity and of the class without
    at : (n,) int64, indices of the features in the bundle, ascending
    links : (p, 2) int64, pairs of features that either model couples, by index in the bundle
    pair_terms : (p, 9) float64, contribution of each pair of values to E_1 - E_0, nats; NaN for impossible values
    members : for each exclusive group, the probability of +1 of each member in either class, (2, g) float64
    repeats : correction for observations that repeat each other, or None; with it, the models have no couplings

    """

    one: PairwiseMRF
    zero: PairwiseMRF
    at: Ints
    links: Ints
    pair_terms: Floats
    members: tuple[Floats, ...]
    repeats: Repeats | None = None


class Fixed(NamedTuple):
    """Models and constants of all hypotheses, which are the same for all patients.

    Attributes
    ----------
    sides : the N sides
    feature_slots : (N, M) int64, position of each feature in the models of each side; -1 if the models do not contain
        the feature
    background, possible : (M, 3) float64 and bool, probabilities of -1, 0, +1, and which of them can occur
    groups : (g,) int64 for each exclusive group, indices of its features
    measured_at_once : for each group, True if one measurement gives all its features
    kappa : (N,) float64, log Z_1 - log Z_0 without observations if this constant is known and not included in the
        models, else 0
    tie : largest magnitude of a score, in nats, that is treated as a rounding error
    ranges : cache of `links_of` by the sides asked for, (p, 2) int64 and (2, p) float64; at most `N_CACHED_DUELS` keys

    """

    sides: tuple[Side, ...]
    feature_slots: Ints
    background: Floats
    possible: Bools
    groups: tuple[Ints, ...]
    measured_at_once: tuple[bool, ...]
    kappa: Floats
    tie: float
    ranges: dict[tuple[int, ...], tuple[Ints, Floats]]

    @property
    def n_features(self) -> int:
        """Return M, the number of features."""
        return len(self.background)

    def links_of(self, *sides: int) -> tuple[Ints, Floats]:
        """Return all pairs of coupled features, and bounds on the contribution of each pair to a score.

        For one hypothesis a, the score is S_a. For two hypotheses a and b, the score is S_a - S_b. A pair of features
        is included if it is coupled in a model of a given hypothesis. The first result has the shape (p, 2): the
        feature indices of each of the p pairs. The second result has the shape (2, p): the lower bounds, then the upper
        bounds. The lower bounds are at most 0 and the upper bounds are at least 0, because a pair of features
        contributes 0 if one of the two features remains unmeasured (docs/decisions.md, F12).
        """
        if sides not in self.ranges:
            if len(self.ranges) >= N_CACHED_DUELS:
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


N_CACHED_DUELS = 5000
"""Largest number of entries in the cache of `Fixed.links_of`."""
FIXED_OF_BUNDLE: WeakKeyDictionary[Bundle, dict[tuple[str, bool, str | None, bool], Fixed]] = WeakKeyDictionary()


def sides_for(
    bundle: Bundle, holds: str, *, exactly: bool, entity: str | None = None, discounted: bool = False
) -> Fixed:
    """Return the models and constants of all hypotheses.

    There is one hypothesis for each entity. For a binary question, the hypotheses are that the entity is present and
    that it is absent. The result is computed once for each bundle and set of options.

    Parameters
    ----------
    holds : how many entities can be present, as in `afa.model.bundle.rates.Rates`
    exactly : True to compute kappa by exact inference; False for the 0 of mean-field
    entity : the entity of a binary question; None for all entities
    discounted : True if couplings shrink the log-odds instead of entering the models (docs/decisions.md, F16)

    """
    known = FIXED_OF_BUNDLE.setdefault(bundle, {})
    key = holds, exactly, entity, discounted
    if key not in known:
        known[key] = _lay_out_sides(bundle, holds, exactly=exactly, entity=entity, discounted=discounted)
    return known[key]


def score_table_of(fixed: Fixed, entities: tuple[str, ...], features: tuple[str, ...]) -> ScoreTable:
    """Return the `ScoreTable` from which `Belief` computes the hypotheses' expected scores (docs/frontier.md).

    A score S_v is the difference between the energies of the hypothesis's two models.
    """
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


def _lay_out_sides(bundle: Bundle, holds: str, *, exactly: bool, entity: str | None, discounted: bool) -> Fixed:
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
            alone = PairwiseMRF.from_probabilities(background[at], 0 * one.couplings, 0.0, one.features)
            models.append((one, alone, at))
            classes.append((bundle.how_often(name)[0], background))
    if entity is not None:
        nothing = PairwiseMRF.from_probabilities(np.empty((0, 3)), np.empty((0, 0)))
        models.append((nothing, nothing, np.empty(0, dtype=np.intp)))
        classes.append((background, background))
    sides, kappa = list[Side](), np.zeros(len(models))
    for v, ((*pair, at), shares) in enumerate(zip(models, classes, strict=True)):
        repeats = _repeats(*pair) if discounted else None
        one, zero = (_replace_couplings(model, 0 * model.couplings, 0.0) for model in pair) if discounted else pair
        kappa[v] = (log_ratio if exactly else known_log_ratio)(one, zero)
        if exactly:
            one, kappa[v] = _replace_couplings(one, one.couplings, -kappa[v]), 0.0
        row, column = sp.triu(abs(one.couplings) + abs(zero.couplings)).nonzero()
        members = tuple(np.stack([group_states(p[group, 2], bundle.floor) for p in shares]) for group in groups)
        links = np.column_stack([at[row], at[column]]).astype(np.int64)
        terms = pair_terms(one, zero, row, column).reshape(-1, 9)
        sides.append(Side(one, zero, at.astype(np.int64), links, terms, members, repeats))
    feature_slots = np.full((len(sides), len(bundle.features)), -1, dtype=np.int64)
    for v, side in enumerate(sides):
        feature_slots[v, side.at] = np.arange(len(side.at))
    together = [set(members) for _, members in (bundle.rates.measurements if bundle.rates else ())]
    at_once = tuple(any(set(group.tolist()) <= members for members in together) for group in groups)
    tie = ROUNDING * max(side.one.reach + side.zero.reach for side in sides)
    return Fixed(tuple(sides), feature_slots, background, bundle.possible, groups, at_once, kappa, tie, {})


def _repeats(one: PairwiseMRF, zero: PairwiseMRF) -> Repeats:
    """Return the variances and covariances of the features' log-ratios u within a class.

    To first order, the covariance of the log-ratios of features j and l is psi_jl cov(u_j, x_j) cov(u_l, x_l).
    """
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


def _replace_couplings(model: PairwiseMRF, couplings: sp.csr_array, by: float) -> PairwiseMRF:
    """Return a copy of a model with the given couplings, and with a prior that is larger by `by`."""
    return PairwiseMRF.from_probabilities(np.exp(model.terms), couplings, model.prior + by, model.features)
