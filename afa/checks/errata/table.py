"""The table of errata of one bundle and cohort: every item of the list, checked or said to be pending."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from afa.bundle import Bundle
from afa.checks.errata import bundle as of_bundle
from afa.checks.errata import cohort as of_cohort
from afa.checks.errata import small, stages, states
from afa.checks.errata.cohort import CohortExpression
from afa.checks.errata.models import random_models
from afa.checks.errata.rows import Errata, Printed, Row, table_of
from afa.cohort.cohort import Cohort
from afa.inference.meanfield import Solver
from afa.stats.summary import COLUMNS as SUMMARY_COLUMNS
from afa.stats.summary import summary_rows


@dataclass(frozen=True)
class Extent:
    """How many cases each check takes; all are drawn from hashes of names.

    models : small random models of each kind, density and size. class_pairs : random pairs of class models of each
    kind. gauge_models : those of the models, about, that are put into another gauge. intervals : random sets of
    intervals. entities, duels : the most of a bundle that is looked at. exact_states : states of one patient and entity
    with exact log Z. duel_states : states of one patient in which every duel is read. patients : the most whose sign
    votes are counted.
    """

    models: int = 20
    class_pairs: int = 5000
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
    solver, extent = solver or Solver(), extent or Extent()
    bundle = of_bundle.some_entities(bundle, extent.entities)
    models = random_models(extent.models)
    spread = max(1, len(models) // max(1, extent.gauge_models))
    halves = of_bundle.solve_entities(bundle, solver, threads=threads)
    biases = states.biases(bundle, cohort, bundle.entities, solver, extent.exact_states, threads=threads)
    drawn = states.random_states(cohort, extent.duel_states, purpose="duels")
    read = states.duel_readings(bundle, cohort, drawn, solver) if len(bundle.entities) > 1 else None
    return [
        *small.maximum_entropy(models),
        *small.unbiased_start(models),
        *small.equal_normalisers(models),
        *small.dropped_normaliser(extent.class_pairs),
        *small.outside_the_union(solver),
        *small.common_gauge([model for model in models[::spread] if model.varies], solver),
        *small.enough_better(extent.intervals),
        *of_bundle.bundle_sign(halves),
        *of_bundle.bundle_normalisers(halves),
        *of_bundle.halved_contraction(bundle, halves, extent.duels, solver),
        *of_bundle.kl_identity(halves),
        *of_bundle.two_elbo_target(halves),
        *of_bundle.pooled_start(bundle, solver, extent.duels),
        *of_bundle.nothing_observed(bundle),
        *of_bundle.support_met(bundle),
        *states.two_elbo_bias(biases),
        *states.expected_duel(read),
        *states.same_sign(read),
        *of_cohort.opposite_profile(bundle, cohort),
        *states.doubled_couplings(read),
        *of_cohort.vote_for_neither(bundle, cohort, solver, extent.patients),
        *of_cohort.structural_ties(bundle, cohort, Printed(paper).claim("c300") / 100),
        *of_cohort.down_regulation(expression),
    ]


def errata_table(
    computed: Iterable[Row], *, summary: pd.DataFrame | None, paper: Mapping[str, pd.DataFrame], errata: Errata
) -> pd.DataFrame:
    """Every item of docs/errata.md as rows of one table: those of `computed_errata`, of the paper and of `summary`.

    summary : rows of the stages that have run, or None. paper : as in `computed_errata`. errata : the texts
    (`load_errata`).

    Returns one row per check: `item`, its `kind` (erratum, remark or withdrawn), `name`, `label` (LaTeX), `claim`,
    `claim_value`, `check`, `value`, `low` and `high` (interval over patients), `unit` (a metric of the summary), `n`,
    `holds` (whether the claim does; missing where the number only illustrates), `pending` (what has to be built or
    given first) and `headline` (one row an item).

    Raises
    ------
    ConfigError : a number of the paper's tables is missing.

    """
    printed = Printed(paper)
    found = pd.DataFrame(columns=SUMMARY_COLUMNS) if summary is None else summary
    rows = [
        *computed,
        *stages.chaotic_patients(printed),
        *stages.clinical_ceiling(printed),
        *stages.language_models(printed),
        *stages.allocation_rules(printed),
        *stages.one_bracket(printed),
        *stages.origin_of_cohort(),
        *stages.sign_votes(found, printed),
        *stages.gauge_agreement(found, printed),
        *stages.early_gain(found, printed),
        *stages.chaos_in_advance(found, printed),
        *stages.false_certificates(found),
        *stages.pooled_correlation(found, printed),
        *stages.missed_calls(found),
        *stages.two_rules(found, printed),
        *stages.one_rate(found, printed),
        *stages.never_called(found, printed),
        *stages.eliminations(found, printed),
    ]
    return table_of(rows, errata)


def summarise_errata(table: pd.DataFrame) -> pd.DataFrame:
    """Summary rows `errata`: each check's value and, with the reference `paper`, the paper's own beside it.

    The metric is the row's unit, the quantity the check's name, the level its item. Checks that are pending have no
    number and no row; the paper's value is given with them all the same.
    """
    whole = table.rename(columns={"unit": "metric", "name": "quantity", "item": "level"})
    keys = ["metric", "quantity", "level"]
    ours = whole.loc[whole["value"].notna(), [*keys, "value", "low", "high", "n"]]
    paper = whole.loc[whole["claim_value"].notna(), [*keys, "claim_value"]]
    paper = paper.rename(columns={"claim_value": "value"}).assign(reference="paper")
    return summary_rows("errata", pd.concat([ours, paper], ignore_index=True))
