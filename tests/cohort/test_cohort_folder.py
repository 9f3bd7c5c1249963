from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from afa.cohort.cohort import Cohort, load_cohort, with_code, write_codes, write_cohort
from afa.errors import CohortError


def cohort(values: Any = ((1, 0, -1), (0, 0, 1)), labels: Any = ((1, None), (0, 1)), **record: Any) -> Cohort:
    patients = [f"P{row}" for row in range(len(values))]
    table = pd.DataFrame(labels, patients, ["fever", "chill"], dtype="Int8")
    return Cohort("small", ("A", "B", "C"), tuple(patients), np.array(values), table, record)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A valid cohort folder of a user's own: two plain Parquet files and a card that holds the name alone."""
    pd.DataFrame({"patient": ["P0", "P1"], "A": [1, 0], "B": [0, -1]}).to_parquet(tmp_path / "features.parquet")
    pd.DataFrame({"patient": ["P1", "P0"], "fever": [0.0, np.nan]}).to_parquet(tmp_path / "labels.parquet")
    (tmp_path / "cohort.yaml").write_text("name: own\n", encoding="utf-8")
    return tmp_path


def rewrite(path: Path, **columns: Any) -> None:
    pd.read_parquet(path).assign(**columns).to_parquet(path)


def test_a_cohort_comes_back_as_it_was_written(tmp_path: Path) -> None:
    given_cohort = cohort(series="GSE1", controls=20, shares={"up": 0.25})
    write_cohort(given_cohort, tmp_path / "c")
    read = load_cohort(tmp_path / "c")
    assert (read.name, read.features, read.patients) == ("small", ("A", "B", "C"), ("P0", "P1"))
    np.testing.assert_array_equal(read.values, given_cohort.values)
    pd.testing.assert_frame_equal(read.labels, given_cohort.labels)
    assert read.provenance == {"series": "GSE1", "controls": 20, "shares": {"up": 0.25}}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    hnp.arrays(np.int8, (4, 3), elements=st.integers(-1, 1)),
    st.lists(st.tuples(*2 * [st.sampled_from([0, 1, None])]), min_size=4, max_size=4),
)
def test_any_cohort_comes_back_as_it_was_written(tmp_path: Path, values: np.ndarray, labels: list[Any]) -> None:
    given_cohort = cohort(values, labels)
    write_cohort(given_cohort, tmp_path / "c")
    read = load_cohort(tmp_path / "c")
    np.testing.assert_array_equal(read.values, values)
    pd.testing.assert_frame_equal(read.labels, given_cohort.labels)


def test_the_folder_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_cohort(cohort(), tmp_path / name)
    for path in sorted((tmp_path / "one").iterdir()):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def test_the_tables_read_with_pandas_alone(tmp_path: Path) -> None:
    write_cohort(cohort(), tmp_path / "c")
    features = pd.read_parquet(tmp_path / "c" / "features.parquet")
    labels = pd.read_parquet(tmp_path / "c" / "labels.parquet")
    assert list(features.columns) == ["patient", "A", "B", "C"]
    assert features.dtypes[["A", "B", "C"]].unique().tolist() == [np.dtype("int8")]
    assert labels["chill"].tolist() == [pd.NA, 1]


def test_the_values_and_names_of_a_cohort_cannot_be_changed() -> None:
    made = cohort()
    with pytest.raises(ValueError, match="read-only"):
        made.values[0, 0] = 0
    with pytest.raises(AttributeError):
        made.name = "other"  # type: ignore[misc]


def test_the_array_that_a_cohort_was_made_of_is_not_held() -> None:
    values = np.zeros((2, 3), dtype=np.int8)
    made = cohort(values)
    values[0, 0] = 1
    assert made.values[0, 0] == 0


@pytest.mark.parametrize(
    ("values", "labels", "said"),
    [
        ([[1, 0, 2], [0, 0, 0]], [[1, 0], [1, 0]], "patient P0, column C: found 2"),
        ([[1, 0], [0, 0]], [[1, 0], [1, 0]], r"shape \(2, 2\); expected \(2, 3\)"),
        ([[1, 0, 0], [0, 0, 0]], [[1, 0], [1, 2]], "labels, patient P1, column chill"),
    ],
)
def test_a_cohort_of_other_values_cannot_be_made(values: Any, labels: Any, said: str) -> None:
    with pytest.raises(CohortError, match=said):
        cohort(values, labels)


def test_a_users_own_folder_needs_only_a_name_and_the_labels_follow_the_order_of_the_features(folder: Path) -> None:
    read = load_cohort(folder)
    assert read.name == "own"
    assert read.provenance == {}
    assert read.values.dtype == np.int8
    assert read.labels["fever"].tolist() == [pd.NA, 0]


def test_a_folder_without_any_label_has_a_label_table_of_patients_alone(folder: Path) -> None:
    pd.DataFrame({"patient": ["P0", "P1"]}).to_parquet(folder / "labels.parquet")
    assert load_cohort(folder).labels.shape == (2, 0)


@pytest.mark.parametrize("wrong", [2, np.nan, 0.5, "up"])
def test_a_feature_value_outside_minus_one_zero_one_names_patient_and_feature(folder: Path, wrong: Any) -> None:
    rewrite(folder / "features.parquet", B=pd.Series([0, wrong], dtype="str" if wrong == "up" else float))
    with pytest.raises(CohortError, match=r"features.parquet, patient P1, column B.*-1, 0, 1"):
        load_cohort(folder)


def test_a_label_other_than_zero_one_or_missing_is_refused(folder: Path) -> None:
    rewrite(folder / "labels.parquet", fever=[1.0, 3.0])
    with pytest.raises(CohortError, match=r"labels.parquet, patient P0, column fever.*0, 1 or missing"):
        load_cohort(folder)


def test_patients_of_one_table_that_the_other_lacks_are_counted(folder: Path) -> None:
    rewrite(folder / "labels.parquet", patient=["P1", "P9"])
    with pytest.raises(CohortError) as caught:
        load_cohort(folder)
    assert [fault.found for fault in caught.value.faults] == [
        "1 patients that the other table lacks, such as P0",
        "1 patients that the other table lacks, such as P9",
    ]


def test_a_patient_given_twice_is_refused(folder: Path) -> None:
    for name in ("features", "labels"):
        rewrite(folder / f"{name}.parquet", patient=["P1", "P1"])
    with pytest.raises(CohortError, match="patient P1 more than once"):
        load_cohort(folder)


def test_a_feature_given_twice_cannot_be_made() -> None:
    labels = pd.DataFrame(index=["P0"])
    with pytest.raises(CohortError, match="feature A more than once"):
        Cohort("small", ("A", "A"), ("P0",), np.zeros((1, 2)), labels)


def test_a_file_that_was_changed_after_its_digest_was_written_is_refused(tmp_path: Path) -> None:
    write_cohort(cohort(), tmp_path / "c")
    rewrite(tmp_path / "c" / "features.parquet", A=[0, 0])
    with pytest.raises(CohortError, match=r"features.parquet with SHA-256 .* restore the file"):
        load_cohort(tmp_path / "c")


def test_all_that_is_wrong_with_a_folder_is_said_at_once(folder: Path) -> None:
    rewrite(folder / "features.parquet", A=[5, 0])
    (folder / "labels.parquet").write_bytes(b"not parquet")
    (folder / "cohort.yaml").write_text(yaml.safe_dump({"digests": {"more.parquet": "0"}}), encoding="utf-8")
    with pytest.raises(CohortError) as caught:
        load_cohort(folder)
    said = [fault.where.removeprefix(f"{folder}/") for fault in caught.value.faults]
    assert said == [
        "cohort.yaml, key name",
        "labels.parquet",
        "cohort.yaml, key digests.more.parquet",
        "features.parquet, patient P0, column A",
    ]


def test_a_table_without_a_patient_column_is_refused(folder: Path) -> None:
    pd.DataFrame({"A": [1]}).to_parquet(folder / "features.parquet")
    with pytest.raises(CohortError, match="a column 'patient'"):
        load_cohort(folder)


def test_a_folder_that_is_not_there_names_its_three_files(tmp_path: Path) -> None:
    with pytest.raises(CohortError) as caught:
        load_cohort(tmp_path / "none")
    assert len(caught.value.faults) == 3


def test_other_codes_of_a_cohort_are_one_table(tmp_path: Path) -> None:
    here = cohort()
    codes = {
        0.5: pd.DataFrame(-here.values, here.patients, here.features),
        0.25: pd.DataFrame(here.values, here.patients, here.features),
    }
    write_codes(codes, tmp_path / "codes.parquet")
    found = with_code(here, tmp_path / "codes.parquet", 0.5)
    assert found.values.tolist() == (-here.values).tolist()
    assert found.labels.equals(here.labels)
    assert found.provenance["encoding"] == {"reference": "cohort", "threshold": 0.5}
    assert with_code(here, tmp_path / "codes.parquet", 0.25).values.tolist() == here.values.tolist()
    with pytest.raises(CohortError, match="at threshold 1 other patients or features"):
        with_code(here, tmp_path / "codes.parquet", 1.0)
