"""Exact inference in the place of mean-field, for bundles whose models are small enough: slow, and without error."""

from __future__ import annotations

from collections.abc import Iterable

from afa.bundle import Bundle
from afa.engine.layout import Packed
from afa.engine.state import State
from afa.inference.exact import exact, pair_moments
from afa.mrf import Evidence, Floats


class ExactModels:
    """Writes exact moments, log-partitions and cross expectations into an engine state.

    An `InferenceError` names the estimate of a model that is too dense.
    """

    def __init__(self, bundle: Bundle, packed: Packed, state: State) -> None:
        self._evidence = [Evidence.of(bundle.mrf(entity)) for entity in bundle.entities]
        self._packed, self._state = packed, state
        self._moments: dict[int, tuple[Floats, Floats]] = {}

    def observe(self, feature: int, value: int) -> None:
        """Condition every entity and solve again those that hold the feature; `state` is conditioned by the caller."""
        self._evidence = [evidence.observe(feature, value) for evidence in self._evidence]
        packed = self._packed
        held = packed.holder[packed.first_holder[feature] : packed.first_holder[feature + 1]]
        self.solve([int(entity) for entity in packed.owner[held]])

    def solve(self, entities: Iterable[int]) -> None:
        """Solve these entities, then the rows and columns of `cross` that they change."""
        changed, state = list(entities), self._state
        for v in changed:
            evidence = self._evidence[v]
            solution = exact(evidence.mrf, evidence)
            slots = slice(self._packed.first_slot[v], self._packed.first_slot[v + 1])
            features = self._packed.feature[slots]
            state.m[slots] = solution.marginals.first[features]
            state.q[slots] = solution.marginals.second[features]
            state.bound[v] = solution.log_partition - evidence.constant - evidence.log_volume
            state.n_free[v] = len(evidence.free)
            self._moments[v] = pair_moments(evidence.mrf, evidence)
        for u in range(len(self._evidence)):
            for v in range(len(self._evidence)):
                if u in changed or v in changed:
                    state.cross[u, v] = self._expected_score(u, v)

    def _expected_score(self, u: int, v: int) -> float:
        """E_{p_u}[S_v | x_obs] from the exact first and pair moments of u."""
        first, pairs = self._moments[u]
        free, of_v = self._evidence[u].free, self._evidence[v]
        quadratic = 0.5 * of_v.mrf.couplings[free][:, free].multiply(pairs).sum()
        return float(of_v.constant + of_v.field @ first + quadratic)
