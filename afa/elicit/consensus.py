"""Which genes a phenotype keeps: agreement of the voters, and literature that speaks of the gene."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.elicit.record import UNKNOWN
from afa.elicit.study import Kind, Study
from afa.elicit.tables import DROPPED_COLUMNS, KEPT_COLUMNS, REFERENCE_COLUMNS, SIGN
from afa.errors import ElicitationError, Fault

AGREEMENT_COLUMNS = ["phenotype", "voters", "genes", "agreed", "share", "kappa"]
ALL = "all"
SUPPORTS = "supports"
SAME_MODEL = "The voters are runs of one model, so that their agreement is weak evidence."


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

    The potential is +1 for Upregulated and -1 for Downregulated, the confidence the mean `lit_prob` of the naming runs.

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
        kept=pd.DataFrame(kept, columns=KEPT_COLUMNS), dropped=pd.DataFrame(dropped, columns=DROPPED_COLUMNS)
    )


def check_voters(models: Mapping[str, str], study: Study) -> None:
    """Refuse voters that are one and the same model, unless the study says `same_model`.

    models : voter -> model and address; `UNKNOWN` is no model to compare.
    """
    voters: dict[str, list[str]] = {}
    for voter, model in models.items():
        voters.setdefault(model, []).append(voter)
    alike = [(model, own) for model, own in voters.items() if len(own) > 1 and not model.startswith(UNKNOWN)]
    if alike and not study.settings.same_model:
        model, own = alike[0]
        step = (
            "name another model or address for each under models, or set same_model: true, which the bundle then says"
        )
        found = f"{', '.join(own)} are all {model}"
        raise ElicitationError(Fault("study.yaml, voters", found, "voters that differ", step))


def agreement(named: pd.DataFrame, study: Study) -> pd.DataFrame:
    """How far voters agree, with the columns of `AGREEMENT_COLUMNS`; a row per phenotype and for all of them.

    voters : all of them, then each pair. genes : that one of them names. agreed : that all of them name with one
    direction; `share` of `genes`. kappa : Fleiss' kappa of *up*, *down* and *not named* over all genes that the study's
    answers name anywhere, so that a voter who names genes at random gets 0; empty where all say the same of everything.
    """
    voters, genes = study.settings.voters, sorted(named["gene"].unique())
    signs = np.zeros((len(study.names), len(voters), len(genes)), dtype=np.int64)
    axes = (("phenotype", study.names), ("run", list(voters)), ("gene", genes))
    places = tuple(pd.Index(keys).get_indexer(pd.Index(named[name])) for name, keys in axes)
    signs[places] = named["direction"].map(SIGN).astype(np.int64)
    groups = [range(len(voters)), *(combinations(range(len(voters)), 2) if len(voters) > 2 else ())]
    rows = [
        (name, " & ".join(voters[i] for i in group), *_agreed(part[:, list(group)]))
        for group in (groups if len(voters) > 1 else ())
        for name, part in [(ALL, signs), *((each, signs[[i]]) for i, each in enumerate(study.names))]
    ]
    return pd.DataFrame(rows, columns=AGREEMENT_COLUMNS)


def fleiss_kappa(signs: NDArray[np.int64]) -> float:
    """Fleiss' kappa of the categories -1, 0, +1 for signs (n_items, n_raters); NaN where one category is all there is.

    >>> fleiss_kappa(np.array([[1, 1], [0, 0], [1, 0], [0, 1]]))
    0.0
    """
    counts = np.stack([(signs == category).sum(axis=1) for category in (-1, 0, 1)], axis=1)
    raters = signs.shape[1]
    if not len(counts) or counts.max(axis=0).sum() == counts.max():
        return math.nan
    observed = ((counts**2).sum(axis=1) - raters).mean() / (raters * (raters - 1))
    expected = ((counts.sum(axis=0) / counts.sum()) ** 2).sum()
    return float((observed - expected) / (1 - expected)) if expected < 1 else math.nan


def evidence_filter(
    kept: pd.DataFrame, named: pd.DataFrame, references: pd.DataFrame, *, kinds: Sequence[Kind]
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """What of `kept` rests on literature (paragraph "Consensus-and-evidence filtering").

    A gene stays where an answer that names it says `literature` and cites an abstract that was retrieved, is of one of
    the `kinds`, and has the gene's symbol or an alias in its title or text.

    kept, named : of `consensus` and `afa.elicit.tables.genes_named`. references : of
    `afa.elicit.citations.reference_table`. Returns `kept`, `dropped` (phenotype, gene, reason), and `references` of the
    genes of `kept` with a `verdict` each.

    Raises
    ------
    ElicitationError : the record has no references to filter by.

    """
    if (named["references"] == UNKNOWN).any():
        found, step = "a record without references", "set references: false in study.yaml, and say so where it is used"
        raise ElicitationError(Fault("the evidence filter", found, "the references of every answer", step))
    gene = ["phenotype", "gene"]
    own = references[_among(references, kept)].reset_index(drop=True)
    own = own.assign(verdict=[_verdict(row, kinds) for row in own.itertuples()])
    stays = _among(kept, own[own["verdict"] == SUPPORTS])
    verdicts = {name: Counter(rows["verdict"]) for name, rows in own.groupby(gene, sort=False)}
    dropped = kept.loc[~stays, gene]
    reasons = [
        "; ".join(
            f"{count} x {verdict}" for verdict, count in sorted(verdicts.get((row.phenotype, row.gene), {}).items())
        )
        for row in dropped.itertuples()
    ]
    dropped = dropped.assign(reason=[f"no supported reference ({reason or 'none cited'})" for reason in reasons])
    return kept[stays].reset_index(drop=True), dropped.reset_index(drop=True), own[[*REFERENCE_COLUMNS, "verdict"]]


def _verdict(row: object, kinds: Sequence[Kind]) -> str:
    """Whether a reference supports its gene, or what it lacks first."""
    source, number, kind = (getattr(row, name) for name in ("evidence_source", "number", "kind"))
    if source != "literature":
        return f"the answer says {source}"
    if not number:
        return "none cited"
    if not kind:
        return "not retrieved"
    if kind not in kinds:
        return f"of a kind that does not count ({kind})"
    return SUPPORTS if row.names_gene == "yes" else "does not name the gene"  # type: ignore[attr-defined]


def _among(table: pd.DataFrame, others: pd.DataFrame) -> NDArray[np.bool_]:
    """Which rows have a phenotype and gene of another table."""
    names = ["phenotype", "gene"]
    found: NDArray[np.bool_] = pd.MultiIndex.from_frame(table[names]).isin(pd.MultiIndex.from_frame(others[names]))
    return found


def _agreed(signs: NDArray[np.int64]) -> Iterator[float]:
    """Genes, agreed, share and kappa of signs (E, R, G)."""
    raters = signs.shape[1]
    total, times = np.abs(signs.sum(axis=1)), np.abs(signs).sum(axis=1)
    genes, agreed = int((times > 0).sum()), int((total == raters).sum())
    yield from (genes, agreed, round(agreed / genes, 4) if genes else math.nan)
    yield round(fleiss_kappa(signs.transpose(0, 2, 1).reshape(-1, raters)), 4)


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
