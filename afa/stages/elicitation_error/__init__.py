"""How accuracy at full observation falls as elicitation errs: each potential's sign is wrong with some probability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import pandas as pd
from pydantic import Field

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.stages.base import Column, Section, Stage
from afa.stages.columns import columns
from afa.stages.elicitation_error import tables as made
from afa.stages.elicitation_error.numbers import summarise_elicitation_error

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap


Flip = Annotated[float, Field(ge=0, le=0.5)]


class Settings(Section):
    """Accuracy at full observation when signs of the potentials are wrong."""

    flips: tuple[Flip, ...] = Field(
        (0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5), min_length=2, description="chances that a sign is turned round"
    )
    replicates: int = Field(5, ge=1, description="flipped models of each entity at each chance")
    simulated: int = Field(200, ge=20, multiple_of=2, description="patients drawn from each task's own model")


OWN = {
    "positive": Column("count", "patients with a positive label"),
    "calibrated": Column("0 to 1", "exact Bayes accuracy on drawn patients"),
    "raw": Column("0 to 1", "exact accuracy of the sign of S on drawn patients"),
}
STAGE = Stage(
    settings=("elicitation_error",),
    section=Settings,
    tables={
        "calls": columns("population entity patient label flip decision right n cohort bundle"),
        "labels": columns("entity patients positive missing cohort bundle", **OWN),
        "left_out": columns("entity quantity reason cohort bundle"),
        "profiles": columns("patient entity unary_sum score cohort bundle"),
        "references": columns(
            "entity calibrated raw shift log_z1 log_z0 expected_sign expected_score cohort bundle", **OWN
        ),
        "replicates": columns(
            "population entity flip replicate decision right n right_positive n_positive cohort bundle"
        ),
    },
    space_mb=0.1,
)


def run(
    bundle: Bundle, cohort: Cohort, *, elicitation_error: Settings, threads: int | None = None
) -> dict[str, pd.DataFrame]:
    """The tables of `afa.stages.elicitation_error.tables.elicitation_error`."""
    flips, replicates, draws = elicitation_error.flips, elicitation_error.replicates, elicitation_error.simulated
    return made.elicitation_error(bundle, cohort, flips=flips, replicates=replicates, draws=draws, threads=threads)


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """The rows of `summarise_elicitation_error`."""
    names = ("calls", "replicates", "references", "labels", "profiles", "left_out")
    return summarise_elicitation_error(*(tables[name] for name in names), **dict(bootstrap))
