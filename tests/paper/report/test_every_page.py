"""Every page that the project writes opens in a browser without an error, and its buttons and links work."""

from pathlib import Path

import pandas as pd
import pytest
from browsers import NEEDS_BROWSER, assert_works
from commands import afa
from explorers import odd_names
from runs import PARTS, finished_run
from selenium.webdriver.common.by import By

from afa.evaluate.entrants import read_entrant
from afa.evaluate.explorer import write_explorer
from afa.evaluate.long_tables import write_tables
from afa.paper.experiments.league import LeagueSettings, follow_field
from afa.paper.report.league import write_league
from afa.paper.report.page import report_html

pytestmark = NEEDS_BROWSER
ROOT = Path(__file__).parents[3]
COOLING = ROOT / "afa/examples/cooling"
FEW = LeagueSettings(
    rounds=(0, 3), patients=40, seeds=(0,), shuffles=1, sizes=(10,), repeats=1, tested=20, resamples=100
)
NO_PAPER = {"comparison": "another disease"}


@pytest.fixture(scope="session")
def field(tmp_path_factory):
    """What `afa league field` makes of one field with labels."""
    folder = tmp_path_factory.mktemp("league") / "pima"
    write_tables(follow_field(read_entrant(ROOT / "resources/fields/pima"), FEW), folder)
    return folder


def series(folder, _):
    run, texts = finished_run(folder)
    return written(run / "report.html", report_html(run, PARTS, *texts, {}))


def table(folder, _):
    run, texts = finished_run(folder)
    return written(run / "report.html", report_html(run, PARTS, *texts, NO_PAPER))


def of_field(folder, request):
    run, texts = finished_run(folder)
    return written(run / "report.html", report_html(run, PARTS, *texts, NO_PAPER, request.getfixturevalue("field")))


def league(folder, request):
    write_league([request.getfixturevalue("field")], folder / "page")
    return folder / "page" / "league.html"


def explorer(folder, _):
    write_explorer(odd_names().explored, folder / "explorer.html")
    return folder / "explorer.html"


def simulated(folder, _):
    cases = pd.read_csv(COOLING / "vignettes.csv")
    cases.pivot_table(index="patient", columns="feature", values="value").astype("Int8").to_csv(folder / "cases.csv")
    ran = afa(
        "simulate",
        COOLING / "bundle",
        folder / "cases.csv",
        "--out",
        folder / "curves",
        "--resamples",
        "10",
        "--explorer",
        "4",
    )
    assert ran.returncode == 0, ran.stderr
    return folder / "curves" / "explorer.html"


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("make", [series, table, of_field, league, explorer, simulated], ids=lambda make: make.__name__)
def test_a_page_opens_without_an_error_and_all_in_it_works(browser, tmp_path, request, make):
    page = make(tmp_path, request)
    assert_works(browser, page)
    if page.name == "report.html":
        chapters = browser.find_elements(By.CSS_SELECTOR, "main > section")
        assert len(browser.find_elements(By.CSS_SELECTOR, "#contents > li")) == len(chapters) > 4
        assert len(browser.find_elements(By.CSS_SELECTOR, "button.open")) >= len(PARTS)
