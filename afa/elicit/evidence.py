"""The second filter: a gene stays where at least one answer that names it rests on a reference that was retrieved."""

from __future__ import annotations

import pandas as pd

from afa.elicit.store import UNKNOWN
from afa.errors import ElicitationError, Fault


def evidence_filter(kept: pd.DataFrame, named: pd.DataFrame, *, references: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What of `kept` has evidence, and what is dropped with the reason (paragraph "Consensus-and-evidence filtering").

    kept : of `afa.elicit.consensus.consensus`. named : of `afa.elicit.answered.genes_named`, with `references` cut to
    those that were retrieved. references : whether the filter is on; off, everything stays.
    Returns `kept` and `dropped` (phenotype, gene, reason).

    Raises
    ------
    ElicitationError : the filter is on and the record has no references to filter by.

    """
    columns = ["phenotype", "gene", "reason"]
    if not references:
        return kept, pd.DataFrame(columns=columns)
    if (named["references"] == UNKNOWN).any():
        found, step = "a record without references", "set references: false in study.yaml, and say so where it is used"
        raise ElicitationError(Fault("the evidence filter", found, "the references of every answer", step))
    supported = named[named["references"] != ""].set_index(["phenotype", "gene"]).index
    stays = pd.MultiIndex.from_frame(kept[["phenotype", "gene"]]).isin(supported)
    dropped = kept.loc[~stays, ["phenotype", "gene"]].assign(reason="no supported reference")
    return kept[stays].reset_index(drop=True), dropped.reset_index(drop=True)
