"""Which of the genes that answers name can be used, by rules that do not depend on what anybody hopes to find.

1. A symbol must have the form of HGNC: capital letters, digits and hyphens, beginning with a letter (`C9orf72` keeps
   its small letters). Blanks around it are taken off; nothing else is changed, no alias is looked up.
2. Of the genes of one answer only as many count as were asked for, the first ones.
3. A gene that one answer names twice counts once; with two directions it is dropped for its phenotype, in every run.
"""

from __future__ import annotations

import re

import pandas as pd

HGNC_FORM = re.compile(r"[A-Z](?:[A-Z0-9-]|orf(?=\d))*", re.ASCII)
DROPPED_COLUMNS = ["phenotype", "gene", "reason"]
LONGEST_SHOWN = 60


def usable_genes(named: pd.DataFrame, *, most_genes: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What of `named` counts, and what is dropped with the reason, both in the order of `named`.

    named : of `afa.elicit.answered.genes_named`. The second table has the columns of `DROPPED_COLUMNS`, a row per gene
    of an answer; the reason names the run.
    """
    answer = ["run", "phenotype"]
    reasons = pd.Series("", index=named.index, dtype=object)

    def drop(rows: pd.Series, reason: str) -> None:
        reasons[rows & (reasons == "")] = reason

    drop(~named["gene"].map(lambda gene: bool(HGNC_FORM.fullmatch(gene))).astype(bool), "no symbol in the form of HGNC")
    drop(named.groupby(answer).cumcount() >= most_genes, f"beyond the {most_genes} genes asked for")
    sound = named[reasons == ""]
    directions = sound.groupby([*answer, "gene"])["direction"].nunique()
    torn = directions[directions > 1].reset_index()[["phenotype", "gene"]]
    both = pd.MultiIndex.from_frame(named[["phenotype", "gene"]]).isin(pd.MultiIndex.from_frame(torn))
    drop(pd.Series(both, index=named.index), "an answer names it with both directions")
    drop(named.index.isin(sound.index) & named.duplicated([*answer, "gene"]), "named twice in one answer")
    lost = named[reasons != ""]
    dropped = pd.DataFrame(
        {
            "phenotype": lost["phenotype"],
            "gene": lost["gene"].map(_shown),
            "reason": "run " + lost["run"] + ": " + reasons[reasons != ""],
        },
        columns=DROPPED_COLUMNS,
    )
    return named[reasons == ""].reset_index(drop=True), dropped.reset_index(drop=True)


def _shown(gene: str) -> str:
    """A name that is no symbol, as a table can show it."""
    return gene[:LONGEST_SHOWN].encode("ascii", "backslashreplace").decode() if not gene.isprintable() else gene
