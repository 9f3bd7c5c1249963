"""The rule `frontier` on fields whose labels say which one of several conditions holds (docs/frontier.md).

    python benchmarks/frontier_fields.py resources/fields/dermatology --out results/bench

The answer of a planner (k = 1) is compared with the label after some features. The background of a patient is the half
of the table that the patient is not in, without labels, or elicited. Writes `frontier_fields.csv` and prints it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from afa.engine.run import MISSING
from afa.evaluate.entrants import Entrant, FieldTask, read_entrant
from afa.io.files import write_csv
from afa.planner import TopKPlanner
from afa.scores.belief import Background

ROUNDS = (0, 3, 5, 10)


def strategies_of(entrant: Entrant, patient: int) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Name of each way -> its bundle and the options of its planner."""
    stated, directions = entrant.bundle, entrant.directions
    others = np.where(entrant.values == MISSING, np.nan, entrant.values)[1 - patient % 2 :: 2]
    half = {bundle: Background.of_patients(bundle, others, name="others") for bundle in (stated, directions)}
    frontier = {"allocation": "frontier"}
    return {
        "probabilities: priority_all": (stated, {"allocation": "priority_all", "gain": "cmi"}),
        "probabilities: frontier, elicited": (stated, frontier | {"background": "elicited"}),
        "probabilities: frontier, the other half": (stated, frontier | {"background": half[stated]}),
        "directions: priority_all": (directions, {}),
        "directions: frontier, the other half": (directions, frontier | {"background": half[directions]}),
    }


def measure(entrant: Entrant, task: FieldTask) -> pd.DataFrame:
    """Whether the label of each patient comes first, by way and t."""
    rows, last = list[dict[str, object]](), max(ROUNDS)
    for p in np.flatnonzero((task.answers >= 0) & (task.answers < len(entrant.bundle.entities))):
        values = dict(zip(entrant.features, entrant.values[p].tolist(), strict=True))
        label = entrant.bundle.entities[task.answers[p]]
        for way, (bundle, options) in strategies_of(entrant, int(p)).items():
            planner = TopKPlanner(bundle, k=1, **options)
            for name in [name for name, value in values.items() if value == MISSING]:
                planner.skip(name)
            for t in range(last + 1):
                if t in ROUNDS:
                    first = planner.top_k()[0] == label
                    rows.append(
                        {"field": entrant.name, "way": way, "patient": entrant.patients[p], "t": t, "right": first}
                    )
                if (feature := planner.next_feature()) is not None:
                    planner.observe(feature, values[feature])
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fields", nargs="+", type=Path, help="folders of fields with labels")
    parser.add_argument("--tables", type=Path, help="folder with the tables of fields that are not carried")
    parser.add_argument("--patients", type=int, default=10_000, help="largest number of patients of a field")
    parser.add_argument("--out", required=True, type=Path)
    given = parser.parse_args()
    found = list[pd.DataFrame]()
    for folder in given.fields:
        entrant = read_entrant(folder, given.tables)
        task = (
            None if isinstance(entrant, str) else next((t for t in entrant.tasks if t.main and t.entity is None), None)
        )
        if task is None or isinstance(entrant, str):
            parser.error(f"{folder}: name a field with a table and labels that say which condition holds")
        entrant = entrant.some(given.patients)
        found.append(measure(entrant, next(t for t in entrant.tasks if t.name == task.name)))
    table = pd.concat(found, ignore_index=True)
    given.out.mkdir(parents=True, exist_ok=True)
    write_csv(table, given.out / "frontier_fields.csv")
    wide = table.pivot_table(index=["field", "way"], columns="t", values="right", sort=False)
    sys.stdout.write(wide.round(3).to_string() + "\n")


if __name__ == "__main__":
    main()
