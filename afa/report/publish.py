"""The tables for readers, each as CSV and Parquet, with a data dictionary that covers those of the stages too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from afa.csvfile import marked_table
from afa.files import atomic_folder
from afa.orders import PAPER_ROUNDS
from afa.report.binary_form import binary_form
from afa.report.dictionary import dictionary_of
from afa.report.lines import Lines
from afa.report.paper_tables import TABLES, paper_table

DICTIONARY = "data_dictionary"
SUPPORT_ROUNDS = (0, 2, 5, 10, 20)


def publish(
    summary: pd.DataFrame,
    paper: Mapping[str, pd.DataFrame],
    stages: Sequence[Path],
    folder: Path,
    *,
    n_features: int,
) -> None:
    """Write the folder of tables for readers; it appears when all are complete.

    paper : its tables by name; none where the run is not compared with them.

    The paper's tables with ours beside, and the binary task in the paper's form, by t over all features and over the
    support; and `data_dictionary`, which also describes `summary.csv` and the Parquet files of `stages`, the
    folders that the experiments wrote. What stands in the summary is not written again.
    """
    rounds = [t for t in PAPER_ROUNDS if t < n_features] + [n_features]
    lines = Lines(summary)
    tables = {
        "binary_form": binary_form(lines, rounds=rounds),
        "binary_form_support": binary_form(lines, rounds=SUPPORT_ROUNDS, variant="support"),
    }
    for name in TABLES if paper else ():
        tables[name] = paper_table(name, paper[name], lines, n_features=n_features)
    schemas = {f"{stage.name}/{path.stem}": pq.read_schema(path) for stage in stages for path in _tables_in(stage)}
    parts = {str(name): part.dropna(axis="columns", how="all") for name, part in summary.groupby("table", sort=False)}
    schemas |= {name: pa.Schema.from_pandas(table, preserve_index=False) for name, table in (parts | tables).items()}
    tables[DICTIONARY] = dictionary_of(schemas)
    with atomic_folder(folder) as temporary:
        for name, table in tables.items():
            safe = marked_table(table)
            safe.to_csv(temporary / f"{name}.csv", index=False, float_format="%.10g", lineterminator="\n")


def _tables_in(stage: Path) -> list[Path]:
    return sorted(stage.glob("*.parquet"))
