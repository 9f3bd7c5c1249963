"""The explorer page: one HTML file with its data, its styles, its scripts and a plotting library, and nothing fetched.

What is large travels packed, as base64 of gzip; names travel as JSON and are put on the page as text.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bokeh
from bokeh.resources import Resources
from markupsafe import Markup

from afa.files import write_text
from afa.report.explored import Explored
from afa.report.page_parts import packed, page

LIBRARY = Resources(mode="inline", components=["bokeh", "bokeh-api"], minified=True, log_level="error")
UNSAFE = str.maketrans({letter: f"\\u{ord(letter):04x}" for letter in "<>&"})
"""Letters that HTML gives a meaning, as JSON also writes them: no name can end the element that holds it."""


def write_explorer(explored: Explored, path: str | Path) -> None:
    """Write the page; it appears when it is complete."""
    write_text(path, explorer_page(explored))


def explorer_page(explored: Explored) -> str:
    """The page as HTML, the same bytes for the same steps."""
    return page(
        "explorer.html",
        summary=Markup(safe_json(explored.summary)),  # noqa: S704
        version=bokeh.__version__,
        library=packed("\n".join(LIBRARY.js_raw).encode()),
        steps=[packed(json.dumps(steps, separators=(",", ":")).encode()) for steps in explored.steps],
    )


def safe_json(value: Any) -> str:
    r"""JSON in plain ASCII that can stand inside any HTML element: `<`, `>` and `&` are escaped too.

    >>> print(safe_json("</script>"))
    "\u003c/script\u003e"
    """
    return json.dumps(value, separators=(",", ":")).translate(UNSAFE)
