"""A model in an elimination order, and what of it is left in one state: compiled, array by array.

An observed feature has one value and drops out of every table; its couplings go to the effective unaries of the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import kernel
from afa.mrf import Floats

Indices = NDArray[np.int64]
States = NDArray[np.int8]

UNOBSERVED = 2


class Plan(NamedTuple):
    """A model's n support features in elimination order, component after component.

    feature : (n,) their indices among the model's M features. unary : (n,) their potentials.
    first, separator : those that position v shares a table with when it is eliminated are the later positions
    separator[first[v] : first[v + 1]], ascending. coupling : with each of them, 0 where elimination joined the two.
    """

    feature: Indices
    unary: Floats
    first: Indices
    separator: Indices
    coupling: Floats


class Clamped(NamedTuple):
    """A plan without the observed features, for one state at a time; kernels fill the arrays in place.

    place : (n,) number of a position among the free ones, -1 where observed. field, first, separator, coupling : as in
    `Plan`, by free number, with effective unaries (eq:reduced-unary); only what the state still joins.
    child, sibling : (n,) first of the messages that come into a table, and the next one with the same goal; -1 at the
    end. start : (n,) where a message begins. mark : (n,) working space.
    """

    place: Indices
    field: Floats
    first: Indices
    separator: Indices
    coupling: Floats
    child: Indices
    sibling: Indices
    start: Indices
    mark: Indices


@kernel()
def new_clamped(plan: Plan) -> Clamped:
    """Space for any state of a plan."""
    n, edges = len(plan.unary), len(plan.separator)
    return Clamped(
        np.empty(n, dtype=np.int64),
        np.empty(n),
        np.empty(n + 1, dtype=np.int64),
        np.empty(edges, dtype=np.int64),
        np.empty(edges),
        np.empty(n, dtype=np.int64),
        np.empty(n, dtype=np.int64),
        np.empty(n, dtype=np.int64),
        np.empty(n, dtype=np.int64),
    )


@kernel()
def clamp(plan: Plan, state: States, clamped: Clamped) -> tuple[int, float]:
    """Fill `clamped` from a state, (n,) values with `UNOBSERVED`; returns the number of free features and the constant.

    The constant is the energy of what is observed, without the prior (eq:running-constant).
    """
    n, n_free = len(plan.unary), 0
    for v in range(n):
        clamped.place[v] = -1
        if state[v] == UNOBSERVED:
            clamped.place[v] = n_free
            clamped.field[n_free] = plan.unary[v]
            clamped.child[n_free] = -1
            clamped.mark[n_free] = -1
            n_free += 1
    constant, used = 0.0, 0
    clamped.first[0] = 0
    for v in range(n):
        here = clamped.place[v]
        if here < 0:
            constant += plan.unary[v] * state[v]
        else:
            _mark_incoming(clamped, here)
        for e in range(plan.first[v], plan.first[v + 1]):
            there, weight = clamped.place[plan.separator[e]], plan.coupling[e]
            if here < 0 and there < 0:
                constant += weight * state[v] * state[plan.separator[e]]
            elif here < 0:
                clamped.field[there] += weight * state[v]
            elif there < 0:
                clamped.field[here] += weight * state[plan.separator[e]]
            elif weight != 0.0 or clamped.mark[there] == here:
                clamped.separator[used] = there
                clamped.coupling[used] = weight
                used += 1
        if here >= 0:
            clamped.first[here + 1] = used
            if used > clamped.first[here]:
                goal = clamped.separator[clamped.first[here]]
                clamped.sibling[here] = clamped.child[goal]
                clamped.child[goal] = here
    return n_free, constant


@kernel()
def _mark_incoming(clamped: Clamped, v: int) -> None:
    """Mark with `v` the features of all messages that come into its table."""
    child = clamped.child[v]
    while child >= 0:
        for e in range(clamped.first[child], clamped.first[child + 1]):
            clamped.mark[clamped.separator[e]] = v
        child = clamped.sibling[child]


@kernel()
def message_size(clamped: Clamped, n_free: int) -> tuple[float, int]:
    """Entries of all messages of a state together, a third of the table entries, and axes of the largest."""
    total, width = 0.0, 0
    for v in range(n_free):
        axes = clamped.first[v + 1] - clamped.first[v]
        total += 3.0**axes
        width = max(width, axes)
    return total, width
