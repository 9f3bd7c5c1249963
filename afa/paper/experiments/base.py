"""The stages of the workflow, and how to write a stage.

A stage is one module `afa/paper/experiments/NAME.py`, or a folder with that name if one file would be too long. A stage
computes tables, and summarises these tables in rows of `summary.csv`. A `Stage` in `afa/paper/experiments/declared.py`
declares the stage: its inputs and settings, whether its patients are split into shards, the columns of its tables, and
the tables of the summary. Four things are generated from the declarations: the rules of the workflow,
`config/config.yaml`, its description `config/README.md`, and the data dictionary. The module of a stage has two
functions, `run` and `summarise`.

`run(...)` computes the tables. The name of each parameter of `run` determines its argument, as listed below. `run`
returns one data frame for each table. The columns of a data frame may be in any order. If a table declares the columns
`cohort` and `bundle`, the workflow fills these columns with the names of the cohort and the bundle.

- `bundle`, `cohort`: a `Bundle` and a `Cohort` with the same features, if `inputs` names them;
- the name of another stage in `inputs`: a mapping from names to tables of that stage, each read on first use;
- any other name in `inputs`: the path of the file or folder with this name;
- `patients`: the range of rows of the cohort in this shard; only with `sharded=True`;
- the name of a section in `settings`: that section of the configuration, as an object. If `settings` names single keys,
  such as `random_order.seeds`, the object has only these keys;
- `threads`: number of threads that `run` may use; results do not depend on it.

`summarise(tables, ...)` computes the rows of the summary (`afa.evaluate.summary.summary_rows`) from the tables of all
shards. Further parameters of `summarise` are named after stages (listed in `Stage.summary_inputs`) or sections of the
configuration (listed in `Stage.summary_settings`).

In a folder, `run` and `summarise` may be in separate files, imported as `from afa.paper.experiments.NAME.tables import
run as run`. The digest of a job's code covers either `run` or `summarise`, whichever the job calls, even if one file
contains both functions.

Adding a stage
    1. Write `afa/paper/experiments/NAME.py` with the functions `run` and `summarise`, and declare the stage as a
       `Stage` in `declared.py`. Explain each new column in a line of `columns.csv`. If another table has a column with
       the same name but another meaning, write the name of your table into the field `table` of the line. List the
       tables of the summary in the field `summary_tables` of the `Stage`, and in `TABLES` of `afa/evaluate/summary.py`,
       which gives their order in `summary.csv`. The metric of a row must be in `METRICS` of the same module. Describe
       the rows in a section of `docs/summary.md`. If the stage has settings, define them and their
       defaults as a class in `settings.py`. Add a field to `StageSettings`, with the name NAME and the new class as its
       type. The field becomes the section NAME of `config.yaml`. Write the meaning of each setting as a string below
       the setting.
    2. If the stage has a figure, write `notebooks/NAME.ipynb`, and begin with a copy of the first cells of an existing
       notebook. Below the figure, add a cell with the tag `caption` that calls `show_caption("...", run, patients)`.
       Name the figure in the field `figure` of the `Stage`. If the figure needs several stages, name it in `NOTEBOOKS`
       of `workflow/rules/report.smk` instead. The test `tests/paper/report/test_every_figure.py` draws the figure from
       a small run of all stages. If a small run with the stage's default settings takes too long, change these settings
       in the test.
    3. Test `run` and `summarise` in `tests/paper/experiments/test_NAME.py`.
    4. Add the stage to `stages` of `tests/workflow/reruns.yaml`, with its inputs. For each setting, give a value other
        than the default.
    5. Run `make schema`, which writes `config/config.yaml`, `config/README.md`, the schema of the configuration and
       `docs/summary.md`.

To try the stage, make a small bundle and cohort once. Then run the stage's two functions on this bundle and cohort:

    snakemake -c1 --config cohort=demo -- bundle cohort
    afa stage NAME --bundle results/demo/bundle --cohort results/demo/cohort --out tables
    afa summarise NAME tables --out NAME.csv

If the stage reads tables of another stage, pass the folder of these tables to `afa stage` as `--input STAGE=FOLDER`.

If code has changed, Snakemake repeats all jobs of a finished run that use the changed code. This takes minutes. To add
only the new stage to a finished run, name the rules that Snakemake may run:

    snakemake -c1 results/RUN/summary.csv --allowed-rules NAME_tables summary
    snakemake -c1 results/RUN/report.html --allowed-rules NAME_notebook run_config provenance report_page
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, create_model, field_validator

from afa.errors import Fault, SanityError
from afa.io.yamlfile import check_model

if TYPE_CHECKING:
    import pandas as pd


class Section(BaseModel):
    """A section of the configuration. Unknown keys are errors, and a list must not contain a value twice."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _check_no_duplicates(cls, value: Any) -> Any:
        if isinstance(value, tuple) and len(set(value)) < len(value):
            raise ValueError("none twice")
        return value


NamePart = Annotated[str, Field(coerce_numbers_to_str=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""A name that can be part of a file name."""
Seeds = Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)]
"""Seeds of random orders."""
Rounds = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
"""Numbers of observed features t, in addition to 0 and M."""


class Column(NamedTuple):
    """The unit and the meaning of a column of a table.

    The unit of a column of names is "", and the unit of a column of counts is "count".
    """

    unit: str
    meaning: str


Columns = Mapping[str, Column]
"""The columns of a table, in order."""
with Path(__file__).with_name("columns.csv").open(encoding="utf-8", newline="") as _file:
    MEANINGS: Mapping[tuple[str, str], Column] = {
        (place, row["column"]): Column(row["unit"], row["meaning"])
        for row in csv.DictReader(_file)
        for place in row["table"].split() or [""]
    }
"""(table, column) -> meaning of the column. `table` is "" for the meaning in all other tables. In the file, `table` is
`stage/table`, `stage/*` for all tables of a stage, a table of the summary, or `*` for every table outside the stages.
"""


def meaning_of(table: str, column: str) -> Column | None:
    """Return the unit and the meaning of a column. `table` is `stage/table`, or the name of a table outside the stages.

    The result is None if `columns.csv` does not describe the column.

    >>> meaning_of("labels/scores", "t").unit, meaning_of("sign/rounds", "t").unit
    ('per cent', 'observations')
    """
    stage, slash, _ = table.partition("/")
    places = (table, f"{stage}/*" if slash else "*", "")
    return next((MEANINGS[place, column] for place in places if (place, column) in MEANINGS), None)


def columns_of(stage: str, tables: Mapping[str, str]) -> dict[str, Columns]:
    """Return {table: columns} for the tables of a stage, with the unit and the meaning of each column.

    If `columns.csv` does not describe a column, the unit and the meaning of the column are empty.

    Parameters
    ----------
    tables : table -> names of its columns, separated by spaces

    """
    return {
        table: {name: meaning_of(f"{stage}/{table}", name) or Column("", "") for name in names.split()}
        for table, names in tables.items()
    }


LAYER0 = {
    "clusters": (
        "cohort bundle n_clusters cluster members radius spread score converged contraction eligible_f2"
        " lipschitz_f2 gap separation within between"
    ),
    "layer0": (
        "cohort bundle n_clusters criterion rule entities needed most_dominators clusters_out entities_out contradicted"
    ),
    "lift": "cohort bundle n_clusters criterion rule patient t right right_greedy duels",
    "patients": "cohort bundle n_clusters criterion rule patient certificates false_certificates duels false_duels",
}
"""The tables of Layer 0. They are the same on a bundle and on synthetic entities."""

RANGES = {"count": (0, None), "observations": (0, None), "sign": (-1, 1), "0 to 1": (0, 1), "-1 to 1": (-1, 1)}
RANGE_ROUNDING = 1e-9
"""A number may exceed the range of its unit by this amount, due to rounding."""


@dataclass(frozen=True)
class Stage:
    """The declaration of a stage of the workflow. The docstring of this module explains how to write a stage.

    Parameters
    ----------
    inputs : names of the inputs of `run`
    settings : keys of the configuration that `run` reads. A key is a whole section, or a single key with a dot
    summary_settings : keys of the configuration that `summarise` reads. Write `()` if `summarise` reads none, and None
        if the stage has no function `summarise` and makes no rows
    sharded : True if the patients are split into shards
    duels : True if the stage compares entities, and therefore needs at least two
    scopes : True if the stage reads which couplings are common to both classes. Other stages get `Bundle.contrasts`
    labels : True if the stage needs patients with labels
    elicited : True if the stage needs a bundle that the run elicits, with the answers of each voter
    figure : chapter and title of the figure in the report. The figure is drawn by `notebooks/NAME.ipynb`, which reads
        only this stage's tables and rows
    summary_inputs : stages whose tables `summarise` also reads
    tables : columns of each table, in order
    summary_tables : table of `summary.csv` that `summarise` makes -> its question. The question is "" if another stage
        states it
    single : tables that are saved in single precision. These are long tables of scores, of which only signs, means and
        correlations are used
    in_all_parts : tables of which every part of the allocation grid makes the same rows. `afa gather` keeps them once

    """

    inputs: tuple[str, ...] = ("bundle", "cohort")
    settings: tuple[str, ...] = ()
    sharded: bool = False
    duels: bool = False
    scopes: bool = False
    labels: bool = False
    elicited: bool = False
    summary_settings: tuple[str, ...] | None = ("bootstrap",)
    figure: tuple[str, str] | None = None
    summary_inputs: tuple[str, ...] = ()
    tables: Mapping[str, str] = field(default_factory=dict)
    summary_tables: Mapping[str, str] = field(default_factory=dict)
    single: tuple[str, ...] = ()
    in_all_parts: tuple[str, ...] = ()


def chosen(keys: Iterable[str], known: type[Section], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return {section: settings} for the settings that a job reads.

    A setting that is missing in `document` has its default value.

    Parameters
    ----------
    keys : sections, or single keys with a dot, as in `Stage.settings`.
    known : the model of all settings, with their defaults.
    document : a mapping like `config.yaml`. It must not have keys outside the sections in `keys`.

    Raises
    ------
    ConfigError : the document has unknown keys or invalid values. The message lists all of them.

    """
    heads = dict.fromkeys(key.partition(".")[0] for key in keys)
    fields: Any = {head: (known.model_fields[head].annotation, known.model_fields[head]) for head in heads}
    model: type[Section] = create_model("Settings", __base__=Section, **fields)
    settings = check_model(dict(document), model, "the settings")
    found: dict[str, Any] = {}
    for key in keys:
        head, _, name = key.partition(".")
        whole = getattr(settings, head)
        if not name:
            found[head] = whole
        else:
            vars(found.setdefault(head, SimpleNamespace()))[name] = getattr(whole, name)
    return found


def with_declared_columns(
    tables: Mapping[str, pd.DataFrame], expected: Mapping[str, Columns], **names: str
) -> dict[str, pd.DataFrame]:
    """Put the columns of the tables of `run` into the declared order, and add the names of cohort and bundle.

    The names of cohort and bundle are added to tables that declare the columns `cohort` and `bundle`. Undeclared
    columns come last. A table without any column gets all declared columns.
    """
    found = {}
    for name, table in tables.items():
        order = list(expected.get(name, ()))
        filled = table if len(table.columns) else table.reindex(columns=[key for key in order if key not in names])
        whole = filled.assign(**{key: text for key, text in names.items() if key in order and key not in filled})
        found[name] = whole[[*(key for key in order if key in whole), *(key for key in whole if key not in order)]]
    return found


def check_tables(stage: str, tables: Mapping[str, pd.DataFrame], expected: Mapping[str, Columns]) -> None:
    """Raise an error if the tables of a stage differ from their declaration.

    Raises
    ------
    SanityError : a table or column is undeclared or missing, a column with a unit is not numeric, or a number is out of
        range.

    """
    faults: list[Fault] = []
    if set(tables) != set(expected):
        faults.append(_stage_fault(f"stage {stage}", f"tables {', '.join(tables)}", ", ".join(expected)))
    for name in [name for name in tables if name in expected]:
        table, where = tables[name], f"stage {stage}, table {name}"
        if list(table.columns) != list(expected[name]):
            faults.append(_stage_fault(where, f"columns {', '.join(table.columns)}", ", ".join(expected[name])))
            continue
        for column, (unit, _) in expected[name].items():
            values = table[column].dropna()
            if unit == "" or values.empty:
                continue
            if values.dtype.kind not in "iufb":
                faults.append(_stage_fault(f"{where}, column {column}", str(values.dtype), f"numbers, in {unit}"))
                continue
            low, high = RANGES.get(unit, (None, None))
            if low is not None and values.min() < low - RANGE_ROUNDING:
                faults.append(_stage_fault(f"{where}, column {column}", f"{values.min()}", f"at least {low}"))
            if high is not None and values.max() > high + RANGE_ROUNDING:
                faults.append(_stage_fault(f"{where}, column {column}", f"{values.max()}", f"at most {high}"))
    if faults:
        raise SanityError(faults)


def check_rows(stage: str, rows: pd.DataFrame, expected: Iterable[str]) -> None:
    """Raise a `SanityError` if rows belong to a summary table that is missing in the stage's declaration."""
    if unknown := sorted(set(rows["table"]) - set(expected)):
        found = f"rows of {', '.join(unknown)}"
        raise SanityError(
            Fault(f"stage {stage}", found, ", ".join(expected), "name them in `summary_tables` of its declaration")
        )


def stored(tables: Mapping[str, pd.DataFrame], stage: Stage) -> dict[str, pd.DataFrame]:
    """Return the tables of a stage in the form in which they are written.

    Tables in `Stage.single` are converted to single precision, which has seven digits and halves the size of the files.
    Tables of a sharded stage are sorted by patient, as `afa gather` sorts them. The tables of a run are therefore the
    same with any number of shards.
    """
    found = {}
    for name, table in tables.items():
        floats = table.select_dtypes("float64").columns if name in stage.single else ()
        by_patient = stage.sharded and "patient" in table
        rows = table.sort_values("patient", kind="stable") if by_patient else table
        found[name] = rows.astype(dict.fromkeys(floats, "float32"))
    return found


def _stage_fault(where: str, found: str, expected: str) -> Fault:
    return Fault(where, found, expected, "correct the stage, or the columns in its declaration")
