"""The tables of the allocation grid as arrays: every run whole, every patient in the same place, runs added up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from afa.errors import ConfigError, Fault, SanityError
from afa.evaluate.accuracy import Part, Signs
from afa.evaluate.cells import DUELS, GridCell
from afa.evaluate.long_tables import AGAIN, Axis, Complete, Singles, axis_among, axis_of
from afa.model.mrf import Floats

RUN = ["allocation", "gain", "schedule", "seed"]
LIKELIHOOD, CLINICAL, CLINICAL_R = PRECISIONS = ("p_at_k", "clinical_p_at_k", "clinical_r_precision")
CHOICES = ("fallback", "resolved", "resolved_wrong", "certified")
UNIT = 10_000_000
"""Precisions are held as whole numbers of this part: their weighted sums are then exact in any order of adding up."""

SINGLE = 1e-6
"""Numbers are stored in single precision: shares that differ by no more than this part are equal."""


@dataclass(frozen=True)
class Grid:
    """All cells over the same P patients and rounds 0 to M; a patient's runs of one cell are added up.

    counted : by column of `rounds` and `choices`, method ("" for `choices`) and cell, sums (P, M + 1), precisions times
    `UNIT`. totals : by the same columns, (P,) cases of one run and round: duels, or 1 where the patient has the target.
    runs : runs per patient. winners : (P, Q). top : (P, N). labels : (P, N), NaN where missing.
    """

    last_round: int
    methods: Sequence[str]
    runs: Mapping[GridCell, int]
    counted: Mapping[tuple[str, str, GridCell], Floats]
    totals: Mapping[str, Floats]
    winners: Signs
    top: Signs
    labels: Floats
    k: int
    k_clinical: int

    def part(self, column: str, cell: GridCell, method: str = "", rounds: Sequence[int] | None = None) -> Part:
        """Sums of one column and the cases they are a share of, at all or some rounds; (P, T) each."""
        counted, total = self.counted[column, method, cell], self.totals[column] * self.runs[cell]
        chosen = counted if rounds is None else np.ascontiguousarray(counted[:, list(rounds)])
        return chosen, np.repeat(total[:, None], chosen.shape[1], axis=1)

    @property
    def has_clinical_target(self) -> bool:
        return bool(self.totals[CLINICAL].any())


def read_grid(tables: Mapping[str, pd.DataFrame], truth: Mapping[str, pd.DataFrame]) -> Grid:
    """`rounds` and `choices` of the allocation stage, `duels` and `targets` of `allocation_truth`.

    Raises
    ------
    ConfigError : a table lacks a row or has it twice, or a number is missing.
    SanityError : full observation contradicts a resolved duel, or a certificate is withdrawn.

    """
    duels, targets = truth["duels"], truth["targets"]
    patients = [str(name) for name in pd.unique(duels["patient"])]
    pairs = Complete.of("table duels", duels, _by_patient(duels, patients, ["entity_a", "entity_b"]))
    entities = Complete.of("table targets", targets, _by_patient(targets, patients, ["entity"]))
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
    rounds = _by_run("rounds", tables["rounds"], patients, ["method"])
    last_round = rounds.shape[-1] - 1
    choices = _by_run("choices", tables["choices"], patients, [], last_round)
    if set(choices.axes["run"].labels) != set(rounds.axes["run"].labels):
        raise ConfigError(Fault("table choices", "other runs than in the table rounds", "the same", AGAIN))
    counted = dict[tuple[str, str, GridCell], Floats]()
    for name in (*DUELS, *PRECISIONS):
        counted |= _sums(rounds, name, rounds.column(name, may_miss=name in (CLINICAL, CLINICAL_R)))
    for name in CHOICES:
        counted |= _sums(choices, name, _checked_choice(choices, name))
    return Grid(
        last_round=last_round,
        methods=[str(name) for (name,) in rounds.axes["method"].labels],
        runs={cell: len(runs) for cell, runs in _members(rounds).items()},
        counted=counted,
        totals=totals,
        winners=winners.astype(np.int8),
        top=entities.column("top").astype(np.int8),
        labels=labels.astype(np.float64),
        k=k,
        k_clinical=k_clinical,
    )


def _by_patient(table: pd.DataFrame, patients: Sequence[str], keys: Sequence[str]) -> dict[str, Axis]:
    return {"patient": axis_among(table["patient"], patients), " and ".join(keys): axis_of(table, keys)}


def _by_run(
    name: str, table: pd.DataFrame, patients: Sequence[str], more: Sequence[str], last_round: int | None = None
) -> Complete:
    """A table by run, more keys, patient and t, to its own last round where none is given; without its texts.

    Of millions of rows the texts would take more memory than all numbers.
    """
    rounds = [str(t) for t in range((int(table["t"].max()) if last_round is None else last_round) + 1)]
    place = {"patient": axis_among(table["patient"], patients), "t": axis_among(table["t"], rounds)}
    axes = {"run": axis_of(table, RUN), **{key: axis_of(table, [key]) for key in more}, **place}
    return Complete.of(f"table {name}", table.select_dtypes(["number", "bool"]), axes)


def _members(whole: Complete) -> dict[GridCell, list[int]]:
    """Places of each cell's runs, in the order of the table."""
    members: dict[GridCell, list[int]] = {}
    for i, (allocation, gain, schedule, _) in enumerate(whole.axes["run"].labels):
        members.setdefault(GridCell(str(allocation), str(gain), str(schedule)), []).append(i)
    return members


def _checked_choice(choices: Complete, column: str) -> Singles:
    """One column of `choices`, after the checks that no run may fail."""
    cube, step = choices.column(column), "this is a fault of the program: report the bundle and this patient"
    if column == "resolved_wrong":
        found = "a resolved duel that full observation contradicts"
        choices.refuse(cube > 0, found, "none (decisions.md B4)", step, SanityError)
    if column == "certified":
        withdrawn = np.diff(cube, axis=-1, prepend=0) < 0
        choices.refuse(withdrawn, "a certificate that is withdrawn", "certain for good", step, SanityError)
    return cube


def _sums(whole: Complete, column: str, cube: Singles) -> dict[tuple[str, str, GridCell], Floats]:
    """A column added up over runs, by method and cell: precisions in whole units, duels in exact halves; missing is 0.

    cube : (runs, P, M + 1), or (runs, methods, P, M + 1).
    """
    methods = [str(name) for (name,) in whole.axes["method"].labels] if "method" in whole.axes else [""]
    each = cube.reshape(len(cube), len(methods), *cube.shape[-2:])
    found = dict[tuple[str, str, GridCell], Floats]()
    for cell, runs in _members(whole).items():
        for i, method in enumerate(methods):
            values = np.nan_to_num(each[runs, i]).astype(np.float64)
            found[column, method, cell] = (np.rint(values * UNIT) if column in PRECISIONS else values).sum(axis=0)
    return found
