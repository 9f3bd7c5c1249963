"""The summary of the LLM planners, on tables small enough to count by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from elicit.llm_server import serve
from planning import sensible

from afa.elicit.budget import Prices
from afa.engine.tasks import follow_gain
from afa.errors import ElicitationError
from afa.evaluate.long_tables import read_table
from afa.evaluate.summary import KEYS
from afa.inference.meanfield import Solver
from afa.model.bundle import load_bundle
from afa.paper.baselines import BASELINE_TABLES
from afa.paper.baselines.stage import OneTask
from afa.paper.baselines.summary import summarise_baselines
from afa.paper.report.publish import dictionary_of

NAMES = {"cohort": "c", "bundle": "b"}


def readout(method, evidence, patient, t, decision=None, p_at_k=None, entity="a"):
    task = "binary" if p_at_k is None else "top_k"
    where = {"method": method, "task": task, "evidence": evidence, "patient": patient, "t": t}
    decided = decision is not None or bool(p_at_k)
    entity = entity if task == "binary" else ""
    return {
        **where,
        "entity": entity,
        "decided": decided,
        "decision": decision,
        "p_at_k": p_at_k,
        "clinical_p_at_k": None,
    }


def call(method, task, **changes):
    given = {"method": method, "task": task, "entity": "", "patient": "p", "t": 0, "outcome": "answered"}
    return {**given, "prompt_tokens": 1000, "answer_tokens": 10, "model": "m", "served_model": "m-1", **changes}


def turn(method, task, outcome="answered", asked=1, **changes):
    given = {"method": method, "task": task, "outcome": outcome, "asked": asked, "done": False, "by_rule": False}
    return {**given, **changes}


@pytest.fixture
def tables():
    """Two patients, p right by the model and q undecided; the planner is right on both, and ties on q at t = 0."""
    readouts = [
        *(readout("mrf_llm", "random", "p", t, 1) for t in (0, 2)),
        *(readout("mrf_llm", "random", "q", t, None) for t in (0, 2)),
        *(readout("wald", path, "p", t, 1) for path in ("planner", "random") for t in (0, 2)),
        *(readout("wald", path, "q", t, 0 if t == 0 else -1) for path in ("planner", "random") for t in (0, 2)),
        *(readout("mrf_llm", "random", p, t, p_at_k=0.5) for p in "pq" for t in (0, 2)),
        *(readout("linearity", path, p, t, p_at_k=1.0) for path in ("planner", "random") for p in "pq" for t in (0, 2)),
    ]
    targets = pd.DataFrame({"entity": "a", "patient": ["p", "q"], "likelihood": [1, -1], "clinical": [0, None]})
    protocol = {
        "turns": "checkpoints",
        "order": "random",
        "patients": 2,
        "seed": 0,
        "k": 2,
        "top_k_rule": "priority_all",
        "horizon": None,
    }
    types = {"decision": "Int8", "p_at_k": "Float64", "clinical_p_at_k": "Float64"}
    return {
        "readouts": pd.DataFrame(readouts).astype(types),
        "targets": targets.astype({"likelihood": "Int8", "clinical": "Int8"}),
        "turns": pd.DataFrame(
            [
                turn("mrf_llm", "binary"),
                turn("mrf_llm", "binary", asked=3, by_rule=True),
                turn("mrf_llm", "binary", "refused"),
                turn("mrf_llm", "top_k", done=True),
                turn("mrf_llm", "top_k", "stands", 0, done=True),
            ]
        ),
        "faults": pd.DataFrame([{"method": "mrf_llm", "task": "binary", "part": "pick", "kind": "unknown"}] * 2),
        "calls": pd.DataFrame([call("mrf_llm", "binary"), call("mrf_llm", "binary", prompt_tokens=None)]),
        "protocol": pd.DataFrame([protocol]),
    }


def summarised(tables, **prices):
    return summarise_baselines(tables, resamples=100, confidence=0.95, prices=Prices(**prices))


def value(rows, **keys):
    chosen = rows[(rows[list(keys)] == pd.Series(keys)).all(axis=1)]
    others = [name for name in ("quantity", "stratum", "variant", "reference", "allocation") if name not in keys]
    chosen = chosen[chosen[others].isna().all(axis=1)]
    assert len(chosen) == 1, (keys, chosen)
    return float(chosen["value"].iloc[0])


def test_a_decision_that_is_missing_is_wrong_and_a_tie_of_ours_is_half_right(tables):
    rows = summarised(tables)
    accuracy = {"metric": "accuracy", "target": "likelihood"}
    own = {"method": "wald", "allocation": "greedy", "gain": "cmi", "schedule": "every"}
    assert value(rows, method="mrf_llm", t=0, **accuracy) == 0.5
    assert value(rows, t=0, **own, **accuracy) == 0.75
    assert value(rows, t=2, **own, **accuracy) == 1.0
    assert value(rows, metric="rate", method="mrf_llm", t=2, stratum="binary", quantity="missing") == 0.5


def test_the_gap_is_the_model_less_the_score_along_either_order(tables):
    rows = summarised(tables)
    gap = {"metric": "gap", "method": "mrf_llm", "target": "likelihood", "reference": "wald", "t": 2}
    assert value(rows, allocation="greedy", **gap) == -0.5
    assert value(rows, stratum="binary", variant="same_order", **gap) == -0.5
    top = {**gap, "reference": "linearity"}
    assert value(rows, allocation="priority_all", guide="linearity", **top) == -0.5


def test_a_label_that_is_not_there_leaves_its_patient_out(tables):
    rows = summarised(tables)
    assert value(rows, metric="accuracy", method="mrf_llm", target="clinical", t=2) == 0
    assert rows.loc[(rows["target"] == "clinical") & (rows["metric"] == "accuracy"), "n"].eq(1).all()
    assert value(rows, metric="count", quantity="without_label", target="clinical") == 1
    assert not (rows["target"].eq("clinical") & rows["metric"].eq("p_at_k")).any()


def test_turns_and_faults_are_counted_by_kind(tables):
    rows = summarised(tables)
    counts = rows[rows["metric"] == "count"].set_index(["method", "stratum", "quantity"])["value"]
    expected = {
        "turns": 3,
        "answered": 2,
        "refused": 1,
        "asked_again": 2,
        "picked_by_rule": 1,
        "illegal_pick_unknown": 2,
    }
    assert {name: counts["mrf_llm", "binary", name] for name in expected} == expected
    assert (counts["mrf_llm", "top_k", "done"], counts["mrf_llm", "top_k", "stands"]) == (1, 1)


def test_calls_tokens_and_cost_stand_beside_the_planners_which_are_zero(tables):
    rows = summarised(tables, prompt=2.0, answer=50.0)
    counts = rows[rows["metric"] == "count"].set_index(["method", "stratum", "quantity"])["value"]
    assert counts["mrf_llm", "binary", "calls"] == 2
    assert counts["mrf_llm", "binary", "calls_uncounted"] == 1
    tokens = [counts[method, "binary", "prompt_tokens"] for method in ("mrf_llm", "two_elbo")]
    assert tokens == [1000, 0]
    cost = rows[rows["metric"] == "cost"].set_index("method")["value"]
    assert cost["mrf_llm"] == pytest.approx((1000 * 2 + 20 * 50) / 1e6)
    assert cost["two_elbo"] == 0
    assert set(summarised(tables).query("metric == 'cost'")["method"]) == {"two_elbo"}


@pytest.mark.parametrize("column", ["model", "served_model"])
def test_answers_of_a_scripted_model_are_refused(tables, column):
    tables["calls"][column] = ["m", "Scripted-test-model"]
    with pytest.raises(ElicitationError, match="answers of Scripted-test-model"):
        summarised(tables)


def test_the_tables_of_a_scripted_run_are_refused_and_those_of_another_model_are_summarised(workshop):
    with serve(sensible) as endpoint:
        folder = workshop.run("live", endpoint=endpoint)
    tables = {name: read_table(folder, name) for name in BASELINE_TABLES}
    with pytest.raises(ElicitationError, match="scripted-test-model"):
        summarised(tables)
    renamed = {**tables, "calls": tables["calls"].assign(model="m", served_model="m")}
    rows = summarised(renamed)
    assert not rows.duplicated(KEYS).any()
    own = rows[rows["allocation"].notna() & rows["variant"].isna()]
    full = own[(own["t"] == 5) & (own["target"] == "likelihood") & own["metric"].isin(["accuracy", "p_at_k"])]
    assert len(full) == 3 + 2
    assert full["value"].eq(1).all()
    assert set(rows.loc[rows["metric"] == "accuracy", "method"]) == {
        "mrf_llm",
        "rag_llm",
        "wald",
        "two_elbo",
        "stack_a",
    }


def test_every_column_of_the_stage_has_a_meaning_in_the_data_dictionary(workshop):
    with serve(sensible) as endpoint:
        folder = workshop.run("live", endpoint=endpoint, tasks=["top_k"], methods=["mrf_llm"])
    schemas = {f"llm_baselines/{path.stem}": pq.read_schema(path) for path in folder.glob("*.parquet")}
    assert len(schemas) == len(BASELINE_TABLES)
    assert len(dictionary_of(schemas)) == sum(len(schema) for schema in schemas.values())


def test_the_order_of_our_planner_is_that_of_its_own_stage():
    bundle = load_bundle("tests/data/bundle_tiny")
    values = np.random.default_rng(1).integers(-1, 2, (6, 5)).astype(np.int8)
    for entity in bundle.entities:
        one = OneTask(bundle, entity, values, Solver(), 1)
        steps = follow_gain(one.task, values, gain="cmi")
        found = one.readouts(one.order, np.tile(np.arange(6), (6, 1)))
        for method in ("wald", "two_elbo", "stack_a"):
            signs = found[method]["decision"].reshape(6, 6)
            for p, t in np.ndindex(6, 6):
                step = np.searchsorted(steps.t[p, 0], t, side="right") - 1
                assert signs[p, t] == np.sign(getattr(steps, method)[p, 0, step])
