"""Arrays of the allocation grid's counts, read from the tables of the grid. Incomplete runs are refused.

All arrays list the patients in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from afa.errors import ConfigError, Fault, SanityError
from afa.evaluate.accuracy import UNIT, Part
from afa.evaluate.long_tables import RERUN_STAGE, Axis, CompleteTable, Singles, axis_among, axis_of
from afa.model.arrays import Codes, Floats
from afa.paper.experiments.allocation.cells import (
    CLINICAL,
    CLINICAL_R,
    CORRECT_DUEL_COLUMNS,
    LIKELIHOOD,
    PRECISIONS,
    GridCell,
)

RUN_COLUMNS = ["allocation", "gain", "schedule", "seed"]
CHOICE_COLUMNS = ("fallback", "resolved", "resolved_wrong", "certified")
SINGLE = 1e-6
"""Shares that differ by at most this much are equal, because numbers are stored in single precision."""


@dataclass(frozen=True)
class Grid:
    """Results of all allocation strategies, such as numbers of correct decisions, for P patients in rounds 0 to M.

    For each strategy (`GridCell`), the results are summed over the runs with different random seeds.

    Parameters
    ----------
    last_round : M
    methods : names of the scores
    runs : number of runs of each cell for one patient
    counted : (column, method, cell) -> (P, M + 1) float64, sums of a column of `rounds` or `choices`. The method is ""
        for a column of `choices`. Precisions are multiplied by `UNIT`
    totals : column -> (P,) float64, number of cases in one run and round. The cases are duels. A column about the whole
        patient has 1 case if the patient has a target, and else 0 cases
    winners : (P, Q) int8
    top : (P, N) int8
    labels : (P, N) float64, NaN where missing
    k : size of the top set of all entities
    k_clinical : size of the top set of the labelled entities

    """

    last_round: int
    methods: Sequence[str]
    runs: Mapping[GridCell, int]
    counted: Mapping[tuple[str, str, GridCell], Floats]
    totals: Mapping[str, Floats]
    winners: Codes
    top: Codes
    labels: Floats
    k: int
    k_clinical: int

    def part(self, column: str, cell: GridCell, method: str = "", rounds: Sequence[int] | None = None) -> Part:
        """Return two arrays (P, T): the sums of one column, and the numbers of cases.

        If `rounds` is None, the arrays contain all rounds.
        """
        counted, total = self.counted[column, method, cell], self.totals[column] * self.runs[cell]
        chosen = counted if rounds is None else np.ascontiguousarray(counted[:, list(rounds)])
        return chosen, np.repeat(total[:, None], chosen.shape[1], axis=1)

    @property
    def has_clinical_target(self) -> bool:
        return bool(self.totals[CLINICAL].any())


def read_grid(tables: Mapping[str, pd.DataFrame]) -> Grid:
    """Read the grid from the tables `rounds`, `choices`, `duels` and `targets` of the allocation stage.

    Raises
    ------
    ConfigError : a table lacks a row, has a row twice, or lacks a number.
    SanityError : a resolved duel has another result at full observation, or a top k that was certain becomes uncertain
        at a later round.

    """
    duels, targets = tables["duels"], tables["targets"]
    patients = [str(name) for name in pd.unique(duels["patient"])]
    pairs = CompleteTable.of("table duels", duels, _patient_axes(duels, patients, ["entity_a", "entity_b"]))
    entities = CompleteTable.of("table targets", targets, _patient_axes(targets, patients, ["entity"]))
    winners, labels = pairs.column("winner"), entities.column("label", may_miss=True)
    k, k_clinical = (int(targets[name].iloc[0]) for name in ("k", "k_clinical"))
    clinical = (labels == 1).any(axis=1, keepdims=True) & (k_clinical > 0)
    cases = {
        "right": winners != 0,
        "right_first": winners > 0,
        "right_prior_wrong": (winners != 0) & (pairs.column("prior_wrong") > 0),
        CLINICAL: clinical,
        CLINICAL_R: clinical,
        **dict.fromkeys((LIKELIHOOD, "fallback", "certified"), np.ones((len(patients), 1))),
        **dict.fromkeys(("resolved", "resolved_wrong"), np.ones(winners.shape)),
    }
    totals = {name: mask.sum(axis=1).astype(np.float64) for name, mask in cases.items()}
    rounds = _table_by_run("rounds", tables["rounds"], patients, ["method"])
    last_round = rounds.shape[-1] - 1
    choices = _table_by_run("choices", tables["choices"], patients, [], last_round)
    if set(choices.axes["run"].labels) != set(rounds.axes["run"].labels):
        raise ConfigError(Fault("table choices", "other runs than in the table rounds", "the same", RERUN_STAGE))
    counted = dict[tuple[str, str, GridCell], Floats]()
    for name in (*CORRECT_DUEL_COLUMNS, *PRECISIONS):
        counted |= _sum_over_runs(rounds, name, rounds.column(name, may_miss=name in (CLINICAL, CLINICAL_R)))
    for name in CHOICE_COLUMNS:
        counted |= _sum_over_runs(choices, name, _checked_choice(choices, name))
    return Grid(
        last_round=last_round,
        methods=[str(name) for (name,) in rounds.axes["method"].labels],
        runs={cell: len(runs) for cell, runs in _runs_by_cell(rounds).items()},
        counted=counted,
        totals=totals,
        winners=winners.astype(np.int8),
        top=entities.column("top").astype(np.int8),
        labels=labels.astype(np.float64),
        k=k,
        k_clinical=k_clinical,
    )


def _patient_axes(table: pd.DataFrame, patients: Sequence[str], keys: Sequence[str]) -> dict[str, Axis]:
    return {"patient": axis_among(table["patient"], patients), " and ".join(keys): axis_of(table, keys)}


def _table_by_run(
    name: str, table: pd.DataFrame, patients: Sequence[str], more: Sequence[str], last_round: int | None = None
) -> CompleteTable:
    """Return a table as an array. The axes are `run`, then one axis for each column in `more`, then `patient` and `t`.

    Text columns of the table are dropped to save memory.

    Parameters
    ----------
    last_round : last t. The default is the largest t in the table

    """
    rounds = [str(t) for t in range((int(table["t"].max()) if last_round is None else last_round) + 1)]
    place = {"patient": axis_among(table["patient"], patients), "t": axis_among(table["t"], rounds)}
    axes = {"run": axis_of(table, RUN_COLUMNS), **{key: axis_of(table, [key]) for key in more}, **place}
    return CompleteTable.of(f"table {name}", table.select_dtypes(["number", "bool"]), axes)


def _runs_by_cell(whole: CompleteTable) -> dict[GridCell, list[int]]:
    """Return, for each grid cell, the indices of its runs on the axis `run`."""
    members: dict[GridCell, list[int]] = {}
    for i, (allocation, gain, schedule, _) in enumerate(whole.axes["run"].labels):
        members.setdefault(GridCell(str(allocation), str(gain), str(schedule)), []).append(i)
    return members


def _checked_choice(choices: CompleteTable, column: str) -> Singles:
    """Return one column of `choices`.

    Raise a `SanityError` if a resolved duel has the wrong winner, or if a certified top k is no longer certified at a
    later round.
    """
    cube, step = choices.column(column), "this is a fault of the program: report the bundle and this patient"
    if column == "resolved_wrong":
        found = "a resolved duel that full observation contradicts"
        choices.refuse(cube > 0, found, "none (decisions.md B4)", step, SanityError)
    if column == "certified":
        withdrawn = np.diff(cube, axis=-1, prepend=0) < 0
        choices.refuse(withdrawn, "a certificate that is withdrawn", "certain for good", step, SanityError)
    return cube


def _sum_over_runs(whole: CompleteTable, column: str, cube: Singles) -> dict[tuple[str, str, GridCell], Floats]:
    """Return the sum of a column over the runs of each grid cell, for each method.

    Missing values count as 0.

    Precisions are rounded to multiples of 1 / `UNIT`. Counts of duels need no rounding: a tied duel counts one half, so
    that all counts are multiples of one half.

    Parameters
    ----------
    cube : (runs, P, M + 1) or (runs, methods, P, M + 1) float32

    """
    methods = [str(name) for (name,) in whole.axes["method"].labels] if "method" in whole.axes else [""]
    each = cube.reshape(len(cube), len(methods), *cube.shape[-2:])
    found = dict[tuple[str, str, GridCell], Floats]()
    for cell, runs in _runs_by_cell(whole).items():
        for i, method in enumerate(methods):
            values = np.nan_to_num(each[runs, i]).astype(np.float64)
            found[column, method, cell] = (np.rint(values * UNIT) if column in PRECISIONS else values).sum(axis=0)
    return found
