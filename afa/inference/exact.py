"""Exact inference on a conditioned ternary model: the reference for mean-field answers.

Each connected component of the free features is eliminated in min-fill order; one whose tables would be too large is
listed half against half if it is small enough, and refused with an estimate otherwise. Unobserved features outside the
support are uniform: m = 0, q = 2/3, log 3 of log-partition each where all three values can occur (M3).

To list a component is to split its features in halves a and b: E(x) = E_a(x_a) + E_b(x_b) + x_a' W_ab x_b, so that the
weights of all 3^n configurations are one (3^(n/2), 3^(n/2)) matrix. It is made in blocks of rows and reduced at once;
only sums over rows and columns and the cross moments of the halves are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from afa.errors import Fault, InferenceError, PlannerError
from afa.inference.elimination import BYTES, Component, Eliminated, Estimate, best_values, components, elimination_cost
from afa.inference.result import Marginals, probabilities_of, spread
from afa.mrf import Evidence, Floats, PairwiseMRF

__all__ = ["Exact", "estimate", "exact", "exact_expected_score", "map_state", "pair_moments", "sample"]

MEMORY_LIMIT = 2_000_000_000
MOST_FEATURES = 20
"""Of a component that is listed."""
BLOCK_ENTRIES = 1 << 18


@dataclass(frozen=True)
class Exact:
    """Exact marginals and log-partition, and what they took.

    log_partition : log Z(x_obs) (eq:clamped-logZ), the running constant included, in nats. width : of the elimination
    order. cost : the estimate that was made before the start.
    """

    marginals: Marginals
    log_partition: float
    width: int
    cost: Estimate


def exact(
    mrf: PairwiseMRF, evidence: Evidence | dict[str, int] | None = None, *, memory_limit: int = MEMORY_LIMIT
) -> Exact:
    """Exact single-feature marginals and log Z(x_obs) of `mrf` given `evidence` (eq:clamped-logZ).

    `memory_limit` is in bytes of tables held at one time. An `InferenceError` gives the estimate of a model that would
    take more; `mean_field` answers any model approximately.

    >>> solution = exact(PairwiseMRF([1.0, 0.0], [[0.0, 2.0], [2.0, 0.0]]), {"x0": 1})
    >>> round(float(solution.marginals.first[1]), 6), round(solution.log_partition, 6)
    (0.850937, 3.142932)
    """
    state = _conditioned(mrf, evidence)
    parts, cost = _plan(state, memory_limit, pairs=False)
    m, q = np.zeros(len(state.free)), np.zeros(len(state.free))
    log_partition = state.uncentred()[0] + state.log_volume
    for part, listed in parts:
        solved = _solve(part, listed)
        m[part.members], q[part.members] = _within_bounds(*solved.moments())
        log_partition += solved.log_partition
    return Exact(spread(state, m, q), float(log_partition), cost.width, cost)


def pair_moments(
    mrf: PairwiseMRF, evidence: Evidence | dict[str, int] | None = None, *, memory_limit: int = MEMORY_LIMIT
) -> tuple[Floats, Floats]:
    """Exact E[x_j] (M,) and E[x_j x_l] (|A|, |A|) given `evidence`, the pairs between the features in `evidence.free`.

    The first moments are 0 at observed features and outside the support. Raises `InferenceError` as `exact`.
    """
    state = _conditioned(mrf, evidence)
    parts, _ = _plan(state, memory_limit, pairs=True)
    first, pairs = np.zeros(len(state.free)), np.zeros((len(state.free), len(state.free)))
    for part, listed in parts:
        solved = _solve(part, listed)
        first[part.members] = solved.moments()[0]
        pairs[np.ix_(part.members, part.members)] = solved.pair_moments()
    apart = np.ones(pairs.shape, dtype=bool)
    for part, _ in parts:
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
    """Exact E_{p_u}[S_v | x_obs] of models v under the conditional of u = `mrf`, (len(scores),) nats (supp:pair-level).

    `scores` are the other models on the same features with the same observations. Unobserved features outside the
    support of u are uniform and independent, so that only couplings of v inside it count. Raises `PlannerError` where
    features or observations differ, `InferenceError` as `exact`.
    """
    state = _conditioned(mrf, evidence)
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
) -> tuple[NDArray[np.int8], float]:
    """A completion of largest energy, (M,), and its energy E(x) in nats; 0 outside the support.

    Ties are broken the same way every time: each feature, as it is eliminated, takes the lowest of its best values.
    Raises `InferenceError` as `exact`.
    """
    state = _conditioned(mrf, evidence)
    parts, _ = _plan(state, memory_limit, pairs=False)
    values = state.values.copy()
    for part, listed in parts:
        values[state.free[part.members]] = best_listed(part) if listed else best_values(part)
    return values, state.mrf.energy(values)


def sample(
    mrf: PairwiseMRF,
    evidence: Evidence | dict[str, int] | None,
    n: int,
    *,
    generator: np.random.Generator,
    memory_limit: int = MEMORY_LIMIT,
) -> NDArray[np.int8]:
    """`n` independent exact samples of all features, (n, M), observed ones at their values. Raises as `exact`."""
    state = _conditioned(mrf, evidence)
    parts, _ = _plan(state, memory_limit, pairs=False)
    values = np.tile(state.values, (n, 1))
    uniform = np.setdiff1d(np.flatnonzero(~state.observed), state.free)
    lowest, size = -mrf.possible[uniform, 0].astype(np.int8), mrf.possible[uniform].sum(axis=1)
    values[:, uniform] = lowest + generator.integers(0, size, size=(n, len(uniform)))
    draws = generator.random((n, len(state.free)))
    for part, listed in parts:
        values[:, state.free[part.members]] = _solve(part, listed).draw(draws[:, part.members])
    return values


def estimate(
    mrf: PairwiseMRF,
    evidence: Evidence | dict[str, int] | None = None,
    *,
    memory_limit: int = MEMORY_LIMIT,
    pairs: bool = False,
) -> Estimate:
    """What `exact` will take, or with `pairs` what `pair_moments` will; no table is made and nothing is refused.

    A component that would take more than `memory_limit` by elimination is estimated by listing where that takes less.
    """
    return _total(_choose(components(_conditioned(mrf, evidence)), memory_limit, pairs=pairs))


def _plan(state: Evidence, memory_limit: int, *, pairs: bool) -> tuple[list[tuple[Component, bool]], Estimate]:
    """The components, each with whether it is listed, and their cost; an `InferenceError` where that is too much."""
    parts = components(state)
    costs = _choose(parts, memory_limit, pairs=pairs)
    total = _total(costs)
    if total.bytes > memory_limit:
        found = (
            f"elimination width {total.width} over {len(state.free)} features, "
            f"about {_size(total.bytes)} of tables and {_duration(total.seconds)}"
        )
        step = "use mean_field, observe more features first, or pass a larger memory_limit"
        raise InferenceError(Fault("exact inference", found, f"at most {_size(memory_limit)} of tables", step))
    return [(part, cost.enumerated > 0) for part, cost in zip(parts, costs, strict=True)], total


def _choose(parts: list[Component], memory_limit: int, *, pairs: bool) -> list[Estimate]:
    """The cost of each component by elimination, or by listing where only that stays within the limit."""
    costs = []
    for part in parts:
        cost = elimination_cost(part, pairs=pairs)
        if cost.bytes > memory_limit and part.n <= MOST_FEATURES:
            cost = min(cost, listing_cost(part), key=lambda either: either.bytes)
        costs.append(cost)
    return costs


def _total(costs: list[Estimate]) -> Estimate:
    """Components are solved one after another: work adds up, memory does not."""
    return Estimate(
        width=max((cost.width for cost in costs), default=0),
        table_entries=sum(cost.table_entries for cost in costs),
        bytes=max((cost.bytes for cost in costs), default=0),
        operations=sum(cost.operations for cost in costs),
        enumerated=max((cost.enumerated for cost in costs), default=0),
    )


def _solve(part: Component, listed: bool) -> Eliminated | Enumerated:
    return Enumerated.of(part) if listed else Eliminated.of(part)


def _within_bounds(first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """The moments with |m| <= q <= 1, which rounding may miss by a last digit: no probability is ever negative."""
    q = np.minimum(second, 1.0)
    return np.clip(first, -q, q), q


def _conditioned(mrf: PairwiseMRF, evidence: Evidence | dict[str, int] | None) -> Evidence:
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


@dataclass(frozen=True)
class Halves:
    """The two halves of a component: their configurations, (3^n_half, n_half), with energies (3^n_half,) in nats.

    crossing : (3^n_a, n_b), the field that each configuration of a puts on b.
    """

    x_a: Floats
    x_b: Floats
    energy_a: Floats
    energy_b: Floats
    crossing: Floats

    @classmethod
    def of(cls, component: Component) -> Halves:
        n_a, coupling = component.n // 2, component.coupling
        x_a, energy_a = configurations(component.terms[:n_a], coupling[:n_a, :n_a])
        x_b, energy_b = configurations(component.terms[n_a:], coupling[n_a:, n_a:])
        return cls(x_a, x_b, energy_a, energy_b, x_a @ coupling[:n_a, n_a:])

    def energies(self, rows: slice | NDArray[np.intp]) -> Floats:
        """Energies of these configurations of a (rows) with all of b, (n_rows, 3^n_b)."""
        energy = self.crossing[rows] @ self.x_b.T
        energy += self.energy_b
        energy += self.energy_a[rows, None]
        return energy

    def blocks(self) -> Iterator[tuple[slice, Floats]]:
        """All energies, in blocks of rows of bounded memory."""
        size = max(1, BLOCK_ENTRIES // len(self.energy_b))
        for start in range(0, len(self.energy_a), size):
            rows = slice(start, start + size)
            yield rows, self.energies(rows)


def configurations(terms: Floats, coupling: Floats) -> tuple[Floats, Floats]:
    """All configurations of n features, (3^n, n), and their energies (3^n,) in nats."""
    n = len(terms)
    columns = np.arange(3**n)[:, None] // 3 ** np.arange(n)[::-1] % 3
    values = (columns - 1).astype(np.float64)
    of_values = terms[np.arange(n), columns].sum(axis=1)
    return values, of_values + 0.5 * np.sum(values * (values @ coupling), axis=1)


@dataclass(frozen=True)
class Enumerated:
    """A component by enumeration: the same answers as `Eliminated`.

    log_partition : nats (eq:clamped-logZ). p_a (3^n_a,), p_b (3^n_b,) : probabilities of the halves' configurations.
    cross : (n_a, n_b), E[x_j x_l] across the halves.
    """

    halves: Halves
    log_partition: float
    p_a: Floats
    p_b: Floats
    cross: Floats

    @classmethod
    def of(cls, component: Component) -> Enumerated:
        """Sum over all configurations, every weight relative to the largest met so far."""
        halves = Halves.of(component)
        x_a, x_b = halves.x_a, halves.x_b
        with_one = np.column_stack([np.ones(len(x_b)), x_b])
        p_a, p_b = np.zeros(len(x_a)), np.zeros(len(x_b))
        cross = np.zeros((x_a.shape[1], x_b.shape[1]))
        top = -np.inf
        for rows, energy in halves.blocks():
            shift = max(top, float(energy.max()))
            scale = np.exp(top - shift)
            weight = np.subtract(energy, shift, out=energy)
            np.exp(weight, out=weight)
            reduced = weight @ with_one
            p_a *= scale
            p_a[rows] = reduced[:, 0]
            p_b = p_b * scale + weight.sum(axis=0)
            cross = cross * scale + x_a[rows].T @ reduced[:, 1:]
            top = shift
        total = p_a.sum()
        return cls(halves, float(top + np.log(total)), p_a / total, p_b / p_b.sum(), cross / total)

    def moments(self) -> tuple[Floats, Floats]:
        """E[x] and E[x^2] of each feature, both (n,)."""
        x_a, x_b = self.halves.x_a, self.halves.x_b
        first = np.concatenate([self.p_a @ x_a, self.p_b @ x_b])
        return first, np.concatenate([self.p_a @ x_a**2, self.p_b @ x_b**2])

    def pair_moments(self) -> Floats:
        """E[x_j x_l] of all pairs, (n, n), E[x_j^2] on the diagonal."""
        x_a, x_b = self.halves.x_a, self.halves.x_b
        inside_a, inside_b = x_a.T @ (self.p_a[:, None] * x_a), x_b.T @ (self.p_b[:, None] * x_b)
        return np.block([[inside_a, self.cross], [self.cross.T, inside_b]])

    def draw(self, uniforms: Floats) -> NDArray[np.int8]:
        """Independent samples, (n_samples, n), from uniforms in [0, 1) of the same shape."""
        a, b = self.halves.x_a, self.halves.x_b
        chosen_a = _inverse(self.p_a, uniforms[:, 0])
        chosen_b = np.zeros(len(uniforms), dtype=np.intp)
        for row in np.unique(chosen_a):
            energy = self.halves.energies(np.array([row]))[0]
            here = chosen_a == row
            chosen_b[here] = _inverse(np.exp(energy - energy.max()), uniforms[here, -1])
        return np.column_stack([a[chosen_a], b[chosen_b]]).astype(np.int8)


def best_listed(component: Component) -> NDArray[np.int8]:
    """A configuration of largest energy, (n,); of those that tie the lexicographically first in elimination order."""
    halves = Halves.of(component)
    best, at = -np.inf, (0, 0)
    for rows, energy in halves.blocks():
        place = int(energy.argmax())
        if energy.flat[place] > best:
            row, column = divmod(place, energy.shape[1])
            best, at = float(energy.flat[place]), (rows.start + row, column)
    return np.concatenate([halves.x_a[at[0]], halves.x_b[at[1]]]).astype(np.int8)


def listing_cost(component: Component) -> Estimate:
    """Cost of listing one component half against half."""
    entries, half = 3**component.n, 3 ** (component.n - component.n // 2)
    block = min(entries, max(BLOCK_ENTRIES, half))
    held = 2 * block + 4 * half * (component.n + 2)
    return Estimate(component.width, entries, BYTES * held, entries, component.n)


def _inverse(weights: Floats, uniforms: Floats) -> NDArray[np.intp]:
    """Positions drawn in proportion to `weights`; a weight of zero is never drawn."""
    cumulative = np.cumsum(weights)
    total = cumulative[-1]
    below_total = np.minimum(uniforms * total, np.nextafter(total, 0.0))
    positions: NDArray[np.intp] = np.searchsorted(cumulative, below_total, side="right")
    return positions


def _size(n_bytes: int) -> str:
    """Bytes in the largest decimal unit that fits, as in 1.5 GB."""
    for unit, power in (("TB", 4), ("GB", 3), ("MB", 2), ("kB", 1)):
        if n_bytes >= 1000**power:
            return f"{n_bytes / 1000**power:.3g} {unit}"
    return f"{n_bytes} B"


def _duration(seconds: float) -> str:
    for unit, length in (("years", 31_557_600), ("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.2g} seconds"
