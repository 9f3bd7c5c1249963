"""Compiled `l1` brackets of duels: how much the unobserved features can still move D_ab (eq:unobs-budget, tight)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import kernel
from afa.engine.kernels import State
from afa.engine.packed import Packed
from afa.mrf import Floats


@kernel()
def _row_difference(packed: Packed, state: State, slot_a: int, slot_b: int) -> float:
    """Sum of the absolute coupling differences from one feature to unobserved later ones; a slot of -1 is absent."""
    edge_a = packed.first_edge[slot_a] if slot_a >= 0 else 0
    last_a = packed.first_edge[slot_a + 1] if slot_a >= 0 else 0
    edge_b = packed.first_edge[slot_b] if slot_b >= 0 else 0
    last_b = packed.first_edge[slot_b + 1] if slot_b >= 0 else 0
    here = packed.feature[slot_a] if slot_a >= 0 else packed.feature[slot_b]
    end = len(state.observed)
    total = 0.0
    while edge_a < last_a or edge_b < last_b:
        at_a = packed.feature[packed.other_slot[edge_a]] if edge_a < last_a else end
        at_b = packed.feature[packed.other_slot[edge_b]] if edge_b < last_b else end
        at = min(at_a, at_b)
        difference = 0.0
        if at_a == at:
            difference += packed.coupling[edge_a]
            edge_a += 1
        if at_b == at:
            difference -= packed.coupling[edge_b]
            edge_b += 1
        if at > here and not state.observed[at]:
            total += abs(difference)
    return total


@kernel()
def duel_budget(packed: Packed, state: State, a: int, b: int) -> float:
    """The tight `l1` budget of D_ab: effective unary differences and couplings among unobserved features."""
    slot_a, last_a = packed.first_slot[a], packed.first_slot[a + 1]
    slot_b, last_b = packed.first_slot[b], packed.first_slot[b + 1]
    end = len(state.observed)
    total = 0.0
    while slot_a < last_a or slot_b < last_b:
        at_a = packed.feature[slot_a] if slot_a < last_a else end
        at_b = packed.feature[slot_b] if slot_b < last_b else end
        at = min(at_a, at_b)
        if not state.observed[at]:
            field = (state.field[slot_a] if at_a == at else 0.0) - (state.field[slot_b] if at_b == at else 0.0)
            row = _row_difference(packed, state, slot_a if at_a == at else -1, slot_b if at_b == at else -1)
            total += abs(field) + row
        if at_a == at:
            slot_a += 1
        if at_b == at:
            slot_b += 1
    return total


@kernel()
def resolve_all(packed: Packed, state: State, pairs: NDArray[np.int64], budget: Floats) -> None:
    """Fill the budget of every duel, shape (Q,)."""
    for p in range(len(pairs)):
        budget[p] = duel_budget(packed, state, pairs[p, 0], pairs[p, 1])


@kernel()
def resolve_after(packed: Packed, state: State, pairs: NDArray[np.int64], budget: Floats, feature: int) -> None:
    """Refresh the budgets of the duels whose entities hold the feature just observed; no other has changed."""
    holds = np.zeros(len(packed.prior), dtype=np.bool_)
    for h in range(packed.first_holder[feature], packed.first_holder[feature + 1]):
        holds[packed.owner[packed.holder[h]]] = True
    for p in range(len(pairs)):
        if holds[pairs[p, 0]] or holds[pairs[p, 1]]:
            budget[p] = duel_budget(packed, state, pairs[p, 0], pairs[p, 1])
