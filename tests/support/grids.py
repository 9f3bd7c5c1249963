"""Small tables of the allocation grid, given run by run, and their summary."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from afa.paper.experiments.allocation import summarise
from afa.paper.experiments.settings import Bootstrap

RANDOM = ("random", "", "every")
GREEDY = ("greedy", "cmi", "every")
METHODS = ("linearity", "wald")
ENTITIES = "abc"
PAIRS = list(combinations(ENTITIES, 2))
WINNERS = {"p0": (1, 1, -1), "p1": (1, -1, 0)}
PRIOR_WRONG = {"p0": (False, True, False), "p1": (True, False, True)}
LABELS: dict[str, tuple[int | None, ...]] = {"p0": (1, 0, None), "p1": (0, 0, None)}
TOP = {"p0": (2, 1, 1), "p1": (2, 2, 0)}
LAST = {"right": (3.0, 2.0), "right_first": (2.0, 1.0), "right_prior_wrong": (1.0, 1.0), "p_at_k": (1.0, 1.0)}
"""What the two patients have at full observation; p1 lacks a positive label, so that the clinical target is p0's."""

Runs = dict[tuple[tuple[str, str, str], int], dict[str, Any]]


def made(runs: Runs, rounds: int = 3, *, k_clinical: int = 1, **changes: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """The five tables of runs given as (P, T) by column; what is not given is as at full observation, or nothing.

    A column `wald ...` is the readout of `wald` alone.
    """
    winners, prior, labels, top = (
        changes.get(name, default)
        for name, default in (("winner", WINNERS), ("prior_wrong", PRIOR_WRONG), ("label", LABELS), ("top", TOP))
    )
    patients = list(winners)
    index = pd.MultiIndex.from_product([patients, range(rounds)], names=["patient", "t"])
    positive = np.array([1 in labels[name] for name in patients])
    plain = (
        {name: np.repeat(np.array(LAST[name])[:, None], rounds, axis=1) for name in LAST} if winners is WINNERS else {}
    )
    plain |= dict.fromkeys(("clinical_p_at_k", "clinical_r_precision"), np.where(positive, 1, np.nan)[:, None])
    nothing = {"fallback": False, "resolved": 0, "resolved_wrong": 0, "certified": False}

    def table(given: dict[str, Any], **key: Any) -> pd.DataFrame:
        columns = {name: np.broadcast_to(value, (len(patients), rounds)).ravel() for name, value in given.items()}
        return pd.DataFrame(columns, index=index).reset_index().assign(cohort="made", bundle="made", **key)

    of_rounds, of_choices = [], []
    for ((allocation, gain, schedule), seed), given in runs.items():
        key = {"allocation": allocation, "gain": gain, "schedule": schedule, "seed": seed}
        for method in METHODS:
            values = {n: given.get(f"{method} {n}", given.get(n, plain.get(n))) for n in (*LAST, "clinical_p_at_k")}
            values["clinical_r_precision"] = given.get("clinical_r_precision", plain["clinical_r_precision"])
            of_rounds.append(table(values, method=method, **key))
        of_choices.append(table({name: given.get(name, empty) for name, empty in nothing.items()}, **key))
    duels = [
        {"patient": name, "entity_a": a, "entity_b": b, "winner": winners[name][i], "prior_wrong": prior[name][i]}
        for name in patients
        for i, (a, b) in enumerate(PAIRS)
    ]
    targets = [
        {"patient": name, "entity": entity, "top": top[name][i], "label": labels[name][i]}
        for name in patients
        for i, entity in enumerate(ENTITIES)
    ]
    whole = pd.concat(of_rounds, ignore_index=True).astype({"t": np.int16})
    singles = [name for name in whole if str(name).startswith(("right", "p_at", "clinical"))]
    flips = pd.DataFrame({"patient": patients, "flips": range(len(patients), 0, -1), "magnitude": 1.0, "nonzero": 1})
    flips.loc[0, "magnitude"] = 2.0  # the first patient is the chaotic one
    return {
        "flips": flips.assign(seed_set="selecting", definition="wald", runs=3),
        "rounds": whole.astype(dict.fromkeys(singles, np.float32)),
        "choices": pd.concat(of_choices, ignore_index=True),
        "frontier": pd.DataFrame(),
        "duels": pd.DataFrame(duels),
        "targets": pd.DataFrame(targets).astype({"label": "Int8"}).assign(k=2, k_clinical=k_clinical),
    }


def summary_of(tables: dict[str, Any]) -> pd.DataFrame:
    rows = summarise(tables, tables, bootstrap=Bootstrap(resamples=400, confidence=0.9))
    texts = ["quantity", "method", "gain", "allocation", "schedule", "stratum", "target", "reference"]
    return rows.astype(dict.fromkeys(texts, "str")).fillna(dict.fromkeys(texts, ""))


def of_cell(
    rows: pd.DataFrame, table: str, metric: str, cell: tuple[str, str, str] | None, **where: object
) -> pd.DataFrame:
    """The rows of one cell and method; `quantity`, `stratum` and `reference` empty unless given."""
    where = {"quantity": "", "stratum": "", "reference": ""} | where
    if cell is not None:
        where |= dict(zip(("allocation", "gain", "schedule"), cell, strict=True))
    chosen = rows[(rows["table"] == table) & (rows["metric"] == metric)]
    for column, value in where.items():
        chosen = chosen[chosen[column] == value]
    return chosen


def values(
    rows: pd.DataFrame, table: str, metric: str, cell: tuple[str, str, str] | None, **where: object
) -> list[float]:
    return of_cell(rows, table, metric, cell, **where)["value"].tolist()


LINEARITY = {"method": "linearity"}
BY_HAND: Runs = {
    (RANDOM, 0): {"right": [[1, 2, 3], [0, 1, 2]], "right_first": [[1, 1, 2], [0, 0, 1]]},
    (RANDOM, 7): {"right": [[1, 3, 3], [1, 1.5, 2]], "right_first": [[1, 2, 2], [0, 0.5, 1]]},
    (GREEDY, 0): {
        "right": [[1, 3, 3], [0, 2, 2]],
        "right_first": [[0, 2, 2], [0, 1, 1]],
        "right_prior_wrong": [[0, 1, 1], [0, 0.5, 1]],
        "wald right": [[0, 0, 3], [0, 0, 2]],
    },
}
