"""The exact distribution of the score S(x) under the two half-potential models, for potentials on a lattice.

Where all potentials are multiples of one step, S takes values on a lattice, and its probabilities are the Fourier
coefficients of E[exp(i theta S)] = Z(f + i theta) / Z(f), with f = 1/2 under p_1 and -1/2 under p_0: exact
elimination with a complex factor at as many angles as there are values. Chernoff bounds from Z at other real factors
say beforehand which values can be left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm

import numpy as np
from numpy.typing import NDArray

from afa.engine.clamping import UNOBSERVED, Plan, clamp, message_size, new_clamped
from afa.engine.compile import in_threads, kernel
from afa.engine.elimination import (
    ENTRY_LIMIT,
    check_size,
    elimination_plan,
    entries_at_no_observation,
    log_partitions,
    threads_for,
)
from afa.engine.elimination_tables import STRONGEST, eliminate, new_incoming, new_tables
from afa.errors import Fault, InferenceError
from afa.mrf import LOG3, ROUNDING, Floats, PairwiseMRF

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
    step = lattice_step(mrf)
    plan = elimination_plan(mrf)
    entries = entries_at_no_observation(plan)
    check_size(entries, limit, len(plan.feature))
    strength = mrf.reach - abs(mrf.prior)
    _check_strength(strength, len(plan.feature))
    factors, log_z = _tilted(mrf, limit, threads)
    ranges = {factor: _range_of(factors, log_z, factor, strength, step) for factor in HALVES}
    bottom, top = min(low for low, _ in ranges.values()), max(high for _, high in ranges.values())
    n_threads = threads_for(COMPLEX_BYTES * entries / 3, threads)
    laws, totals = {}, {}
    for factor, (low, high) in ranges.items():
        total = float(log_z[factors == factor][0])
        law = _law(plan, factor, total, step, low, high, n_threads)
        laws[factor] = np.concatenate([np.zeros(low - bottom), law, np.zeros(top - high)])
        totals[factor] = total + factor * mrf.prior + LOG3 * (mrf.n_features - len(plan.feature))
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


def _check_strength(strength: float, n: int) -> None:
    if strength / 2 + LOG3 * n > STRONGEST:
        found = f"energies up to {strength:.4g} nats over {n} features"
        expected = f"half of it plus {LOG3:.3g} for each feature at most {STRONGEST:g}"
        raise InferenceError(Fault("a distribution of scores", found, expected, "scale the potentials down"))


def _tilted(mrf: PairwiseMRF, limit: float, threads: int | None) -> tuple[Floats, Floats]:
    """Real factors around 1/2 and -1/2, themselves included, and log Z of `factor * E` on the support, both (F,)."""
    tilts = np.array([0.0, *TILTS, *(-tilt for tilt in TILTS)])
    factors = np.unique(np.add.outer(np.array(HALVES), tilts))
    support = PairwiseMRF(mrf.unary[mrf.support], mrf.couplings[mrf.support][:, mrf.support])
    shape = (1, support.n_features)
    observed, values = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=np.int8)
    found = log_partitions(support, observed, values, factors=factors.tolist(), limit=limit, threads=threads)
    return factors, found[0]


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


def _law(plan: Plan, factor: float, log_z: float, step: float, low: int, high: int, threads: int) -> Floats:
    """Probabilities of the scores low * step to high * step under exp(factor S) / Z, (K,)."""
    n_values = high - low + 1
    angles: Floats = 2 * np.pi / (n_values * step) * np.arange(n_values // 2 + 1, dtype=np.float64)
    transform = np.empty(len(angles), dtype=np.complex128)

    def work(first: int, last: int) -> None:
        _transform(plan, factor, log_z, angles, transform, first, last)

    in_threads(work, len(angles), threads)
    from_low = transform * np.exp(-1j * angles * step * low)
    law = np.clip(np.fft.irfft(from_low.conj(), n=n_values), 0.0, None)
    normalised: Floats = law / law.sum()
    return normalised


@kernel()
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
