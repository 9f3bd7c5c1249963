"""Define a patient's correct top k in two versions: at full observation, and according to the labels (S10).

In the first version, the correct top k contains the k best entities given all measurements. In the second version, the
correct top k contains the entities with a positive label.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from afa.engine.outcomes import Outcomes
from afa.engine.ranks import precision_at_k
from afa.model.arrays import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Targets:
    """Store the correct top k of P patients in two versions: at full observation, and according to the labels.

    Attributes
    ----------
    k : size of the top set of all entities
    k_clinical : size of the top set of the labelled entities
    sure : (P, N) bool, True for entities certainly among the k best at full observation
    tied : (P, N) bool, True for entities tied for the last of the k places
    slots : (P,) int64, number of places for the tied entities
    labels : (P, N) float64, 0, 1 or NaN

    """

    k: int
    k_clinical: int
    sure: Bools
    tied: Bools
    slots: Ints
    labels: Floats

    @classmethod
    def of(cls, truth: Outcomes, labels: Floats, k: int, k_clinical: int) -> Targets:
        """Return the targets of P patients, from their results at full observation and their labels.

        Parameters
        ----------
        labels : (P, N) float64, 0, 1 or NaN

        """
        size = (truth.place[:, :, None] == truth.place[:, None, :]).sum(axis=2)
        sure = truth.place + size <= k
        tied = (truth.place < k) & ~sure
        return cls(k, k_clinical, sure, tied, k - sure.sum(axis=1), labels)

    def precisions(self, place: NDArray[np.int16], threads: int | None) -> dict[str, Floats]:
        """Return a mapping from the names of three precision metrics to their values, (P, R).

        R rankings of the entities are evaluated for each patient. The argument `place` contains the rank of each entity
        in each ranking, (P, R, N).
        """
        n = len(place)
        positive, labelled = self.labels == 1, ~np.isnan(self.labels)
        n_positive = positive.sum(axis=1)
        ranked = np.where(n_positive > 0, np.minimum(self.k_clinical, labelled.sum(axis=1)), 0)
        return {
            "p_at_k": precision_at_k(place, np.full(n, self.k), self.sure, self.tied, self.slots, threads=threads),
            "clinical_p_at_k": precision_at_k(place, ranked, positive, among=labelled, threads=threads),
            "clinical_r_precision": precision_at_k(place, n_positive, positive, among=labelled, threads=threads),
        }


def target_label_counts(labels: Floats, k: int, k_clinical: int) -> dict[str, tuple[float, int]]:
    """Return counts about the labels of a cohort, each as a pair of the count and its total.

    With fewer than 2k labelled entities, results are not comparable with the paper.

    Parameters
    ----------
    labels : (P, N) float64, 0, 1 or NaN

    """
    patients, entities = labels.shape
    labelled = int((~np.isnan(labels)).any(axis=0).sum())
    return {
        "patients_without_positive": (patients - int((labels == 1).any(axis=1).sum()), patients),
        "labelled": (labelled, entities),
        "k_clinical": (k_clinical, labelled),
        "not_comparable": (int(labelled < 2 * k), labelled),
    }


def clinical_k(labels: Floats, k: int) -> int:
    """Return the size k' = min(k, floor(L / 2)) of the top set of the L entities with labels (S10).

    Parameters
    ----------
    labels : (P, N) float64, 0, 1 or NaN

    """
    return min(k, int((~np.isnan(labels)).any(axis=0).sum()) // 2)
