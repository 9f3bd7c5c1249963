"""The answers of a language model that the project carries: replayed without a miss, and only where they belong."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from afa.cohort import geo
from afa.cohort.build import build_cohort
from afa.cohort.cohort import Cohort
from afa.cohort.config import load_cohort_config, simulation_config
from afa.cohort.encode import read_aliases
from afa.cohort.simulate import simulate_cohort, write_geo_layout
from afa.elicit.record import Record
from afa.inference.meanfield import Solver
from afa.model.bundle import Bundle
from afa.model.study import load_study
from afa.paper.baselines import Protocol, prompts_of
from afa.paper.baselines.stage import BaselineSetting, run_baselines
from afa.paper.baselines.summary import summarise_baselines
from afa.paper.baselines.trials import AnswerSource, recorded
from afa.paper.config import Baselines, check_run_config, language_models

ROOT = Path(__file__).parents[3]
ANSWERS = ROOT / "resources" / "baselines"


@pytest.fixture(scope="module")
def cohorts(recorded_bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Cohort]:
    """Each cohort as the default run encodes it, by name."""
    return cache(lambda name: cohort_of(name, recorded_bundle, tmp_path_factory.mktemp(name)))


def cohort_of(name: str, bundle: Bundle, folder: Path) -> Cohort:
    settings = load_cohort_config(ROOT / "config" / "cohorts" / f"{name}.yaml")
    places: dict[str, Path] = {"extract": ROOT / "resources" / "series" / settings.series}
    if settings.origin == "simulated":
        write_geo_layout(simulate_cohort(simulation_config(settings), bundle), settings, folder / "geo")
        places = {"mirror": folder / "geo"}
    source = geo.fetch(settings, cache=folder, **places)
    aliases = read_aliases(ROOT / "resources" / "genes" / "aliases.csv")
    return build_cohort(settings, source, bundle.features, bundle.entities, aliases=aliases)


def settings_of(name: str, monkeypatch: pytest.MonkeyPatch, table: str = "llm_baselines", **settings: Any) -> Baselines:
    monkeypatch.chdir(ROOT)
    return language_models(check_run_config({"cohort": name, **settings}))[table]


def replayed(cohort: Cohort, bundle: Bundle, asked: Baselines) -> tuple[dict[str, Any], AnswerSource]:
    study = load_study(ROOT / asked.study)
    plan = Protocol(asked, answers=study.settings.manner.answers)
    assert asked.folder is not None
    source = recorded(Record(ROOT / asked.folder), None, study.settings.manner, prompts_of(plan))
    setting = BaselineSetting(bundle, cohort, plan, solver=Solver(), threads=1)
    return run_baselines(setting, source, disease=study.settings.disease, abstracts=None), source


@pytest.mark.parametrize(
    ("name", "model", "planner"),
    [
        ("gse109142", [0.42, 0.62, 0.82, 0.84, 0.82, 0.84], [0.78, 0.76, 0.96, 0.96, 0.98, 1.0]),
        ("demo", [0.24, 0.42, 0.54, 0.68, 0.76, 0.92], [0.20, 0.22, 0.44, 0.56, 0.70, 1.0]),
    ],
)
def test_every_carried_answer_is_replayed_with_no_miss(
    name: str,
    model: list[float],
    planner: list[float],
    recorded_bundle: Bundle,
    cohorts: Callable[[str], Cohort],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables, source = replayed(cohorts(name), recorded_bundle, settings_of(name, monkeypatch))
    stored = list(source.store.entries())
    assert len(stored) == len(tables["calls"]) == 300
    assert sorted(tables["calls"]["time"]) == sorted(entry.time for entry in stored)
    assert tables["faults"].empty
    read = tables["readouts"]
    top = read[(read["task"] == "top_k") & (read["evidence"] == "planner")]
    for method, expected in (("mrf_llm", model), ("linearity", planner)):
        precision = top[top["method"] == method].groupby("t")["p_at_k"].mean()
        np.testing.assert_allclose(precision.to_numpy(dtype=float), expected, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "calls", "model", "planner", "along", "constant"),
    [
        ("gse109142", 420, [0.72, 0.90, 0.84, 0.78], [0.78, 0.78, 0.76, 0.92], [0.78, 0.78, 0.80, 0.92], 0.98),
        ("demo", 210, [0.14, 0.32, 0.46, 0.42], [0.20, 0.16, 0.22, 0.26], [0.20, 0.20, 0.24, 0.26], 0.54),
    ],
)
def test_a_model_that_chose_its_features_is_replayed_beside_the_planner_along_both_orders(
    name: str,
    calls: int,
    model: list[float],
    planner: list[float],
    along: list[float],
    constant: float,
    recorded_bundle: Bundle,
    cohorts: Callable[[str], Cohort],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables, source = replayed(cohorts(name), recorded_bundle, settings_of(name, monkeypatch, "llm_choosing"))
    assert len(list(source.store.entries())) == len(tables["calls"]) == calls
    assert tables["faults"].empty
    means = tables["readouts"].groupby(["evidence", "method", "t"])["p_at_k"].mean().astype(float)
    for key, expected in (
        (("mrf_llm", "mrf_llm"), model),
        (("planner", "linearity"), planner),
        (("mrf_llm", "linearity"), along),
        (("fixed_top_k", "fixed_top_k"), [constant] * 4),
    ):
        np.testing.assert_allclose(means[key].to_numpy(), expected, atol=1e-9)
    rows = summarise_baselines(tables, resamples=20, confidence=0.95, table="llm_choosing")
    shares = rows[(rows["metric"] == "p_at_k") & (rows["target"] == "likelihood") & rows["variant"].isna()]
    assert shares.loc[shares["method"] == "fixed_top_k", "value"].tolist() == pytest.approx([constant] * 4)
    gaps = rows[(rows["metric"] == "gap") & (rows["target"] == "likelihood") & (rows["reference"] == "fixed_top_k")]
    found = gaps.loc[gaps["method"] == "mrf_llm", "value"].tolist()
    assert found == pytest.approx([share - constant for share in model])


@pytest.mark.parametrize(
    "changed",
    [
        {"cohort": "gse117993"},
        {"top_k": 4},
        {"bundle": "tests/data/bundle_tiny"},
        {"encoding": {"level": 0.01}},
        {"inference": {"damping": 0.4}},
        {"elicitation": {"min_agree": 3}},
        {"baselines": {"patients": 3}},
        {"baselines": {"record": None}},
    ],
    ids=str,
)
def test_the_carried_answers_are_left_out_where_the_run_would_ask_something_else(
    changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings_of("demo", monkeypatch).folder == Path("resources/baselines/demo")
    monkeypatch.chdir(ROOT)
    assert language_models(check_run_config({"cohort": "demo", **changed})) == {}


def test_prices_and_a_record_or_a_live_model_of_ones_own_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    priced = settings_of("gse109142", monkeypatch, baselines={"prompt_price": 2})
    assert (priced.folder, priced.prompt_price) == (Path("resources/baselines/gse109142"), 2)
    assert settings_of("gse109142", monkeypatch, baselines={"record": "mine"}).folder == Path("mine")
    live = settings_of("gse109142", monkeypatch, baselines={"live": True, "calls": 9})
    assert live.folder == Path("data/llm_baselines")
    assert live.methods == ("mrf_llm", "rag_llm")
