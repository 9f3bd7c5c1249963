"""Compiled variable elimination in one state of a model: the tables of what is free, and their sum.

Tables hold weights, not their logarithms, one axis of length 3 (values -1, 0, +1) for each feature. A table is summed
out block by block and never held: only messages are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import kernel
from afa.model.mrf import Floats

LOW_AXES = 4
LOW_SIZE = 3**LOW_AXES
SMALLEST = 1e-250
STRONGEST = 500.0


class Tables(NamedTuple):
    """Working space of elimination; `low` are the last axes of a table, at most `LOW_AXES`, `high` those before.

    message : all messages of a state, one after the other. high : (2, H) weights of +1 and -1 by configuration of the
    high axes; low : (2, 81) of the low axes. block : (3, 81) one block of the table at -1, 0, +1.
    """

    message: NDArray[Any]
    high: NDArray[Any]
    low: NDArray[Any]
    block: NDArray[Any]


class Incoming(NamedTuple):
    """The messages that come into one table, row by row.

    at : (n,) where each is read. own : (n,) its stride along the eliminated feature. stride : (n, n) along each axis
    of the separator. carry : (n, n) what a step of the high axes adds to `at`. offset : (n, 81) by low configuration.
    """

    at: Indices
    own: Indices
    stride: Indices
    carry: Indices
    offset: Indices


@kernel()
def new_incoming(n: int) -> Incoming:
    """Space for the messages into any table of n features."""
    places, steps = np.empty((2, n), dtype=np.int64), np.empty((2, n, n), dtype=np.int64)
    return Incoming(places[0], places[1], steps[0], steps[1], np.empty((n, LOW_SIZE), dtype=np.int64))


@kernel()
def new_tables(size: int, width: int, like: NDArray[Any]) -> Tables:
    """Space for messages of `size` entries and at most `width` axes, of the type of `like`."""
    message, high = np.empty(size, dtype=like.dtype), np.empty((2, 3 ** max(0, width - LOW_AXES)), dtype=like.dtype)
    return Tables(message, high, np.empty((2, LOW_SIZE), dtype=like.dtype), np.empty((3, LOW_SIZE), dtype=like.dtype))


@kernel()
def eliminate(
    clamped: Clamped, n_free: int, factor: Any, incoming: Incoming, tables: Tables, rescale: bool
) -> tuple[Any, float]:
    """Sum all free features out of exp(factor E), `factor` real or complex; returns (p, l) with the sum p exp(l).

    With `rescale`, for real factors, messages are divided by their largest entry and l is NaN where that cannot keep
    the weights within double precision.
    """
    product, logarithm = factor * 0.0 + 1.0, 0.0
    begin = 0
    for v in range(n_free):
        axes = clamped.first[v + 1] - clamped.first[v]
        high_axes = max(0, axes - LOW_AXES)
        strength = _weigh(clamped, v, high_axes, factor, tables)
        n_messages = _come_in(clamped, v, high_axes, incoming)
        size = 3**axes
        out = tables.message[begin : begin + size]
        _sum_out(out, high_axes, n_messages, incoming, tables)
        if rescale:
            smallest, largest = np.inf, 0.0
            for i in range(size):
                weight = abs(out[i])
                smallest, largest = min(smallest, weight), max(largest, weight)
            if not (smallest >= SMALLEST * max(1.0, largest) and strength <= STRONGEST):
                return product, np.nan
            for i in range(size):
                out[i] /= largest
            logarithm += np.log(largest)
        if axes == 0:
            product *= out[0]
        clamped.start[v] = begin
        begin += size
    return product, logarithm


@kernel(inline=True)
def _weigh(clamped: Clamped, v: int, high_axes: int, factor: Any, tables: Tables) -> float:
    """Weights of +1 and -1 of feature `v` by configuration of its separator; returns the largest log-weight."""
    first, last = clamped.first[v], clamped.first[v + 1]
    weight = np.exp(factor * clamped.field[v])
    tables.high[0, 0], tables.high[1, 0], tables.low[:, 0] = weight, 1.0 / weight, 1.0
    strength = float(abs(factor * clamped.field[v]))
    for e in range(first, last):
        high = e - first < high_axes
        up, down = (tables.high[0], tables.high[1]) if high else (tables.low[0], tables.low[1])
        size = 3 ** (e - first if high else e - first - high_axes)
        weight = np.exp(factor * clamped.coupling[e])
        inverse = 1.0 / weight
        strength += abs(factor * clamped.coupling[e])
        for i in range(size - 1, -1, -1):
            here, there = up[i], down[i]
            up[3 * i], up[3 * i + 1], up[3 * i + 2] = here * inverse, here, here * weight
            down[3 * i], down[3 * i + 1], down[3 * i + 2] = there * weight, there, there * inverse
    return strength


@kernel(inline=True)
def _come_in(clamped: Clamped, v: int, high_axes: int, incoming: Incoming) -> int:
    """Where the messages into the table of `v` are read; returns their number."""
    first, axes = clamped.first[v], clamped.first[v + 1] - clamped.first[v]
    row, child = 0, clamped.child[v]
    while child >= 0:
        held, last = clamped.first[child] + 1, clamped.first[child + 1]
        size = 3 ** (last - held)
        incoming.at[row], incoming.own[row] = clamped.start[child], size
        for axis in range(axes):
            incoming.stride[row, axis] = 0
            if held < last and clamped.separator[held] == clamped.separator[first + axis]:
                size //= 3
                incoming.stride[row, axis] = size
                held += 1
        after = 0
        for axis in range(high_axes - 1, -1, -1):
            incoming.carry[row, axis] = incoming.stride[row, axis] - 2 * after
            after += incoming.stride[row, axis]
        incoming.offset[row, 0] = 0
        low = 1
        for axis in range(high_axes, axes):
            step = incoming.stride[row, axis]
            for i in range(low - 1, -1, -1):
                base = incoming.offset[row, i]
                incoming.offset[row, 3 * i] = base
                incoming.offset[row, 3 * i + 1] = base + step
                incoming.offset[row, 3 * i + 2] = base + 2 * step
            low *= 3
        row, child = row + 1, clamped.sibling[child]
    return row


@kernel(inline=True)
def _sum_out(out: NDArray[Any], high_axes: int, n_messages: int, incoming: Incoming, tables: Tables) -> None:
    """The message of one feature: its table summed over its three values, block by block of low configurations."""
    high_size = 3**high_axes
    low_size = len(out) // high_size
    down, still, up = tables.block[0], tables.block[1], tables.block[2]
    low_up, low_down = tables.low[0], tables.low[1]
    for high in range(high_size):
        if high > 0:
            axis, rest = high_axes - 1, high
            while rest % 3 == 0:
                axis, rest = axis - 1, rest // 3
            for row in range(n_messages):
                incoming.at[row] += incoming.carry[row, axis]
        weight_up, weight_down = tables.high[0, high], tables.high[1, high]
        for low in range(low_size):
            up[low] = weight_up * low_up[low]
            down[low] = weight_down * low_down[low]
            still[low] = 1.0
        for row in range(n_messages):
            own = incoming.own[row]
            of_down = tables.message[incoming.at[row] :]
            of_still, of_up = of_down[own:], of_down[2 * own :]
            offset = incoming.offset[row]
            for low in range(low_size):
                at = offset[low]
                down[low] *= of_down[at]
                still[low] *= of_still[at]
                up[low] *= of_up[at]
        block = out[high * low_size : (high + 1) * low_size]
        for low in range(low_size):
            block[low] = down[low] + still[low] + up[low]


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
    by_number, first = np.empty((5, n), dtype=np.int64), np.empty(n + 1, dtype=np.int64)
    place, child, sibling, start, mark = by_number[0], by_number[1], by_number[2], by_number[3], by_number[4]
    separator, coupling = np.empty(edges, dtype=np.int64), np.empty(edges)
    return Clamped(place, np.empty(n), first, separator, coupling, child, sibling, start, mark)


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


@kernel(inline=True)
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
