"""Patients followed under one way of choosing features in the binary setting: does one entity hold?

The numbers are those of a `BinaryPlanner` that is asked and told until everything has been measured: by the compiled
engine, or by the planner itself where there are costs to weigh. Random orders look at no costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.closure import Coupling, contrast
from afa.engine.compile import in_threads
from afa.engine.tasks import METHODS, TASK_BRACKETS, Task, TaskPaths, follow_gain, follow_orders, task_of
from afa.errors import ConfigError, Fault
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.orders import random_order
from afa.planner import BinaryPlanner
from afa.stages.simulate.walks import DRAWN, Walk, Way, rounds_until, spent_until

BINARY_RULES = ("greedy", "largest_unary", *DRAWN)
"""With one duel there is nothing to allocate: every rule that weighs duels chooses as `greedy` does."""

SCORES = METHODS
CERTIFIED = TASK_BRACKETS.index("l1_tight")


class Shown(NamedTuple):
    """A block of patients, the sign of S at full observation and of the label, 0 where there is none."""

    names: Sequence[str]
    values: NDArray[np.int8]
    winner: NDArray[np.int8]
    label: NDArray[np.int8]


class BinaryPaths(NamedTuple):
    """B patients: orders (B, M), meant where they are drawn or have costs; scores and certificates (B, M + 1)."""

    order: NDArray[np.int64]
    scores: Floats
    certified: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class BinaryTask:
    """One entity of a bundle as a task of P patients, labels (P,) in {0, 1, NaN}.

    coupling : of its two classes (`afa.closure`).
    prices : (M,) what features cost, None where they all cost the same or costs are left aside.
    majority : the constant answers that are right of most patients, against full observation and against labels.
    """

    bundle: Bundle
    entity: str
    task: Task
    labels: Floats
    prices: Floats | None
    solver: Solver
    threads: int
    coupling: Coupling
    majority: tuple[int, int]

    @classmethod
    def of(
        cls,
        bundle: Bundle,
        values: NDArray[np.int8],
        labels: Floats,
        blocks: Sequence[slice],
        *,
        entity: str,
        prices: Floats | None,
        solver: Solver,
        threads: int,
        coupling: Coupling = "differential",
    ) -> BinaryTask:
        """Lay out the task, and look at all patients once, block by block."""
        laid_out = task_of(bundle, entity, solver=solver, coupling=coupling)
        task = cls(bundle, entity, laid_out, labels, prices, solver, threads, coupling, (1, 1))
        signs = [task.look([], values[rows], rows) for rows in blocks]
        sums = (sum(int(seen.winner.sum(dtype=int)) for seen in signs), sum(int(seen.label.sum()) for seen in signs))
        majority = (1 if sums[0] >= 0 else -1, 1 if sums[1] >= 0 else -1)
        return replace(task, majority=majority)

    def look(self, names: Sequence[str], values: NDArray[np.int8], rows: slice) -> Shown:
        """A block of patients, values (B, M)."""
        mrf = contrast(self.bundle.mrf(self.entity), self.coupling)
        score = np.array([mrf.energy(profile) for profile in values])
        winner = np.sign(np.where(np.abs(score) <= 2 * self.task.tie, 0.0, score)).astype(np.int8)
        label = np.nan_to_num(2 * self.labels[rows] - 1).astype(np.int8)
        return Shown(names, values, winner, label)

    def constant(self, seen: Shown) -> Walk:
        """What the more frequent answer has right."""
        return Walk(
            {
                metric: ((target == answer)[:, None].astype(np.float64), (target != 0).astype(np.float64))
                for metric, target, answer in zip(
                    ("sign_accuracy", "label_accuracy"), (seen.winner, seen.label), self.majority, strict=True
                )
                if metric == "sign_accuracy" or self.has_labels
            },
            {},
            {},
        )

    @property
    def has_labels(self) -> bool:
        return bool((~np.isnan(self.labels)).any())

    def walk(self, seen: Shown, way: Way, seed: int, tick: Callable[[int], None]) -> Walk:
        """Follow a block of patients to the end; `tick` is told how many are done."""
        priced = self.prices is not None and way.allocation not in DRAWN
        paths = self._planned(seen, way, tick) if priced else self._compiled(seen, way, seed)
        if not priced:
            tick(len(seen.names))
        signs, certified = np.sign(paths.scores).astype(np.int8), paths.certified
        away = signs != signs[:, -1:]
        settled = np.cumsum(away[:, ::-1], axis=1)[:, ::-1] == 0
        each = np.ones(len(signs))
        parts = {
            "sign_accuracy": _right(signs, seen.winner, seen.winner != 0),
            "settled": (settled.astype(np.float64), each),
            "certified": (certified.astype(np.float64), each),
        }
        if self.has_labels:
            parts["label_accuracy"] = _right(signs, seen.label, seen.label != 0)
            parts["label_sensitivity"] = _right(signs, seen.label, seen.label > 0)
            parts["label_specificity"] = _right(signs, seen.label, seen.label < 0)
        needed = {"settled": rounds_until(away), "certified": rounds_until(~certified)}
        return Walk(parts, needed, spent_until(needed, paths.order, self.prices), paths.scores)

    def _compiled(self, seen: Shown, way: Way, seed: int) -> BinaryPaths:
        parts: dict[int, TaskPaths] = {}
        orders = self._orders(seen.names, way, seed)

        def work(first: int, last: int) -> None:
            values = seen.values[first:last]
            if way.allocation in DRAWN:
                parts[first] = follow_orders(self.task, values, orders[first:last, None])
            else:
                gain, target = way.gain or "wald_magnitude", way.score if way.gain == "f_target" else None
                parts[first] = follow_gain(self.task, values, gain=gain, target=target)

        in_threads(work, len(seen.names), self.threads)
        joined, last_round = [parts[first] for first in sorted(parts)], len(self.bundle.features)
        rounds = np.concatenate([part.t[:, 0] for part in joined])
        steps = np.concatenate([getattr(part, way.score)[:, 0] for part in joined])
        called = np.concatenate([part.calls[:, 0, :, CERTIFIED] != 0 for part in joined])
        return BinaryPaths(orders, _by_round(rounds, steps, last_round), _by_round(rounds, called, last_round))

    def _planned(self, seen: Shown, way: Way, tick: Callable[[int], None]) -> BinaryPaths:
        features = {name: j for j, name in enumerate(self.bundle.features)}
        shape = len(seen.names), len(features)
        order, scores = np.zeros(shape, dtype=np.int64), np.zeros((shape[0], shape[1] + 1))
        certified = np.zeros(scores.shape, dtype=np.bool_)
        options = {"score": way.score, "gain": way.gain or "wald_magnitude", "allocation": way.allocation}
        for patient, values in enumerate(seen.values):
            planner = BinaryPlanner(
                self.bundle,
                entity=self.entity,
                solver=self.solver,
                coupling=self.coupling,
                **options,  # type: ignore[arg-type]
            )
            for t in range(scores.shape[1]):
                scores[patient, t], certified[patient, t] = planner.score(), planner.resolved()
                if (feature := planner.next_feature()) is not None:
                    order[patient, t] = features[feature]
                    planner.observe(feature, int(values[features[feature]]))
            tick(1)
        return BinaryPaths(order, scores, certified)

    def _orders(self, names: Sequence[str], way: Way, seed: int) -> NDArray[np.int64]:
        """(B, M) random orders; under `random_own` the entity's own features come first, in the same order."""
        features = self.bundle.features
        orders = np.array([random_order(features, patient=name, seed=seed) for name in names])
        if way.allocation == "random_own":
            own = np.isin(np.arange(len(features)), self.bundle.support(self.entity))
            orders = np.take_along_axis(orders, np.argsort(~own[orders], axis=1, kind="stable"), axis=1)
        return orders


def check_binary(way: Way) -> None:
    """A `ConfigError` where the binary setting has no such way."""
    if way.allocation not in BINARY_RULES:
        expected, step = f"with --entity one of {', '.join(BINARY_RULES)}", "greedy stands for the others"
        raise ConfigError(Fault("--allocation", repr(way.allocation), expected, step))
    if way.score not in SCORES:
        raise ConfigError(
            Fault("--score", repr(way.score), f"with --entity {', '.join(SCORES)}", "choose one of these")
        )
    if way.gain == "f_target" and way.score == "wald":
        raise ConfigError(Fault("--gain", "f_target of wald", "a score that expects something", "choose another score"))


def _by_round(rounds: NDArray[np.int32], steps: NDArray, last_round: int) -> NDArray:  # type: ignore[type-arg]
    """(B, M + 1) what holds after t observations, from values (B, s + 1) by step made at `rounds`."""
    step = (rounds[:, :, None] <= np.arange(last_round + 1)).sum(axis=1) - 1
    return np.take_along_axis(steps, step, axis=1)


def _right(signs: NDArray[np.int8], target: NDArray[np.int8], among: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Decisions (B, M + 1) that are right, 0 one half (decisions.md S5), of patients with a target."""
    credit: Floats = 0.5 * (1 + signs * target[:, None]).astype(np.float64) * among[:, None]
    return credit, among.astype(np.float64)
