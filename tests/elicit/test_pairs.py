"""Three ways to ask for pairs: each by itself, all of an anchor in one question, and conditional probabilities."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest
from elicit import llm_faults, llm_server
from elicit.elicit_lab import Lab
from elicit.llm_script import scripted
from elicit.prompt_values import PAIR
from typer.testing import CliRunner

from afa.cli import app
from afa.elicit.answers import AnchorAnswer, beside_the_question, read_answer
from afa.elicit.search import query_on
from afa.errors import ElicitationError

LIVE = ("--live", "--calls=300", "--at-once=2")
PHENOTYPES = ("fever", "chill")
COUPLINGS = ["phenotype", "gene_a", "gene_b", "sign", "coupling", "lit_prob"]


def elicited(folder: Path, monkeypatch: pytest.MonkeyPatch, plan: llm_server.Plan = (), **settings: object):
    """A study that was elicited live, and what the server was asked for pairs."""
    lab = Lab(folder, phenotypes=PHENOTYPES, **settings)
    with llm_server.serve(scripted, plan) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        lab.elicit(*LIVE)
    return lab, [asked.document for asked in server.asked if b"Gene 1" in asked.body]


def pairs_of(lab: Lab) -> pd.DataFrame:
    return pd.read_csv(lab.run / "pairwise" / "pairs.csv")[COUPLINGS]


def test_pairs_by_anchor_give_the_couplings_that_single_questions_give_in_far_fewer_calls(
    tmp_path, monkeypatch
) -> None:
    each, singly = elicited(tmp_path / "each", monkeypatch)
    anchor, jointly = elicited(tmp_path / "anchor", monkeypatch, pairs="by_anchor")
    assert pairs_of(anchor).equals(pairs_of(each))
    genes = pd.read_csv(each.run / "evidence" / "kept.csv").groupby("phenotype").size()
    assert len(singly) == (genes * (genes - 1) // 2).sum()
    assert len(jointly) == (genes - 1).sum()
    for name in ("unary.csv", "pairwise.csv"):
        assert anchor.bundle()[name] == each.bundle()[name]
    assert "all pairs of an anchor gene were judged in one answer" in " ".join(anchor.bundle()["bundle.yaml"].split())
    live = anchor.bundle()
    anchor.elicit()
    assert anchor.bundle() == live


def test_the_estimate_shows_each_way_beside_the_study_s_own(tmp_path, monkeypatch) -> None:
    lab = Lab(tmp_path, phenotypes=PHENOTYPES, pairs="by_anchor")
    with llm_server.serve(scripted) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        lab.elicit(*LIVE, stages=("unary", "consensus", "evidence"))
    table = CliRunner().invoke(app, ["elicit", "estimate", str(lab.study)]).output
    rows = {line.split()[0]: line.split() for line in table.splitlines()}
    genes = pd.read_csv(lab.run / "evidence" / "kept.csv").groupby("phenotype").size()
    assert rows["pairwise"][1:4] == ["each", *[str((genes * (genes - 1) // 2).sum())] * 2]
    assert rows["anchor"][1:4] == ["by_anchor*", *[str((genes - 1).sum())] * 2]
    assert int(rows["anchor"][4]) < int(rows["pairwise"][4])


def test_conditional_probabilities_give_the_logarithm_of_their_ratio(tmp_path, monkeypatch) -> None:
    each, _ = elicited(tmp_path / "each", monkeypatch)
    lab, asked = elicited(tmp_path / "ratio", monkeypatch, pairs="conditional")
    assert len(asked) == len(pairs_of(each))
    pairs = pairs_of(lab)
    assert pairs["sign"].tolist() == pairs_of(each)["sign"].tolist()
    expected = {1: math.log(2), -1: math.log(0.25), 0: 0.0}
    assert pairs["coupling"].tolist() == pytest.approx([expected[sign] for sign in pairs["sign"]], abs=1e-4)
    potentials = pd.read_csv(lab.run / "bundle" / "pairwise.csv")["potential"]
    assert sorted(potentials) == sorted(pairs.loc[pairs["sign"] != 0, "coupling"])
    assert "ln of P(" in lab.bundle()["bundle.yaml"]


def an_answer(*genes: str, anchor: str = "A") -> AnchorAnswer:
    return read_answer(
        AnchorAnswer, json.dumps({"gene1": anchor, "pairs": [{**PAIR, "gene2": gene} for gene in genes]})
    )


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (an_answer("B", "C"), ""),
        (an_answer("C", "B"), ""),
        (an_answer("B"), "pairs: none with C"),
        (an_answer("B", "C", "D"), "pairs: D, not asked for or twice"),
        (an_answer("B", "C", "C"), "pairs: C, not asked for or twice"),
        (an_answer("B", "C", anchor="D"), "gene1: an answer on 'D'"),
    ],
)
def test_an_answer_of_an_anchor_has_every_pair_once(answer: AnchorAnswer, why: str) -> None:
    assert beside_the_question(answer, {"phenotype": "fever", "gene1": "A", "partners": "B C"}) == why


def test_a_pair_that_an_answer_leaves_out_is_asked_for_again_by_name(tmp_path, monkeypatch) -> None:
    def lacking(reply, document):
        answer = json.loads(reply.text)
        answer["pairs"].pop(0)
        return llm_faults.says(json.dumps(answer))(reply, document) if answer["pairs"] else reply

    lab, asked = elicited(
        tmp_path,
        monkeypatch,
        lambda number, document: (
            lacking if "Other genes" in str(document) and "last answer" not in str(document) else None
        ),
        pairs="by_anchor",
    )
    repeated = [document["messages"][1]["content"] for document in asked if "last answer" in str(document)]
    assert repeated
    assert all("Your last answer was not taken: pairs: none with " in text for text in repeated)
    assert (pd.read_csv(lab.run / "pairwise" / "asked.csv")["outcome"] == "answered").all()


def test_scope_exclusions_and_numbers_of_the_paper_stand_in_the_questions(tmp_path, monkeypatch) -> None:
    listed = {"scope": ["ENS", "GALT"], "exclusions": ["brain only", "lung only"], "bibliography": 4, "exactly": True}
    lab = Lab(tmp_path, phenotypes=("fever",), **listed)
    with llm_server.serve(scripted) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        lab.elicit(*LIVE)
    unary, pair = server.asked[0].document["messages"], server.asked[-1].document["messages"]
    assert "one or two sentences" in unary[0]["content"]
    assert "Genes: exactly 6. Snippets" in unary[1]["content"]
    assert "References: exactly 4.\n" in unary[1]["content"]
    assert "disease counts: ENS, GALT. Other organs do not: brain only, lung only." in pair[0]["content"]


def test_a_pair_is_searched_for_by_every_name_of_its_genes() -> None:
    query = query_on([("CXCL8", "IL-8", "interleukin 8"), ("OSM",)], (), ("IBD",))
    assert query.groups == (("CXCL8", "IL-8", "interleukin 8"), ("OSM",), ("IBD",))


def test_a_text_that_a_spreadsheet_would_run_is_quoted_in_tables_and_bundle(tmp_path, monkeypatch) -> None:
    def formula(reply, document):
        answer = json.loads(reply.text)
        if "supporting_text" in answer:
            answer["supporting_text"] = '=HYPERLINK("http://x")'
        for gene in answer.get("genes", ()):
            gene["mechanism_of_action"] = "@SUM(1)"
        return llm_faults.says(json.dumps(answer))(reply, document)

    lab, _ = elicited(tmp_path, monkeypatch, lambda number, document: formula)
    for path in [*lab.run.rglob("*.csv")]:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        cells = [cell for name in table for cell in table[name] if not cell.lstrip("+-").replace(".", "").isdigit()]
        assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))], path
    assert "'=HYPERLINK" in (lab.run / "bundle" / "pairwise.csv").read_text()


def test_a_consensus_that_keeps_nothing_stops_at_its_stage(tmp_path, monkeypatch) -> None:
    lab = Lab(tmp_path, phenotypes=("fever",), voters=["r1", "r2"], most_genes=1)

    def another(number, document):
        def named(reply, document):
            answer = json.loads(reply.text)
            answer["genes"] = [{**answer["genes"][0], "gene_symbol": f"GENE{number}"}]
            return llm_faults.says(json.dumps(answer))(reply, document)

        return named

    with llm_server.serve(scripted, another) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        lab.elicit(*LIVE, stages=("unary",))
    with pytest.raises(ElicitationError, match="the consensus: found no gene left of any phenotype"):
        lab.elicit(stages=("consensus",))
    assert not (lab.run / "consensus").exists()
