"""`afa serve`: a whole patient by mouse and by keyboard in a browser, and the same by `afa plan --json`."""

import asyncio
import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import webbrowser
from contextlib import suppress
from pathlib import Path
from unittest import mock
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import typer
import yaml
from browsers import NEEDS_BROWSER, screenshot, size, visit
from bundles import bundle_of
from commands import afa
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.expected_conditions import alert_is_present
from selenium.webdriver.support.ui import Select, WebDriverWait

from afa.cli import app
from afa.dialogue import server
from afa.model.bundle import load_bundle, save_bundle
from afa.planner import TopKPlanner
from afa.planner.session import load_session, save_session

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests/data/bundle_tiny"
HOSTILE = ('<img src=x onerror="document.title=1">', "a'b\"c", "</script><b>bold</b>", "línea ünïcode 語", "{{x}} ${y}")
RANGES = """feature,kind,unit,low,high,definition
a,continuous,g/dL,12,16,what a is
b,ordinal,,,,three values without a range
c,continuous,mg/l,1,5,
"""


class Server:
    """`afa serve` in a thread of this process; `said` is what it printed."""

    def __init__(self, *words):
        self.said, self.running = queue.Queue(), queue.Queue()
        self.thread = threading.Thread(target=self._run, args=(words,))
        with mock.patch.object(server, "serve", self._serve), mock.patch.object(typer, "echo", self._echo):
            self.thread.start()
            self.loop, self.task = self.running.get(timeout=60)
            self.address = self.said.get(timeout=60).partition("\n")[0]

    def _run(self, words):
        with suppress(asyncio.CancelledError):
            app(list(map(str, words)), standalone_mode=False)

    async def _serve(self, *given):
        self.running.put((asyncio.get_running_loop(), asyncio.current_task()))
        with suppress(asyncio.CancelledError):
            await SERVE(*given)

    def _echo(self, text, **_):
        self.said.put(text)

    def stop(self):
        """End it as Ctrl-C does."""
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.task.cancel)
            self.thread.join(60)


SERVE = server.serve


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Start a server with some options; answer with it and its address."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(webbrowser, "open", lambda _: None)
    running = []

    def start(bundle, *options, words=("serve",)):
        running.append(Server(*words, *([bundle] if bundle else []), *options))
        return running[-1], running[-1].address

    yield start
    for each in running:
        each.stop()


def asked(address, path, *, token=None, body=None, method=None):
    """Status and text of a request that no page makes."""
    base, _, own = address.partition("/?token=")
    headers = {"X-Token": own if token is None else token}
    request = Request(f"{base}/{path}", data=body, headers=headers, method=method)
    try:
        with urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def opened(browser, address):
    visit(browser, address)
    until(browser, lambda: data(browser, "ready") == "true")
    return browser


def complaints(browser, address):
    """What the page of this server complained of: pages of earlier servers still say that those are gone."""
    own = address.partition("/?")[0]
    return [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE" and own in entry["message"]]


def data(browser, name):
    return browser.execute_script(f"return document.body.dataset.{name}")


def until(browser, holds):
    WebDriverWait(browser, 60, 0.05).until(lambda _: holds())


def text(browser, name):
    return browser.find_element(By.ID, name).get_attribute("textContent")


def step_by(browser, act):
    """Do something, and wait until the page shows one more step."""
    before = int(data(browser, "step"))
    act()
    until(browser, lambda: int(data(browser, "step")) > before and data(browser, "busy") != "true")


def press(browser, keys):
    ActionChains(browser).send_keys(keys).perform()


def button(browser, value):
    return browser.find_element(By.CSS_SELECTOR, f"#rows button[data-value='{value}']")


def test_nothing_is_served_without_the_token_and_no_more_than_the_page(serve):
    _, address = serve(TINY)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{20,}", address)
    assert asked(address, "start")[0] == 200
    for path in ("", "start", "news/0", "?token=wrong"):
        status, said = asked(address, path, token="wrong")
        assert (status, "afa serve" in said) == (403, True)
    assert asked(address, "say", token="wrong", body=b"{}")[0] == 403
    for path in ("page.html", "../pyproject.toml", "page.js/..", "static/x"):
        assert asked(address, path)[0] == 404
    deep = b"[" * 100_000 + b"]" * 100_000
    for body in (
        b"no json",
        b"[]",
        b'{"step": 0}',
        b'{"step": 0, "request": {"do": "quit"}}',
        b'{"step": Infinity, "request": {"do": "show"}}',
        b'{"step": 1e400, "request": {"do": "show"}}',
        b'{"step": true, "request": {"do": "show"}}',
        b'{"step": 0, "request": {"do": "observe", "cost": NaN}}',
        deep,
        b'{"step": 0, "request": {"do": ' + deep + b"}}",
    ):
        assert asked(address, "say", body=body)[0] == 400
    status, said = asked(address, "say", body=b'{"step": 0, "request": {"do": "observe", "values": {"MUC2": 7}}}')
    assert (status, json.loads(said)["answer"]["ok"]) == (200, False)


def test_idle_connections_lock_nobody_out(serve):
    _, address = serve(TINY)
    host, port = address.partition("//")[2].partition("/")[0].split(":")
    idle = [socket.create_connection((host, int(port)), timeout=10) for _ in range(300)]
    try:
        assert asked(address, "start")[0] == 200
    finally:
        for each in idle:
            each.close()


def test_the_token_is_on_no_command_line_and_in_a_file_of_its_owner_alone(tmp_path):
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(
        f"#!/bin/sh\nfile=${{1#file://}}\nprintf '%s\\n' \"$@\" > {seen}.words\n"
        f'stat -c %a "$file" > {seen}.mode\ncat "$file" > {seen}.page\n'
    )
    browser.chmod(0o755)
    command = ["env", "--default-signal=INT", sys.executable, "-m", "afa", "serve", str(TINY), "--open"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env={**os.environ, "BROWSER": str(browser)}
    )
    address = next(line.strip() for line in process.stdout if line.startswith("http"))
    limit = time.monotonic() + 60
    while not Path(f"{seen}.page").exists() or not Path(f"{seen}.page").read_text():
        assert time.monotonic() < limit
        time.sleep(0.05)
    file = Path(f"{seen}.words").read_text().strip().removeprefix("file://")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    token = address.partition("token=")[2]
    assert token not in Path(f"{seen}.words").read_text()
    assert Path(f"{seen}.mode").read_text().strip() == "600"
    assert address in Path(f"{seen}.page").read_text()
    assert not Path(file).exists(), "gone with the server"


def test_another_patient_a_download_and_a_session_that_is_opened(serve, tmp_path):
    _, address = serve(TINY, "--session", "s.yaml", "--to-the-end")

    def say(step, request):
        status, said = asked(address, "say", body=json.dumps({"step": step, "request": request}).encode())
        assert status == 200
        return json.loads(said)

    assert say(0, {"do": "observe", "values": {"MUC2": "low"}})["answer"]["ok"]
    status, kept = asked(address, "session")
    assert (status, kept) == (200, (tmp_path / "s.yaml").read_text())
    fresh = say(1, {"do": "new"})["state"]
    assert (fresh["step"], fresh["observed"], fresh["kept"]) == (2, 0, "")
    assert say(2, {"do": "observe", "values": {"AQP8": 1}})["answer"]["ok"]
    assert (tmp_path / "s.yaml").read_text() == kept, "the file of the first patient stays as it was"
    opened_again = say(3, {"do": "open", "text": kept})["state"]
    assert opened_again["view"]["values"] == {"MUC2": -1}
    for text, words in (("no: session", "the session, key"), ("- 1", "the session"), ("\ud800", "the session")):
        answer = say(4, {"do": "open", "text": text})["answer"]
        assert not answer["ok"]
        assert answer["error"]["where"].startswith(words)
        assert "replay" not in answer
    digest = yaml.safe_load(kept)["bundle"]["digest"]
    earlier = kept.replace(digest, "a" * 64)
    answer = say(4, {"do": "open", "text": earlier})["answer"]
    assert answer["replay"] == [
        f"tiny has changed since this session: then version 1, digest {'a' * 16}, now version 1, digest {digest[:16]}"
    ]
    told = say(4, {"do": "open", "text": earlier, "replay": True})
    assert told["answer"] == {"ok": True, "changed": answer["replay"]}
    assert told["state"]["view"]["values"] == {"MUC2": -1}
    assert asked(address, "session", token="wrong")[0] == 403


def test_no_two_parts_of_the_page_have_one_id():
    ids = re.findall(' id="([^"]+)"', (ROOT / "afa/dialogue/page/page.html").read_text())
    assert len(ids) > 20
    assert len(set(ids)) == len(ids)


def test_a_port_that_is_taken_is_one_line(serve):
    _, address = serve(TINY)
    port = address.partition("/?")[0].rpartition(":")[2]
    ran = afa("serve", TINY, "--port", port)
    assert ran.returncode == 2
    assert "expected a free port of this machine. Next step: choose another --port" in ran.stderr


@pytest.mark.slow
@NEEDS_BROWSER
def test_a_patient_by_mouse_is_the_same_session_as_its_requests_by_json_lines(serve, browser, tmp_path):
    _, address = serve(TINY, "--session", "page.yaml", "--to-the-end")
    opened(browser, address)
    assert text(browser, "title") == "tiny 1"
    assert "then" in button(browser, 1).text
    first = text(browser, "asked").partition(" (")[0]
    step_by(browser, button(browser, 1).click)
    second = text(browser, "asked").partition(" (")[0]
    step_by(browser, browser.find_element(By.ID, "skip").click)
    step_by(browser, browser.find_element(By.ID, "undo").click)
    assert text(browser, "asked").startswith(second)
    browser.find_element(By.ID, "feature").send_keys("il8" if first != "CXCL8" else "muc2")
    browser.find_element(By.CSS_SELECTOR, "#known button").click()
    until(browser, lambda: "Write the value of" in text(browser, "message"))
    assert data(browser, "step") == "3", "a name without a value takes nothing in"
    browser.find_element(By.ID, "value").send_keys("low")
    step_by(browser, browser.find_element(By.CSS_SELECTOR, "#known button").click)
    step_by(browser, lambda: Select(browser.find_element(By.CSS_SELECTOR, "#values select")).select_by_value("0"))
    requests = [
        {"do": "observe", "values": {first: 1}},
        {"do": "skip", "feature": second},
        {"do": "undo"},
        {"do": "observe", "values": {"il8" if first != "CXCL8" else "muc2": -1}},
        {"do": "correct", "feature": first, "value": 0},
    ]
    while browser.find_elements(By.CSS_SELECTOR, "#rows button"):
        requests.append({"do": "observe", "values": {text(browser, "asked").partition(" (")[0]: 0}})
        step_by(browser, button(browser, 0).click)
    assert text(browser, "next-label") == "Done"
    assert text(browser, "reason") == "every feature has been observed"
    assert text(browser, "kept") == "Kept in page.yaml after every step."
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    assert afa("plan", TINY, "--json", "--to-the-end", "--session", tmp_path / "json.yaml", typed=lines).returncode == 0
    assert (tmp_path / "page.yaml").read_bytes() == (tmp_path / "json.yaml").read_bytes()
    bars = browser.find_elements(By.CSS_SELECTOR, "#bars tbody tr")
    scores = [float(bar.find_elements(By.TAG_NAME, "td")[1].text) for bar in bars]
    assert scores == sorted(scores, reverse=True)
    assert "not a probability" in text(browser, "of")
    for width in (1400, 390):
        size(browser, width, 900)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        screenshot(browser, f"serve_{width}")
    assert complaints(browser, address) == []


@NEEDS_BROWSER
def test_the_page_shows_display_names_which_break_between_words_alone_on_a_phone(serve, browser, tmp_path):
    shutil.copytree(TINY, tmp_path / "named")
    rows = "bleeding,Visible_bleeding_of_the_rectum_or_colon\nMUC2,Mucin 2\n"
    (tmp_path / "named/display.csv").write_text(f"name,display\n{rows}")
    _, address = serve(tmp_path / "named")
    opened(browser, address)
    size(browser, 390, 900)
    assert text(browser, "asked") == "Mucin 2 (cost 0)"
    step_by(browser, browser.find_element(By.CSS_SELECTOR, "#rows [data-value='-1']").click)
    assert text(browser, "words").startswith("Visible_bleeding_of_the_rectum_or_colon (ahead by ")
    assert browser.find_element(By.CSS_SELECTOR, "#values tbody th").text == "Mucin 2"
    assert "Visible_bleeding_of_the_rectum_or_colon" in [
        each.text.replace("\n", "") for each in browser.find_elements(By.CSS_SELECTOR, ".entity")
    ]
    for place in ("#words", ".entity"):
        breaks = (
            "return [...document.querySelector(arguments[0]).querySelectorAll('wbr')].map(w => w.previousSibling.data)"
        )
        assert [part[-1] for part in browser.execute_script(breaks, place)] == ["_"] * 6
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    assert complaints(browser, address) == []


@NEEDS_BROWSER
def test_a_patient_by_keyboard(serve, browser):
    _, address = serve(TINY, "--to-the-end")
    opened(browser, address)
    for key in ("+", "0", "-", "u", "s"):
        step_by(browser, lambda key=key: press(browser, key))
    values = [
        Select(each).first_selected_option.text for each in browser.find_elements(By.CSS_SELECTOR, "#values select")
    ]
    assert values == ["high", "usual"]
    assert "skipped" in text(browser, "values")
    browser.find_element(By.ID, "feature").send_keys("0+su")
    assert data(browser, "step") == "5", "what is typed into a field is no key of the page"


@pytest.mark.slow
@NEEDS_BROWSER
def test_two_tabs_show_the_same_and_an_old_one_changes_nothing(serve, browser):
    _, address = serve(TINY)
    opened(browser, address)
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    opened(browser, address)
    step_by(browser, button(browser, 1).click)
    browser.switch_to.window(first)
    until(browser, lambda: data(browser, "step") == "1")
    status, said = asked(address, "say", body=b'{"step": 0, "request": {"do": "undo"}}')
    assert (status, json.loads(said)["answer"]["error"]["found"]) == (200, "a page that is older than the last step")
    assert json.loads(said)["state"]["observed"] == 1


@pytest.mark.slow
@NEEDS_BROWSER
def test_a_server_that_ends_is_said_and_the_session_goes_on(serve, browser, tmp_path):
    process, address = serve(TINY, "--session", "mine.yaml")
    opened(browser, address)
    step_by(browser, button(browser, 1).click)
    with mock.patch.object(typer, "echo", process.said.put):
        process.stop()
    assert process.said.get(timeout=60) == "session saved in mine.yaml"
    until(browser, lambda: data(browser, "lost") == "true")
    assert "The server has ended; start it again. Every step is saved in mine.yaml" in text(browser, "message")
    _, address = serve(TINY, "--session", "mine.yaml")
    opened(browser, address)
    assert text(browser, "spent").startswith("1 measured")


@pytest.mark.slow
@NEEDS_BROWSER
def test_hostile_names_are_text(serve, browser, tmp_path):
    unary = [[2.0, -1.0, 1.0, 0.5, 1.0], [-1.0, 1.0, 0.5, 1.0, -2.0], [0.5, 1.0, 1.0, -1.0, 1.0]]
    hostile = bundle_of(unary, [[[0.0] * 5] * 5] * 3, features=HOSTILE, entities=HOSTILE[:3])
    save_bundle(hostile, tmp_path / "hostile")
    _, address = serve(tmp_path / "hostile")
    opened(browser, address)
    for _ in range(2):
        assert text(browser, "asked") in HOSTILE
        step_by(browser, button(browser, 1).click)
    assert browser.title == "random 1"
    assert {row.text for row in browser.find_elements(By.CSS_SELECTOR, "#bars th")} == set(HOSTILE[:3])
    assert browser.find_elements(By.CSS_SELECTOR, "img, b") == []


@pytest.mark.slow
@NEEDS_BROWSER
def test_a_number_is_read_by_its_range(serve, browser, tmp_path):
    unary = [[2.0, 1.0, 1.0], [-1.0, 0.5, -1.0]]
    save_bundle(bundle_of(unary, [[[0.0] * 3] * 3] * 2, features=("a", "b", "c")), tmp_path / "ranged")
    (tmp_path / "ranged" / "features.csv").write_text(RANGES)
    afa("bundle", "stamp", tmp_path / "ranged")
    _, address = serve(tmp_path / "ranged", "--session", "s.yaml", "--to-the-end", "--first", "a,c,b")
    opened(browser, address)
    assert text(browser, "definition") == "what a is"
    assert "12 to 16 g/dL" in button(browser, 0).text
    field = browser.find_element(By.CSS_SELECTOR, ".number input")
    for wrong in ("1,058", "0x10", "1e400", "nan", "12 mg"):
        field.send_keys(wrong + Keys.ENTER)
        until(browser, lambda wrong=wrong: f"value of a: found '{wrong}'" in text(browser, "message"))
        field.clear()
    step_by(browser, lambda: field.send_keys("11,5 g/dL" + Keys.ENTER))
    assert text(browser, "echo") == "a: 11.5 g/dL is low"
    assert "above 5 mg/l" in text(browser, "rows")
    step_by(browser, lambda: browser.find_element(By.CSS_SELECTOR, ".number input").send_keys("5" + Keys.ENTER))
    assert not browser.find_elements(By.CSS_SELECTOR, ".number input")
    step_by(browser, button(browser, 1).click)
    kept = load_session(tmp_path / "s.yaml", load_bundle(tmp_path / "ranged"))
    assert kept.observed == {"a": -1, "c": 0, "b": 1}
    assert kept.numbers == {"a": 11.5, "c": 5.0}
    assert [row.text for row in browser.find_elements(By.CSS_SELECTOR, "#values .said")][:2] == [
        "11.5 g/dL (low)",
        "5 mg/l (usual)",
    ]
    opened(browser, address)
    assert "11.5 g/dL (low)" in text(browser, "values"), "a page that is opened again shows what was typed"


@NEEDS_BROWSER
def test_numbers_and_choices_of_a_panel_are_taken_in_together(serve, browser):
    _, address = serve(None, "--page", "--example", "cooling", words=("demo",))
    opened(browser, address)
    send = browser.find_element(By.ID, "send")
    assert not send.is_enabled()
    fields = browser.find_elements(By.CSS_SELECTOR, ".number input")
    fields[0].send_keys("20")
    assert send.is_enabled()
    fields[1].send_keys("many")
    send.click()
    until(browser, lambda: "value of evaporating_temperature: found 'many'" in text(browser, "message"))
    fields[1].clear()
    fields[1].send_keys("4,5")
    button(browser, 0).find_element(By.XPATH, "ancestor::fieldset/following-sibling::fieldset[2]//button").click()
    fields = browser.find_elements(By.CSS_SELECTOR, ".number input")
    assert [field.get_attribute("value") for field in fields] == ["20", "4,5", "", ""]
    step_by(browser, browser.find_element(By.ID, "send").click)
    rows = [row.text for row in browser.find_elements(By.CSS_SELECTOR, "#values tbody tr")]
    assert [row.split()[0] for row in rows] == ["superheat", "condensing_over_ambient", "evaporating_temperature"]
    said = [each.text for each in browser.find_elements(By.CSS_SELECTOR, "#values .said")]
    assert sorted(said) == ["20 K (high)", "4.5 C (usual)", "low"]


@pytest.mark.slow
@NEEDS_BROWSER
def test_the_example_is_planned_on_its_page_by_what_is_marked(serve, browser):
    """Ranges, a panel, the marked values of the made-up case; looked at wide, narrow, dark and printed."""
    _, address = serve(None, "--page", "--example", "cooling", words=("demo",))
    opened(browser, address)
    assert text(browser, "asked").startswith("gauges")
    assert len(browser.find_elements(By.CSS_SELECTOR, ".number input")) == 4
    for width in (1400, 390):
        size(browser, width, 900)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        screenshot(browser, f"demo_panel_{width}")

    def marked():
        buttons = browser.find_elements(By.CSS_SELECTOR, "#rows .choice button[aria-pressed=false]")
        return [each for each in buttons if "(this case)" in each.text]

    for _ in range(4):  # a click draws the rows anew
        browser.execute_script("arguments[0].click()", marked()[0])
    step_by(browser, browser.find_element(By.ID, "send").click)
    while left := marked():
        step_by(browser, lambda: browser.execute_script("arguments[0].click()", left[0]))
    assert text(browser, "asked").startswith("dirty_condenser (probability 0.8")
    for name, features in (("dark", [{"name": "prefers-color-scheme", "value": "dark"}]), ("print", [])):
        media = {"media": "print" if name == "print" else "", "features": features}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
        screenshot(browser, f"demo_{name}_390")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


@NEEDS_BROWSER
def test_why_a_new_patient_and_a_refused_value_by_mouse(serve, browser):
    _, address = serve(None, "--page", words=("demo",))
    opened(browser, address)
    assert "1/7" in text(browser, "start")
    browser.find_element(By.ID, "feature").send_keys("superheat")
    assert "low usual high" not in text(browser, "words")
    browser.find_element(By.ID, "value").send_keys(Keys.ENTER)
    until(browser, lambda: "usual: 4 to 10 K" in text(browser, "message"))
    browser.find_element(By.ID, "value").send_keys("250 bar" + Keys.ENTER)
    until(browser, lambda: "convert it to K" in text(browser, "message"))
    assert browser.find_element(By.ID, "value").get_attribute("value") == "250 bar", "what was typed stays"
    browser.find_element(By.ID, "value").clear()
    step_by(browser, lambda: browser.find_element(By.ID, "value").send_keys("3,5" + Keys.ENTER))
    assert text(browser, "echo") == "superheat: 3.5 K is low"
    browser.find_element(By.CSS_SELECTOR, "#bars .entity").click()
    until(browser, lambda: "superheat 3.5 K (low)" in text(browser, "shares"))
    field = browser.find_element(By.CSS_SELECTOR, "#values input")
    step_by(browser, lambda: field.send_keys("7" + Keys.TAB))
    until(browser, lambda: "superheat 7 K (usual)" in text(browser, "shares"))
    browser.find_element(By.ID, "new").click()
    browser.switch_to.alert.accept()
    until(browser, lambda: text(browser, "spent").startswith("0 measured"))
    assert not browser.find_element(By.ID, "why").is_displayed()
    assert complaints(browser, address) == []


@NEEDS_BROWSER
def test_a_session_of_an_edited_bundle_is_opened_where_the_user_says_so(serve, browser, tmp_path):
    bundle, file = load_bundle(TINY), tmp_path / "earlier.yaml"
    planner = TopKPlanner(bundle, k=1)
    planner.observe("MUC2", -1)
    save_session(planner, file)
    file.write_text(file.read_text().replace(bundle.digest, "a" * 64))
    _, address = serve(TINY)
    opened(browser, address)
    for answer in ("dismiss", "accept"):
        browser.find_element(By.ID, "opened").send_keys(str(file))
        WebDriverWait(browser, 60, 0.05).until(alert_is_present())
        asked_back = browser.switch_to.alert
        assert f"Found a session on tiny 1, digest {'a' * 16}" in asked_back.text
        assert "Take its values in again on the bundle as it is now?" in asked_back.text
        getattr(asked_back, answer)()
        if answer == "dismiss":
            assert text(browser, "spent").startswith("0 measured")
    until(browser, lambda: text(browser, "spent").startswith("1 measured"))
    until(browser, lambda: "tiny has changed since this session" in text(browser, "message"))
    assert complaints(browser, address) == []
