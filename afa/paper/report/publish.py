"""Write CSV tables for readers, and a data dictionary with type, unit and meaning of each table column.

The meanings of columns are in `afa/paper/experiments/columns.csv`. In the dictionary, a table of a workflow stage is
named `stage/table`, and a CSV table for readers is named after its file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from afa.errors import Fault, ReportError
from afa.io.files import atomic_folder, write_csv
from afa.io.spreadsheet import marked_table
from afa.paper.experiments.base import meaning_of
from afa.paper.experiments.declared import DICTIONARY
from afa.paper.report.paper_tables import PRINTED_TABLES, SummaryLines, paper_table

COLUMNS = ["table", "column", "type", "unit", "meaning"]


def publish(
    summary: pd.DataFrame,
    paper: Mapping[str, pd.DataFrame],
    of_stages: Sequence[Path],
    folder: Path,
    *,
    n_features: int,
) -> None:
    """Write CSV tables for readers into a folder. If an error occurs, no incomplete folder remains.

    The folder contains the tables that compare the paper with this run, and the table `data_dictionary`. The table
    `data_dictionary` describes the columns of all tables in the folder, of `summary.csv` and of the Parquet files of
    the stages.

    Parameters
    ----------
    paper : name -> the paper's table. It is empty if the run is not compared with the paper
    of_stages : folders of tables that the stages wrote

    """
    lines = SummaryLines(summary)
    tables = {name: paper_table(name, paper[name], lines, n_features=n_features) for name in PRINTED_TABLES if paper}
    files = [path for stage in of_stages for path in sorted(stage.glob("*.parquet"))]
    schemas = {f"{path.parent.name}/{path.stem}": pq.read_schema(path) for path in files}
    parts = {str(name): part.dropna(axis="columns", how="all") for name, part in summary.groupby("table", sort=False)}
    schemas |= {name: pa.Schema.from_pandas(table, preserve_index=False) for name, table in (parts | tables).items()}
    tables[DICTIONARY] = dictionary_of(schemas)
    # An earlier version wrote `binary_form` and `binary_form_support`.
    names = {*tables, *PRINTED_TABLES, "binary_form", "binary_form_support"}
    with atomic_folder(folder, [f"{name}.csv" for name in names]) as temporary:
        for name, table in tables.items():
            write_csv(marked_table(table), temporary / f"{name}.csv", float_format="%.10g")


def dictionary_of(schemas: Mapping[str, pa.Schema]) -> pd.DataFrame:
    """Return the data dictionary, with one line for each column of each table.

    Raises
    ------
    ReportError : a column has no documented meaning.

    """
    lines = []
    for table, schema in schemas.items():
        for field in schema:
            meaning = meaning_of(table, field.name)
            if meaning is None:
                found, expected = f"the column {field.name}", "a column with a meaning"
                step = "describe it in afa/paper/experiments/columns.csv"
                raise ReportError(Fault(f"data dictionary, {table}", found, expected, step))
            lines.append((table, field.name, str(field.type), meaning.unit, meaning.meaning))
    return pd.DataFrame(lines, columns=COLUMNS)
