"""Couplings stated as of both classes: they cancel in S(x), and are in no duel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from afa.cli import app
from afa.cohort.cohort import Cohort, write_cohort
from afa.evaluate.long_tables import read_table
from afa.evaluate.simulate import simulate_strategies
from afa.evaluate.simulate.walks import SimulationSetting, Strategy
from afa.model.bundle import Bundle, save_bundle
from afa.model.bundle.rates import CONDITION, SHARED
from afa.planner import TopKPlanner


@pytest.fixture
def half_shared(bundle_tiny: Bundle) -> Bundle:
    """The tiny bundle with the couplings of bleeding and fistula stated as of both classes."""
    scope = np.array([SHARED, CONDITION, SHARED], dtype=np.int8)
    return replace(bundle_tiny, packed=replace(bundle_tiny.packed, scope=scope))


def test_what_both_classes_have_is_in_no_score_and_in_no_duel(bundle_tiny: Bundle, half_shared: Bundle) -> None:
    alone = half_shared.contrasts()
    assert alone.packed.value.tolist() == [1]
    assert alone.contrasts() is alone
    assert bundle_tiny.contrasts() is bundle_tiny
    values = np.array([[1, 0, -1, 1, 0], [-1, -1, 1, 0, 1], [1, 1, 1, 1, 1]])
    diarrhea = values[:, [bundle_tiny.features.index(name) for name in ("AQP8", "MUC2")]].prod(axis=1)
    expected = values @ bundle_tiny.unary.T + bundle_tiny.priors
    expected[:, bundle_tiny.index("diarrhea")] += diarrhea
    np.testing.assert_allclose(half_shared.energies(values), expected)
    np.testing.assert_allclose(alone.energies(values), expected)
    for entity, column in zip(alone.entities, expected.T, strict=True):
        np.testing.assert_allclose(alone.mrf(entity).energies(values), column)
    for x, score in zip(values, expected, strict=True):
        planner = TopKPlanner(half_shared, k=1, coupling="differential")
        planner.observe_all(dict(zip(half_shared.features, x.tolist(), strict=True)))
        np.testing.assert_allclose(planner.scores(), score[:, None] - score[None, :], atol=1e-12)


def test_a_stage_that_reads_no_scopes_is_given_the_scores_alone(half_shared: Bundle, tmp_path: Path) -> None:
    names = ("p0", "p1")
    values = np.array([[1, 0, -1, 1, 0], [-1, -1, 1, 0, 1]], dtype=np.int8)
    cohort = Cohort("few", half_shared.features, names, values, pd.DataFrame(index=list(names)))
    write_cohort(cohort, tmp_path / "cohort")
    for name, bundle in (("scoped", half_shared), ("scores", half_shared.contrasts())):
        save_bundle(bundle, tmp_path / name)
        arguments = ["stage", "sign", "--bundle", tmp_path / name, "--cohort", tmp_path / "cohort"]
        ran = CliRunner().invoke(app, [*map(str, arguments), "--out", str(tmp_path / f"of {name}")])
        assert ran.exit_code == 0, ran.output
    for table in ("rounds",):
        scoped, scores = (read_table(tmp_path / f"of {name}", table) for name in ("scoped", "scores"))
        pd.testing.assert_frame_equal(scoped, scores)


def test_simulations_follow_and_judge_duels_without_what_both_classes_have(half_shared: Bundle) -> None:
    names = tuple("abcdefgh")
    values = np.random.default_rng(0).integers(-1, 2, (len(names), len(half_shared.features))).astype(np.int8)
    cohort = Cohort("few", half_shared.features, names, values, pd.DataFrame(index=list(names)))
    made = []
    for bundle in (half_shared, half_shared.contrasts()):
        ways = [Strategy(rule, "cmi", "linearity") for rule in ("greedy", "priority_all")]
        made.append(simulate_strategies(bundle, cohort, ways, SimulationSetting(k=1, resamples=100)))
    pd.testing.assert_frame_equal(made[0].curves, made[1].curves)
    pd.testing.assert_frame_equal(made[0].features_needed, made[1].features_needed)
    right = made[0].curves.query("metric == 'sign_accuracy' and t == 5 and allocation == 'greedy'")["value"]
    assert (right == 1).all()
