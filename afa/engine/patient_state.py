"""Define the interface through which rules and planners use the state of one patient.

Two classes implement the interface: `afa.engine.patient.Patient` and `afa.planner.explicit.ExplicitPatient`.
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
    """Weights of Q duels (entity pairs), stored without zeros. NumPy converts this object to an array of length Q.

    Attributes
    ----------
    n_duels : int, Q
    duels : (q,) int64, ascending indices of the duels whose weight is stored
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
    """State of one patient for N entities.

    A duel is a comparison of two entities a < b. Its index is its position in the ordered list of all Q = N (N - 1) / 2
    pairs. If a method has the argument `duels`, it returns results for these duels only.

    Attributes
    ----------
    packed : arrays of the model that observations do not change
    n_entities : N

    """

    packed: Any
    n_entities: int

    @property
    def n_duels(self) -> int:
        """Return Q, the number of duels (entity pairs)."""
        return self.n_entities * (self.n_entities - 1) // 2

    @cached_property
    def pairs(self) -> Pairs:
        """Return the two entities a < b of every duel, in ascending order.

        Returns
        -------
        pairs : (Q, 2) int64

        """
        return all_pairs(self.n_entities)

    def sides(self, duels: Ints | None) -> Pairs:
        """Return the two entities of each given duel (entity pair).

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
        """Return for each feature whether it is observed, or whether its value follows from observed features.

        Returns
        -------
        closed : (M,) bool

        """

    @abstractmethod
    def observe(self, feature: int, value: int) -> None:
        """Set the value of one feature. The models of entities without this feature in their support do not change."""

    @abstractmethod
    def log_evidence(self) -> Floats:
        """Return the log-evidence of each entity plus its prior log-odds.

        The difference between two entries is the posterior log-odds between the two entities.

        Returns
        -------
        evidence : (N,) float64, nats

        """

    @abstractmethod
    def scores(self, score: str) -> Floats:
        """Return a preference score of all entity pairs, with rounding errors set to 0.

        Returns
        -------
        scores : (N, N) float64, antisymmetric; above 0 if the row's entity is preferred

        """

    def present_scores(self, score: str) -> Floats:
        """Return the same values as `scores`. The returned array may be an internal array instead of a copy.

        Callers must not change the array, and the next observation may change it.

        Returns
        -------
        scores : (N, N) float64

        """
        return self.scores(score)

    def known_ranks(self, _score: str, _name_rank: Ints) -> Ints | None:
        """Return the rank of each entity by a score, or None if the caller must compute the ranks from all scores.

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
        """Return the part of the log-odds D from observed features, for each given duel (entity pair).

        Parameters
        ----------
        duels : (q,) int64, ascending indices of duels, or None for all

        Returns
        -------
        lead : (q,) float64, nats

        """

    @abstractmethod
    def resolved(self, duels: Ints | None = None) -> Bools:
        """Return True for each given duel (entity pair) whose winner no further observation can change.

        Parameters
        ----------
        duels : (q,) int64, ascending indices of duels, or None for all

        Returns
        -------
        resolved : (q,) bool

        """

    @abstractmethod
    def intervals(self) -> Floats:
        """Return for each entity v a lower and an upper bound on S_v, given the observed features.

        Returns
        -------
        intervals : (N, 2) float64, nats

        """

    @abstractmethod
    def gains(self, duels: Bools, /) -> Floats:
        """Return the gain of each feature for each given duel (entity pair).

        Parameters
        ----------
        duels : (Q,) bool, True for the q duels whose gains are returned

        Returns
        -------
        gains : (q, M) float64

        """

    @abstractmethod
    def gain_of(self, features: list[int], duels: Ints, /) -> Floats:
        """Return for each given duel (entity pair) the sum of the gains of the given features.

        Parameters
        ----------
        duels : (q,) int64, ascending indices of duels

        Returns
        -------
        total : (q,) float64

        """

    @abstractmethod
    def summed_gain(self, duels: Ints, weights: Floats, /) -> Floats:
        """Return for each feature the weighted sum of its gains over the given entity pairs (eq:feature_selection).

        Parameters
        ----------
        duels : (q,) int64, ascending indices of duels
        weights : (q,) float64

        Returns
        -------
        total : (M,) float64

        """

    def total_gain(self, closed: Bools) -> Floats:
        """Return for each feature the sum of its gains over the duels (entity pairs) that `closed` does not exclude.

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
        """Return for each feature the weighted sum of its gains over all duels (entity pairs).

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
        """Return for each feature the sum over the entities of its absolute effective unary potentials.

        Returns
        -------
        total : (M,) float64, nats, 0 for observed features

        """

    @abstractmethod
    def information(self) -> Floats:
        """Return how much information the value of each feature gives about which entity is present.

        The result is the mutual information, under the assumption that the patient has exactly one of the N entities.

        Returns
        -------
        information : (M,) float64, nats, 0 for observed features

        """
