"""The acceptance tests (supp:sanity): what must hold in every run; one that fails stops the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from afa.bundle import Bundle
from afa.checks.sanity import Subject, paths, run_gates, scores, synthetic_subjects
from afa.cohort.cohort import Cohort
from afa.inference.meanfield import Solver
from afa.stages.base import Section, Seeds, Stage
from afa.stats.summary import summary_rows

if TYPE_CHECKING:
    from afa.stages.settings import Inference


class Settings(Section):
    """The acceptance tests (supp:sanity)."""

    seeds: Seeds = (0,)
    """random orders along which brackets and solves are checked"""


STAGE = Stage(
    settings=("sanity", "inference"),
    section=Settings,
    duels=True,
    tables={
        "brackets": "population t bracket decided called wrong tied_called cohort bundle",
        "contraction": "model entity opponent contraction ternary cohort bundle",
        "convergence": "model t entity solves iterations capped finished cohort bundle",
        "gates": "name input cases failures perturbed_failures cohort bundle",
        "gauge_change": "subject score t states changed mean_change max_change input cohort bundle",
        "nonconvergence": "model patient entity solves capped persistent cohort bundle",
    },
    summary=(),
    rows={"sanity": "numbers that must come out as they are known"},
    space_mb=0.1,
)

GATES = (scores.FULL_OBSERVATION, scores.GAUGE, paths.MEAN_FIELD, paths.SOUNDNESS, scores.COPELAND)


def run(
    bundle: Bundle, cohort: Cohort, *, sanity: Settings, inference: Inference, threads: int | None = None
) -> dict[str, pd.DataFrame]:
    """Check everything on a bundle and a cohort.

    Random orders are those of `seeds`; brackets and solves are followed along all, other checks along the first. The
    columns of the tables are described where they are made: `gates` (`run_gates`), `brackets` (`bracket_table`),
    `convergence` (`convergence_table`), `nonconvergence` (`nonconvergence_table`), `contraction`
    (`contraction_table`), `gauge_change` (`gauge_change`).

    Raises
    ------
    SanityError : names each check that failed, and the first case that broke it.

    """
    own = Subject(bundle, cohort.patients, cohort.values, sanity.seeds, Solver(**dict(inference)), threads)
    synthetic = synthetic_subjects(threads=threads)
    subjects = [("run", own), *(("synthetic", one) for one in synthetic)]
    changes = [scores.gauge_change(one).assign(input=name) for name, one in subjects]
    return {
        "gates": run_gates(GATES, own, synthetic),
        "brackets": paths.bracket_table(own),
        "convergence": paths.convergence_table(own),
        "nonconvergence": paths.nonconvergence_table(own),
        "contraction": paths.contraction_table(bundle),
        "gauge_change": pd.concat(changes, ignore_index=True),
    }


def summarise(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Summary rows `sanity` of the tables.

    `count`: failures of all gates (n cases) and, quantity, of each. `contraction`: the median and the largest beta L^2
    of the models in `stratum`; `rate` of `contraction_below`, the share of them below `level`.
    """
    by_name = tables["gates"].groupby("name", sort=False)[["failures", "cases"]].sum().reset_index()
    gates = [(None, by_name["failures"].sum(), by_name["cases"].sum()), *by_name.itertuples(index=False)]
    counts = pd.DataFrame(gates, columns=["quantity", "value", "n"]).assign(metric="count")
    constants = [
        (model, len(values), *cells)
        for model, values in tables["contraction"].groupby("model", sort=False)["contraction"]
        for cells in (
            ("contraction", "median", None, values.median()),
            ("contraction", "largest", None, values.max()),
            ("rate", "contraction_below", 1, (values < 1).mean()),
            ("rate", "contraction_below", 1.5, (values < 1.5).mean()),
        )
    ]
    contraction = pd.DataFrame(constants, columns=["stratum", "n", "metric", "quantity", "level", "value"])
    return summary_rows("sanity", [counts, contraction])
