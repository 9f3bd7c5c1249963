"""The growth of stages: what its runs are made of, and the exponents that are read from them."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from afa.cohort.table_cohort import TableCohort, encode_cohort, find_table, load_cohort_file
from afa.model.bundle import load_bundle

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import stage_growth  # noqa: E402
from stage_growth import SMALLEST, Size, exponents, foretold, sizes, write_inputs  # noqa: E402


def made(points):
    """A stage that takes 3 + P N^2 / M s and 100 + P MB, one that only starts, and one that shrinks."""
    rows = []
    for size in points:
        seconds = 3.0 + size.patients * size.entities**2 / size.features
        rows.append({**size._asdict(), "stage": "grows", "seconds": seconds, "mb": 100.0 + size.patients})
        rows.append({**size._asdict(), "stage": "starts", "seconds": 1.5, "mb": 200.0})
        rows.append({**size._asdict(), "stage": "shrinks", "seconds": 900.0 / size.patients, "mb": 200.0})
    return pd.DataFrame(rows)


def test_one_thing_grows_at_a_time() -> None:
    found = sizes(2000)
    assert len(found) == len(set(found)) == 11
    assert found[0] == SMALLEST
    assert all(sum(a != b for a, b in zip(size, SMALLEST, strict=True)) == 1 for size in found[1:])
    assert found[-1].patients == 2000


def test_no_more_is_run_than_asked_for() -> None:
    found = sizes(None, (8, 4, 1))
    assert [max(getattr(size, axis) for size in found) for axis in ("patients", "entities", "features")] == [
        480,
        40,
        80,
    ]


@pytest.mark.parametrize("largest", [(8, 8, 8), (8, 4, 4)])
def test_exponents_are_of_what_grows_without_what_starting_takes(largest) -> None:
    found = exponents(made(sizes(None, largest)))
    assert found.loc["grows", "patients, time"] == pytest.approx(1)
    assert found.loc["grows", "entities, time"] == pytest.approx(2)
    assert found.loc["grows", "patients, memory"] == pytest.approx(1)
    assert found.drop("grows").isna().all(axis=None)
    assert np.isnan(found.loc["grows", "features, time"]), "it falls"


def test_more_patients_and_entities_are_foretold() -> None:
    for axis, number in (("patients", 2000), ("entities", 500)):
        told = foretold(made(sizes(None)), axis, number)
        found = made([SMALLEST._replace(**{axis: number})]).set_index("stage")
        assert told.loc["grows", "seconds"] == pytest.approx(found.loc["grows", "seconds"])
        assert told.loc["starts", "seconds"] == pytest.approx(1.5)
    assert foretold(made(sizes(None)), "patients", 2000).loc["grows", "mb"] == pytest.approx(2100)


def test_the_inputs_of_a_run_are_a_bundle_and_a_table_of_its_size(tmp_path, monkeypatch) -> None:
    size = Size(patients=12, entities=5, features=24)
    write_inputs(tmp_path, size)
    bundle = load_bundle(tmp_path / size.name / "bundle")
    assert (len(bundle.entities), len(bundle.features)) == (5, 24)
    monkeypatch.chdir(tmp_path)
    config = load_cohort_file(tmp_path / "config" / "cohorts" / f"p{size.name}.yaml")
    assert isinstance(config, TableCohort)
    values = encode_cohort(config, find_table(config), features=bundle.features).values
    assert values.shape == (12, 24)
    assert not values.isna().any(axis=None)
    assert set(np.unique(values.to_numpy(dtype=int))) == {-1, 0, 1}
    labels = pd.read_csv(config.labels, index_col="patient")
    assert (labels.sum(axis=1) == 1).all()


def test_a_finished_run_is_not_made_again(tmp_path, monkeypatch) -> None:
    (tmp_path / "results" / "p60-10-80").mkdir(parents=True)
    (tmp_path / "results" / "p60-10-80" / "summary.csv").touch()
    monkeypatch.setattr(stage_growth.subprocess, "run", lambda *_, **__: pytest.fail("was run again"))
    assert stage_growth.run(tmp_path, SMALLEST, 1) == tmp_path / "results" / "p60-10-80" / "benchmarks"
