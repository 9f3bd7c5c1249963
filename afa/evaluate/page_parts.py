"""Make parts of pages: fill in templates, compress contents to base64 text, and convert documents to HTML."""

from __future__ import annotations

import base64
import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
MARKED = re.compile(r"<p><strong>([A-Z]\d+),")
LINK = re.compile(r'<a href="(?!#|https?:)([^"]*)">(.*?)</a>', flags=re.DOTALL)


def page(name: str, **values: Any) -> str:
    """Return a page or text rendered from the template `name`."""
    return TEMPLATES.get_template(name).render(values) + "\n"


def packed(content: bytes) -> str:
    """Return the content as base64 text of its gzip compression."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode("ascii")


def document(path: Path) -> str:
    """Return a page of `docs` as HTML, without its title and without links.

    Numbered items such as `E7` and `M1` get anchors.
    """
    title, _, text = path.read_text(encoding="utf-8").partition("\n")
    if not title.startswith("# "):
        text = f"{title}\n{text}"
    html = MARKED.sub(r'<p id="\1"><strong>\1,', MARKDOWN.render(text)).replace("<th>", '<th scope="col">')
    return LINK.sub(r"\2", html).replace("<table>", '<div class="scroll"><table>').replace("</table>", "</table></div>")


TENTH = 0.1


def linked(text: str, known: frozenset[str]) -> Markup:
    """Return the text as escaped HTML in which every item of `known`, such as E1, is a link.

    Texts such as `t = 50` and `5 %` are not broken across lines.

    >>> linked("a < b (E1, E99)", frozenset({"E1"}))
    Markup('a &lt; b (<a href="#E1">E1</a>, E99)')
    """
    text = re.sub(r"\bt = (?=\d)", "t\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}", text).replace(" %", "\N{NO-BREAK SPACE}%")
    parts = re.split(r"\b([A-Z]\d+)\b", text)
    return Markup("").join(
        Markup('<a href="#{0}">{0}</a>').format(part) if part in known else escape(part) for part in parts
    )


def items(html: str) -> frozenset[str]:
    """Return the items of a document that have anchors, such as `E7`."""
    return frozenset(re.findall(r'<p id="([A-Z]\d+)">', html))


def hundredth(value: float) -> str:
    """Return a number as text with two decimals, or an empty text if the number is missing."""
    return "" if np.isnan(value) else f"{round(value, 2) + 0.0:.2f}"


def tenths(value: float) -> str:
    """Return a number as text with one decimal.

    A number that would be rounded to 0 keeps its first significant digit instead.

    >>> tenths(13.602), tenths(-0.0496), tenths(0.0), tenths(-14.0)
    ('13.6', '-0.05', '0', '-14')
    """
    return f"{value:.1g}" if 0 < abs(value) < TENTH / 2 else f"{round(value, 1) + 0.0:g}"


def digits(value: float | None) -> str:
    """Return a number as text: three digits below 100, no decimals from 100 on, and an empty text if it is missing.

    Zero has no sign.

    >>> digits(0.86412), digits(1234.0), digits(-0.0)
    ('0.864', '1234', '0')
    """
    return "" if pd.isna(value) else f"{value + 0.0:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _slug(text: object) -> str:
    return "".join(c if c.isalnum() else "-" for c in str(text).lower())


TEMPLATES = Environment(
    loader=PackageLoader("afa.evaluate"),
    autoescape=select_autoescape(("html",), default_for_string=False),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {"linked": linked, "hundredth": hundredth, "digits": digits, "tenths": tenths, "slug": _slug}
