"""Both LLM baselines on a few patients, end to end, before a local endpoint that plans by a script."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pandas as pd
import pytest
from elicit.llm_faults import rate_limited, server_error, slow
from elicit.llm_server import KEY, MODEL, serve
from planning import CONTROL, PATIENTS, done_after, picks, refuses, sensible, with_changes

from afa.elicit.budget import BudgetError
from afa.elicit.record import Record
from afa.errors import ElicitationError
from afa.model.orders import random_order
from afa.paper.baselines import BASELINE_TABLES
from afa.paper.baselines.trials import STANDS

TINY = Path(__file__).parents[2] / "data/bundle_tiny"
FEATURES = ["AQP8", "CXCL8", "MMP9", "MUC2", "TFF3"]
ROUNDS = [0, 1, 3, 5]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_at_checkpoints_each_model_is_asked_once_per_patient_task_and_round_along_the_planners_order(workshop):
    with serve(sensible) as endpoint:
        workshop.run("live", endpoint=endpoint)
    turns = workshop.table("live", "turns")
    assert len(endpoint.asked) == 2 * (3 + 1) * PATIENTS * 4 == len(turns)
    assert set(turns["outcome"]) == {"answered"}
    assert set(turns["t"]) == set(ROUNDS)
    assert not turns["measured"].str.len().any()
    assert not len(workshop.table("live", "faults"))
    users = [asked.document["messages"][1]["content"] for asked in endpoint.asked]
    assert sum("Observed (3 of 5)" in user for user in users) == len(users) / 4
    assert not any("Earlier turns" in user for user in users)


def test_along_a_random_order_the_first_features_of_the_other_stages_order_are_observed(workshop):
    with serve(sensible) as endpoint:
        workshop.run("live", endpoint=endpoint, order="random", methods=["mrf_llm"], tasks=["top_k"])
    users = [asked.document["messages"][1]["content"] for asked in endpoint.asked]
    for patient in workshop.table("live", "turns")["patient"].unique():
        first = [FEATURES[j] for j in random_order(FEATURES, patient=patient, seed=0)[:3]]
        assert any(re.search("measurement: " + ", ".join(f"{name}=[-+01]+" for name in first) + "\n", u) for u in users)
    scores = workshop.table("live", "readouts").query("method == 'linearity'")
    assert scores["evidence"].value_counts().to_dict() == {"planner": 4 * PATIENTS, "random": 4 * PATIENTS}


def test_turn_by_turn_the_picked_feature_is_measured_and_known_at_the_next_turn(workshop):
    with serve(sensible) as endpoint:
        workshop.run("live", endpoint=endpoint, turns="trajectory", methods=["mrf_llm"], tasks=["top_k"])
    turns = workshop.table("live", "turns")
    assert len(endpoint.asked) == PATIENTS * 6
    for _, own in turns.groupby("patient"):
        assert sorted(own["measured"][:-1]) == FEATURES
        assert (own["measured"] == own["pick"]).all()
    last = endpoint.asked[-1].document["messages"][1]["content"]
    assert "nothing is left" in last
    assert last.count("\nturn ") == 5
    first_pick = turns.iloc[0]
    assert first_pick["measured"] == "CXCL8"  # in two of the three models, so that its potentials add up to 2


def test_a_horizon_ends_the_turns_and_the_planner_is_read_out_at_the_same_rounds(workshop):
    asked = {"turns": "stateless", "horizon": 3, "tasks": ["top_k"], "rounds": [1]}
    with serve(sensible) as endpoint:
        workshop.run("live", **asked, endpoint=endpoint, methods=["mrf_llm", "knowledge_llm"])
    assert len(endpoint.asked) == 2 * PATIENTS * 4
    turns = workshop.table("live", "turns")
    for _, own in turns.groupby(["method", "patient"]):
        assert own["t"].tolist() == [0, 1, 2, 3]
        assert own["measured"].astype(bool).tolist() == [True, True, True, False]
    read = workshop.table("live", "readouts")
    for _, own in read.groupby(["method", "evidence"]):
        assert set(own["t"]) == {0, 1, 3}
    assert {("linearity", "planner"), ("linearity", "mrf_llm"), ("linearity", "knowledge_llm")} <= set(
        zip(read["method"], read["evidence"], strict=True)
    )
    systems = [asked.document["messages"][0]["content"] for asked in endpoint.asked]
    assert sum("No abstract was found" in text for text in systems) == PATIENTS * 4
    assert all("of 4\n" in asked.document["messages"][1]["content"] for asked in endpoint.asked)


def test_without_memory_earlier_turns_are_not_listed(workshop):
    with serve(sensible) as endpoint:
        workshop.run("live", endpoint=endpoint, turns="stateless", methods=["mrf_llm"], tasks=["top_k"])
    assert not any("Earlier turns" in asked.document["messages"][1]["content"] for asked in endpoint.asked)


def test_a_pick_that_is_no_feature_is_asked_again_with_the_fault_then_the_first_by_name_is_measured(workshop):
    with serve(picks("NOGENE")) as endpoint:
        workshop.run("live", endpoint=endpoint, turns="stateless", tasks=["binary"], entities=["fistula"])
    turns, faults = workshop.table("live", "turns"), workshop.table("live", "faults")
    for _, own in turns.groupby(["method", "patient"]):
        assert list(own["measured"]) == [*FEATURES, ""]
        assert own["by_rule"].tolist() == [True] * 5 + [False]
        assert own["asked"].tolist() == [2] * 5 + [1]
    assert (faults["part"] + " " + faults["kind"]).value_counts().to_dict() == {"pick unknown": 2 * PATIENTS * 5 * 2}
    assert turns["decision"].notna().all()
    again = [asked.document["messages"][1]["content"] for asked in endpoint.asked]
    assert (
        sum("was not taken: next_gene_to_measure is no feature of the list" in text for text in again)
        == 2 * PATIENTS * 5
    )


def test_at_checkpoints_an_illegal_pick_is_counted_and_costs_no_second_call(workshop):
    with serve(picks(None)) as endpoint:
        workshop.run("live", endpoint=endpoint, tasks=["binary"], methods=["mrf_llm"])
    assert len(endpoint.asked) == 3 * PATIENTS * 4
    faults = workshop.table("live", "faults")
    assert set(faults["kind"]) == {"none"}
    assert len(faults) == 3 * PATIENTS * 3  # at the last round nothing is left to pick


@pytest.mark.parametrize(
    ("changes", "task", "kind"),
    [
        ({"top_k_labels": ["bleeding", "bleeding"]}, "top_k", "twice"),
        ({"top_k_labels": ["bleeding"]}, "top_k", "number"),
        ({"top_k_labels": ["bleeding", "gout"]}, "top_k", "candidate"),
        ({"top_k_labels": [CONTROL], "lit_prob": 0.5}, "binary", "probability"),
        ({"patient_id": "P0"}, "binary", "other_patient"),
    ],
)
def test_labels_that_break_a_rule_leave_the_decision_missing_and_are_counted(workshop, changes, task, kind):
    with serve(with_changes(**changes)) as endpoint:
        workshop.run("live", endpoint=endpoint, methods=["mrf_llm"], tasks=[task])
    turns, faults = workshop.table("live", "turns"), workshop.table("live", "faults")
    assert turns["decision"].isna().all()
    assert set(turns["labels"]) == {"[]"}
    assert set(turns["label_fault"]) == {kind}
    assert set(turns["asked"]) == {2}
    assert (faults["part"] == "labels").sum() == 2 * len(turns)
    readouts = workshop.table("live", "readouts")
    assert not readouts.loc[readouts["method"] == "mrf_llm", "decided"].any()


def test_a_refusal_is_a_missing_decision_and_never_a_number(workshop):
    with serve(refuses) as endpoint:
        workshop.run("live", endpoint=endpoint, turns="stateless")
    turns = workshop.table("live", "turns")
    assert set(turns["outcome"]) == {"refused"}
    assert turns["decision"].isna().all()
    assert turns["probability"].isna().all()
    readouts = workshop.table("live", "readouts")
    top = readouts[(readouts["method"] == "mrf_llm") & (readouts["task"] == "top_k")]
    assert (top["p_at_k"] == 0).all()
    binary = turns[(turns["task"] == "binary") & (turns["t"] < 5)]
    assert list(binary["measured"][:5]) == FEATURES
    calls = workshop.table("live", "calls")
    assert len(endpoint.asked) == len(calls) == 2 * len(turns)


def test_who_is_done_is_asked_no_more_and_its_last_decision_stands(workshop):
    with serve(done_after(2)) as endpoint:
        workshop.run("live", endpoint=endpoint, turns="trajectory", methods=["mrf_llm"], tasks=["top_k"])
    assert len(endpoint.asked) == PATIENTS * 3
    turns = workshop.table("live", "turns")
    for _, own in turns.groupby("patient"):
        assert own["outcome"].tolist() == ["answered"] * 3 + [STANDS] * 3
        assert len(set(own["labels"].iloc[2:])) == 1
    readouts = workshop.table("live", "readouts").set_index(["method", "evidence", "patient", "t"])["p_at_k"]
    for patient in turns["patient"].unique():
        assert readouts["mrf_llm", "mrf_llm", patient, 3] == readouts["mrf_llm", "mrf_llm", patient, 5]
        # Along a path that ends early our scores know no more than the model does.
        assert readouts["linearity", "mrf_llm", patient, 3] == readouts["linearity", "mrf_llm", patient, 5]
        assert readouts["linearity", "planner", patient, 5] == 1.0


def test_the_record_replayed_without_a_call_gives_the_same_bytes(workshop):
    with serve(with_changes(top_k_labels=["fistula", "bleeding"]), [rate_limited("0"), None, server_error]) as endpoint:
        workshop.run("live", endpoint=endpoint, turns="trajectory")
    workshop.run("replayed", turns="trajectory")
    assert contents(workshop.root / "replayed") == contents(workshop.root / "live")
    assert set(workshop.table("live", "calls")["served_model"]) == {MODEL}


def test_a_record_that_lacks_an_answer_is_refused_with_the_question(workshop):
    with serve(sensible) as endpoint:
        workshop.run("live", endpoint=endpoint, methods=["mrf_llm"], tasks=["top_k"])
    with pytest.raises(
        ElicitationError, match=rf"no answer to {PATIENTS} of {2 * PATIENTS} questions; first binary_potentials"
    ):
        workshop.run("more", fails=True, methods=["mrf_llm"], entities=["fistula"])
    assert not (workshop.root / "more").exists()


def test_a_cap_ends_the_run_and_another_asks_only_the_rest(workshop):
    asked = {"turns": "trajectory", "methods": ["mrf_llm"], "tasks": ["top_k"]}
    with serve(sensible) as whole:
        workshop.run("whole", endpoint=whole, **asked)
    for path in [*workshop.record.glob("*.jsonl"), *workshop.record.glob("*.tries")]:
        path.unlink()
    with serve(sensible) as first, pytest.raises(BudgetError):
        workshop.run("first", "--calls", "5", endpoint=first, fails=True, **asked)
    with serve(sensible) as second:
        workshop.run("second", endpoint=second, **asked)
    assert (len(first.asked), len(second.asked)) == (5, PATIENTS * 6 - 5)
    turns = [workshop.table(out, "turns") for out in ("whole", "second")]
    pd.testing.assert_frame_equal(*turns)


def test_a_run_that_is_killed_goes_on_where_it_stopped(workshop):
    command = [sys.executable, "-c", "from afa.cli import main; main()"]
    command += workshop.command("killed", turns="trajectory", methods=["mrf_llm"], tasks=["top_k"])
    command += ["--live", "--no-caps", "--at-once", "1"]

    hangs = threading.Event()

    def plan(number, _):
        if number < 4:
            return None
        hangs.set()
        return slow(threading.Event())

    with serve(sensible, plan) as endpoint:
        # Without compiled kernels, so that how long they take to compile beside other work is no part of the test.
        environment = {**os.environ, **endpoint.environment, "NUMBA_DISABLE_JIT": "1"}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            assert hangs.wait(120)
        finally:
            process.kill()
            process.wait()
    answered = sum(1 for _ in Record(workshop.record).entries())
    assert answered == 4
    assert not (workshop.root / "killed").exists()
    with serve(sensible) as endpoint:
        workshop.run("resumed", endpoint=endpoint, turns="trajectory", methods=["mrf_llm"], tasks=["top_k"])
    assert len(endpoint.asked) == PATIENTS * 6 - answered


def test_an_endpoint_that_fails_is_no_outcome_of_the_model(workshop):
    with serve(sensible, lambda number, _: server_error if number >= 4 else None) as endpoint:
        (workshop.root / "study/study.yaml").write_text(
            "name: small\ndisease: colitis\ntissue: colon\nmanner: {answers: 2, calls: 1}\n"
        )
        with pytest.raises(ElicitationError, match="no reply to"):
            workshop.run("live", endpoint=endpoint, fails=True, methods=["mrf_llm"], tasks=["top_k"])
    assert not (workshop.root / "live").exists()


def test_without_abstracts_the_literature_baseline_is_refused(workshop):
    with serve(sensible) as endpoint:
        workshop.run("live", endpoint=endpoint, tasks=["top_k"])
    for path in (workshop.record / "retrieved").rglob("*.json"):
        path.unlink()
    with pytest.raises(ElicitationError, match="no search of pubmed"):
        workshop.run("replayed", fails=True, tasks=["top_k"])
    workshop.run("potentials", tasks=["top_k"], methods=["mrf_llm"])


def test_each_baseline_is_told_its_own_knowledge_and_no_name_of_a_sample(workshop):
    with serve(sensible) as endpoint:
        workshop.run("live", endpoint=endpoint)
    for asked in endpoint.asked:
        system, user = (message["content"] for message in asked.document["messages"])
        assert ("  single: " in system) != ("Abstracts, " in system)
        assert "GSM" not in system + user
    of_one = [asked for asked in endpoint.asked if "`bleeding`" in asked.document["messages"][0]["content"]]
    assert of_one
    assert not any("fistula" in asked.document["messages"][0]["content"] for asked in of_one)


def test_the_estimate_before_is_no_less_than_what_is_used_and_an_account_follows(workshop):
    with serve(sensible) as endpoint:
        workshop.run("live", "--prompt-price", "1", "--answer-price", "2", endpoint=endpoint)
    log = (workshop.root / "live.log").read_text()
    assert f"left to ask: {len(endpoint.asked)} calls" in log
    assert f"the record has used: {len(endpoint.asked)} calls" in log
    with serve(sensible) as endpoint:
        workshop.run("again", endpoint=endpoint)
    assert "left to ask: 0 calls" in (workshop.root / "again.log").read_text()
    assert not endpoint.asked


@pytest.mark.parametrize("turns", ["checkpoints", "trajectory"])
def test_the_key_stands_in_no_file(workshop, turns):
    with serve(with_changes(supporting_text=f"The key is {KEY}.")) as endpoint:
        workshop.run("live", endpoint=endpoint, turns=turns)
    files = [path for path in workshop.root.rglob("*") if path.is_file()]
    assert len(files) > len(BASELINE_TABLES)
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
    assert any("[key removed]" in json.dumps(entry.raw) for entry in Record(workshop.record).entries())
