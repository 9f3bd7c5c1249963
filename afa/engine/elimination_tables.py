"""Sum out the unobserved features of a model one by one, with compiled kernels.

The separator of a feature v contains the neighbours of v that are summed out after v. The table of v has an axis for v
and an axis for each feature in the separator of v. Each axis has length 3 (values -1, 0, +1). The entries of the table
are weights exp(E), not logarithms. The sum of the table over the values of v is called the *message* of v. The kernels
compute each table block by block. Each block is summed over the values of v, and the sums are written to the message
of v. Only the messages are stored.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from afa.engine.compile import kernel
from afa.model.arrays import Codes, Floats, Ints

LOW_AXES = 4
LOW_SIZE = 3**LOW_AXES
SMALLEST = 1e-250
STRONGEST = 500.0


class EliminationTables(NamedTuple):
    """Working memory of the elimination: all messages, and one block of the present table.

    The last `LOW_AXES` axes of a message are called *low* axes, and all earlier axes are called *high* axes. If a
    message has at most `LOW_AXES` axes, all of them are low axes.

    Attributes
    ----------
    message : (size,) float64, the messages, one after another
    high : (2, H) float64, weights of +1 and -1 for each combination of values on the high axes
    low : (2, 81) float64, weights of +1 and -1 for each combination of values on the low axes
    block : (3, 81) float64, one block of the table for each of the values -1, 0, +1

    """

    message: Floats
    high: Floats
    low: Floats
    block: Floats


class Incoming(NamedTuple):
    """Positions and strides of all messages that are multiplied into one table.

    Attributes
    ----------
    at : (n,) int64, current position in the message
    own : (n,) int64, stride along the eliminated feature
    stride : (n, n) int64, stride along each axis of the separator
    carry : (n, n) int64, number added to `at` when a high axis advances by one and all later high axes restart
    offset : (n, 81) int64, distance from `at` for each combination of values on the low axes

    """

    at: Ints
    own: Ints
    stride: Ints
    carry: Ints
    offset: Ints


@kernel()
def new_incoming(n: int) -> Incoming:
    """Return empty `Incoming` arrays that are large enough for any table of n features."""
    places, steps = np.empty((2, n), dtype=np.int64), np.empty((2, n, n), dtype=np.int64)
    return Incoming(places[0], places[1], steps[0], steps[1], np.empty((n, LOW_SIZE), dtype=np.int64))


@kernel()
def new_tables(size: int, width: int) -> EliminationTables:
    """Return empty working memory for messages that have `size` entries in total and at most `width` axes each."""
    high = np.empty((2, 3 ** max(0, width - LOW_AXES)))
    return EliminationTables(np.empty(size), high, np.empty((2, LOW_SIZE)), np.empty((3, LOW_SIZE)))


@kernel()
def eliminate(clamped: Clamped, n_free: int, factor: float, incoming: Incoming, tables: EliminationTables) -> float:
    """Return the logarithm of the sum of exp(`factor` * energy) over all values of the unobserved features.

    If the weights exceed the range of double precision, return NaN.
    """
    logarithm, begin = 0.0, 0
    for v in range(n_free):
        axes = clamped.first[v + 1] - clamped.first[v]
        high_axes = max(0, axes - LOW_AXES)
        strength = _write_weights(clamped, v, high_axes, factor, tables)
        n_messages = _fill_incoming(clamped, v, high_axes, incoming)
        size = 3**axes
        out = tables.message[begin : begin + size]
        _sum_out(out, high_axes, n_messages, incoming, tables)
        smallest, largest = np.inf, 0.0
        for i in range(size):
            weight = abs(out[i])
            smallest, largest = min(smallest, weight), max(largest, weight)
        if not (smallest >= SMALLEST * max(1.0, largest) and strength <= STRONGEST):
            return float(np.nan)
        for i in range(size):
            out[i] /= largest
        logarithm += np.log(largest)
        clamped.start[v] = begin
        begin += size
    return logarithm


@kernel(inline=True)
def _write_weights(clamped: Clamped, v: int, high_axes: int, factor: float, tables: EliminationTables) -> float:
    """Write the weights of the values +1 and -1 of feature `v`, for each combination of values of its separator.

    Return the largest absolute logarithm of the weights.
    """
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
def _fill_incoming(clamped: Clamped, v: int, high_axes: int, incoming: Incoming) -> int:
    """Fill `incoming` for all messages that are multiplied into the table of `v`. Return the number of messages."""
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
def _sum_out(out: Floats, high_axes: int, n_messages: int, incoming: Incoming, tables: EliminationTables) -> None:
    """Write the message of one feature: the sum of the feature's table over the values of the feature.

    The table is computed in blocks, one for each combination of values on the high axes. The last `LOW_AXES` axes of
    the message are the low axes, and all earlier axes are the high axes.
    """
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


UNOBSERVED = 2
"""Code of an unobserved feature."""


class Plan(NamedTuple):
    """The n features of a model's support, sorted by connected component and, within a component, in elimination order.

    Attributes
    ----------
    feature : (n,) int64, index among the model's M features
    unary : (n,) float64, unary potential, nats
    first : (n + 1,) int64, start of each feature's entries in `separator`
    separator : (E,) int64, for each feature v, ascending positions of the later features in the table of v
    coupling : (E,) float64, coupling between v and each feature of its separator, nats; 0 if the two features are not
        coupled

    """

    feature: Ints
    unary: Floats
    first: Ints
    separator: Ints
    coupling: Floats


class Clamped(NamedTuple):
    """An elimination plan (`Plan`) restricted to the unobserved features of one state.

    Unobserved features are numbered in elimination order. The separators exclude the observed features, and are
    therefore computed again for each state. Kernels fill the arrays in place.

    Attributes
    ----------
    place : (n,) int64, number of the feature at each position of the plan, or -1 if it is observed
    field : (n,) float64, effective unary potential, nats (eq:reduced-unary)
    first, separator, coupling : as in `Plan`, with the numbers of the unobserved features
    child : (n,) int64, first message that is multiplied into each table, or -1 if there is none
    sibling : (n,) int64, next message that is multiplied into the same table, or -1 if there is none
    start : (n,) int64, start of each message in `EliminationTables.message`
    mark : (n,) int64, working memory

    """

    place: Ints
    field: Floats
    first: Ints
    separator: Ints
    coupling: Floats
    child: Ints
    sibling: Ints
    start: Ints
    mark: Ints


@kernel()
def new_clamped(plan: Plan) -> Clamped:
    """Return empty `Clamped` arrays that are large enough for any set of observations."""
    n, edges = len(plan.unary), len(plan.separator)
    by_number, first = np.empty((5, n), dtype=np.int64), np.empty(n + 1, dtype=np.int64)
    place, child, sibling, start, mark = by_number[0], by_number[1], by_number[2], by_number[3], by_number[4]
    separator, coupling = np.empty(edges, dtype=np.int64), np.empty(edges)
    return Clamped(place, np.empty(n), first, separator, coupling, child, sibling, start, mark)


@kernel()
def clamp(plan: Plan, state: Codes, clamped: Clamped) -> tuple[int, float]:
    """Fill `clamped` from the observations of a state.

    Return the number of unobserved features, and the energy of the observed features, nats (eq:running-constant). The
    energy excludes the prior.

    Parameters
    ----------
    state : (n,) int8, values of the features in the plan's order, or `UNOBSERVED`

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
    """Mark the axes of all messages that are multiplied into the table of feature `v`.

    Each axis is a feature. The entry of a marked feature in `Clamped.mark` is `v`.
    """
    child = clamped.child[v]
    while child >= 0:
        for e in range(clamped.first[child], clamped.first[child + 1]):
            clamped.mark[clamped.separator[e]] = v
        child = clamped.sibling[child]


@kernel()
def message_size(clamped: Clamped, n_free: int) -> tuple[float, int]:
    """Return the total number of entries of all messages, and the largest number of axes of a message.

    Each message is a sum over a table that has three times as many entries as the message.
    """
    total, width = 0.0, 0
    for v in range(n_free):
        axes = clamped.first[v + 1] - clamped.first[v]
        total += 3.0**axes
        width = max(width, axes)
    return total, width
