"""The tables for readers, as CSV, with a data dictionary: type, unit and meaning of every column that a run writes.

The columns of a stage are described in its `STAGE`; any other means what `columns.csv` says, or `OF_TABLE`. Tables
of a stage are named `stage/table`, those made for readers by their file name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from afa.csvfile import marked_table
from afa.errors import Fault, ReportError
from afa.files import atomic_folder, write_csv
from afa.orders import PAPER_ROUNDS
from afa.report.paper_tables import TABLES, Lines, binary_form, paper_table
from afa.stages import stages
from afa.stages.base import COMMON, Column
from afa.stats.summary import TABLES as SUMMARY_TABLES

DICTIONARY = "data_dictionary"
SUPPORT_ROUNDS = (0, 2, 5, 10, 20)
COLUMNS = ["table", "column", "type", "unit", "meaning"]

LANGUAGE_MODELS: Mapping[str, Column] = {
    "method": Column("", "mrf_llm, rag_llm, or the planner's score that is read out"),
    "task": Column("", "binary (one phenotype) or top_k (all of them)"),
    "entity": Column("", "phenotype of a binary task; empty for the top k"),
    "t": Column("observations", "features observed when the model was asked"),
    "evidence": Column("", "order of observation: planner, random, or the model whose picks were measured"),
    "outcome": Column("", "answered, refused, unparsable, incomplete, failed; stands: not asked after done"),
    "horizon": Column("count", "observations at most, where the model is asked each turn; empty without a limit"),
    "asked": Column("count", "times that the turn was asked; in faults and calls, which of them, from 1"),
    "attempt": Column("count", "try at one question, from 1"),
    "decided": Column("", "whether there is a decision; where not, it counts as wrong"),
    "decision": Column("sign", "1 the condition, -1 control, 0 a tie of the planner's score; missing: none"),
    "probability": Column("0 to 1", "lit_prob, the model's probability of the condition; missing: none"),
    "labels": Column("", "legal labels of the decision, the likeliest first, as a JSON list"),
    "done": Column("", "whether the model ended the measuring; its last decision then stands"),
    "pick": Column("", "what the answer names to be measured next; empty: nothing"),
    "pick_fault": Column("", "what the pick breaks, see docs/baselines.md; empty: nothing"),
    "label_fault": Column("", "what the labels break; empty: nothing"),
    "measured": Column("", "feature that was measured next; empty at checkpoints and at the end"),
    "by_rule": Column("", "whether that is the first feature by name, for want of a legal pick"),
    "part": Column("", "part of the answer: pick or labels"),
    "kind": Column("", "what that part broke"),
    "prompt_tokens": Column("count", "tokens of the prompt by the endpoint's count; missing: not counted"),
    "answer_tokens": Column("count", "tokens of the answer"),
    "model": Column("", "the model that was asked"),
    "served_model": Column("", "the model that the endpoint says has answered"),
    "prompt": Column("", "name of the prompt"),
    "prompt_digest": Column("", "SHA-256 of its wording and schema"),
    "parameters": Column("", "how the model was asked, as JSON"),
    "time": Column("", "when, UTC"),
    "p_at_k": Column("0 to 1", "of the k labels, those that are the best at full observation, over k; 0: no decision"),
    "clinical_p_at_k": Column("0 to 1", "positives among the labelled entities that rank highest, over their number"),
    "turns": Column("", "when models are asked: checkpoints, stateless or trajectory"),
    "order": Column("", "what is observed: planner, random, or the model's own picks"),
    "patients": Column("count", "patients who are asked about"),
    "seed": Column("", "which patients, and which random order"),
    "k": Column("count", "size of the top set"),
    "answers": Column("count", "times that a turn is asked at most"),
    "disease": Column("", "as the prompts name it"),
    "features": Column("count", "features of the bundle, M"),
    "top_k_rule": Column("", "allocation rule of the planner's own order in the top-k setting"),
}
DIFFERS = {
    "quantity": Column(
        "", "what of the cases, where the metric alone does not say: what is counted, the metric of a gap, a quantile"
    ),
    "stratum": Column("", "which part of the cases; empty: all of them"),
    "variant": Column("", "what was done otherwise than in the headline"),
    "level": Column("", "number of the variant, of the quantity, or of what the table varies (docs/summary.md)"),
}
"""How a row of the summary differs from the headline of its cell, in which all four are empty."""
_OF_LABELS = stages()["labels"].tables["scores"]
OF_TABLE: Mapping[tuple[str, str], Column] = {
    **{
        (f"llm_baselines/{table}", column): meaning
        for table in ("turns", "faults", "calls", "readouts", "targets", "protocol")
        for column, meaning in LANGUAGE_MODELS.items()
    },
    **{
        (table, column): _OF_LABELS[column]
        for table in ("labels", "controls", "labels_needed", "null", "specificity")
        for column in ("t", "reference")
    },
    **{
        (table, column): meaning
        for table in {*SUMMARY_TABLES, *(name for stage in stages().values() for name in stage.rows)}
        for column, meaning in DIFFERS.items()
    },
    ("ranking", "target"): Column(
        "", "likelihood: the raw score at full observation; own: that of the scale in `variant`; empty: the supports"
    ),
    ("errata/errata", "label"): Column("", "LaTeX label of the place in the paper"),
    ("errata/errata", "kind"): Column("", "erratum, remark or withdrawn"),
    **{
        (name, "also"): Column("", "other readings that the paper's text admits, with their numbers") for name in TABLES
    },
}
"""Columns of tables that no stage describes, where they mean something else than elsewhere."""


def publish(
    summary: pd.DataFrame,
    paper: Mapping[str, pd.DataFrame],
    of_stages: Sequence[Path],
    folder: Path,
    *,
    n_features: int,
) -> None:
    """Write the folder of tables for readers; it appears when all are complete.

    paper : its tables by name; none where the run is not compared with them.

    The paper's tables with ours beside, and the binary task in the paper's form, by t over all features and over the
    support; and `data_dictionary`, which also describes `summary.csv` and the Parquet files of `of_stages`,
    the folders that the experiments wrote. What stands in the summary is not written again.
    """
    rounds = [t for t in PAPER_ROUNDS if t < n_features] + [n_features]
    lines = Lines(summary)
    tables = {
        "binary_form": binary_form(lines, rounds=rounds),
        "binary_form_support": binary_form(lines, rounds=SUPPORT_ROUNDS, variant="support"),
    }
    for name in TABLES if paper else ():
        tables[name] = paper_table(name, paper[name], lines, n_features=n_features)
    files = [path for stage in of_stages for path in sorted(stage.glob("*.parquet"))]
    schemas = {f"{path.parent.name}/{path.stem}": pq.read_schema(path) for path in files}
    parts = {str(name): part.dropna(axis="columns", how="all") for name, part in summary.groupby("table", sort=False)}
    schemas |= {name: pa.Schema.from_pandas(table, preserve_index=False) for name, table in (parts | tables).items()}
    tables[DICTIONARY] = dictionary_of(schemas)
    with atomic_folder(folder, [f"{name}.csv" for name in (*tables, *TABLES)]) as temporary:
        for name, table in tables.items():
            write_csv(marked_table(table), temporary / f"{name}.csv", float_format="%.10g")


def dictionary_of(schemas: Mapping[str, pa.Schema]) -> pd.DataFrame:
    """One line per column of each table: `table`, `column`, `type`, `unit`, `meaning`.

    Raises
    ------
    ReportError : a column that has no meaning here.

    """
    lines = []
    for table, schema in schemas.items():
        stage, _, name = table.partition("/")
        columns = stages()[stage].tables.get(name, {}) if stage in stages() else {}
        for field in schema:
            meaning = columns.get(field.name) or OF_TABLE.get((table, field.name)) or COMMON.get(field.name)
            meaning = meaning or _of_round(field.name)
            if meaning is None:
                found, expected = f"the column {field.name}", "a column with a meaning"
                step = "describe it in the STAGE of its stage, or in afa/report/publish.py"
                raise ReportError(Fault(f"data dictionary, {table}", found, expected, step))
            lines.append((table, field.name, str(field.type), meaning.unit, meaning.meaning))
    return pd.DataFrame(lines, columns=COLUMNS)


def _of_round(column: str) -> Column | None:
    """A column of a table in the paper's form."""
    if not column.removeprefix("t=").isdecimal():
        return None
    meaning = "accuracy under random order after t observations (gain of f_target / gain of cmi, in percentage points)"
    return Column("share (percentage points)", meaning)
