"""Simulated calibration: ranks of true labels are uniform under exact inference, and not under a wrong posterior."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of
from oracle import posterior
from scipy.stats import chi2

from afa.bundle import Bundle
from afa.closure import two_elbo
from afa.engine.tasks import elbo_differences
from afa.errors import ConfigError
from afa.inference.meanfield import Solver
from afa.stages import sections
from afa.stages.base import chosen
from afa.stages.settings import Bootstrap, Calibration, Inference
from afa.stages.simulated_calibration import histogram, ranks, run, summarise, uniform_gap
from afa.stats.tables import gather_tables, read_table, write_tables


def drawn(bundle: Bundle, n: int, threads: int = 1) -> dict[str, pd.DataFrame]:
    """The tables that are made entity by entity."""
    tables = run(bundle, calibration=Calibration(simulated=n), inference=Inference(), threads=threads)
    return {name: tables[name] for name in ("draws", "left_out")}


def measures(draws: pd.DataFrame) -> pd.DataFrame:
    """`ece`, `brier`, `gap` and `rate` (the p-value) by inference and step, of the summary."""
    nothing = pd.DataFrame(columns=["entity", "reason"])
    rows = summarise({"draws": draws, "left_out": nothing}, bootstrap=Bootstrap(resamples=100))
    rows = rows[rows["reference"].isin(["exact", "mean_field"])].assign(step=rows["t"].fillna(-1).astype(int))
    return rows.pivot(index=["reference", "step"], columns="metric", values="value")


def coupled(n: int, strength: float) -> np.ndarray:
    couplings = np.zeros((n, n))
    for j in range(n - 1):
        couplings[j, j + 1] = couplings[j + 1, j] = strength
    return couplings


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    unary = [[0.5, -0.5, 0.25, 0.5, 0.0, 0.0], [0.25, 0.5, 0.25, 0.0, 0.0, 0.0]]
    couplings = np.zeros((2, 6, 6))
    couplings[0, :5, :5] = coupled(5, 0.5)
    couplings[1, :4, :4] = coupled(4, -0.25)
    return bundle_of(unary, couplings, priors=[0.25, 0.0], entities=("u", "v"))


@pytest.fixture(scope="module")
def tables(bundle: Bundle) -> dict[str, pd.DataFrame]:
    return drawn(bundle, 40)


@pytest.fixture(scope="module")
def many(bundle: Bundle) -> pd.DataFrame:
    return drawn(bundle, 4000)["draws"]


def test_log_odds_by_mean_field_are_those_of_two_elbo(bundle: Bundle) -> None:
    generator = np.random.default_rng(1)
    observed = generator.random((6, 6)) < 0.5
    values = generator.integers(-1, 2, (6, 6)).astype(np.int8)
    solver = Solver(max_iterations=8)
    found = elbo_differences(bundle, "u", observed, values, solver=solver, threads=2)
    for row in range(6):
        seen = {bundle.features[j]: int(values[row, j]) for j in np.flatnonzero(observed[row])}
        expected = two_elbo(bundle.mrf("u"), seen, solver=solver)
        assert found.raw[row] == pytest.approx(expected.raw, abs=1e-10)
        assert found.calibrated[row] == pytest.approx(expected.calibrated, abs=1e-10)
        assert found.iterations[row] == expected.positive.iterations + expected.negative.iterations
        assert found.capped[row] == 2 - expected.positive.converged - expected.negative.converged
        assert found.ascended[row] == expected.positive.ascended + expected.negative.ascended


def test_steps_are_the_counts_that_fit_and_the_whole_support(tables: dict[str, pd.DataFrame]) -> None:
    steps = tables["draws"].groupby("entity")[["step", "t"]].apply(lambda part: set(map(tuple, part.to_numpy())))
    assert steps["u"] == {("0", 0), ("1", 1), ("2", 2), ("4", 4), ("whole", 5)}
    assert steps["v"] == {("0", 0), ("1", 1), ("2", 2), ("4", 4), ("whole", 4)}
    assert len(tables["draws"]) == 2 * 40 * 5 * 2


def test_before_any_observation_the_probability_is_one_half(tables: dict[str, pd.DataFrame]) -> None:
    assert (tables["draws"].query("step == '0'")["probability"] == 0.5).all()


def test_a_count_equal_to_the_support_is_the_whole_support(tables: dict[str, pd.DataFrame]) -> None:
    of_v = tables["draws"].query("entity == 'v'").set_index(["step", "inference", "draw"])[["probability", "rank"]]
    pd.testing.assert_frame_equal(of_v.loc["4"], of_v.loc["whole"])


def test_the_exact_probability_is_the_average_of_the_whole_one(bundle: Bundle) -> None:
    # tower rule: P(y | x_obs) averages P(y | x) over completions, so that means over draws agree
    draws = drawn(bundle, 4000)["draws"].query("inference == 'exact'")
    by_step = draws.pivot(index=["entity", "draw"], columns="step", values="probability")
    for earlier in ("0", "2"):
        difference = by_step["whole"] - by_step[earlier]
        assert abs(difference.mean()) < 4 * difference.std() / np.sqrt(len(difference))


def test_log_odds_of_whole_profiles_are_scores_less_the_shift(bundle: Bundle, many: pd.DataFrame) -> None:
    # all potentials are multiples of 1/4, and so are all scores
    mrf = bundle.mrf("u")
    shift = posterior(mrf.scaled(0.5), {})[2] - posterior(mrf.scaled(-0.5), {})[2]
    p = many.query("entity == 'u' and step == 'whole' and inference == 'exact'")["probability"]
    score = np.log(p / (1 - p)) + shift - mrf.prior
    np.testing.assert_allclose(score * 4, np.round(score * 4), atol=1e-8)
    assert score.nunique() > 5


def test_ranks_by_hand() -> None:
    uniforms = np.array([[0.1, 0.4, 0.7, 0.9, 0.0], [0.1, 0.4, 0.7, 0.9, 0.999]])
    # at 0.5 two of four labels drawn are 1: a true 1 ranks 2 to 4, a true 0 ranks 0 to 2
    assert ranks(np.full((2, 1), 0.5), np.array([1, 1], dtype=np.int8), uniforms).tolist() == [[2], [4]]
    assert ranks(np.full((2, 1), 0.5), np.array([0, 0], dtype=np.int8), uniforms).tolist() == [[0], [2]]
    assert ranks(np.array([[0.0, 1.0]]), np.array([1], dtype=np.int8), uniforms[:1]).tolist() == [[4, 0]]


def test_exact_inference_has_uniform_ranks_at_every_step(many: pd.DataFrame) -> None:
    uniformity = measures(many).loc["exact"]
    assert len(uniformity) == 5
    assert (uniformity["rate"] > 1e-3).all()
    assert (uniformity["ece"] < 0.03).all()


def test_a_posterior_that_is_too_sure_fails_uniformity(many: pd.DataFrame) -> None:
    part = many.query("inference == 'exact' and step == '2'")
    odds = np.log(part["probability"] / (1 - part["probability"]))
    sure = (1 / (1 + np.exp(-3 * odds))).to_numpy()[:, None]
    uniforms = np.random.default_rng(5).random((len(part), 100))
    rank = ranks(sure, part["label"].to_numpy(np.int8), uniforms)[:, 0]
    right, wrong = (measures(draws).loc["exact", 2] for draws in (part, part.assign(probability=sure[:, 0], rank=rank)))
    assert wrong["rate"] < 1e-6 < right["rate"]
    assert wrong["gap"] > uniform_gap(len(part), resamples=500, confidence=0.99) > right["gap"]
    assert wrong["ece"] > right["ece"]
    assert wrong["brier"] > right["brier"]


def test_measures_by_hand() -> None:
    cases = {"probability": [0.05, 0.05, 0.95, 1.0], "label": [0, 1, 1, 1], "rank": [0, 0, 49, 99]}
    draws = pd.DataFrame(cases).assign(inference="exact", step="1", draw=range(4))
    row = measures(draws).loc["exact", 1]
    assert row["ece"] == pytest.approx((abs(0.1 - 1) + abs(1.95 - 2)) / 4)
    assert row["brier"] == pytest.approx((0.05**2 + 0.95**2 + 0.05**2) / 4)
    assert row["gap"] == pytest.approx(0.5 - 0.01)
    assert row["rate"] == pytest.approx(chi2.sf(20 / 4 * (2**2 + 1 + 1) - 4, 19))
    found = histogram(draws)
    assert found.query("count > 0")[["bin", "count"]].to_numpy().tolist() == [[0, 2], [9, 1], [19, 1]]
    assert len(found) == 20


def test_shards_of_entities_and_threads_give_the_same_bytes(
    bundle: Bundle, tables: dict[str, pd.DataFrame], tmp_path: Path
) -> None:
    for entity in ("u", "v"):
        some = bundle.restrict_entities([entity])
        part = drawn(some, 40, threads=2)
        write_tables(part, tmp_path / entity)
    write_tables(tables, tmp_path / "whole")
    gather_tables([tmp_path / "u", tmp_path / "v"], tmp_path / "joined")
    gather_tables([tmp_path / "whole"], tmp_path / "once")
    for name in tables:
        pd.testing.assert_frame_equal(read_table(tmp_path / "joined", name), read_table(tmp_path / "once", name))


def test_an_entity_too_dense_is_left_out_and_listed() -> None:
    n = 21
    unary, couplings = np.zeros((2, n)), np.zeros((2, n, n))
    unary[1, :2] = 0.5
    couplings[0] = 1.0 - np.eye(n)
    tables = drawn(bundle_of(unary, couplings, entities=("dense", "light")), 20)
    assert set(tables["draws"]["entity"]) == {"light"}
    assert tables["left_out"]["entity"].tolist() == ["dense"]
    assert "21 features" in tables["left_out"]["reason"].iloc[0]


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="greater than or equal to 20"):
        chosen(["calibration.simulated"], sections(), {"calibration": {"simulated": 0}})


def test_the_summary_holds_the_measures_of_both_inferences(tables: dict[str, pd.DataFrame]) -> None:
    summary = summarise(tables, bootstrap=Bootstrap(resamples=200, confidence=0.95))
    assert set(summary["table"]) == {"calibration"}
    for (inference, step), part in tables["draws"].groupby(["inference", "step"]):
        rows = summary[summary["reference"] == inference]
        rows = rows[rows["t"].isna() if step == "whole" else rows["t"] == float(step)].set_index("metric")
        assert set(rows["stratum"]) == {"simulated_whole" if step == "whole" else "simulated"}
        for metric in ("ece", "brier", "gap"):
            assert rows.loc[metric, "n"] == len(part) == 80
        assert rows.loc["brier", "value"] == pytest.approx(((part["probability"] - part["label"]) ** 2).mean())
        assert rows.loc["rate", "quantity"] == "uniformity_p"
    limits = summary[summary["reference"] == "uniform"]
    assert (limits["value"] == uniform_gap(80, resamples=200, confidence=0.95)).all()
    assert summary[summary["quantity"] == "left_out"]["value"].tolist() == [0]


def test_truly_uniform_ranks_stay_below_the_limit_as_often_as_said() -> None:
    limit = uniform_gap(500, resamples=2000, confidence=0.9)
    generator = np.random.default_rng(0)
    grid = np.arange(1, 101) / 100
    counts = np.array([np.bincount(generator.integers(0, 100, 500), minlength=100) for _ in range(1000)])
    gaps = np.abs(np.cumsum(counts, axis=1) / 500 - grid).max(axis=1)
    assert abs((gaps <= limit).mean() - 0.9) < 0.05


def test_where_all_entities_are_too_dense_the_tables_are_empty_and_the_count_is_there() -> None:
    n = 21
    tables = drawn(bundle_of(np.ones((1, n)), np.ones((1, n, n))), 20)
    assert histogram(tables["draws"]).empty
    found = summarise(tables, bootstrap=Bootstrap(resamples=100, confidence=0.9))
    assert found[["metric", "value"]].to_numpy().tolist() == [["count", 1.0]]
