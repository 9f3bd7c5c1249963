"""Item 13: how many better entities a Layer 0 certificate needs, by listing every completion of random intervals."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.checks.errata.models import generator_of
from afa.checks.errata.rows import EXACT, Row
from afa.mrf import Floats

N, SMALL_K, LARGE_K = 6, 2, 5
"""Entities of a random set, and a k below and above one half of them."""
NONE_BEATEN = "sets in which an entity is beaten for certain"


def enough_better(sets: int) -> list[Row]:
    """Item 13: certificates by `k` and by `N - k` dominating entities, on random sets of sound intervals."""
    point = partial(Row, item=13)
    intervals = [random_intervals(index) for index in range(sets)]
    dominators = np.array([dominating(low, high) for low, high in intervals])
    small, large = (np.array([in_top_k(low, high, k) for low, high in intervals]) for k in (SMALL_K, LARGE_K))
    by_k = dominators >= SMALL_K
    kept = by_k & (dominators < N - SMALL_K)
    by_rest = dominators >= N - LARGE_K
    return [
        point(
            name="kept_needlessly",
            claim_value=0.0,
            value=float(kept.sum() / by_k.sum()) if by_k.any() else None,
            n=int(by_k.sum()),
            holds=not bool(kept.any()) if by_k.any() else None,
            pending="" if by_k.any() else NONE_BEATEN,
        ),
        point(
            name="k_is_enough",
            claim_value=0.0,
            value=float(small[by_k].mean()) if by_k.any() else None,
            n=int(by_k.sum()),
            holds=not bool(small[by_k].any()) if by_k.any() else None,
            pending="" if by_k.any() else NONE_BEATEN,
        ),
        point(
            name="above_one_half",
            claim_value=0.0,
            value=float(large[by_rest].mean()) if by_rest.any() else None,
            n=int(by_rest.sum()),
            holds=not bool(large[by_rest].any()) if by_rest.any() else None,
            pending="" if by_rest.any() else NONE_BEATEN,
        ),
    ]


def nothing_observed(bundle: Bundle) -> list[Row]:
    """Item 13: whom the profile of zeros lets win, and what has to wait for the Layer 0 stage."""
    point = partial(Row, item=13)
    a, b = np.triu_indices(len(bundle.entities), 1)
    decided = np.abs(bundle.priors[a] - bundle.priors[b]) > EXACT
    return [
        point(
            name="decided_at_zero",
            value=float(decided.mean()) if len(a) else None,
            n=len(a),
            pending="" if len(a) else "a bundle of two entities or more",
        ),
    ]


def random_intervals(index: int) -> tuple[Floats, Floats]:
    """Low and high ends of N sound intervals, each (N,); some overlap and some do not."""
    generator = generator_of("intervals", index)
    centre, radius = generator.standard_normal(N), generator.exponential(0.4, N)
    return centre - radius, centre + radius


def dominating(low: Floats, high: Floats) -> NDArray[np.intp]:
    """(N,) how many others are better than each entity in every completion."""
    counts: NDArray[np.intp] = (low[None, :] > high[:, None]).sum(axis=1)
    return counts


def in_top_k(low: Floats, high: Floats, k: int) -> NDArray[np.bool_]:
    """(N,) whether an entity is among the k best of some completion; every score is tried at both of its ends.

    The ends are enough: an entity stands highest when its own score is at its high end and the others at their low.
    """
    ends = np.stack([low, high])
    found = np.zeros(len(low), dtype=bool)
    for choice in product((0, 1), repeat=len(low)):
        scores = ends[list(choice), np.arange(len(low))]
        better = (scores[None, :] > scores[:, None]).sum(axis=1)
        found |= better < k
    return found
