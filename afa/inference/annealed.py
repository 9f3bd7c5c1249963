"""Annealed importance sampling on a conditioned ternary model: a reference where exact inference is too large.

Independent chains go from a product measure exp(f . x) / Z_0, of which all is known, to the model in small steps,

    p_k(x) ~ exp((1 - b_k) f . x + b_k E(x)),   b_k = (k / steps)^2,

with a flip of all signs offered and a Gibbs sweep at each. A chain's weight is the product over the steps of
p_k(x) / p_(k-1)(x), unnormalised, at the x that it had before the step: the mean weight is an unbiased estimate of
Z / Z_0 however few steps there are, and more of them make it a better one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import kernel
from afa.errors import Fault, InferenceError
from afa.inference.meanfield import mean_field
from afa.inference.result import Marginals, spread
from afa.mrf import ROUNDING, Evidence, Floats, PairwiseMRF

Start = Literal["uniform", "mean_field"]
POWER = 2.0
"""Of the schedule: above 1 the steps are shorter near the start, where strong couplings first set in."""
LEAST_EFFECTIVE = 10.0
"""Below so many effective chains a few decide the answer, and their spread does not tell its error."""


@dataclass(frozen=True)
class Annealed:
    """What K weighted chains say of a conditioned model.

    log_partition : estimate of log Z(x_obs) (eq:clamped-logZ), the running constant included, in nats. error : its
    standard error in nats, from the spread of the weights; infinite where fewer than 10 chains are effective.
    effective : effective number of chains, 1 to K. values : (K, |A|) where each chain ended, at the features in
    `marginals.free`. weights : (K,) of the chains, summing to 1.
    """

    marginals: Marginals
    log_partition: float
    error: float
    effective: float
    values: NDArray[np.int8]
    weights: Floats

    def pair_moments(self) -> Floats:
        """Estimates of E[x_j x_l] between the features in `marginals.free`, (|A|, |A|), E[x_j^2] on the diagonal."""
        ends = self.values.astype(np.float64)
        # einsum, not a matrix product: its sums do not depend on the number of threads
        pairs: Floats = np.einsum("kj,k,kl->jl", ends, self.weights, ends)
        return pairs


def annealed(
    mrf: PairwiseMRF,
    evidence: Evidence | dict[str, int] | None = None,
    *,
    chains: int = 1000,
    steps: int = 200,
    start: Start = "uniform",
    generator: np.random.Generator | None = None,
) -> Annealed:
    """Log Z(x_obs) and moments of `mrf` given `evidence` by annealed importance sampling, with their error.

    chains, steps : more of either is better, and time is proportional to both. start : the first measure, `uniform`
    (f = 0) or the product of the mean-field marginals, which misses what mean-field misses. generator : of the random
    numbers; without one they are the same each time. An `InferenceError` where there are fewer than 2 chains or 1 step,
    or `start` is another word.

    >>> model = PairwiseMRF([1.0, 0.0], [[0.0, 2.0], [2.0, 0.0]])
    >>> found = annealed(model, {"x0": 1})
    >>> abs(found.log_partition - 3.142932) < 3 * found.error < 0.2
    True
    """
    _check_options(chains, steps, start)
    if mrf.centre is not None or not mrf.possible.all():
        found, expected = "a model of probabilities, or with values that cannot occur", "the paper's ternary model"
        raise InferenceError(Fault("annealed importance sampling", found, expected, "use mean_field or exact"))
    state = evidence if isinstance(evidence, Evidence) else Evidence.of(mrf, evidence)
    random = np.random.default_rng(0) if generator is None else generator
    first = np.zeros(len(state.free))
    if start == "mean_field":  # the fields that have the mean-field marginals
        m = mean_field(mrf, state).marginals.first[state.free]
        first = state.field[state.free] + mrf.couplings[state.free][:, state.free] @ m
    # the log-partition of the first measure, sum_j log(1 + 2 cosh f_j), without overflow
    log_norm = (np.abs(first) + np.log1p(np.exp(-np.abs(first)) + np.exp(-2 * np.abs(first)))).sum()
    values, log_weights = _chains(state, first, chains, steps, random)
    top = log_weights.max()
    weights = np.exp(log_weights - top)
    total = weights.sum()
    weights /= total
    log_partition = state.constant + state.log_volume + log_norm + top + np.log(total / chains)
    effective = min(float(chains), float(1 / (weights**2).sum()))
    ends = values.astype(np.float64)
    m, q = np.einsum("k,kj->j", weights, ends), np.einsum("k,kj->j", weights, ends**2)
    error = standard_error(effective, chains)
    return Annealed(spread(state, m, q), float(log_partition), error, effective, values, weights)


def _check_options(chains: int, steps: int, start: str) -> None:
    where = "annealed importance sampling"
    if chains < 2 or steps < 1:
        found, expected = f"{chains} chains and {steps} steps", "2 chains and 1 step or more"
        raise InferenceError(Fault(where, found, expected, "ask for more"))
    if start not in get_args(Start):
        raise InferenceError(Fault(where, f"start {start!r}", " or ".join(get_args(Start)), "choose one of them"))


def standard_error(effective: float, chains: int) -> float:
    """Standard error in nats of the logarithm of the mean weight of some `chains`, by the delta method.

    Infinite where fewer than 10 are `effective`.
    """
    if effective < min(LEAST_EFFECTIVE, chains / 2):
        return float("inf")
    excess = chains / effective - 1
    return float(np.sqrt(excess / (chains - 1))) if excess > ROUNDING else 0.0


def _chains(
    state: Evidence, first: Floats, chains: int, steps: int, random: np.random.Generator
) -> tuple[NDArray[np.int8], Floats]:
    """Where the chains end, (K, |A|), and the logarithms of their weights relative to Z_0, (K,)."""
    free = state.free
    coupling = state.mrf.couplings[free][:, free].tocsr()
    field = state.field[free]
    layout = coupling.indptr.astype(np.int64), coupling.indices.astype(np.int64), coupling.data
    small = np.exp(-np.abs(first))
    norm = 1 + small + small**2
    drawn = random.random((chains, len(free))) * norm
    side = np.where(first < 0, -1, 1)
    values = (side * ((drawn < 1).astype(int) - (drawn >= 1 + small))).astype(np.int8)
    pulls: Floats = (coupling @ values.T.astype(np.float64)).T
    excess = (values * (field - first + 0.5 * pulls)).sum(axis=1)  # E(x) - f . x
    log_weights = np.zeros(chains)
    before = 0.0
    for k in range(1, steps + 1):
        beta = (k / steps) ** POWER
        log_weights += (beta - before) * excess
        slope = (1 - beta) * first + beta * field
        _sweep(slope, field - first, beta, *layout, random.random((chains, len(free) + 1)), values, excess)
        before = beta
    return values, log_weights


@kernel(entrance=True)
def _sweep(
    slope: Floats,
    linear: Floats,
    beta: float,
    pointer: NDArray[np.int64],
    other: NDArray[np.int64],
    coupling: Floats,
    uniforms: Floats,
    values: NDArray[np.int8],
    excess: Floats,
) -> None:
    """One step of each chain under exp(slope . x + beta/2 x'Wx), in place, `excess`, E(x) - f . x, with it.

    First -x is offered in the place of x, which couplings do not tell apart; then each feature is drawn anew.
    """
    n = len(slope)
    for chain in range(len(values)):
        tilt, turned = 0.0, 0.0
        for j in range(n):
            tilt += slope[j] * values[chain, j]
            turned += linear[j] * values[chain, j]
        if uniforms[chain, n] < np.exp(min(0.0, -2.0 * tilt)):
            excess[chain] -= 2.0 * turned
            for j in range(n):
                values[chain, j] = -values[chain, j]
        for j in range(n):
            around = 0.0
            for e in range(pointer[j], pointer[j + 1]):
                around += coupling[e] * values[chain, other[e]]
            h = slope[j] + beta * around
            small = np.exp(-abs(h))
            drawn = uniforms[chain, j] * (1.0 + small + small * small)
            side = -1 if h < 0 else 1
            new = side if drawn < 1.0 else (0 if drawn < 1.0 + small else -side)
            excess[chain] += (new - values[chain, j]) * (linear[j] + around)
            values[chain, j] = new
