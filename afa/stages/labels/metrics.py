"""How well scores tell patients with a label from those without: metrics that a constant answer cannot win.

Each takes weights of the patients (R, P), whole numbers, one row a resample, and gives (R,); NaN where a resample has
one class only. Scores that are equal are one rank, a score of exactly 0 decides for neither class (decisions.md S5).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.mrf import Floats

Mask = NDArray[np.bool_]


def ranking(scores: Floats, positive: Mask, weights: Floats) -> tuple[Floats, Floats]:
    """Area under the ROC curve, ties counted one half; and average precision, ties entering together.

    scores, positive : (P,). Average precision is the sum over thresholds of the precision there times the recall that
    the threshold adds: the prevalence where all scores are equal. Fast where a patient's weights lie side by side.
    """
    drawn, n_negative = weights.T, weights @ (~positive).astype(np.float64)
    falling = np.argsort(-scores, kind="stable")
    last_of_equals = np.append(np.diff(scores[falling]) != 0, True)
    hits, false, false_above, new_hits, ordered_pairs, precision = np.zeros((6, len(weights)))
    any_new = False
    for patient, hit, last in zip(falling.tolist(), positive[falling].tolist(), last_of_equals.tolist(), strict=True):
        if hit:
            new_hits += drawn[patient]
            any_new = True
        else:
            false += drawn[patient]
        if last and any_new:
            hits += new_hits
            ordered_pairs += new_hits * (n_negative - (false_above + false) / 2)
            precision += new_hits * (hits / np.maximum(hits + false, 1))
            new_hits[:] = 0
            any_new = False
        if last:
            false_above[:] = false
    pairs = hits * n_negative
    return _share(ordered_pairs, pairs), np.where(pairs > 0, _share(precision, hits), np.nan)


class Decided(NamedTuple):
    """Shares of right decisions: of all patients, as the mean over the two classes, and of either class."""

    accuracy: Floats
    balanced_accuracy: Floats
    sensitivity: Floats
    specificity: Floats


def accuracies(scores: Floats, positive: Mask, weights: Floats) -> Decided:
    """How often the signs of scores (P,) are right."""
    right = 0.5 + 0.5 * np.sign(scores) * np.where(positive, 1.0, -1.0)
    classes = np.stack([positive, ~positive], axis=1).astype(np.float64)
    counts, earned = weights @ classes, weights @ (classes * right[:, None])
    of_ill, of_others = _share(earned, counts).T
    return Decided(earned.sum(axis=1) / counts.sum(axis=1), (of_ill + of_others) / 2, of_ill, of_others)


def _share(part: Floats, whole: Floats) -> Floats:
    """What `part` is of `whole`; NaN where that is 0."""
    share: Floats = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return share
