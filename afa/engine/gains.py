"""Compiled gains of every duel at every feature, kept until an entity of the duel changes.

A duel's gains stand only at the features in the union of its two supports: elsewhere both predictive marginals are
uniform, nothing can be learned, and every gain is 0. `GainBook` keeps those of one patient that were asked for.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import kernel
from afa.engine.duels import UNIFORM_SECOND, Pairs, is_stale, sides_of, terms_of_duel
from afa.engine.layout import SILENT, SILENT_SECOND, Indices, Packed
from afa.engine.lookahead import (
    F_LINEARITY,
    F_STACK_A,
    F_TWO_ELBO,
    Lookahead,
    gaussian_sign,
    new_lookahead,
    no_lookahead,
    solve_ahead,
    variance_lookahead,
)
from afa.engine.state import Iteration, State, elbo, expected_score
from afa.mrf import Floats

ZERO_GAIN = 1e-12
NO_GAIN, WALD_MAGNITUDE, CMI = -1, 0, 1
GAIN_KINDS = {
    ("wald_magnitude", None): WALD_MAGNITUDE,
    ("cmi", None): CMI,
    ("f_target", "linearity"): F_LINEARITY,
    ("f_target", "two_elbo"): F_TWO_ELBO,
    ("f_target", "stack_a"): F_STACK_A,
}


class Gains(NamedTuple):
    """Gains of Q duels.

    Entry i of a duel p, first[p] <= i < first[p + 1], is for `feature[i]`, held at slot_a[i] and slot_b[i] (-1 where
    an entity does not hold it); `gain[i]` is in nats for `cmi`, else in the unit of the score.
    """

    pairs: Pairs
    first: NDArray[np.int64]
    feature: NDArray[np.int64]
    slot_a: NDArray[np.int64]
    slot_b: NDArray[np.int64]
    gain: Floats


@kernel(entrance=True)
def new_gains(packed: Packed, pairs: Pairs) -> Gains:
    """Space for the gains of the given duels."""
    first = np.zeros(len(pairs) + 1, dtype=np.int64)
    feature, slot_a, slot_b = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    for filling in (False, True):
        n = 0
        for p in range(len(pairs)):
            a, last_a = packed.first_slot[pairs[p, 0]], packed.first_slot[pairs[p, 0] + 1]
            b, last_b = packed.first_slot[pairs[p, 1]], packed.first_slot[pairs[p, 1] + 1]
            while a < last_a or b < last_b:
                at_a = packed.feature[a] if a < last_a else packed.n_features
                at_b = packed.feature[b] if b < last_b else packed.n_features
                at = min(at_a, at_b)
                if filling:
                    feature[n] = at
                    slot_a[n], slot_b[n] = (a if at_a == at else -1), (b if at_b == at else -1)
                a += 1 if at_a == at else 0
                b += 1 if at_b == at else 0
                n += 1
            first[p + 1] = n
        if not filling:
            feature, slot_a = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
            slot_b = np.empty(n, dtype=np.int64)
    return Gains(pairs, first, feature, slot_a, slot_b, np.zeros(len(feature)))


@kernel()
def copy_gains(gains: Gains) -> Gains:
    """Gains of the same duels that can be changed without changing the given ones."""
    return Gains(gains.pairs, gains.first, gains.feature, gains.slot_a, gains.slot_b, gains.gain.copy())


@kernel()
def log_evidence(packed: Packed, state: State, empty: Floats, entity: int, n_hidden: int) -> float:
    """Log P(x_obs | v) plus the prior log-odds; `empty` is the ELBO of each entity at no observation."""
    return float(packed.prior[entity]) + elbo(state, entity, n_hidden) - float(empty[entity])


@kernel(entrance=True, borrows=True)
def bring_up_to_date(
    packed: Packed,
    state: State,
    lookahead: Lookahead,
    gains: Gains,
    empty: Floats,
    kind: int,
    iteration: Iteration,
    wanted: NDArray[np.bool_],
    made_at: Indices,
    changed_at: Indices,
    ahead_at: Indices,
    now: int,
) -> None:
    """Compute the gains of the wanted duels (Q,) where an entity has changed since they were made.

    made_at : (Q,) the round of each row, -1 for never; changed_at, ahead_at : (N,) the rounds at which each entity last
    changed, and was last solved ahead; now : the present round.
    """
    pairs = gains.pairs
    if kind not in (WALD_MAGNITUDE, CMI):
        for row in range(len(wanted)):
            if wanted[row] and is_stale(changed_at, made_at[row], pairs[row, 0], pairs[row, 1]):
                for entity in pairs[row]:
                    if changed_at[entity] > ahead_at[entity]:
                        solve_ahead(packed, state, lookahead, entity, iteration)
                        ahead_at[entity] = now
    for row in range(len(wanted)):
        if wanted[row] and is_stale(changed_at, made_at[row], pairs[row, 0], pairs[row, 1]):
            refresh_duel(packed, state, lookahead, gains, empty, kind, row)
            made_at[row] = now


@kernel(borrows=True)
def refresh_duel(
    packed: Packed, state: State, lookahead: Lookahead, gains: Gains, empty: Floats, kind: int, p: int
) -> None:
    """Gains of one duel; those of the look-ahead kinds need `solve_ahead` of its two entities before."""
    a, b = gains.pairs[p, 0], gains.pairs[p, 1]
    n_hidden = packed.n_features - int(np.sum(state.observed))
    if kind == WALD_MAGNITUDE:
        _wald_magnitude(packed, state, gains, p)
    else:
        odds = log_evidence(packed, state, empty, a, n_hidden) - log_evidence(packed, state, empty, b, n_hidden)
        if kind == CMI:
            _cmi(packed, state, gains, p, odds)
        else:
            _f_target(packed, state, lookahead, gains, p, odds, kind)
    gain, feature, observed = gains.gain, gains.feature, state.observed
    for i in range(gains.first[p], gains.first[p + 1]):
        if gain[i] < ZERO_GAIN or observed[feature[i]]:
            gain[i] = 0.0


@kernel()
def _wald_magnitude(packed: Packed, state: State, gains: Gains, p: int) -> None:
    """Half the range of u_f, which is |delta_f^eff| of the paper's models (eq:wald_mag)."""
    field, slots_a, slots_b, gain = state.field, gains.slot_a, gains.slot_b, gains.gain
    for i in range(gains.first[p], gains.first[p + 1]):
        if packed.stated is None:
            of_a = field[slots_a[i]] if slots_a[i] >= 0 else 0.0
            of_b = field[slots_b[i]] if slots_b[i] >= 0 else 0.0
            gain[i] = abs(of_a - of_b)
        else:
            low, middle, high = terms_of_duel(packed, state, slots_a[i], slots_b[i])
            gain[i] = 0.5 * (max(low, middle, high) - min(low, middle, high))


@kernel()
def _cmi(packed: Packed, state: State, gains: Gains, p: int, odds: float) -> None:
    """Weighted Jensen-Shannon divergence of the two predictive marginals (eq:cmi)."""
    weight_a, weight_b = _expit(odds), _expit(-odds)
    # arrays one by one: taken out of their tuples in the loop they would cost more than the sums
    m, q, site = state.m, state.q, packed.site
    slots_a, slots_b, gain = gains.slot_a, gains.slot_b, gains.gain
    feature, observed = gains.feature, state.observed
    for i in range(gains.first[p], gains.first[p + 1]):
        if observed[feature[i]]:
            continue
        slot_a, slot_b = slots_a[i], slots_b[i]
        m_a, q_a, m_b, q_b = 0.0, UNIFORM_SECOND, 0.0, UNIFORM_SECOND
        if packed.stated is not None:
            slot = max(slot_a, slot_b)
            m_a, q_a = m_b, q_b = site[SILENT, slot], site[SILENT_SECOND, slot]
        if slot_a >= 0:
            m_a, q_a = m[slot_a], q[slot_a]
        if slot_b >= 0:
            m_b, q_b = m[slot_b], q[slot_b]
        total = 0.0
        for x in range(3):
            p_a, p_b = _probability(m_a, q_a, x), _probability(m_b, q_b, x)
            mixed = weight_a * p_a + weight_b * p_b
            total += weight_a * _information(p_a, mixed) + weight_b * _information(p_b, mixed)
        gain[i] = total


@kernel()
def _f_target(packed: Packed, state: State, lookahead: Lookahead, gains: Gains, p: int, odds: float, kind: int) -> None:
    """Expected absolute change of the score F (eq:smart_delta)."""
    # arrays one by one: taken out of their tuples in the loop they would cost more than the sums
    m, q, observed, n_slots = state.m, state.q, state.observed, len(state.m)
    feature, slots_a, slots_b, gain = gains.feature, gains.slot_a, gains.slot_b, gains.gain
    first, of_u, of_v, first_edge, edge_j, edge_l, coupling = packed.overlaps
    start, field, m_ahead, _, constant, bound, own = lookahead
    a, b, n, tie = gains.pairs[p, 0], gains.pairs[p, 1], len(packed.prior), packed.tie
    weight_a, weight_b, ab, ba = _expit(odds), _expit(-odds), a * n + b, b * n + a
    now, now_a, now_b = 0.0, 3 * n_slots + a, 3 * n_slots + b
    for i in range(gains.first[p] - 1, gains.first[p + 1]):
        is_now = i < gains.first[p]  # before the first feature: the score as it is
        if not is_now and observed[feature[i]]:
            continue
        slot_a, slot_b = (-1, -1) if is_now else (slots_a[i], slots_b[i])
        m_a, q_a = (m[slot_a], q[slot_a]) if slot_a >= 0 else (0.0, UNIFORM_SECOND)
        m_b, q_b = (m[slot_b], q[slot_b]) if slot_b >= 0 else (0.0, UNIFORM_SECOND)
        total = 0.0
        for x in range(1 if is_now else 3):
            mixed = weight_a * _probability(m_a, q_a, x) + weight_b * _probability(m_b, q_b, x)
            case_a = 3 * slot_a + x if slot_a >= 0 else now_a
            case_b = 3 * slot_b + x if slot_b >= 0 else now_b
            if kind == F_TWO_ELBO:
                value = bound[case_a] - bound[case_b]
            else:
                at_a, at_b, of_a, of_b = start[case_a], start[case_b], constant[case_a], constant[case_b]
                of_b_under_a = expected_score(
                    first, of_u, of_v, first_edge, edge_j, edge_l, coupling, ab, of_b, field, at_b, m_ahead, at_a
                )
                of_a_under_b = expected_score(
                    first, of_u, of_v, first_edge, edge_j, edge_l, coupling, ba, of_a, field, at_a, m_ahead, at_b
                )
                value = 0.5 * ((own[case_a] - own[case_b]) + (of_a_under_b - of_b_under_a))
                value = 0.0 if abs(value) <= tie else value
                if kind == F_STACK_A:
                    without = -1 if is_now else feature[i]
                    value = gaussian_sign(
                        value, variance_lookahead(packed, state, lookahead, a, b, at_a, at_b, without)
                    )
            if is_now:
                now = value
            total += mixed * abs(value - now)
        if not is_now:
            gain[i] = total


@kernel(inline=True)
def _expit(x: float) -> float:
    if x >= 0:
        return 1.0 / (1.0 + math.exp(-x))
    small = math.exp(x)
    return small / (1.0 + small)


@kernel(inline=True)
def _probability(m: float, q: float, i: int) -> float:
    """Probability of the value i - 1 of a marginal with moments m and q."""
    if i == 1:
        return 1.0 - q
    return 0.5 * (q + m) if i == 2 else 0.5 * (q - m)


@kernel(inline=True)
def _information(p: float, mixed: float) -> float:
    return p * math.log(p / mixed) if p > 0.0 and mixed > 0.0 else 0.0


@kernel()
def add_up(gains: Gains, weights: Floats, worth: Floats) -> None:
    """Write gains summed over the duels, each times its weight, into `worth` (M,) (eq:feature_selection)."""
    first, feature, gain = gains.first, gains.feature, gains.gain
    worth[:] = 0.0
    for p in range(len(weights)):
        if weights[p] > 0.0:
            for i in range(first[p], first[p + 1]):
                worth[feature[i]] += weights[p] * gain[i]


NEVER = -1
KEPT = 4
"""Duels are forgotten once there are more than this many times as many as were asked for."""


class GainBook:
    """Gains of one patient; a duel is named by its place among all pairs a < b in order.

    kind : of `afa.engine.gains`. empty : (N,) ELBOs at no observation. iteration : of the solves that look ahead.
    """

    def __init__(self, packed: Packed, kind: int, empty: Floats, iteration: Iteration) -> None:
        n = len(packed.prior)
        self._packed, self._kind, self._empty, self._iteration = packed, kind, empty, iteration
        looks_ahead = kind not in (WALD_MAGNITUDE, CMI)
        self._ahead = new_lookahead(packed) if looks_ahead else no_lookahead()
        self._ahead_at = np.full(n, NEVER)
        self._after_row = np.zeros(n * (n - 1) // 2, dtype=np.int32)  # 0 where a duel has no row
        self._forget()

    def rows(self, state: State, duels: Indices, changed_at: Indices, now: int) -> tuple[Gains, Indices]:
        """The rows of some duels, ascending, up to date, and the gains they are rows of; good until the next call.

        changed_at : (N,) the round at which each entity last changed; now : the present round.
        """
        rows = self._after_row[duels].astype(np.int64) - 1
        if len(rows) and rows.min() < 0:
            rows = self._add(duels, rows)
        wanted = np.zeros(len(self._made_at), dtype=np.bool_)
        wanted[rows] = True
        bring_up_to_date(
            self._packed,
            state,
            self._ahead,
            self._gains,
            self._empty,
            self._kind,
            self._iteration,
            wanted,
            self._made_at,
            changed_at,
            self._ahead_at,
            now,
        )
        return self._gains, rows

    def _forget(self) -> None:
        self._duels = np.empty(0, dtype=np.int64)
        self._made_at = np.empty(0, dtype=np.int64)
        self._gains = new_gains(self._packed, np.empty((0, 2), dtype=np.int64))

    def _add(self, duels: Indices, rows: Indices) -> Indices:
        """Make room for the duels that have none, and answer with the rows of all."""
        if len(self._duels) + int((rows < 0).sum()) > KEPT * len(duels):
            self._after_row[self._duels] = 0
            self._forget()
            rows = np.full(len(duels), NEVER)
        new = duels[rows < 0]
        self._after_row[new] = np.arange(len(self._duels) + 1, len(self._duels) + len(new) + 1)
        self._duels = np.concatenate([self._duels, new])
        self._made_at = np.concatenate([self._made_at, np.full(len(new), NEVER)])
        more = new_gains(self._packed, sides_of(len(self._empty), new))
        self._gains = _joined(self._gains, more) if len(self._gains.pairs) else more
        return self._after_row[duels].astype(np.int64) - 1


def _joined(one: Gains, other: Gains) -> Gains:
    first = np.concatenate([one.first, one.first[-1] + other.first[1:]])
    parts = ((getattr(one, name), getattr(other, name)) for name in Gains._fields if name != "first")
    pairs, feature, slot_a, slot_b, gain = (np.concatenate(part) for part in parts)
    return Gains(pairs, first, feature, slot_a, slot_b, gain)


@kernel(entrance=True)
def add_weighted(gains: Gains, rows: Indices, weights: Floats, total: Floats) -> None:
    """Add the gains of some rows, each times its weight, to `total` (M,) (eq:feature_selection)."""
    first, feature, gain = gains.first, gains.feature, gains.gain
    for k in range(len(rows)):
        for i in range(first[rows[k]], first[rows[k] + 1]):
            total[feature[i]] += weights[k] * gain[i]


@kernel(entrance=True)
def gain_by_row(gains: Gains, rows: Indices, wanted: NDArray[np.bool_], total: Floats) -> None:
    """Add to `total` (q,) the gains of each of q rows, over the features that are wanted, (M,)."""
    first, feature, gain = gains.first, gains.feature, gains.gain
    for k in range(len(rows)):
        for i in range(first[rows[k]], first[rows[k] + 1]):
            if wanted[feature[i]]:
                total[k] += gain[i]
