"""`afa encode`: a plain table of patients to -1, 0, +1 and empty."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from afa.cli.options import Level, Out, TernaryTest, Threshold

FeaturesFile = Annotated[
    Path, typer.Option("--features", help="CSV: feature,kind,unit,low,high,values,p_low,p_high,definition")
]
TableReference = Annotated[
    Literal["controls", "cohort"] | None,
    typer.Option("--reference", help="what cuts features without a range: controls, or the patients themselves"),
]
ControlRows = Annotated[
    str | None, typer.Option("--controls", help="COLUMN=VALUE: which rows are controls; they leave the table")
]


def encode(
    values: Annotated[Path, typer.Argument(help="patients, then numbers: .csv, .tsv (.gz) or .parquet")],
    features: FeaturesFile,
    out: Out,
    reference: TableReference = None,
    controls: ControlRows = None,
    test: TernaryTest = "empirical",
    level: Level = 0.05,
    threshold: Threshold = 0.5,
) -> None:
    """Encode a table of numbers by the ranges of its features; what was cut where stands beside it."""
    from afa.cohort.encode_table import Coding, control_rows, read_and_encode, write_encoded
    from afa.features import read_features

    rows = control_rows(controls)
    coding = Coding(reference or ("controls" if rows else None), test, level, threshold)
    encoded = read_and_encode(values, read_features(features), coding, rows)
    cuts = write_encoded(encoded, out)
    for note in encoded.notes:
        typer.echo(note)
    patients, columns = encoded.values.shape
    typer.echo(f"{patients} patients x {columns} features into {out}; the cut points are in {cuts}")
