"""What `afa simulate` leaves behind: the tables, a card that says what was run, and a short table for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from rich.box import SIMPLE_HEAD
from rich.table import Table

import afa
from afa.errors import ConfigError, Fault
from afa.files import atomic_folder, sha256_of
from afa.spreadsheet import marked_table
from afa.stages.simulate import Simulation

CARD = "simulate.yaml"
FILES = (CARD, "curves.csv", "features_needed.csv", "curves.svg", "curves.png")
PACKAGES = ("numpy", "scipy", "numba", "pandas", "pyarrow")
CRITERIA = {
    "settled": "answer settled",
    "certified": "answer certified",
    "sign_95": "95 % of duels right",
}


def check_place(folder: Path) -> None:
    """A `ConfigError` where writing a simulation into this folder would remove something else."""
    if folder.is_dir():
        others = sorted(path.name for path in folder.iterdir() if path.name not in FILES)
        found = f"a folder with other files: {', '.join(others[:3])}" if others else ""
    else:
        found = "a file" if folder.exists() else ""
    if found:
        raise ConfigError(Fault(f"--out {folder}", found, "a new folder, or that of a simulation", "choose another"))


def write_simulation(
    simulation: Simulation,
    card: Mapping[str, Any],
    folder: Path,
    draw: Callable[[pd.DataFrame, str, Path], None] | None,
) -> None:
    """Write the tables, the card and the figure; the folder appears when all are complete.

    draw : writes `<stem>.svg` and `<stem>.png` of the curves, given them, a title and the stem; no figure where None.
    """
    cohort, asked = card["cohort"], card["setting"]
    of = f"is it {asked['entity']}?" if "entity" in asked else f"top {asked['k']}"
    title = f"bundle {card['bundle']['name']}, {of}; cohort {cohort['name']}, {cohort['simulated_on']} patients"
    with atomic_folder(folder) as temporary:
        for name, table in simulation._asdict().items():
            path = temporary / f"{name}.csv"
            marked_table(table).to_csv(path, index=False, float_format="%.10g", lineterminator="\n")
        if draw is not None:
            draw(simulation.curves, title, temporary / "curves")
        digests = {name: sha256_of(temporary / name) for name in ("curves.csv", "features_needed.csv")}
        text = yaml.safe_dump(
            {**card, "afa": afa.__version__, "packages": {name: version(name) for name in PACKAGES}, "tables": digests},
            sort_keys=False,
            allow_unicode=True,
            width=100,
        )
        (temporary / CARD).write_text(text, encoding="utf-8")


def needed_table(needed: pd.DataFrame, n_features: int) -> Table:
    """`features_needed` for a terminal, criterion by criterion."""
    varied = [name for name in ("gain", "score") if len(set(needed[name]) - {""}) > 1]
    table = Table(title=f"Features needed, of {n_features}", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("until", "rule", *varied):
        table.add_column(name)
    for name in ("25 %", "median", "75 %", "90 %", "never"):
        table.add_column(name, justify="right")
    for (criterion, counted), rows in needed.groupby(["criterion", "counted"], sort=False):
        for place, row in enumerate(rows.to_dict(orient="records")):
            numbers = ["-" if pd.isna(row[name]) else f"{row[name]:g}" for name in ("q25", "median", "q75", "p90")]
            never = "-" if pd.isna(row["never"]) else f"{row['never']:.0%}"
            first = CRITERIA[str(criterion)] + (", cost" if counted == "cost" else "") if place == 0 else ""
            table.add_row(first, row["allocation"], *(row[name] for name in varied), *numbers, never)
        table.add_section()
    return table
