"""What several voters know, as numbers: their cut points and probabilities, and how these are pooled (decision F7)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from afa.features import Features

Floats = npt.NDArray[np.float64]
FLOOR = 0.01
"""Least probability of a value that can occur, in elicited answers."""
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


def three_values(p_low: npt.ArrayLike, p_high: npt.ArrayLike) -> Floats:
    """(..., 3) Probabilities of -1, 0, +1 from the shares below and above; the middle is the rest."""
    low, high = np.asarray(p_low, dtype=np.float64), np.asarray(p_high, dtype=np.float64)
    return np.stack([low, 1.0 - low - high, high], axis=-1)


def floored(probabilities: npt.ArrayLike, possible: npt.ArrayLike, floor: float = FLOOR) -> Floats:
    """(..., 3) Raised to the floor where a value can occur, 0 elsewhere, and normalised."""
    raised = np.where(np.asarray(possible, dtype=bool), np.maximum(probabilities, floor), 0.0)
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def pool(probabilities: npt.ArrayLike, possible: npt.ArrayLike, floor: float = FLOOR) -> Floats:
    r"""One distribution of several voters': the normalised mean of log-probabilities.

    \[ P(s) \propto \exp\Bigl(\frac{1}{n} \sum_i \log P_i(s)\Bigr), \quad s \in V_j \] each voter's `P_i` being floored
    and normalised first, so that log-ratios between any two values are the means of the voters'.

    Parameters
    ----------
    probabilities
        (n_voters, ..., 3) Of -1, 0, +1; NaN throughout for a voter who does not say.
    possible
        (..., 3) Which values can occur (`afa.features.Features.possible`).
    floor
        Least probability of a value that can occur, before normalisation.

    Returns
    -------
    ndarray : (..., 3); 0 for values that cannot occur, NaN where no voter says anything

    >>> pool([[0.1, 0.3, 0.6], [0.0, 0.4, 0.6], [0.2, 0.5, 0.3]], [True, True, True]).round(5).tolist()
    [0.06314, 0.42269, 0.51417]

    """
    can_be = np.asarray(possible, dtype=bool)
    voters = np.asarray(probabilities, dtype=np.float64)
    said = ~np.isnan(voters).any(axis=-1, keepdims=True)
    logs = np.log(np.where(can_be, floored(voters, can_be, floor), 1.0))
    with np.errstate(invalid="ignore"):
        mean = np.where(said, logs, 0.0).sum(axis=0) / said.sum(axis=0)
    raw = np.where(can_be, np.exp(mean), 0.0)
    return np.asarray(raw / raw.sum(axis=-1, keepdims=True))


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
