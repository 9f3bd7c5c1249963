"""Interface of one patient's state to rules and planners; each way of computing the state implements it."""

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
    """Weights of Q duels that are 0 except at some duels; NumPy converts it to an array (Q,).

    Attributes
    ----------
    n_duels : int, Q
    duels : (q,) int64, ascending indices of the duels with a weight
    weights : (q,) float64, their weights

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

    A duel is identified by its index among all Q = N (N - 1) / 2 pairs a < b in order. Methods with an argument `duels`
    (ascending indices) compute their result for those duels alone.

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
        """Return the entities of the given duels, or of all, (q, 2) int64."""
        return self.pairs if duels is None or len(duels) == self.n_duels else sides_of(self.n_entities, duels)

    @property
    @abstractmethod
    def closed(self) -> NDArray[np.bool_]:
        """Return True for each feature that is observed, or follows from observed ones, (M,)."""

    @abstractmethod
    def observe(self, feature: int, value: int) -> None:
        """Observe one value; entities without the feature in their support do not change."""

    @abstractmethod
    def log_evidence(self) -> Floats:
        """Return the log-evidence of each entity with its prior, (N,) nats; differences are log-odds of a duel."""

    @abstractmethod
    def scores(self, score: str) -> Floats:
        """Return preference scores by name, (N, N) float64; rounding errors are set to 0."""

    def present_scores(self, score: str) -> Floats:
        """Return `scores` as an array that must not be changed and is valid until the next observation."""
        return self.scores(score)

    def known_ranks(self, _score: str, _name_rank: Indices) -> Indices | None:
        """Return ranks by a score, (N,), ties broken by `name_rank`, (N,); None if ranking needs all duels."""
        return None

    @abstractmethod
    def lead(self, duels: Indices | None = None) -> Floats:
        """Return D of the observed features, (q,) nats, of the given duels or of all."""

    @abstractmethod
    def resolved(self, duels: Indices | None = None) -> NDArray[np.bool_]:
        """Return True for each of the given duels, or of all, whose sign no completion can change, (q,)."""

    @abstractmethod
    def intervals(self) -> Floats:
        """Return the smallest and largest S_v of each entity over all completions, (N, 2) nats."""

    @abstractmethod
    def gains(self, duels: NDArray[np.bool_], /) -> Floats:
        """Return the gains of the duels marked in `duels`, (Q,) bool, at each feature: (q, M) float64."""

    @abstractmethod
    def gain_of(self, features: list[int], duels: Indices, /) -> Floats:
        """Return the gains of some duels, (q,) float64, summed over the given features."""

    @abstractmethod
    def summed_gain(self, duels: Indices, weights: Floats, /) -> Floats:
        """Return the weighted sum of the gains of some duels at each feature, (M,) (eq:feature_selection)."""

    def total_gain(self, closed: NDArray[np.bool_]) -> Floats:
        """Return the gains at each feature, (M,), summed over the duels not marked in `closed`, (Q,) bool."""
        open_ = np.flatnonzero(~np.asarray(closed))
        return self.summed_gain(open_, np.ones(len(open_)))

    def weighted_gain(self, weights: Floats | DuelWeights) -> Floats:
        """Return the gains at each feature, (M,), summed over the duels with the finite weights `weights`, (Q,)."""
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
        """Return the absolute effective unaries summed over entities, (M,) nats; 0 where observed."""

    @abstractmethod
    def information(self) -> Floats:
        """Return the mutual information of each feature and the entity that holds, (M,) nats; 0 where observed."""
