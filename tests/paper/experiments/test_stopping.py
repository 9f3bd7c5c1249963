"""The stage that measures the rules of stopping, on models worked by hand, and its summary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of
from pandas.testing import assert_frame_equal
from pydantic import ValidationError

from afa.cohort.cohort import Cohort
from afa.engine.paths import stopping_quantities
from afa.errors import ConfigError, SanityError
from afa.evaluate.long_tables import StageTables, gather_tables, write_tables
from afa.model.bundle import Bundle
from afa.paper.experiments import stopping
from afa.paper.experiments.settings import Bootstrap, ClosureSettings, Inference, Stopping
from afa.paper.experiments.stopping import check_certain, stored_orders, summarise

LEVELS = Stopping(rules=("greedy",), probabilities=(0.8, 0.99), gains=(0.0,), budgets=(0.0, 0.5))
ALL_UP, FIRST_UP = (1, 1, 1, 1), (1, -1, -1, -1)


@pytest.fixture
def ladder() -> Bundle:
    """Two entities, four features, no couplings: D is 4 at a, 3 at b, 2 at c, 1 at d."""
    unary = np.array([[2.0, 1.5, 1.0, 0.5], [-2.0, -1.5, -1.0, -0.5]])
    return bundle_of(unary, np.zeros((2, 4, 4)), features=("a", "b", "c", "d"))


def cohort_of(bundle: Bundle, *rows: tuple[int, ...], labels: Any = None) -> Cohort:
    names = tuple(f"p{9 - i}" for i in range(len(rows)))  # not in the order of the alphabet
    table = pd.DataFrame(index=list(names)) if labels is None else pd.DataFrame(labels, list(names)).astype("Int8")
    return Cohort("made", bundle.features, names, np.array(rows, dtype=np.int8), table)


def choices_of(folder: Path, order: Sequence[str], patients: tuple[str, ...] = ("p9", "p8")) -> Path:
    """The table of an allocation stage whose rule `greedy` has one order for all patients."""
    table = pd.DataFrame(
        {
            "patient": np.repeat(patients, len(order) + 1),
            "allocation": "greedy",
            "gain": "cmi",
            "schedule": "every",
            "t": [*range(len(order) + 1)] * len(patients),
            "feature": [None, *order] * len(patients),
        }
    )
    other = table.assign(schedule="paper", feature=[None, *reversed(order)] * len(patients))
    write_tables({"choices": pd.concat([other, table], ignore_index=True)}, folder)
    return folder


def run(bundle: Bundle, cohort: Cohort, order: tuple[int, ...], patients: Any = None) -> dict[str, pd.DataFrame]:
    chosen = range(len(cohort.patients)) if patients is None else patients
    features = [bundle.features[j] for j in order]
    with TemporaryDirectory() as folder:
        allocation = StageTables(choices_of(Path(folder) / "allocation", features, cohort.patients))
        options = {"stopping": LEVELS, "top_k": 1, "inference": Inference(), "closure": ClosureSettings(), "threads": 1}
        return stopping.run(bundle, cohort, allocation, chosen, **options)


def stop(table: pd.DataFrame, patient: str, rule: str, level: float, **keys: str) -> pd.Series:
    keys = {"allocation": "greedy"} | keys
    chosen = table[(table["patient"] == patient) & (table["stopping"] == rule) & (table["level"] == level)]
    for key, value in keys.items():
        chosen = chosen[chosen[key] == value]
    assert len(chosen) == 1
    return chosen.iloc[0]


def test_the_top_k_stops_where_it_does_by_hand(ladder: Bundle) -> None:
    table = run(ladder, cohort_of(ladder, ALL_UP, FIRST_UP), (0, 1, 2, 3))["top_k"]
    # leads of p9: 4, 7, 9, 10 with 6, 3, 1, 0 left; of p8: 4, 1, -1, -2
    assert stop(table, "p9", "certain", 1.0)[["t", "stopped", "wrong"]].tolist() == [2, True, 0]
    assert stop(table, "p8", "certain", 1.0)[["t", "stopped", "wrong"]].tolist() == [4, False, 0]
    # after a D has mean 4 and variance 9 * 0.825 + 4 * 0.755 + 0.693 = 11.1: its sign stays with probability 0.885
    assert stop(table, "p9", "probability", 0.8)[["t", "stopped", "wrong"]].tolist() == [1, True, 0]
    assert stop(table, "p8", "probability", 0.8)[["t", "stopped", "wrong"]].tolist() == [1, True, 1]
    # a certain answer has probability 1, and nothing left to gain
    assert stop(table, "p9", "probability", 0.99)["t"] == 2
    assert stop(table, "p9", "gain", 0.0)["t"] == 2
    assert stop(table, "p8", "budget", 0.5)[["t", "wrong"]].tolist() == [2, 1]
    assert stop(table, "p8", "budget", 0.0)[["t", "wrong"]].tolist() == [0, 1]  # v0 by name, v1 at the end
    assert (table["members"] == 1).all()


def test_a_task_stops_where_it_does_by_hand(ladder: Bundle) -> None:
    labels = {"v0": [1, 0]}
    table = run(ladder, cohort_of(ladder, ALL_UP, FIRST_UP, labels=labels), (0, 1, 2, 3))["tasks"]
    # S of v0 is half of D, and greedy takes the largest unary first
    columns = ["t", "stopped", "decision", "likelihood", "clinical"]
    assert stop(table, "p9", "certain", 1.0, entity="v0")[columns].tolist() == [2, True, 1, 1, 1]
    assert stop(table, "p8", "certain", 1.0, entity="v0")[columns].tolist() == [4, False, -1, -1, 0]
    assert stop(table, "p8", "budget", 0.5, entity="v0")[columns].tolist() == [2, True, 1, -1, 0]
    assert stop(table, "p9", "certain", 1.0, entity="v1")[columns[:-1]].tolist() == [2, True, -1, -1]
    assert table.loc[table["entity"] == "v1", "clinical"].isna().all()


def test_a_member_that_ties_for_the_last_place_at_the_end_is_right() -> None:
    bundle = bundle_of(np.array([[1.0, -1.0], [-1.0, 1.0]]), np.zeros((2, 2, 2)))
    table = run(bundle, cohort_of(bundle, (1, 1)), (1, 0))["top_k"]
    halfway = stop(table, "p9", "budget", 0.5)  # v1 leads there, and v0 comes first by name at the end
    assert halfway[["t", "wrong"]].tolist() == [1, 0]
    assert not stop(table, "p9", "certain", 1.0)["stopped"]


def test_a_certain_answer_that_full_observation_contradicts_stops_the_run(
    ladder: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = stopping_quantities

    def too_sure(*inputs: Any, **options: Any) -> Any:
        watched = whole(*inputs, **options)
        return watched._replace(certain=np.ones_like(watched.certain))

    monkeypatch.setattr("afa.paper.experiments.stopping.stopping_quantities", too_sure)
    with pytest.raises(SanityError, match=r"stopping, top_k, patient p9, allocation greedy: .* certain at t = 0"):
        run(ladder, cohort_of(ladder, FIRST_UP), (0, 1, 2, 3))


def test_a_certain_decision_that_full_observation_contradicts_stops_the_run(ladder: Bundle) -> None:
    tables = run(ladder, cohort_of(ladder, ALL_UP), (0, 1, 2, 3))
    tasks = tables["tasks"].assign(decision=lambda table: -table["decision"])
    with pytest.raises(
        SanityError, match="stopping, tasks, patient p9, coupling differential, entity v0, allocation greedy"
    ):
        check_certain({"tasks": tasks})


def test_shards_join_to_the_whole(ladder: Bundle, tmp_path: Path) -> None:
    cohort = cohort_of(ladder, ALL_UP, FIRST_UP, (0, 1, 0, -1))
    parts = [tmp_path / "1", tmp_path / "2"]
    for folder, share in zip(parts, (range(1), range(1, 3)), strict=True):
        write_tables(run(ladder, cohort, (0, 1, 2, 3), share), folder)
    write_tables(run(ladder, cohort, (0, 1, 2, 3)), tmp_path / "0")
    gather_tables(parts, tmp_path / "joined")
    gather_tables([tmp_path / "0"], tmp_path / "whole")
    for name in ("top_k", "tasks"):
        joined, whole = (tmp_path / folder / f"{name}.parquet" for folder in ("joined", "whole"))
        assert joined.read_bytes() == whole.read_bytes()


def test_orders_are_those_of_the_grid_at_every_round(
    ladder: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = choices_of(tmp_path / "allocation", "cabd")
    orders = stored_orders(folder, ladder, ("p8", "p9"), ("greedy", "priority_all"))
    assert {rule: order.tolist() for rule, order in orders.items()} == {"greedy": [[2, 0, 1, 3]] * 2}
    said = capsys.readouterr().out
    assert said == "priority_all is left out: the allocation grid does not have it with cmi at every round\n"


@pytest.mark.parametrize(("order", "patients"), [("cab", ("p9", "p8")), ("cabb", ("p9", "p8")), ("cabd", ("p9",))])
def test_choices_that_are_not_whole_are_refused(
    order: str, patients: tuple[str, ...], ladder: Bundle, tmp_path: Path
) -> None:
    folder = choices_of(tmp_path / "allocation", order, patients)
    with pytest.raises(ConfigError, match=r"rule greedy: .*all 4 features of each of 2 patients"):
        stored_orders(folder, ladder, ("p8", "p9"), ("greedy",))


def test_a_folder_without_choices_is_named(ladder: Bundle, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"choices\.parquet: .*no such file"):
        stored_orders(tmp_path, ladder, ("p9",), ("greedy",))


@pytest.mark.parametrize(
    "settings",
    [
        {"probabilities": [0.5]},
        {"probabilities": [1]},
        {"gains": [-1]},
        {"gains": [float("nan")]},
        {"budgets": [1]},
        {"probabilities": [0.9, 0.9]},
        {"gains": []},
        {"budgets": ["high"]},
    ],
)
def test_levels_are_those_that_a_planner_takes(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Stopping(**settings)


def summary_of(ladder: Bundle, labels: Any = None) -> pd.DataFrame:
    tables = run(ladder, cohort_of(ladder, ALL_UP, FIRST_UP, labels=labels), (0, 1, 2, 3))
    return summarise(tables, bootstrap=Bootstrap(resamples=100, confidence=0.95))


def number(rows: pd.DataFrame, metric: str, quantity: str | None, **keys: str | float) -> pd.Series:
    chosen = rows[(rows["metric"] == metric) & (rows["variant"].isna() | ("variant" in keys))]
    chosen = chosen[chosen["quantity"].isna() if quantity is None else chosen["quantity"] == quantity]
    for key, value in keys.items():
        chosen = chosen[chosen[key] == value]
    assert len(chosen) == 1
    return chosen.iloc[0]


def test_the_summary_counts_errors_among_those_that_stop(ladder: Bundle) -> None:
    rows, top_k = summary_of(ladder), {"method": "linearity", "allocation": "greedy"}
    error = number(rows, "rate", None, reference="probability", level=0.8, **top_k)
    assert (error["value"], error["n"]) == (0.5, 2)
    assert 0 <= error["low"] <= 0.5 <= error["high"] <= 1
    nominal = number(rows, "rate", "nominal", reference="probability", level=0.8, **top_k)
    assert nominal["value"] == pytest.approx(0.2)
    assert np.isnan(nominal["low"])
    certain = number(rows, "rate", None, reference="certain", **top_k)
    assert (certain["value"], certain["n"]) == (0.0, 1)
    assert number(rows, "rate", "stopped", reference="certain", **top_k)["value"] == 0.5
    assert number(rows, "rate", "nominal", reference="certain", **top_k)["value"] == 0.0
    assert number(rows, "rate", "members", reference="budget", level=0.5, **top_k)["value"] == 0.5
    assert set(rows.loc[rows["quantity"] == "nominal", "reference"]) == {"certain", "probability"}


def test_features_used_count_all_where_nothing_stops(ladder: Bundle) -> None:
    rows, keys = summary_of(ladder), {"method": "linearity", "allocation": "greedy", "reference": "certain"}
    # 2 and 4
    used = [number(rows, "count", quantity, **keys)["value"] for quantity in ("q25", None, "q75")]
    assert used == [2, 2, 4]


def test_labels_are_held_against_the_same_tasks_at_the_stop_and_at_the_end(ladder: Bundle) -> None:
    rows = summary_of(ladder, labels={"v0": [1, 0]})
    keys = {"method": "two_elbo", "allocation": "greedy", "reference": "budget", "level": 0.5}
    # at the stop both are called positive, at the end each as its label says
    assert number(rows, "balanced_accuracy", None, **keys)[["value", "n"]].tolist() == [0.5, 2]
    assert number(rows, "balanced_accuracy", None, variant="full_observation", **keys)[["value", "n"]].tolist() == [
        1.0,
        2,
    ]
    assert number(rows, "count", "labelled")[["value", "n"]].tolist() == [2, 4]


def test_a_cohort_without_labels_says_so_and_has_no_such_rows(ladder: Bundle) -> None:
    rows = summary_of(ladder)
    assert number(rows, "count", "labelled")["value"] == 0
    assert (rows["metric"] != "balanced_accuracy").all()


def test_a_task_tied_at_the_end_is_left_out_of_the_errors() -> None:
    bundle = bundle_of(np.array([[1.0, -1.0], [1.0, 0.5]]), np.zeros((2, 2, 2)))
    tables = run(bundle, cohort_of(bundle, (1, 1)), (1, 0))
    rows = summarise(tables, bootstrap=Bootstrap(resamples=100, confidence=0.95))
    assert number(rows, "count", "tied_at_full_observation")[["value", "n"]].tolist() == [1, 2]
    keys = {"method": "two_elbo", "allocation": "random", "reference": "budget", "level": 0.5}
    assert number(rows, "rate", None, **keys)["n"] == 1
    assert number(rows, "rate", "stopped", **keys)["n"] == 2


def test_the_summary_does_not_depend_on_the_order_of_rows(ladder: Bundle) -> None:
    tables = run(ladder, cohort_of(ladder, ALL_UP, FIRST_UP), (0, 1, 2, 3))
    one = summarise(tables, bootstrap=Bootstrap(resamples=100, confidence=0.95))
    shuffled = tables["top_k"].sort_values(["allocation", "stopping", "level", "patient"], kind="stable")
    other = summarise(tables | {"top_k": shuffled}, bootstrap=Bootstrap(resamples=100, confidence=0.95))
    key = ["method", "allocation", "reference", "level", "metric", "quantity", "variant", "target"]
    assert_frame_equal(
        one.sort_values(key, ignore_index=True), other.sort_values(key, ignore_index=True), check_like=True
    )
