"""`afa elicit` against a local endpoint: a bundle from nothing, killed and resumed, and what may go wrong."""

from __future__ import annotations

import json
import logging
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from elicit import llm_faults, llm_server
from elicit.elicit_lab import Lab
from elicit.literature_server import article
from elicit.literature_server import serve as literature
from elicit.llm_script import scripted
from elicit.llm_server import KEY, Document, Endpoint, Plan, Script
from typer.testing import CliRunner

from afa.cli import app
from afa.elicit.record import Record
from afa.errors import ElicitationError

MODELS = {"r1": "model-one", "r2": "model-two", "r3": "model-three"}
LIVE = ("--live", "--calls=200", "--at-once=2")
PATHS = ("AFA_LLM_BASE_URL", "AFA_LLM_MODEL", "AFA_LLM_API_KEY")


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Starts a local endpoint and leads afa to it."""
    stack = []

    def started(script: Script = scripted, plan: Plan = ()) -> Endpoint:
        manager = llm_server.serve(script, plan)
        stack.append(manager)
        endpoint = manager.__enter__()
        for name, value in endpoint.environment.items():
            monkeypatch.setenv(name, value)
        return endpoint

    yield started
    for manager in stack:
        manager.__exit__(None, None, None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Endpoint]:
    """A study that was elicited without a break, and the endpoint that was asked; for tests that change neither."""
    lab = Lab(tmp_path_factory.mktemp("whole"), models=MODELS)
    with llm_server.serve(scripted) as endpoint, pytest.MonkeyPatch.context() as patch:
        for name, value in endpoint.environment.items():
            patch.setenv(name, value)
        lab.elicit(*LIVE)
    return lab, endpoint


def copy_of(whole: Lab, folder: Path) -> Lab:
    """A study of its own with the answers of another."""
    lab = Lab(folder, models=MODELS)
    shutil.copytree(whole.record, lab.record)
    return lab


def bodies(endpoint: Endpoint) -> list[bytes]:
    return [asked.body for asked in endpoint.asked]


def edited(change) -> Script:
    """The script with its answers changed by `change(answer, document)`."""

    def answer(document: Document) -> str:
        content = json.loads(scripted(document))
        change(content, document)
        return json.dumps(content)

    return answer


def refused(lab: Lab, *options: str, stages=("unary",)) -> str:
    with pytest.raises(ElicitationError) as caught:
        lab.elicit(*options, stages=stages)
    return str(caught.value)


@pytest.mark.slow
def test_a_killed_elicitation_goes_on_and_gives_the_bundle_of_an_uninterrupted_one(
    tmp_path: Path, serve, whole: tuple[Lab, Endpoint]
) -> None:
    uninterrupted, endpoint = whole
    asked = len(endpoint.asked)
    assert asked > 9 + 3 * 10
    assert len(set(bodies(endpoint))) == asked

    halts = (4, asked // 2)
    hanging, release = [threading.Event(), threading.Event()], threading.Event()

    def plan(number: int, _: Document):
        if number in halts and not release.is_set():
            hanging[halts.index(number)].set()
            return llm_faults.slow(threading.Event())
        return None

    killed = Lab(tmp_path / "killed", models=MODELS)
    endpoint = serve(plan=plan)
    options = (*LIVE[:-1], "--at-once=1")
    for stage, hangs in zip(("unary", "pairwise"), hanging, strict=True):
        process = killed.start(stage, *options, environment=endpoint.environment)
        assert hangs.wait(60)
        process.kill()
        process.wait()
        assert not (killed.run / stage).exists()
        if stage == "unary":
            killed.elicit(*options, stages=("unary", "consensus", "evidence"))
    release.set()
    killed.elicit(*options)

    answered = [body for number, body in enumerate(bodies(endpoint)) if number not in halts]
    assert len(set(answered)) == len(answered) == asked
    assert killed.bundle() == uninterrupted.bundle()


def test_a_record_replays_to_the_same_bundle_without_an_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: tuple[Lab, Endpoint]
) -> None:
    live, endpoint = whole
    lab, asked = copy_of(live, tmp_path), len(endpoint.asked)
    for name, value in endpoint.environment.items():  # where nobody answers any more
        monkeypatch.setenv(name, value)
    lab.elicit(*LIVE)
    assert lab.bundle() == live.bundle()
    assert len(endpoint.asked) == asked
    for name in PATHS:
        monkeypatch.delenv(name)
    lab.elicit()
    assert lab.bundle() == live.bundle()


def test_the_bundle_names_models_prompts_and_counts(whole: tuple[Lab, Endpoint]) -> None:
    lab, _ = whole
    header = lab.bundle()["bundle.yaml"]
    assert "name: small-2of3" in header
    assert "model: model-one, model-three, model-two, scripted-test-model" in header
    assert re.search(r"prompts: pairwise [0-9a-f]{12}, unary [0-9a-f]{12}", header)
    pairs = pd.read_csv(lab.run / "pairwise" / "pairs.csv")
    assert f"pairs_unclear: {int((pairs['sign'] == 0).sum())}" in header


def test_each_voter_is_asked_at_its_own_address_with_its_own_key_and_the_record_names_it(
    tmp_path: Path, serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = serve(), serve()
    own = {"model": "model-two", "address": one.url, "key": "OTHER_KEY"}
    lab = Lab(tmp_path, phenotypes=("fever",), voters=["a", "b"], models={"a": "model-one", "b": own}, same_model=False)
    assert "the environment, OTHER_KEY: found nothing" in refused(lab, *LIVE)
    monkeypatch.setenv("OTHER_KEY", KEY)
    lab.elicit(*LIVE, stages=("unary",))
    assert [asked.document["model"] for asked in one.asked] == ["model-two"]
    assert [asked.document["model"] for asked in other.asked] == ["model-one"]
    entries = {entry.question.run: entry.endpoint for entry in Record(lab.record).entries()}
    assert entries == {"a": other.url, "b": one.url}


def test_voters_that_are_one_model_are_refused_before_any_call_and_on_replay(tmp_path: Path, serve) -> None:
    endpoint = serve()
    alike = Lab(tmp_path / "alike", phenotypes=("fever",), same_model=False)
    assert "found r1, r2, r3 are all scripted-test-model at http" in refused(alike, *LIVE)
    assert not endpoint.asked
    told = Lab(tmp_path / "told", phenotypes=("fever",))
    told.elicit(*LIVE)
    assert "The voters are runs of one model" in " ".join(told.bundle()["bundle.yaml"].split())
    alike.record = told.record
    assert "expected voters that differ" in refused(alike)


def test_a_live_run_needs_a_cap_or_says_that_it_wants_none(tmp_path: Path, serve) -> None:
    lab = Lab(tmp_path, phenotypes=("fever",))
    endpoint = serve()
    assert "no cap on what it may use" in refused(lab, "--live")
    assert "the cap on money: found no prices" in refused(lab, "--live", "--money=1")
    assert not endpoint.asked
    lab.elicit("--live", "--no-caps", stages=("unary",))
    assert len(endpoint.asked) == 3


def test_the_estimate_is_said_before_anything_is_asked(tmp_path: Path, serve) -> None:
    lab = Lab(tmp_path, phenotypes=("fever",))
    serve()
    said = lab.elicit(*LIVE, "--prompt-price=1", "--answer-price=2", stages=("unary",))["unary"]
    tokens = r"[\d,]+ \+ [\d,]+ tokens of prompts and answers, 0\.\d\d USD\n"
    assert re.match(rf"scripted-test-model, r1: at most 1 calls, {tokens}.*/record has used 1 calls, {tokens}", said)


def test_caps_count_what_earlier_runs_have_used(tmp_path: Path, serve) -> None:
    lab = Lab(tmp_path)
    endpoint = serve()
    for calls in (4, 6):
        message = refused(lab, "--live", f"--calls={calls}", "--at-once=1")
        assert f"the cap on calls: found up to {calls + 1} with the next call" in message
        assert len(endpoint.asked) == calls
    assert not lab.run.exists()


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (llm_faults.refused, "refused"),
        (llm_faults.malformed, "unparsable"),
        (llm_faults.missing_key, "unparsable"),
        (llm_faults.truncated, "incomplete"),
    ],
)
def test_an_answer_that_is_none_stops_the_stage_with_its_count(tmp_path: Path, serve, fault, outcome: str) -> None:
    lab = Lab(tmp_path, manner={"answers": 2})
    serve(plan=lambda _, document: fault if "rectal" in document["messages"][1]["content"] else None)
    message = refused(lab, *LIVE)
    assert f"no answer to 3 of 9 questions (3 {outcome}); first rectal_bleeding" in message
    assert not (lab.run / "unary").exists()


def test_the_terminal_says_why_questions_have_no_answer_once_for_each_kind(tmp_path: Path, serve) -> None:
    lab = Lab(tmp_path, models=MODELS, manner={"calls": 1, "answers": 1})

    def plan(number: int, document: Document) -> llm_server.Fault | None:
        if "rectal" in document["messages"][1]["content"]:
            return llm_faults.refused
        body = f"no memory \x1b[2J left for slot {number}".encode()
        return lambda reply, _: replace(reply, status=500, body=body) if "one" in document["model"] else reply

    serve(plan=plan)
    said = CliRunner().invoke(app, lab.command("unary", *LIVE)).output
    ((count, reason),) = re.findall(r"^(\d) failed: HTTP status 500: no memory (.*)$", said, re.MULTILINE)
    others = len(pd.read_csv(lab.study / "phenotypes.csv")) - 1
    assert (int(count), reason[:18]) == (others, "[2J left for slot ")
    assert reason.endswith(", run r1)")
    assert said.count("1 refused: I cannot help with medical questions. (first: unary rectal_bleeding, run r") == 3


def test_pairs_without_an_answer_never_become_zeros(tmp_path: Path, serve) -> None:
    lab = Lab(tmp_path, phenotypes=("fever",), manner={"answers": 1})
    pairwise = "Gene 2: "
    serve(plan=lambda _, document: llm_faults.refused if pairwise in document["messages"][1]["content"] else None)
    message = refused(lab, *LIVE, stages=("unary", "consensus", "evidence", "pairwise"))
    assert "no answer to 15 of 15 questions (15 refused)" in message
    assert not (lab.run / "pairwise").exists()
    # The record says the same when it is replayed.
    assert "15 refused" in refused(lab, stages=("pairwise",))


def test_an_answer_on_another_phenotype_is_asked_for_again(tmp_path: Path, serve) -> None:
    lab = Lab(tmp_path, phenotypes=("chronic_diarrhea",), voters=["r1", "r2"])
    wrong = llm_faults.says(scripted_text("constipation"))
    endpoint = serve(edited(lambda answer, _: answer.update(phenotype="Chronic Diarrhea (loose)")), [wrong])
    lab.elicit("--live", "--calls=20", "--at-once=1", stages=("unary",))
    assert len(endpoint.asked) == 3
    asked = pd.read_csv(lab.run / "unary" / "asked.csv")
    assert asked["attempt"].tolist() == [2, 1]


def scripted_text(phenotype: str) -> str:
    system = "'title': 'UnaryAnswer'"
    messages = [{"role": "system", "content": system}, {"role": "user", "content": f"Phenotype: {phenotype}"}]
    return scripted({"model": "m", "messages": messages})


def test_genes_without_a_symbol_are_dropped_with_the_reason_and_the_others_count(tmp_path: Path, serve) -> None:
    def spoil(answer: dict, _: Document) -> None:
        if "genes" in answer:
            answer["genes"][0]["gene_symbol"] = "Interleukin 8"
            answer["genes"][1]["gene_symbol"] += " "

    lab = Lab(tmp_path, phenotypes=("fever",))
    serve(edited(spoil))
    lab.elicit(*LIVE)
    dropped = lab.bundle()["dropped"].splitlines()
    assert dropped[1:] == [
        f"fever,Interleukin 8,run {run}: no symbol in the form of HGNC" for run in ("r1", "r2", "r3")
    ]
    assert len(pd.read_csv(lab.run / "bundle" / "unary.csv")) == 5


def test_with_the_evidence_filter_a_gene_needs_a_reference_that_was_retrieved(
    tmp_path: Path, serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cite(answer: dict, _: Document) -> None:
        for place, gene in enumerate(answer.get("genes", ())):
            gene["reference_indices"] = [[1], [2, 9], [9], []][min(place, 3)]
            gene["evidence_source"] = "literature" if place < 3 else "model_knowledge"

    lab = Lab(tmp_path, phenotypes=("fever",), abstracts=2, references=True)
    one, other = [gene["gene_symbol"] for gene in json.loads(scripted_text("fever"))["genes"]][:2]
    (lab.study / "aliases.csv").write_text(f"feature,alias\n{other},mucus maker\n")
    told = f"{one} and a mucus-maker, the mucus maker, in fever of IBD"
    articles = [article(f"9900000{n}", f"Fever in IBD, {n}", f"{told}, {n}.") for n in (1, 2, 3)]
    with literature(*articles) as site:
        monkeypatch.setenv("AFA_EUROPEPMC_URL", site.url)
        serve(edited(cite))
        said = lab.elicit(*LIVE)
    live = lab.bundle()
    named = pd.read_csv(lab.run / "unary" / "named.csv", dtype=str, keep_default_na=False)
    assert named["references"].tolist()[:4] == ["1", "2", "", ""]
    assert "6 of 12 citations were not retrieved" in said["unary"]
    reasons = [line.rsplit(",", 1)[1] for line in live["dropped"].splitlines()[1:]]
    assert sorted(reasons) == [
        "no supported reference (3 x not retrieved)",
        *["no supported reference (3 x the answer says model_knowledge)"] * 3,
    ]
    judged = pd.read_csv(lab.run / "evidence" / "references.csv", dtype=str, keep_default_na=False)
    assert set(judged.loc[judged["verdict"] == "supports", "gene"]) == {one, other}
    assert len(pd.read_csv(lab.run / "bundle" / "unary.csv")) == 2

    lab.elicit()
    assert lab.bundle() == live
    searches = list((lab.record / "retrieved/searches/pubmed").rglob("*.json"))
    for search in searches:
        content = json.loads(search.read_text())
        search.write_text(json.dumps({**content, "abstracts": content["abstracts"][1:]}))
    assert "an answer to another wording, with other abstracts" in refused(lab)
    for search in searches:
        search.unlink()
    assert "no search of pubmed" in refused(lab)


def test_the_key_is_in_no_log_table_store_or_error(
    tmp_path: Path, serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_LOG", "debug")
    plan = {
        0: llm_faults.repeats_key,
        1: llm_faults.server_error,
        2: llm_faults.rate_limited("0"),
        3: llm_faults.slow(0),
    }
    lab = Lab(tmp_path, phenotypes=("fever",))
    texts = []
    with caplog.at_level(logging.DEBUG):
        endpoint = serve(plan=lambda number, _: plan.get(number))
        texts += lab.elicit(*LIVE).values()
        serve(plan=lambda _, __: llm_faults.forbidden)
        other = Lab(tmp_path / "other", phenotypes=("fever",))
        texts.append(refused(other, *LIVE))
        for command in (["estimate", str(lab.study)], ["account", str(lab.record)]):
            texts.append(CliRunner().invoke(app, ["elicit", *command]).output)
    assert caplog.text
    assert f"Bearer {KEY}" in {asked.headers["authorization"] for asked in endpoint.asked}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 12
    for text in [caplog.text, *texts, *(path.read_bytes().decode() for path in files)]:
        assert KEY not in text


def test_a_live_run_refuses_to_write_among_answers_of_an_unknown_model(tmp_path: Path, serve) -> None:
    lab = Lab(tmp_path, phenotypes=("fever",))
    lab.record.mkdir()
    entry = {
        "question": {"prompt": "unary", "values": {"phenotype": "fever"}, "run": "r1"},
        **dict.fromkeys(("model", "parameters", "prompt_digest", "messages", "time", "tokens"), "unknown"),
        "outcome": "answered",
        "raw": "{}",
        "detail": "",
        "attempt": 1,
    }
    (lab.record / "old.jsonl").write_text(json.dumps(entry) + "\n")
    endpoint = serve()
    assert "found a record made elsewhere; expected a record of live answers" in refused(lab, *LIVE)
    assert not endpoint.asked


def test_two_peoples_records_merge_to_the_bundle_of_one(tmp_path: Path, serve, whole: tuple[Lab, Endpoint]) -> None:
    both, _ = whole
    serve()
    one, other = Lab(tmp_path / "one", models=MODELS), copy_of(both, tmp_path / "other")
    one.elicit(*LIVE, stages=("unary", "consensus", "evidence"))
    for path in other.record.glob("*.jsonl"):
        lines = [line for line in path.read_text().splitlines(True) if '"pairwise"' in line]
        path.write_text("".join(lines))
    for name, records in (("ab", (one.record, other.record)), ("ba", (other.record, one.record))):
        arguments = ["elicit", "merge", *map(str, records), "--out", str(tmp_path / name)]
        assert CliRunner().invoke(app, arguments).exit_code == 0
    assert (tmp_path / "ab/merged.jsonl").read_bytes() == (tmp_path / "ba/merged.jsonl").read_bytes()
    assert (tmp_path / "ab/merged.wordings").read_bytes() == (tmp_path / "ba/merged.wordings").read_bytes()
    one.record = tmp_path / "ab"
    one.elicit()
    assert one.bundle() == both.bundle()


def test_the_estimate_of_pairs_is_exact_once_genes_are_named(tmp_path: Path, serve) -> None:
    lab = Lab(tmp_path, models=MODELS)
    endpoint = serve()
    arguments = ["elicit", "estimate", str(lab.study), "--record", str(lab.record)]
    before = CliRunner().invoke(app, arguments).output
    assert re.search(r"unary +9 +9 ", before)
    assert re.search(
        r"pairwise +each\* +108 +108 .*at most", before
    )  # 3 phenotypes, 9 genes each: 3 voters, 6 genes, 2 agree
    lab.elicit(*LIVE, stages=("unary", "consensus", "evidence"))
    asked = len(endpoint.asked)
    pairs = pd.read_csv(lab.run / "evidence" / "kept.csv").groupby("phenotype").size()
    expected = int((pairs * (pairs - 1) // 2).sum())
    after = CliRunner().invoke(app, arguments).output
    assert re.search(r"unary +9 +0 ", after)
    assert re.search(rf"pairwise +each\* +{expected} +{expected} .*as counted", after)
    assert len(endpoint.asked) == asked
    lab.elicit(*LIVE)
    assert len(endpoint.asked) == asked + expected
    account = CliRunner().invoke(app, ["elicit", "account", str(lab.record)]).output
    assert re.search(rf"pairwise +pairs +scripted-test-model +answered +{expected} ", account)
    nowhere = CliRunner().invoke(app, ["elicit", "account", str(lab.record / "nowhere")])
    assert isinstance(nowhere.exception, ElicitationError)
