"""Steps of binary tasks spread out over rounds: what each task says after t observations, for every t."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

ORDER_KEYS = ["allocation", "gain", "guide"]


@dataclass(frozen=True)
class Cube:
    """The steps of one kind of order, P patients x E entities x R runs, spread over rounds on demand.

    t : rounds of the steps, one series (patient, entity, run) after the other. first : where each series begins.
    last_round : M. columns : the other columns of the table, in the same order of rows.
    """

    shape: tuple[int, int, int]
    t: NDArray[np.int64]
    first: NDArray[np.int64]
    last_round: int
    columns: Mapping[str, NDArray[Any]]

    @classmethod
    def of(cls, steps: pd.DataFrame, patients: list[str], entities: list[str], last_round: int) -> Cube:
        """`steps` of one kind of order; every patient must have every entity, with the same number of runs."""
        keys = pd.DataFrame(
            {
                "patient": pd.Categorical(steps["patient"], categories=patients).codes,
                "entity": pd.Categorical(steps["entity"], categories=entities).codes,
                "seed": steps["seed"].fillna(-1).astype(int).to_numpy(),
                "step": steps["step"].to_numpy(),
            }
        )
        places = keys.sort_values(["patient", "entity", "seed", "step"]).index.to_numpy()
        ordered = steps.iloc[places]
        step = ordered["step"].to_numpy()
        first = np.flatnonzero(step == 0)
        runs = len(first) // (len(patients) * len(entities))
        if runs * len(patients) * len(entities) != len(first):
            raise ValueError("some patient lacks a run of some entity")
        columns = {name: ordered[name].to_numpy() for name in ordered.columns if name not in ("patient", "entity")}
        return cls(
            (len(patients), len(entities), runs), ordered["t"].to_numpy(dtype=np.int64), first, last_round, columns
        )

    def by_round(self, values: NDArray[Any]) -> NDArray[Any]:
        """(P, E, R, M + 1) what holds after t observations, from values by step."""
        following = np.append(self.t[1:], 0)
        following[np.append(self.first[1:], len(self.t)) - 1] = self.last_round + 1
        return np.repeat(values, following - self.t).reshape(*self.shape, self.last_round + 1)

    def by_step(self, values: NDArray[Any]) -> NDArray[Any]:
        """(P, E, R, s + 1) what holds after so many features of the support, s the largest of all entities.

        An entity of a smaller support stays as it is once all of it is observed.
        """
        ends = np.append(self.first[1:], len(self.t))
        most = int((ends - self.first).max())
        repeats = np.ones(len(values), dtype=np.int64)
        repeats[ends - 1] += most - (ends - self.first)
        return np.repeat(values, repeats).reshape(*self.shape, most)

    def signs(self, method: str) -> NDArray[np.int8]:
        """The sign of one score, by step."""
        signs: NDArray[np.int8] = np.sign(self.columns[method]).astype(np.int8)
        return signs
