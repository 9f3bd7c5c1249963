"""Interface of one patient's state, which rules and planners use.

The engine and `afa.planner.explicit` implement it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from afa.engine.duels import all_pairs, sides_of
from afa.engine.layout import Pairs
from afa.errors import Fault, PlannerError
from afa.model.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class DuelWeights:
    """Sparse weights of Q duels, which NumPy converts to an array (Q,).

    Attributes
    ----------
    n_duels : int, Q
    duels : (q,) int64, ascending indices of the duels with a weight
    weights : (q,) float64, weights of these duels

    """

    n_duels: int
    duels: Ints
    weights: Floats

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Floats:
        every = np.zeros(self.n_duels)
        every[self.duels] = self.weights
        return every

    def __matmul__(self, other: Floats) -> Floats:
        product: Floats = np.asarray(self) @ other
        return product


class PatientState(ABC):
    """State of one patient for N entities, as rules and planners use it.

    The index of a duel is its position in the ordered list of all Q = N (N - 1) / 2 pairs a < b. If a method has the
    argument `duels` (ascending indices), the results are for these duels only.

    Attributes
    ----------
    packed : arrays of the model, which observations do not change
    n_entities : N

    """

    packed: Any
    n_entities: int

    @property
    def n_duels(self) -> int:
        """Return Q, the number of duels."""
        return self.n_entities * (self.n_entities - 1) // 2

    @cached_property
    def pairs(self) -> Pairs:
        """Return the two entities a < b of every duel.

        Returns
        -------
        pairs : (Q, 2) int64

        """
        return all_pairs(self.n_entities)

    def sides(self, duels: Ints | None) -> Pairs:
        """Return the two entities of each of the given duels.

        Parameters
        ----------
        duels : (q,) int64, ascending indices of duels, or None for all

        Returns
        -------
        pairs : (q, 2) int64

        """
        return self.pairs if duels is None or len(duels) == self.n_duels else sides_of(self.n_entities, duels)

    @property
    @abstractmethod
    def closed(self) -> Bools:
        """Return a mask of the features that are observed, or that have values determined by observed features.

        Returns
        -------
        closed : (M,) bool

        """

    @abstractmethod
    def observe(self, feature: int, value: int) -> None:
        """Observe one value. Entities without the feature in their support do not change."""

    @abstractmethod
    def log_evidence(self) -> Floats:
        """Return the log-evidence of each entity plus its prior log-odds.

        The difference between the values of two entities is the log-odds of their duel.

        Returns
        -------
        evidence : (N,) float64, nats

        """

    @abstractmethod
    def scores(self, score: str) -> Floats:
        """Return the preference score with the given name, with rounding errors set to 0.

        Returns
        -------
        scores : (N, N) float64, antisymmetric; above 0 if the row's entity is preferred

        """

    def present_scores(self, score: str) -> Floats:
        """Return `scores` as an array that the caller must not change, and that the next observation may change.

        Returns
        -------
        scores : (N, N) float64

        """
        return self.scores(score)

    def known_ranks(self, _score: str, _name_rank: Ints) -> Ints | None:
        """Return the rank of each entity by a score, or None if the ranks must be computed from all duels.

        Parameters
        ----------
        _name_rank : (N,) int64, position of each entity in the order of names, which breaks ties

        Returns
        -------
        ranks : (N,) int64, 1 for the most preferred entity, or None

        """
        return None

    @abstractmethod
    def lead(self, duels: Ints | None = None) -> Floats:
        """Return for each of the given duels the part of D from the observed features.

        Parameters
        ----------
        duels : (q,) int64, ascending indices of duels, or None for all

        Returns
        -------
        lead : (q,) float64, nats

        """

    @abstractmethod
    def resolved(self, duels: Ints | None = None) -> Bools:
        """Return a mask of the given duels whose sign no further observation can change.

        Parameters
        ----------
        duels : (q,) int64, ascending indices of duels, or None for all

        Returns
        -------
        resolved : (q,) bool

        """

    @abstractmethod
    def intervals(self) -> Floats:
        """Return for each entity v the smallest and largest S_v that the unobserved features allow.

        Returns
        -------
        intervals : (N, 2) float64, nats

        """

    @abstractmethod
    def gains(self, duels: Bools, /) -> Floats:
        """Return the gain of each feature for each of the given duels.

        Parameters
        ----------
        duels : (Q,) bool, True for the q duels whose gains are returned

        Returns
        -------
        gains : (q, M) float64

        """

    @abstractmethod
    def gain_of(self, features: list[int], duels: Ints, /) -> Floats:
        """Return for each of the given duels the sum of its gains over the given features.

        Parameters
        ----------
        duels : (q,) int64, ascending indices of duels

        Returns
        -------
        total : (q,) float64

        """

    @abstractmethod
    def summed_gain(self, duels: Ints, weights: Floats, /) -> Floats:
        """Return for each feature the weighted sum of its gains over the given duels (eq:feature_selection).

        Parameters
        ----------
        duels : (q,) int64, ascending indices of duels
        weights : (q,) float64

        Returns
        -------
        total : (M,) float64

        """

    def total_gain(self, closed: Bools) -> Floats:
        """Return for each feature the sum of its gains over the duels that are not marked in `closed`.

        Parameters
        ----------
        closed : (Q,) bool, True for duels to exclude

        Returns
        -------
        total : (M,) float64

        """
        open_ = np.flatnonzero(~np.asarray(closed))
        return self.summed_gain(open_, np.ones(len(open_)))

    def weighted_gain(self, weights: Floats | DuelWeights) -> Floats:
        """Return for each feature the weighted sum of its gains over all duels.

        Parameters
        ----------
        weights : (Q,) float64, finite

        Returns
        -------
        total : (M,) float64

        """
        if isinstance(weights, DuelWeights) and weights.n_duels == self.n_duels:
            return self.summed_gain(weights.duels, weights.weights)
        weight = np.asarray(weights, dtype=np.float64)
        chosen = np.flatnonzero(weight) if weight.shape == (self.n_duels,) else None
        if chosen is None or not np.isfinite(weight[chosen]).all():
            found = f"shape {weight.shape}, {int((~np.isfinite(weight)).sum())} of them not finite"
            expected, step = f"{self.n_duels} finite numbers", "give one weight a duel"
            raise PlannerError(Fault("weights of duels", found, expected, step))
        return self.summed_gain(chosen, weight[chosen])

    @abstractmethod
    def total_unary(self) -> Floats:
        """Return for each feature the absolute effective unaries, summed over entities.

        Returns
        -------
        total : (M,) float64, nats, 0 for observed features

        """

    @abstractmethod
    def information(self) -> Floats:
        """Return the mutual information between each feature and the entity, if exactly one entity is present.

        Returns
        -------
        information : (M,) float64, nats, 0 for observed features

        """
