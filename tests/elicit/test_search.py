"""Europe PMC by its documented form, what is left out of its replies, and the pace of asking."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from elicit.literature_server import FakeClock, Reply, Site, article, preprint, serve
from elicit.papers import PLAIN, QUERY, europepmc

from afa.elicit.search import EuropePmc, Keywords, Query, SearchResult, phrase_text, query_on, read_keywords
from afa.errors import ElicitationError
from afa.io.web import RATE_MARGIN, Web


def found_of(record: dict[str, Any]) -> SearchResult:
    with serve(record) as site:
        return europepmc(site).search("pubmed" if record["source"] == "MED" else "preprint", QUERY, 5)


def test_an_article_keeps_its_headings_and_loses_its_markup(site: Site) -> None:
    found = europepmc(site).search("pubmed", QUERY, 5)
    structured, plain_one = found.abstracts
    assert structured.title == "Loss of MUC2 in colitis & fistula"
    assert structured.text == "Objective: To study MUC2.\nResults: It fell (padj<0.01; r2=0.4)."
    assert (structured.source, structured.id, structured.year, structured.journal, structured.doi) == (
        "pubmed",
        "99000001",
        2019,
        "Gut",
        "10.1136/gutjnl-99-1",
    )
    assert (plain_one.text, plain_one.doi) == ("Die Schleimschicht fehlt; IL-1β ≥ 2× und Behçet.", "")
    assert (found.total, dict(found.left_out)) == (3, {"no abstract": 1})


def test_a_preprint_keeps_its_headings_and_loses_its_markup(site: Site) -> None:
    found = europepmc(site).search("preprint", QUERY, 5)
    [abstract] = found.abstracts
    assert abstract.text == "Background: MUC2 is <made> in goblet cells.\nResults: It fell 2×."
    assert abstract.title == "MUC2 single cells of colitis"
    assert (abstract.source, abstract.id, abstract.doi) == (
        "preprint",
        "10.1101/2021.03.04.99",
        "10.1101/2021.03.04.99",
    )
    assert (abstract.year, abstract.journal, found.total) == (2021, "bioRxiv", 1)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (article("PPR12", "MUC2 colitis", "MUC2."), "another form"),
        (article("99000004", "MUC2 colitis", "MUC2.", kind="Retracted Publication"), "retracted or withdrawn"),
        (article("99000004", "MUC2 colitis", "MUC2.", kind="retraction of publication"), "retracted or withdrawn"),
        (preprint("12345", "MUC2 colitis", "MUC2."), "another form"),
        (preprint("PPR900003", "MUC2 colitis", None), "no abstract"),
        (preprint("PPR900003", "MUC2 colitis", "<p> </p>"), "no abstract"),
        (
            preprint("PPR900004", "MUC2 colitis", "MUC2.", pubTypeList={"pubType": "Preprint-Withdrawal"}),
            "retracted or withdrawn",
        ),
    ],
)
def test_a_record_that_is_no_abstract_of_its_source_is_left_out_and_counted(
    record: dict[str, Any], reason: str
) -> None:
    found = found_of(record)
    assert (found.abstracts, dict(found.left_out)) == ((), {reason: 1})


def test_records_without_their_parts_are_read_as_far_as_they_go(site: Site) -> None:
    bare = {"id": "99000001", "source": "MED", "abstractText": "MUC2.", "pubTypeList": 3, "journalInfo": []}
    records = [bare, "a text", {"source": "PPR"}]
    site.replies = [Reply(json.dumps({"hitCount": 3, "resultList": {"result": records}}).encode())]
    found = europepmc(site).search("pubmed", QUERY, 3)
    [abstract] = found.abstracts
    assert (abstract.title, abstract.year, abstract.journal) == ("(no title)", None, "")
    assert dict(found.left_out) == {"another form": 2}


def test_no_more_is_asked_for_than_wanted(site: Site) -> None:
    found = europepmc(site).search("pubmed", QUERY, 1)
    assert (len(found.abstracts), found.total) == (1, 3)
    assert [request["pageSize"] for request in site.requests] == ["1"]


def test_records_come_page_by_page_until_there_are_enough() -> None:
    with serve(*(preprint(f"PPR90000{n}", "MUC2 in colitis", f"MUC2 {n}.") for n in range(7))) as site:
        site.page = 3
        found = europepmc(site).search("preprint", QUERY, 5)
        assert [each.id for each in found.abstracts] == [f"PPR90000{n}" for n in range(5)]
        assert [(f["cursorMark"], f["pageSize"]) for f in site.requests] == [("*", "5"), ("Ao3", "2")]


def test_europe_pmc_stands_where_the_environment_says(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFA_EUROPEPMC_URL", site.url)
    assert len(EuropePmc().search("preprint", QUERY, 5).abstracts) == 1


def test_control_characters_in_json_are_read(site: Site) -> None:
    site.replies = [Reply(b'{"hitCount": 0, "resultList": {"result": []}, "queryString": "\t"}')]
    assert europepmc(site).search("pubmed", QUERY, 5) == SearchResult(0, (), {})


def test_requests_keep_the_distance_of_three_a_second() -> None:
    clock = FakeClock()
    with serve(PLAIN) as site:
        source, start = europepmc(site, clock), clock.now
        for _ in range(4):
            source.search("pubmed", QUERY, 5)
    assert clock.now - start == pytest.approx(3 * RATE_MARGIN / 3)


def test_threads_share_one_pace() -> None:
    pace, times = Web(50), list[float]()

    def run() -> None:
        for _ in range(3):
            pace.wait()
            times.append(time.monotonic())

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A thread may be late, which brings it nearer to the next one, but all twelve take eleven distances.
    assert max(times) - min(times) >= 11 * RATE_MARGIN / 50 - 0.02


RESOURCES = Path(__file__).parents[2] / "resources" / "elicitation"
KEYWORDS = Keywords({"perianal_disease": ["perianal fistula", "anal fistula"], "IBD": ["Crohn's disease"]})


def test_a_known_phenotype_expands_to_its_keywords() -> None:
    assert KEYWORDS.phrases("perianal_disease") == ("perianal fistula", "anal fistula")
    assert KEYWORDS.phrases("Perianal disease") == KEYWORDS.phrases("perianal_disease")


def test_an_unknown_phenotype_expands_to_its_own_words() -> None:
    assert KEYWORDS.phrases("chronic_diarrhea") == ("chronic diarrhea",)


def test_every_phenotype_of_the_record_and_its_disease_have_keywords() -> None:
    known = {phrase_text(name).casefold() for name in pd.read_csv(RESOURCES / "keywords.csv")["name"]}
    names = [*pd.read_csv(RESOURCES / "phenotypes.csv")["phenotype"], "inflammatory bowel disease"]
    assert [name for name in names if phrase_text(name).casefold() not in known] == []


def test_keywords_name_no_gene_of_the_record() -> None:
    # A gene among the keywords would decide which genes the retrieved abstracts speak of.
    rows = pd.read_csv(RESOURCES / "keywords.csv")
    genes = {path.stem: pd.read_json(path, typ="series")["genes"] for path in RESOURCES.glob("raw/unary/r1/*.json")}
    symbols = {gene["gene_symbol"] for listed in genes.values() for gene in listed}
    assert len(symbols) > 100
    assert symbols & set(rows["keyword"]) <= {"CRP"}


def test_a_source_is_asked_for_in_titles_and_abstracts() -> None:
    query = query_on([["MUC2"], ["HLA-DRB1"]], ["anal fistula", "perianal fistula"], ["Crohn's disease"])
    groups = ['(TITLE_ABS:"MUC2")', '(TITLE_ABS:"HLA-DRB1")']
    groups += ['(TITLE_ABS:"anal fistula" OR TITLE_ABS:"perianal fistula")', '(TITLE_ABS:"Crohn\'s disease")']
    assert query.written("preprint") == " AND ".join([*groups, "(SRC:PPR)"])
    assert query.written("pubmed") == " AND ".join([*groups, "(SRC:MED)"])


def test_a_name_cannot_change_the_question() -> None:
    hostile = 'MUC2" OR "cancer" SRC:MED (x) \\ *'
    assert phrase_text(hostile) == "MUC2 OR cancer SRC MED x"
    written = query_on([[hostile]], [], ["IBD"]).written("preprint")
    assert written == '(TITLE_ABS:"MUC2 OR cancer SRC MED x") AND (TITLE_ABS:"IBD") AND (SRC:PPR)'


def test_a_name_without_letters_is_refused() -> None:
    with pytest.raises(ElicitationError, match="letters or digits"):
        query_on([['""'], ["TFF3"]], [], ["IBD"])


def test_phrases_stand_once() -> None:
    assert Query((("a", "b"), ("b", "c"))).phrases == ("a", "b", "c")


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ("name,word\nx,y\n", "keyword"),
        ("name,keyword\nx,\n", "line 2, column keyword"),
        ("name,keyword\n,y\n", "line 2, column name"),
    ],
)
def test_a_faulty_table_of_keywords_is_an_error_that_names_the_row(tmp_path: Path, rows: str, found: str) -> None:
    path = tmp_path / "keywords.csv"
    path.write_text(rows)
    with pytest.raises(ElicitationError, match=found):
        read_keywords(path)


def test_a_table_of_keywords_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ElicitationError, match=r"keywords\.csv"):
        read_keywords(tmp_path / "keywords.csv")
