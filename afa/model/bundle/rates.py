"""How often: the probabilities of each value with and without an entity, what else a bundle may say, and its models.

docs/decisions.md has the decisions that are named here: what can occur (F1), the explicit gauge, which is the two class
models of an entity (F2, F3), the background (F5), several distributions pooled to one (F7), and from the rows of a
bundle to probabilities (F10).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from afa.model.features import Features
from afa.model.mrf import Floats, PairwiseMRF

if TYPE_CHECKING:
    from afa.model.bundle.model import Bundle


Indices = npt.NDArray[np.int64]
Group = tuple[tuple[str, tuple[int, ...]], ...]
"""Features, by index, by the name of what they have in common."""
FLOOR = 0.01
"""Least probability of a value that can occur, in elicited answers."""
Holds = Literal["several", "one", "one or none"]
HOLDS: tuple[Holds, ...] = get_args(Holds)
SCOPES = ("", "shared", "condition")
"""What `scope` of a coupling can be: not said, in both classes, in the entity's class alone; by index."""
SHARED, CONDITION = 1, 2
VALUES = np.array([-1.0, 0.0, 1.0])
LARGEST_TILT = 300.0
"""A larger potential, in nats, would give a value that can occur the probability 0 in 64 bits."""


def three_values(p_low: npt.ArrayLike, p_high: npt.ArrayLike) -> Floats:
    """(..., 3) Probabilities of -1, 0, +1 from the shares below and above; the middle is the rest."""
    low, high = np.asarray(p_low, dtype=np.float64), np.asarray(p_high, dtype=np.float64)
    return np.stack([low, 1.0 - low - high, high], axis=-1)


def floored(probabilities: npt.ArrayLike, possible: npt.ArrayLike, floor: float = FLOOR) -> Floats:
    """(..., 3) Raised to the floor where a value can occur, 0 elsewhere, and normalised."""
    raised = np.where(np.asarray(possible, dtype=bool), np.maximum(probabilities, floor), 0.0)
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def pool(probabilities: npt.ArrayLike, possible: npt.ArrayLike, floor: float = FLOOR) -> Floats:
    r"""One distribution of several voters': the normalised mean of log-probabilities.

    \[ P(s) \propto \exp\Bigl(\frac{1}{n} \sum_i \log P_i(s)\Bigr), \quad s \in V_j \] each voter's `P_i` being floored
    and normalised first, so that log-ratios between any two values are the means of the voters'.

    Parameters
    ----------
    probabilities
        (n_voters, ..., 3) Of -1, 0, +1; NaN throughout for a voter who does not say.
    possible
        (..., 3) Which values can occur (`afa.model.features.Features.possible`).
    floor
        Least probability of a value that can occur, before normalisation.

    Returns
    -------
    ndarray : (..., 3); 0 for values that cannot occur, NaN where no voter says anything

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
class Stated:
    """The n rows of unary.csv that state probabilities, sorted by entity and then by feature.

    entity, feature : (n,) indices. with_entity, without : (n, 3) as stated, NaN throughout where a row does not say.
    directed : (n,) bool, whether the row has a potential of its own too.
    patients : (n, 2) int64, labelled patients behind `with_entity` and `without`; None where no bundle was updated.
    """

    entity: Indices
    feature: Indices
    with_entity: Floats
    without: Floats
    directed: npt.NDArray[np.bool_]
    patients: Indices | None = None

    def __len__(self) -> int:
        return len(self.entity)


NONE_STATED = Stated(
    np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 3)), np.empty((0, 3)), np.empty(0, np.bool_)
)


@dataclass(frozen=True, eq=False)
class Rates:
    """What a bundle says beside directions; without it a bundle means what it did before there was any of this.

    Parameters
    ----------
    n_features
        M of the bundle.
    table
        `features.csv`, in the order of the bundle; None without the file: every feature has three values.
    stated
        The probabilities, by entity and feature.
    measurements, exclusive
        `groups.csv`: features by the measurement that they come from; features of which at most one is +1.
    encoding
        The one that the probabilities hold for: `ranges`, `controls` or `cohort`; None where not said (F10a).
    floor
        Least probability of a value that can occur.
    holds
        How many entities hold for one patient: `several`, `one`, or `one or none` (F6).

    """

    n_features: int
    table: Features | None = None
    stated: Stated = NONE_STATED
    measurements: Group = ()
    exclusive: Group = ()
    encoding: str | None = None
    floor: float = FLOOR
    holds: Holds = "several"

    @cached_property
    def possible(self) -> npt.NDArray[np.bool_]:
        """(M, 3) Which of -1, 0, +1 each feature can be (F1)."""
        return np.ones((self.n_features, 3), dtype=bool) if self.table is None else self.table.possible

    @cached_property
    def background_stated(self) -> npt.NDArray[np.bool_]:
        """(M,) Where the background is stated in `features.csv`, or the entities' *without* is."""
        found = np.zeros(self.n_features, dtype=bool)
        if self.table is not None:
            found |= np.isfinite(self.table.p_low)
        found[self.stated.feature[np.isfinite(self.stated.without[:, 0])]] = True
        return found

    @cached_property
    def background(self) -> Floats:
        """(M, 3) b, the values of everybody: as stated, else pooled from *without*, else uniform; floored (F5)."""
        uniform = self.possible / self.possible.sum(axis=1, keepdims=True)
        found = np.full((self.n_features, 3), np.nan) if self.table is None else self.table.background
        found = np.where(np.isnan(found), np.nan, floored(np.nan_to_num(found), self.possible, self.floor))
        stated = self.stated
        for j in np.unique(stated.feature[np.isnan(found[stated.feature, 0])]):
            said = stated.without[(stated.feature == j) & np.isfinite(stated.without[:, 0])]
            if len(said):
                found[j] = pool(said, self.possible[j], self.floor)
        return np.where(np.isnan(found), uniform, found)

    def of_entity(
        self, entity: int, unary: Floats, paired: npt.ArrayLike
    ) -> tuple[Floats, Floats, npt.NDArray[np.intp]]:
        """P_1 and P_0 of one entity, (M, 3) each, and the features that it speaks of (F10).

        unary : (M,) its potentials. paired : the features that it couples. Silent features have P_1 = P_0 = b. Who
        speaks of one member of an exclusive group speaks of all: what one is says what the others can be.
        """
        with_entity, without = self.background.copy(), self.background.copy()
        leaning = np.flatnonzero(unary)
        tilt = np.clip(unary[leaning, None], -LARGEST_TILT, LARGEST_TILT) * VALUES
        tilt = np.where(self.possible[leaning], tilt, -np.inf)
        tilted = self.background[leaning] * np.exp(tilt - tilt.max(axis=1, keepdims=True))
        with_entity[leaning] = tilted / tilted.sum(axis=1, keepdims=True)
        rows = slice(*np.searchsorted(self.stated.entity, [entity, entity + 1]))
        at = self.stated.feature[rows]
        for into, said in ((with_entity, self.stated.with_entity[rows]), (without, self.stated.without[rows])):
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
        """What of it a model depends on, for the digest of a bundle: not how the values are encoded or called."""
        stated = self.stated
        numbers: list[Floats] = [stated.with_entity, stated.without, np.array([self.floor])]
        if self.table is not None:
            numbers += [self.table.possible.astype(np.float64), self.table.p_low, self.table.p_high]
        integers = [stated.entity, stated.feature, stated.directed.astype(np.int64)]
        # The empty tuple stands where version 0.2 had implications, so that a bundle keeps its digest.
        words = repr((self.measurements, self.exclusive, (), self.holds)).encode()
        return [
            *(array.astype("<i8").tobytes() for array in integers),
            *((array + 0.0).astype("<f8").tobytes() for array in numbers),
            words,
        ]

    def directions(self) -> Floats:
        """(n,) The sign of mu_1 - mu_0 of every stated row: its potential under the paper's closures (F10)."""
        stated, b = self.stated, self.background[self.stated.feature]
        means = []
        for said in (stated.with_entity, stated.without):
            there = floored(np.nan_to_num(said), self.possible[stated.feature], self.floor)
            means.append(np.where(np.isnan(said), b, there) @ VALUES)
        gap = means[0] - means[1]
        return np.where(np.abs(gap) <= 1e-12, 0.0, np.sign(gap))

    def renumbered(self, entities: Indices, features: Indices) -> Rates:
        """Of the entities and features that have new indices, (N,) and (M,), -1 for none."""
        stated, kept = self.stated, np.argsort(features)[np.count_nonzero(features < 0) :]
        entity, feature = entities[stated.entity], features[stated.feature]
        rows = np.lexsort((feature, entity))
        rows = rows[(entity[rows] >= 0) & (feature[rows] >= 0)]
        groups = [
            tuple((name, tuple(int(features[j]) for j in members if features[j] >= 0)) for name, members in group)
            for group in (self.measurements, self.exclusive)
        ]
        return replace(
            self,
            n_features=len(kept),
            table=None if self.table is None else self.table.chosen([self.table.names[j] for j in kept]),
            stated=Stated(
                entity[rows],
                feature[rows],
                stated.with_entity[rows],
                stated.without[rows],
                stated.directed[rows],
                None if stated.patients is None else stated.patients[rows],
            ),
            measurements=tuple(group for group in groups[0] if group[1]),
            exclusive=tuple(group for group in groups[1] if len(group[1]) > 1),
        )


STRENGTH = 0.9
"""Beta L^2 that couplings in both classes are scaled down to: below 1, the paper's contraction condition."""


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
    """The models of class 1 and class 0 from the probabilities of the values in each (docs/decisions.md, F2, F3).

    with_entity, without : (M, 3), P_1 and P_0 of -1, 0, +1. shared : (M, M), couplings of both classes; condition :
    those of class 1 beside them. All are scaled by one factor, at most 1, so that every state has one fixed point.
    prior : log-odds before any observation, kappa : log Z_1 - log Z_0 at no observation, 0 in mean-field; class 1 holds
    their difference, so that E_1 - E_0 is S, and F_1 - F_0 the log-odds. features : M distinct names.

    >>> one, zero = explicit_models([[0, 0.2, 0.8]], [[0, 0.8, 0.2]], [[0]], [[0]])
    >>> round(one.energy([1]) - zero.energy([1]), 5)
    1.38629
    """
    in_one, in_zero = sp.csr_array(shared) + sp.csr_array(condition), sp.csr_array(shared, dtype=np.float64)
    factor = strength_factor([(with_entity, in_one), (without, in_zero)])
    one = PairwiseMRF.of_probabilities(with_entity, factor * in_one, prior - kappa, features)
    zero = PairwiseMRF.of_probabilities(without, factor * in_zero, 0.0, features)
    return one, zero


def strength_factor(models: Iterable[tuple[npt.ArrayLike, sp.csr_array]]) -> float:
    """What the couplings of some models are multiplied by, at most 1; each is probabilities and couplings (F2d)."""
    rows = [float((slopes_bound(p) * abs(psi).sum(axis=1)).max(initial=0.0)) for p, psi in models]
    return STRENGTH / max([*rows, STRENGTH])


def slopes_bound(probabilities: npt.ArrayLike) -> Floats:
    """(M,) bounds on the slope in h of the mean of exp(f(s) + h s), f(s) = log of `probabilities`, (M, 3) (F2d).

    With two values 1/4; with three 2r/(1 + 2r) where r = sqrt(P(+) P(-)) / P(0) is at least 1/4, else 1/(4(1 - 4r^2)).
    """
    low, middle, high = np.asarray(probabilities, dtype=np.float64).T
    r = np.sqrt(low * high) / middle
    narrow = np.minimum(r, 1 / 4)
    bounds: Floats = np.where(r >= 1 / 4, 2 * r / (1 + 2 * r), 1 / (4 * (1 - 4 * narrow**2)))
    return bounds


def bundle_models(
    bundle: Bundle, entity: str, kappa: float = 0.0, features: npt.NDArray[np.intp] | None = None
) -> tuple[PairwiseMRF, PairwiseMRF]:
    """The models of class 1 and class 0 of an entity from what the bundle says of it, as `explicit_models`.

    features : indices of those that the models are on, all M unless given; what is silent there cancels in
    E_1 - E_0. Features of an exclusive group have the background in both classes: `exclusive_log_odds` counts them.
    A `BundleError` where the bundle states no probabilities.
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
    """The model of each entity where exactly one holds, on the features that it speaks of, and their indices (F6).

    A coupling that any entity states as of both classes is in every entity with both features: its own row first, else
    the mean of the others'. One factor is for all couplings of the bundle. `prior` is the entity's log-odds.
    Every entity speaks of exclusive groups; their features have the background, as in `bundle_models`.
    """
    together = [j for _, members in bundle.exclusive for j in members]
    both = [bundle.scoped(entity)[0] for entity in bundle.entities]
    total, stated = sum(both), sum(abs(matrix).sign() for matrix in both)
    found = []
    for entity in bundle.entities:
        with_entity, _, at = bundle.how_often(entity)
        with_entity[together] = bundle.background[together]
        at = np.union1d(at, together).astype(np.intp)
        own, of_all, n = (matrix[at][:, at].toarray() for matrix in (bundle.couplings(entity), total, stated))
        found.append((with_entity[at], sp.csr_array(np.where(own != 0, own, of_all / np.maximum(n, 1.0))), at))
    factor = strength_factor((p, psi) for p, psi, _ in found)
    names = np.array(bundle.features, dtype=object)
    return [
        (PairwiseMRF.of_probabilities(p, factor * psi, float(prior), tuple(names[at])), at)
        for (p, psi, at), prior in zip(found, bundle.priors, strict=True)
    ]


def exclusive_log_odds(
    bundle: Bundle, entity: str, values: npt.ArrayLike, features: npt.NDArray[np.intp] | None = None
) -> Floats:
    """(n,) what the exclusive groups of configurations (n, M), NaN where not measured, say for an entity (F13).

    At most one member of a group is +1: log P_1 / P_0 of that member, or of what is left when those seen are 0.
    features : as of `bundle_models`, where the values are of them alone.
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
    """A model on the features `at` whose members of exclusive groups are +1 as often as `probabilities` (M, 3) say.

    As separate features: that they exclude each other is for those who read it to know (F13).
    """
    if not bundle.exclusive:
        return model
    table = np.exp(model.terms)
    for members in exclusive_of(bundle, at):
        states = group_states(probabilities[list(members), 2], bundle.floor)
        table[np.searchsorted(at, members)] = np.column_stack([0 * states, 1.0 - states, states])
    return PairwiseMRF.of_probabilities(table, model.couplings, model.prior, model.features)


def exclusive_of(bundle: Bundle, at: npt.NDArray[np.intp]) -> tuple[tuple[int, ...], ...]:
    """The exclusive groups among some features, each ascending."""
    return tuple(tuple(sorted(members)) for _, members in bundle.exclusive if members[0] in at)


def group_states(probabilities: Floats, floor: float) -> Floats:
    """The probabilities that a member of an exclusive group is +1, (n,): scaled down where they leave none over."""
    total = float(probabilities.sum())
    return np.asarray(probabilities * min(1.0, (1.0 - floor) / total))
