"""Rankings of entities at t observations, by what is expected of hidden features and by the scale of the scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd
from pydantic import Field

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.inference.meanfield import Solver
from afa.stages.base import Column, Rounds, Section, Seeds, Stage
from afa.stages.columns import columns
from afa.stages.inputs import top_k_size
from afa.stages.ranking.numbers import summarise_ranking
from afa.stages.ranking.tables import ranking_tables

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap, Inference


class Settings(Section):
    """Entities ranked by the scale of scores and by what is predicted for unobserved features (docs/ranking.md)."""

    rounds: Rounds = Field((10, 50, 100, 150, 200), description="t that are read, beside 0 and M")
    seeds: Seeds = Field((0, 1, 2), description="one random order per patient and seed")
    permutations: int = Field(20, ge=1, description="bundles with shuffled genes, followed as the real one")
    whole_permutations: int = Field(200, ge=1, description="the same at full observation, which costs little")


OWN = {
    "scale": Column("", "what scores are in units of: raw, or the null uniform, cohort or shuffled"),
    "method": Column("", "what is expected of hidden features: linearity, population, frequency or wald"),
    "target": Column("", "likelihood: the raw score at full observation; own: that of the same scale"),
    "accuracy": Column("count", "duels called right, a tie one half"),
    "accuracy_prior_wrong": Column("count", "those of them that linearity on this scale calls wrong at t = 0"),
    "mean": Column("nats", "what is taken off the score of the entity"),
    "sd": Column("nats", "what it is divided by; 0: the entity is 0 on this scale"),
    "label": Column("", "label of the patient: 0, 1 or missing"),
    "permutation": Column("", "number of the shuffling of genes, from 0"),
    "of_null": Column("0 to 1", "posterior probability of the null: independent uniform features"),
    "of_likeliest": Column("0 to 1", "largest posterior probability of any entity"),
    "r_precision": Column("0 to 1", "positive labels among as many of the first as the patient has positive labels"),
    "auroc": Column("0 to 1", "chance that a positive entity of the patient ranks before a negative one"),
    "correlation": Column("-1 to 1", "Spearman's, of standing and support: 1 where the largest support is first"),
    "prior_wrong": Column("count", "those of them that linearity on this scale calls wrong at t = 0"),
    "majority": Column("count", "those of them that the best constant answer has right"),
    "larger": Column("count", "those of them that the entity of the larger support wins, equal supports one half"),
}
STAGE = Stage(
    settings=("ranking", "top_k", "inference"),
    section=Settings,
    duels=True,
    tables={
        "decisions": columns(
            "scale method target seed patient t accuracy accuracy_prior_wrong p_at_k cohort bundle", **OWN
        ),
        "entities": columns("scale entity support couplings mean sd cohort bundle", **OWN),
        "labels": columns("patient entity label k k_clinical cohort bundle", **OWN),
        "null": columns(
            "scale method target t permutation metric value cohort bundle",
            **{
                **OWN,
                "target": Column("", "likelihood or own; clinical: labels; size: supports; posterior: of the models"),
            },
        ),
        "posterior": columns("seed patient t of_null of_likeliest cohort bundle", **OWN),
        "rankings": columns(
            "scale method seed patient t p_at_k r_precision auroc correlation cohort bundle",
            **{
                **OWN,
                "p_at_k": Column(
                    "0 to 1",
                    "share of positive labels among the first k' of the labelled entities; missing without one",
                ),
            },
        ),
        "truth": columns("scale target patient duels prior_wrong majority larger cohort bundle", **OWN),
    },
    space_mb=0.9,
)


def run(
    bundle: Bundle,
    cohort: Cohort,
    *,
    ranking: Settings,
    top_k: int,
    inference: Inference,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """The tables of `ranking_tables`."""
    k, solver = top_k_size(bundle, top_k), Solver(**dict(inference))
    return ranking_tables(bundle, cohort, k=k, **dict(ranking), solver=solver, threads=threads)


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """The rows of `summarise_ranking`."""
    return summarise_ranking(tables, **dict(bootstrap))
