"""Simulate patients under one strategy for the top-k question: which k entities do the values support most?

Simulated answers equal the answers of a `TopKPlanner`. The compiled engine simulates strategies with the score
`linearity`. For other scores, custom rules, rules with costs, and bundles with probabilities, the planner is used. The
planner takes more than ten times as long as the engine. Random orders ignore costs. Features that were not measured in
a patient are never chosen (docs/decisions.md, F8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import laid_out
from afa.engine.duels import all_pairs
from afa.engine.outcomes import Outcomes, follow_rule, full_observation
from afa.engine.ranks import name_places, ranks_of
from afa.engine.rules import COMPILED, NONE
from afa.engine.run import MISSING
from afa.evaluate.accuracy import UNIT, overlap, precisions_by_prevalence
from afa.evaluate.resampling import first_where
from afa.evaluate.targets import Targets, clinical_k
from afa.inference.meanfield import Solver
from afa.model.arrays import Bools, Codes, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.closure import Closure
from afa.model.orders import random_orders
from afa.model.rule_names import WITHOUT_GAIN
from afa.planner import Planner, TopKPlanner
from afa.planner.menu import measurements_of
from afa.planner.options import BACKGROUND, FRONTIER
from afa.planner.rules.check import rule_of

PlannerT = TypeVar("PlannerT", bound=Planner)

CHOOSES_WITHOUT_GAIN = (*WITHOUT_GAIN, "random_own", FRONTIER)
RANDOM_RULES = ("random", "random_own")
IN_UNITS = ("p_at_k", "label_p_at_k", "label_r_precision")
"""Metrics summed as multiples of 1 / `UNIT`, so that sums are exact in any order."""

MOST_BUDGETS = 100
"""Largest number of budgets above 0 in a curve over cost."""
PATIENTS_PER_BLOCK = 128
"""Number of patients followed at a time."""
NEARLY_FINAL = (19, 20)
"""Share of the final accuracy that counts as nearly as accurate: 95 %, as numerator and denominator."""


class Strategy(NamedTuple):
    """Store one strategy for choosing features: the names of a rule, of a gain, and of the score that guides the rule.

    The attribute `gain` is "" if the rule uses no gain.
    """

    allocation: str
    gain: str
    score: str


@dataclass(frozen=True, kw_only=True)
class SimulationSetting:
    """Store the question and the settings of a simulation.

    The question is which k entities are the best or, if `entity` is given, whether the patient has this entity. If
    `costs` is `own`, rules divide gains by the costs of the bundle. A patient is simulated once for each seed.

    Attributes
    ----------
    k, entity : size of the top set, and the entity of a binary question or None
    coupling, holds, tau : as in the planners
    background : function from a patient's name to the planner's option `background`; None for the planner's default
    costs : `own` or `equal`
    seeds : seeds of random orders
    resamples, confidence : number of resamples and coverage of the intervals
    solver : settings of the mean-field iteration
    threads : number of threads; the results do not depend on it

    """

    k: int = 1
    entity: str | None = None
    coupling: Closure | None = None
    holds: str | None = None
    tau: float | str | None = None
    background: Callable[[str], Any] | None = None
    costs: str = "own"
    seeds: Sequence[int] = (0,)
    resamples: int = 1000
    confidence: float = 0.95
    solver: Solver = field(default_factory=Solver)
    threads: int = 1

    @property
    def explicit(self) -> bool:
        """Return True if the closure is `explicit`.

        With this closure, the two class models of each entity are made from the bundle's probabilities.
        """
        return self.coupling == "explicit"


class Walk(NamedTuple):
    """Store the results of one run for B patients, for each t from 0 to M.

    In `needed`, the number is inf if the criterion is not met at the end, and NaN if the criterion is undefined.

    Attributes
    ----------
    parts : metric -> (amount right, total), each (B, M + 1), or (B, 1) if independent of t
    needed : (criterion, counted) -> (B,) float64, the number of features, or the cost, from which on the criterion is
        always met
    scores : (B, M + 1) float64, the score of a patient, or None if a patient has several scores
    spent : (B, M + 1) float64, cost of the first t features, or None if all costs are equal

    """

    parts: Mapping[str, tuple[Floats, Floats]]
    needed: Mapping[tuple[str, str], Floats]
    scores: Floats | None = None
    spent: Floats | None = None


TopKPaths = tuple[Ints, Floats, Ints, Bools]
"""Four arrays for B patients: the chosen orders (B, M), the number of rightly decided duels by t (B, M + 1), the rank
of each entity by t (B, M + 1, N), and by t whether the top k is certified (B, M + 1).
"""


class TopKBlock(NamedTuple):
    """Store a block of patients, their correct answers at full observation, and their rows in the cohort.

    Attributes
    ----------
    values : (B, M) int8, -1, 0, +1 or `MISSING`, for B patients

    """

    names: Sequence[str]
    values: Codes
    rows: slice
    truth: Outcomes
    targets: Targets


@dataclass(frozen=True, eq=False, kw_only=True)
class SimulationTask:
    """Define a question about P patients, as the base class of `TopKTask` and `BinaryTask`.

    The attribute `values` has the shape (P, M). The attribute `labels` has the shape (P, ...) and contains 0, 1 or NaN.
    """

    bundle: Bundle
    patients: Sequence[str]
    values: Codes
    labels: Floats
    setting: SimulationSetting

    @property
    def blocks(self) -> list[slice]:
        """Return the rows of the patients as slices of at most `PATIENTS_PER_BLOCK` patients."""
        return [slice(first, first + PATIENTS_PER_BLOCK) for first in range(0, len(self.patients), PATIENTS_PER_BLOCK)]


@dataclass(frozen=True, eq=False, kw_only=True)
class TopKTask(SimulationTask):
    """Define the top-k question for P patients: find the k entities that fit each patient's features best.

    The attribute `labels` has the shape (P, N). Constant answers serve as baselines.
    """

    @cached_property
    def k_labels(self) -> int:
        """Return the size of the top set among the labelled entities (decisions.md S10)."""
        return clinical_k(self.labels, self.setting.k)

    @cached_property
    def usual(self) -> tuple[Codes, list[int]]:
        """Return the most frequent winner of each pair of entities, (Q,), and the k entities most often in a top k.

        Frequencies are counted over all patients at full observation.
        """
        counts = [
            (block.truth.winner.sum(axis=0, dtype=np.int64), (2 * block.targets.sure + block.targets.tied).sum(axis=0))
            for block in map(self.block, self.blocks)
        ]
        wins, often = (np.sum(column, axis=0) for column in zip(*counts, strict=True))
        entities = self.bundle.entities
        top = sorted(range(len(entities)), key=lambda v: (-often[v], entities[v]))[: self.setting.k]
        return np.where(wins >= 0, 1, -1).astype(np.int8), top

    def block(self, rows: slice) -> TopKBlock:
        """Return the patients in the given rows, with their correct answers at full observation.

        If the bundle has no probabilities, a missing value counts as 0.
        """
        values = self.values[rows]
        if self.setting.explicit:
            truth = planned_truth(values, [self._strategy_planner(Strategy("random", "", "two_elbo")) for _ in values])
        else:
            truth = full_observation(self.bundle, np.where(values == MISSING, 0, values), solver=self.setting.solver)
        targets = Targets.of(truth, self.labels[rows], self.setting.k, self.k_labels)
        return TopKBlock(self.patients[rows], values, rows, truth, targets)

    def constant(self, block: TopKBlock) -> Walk:
        """Return the accuracy of three constant answers.

        The constant answers are the most frequent winner of each duel, the most frequent top k, and the ranking by
        prevalence.
        """
        (majority, usual), known = self.usual, block.truth.winner != 0
        right = ((block.truth.winner == majority) & known).sum(axis=1, keepdims=True).astype(np.float64)
        top = (2 * block.targets.sure + block.targets.tied).astype(np.int8)
        shares = {"p_at_k": overlap(top, usual, self.setting.k) / self.setting.k}
        of_labels = precisions_by_prevalence(self.labels, self.k_labels) if self.k_labels else {}
        shares |= {f"label_{metric}": share[block.rows] for metric, share in of_labels.items()}
        parts = {"sign_accuracy": (right, known.sum(axis=1, keepdims=True).astype(np.float64))}
        return Walk(parts | {metric: _share_part(share[:, None]) for metric, share in shares.items()}, {})

    def walk(self, block: TopKBlock, way: Strategy, seed: int, tick: Callable[[int], None]) -> Walk:
        """Simulate feature acquisition for a block of patients until all values in the data have been acquired."""
        compiled = is_compiled(self.bundle, way, self.setting)
        paths = self._paths_by_engine(block, way, seed) if compiled else self._paths_by_planners(block, way, seed, tick)
        order, right, place, certified = paths
        if compiled:
            tick(len(block.names))
        shares = block.targets.precisions(place.astype(np.int16), self.setting.threads)
        won = (block.truth.winner != 0).sum(axis=1, keepdims=True).astype(np.float64)
        rank = place * len(self.bundle.entities) + name_places(self.bundle.entities)
        inside = np.argsort(np.argsort(rank, axis=2), axis=2) < self.setting.k
        ended, needed = ends((inside != inside[:, -1:]).any(axis=2), certified)
        parts = {"sign_accuracy": (right, won), "p_at_k": _share_part(shares["p_at_k"]), **ended}
        if self.k_labels:
            parts["label_p_at_k"] = _share_part(shares["clinical_p_at_k"])
            parts["label_r_precision"] = _share_part(shares["clinical_r_precision"])
        part, whole = NEARLY_FINAL
        below = whole * right < part * right[:, -1:]
        needed["sign_95"] = np.where(won[:, 0] > 0, rounds_until(below), np.nan)
        spent = spent_along(order, prices_of(self.bundle, self.setting))
        return Walk(parts, with_costs(needed, spent), spent=spent)

    def _paths_by_engine(self, block: TopKBlock, way: Strategy, seed: int) -> TopKPaths:
        bundle, orders = self.bundle, None
        if way.allocation == "random":
            orders = measured_first(random_orders(bundle.features, block.names, [seed])[:, 0], block.values)
        paths = follow_rule(
            bundle,
            block.values,
            block.truth,
            allocation=way.allocation,
            gain=way.gain or None,
            target="linearity" if way.gain == "f_target" else None,
            orders=orders,
            k=self.setting.k,
            solver=self.setting.solver,
            threads=self.setting.threads,
        )
        right = paths.right[:, :, 0, 0].astype(np.float64)
        return paths.order, right, paths.place[:, :, 0].astype(np.int64), paths.certified

    def _paths_by_planners(self, block: TopKBlock, way: Strategy, seed: int, tick: Callable[[int], None]) -> TopKPaths:
        pairs = all_pairs(len(self.bundle.entities))

        def read(planner: TopKPlanner, patient: int) -> tuple[Any, ...]:
            (scores, place), winner = scores_and_ranks(planner), block.truth.winner[patient]
            calls = np.sign(scores[pairs[:, 0], pairs[:, 1]])
            return (0.5 * (1 + calls * winner))[winner != 0].sum(), place, planner.certified()

        planners = (self._strategy_planner(way, name, seed) for name in block.names)
        order, right, place, certified = planned(planners, block.values, read, tick=tick)
        return order[:, 1:], right, place, certified

    def _strategy_planner(self, way: Strategy, name: str = "", seed: int = 0) -> TopKPlanner:
        return planner_of(self.bundle, way, self.setting, patient=name, seed=seed)

    check = _strategy_planner
    """Raise a `PlannerError`, or the `ConfigError` of a user-defined rule, if no planner can use the strategy."""


def is_compiled(bundle: Bundle, way: Strategy, setting: SimulationSetting) -> bool:
    """Return True if the compiled engine supports this strategy; otherwise the planner is used."""
    known = way.score == "linearity" and way.allocation in COMPILED
    return known and not weighs_items(bundle, way, setting) and not setting.explicit


def weighs_items(bundle: Bundle, way: Strategy, setting: SimulationSetting) -> bool:
    """Return True if the rule uses costs, or if a measurement has several features."""
    return way.allocation not in RANDOM_RULES and (
        prices_of(bundle, setting) is not None or bool(measurements_of(bundle))
    )


def informed(planner: PlannerT, values: Codes) -> PlannerT:
    """Let a planner observe all measured values of a patient, and return the planner.

    Parameters
    ----------
    values : (M,) int8, or `MISSING` where not measured

    """
    if known := {planner.bundle.features[j]: int(values[j]) for j in np.flatnonzero(values != MISSING)}:
        planner.observe_all(known)
    return planner


def steps(planner: Planner, values: Codes, order: Ints | None = None) -> Iterator[int]:
    """Give a patient's values to a planner one after another, and yield an index after each round.

    Rounds are numbered from 0 to M, and round 0 comes before any observation. The yielded index is the index of the
    feature observed in the round, or -1 if no feature was observed.

    Parameters
    ----------
    values : (M,) int8, or `MISSING` where not measured
    order : (M,) int64, features to observe instead of those that the planner suggests. Features that were not measured
        are skipped

    """
    features = planner.bundle.features
    for j in np.flatnonzero(values == MISSING):
        planner.skip(features[j])
    place = {feature: j for j, feature in enumerate(features)}
    given = iter([] if order is None else [features[j] for j in order if values[j] != MISSING])
    yield NONE
    for _ in features:
        feature = planner.next_feature() if order is None else next(given, None)
        if feature is None:
            yield NONE
            continue
        planner.observe(feature, int(values[place[feature]]))
        yield place[feature]


def planned(
    planners: Iterable[PlannerT],
    values: Codes,
    read: Callable[[PlannerT, int], tuple[Any, ...]],
    orders: Ints | None = None,
    tick: Callable[[int], None] = lambda _: None,
) -> list[NDArray[Any]]:
    """Simulate B patients with values (B, M), with one planner for each patient.

    Return arrays, (B, M + 1, ...), with one column for each t from 0 to M.

    The first returned array contains the index of the feature observed in each round, or -1. The function `read`
    computes the elements of the other returned arrays.

    Parameters
    ----------
    values : (B, M) int8
    read : function of a planner and the index of its patient
    orders : (B, M) int64, features to observe. By default, the planners choose
    tick : as in `simulate`

    """
    seen: list[list[tuple[Any, ...]]] = []
    for patient, planner in enumerate(planners):
        way = steps(planner, values[patient], None if orders is None else orders[patient])
        seen.append([(feature, *read(planner, patient)) for feature in way])
        tick(1)
    return [np.array([[found[field] for found in rounds] for rounds in seen]) for field in range(len(seen[0][0]))]


def scores_and_ranks(planner: TopKPlanner, score: str | None = None) -> tuple[Floats, Ints]:
    """Return two arrays: a preference score, (N, N), and each entity's number of better-ranked entities, (N,).

    `score` is the name of the preference score, by default the planner's guiding score.
    """
    scores, entities = planner.scores_by(score or planner.guide), planner.bundle.entities
    ranks = ranks_of(laid_out(scores), np.arange(len(entities)), name_places(entities), planner._state.packed.tie)
    return scores, ranks.place


def planned_truth(values: Codes, planners: Sequence[TopKPlanner]) -> Outcomes:
    """Return the answer of each planner after it has observed all measured values of its patient.

    Parameters
    ----------
    values : (P, M) int8

    """
    answers = [scores_and_ranks(informed(planner, row)) for planner, row in zip(planners, values, strict=True)]
    scores, places = (np.array(part) for part in zip(*answers, strict=True))
    a, b = all_pairs(places.shape[1]).T
    winner = np.sign(scores[:, a, b]).astype(np.int8)
    return Outcomes(winner, places, np.zeros(winner.shape[1:], dtype=np.int8))


def measured_first(orders: Ints, values: Codes) -> Ints:
    """Return the orders, (B, M), with the features that were not measured moved to the end.

    Parameters
    ----------
    orders : (B, M) int64
    values : (B, M) int8, or `MISSING` where not measured

    """
    missing = np.take_along_axis(values == MISSING, orders, axis=1)
    return np.take_along_axis(orders, np.argsort(missing, axis=1, kind="stable"), axis=1)


def planner_of(
    bundle: Bundle, way: Strategy, setting: SimulationSetting, *, patient: str = "", seed: int = 0
) -> TopKPlanner:
    """Return a planner with the rule, gain and score of a strategy.

    Raise a `PlannerError` if the strategy is invalid, and a `ConfigError` if a user-defined rule is invalid.
    """
    believes = setting.background is not None and (way.score == BACKGROUND or way.allocation == FRONTIER)
    return TopKPlanner(
        bundle,
        k=setting.k,
        score=way.score,
        gain=way.gain or "wald_magnitude",
        allocation=rule_of(way.allocation)() if ":" in way.allocation else way.allocation,
        solver=setting.solver,
        costs="equal" if prices_of(bundle, setting) is None or way.allocation in RANDOM_RULES else None,
        patient=patient,
        seed=seed,
        coupling=setting.coupling,
        holds=setting.holds,
        tau=setting.tau,
        background=setting.background(patient) if setting.background is not None and believes else None,
    )


def prices_of(bundle: Bundle, setting: SimulationSetting) -> Floats | None:
    """Return the costs of the features, (M,), or None if costs are ignored or all equal."""
    if setting.costs == "equal" or bundle.costs is None or bool((bundle.costs == bundle.costs[0]).all()):
        return None
    return bundle.costs


def spent_along(order: Ints, prices: Floats | None) -> Floats | None:
    """Return the total cost of the first t features of each order, for t from 0 to M, (B, M + 1).

    An entry -1 in `order` means that no feature was observed, and has the cost 0.

    Return None if `prices` is None.

    Parameters
    ----------
    order : (B, M) int64, feature indices, then -1
    prices : (M,) float64, or None

    """
    if prices is None:
        return None
    paid = np.where(order == NONE, 0.0, prices[order])
    return np.concatenate([np.zeros((len(order), 1)), np.cumsum(paid, axis=1)], axis=1)


def with_costs(needed: Mapping[str, Floats], spent: Floats | None) -> dict[tuple[str, str], Floats]:
    """Return the number of features after which each criterion is met and, if `spent` is given, their cost.

    Each key of the result is a pair: a criterion, and `features` or `cost`. Each value is an array of shape (B,).

    Parameters
    ----------
    needed : criterion -> (B,) float64
    spent : (B, M + 1) float64, or None

    """
    every = {(criterion, "features"): rounds for criterion, rounds in needed.items()}
    if spent is None:
        return every
    for criterion, rounds in needed.items():
        reached = np.isfinite(rounds)
        last = np.where(reached, rounds, 0).astype(np.int64)
        every[criterion, "cost"] = np.where(reached, spent[np.arange(len(spent)), last], rounds)
    return every


def budgets_of(prices: Floats) -> Floats:
    """Return cost budgets for curves, (C,), in ascending order from 0 to the price of all features.

    The budgets are equally spaced; only the last spacing may be smaller. The spacing is the smallest multiple of the
    smallest positive price that gives at most `MOST_BUDGETS` budgets above 0.

    Parameters
    ----------
    prices : (M,) float64

    """
    total, smallest = float(prices.sum()), float(prices[prices > 0].min())
    step = smallest * np.ceil(total / (smallest * MOST_BUDGETS))
    found = step * np.arange(np.floor(total / step) + 1)
    found = found if np.isclose(found[-1], total) else np.append(found, total)
    found[-1] = total
    return found


def rounds_within_budgets(budgets: Floats, spent: Floats) -> Ints:
    """Return the largest t whose total cost is within the budget, for each patient and budget, (B, C).

    Parameters
    ----------
    budgets : (C,) float64
    spent : (B, M + 1) float64

    """
    slack = 1e-9 * budgets[-1]  # rounding errors depend on the order of summation
    return np.stack([(spent <= budget + slack).sum(axis=1) - 1 for budget in budgets], axis=1)


def ends(away: Bools, certified: Bools) -> tuple[dict[str, tuple[Floats, Floats]], dict[str, Floats]]:
    """Return `parts` and `needed` of a `Walk` for the criteria `settled` and `certified`.

    An answer is settled when it no longer changes, and certified when it is certain.

    Parameters
    ----------
    away : (B, M + 1) bool, True where the answer differs from the final answer
    certified : (B, M + 1) bool, True where the answer is certain

    """
    each = np.ones((len(away), 1))
    settled = np.cumsum(away[:, ::-1], axis=1)[:, ::-1] == 0
    parts = {"settled": (settled.astype(np.float64), each), "certified": (certified.astype(np.float64), each)}
    return parts, {"settled": rounds_until(away), "certified": rounds_until(~certified)}


def rounds_until(missing: Bools) -> Floats:
    """Return the position after the last True in each row of `missing`, (B,).

    If a row contains no True, the position is 0. If the last entry of a row is True, the position is inf.

    Parameters
    ----------
    missing : (B, M + 1) bool

    """
    until: Floats = (missing.shape[1] - first_where(missing[:, ::-1])).astype(np.float64)
    until[missing[:, -1]] = np.inf
    return until


def _share_part(share: Floats) -> tuple[Floats, Floats]:
    """Return two arrays: the values of a metric, (B, T), as multiples of 1 / `UNIT`, and the patients' weights, (B, 1).

    The weight of a patient is 0 if the metric is undefined (NaN) for this patient, else 1.
    """
    units: Floats = np.rint(np.nan_to_num(share) * UNIT)
    counts: Floats = 1.0 - np.isnan(share[:, :1])
    return units, counts
