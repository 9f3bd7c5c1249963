"""The tables of the allocation grid as arrays: every run whole, every patient in the same place, runs added up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from afa.errors import ConfigError, Fault, SanityError
from afa.mrf import Floats
from afa.stats.accuracy import Part, Signs
from afa.stats.tables import AGAIN, Axis, Complete, Singles, axis_among, axis_of

RUN = ["allocation", "gain", "schedule", "seed"]
DUELS = ("right", "right_first", "right_prior_wrong")
LIKELIHOOD, CLINICAL, CLINICAL_R = PRECISIONS = ("p_at_k", "clinical_p_at_k", "clinical_r_precision")
CHOICES = ("fallback", "resolved", "resolved_wrong", "certified")
UNIT = 10_000_000
"""Precisions are held as whole numbers of this part: their weighted sums are then exact in any order of adding up."""

SINGLE = 1e-6
"""Numbers are stored in single precision: shares that differ by no more than this part are equal."""


class Cell(NamedTuple):
    """One way to choose features: a rule of `afa.allocate` or `module:Class`, a gain ("" where none), a schedule."""

    allocation: str
    gain: str
    schedule: str

    @property
    def label(self) -> dict[str, str | None]:
        """The columns of the summary that name it."""
        return self._asdict() | {"gain": self.gain or None}


@dataclass(frozen=True)
class Grid:
    """All cells over the same P patients and rounds 0 to M; a patient's runs of one cell are added up.

    counted : sums (P, M + 1) by column of the table `rounds`, precisions times `UNIT`. totals : by the same columns,
    (P,) cases of one run: duels, or 1 where the patient has the target. choices : (P, M + 1) by column of `choices`.
    runs : runs per patient. winners : (P, Q). top : (P, N). labels : (P, N), NaN where missing.
    """

    last_round: int
    methods: Sequence[str]
    runs: Mapping[Cell, int]
    counted: Mapping[str, Mapping[tuple[str, Cell], Floats]]
    totals: Mapping[str, Floats]
    choices: Mapping[str, Mapping[Cell, Floats]]
    winners: Signs
    top: Signs
    labels: Floats
    k: int
    k_clinical: int

    def part(self, column: str, method: str, cell: Cell, rounds: Sequence[int] | None = None) -> Part:
        """Sums of one column of `rounds` and the cases they are a share of, at all or some rounds; (P, T) each."""
        return _part(self.counted[column][method, cell], self.totals[column] * self.runs[cell], rounds)

    def choice_part(self, column: str, each: float, cell: Cell, rounds: Sequence[int] | None = None) -> Part:
        """The same of one column of `choices`, with `each` cases per run and round."""
        counted = self.choices[column][cell]
        return _part(counted, np.full(len(counted), each * self.runs[cell]), rounds)

    @property
    def has_clinical_target(self) -> bool:
        return bool(self.totals[CLINICAL].any())


def _part(counted: Floats, total: Floats, rounds: Sequence[int] | None) -> Part:
    chosen = counted if rounds is None else np.ascontiguousarray(counted[:, list(rounds)])
    return chosen, np.repeat(total[:, None], chosen.shape[1], axis=1)


def read_grid(tables: Mapping[str, pd.DataFrame], truth: Mapping[str, pd.DataFrame]) -> Grid:
    """`rounds` and `choices` of the allocation stage, `duels` and `targets` of `allocation_truth`.

    Raises
    ------
    ConfigError : a table lacks a row or has it twice, or a number is missing or beyond what it is a share of.
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
        LIKELIHOOD: np.ones((len(patients), 1)),
        CLINICAL: clinical,
        CLINICAL_R: clinical,
    }
    totals = {name: mask.sum(axis=1).astype(np.float64) for name, mask in cases.items()}
    rounds = _by_run("rounds", tables["rounds"], patients, ["method"])
    last_round = rounds.shape[-1] - 1
    choices = _by_run("choices", tables["choices"], patients, [], last_round)
    if set(choices.axes["run"].labels) != set(rounds.axes["run"].labels):
        raise ConfigError(Fault("table choices", "other runs than in the table rounds", "the same", AGAIN))
    members = _members(rounds)
    return Grid(
        last_round=last_round,
        methods=[str(name) for (name,) in rounds.axes["method"].labels],
        runs={cell: len(runs) for cell, runs in members.items()},
        counted={name: _counted(rounds, name, totals[name], members) for name in (*DUELS, *PRECISIONS)},
        totals=totals,
        choices=_chosen(choices),
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


def _members(whole: Complete) -> dict[Cell, list[int]]:
    """Places of each cell's runs, in the order of the table."""
    members: dict[Cell, list[int]] = {}
    for i, (allocation, gain, schedule, _) in enumerate(whole.axes["run"].labels):
        members.setdefault(Cell(str(allocation), str(gain), str(schedule)), []).append(i)
    return members


def _counted(
    rounds: Complete, column: str, total: Floats, members: Mapping[Cell, Sequence[int]]
) -> dict[tuple[str, Cell], Floats]:
    """Sums over runs of one column, which is missing for exactly the patients who lack a clinical target."""
    of_labels = column in (CLINICAL, CLINICAL_R)
    cube = rounds.column(column, may_miss=of_labels)
    if not of_labels or total.any():
        rounds.refuse(cube > total[:, None] * (1 + SINGLE), f"{column} above what there is", "at most all", AGAIN)
    if of_labels and total.any():
        wrong = np.isnan(cube) == (total[:, None] > 0)
        rounds.refuse(wrong, f"{column} given or missing", "a value where some label is positive, only there", AGAIN)
    units = UNIT if column in PRECISIONS else 1
    return {
        (str(method), cell): _whole(cube[runs, i], units).sum(axis=0)
        for cell, runs in members.items()
        for i, (method,) in enumerate(rounds.axes["method"].labels)
    }


def _whole(values: Singles, units: int) -> Floats:
    """Values in whole numbers of a unit, unless that is 1: duels are counted in exact halves; missing is 0."""
    plain: Floats = np.nan_to_num(values).astype(np.float64)
    return plain if units == 1 else np.rint(plain * units)


def _chosen(choices: Complete) -> dict[str, dict[Cell, Floats]]:
    """Sums over runs of every column, after the checks that no run may fail."""
    cubes = {name: choices.column(name) for name in CHOICES}
    step = "this is a fault of the program: report the bundle and this patient"
    wrong = cubes["resolved_wrong"] > 0
    choices.refuse(
        wrong, "a resolved duel that full observation contradicts", "none (decisions.md B4)", step, SanityError
    )
    withdrawn = np.diff(cubes["certified"], axis=-1, prepend=0) < 0
    choices.refuse(withdrawn, "a certificate that is withdrawn", "certain for good", step, SanityError)
    return {
        name: {cell: cube[runs].sum(axis=0, dtype=np.float64) for cell, runs in _members(choices).items()}
        for name, cube in cubes.items()
    }
