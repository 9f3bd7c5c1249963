"""How many examples a property test draws."""

from typing import Any

from hypothesis import settings

MOST = 60
"""Examples that a test without a number of its own draws in the whole suite."""
FEWER = 4
"""The fast suite draws one in so many, and at least 5."""


def examples(number: int, **others: Any) -> settings:
    """Decorate a property test that draws `number` examples in the whole suite."""
    return settings(max_examples=max(5, number * settings().max_examples // MOST), **others)
