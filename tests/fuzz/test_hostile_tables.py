"""Parquet files that are not what their name says, and tables that a spreadsheet would run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from afa.cohort.cohort import Cohort, load_cohort, write_cohort
from afa.errors import CohortError
from afa.evaluate.summary import COLUMNS, read_summary, summary_rows, write_summary
from afa.io.spreadsheet import marked, marked_table, unmarked
from afa.paper.report.comparison import COLUMNS as COMPARED
from afa.paper.report.comparison import write_comparison

FORMULAS = [
    '=HYPERLINK("http://x","y")',
    "+cmd|' /C calc'!A0",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "\uff1d1+1",
    "'=1",
]
NUMBERS = ["-0.5", "+3", "-1e-7", "12", "-3.5%", "-", "+", "MUC2", "", "a=b", "it's"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cohort.yaml").write_text("name: own\n", encoding="utf-8")
    write(tmp_path / "features.parquet", {"patient": ["P0", "P1"], "A": pa.array([1, 0], pa.int8())})
    write(tmp_path / "labels.parquet", {"patient": ["P0", "P1"], "fever": pa.array([1, None], pa.int8())})
    return tmp_path


def write(path: Path, columns: dict[str, Any], **options: Any) -> None:
    pq.write_table(pa.table(columns), path, **options)


def refusal(folder: Path) -> str:
    with pytest.raises(CohortError) as caught:
        load_cohort(folder)
    return str(caught.value)


@pytest.mark.parametrize("kept", [0, 3, 4, 8, 100, -1, -4, -8, -20])
def test_a_truncated_table_is_refused_by_its_name(folder: Path, kept: int) -> None:
    path = folder / "features.parquet"
    path.write_bytes(path.read_bytes()[:kept])
    assert f"{path}: found what Parquet readers refuse" in refusal(folder)


@pytest.mark.parametrize("content", [b"patient,A\nP0,1\n", b"ARROW1\0\0", b"PK\x03\x04", b"PAR1" * 20, b"\x1f\x8b"])
def test_another_format_is_refused_by_its_name(folder: Path, content: bytes) -> None:
    (folder / "labels.parquet").write_bytes(content)
    assert "labels.parquet: found what Parquet readers refuse" in refusal(folder)


class Unknown(pa.ExtensionType):  # type: ignore[misc]
    """A type that another library brings."""

    def __init__(self) -> None:
        super().__init__(pa.int8(), "other.library")

    def __arrow_ext_serialize__(self) -> bytes:
        return b"\x80\x04cos\nsystem\n(S'true'\ntR."

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Unknown:
        raise ValueError("not a type of this library")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"a", b"b"]),
        pa.array([[1], [0]]),
        pa.array([{"a": 1}, {"a": 0}]),
        pa.array([1, 0], pa.timestamp("ns")),
        pa.array([1, 0], pa.date32()),
        pa.array(["a", "b"]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type)[:20],
)
@pytest.mark.parametrize("file", ["features.parquet", "labels.parquet"])
def test_a_column_of_another_type_is_refused_by_its_name(folder: Path, column: pa.Array, file: str) -> None:
    write(folder / file, {"patient": ["P0", "P1"], "A": column})
    said = refusal(folder)
    assert file in said
    assert "column A" in said


@pytest.mark.parametrize("file", ["features.parquet", "labels.parquet"])
def test_decimals_and_numbers_in_a_dictionary_are_numbers(folder: Path, file: str) -> None:
    for column in (pa.array([1, 0], pa.decimal128(5, 2)), pa.array([1, 0]).dictionary_encode()):
        write(folder / file, {"patient": ["P0", "P1"], "A": column})
        read = load_cohort(folder)
        assert list(read.values[:, 0] if file == "features.parquet" else read.labels["A"]) == [1, 0]


def test_a_type_of_a_library_that_is_not_there_is_read_as_the_numbers_that_it_is(folder: Path) -> None:
    array = pa.ExtensionArray.from_storage(Unknown(), pa.array([1, 0], pa.int8()))
    write(folder / "features.parquet", {"patient": ["P0", "P1"], "A": array})
    assert load_cohort(folder).values.tolist() == [[1], [0]]


def test_a_library_whose_type_does_not_read_its_own_bytes_is_no_traceback(folder: Path) -> None:
    array = pa.ExtensionArray.from_storage(Unknown(), pa.array([1, 0], pa.int8()))
    write(folder / "features.parquet", {"patient": ["P0", "P1"], "A": array})
    pa.register_extension_type(Unknown())
    try:
        assert "features.parquet: found what Parquet readers refuse" in refusal(folder)
    finally:
        pa.unregister_extension_type("other.library")


def test_an_extra_column_of_labels_is_a_label_and_one_of_text_is_refused(folder: Path) -> None:
    write(folder / "labels.parquet", {"patient": ["P0", "P1"], "fever": [1, 0], "note": ["a", "b"]})
    assert "labels.parquet, patient P0, column note" in refusal(folder)


@pytest.mark.parametrize(
    "patients",
    [["P0", None], ["P0", ""], ["P0", "a\nb"], ["P0", "\u202ex"], ["P0", " x"], ["P0", "x" * 201], ["P0", "a\x00"]],
)
def test_a_patient_without_a_name_that_can_be_shown_is_refused(folder: Path, patients: list[str | None]) -> None:
    for name in ("features", "labels"):
        write(folder / f"{name}.parquet", {"patient": pa.array(patients, pa.string()), "A": [1, 0]})
    said = refusal(folder)
    assert "patient" in said
    assert said.replace("\n", "").isprintable()


def test_a_small_file_that_stands_for_a_huge_table_is_refused_unread(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "features.parquet"
    columns = {f"g{i}": np.zeros(100_000, dtype=np.int8) for i in range(20)}
    write(path, {"patient": np.zeros(100_000, dtype=np.int8), **columns}, compression="zstd")
    monkeypatch.setattr("afa.cohort.cohort.LARGEST_TABLE", 2_000_000)
    assert path.stat().st_size < 20_000
    assert "100000 patients x 21 columns" in refusal(folder)


def test_what_pandas_wrote_beside_the_columns_is_not_looked_at(folder: Path) -> None:
    table = pa.table({"patient": ["P0", "P1"], "A": pa.array([1, 0], pa.int8())})
    for metadata in ({"pandas": "{"}, {"pandas": '{"index_columns": ["A"], "columns": []}'}):
        pq.write_table(table.replace_schema_metadata(metadata), folder / "features.parquet")
        assert load_cohort(folder).features == ("A",)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "features.parquet/..", "cohort.yaml"])
def test_a_digest_of_another_file_is_refused_and_the_file_not_read(folder: Path, name: str) -> None:
    (folder / "cohort.yaml").write_text(yaml.safe_dump({"name": "own", "digests": {name: "0"}}), encoding="utf-8")
    said = refusal(folder)
    assert "a digest of an unknown file" in said
    assert "SHA-256" not in said


@pytest.mark.parametrize("digest", ["0" * 64, 0, None, [], "x"])
def test_digests_that_do_not_match_are_refused(folder: Path, digest: Any) -> None:
    card = {"name": "own", "digests": {"features.parquet": digest}}
    (folder / "cohort.yaml").write_text(yaml.safe_dump(card), encoding="utf-8")
    assert "found features.parquet with SHA-256" in refusal(folder)


def test_a_digest_in_capitals_is_the_same_digest(tmp_path: Path) -> None:
    labels = pd.DataFrame(index=["P0"])
    write_cohort(Cohort("small", ("A",), ("P0",), np.zeros((1, 1)), labels), tmp_path / "c")
    card = yaml.safe_load((tmp_path / "c" / "cohort.yaml").read_text())
    card["digests"] = {name: digest.upper() for name, digest in card["digests"].items()}
    (tmp_path / "c" / "cohort.yaml").write_text(yaml.safe_dump(card))
    assert load_cohort(tmp_path / "c").name == "small"


def cells(path: Path) -> list[str]:
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    return [str(cell) for column in table for cell in table[column]]


def runs(cell: str) -> bool:
    """Whether a spreadsheet would run a cell, told in another way than the code under test does."""
    try:
        float(cell.removesuffix("%"))
    except ValueError:
        return len(cell) > 1 and cell[0] in "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
    return False


@pytest.mark.parametrize("name", [*FORMULAS, *NUMBERS])
def test_a_text_is_marked_where_a_spreadsheet_would_run_it_and_only_there(name: str) -> None:
    assert not runs(marked(name))
    assert (marked(name) == name) == (name in NUMBERS)


@given(st.one_of(st.text(alphabet="'=+-@\t1.e a%", max_size=6), st.text(max_size=6)))
def test_what_was_marked_comes_back(text: str) -> None:
    assert unmarked(marked(text)) == text
    assert not runs(marked(text))


def test_numbers_stay_numbers() -> None:
    table = pd.DataFrame({"a": [-1.5, np.nan], "b": pd.array([-1, None], dtype="Int8"), "c": ["=1", "x"]})
    safe = marked_table(table)
    assert safe["a"].dtype == np.float64
    pd.testing.assert_series_equal(safe["b"], table["b"])
    assert safe["c"].tolist() == ["'=1", "x"]


def test_no_cell_of_the_summary_runs_and_its_reader_gives_the_names_back(tmp_path: Path) -> None:
    given = pd.DataFrame(
        [
            {"metric": "accuracy", "entity": name, "target": "clinical", "t": i, "value": -0.5}
            for i, name in enumerate(FORMULAS)
        ]
    )
    write_summary([summary_rows("clinical", given)], tmp_path / "summary.csv")
    assert not [cell for cell in cells(tmp_path / "summary.csv") if runs(cell)]
    read = read_summary(tmp_path / "summary.csv")
    assert list(read.columns) == COLUMNS
    assert read["entity"].tolist() == [name.replace("\r", "\n") if name == "\r=1" else name for name in FORMULAS]
    assert read["value"].tolist() == [-0.5] * len(FORMULAS)


def test_no_cell_of_the_comparison_runs_and_its_parquet_is_exact(tmp_path: Path) -> None:
    row = dict.fromkeys(COMPARED, "") | {
        "kind": "cell",
        "verdict": "reproduced",
        "paper": "-0.5",
        "by_definition": False,
    }
    numbers = dict.fromkeys(("paper_n", "ours", "low", "high", "n", "difference"), -1.0)
    table = pd.DataFrame([row | numbers | {"note": name, "claim": name} for name in FORMULAS])
    write_comparison(table, tmp_path / "comparison", table.head(0), table.head(0))
    texts = cells(tmp_path / "comparison" / "comparison.csv")
    assert not [cell for cell in texts if runs(cell)]
    assert "-0.5" in texts
    assert "-1" in texts or "-1.0" in texts
    assert pd.read_parquet(tmp_path / "comparison" / "comparison.parquet")["note"].tolist() == FORMULAS
