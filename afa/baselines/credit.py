"""What decisions and precisions are worth, patient by patient: the parts that shares and their gaps are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.baselines.protocol import BINARY, TOP_K
from afa.mrf import Floats
from afa.stats.accuracy import Part, Signs

TARGETS = ("likelihood", "clinical")
PRECISION = {"likelihood": "p_at_k", "clinical": "clinical_p_at_k"}
ACCURACY, BALANCED, P_AT_K = "accuracy", "balanced_accuracy", "p_at_k"


class Cut(NamedTuple):
    """One way to look at a task. method : a language model or a score; evidence : the path it is read out along."""

    task: str
    metric: str
    target: str
    method: str
    evidence: str


def credits_of(readouts: pd.DataFrame, targets: pd.DataFrame, patients: Sequence[str]) -> dict[Cut, list[Part]]:
    """Right and total (P, T) of every cut; targets that no patient has are left out."""
    made: dict[Cut, list[Part]] = {}
    places = {"patient": patients, "entity": list(dict.fromkeys(targets["entity"]))}
    for (task, method, evidence), rows in readouts.groupby(["task", "method", "evidence"], sort=False):
        for target in TARGETS:
            where = (str(method), str(evidence))
            if task == BINARY:
                made |= _binary(rows, target_of(targets, target, patients), places, target, where)
            else:
                share = _cube(rows, PRECISION[target], {"patient": patients})
                cases = (~np.isnan(share)).astype(np.float64)
                if cases.any():
                    made[Cut(TOP_K, P_AT_K, target, *where)] = [(np.nan_to_num(share), cases)]
    return made


def target_of(targets: pd.DataFrame, target: str, patients: Sequence[str]) -> Signs:
    """(P, E) in {-1, 0, +1}, 0 where there is none, entities in their order."""
    table = targets.pivot(index="patient", columns="entity", values=target)
    table = table.loc[list(patients), list(dict.fromkeys(targets["entity"]))]
    if target == "clinical":
        table = table.mul(2).sub(1)
    return table.fillna(0).to_numpy(dtype=np.int8)


def _binary(
    rows: pd.DataFrame, truth: Signs, places: Mapping[str, Sequence[str]], target: str, where: tuple[str, str]
) -> Mapping[Cut, list[Part]]:
    if not truth.any():
        return {}
    decisions = _cube(rows, "decision", places)
    # A tie is half right (S5); a decision that is not there is wrong.
    credit = np.nan_to_num((1 + decisions * truth[:, :, None]) / 2)
    sides = {side: _part(credit, truth == side) for side in (1, -1)}
    return {
        Cut(BINARY, ACCURACY, target, *where): [_part(credit, truth != 0)],
        Cut(BINARY, BALANCED, target, *where): list(sides.values()),
    }


def _part(credit: Floats, among: NDArray[np.bool_]) -> Part:
    """Sums over entities of credits (P, E, T) among some (P, E)."""
    right = np.asarray((credit * among[:, :, None]).sum(axis=1), dtype=np.float64)
    return right, np.repeat(among.sum(axis=1, dtype=np.float64)[:, None], credit.shape[2], axis=1)


def _cube(rows: pd.DataFrame, column: str, places: Mapping[str, Sequence[str]]) -> Floats:
    """A column by the keys of `places`, whose order it has, and by t; NaN where missing."""
    axes: dict[str, Sequence[str | int]] = {**places, "t": sorted(set(rows["t"]))}
    index = pd.MultiIndex.from_product(list(axes.values()), names=list(axes))
    values = rows.set_index(list(axes))[column].astype("Float64").loc[index]
    shape = [len(labels) for labels in axes.values()]
    return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64).reshape(shape)
