"""Tables of numbers to the ternary code: cut points by hand, references against the code that series use."""

import numpy as np
import pandas as pd
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

import afa
from afa.cli.cohort import encode as encode_command
from afa.cohort.cells import cells_of_frame
from afa.cohort.cohort import load_cohort
from afa.cohort.encode import Coding, encode_by_cohort
from afa.cohort.encode import encode_by_controls as encode_series
from afa.cohort.encode_table import encode_cells, read_and_encode, write_encoded
from afa.cohort.table_cohort import (
    TableCohort,
    TableFiles,
    build_table_cohort,
    encode_cohort,
    read_table_labels,
)
from afa.errors import CohortError, ConfigError
from afa.model.features import features_of

FEATURES = pd.DataFrame(
    {
        "feature": ["albumin", "protein", "gravity", "oedema"],
        "kind": ["continuous", "ordinal", "ordinal", "binary"],
        "unit": ["g/l", "grade", "", ""],
        "low": [35.0, None, 1.0125, None],
        "high": [50.0, 0.5, None, None],
    }
)
X = pd.DataFrame(
    {
        "albumin": [34.9, 35.0, 50.0, 50.1, None],
        "protein": [0.0, 0.5, 1.0, 4.0, -3.0],
        "gravity": [1.01, 1.0125, 1.02, None, 1.005],
        "oedema": [0, 1, None, 0, 1],
    },
    index=["a", "b", "c", "d", "e"],
)
EXPECTED = [[-1, 0, -1, 0], [0, 0, 0, 1], [0, 1, 0, None], [1, 1, None, 0], [None, 0, -1, 1]]
OPEN = pd.DataFrame({"feature": ["x", "y"], "kind": ["continuous"] * 2})


def encoded_table(table, is_control, *, test, level=0.05, features=OPEN):
    coding = Coding("controls", test, level)
    return encode_cells(cells_of_frame(table, "X"), features_of(features), coding, is_control, where="X")


def as_lists(table):
    return [[None if pd.isna(cell) else int(cell) for cell in row] for row in table.to_numpy(dtype=object)]


def test_ranges_are_strict_and_a_side_without_a_cut_cannot_occur():
    code = afa.encode(X, FEATURES)
    assert as_lists(code) == EXPECTED
    assert list(code.index) == list("abcde")
    assert {str(kind) for kind in code.dtypes} == {"Int8"}


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.parquet"])
def test_every_kind_of_table_gives_the_same_code_and_the_cut_points_beside_it(tmp_path, name):
    table = X.rename_axis("who").reset_index().assign(note="free text")
    if name.endswith("parquet"):
        table.to_parquet(tmp_path / name)
    else:
        table.to_csv(tmp_path / name, index=False, sep="\t" if "tsv" in name else ",")
    encoded = read_and_encode(tmp_path / name, features_of(FEATURES), Coding())
    assert as_lists(encoded.values) == EXPECTED
    assert encoded.notes == ["columns not used, since features.csv lacks them: note"]
    cuts = write_encoded(encoded, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().splitlines()[:2] == [
        "patient,albumin,protein,gravity,oedema",
        "a,-1,0,-1,0",
    ]
    told = pd.read_csv(cuts)
    assert told["by"].tolist() == ["range", "range", "range", "binary"]
    assert told[["down", "zero", "up", "missing"]].sum(axis=1).tolist() == [5] * 4
    assert told.loc[0, ["low", "high"]].tolist() == [35.0, 50.0]


def test_what_is_encoded_reads_back_as_a_table_and_parquet_keeps_it(tmp_path):
    encoded = read_and_encode(_written(tmp_path, X), features_of(FEATURES), Coding())
    for name in ("out.csv", "out.tsv", "out.parquet"):
        write_encoded(encoded, tmp_path / name)
        read = (
            pd.read_parquet(tmp_path / name)
            if name.endswith("parquet")
            else pd.read_csv(tmp_path / name, sep="\t" if "tsv" in name else ",")
        )
        assert as_lists(read.set_index("patient")) == EXPECTED


def test_the_table_that_is_read_is_never_written_over(tmp_path):
    (tmp_path / "t.csv").write_text("who,heat\na,70\n")
    (tmp_path / "f.csv").write_text("feature,kind,low,high\nheat,continuous,,60\n")
    with pytest.raises(ConfigError, match=r"a file without t\.cuts\.csv beside it"):
        encode_command(tmp_path / "t.csv", tmp_path / "f.csv", tmp_path / "sub" / ".." / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "who,heat\na,70\n"


def test_blanks_around_the_name_of_a_column_are_seen(tmp_path):
    path = _written(tmp_path, X.rename(columns={"albumin": " albumin"}))
    with pytest.raises(CohortError, match=r"Next step: remove the blanks around ' albumin' in the header\."):
        read_and_encode(path, features_of(FEATURES), Coding())


@pytest.mark.parametrize("option", [{"level": 0}, {"level": "x"}, {"threshold": -1}, {"threshold": float("nan")}])
def test_an_option_of_the_code_that_is_no_such_number_is_refused(option):
    with pytest.raises(CohortError, match=r"encoding option (level|threshold): found"):
        afa.encode(X, FEATURES, **option)


def test_labels_and_lists_of_files_that_are_none_are_named(tmp_path):
    (tmp_path / "labels.parquet").write_text("patient,leak")
    with pytest.raises(CohortError, match="Parquet"):
        read_table_labels(tmp_path / "labels.parquet", ["a"])
    for text, words in (("", "other content"), ("{}", "other content"), ("[]", "other content")):
        (tmp_path / "source.json").write_text(text)
        with pytest.raises(CohortError, match=words):
            TableFiles.read(tmp_path / "source.json")
    with pytest.raises(CohortError, match="No such file"):
        TableFiles.read(tmp_path / "gone.json")


def test_a_column_whose_values_are_nearly_all_beyond_a_cut_asks_for_its_unit(tmp_path):
    path = _written(tmp_path, X.assign(albumin=[3.4, 3.5, 5.0, 5.1, 4.0]))
    notes = read_and_encode(path, features_of(FEATURES), Coding()).notes
    assert notes == ["albumin: 5 of 5 values are below 35 g/l; is that their unit?"]
    assert read_and_encode(_written(tmp_path, X), features_of(FEATURES), Coding()).notes == []


def numbers(rows, columns):
    cell = st.integers(-30, 30).map(lambda n: n / 4)
    return st.lists(st.lists(cell, min_size=columns, max_size=columns), min_size=rows, max_size=rows).map(np.array)


@given(numbers(25, 2), numbers(6, 2), st.sampled_from(["empirical", "normal", "t"]), st.sampled_from([0.05, 0.1, 0.3]))
def test_controls_cut_a_table_as_they_cut_a_series(controls, patients, test, level):
    everybody = pd.DataFrame(np.vstack([controls, patients]), columns=["x", "y"], index=map(str, range(31)))
    is_control = np.arange(31) < 25
    expected = encode_series(everybody.T, is_control, test=test, level=level).T.iloc[25:]
    found = afa.encode(everybody, OPEN, controls=is_control, test=test, level=level)
    assert as_lists(found) == expected.to_numpy().tolist()


@given(numbers(9, 2), st.sampled_from([0.25, 0.5, 1.0]))
def test_the_cohort_cuts_a_table_as_it_cuts_a_series(patients, threshold):
    table = pd.DataFrame(patients, columns=["x", "y"], index=map(str, range(9)))
    found = afa.encode(table, OPEN, reference="cohort", threshold=threshold)
    assert as_lists(found) == encode_by_cohort(table.T, threshold=threshold).T.to_numpy().tolist()


def test_missing_cells_change_no_cut_point_of_another_column_and_ranges_win_over_a_reference():
    table = pd.DataFrame({"x": [1.0, 2, 3, 4, 100], "y": [1, None, 3, None, 8.0]}, index=list("abcde"))
    assert as_lists(afa.encode(table, OPEN, reference="cohort"))[1] == [-1, None]
    ranged = OPEN.assign(low=[0, None], high=[3.5, None])
    assert [row[0] for row in as_lists(afa.encode(table, ranged, reference="cohort"))] == [0, 0, 0, 1, 1]


@examples(20)
@given(numbers(8, 2), st.sampled_from(["normal", "t"]), st.integers(0, 7), st.booleans())
def test_a_control_has_the_code_of_a_patient_held_against_the_others(controls, test, place, has_gap):
    if has_gap:
        controls[(place + 1) % 8, 1] = np.nan
    table = pd.DataFrame(np.vstack([controls, controls[:1]]), columns=["x", "y"], index=[*map(str, range(8)), "ill"])
    coding = {"test": test, "level": 0.3}
    healthy = encoded_table(table, np.arange(9) < 8, **coding).controls
    others = table.drop("ill")
    for name in ("x", "y"):
        if len(set(others.drop(str(place))[name].dropna())) > 1:  # without spread the test is another
            column = OPEN[OPEN["feature"] == name]
            alone = afa.encode(others[[name]], column, controls=np.arange(8) != place, **coding)
            assert as_lists(alone) == [[None if pd.isna(code) else int(code) for code in [healthy[name].iloc[place]]]]


def test_controls_are_coded_by_the_ranges_that_there_are():
    table = pd.DataFrame({"x": [1.0, 5, None, 9], "y": [0.0, 0, 0, 1]}, index=list("abcd"))
    ranged = OPEN.assign(low=[2.0, -1.0], high=[4.0, 2.0])
    healthy = encoded_table(table, np.array([True, True, True, False]), test="t", features=ranged).controls
    assert as_lists(healthy) == [[-1, 0], [1, 0], [None, 0]]
    assert list(healthy.index) == list("abc")


def test_a_control_alone_with_a_value_has_no_code_of_it():
    table = pd.DataFrame({"x": [1.0, 2, 3, 9], "y": [0.0, 1, None, 1]}, index=list("abcd"))
    healthy = encoded_table(table, np.array([True, True, True, False]), test="t").controls
    assert as_lists(healthy[["y"]]) == [[None], [None], [None]]
    assert {str(kind) for kind in healthy.dtypes} == {"Int8"}


def test_controls_are_named_by_a_column_and_leave_the_table(tmp_path):
    table = pd.DataFrame(
        {"x": [*range(10), 50.0], "y": [*range(10), None], "group": ["healthy"] * 10 + ["ill"]},
        index=map(str, range(11)),
    )
    path = _written(tmp_path, table)
    encoded = read_and_encode(path, features_of(OPEN), Coding("controls", "t"), ("group", "healthy"))
    assert as_lists(encoded.values) == [[1, None]]
    assert len(encoded.controls) == 10
    assert encoded.ignored == ()
    with pytest.raises(CohortError, match="no row with 'sane'; it holds healthy, ill"):
        read_and_encode(path, features_of(OPEN), Coding("controls", "t"), ("group", "sane"))
    with pytest.raises(CohortError, match=r"no column 'grup'.*did you mean group"):
        read_and_encode(path, features_of(OPEN), Coding("controls", "t"), ("grup", "healthy"))
    with pytest.raises(CohortError, match="10 controls with a value of x; expected at least 20"):
        read_and_encode(path, features_of(OPEN), Coding("controls"), ("group", "healthy"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda t: t.assign(albumin=["34", "?", "3,5", None, "NA"]),
            ("column albumin", "'?' (row 2)", "'3,5' (row 3)"),
        ),
        (lambda t: t.assign(oedema=[0, 2, 1, 1, 0.5]), ("column oedema", "'2.0' (row 2), '0.5' (row 5)", "0 or 1")),
        (lambda t: t.assign(albumin=[1, np.inf, 2, 3, 4]), ("'inf' (row 2)", "leave it empty")),
        (lambda t: t.drop(columns="gravity"), ("no column for 1 of 4 features: gravity",)),
        (lambda t: t.set_axis(["a", "b", "a", "d", "e"]), ("'a' (rows 1, 3)", "each patient once")),
        (
            lambda t: t.set_axis(["albumin", "protein", "albumin", "oedema"], axis=1),
            ("column albumin", "2 columns of this name"),
        ),
    ],
)
def test_every_odd_value_of_a_data_frame_is_named_by_row_and_column(change, words):
    with pytest.raises(CohortError) as stopped:
        afa.encode(change(X), FEATURES)
    assert [word for word in words if word not in str(stopped.value)] == []


def test_a_feature_without_a_range_needs_a_reference():
    with pytest.raises(CohortError, match="no cut point for x, y; expected cut points for every feature"):
        afa.encode(pd.DataFrame({"x": [1.0], "y": [2.0]}), OPEN)
    with pytest.raises(CohortError, match=r"shape \(1,\)"):
        afa.encode(pd.DataFrame({"x": [1.0, 2], "y": [2.0, 2]}), OPEN, controls=[True])
    with pytest.raises(CohortError, match="controls alone"):
        afa.encode(pd.DataFrame({"x": [1.0, 2], "y": [2.0, 2]}), OPEN, controls=[True, True], test="t")


def _written(folder, table):
    table.rename_axis("patient").to_csv(folder / "table.csv")
    return folder / "table.csv"


def test_controls_under_another_spelling_are_refused_and_not_taken_for_patients(tmp_path):
    (tmp_path / "x.csv").write_text("patient,group,heat\na,healthy,1\nb,Healthy,2\nc,ill,3\n")
    features = features_of(pd.DataFrame({"feature": ["heat"], "kind": ["continuous"]}))
    with pytest.raises(CohortError, match=r"column group: found 'Healthy' beside 'healthy'; expected one spelling"):
        read_and_encode(tmp_path / "x.csv", features, Coding("controls"), ("group", "healthy"))


RANGES = pd.DataFrame({"feature": ["heat", "flow", "wet"], "kind": ["continuous", "continuous", "binary"]}).assign(
    low=[36.0, 1.0, None], high=[70.0, 2.0, None], unit=["C", "l/s", ""]
)


def test_a_table_that_is_encoded_already_is_not_encoded_again():
    X = pd.DataFrame({"heat": [20.0, 80, 50, None], "flow": [0.5, 1.5, None, 3], "wet": [0, 1, 1, 0]}, index=[*"abcd"])
    code = afa.encode(X, RANGES)
    assert code["heat"].tolist()[:3] == [-1, 1, 0]
    with pytest.raises(
        CohortError, match=r"X: found -1, 0 and 1 alone in all columns with cut points.*use it as it is"
    ):
        afa.encode(code, RANGES)
    around_zero = RANGES.assign(low=[-0.5, -0.5, None], high=[0.5, 0.5, None])
    assert afa.encode(code, around_zero).equals(code), "codes that stay what they are do no harm"
    one_side = pd.DataFrame({"heat": [0.0, 1, 1], "flow": [1.0, 1, 0], "wet": [0, 1, 1]})
    with pytest.warns(UserWarning, match="3 of 3 values are below 36 C"):
        afa.encode(one_side, RANGES)


def test_in_python_too_it_is_said_that_nearly_all_values_are_beyond_a_cut_point():
    X = pd.DataFrame({"heat": [290.0, 310, 300], "flow": [1.5, 1.5, 1.5], "wet": [0, 1, 1]})
    with pytest.warns(UserWarning, match="heat: 3 of 3 values are above 70 C; is that their unit"):
        afa.encode(X, RANGES)


@pytest.mark.parametrize("constant", [5.0, 0.0, -1e6])
def test_a_feature_that_is_the_same_in_all_controls_is_recorded_and_one_of_two_values_is_not(tmp_path, constant):
    table = pd.DataFrame(
        {
            "flat": [constant] * 25 + [constant + 1.0],
            "little": [constant] * 24 + [constant + 1e-3, constant],
            "group": ["healthy"] * 25 + ["ill"],
        }
    )
    features = tmp_path / "features.csv"
    features.write_text("feature,kind\nflat,continuous\nlittle,continuous\n")
    config = TableCohort(
        name="made",
        title="Made",
        origin="table",
        table=_written(tmp_path, table),
        features=features,
        controls={"column": "group", "value": "healthy"},
        encoding={"reference": "controls"},
    )
    files = TableFiles(config.table, config.features, None)
    build_table_cohort(config, files, encode_cohort(config, files), [], tmp_path / "cohort")
    assert load_cohort(tmp_path / "cohort").provenance["genes_without_spread"] == ["flat"]
