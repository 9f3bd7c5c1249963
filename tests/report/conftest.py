"""One browser for all tests of a page."""

import browsers
import pytest


@pytest.fixture(scope="session")
def browser():
    driver = browsers.start()
    yield driver
    driver.quit()
