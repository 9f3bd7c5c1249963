"""Chaotic patients: whose duels change side often as features come in, and what inference gains there (supp:chaos)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd
from pydantic import Field

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.inference.meanfield import Solver
from afa.stages.base import Section, Seeds, Stage
from afa.stages.chaos import tables
from afa.stages.chaos.numbers import summarise_chaos
from afa.stages.columns import columns

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap, Inference


class Settings(Section):
    """Chaotic patients: chosen on some orders, looked at on others (decisions.md A10)."""

    selecting_seeds: Seeds = Field((0, 1, 2), description="orders that say who is chaotic")
    measuring_seeds: Seeds = Field((3, 4, 5), description="orders that the gap is measured on")


STAGE = Stage(
    settings=("chaos", "inference"),
    section=Settings,
    sharded=True,
    duels=True,
    tables={
        "duels": columns("patient entity_a entity_b winner cohort bundle"),
        "flips": columns("patient seed_set definition flips runs magnitude nonzero cohort bundle"),
        "rounds": columns("patient t seed_set method right duels cohort bundle"),
    },
    space_mb=0.7,
)


def run(
    bundle: Bundle,
    cohort: Cohort,
    patients: Sequence[int],
    *,
    chaos: Settings,
    inference: Inference,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """The tables of `afa.stages.chaos.tables.chaos`."""
    solver = Solver(**dict(inference))
    return tables.chaos(bundle, cohort, patients, **dict(chaos), solver=solver, threads=threads)


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """The rows of `summarise_chaos`."""
    return summarise_chaos(tables, **dict(bootstrap))
