"""How many examples a property test draws."""

from typing import Any

from hypothesis import settings

MOST = 60
"""Number of examples of a test that does not set its own number, when `make test-all` runs all tests."""
FEWER = 4
"""`make test` draws a quarter of the examples, but at least 5."""


def examples(number: int, **others: Any) -> settings:
    """Decorate a property test to draw `number` examples when all tests run, and fewer in `make test`."""
    return settings(max_examples=max(5, number * settings().max_examples // MOST), **others)
