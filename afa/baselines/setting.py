"""The patients of a protocol, and our planner before the same ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from afa.baselines.briefing import Briefing, Trial
from afa.baselines.ours import OneTask, Orders, TopK
from afa.baselines.protocol import BINARY, PLANNER, TOP_K, Protocol, random_orders
from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.inference.meanfield import Solver
from afa.stages.allocation.tables import clinical_k


@dataclass(frozen=True, eq=False)
class Setting:
    """The patients of a protocol, and our planner before them. values : (P, M). by_entity : tasks; empty without."""

    bundle: Bundle
    cohort: Cohort
    protocol: Protocol
    patients: list[str]
    values: NDArray[np.int8]
    by_entity: Mapping[str, OneTask]
    top_k: TopK | None

    @classmethod
    def of(
        cls, bundle: Bundle, cohort: Cohort, protocol: Protocol, *, solver: Solver, threads: int | None = None
    ) -> Setting:
        patients = protocol.patients_of(cohort.patients)
        rows = [cohort.patients.index(name) for name in patients]
        values = np.ascontiguousarray(cohort.values[rows])
        entities = protocol.entities_of(bundle) if BINARY in protocol.tasks else []
        top_k = None
        if TOP_K in protocol.tasks:
            clinical = clinical_k(bundle, cohort, protocol.k)
            labels = labels_of(bundle, cohort, patients)
            top_k = TopK.of(bundle, values, labels, clinical, k=protocol.k, solver=solver, threads=threads)
        by_entity = {name: OneTask.of(bundle, name, values, solver, threads) for name in entities}
        return cls(bundle, cohort, protocol, patients, values, by_entity, top_k)

    @property
    def rounds(self) -> list[int]:
        return self.protocol.rounds_of(len(self.bundle.features))

    def orders(self, task: str, entity: str) -> Orders | None:
        """(P, M) the order of ours that models observe along; None where they choose."""
        if not self.protocol.at_checkpoints:
            return None
        if self.protocol.order != PLANNER:
            return random_orders(self.bundle, self.patients, self.protocol.seed)
        if task == TOP_K:
            assert self.top_k is not None
            return self.top_k.own.order
        return self.by_entity[entity].order

    def trials(self, told: Mapping[tuple[str, str, str], Briefing]) -> list[tuple[Trial, Briefing]]:
        """Every patient before every model and task, in the order of the briefings."""
        made = []
        for (method, task, entity), briefing in told.items():
            orders = self.orders(task, entity)
            for p, patient in enumerate(self.patients):
                values = dict(zip(self.bundle.features, map(int, self.values[p]), strict=True))
                order = None if orders is None else tuple(self.bundle.features[j] for j in orders[p])
                made.append((Trial(method, task, entity, patient, values, order), briefing))
        return made


def labels_of(bundle: Bundle, cohort: Cohort, patients: Sequence[str]) -> NDArray[np.float64]:
    """(P, N) labels in bundle order, NaN where missing."""
    labels = cohort.labels.reindex(index=list(patients), columns=list(bundle.entities))
    return labels.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
