"""The acceptance tests (supp:sanity): what must hold in every run; one that fails stops the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from afa.bundle import Bundle
from afa.checks.sanity.stage import raise_on_failure, sanity_tables, summarise_sanity
from afa.cohort.cohort import Cohort
from afa.inference.meanfield import Solver
from afa.stages.base import Column, Section, Seeds, Stage
from afa.stages.columns import columns

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap, Inference


class Settings(Section):
    """The acceptance tests (supp:sanity)."""

    seeds: Seeds = (0,)
    """random orders along which brackets and solves are checked"""


STAGE = Stage(
    settings=("sanity", "inference"),
    section=Settings,
    duels=True,
    tables={
        "bracket_patients": columns("population patient bracket decided called wrong tied_called cohort bundle"),
        "brackets": columns("population t bracket decided called wrong tied_called cohort bundle"),
        "contraction": columns("model entity opponent contraction ternary cohort bundle"),
        "convergence": columns("model t entity solves iterations capped finished cohort bundle"),
        "gates": columns(
            "name input cases failures perturbed_failures first_case found expected further_cases cohort bundle"
        ),
        "gauge_change": columns(
            "subject score t states changed mean_change max_change input cohort bundle",
            score=Column("", "score or bracket that is read"),
        ),
        "nonconvergence": columns("model patient entity solves capped persistent cohort bundle"),
    },
    rows={"sanity": "numbers that must come out as they are known"},
    space_mb=0.1,
)


def run(
    bundle: Bundle, cohort: Cohort, *, sanity: Settings, inference: Inference, threads: int | None = None
) -> dict[str, pd.DataFrame]:
    """The tables of `sanity_tables`; a `SanityError` names each check that failed, and there are none."""
    tables = sanity_tables(bundle, cohort, seeds=sanity.seeds, solver=Solver(**dict(inference)), threads=threads)
    raise_on_failure(tables)
    return tables


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """The rows of `summarise_sanity`."""
    return summarise_sanity(tables, **dict(bootstrap))
