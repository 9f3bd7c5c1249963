"""Planners: what to measure next for one patient, what the answer is so far, and how certain it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.allocate import RULES, Choice, Rule, View
from afa.bundle import Bundle
from afa.copeland import ranking
from afa.engine.duels import resolve_after, resolve_all
from afa.engine.kernels import Iteration, new_state, observe, solve_all
from afa.engine.packed import pack
from afa.errors import Fault, PlannerError
from afa.inference.meanfield import Solver
from afa.mrf import VALUES, Floats
from afa.preference import duels_of

SCORES = ("linearity", "wald")
GAINS = ("wald_magnitude",)


class TopKPlanner:
    """Finds the k entities that a patient's features support most, measuring few of them.

    Parameters
    ----------
    bundle : the entities and their models.
    k : size of the answer, 1 <= k < N.
    score : the preference score that ranks entities and guides the rule: `linearity` or `wald`.
    gain : what a duel is expected to learn from a feature: `wald_magnitude`.
    allocation : `greedy`, `random`, `largest_unary`, or an object with the method `choose(view)`.
    seed, patient : name the random order of `allocation="random"`.

    Examples
    --------
    >>> from afa.bundle import load_bundle
    >>> planner = TopKPlanner(load_bundle("tests/data/bundle_tiny"), k=1)
    >>> while (feature := planner.next_feature()) is not None:
    ...     planner.observe(feature, 1)
    >>> len(planner.observed) == len(planner.bundle.features)
    True

    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        k: int = 5,
        score: str = "linearity",
        gain: str = "wald_magnitude",
        allocation: str | Rule = "greedy",
        solver: Solver | None = None,
        start: str = "uniform",
        patient: str = "",
        seed: int = 0,
    ) -> None:
        _one_of("score", score, SCORES)
        _one_of("gain", gain, GAINS)
        _one_of("start", start, ("uniform", "warm"))
        if not 1 <= k < len(bundle.entities):
            expected = f"1 to {len(bundle.entities) - 1}, one less than the number of entities"
            raise PlannerError(Fault("planner option k", str(k), expected, "choose a smaller k"))
        if isinstance(allocation, str):
            _one_of("allocation", allocation, tuple(RULES))
            allocation = RULES[allocation]()
        self.bundle, self.k, self.score, self.gain, self.rule = bundle, k, score, gain, allocation
        self.patient, self.seed = patient, seed
        self.observed: dict[str, int] = {}
        self.reason = "nothing asked yet"
        self._index = {name: j for j, name in enumerate(bundle.features)}
        solver = solver or Solver()
        first_round = Iteration(solver.damping, solver.tolerance, solver.max_iterations, False)
        self._iteration = first_round._replace(warm=start == "warm")
        self._packed = pack(bundle)
        self._state = new_state(self._packed, len(bundle.features))
        self._pairs = np.array(list(combinations(range(len(bundle.entities)), 2)), dtype=np.int64)
        self._budget = np.zeros(len(self._pairs))
        solve_all(self._packed, self._state, first_round)
        resolve_all(self._packed, self._state, self._pairs, self._budget)

    def next_feature(self) -> str | None:
        """Name of the feature to measure next, or None when all are observed; `reason` says why."""
        if self._state.observed.all():
            self.reason = "every feature has been observed"
            return None
        choice = self._choose()
        self.reason = choice.reason
        return self.bundle.features[choice.feature]

    def observe(self, feature: str, value: int) -> None:
        """Take in one measurement, -1, 0 or +1; entities that do not hold the feature are left as they are."""
        if feature not in self._index:
            raise PlannerError(
                Fault(f"feature {feature!r}", "an unknown name", "a feature of the bundle", "see bundle.features")
            )
        if value not in VALUES:
            raise PlannerError(
                Fault(f"feature {feature}", repr(value), "-1, 0 or 1", "encode the measurement as ternary first")
            )
        if feature in self.observed:
            step = "start a new planner to correct it"
            raise PlannerError(Fault(f"feature {feature}", "a second observation", "at most one", step))
        j = self._index[feature]
        observe(self._packed, self._state, j, int(value), self._iteration)
        resolve_after(self._packed, self._state, self._pairs, self._budget, j)
        self.observed[feature] = int(value)

    def scores(self) -> Floats:
        """(N, N) antisymmetric preference scores V: a beats b where V > 0, 0 is a tie."""
        if self.score == "wald":
            values = self._state.constant[:, None] - self._state.constant[None, :]
        else:
            values = duels_of(self._state.cross)
        return np.where(np.abs(values) <= self._packed.tie, 0.0, values)

    def top_k(self) -> list[str]:
        """The k best entities by Copeland wins, best first; ties as spec S6 settles them."""
        return ranking(self.scores(), self.bundle.entities, tie=self._packed.tie)[: self.k]

    def resolved(self) -> list[tuple[str, str]]:
        """Duels (winner, loser) whose winner at full observation no completion can change (tight `l1` bracket)."""
        lead = self._lead()
        names = self.bundle.entities
        settled = np.flatnonzero(self._settled(lead))
        return [
            (names[a], names[b]) if lead[p] > 0 else (names[b], names[a])
            for p, (a, b) in ((p, self._pairs[p]) for p in settled)
        ]

    def explain(self, most: int = 10) -> pd.DataFrame:
        """The unobserved features of largest total gain: feature, gain, duels it would move, its share of the gain."""
        open_duels = ~self._settled(self._lead())
        gains = self._gains(open_duels)
        table = pd.DataFrame(
            {
                "feature": self.bundle.features,
                "gain": gains.sum(axis=0),
                "duels_moved": (gains > self._packed.tie).sum(axis=0),
            }
        )[~self._state.observed]
        total = float(table["gain"].sum())
        table["share"] = table["gain"] / total if total > 0 else 0.0
        return table.sort_values(["gain", "feature"], ascending=[False, True], ignore_index=True).head(most)

    def _choose(self) -> Choice:
        view = View(
            features=self.bundle.features,
            entities=self.bundle.entities,
            observed=self._state.observed.copy(),
            pairs=self._pairs,
            scores=self.scores(),
            resolved=self._settled(self._lead()),
            largest_unary=np.abs(self._fields()).sum(axis=0),
            gain=self._gains,
            k=self.k,
            patient=self.patient,
            seed=self.seed,
        )
        choice = self.rule.choose(view)
        if not 0 <= choice.feature < len(self.bundle.features) or self._state.observed[choice.feature]:
            expected = "an index of an unobserved feature"
            step = "mend the rule's choose()"
            raise PlannerError(Fault(f"rule {type(self.rule).__name__}", str(choice.feature), expected, step))
        return choice

    def _gains(self, duels: NDArray[np.bool_]) -> Floats:
        fields, chosen = self._fields(), self._pairs[duels]
        return np.abs(fields[chosen[:, 0]] - fields[chosen[:, 1]])

    def _fields(self) -> Floats:
        """(N, M) effective unaries, 0 outside supports and at observed features."""
        fields = np.zeros(self._state.first.shape)
        fields[self._packed.owner, self._packed.feature] = self._state.field
        return fields

    def _lead(self) -> Floats:
        constant = self._state.constant
        return constant[self._pairs[:, 0]] - constant[self._pairs[:, 1]]

    def _settled(self, lead: Floats) -> NDArray[np.bool_]:
        return np.abs(lead) > self._budget + self._packed.tie


def _one_of(option: str, given: str, known: Sequence[str] | Mapping[str, object]) -> None:
    if given not in known:
        raise PlannerError(Fault(f"planner option {option}", repr(given), " or ".join(known), "choose one of these"))
