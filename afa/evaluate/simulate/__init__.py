"""Simulate acquisition on measured patients: how many features does each strategy need to reach its final answer?

Patients are simulated in blocks to limit memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.cohort.cohort import Cohort
from afa.engine.run import MISSING
from afa.errors import BundleError, Fault
from afa.evaluate.accuracy import UNIT, Resampled, areas_of, share_of
from afa.evaluate.frames import check_encoding, check_possible
from afa.evaluate.inputs import label_matrix
from afa.evaluate.resampling import with_interval
from afa.evaluate.simulate.binary import DECISION_SCORE, BinaryTask
from afa.evaluate.simulate.walks import (
    CHOOSES_WITHOUT_GAIN,
    IN_UNITS,
    RANDOM_RULES,
    SimulationSetting,
    Strategy,
    TopKTask,
    Walk,
    budgets_of,
    prices_of,
    rounds_within_budgets,
)
from afa.model.arrays import Bools, Floats
from afa.model.bundle import Bundle
from afa.model.orders import random_order
from afa.model.rule_names import COMPARED_BINARY, DEFAULT_COMPARED_RULES
from afa.planner import BinaryPlanner, Planner, TopKPlanner
from afa.planner.options import BACKGROUND, FRONTIER, INFORMATION, gauge_of


class Simulation(NamedTuple):
    """Store the two tables of a simulation.

    The functions `curves` and `features_needed` describe the columns of the two tables.
    """

    curves: pd.DataFrame
    features_needed: pd.DataFrame


def strategies_of(allocations: Sequence[str], gains: Sequence[str], scores: Sequence[str]) -> list[Strategy]:
    """Return all combinations of a rule, a gain and a score. Rules that use no gain are combined only with scores.

    The gain `information` applies to entities, and all other gains apply to duels (comparisons of two entities). The
    rule `information` uses only the gain `information`, and no other rule uses this gain.
    """
    duels = tuple(gain for gain in gains if gain != INFORMATION)
    by_entity = [INFORMATION] if INFORMATION in gains and INFORMATION not in allocations else []
    gains_of: dict[str, tuple[str, ...]] = {rule: duels or tuple(gains) for rule in allocations}
    gains_of |= {rule: ("",) for rule in allocations if rule in CHOOSES_WITHOUT_GAIN}
    gains_of[INFORMATION] = (INFORMATION,)
    rules = [*by_entity, *allocations]
    return [Strategy(rule, gain, score) for score, rule in product(scores, rules) for gain in gains_of[rule]]


def default_strategy(bundle: Bundle, setting: SimulationSetting, **given: str | None) -> Strategy:
    """Return the rule, gain and score that a planner uses for this bundle and question.

    Parameters
    ----------
    given : the planner's options `allocation`, `gain` and `score`; a planner decides those that are None or missing

    """
    options: dict[str, Any] = {"coupling": setting.coupling, "tau": setting.tau, **given}
    if setting.background is not None and not given.get("allocation"):
        options["background"] = setting.background("")
    planner: Planner
    if setting.entity is not None:
        chosen = {name: value for name, value in options.items() if value is not None}
        planner = BinaryPlanner(bundle, entity=setting.entity, **chosen)
    else:
        planner = TopKPlanner(bundle, k=setting.k, holds=setting.holds, **options)
    rule = str(planner.settings["allocation"])
    return Strategy(rule, "" if rule in CHOOSES_WITHOUT_GAIN else planner.gain, planner.guide)


def compared_strategies(
    bundle: Bundle,
    setting: SimulationSetting,
    rules: Sequence[str] = (),
    gains: Sequence[str] = (),
    scores: Sequence[str] = (),
) -> list[Strategy]:
    """Return the strategies (rule, gain and score) to compare.

    For rules, gains or scores that are not given, a planner's defaults are used.

    If no rules are given, the first strategy is the default strategy of a planner (`default_strategy`), and the others
    are simpler rules and random orders.
    """
    first = rules[0] if rules and setting.entity is None and ":" not in rules[0] else None
    gain = gains[0] if gains and not rules else None
    usual = default_strategy(bundle, setting, allocation=first, gain=gain, score=scores[0] if scores else None)
    if not rules:
        rules = [usual.allocation, *(DEFAULT_COMPARED_RULES if setting.entity is None else COMPARED_BINARY)]
        if set(gains) == {INFORMATION}:
            rules = [rule for rule in rules if rule in (INFORMATION, *CHOOSES_WITHOUT_GAIN)]
    duels = [usual.gain] if usual.gain else []
    gains = gains or list(dict.fromkeys([*duels, "cmi"]))
    if setting.entity is None:
        return strategies_of(list(dict.fromkeys(rules)), gains, scores or [usual.score])
    others = DECISION_SCORE if usual.score == BACKGROUND else usual.score
    ways = strategies_of(list(dict.fromkeys(rules)), gains, scores or [others])
    return [way._replace(score=BACKGROUND) if way.allocation == FRONTIER else way for way in ways]


def runs_of(ways: Sequence[Strategy], seeds: Sequence[int]) -> list[tuple[Strategy, int]]:
    """Return pairs of a strategy and a seed.

    A strategy with random orders has one run for each seed; any other strategy has one run.
    """
    return [
        (way, seed) for way in dict.fromkeys(ways) for seed in (seeds if way.allocation in RANDOM_RULES else seeds[:1])
    ]


def some_patients(cohort: Cohort, n: int | None, seed: int) -> Cohort:
    """Return the cohort, or a sample of n of its patients that depends only on the patients' names and the seed."""
    if n is None or n >= len(cohort.patients):
        return cohort
    drawn = sorted(random_order(cohort.patients, patient="", seed=seed, experiment="simulate")[:n].tolist())
    names = tuple(cohort.patients[i] for i in drawn)
    return replace(cohort, patients=names, values=cohort.values[drawn], labels=cohort.labels.iloc[drawn])


def simulate_strategies(
    bundle: Bundle,
    cohort: Cohort,
    ways: Sequence[Strategy],
    setting: SimulationSetting,
    *,
    measured: Bools | None = None,
    tick: Callable[[int], None] = lambda _: None,
) -> Simulation:
    """Simulate feature acquisition for all patients of a cohort under each strategy.

    The result does not depend on the number of threads.

    The question is which k entities are the best or, if the setting names an entity, whether the patient has this
    entity.

    Parameters
    ----------
    measured : (P, M) bool, True where a value was measured. By default, all values count as measured
    tick : function that is called with the number of newly finished walks. A walk is the simulation of one patient
        under one strategy

    Raises
    ------
    BundleError : the bundle has fewer than two entities for the top k, or lacks the entity.
    PlannerError : no planner accepts k, the score, the gain or the rule.
    ConfigError : a strategy cannot be used for the binary question.
    CohortError : the probabilities of the bundle belong to another encoding.

    """
    entity, setting = setting.entity, replace(setting, coupling=gauge_of(bundle, setting.coupling))
    if setting.explicit:
        check_encoding(bundle, cohort)
    elif entity is None:
        bundle = bundle.contrasts()
    values = cohort.values if measured is None else np.where(measured, cohort.values, np.int8(MISSING))
    check_possible(bundle, cohort.patients, values, f"cohort {cohort.name}")
    n_patients, labels = len(cohort.patients), label_matrix(bundle, cohort)
    asked = np.full(n_patients, np.nan) if entity is None else labels[:, bundle.index(entity)]
    if entity is None and len(bundle.entities) < 2:
        step = "add entities, or ask for the one with --entity"
        raise BundleError(Fault(f"bundle {bundle.name}", "one entity", "two or more, to have a top k", step))
    given: dict[str, Any] = {"bundle": bundle, "patients": cohort.patients, "values": values, "setting": setting}
    task = TopKTask(**given, labels=labels) if entity is None else BinaryTask(**given, labels=asked)
    for way in ways:
        task.check(way)
    resamples, confidence = setting.resamples, setting.confidence
    weights = Resampled.of(cohort.patients, resamples=resamples, confidence=confidence, purpose="simulate").every
    prices = prices_of(bundle, setting)
    budgets = None if prices is None else budgets_of(prices)
    sums = {way: Sums(budgets) for way in (*ways, CONSTANT_STRATEGY)}
    for rows in task.blocks:
        block: Any = task.block(rows)
        for way, seed in runs_of(ways, setting.seeds):
            sums[way].add(task.walk(block, way, seed, tick), weights[:, rows], seed)
        sums[CONSTANT_STRATEGY].add(task.constant(block), weights[:, rows])
    axes: dict[str, NDArray[Any]] = {COUNT_FEATURES: np.arange(len(bundle.features) + 1)}
    if budgets is not None:
        axes[COUNT_COST] = budgets
    return Simulation(curves(sums, weights, asked, axes, confidence), features_needed(sums))


COUNT_FEATURES, COUNT_COST = "features", "cost"
CURVE_COLUMNS = ("allocation", "gain", "score", "counted", "t", "metric", "value", "low", "high", "n")
QUANTILES = {"q25": 0.25, "median": 0.5, "q75": 0.75, "p90": 0.9}
NEEDED_COLUMNS = ("allocation", "gain", "score", "criterion", "counted", *QUANTILES, "never", "n", "left_out")
CONSTANT_STRATEGY = Strategy("constant", "", "")


@dataclass
class Sums:
    """Store, for one strategy and all its seeds, results summed over blocks of patients.

    The number T of columns is M + 1 if `counted` is `features`, and C if `counted` is `cost`. In `right` and `total`,
    row 0 contains the sums without resampling, in which every patient counts once.

    Attributes
    ----------
    budgets : (C,) float64, costs at which accuracy is computed, or None if all costs are equal
    right : (counted, metric) -> (R + 1, T) float64, weighted sums over patients
    total : (counted, metric) -> (R + 1, T) or (R + 1, 1) float64, weighted numbers of decisions
    needed : (criterion, counted) -> one array for each block and seed
    scores : (counted, seed) -> one array (B, T) for each block

    """

    budgets: Floats | None = None
    right: dict[tuple[str, str], Any] = field(default_factory=lambda: defaultdict(float))
    total: dict[tuple[str, str], Any] = field(default_factory=lambda: defaultdict(float))
    needed: dict[tuple[str, str], list[Floats]] = field(default_factory=lambda: defaultdict(list))
    scores: dict[tuple[str, int], list[Floats]] = field(default_factory=lambda: defaultdict(list))

    def add(self, walk: Walk, weights: Floats, seed: int = 0) -> None:
        """Add the results of a block of B patients, with their resampling weights (R + 1, B).

        The resampling weights are whole numbers, so that sums are exact.

        Parameters
        ----------
        weights : (R + 1, B) float64, how often each resample contains each patient; row 0 contains ones

        """
        last = None if self.budgets is None or walk.spent is None else rounds_within_budgets(self.budgets, walk.spent)

        def by(counted: str, numbers: Floats) -> Floats:
            """Return an array, (B, T), with one column for each number of features or, for `cost`, for each budget.

            The argument `numbers` contains one column for each t (number of observed features), or a single column that
            applies to all t. A single column is returned unchanged.
            """
            if counted == COUNT_FEATURES or last is None or numbers.shape[1] == 1:
                return numbers
            return np.take_along_axis(numbers, last, axis=1)

        for counted in (COUNT_FEATURES,) if self.budgets is None else (COUNT_FEATURES, COUNT_COST):
            for metric, (right, total) in walk.parts.items():
                self.right[counted, metric] += weights @ by(counted, right)
                self.total[counted, metric] += weights @ by(counted, total)
            if walk.scores is not None:
                self.scores[counted, seed].append(by(counted, walk.scores))
        for criterion, numbers in walk.needed.items():
            self.needed[criterion].append(numbers)


def curves(
    sums: Mapping[Strategy, Sums], weights: Floats, labels: Floats, axes: Mapping[str, NDArray[Any]], confidence: float
) -> pd.DataFrame:
    """Return a table of accuracies for each number of features, with the columns `CURVE_COLUMNS`.

    If costs differ, the table also contains accuracies for each cost budget.

    Parameters
    ----------
    weights : (R + 1, P) float64, the weights passed to `Sums.add`
    labels : (P,) float64, 0, 1 or NaN, compared with the scores
    axes : counted quantity -> (T,) values of the column t

    """
    tables, known = [], ~np.isnan(labels)
    for (counted, t), (way, of_way) in product(axes.items(), sums.items()):
        named = {**way._asdict(), "counted": counted, "t": t}
        for (by, metric), right in of_way.right.items():
            if by != counted:
                continue
            total = of_way.total[counted, metric]
            scale = UNIT if metric in IN_UNITS else 1
            share = np.broadcast_to(share_of(right, total * scale), (len(right), len(t)))
            table = with_interval(share, confidence=confidence)
            tables.append(table.assign(**named, metric=metric, n=int(total[0, 0])))
        of_seeds = [blocks for (by, _), blocks in of_way.scores.items() if by == counted]
        if of_seeds and known.any():
            scores = [np.concatenate(blocks)[known] for blocks in of_seeds]
            areas = np.mean([areas_of(each, labels[known] > 0, weights[:, known]) for each in scores], axis=0)
            table = with_interval(areas, confidence=confidence)
            tables.append(table.assign(**named, metric="label_auroc", n=int(known.sum()) * len(scores)))
    return pd.concat(tables, ignore_index=True)[list(CURVE_COLUMNS)]


def features_needed(sums: Mapping[Strategy, Sums]) -> pd.DataFrame:
    """Return a table of quantiles of the number of features needed to meet a criterion (columns `NEEDED_COLUMNS`).

    The quantiles are computed over all patients and seeds. If costs differ, the table also contains quantiles of the
    cost. The column `counted` states whether a row is about features or about cost. Quantiles are observed numbers and
    are not interpolated. A quantile is missing if too many patients never meet the criterion. The column `n` is the
    number of cases (pairs of a patient and a seed) for which the criterion is defined. The column `never` is the share
    of the `n` cases that never meet the criterion. The column `left_out` counts the cases for which the criterion is
    undefined.
    """
    rows = []
    for way, of_way in sums.items():
        for (criterion, counted), blocks in of_way.needed.items():
            rounds = np.concatenate(blocks)
            known = np.sort(rounds[~np.isnan(rounds)])
            row: dict[str, object] = {**way._asdict(), "criterion": criterion, "counted": counted}
            for name, share in QUANTILES.items():
                value = known[max(int(np.ceil(share * len(known))) - 1, 0)] if len(known) else np.inf
                row[name] = np.nan if np.isinf(value) else value
            row |= {"never": float(np.isinf(known).mean()) if len(known) else np.nan, "n": len(known)}
            rows.append(row | {"left_out": len(rounds) - len(known)})
    return pd.DataFrame(rows, columns=list(NEEDED_COLUMNS))
