"""Layer 1 among duels: when each bracket calls each pair, by random and by informed orders (tab:layer1_informed)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd
from pydantic import Field

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.inference.meanfield import Solver
from afa.stages.base import Column, Section, Seeds, Stage
from afa.stages.columns import columns
from afa.stages.layer1 import tables
from afa.stages.layer1.numbers import summarise_layer1

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap, Inference


class Settings(Section):
    """Duels resolved along random and informed orders (tab:layer1_informed)."""

    seeds: Seeds = Field((0,), description="one random order per patient and seed")


OWN = {
    "called": Column("count", "duels with a winner whose bracket lies on one side of 0"),
    "magnitude": Column("nats", "absolute D at full observation, to two digits; 0 a tie"),
    "never": Column("count", "those of them not called before full observation"),
    "never_support": Column("count", "those not called before the last feature of their own two supports"),
    "step": Column("observations", "features of the duel's own two supports observed so far"),
}
STAGE = Stage(
    settings=("layer1", "inference"),
    section=Settings,
    sharded=True,
    duels=True,
    tables={
        "calls": columns(
            "patient allocation seed bracket t called wrong tied cohort bundle",
            **{**OWN, "tied": Column("count", "duels tied at full observation whose bracket lies on one side of 0")},
        ),
        "left_open": columns(
            "patient allocation bracket magnitude duels never never_support cohort bundle",
            **{**OWN, "duels": Column("count", "duels of this magnitude, ties included, over all orders")},
        ),
        "pairs": columns("patient duels tied cohort bundle"),
        "steps": columns("patient allocation seed bracket step called cohort bundle", **OWN),
    },
    space_mb=0.4,
)


def run(
    bundle: Bundle,
    cohort: Cohort,
    patients: Sequence[int],
    *,
    layer1: Settings,
    inference: Inference,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """The tables of `afa.stages.layer1.tables.layer1`."""
    solver = Solver(**dict(inference))
    return tables.layer1(bundle, cohort, patients, seeds=layer1.seeds, solver=solver, threads=threads)


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """The rows of `summarise_layer1`."""
    return summarise_layer1(tables, **dict(bootstrap))
