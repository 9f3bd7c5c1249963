"""Codes for *not measured*: refused where the dictionary excludes them, named where they lie apart, else let alone."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import afa
from afa.cohort.codes import apart, looks_like_code
from afa.cohort.encode import Coding
from afa.cohort.encode_table import read_and_encode
from afa.cohort.table_cohort import TableCohort, TableFiles, build_table_cohort, encode_cohort, no_complete_patient
from afa.errors import CohortError
from afa.model.features import Span, features_of, read_features

ROOT = Path(__file__).parents[2]
FIELDS = [path for path in sorted((ROOT / "resources" / "fields").glob("*")) if (path / "values.csv.gz").is_file()]
PUMPS = pd.DataFrame(
    {
        "feature": ["pressure", "heat", "grade"],
        "kind": ["continuous", "continuous", "ordinal"],
        "low": [3.0, None, None],
        "high": [6.0, 70.0, 2.0],
        "values": ["above 0", "above 0", "1 to 4, higher is worse"],
    }
)
GAPS = {"pressure": -9, "heat": 999, "grade": 9}


def pumps(codes: bool = True) -> pd.DataFrame:
    """40 pumps; of pressure 18, of heat 8 and of grade 6 cells are codes for *not measured*, or empty."""
    n = np.arange(40)
    table = pd.DataFrame(
        {"pressure": 2.0 + n % 10 / 2, "heat": 55.0 + n % 30, "grade": 1.0 + n % 4}, index=[f"p{i}" for i in n]
    )
    for name, count in (("pressure", 18), ("heat", 8), ("grade", 6)):
        table.loc[table.index[:count], name] = GAPS[name] if codes else np.nan
    return table


def test_codes_that_the_dictionary_excludes_are_refused_with_every_row():
    with pytest.raises(CohortError) as caught:
        afa.encode(pumps(), PUMPS)
    assert [fault.where for fault in caught.value.faults] == ["X, column pressure", "X, column grade"]
    text = str(caught.value)
    assert "found -9 as 18 of 40 values (rows 1, 2, 3," in text
    assert "expected above 0, as features.csv says" in text
    assert "if -9 stands for not measured, write it in the column missing of features.csv" in text


def test_a_code_within_the_range_is_named_with_its_count():
    declared = PUMPS.assign(missing=["-9", "", "9"])
    with pytest.warns(UserWarning, match="heat: of 40 values 8 are 999, above all others") as warned:
        afa.encode(pumps(), declared)
    assert len(warned) == 1


def test_declared_codes_give_the_code_of_empty_cells(recwarn):
    declared = PUMPS.assign(missing=["-9", "-1; 999", "9"])
    pd.testing.assert_frame_equal(afa.encode(pumps(), declared), afa.encode(pumps(codes=False), PUMPS))
    assert not recwarn.list


def test_the_workflow_reads_a_table_in_the_same_way(tmp_path):
    pumps().rename_axis("pump").to_csv(tmp_path / "t.csv")
    PUMPS.to_csv(tmp_path / "f.csv", index=False)
    config = TableCohort(name="t", title="T", origin="table", table=tmp_path / "t.csv", features=tmp_path / "f.csv")
    files = TableFiles(config.table, config.features, None)
    with pytest.raises(CohortError, match=r"column pressure.*expected above 0"):
        encode_cohort(config, files)
    PUMPS.assign(missing=["-9", "", "9"]).to_csv(tmp_path / "f.csv", index=False)
    encoded = encode_cohort(config, files)
    assert encoded.cuts["missing"].tolist() == [18, 0, 6]
    build_table_cohort(config, files, encoded, [], tmp_path / "cohort")
    assert "of 40 values 8 are 999" in (tmp_path / "cohort" / "cohort.yaml").read_text().replace("\n", "")
    assert not no_complete_patient(config)
    PUMPS.assign(missing=["-9, " + ", ".join(f"{2 + i / 2}" for i in range(10)), "", ""]).to_csv(
        tmp_path / "f.csv", index=False
    )
    assert no_complete_patient(config)


def test_a_single_odd_number_is_named_and_one_that_repeats_is_refused():
    age = pd.DataFrame({"feature": ["age"], "kind": ["continuous"], "low": [40], "values": ["16 or more"]})
    table = pd.DataFrame({"age": [15.0, *range(20, 60)]}, index=[f"p{i}" for i in range(41)])
    with pytest.warns(UserWarning, match=r"age: 15 \(patient p0\) where features.csv says 16 or more; taken as it is"):
        assert afa.encode(table, age)["age"].iloc[0] == -1
    table.iloc[:3] = 0.0
    with pytest.raises(CohortError, match=r"expected 16 or more.*if 0 stands for not measured"):
        afa.encode(table, age)


def test_a_binary_feature_may_have_a_code_for_not_measured():
    table = pd.DataFrame({"sign": [0, 1, 9]}, index=["a", "b", "c"])
    sign = pd.DataFrame({"feature": ["sign"], "kind": ["binary"]})
    with pytest.raises(CohortError, match="write it in the column missing"):
        afa.encode(table, sign)
    assert afa.encode(table, sign.assign(missing="9"))["sign"].tolist() == [0, 1, pd.NA]


@pytest.mark.parametrize(
    ("column", "named"),
    [
        ([-9] * 18 + [2, 3.5, 4, 5, 6.1], [(-9.0,)]),
        ([-9, -9, -1, 2, 300, 500], [(-9.0, -1.0)]),
        ([-99, 2, 30, 500], [(-99.0,)]),
        ([999, 20, 30, 40, 85], [(999.0,)]),
        ([99, 99, 20, 30, 40, 64], [(99.0,)]),
        ([998, 998, 999, 999, 20, 30, 85], [(999.0, 998.0)]),
        ([888, 999, 999, 20, 30, 85], [(999.0, 888.0)]),
        ([0] * 5 + [80, 100, 110, 120], [(0.0,)]),  # blood pressure of the dead, or of none
        ([500] * 3 + [20, 30, 40], [(500.0,)]),
    ],
)
def test_numbers_apart_from_all_others_are_named(column, named):
    assert [group.values for group in apart(np.array(column, dtype=float))] == named


@pytest.mark.parametrize(
    "column",
    [
        [0] * 30 + [1, 1, 2, 3, 7, 12],  # counts with many zeros
        [0] * 290 + [1] * 13 + [2, 3, 4, 5],  # grades
        list(range(20, 100)) + [100] * 20,  # a ceiling
        [99] * 20 + [90, 92, 95, 97, 100],  # oxygen saturation
        list(range(60, 400, 7)) + [400] * 30,  # the highest that a device shows
        [-0.7, -0.6, 0, 1, 5, 53, 56.3],  # differences
        [-12, -9, -9, -3, 0, 4, 7],  # base excess
        [-1, -1, 0, 1, 1],  # worse, same, better
        [9, 9, 0, 1, 2, 3, 4, 5],  # counts with a tail
        [7, 18, 25, 99],  # one fold of 99 mm
        [1, 1, 1, 9, 9, 9],
        [np.nan] * 5,
        [],
    ],
)
def test_ordinary_columns_are_let_alone(column):
    assert apart(np.array(column, dtype=float)) == []


def test_an_end_of_the_range_is_no_code():
    column = np.array([99.0] * 5 + [1, 2, 3])
    assert apart(column)
    assert not apart(column, Span(0, 99))


def test_codes_are_known_by_their_digits():
    assert looks_like_code([-1, 9, 99, -999, 88, 777, 98, 997]).all()
    assert not looks_like_code([0, 1, 5, 978, 9.9, 95, np.inf, np.nan]).any()


@pytest.mark.parametrize("field", FIELDS, ids=lambda path: path.name)
def test_no_carried_table_has_a_value_to_be_asked_about(field):
    encoded = read_and_encode(field / "values.csv.gz", read_features(field / "features.csv"), Coding("cohort"))
    assert encoded.doubts == ()


def test_features_in_memory_take_a_column_missing():
    assert features_of(PUMPS.assign(missing="-9")).missing == ("-9",) * 3
