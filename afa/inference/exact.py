"""Run exact inference on a model given observations, as a reference for mean-field inference.

The method is variable elimination in min-fill order, separately for each connected component of the unobserved
features. If the tables would need too much memory, an `InferenceError` states the estimated cost. Unobserved features
outside the support are uniform. If such a feature is ternary, it has the moments m = 0 and q = 2/3, and adds log 3 to
the log-partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from afa.errors import Fault, InferenceError, PlannerError
from afa.inference.elimination import Component, Eliminated, Estimate, best_values, components, elimination_cost
from afa.inference.result import Marginals, probabilities_of, spread
from afa.model.arrays import Codes, Floats
from afa.model.mrf import Evidence, PairwiseMRF

__all__ = ["Exact", "estimate", "exact", "exact_expected_score", "map_state", "pair_moments", "sample"]

MEMORY_LIMIT = 2_000_000_000


@dataclass(frozen=True)
class Exact:
    """Exact marginals and log-partition of a model, with the cost of computing them.

    Attributes
    ----------
    log_partition : log Z(x_obs), including the prior and the energy of the observed features, nats (eq:clamped-logZ)
    width : number of features in the largest separator of the elimination
    cost : cost estimated before the computation

    """

    marginals: Marginals
    log_partition: float
    width: int
    cost: Estimate


def exact(
    mrf: PairwiseMRF, evidence: Evidence | dict[str, int] | None = None, *, memory_limit: int = MEMORY_LIMIT
) -> Exact:
    """Return exact single-feature marginals and log Z(x_obs) of `mrf` given `evidence` (eq:clamped-logZ).

    Parameters
    ----------
    memory_limit : largest memory in use at one time, in bytes of tables

    Raises
    ------
    InferenceError : the model would need more memory than `memory_limit`; `mean_field` needs no tables

    Examples
    --------
    >>> solution = exact(PairwiseMRF([1.0, 0.0], [[0.0, 2.0], [2.0, 0.0]]), {"x0": 1})
    >>> round(float(solution.marginals.first[1]), 6), round(solution.log_partition, 6)
    (0.850937, 3.142932)

    """
    state = _evidence_of_model(mrf, evidence)
    parts, cost = _components_within_limit(state, memory_limit, pairs=False)
    m, q = np.zeros(len(state.free)), np.zeros(len(state.free))
    log_partition = state.uncentred()[0] + state.log_volume
    for part in parts:
        solved = Eliminated.of(part)
        m[part.members], q[part.members] = _clip_moments(*solved.moments())
        log_partition += solved.log_partition
    return Exact(spread(state, m, q), float(log_partition), cost.width, cost)


def pair_moments(
    mrf: PairwiseMRF, evidence: Evidence | dict[str, int] | None = None, *, memory_limit: int = MEMORY_LIMIT
) -> tuple[Floats, Floats]:
    """Return the exact E[x_j] of all features, and the exact E[x_j x_l] of all unobserved features in the support.

    The memory limit and the errors are those of `exact`.

    Returns
    -------
    first : (M,) float64, E[x_j]; 0 at observed features and outside the support
    pairs : (n_free, n_free) float64, E[x_j x_l] of the features in `evidence.free`

    """
    state = _evidence_of_model(mrf, evidence)
    parts, _ = _components_within_limit(state, memory_limit, pairs=True)
    first, pairs = np.zeros(len(state.free)), np.zeros((len(state.free), len(state.free)))
    for part in parts:
        solved = Eliminated.of(part)
        first[part.members] = solved.moments()[0]
        pairs[np.ix_(part.members, part.members)] = solved.pair_moments()
    apart = np.ones(pairs.shape, dtype=bool)
    for part in parts:
        apart[np.ix_(part.members, part.members)] = False
    pairs[apart] = np.outer(first, first)[apart]
    return spread(state, first, pairs.diagonal()).first, pairs


def exact_expected_score(
    mrf: PairwiseMRF,
    evidence: Evidence | dict[str, int] | None,
    scores: Sequence[Evidence],
    *,
    memory_limit: int = MEMORY_LIMIT,
) -> Floats:
    """Return the exact expected score E_{p_u}[S_v | x_obs] of each model v, where u is `mrf` (supp:pair-level).

    Under the distribution p_u of the model u, unobserved features outside the support of u are uniform and independent.
    Therefore, couplings of v with such features contribute 0.

    Parameters
    ----------
    scores : evidence of the models v, on the same features with the same observations as `evidence`
    memory_limit : largest memory of tables, in bytes, as in `exact`

    Returns
    -------
    expected : (n_scores,) float64, nats

    Raises
    ------
    PlannerError : the features or observations of `scores` differ from those of `mrf` and `evidence`
    InferenceError : as `exact`

    """
    state = _evidence_of_model(mrf, evidence)
    for other in scores:
        _check_aligned(state, other)
    first, pairs = pair_moments(mrf, state, memory_limit=memory_limit)
    free = state.free
    marginals = spread(state, first[free], pairs.diagonal())
    p = probabilities_of(marginals.first, marginals.second)
    found = []
    for other in scores:
        constant, terms = other.uncentred()
        linear = (p * np.where(p > 0, terms, 0.0)).sum()
        found.append(constant + linear + 0.5 * other.mrf.couplings[free][:, free].multiply(pairs).sum())
    return np.array(found, dtype=np.float64)


def map_state(
    mrf: PairwiseMRF, evidence: Evidence | dict[str, int] | None = None, *, memory_limit: int = MEMORY_LIMIT
) -> tuple[Codes, float]:
    """Return the jointly most probable values of all features given the observations, and their energy E(x).

    If several values of a feature are equally probable, the lowest of these values is returned. The memory limit and
    the errors are those of `exact`.

    Returns
    -------
    values : (M,) int8, -1, 0 or +1; unobserved features outside the support are 0
    energy : float, nats

    """
    state = _evidence_of_model(mrf, evidence)
    parts, _ = _components_within_limit(state, memory_limit, pairs=False)
    values = state.values.copy()
    for part in parts:
        values[state.free[part.members]] = best_values(part)
    return values, state.mrf.energy(values)


def sample(
    mrf: PairwiseMRF,
    evidence: Evidence | dict[str, int] | None,
    n: int,
    *,
    generator: np.random.Generator,
    memory_limit: int = MEMORY_LIMIT,
) -> Codes:
    """Return `n` independent samples of all features from the exact distribution. Observed features keep their values.

    The memory limit and the errors are those of `exact`.

    Returns
    -------
    values : (n, M) int8, -1, 0 or +1

    """
    state = _evidence_of_model(mrf, evidence)
    parts, _ = _components_within_limit(state, memory_limit, pairs=False)
    values = np.tile(state.values, (n, 1))
    uniform = np.setdiff1d(np.flatnonzero(~state.observed), state.free)
    lowest, size = -mrf.possible[uniform, 0].astype(np.int8), mrf.possible[uniform].sum(axis=1)
    values[:, uniform] = lowest + generator.integers(0, size, size=(n, len(uniform)))
    draws = generator.random((n, len(state.free)))
    for part in parts:
        values[:, state.free[part.members]] = Eliminated.of(part).draw(draws[:, part.members])
    return values


def estimate(mrf: PairwiseMRF, evidence: Evidence | dict[str, int] | None = None, *, pairs: bool = False) -> Estimate:
    """Return the estimated cost of `exact`. If `pairs` is True, return the estimated cost of `pair_moments`."""
    return _total_cost(components(_evidence_of_model(mrf, evidence)), pairs=pairs)


def _components_within_limit(state: Evidence, memory_limit: int, *, pairs: bool) -> tuple[list[Component], Estimate]:
    """Return the connected components and their total cost.

    Raise an `InferenceError` if the tables need more than `memory_limit` bytes.
    """
    parts = components(state)
    total = _total_cost(parts, pairs=pairs)
    if total.bytes > memory_limit:
        found = (
            f"elimination width {total.width} over {len(state.free)} features, "
            f"about {_size(total.bytes)} of tables and {_duration(total.seconds)}"
        )
        step = "use mean_field, observe more features first, or pass a larger memory_limit"
        raise InferenceError(Fault("exact inference", found, f"at most {_size(memory_limit)} of tables", step))
    return parts, total


def _total_cost(parts: list[Component], *, pairs: bool) -> Estimate:
    """Return the total cost of all components.

    The fields `width` and `bytes` are maxima over the components. The other fields are sums over the components.
    """
    costs = [elimination_cost(part, pairs=pairs) for part in parts]
    return Estimate(
        width=max((cost.width for cost in costs), default=0),
        table_entries=sum(cost.table_entries for cost in costs),
        bytes=max((cost.bytes for cost in costs), default=0),
        operations=sum(cost.operations for cost in costs),
    )


def _clip_moments(first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """Clip the moments to |m| <= q <= 1, because rounding errors could make a probability negative."""
    q = np.minimum(second, 1.0)
    return np.clip(first, -q, q), q


def _evidence_of_model(mrf: PairwiseMRF, evidence: Evidence | dict[str, int] | None) -> Evidence:
    if not isinstance(evidence, Evidence):
        return Evidence.of(mrf, evidence)
    ours, theirs = mrf, evidence.mrf
    if ours is not theirs and not (
        ours.features == theirs.features
        and ours.prior == theirs.prior
        and np.array_equal(ours.terms, theirs.terms)
        and (ours.centre is None) == (theirs.centre is None)
        and (ours.couplings != theirs.couplings).nnz == 0
    ):
        step = "build the evidence from this model with Evidence.of"
        raise PlannerError(Fault("exact inference", "evidence of another model", "evidence of the model given", step))
    return evidence


def _check_aligned(state: Evidence, other: Evidence) -> None:
    step = "observe the same features in every model"
    if other.mrf.features != state.mrf.features:
        raise PlannerError(Fault("expected scores", "models on different features", "the same features", step))
    differing = (other.observed != state.observed) | (other.values != state.values)
    if differing.any():
        name = state.mrf.features[int(np.flatnonzero(differing)[0])]
        found = f"different observations of {name}"
        raise PlannerError(Fault("expected scores", found, "the same observations in every model", step))


def _size(n_bytes: int) -> str:
    """Return a text such as 1.5 GB for a number of bytes."""
    for unit, power in (("TB", 4), ("GB", 3), ("MB", 2), ("kB", 1)):
        if n_bytes >= 1000**power:
            return f"{n_bytes / 1000**power:.3g} {unit}"
    return f"{n_bytes} B"


def _duration(seconds: float) -> str:
    for unit, length in (("years", 31_557_600), ("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.2g} seconds"
