"""How well scores tell patients with a label from those without: metrics that a constant answer cannot win.

Each takes weights of the patients (R, P), whole numbers, one row a resample, and gives (R,); NaN where a resample has
one class only. Scores that are equal are one rank, a score of exactly 0 decides for neither class (spec S5).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from afa.mrf import Floats

Mask = NDArray[np.bool_]


def ranking(scores: Floats, positive: Mask, weights: Floats) -> tuple[Floats, Floats]:
    """Area under the ROC curve, ties counted one half; and average precision, ties entering together.

    scores, positive : (P,). Average precision is the sum over thresholds of the precision there times the recall that
    the threshold adds: the prevalence where all scores are equal.
    """
    order = np.argsort(-scores, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    drawn = weights[:, order]
    hits = np.cumsum(drawn * positive[order], axis=1)[:, ends]
    false = np.cumsum(drawn * ~positive[order], axis=1)[:, ends]
    new_hits, new_false = np.diff(hits, axis=1, prepend=0), np.diff(false, axis=1, prepend=0)
    total = hits[:, -1] * false[:, -1]
    area = (new_false * (hits - new_hits / 2)).sum(axis=1)
    called = hits + false
    precision = np.divide(hits, called, out=np.zeros_like(hits), where=called > 0)
    missing = np.full(len(weights), np.nan)
    return (
        np.divide(area, total, out=missing.copy(), where=total > 0),
        np.divide((new_hits * precision).sum(axis=1), hits[:, -1], out=missing.copy(), where=total > 0),
    )


def accuracies(scores: Floats, positive: Mask, weights: Floats) -> tuple[Floats, Floats]:
    """Share of the signs of scores (P,) that are right, of all patients and as the mean over the two classes."""
    right = 0.5 + 0.5 * np.sign(scores) * np.where(positive, 1.0, -1.0)
    counts = [weights[:, chosen].sum(axis=1) for chosen in (positive, ~positive)]
    earned = [weights[:, chosen] @ right[chosen] for chosen in (positive, ~positive)]
    missing = np.full(len(weights), np.nan)
    shares = [
        np.divide(credit, count, out=missing.copy(), where=count > 0)
        for credit, count in zip(earned, counts, strict=True)
    ]
    balanced: Floats = (shares[0] + shares[1]) / 2
    return (earned[0] + earned[1]) / (counts[0] + counts[1]), balanced
