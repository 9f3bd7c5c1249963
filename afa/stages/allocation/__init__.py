"""The allocation grid: every rule by every gain and schedule, over all patients and rounds (tab:m2_alloc)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.inference.meanfield import Solver
from afa.stages.allocation.numbers import summarise_allocation
from afa.stages.allocation.tables import allocation_grid, cells_of
from afa.stages.base import Column, Stage
from afa.stages.columns import columns
from afa.stages.inputs import note, top_k_size

if TYPE_CHECKING:
    from afa.stages.settings import Allocation, Bootstrap, Inference


OWN = {
    "gain": Column("", "gain that the rule maximises; empty where it looks at none"),
    "schedule": Column("", "when gains are computed again: every round, or the rounds of the paper"),
    "seed": Column("", "seed of the random order; 0 where the order is not drawn"),
}
STAGE = Stage(
    settings=("allocation", "top_k", "inference"),
    sharded=True,
    duels=True,
    beside=("allocation_truth",),
    tables={
        "choices": columns(
            "cohort bundle allocation gain schedule seed patient t feature fallback resolved resolved_wrong certified",
            **OWN,
        ),
        "rounds": columns(
            "cohort bundle allocation gain schedule seed patient t method right right_first right_prior_wrong"
            " p_at_k clinical_p_at_k clinical_r_precision",
            **OWN,
        ),
    },
    space_mb=15.3,
)


def run(
    bundle: Bundle,
    cohort: Cohort,
    patients: Sequence[int],
    *,
    allocation: Allocation,
    top_k: int,
    inference: Inference,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """The tables of `allocation_grid`, of all parts of the grid one after the other."""
    parts = [
        allocation_grid(
            bundle,
            cohort,
            patients,
            cells,
            k=top_k_size(bundle, top_k),
            seeds=allocation.seeds,
            solver=Solver(**dict(inference)),
            threads=threads,
            report=note,
        )
        for _, cells in cells_of(allocation.rules, allocation.gains, allocation.schedules)
    ]
    return {name: pd.concat([part[name] for part in parts], ignore_index=True) for name in parts[0]}


def summarise(
    tables: Mapping[str, pd.DataFrame], allocation_truth: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap
) -> pd.DataFrame:
    """The rows of `summarise_allocation`."""
    parts = {"rounds": tables["rounds"], "choices": tables["choices"]}
    parts |= {name: allocation_truth[name] for name in ("duels", "targets")}
    return summarise_allocation(parts, **dict(bootstrap))
