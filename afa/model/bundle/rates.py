"""Class-conditional probabilities of feature values, and the models that are computed from them.

The two classes of an entity are the patients with the entity and the patients without it. The reasons for the methods
in this module are in docs/decisions.md, sections F1, F2, F3, F5, F7 and F10.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from afa.model.arrays import Bools, Floats, Ints
from afa.model.features import Features
from afa.model.mrf import PairwiseMRF

if TYPE_CHECKING:
    from afa.model.bundle.model import Bundle


FeatureGroup = tuple[tuple[str, tuple[int, ...]], ...]
"""(name, feature indices) of each group of features, for example of one measurement."""
SMALLEST_PROBABILITY = 0.01
"""Smallest probability of a possible value in elicited answers."""
Holds = Literal["several", "one", "one or none"]
"""How many entities a patient can have, according to the question."""
HOLDS_SETTINGS: tuple[Holds, ...] = get_args(Holds)
SCOPES = ("", "shared", "condition")
"""Values of a coupling's `scope`, by index: not given, in both classes, only in the class with the entity."""
SHARED, CONDITION = 1, 2
VALUE_NUMBERS = np.array([-1.0, 0.0, 1.0])
LARGEST_TILT = 300.0
"""Largest potential, in nats; with a larger one, a possible value would get probability 0 in double precision."""


def three_values(p_low: npt.ArrayLike, p_high: npt.ArrayLike) -> Floats:
    """Return the probabilities of -1, 0 and +1, computed from the shares below and above the cut points.

    Parameters
    ----------
    p_low, p_high : (...) float64, shares

    Returns
    -------
    probabilities : (..., 3) float64, of -1, 0, +1

    """
    low, high = np.asarray(p_low, dtype=np.float64), np.asarray(p_high, dtype=np.float64)
    return np.stack([low, 1.0 - low - high, high], axis=-1)


def floored(probabilities: npt.ArrayLike, possible: npt.ArrayLike, floor: float = SMALLEST_PROBABILITY) -> Floats:
    """Return the given distributions after raising the probability of each possible value to at least `floor`.

    Each distribution is then divided by its sum, so that its probabilities sum to 1 again.

    Parameters
    ----------
    probabilities : (..., 3) float64, of -1, 0, +1
    possible : (..., 3) bool, True for possible values; other values get probability 0

    Returns
    -------
    floored : (..., 3) float64, each row sums to 1

    """
    raised = np.where(np.asarray(possible, dtype=bool), np.maximum(probabilities, floor), 0.0)
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def pool(probabilities: npt.ArrayLike, possible: npt.ArrayLike, floor: float = SMALLEST_PROBABILITY) -> Floats:
    r"""Return the normalised geometric mean of the distributions given by several voters (runs of a language model).

    \[ P(s) \propto \exp\Bigl(\frac{1}{n} \sum_i \log P_i(s)\Bigr), \quad s \in V_j \]

    Before the mean is computed, the function `floored` changes each voter's distribution `P_i`: probabilities below
    `floor` are replaced by `floor`, impossible values get probability 0, and `P_i` is normalised. As a result, the
    log-ratio of two values in the pooled distribution is the mean of the voters' log-ratios.

    Parameters
    ----------
    probabilities
        (n_voters, ..., 3) float64, probabilities of -1, 0, +1; all three NaN if a voter gave no answer.
    possible
        (..., 3) bool, True for possible values (`afa.model.features.Features.possible`).
    floor
        Smallest probability of a possible value, before normalisation.

    Returns
    -------
    ndarray : (..., 3) float64; 0 for impossible values, NaN if no voter gave an answer

    >>> pool([[0.1, 0.3, 0.6], [0.0, 0.4, 0.6], [0.2, 0.5, 0.3]], [True, True, True]).round(5).tolist()
    [0.06314, 0.42269, 0.51417]

    """
    can_be = np.asarray(possible, dtype=bool)
    voters = np.asarray(probabilities, dtype=np.float64)
    said = ~np.isnan(voters).any(axis=-1, keepdims=True)
    logs = np.log(np.where(can_be, floored(voters, can_be, floor), 1.0))
    with np.errstate(invalid="ignore"):
        mean = np.where(said, logs, 0.0).sum(axis=0) / said.sum(axis=0)
    raw = np.where(can_be, np.exp(mean), 0.0)
    return np.asarray(raw / raw.sum(axis=-1, keepdims=True))


@dataclass(frozen=True, eq=False)
class ProbabilityRows:
    """The n rows of unary.csv that have probabilities.

    The rows are sorted by entity, and rows of the same entity by feature.

    Attributes
    ----------
    entity, feature : (n,) int64, indices
    with_entity, without : (n, 3) float64, probabilities of -1, 0, +1 with and without the entity; NaN if not given
    directed : (n,) bool, True if the row also has a potential
    patients : (n, 2) int64, number of labelled patients used to estimate `with_entity` and `without`; None unless `afa
        update` made the bundle

    """

    entity: Ints
    feature: Ints
    with_entity: Floats
    without: Floats
    directed: Bools
    patients: Ints | None = None

    def __len__(self) -> int:
        return len(self.entity)


NO_ROWS = ProbabilityRows(
    np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 3)), np.empty((0, 3)), np.empty(0, np.bool_)
)


@dataclass(frozen=True, eq=False)
class Rates:
    """The parts of a bundle other than potentials and priors: probabilities, possible values and groups of features.

    Parameters
    ----------
    n_features
        Number of features M.
    table
        `features.csv` in the order of the bundle's features; None without the file (every feature then has three
        values).
    probability_rows
        The probabilities of each entity and feature, from unary.csv.
    measurements, exclusive
        `groups.csv`: the features of each measurement; the groups in which at most one feature can be +1.
    encoding
        Encoding of the values from which the probabilities came: `ranges`, `controls` or `cohort`; None if unknown
        (F10a).
    floor
        Smallest probability of a possible value.
    holds
        How many entities one patient can have: `several`, `one`, or `one or none` (F6).

    """

    n_features: int
    table: Features | None = None
    probability_rows: ProbabilityRows = NO_ROWS
    measurements: FeatureGroup = ()
    exclusive: FeatureGroup = ()
    encoding: str | None = None
    floor: float = SMALLEST_PROBABILITY
    holds: Holds = "several"

    @cached_property
    def possible(self) -> Bools:
        """Return a mask of the values (-1, 0, +1) that each feature can take (docs/decisions.md, F1).

        Returns
        -------
        possible : (M, 3) bool

        """
        return np.ones((self.n_features, 3), dtype=bool) if self.table is None else self.table.possible

    @cached_property
    def has_background(self) -> Bools:
        """Return a mask of the features whose background probabilities are known.

        The background probabilities of a feature are known if features.csv gives them. They are also known if, for at
        least one entity, unary.csv gives the probabilities of the feature in patients without the entity.

        Returns
        -------
        has_background : (M,) bool

        """
        found = np.zeros(self.n_features, dtype=bool)
        if self.table is not None:
            found |= np.isfinite(self.table.p_low)
        found[self.probability_rows.feature[np.isfinite(self.probability_rows.without[:, 0])]] = True
        return found

    @cached_property
    def background(self) -> Floats:
        """Return the background: the probabilities of each feature's values among all people (docs/decisions.md, F5).

        The background of a feature is read from features.csv. If features.csv does not contain the background of a
        feature, the background is computed from unary.csv. For each entity, unary.csv can contain the probabilities of
        the feature in patients without the entity. The background is the normalised geometric mean (`pool`) of these
        probabilities over the entities. If neither file gives probabilities of the feature, all possible values have
        equal probability. Probabilities from the files that are below `floor` are replaced by `floor`, and the
        distribution is normalised.

        Returns
        -------
        background : (M, 3) float64, probabilities of -1, 0, +1

        """
        uniform = self.possible / self.possible.sum(axis=1, keepdims=True)
        found = np.full((self.n_features, 3), np.nan) if self.table is None else self.table.background
        found = np.where(np.isnan(found), np.nan, floored(np.nan_to_num(found), self.possible, self.floor))
        probability_rows = self.probability_rows
        for j in np.unique(probability_rows.feature[np.isnan(found[probability_rows.feature, 0])]):
            said = probability_rows.without[
                (probability_rows.feature == j) & np.isfinite(probability_rows.without[:, 0])
            ]
            if len(said):
                found[j] = pool(said, self.possible[j], self.floor)
        return np.where(np.isnan(found), uniform, found)

    def of_entity(
        self, entity: int, unary: Floats, paired: npt.ArrayLike
    ) -> tuple[Floats, Floats, npt.NDArray[np.intp]]:
        """Return the class-conditional probabilities of one entity, and the features that its model covers (F10).

        The first result, P_1, contains the probabilities of each feature's values in patients with the entity. The
        second result, P_0, contains the probabilities in patients without the entity. If the model does not cover a
        feature, P_1 and P_0 contain the probabilities of the feature's values among all people. If a model covers one
        feature of an exclusive group, it covers all features of the group, because the value of one feature limits the
        values of the others.

        Parameters
        ----------
        unary : (M,) float64, unary potentials of the entity, nats
        paired : (n,) int, indices of the features in couplings of the entity

        Returns
        -------
        with_entity, without : (M, 3) float64, P_1 and P_0: probabilities of -1, 0, +1
        at : (n_covered,) intp, indices of the features that the model covers

        """
        with_entity, without = self.background.copy(), self.background.copy()
        leaning = np.flatnonzero(unary)
        tilt = np.clip(unary[leaning, None], -LARGEST_TILT, LARGEST_TILT) * VALUE_NUMBERS
        tilt = np.where(self.possible[leaning], tilt, -np.inf)
        tilted = self.background[leaning] * np.exp(tilt - tilt.max(axis=1, keepdims=True))
        with_entity[leaning] = tilted / tilted.sum(axis=1, keepdims=True)
        rows = slice(*np.searchsorted(self.probability_rows.entity, [entity, entity + 1]))
        at = self.probability_rows.feature[rows]
        for into, said in (
            (with_entity, self.probability_rows.with_entity[rows]),
            (without, self.probability_rows.without[rows]),
        ):
            into[at] = self.background[at]
            here = np.isfinite(said[:, 0])
            into[at[here]] = floored(said[here], self.possible[at[here]], self.floor)
        speaks = np.zeros(self.n_features, dtype=bool)
        for part in (leaning, at, np.asarray(paired, dtype=np.intp)):
            speaks[part] = True
        for _, members in self.exclusive:
            speaks[list(members)] |= speaks[list(members)].any()
        return with_entity, without, np.flatnonzero(speaks)

    def contents(self) -> list[bytes]:
        """Return, as bytes, the parts that are included in the digest of a bundle.

        The digest includes only parts that affect a model. The encoding and the descriptions of features do not affect
        a model.
        """
        probability_rows = self.probability_rows
        numbers: list[Floats] = [probability_rows.with_entity, probability_rows.without, np.array([self.floor])]
        if self.table is not None:
            numbers += [self.table.possible.astype(np.float64), self.table.p_low, self.table.p_high]
        integers = [probability_rows.entity, probability_rows.feature, probability_rows.directed.astype(np.int64)]
        # In version 0.2, a bundle could also contain implications between features, and `words` contained a tuple of
        # them. An empty tuple is written in this place, so that a bundle has the same digest as in version 0.2.
        words = repr((self.measurements, self.exclusive, (), self.holds)).encode()
        return [
            *(array.astype("<i8").tobytes() for array in integers),
            *((array + 0.0).astype("<f8").tobytes() for array in numbers),
            words,
        ]

    def directions(self) -> Floats:
        """Return the sign of mu_1 - mu_0 for each row with probabilities (docs/decisions.md, F10).

        Here mu_1 and mu_0 are the mean values of the feature with and without the entity. If a row of unary.csv gives
        no potential, the sign of mu_1 - mu_0 is used as the potential of the entity on the feature, in nats.

        Returns
        -------
        directions : (n,) float64, -1, 0 or +1

        """
        probability_rows, b = self.probability_rows, self.background[self.probability_rows.feature]
        means = []
        for said in (probability_rows.with_entity, probability_rows.without):
            there = floored(np.nan_to_num(said), self.possible[probability_rows.feature], self.floor)
            means.append(np.where(np.isnan(said), b, there) @ VALUE_NUMBERS)
        gap = means[0] - means[1]
        return np.where(np.abs(gap) <= 1e-12, 0.0, np.sign(gap))

    def renumbered(self, entities: Ints, features: Ints) -> Rates:
        """Return a copy in which entities and features have new indices.

        Parameters
        ----------
        entities, features : (N,) and (M,) int64, new index of each entity and feature, or -1 to drop it

        """
        probability_rows, remaining = self.probability_rows, np.argsort(features)[np.count_nonzero(features < 0) :]
        entity, feature = entities[probability_rows.entity], features[probability_rows.feature]
        rows = np.lexsort((feature, entity))
        rows = rows[(entity[rows] >= 0) & (feature[rows] >= 0)]
        groups = [
            tuple((name, tuple(int(features[j]) for j in members if features[j] >= 0)) for name, members in group)
            for group in (self.measurements, self.exclusive)
        ]
        return replace(
            self,
            n_features=len(remaining),
            table=None if self.table is None else self.table.chosen([self.table.names[j] for j in remaining]),
            probability_rows=ProbabilityRows(
                entity[rows],
                feature[rows],
                probability_rows.with_entity[rows],
                probability_rows.without[rows],
                probability_rows.directed[rows],
                None if probability_rows.patients is None else probability_rows.patients[rows],
            ),
            measurements=tuple(group for group in groups[0] if group[1]),
            exclusive=tuple(group for group in groups[1] if len(group[1]) > 1),
        )


STRENGTH = 0.9
"""Largest value of beta L^2 for shared couplings; larger couplings are scaled down.

The value is below 1, as the paper's contraction condition requires.
"""


def explicit_models(
    with_entity: npt.ArrayLike,
    without: npt.ArrayLike,
    shared: npt.ArrayLike | sp.sparray,
    condition: npt.ArrayLike | sp.sparray,
    *,
    prior: float = 0.0,
    kappa: float = 0.0,
    features: tuple[str, ...] = (),
) -> tuple[PairwiseMRF, PairwiseMRF]:
    """Return the models of class 1 and class 0, made from the probabilities of each value.

    All couplings are multiplied by the same factor, which is at most 1, so that mean-field inference has one fixed
    point for all observations. Sections F2 and F3 of docs/decisions.md give the reasons.

    Parameters
    ----------
    with_entity, without : (M, 3) float64, P_1 and P_0: the probabilities of -1, 0, +1
    shared, condition : (M, M) float64, couplings in both classes, and couplings only in class 1, nats
    prior : log-odds before any observation, nats
    kappa : log Z_1 - log Z_0 without observations, nats; 0 in mean-field. Class 1 has the prior `prior - kappa`, so
        that E_1 - E_0 is S, and F_1 - F_0 is the log-odds
    features : M distinct names

    >>> one, zero = explicit_models([[0, 0.2, 0.8]], [[0, 0.8, 0.2]], [[0]], [[0]])
    >>> round(one.energy([1]) - zero.energy([1]), 5)
    1.38629

    """
    in_one, in_zero = sp.csr_array(shared) + sp.csr_array(condition), sp.csr_array(shared, dtype=np.float64)
    factor = strength_factor([(with_entity, in_one), (without, in_zero)])
    one = PairwiseMRF.from_probabilities(with_entity, factor * in_one, prior - kappa, features)
    zero = PairwiseMRF.from_probabilities(without, factor * in_zero, 0.0, features)
    return one, zero


def strength_factor(models: Iterable[tuple[npt.ArrayLike, sp.csr_array]]) -> float:
    """Return the factor by which the couplings of all given models are multiplied (docs/decisions.md, F2d).

    The factor is at most 1.

    Parameters
    ----------
    models : pairs of (M, 3) float64, probabilities of -1, 0, +1, and (M, M) sparse, couplings in nats

    """
    rows = [float((slopes_bound(p) * abs(psi).sum(axis=1)).max(initial=0.0)) for p, psi in models]
    return STRENGTH / max([*rows, STRENGTH])


def slopes_bound(probabilities: npt.ArrayLike) -> Floats:
    """Return an upper bound on the derivative of each feature's mean with respect to h (docs/decisions.md, F2d).

    The distribution of a feature is proportional to P(s) exp(h s), where P is the feature's row of `probabilities`. If
    a feature has two possible values, the bound is 1/4. If a feature has three possible values, the bound depends on r
    = sqrt(P(+) P(-)) / P(0): the bound is 2r/(1 + 2r) if r is at least 1/4, and 1/(4(1 - 4r^2)) otherwise.

    Parameters
    ----------
    probabilities : (M, 3) float64, of -1, 0, +1

    Returns
    -------
    bounds : (M,) float64, from 0 to 1

    """
    low, middle, high = np.asarray(probabilities, dtype=np.float64).T
    r = np.sqrt(low * high) / middle
    narrow = np.minimum(r, 1 / 4)
    bounds: Floats = np.where(r >= 1 / 4, 2 * r / (1 + 2 * r), 1 / (4 * (1 - 4 * narrow**2)))
    return bounds


def bundle_models(
    bundle: Bundle, entity: str, kappa: float = 0.0, features: npt.NDArray[np.intp] | None = None
) -> tuple[PairwiseMRF, PairwiseMRF]:
    """Return the models of an entity's two classes, made by `explicit_models`: 1 with the entity, 0 without it.

    A feature of an exclusive group has the same distribution in both models. The function `exclusive_log_odds` computes
    the evidence from exclusive groups.

    Parameters
    ----------
    features : (n,) int, indices of the features of the models, or None for all M. Features that the entity does not
        cover have equal terms in both classes and cancel in E_1 - E_0

    Raises
    ------
    BundleError : the bundle has no probabilities

    """
    with_entity, without, _ = bundle.how_often(entity)
    at = np.arange(len(bundle.features)) if features is None else features
    for _, members in bundle.exclusive:
        with_entity[list(members)] = without[list(members)]
    shared, condition = (matrix[at][:, at] for matrix in bundle.scoped(entity))
    prior = float(bundle.log_odds[bundle.index(entity)])
    names = tuple(bundle.features[j] for j in at)
    return explicit_models(with_entity[at], without[at], shared, condition, prior=prior, kappa=kappa, features=names)


def hypotheses_of(bundle: Bundle) -> list[tuple[PairwiseMRF, npt.NDArray[np.intp]]]:
    """Return for each entity the model of patients with this entity, and the indices of the model's features (F6).

    These models are used if a patient can have at most one entity. A model covers the features of its entity and the
    features of all exclusive groups. As in the models of `bundle_models`, features of exclusive groups have their
    background distribution.

    A coupling with the scope `shared` is in two models: the model of patients with the entity, and the model of
    patients without the entity. If any entity has a `shared` coupling of two features, all models that cover these
    features have a coupling of these features. Usually, this coupling is the potential in the row of pairwise.csv for
    the model's entity and the two features. If there is no such row, or if its potential is 0, the coupling is the mean
    of the `shared` couplings that other entities have for these features. All couplings of the bundle are multiplied by
    the same factor.

    The `prior` of a model is the entity's element of `Bundle.priors`.
    """
    together = [j for _, members in bundle.exclusive for j in members]
    both = [bundle.scoped(entity)[0] for entity in bundle.entities]
    total, probability_rows = sum(both), sum(abs(matrix).sign() for matrix in both)
    found = []
    for entity in bundle.entities:
        with_entity, _, at = bundle.how_often(entity)
        with_entity[together] = bundle.background[together]
        at = np.union1d(at, together).astype(np.intp)
        own, of_all, n = (matrix[at][:, at].toarray() for matrix in (bundle.couplings(entity), total, probability_rows))
        found.append((with_entity[at], sp.csr_array(np.where(own != 0, own, of_all / np.maximum(n, 1.0))), at))
    factor = strength_factor((p, psi) for p, psi, _ in found)
    names = np.array(bundle.features, dtype=object)
    return [
        (PairwiseMRF.from_probabilities(p, factor * psi, float(prior), tuple(names[at])), at)
        for (p, psi, at), prior in zip(found, bundle.priors, strict=True)
    ]


def exclusive_log_odds(
    bundle: Bundle, entity: str, values: npt.ArrayLike, features: npt.NDArray[np.intp] | None = None
) -> Floats:
    """Return what the observed values of exclusive groups add to the log-odds of an entity (docs/decisions.md, F13).

    In an exclusive group, at most one feature can have the value +1. If a feature of the group is observed as +1, the
    group contributes log(P_1(+1) / P_0(+1)) to the log-odds, where P_1 and P_0 are the probabilities of this feature's
    values with and without the entity. If all observed features of the group are 0, the group contributes log(p_1 /
    p_0) to the log-odds, where p_1 is the probability that these features are all 0 in patients with the entity, and
    p_0 the same probability in patients without the entity.

    Parameters
    ----------
    values : (n, M) float64, -1, 0 or +1; NaN if not measured
    features : (k,) int, indices of the columns of `values`, or None for all M features

    Returns
    -------
    log_odds : (n,) float64, nats

    """
    x = np.asarray(values, dtype=np.float64)
    total = np.zeros(len(x))
    if not bundle.exclusive:
        return total
    classes = bundle.how_often(entity)[:2]
    spoken = np.arange(len(bundle.features)) if features is None else features
    for members in exclusive_of(bundle, spoken):
        at = np.searchsorted(spoken, members)
        for sign, probabilities in zip((1.0, -1.0), classes, strict=True):
            states = group_states(probabilities[list(members), 2], bundle.floor)
            left = 1.0 - np.where(x[:, at] == 0, states, 0.0).sum(axis=1)
            seen = np.where(x[:, at] == 1, states, 0.0).sum(axis=1)
            total += sign * np.log(np.where(seen > 0, seen, left))
    return total


def with_groups(bundle: Bundle, model: PairwiseMRF, at: npt.NDArray[np.intp], probabilities: Floats) -> PairwiseMRF:
    """Return a copy of a model in which the features of exclusive groups have the given probabilities of +1.

    The copy treats the features of an exclusive group as independent of each other. The caller must account for the
    rule that at most one of them can have the value +1 (docs/decisions.md, F13).

    Parameters
    ----------
    at : (n,) intp, feature indices
    probabilities : (M, 3) float64, of -1, 0, +1

    """
    if not bundle.exclusive:
        return model
    table = np.exp(model.terms)
    for members in exclusive_of(bundle, at):
        states = group_states(probabilities[list(members), 2], bundle.floor)
        table[np.searchsorted(at, members)] = np.column_stack([0 * states, 1.0 - states, states])
    return PairwiseMRF.from_probabilities(table, model.couplings, model.prior, model.features)


def exclusive_of(bundle: Bundle, at: npt.NDArray[np.intp]) -> tuple[tuple[int, ...], ...]:
    """Return the exclusive groups whose features all have an index in the array `at`.

    Each group is a tuple of feature indices in ascending order.

    Parameters
    ----------
    at : (n,) intp, feature indices

    """
    return tuple(tuple(sorted(members)) for _, members in bundle.exclusive if members[0] in at)


def group_states(probabilities: Floats, floor: float) -> Floats:
    """Return the probability of +1 for each feature of an exclusive group.

    If the given probabilities sum to more than 1 - `floor`, all of them are multiplied by the same factor, so that the
    new probabilities sum to 1 - `floor`.

    Parameters
    ----------
    probabilities : (n,) float64, P(+1) before scaling

    Returns
    -------
    states : (n,) float64, which sum to at most 1 - `floor`

    """
    total = float(probabilities.sum())
    return np.asarray(probabilities * min(1.0, (1.0 - floor) / total))
