"""Escape texts that spreadsheet programs would run as formulas.

An apostrophe is put in front of a text that looks like a formula, so that a spreadsheet program shows the text and does
not run it. Numbers are unchanged, even if they are saved as text. Texts in the files of a bundle are not escaped,
because names in these files must match exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_MARK = "'"
_FORMULA = re.compile(f"{_MARK}*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20].", re.DOTALL)
_CELL_NUMBER = re.compile(rf"{_MARK}*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?%?")


def marked(text: str) -> str:
    """Return a text with an apostrophe in front if a spreadsheet would run it as a formula.

    >>> marked("=HYPERLINK(1)"), marked("-0.5"), marked("MUC2")
    ("'=HYPERLINK(1)", '-0.5', 'MUC2')
    """
    return _MARK + text if _is_formula(text) else text


def unmarked(text: str) -> str:
    """Return the text without the apostrophe that the function `marked` has put in front of it.

    >>> unmarked(marked("=1")), unmarked(marked("'=1")), unmarked("'s")
    ('=1', "'=1", "'s")
    """
    return text[1:] if text.startswith(_MARK) and _is_formula(text) else text


def marked_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with all texts escaped, including column names. Columns without formulas are not copied.

    Carriage returns are replaced by line feeds, because pandas does not quote a carriage return, and a CSV reader would
    begin a new row at it.
    """
    return _map_texts(table, table.columns, lambda text: marked(text.replace("\r\n", "\n").replace("\r", "\n"))).rename(
        columns=lambda name: marked(name) if isinstance(name, str) else name
    )


def unmarked_table(table: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Return the table after removing the escapes that `marked_table` added to the given columns."""
    return _map_texts(table, columns, unmarked)


def _map_texts(table: pd.DataFrame, columns: Iterable[str], change: Callable[[str], str]) -> pd.DataFrame:
    replaced = {}
    for name in columns:
        texts = {text for text in table[name].dropna().unique() if isinstance(text, str)}
        new = {text: change(text) for text in texts if change(text) != text}
        if new:
            replaced[name] = [new.get(cell, cell) if isinstance(cell, str) else cell for cell in table[name]]
    return table.assign(**replaced)


def _is_formula(text: str) -> bool:
    return _FORMULA.match(text) is not None and _CELL_NUMBER.fullmatch(text) is None
