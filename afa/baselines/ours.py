"""Our planner on the same patients and rounds: along its own order, and along the one that a language model observed.

Along its own order it is compared as a whole; along the model's, what it makes of the same observations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.baselines.protocol import BINARY, TOP_K
from afa.bundle import Bundle
from afa.closure import closed_bundle
from afa.engine.rounds import READOUTS, RulePaths, Truth, follow_rule, full_observation
from afa.engine.tasks import METHODS, Task, follow_orders, task_of
from afa.inference.meanfield import Solver
from afa.planner import ALL_DUELS_UP_TO
from afa.stages.allocation.tables import Targets

GAIN = "cmi"
BINARY_RULE = "greedy"
Orders = NDArray[np.int64]
KEYS = ["method", "task", "evidence", "entity", "patient", "t"]
READOUT_COLUMNS = [*KEYS, "decided", "decision", "p_at_k", "clinical_p_at_k"]


def top_k_rule(bundle: Bundle) -> str:
    """The rule of `TopKPlanner` unless another is given."""
    return "priority_all" if len(bundle.entities) <= ALL_DUELS_UP_TO else "priority_clusters"


@dataclass(frozen=True, eq=False)
class OneTask:
    """One entity as a binary task, P patients, values (P, M). order : (P, M) as `greedy` chooses by `cmi`."""

    entity: str
    task: Task
    values: NDArray[np.int8]
    order: Orders

    @classmethod
    def of(cls, bundle: Bundle, entity: str, values: NDArray[np.int8], solver: Solver, threads: int | None) -> OneTask:
        closed = closed_bundle(bundle, entity)
        truth = full_observation(closed, values, solver=solver)
        paths = follow_rule(
            closed, values, truth, allocation=BINARY_RULE, gain=GAIN, k=1, solver=solver, threads=threads
        )
        return cls(entity, task_of(bundle, entity, solver=solver), values, paths.order)

    def readouts(self, patients: Sequence[str], orders: Orders, rounds: Sequence[int], evidence: str) -> pd.DataFrame:
        """The sign of every score along some orders, 0 a tie, with the columns of `READOUT_COLUMNS`."""
        paths = follow_orders(self.task, self.values, orders[:, None, :])
        steps = np.array([np.searchsorted(t, rounds, side="right") - 1 for t in paths.t[:, 0]])
        parts = []
        for method in METHODS:
            scores = np.take_along_axis(getattr(paths, method)[:, 0], steps, axis=1)
            grid = _grid(method, BINARY, evidence, self.entity, patients, rounds)
            parts.append(grid.assign(decision=np.sign(scores).astype(int).ravel()))
        return pd.concat(parts, ignore_index=True)


@dataclass(frozen=True, eq=False)
class TopK:
    """The top-k setting of P patients, values (P, M). order : (P, M) as `TopKPlanner` chooses unless told another."""

    bundle: Bundle
    values: NDArray[np.int8]
    truth: Truth
    targets: Targets
    own: RulePaths
    solver: Solver
    threads: int | None

    @classmethod
    def of(
        cls,
        bundle: Bundle,
        values: NDArray[np.int8],
        labels: NDArray[np.float64],
        k_clinical: int,
        *,
        k: int,
        solver: Solver,
        threads: int | None,
    ) -> TopK:
        """The planner before these patients; labels : (P, N), 0, 1 or NaN."""
        truth = full_observation(bundle, values, solver=solver)
        rule = top_k_rule(bundle)
        own = follow_rule(bundle, values, truth, allocation=rule, gain=GAIN, k=k, solver=solver, threads=threads)
        return cls(bundle, values, truth, Targets.of(truth, labels, k, k_clinical), own, solver, threads)

    def readouts(
        self,
        patients: Sequence[str],
        orders: Orders | None,
        rounds: Sequence[int],
        evidence: str,
        *,
        observed: NDArray[np.int64] | None = None,
    ) -> pd.DataFrame:
        """The precisions of every score along some orders, the planner's own where None.

        observed : (P,) features that a patient's order really has; what is then known holds for all later rounds.
        """
        paths = self.own
        if orders is not None:
            paths = follow_rule(
                self.bundle,
                self.values,
                self.truth,
                allocation="random",
                orders=orders,
                k=self.targets.k,
                solver=self.solver,
                threads=self.threads,
            )
        most = np.full(len(patients), self.values.shape[1]) if observed is None else observed
        seen = np.minimum(np.array(rounds)[None, :], most[:, None])
        parts = []
        for i, method in enumerate(READOUTS):
            place = np.take_along_axis(paths.record.place[:, :, i], seen[:, :, None], axis=1)
            grid = _grid(method, TOP_K, evidence, "", patients, rounds)
            parts.append(grid.assign(**self.precisions(place)))
        return pd.concat(parts, ignore_index=True)

    def precisions(self, place: NDArray[np.int16]) -> Mapping[str, NDArray[np.float64]]:
        """`p_at_k` and `clinical_p_at_k` of rankings (P, T, N), patient by patient; NaN without a positive label."""
        made = self.targets.precisions(place, self.threads)
        return {name: made[name].ravel() for name in ("p_at_k", "clinical_p_at_k")}


def _grid(
    method: str, task: str, evidence: str, entity: str, patients: Sequence[str], rounds: Sequence[int]
) -> pd.DataFrame:
    """A row per patient and round, with no number yet."""
    table = pd.DataFrame({"patient": np.repeat(list(patients), len(rounds)), "t": np.tile(list(rounds), len(patients))})
    table = table.assign(method=method, task=task, evidence=evidence, entity=entity, decided=True)
    return table.reindex(columns=READOUT_COLUMNS)
