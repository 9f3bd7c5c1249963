"""Compiled precision of a ranking's top k where entities tie: its mean over random tie-breaking."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import in_threads, kernel
from afa.mrf import Floats

Mask = NDArray[np.bool_]


def precision_at_k(
    place: NDArray[np.integer],
    k: NDArray[np.int64],
    right: Mask,
    tied: Mask | None = None,
    slots: NDArray[np.int64] | None = None,
    *,
    among: Mask | None = None,
    threads: int | None = None,
) -> Floats:
    """(P, R) mean share of the top k that is right, of P patients with R rankings each; NaN where k is 0.

    place : (P, R, N) how many entities are ahead of each, equal for ties. k : (P,). right : (P, N) entities that count.
    tied, slots : (P, N) and (P,) further entities of which up to `slots` count, whichever they are: those tied for the
    last places of the right answer. among : (P, N) the entities that are ranked, all where None.
    """
    n_patients, n_rankings, n = place.shape
    tied = np.zeros((n_patients, n), dtype=np.bool_) if tied is None else tied
    slots = np.zeros(n_patients, dtype=np.int64) if slots is None else slots
    among = np.ones((n_patients, n), dtype=np.bool_) if among is None else among
    if not (right.shape == tied.shape == among.shape == (n_patients, n) and k.shape == slots.shape == (n_patients,)):
        raise ValueError(f"masks of shape {right.shape} and k of shape {k.shape} for places {place.shape}")
    share = np.empty((n_patients, n_rankings))

    def work(first: int, last: int) -> None:
        _precision(place.astype(np.int64), k, right, tied, slots, among, share, first, last)

    in_threads(work, n_patients, threads)
    return share


@kernel()
def _precision(
    place: NDArray[np.int64],
    k: NDArray[np.int64],
    right: Mask,
    tied: Mask,
    slots: NDArray[np.int64],
    among: Mask,
    share: Floats,
    first: int,
    last: int,
) -> None:
    for patient in range(first, last):
        for r in range(place.shape[1]):
            share[patient, r] = np.nan
            if k[patient] > 0:
                found = _overlap(
                    place[patient, r], k[patient], right[patient], tied[patient], slots[patient], among[patient]
                )
                share[patient, r] = found / k[patient]


@kernel()
def _overlap(place: NDArray[np.int64], k: int, right: Mask, tied: Mask, slots: int, among: Mask) -> float:
    """Mean number of entities that count among the k best of those ranked."""
    n = len(place)
    at_place = np.zeros(n, dtype=np.int64)
    for v in range(n):
        if among[v]:
            at_place[place[v]] += 1
    ahead, boundary = 0, 0
    while boundary < n and ahead + at_place[boundary] < k:
        ahead += at_place[boundary]
        boundary += 1
    inside_right, inside_tied, at_right, at_tied = 0, 0, 0, 0
    for v in range(n):
        if among[v] and place[v] < boundary:
            inside_right += right[v]
            inside_tied += tied[v]
        elif among[v] and place[v] == boundary:
            at_right += right[v]
            at_tied += tied[v]
    if boundary == n:
        return float(inside_right + min(inside_tied, slots))
    drawn, size = k - ahead, at_place[boundary]
    mean_right = inside_right + drawn * at_right / size
    return float(mean_right + _mean_capped(inside_tied, at_tied, size, drawn, slots))


@kernel()
def _mean_capped(already: int, marked: int, size: int, drawn: int, cap: int) -> float:
    """E[min(already + H, cap)], H the number of marked ones among `drawn` of `size` without replacement."""
    total = 0.0
    for hit in range(max(0, drawn - (size - marked)), min(marked, drawn) + 1):
        log_ways = _log_choose(marked, hit) + _log_choose(size - marked, drawn - hit) - _log_choose(size, drawn)
        total += math.exp(log_ways) * min(already + hit, cap)
    return total


@kernel()
def _log_choose(n: int, k: int) -> float:
    if k in (0, n):
        return 0.0
    return math.lgamma(n + 1.0) - math.lgamma(k + 1.0) - math.lgamma(n - k + 1.0)
