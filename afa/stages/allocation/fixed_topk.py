"""Top-k answers that look at no patient: what a ranking that learns must beat (decisions.md S10)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from afa.mrf import Floats
from afa.stats.accuracy import Signs

SURE, TIED = 2, 1


def fixed_top_k(top: Signs, k: int) -> list[int]:
    """The k entities that overlap most, all patients together, with the top-k at full observation; the first such.

    top : (P, N), 2 surely in a patient's top-k, 1 tied across rank k, 0 out. Found by branch and bound: what an entity
    adds to a set only shrinks as the set grows, so the largest additions bound what is still to come.
    """
    sure, tied = (top == SURE).astype(np.int64), (top == TIED).astype(np.int64)
    room = k - sure.sum(axis=1)
    certain = sure.sum(axis=0)
    best_worth, best = -1, list[int]()

    def extend(members: list[int], worth: int, used: NDArray[np.int64], candidates: list[int]) -> None:
        nonlocal best_worth, best
        if len(members) == k:
            if worth > best_worth:
                best_worth, best = worth, members
            return
        added = certain + (used < room).astype(np.int64) @ tied
        order = sorted(candidates, key=lambda v: (-added[v], v))
        for place, v in enumerate(order):
            if worth + int(added[order[place : place + k - len(members)]].sum()) <= best_worth:
                return
            extend([*members, v], worth + int(added[v]), used + tied[:, v], order[place + 1 :])

    extend([], 0, np.zeros(len(top), dtype=np.int64), list(range(top.shape[1])))
    return sorted(best)


def overlap(top: Signs, chosen: list[int], k: int) -> NDArray[np.int64]:
    """(P,) entities of one answer in each patient's top-k; of those tied across rank k as many as there is room for.

    top : as in `fixed_top_k`.
    """
    sure = (top[:, chosen] == SURE).sum(axis=1)
    tied = (top[:, chosen] == TIED).sum(axis=1)
    shared: NDArray[np.int64] = sure + np.minimum(tied, k - (top == SURE).sum(axis=1))
    return shared


def positives_by_prevalence(labels: Floats, places: NDArray[np.int64]) -> Floats:
    """(P,) positive labels that each patient has on the first so many places of the order by prevalence.

    labels : (P, N) in {0, 1}, NaN where missing; prevalence is that of these labels. places : (P,). Entities whose
    label a patient lacks leave that patient's order; entities of equal prevalence share their places evenly.
    """
    known = ~np.isnan(labels)
    prevalence = np.nansum(labels, axis=0) / np.maximum(known.sum(axis=0), 1)
    ahead = known @ (prevalence[:, None] > prevalence).astype(np.float64)
    equal = known @ (prevalence[:, None] == prevalence).astype(np.float64)
    held = np.clip((places[:, None] - ahead) / np.maximum(equal, 1), 0, 1)
    positives: Floats = (held * (labels == 1)).sum(axis=1)
    return positives
