"""The explorer page: one HTML file with its data, its styles, its scripts and a plotting library, and nothing fetched.

What is large travels packed, as base64 of gzip; names travel as JSON and are put on the page as text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from string import Template
from typing import Any

import bokeh
from bokeh.resources import Resources

from afa.files import atomic_file
from afa.report.explored import Explored
from afa.report.page_parts import packed, style, template

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
    scripts = [
        f'<script type="text/plain" id="steps-{i}">{packed(json.dumps(steps, separators=(",", ":")).encode())}</script>'
        for i, steps in enumerate(explored.steps)
    ]
    return Template(template("explorer.html")).substitute(
        style=style("explorer.css"),
        script="\n".join(map(template, SCRIPTS)),
        summary=safe_json(explored.summary),
        version=bokeh.__version__,
        library=packed("\n".join(LIBRARY.js_raw).encode()),
        steps="\n".join(scripts),
    )


def safe_json(value: Any) -> str:
    r"""JSON in plain ASCII that can stand inside any HTML element: `<`, `>` and `&` are escaped too.

    >>> print(safe_json("</script>"))
    "\u003c/script\u003e"
    """
    return json.dumps(value, separators=(",", ":")).translate(UNSAFE)
