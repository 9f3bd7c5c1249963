"""What strange files are drawn from: names, cells and values, and how a case is run."""

from __future__ import annotations

import csv
import io
import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from fuzz.corpus import Reader
from fuzz.harness import DRAWN, SEED, check
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st

_FUZZING = settings(
    max_examples=DRAWN,
    deadline=None,
    database=None,
    phases=(Phase.generate,),  # shrinking a case that hangs would take longer than all others
    suppress_health_check=list(HealthCheck),
)


def fuzzed(test: Callable[[], None]) -> Callable[[], None]:
    """Draw as many files as are asked for, the same for the same `AFA_FUZZ_SEED`."""
    return seed(SEED)(_FUZZING(test))


NAMES = st.sampled_from(
    ["MUC2", "CXCL8", "=HYPERLINK(1)", "-catenin", "+x", "@y", "a,b", 'a"b', "é", "e\u0301", "名前", "x" * 150, "null"]
)
STRANGE_TEXT = st.one_of(
    st.sampled_from(
        [
            *("", " ", "\n", "a\nb", "a\r\nb", "\0", "\u202eb", "\u200f", "\ufeffa", "\x1b[2J", "\t=1", "x" * 3000),
            *("nan", "inf", "-inf", "1e400", "-1e400", "1e308", "1_0", "\u0661", "0x10", "-0", "9" * 400, "TRUE", "NA"),
            *("../../x", "/etc/passwd", "C:\\x", "%s%n", "{0}", "!!int x", "&a", "*a", "<<", "~"),
        ]
    ),
    st.text(max_size=8),
)
CELLS = st.one_of(NAMES, NAMES, st.sampled_from(["0", "1", "-1", "0.5"]), STRANGE_TEXT)
NUMBERS = st.one_of(
    st.integers(-2, 2),
    st.integers(),
    st.floats(),
    st.sampled_from([2**31, 2**63, -(2**64), 10**400, 1e308, math.nan, math.inf, -0.0]),
)
PLAIN = st.one_of(st.none(), st.booleans(), NUMBERS, CELLS)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.one_of(CELLS, PLAIN), inner, max_size=4)),
    max_leaves=8,
)


def read_of(name: str, files: Mapping[str, bytes], read: Callable[[Path], object], folder: Path, *places: str) -> bool:
    """Whether the files, written into a new folder, are read; they are removed again."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as own:
        inside = Path(own) / "in"
        for file, content in files.items():
            (inside / file).parent.mkdir(parents=True, exist_ok=True)
            (inside / file).write_bytes(content)
        return check(Reader(name, files, read, places), inside) is None


def csv_of(rows: list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", errors="surrogatepass")


def table_of(*header: str, rows: int = 4) -> st.SearchStrategy[bytes]:
    cells = st.lists(CELLS, min_size=len(header), max_size=len(header))
    return st.lists(cells, max_size=rows).map(lambda body: csv_of([list(header), *body]))


def potentials_of(*names: str) -> st.SearchStrategy[bytes]:
    """Mostly sound rows, so that some files are read whole."""
    number = st.one_of(st.sampled_from(["1", "-1", "0", "1e99", "-0.5"]), CELLS)
    row = st.tuples(*[st.one_of(NAMES, CELLS) for _ in names], number).map(list)
    sound = st.tuples(*[NAMES for _ in names], st.sampled_from(["1", "-1", "2.5", "1e99"])).map(list)
    rows = st.one_of(st.lists(sound, max_size=4), st.lists(row, max_size=4))
    return rows.map(lambda body: csv_of([[*names, "potential"], *body]))


def yaml_of(document: Any) -> bytes:
    return yaml.safe_dump(document, allow_unicode=True).encode("utf-8", errors="surrogatepass")
