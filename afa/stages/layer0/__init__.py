"""Layer 0 on a bundle and a cohort: how much it removes at each number of clusters, and how much of that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.inference.meanfield import Solver
from afa.stages.base import Column, Stage
from afa.stages.columns import columns
from afa.stages.inputs import top_k_size
from afa.stages.layer0.lift import layer0_lift
from afa.stages.layer0.numbers import summarise_layer0_bundle
from afa.stages.layer0.tables import layer0_bundle

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap, Inference, Layer0

OWN = {
    "score": Column("nats", "score of the centroid at no observation"),
    "gap": Column("nats", "smallest l1 distance between centroids"),
    "paper": Column("", "whether this is the paper's number of clusters, ceil(sqrt N)"),
    "right": Column("count", "right decisions where greedy chooses for the entities left, a tie counting one half"),
}
STAGE = Stage(
    settings=("layer0.clusters", "top_k", "inference"),
    duels=True,
    tables={
        "clusters": columns(
            "cohort bundle n_clusters cluster members radius spread score converged contraction eligible_f2"
            " lipschitz_f2 gap separation within between",
            **OWN,
        ),
        "layer0": columns(
            "cohort bundle n_clusters paper criterion rule entities needed most_dominators clusters_out"
            " entities_out contradicted",
            **OWN,
        ),
        "lift": columns("cohort bundle n_clusters criterion rule patient t right right_greedy duels", **OWN),
        "patients": columns(
            "cohort bundle n_clusters criterion rule patient certificates false_certificates duels false_duels",
            duels=Column("count", "dominations of entities that have a winner at full observation"),
        ),
    },
    space_mb=0.1,
)


def run(bundle: Bundle, cohort: Cohort, *, layer0: Layer0, top_k: int, inference: Inference) -> dict[str, pd.DataFrame]:
    """The tables of `layer0_bundle`, with the lift."""
    k, solver = top_k_size(bundle, top_k), Solver(**dict(inference))
    lift = partial(layer0_lift, solver=solver)
    return layer0_bundle(bundle, cohort, counts=layer0.clusters, k=k, solver=solver, lift=lift)


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """The rows of `summarise_layer0_bundle`."""
    return summarise_layer0_bundle(tables, **dict(bootstrap))
