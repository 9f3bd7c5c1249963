"""Interface of one patient's state to rules and planners. Each way of computing the state implements it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from afa.engine.duels import all_pairs, sides_of
from afa.engine.layout import Indices, Pairs
from afa.errors import Fault, PlannerError
from afa.model.mrf import Floats


@dataclass(frozen=True)
class DuelWeights:
    """Sparse weights of Q duels. NumPy converts them to an array (Q,).

    Attributes
    ----------
    n_duels : int, Q
    duels : (q,) int64, ascending indices of the duels with a weight
    weights : (q,) float64, weights of these duels

    """

    n_duels: int
    duels: Indices
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

    The index of a duel is its position among all Q = N (N - 1) / 2 pairs a < b in order. If a method has an argument
    `duels` (ascending indices), it computes its result only for these duels.

    Attributes
    ----------
    packed : parts of the model that no observation changes
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
        """Return the entities a < b of every duel, (Q, 2) int64."""
        return all_pairs(self.n_entities)

    def sides(self, duels: Indices | None) -> Pairs:
        """Return the entities of the given duels, (q, 2) int64. None means all duels."""
        return self.pairs if duels is None or len(duels) == self.n_duels else sides_of(self.n_entities, duels)

    @property
    @abstractmethod
    def closed(self) -> NDArray[np.bool_]:
        """Return a mask of the features that are observed or whose values follow from observed features, (M,)."""

    @abstractmethod
    def observe(self, feature: int, value: int) -> None:
        """Observe one value. Entities without the feature in their support do not change."""

    @abstractmethod
    def log_evidence(self) -> Floats:
        """Return the log-evidence of each entity plus its prior, (N,) nats.

        The difference of two entities is the log-odds of their duel.
        """

    @abstractmethod
    def scores(self, score: str) -> Floats:
        """Return a preference score by its name, (N, N) float64. Rounding errors are set to 0."""

    def present_scores(self, score: str) -> Floats:
        """Return `scores` as an array that must not be changed. It is valid until the next observation."""
        return self.scores(score)

    def known_ranks(self, _score: str, _name_rank: Indices) -> Indices | None:
        """Return ranks by a score, (N,), or None if ranking needs all duels. Ties are broken by `name_rank`, (N,)."""
        return None

    @abstractmethod
    def lead(self, duels: Indices | None = None) -> Floats:
        """Return the part of D from the observed features for each of the given duels, (q,) nats.

        None means all duels.
        """

    @abstractmethod
    def resolved(self, duels: Indices | None = None) -> NDArray[np.bool_]:
        """Return a mask of the given duels whose sign no further values can change, (q,). None means all duels."""

    @abstractmethod
    def intervals(self) -> Floats:
        """Return the smallest and largest S_v of each entity over all completions, (N, 2) nats."""

    @abstractmethod
    def gains(self, duels: NDArray[np.bool_], /) -> Floats:
        """Return the gains at each feature of the duels marked in `duels`, (Q,) bool. The result is (q, M) float64."""

    @abstractmethod
    def gain_of(self, features: list[int], duels: Indices, /) -> Floats:
        """Return for each of some duels the sum of its gains over the given features, (q,) float64."""

    @abstractmethod
    def summed_gain(self, duels: Indices, weights: Floats, /) -> Floats:
        """Return the weighted sum of the gains of some duels at each feature, (M,) (eq:feature_selection)."""

    def total_gain(self, closed: NDArray[np.bool_]) -> Floats:
        """Return the sum of the gains at each feature, (M,).

        The sum is over the duels that are not marked in `closed`, (Q,) bool.
        """
        open_ = np.flatnonzero(~np.asarray(closed))
        return self.summed_gain(open_, np.ones(len(open_)))

    def weighted_gain(self, weights: Floats | DuelWeights) -> Floats:
        """Return the weighted sum over duels of the gains at each feature, (M,). The weights, (Q,), must be finite."""
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
        """Return the sum over entities of the absolute effective unaries, (M,) nats.

        It is 0 for an observed feature.
        """

    @abstractmethod
    def information(self) -> Floats:
        """Return the mutual information between each feature and the entity that holds, (M,) nats, or 0 if observed."""
