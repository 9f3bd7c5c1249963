"""`afa doctor`: what would stop or spoil a run, found before it starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from afa.doctor.examine import Examination


def doctor(
    more: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="further settings")] = None,
    config: Annotated[list[str] | None, typer.Option("--config", help="key=value, as Snakemake takes it")] = None,
    configfile: Annotated[list[Path] | None, typer.Option(help="a file of settings, as Snakemake takes it")] = None,
    cohort: Annotated[str | None, typer.Option(help="short for --config cohort=NAME")] = None,
    bundle: Annotated[Path | None, typer.Option(help="short for --config bundle=FOLDER")] = None,
    run: Annotated[str | None, typer.Option(help="short for --config run=NAME")] = None,
    geo_mirror: Annotated[Path | None, typer.Option(help="short for --config geo_mirror=FOLDER")] = None,
    profile: Annotated[str | None, typer.Option(help="a profile of workflow/profiles, or a folder")] = None,
    network: Annotated[bool, typer.Option("--network", help="ask servers for what would be fetched")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
) -> None:
    """Check a run before it starts: settings, bundle, cohort, disk, memory, environment; exit 2 where there is a fault.

    Run it where the Snakefile is, with the settings that Snakemake will get. It writes and fetches nothing.
    """
    import sys

    sys.dont_write_bytecode = True
    from afa.doctor.examine import examine
    from afa.doctor.facts import this_machine

    short = {"cohort": cohort, "bundle": bundle, "run": run, "geo_mirror": geo_mirror}
    entries = [*(config or []), *(more or []), *(f"{key}={value}" for key, value in short.items() if value is not None)]
    found = examine(configfile or [], entries, this_machine(), profile=profile, network=network)
    typer.echo(_as_json(found) if as_json else _as_text(found))
    if found.faults:
        raise typer.Exit(2)


def _as_text(found: Examination) -> str:
    """A line for each finding, the estimate by stage, and the verdict."""
    lines = [*map(str, found.findings)]
    if len(found.stages):
        lines += ["", f"{'stage':<22} {'jobs':>5} {'minutes':>8} {'MB':>6}"]
        for each in found.stages.to_dict(orient="records"):
            time, space = each["seconds"] / 60, each["space_mb"]
            lines.append(f"{each['stage']:<22} {each['jobs']:>5} {time:>8.1f} {space:>6.1f}")
    return "\n".join([*lines, "", found.verdict])


def _as_json(found: Examination) -> str:
    """The same as one JSON object."""
    import json
    from dataclasses import asdict

    document = {
        "run": found.run,
        "faults": found.faults,
        "findings": [asdict(each) for each in found.findings],
        "stages": found.stages.to_dict(orient="records"),
        "verdict": found.verdict,
    }
    return json.dumps(document, indent=2)
