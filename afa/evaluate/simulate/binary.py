"""Simulate patients under one strategy for the binary question: does the patient have one given entity?

Simulated decisions equal the decisions of a `BinaryPlanner`. Most decisions are computed by the compiled engine, which
is faster than the planner. The engine does not support costs, measurements of several features, exclusive groups and
tau: for these, the planner is used. Random orders ignore costs. Features that were not measured in a patient are never
chosen (docs/decisions.md, F8). The decision about a patient is the sign of the calibrated log-odds, as in
`BinaryPlanner.decision`. An early decision counts as correct if it equals the decision based on all measured values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from afa.engine.paths import task_stopping_quantities
from afa.engine.run import MISSING
from afa.engine.tasks import (
    TASK_BRACKETS,
    TASK_SCORES,
    ClassTask,
    elbo_differences,
    follow_gain,
    follow_orders,
    task_of,
)
from afa.errors import ConfigError, Fault
from afa.evaluate.accuracy import right_of
from afa.evaluate.simulate.walks import (
    RANDOM_RULES,
    SimulationTask,
    Strategy,
    Walk,
    ends,
    informed,
    measured_first,
    planned,
    prices_of,
    spent_along,
    weighs_items,
    with_costs,
)
from afa.model.arrays import Bools, Codes, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.orders import random_orders
from afa.model.rule_names import COMPARED_BINARY
from afa.planner import BinaryPlanner
from afa.planner.options import BACKGROUND, FRONTIER, INFORMATION

DECISION_SCORE = "two_elbo"
"""The decision is the calibrated sign of this score. Other scores are used only by the gain `f_target`."""

CERTIFIED = TASK_BRACKETS.index("l1_tight")


class BinaryBlock(NamedTuple):
    """Store a block of B patients for the binary question.

    The attribute `targets` maps each metric to the correct decision about each patient, (B, 1): +1, -1, or 0 if no
    decision is correct.

    Attributes
    ----------
    values : (B, M) int8, -1, 0, +1 or `MISSING`

    """

    names: Sequence[str]
    values: Codes
    targets: Mapping[str, Codes]


BinaryPaths = tuple[Ints, Floats, Bools]
"""Orders (B, M), scores (B, M + 1) and certificates (B, M + 1)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class BinaryTask(SimulationTask):
    """Define the binary question: decide for each of P patients whether the patient has a given entity.

    The attribute `labels` has the shape (P,).
    """

    @property
    def entity(self) -> str:
        """Return the name of the entity in question."""
        return str(self.setting.entity)

    @cached_property
    def task(self) -> ClassTask | None:
        """Return the task for the compiled engine, or None if only the planner supports the task."""
        coupling, tau = self.setting.coupling or "differential", self.setting.tau
        if self.setting.explicit and (bool(self.bundle.exclusive) or tau not in (None, 1.0)):
            return None
        return task_of(self.bundle, self.entity, solver=self.setting.solver, coupling=coupling)

    @property
    def has_labels(self) -> bool:
        """Return True if the label of the entity is known for any patient."""
        return bool((~np.isnan(self.labels)).any())

    @cached_property
    def targets(self) -> Mapping[str, Codes]:
        """Return a mapping from each metric to the correct decision about each patient, (P,): +1, -1 or 0.

        The decision +1 means that the patient has the entity, and -1 that the patient does not have the entity.

        For `sign_accuracy`, the correct decision is the decision based on all measured values; it is 0 if there is a
        tie. For `label_accuracy`, the correct decision is given by the patient's label; it is 0 if the label is
        unknown.
        """
        label = np.nan_to_num(2 * self.labels - 1).astype(np.int8)
        return {
            "sign_accuracy": self._fully_informed_decisions(),
            **({"label_accuracy": label} if self.has_labels else {}),
        }

    def block(self, rows: slice) -> BinaryBlock:
        """Return the patients in the given rows, with their targets."""
        targets = {metric: target[rows, None] for metric, target in self.targets.items()}
        return BinaryBlock(self.patients[rows], self.values[rows], targets)

    def _fully_informed_decisions(self) -> Codes:
        """Return the decisions based on all measured values, (P,): +1, -1, or 0 for a tie.

        If the bundle has no probabilities, a feature that was not measured counts as 0.
        """
        values, setting = self.values, self.setting
        if self.task is None:
            way = Strategy("random", "", "two_elbo")
            return np.array([informed(self._strategy_planner(way), row).decision() for row in values], dtype=np.int8)
        if isinstance(self.task.bundle, Bundle):
            known = np.where(values == MISSING, 0, values)
            one, zero = (self.task.bundle.mrf(name).energies(known) for name in self.task.bundle.entities)
            odds = one - zero - self.task.shift
        else:
            options: dict[str, Any] = {"solver": setting.solver, "threads": setting.threads, "coupling": "explicit"}
            odds = elbo_differences(self.bundle, self.entity, values != MISSING, values, **options).calibrated
        return np.sign(np.where(np.abs(odds) <= 2 * self.task.tie, 0.0, odds)).astype(np.int8)

    def constant(self, block: BinaryBlock) -> Walk:
        """Return the accuracy if every patient gets the same answer: the answer that is right for more patients."""
        parts = {}
        for metric, target in block.targets.items():
            usual = np.int8(1 if self.targets[metric].sum(dtype=int) >= 0 else -1)
            parts[metric] = right_of(np.full((*target.shape, 1), usual), target, target != 0)
        return Walk(parts, {})

    def walk(self, block: BinaryBlock, way: Strategy, seed: int, tick: Callable[[int], None]) -> Walk:
        """Simulate feature acquisition for a block of patients until all values in the data have been acquired."""
        by_planner = INFORMATION in way or FRONTIER in way or weighs_items(self.bundle, way, self.setting)
        if self.task is None or by_planner:
            order, scores, certified = self._paths_by_planners(block, way, seed, tick)
        else:
            order, scores, certified = self._paths_by_engine(self.task, block, way, seed)
            tick(len(block.names))
        signs, winner = np.sign(scores).astype(np.int8), block.targets["sign_accuracy"]
        if way.score == BACKGROUND:  # with a background, the planner's decision is the sign of S
            winner = signs[:, -1:]
        ended, needed = ends(signs != signs[:, -1:], certified)
        parts = {"sign_accuracy": right_of(signs[:, None], winner, winner != 0), **ended}
        if self.has_labels:
            label = block.targets["label_accuracy"]
            parts["label_accuracy"] = right_of(signs[:, None], label, label != 0)
            parts["label_sensitivity"] = right_of(signs[:, None], label, label > 0)
            parts["label_specificity"] = right_of(signs[:, None], label, label < 0)
        spent = spent_along(order, prices_of(self.bundle, self.setting))
        return Walk(parts, with_costs(needed, spent), scores, spent)

    def _paths_by_engine(self, task: ClassTask, block: BinaryBlock, way: Strategy, seed: int) -> BinaryPaths:
        orders, drawn = self._random_feature_orders(block, way, seed), way.allocation in RANDOM_RULES
        gain, target = way.gain or "wald_magnitude", way.score if way.gain == "f_target" else None
        if not self.setting.explicit:
            given = orders if drawn else None
            found = task_stopping_quantities(
                task, block.values, given, gain=gain, target=target, threads=self.setting.threads
            )
            return orders, found.log_odds, found.certain
        if drawn:
            paths = follow_orders(task, block.values, orders[:, None], threads=self.setting.threads)
        else:
            paths = follow_gain(task, block.values, gain=gain, threads=self.setting.threads)
        every = np.arange(len(self.bundle.features) + 1)
        step = (paths.t[:, 0, :, None] <= every).sum(axis=1) - 1  # index of the last step up to t
        called = paths.calls[:, 0, :, CERTIFIED] != 0
        scores = np.take_along_axis(getattr(paths, way.score)[:, 0], step, axis=1)
        return orders, scores, np.take_along_axis(called, step, axis=1)

    def _paths_by_planners(
        self, block: BinaryBlock, way: Strategy, seed: int, tick: Callable[[int], None]
    ) -> BinaryPaths:
        orders = self._random_feature_orders(block, way, seed) if way.allocation in RANDOM_RULES else None

        def read(planner: BinaryPlanner, _: int) -> tuple[Any, ...]:
            if self.setting.explicit:
                return planner.score(), planner.resolved()
            if way.score == BACKGROUND:
                return planner.score() if planner.decision() else 0.0, planner.resolved()
            return planner.log_odds() if planner.decision() else 0.0, planner.resolved()

        planners = (self._strategy_planner(way, name) for name in block.names)
        order, scores, certified = planned(planners, block.values, read, orders, tick)
        return order[:, 1:], scores, certified

    def _strategy_planner(self, way: Strategy, patient: str = "") -> BinaryPlanner:
        """Return a planner with the rule, gain and score of a strategy.

        Raise a `PlannerError` if the options are invalid.
        """
        background = self.setting.background
        return BinaryPlanner(
            self.bundle,
            entity=self.entity,
            score=way.score,
            gain=way.gain or "wald_magnitude",
            allocation="greedy" if way.allocation in RANDOM_RULES else way.allocation,
            solver=self.setting.solver,
            costs="equal" if prices_of(self.bundle, self.setting) is None else None,
            coupling=self.setting.coupling,
            tau=self.setting.tau,
            background=background(patient) if background is not None and way.score == BACKGROUND else None,
        )

    def check(self, way: Strategy) -> None:
        """Raise a `ConfigError` or a `PlannerError` if the strategy cannot be used for the binary question."""
        explicit = self.setting.explicit
        known = (*COMPARED_BINARY, INFORMATION, FRONTIER)
        if way.allocation not in known:
            expected, step = f"with --entity one of {', '.join(known)}", "greedy stands for the others"
            raise ConfigError(Fault("--allocation", repr(way.allocation), expected, step))
        scores = TASK_SCORES if way.gain == "f_target" or explicit else (DECISION_SCORE,)
        scores = (BACKGROUND,) if way.allocation == FRONTIER else scores
        if way.score not in scores:
            expected = f"with --entity {' or '.join(scores)}"
            raise ConfigError(Fault("--score", repr(way.score), expected, "leave it out, or choose one of these"))
        if way.gain == "f_target" and way.score == "wald":
            raise ConfigError(Fault("--gain", "f_target of wald", "a score that expects something", "choose another"))
        if self.setting.holds is not None:
            found, expected = repr(self.setting.holds), "none where one entity is asked for"
            raise ConfigError(Fault("holds", found, expected, "leave it out"))
        if explicit or self.setting.tau is not None or INFORMATION in way or FRONTIER in way:
            self._strategy_planner(way)

    def _random_feature_orders(self, block: BinaryBlock, way: Strategy, seed: int) -> Ints:
        """Return random orders of the features, (B, M).

        With `random_own`, the features of the entity precede all other features.
        """
        features = self.bundle.features
        orders = random_orders(features, block.names, [seed])[:, 0]
        if way.allocation == "random_own":
            own = np.isin(np.arange(len(features)), self.bundle.support(self.entity))
            orders = np.take_along_axis(orders, np.argsort(~own[orders], axis=1, kind="stable"), axis=1)
        return measured_first(orders, block.values)
