"""`features.csv`: what each feature can be, and every fault of the file."""

import numpy as np
import pandas as pd
import pytest

from afa.errors import CohortError
from afa.features import features_of, read_features
from afa.files import write_csv

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
