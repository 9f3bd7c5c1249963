"""Delay the import of slow modules that only type annotations need."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Later:
    """Placeholder for the module `name`. The module is imported when an attribute of the placeholder is first read.

    `typing.get_type_hints` can resolve an annotation that uses a placeholder. If the module were imported
    under `if TYPE_CHECKING`, `typing.get_type_hints` would fail.

    >>> Later("decimal").Decimal(1)
    Decimal('1')
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)
