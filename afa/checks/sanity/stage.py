"""The sanity stage of a run: all gates, and the tables that are reported beside them (supp:sanity)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from afa.bundle import Bundle
from afa.checks.sanity import copeland, full_observation, gauge, mean_field, soundness
from afa.checks.sanity.contraction import contraction_table
from afa.checks.sanity.convergence import convergence_table, nonconvergence_table
from afa.checks.sanity.gate import raise_on_failed_gates, run_gates
from afa.checks.sanity.subject import run_subject, synthetic_subjects
from afa.cohort.cohort import Cohort
from afa.inference.meanfield import Solver

GATES = (full_observation.GATE, gauge.GATE, mean_field.GATE, soundness.GATE, copeland.GATE)


def sanity_tables(
    bundle: Bundle, cohort: Cohort, *, seeds: Sequence[int], solver: Solver, threads: int | None = None
) -> dict[str, pd.DataFrame]:
    """Check everything on a bundle and a cohort; the caller decides with `raise_on_failure` whether to go on.

    Random orders are those of `seeds`, at least one; brackets and solves are followed along all, other checks along the
    first. The tables carry the names of cohort and bundle; their columns are described where they are made: `gates`
    (`run_gates`), `brackets` (`bracket_table`), `bracket_patients` (`bracket_patients_table`), `convergence`
    (`convergence_table`), `nonconvergence` (`nonconvergence_table`), `contraction` (`contraction_table`),
    `gauge_change` (`gauge_change`).
    """
    run = run_subject(bundle, cohort, seeds=seeds, solver=solver, threads=threads)
    synthetic = synthetic_subjects(threads=threads)
    changes = [
        gauge.gauge_change(subject).assign(input=name)
        for name, subject in (("run", run), *(("synthetic", one) for one in synthetic))
    ]
    tables = {
        "gates": run_gates(GATES, run, synthetic),
        "brackets": soundness.bracket_table(run),
        "bracket_patients": soundness.bracket_patients_table(run),
        "convergence": convergence_table(run),
        "nonconvergence": nonconvergence_table(run),
        "contraction": contraction_table(bundle),
        "gauge_change": pd.concat(changes, ignore_index=True),
    }
    return {name: table.assign(cohort=cohort.name, bundle=bundle.name) for name, table in tables.items()}


def raise_on_failure(tables: Mapping[str, pd.DataFrame]) -> None:
    """Raise a `SanityError` that names each failed check and the first case that broke it, or return."""
    raise_on_failed_gates(tables["gates"], GATES)
