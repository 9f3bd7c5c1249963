"""Which column of a table names its patients, and when that is asked."""

import pandas as pd
import pytest

from afa.cohort.encode import Coding
from afa.cohort.encode_table import read_and_encode
from afa.errors import CohortError
from afa.model.features import features_of

FEATURES = features_of(pd.DataFrame({"feature": ["sodium"], "kind": ["continuous"], "low": [135], "high": [145]}))
TABLE = pd.DataFrame(
    {"age": [71, 34, 58], "sodium": [130.0, 140.0, 150.0]}, index=pd.Index(["ann", "ben", "cat"], name="patient")
)


def names(path):
    encoded = read_and_encode(path, FEATURES, Coding())
    assert encoded.values["sodium"].tolist() == [-1, 0, 1]
    return list(encoded.values.index), list(encoded.doubts)


@pytest.mark.parametrize("index", ["patient", None, "who are they"])
def test_the_index_that_pandas_notes_in_a_parquet_file_names_the_patients(tmp_path, index):
    TABLE.rename_axis(index).to_parquet(tmp_path / "t.parquet")
    assert names(tmp_path / "t.parquet") == (["ann", "ben", "cat"], [])


def test_a_first_column_of_names_needs_no_index(tmp_path):
    TABLE.reset_index().to_parquet(tmp_path / "t.parquet")
    assert names(tmp_path / "t.parquet") == (["ann", "ben", "cat"], [])


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_measurement_in_place_of_the_names_is_said(tmp_path, ending):
    path = tmp_path / f"t.{ending}"
    getattr(TABLE, f"to_{ending}")(path, index=False)
    assert names(path) == (
        ["71", "34", "58"],
        ["patients are named by the column age, which holds numbers (71, 34, 58); is that their name?"],
    )


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_row_numbers_beside_names_are_refused(tmp_path, ending):
    path = tmp_path / f"t.{ending}"
    frame = TABLE.reset_index().iloc[[0, 1, 2]].set_axis([0, 4, 7])
    getattr(frame, f"to_{ending}")(path)
    with pytest.raises(
        CohortError, match=r"found numbers in a column without a name, such as 0.*put the column patient"
    ):
        names(path)


def test_row_numbers_and_numbers_that_count_are_names_where_nothing_else_is(tmp_path):
    TABLE.reset_index(drop=True).to_csv(tmp_path / "t.csv")
    assert names(tmp_path / "t.csv") == (["0", "1", "2"], [])
    TABLE.set_axis([17, 905, 33]).rename_axis("patient_id").to_csv(tmp_path / "u.csv")
    assert names(tmp_path / "u.csv") == (["17", "905", "33"], [])


def test_numbers_with_decimals_and_several_indices_are_refused(tmp_path):
    TABLE.assign(age=TABLE["age"] + 0.5).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(CohortError, match=r"numbers in the column age, such as 71\.5"):
        names(tmp_path / "t.csv")
    TABLE.set_index("age", append=True).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(CohortError, match="an index of patient, age; expected one column"):
        names(tmp_path / "t.parquet")


def test_a_patient_twice_is_named_in_a_parquet_file_too(tmp_path):
    TABLE.set_axis(["ann", "ben", "ann"]).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(CohortError, match="each patient once"):
        names(tmp_path / "t.parquet")
