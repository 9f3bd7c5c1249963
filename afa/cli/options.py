"""Options that several commands share, each with its help text, and the JSON of a table."""

from __future__ import annotations

from json import dumps, loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from pandas import DataFrame

Out = Annotated[Path, typer.Option("--out", help="where to write; appears only when complete")]
CohortFile = Annotated[Path, typer.Argument(help="a file of config/cohorts")]
BundleFolder = Annotated[Path, typer.Option("--bundle", help="bundle folder")]
CohortFolder = Annotated[Path, typer.Option("--cohort", help="cohort folder")]
SourceFile = Annotated[Path, typer.Option("--source", help="what `afa cohort fetch` wrote")]
TernaryTest = Annotated[Literal["empirical", "normal", "t"], typer.Option("--test", help="ternary test")]
Level = Annotated[float, typer.Option("--level", help="significance level of the ternary test")]
Reference = Annotated[Literal["controls", "cohort"], typer.Option("--reference", help="what values are held against")]
Threshold = Annotated[float, typer.Option("--threshold", min=0, help="robust SDs from the cohort's median")]
AliasFile = Annotated[Path | None, typer.Option("--aliases", help="CSV of other symbols of a gene")]
EnsemblFile = Annotated[Path | None, typer.Option("--ensembl", help="CSV of Ensembl ids of a gene")]
Seeds = Annotated[str, typer.Option(help="comma-separated; one random order per patient and seed")]
Shard = Annotated[str, typer.Option(help="I/N: the I-th of N parts of the patients, from 1")]
Threads = Annotated[int, typer.Option(min=1, help="threads; they change no number")]
Coupling = Annotated[Literal["differential", "shared"], typer.Option(help="couplings of the two class models")]
Strength = Annotated[float, typer.Option(help="beta L^2 that shared couplings are scaled down to")]
Damping = Annotated[float, typer.Option(help="weight of the new marginals in each mean-field sweep")]
Tolerance = Annotated[float, typer.Option(help="largest change of a probability at which a solve stops")]
MaxIterations = Annotated[int, typer.Option(help="damped sweeps before coordinate ascent takes over")]
Resamples = Annotated[int, typer.Option(help="bootstrap resamples of the patients")]
Confidence = Annotated[float, typer.Option(help="of the intervals")]
AsJson = Annotated[bool, typer.Option("--json", help="the table as JSON, for another program")]


def as_json(table: DataFrame | list[dict[str, Any]], **more: Any) -> str:
    """One JSON object in one line: `rows`, one object each, and what else there is to say."""
    rows = table if isinstance(table, list) else loads(table.to_json(orient="records"))
    return dumps(more | {"rows": rows}, ensure_ascii=False)
