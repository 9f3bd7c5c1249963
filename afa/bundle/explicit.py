"""The explicit gauge: the two class models of an entity from how often each value occurs in either (F2, F3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from afa.mrf import Floats, PairwiseMRF

if TYPE_CHECKING:
    from afa.bundle.model import Bundle

STRENGTH = 0.9
"""Beta L^2 that couplings in both classes are scaled down to: below 1, the paper's contraction condition."""


def explicit_models(
    with_entity: ArrayLike,
    without: ArrayLike,
    shared: ArrayLike | sp.sparray,
    condition: ArrayLike | sp.sparray,
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


def strength_factor(models: Iterable[tuple[ArrayLike, sp.csr_array]]) -> float:
    """What the couplings of some models are multiplied by, at most 1; each is probabilities and couplings (F2d)."""
    rows = [float((slopes_bound(p) * abs(psi).sum(axis=1)).max(initial=0.0)) for p, psi in models]
    return STRENGTH / max([*rows, STRENGTH])


def slopes_bound(probabilities: ArrayLike) -> Floats:
    """(M,) bounds on the slope in h of the mean of exp(f(s) + h s), f(s) = log of `probabilities`, (M, 3) (F2d).

    With two values 1/4; with three 2r/(1 + 2r) where r = sqrt(P(+) P(-)) / P(0) is at least 1/4, else 1/(4(1 - 4r^2)).
    """
    low, middle, high = np.asarray(probabilities, dtype=np.float64).T
    r = np.sqrt(low * high) / middle
    narrow = np.minimum(r, 1 / 4)
    bounds: Floats = np.where(r >= 1 / 4, 2 * r / (1 + 2 * r), 1 / (4 * (1 - 4 * narrow**2)))
    return bounds


def bundle_models(
    bundle: Bundle, entity: str, kappa: float = 0.0, features: NDArray[np.intp] | None = None
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
    prior = float(bundle.priors[bundle.index(entity)])
    names = tuple(bundle.features[j] for j in at)
    return explicit_models(with_entity[at], without[at], shared, condition, prior=prior, kappa=kappa, features=names)


def hypotheses_of(bundle: Bundle) -> list[tuple[PairwiseMRF, NDArray[np.intp]]]:
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
    bundle: Bundle, entity: str, values: ArrayLike, features: NDArray[np.intp] | None = None
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


def with_groups(bundle: Bundle, model: PairwiseMRF, at: NDArray[np.intp], probabilities: Floats) -> PairwiseMRF:
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


def exclusive_of(bundle: Bundle, at: NDArray[np.intp]) -> tuple[tuple[int, ...], ...]:
    """The exclusive groups among some features, each ascending."""
    return tuple(tuple(sorted(members)) for _, members in bundle.exclusive if members[0] in at)


def group_states(probabilities: Floats, floor: float) -> Floats:
    """The probabilities that a member of an exclusive group is +1, (n,): scaled down where they leave none over."""
    total = float(probabilities.sum())
    return np.asarray(probabilities * min(1.0, (1.0 - floor) / total))
