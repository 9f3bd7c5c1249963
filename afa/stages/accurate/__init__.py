"""How many decisions the mean-field approximation changes, by t: accurate inference beside it, on the same states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd
from pydantic import Field

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.inference.meanfield import Solver
from afa.stages.accurate.inference import Effort
from afa.stages.accurate.numbers import summarise_accurate
from afa.stages.accurate.tables import accurate_tables
from afa.stages.base import Column, Rounds, Section, Stage
from afa.stages.columns import columns
from afa.stages.inputs import top_k_size

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap, Closure, Inference


class Settings(Section):
    """Decisions by mean-field and by accurate inference on the same states (docs/accurate.md)."""

    patients: int = Field(50, ge=1, description="chosen by a hash of their names")
    linearity_patients: int = Field(
        12, ge=1, description="of these, for `linearity`, which takes moments and more time"
    )
    seed: int = Field(0, ge=0, description="of the patients and of their random order")
    rounds: Rounds = Field((10, 50, 100, 150, 200), description="t, beside 0 and M")
    chains: int = Field(300, ge=4, description="of a state that is sampled")
    steps: int = Field(200, ge=1, description="that each chain takes from independent features to the model")
    limit: float = Field(2e7, ge=0, description="entries of one exact solve; states that take more are sampled")


OWN = {
    "exact": Column("nats", "log Z of what is observed, exactly"),
    "sampled": Column("nats", "the same by annealed importance sampling"),
    "error": Column(
        "nats", "standard error of the sampled number; 0 where it is exact, infinite where chains disagree"
    ),
    "effective": Column("count", "effective chains; missing where it is exact"),
    "duels": Column("count", "duels of which both entities are solved exactly"),
    "open": Column("count", "those that sampling leaves open: within two standard errors of 0"),
    "changed": Column("count", "the others that sampling decides otherwise, a tie against a decision one half"),
    "apart": Column("nats", "sum over duels of the absolute difference of sampled and exact"),
    "within": Column("count", "duels whose difference is at most two standard errors"),
    "mean_field": Column("nats", "score by mean-field: of class or entity a over b"),
    "accurate": Column("nats", "the same by exact inference, or by all sampled chains"),
    "first": Column("nats", "the same by the first half of the chains; the exact one where nothing is sampled"),
    "second": Column("nats", "the same by the second half"),
    "shared": Column("count", "members of the top k by mean-field that are in it by accurate inference"),
    "shared_runs": Column("count", "members by one accurate run that are in it by the other"),
    "right_mean_field": Column("count", "members by mean-field that are in the top k at full observation"),
    "right_accurate": Column("count", "members by accurate inference that are"),
    "inference": Column("", "how: exact or annealed"),
    "quantity": Column("", "what is solved: log_partition or moments"),
    "coupling": Column("", "the closure: differential or shared"),
    "mean_field_posterior": Column("nats", "log-odds by mean-field less their value at no observation"),
    "accurate_posterior": Column("nats", "the same by exact inference, or by all sampled chains"),
    "first_posterior": Column("nats", "the same by the first half of the chains"),
    "second_posterior": Column("nats", "the same by the second half"),
    "error_posterior": Column("nats", "standard error of the accurate ones; 0 where they are exact"),
}
STAGE = Stage(
    settings=("accurate", "top_k", "closure.strength", "inference"),
    section=Settings,
    duels=True,
    tables={
        "check": columns("patient t entity exact sampled error effective cohort bundle", **OWN),
        "checked_duels": columns("patient t method duels open changed apart within cohort bundle", **OWN),
        "duels": columns(
            "patient t entity_a entity_b mean_field accurate first second error method cohort bundle", **OWN
        ),
        "sets": columns("patient t k shared shared_runs right_mean_field right_accurate method cohort bundle", **OWN),
        "solves": columns("patient t entity effective inference quantity error cohort bundle", **OWN),
        "tasks": columns(
            "patient t entity coupling mean_field mean_field_posterior accurate accurate_posterior first"
            " first_posterior second second_posterior error error_posterior cohort bundle",
            **OWN,
        ),
    },
    space_mb=1.9,
    single=("duels", "tasks"),
)


def run(
    bundle: Bundle,
    cohort: Cohort,
    *,
    accurate: Settings,
    top_k: int,
    closure: Closure,
    inference: Inference,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """The tables of `accurate_tables`."""
    return accurate_tables(
        bundle,
        cohort,
        patients=accurate.patients,
        linearity_patients=accurate.linearity_patients,
        seed=accurate.seed,
        rounds=accurate.rounds,
        k=top_k_size(bundle, top_k),
        effort=Effort(accurate.limit, accurate.chains, accurate.steps),
        strength=closure.strength,
        solver=Solver(**dict(inference)),
        threads=threads,
    )


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """The rows of `summarise_accurate`."""
    return summarise_accurate(tables, **dict(bootstrap))
