"""What the pages of a report are put together from: templates of this package, and contents packed into text."""

from __future__ import annotations

import base64
import gzip
from importlib import resources


def template(name: str) -> str:
    """The text of a file in `templates`."""
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


def style(name: str) -> str:
    """The style sheet of a page, after what all pages start from."""
    return template("page.css") + template(name)


def packed(content: bytes) -> str:
    """Base64 of gzip, the same text for the same bytes; a page unpacks it when a reader asks for it."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode("ascii")
