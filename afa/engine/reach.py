"""How far two features, or one exclusive group, that are not observed can move D, by probabilities (F12, F13).

A group is named by its last slot; from there row `NEXT` of `Packed.site` leads round it. `State.m` has the probability
that a member is +1 given what is seen of the group, 0 of those that are known; the rest of 1 is that none is.
"""

from __future__ import annotations

import math

from afa.engine.compile import kernel
from afa.engine.layout import CENTRE, HIGH, LOW, NEXT
from afa.mrf import Floats


@kernel(inline=True)
def range_of_pair(
    site: Floats, of_a: float, slot_a: int, other_a: int, of_b: float, slot_b: int, other_b: int
) -> tuple[float, float]:
    """How far below and above 0 the couplings of two unobserved features can move D, each 0 or more (F12).

    of_a, of_b : the couplings, 0 where an entity has none: then its slots are not read. Their difference is linear in
    either value, so that its extremes are among the outer ones.
    """
    one, other = (slot_a, other_a) if of_a != 0.0 else (slot_b, other_b)
    low, high, other_low, other_high = -site[LOW, one], site[HIGH, one], -site[LOW, other], site[HIGH, other]
    first = second = third = fourth = 0.0
    if of_a != 0.0:
        at_low, at_high = of_a * (low - site[CENTRE, slot_a]), of_a * (high - site[CENTRE, slot_a])
        away_low, away_high = other_low - site[CENTRE, other_a], other_high - site[CENTRE, other_a]
        first, second = at_low * away_low, at_low * away_high
        third, fourth = at_high * away_low, at_high * away_high
    if of_b != 0.0:
        at_low, at_high = of_b * (low - site[CENTRE, slot_b]), of_b * (high - site[CENTRE, slot_b])
        away_low, away_high = other_low - site[CENTRE, other_b], other_high - site[CENTRE, other_b]
        first, second = first - at_low * away_low, second - at_low * away_high
        third, fourth = third - at_high * away_low, fourth - at_high * away_high
    return -min(0.0, first, second, third, fourth), max(0.0, first, second, third, fourth)


@kernel()
def range_of_group(site: Floats, m: Floats, last_a: int, last_b: int) -> tuple[float, float]:
    """How far below and above 0 what is open of an exclusive group can move D, each 0 or more."""
    return _most_of_group(site, m, last_b, last_a), _most_of_group(site, m, last_a, last_b)


@kernel()
def _most_of_group(site: Floats, m: Floats, last_a: int, last_b: int) -> float:
    """The largest log P_a / P_b of what can come: a member, or that some of those open are 0, whichever are measured.

    What is left of a over what is left of b is larger without a member whose own ratio is smaller, until none is.
    """
    best, better = 1.0, True
    while better:
        left_a, left_b, a, b, more = 1.0, 1.0, last_a, last_b, True
        while more:
            a, b = int(site[NEXT, a]), int(site[NEXT, b])
            if m[a] < best * m[b]:
                left_a -= m[a]
                left_b -= m[b]
            more = a != last_a
        better = left_a / left_b > best
        best = max(best, left_a / left_b)
    a, b, more = last_a, last_b, True
    while more:
        a, b = int(site[NEXT, a]), int(site[NEXT, b])
        if m[b] > 0.0:
            best = max(best, m[a] / m[b])
        more = a != last_a
    return math.log(best)


@kernel()
def variance_of_group(site: Floats, m: Floats, last_a: int, last_b: int) -> float:
    """Variance of what an exclusive group adds to D, under the mixture of the two posteriors (eq:sigma-D)."""
    left_a, left_b, mean, square = 1.0, 1.0, 0.0, 0.0
    a, b, more = last_a, last_b, True
    while more:
        a, b = int(site[NEXT, a]), int(site[NEXT, b])
        if m[b] > 0.0:
            p, told = 0.5 * (m[a] + m[b]), math.log(m[a] / m[b])
            mean += p * told
            square += p * told * told
            left_a -= m[a]
            left_b -= m[b]
        more = a != last_a
    p, told = 0.5 * (left_a + left_b), math.log(left_a / left_b)
    return square + p * told * told - (mean + p * told) ** 2
