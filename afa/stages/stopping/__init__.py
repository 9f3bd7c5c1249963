"""Where each rule of stopping ends an acquisition, and what the answer is worth there (`afa.planner.Stop`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.inference.meanfield import Solver
from afa.stages.base import Column, Stage
from afa.stages.columns import columns
from afa.stages.inputs import closures_beside, note, top_k_size
from afa.stages.stopping.levels import Levels
from afa.stages.stopping.numbers import summarise_stopping
from afa.stages.stopping.tables import RANDOM, stopping_tables, stored_orders
from afa.stats.tables import Tables

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap, Closure, Inference, Stopping


OWN = {
    "gain": Column("", "gain that the allocation rule maximises; empty where it looks at none"),
    "t": Column("observations", "features observed when the run ended; M where nothing ended it before"),
    "decision": Column("sign", "decision when the run ended: 1 for the entity, -1 against, 0 a tie"),
    "likelihood": Column("sign", "decision at full observation, 0 for a tie"),
    "members": Column("count", "members of the answer, k"),
    "wrong": Column(
        "count", "those of them that are not among the k best at full observation, ties for the last places being right"
    ),
}
STAGE = Stage(
    inputs=("bundle", "cohort", "allocation"),
    settings=("stopping", "top_k", "inference", "closure"),
    sharded=True,
    duels=True,
    tables={
        "tasks": columns(
            "cohort bundle patient coupling entity allocation gain stopping level t stopped decision likelihood"
            " clinical",
            **OWN,
        ),
        "top_k": columns("cohort bundle patient allocation gain stopping level t stopped members wrong", **OWN),
    },
    space_mb=0.1,
)


def run(
    bundle: Bundle,
    cohort: Cohort,
    allocation: Tables,
    patients: Sequence[int],
    *,
    stopping: Stopping,
    top_k: int,
    inference: Inference,
    closure: Closure,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """The tables of `stopping_tables`; allocation : tables of that stage, whose orders are followed again.

    The tasks are stopped under the run's closure and, where the bundle says how often, every other; the top k under the
    run's own. The grid's orders are those of directions: under `explicit` the rules choose by how often instead.
    """
    names = [cohort.patients[p] for p in patients]
    rules = [rule for rule in stopping.rules if rule != RANDOM]
    orders: Mapping[str, NDArray[np.int64] | None] = dict.fromkeys(rules)
    if closure.coupling != "explicit":
        orders = stored_orders(allocation.folder, bundle, names, rules, note)
    return stopping_tables(
        bundle,
        cohort,
        patients,
        orders,
        Levels(stopping.probabilities, stopping.gains, stopping.budgets),
        k=top_k_size(bundle, top_k),
        seed=stopping.seed,
        solver=Solver(**dict(inference)),
        couplings=closures_beside(bundle, cohort, closure.coupling),
        strength=closure.strength,
        threads=threads,
    )


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """The rows of `summarise_stopping`."""
    return summarise_stopping(tables["top_k"], tables["tasks"], **dict(bootstrap))
