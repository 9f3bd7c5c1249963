"""Tables of complete patients: what is wrong with one is named by line and column."""

import numpy as np
import pandas as pd
import pytest
from four_patients import FEATURES, PATIENTS, as_csv, cohort, frame

from afa.cohort.cells import numbers_of, read_cells, read_labels, read_patients
from afa.cohort.cohort import Cohort, load_cohort, write_cohort
from afa.errors import CohortError


@pytest.fixture
def table(tmp_path):
    """The four patients as a CSV file."""
    return as_csv(tmp_path)


def test_the_order_of_rows_and_columns_and_the_format_of_the_table_do_not_matter(bundle_tiny, table, tmp_path):
    first = read_patients(table, bundle_tiny)
    turned = frame().iloc[::-1, [0, 3, 1, 5, 2, 4]]
    turned.to_csv(tmp_path / "turned.csv", index=False)
    turned.astype(dict.fromkeys(FEATURES, "int8")).to_parquet(tmp_path / "turned.parquet", index=False)
    write_cohort(cohort(bundle_tiny), tmp_path / "folder")
    for name in ("turned.csv", "turned.parquet", "folder"):
        other = read_patients(tmp_path / name, bundle_tiny)
        assert other.cohort.patients == first.cohort.patients == tuple(PATIENTS)
        assert other.cohort.values.tolist() == first.cohort.values.tolist() == [list(x) for x in PATIENTS.values()]


def test_unknown_columns_are_told_and_missing_features_can_leave_the_bundle_too(bundle_tiny, tmp_path):
    path = tmp_path / "mine.csv"
    frame().assign(age="seventy").drop(columns="TFF3").to_csv(path, index=False)
    with pytest.raises(CohortError, match=r"no column for 1 of 5 features: TFF3.*--drop-missing"):
        read_patients(path, bundle_tiny)
    given = read_patients(path, bundle_tiny, drop_missing=True)
    assert (list(given.ignored), list(given.dropped)) == (["age"], ["TFF3"])
    assert given.bundle.features == given.cohort.features == ("AQP8", "CXCL8", "MMP9", "MUC2")


def test_a_cohort_folder_that_says_what_it_dropped_needs_no_option(bundle_tiny, tmp_path):
    kept = bundle_tiny.restrict(FEATURES[:4])
    values = {name: row[:4] for name, row in PATIENTS.items()}
    made = cohort(kept, **values)
    told = Cohort("mine", made.features, made.patients, made.values, made.labels, {"dropped_features": ["TFF3"]})
    write_cohort(told, tmp_path / "folder")
    assert load_cohort(tmp_path / "folder").features == FEATURES[:4]
    assert read_patients(tmp_path / "folder", bundle_tiny).bundle.features == FEATURES[:4]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.rename(columns={"CXCL8": "IL8"}), ("CXCL8", "rename the column IL8 to CXCL8")),
        (lambda t: t.rename(columns={"MUC2": "MUC-2"}), ("MUC2", "did you mean MUC-2")),
        (lambda t: t.drop(columns=list(FEATURES)).assign(x=1), ("no column for 5 of 5 features", "AQP8")),
        (lambda t: t.replace({"MMP9": {0: 2}}), ("column MMP9", "'2' (line 3)", "-1, 0, 1 or nothing")),
        (lambda t: t.assign(MMP9=[0.5, 0, 0, 0]), ("line 2", "'0.5'")),
        (lambda t: t.assign(patient=["p1", "p2", "p1", "p4"]), ("column patient", "'p1' (lines 2, 4)")),
        (lambda t: t.assign(patient=["p1", "", "p3", "p4"]), ("column patient", "nothing (line 3)")),
        (lambda t: t.iloc[:0], ("no row", "a row for each patient")),
        (lambda t: t.iloc[:, 1:], ("a first column 'AQP8', which is a feature",)),
        (lambda t: t.iloc[:, :1], ("line 1", "one column, 'patient'", "commas")),
    ],
)
def test_what_is_wrong_with_a_table_is_named_by_line_and_column(bundle_tiny, tmp_path, change, words):
    path = tmp_path / "mine.csv"
    change(frame()).to_csv(path, index=False)
    with pytest.raises(CohortError) as stopped:
        read_patients(path, bundle_tiny)
    told = str(stopped.value)
    assert "\n" not in told
    assert [word for word in (str(path), *words) if word not in told] == []


def test_an_empty_cell_was_not_measured(bundle_tiny, tmp_path):
    path = tmp_path / "mine.csv"
    frame().iloc[::-1].assign(MUC2=["1", "", "0", ""]).to_csv(path, index=False)
    given = read_patients(path, bundle_tiny)
    gaps = [(given.cohort.patients[i], given.bundle.features[j]) for i, j in np.argwhere(~given.measured)]
    assert gaps == [("p1", "MUC2"), ("p3", "MUC2")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no header"),
        ("patient,AQP8,AQP8\np1,0,0\n", "2 columns of this name"),
        ("patient;AQP8\np1;0\n", "commas"),
        ("patient,AQP8\np1,0,1\n", "found 3 fields (line 2)"),
        ('patient,AQP8\n"p1,0\n', "not CSV"),
        ("patient,AQP8\np\0,0\n", "binary data"),
    ],
)
def test_a_file_that_is_no_table_is_named(bundle_tiny, tmp_path, text, words):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(CohortError) as stopped:
        read_patients(path, bundle_tiny)
    assert words in str(stopped.value)


def test_a_file_that_is_not_there_or_has_another_ending_is_named(bundle_tiny, tmp_path):
    with pytest.raises(CohortError, match=r"none\.csv: found No such file"):
        read_patients(tmp_path / "none.csv", bundle_tiny)
    (tmp_path / "mine.xlsx").write_text("x")
    with pytest.raises(CohortError, match=r"ending '\.xlsx'"):
        read_patients(tmp_path / "mine.xlsx", bundle_tiny)


def test_what_is_wrong_with_a_parquet_table_is_named_by_row_and_column(bundle_tiny, tmp_path):
    path = tmp_path / "mine.parquet"
    for changed, words in (
        (frame().replace({"MMP9": {0: 3}}), "column MMP9: found '3' \\(row 2\\)"),
        (frame().assign(patient=["p1", "p1", "p3", "p4"]), r"column patient: found 'p1' \(rows 1, 2\)"),
    ):
        changed.to_parquet(path)
        with pytest.raises(CohortError, match=words):
            read_patients(path, bundle_tiny)
    frame().set_index("patient").to_parquet(path)
    assert list(read_patients(path, bundle_tiny).cohort.patients) == list(frame()["patient"])
    path.write_bytes(b"PAR1 or not")
    with pytest.raises(CohortError, match="Parquet readers refuse"):
        read_patients(path, bundle_tiny)


def test_many_wrong_cells_of_a_column_are_one_line(bundle_tiny, tmp_path):
    path = tmp_path / "mine.csv"
    frame(**{f"q{i}": (9, 9, 9, 9, 9) for i in range(10)}).to_csv(path, index=False)
    with pytest.raises(CohortError) as stopped:
        read_patients(path, bundle_tiny)
    assert len(stopped.value.faults) == 5
    assert "found '9' (lines " in str(stopped.value)


def test_labels_in_words_are_answered_with_their_numbers(bundle_tiny, table, tmp_path):
    (tmp_path / "labels.csv").write_text("who,fistula,bleeding\np1,yes,no\np2,no,no\np3,yes,yes\n")
    with pytest.raises(CohortError) as stopped:
        read_labels(tmp_path / "labels.csv", read_patients(table, bundle_tiny))
    assert [(fault.expected, fault.next_step) for fault in stopped.value.faults] == [
        ("0, 1 or nothing", "code the label as 0 and 1, in a column for each entity"),
        ("0, 1 or nothing", "code the label as 0 and 1, in a column for each entity"),
    ]


def test_a_column_of_words_is_not_taken_for_a_row_of_units(tmp_path):
    (tmp_path / "mine.csv").write_text("who,fever,rash\np1,yes,no\np2,no,no\np3,yes,yes\n")
    cells = read_cells(tmp_path / "mine.csv", "feature", ["fever", "rash"])
    numbers_of(cells, ["fever", "rash"])
    faults = cells.table.faults.listed()
    assert [(fault.where.rpartition("/")[2], fault.next_step) for fault in faults] == [
        ("mine.csv, column fever", "write 1 for yes and 0 for no"),
        ("mine.csv, column rash", "write 1 for yes and 0 for no"),
    ]


def test_labels_come_by_patient_and_what_is_wrong_with_them_is_named(bundle_tiny, table, tmp_path):
    given, path = read_patients(table, bundle_tiny), tmp_path / "labels.csv"
    path.write_text("who,fistula,bleeding,other\np3,1,0,x\nzz,1,1,x\np1,,1,x\n")
    labelled = read_labels(path, given)
    assert labelled.cohort.labels["fistula"].to_list() == [pd.NA, pd.NA, 1, pd.NA]
    assert labelled.cohort.labels["bleeding"].to_list() == [1, pd.NA, 0, pd.NA]
    assert (list(labelled.ignored), list(labelled.left_out)) == (["other"], ["zz"])
    for text, words in (
        ("who,fistula\np1,2\n", "column fistula: found '2' \\(line 2\\); expected 0, 1 or nothing"),
        ("who,other\np1,1\n", "no column of an entity"),
        ("who,fistula\nzz,1\n", "none of the cohort's patients"),
        ("who,fistula\np1,1\np1,1\n", r"column who: found 'p1' \(lines 2, 3\)"),
    ):
        path.write_text(text)
        with pytest.raises(CohortError, match=words):
            read_labels(path, given)
