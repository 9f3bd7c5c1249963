"""Consensus over independent answers: which genes a phenotype keeps, with which sign, and why the others go."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import pandas as pd

from afa.errors import ElicitationError, Fault

SIGN = {"Upregulated": 1, "Downregulated": -1}
COLUMNS = ["run", "phenotype", "gene", "direction", "lit_prob"]


@dataclass(frozen=True)
class ConsensusResult:
    """What survived and what did not, one row per phenotype and gene, sorted by phenotype (as asked) and gene.

    `kept` has the columns phenotype, gene, potential (+1 or -1), confidence in [0, 1], n_runs; `dropped` has
    phenotype, gene, reason.
    """

    kept: pd.DataFrame
    dropped: pd.DataFrame


def consensus(answers: pd.DataFrame, *, min_agree: int, runs: Collection[str] | None = None) -> ConsensusResult:
    """Keep a gene for a phenotype where at least `min_agree` runs name it and all that name it agree on direction.

    Parameters
    ----------
    answers
        One row per named gene with the columns run, phenotype, gene, direction (Upregulated or Downregulated) and
        lit_prob in [0, 1]; other columns are ignored. Row order does not matter, except that phenotypes come out in
        the order of their first appearance.
    min_agree
        Number of runs that must name a gene, from 1 to the number of runs.
    runs
        All runs that were asked; those in `answers` where not given.

    Raises
    ------
    ElicitationError : a direction is unknown, a run names a gene twice for a phenotype, `min_agree` is out of range.

    The potential is +1 for Upregulated and -1 for Downregulated, the confidence the mean `lit_prob` of the naming runs.

    """
    n_runs = int(answers["run"].nunique()) if runs is None else len(runs)
    _check(answers, min_agree, n_runs)
    kept, dropped = [], []
    for phenotype in answers["phenotype"].unique():
        named = answers[answers["phenotype"] == phenotype]
        for gene, votes in named.groupby("gene", sort=True):
            if len(set(votes["direction"])) > 1:
                dropped.append((phenotype, gene, "directions disagree"))
            elif len(votes) < min_agree:
                dropped.append((phenotype, gene, f"named by {len(votes)} of {n_runs} runs, {min_agree} needed"))
            else:
                confidence = math.fsum(votes["lit_prob"]) / len(votes)
                kept.append((phenotype, gene, SIGN[votes["direction"].iloc[0]], confidence, len(votes)))
    return ConsensusResult(
        kept=pd.DataFrame(kept, columns=["phenotype", "gene", "potential", "confidence", "n_runs"]),
        dropped=pd.DataFrame(dropped, columns=["phenotype", "gene", "reason"]),
    )


def _check(answers: pd.DataFrame, min_agree: int, n_runs: int) -> None:
    faults = []
    if not 1 <= min_agree <= n_runs:
        expected = f"a number of runs from 1 to {n_runs}"
        faults.append(Fault("consensus, min_agree", str(min_agree), expected, "choose how many runs must agree"))
    for row in answers[~answers["direction"].isin(list(SIGN))].itertuples():
        where = f"answer of run {row.run}, {row.phenotype}, gene {row.gene}, direction"
        faults.append(Fault(where, repr(row.direction), " or ".join(SIGN), "correct the answer"))
    for row in answers[answers.duplicated(["run", "phenotype", "gene"])].itertuples():
        where = f"answer of run {row.run}, {row.phenotype}, gene {row.gene}"
        faults.append(Fault(where, "the gene named twice", "each gene once in an answer", "remove one of the two"))
    if faults:
        raise ElicitationError(faults)
