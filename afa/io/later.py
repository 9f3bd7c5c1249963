"""Modules that annotations name and that are imported when they are first used, because they are slow to import."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Later:
    """A module by its name, such as `pandas`, which is imported when one of its attributes is first looked up.

    It stands where `if TYPE_CHECKING` has the import, so that `typing.get_type_hints` finds what an annotation names.

    >>> Later("decimal").Decimal(1)
    Decimal('1')
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)
