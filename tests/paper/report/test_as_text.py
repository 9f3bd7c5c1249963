"""Every line as text, and the page as text."""

import re
from pathlib import Path

import pytest
from runs import ATTACK, PARTS, finished_run, verdicts_of

from afa.errors import ReportError
from afa.evaluate.entrants import read_entrant
from afa.evaluate.long_tables import write_tables
from afa.paper.experiments.league import LeagueSettings, follow_field
from afa.paper.report.league import field_report_values
from afa.paper.report.page import report_html
from afa.paper.report.sections import counted

ROOT = Path(__file__).parents[3]


def test_counts_leave_out_what_has_nothing_to_reproduce():
    cells, claims = counted(verdicts_of())
    assert cells == ("numbers in its tables", {"within 2 points": 1, "another size": 1})
    assert claims == ("claims of its text", {"holds": 1, "reverses": 1, "another size": 1})


def test_every_line_but_those_with_nothing_to_reproduce_is_listed(tmp_path):
    run, texts = finished_run(tmp_path)
    page = report_html(run, PARTS, *texts, {})
    table = page[page.index('<table class="cards" id="lines">') :].partition("</table>")[0]
    assert re.findall(r'<td class="where">(?:<a href="#\w+">)?(\w+)', table) == ["tab_a", "tab_a", "c001", "c002"]
    assert re.findall(r'data-kind="(\w+)"', table) == ["cell", "cell", "claim", "claim"]
    assert "0.5 [0.4, 0.6]" in table
    assert "a &gt; b; by the second score" in table


def test_a_page_of_the_same_run_is_the_same_bytes(tmp_path):
    run, texts = finished_run(tmp_path)
    assert report_html(run, PARTS, *texts, {}) == report_html(run, PARTS, *texts, {})


def test_texts_are_escaped_and_links_to_other_files_are_not_kept(tmp_path):
    run, texts = finished_run(tmp_path)
    page = report_html(run, PARTS, *texts, {})
    assert ATTACK not in page
    assert 'href="errata.md"' not in page
    assert page.count("<script>") == 1


def test_a_chapter_of_our_own_begins_with_its_page(tmp_path):
    run, texts = finished_run(tmp_path)
    parts = PARTS | {"second": "Past the paper: second"}
    with pytest.raises(ReportError, match=r"past_the_paper\.md"):
        report_html(run, parts, *texts, {})
    (texts[1] / "past_the_paper.md").write_text("# Past it\n\nWhat *survives*.\n")
    page = report_html(run, parts, *texts, {})
    assert (
        page.index("Appendix: Past the paper")
        < page.index("<p>What <em>survives</em>.</p>")
        < page.index("figure-second-title")
    )


def test_a_real_series_is_not_called_simulated(tmp_path):
    run, texts = finished_run(tmp_path, origin="geo")
    page = report_html(run, PARTS, *texts, {})
    assert '<span class="badge">simulated' not in page
    assert "of a public series, GSE1," in page


def test_the_report_of_a_field_begins_with_what_a_few_features_tell(tmp_path):
    run, texts = finished_run(tmp_path)
    field = read_entrant(ROOT / "resources/fields/pima")
    few = LeagueSettings(
        rounds=(0, 3), patients=60, seeds=(0,), shuffles=1, sizes=(10,), repeats=1, tested=20, resamples=100
    )
    write_tables(follow_field(field, few), tmp_path / "field")
    page = report_html(run, PARTS, *texts, {"comparison": "another disease"}, tmp_path / "field")
    told = page[page.index('<section id="overview"') :]
    assert "pima: diabetes, 60 patients. After 3 of 8 features, chosen without a label, AUROC is 0." in told
    assert told.index("<svg") < told.index("how often, tau: effective") < told.index("left-out")
    assert "What reproduced and what did not" not in page
    assert field_report_values(tmp_path / "field")["said"][0] in told


def test_what_lacks_is_named_all_at_once(tmp_path):
    run, texts = finished_run(tmp_path)
    (run / "provenance.json").unlink()
    (run / "notebooks" / "second.ipynb").unlink()
    (run / "figures" / "first.svg").unlink()
    with pytest.raises(ReportError) as error:
        report_html(run, PARTS, *texts, {})
    assert "provenance.json" in str(error.value)
    assert "second.ipynb" in str(error.value)
    assert "first.svg" in str(error.value)
