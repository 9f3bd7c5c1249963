"""Layer 0 on synthetic entities, and what it adds to `greedy` there (tab:layer0_synthetic)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from afa.inference.meanfield import Solver
from afa.layer0 import completion_bounds
from afa.stages.base import Column, Stage
from afa.stages.columns import columns
from afa.stages.layer0.lift import layer0_lift
from afa.stages.layer0.numbers import summarise_layer0_synthetic
from afa.stages.layer0.tables import Lift, eliminated, layer0_tables, lifted
from afa.stages.layer0_synthetic.config import Configuration, load_portfolio
from afa.stages.layer0_synthetic.portfolio import N_PATIENTS, simulated_bundle, simulated_cohort

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap, Inference, Layer0

OWN = {
    "score": Column("nats", "score of the centroid at no observation"),
    "gap": Column("nats", "smallest l1 distance between centroids"),
    "right": Column("count", "right decisions where greedy chooses for the entities left, a tie counting one half"),
}
STAGE = Stage(
    inputs=("portfolio",),
    settings=("layer0.simulated", "inference"),
    by_patient=False,
    tables={
        "clusters": columns(
            "cohort bundle n_clusters cluster members radius spread score converged contraction eligible_f2"
            " lipschitz_f2 gap separation within between",
            **OWN,
        ),
        "configurations": columns("bundle letter story entities features patients printed_separation"),
        "layer0": columns(
            "cohort bundle n_clusters criterion rule entities needed most_dominators clusters_out entities_out"
            " contradicted"
        ),
        "lift": columns("cohort bundle n_clusters criterion rule patient t right right_greedy duels", **OWN),
        "patients": columns(
            "cohort bundle n_clusters criterion rule patient certificates false_certificates duels false_duels",
            duels=Column("count", "dominations of entities that have a winner at full observation"),
        ),
    },
    space_mb=0.2,
)


def run(
    portfolio: Path, *, layer0: Layer0, inference: Inference, threads: int | None = None
) -> dict[str, pd.DataFrame]:
    """The tables of `layer0_portfolio`, with the lift; portfolio : a file such as `config/portfolio.yaml`."""
    solver = Solver(**dict(inference))
    lift = partial(layer0_lift, solver=solver, threads=threads)
    return layer0_portfolio(load_portfolio(portfolio), n_patients=layer0.simulated, solver=solver, lift=lift)


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """The rows of `summarise_layer0_synthetic`."""
    return summarise_layer0_synthetic(tables, **dict(bootstrap))


def layer0_portfolio(
    configurations: Sequence[Configuration],
    *,
    k: int = 5,
    n_patients: int = N_PATIENTS,
    solver: Solver | None = None,
    lift: Lift | None = None,
) -> dict[str, pd.DataFrame]:
    """Layer 0 on synthetic entities, each configuration in as many clusters as it was made of (tab:layer0_synthetic).

    The tables of `layer0_bundle`, `bundle` and `cohort` being the configuration's name, and `configurations`, by
    `bundle`: `letter`, `story`, `entities`, `features`, `patients`, the `printed_separation` that the spread was solved
    for. With `lift` also its table `lift`, for the entities that each variant removes.
    """
    parts: list[dict[str, pd.DataFrame]] = []
    for config in configurations:
        bundle = simulated_bundle(config)
        cohort = simulated_cohort(config, bundle, n_patients)
        counts, bounds = [len(config.sizes)], completion_bounds(bundle)
        tables = layer0_tables(bundle, cohort, counts, k=k, solver=solver, bounds=bounds)
        made = {
            "bundle": config.name,
            "letter": config.letter,
            "story": config.story,
            "entities": len(bundle.entities),
            "features": len(bundle.features),
            "patients": n_patients,
            "printed_separation": config.separation,
        }
        tables["configurations"] = pd.DataFrame([made])
        if lift is not None:
            removed = eliminated(bundle, counts, k=k, solver=solver, bounds=bounds)
            tables["lift"] = lifted(bundle, cohort, removed, lift)
        parts.append(tables)
    return {name: pd.concat([part[name] for part in parts], ignore_index=True) for name in parts[0]}
