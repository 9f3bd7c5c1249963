"""One browser for the page's tests."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "report"))

import browsers


@pytest.fixture(scope="session")
def browser():
    driver = browsers.start()
    yield driver
    driver.quit()
