"""`features.csv`: what each feature can be, and every fault of the file."""

import numpy as np
import pandas as pd
import pytest

from afa.errors import CohortError
from afa.io.files import write_csv
from afa.model.features import features_of, read_features

HEADER = "feature,kind,unit,low,high,values,p_low,p_high,definition\n"


def table(tmp_path, *rows):
    path = tmp_path / "features.csv"
    path.write_text(HEADER + "\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize(
    ("row", "possible"),
    [
        ("f,continuous,,1,2,,,,", (True, True, True)),
        ("f,continuous,,,,,,,", (True, True, True)),
        ("f,ordinal,,,2,,,,", (False, True, True)),
        ("f,continuous,,1,,,,,", (True, True, False)),
        ("f,binary,,,,,,,", (False, True, True)),
        ("f,binary,,,0.5,,,,", (False, True, True)),
    ],
)
def test_a_side_whose_cut_alone_is_empty_cannot_occur(tmp_path, row, possible):
    assert tuple(read_features(table(tmp_path, row)).possible[0]) == possible


def test_the_background_is_the_rest_and_is_missing_where_it_is_not_stated(tmp_path):
    features = read_features(
        table(tmp_path, "a,continuous,g,1,2,,0.2,0.3,x", "b,ordinal,,,1,,,0.4,", "c,binary,,,,,,,")
    )
    np.testing.assert_allclose(features.background[:2], [[0.2, 0.5, 0.3], [0.0, 0.6, 0.4]])
    assert np.isnan(features.background[2]).all()


def test_what_is_written_is_read_back_and_a_data_frame_will_do(tmp_path):
    features = read_features(
        table(tmp_path, 'a,continuous,mg/dl,1.25,,"0, or more",,,"A, B"', "b,binary,,,,0 no,,0.1,")
    )
    write_csv(features.to_frame(), tmp_path / "again.csv", float_format="%.12g")
    again = read_features(tmp_path / "again.csv")
    pd.testing.assert_frame_equal(again.to_frame(), features.to_frame())
    pd.testing.assert_frame_equal(features_of(features.to_frame()).to_frame(), features.to_frame())
    assert features.chosen(["b"]).names == ("b",)
    only = features_of(pd.DataFrame({"feature": ["x"], "kind": ["binary"]}))
    assert only.possible.tolist() == [[False, True, True]]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("f,numeric,,,,,,,", ("line 3, column kind", "'numeric'", "continuous, ordinal, binary")),
        ("good,binary,,,,,,,", ("line 3, column feature", "'good', as in line 2")),
        (",binary,,,,,,,", ("line 3, column feature", "nothing")),
        ("f,continuous,,3,2,,,,", ("line 3, column low", "3, above high (2)")),
        ("f,continuous,,low,2,,,,", ("line 3, column low", "'low'", "a finite number")),
        ("f,continuous,,inf,2,,,,", ("line 3, column low", "'inf'")),
        ("f,binary,,0,,,,,", ("line 3, column low", "0 for a binary feature")),
        ("f,binary,,,1,,,,", ("line 3, column high", "1 for a binary feature")),
        ("f,continuous,,1,2,,1.5,,", ("line 3, column p_low", "'1.5'", "[0, 1]")),
        ("f,continuous,,1,2,,0.7,0.7,", ("0.7 low and 0.7 high", "at most 1 together")),
        ("f,continuous,,1,2,,0.7,,", ("column p_high", "nothing beside the other side's probability")),
        ("f,ordinal,,,2,,0.1,0.2,", ("column p_low", "0.1, though it cannot be low")),
        ("f,ordinal,,2,,,0.1,0.2,", ("column p_high", "0.2, though it cannot be high")),
        ("f,ordinal,,2", ("line 3", "4 fields", "all 9 of the header")),
        ("f,ordinal,,2,,,,,,x", ("line 3", "10 fields")),
    ],
)
def test_a_wrong_row_is_named_by_line_and_column(tmp_path, row, words):
    with pytest.raises(CohortError) as stopped:
        read_features(table(tmp_path, "good,binary,,,,,,,", row))
    assert len(stopped.value.faults) == 1
    assert [word for word in words if word not in str(stopped.value)] == []


def test_a_file_without_rows_and_a_data_frame_without_kinds_are_refused(tmp_path):
    with pytest.raises(CohortError, match="no feature"):
        read_features(table(tmp_path))
    with pytest.raises(CohortError, match="features, line 1, column kind: found no such column"):
        features_of(pd.DataFrame({"feature": ["x"]}))
    with pytest.raises(CohortError, match="features, line 1, column colour: found an unknown column"):
        features_of(pd.DataFrame({"feature": ["x"], "kind": ["binary"], "colour": ["red"]}))


@pytest.mark.parametrize(
    ("coding", "kind", "inside", "outside"),
    [
        ("above 0", "continuous", [0.001, 999], [0, -9]),
        ("0 or more", "continuous", [0, 5], [-0.1]),
        ("0 or more g/l", "continuous", [0, 5], [-0.1]),
        ("50 to 100", "continuous", [50, 100], [49.9, 250, -99]),
        ("0.21 .. 1", "continuous", [0.21, 1], [0.2, 21]),
        ("between 0 and 14", "continuous", [0, 14], [14.1]),
        ("above 0, at most 14", "continuous", [14], [0, 15]),
        ("0 to 1,000", "continuous", [500], [1001]),
        ("3 deep coma .. 15 fully alert", "ordinal", [3, 15], [2, 99]),
        ("1 to 4, higher is worse", "ordinal", [1, 4], [0, 5, 9]),
        ("0 absent, 1 slight, 2 the largest (3 is not used)", "ordinal", [0, 2], [3]),
        ("1.005, 1.010, 1.015 or 1.020", "ordinal", [1.005, 1.02], [1.0, 10]),
        ("0 to 5 mild, 6 to 10 severe", "ordinal", [0, 10], [11]),
        ("1 yes, 2 no, 9 unknown", "ordinal", [1, 2], [0, 9]),
    ],
)
def test_the_column_values_says_which_numbers_there_are(coding, kind, inside, outside):
    row = {"feature": ["f"], "kind": [kind], "unit": ["g/l"], "values": [coding]}
    features = features_of(pd.DataFrame(row))
    assert [features.excludes("f", value) for value in inside] == [""] * len(inside)
    assert all(features.excludes("f", value) for value in outside)


@pytest.mark.parametrize(
    "coding",
    [
        "",
        "any number",
        "above 5 is abnormal",
        "36 to 38 usual",
        "36 usual, 39 fever",
        "10 to 1",
        "3 means many",
        "0,5 to 3",
    ],
)
def test_words_that_state_no_range_exclude_nothing(coding):
    features = features_of(pd.DataFrame({"feature": ["f"], "kind": ["continuous"], "values": [coding]}))
    assert not any(features.excludes("f", value) for value in (-99, 0, 7, 1e6))


def test_open_scales_and_single_codes_of_a_grade_exclude_nothing():
    for coding in ("0 none, 1 one, 3 or more lesions", "0 means none"):
        features = features_of(pd.DataFrame({"feature": ["f"], "kind": ["ordinal"], "values": [coding]}))
        assert not any(features.excludes("f", value) for value in (0, 2, 7))


def test_codes_for_not_measured_are_read_kept_and_excluded(tmp_path):
    path = tmp_path / "features.csv"
    path.write_text(
        'feature,kind,values,missing\na,continuous,,"-9, n.d."\nb,ordinal,"1 to 4, 8 unknown",\nc,binary,,9\n'
    )
    features = read_features(path)
    assert features.missing_codes == (("-9", "n.d."), ("8",), ("9",))
    assert features.excludes("a", -9) == "a measured value, since -9 stands for not measured"
    assert features.excludes("c", 2) == "0 or 1"
    write_csv(features.to_frame(), tmp_path / "again.csv")
    assert read_features(tmp_path / "again.csv").missing_codes == features.missing_codes
    assert "missing" not in read_features(table(tmp_path, "f,binary,,,,,,,")).to_frame()


@pytest.mark.parametrize("coding", ["0 yes, 1 no", "0 = Yes; 1 = No", "yes 0, no 1", "0: present, 1: absent"])
def test_a_finding_that_is_coded_the_other_way_round_is_refused(tmp_path, coding):
    with pytest.raises(CohortError, match=r"line 2, column values.*expected 0 for no and 1 for yes"):
        read_features(table(tmp_path, f'f,binary,,,,"{coding}",,,'))
    read_features(table(tmp_path, f'f,ordinal,,,0.5,"{coding}",,,'))


@pytest.mark.parametrize(
    "coding", ["0 no, 1 yes", "0 good, 1 poor", "1 no longer smokes, 0 else", "0/1", "0 none, 1 some"]
)
def test_other_codings_of_a_finding_are_taken(tmp_path, coding):
    read_features(table(tmp_path, f'f,binary,,,,"{coding}",,,'))
