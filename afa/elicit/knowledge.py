"""What several voters know, as numbers: their cut points and probabilities, and how these are pooled (decision F7)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from afa.bundle.rates import FLOOR, pool, three_values
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
    DataFrame : (n_features,) indexed by feature; low, high, NaN where there is none

    """
    by_feature = cuts.groupby("feature")[["low", "high"]]
    voters = by_feature.size().reindex(list(names))
    given = by_feature.count().reindex(list(names))
    medians = by_feature.median().reindex(list(names))
    kept = given.gt(voters / 2, axis=0) & ~np.array([kind == "binary" for kind in kinds])[:, None]
    return pd.DataFrame(medians.where(kept))


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
