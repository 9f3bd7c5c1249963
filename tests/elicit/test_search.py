"""PubMed and Europe PMC by their documented forms, what is left out of their replies, and the pace of asking."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pandas as pd
import pytest
from elicit.literature_server import (
    BOOK,
    EFETCH,
    ESEARCH,
    EUROPEPMC,
    Article,
    FakeClock,
    Reply,
    Site,
    article_set,
    preprint,
    serve,
)
from elicit.papers import PLAIN, QUERY, SECRET, STRUCTURED, europepmc, pubmed

from afa.elicit.search import (
    EMAIL,
    KEY,
    PUBMED_URL,
    EuropePmc,
    Found,
    Keywords,
    PubMed,
    Query,
    plain,
    query_on,
    read_keywords,
)
from afa.errors import ElicitationError
from afa.io.web import SLACK, Web


def fetched(article: Article) -> Found:
    with serve([article]) as site:
        return pubmed(site).search(QUERY, 5)


def test_a_structured_abstract_keeps_its_labels_and_loses_its_markup() -> None:
    [abstract] = fetched(STRUCTURED).abstracts
    assert abstract.title == "Loss of MUC2 in colitis & fistula"
    assert abstract.text == "OBJECTIVE: To study MUC2.\nRESULTS: It fell (padj<0.01; r2=0.4).\nAs others saw."
    assert (abstract.source, abstract.id, abstract.year, abstract.journal) == ("pubmed", "99000001", 2019, "Gut")


def test_the_doi_is_that_of_the_record_and_not_of_its_references() -> None:
    assert fetched(STRUCTURED).abstracts[0].doi == "10.1136/gutjnl-99-1"
    assert fetched(PLAIN).abstracts[0].doi == ""


def test_letters_beyond_ascii_arrive_as_they_are() -> None:
    assert fetched(PLAIN).abstracts[0].text == "Die Schleimschicht fehlt; IL-1β ≥ 2× und Behçet."


def test_a_record_without_an_abstract_is_left_out_and_counted(site: Site) -> None:
    found = pubmed(site).search(QUERY, 5)
    assert [each.id for each in found.abstracts] == ["99000001", "99000002"]
    assert (found.total, dict(found.left_out)) == (3, {"no abstract": 1})


@pytest.mark.parametrize("kind", ["Retracted Publication", "Retraction of Publication"])
def test_a_retracted_article_is_left_out_and_counted(kind: str) -> None:
    found = fetched(Article("99000004", "MUC2 in colitis", [("", "MUC2.")], kinds=("Journal Article", kind)))
    assert (found.abstracts, dict(found.left_out)) == ((), {"retracted or withdrawn": 1})


@pytest.mark.parametrize(
    ("date", "year"),
    [("<MedlineDate>1998 Dec-1999 Jan</MedlineDate>", 1998), ("<Year>2020</Year>", 2020), ("<Season>x</Season>", None)],
)
def test_the_year_is_read_in_both_of_its_forms(date: str, year: int | None) -> None:
    assert fetched(Article("99000005", "MUC2 in colitis", [("", "MUC2.")], date=date)).abstracts[0].year == year


def test_a_book_and_a_record_that_does_not_come_are_counted(site: Site) -> None:
    site.replies[EFETCH] = [Reply(article_set([PLAIN.xml(), BOOK.format("99000001")]))]
    found = pubmed(site).search(QUERY, 5)
    assert ([each.id for each in found.abstracts], dict(found.left_out)) == (
        ["99000002"],
        {"another form": 1, "no record": 1},
    )


def test_a_record_that_was_not_asked_for_is_not_taken(site: Site) -> None:
    stranger = Article("99000099", "Other", [("", "Other.")])
    site.replies[EFETCH] = [Reply(article_set([stranger.xml()]))]
    found = pubmed(site).search(QUERY, 1)
    assert (found.abstracts, dict(found.left_out)) == ((), {"no record": 1})


def test_formulas_in_an_abstract_are_one_line_of_text() -> None:
    formula = '<mml:math xmlns:mml="http://www.w3.org/1998/Math/MathML">\n <mml:mi>He</mml:mi>\n</mml:math>'
    found = fetched(Article("99000006", "MUC2 in colitis", [("", f"With {formula} gas.")]))
    assert found.abstracts[0].text == "With He gas."


def test_no_records_are_asked_for_where_nothing_is_found(site: Site) -> None:
    assert pubmed(site).search(Query((("nothing",),)), 5) == Found(0, (), {})
    assert site.asked(EFETCH) == []


def test_no_more_is_asked_for_than_wanted(site: Site) -> None:
    found = pubmed(site).search(QUERY, 1)
    assert (len(found.abstracts), found.total) == (1, 3)
    assert site.asked(ESEARCH)[0]["retmax"] == "1"
    assert site.asked(EFETCH)[0]["id"] == "99000001"


def test_many_records_are_fetched_in_parts() -> None:
    articles = [Article(str(99000000 + n), "MUC2 in colitis", [("", "MUC2.")]) for n in range(250)]
    with serve(articles) as site:
        assert len(pubmed(site).search(QUERY, 250).abstracts) == 250
        assert [len(fields["id"].split(",")) for fields in site.asked(EFETCH)] == [200, 50]


def test_every_request_says_who_asks_and_none_shows_it_in_its_address(site: Site) -> None:
    pubmed(site, key=SECRET).search(QUERY, 5)
    for _, fields in site.requests:
        assert (fields["tool"], fields["email"], fields["api_key"]) == ("afa", "someone@example.org", SECRET)
    assert not any(SECRET in address or "example.org" in address for address in site.addresses)


def test_without_a_key_none_is_sent(site: Site) -> None:
    pubmed(site).search(QUERY, 5)
    assert all("api_key" not in fields for _, fields in site.requests)


def test_the_environment_gives_address_key_and_mail(site: Site) -> None:
    PubMed.from_environment({EMAIL: "a@example.org", KEY: SECRET, PUBMED_URL: site.pubmed + "/"}).search(QUERY, 5)
    assert {fields["api_key"] for _, fields in site.requests} == {SECRET}
    with pytest.raises(ElicitationError, match=EMAIL):
        PubMed.from_environment({KEY: SECRET})


def test_a_preprint_keeps_its_headings_and_loses_its_markup(site: Site) -> None:
    found = europepmc(site).search(QUERY, 5)
    [abstract] = found.abstracts
    assert abstract.text == "Background: MUC2 is <made> in goblet cells.\nResults: It fell 2×."
    assert abstract.title == "MUC2 single cells of colitis"
    assert (abstract.source, abstract.id, abstract.doi) == (
        "preprint",
        "10.1101/2021.03.04.99",
        "10.1101/2021.03.04.99",
    )
    assert (abstract.year, abstract.journal, found.total) == (2021, "bioRxiv", 1)


def test_preprints_come_page_by_page_until_there_are_enough() -> None:
    preprints = [preprint(f"PPR90000{n}", "MUC2 in colitis", f"MUC2 {n}.") for n in range(7)]
    with serve(preprints=preprints) as site:
        site.page = 3
        found = europepmc(site).search(QUERY, 5)
        assert [each.id for each in found.abstracts] == [f"PPR90000{n}" for n in range(5)]
        assert [(f["cursorMark"], f["pageSize"]) for f in site.asked(EUROPEPMC)] == [("*", "5"), ("Ao3", "2")]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (preprint("PPR900002", "MUC2 colitis", "MUC2.", source="MED"), "another form"),
        (preprint("12345", "MUC2 colitis", "MUC2."), "another form"),
        (preprint("PPR900003", "MUC2 colitis", None), "no abstract"),
        (preprint("PPR900003", "MUC2 colitis", "<p> </p>"), "no abstract"),
        (
            preprint(
                "PPR900004", "MUC2 colitis", "MUC2.", pubTypeList={"pubType": ["Preprint", "Preprint-Withdrawal"]}
            ),
            "retracted or withdrawn",
        ),
    ],
)
def test_a_record_that_is_no_preprint_with_an_abstract_is_left_out_and_counted(
    record: dict[str, object], reason: str
) -> None:
    with serve(preprints=[record]) as site:
        found = europepmc(site).search(QUERY, 5)
    assert (found.abstracts, dict(found.left_out)) == ((), {reason: 1})


def test_a_record_without_its_parts_is_left_out_and_counted(site: Site) -> None:
    bare = "<PubmedArticle><MedlineCitation><PMID>99000001</PMID></MedlineCitation></PubmedArticle>"
    site.replies[EFETCH] = [Reply(article_set([bare]))]
    assert dict(pubmed(site).search(QUERY, 1).left_out) == {"another form": 1}


def test_europe_pmc_stands_where_the_environment_says(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFA_EUROPEPMC_URL", site.europepmc)
    assert len(EuropePmc().search(QUERY, 5).abstracts) == 1


def test_numbers_that_are_none_do_not_reach_the_next_request(site: Site) -> None:
    site.replies[ESEARCH] = [Reply(b'{"esearchresult": {"count": "1", "idlist": ["1&db=gene"]}}')]
    with pytest.raises(ElicitationError, match="other things than numbers"):
        pubmed(site).search(QUERY, 5)
    assert site.asked(EFETCH) == []


def test_control_characters_in_json_are_read(site: Site) -> None:
    site.replies[ESEARCH] = [
        Reply(b'{"esearchresult": {"count": "1", "idlist": ["99000002"], "querytranslation": "\t"}}')
    ]
    assert [each.id for each in pubmed(site).search(QUERY, 5).abstracts] == ["99000002"]


@pytest.mark.parametrize(("key", "per_second"), [("", 3), (SECRET, 10)])
def test_requests_keep_the_distance_that_the_limit_asks_for(key: str, per_second: int) -> None:
    clock = FakeClock()
    with serve([PLAIN]) as site:
        source, start = pubmed(site, clock, key), clock.now
        for _ in range(per_second):
            source.search(QUERY, 5)
    # Two requests a search: the last of 2n starts 2n - 1 distances after the first.
    assert clock.now - start == pytest.approx((2 * per_second - 1) * SLACK / per_second)


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
    assert max(times) - min(times) >= 11 * SLACK / 50 - 0.02


RESOURCES = Path(__file__).parents[2] / "resources" / "elicitation"
KEYWORDS = Keywords({"perianal_disease": ["perianal fistula", "anal fistula"], "IBD": ["Crohn's disease"]})


def test_a_known_phenotype_expands_to_its_keywords() -> None:
    assert KEYWORDS.phrases("perianal_disease") == ("perianal fistula", "anal fistula")
    assert KEYWORDS.phrases("Perianal disease") == KEYWORDS.phrases("perianal_disease")


def test_an_unknown_phenotype_expands_to_its_own_words() -> None:
    assert KEYWORDS.phrases("chronic_diarrhea") == ("chronic diarrhea",)


def test_every_phenotype_of_the_record_and_its_disease_have_keywords() -> None:
    known = {plain(name).casefold() for name in pd.read_csv(RESOURCES / "keywords.csv")["name"]}
    names = [*pd.read_csv(RESOURCES / "phenotypes.csv")["phenotype"], "inflammatory bowel disease"]
    assert [name for name in names if plain(name).casefold() not in known] == []


def test_keywords_name_no_gene_of_the_record() -> None:
    # A gene among the keywords would decide which genes the retrieved abstracts speak of.
    rows = pd.read_csv(RESOURCES / "keywords.csv")
    genes = {path.stem: pd.read_json(path, typ="series")["genes"] for path in RESOURCES.glob("raw/unary/r1/*.json")}
    symbols = {gene["gene_symbol"] for listed in genes.values() for gene in listed}
    assert len(symbols) > 100
    assert symbols & set(rows["keyword"]) <= {"CRP"}


def test_pubmed_is_asked_for_phenotype_and_disease_in_title_or_abstract() -> None:
    query = query_on((), KEYWORDS.phrases("perianal_disease"), KEYWORDS.phrases("IBD"))
    expected = '("perianal fistula"[tiab] OR "anal fistula"[tiab]) AND ("Crohn\'s disease"[tiab])'
    assert PubMed("a@example.org").written(query) == expected


def test_europe_pmc_is_asked_for_preprints_only() -> None:
    query = query_on([["MUC2"], ["HLA-DRB1"]], ["anal fistula"], ["IBD"])
    words = ["MUC2", "HLA-DRB1", "anal fistula", "IBD"]
    assert EuropePmc().written(query) == " AND ".join([*(f'(TITLE_ABS:"{word}")' for word in words), "(SRC:PPR)"])


def test_a_name_cannot_change_the_question() -> None:
    hostile = 'MUC2"[tiab] OR "cancer" SRC:MED (x) \\ *'
    assert plain(hostile) == "MUC2 tiab OR cancer SRC MED x"
    written = PubMed("a@example.org").written(query_on([[hostile], ["TFF3"]], [], ["IBD"]))
    assert written == '("MUC2 tiab OR cancer SRC MED x"[tiab]) AND ("TFF3"[tiab]) AND ("IBD"[tiab])'


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
