"""What several voters know, as numbers: their cut points and probabilities, and how these are pooled (decision F7)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from afa.bundle.rates import FLOOR, pool, three_values
from afa.csvfile import earlier_row, number_column, read_table
from afa.errors import ElicitationError, Fault
from afa.features import Features

SHARES = ("p_high_with", "p_high_without", "p_low_with", "p_low_without")


def pool_cuts(cuts: pd.DataFrame, names: Sequence[str], kinds: Sequence[str]) -> pd.DataFrame:
    """The cut points of each feature: the median over the voters who give that side, where more than half of them do.

    Parameters
    ----------
    cuts
        Columns voter, feature, low, high; missing where a voter says that side does not exist.
    names, kinds
        (n_features,) The features; a binary one has no cut points.

    Returns
    -------
    DataFrame : (n_features,) indexed by feature; low, high, NaN where there is none; and how far apart voters' own cut
        points are, for which they gave probabilities: low_least, low_most, high_least, high_most

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
    """One sentence on how far apart voters' own cut points are, of a table of `pool_cuts`; none where all agree."""
    found = [
        f"{feature} {side} {row[f'{side}_least']:g} to {row[f'{side}_most']:g}"
        for feature, row in cuts.iterrows()
        for side in ("low", "high")
        if row[f"{side}_least"] < row[f"{side}_most"]
    ]
    return [f"voters gave probabilities for cut points of their own: {', '.join(found)}"] if found else []


def read_voters(folder: str | Path, unary: pd.DataFrame) -> pd.DataFrame:
    """What voters say of how often, each in a CSV file of its own.

    Parameters
    ----------
    folder
        Files with the columns `phenotype`, `gene`, `SHARES` and, if there is one, `confidence`; a voter's name is that
        of its file.
    unary
        Columns entity, feature: the pairs that may be spoken of. Each voter speaks of a pair once, or not at all.

    Returns
    -------
    DataFrame : columns voter, entity, feature, `SHARES` and confidence, NaN where there is none

    Raises
    ------
    ElicitationError : every fault of every file by line and column

    """
    known = {pair: i for i, pair in enumerate(zip(unary["entity"], unary["feature"], strict=True))}
    files, faults, voters = sorted(Path(folder).glob("*.csv")), [], []
    if not files:
        step = "name the folder that holds them"
        raise ElicitationError(Fault(str(folder), "no CSV file", "a file for each voter", step))
    for file in files:
        table = read_table(file, required=("phenotype", "gene", *SHARES), optional=("confidence",))
        shares = {name: number_column(table, name, low=0.0, high=1.0) for name in SHARES}
        shares["confidence"] = number_column(table, "confidence", low=0.0, high=1.0, empty=np.nan)
        pairs = list(zip(table.columns["phenotype"], table.columns["gene"], strict=True))
        rows = np.array([known.get(pair, -1) for pair in pairs], dtype=np.int64)
        texts, step = list(map(" ".join, pairs)), "remove the row, or correct the names"
        table.wrong(rows < 0, "gene", "a phenotype and a gene of the bundle", step, texts.__getitem__)
        step, again = "remove one of the two rows", [f"{text} again" for text in texts]
        table.wrong(earlier_row(rows) >= 0, "gene", "each pair once", step, again.__getitem__)
        for state in ("with", "without"):
            total = shares[f"p_low_{state}"] + shares[f"p_high_{state}"]
            for row in np.flatnonzero(total > 1.0 + 1e-9):
                found = f"{total[row]:g} low and high together"
                table.wrong([row], f"p_high_{state}", "at most 1", "correct them", found)
        faults += table.faults.listed()
        names = {"voter": file.stem, "entity": table.columns["phenotype"], "feature": table.columns["gene"]}
        voters.append(pd.DataFrame({**names, **shares}))
    if faults:
        raise ElicitationError(faults)
    return pd.concat(voters, ignore_index=True)


def pooled_shares(voters: pd.DataFrame, unary: pd.DataFrame, floor: float = FLOOR) -> pd.DataFrame:
    """The pooled `SHARES` of each row of `unary`, of features with three values; NaN where no voter speaks (F7).

    Parameters
    ----------
    voters
        As `read_voters` gives them.
    unary
        Columns entity, feature.
    floor
        As in `pool`.

    Returns
    -------
    DataFrame : (n_rows,) `SHARES`, to 6 digits

    """
    pairs = pd.MultiIndex.from_frame(unary[["entity", "feature"]])
    said = [rows.set_index(["entity", "feature"]).reindex(pairs) for _, rows in voters.groupby("voter")]
    table = pd.DataFrame(index=unary.index)
    for state in ("with", "without"):
        each = np.stack([three_values(rows[f"p_low_{state}"], rows[f"p_high_{state}"]) for rows in said])
        pooled = pool(each, np.ones(3, dtype=bool), floor)
        table[f"p_low_{state}"], table[f"p_high_{state}"] = pooled[:, 0].round(6), pooled[:, 2].round(6)
    return table[list(SHARES)]


def pool_answers(answers: pd.DataFrame, features: Features, floor: float = FLOOR) -> pd.DataFrame:
    """One row for each entity and feature of several voters' rows, in the columns of a bundle's `unary.csv`.

    Parameters
    ----------
    answers
        Columns voter, entity, feature, direction (-1, 0, 1), `SHARES` and confidence in [0, 1].
    features
        Of the table; they say which values can occur.
    floor
        As in `pool`.

    Returns
    -------
    DataFrame : entity, feature, potential (the mean over voters of direction times confidence), confidence (the mean),
        and the pooled `SHARES`; entities in the order of their first row, features in that of `features`

    """
    entities = list(dict.fromkeys(answers["entity"]))
    voters = list(dict.fromkeys(answers["voter"]))
    index = pd.MultiIndex.from_product([voters, entities, features.names], names=["voter", "entity", "feature"])
    shape = (len(voters), len(entities), len(features))
    whole = answers.set_index(["voter", "entity", "feature"]).reindex(index)
    whole["leaning"] = whole["direction"] * whole["confidence"]
    pooled = {}
    for side in ("with", "without"):
        voted = three_values(whole[f"p_low_{side}"], whole[f"p_high_{side}"]).reshape((*shape, 3))
        pooled[side] = pool(voted, features.possible, floor).reshape(-1, 3)
    means = whole[["leaning", "confidence"]].groupby(level=["entity", "feature"], sort=False).mean()
    table = means.rename(columns={"leaning": "potential"}).reset_index()
    for name in SHARES:
        _, side, state = name.split("_")
        table[name] = pooled[state][:, 2 if side == "high" else 0]
    return table[table["confidence"].notna()].reset_index(drop=True)
