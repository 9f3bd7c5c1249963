"""A headless browser for the pages that the project makes, and what it must not say or ask for."""

import json
import shutil
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

SCREENSHOTS = Path(__file__).parents[2] / "results" / "screenshots"
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
NEEDS_BROWSER = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no browser: apt-get install chromium chromium-driver, then run this again"
)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
)

ANSWERS_WITHIN = 120
"""Seconds for each request to the browser: one that hangs fails its test instead of holding up all others."""

LOADS_WITHIN = 40
"""Seconds for a page to load."""


def start():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    browser.command_executor.client_config.timeout = ANSWERS_WITHIN
    browser.set_page_load_timeout(LOADS_WITHIN)
    return browser


def visit(browser, address):
    """Go to an address. The driver has once missed the end of a load and waited for ever, so it is asked twice."""
    try:
        browser.get(address)
    except TimeoutException:
        browser.get(address)


def open_page(browser, path, width=1280, height=900):
    """Open a file with the logs emptied before."""
    size(browser, width, height)
    for log in ("browser", "performance"):
        browser.get_log(log)
    visit(browser, path.as_uri())


def assert_quiet(browser):
    """Nothing was said on the console, and nothing was asked of a network, since the page was opened."""
    said = [entry for entry in browser.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]
    assert said == [], said
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert asked
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))] == []


def size(browser, width, height):
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def screenshot(browser, name):
    """Keep what is seen among the results."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    assert browser.save_screenshot(str(SCREENSHOTS / f"{name}.png"))


def assert_works(browser, path, width=1280):
    """The page opens, unfolds, and opens every page inside it; every link within it leads somewhere; all is quiet."""
    open_page(browser, path, width)
    for number in range(len(browser.find_elements(By.CSS_SELECTOR, "details"))):
        browser.execute_script("document.querySelectorAll('details')[arguments[0]].open = true", number)
    lost = browser.execute_script(
        "return [...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.getAttribute('href').slice(1))"
        ".filter(id => id && !document.getElementById(decodeURIComponent(id)))"
    )
    assert lost == []
    for button in browser.find_elements(By.CSS_SELECTOR, "button.open"):
        browser.execute_script("arguments[0].click()", button)
        WebDriverWait(browser, 60, 0.05).until(
            lambda b: b.execute_script(
                "const inside = document.getElementById('inside');"
                "return document.getElementById('reader').open && Boolean(inside.srcdoc)"
            )
        )
        browser.execute_script("document.getElementById('close').click()")
    assert_quiet(browser)
