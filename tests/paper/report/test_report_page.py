"""The report in a browser: what its first screen says, its controls, odd texts as text, nothing fetched."""

import os
from pathlib import Path

import pytest
from browsers import NEEDS_BROWSER, assert_quiet, open_page, screenshot, size
from runs import ATTACK, PARTS, QUOTES, finished_run
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from afa.paper.report.page import report_html

pytestmark = NEEDS_BROWSER
REAL = os.environ.get("AFA_REPORT")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a page")
    run, texts = finished_run(folder)
    (run / "report.html").write_text(report_html(run, PARTS, *texts, {}), encoding="utf-8")
    return run / "report.html"


@pytest.fixture
def page(browser, made):
    open_page(browser, made)
    yield browser
    assert_quiet(browser)


def unfold_all(page):
    page.execute_script("document.querySelectorAll('details').forEach((part) => (part.open = true))")


def shown(page):
    return [row for row in page.find_elements(By.CSS_SELECTOR, "#lines tbody tr") if row.is_displayed()]


def no_wider_than_the_screen(page, width):
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    sticking = page.execute_script(
        "return [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre, dialog, .skip') "
        "&& e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert sticking == []


def test_the_first_screen_says_whose_the_data_are_and_what_was_reproduced(page):
    overview = page.find_element(By.ID, "overview")
    assert overview.location["y"] < 300
    words = overview.text
    assert words.splitlines()[1].startswith("Neither the patients nor the elicited answers are the paper's.")
    assert "Of two main effects of the paper, one reproduces and one does not reproduce." in words
    assert "One reproduces. C is at 91 %; the paper has 90 %." in words
    assert f"One is contradicted, in whole or in part. A is 1.9 points behind B {ATTACK}." in words
    assert "Brackets: 90 % bootstrap intervals over patients" in words
    first = page.find_element(By.CSS_SELECTOR, "#effects tbody tr:first-child")
    assert first.find_element(By.TAG_NAME, "th").text == f"A beats B {ATTACK}"
    cells = [cell.text for cell in first.find_elements(By.TAG_NAME, "td")]
    assert cells[:5] == ["4.7 pp", "3", "-1.9 [-2.6, -1.2]\none voter: -2 to -2", "88 %", "reverses"]
    assert cells[5].startswith("data: It is known (E1).")
    assert "what no run has" in page.find_element(By.ID, "paper-settings").text
    assert (
        page.execute_script("return [...document.querySelectorAll('main table')].filter(t => !t.caption).length") == 0
    )
    assert page.find_element(By.CSS_SELECTOR, "#effects-figure [role=img]").get_attribute("aria-label")
    scopes = page.execute_script("return [...document.querySelectorAll('th')].filter(th => !th.scope).length")
    assert scopes == 0


def test_a_simulated_cohort_is_named_so_on_the_first_screen_and_at_every_figure(page):
    assert page.find_element(By.CSS_SELECTOR, "header .badge").text == "simulated"
    assert len(page.find_elements(By.CSS_SELECTOR, "article h3 .badge")) == len(PARTS)


def test_texts_of_other_people_stand_as_text(page):
    assert page.execute_script("return document.querySelectorAll('img[src=x], main script').length") == 0
    text = page.find_element(By.TAG_NAME, "main").get_attribute("textContent")
    for odd in (ATTACK, QUOTES, f"afa {ATTACK}"):
        assert odd in text


def test_words_choose_among_the_lines(page):
    assert len(shown(page)) == 4
    words = page.find_element(By.ID, "words")
    words.send_keys("second score")
    assert [row.find_element(By.CSS_SELECTOR, ".where").text.split("\n")[0] for row in shown(page)] == ["c002"]
    assert page.find_element(By.ID, "shown").text == "1 of 4 lines"
    words.send_keys(Keys.ENTER)
    assert len(shown(page)) == 1
    words.clear()
    words.send_keys(Keys.SPACE)
    assert len(shown(page)) == 4


def test_a_count_leads_to_its_lines_by_keyboard(page):
    def press(place, word):
        counts = page.find_elements(By.CSS_SELECTOR, ".legend")[place].find_elements(By.TAG_NAME, "button")
        next(button for button in counts if button.text.startswith(word)).send_keys(Keys.ENTER)
        return [(row.get_attribute("data-verdict"), row.get_attribute("data-kind")) for row in shown(page)]

    assert press(1, "holds") == [("holds", "claim")]
    assert page.switch_to.active_element.get_attribute("id") == "words"
    assert press(0, "another size") == [("another size", "cell")]
    assert press(1, "another size") == [("reverses, another size", "claim")]


def test_pages_inside_open_and_close_by_mouse_and_by_keyboard(page):
    unfold_all(page)
    for button, title in zip(page.find_elements(By.CSS_SELECTOR, "button.open"), ("explorer", "first"), strict=False):
        button.send_keys(Keys.ENTER)
        page.switch_to.frame("inside")
        WebDriverWait(page, 10).until(lambda b: b.find_elements(By.TAG_NAME, "h1"))
        assert page.find_element(By.TAG_NAME, "h1").text == title
        page.switch_to.default_content()
        assert page.find_element(By.ID, "reader").is_displayed()
        page.switch_to.active_element.send_keys(Keys.ESCAPE)
        assert not page.find_element(By.ID, "reader").is_displayed()
        button.click()
        page.find_element(By.ID, "close").click()
        assert not page.find_element(By.ID, "reader").is_displayed()


def test_a_link_to_an_erratum_unfolds_the_errata(page):
    link = page.find_element(By.CSS_SELECTOR, "#lines a[href='#E1']")
    assert not page.find_element(By.ID, "E1").is_displayed()
    link.click()
    assert page.find_element(By.ID, "E1").is_displayed()
    assert page.find_elements(By.CSS_SELECTOR, "#lines a[href='#X9']") == []


def test_a_figure_tells_the_jobs_behind_it_in_order(page):
    page.execute_script("location.hash = 'figure-first'")
    behind = page.find_element(By.CSS_SELECTOR, "#figure-first .behind")
    WebDriverWait(page, 10).until(lambda _: behind.is_displayed())
    behind.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    assert [item.text for item in behind.find_elements(By.TAG_NAME, "b")] == ["stage", "draw"]


@pytest.mark.parametrize(("name", "width", "height"), [("wide", 1280, 900), ("narrow", 390, 844)])
def test_the_page_is_as_wide_as_the_screen(browser, made, name, width, height):
    open_page(browser, made, width, height)
    unfold_all(browser)
    no_wider_than_the_screen(browser, width)
    screenshot(browser, f"report-odd-{name}")
    assert_quiet(browser)


@pytest.mark.skipif(not REAL, reason="AFA_REPORT names no report of a run")
@pytest.mark.parametrize(("name", "width", "height"), [("wide", 1280, 900), ("narrow", 390, 844)])
def test_the_report_of_a_run_opens_quietly_with_every_page_in_it(browser, name, width, height):
    path = Path(REAL).resolve()
    open_page(browser, path, width, height)
    no_wider_than_the_screen(browser, width)
    screenshot(browser, f"report-{name}")
    size(browser, width, browser.execute_script("return document.documentElement.scrollHeight"))
    screenshot(browser, f"report-{name}-whole")
    size(browser, width, height)
    for button in browser.find_elements(By.CSS_SELECTOR, "button.open"):
        browser.execute_script("arguments[0].click()", button)
        browser.switch_to.frame("inside")
        WebDriverWait(browser, 60).until(lambda b: b.find_elements(By.TAG_NAME, "h1"))
        browser.switch_to.default_content()
        browser.find_element(By.ID, "close").click()
    assert path.stat().st_size < 25_000_000
    assert_quiet(browser)
