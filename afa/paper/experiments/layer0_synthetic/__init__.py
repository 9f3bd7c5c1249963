"""Removal of synthetic entities by Layer 0, and its effect on the rule `greedy` (tab:layer0_synthetic)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from afa.evaluate.accuracy import Resampled
from afa.evaluate.summary import Labelled, labelled, summary_rows
from afa.inference.meanfield import Solver
from afa.paper.experiments import layer0 as on_bundle
from afa.paper.experiments.layer0_synthetic.portfolio import (
    Configuration,
    load_portfolio,
    simulated_bundle,
    simulated_cohort,
)

if TYPE_CHECKING:
    from afa.paper.experiments.settings import Bootstrap, Inference, Layer0

K = 5
"""Size of the top set."""


def run(
    portfolio: Path, *, layer0: Layer0, inference: Inference, threads: int | None = None
) -> dict[str, pd.DataFrame]:
    """Simulate entities and patients for each configuration in a file, and return the tables of `layer0_portfolio`.

    Parameters
    ----------
    portfolio : a file such as `config/portfolio.yaml`

    """
    solver = Solver(**dict(inference))
    return layer0_portfolio(load_portfolio(portfolio), n_patients=layer0.simulated, solver=solver, threads=threads)


def layer0_portfolio(
    configurations: Sequence[Configuration], *, n_patients: int, solver: Solver, threads: int | None = None
) -> dict[str, pd.DataFrame]:
    """Run Layer 0 with the true number of clusters on the synthetic entities of each configuration.

    The result contains the tables of `layer0_tables`, computed with k = 5 (tab:layer0_synthetic). The columns `bundle`
    and `cohort` contain the name of the configuration. The additional table `configurations` has one row for each
    configuration. `printed_separation` is the separation ratio in the paper's table, from which we computed the
    configuration's spread.
    """
    parts: list[dict[str, pd.DataFrame]] = []
    for config in configurations:
        bundle = simulated_bundle(config)
        cohort = simulated_cohort(config, bundle, n_patients)
        tables = on_bundle.layer0_tables(bundle, cohort, [len(config.sizes)], k=K, solver=solver, threads=threads)
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
        parts.append(tables)
    return {name: pd.concat([part[name] for part in parts], ignore_index=True) for name in parts[0]}


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Return the rows of the table `layer0_synthetic` in `summary.csv`, from the tables of `layer0_portfolio`.

    The metrics have the same meaning here and in the table `layer0_bundle`. The column `stratum` contains the name of a
    simulated configuration. Rows with an empty column `stratum` are about all configurations together. The quantity
    `configurations` is the number of configurations in which Layer 0 removes at least one cluster. `accuracy` is the
    sign accuracy at each t if `greedy` chooses features for all entities. `gap` is the change of the accuracy if
    `greedy` chooses features only for the entities that Layer 0 does not remove. In rows without a stratum, `accuracy`
    and `gap` are means over all configurations.
    """
    layer0 = tables["layer0"]
    resampled = Resampled.of(tables["patients"]["patient"].unique(), **dict(bootstrap), purpose="layer0_synthetic")
    firing = layer0.assign(fired=layer0["clusters_out"] > 0).groupby(on_bundle.ELIMINATION, sort=False)["fired"]
    fired = firing.agg(value="sum", n="size").reset_index().assign(metric="count", quantity="configurations")
    rows: list[Labelled] = [(on_bundle.with_summary_columns(fired), {})]
    configs = {config: on_bundle.where(tables, "bundle", config) for config in dict.fromkeys(layer0["bundle"])}
    for config, chosen in {None: tables, **configs}.items():
        label = {"stratum": config}
        rows += [(table, label) for table in on_bundle.removal(chosen, resampled)]
        if config is not None:
            rows.append((on_bundle.geometry(chosen["clusters"]), label))
        rows.append((on_bundle.greedy_accuracy(chosen["lift"], resampled), label))
    return summary_rows("layer0_synthetic", labelled(rows))
