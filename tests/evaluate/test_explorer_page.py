"""The explorer page in a browser: every control by mouse and by keyboard, odd names as text, nothing fetched."""

from pathlib import Path

import pandas as pd
import pytest
from browsers import NEEDS_BROWSER, assert_quiet, open_page, screenshot, size, visit
from commands import afa
from explorers import ATTACK, ENTITIES, FEATURES, PATIENTS, odd_names, rankings, run_of
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from afa.evaluate.explorer import write_explorer

pytestmark = NEEDS_BROWSER
LAST = len(FEATURES)
COOLING = Path(__file__).parents[2] / "afa/examples/cooling"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What is explored, and its page in a folder whose name has a space."""
    odd = odd_names()
    path = tmp_path_factory.mktemp("a page") / "explorer.html"
    write_explorer(odd.explored, path)
    return odd.explored, path


@pytest.fixture
def page(browser, made):
    """The page on its first patient, nothing measured; after the test nothing was asked or said on the console."""
    open_page(browser, made[1])
    ready(browser)
    to_the_start(browser)
    yield browser
    assert_quiet(browser)


def ready(browser):
    WebDriverWait(browser, 60, 0.05).until(lambda b: b.execute_script("return document.body.dataset.ready") == "true")


def to_the_start(browser, patient=0):
    Select(browser.find_element(By.ID, "patient")).select_by_index(patient)
    ready(browser)
    browser.find_element(By.ID, "first").click()


def at(browser):
    return int(browser.execute_script("return document.body.dataset.t"))


def press(browser, *keys):
    for key in keys:
        ActionChains(browser).send_keys(key).perform()


def text(browser, name):
    return browser.execute_script("return document.getElementById(arguments[0]).textContent", name)


def focus(browser):
    return browser.switch_to.active_element


def chosen(browser, name):
    script = "return document.getElementById(arguments[0]).selectedOptions[0].textContent"
    return browser.execute_script(script, name)


def column(browser, table, place):
    """Text of one column of a table's body, in one request to the browser; `place` counts from 1."""
    script = "return [...document.querySelectorAll(arguments[0])].map(cell => cell.textContent)"
    return browser.execute_script(script, f"#{table} tbody tr > :nth-child({place})")


def readable(name):
    return name.replace("_", " ")


def order_of(explored, patient, cell, score, t):
    order, _ = list(rankings(run_of(explored, patient, cell), score))[t]
    return [readable(explored.summary["entities"][v]) for v in order]


def test_the_page_opens_on_a_typical_patient_after_ten_measurements_and_tells_the_story(browser, made):
    summary = made[0].summary
    open_page(browser, made[1])
    ready(browser)
    settled = sorted(run_of(made[0], i, summary["shown"])["settled"][0] for i in range(len(PATIENTS)))
    typical, t = PATIENTS.index(chosen(browser, "patient")), min(10, LAST)
    assert run_of(made[0], typical, summary["shown"])["settled"][0] == settled[(len(settled) - 1) // 2]
    assert at(browser) == t
    story = text(browser, "story")
    assert story.startswith(f"After {t} of {LAST} measurements {PATIENTS[typical]} is most like ")
    top = order_of(made[0], typical, summary["shown"], 0, t)[: summary["k"]]
    assert ", ".join(top) in story
    browser.find_element(By.ID, "first").click()
    assert text(browser, "story").startswith("Before any measurement ")
    assert_quiet(browser)


def test_the_planner_with_a_background_stands_beside_the_one_that_is_shown(page, made):
    summary = made[0].summary
    ours = next(i for i, cell in enumerate(summary["cells"]) if cell["rule"] == "frontier")
    background = summary["scores"].index("background")
    for t in range(3):
        first, second = column(page, "besides-table", 3)
        assert first == ", ".join(order_of(made[0], 0, summary["shown"], 0, t)[: summary["k"]])
        assert second == ", ".join(order_of(made[0], 0, ours, background, t)[: summary["k"]])
        sure = 100 * run_of(made[0], 0, ours)["probability"][t]
        said = column(page, "besides-table", 5)
        assert said[0] == "\N{EN DASH}"
        assert float(said[1].removesuffix(" %")) == pytest.approx(sure, abs=0.5)
        page.find_element(By.ID, "next").click()
    assert summary["background"] in page.find_element(By.ID, "besides").text


def test_a_score_that_a_rule_does_not_have_cannot_be_chosen(page, made):
    background = Select(page.find_element(By.ID, "score")).options[-1]
    assert background.get_attribute("disabled") == "true"
    Select(page.find_element(By.ID, "rule")).select_by_visible_text("frontier")
    ready(page)
    assert chosen(page, "score") == "background"
    assert "is right with probability" in text(page, "facts")
    Select(page.find_element(By.ID, "rule")).select_by_index(0)
    ready(page)
    assert chosen(page, "score") == "linearity"
    assert "probability" not in text(page, "facts")


def test_the_page_has_a_start_with_nothing_measured_and_the_default_rule(page, made):
    summary = made[0].summary
    assert page.title == f"Acquisition explorer: {ATTACK}"
    assert "simulated cohort" in text(page, "subtitle")
    assert (chosen(page, "rule"), chosen(page, "score")) == ("priority_all, by cmi", "linearity")
    assert at(page) == 0
    assert text(page, "step-title") == "Start: nothing measured"
    assert column(page, "ranking", 2) == order_of(made[0], 0, summary["shown"], 0, 0)
    assert not page.find_element(By.ID, "loading").is_displayed()


def test_names_are_text_wherever_they_stand(page):
    options = [o.get_attribute("textContent") for o in Select(page.find_element(By.ID, "patient")).options]
    assert options == list(PATIENTS)
    assert sorted(column(page, "ranking", 2)) == sorted(map(readable, ENTITIES))
    assert sorted(column(page, "steps", 2)[1:]) == sorted(map(readable, FEATURES))
    for _ in range(LAST):
        page.find_element(By.ID, "next").click()
    assert page.find_elements(By.CSS_SELECTOR, "#content b:not(.word), #content img, #content i") == []
    of_ours = 4  # summary, library packed and unpacked, the page's own
    assert len(page.find_elements(By.TAG_NAME, "script")) == of_ours + len(PATIENTS)


def test_each_step_shows_what_the_data_says(page, made):
    explored = made[0]
    cell = explored.summary["shown"]
    run, values = run_of(explored, 0, cell), explored.steps[0]["values"]
    for t in range(LAST + 1):
        assert at(page) == t
        assert column(page, "ranking", 2) == order_of(explored, 0, cell, 0, t)
        facts = text(page, "facts")
        assert f"{run['resolved'][t]} of {explored.summary['duels']}" in facts
        certified = run["certified"] is not None and t >= run["certified"]
        assert ("not certified" in facts) == (not certified)
        if t:
            feature = run["order"][t - 1]
            assert text(page, "step-title") == f"Step {t}: {readable(FEATURES[feature])}"
            assert {-1: "low", 0: "usual", 1: "high"}[values[feature]] in facts
            assert ("fallback" in facts) == (t in run["fallback"])
        assert f"{abs(run['margin'][t]):.2f}"[:3] in facts or run["margin"][t] < 0.01
        if t:
            why = explored.steps[0]["why"][t - 1]
            assert readable(why["reason"]) in text(page, "why")
            assert all(readable(FEATURES[j]) in text(page, "why") for j in why["others"])
            assert column(page, "why", 1) == ["\u22121, low", "0, usual", "+1, high"]
            assert len(page.find_elements(By.CSS_SELECTOR, "#why tr[aria-current]")) == 1
        else:
            assert text(page, "why") == ""
        current = page.find_elements(By.CSS_SELECTOR, "#steps tr[aria-current=step]")
        assert [row.get_attribute("data-t") for row in current] == [str(t)]
        press(page, Keys.ARROW_RIGHT)
    assert at(page) == LAST


def test_every_step_is_reached_by_mouse(page, made):
    run = run_of(made[0], 0, made[0].summary["shown"])
    for button, expected in (("next", 1), ("next", 2), ("previous", 1), ("last", LAST), ("next", LAST), ("first", 0)):
        page.find_element(By.ID, button).click()
        assert at(page) == expected
    page.find_element(By.ID, "to-settled").click()
    assert at(page) == run["settled"][0]
    page.find_element(By.ID, "to-certified").click()
    assert at(page) == (run["settled"][0] if run["certified"] is None else run["certified"])
    page.find_elements(By.CSS_SELECTOR, "#steps tbody tr")[3].find_element(By.TAG_NAME, "th").click()
    assert at(page) == 3
    slider = page.find_element(By.ID, "t")
    ActionChains(page).move_to_element(slider).click().perform()
    assert at(page) == LAST // 2
    chart = page.find_element(By.ID, "ranks")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
    ActionChains(page).move_to_element_with_offset(chart, chart.size["width"] // 2 - 60, -20).click().perform()
    WebDriverWait(page, 5).until(lambda b: at(b) >= LAST - 1)


def test_every_step_is_reached_by_keyboard(page):
    press(page, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert at(page) == 1
    press(page, Keys.END)
    assert at(page) == LAST
    press(page, Keys.ARROW_RIGHT)
    assert at(page) == LAST
    press(page, Keys.HOME)
    assert at(page) == 0
    press(page, Keys.PAGE_DOWN)
    assert at(page) == min(10, LAST)
    press(page, Keys.PAGE_UP)
    assert at(page) == 0
    page.execute_script("document.getElementById('t').focus()")
    press(page, Keys.ARROW_RIGHT)
    assert at(page) == 1
    page.execute_script("document.getElementById('next').focus()")
    press(page, Keys.ENTER, Keys.SPACE)
    assert at(page) == 3


def test_tab_goes_through_all_controls_in_their_order_and_shows_where_it_is(page, made):
    passed = []
    open_page(page, made[1])
    ready(page)
    for _ in range(16):
        press(page, Keys.TAB)
        name = focus(page).get_attribute("id") or focus(page).get_attribute("class") or focus(page).tag_name
        passed.append(name)
        style = page.execute_script(
            "const s = getComputedStyle(document.activeElement); return [s.outlineStyle, s.outlineWidth]"
        )
        assert style == ["solid", "3px"], (name, style)
    controls = [
        "skip",
        "patient",
        "rule",
        "score",
        "first",
        "previous",
        "next",
        "last",
        "t",
        "to-settled",
        "to-certified",
    ]
    assert passed == [*controls, "scroll whole", "scroll tall", "steps-scroll", "button", "summary"]


def test_every_control_has_a_label(page):
    for name in ("patient", "rule", "score", "t"):
        assert page.find_elements(By.CSS_SELECTOR, f"label[for={name}]")
    for button in page.find_elements(By.CSS_SELECTOR, "#content .buttons button"):
        assert button.accessible_name
    for chart in page.find_elements(By.CSS_SELECTOR, ".chart"):
        assert chart.aria_role in ("img", "image")
        assert len(chart.accessible_name) > 30


def test_rule_score_and_patient_change_what_is_shown(page, made):
    explored = made[0]
    cells = explored.summary["cells"]
    press(page, Keys.ARROW_RIGHT)
    page.execute_script("document.getElementById('rule').focus()")
    press(page, Keys.HOME)
    ready(page)
    assert chosen(page, "rule") == "random, order 0"
    assert at(page) == 1, "keys in a list choose there and do not step"
    first = cells.index({"rule": "random", "gain": "", "seed": 0})
    assert text(page, "step-title") == f"Step 1: {FEATURES[explored.steps[0]['runs'][first]['order'][0]]}"
    press(page, Keys.ARROW_DOWN)
    ready(page)
    assert chosen(page, "rule") == "random, order 1"
    Select(page.find_element(By.ID, "score")).select_by_visible_text("two_elbo")
    ready(page)
    assert column(page, "ranking", 2) == order_of(explored, 0, first + 1, 2, 1)
    Select(page.find_element(By.ID, "patient")).select_by_index(2)
    ready(page)
    assert column(page, "ranking", 2) == order_of(explored, 2, first + 1, 2, 1)
    labels = explored.summary["patients"][2]["labels"]
    names = [readable(name) for name in explored.summary["entities"]]
    words = {1: "yes", 0: "no", None: "–"}
    assert column(page, "ranking", 6) == [words[labels[names.index(name)]] for name in column(page, "ranking", 2)]


def test_the_present_step_is_announced(page):
    title = page.find_element(By.ID, "step-title")
    assert title.get_attribute("aria-live") == "polite"
    press(page, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert title.text.startswith("Step 2: ")


def test_the_page_is_as_wide_as_a_phone(page):
    width = 390
    size(page, width, 844)
    press(page, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    for summary in page.find_elements(By.TAG_NAME, "summary"):
        summary.send_keys(Keys.ENTER)
    whole = page.execute_script("return [document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
    assert whole[0] <= width
    sticking = page.execute_script(
        "return [...document.querySelectorAll('#content *')].filter(e => !e.closest('.scroll, .unseen, svg') "
        "&& e.getBoundingClientRect().right > innerWidth + 1).map(e => e.id || e.tagName)"
    )
    assert sticking == []
    size(page, width, whole[1])
    screenshot(page, "explorer-narrow")


def test_a_browser_that_cannot_unpack_the_page_says_so(browser, made):
    script = "delete window.DecompressionStream;"
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    try:
        visit(browser, made[1].as_uri())
        assert "cannot unpack the page" in text(browser, "loading")
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


@pytest.mark.slow
def test_what_afa_simulate_wrote_is_explored_also_where_not_all_was_measured(browser, tmp_path):
    cases = pd.read_csv(COOLING / "vignettes.csv")
    table = cases.pivot_table(index="patient", columns="feature", values="value").astype("Int8")
    table.iloc[0, :3] = pd.NA
    table.to_csv(tmp_path / "cases.csv")
    done = afa("simulate", COOLING / "bundle", tmp_path / "cases.csv", "--out", tmp_path / "out", "--resamples", "10")
    assert done.returncode == 0, done.stderr
    size(browser, 1400, 1000)
    open_page(browser, tmp_path / "out/explorer.html", 1400, 1000)
    ready(browser)
    asked = int(table.iloc[0].notna().sum())
    assert asked == len(table.columns) - 3
    to_the_start(browser)
    assert chosen(browser, "patient") == table.index[0]
    press(browser, Keys.END)
    assert at(browser) == asked
    assert len(column(browser, "steps", 2)) == asked + 1
    screenshot(browser, "simulated-1400")
    Select(browser.find_element(By.ID, "patient")).select_by_index(1)
    ready(browser)
    browser.find_element(By.ID, "last").click()
    assert at(browser) == int(table.iloc[1].notna().sum())
    size(browser, 390, 844)
    screenshot(browser, "simulated-390")
    assert_quiet(browser)


def test_the_address_says_what_is_shown_and_leads_there(browser, made):
    open_page(browser, made[1])
    ready(browser)
    to_the_start(browser, 1)
    Select(browser.find_element(By.ID, "score")).select_by_visible_text("wald")
    ready(browser)
    for _ in range(2):
        browser.find_element(By.ID, "next").click()
    WebDriverWait(browser, 30).until(lambda b: b.current_url.endswith("&score=wald&t=2"))
    address, ranked = browser.current_url, column(browser, "ranking", 2)
    patient = chosen(browser, "patient")
    visit(browser, "about:blank")
    visit(browser, address)
    ready(browser)
    assert (at(browser), chosen(browser, "patient"), chosen(browser, "score")) == (2, patient, "wald")
    assert column(browser, "ranking", 2) == ranked
    visit(browser, "about:blank")
    visit(browser, f"{address.partition('#')[0]}#patient=nobody&t=x")
    ready(browser)
    assert at(browser) == min(10, LAST)
