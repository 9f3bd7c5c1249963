"""`afa phenotypes`: which sign to look for next, tried on published patients with rare diseases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from afa.cli.options import Out, Unstated


def phenotypes(
    annotations: Annotated[Path, typer.Argument(help="phenotype.hpoa, or the older tables")],
    ontology: Annotated[Path, typer.Argument(help="hp.obo of the annotations' time")],
    patients: Annotated[Path, typer.Argument(help="CSV: patient,pmid,disease_id,observed,excluded")],
    newer: Annotated[Path, typer.Option("--newer", help="a later ontology, which places the patients' terms")],
    out: Out,
    later_than: Annotated[
        int, typer.Option("--later-than", help="acquisition: papers with a PubMed number above this")
    ] = 0,
    of_each_paper: Annotated[
        int, typer.Option("--of-each-paper", min=1, help="acquisition: patients of a paper at most")
    ] = 1_000,
    unstated: Unstated = 0.5,
    every: Annotated[int, typer.Option("--every", min=0, help="patients who can be asked for every known sign")] = 0,
    most: Annotated[int, typer.Option("--most", min=1, help="questions to each of those")] = 20,
) -> None:
    """How soon is the right one of thousands of diseases found? Writes tables, their summary and a figure."""
    import pandas as pd

    from afa.files import atomic_folder
    from afa.formats.hpo import disease_terms, read_annotations
    from afa.formats.ontology import read_ontology
    from afa.formats.patients import chosen, read_patients
    from afa.phenotypes import ALL_NOTED, acquisition, at_full_observation, summary
    from afa.report.phenotypes import draw_phenotypes

    terms, read = read_ontology(ontology), read_annotations(annotations)
    known = disease_terms(read, terms, unstated=unstated)
    everybody = read_patients(patients, known, terms, read_ontology(newer))
    kept = chosen(everybody, later_than, of_each_paper)
    model, told = known.hierarchy, set(read.table.loc[read.table["frequency"] > 0, "disease"])
    stated = [each.name for each in everybody if known.diseases[each.disease] in told]
    counts = f"{len(everybody)} patients, {len(kept)} of them asked"
    typer.echo(f"{len(model.entities)} diseases, {len(model.features)} signs, {counts}")
    full = at_full_observation(model, everybody)
    walks = [acquisition(model, kept, questions=questions) for questions in ("reported", "present")]
    if every:
        one_each = chosen(kept, 0, 1)[:every]
        walks += [acquisition(model, one_each, questions=asked, most=most) for asked in ("every", ALL_NOTED)]
    walked = pd.concat(walks, ignore_index=True)
    with atomic_folder(out) as folder:
        full.to_parquet(folder / "full.parquet", index=False)
        walked.to_parquet(folder / "walks.parquet", index=False)
        told_of = summary(full, walked, stated)
        told_of.to_csv(folder / "summary.csv", index=False)
        draw_phenotypes(told_of, folder / "phenotypes.png")
    typer.echo(f"tables and figure in {out}")
