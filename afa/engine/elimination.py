"""Exact clamped log-partitions of one model in many states: variable elimination, compiled.

The elimination order is found once, at no observation (`afa.inference.elimination`). An observed feature has one value
and drops out of every table, so that a state costs the less the more of it is known. Tables hold weights, not their
logarithms; each message is divided by its largest entry. A state whose weights span more than double precision holds
is noticed and left to `afa.inference.exact`, which works with logarithms and is slower.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import INT, in_threads, kernel
from afa.engine.elimination_tables import (
    STRONGEST,
    UNOBSERVED,
    Plan,
    States,
    clamp,
    eliminate,
    message_size,
    new_clamped,
    new_incoming,
    new_tables,
)
from afa.errors import Fault, InferenceError, PlannerError
from afa.inference.elimination import BYTES, components
from afa.inference.exact import exact
from afa.mrf import LOG3, ROUNDING, Evidence, Floats, PairwiseMRF

ENTRY_LIMIT = 2e8
MEMORY_LIMIT = 2_000_000_000


def elimination_plan(mrf: PairwiseMRF) -> Plan:
    """The layout of a model in the min-fill order of its unobserved graph."""
    evidence = Evidence.of(mrf)
    members, separators, couplings, offset = [], [], [], 0
    for part in components(evidence):
        members.append(evidence.free[part.members])
        for v, separator in enumerate(part.separators):
            separators.append(np.array(separator, dtype=np.int64) + offset)
            couplings.append(part.coupling[v, list(separator)])
        offset += part.n
    feature = np.concatenate([*members, np.empty(0)]).astype(np.int64)
    return Plan(
        feature=feature,
        unary=mrf.unary[feature],
        first=np.cumsum([0, *map(len, separators)]).astype(np.int64),
        separator=np.concatenate([*separators, np.empty(0)]).astype(np.int64),
        coupling=np.concatenate([*couplings, np.empty(0)]).astype(np.float64),
    )


def with_potentials(plan: Plan, mrf: PairwiseMRF) -> Plan:
    """The plan with the potentials of another model on the same features whose graph is that of the first or less.

    Raises `PlannerError` where the model has a potential that the plan has no place for.
    """
    at = plan.feature
    owner = np.repeat(np.arange(len(at)), np.diff(plan.first))
    inside = mrf.couplings[at][:, at].toarray()
    changed = plan._replace(unary=mrf.unary[at], coupling=inside[owner, plan.separator].astype(np.float64))
    n_pairs = mrf.couplings.nnz // 2
    held = int((changed.coupling != 0).sum())
    if held < n_pairs or not np.isin(mrf.support, at).all():
        found = f"{n_pairs - held} couplings and {int((~np.isin(mrf.support, at)).sum())} features without a place"
        raise PlannerError(Fault("an elimination plan", found, "a model on the plan's graph", "plan this model anew"))
    return changed


def log_partitions(
    mrf: PairwiseMRF,
    observed: NDArray[np.bool_],
    values: NDArray[np.int8],
    *,
    factors: Sequence[float] = (0.5, -0.5),
    plan: Plan | None = None,
    limit: float = ENTRY_LIMIT,
    threads: int | None = None,
) -> Floats:
    """Exact log Z(x_obs) of `factor * E` for each state and factor, (R, len(factors)), in nats (eq:clamped-logZ).

    observed : (R, M). values : (R, M) in {-1, 0, +1}, read where observed. The running constant is included, and log 3
    for each unobserved feature outside the support. plan : of `mrf`, or of a model with the same graph, where it has
    been made already. limit : most table entries that one state may take.

    The same bytes for any number of threads. An `InferenceError` tells of a state that takes more than `limit`.
    """
    plan = elimination_plan(mrf) if plan is None else with_potentials(plan, mrf)
    codes = np.where(observed[:, plan.feature], values[:, plan.feature], UNOBSERVED).astype(np.int8)
    states, row = _distinct(codes)
    entries = _entries(plan, states).max(initial=0.0)
    check_size(entries, limit, len(plan.feature))
    solved = np.empty((len(states), len(factors)))
    scaled = np.array(factors, dtype=np.float64)
    in_threads(_solve, len(states), threads_for(BYTES * entries / 3, threads), plan, states, scaled, solved)
    for i in np.flatnonzero(np.isnan(solved).any(axis=1)):
        solved[i] = _by_logarithms(mrf, plan, states[i], factors)
    uniform = (~observed).sum(axis=1) - (codes == UNOBSERVED).sum(axis=1)
    found: Floats = solved[row] + mrf.prior * scaled + LOG3 * uniform[:, None]
    return found


def entries_at_no_observation(plan: Plan) -> float:
    """Table entries that the state takes in which nothing is known."""
    return float(_entries(plan, np.full((1, len(plan.feature)), UNOBSERVED, dtype=np.int8))[0])


def _distinct(codes: States) -> tuple[States, NDArray[np.intp]]:
    """The distinct rows of (R, n) codes, and which of them each row is, (R,)."""
    n_rows, n = codes.shape
    if n == 0 or n_rows == 0:
        return codes[:1], np.zeros(n_rows, dtype=np.intp)
    states, row = np.unique(codes, axis=0, return_inverse=True)
    return states, row.reshape(-1)


def check_size(entries: float, limit: float, n: int) -> None:
    """An `InferenceError` where the tables of one state have more entries than `limit`."""
    if entries > limit:
        found = f"tables of {entries:.3g} entries over {n} features"
        step = "use mean-field, observe more features first, or pass a larger limit"
        raise InferenceError(Fault("exact elimination", found, f"at most {limit:.3g} entries", step))


def threads_for(n_bytes: float, threads: int | None) -> int:
    """Threads wanted, all cores where None, but no more than have tables of `n_bytes` each within `MEMORY_LIMIT`."""
    wanted = threads or len(os.sched_getaffinity(0))
    return max(1, min(wanted, int(MEMORY_LIMIT / max(n_bytes, 1.0))))


def _by_logarithms(mrf: PairwiseMRF, plan: Plan, state: States, factors: Sequence[float]) -> Floats:
    """The log-partitions of one state by `exact`, without prior and uniform features, (len(factors),)."""
    seen = plan.feature[state != UNOBSERVED]
    observations = dict(zip([mrf.features[j] for j in seen], state[state != UNOBSERVED].tolist(), strict=True))
    found = []
    for factor in factors:
        model = PairwiseMRF(factor * mrf.unary, factor * mrf.couplings, 0.0, mrf.features)
        evidence = Evidence.of(model, observations)
        outside = mrf.n_features - len(plan.feature)
        found.append(exact(model, evidence).log_partition - LOG3 * outside)
    return np.array(found)


@kernel(entrance=True)
def _entries(plan: Plan, states: States) -> Floats:
    """(U,) table entries that each state takes."""
    clamped = new_clamped(plan)
    entries = np.empty(len(states))
    for i in range(len(states)):
        n_free, _ = clamp(plan, states[i], clamped)
        entries[i] = 3.0 * message_size(clamped, n_free)[0]
    return entries


@kernel(entrance=True)
def _solve(plan: Plan, states: States, factors: Floats, solved: Floats, first: int, last: int) -> None:
    """Write log-partitions, (U, F), of the states first to last - 1; NaN where weights leave double precision."""
    clamped, incoming = new_clamped(plan), new_incoming(len(plan.unary))
    largest, widest = 0, 0
    tables = new_tables(INT(0), INT(0), np.ones(1))
    for i in range(first, last):
        n_free, constant = clamp(plan, states[i], clamped)
        size, width = message_size(clamped, n_free)
        if size > largest or width > widest:
            largest, widest = max(largest, int(size)), max(widest, width)
            tables = new_tables(largest, widest, np.ones(1))
        for f in range(len(factors)):
            _, logarithm = eliminate(clamped, n_free, factors[f], incoming, tables, True)
            solved[i, f] = factors[f] * constant + logarithm


HALVES = (0.5, -0.5)
TILTS = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0)
LOG_TAIL = 36.0
MOST_VALUES = 20_000
LARGEST_DENOMINATOR = 10_000
CLOSE = 1e-12
COMPLEX_BYTES = 16


@dataclass(frozen=True)
class ScoreDistribution:
    """S(x) over all features under p_1 ~ exp(S/2) and p_0 ~ exp(-S/2) (eq:half-potential).

    values : (K,) scores in nats, ascending, equally spaced, the prior included. p1, p0 : (K,) their probabilities,
    absolute error about 1e-12. log_z1, log_z0 : log-partitions at no observation in nats, all features and the prior
    included. tie : scores of at most this magnitude are rounding.
    """

    values: Floats
    p1: Floats
    p0: Floats
    log_z1: float
    log_z0: float
    tie: float

    @property
    def shift(self) -> float:
        """What S(x) must exceed for p_1(x) > p_0(x): log Z_1 - log Z_0, in nats."""
        return self.log_z1 - self.log_z0

    @cached_property
    def bayes_accuracy(self) -> float:
        """Accuracy of the best decision from all features, classes equally frequent: the sign of S - shift."""
        return min(1.0, float(np.maximum(self.p1, self.p0).sum() / 2))

    @cached_property
    def _sign(self) -> Floats:
        return np.where(np.abs(self.values) <= self.tie, 0.0, np.sign(self.values))

    def accuracy_of_sign(self) -> float:
        """Accuracy of deciding by the sign of S itself, classes equally frequent, a tie counting one half."""
        return float((1 + (self.p1 - self.p0) @ self._sign / 2) / 2)

    @property
    def expected_sign(self) -> float:
        """E_Q[sign S] under Q = (p_0 + p_1) / 2 (prop:mixture-mean)."""
        return float((self.p1 + self.p0) @ self._sign / 2)

    @property
    def expected_score(self) -> float:
        """E_Q[S] in nats under Q = (p_0 + p_1) / 2 (eq:f1-criterion)."""
        return float((self.p1 + self.p0) @ self.values / 2)


def score_distribution(
    mrf: PairwiseMRF, *, limit: float = ENTRY_LIMIT, threads: int | None = None
) -> ScoreDistribution:
    """The distribution of S = `mrf`'s energy under its two half-potential models, at no observation.

    limit : most table entries of one elimination. The same bytes for any number of threads. An `InferenceError` tells
    of a model that is too dense, whose potentials have no common step, or whose energies are too large.
    """
    step, plan, n_uniform = lattice_step(mrf), elimination_plan(mrf), mrf.n_features - len(mrf.support)
    entries = entries_at_no_observation(plan)
    check_size(entries, limit, len(plan.feature))
    strength = mrf.reach - abs(mrf.prior)
    if strength / 2 + LOG3 * len(plan.feature) > STRONGEST:
        found = f"energies up to {strength:.4g} nats over {len(plan.feature)} features"
        expected = f"half of it plus {LOG3:.3g} for each feature at most {STRONGEST:g}"
        raise InferenceError(Fault("a distribution of scores", found, expected, "scale the potentials down"))
    factors = np.unique(np.add.outer(np.array(HALVES), [0.0, *TILTS, *(-tilt for tilt in TILTS)]))
    nothing = np.zeros((1, mrf.n_features), dtype=np.int8)
    log_z = log_partitions(mrf, nothing > 0, nothing, factors=factors.tolist(), limit=limit, threads=threads)[0]
    log_z -= mrf.prior * factors + LOG3 * n_uniform
    ranges = {factor: _range_of(factors, log_z, factor, strength, step) for factor in HALVES}
    bottom, top = min(low for low, _ in ranges.values()), max(high for _, high in ranges.values())
    n_threads = threads_for(COMPLEX_BYTES * entries / 3, threads)
    laws, totals = {}, {}
    for factor, (low, high) in ranges.items():
        total, n_values = float(log_z[factors == factor][0]), high - low + 1
        angles: Floats = 2 * np.pi / (n_values * step) * np.arange(n_values // 2 + 1, dtype=np.float64)
        transform = np.empty(len(angles), dtype=np.complex128)
        in_threads(_transform, len(angles), n_threads, plan, factor, total, angles, transform)
        from_low = transform * np.exp(-1j * angles * step * low)
        law = np.clip(np.fft.irfft(from_low.conj(), n=n_values), 0.0, None)
        laws[factor] = np.pad(law / law.sum(), (low - bottom, top - high))
        totals[factor] = total + factor * mrf.prior + LOG3 * n_uniform
    values: Floats = mrf.prior + step * np.arange(bottom, top + 1, dtype=np.float64)
    one, zero = HALVES
    return ScoreDistribution(values, laws[one], laws[zero], totals[one], totals[zero], ROUNDING * mrf.reach)


def lattice_step(mrf: PairwiseMRF) -> float:
    """The largest number of which every potential is a whole multiple, in nats; 1 where there is none but zero.

    An `InferenceError` where there is no such number with a denominator up to 10,000.
    """
    potentials = np.unique(np.abs(np.concatenate([mrf.unary, mrf.couplings.data])))
    potentials = potentials[potentials > 0]
    if not potentials.size:
        return 1.0
    exact = [Fraction(value).limit_denominator(LARGEST_DENOMINATOR) for value in potentials.tolist()]
    below = lcm(*(value.denominator for value in exact))
    step = Fraction(gcd(*(int(value * below) for value in exact)), below)
    off = np.abs(potentials - np.array([float(value) for value in exact])) > CLOSE * potentials
    if off.any() or 2 * Fraction(mrf.reach - abs(mrf.prior)) > step * MOST_VALUES:
        found = f"potentials without a common step, such as {potentials[int(off.argmax())]:.10g}"
        expected = f"multiples of one step with at most {MOST_VALUES} possible scores"
        raise InferenceError(
            Fault("a distribution of scores", found, expected, "round the potentials, to quarters say")
        )
    return float(step)


def _range_of(factors: Floats, log_z: Floats, factor: float, strength: float, step: float) -> tuple[int, int]:
    """Multiples of `step` between which all but exp(-36) of the distribution under exp(factor S) lies, at each end.

    By Chernoff, log P(S >= s) <= log Z(factor + t) - log Z(factor) - t s for any t > 0, and likewise below.
    """
    at = int(np.flatnonzero(factors == factor)[0])
    tilt, excess = np.delete(factors, at) - factor, np.delete(log_z, at) - log_z[at] + LOG_TAIL
    edge = excess / tilt
    most = round(strength / step)
    low = max(-most, int(np.floor(edge[tilt < 0].max(initial=-strength) / step)))
    high = min(most, int(np.ceil(edge[tilt > 0].min(initial=strength) / step)))
    return low, high


@kernel(entrance=True)
def _transform(
    plan: Plan, factor: float, log_z: float, angles: Floats, transform: NDArray[np.complex128], first: int, last: int
) -> None:
    """Write E[exp(i angle S)] under exp(factor S) / Z at the angles first to last - 1."""
    n = len(plan.unary)
    clamped, incoming = new_clamped(plan), new_incoming(n)
    n_free, _ = clamp(plan, np.full(n, UNOBSERVED, dtype=np.int8), clamped)
    size, width = message_size(clamped, n_free)
    tables = new_tables(int(size), width, transform)
    for i in range(first, last):
        total, _ = eliminate(clamped, n_free, complex(factor, angles[i]), incoming, tables, False)
        transform[i] = total * np.exp(-log_z)
