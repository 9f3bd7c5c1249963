"""Targets of the allocation grid: for every patient, the winners of duels and the top k at full observation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from afa.cohort.cohort import Cohort
from afa.engine.rounds import full_observation
from afa.evaluate.inputs import label_matrix, top_k_size
from afa.evaluate.long_tables import duel_rows, rows_of
from afa.evaluate.targets import Targets, clinical_k
from afa.inference.meanfield import Solver
from afa.model.bundle import Bundle

if TYPE_CHECKING:
    from afa.paper.experiments.settings import Inference


def run(bundle: Bundle, cohort: Cohort, *, top_k: int, inference: Inference) -> dict[str, pd.DataFrame]:
    """Return the targets of the allocation grid for all patients.

    Returns
    -------
    duels : by (patient, entity_a, entity_b). `winner` at full observation is +1 for a, -1 for b, or 0 for a tie.
        `prior_wrong` is True if `linearity` decides for the loser before any observation
    targets : by (patient, entity). `top` is 2 if the entity is certainly among the k best at full observation, 1 if it
        is tied for the last of the k places, else 0. `label` is 0, 1 or missing. `k` is the size of the top set at full
        observation, and `k_clinical` is its size by labels. Both are the same in all rows

    """
    k, solver = top_k_size(bundle, top_k), Solver(**dict(inference))
    truth = full_observation(bundle, cohort.values, solver=solver)
    labels = label_matrix(bundle, cohort)
    targets = Targets.of(truth, labels, k, clinical_k(labels, k))
    duels = duel_rows(bundle.entities, patient=cohort.patients).assign(
        winner=truth.winner.ravel(), prior_wrong=((truth.winner != 0) & (truth.prior == -truth.winner)).ravel()
    )
    table = rows_of(patient=cohort.patients, entity=bundle.entities).assign(
        top=(2 * targets.sure + targets.tied).astype(np.int8).ravel(),
        label=pd.array(targets.labels.ravel(), dtype="Float64").astype("Int8"),
        k=k,
        k_clinical=targets.k_clinical,
    )
    return {"duels": duels, "targets": table}
