"""`afa phenotypes`: which sign to look for next, tried on published patients with rare diseases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from afa.cli.options import Out


def phenotypes(
    annotations: Annotated[Path, typer.Argument(help="phenotype.hpoa, or the older tables")],
    ontology: Annotated[Path, typer.Argument(help="hp.obo of the annotations' time")],
    patients: Annotated[Path, typer.Argument(help="CSV: patient,pmid,disease_id,observed,excluded")],
    newer: Annotated[Path, typer.Option("--newer", help="a later ontology, which places the patients' terms")],
    out: Out,
    later_than: Annotated[int, typer.Option("--later-than", help="papers with a PubMed number above this")] = 0,
    of_each_paper: Annotated[int, typer.Option("--of-each-paper", min=1, help="patients of a paper at most")] = 1_000,
    unstated: Annotated[float, typer.Option("--unstated", help="P of a sign annotated without a frequency")] = 0.5,
    every: Annotated[int, typer.Option("--every", min=0, help="patients who can be asked for every known sign")] = 0,
    most: Annotated[int, typer.Option("--most", min=1, help="questions to each of those")] = 20,
) -> None:
    """How soon is the right one of thousands of diseases found? Writes full.parquet, walks.parquet, summary.csv."""
    import pandas as pd

    from afa.files import atomic_folder
    from afa.formats.hpo import disease_terms, read_annotations
    from afa.formats.ontology import read_ontology
    from afa.phenotypes import acquisition, at_full_observation, chosen, read_patients, summary

    terms = read_ontology(ontology)
    known = disease_terms(read_annotations(annotations), terms, unstated=unstated)
    kept = chosen(read_patients(patients, known, terms, read_ontology(newer)), later_than, of_each_paper)
    model = known.hierarchy
    typer.echo(f"{len(model.entities)} diseases, {len(model.features)} signs, {len(kept)} patients")
    full = at_full_observation(model, kept)
    walks = [acquisition(model, kept, questions=questions) for questions in ("reported", "present")]
    if every:
        walks.append(acquisition(model, chosen(kept, 0, 1)[:every], questions="every", most=most))
    walked = pd.concat(walks, ignore_index=True)
    with atomic_folder(out) as folder:
        full.to_parquet(folder / "full.parquet", index=False)
        walked.to_parquet(folder / "walks.parquet", index=False)
        summary(full, walked).to_csv(folder / "summary.csv", index=False)
    typer.echo(f"tables in {out}")
