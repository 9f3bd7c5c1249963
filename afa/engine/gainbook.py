"""The gains of one patient's duels, computed when they are asked for and kept until an entity of the duel changes.

Only duels that were asked for take room. A rule that looks at one duel a cluster so costs one row a cluster, of the
N (N - 1) / 2 that a rule over all duels needs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import kernel
from afa.engine.duels import sides_of
from afa.engine.gains import CMI, WALD_MAGNITUDE, Gains, new_gains, refresh_duel
from afa.engine.layout import Indices, Packed
from afa.engine.lookahead import Lookahead, new_lookahead, no_lookahead, solve_lookahead
from afa.engine.state import State
from afa.engine.sweeps import Iteration
from afa.mrf import Floats

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
        self._stale_ahead = np.full(n, looks_ahead)
        self._after_row = np.zeros(n * (n - 1) // 2, dtype=np.int32)  # 0 where a duel has no row
        self._forget()

    def entities_changed(self, entities: Indices) -> None:
        """Take note that these entities have been solved again."""
        self._stale_ahead[entities] = self._kind not in (WALD_MAGNITUDE, CMI)

    def rows(self, state: State, duels: Indices, changed_at: Indices, now: int) -> tuple[Gains, Indices]:
        """The rows of some duels, ascending, up to date, and the gains they are rows of; good until the next call.

        changed_at : (N,) the round at which each entity last changed; now : the present round.
        """
        rows = self._after_row[duels].astype(np.int64) - 1
        if len(rows) and rows.min() < 0:
            rows = self._add(duels, rows)
        if self._stale_ahead.any():
            needed = _needed(self._gains.pairs, rows, self._made_at, changed_at, self._stale_ahead)
            solve_lookahead(self._packed, state, self._ahead, needed, self._iteration)
            self._stale_ahead &= ~needed
        _refresh(
            self._packed,
            state,
            self._ahead,
            self._gains,
            self._empty,
            self._kind,
            rows,
            self._made_at,
            changed_at,
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


@kernel()
def _needed(
    pairs: NDArray[np.int64], rows: Indices, made_at: Indices, changed_at: Indices, stale: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """(N,) the entities of rows that are out of date whose own look-ahead is too."""
    needed = np.zeros(len(stale), dtype=np.bool_)
    for row in rows:
        a, b = pairs[row, 0], pairs[row, 1]
        if max(changed_at[a], changed_at[b]) > made_at[row]:
            needed[a], needed[b] = stale[a], stale[b]
    return needed


@kernel()
def _refresh(
    packed: Packed,
    state: State,
    lookahead: Lookahead,
    gains: Gains,
    empty: Floats,
    kind: int,
    rows: Indices,
    made_at: Indices,
    changed_at: Indices,
    now: int,
) -> None:
    pairs = gains.pairs
    for row in rows:
        if max(changed_at[pairs[row, 0]], changed_at[pairs[row, 1]]) > made_at[row]:
            refresh_duel(packed, state, lookahead, gains, empty, kind, row)
            made_at[row] = now


@kernel()
def add_weighted(gains: Gains, rows: Indices, weights: Floats, total: Floats) -> None:
    """Add the gains of some rows, each times its weight, to `total` (M,) (eq:feature_selection)."""
    first, feature, gain = gains.first, gains.feature, gains.gain
    for k in range(len(rows)):
        for i in range(first[rows[k]], first[rows[k] + 1]):
            total[feature[i]] += weights[k] * gain[i]
