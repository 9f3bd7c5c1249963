"""Write the numbers of a run as tables with one number in each row.

All numbers are in `curves/<stage>.parquet`. A selection of the numbers is in `summary.csv`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from afa.errors import ConfigError, Fault
from afa.evaluate.long_tables import read_table, write_parquet
from afa.io.files import atomic_file, write_csv
from afa.io.spreadsheet import marked_table, unmarked_table

TEXT = [
    *("table", "metric", "quantity", "method", "guide", "gain", "allocation", "schedule", "stratum", "variant"),
    *("entity", "target", "reference", "coupling", "start"),
]
NUMERIC_COLUMNS = ["level", "t", "value", "low", "high", "n"]
COLUMNS = [*TEXT, *NUMERIC_COLUMNS]
TABLES = [
    *("sign_accuracy_random", "chaos_gap", "allocation_sign", "allocation_p_at_k", "allocation_frontier"),
    *(
        "certified_round",
        "bracket_rate",
        "layer0_bundle",
        "layer0_synthetic",
        "binary",
        "gauge_agreement",
        "gauge_correlation",
    ),
    *("gauge_accuracy", "calibration", "specificity", "labels", "controls"),
    *("acquisition_saved", "meanfield_vs_exact", "labels_needed", "null"),
    *("stopping", "llm_baselines", "llm_choosing", "sanity"),
]
METRICS = [
    *("accuracy", "balanced_accuracy", "sensitivity", "specificity", "auroc", "average_precision"),
    *("prevalence", "majority", "p_at_k", "r_precision", "rate", "gap", "count", "correlation", "ece", "brier"),
    *("contraction", "iterations", "nats", "cost", "rank", "p_value"),
]
Labelled = tuple[pd.DataFrame, Mapping[str, object]]
"""Rows of a summary, and the columns that have the same value in all these rows."""
KEYS = COLUMNS[: COLUMNS.index("value")]
DETAIL_COLUMNS = ["quantity", "stratum", "variant", "level"]
"""Columns that are empty in the main row of a cell. These columns distinguish the other rows of the cell from the main
row."""
PRINTED_ROUNDS = (0, 2, 5, 10, 20, 25, 30, 50, 100, 150)
"""Numbers of observed features that the paper prints. `summary.csv` has the curves at these rounds and at full
observation.
"""
GRID = ("allocation_sign", "allocation_p_at_k", "certified_round", "acquisition_saved", "bracket_rate")
RULES_COMPARED = 150
"""The round at which the paper compares allocation rules with each other (tab:m2_alloc)."""


def in_order(tables: Iterable[str]) -> list[str]:
    """Return names of tables in the order of `summary.csv`.

    Tables in `TABLES` come first; all other tables are sorted by name.
    """
    return sorted(tables, key=lambda name: (TABLES.index(name) if name in TABLES else len(TABLES), name))


def labelled(parts: Iterable[Labelled]) -> pd.DataFrame:
    """Join several tables into one, and add the labels of each table as columns.

    The columns are added to the joined table, because adding columns to each table separately is slow.
    """
    tables, labels = zip(*parts, strict=True)
    whole: pd.DataFrame = pd.concat(tables, ignore_index=True)
    part = np.repeat(np.arange(len(tables)), list(map(len, tables)))
    columns = pd.DataFrame(list(labels), index=np.arange(len(tables))).take(part)
    for name, column in columns.set_axis(whole.index).items():
        whole[name] = column.where(column.notna(), whole[name]) if name in whole else column
    return whole


def count_rows(counts: Mapping[str, tuple[float, int]]) -> pd.DataFrame:
    """Return a table with one row for each quantity in `counts`; the metric of each row is `count`.

    The column `value` is the count, and `n` is the total.
    """
    rows = [{"quantity": name, "value": float(count), "n": int(n)} for name, (count, n) in counts.items()]
    return pd.DataFrame(rows).assign(metric="count")


def headline(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a summary in which the columns `quantity`, `stratum`, `variant` and `level` are empty."""
    return rows[rows[DETAIL_COLUMNS].isna().all(axis=1)]


def summary_rows(table: str, rows: pd.DataFrame | Sequence[pd.DataFrame], **same: str) -> pd.DataFrame:
    """Return the rows of one table with the columns of the summary.

    Parameters
    ----------
    rows : one table, or several to concatenate
    same : columns with the same value in all rows

    Raises
    ------
    ValueError : the calling code gives an unknown metric or column, a text of more than one word, or two rows with the
        same key.

    """
    rows = (rows if isinstance(rows, pd.DataFrame) else pd.concat(rows, ignore_index=True)).assign(**same)
    unknown = sorted(set(rows.columns) - set(COLUMNS)) + sorted(set(rows["metric"]) - set(METRICS))
    if unknown:
        raise ValueError(f"not in the summary's form: {', '.join(unknown)}; COLUMNS and METRICS have what there is")
    complete = rows.assign(table=table).reindex(columns=COLUMNS)
    for name in set(TEXT) - {"entity"}:
        words = complete[name].dropna().unique()
        if not all(re.fullmatch(r"[^\s=]+", word) for word in words):
            raise ValueError(f"{table}, {name}: one word each, not {', '.join(map(repr, words))}")
    if complete.duplicated(KEYS).any():
        raise ValueError(f"{table} has two rows with the same key")
    return complete


def write_summary(tables: Sequence[pd.DataFrame], path: str | Path) -> None:
    """Write the rows of all tables to one file, with the tables in the order that `in_order` returns.

    The file is Parquet if the suffix of the path is `.parquet`, else CSV.

    Numbers in CSV have 10 significant digits.
    """
    whole = pd.concat([table for table in tables if len(table)], ignore_index=True)
    order = {name: i for i, name in enumerate(in_order(whole["table"].unique()))}
    whole = whole.sort_values("table", key=lambda names: names.map(order), kind="stable", ignore_index=True)
    if Path(path).suffix != ".parquet":
        write_csv(marked_table(whole), path, float_format="%.10g")
        return
    with atomic_file(path) as temporary:
        write_parquet(whole.astype(dict.fromkeys(TEXT, "str") | dict.fromkeys(NUMERIC_COLUMNS, "float64")), temporary)


def read_summary(path: str | Path) -> pd.DataFrame:
    """Return the rows of a file that `write_summary` wrote. Empty cells become missing values.

    Raises
    ------
    ConfigError : the file is missing, is damaged, or does not have the columns of a summary.

    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(Fault(str(path), "no such file", "a summary", "run its stage first"))
    if path.suffix == ".parquet":
        rows = read_table(path.parent, path.stem)
    else:
        rows = pd.read_csv(path, dtype=dict.fromkeys(TEXT, "str"), keep_default_na=False, na_values=[""])
    if list(rows.columns) != COLUMNS:
        found, step = f"columns {', '.join(rows.columns[:5])}, ...", "run its stage again"
        raise ConfigError(Fault(str(path), found, f"columns {', '.join(COLUMNS[:5])}, ...", step))
    return rows if path.suffix == ".parquet" else unmarked_table(rows, TEXT)


def join_summaries(parts: Sequence[str | Path], path: str | Path) -> None:
    """Select the rows of several summaries with `published_rows`, and write the selected rows as one file.

    Raises
    ------
    ConfigError : as in `read_summary`.

    """
    rows = pd.concat([read_summary(part) for part in parts], ignore_index=True)
    write_summary([published_rows(rows)], path)


def published_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that are written to `summary.csv`.

    All other rows are only in `curves/<stage>.parquet`.

    The column `t` contains the round of a row. A row is selected in each of these cases:

    - The column `t` is empty.
    - The column `entity` is empty, and the round is in `PRINTED_ROUNDS`.
    - The column `entity` is empty, and the round is the last one, in which all features are observed.

    Some rows of the tables in `GRID` are then excluded, if their column `guide` names a guiding score. A row is
    excluded in each of these cases:

    - The schedule is `every`, and the rule is not `random`.
    - The entries in the columns `method` and `guide` differ, and the table is not `bracket_rate`.
    - The row shows the gap to a rule other than `random`, has no stratum, and has a round other than `RULES_COMPARED`.
    """
    known = rows["t"].dropna()
    rounds = {*PRINTED_ROUNDS, *(() if known.empty else (known.max(),))}
    chosen = rows["t"].isna() | (rows["t"].isin(rounds) & rows["entity"].isna())
    grid = rows["table"].isin(GRID) & rows["guide"].notna()
    rescored = (rows["schedule"] == "every") & (rows["allocation"] != "random")
    by_another = rows["allocation"].notna() & rows["method"].notna() & (rows["method"] != rows["guide"])
    by_another &= rows["table"] != "bracket_rate"
    between_rules = (rows["metric"] == "gap") & (rows["reference"] != "random") & (rows["t"] != RULES_COMPARED)
    between_rules &= rows["stratum"].isna()
    return rows[chosen & ~(grid & (rescored | by_another | between_rules))]
