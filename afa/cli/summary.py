"""`afa summary`: the numbers of each stage over a cohort, and all of them in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from afa.cli.options import Confidence, Out, Resamples

app = typer.Typer(help="The numbers of each stage, one to a line.", no_args_is_help=True)

Tables = Annotated[Path, typer.Argument(help="gathered tables of the stage")]


@app.command("sign")
def summary_sign(tables: Tables, out: Out, resamples: Resamples = 1000, confidence: Confidence = 0.95) -> None:
    """Sign convergence: accuracy of each score at every t."""
    from afa.experiments.sign_summary import summarise_sign_convergence
    from afa.experiments.summary import write_summary
    from afa.experiments.tables import read_table

    rounds, duels, orders = (read_table(tables, name) for name in ("rounds", "duels", "orders"))
    rows = summarise_sign_convergence(rounds, duels, orders, resamples=resamples, confidence=confidence)
    write_summary([rows], out)


@app.command("allocation")
def summary_allocation(
    tables: Tables,
    truth: Annotated[Path, typer.Option("--truth", help="what `afa experiment allocation-truth` wrote")],
    out: Out,
    resamples: Resamples = 1000,
    confidence: Confidence = 0.95,
) -> None:
    """The allocation grid: sign accuracy, precision of the top k, certainty and what each rule saves."""
    from afa.experiments.allocation_summary import summarise_allocation
    from afa.experiments.summary import write_summary
    from afa.experiments.tables import read_table

    parts = {name: read_table(tables, name) for name in ("rounds", "choices")}
    parts |= {name: read_table(truth, name) for name in ("duels", "targets")}
    write_summary([summarise_allocation(parts, resamples=resamples, confidence=confidence)], out)


@app.command("layer1")
def summary_layer1(tables: Tables, out: Out, resamples: Resamples = 1000, confidence: Confidence = 0.95) -> None:
    """Layer 1: how many duels each bracket has called at every t, and how many wrongly."""
    from afa.experiments.layer1_summary import summarise_layer1
    from afa.experiments.summary import write_summary
    from afa.experiments.tables import read_table

    parts = {name: read_table(tables, name) for name in ("calls", "steps", "pairs", "left_open")}
    write_summary([summarise_layer1(parts, resamples=resamples, confidence=confidence)], out)


@app.command("binary")
def summary_binary(tables: Tables, out: Out, resamples: Resamples = 1000, confidence: Confidence = 0.95) -> None:
    """The binary task: accuracy of each score at every t under each order, and how often brackets are one-sided."""
    from afa.experiments.binary_summary import summarise_binary
    from afa.experiments.summary import write_summary
    from afa.experiments.tables import read_table

    steps, targets, tasks = (read_table(tables, name) for name in ("steps", "targets", "tasks"))
    write_summary([summarise_binary(steps, targets, tasks, resamples=resamples, confidence=confidence)], out)


@app.command("calibration")
def summary_calibration(
    tables: Tables,
    tasks: Annotated[Path, typer.Option("--tasks", help="gathered tables of `afa experiment binary`")],
    out: Out,
    resamples: Resamples = 1000,
    confidence: Confidence = 0.95,
) -> None:
    """Calibration: how far the probabilities of the binary task are from the shares that they should be."""
    from afa.experiments.calibration_summary import summarise_calibration
    from afa.experiments.summary import write_summary
    from afa.experiments.tables import read_table

    odds, targets = read_table(tables, "odds"), read_table(tasks, "targets")
    write_summary([summarise_calibration(odds, targets, resamples=resamples, confidence=confidence)], out)


@app.command("simulated-calibration")
def summary_simulated_calibration(
    tables: Tables, out: Out, resamples: Resamples = 1000, confidence: Confidence = 0.95
) -> None:
    """Simulation-based calibration: ranks against uniform, and the errors of the probabilities, by inference."""
    from afa.experiments.simulated_calibration_summary import summarise_simulated_calibration
    from afa.experiments.summary import write_summary
    from afa.experiments.tables import read_table

    draws, left_out = (read_table(tables, name) for name in ("draws", "left_out"))
    rows = summarise_simulated_calibration(draws, left_out, resamples=resamples, confidence=confidence)
    write_summary([rows], out)


@app.command("elicitation-error")
def summary_elicitation_error(
    tables: Tables, out: Out, resamples: Resamples = 1000, confidence: Confidence = 0.95
) -> None:
    """Accuracy at full observation against the share of wrong signs."""
    from afa.experiments.elicitation_error_summary import summarise_elicitation_error
    from afa.experiments.summary import write_summary
    from afa.experiments.tables import read_table

    names = ("calls", "replicates", "references", "labels", "profiles", "left_out")
    parts = [read_table(tables, name) for name in names]
    write_summary([summarise_elicitation_error(*parts, resamples=resamples, confidence=confidence)], out)


@app.command("elicitation-health")
def summary_elicitation_health(
    tables: Tables, out: Out, resamples: Resamples = 1000, confidence: Confidence = 0.95
) -> None:
    """Agreement of recorded answers over runs and wordings, and of signs with the data, beside chance."""
    from afa.experiments.elicitation_health import TABLES
    from afa.experiments.elicitation_health_summary import summarise_elicitation_health
    from afa.experiments.summary import write_summary
    from afa.experiments.tables import read_table

    parts = {name: read_table(tables, name) for name in TABLES}
    write_summary([summarise_elicitation_health(parts, resamples=resamples, confidence=confidence)], out)


@app.command("gauge")
def summary_gauge(tables: Tables, out: Out, resamples: Resamples = 1000, confidence: Confidence = 0.95) -> None:
    """The closure against the true gauge: agreement, correlation within duels, accuracy of each."""
    from afa.experiments.gauge_summary import summarise_gauge
    from afa.experiments.summary import write_summary
    from afa.experiments.tables import read_table

    parts = {name: read_table(tables, name) for name in ("agreement", "rounds", "scalars", "targets")}
    write_summary([summarise_gauge(parts, resamples=resamples, confidence=confidence)], out)


@app.command("chaos")
def summary_chaos(tables: Tables, out: Out, resamples: Resamples = 1000, confidence: Confidence = 0.95) -> None:
    """Chaotic patients: the gap of `linearity` over `wald` by group, and how stable the groups are."""
    from afa.experiments.chaos_summary import summarise_chaos
    from afa.experiments.summary import write_summary
    from afa.experiments.tables import read_table

    parts = {name: read_table(tables, name) for name in ("flips", "rounds", "duels")}
    write_summary([summarise_chaos(parts, resamples=resamples, confidence=confidence)], out)


@app.command("layer0")
def summary_layer0(tables: Tables, out: Out, resamples: Resamples = 1000, confidence: Confidence = 0.95) -> None:
    """Layer 0 on the bundle: what each number of clusters removes, how much of that is wrong, and what it lifts."""
    from afa.experiments.layer0_summary import summarise_layer0_bundle
    from afa.experiments.summary import write_summary
    from afa.experiments.tables import read_table

    parts = {name: read_table(tables, name) for name in ("layer0", "patients", "clusters", "lift")}
    write_summary([summarise_layer0_bundle(parts, resamples=resamples, confidence=confidence)], out)


@app.command("layer0-synthetic")
def summary_layer0_synthetic(
    tables: Tables, out: Out, resamples: Resamples = 1000, confidence: Confidence = 0.95
) -> None:
    """Layer 0 on the synthetic configurations."""
    from afa.experiments.layer0_summary import summarise_layer0_synthetic
    from afa.experiments.summary import write_summary
    from afa.experiments.tables import read_table

    parts = {name: read_table(tables, name) for name in ("layer0", "patients", "clusters", "lift")}
    write_summary([summarise_layer0_synthetic(parts, resamples=resamples, confidence=confidence)], out)


@app.command("sanity")
def summary_sanity(tables: Tables, out: Out, resamples: Resamples = 1000, confidence: Confidence = 0.95) -> None:
    """The acceptance tests: cases and failures of each gate, and what is reported beside them."""
    from afa.experiments.sanity.summary import TABLES, summarise_sanity
    from afa.experiments.summary import write_summary
    from afa.experiments.tables import read_table

    parts = {name: read_table(tables, name) for name in TABLES}
    write_summary([summarise_sanity(parts, resamples=resamples, confidence=confidence)], out)


@app.command("errata")
def summary_errata(tables: Tables, out: Out) -> None:
    """The errata: one line a check, and the paper's number where it gives one."""
    from afa.experiments.errata.table import summarise_errata
    from afa.experiments.summary import write_summary
    from afa.experiments.tables import read_table

    write_summary([summarise_errata(read_table(tables, "errata"))], out)


@app.command("join")
def summary_join(
    parts: Annotated[list[Path], typer.Argument(help="what `afa summary` wrote of each stage")], out: Out
) -> None:
    """Write summary.csv: every number that the report's tables show, one to a line."""
    from afa.experiments.summary import join_summaries

    join_summaries(parts, out)
