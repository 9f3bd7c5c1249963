"""The explorer page: one HTML file with its data, its styles, its scripts and a plotting library, and nothing fetched.

What is large travels packed, as base64 of gzip; names travel as JSON and are put on the page as text.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import bokeh
from bokeh.resources import Resources

from afa.experiments.explorer import Explored
from afa.files import atomic_file

SCRIPTS = ("explorer_words.js", "explorer_data.js", "explorer_charts.js", "explorer.js")
LIBRARY = Resources(mode="inline", components=["bokeh", "bokeh-api"], minified=True, log_level="error")
UNSAFE = str.maketrans({letter: f"\\u{ord(letter):04x}" for letter in "<>&"})
"""Letters that HTML gives a meaning, as JSON also writes them: no name can end the element that holds it."""


def write_explorer(explored: Explored, path: str | Path, report: Callable[[str], None] = lambda _: None) -> None:
    """Write the page; it appears when it is complete. `report` gets a line with its size."""
    page = explorer_page(explored).encode()
    with atomic_file(path) as temporary:
        temporary.write_bytes(page)
    report(f"{len(explored.steps)} patients, {len(page) / 1e6:.2f} MB")


def explorer_page(explored: Explored) -> str:
    """The page as HTML, the same bytes for the same steps."""
    packed = [
        f'<script type="text/plain" id="steps-{i}">{_packed(json.dumps(steps, separators=(",", ":")))}</script>'
        for i, steps in enumerate(explored.steps)
    ]
    return Template(_part("explorer.html")).substitute(
        style=_part("explorer.css"),
        script="\n".join(map(_part, SCRIPTS)),
        summary=safe_json(explored.summary),
        version=bokeh.__version__,
        library=_packed("\n".join(LIBRARY.js_raw)),
        steps="\n".join(packed),
    )


def safe_json(value: Any) -> str:
    r"""JSON in plain ASCII that can stand inside any HTML element: `<`, `>` and `&` are escaped too.

    >>> print(safe_json("</script>"))
    "\u003c/script\u003e"
    """
    return json.dumps(value, separators=(",", ":")).translate(UNSAFE)


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode("ascii")


def _part(name: str) -> str:
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")
