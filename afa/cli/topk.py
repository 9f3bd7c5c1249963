"""`afa experiment`, the top-k setting: allocation rules, and the two layers that take duels and entities out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from afa.cli.options import (
    BundleFolder,
    CohortFolder,
    Damping,
    MaxIterations,
    Out,
    Seeds,
    Shard,
    Threads,
    Tolerance,
)

app = typer.Typer()

TopK = Annotated[int, typer.Option("--k", min=1, help="size of the top set")]


@app.command("allocation-truth")
def experiment_allocation_truth(
    bundle: BundleFolder,
    cohort: CohortFolder,
    out: Out,
    k: TopK = 5,
    damping: Damping = 0.5,
    tolerance: Tolerance = 1e-4,
    max_iterations: MaxIterations = 200,
) -> None:
    """What the allocation grid is held against: the duels and the top k of every patient at full observation."""
    from afa.experiments.allocation import allocation_truth
    from afa.experiments.inputs import check_duels, load_inputs, top_k_size
    from afa.experiments.tables import write_tables
    from afa.inference.meanfield import Solver

    model, patients = load_inputs(bundle, cohort)
    check_duels(model, bundle)
    solver = Solver(damping, tolerance, max_iterations)
    write_tables(allocation_truth(model, patients, k=top_k_size(model, k, typer.echo), solver=solver), out)


@app.command("allocation")
def experiment_allocation(
    bundle: BundleFolder,
    cohort: CohortFolder,
    out: Out,
    rules: Annotated[str, typer.Option(help="comma-separated rules, or module:Class")] = "priority_all",
    gain: Annotated[str, typer.Option(help="wald_magnitude, cmi or f_target; none: rules without a gain")] = "cmi",
    schedules: Annotated[str, typer.Option(help="when candidates are ranked again: every, paper, or both")] = "every",
    k: TopK = 5,
    seeds: Seeds = "0,1,2",
    shard: Shard = "1/1",
    damping: Damping = 0.5,
    tolerance: Tolerance = 1e-4,
    max_iterations: MaxIterations = 200,
    threads: Threads = 1,
) -> None:
    """The cells of the allocation grid that have one gain: every choice and every round of the chosen patients."""
    from afa.errors import ConfigError, Fault
    from afa.experiments.allocation import GAINS, SCHEDULES, allocation_grid, grid_cells
    from afa.experiments.inputs import check_duels, load_inputs, numbers, shard_of, top_k_size, words
    from afa.experiments.tables import write_tables
    from afa.inference.meanfield import Solver

    model, patients = load_inputs(bundle, cohort)
    check_duels(model, bundle)
    (chosen,) = words("--gain", gain, ("none", *GAINS))
    cells = grid_cells(
        [rule.strip() for rule in rules.split(",")],
        "" if chosen == "none" else chosen,
        words("--schedules", schedules, tuple(SCHEDULES)),
    )
    if not cells:
        expected = "a rule that looks at no gain" if chosen == "none" else "a rule that looks at a gain"
        raise ConfigError(Fault(f"--rules with --gain {gain}", rules, expected, "name another rule, or another gain"))
    tables = allocation_grid(
        model,
        patients,
        shard_of(len(patients.patients), shard),
        cells,
        k=top_k_size(model, k, typer.echo),
        seeds=numbers("--seeds", seeds),
        solver=Solver(damping, tolerance, max_iterations),
        threads=threads,
        report=typer.echo,
    )
    write_tables(tables, out)


@app.command("layer1")
def experiment_layer1(
    bundle: BundleFolder,
    cohort: CohortFolder,
    out: Out,
    seeds: Seeds = "0,1,2",
    shard: Shard = "1/1",
    damping: Damping = 0.5,
    tolerance: Tolerance = 1e-4,
    max_iterations: MaxIterations = 200,
    threads: Threads = 1,
) -> None:
    """Which duels each bracket has called along random and informed orders, and how many wrongly."""
    from afa.experiments.inputs import check_duels, load_inputs, numbers, shard_of
    from afa.experiments.layer1 import layer1
    from afa.experiments.tables import write_tables
    from afa.inference.meanfield import Solver

    model, patients = load_inputs(bundle, cohort)
    check_duels(model, bundle)
    tables = layer1(
        model,
        patients,
        shard_of(len(patients.patients), shard),
        seeds=numbers("--seeds", seeds),
        solver=Solver(damping, tolerance, max_iterations),
        threads=threads,
    )
    write_tables(tables, out)


@app.command("layer0")
def experiment_layer0(
    bundle: BundleFolder,
    cohort: CohortFolder,
    out: Out,
    clusters: Annotated[str, typer.Option(help="numbers of clusters, comma-separated")] = "5,8,10,12,15,20,24",
    k: TopK = 5,
    damping: Damping = 0.5,
    tolerance: Tolerance = 1e-4,
    max_iterations: MaxIterations = 200,
) -> None:
    """What Layer 0 removes before anything is measured, what full observation contradicts, and what that lifts."""
    from functools import partial

    from afa.experiments.inputs import check_duels, load_inputs, numbers, top_k_size
    from afa.experiments.layer0 import layer0_bundle
    from afa.experiments.layer0_lift import layer0_lift
    from afa.experiments.tables import write_tables
    from afa.inference.meanfield import Solver

    model, patients = load_inputs(bundle, cohort)
    check_duels(model, bundle)
    size = top_k_size(model, k, typer.echo)
    solver = Solver(damping, tolerance, max_iterations)
    counts, lift = numbers("--clusters", clusters), partial(layer0_lift, solver=solver)
    write_tables(layer0_bundle(model, patients, counts=counts, k=size, solver=solver, lift=lift), out)


@app.command("layer0-synthetic")
def experiment_layer0_synthetic(
    portfolio: Annotated[Path, typer.Option("--portfolio", help="the configurations, such as config/portfolio.yaml")],
    out: Out,
    simulated: Annotated[int, typer.Option(min=20, help="patients of each configuration")] = 200,
    damping: Damping = 0.5,
    tolerance: Tolerance = 1e-4,
    max_iterations: MaxIterations = 200,
    threads: Threads = 1,
) -> None:
    """Layer 0 on synthetic entities, and what it adds to `greedy` there; needs no bundle and no cohort."""
    from functools import partial

    from afa.experiments.layer0 import layer0_portfolio
    from afa.experiments.layer0_lift import layer0_lift
    from afa.experiments.portfolio_config import load_portfolio
    from afa.experiments.tables import write_tables
    from afa.inference.meanfield import Solver

    solver = Solver(damping, tolerance, max_iterations)
    lift = partial(layer0_lift, solver=solver, threads=threads)
    write_tables(layer0_portfolio(load_portfolio(portfolio), n_patients=simulated, solver=solver, lift=lift), out)
