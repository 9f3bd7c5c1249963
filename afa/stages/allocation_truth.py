"""What the allocation grid is compared with: the duels and the top k of every patient at full observation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.inference.meanfield import Solver
from afa.stages.allocation.tables import allocation_truth
from afa.stages.base import Column, Stage
from afa.stages.columns import columns
from afa.stages.inputs import top_k_size

if TYPE_CHECKING:
    from afa.stages.settings import Inference

OWN = {
    "label": Column("", "label of the patient: 0, 1 or missing"),
}
STAGE = Stage(
    settings=("top_k", "inference"),
    duels=True,
    summary=None,
    tables={
        "duels": columns("patient entity_a entity_b winner prior_wrong cohort bundle"),
        "targets": columns("patient entity top label k k_clinical cohort bundle", **OWN),
    },
    space_mb=0.0,
)


def run(bundle: Bundle, cohort: Cohort, *, top_k: int, inference: Inference) -> dict[str, pd.DataFrame]:
    """The tables of `allocation_truth`."""
    return allocation_truth(bundle, cohort, k=top_k_size(bundle, top_k), solver=Solver(**dict(inference)))
