"""The table of errata of one bundle and cohort: every item of the list, checked or said to be pending."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.experiments.errata import (
    closure_errata,
    cohort_errata,
    contraction_errata,
    gauge_errata,
    layer0_errata,
    model_errata,
    paper_errata,
    stage_errata,
    state_errata,
    topk_errata,
)
from afa.experiments.errata.duel_readings import duel_readings
from afa.experiments.errata.exact_entities import solve_entities, some_entities
from afa.experiments.errata.expression import CohortExpression
from afa.experiments.errata.printed import Printed
from afa.experiments.errata.rows import Row, table_of
from afa.experiments.errata.small_models import random_models
from afa.experiments.errata.states import Sampling, random_states
from afa.inference.meanfield import Solver
from afa.stats.summary import COLUMNS as SUMMARY_COLUMNS
from afa.stats.summary import summary_rows


@dataclass(frozen=True)
class Extent:
    """How many cases each check takes; all are drawn from hashes of names.

    models : small random models of each kind, density and size. gauge_models : those of them, about, that are put into
    another gauge. intervals : random sets of intervals. entities, duels : the most of a bundle that is looked at.
    exact_states : states of one patient and entity with exact log Z. duel_states : states of one patient in which every
    duel is read. patients : the most whose sign votes are counted.
    """

    models: int = 20
    gauge_models: int = 160
    intervals: int = 400
    entities: int = 40
    duels: int = 300
    exact_states: int = 240
    duel_states: int = 40
    patients: int = 20


def computed_errata(
    bundle: Bundle,
    cohort: Cohort,
    *,
    paper: Mapping[str, pd.DataFrame],
    expression: CohortExpression | None = None,
    solver: Solver | None = None,
    sampling: Sampling | None = None,
    extent: Extent | None = None,
    threads: int | None = 1,
) -> list[Row]:
    """The items of docs/errata.md that are worked out on a bundle and a cohort, without any stage's numbers.

    paper : the tables of resources/paper by file name without its ending. expression : what the cohort was encoded
    from, where it is at hand.

    Raises
    ------
    ConfigError : a number of the paper's tables is missing.

    """
    solver, sampling, extent = solver or Solver(), sampling or Sampling(), extent or Extent()
    bundle = some_entities(bundle, extent.entities)
    return [
        *_of_small_models(extent, solver),
        *_of_bundle(bundle, solver, extent, threads),
        *_of_cohort(bundle, cohort, solver, sampling, extent, threads),
        *cohort_errata.vote_for_neither(bundle, cohort, solver, extent.patients, sampling),
        *cohort_errata.structural_ties(bundle, cohort, Printed(paper).claim("c300") / 100),
        *cohort_errata.down_regulation(expression),
    ]


def errata_table(
    computed: Iterable[Row], *, summary: pd.DataFrame | None, paper: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Every item of docs/errata.md as rows of one table: those of `computed_errata`, of the paper and of `summary`.

    summary : rows of the stages that have run, or None. paper : as in `computed_errata`.

    Returns one row per check: `item` (1 to 22), `name`, `label` (LaTeX), `claim`, `claim_value`, `check`, `value`,
    `low` and `high` (interval over patients), `unit` (a metric of the summary), `n`, `holds` (whether the claim does;
    missing where the number only illustrates), `pending` (what has to be built or given first) and `headline` (one row
    an item).

    Raises
    ------
    ConfigError : a number of the paper's tables is missing.

    """
    printed = Printed(paper)
    stages = pd.DataFrame(columns=SUMMARY_COLUMNS) if summary is None else summary
    return table_of([*computed, *_of_paper(printed), *_of_stages(stages, printed)])


def _of_small_models(extent: Extent, solver: Solver) -> list[Row]:
    models = random_models(extent.models)
    spread = max(1, len(models) // max(1, extent.gauge_models))
    return [
        *closure_errata.maximum_entropy(models),
        *closure_errata.unbiased_start(models),
        *closure_errata.equal_normalisers(models),
        *gauge_errata.common_gauge([model for model in models[::spread] if model.varies], solver),
        *layer0_errata.enough_better(extent.intervals),
    ]


def _of_bundle(bundle: Bundle, solver: Solver, extent: Extent, threads: int | None) -> list[Row]:
    halves = solve_entities(bundle, solver, threads=threads)
    return [
        *model_errata.bundle_sign(halves),
        *model_errata.bundle_normalisers(halves),
        *contraction_errata.halved_contraction(bundle, halves, extent.duels),
        *model_errata.kl_identity(halves),
        *model_errata.two_elbo_target(halves),
        *gauge_errata.pooled_start(bundle, solver, extent.duels),
        *layer0_errata.nothing_observed(bundle),
        *cohort_errata.support_met(bundle),
    ]


def _of_cohort(
    bundle: Bundle, cohort: Cohort, solver: Solver, sampling: Sampling, extent: Extent, threads: int | None
) -> list[Row]:
    found = state_errata.biases(bundle, cohort, bundle.entities, solver, extent.exact_states, threads=threads)
    states = random_states(cohort, extent.duel_states, purpose="duels")
    read = duel_readings(bundle, cohort, states, solver) if len(bundle.entities) > 1 else None
    return [
        *state_errata.two_elbo_bias(found, sampling),
        *state_errata.expected_duel(read, sampling),
        *state_errata.same_sign(read),
        *cohort_errata.opposite_profile(bundle, cohort, sampling),
        *state_errata.doubled_couplings(read, sampling),
    ]


def _of_paper(printed: Printed) -> list[Row]:
    return [
        *paper_errata.chaotic_patients(printed),
        *paper_errata.clinical_ceiling(printed),
        *paper_errata.language_models(printed),
        *paper_errata.allocation_rules(printed),
        *paper_errata.one_bracket(printed),
        *paper_errata.origin_of_cohort(),
    ]


def _of_stages(stages: pd.DataFrame, printed: Printed) -> list[Row]:
    return [
        *stage_errata.sign_votes(stages, printed),
        *stage_errata.gauge_agreement(stages, printed),
        *stage_errata.early_gain(stages, printed),
        *stage_errata.chaos_in_advance(stages, printed),
        *stage_errata.false_certificates(stages),
        *stage_errata.pooled_correlation(stages, printed),
        *topk_errata.missed_calls(stages),
        *topk_errata.two_rules(stages, printed),
        *topk_errata.one_rate(stages, printed),
        *topk_errata.never_called(stages, printed),
        *topk_errata.eliminations(stages, printed),
    ]


def summarise_errata(table: pd.DataFrame) -> pd.DataFrame:
    """Summary rows `errata`: each check's value and, with the reference `paper`, the paper's own beside it.

    The metric is the row's unit, the stratum `item=01 name`. Checks that are pending have no number and no row; the
    paper's value is given with them all the same.
    """
    stratum = [f"item={item:02d} {name}" for item, name in zip(table["item"], table["name"], strict=True)]
    whole = table.assign(stratum=stratum).rename(columns={"unit": "metric"})
    ours = whole.loc[whole["value"].notna(), ["metric", "stratum", "value", "low", "high", "n"]]
    paper = whole.loc[whole["claim_value"].notna(), ["metric", "stratum", "claim_value"]]
    paper = paper.rename(columns={"claim_value": "value"}).assign(reference="paper")
    return summary_rows("errata", pd.concat([ours, paper], ignore_index=True))
