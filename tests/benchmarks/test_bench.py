"""The benchmark: its plain NumPy version gives the engine's numbers, and its command writes a valid table."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from afa.cohort.cohort import Cohort, write_cohort
from afa.engine.paths import sign_paths
from afa.engine.run import ENGINE_SCORES
from afa.model.orders import random_order
from afa.planner import TopKPlanner

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import growth  # noqa: E402
import plain  # noqa: E402


def small_bundle(seed=0):
    return growth.synthetic_bundle(4, 12, seed=seed)


@given(st.integers(0, 10_000), st.sampled_from(["uniform", "warm"]))
@examples(10)
def test_the_plain_version_has_the_signs_and_the_number_of_solves_of_the_engine(seed, start):
    bundle = small_bundle(seed)
    values = np.random.default_rng(seed).integers(-1, 2, (3, 12)).astype(np.int8)
    orders = np.array([[random_order(bundle.features, patient=str(p), seed=seed)] for p in range(3)])
    paths = sign_paths(bundle, values, orders, start=start)
    signs, solves = plain.sign_paths(plain.Models.of(bundle), values, orders[:, 0], start=start)
    np.testing.assert_array_equal(signs, np.stack([paths.signs[name][:, 0] for name in ENGINE_SCORES]))
    assert solves == paths.solves.sum()


@pytest.mark.slow
@pytest.mark.parametrize("gain", ["wald_magnitude", "cmi", "f_target"])
def test_the_plain_planner_chooses_what_the_planner_chooses_all_the_way(gain):
    bundle = small_bundle()
    values = np.random.default_rng(5).integers(-1, 2, 12)
    planner, other = (
        TopKPlanner(bundle, k=1, gain=gain, allocation="greedy"),
        plain.Planner(plain.Models.of(bundle), gain),
    )
    a, b = other.models.pairs.T
    for _ in bundle.features:
        name = planner.next_feature()
        feature = bundle.features.index(name)
        assert other.next_feature() == feature
        planner.observe(name, int(values[feature]))
        other.observe(feature, int(values[feature]))
        np.testing.assert_allclose(other.patient.linearity()[:, 0], planner.scores()[a, b], atol=1e-9)


def test_a_plain_solve_that_meets_the_cap_is_finished_by_coordinate_ascent():
    field, coupling = np.array([[0.1, 0.1]]), np.array([[0.0, -6.0], [-6.0, 0.0]])
    hidden, start = np.ones((1, 2), dtype=bool), (np.zeros((1, 2)), np.full((1, 2), 2 / 3))
    m, q, _ = plain.solve(coupling, field, hidden, *start, plain.Solver(damping=1.0, max_iterations=50))
    expected, _ = plain.ternary_moments(field + m @ coupling)
    np.testing.assert_allclose(m, expected, atol=1e-3)
    assert (np.abs(m) <= q).all()


def test_synthetic_bundles_have_the_supports_and_degrees_that_are_stated():
    bundle = growth.synthetic_bundle(3, 100)
    assert [len(bundle.support(entity)) for entity in bundle.entities] == [22, 22, 22]
    assert np.diff(bundle.packed.pointer).tolist() == [22 * 8 // 2] * 3


def test_planted_bundles_have_the_supports_couplings_and_families_that_are_stated():
    bundle = growth.planted_bundle(9, 100, 20, 4)
    assert [len(bundle.support(entity)) for entity in bundle.entities] == [20] * 9
    assert np.diff(bundle.packed.pointer).tolist() == [20 * 4 // 2] * 9
    assert (bundle.packed.row < bundle.packed.column).all()
    assert set(np.abs(bundle.packed.value)) == {0.1}
    held = bundle.unary != 0
    common = held.astype(int) @ held.T
    assert common[0, 3] >= 20 - 2 * 6  # of one family: each has 14 of its 20 features
    assert common[0, 1] < common[0, 3]


def test_the_exponent_of_a_curve_is_its_slope_in_log_log():
    assert growth.exponent([1, 2, 4], [3.0, 12.0, 48.0]) == pytest.approx(2.0)
    assert growth.exponent([1], [3.0]) is None


@pytest.mark.parametrize("name", ["bench", "gains", "jobs", "scale", "stage_growth"])
def test_a_benchmark_starts_with_the_package_as_it_is(name):
    assert importlib.import_module(name).main


@pytest.mark.slow
def test_the_quick_benchmark_runs_and_writes_a_table_without_a_differing_decision(bundle_tiny, tmp_path):
    rng = np.random.default_rng(0)
    patients = tuple(f"p{i}" for i in range(3))
    values = rng.integers(-1, 2, (3, len(bundle_tiny.features))).astype(np.int8)
    write_cohort(Cohort("tiny", bundle_tiny.features, patients, values, pd.DataFrame(index=patients)), tmp_path / "c")
    folders = ["--bundle", ROOT / "tests/data/bundle_tiny", "--cohort", tmp_path / "c", "--out", tmp_path / "out"]
    command = [sys.executable, ROOT / "benchmarks/bench.py", *folders, "--quick"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    bench = json.loads((tmp_path / "out/bench.json").read_text())
    assert (tmp_path / "out/bench.md").read_text() == done.stdout
    assert {"cpu", "cores", "python", "numpy", "numba", "afa"} <= bench["machine"].keys()
    for row in bench["rows"]:
        assert row["seconds"] > 0
        assert row["peak_mb"] > 0
        assert row.get("differing", 0) == 0
    assert {row["work"] for row in bench["rows"] if "ratio" in row and row["ratio"] > 0}
    for curve in bench["curves"]:
        assert curve["points"]
        assert curve["exponent"] is not None or curve["stopped"]


@pytest.mark.slow
def test_the_quick_scale_benchmark_runs_and_states_what_it_measured(tmp_path):
    command = [sys.executable, ROOT / "benchmarks/scale.py", "--quick", "--out", tmp_path]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    scale = json.loads((tmp_path / "scale.json").read_text())
    assert (tmp_path / "scale.md").read_text() == done.stdout
    for point in [*scale["goals"], *(point for curve in scale["curves"] for point in curve["points"])]:
        assert 0 < point["median"] <= point["p99"] <= point["max"]
        assert point["decisions"] == scale["rounds"]
        assert point["frontier_processor"] > 0
        assert 48 < point["bytes_per_coupling"] <= 72
        assert point["bytes_per_coupling_in_bundle"] == 16
    assert all(point["load_seconds"] > 0 for point in scale["goals"])
    assert all(curve["processor_median"] is not None for curve in scale["curves"])
