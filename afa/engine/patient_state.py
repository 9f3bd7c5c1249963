"""What rules and planners ask of one patient: one interface for each way in which a state can be kept."""

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
    """Weights of Q duels, 0 but at some places, ascending; an array (Q,) wherever NumPy asks for one."""

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
    """One patient in N entities: what rules and planners ask of the duels between them.

    A duel is named by its place among all Q = N (N - 1) / 2 pairs a < b in order. What is asked of some duels, by their
    ascending places, is computed for those alone. packed : what no observation changes.
    """

    packed: Any
    n_entities: int

    @property
    def n_duels(self) -> int:
        """Q."""
        return self.n_entities * (self.n_entities - 1) // 2

    @cached_property
    def pairs(self) -> Pairs:
        """(Q, 2) the entities a < b of every duel."""
        return all_pairs(self.n_entities)

    def sides(self, duels: Indices | None) -> Pairs:
        """(q, 2) the entities of some duels, or of all."""
        return self.pairs if duels is None or len(duels) == self.n_duels else sides_of(self.n_entities, duels)

    @property
    @abstractmethod
    def closed(self) -> NDArray[np.bool_]:
        """(M,) features that are observed, or need not be."""

    @abstractmethod
    def observe(self, feature: int, value: int) -> None:
        """Take in one value; entities that do not hold the feature are left as they are."""

    @abstractmethod
    def log_evidence(self) -> Floats:
        """(N,) log-evidence of each entity, its prior included: differences are posterior log-odds of a duel."""

    @abstractmethod
    def scores(self, score: str) -> Floats:
        """(N, N) preference scores by name; magnitudes of rounding are 0."""

    def present_scores(self, score: str) -> Floats:
        """The same, not to be changed, and good until the next observation."""
        return self.scores(score)

    def known_ranks(self, _score: str, _name_rank: Indices) -> Indices | None:
        """(N,) ranks by a score, ties by `name_rank`, (N,); None where only a look at all duels would tell."""
        return None

    @abstractmethod
    def lead(self, duels: Indices | None = None) -> Floats:
        """(q,) what has been observed says for a over b, of some duels or of all."""

    @abstractmethod
    def resolved(self, duels: Indices | None = None) -> NDArray[np.bool_]:
        """(q,) whether no completion can change the sign of a duel, of some or of all."""

    @abstractmethod
    def intervals(self) -> Floats:
        """(N, 2) least and greatest S_v of each entity under any completion."""

    @abstractmethod
    def gains(self, duels: NDArray[np.bool_], /) -> Floats:
        """(q, M) gains of the chosen duels; `duels` is a (Q,) mask."""

    @abstractmethod
    def gain_of(self, features: list[int], duels: Indices, /) -> Floats:
        """(q,) gains of some duels, summed over these features."""

    @abstractmethod
    def summed_gain(self, duels: Indices, weights: Floats, /) -> Floats:
        """(M,) gains of some duels, each times its weight, added up (eq:feature_selection)."""

    def total_gain(self, closed: NDArray[np.bool_]) -> Floats:
        """(M,) gains summed over the duels that are not closed; `closed` is a (Q,) mask."""
        open_ = np.flatnonzero(~np.asarray(closed))
        return self.summed_gain(open_, np.ones(len(open_)))

    def weighted_gain(self, weights: Floats | DuelWeights) -> Floats:
        """(M,) gains summed over the duels, each times its weight; `weights` (Q,), finite."""
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
        """(M,) absolute effective unaries, summed over entities; 0 where observed."""

    @abstractmethod
    def information(self) -> Floats:
        """(M,) what each feature tells about which entity holds, in nats; 0 where observed."""
