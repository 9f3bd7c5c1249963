"""The page of notation: every symbol has a name in the code, a shape and a domain, and every name is there."""

import dataclasses
import importlib.util
import inspect
import re
from contextlib import suppress
from pathlib import Path

import pytest

from afa.paper.experiments.base import meaning_of

PAGE = Path(__file__).parents[2] / "docs" / "notation.md"
COLUMNS = ["symbol", "in the code", "shape", "domain"]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not line.startswith("|---")
]
NAMES = sorted({name for _, code, *_ in ROWS if code != COLUMNS[1] for name in re.findall(r"`([^`]+)`", code)})


def find(name):
    """What a name of the page stands for: a thing of the package, an argument, or a column of a table.

    Raises `LookupError` where there is none.
    """
    if "/" in name:
        table, _, column = name.rpartition(".")
        if (meaning := meaning_of(table, column)) is None:
            raise LookupError(name)
        return meaning
    path, argument = re.fullmatch(r"([\w.]+)(?:\((\w+)\))?", name).groups()
    thing, rest = module_of(path.split("."))
    for part in rest:
        fields = {field.name for field in dataclasses.fields(thing)} if dataclasses.is_dataclass(thing) else set()
        if not hasattr(thing, part) and part not in fields:
            raise LookupError(name)
        thing = getattr(thing, part, None)
    return inspect.signature(thing).parameters[argument] if argument else thing


def module_of(parts):
    """The deepest module of the package that a dotted name begins with, and what is left of the name."""
    for size in range(len(parts), 0, -1):
        name = ".".join(["afa", *parts[:size]])
        with suppress(ModuleNotFoundError):
            if importlib.util.find_spec(name):
                return importlib.import_module(name), parts[size:]
    raise LookupError(".".join(parts))


@pytest.mark.parametrize("row", [row for row in ROWS if row != COLUMNS], ids=lambda row: row[0])
def test_a_symbol_has_a_name_in_the_code_a_shape_and_a_domain(row):
    assert len(row) == len(COLUMNS)
    assert all(row)
    assert "`" in row[1]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_page_is_in_the_code(name):
    find(name)


@pytest.mark.parametrize(
    "name",
    [
        "model.mrf.Evidence.potential",
        "model.mrf.nothing",
        "nowhere.f",
        "inference.class_odds.two_elbo(nothing)",
        "binary/tasks.nothing",
    ],
)
def test_a_name_that_is_not_in_the_code_would_be_noticed(name):
    with pytest.raises(LookupError):
        find(name)


def test_no_symbol_stands_twice():
    symbols = [row[0] for row in ROWS if row != COLUMNS]
    assert len(set(symbols)) == len(symbols)
