"""Define `afa update`, which updates the probabilities of a bundle with labelled patients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from afa.cli import options


def update(
    bundle: options.BundleArgument,
    values: Annotated[
        Path,
        typer.Argument(
            metavar="VALUES", help="table of -1, 0, 1 or empty cells (.csv or .parquet), or a cohort folder"
        ),
    ],
    labels: Annotated[
        Path,
        typer.Argument(
            metavar="LABELS",
            help="CSV of labels, with a column of patients' names, and a column of 0, 1 or empty cells for each entity",
        ),
    ],
    out: options.Out,
    couplings: Annotated[
        bool,
        typer.Option("--couplings/--no-couplings", help="keep the elicited couplings; labels never change couplings"),
    ] = True,
    json: options.AsJson = False,
) -> None:
    """Use labelled patients to update the probabilities of a bundle, and write the new bundle."""
    from afa.cohort.cells import read_labels, read_patients
    from afa.evaluate.update import check_probabilities, update_by, update_text
    from afa.io.csvfile import first_names
    from afa.model.bundle import load_bundle, save_bundle

    model = load_bundle(bundle)
    check_probabilities(model)
    given = read_labels(labels, read_patients(values, model, drop_missing=True))
    made = update_by(model, given.frame(), given.cohort.labels.astype("Float64").astype(float), couplings=couplings)
    save_bundle(made, out)
    said = made.provenance["updates"][-1]
    if json:
        typer.echo(options.as_json([said], out=str(out), digest=made.digest))
        return
    if given.dropped:
        typer.echo(f"not in the table, so as elicited ({len(given.dropped)}): {first_names(given.dropped)}")
    if given.left_out:
        typer.echo(f"labelled but not in the table ({len(given.left_out)}): {first_names(given.left_out)}")
    typer.echo(update_text(said, made.shown))
    typer.echo(f"wrote {out}")
