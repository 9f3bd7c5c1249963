"""The acceptance tests (supp:sanity). If an acceptance test fails, the run stops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from afa.cohort.cohort import Cohort
from afa.evaluate.accuracy import Resampled, share_of
from afa.evaluate.summary import summary_rows
from afa.inference.meanfield import Solver
from afa.model.bundle import Bundle
from afa.paper.sanity import Subject, paths, run_gates, scores, synthetic_subjects

if TYPE_CHECKING:
    from afa.paper.experiments.settings import Bootstrap, Inference, Sanity


GATES = (scores.FULL_OBSERVATION, scores.GAUGE, paths.MEAN_FIELD, paths.SOUNDNESS, scores.COPELAND)
CHECKED_SCORES = ("two_elbo", "stack_a")
SHARE_DENOMINATORS = {"called": "decided", "wrong": "called"}
"""Name of a count of decisions by score bounds -> name of the count by which this count is divided."""


def run(
    bundle: Bundle, cohort: Cohort, *, sanity: Sanity, inference: Inference, threads: int | None = None
) -> dict[str, pd.DataFrame]:
    """Run all acceptance tests on a bundle and a cohort.

    The setting `seeds` determines the random orders. Score bounds (brackets) and mean-field runs are checked along all
    random orders. All other quantities are checked only along the random order of the first seed.

    The function that makes a table describes the table's columns:

    - `gates`: `run_gates`;
    - `brackets`: `bracket_table`;
    - `bracket_patients`: `bracket_patients_table`;
    - `convergence`: `convergence_table`;
    - `nonconvergence`: `nonconvergence_table`;
    - `contraction`: `contraction_table`;
    - `gauge_change`: `gauge_change`.

    Raises
    ------
    SanityError : a check failed. The message contains each failed check and the first failed case of this check.

    """
    own = Subject(bundle, cohort.patients, cohort.values, sanity.seeds, Solver(**dict(inference)), threads)
    synthetic = synthetic_subjects(threads=threads)
    subjects = [("run", own), *(("synthetic", one) for one in synthetic)]
    changes = [scores.gauge_change(one).assign(input=name) for name, one in subjects]
    return {
        "gates": run_gates(GATES, own, synthetic),
        "brackets": paths.bracket_table(own),
        "bracket_patients": paths.bracket_patients_table(own),
        "convergence": paths.convergence_table(own),
        "nonconvergence": paths.nonconvergence_table(own),
        "contraction": paths.contraction_table(bundle),
        "gauge_change": pd.concat(changes, ignore_index=True),
    }


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Return the rows of the table `sanity` in `summary.csv`. The column `quantity` names the acceptance test.

    Returns
    -------
    count : number of failed cases among `n` cases, for each acceptance test, and in a row without a quantity for all
        tests together. Two further counts are decisions in duels that are tied at full observation, and pairs of a
        patient and an entity that persistently do not converge
    rate : `called` is the share of decided cases among cases with a winner, and `wrong` is the share of wrong
        decisions. Both shares are given for each bracket and population, over all t with an interval over patients, and
        for each t without an interval. `capped` is the share of mean-field runs that reached the largest number of
        sweeps, and `gauge_change` is the share of decisions that change if the same potentials (a gauge) are added to
        both class models of a binary task
    iterations : mean number of damped sweeps in a mean-field run
    contraction : median and largest beta L^2
    nats : mean change of `two_elbo` if the same potentials (a gauge) are added to both class models of a binary task

    """
    rows = [
        _gate_rows(tables["gates"]),
        _bracket_rows(tables["bracket_patients"], bootstrap),
        _bracket_rows_by_round(tables["brackets"]),
        _solve_rows(tables["convergence"], tables["nonconvergence"]),
        _contraction_rows(tables["contraction"]),
        _gauge_rows(tables["gauge_change"]),
    ]
    whole = pd.concat([part for part in rows if len(part)], ignore_index=True)
    return summary_rows("sanity", whole.assign(t=pd.to_numeric(whole["t"])))


def _gate_rows(gates: pd.DataFrame) -> pd.DataFrame:
    by_name = gates.groupby("name", sort=False)[["failures", "cases"]].sum().reset_index()
    whole = pd.DataFrame({"name": [None], "failures": [gates["failures"].sum()], "cases": [gates["cases"].sum()]})
    table = pd.concat([whole.astype({"name": object}), by_name], ignore_index=True)
    called = {"name": "quantity", "failures": "value", "cases": "n"}
    return table.rename(columns=called).assign(metric="count")


def _bracket_rows(patients: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    resampled = Resampled.of(patients["patient"].unique(), **dict(bootstrap), purpose="sanity")
    tables = []
    for (population, bracket), table in patients.groupby(["population", "bracket"], sort=False):
        of = {"stratum": str(population), "reference": str(bracket)}
        for name, whole in SHARE_DENOMINATORS.items():
            share = resampled.share(table, name, whole, by=None)
            tables.append(share.assign(metric="rate", quantity=name, **of))
        tied = int(table["tied_called"].sum())
        row = {"metric": "count", "quantity": "tied_called", "value": tied, "n": tied}
        tables.append(pd.DataFrame([{**of, **row}]))
    return pd.concat(tables, ignore_index=True)


def _bracket_rows_by_round(brackets: pd.DataFrame) -> pd.DataFrame:
    of = brackets[["population", "bracket", "t"]].rename(columns={"population": "stratum", "bracket": "reference"})
    parts = []
    for share, whole in SHARE_DENOMINATORS.items():
        value, total = share_of(brackets[share].to_numpy(float), brackets[whole].to_numpy()), brackets[whole]
        parts.append(of.assign(metric="rate", quantity=share, value=value, n=total)[total > 0])
    return pd.concat(parts, ignore_index=True)


def _solve_rows(convergence: pd.DataFrame, nonconvergence: pd.DataFrame) -> pd.DataFrame:
    rows: list[dict[str, object]] = []
    for model, table in convergence.groupby("model", sort=False):
        for t, part in ((None, table), (0, table[table["t"] == 0])):
            solves = int(part["solves"].sum())
            key = {"stratum": model, "t": t, "n": solves}
            sweeps, capped = part["iterations"].sum(), part["capped"].sum()
            rows += [
                {**key, "metric": "iterations", "value": _share_or_nan(sweeps, solves)},
                {**key, "metric": "rate", "quantity": "capped", "value": _share_or_nan(capped, solves)},
            ]
        cases = nonconvergence[nonconvergence["model"] == model]
        key = {"stratum": model, "metric": "count", "quantity": "persistent_nonconvergence"}
        rows.append({**key, "value": cases["persistent"].sum(), "n": len(cases)})
    return pd.DataFrame(rows)


def _contraction_rows(contraction: pd.DataFrame) -> pd.DataFrame:
    rows = [
        (model, len(values), *cells)
        for model, values in contraction.groupby("model", sort=False)["contraction"]
        for cells in (
            ("contraction", "median", None, values.median()),
            ("contraction", "largest", None, values.max()),
            ("rate", "contraction_below", 1, (values < 1).mean()),
            ("rate", "contraction_below", 1.5, (values < 1.5).mean()),
        )
    ]
    return pd.DataFrame(rows, columns=["stratum", "n", "metric", "quantity", "level", "value"])


def _gauge_rows(changes: pd.DataFrame) -> pd.DataFrame:
    """Return summary rows about how scores change if the same potentials are added to both class models of a task.

    The change is given for the run's bundle, for each t and over all t.
    """
    own = changes[changes["input"] == "run"]
    over_all = own.assign(total=own["mean_change"] * own["states"], t=None).groupby("score", sort=False)
    sums = over_all[["states", "changed", "total"]].sum().reset_index()
    whole = sums.assign(mean_change=sums["total"] / sums["states"], t=None)
    table = pd.concat([whole.astype({"t": object}), own.astype({"t": object})], ignore_index=True)
    is_score = table["score"].isin(CHECKED_SCORES)
    keys = table[["t"]].assign(quantity="gauge_change", n=table["states"])
    keys = keys.assign(method=table["score"].where(is_score, None), reference=table["score"].mask(is_score, None))
    rates = keys.assign(metric="rate", value=table["changed"] / table["states"])
    in_nats = table["score"] == "two_elbo"
    nats = keys.assign(metric="nats", value=table["mean_change"])[in_nats]
    return pd.concat([rates, nats], ignore_index=True)


def _share_or_nan(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")
