"""Select genes by the agreement of voters (models or runs) and by literature; pool the voters' probabilities (F7)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from afa.elicit.record import UNKNOWN
from afa.elicit.tables import DROPPED_COLUMNS, KEPT_COLUMNS, REFERENCE_COLUMNS, SIGN
from afa.errors import ElicitationError, Fault
from afa.io.csvfile import number_column, read_csv_table
from afa.model.arrays import Bools, Ints
from afa.model.bundle.rates import pool, three_values
from afa.model.features import Features
from afa.model.study import SourceKind, Study

AGREEMENT_COLUMNS = ["phenotype", "voters", "genes", "agreed", "share", "kappa"]
ALL_VOTERS = "all"
SUPPORTS = "supports"
SAME_MODEL = "The voters are runs of one model, so that their agreement is weak evidence."


def consensus(
    answers: pd.DataFrame, *, min_agree: int, runs: Collection[str] | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return two tables: the genes that are kept and the genes that are dropped, for each phenotype.

    A gene is kept if at least `min_agree` runs name it, and all of them state the same direction. The potential of a
    kept gene is +1 for Upregulated and -1 for Downregulated. The confidence in a kept gene is the mean of `lit_prob`
    over the runs that name the gene.

    Parameters
    ----------
    answers
        One row for each named gene with the columns run, phenotype, gene, direction (Upregulated or Downregulated) and
        lit_prob in [0, 1]; other columns are ignored. Phenotypes are returned in the order of their first appearance.
    min_agree
        Number of runs that must name a gene, from 1 to the number of runs.
    runs
        All runs that were asked; by default the runs in `answers`.

    Returns
    -------
    DataFrame : genes that are kept: phenotype, gene, potential (+1 or -1), confidence in [0, 1], n_runs
    DataFrame : genes that are dropped: phenotype, gene, reason

    Raises
    ------
    ElicitationError : an unknown direction, a gene named twice by a run for one phenotype, or `min_agree` out of range.

    """
    n_runs = int(answers["run"].nunique()) if runs is None else len(runs)
    _check_answers(answers, min_agree, n_runs)
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
    return pd.DataFrame(kept, columns=KEPT_COLUMNS), pd.DataFrame(dropped, columns=DROPPED_COLUMNS)


def check_voters(models: Mapping[str, str], study: Study) -> None:
    """Raise an `ElicitationError` if two voters are the same model, unless the study's setting `same_model` is true.

    Parameters
    ----------
    models : model and address of each voter; voters with an `UNKNOWN` model are not compared

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
    """Return a table of how often the voters name the same genes, with the columns `AGREEMENT_COLUMNS`.

    Each row compares voters: all voters of the study or two of them, as stated in the column `voters`. For each group
    of compared voters, the table has one row for each phenotype and one row for all phenotypes together. The column
    `genes` counts the genes that are named by at least one of the compared voters. The column `agreed` counts the genes
    for which all compared voters state the same direction. The column `share` is `agreed` divided by `genes`. `kappa`
    is Fleiss' kappa over all genes in the study's answers, with the categories *up*, *down* and *not named*. If the
    answers are random, `kappa` is about 0. If only one category occurs in the answers, `kappa` is empty.
    """
    voters, genes = study.settings.voters, sorted(named["gene"].unique())
    signs = np.zeros((len(study.names), len(voters), len(genes)), dtype=np.int64)
    axes = (("phenotype", study.names), ("run", list(voters)), ("gene", genes))
    places = tuple(pd.Index(keys).get_indexer(pd.Index(named[name])) for name, keys in axes)
    signs[places] = named["direction"].map(SIGN).astype(np.int64)
    groups = [range(len(voters)), *(combinations(range(len(voters)), 2) if len(voters) > 2 else ())]
    rows = [
        (name, " & ".join(voters[i] for i in group), *_agreement_values(part[:, list(group)]))
        for group in (groups if len(voters) > 1 else ())
        for name, part in [(ALL_VOTERS, signs), *((each, signs[[i]]) for i, each in enumerate(study.names))]
    ]
    return pd.DataFrame(rows, columns=AGREEMENT_COLUMNS)


def fleiss_kappa(signs: Ints) -> float:
    """Return Fleiss' kappa of the categories -1, 0, +1, or NaN if only one category occurs.

    Parameters
    ----------
    signs : (n_items, n_raters) int64 in {-1, 0, +1}

    Examples
    --------
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
    kept: pd.DataFrame, named: pd.DataFrame, references: pd.DataFrame, *, kinds: Sequence[SourceKind]
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Select the genes in `kept` that are supported by cited literature (paragraph "Consensus-and-evidence filtering").

    A gene is kept if an answer states `literature` as the source for this gene and cites a retrieved abstract. The kind
    of the cited publication must be one of `kinds`, and its title or abstract must contain the gene's symbol or an
    alias of the gene.

    Parameters
    ----------
    kept, named : tables of `consensus` and of `afa.elicit.tables.genes_named`
    references : table of `afa.elicit.tables.reference_table`
    kinds : kinds of publication that count

    Returns
    -------
    DataFrame : the genes that are kept, with the columns of `kept`
    DataFrame : the genes that are dropped: phenotype, gene, reason
    DataFrame : the references of the genes of `kept`, with a `verdict` each

    Raises
    ------
    ElicitationError : the record has no references to filter by.

    """
    if (named["references"] == UNKNOWN).any():
        found, step = "a record without references", "set references: false in study.yaml, and say so where it is used"
        raise ElicitationError(Fault("the evidence filter", found, "the references of every answer", step))
    gene = ["phenotype", "gene"]
    own = references[among(references, kept)].reset_index(drop=True)
    own = own.assign(verdict=[_verdict(row, kinds) for row in own.itertuples()])
    stays = among(kept, own[own["verdict"] == SUPPORTS])
    reasons = {
        name: "; ".join(f"{count} x {verdict}" for verdict, count in sorted(Counter(rows["verdict"]).items()))
        for name, rows in own.groupby(gene, sort=False)
    }
    dropped = kept.loc[~stays, gene]
    why = [reasons.get(name, "none cited") for name in dropped.itertuples(index=False, name=None)]
    dropped = dropped.assign(reason=[f"no supported reference ({reason})" for reason in why])
    return kept[stays].reset_index(drop=True), dropped.reset_index(drop=True), own[[*REFERENCE_COLUMNS, "verdict"]]


def _verdict(row: Any, kinds: Sequence[SourceKind]) -> str:
    """Return `SUPPORTS` if a reference supports its gene, else a text that names the first failed condition."""
    if row.evidence_source != "literature":
        return f"the answer says {row.evidence_source}"
    if not row.number:
        return "none cited"
    if not row.kind:
        return "not retrieved"
    if row.kind not in kinds:
        return f"of a kind that does not count ({row.kind})"
    return SUPPORTS if row.names_gene == "yes" else "does not name the gene"


def among(table: pd.DataFrame, others: pd.DataFrame) -> Bools:
    """Return, for each row of `table`, True if a row of `others` has the same phenotype and the same gene.

    Returns
    -------
    found : (n_rows,) bool

    """
    names = ["phenotype", "gene"]
    found: Bools = pd.MultiIndex.from_frame(table[names]).isin(pd.MultiIndex.from_frame(others[names]))
    return found


def _agreement_values(signs: Ints) -> Iterator[float]:
    """Yield the values of the columns `genes`, `agreed`, `share` and `kappa` of the table `agreement`.

    Parameters
    ----------
    signs : (E, R, G) int64 in {-1, 0, +1}, by phenotype, voter and gene

    """
    raters = signs.shape[1]
    total, times = np.abs(signs.sum(axis=1)), np.abs(signs).sum(axis=1)
    genes, agreed = int((times > 0).sum()), int((total == raters).sum())
    yield from (genes, agreed, round(agreed / genes, 4) if genes else math.nan)
    yield round(fleiss_kappa(signs.transpose(0, 2, 1).reshape(-1, raters)), 4)


def _check_answers(answers: pd.DataFrame, min_agree: int, n_runs: int) -> None:
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
    ElicitationError.raise_for(faults)


POOLED_COLUMNS = ("p_high_with", "p_high_without", "p_low_with", "p_low_without")


def pool_cuts(cuts: pd.DataFrame, names: Sequence[str], kinds: Sequence[str]) -> pd.DataFrame:
    """Return the cut points of each feature: the medians over the voters.

    A low (or high) cut point is NaN if at most half of the voters give a low (or high) cut point for the feature.

    Parameters
    ----------
    cuts
        Columns voter, feature, low, high; missing if the voter gives no cut point on that side.
    names, kinds
        (n_features,) The features; a binary one has no cut points.

    Returns
    -------
    DataFrame : (n_features,) indexed by feature; low and high, NaN without a cut point, and the range of the voters'
        own cut points, which their probabilities refer to: low_least, low_most, high_least, high_most

    """
    by_feature = cuts.groupby("feature")[["low", "high"]]
    voters = by_feature.size().reindex(list(names))
    given = by_feature.count().reindex(list(names))
    medians = by_feature.median().reindex(list(names))
    kept = given.gt(voters / 2, axis=0) & ~np.array([kind == "binary" for kind in kinds])[:, None]
    ends = {"least": by_feature.min(), "most": by_feature.max()}
    spread = [table.reindex(list(names)).where(kept).add_suffix(f"_{end}") for end, table in ends.items()]
    return pd.concat([medians.where(kept), *spread], axis=1)


def cuts_apart(cuts: pd.DataFrame) -> list[str]:
    """Return a list that contains one sentence, which names all cut points on which the voters disagree.

    `cuts` is a table that `pool_cuts` returned. If all voters give the same cut points, the list is empty.
    """
    found = [
        f"{feature} {side} {row[f'{side}_least']:g} to {row[f'{side}_most']:g}"
        for feature, row in cuts.iterrows()
        for side in ("low", "high")
        if row[f"{side}_least"] < row[f"{side}_most"]
    ]
    return [f"voters gave probabilities for cut points of their own: {', '.join(found)}"] if found else []


def answers_in_doubt(unary: pd.DataFrame, entities: Sequence[str], features: Sequence[str]) -> list[str]:
    """Return a list of up to two sentences on doubtful answers.

    One sentence lists questions without an answer. Another sentence lists answers that contradict themselves: the
    stated direction of a feature does not fit the stated probabilities. A sentence with nothing to list is left out.

    Parameters
    ----------
    unary : the answers as given, one row for each voter, entity and feature

    """
    answered = set(zip(unary["entity"], unary["feature"], strict=True))
    silent = [f"{entity} {name}" for entity in entities for name in features if (entity, name) not in answered]
    high, low = (unary[f"p_{side}_with"] - unary[f"p_{side}_without"] for side in ("high", "low"))
    against = unary[unary["direction"] * (high - low).round(9) < 0]
    doubted = [f"{row.entity} {row.feature} ({row.voter})" for row in against.itertuples()]
    kinds = {
        "no answer, taken as no shift": silent,
        "direction and probabilities say opposite things": doubted,
    }
    return [
        f"{words}: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}" for words, names in kinds.items() if names
    ]


def read_voters(folder: str | Path, unary: pd.DataFrame) -> pd.DataFrame:
    """Read the probabilities of several voters from a folder that contains one CSV file for each voter.

    Parameters
    ----------
    folder
        Files with the columns `phenotype`, `gene`, `POOLED_COLUMNS` and optionally `confidence`; the name of a file is
        the name of its voter.
    unary
        Columns entity, feature: the allowed pairs. A voter has at most one row for each pair.

    Returns
    -------
    DataFrame : columns voter, entity, feature, `POOLED_COLUMNS` and confidence, NaN if there is none

    Raises
    ------
    ElicitationError : every fault of every file, by line and column.

    """
    known = {pair: i for i, pair in enumerate(zip(unary["entity"], unary["feature"], strict=True))}
    files, faults, voters = sorted(Path(folder).glob("*.csv")), [], []
    if not files:
        step = "name the folder that holds them"
        raise ElicitationError(Fault(str(folder), "no CSV file", "a file for each voter", step))
    for file in files:
        table = read_csv_table(file, required=("phenotype", "gene", *POOLED_COLUMNS), optional=("confidence",))
        shares = {name: number_column(table, name, low=0.0, high=1.0) for name in POOLED_COLUMNS}
        shares["confidence"] = number_column(table, "confidence", low=0.0, high=1.0, empty=np.nan)
        pairs = list(zip(table.columns["phenotype"], table.columns["gene"], strict=True))
        rows = np.array([known.get(pair, -1) for pair in pairs], dtype=np.int64)
        texts, step = list(map(" ".join, pairs)), "remove the row, or correct the names"
        table.wrong(rows < 0, "gene", "a phenotype and a gene of the bundle", step, texts.__getitem__)
        table.once(rows, "each pair once")
        for state in ("with", "without"):
            total = shares[f"p_low_{state}"] + shares[f"p_high_{state}"]
            for row in np.flatnonzero(total > 1.0 + 1e-9):
                found = f"{total[row]:g} low and high together"
                table.wrong([row], f"p_high_{state}", "at most 1", "correct them", found)
        faults += table.faults.listed()
        names = {"voter": file.stem, "entity": table.columns["phenotype"], "feature": table.columns["gene"]}
        voters.append(pd.DataFrame({**names, **shares}))
    ElicitationError.raise_for(faults)
    return pd.concat(voters, ignore_index=True)


def pooled_shares(voters: pd.DataFrame, pairs: pd.MultiIndex, possible: Bools) -> pd.DataFrame:
    """Pool the probabilities (`POOLED_COLUMNS`) of all voters for each pair of an entity and a feature (F7).

    If no voter answered for a pair, its probabilities are NaN.

    Parameters
    ----------
    voters
        Columns voter, entity, feature and `POOLED_COLUMNS`, as in `read_voters`.
    possible
        (n_pairs, 3) or (3,) bool, True for values (-1, 0, +1) that can occur.

    """
    said = [rows.set_index(["entity", "feature"]).reindex(pairs) for _, rows in voters.groupby("voter", sort=False)]
    table = pd.DataFrame(columns=list(POOLED_COLUMNS), index=pairs, dtype=np.float64)
    for state in ("with", "without"):
        each = np.stack([three_values(rows[f"p_low_{state}"], rows[f"p_high_{state}"]) for rows in said])
        pooled = pool(each, possible)
        table[f"p_low_{state}"], table[f"p_high_{state}"] = pooled[:, 0], pooled[:, 2]
    return table


def pool_answers(answers: pd.DataFrame, features: Features) -> pd.DataFrame:
    """Return a table of pooled answers, with one row for each entity and feature, in the format of `unary.csv`.

    Parameters
    ----------
    answers
        Columns voter, entity, feature, direction (-1, 0, 1), `POOLED_COLUMNS` and confidence in [0, 1].
    features
        The table's features, which define the values that can occur.

    Returns
    -------
    DataFrame : entity, feature, potential (mean over voters of direction times confidence), confidence (mean), and the
        pooled `POOLED_COLUMNS`; entities in the order of their first row, features in the order of `features`

    """
    entities = list(dict.fromkeys(answers["entity"]))
    pairs = pd.MultiIndex.from_product([entities, features.names], names=["entity", "feature"])
    leaning = answers.assign(potential=answers["direction"] * answers["confidence"])
    means = leaning.groupby(["entity", "feature"])[["potential", "confidence"]].mean().reindex(pairs)
    shares = pooled_shares(answers, pairs, np.tile(features.possible, (len(entities), 1)))
    table = means.join(shares).reset_index()
    return table[table["confidence"].notna()].reset_index(drop=True)
