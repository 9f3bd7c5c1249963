"""An abstract as it was retrieved: plain text without markup, which cannot pass for the lines around it in a prompt."""

from __future__ import annotations

import hashlib
import html
import json
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

LONGEST_TITLE, LONGEST_TEXT = 500, 5000
"""Characters; an abstract is rarely half as long, and what is longer is cut at a blank."""
LONGEST_MARKUP = 20_000
"""Characters of a text with its markup that are read."""
CUT = " [...]"
SourceName = Literal["pubmed", "preprint"]

_INVISIBLE = {"Cc", "Cf", "Cn", "Co", "Cs"}
_DASH = "[\N{HYPHEN-MINUS}\N{ARMENIAN HYPHEN}\N{HYPHEN}-\N{HORIZONTAL BAR}\N{HYPHEN BULLET}\N{MINUS SIGN}" + (
    "\N{BOX DRAWINGS LIGHT HORIZONTAL}\N{BOX DRAWINGS HEAVY HORIZONTAL}\N{TWO-EM DASH}\N{THREE-EM DASH}"
    "\N{SMALL EM DASH}\N{SMALL HYPHEN-MINUS}\N{FULLWIDTH HYPHEN-MINUS}]"
)
_DASHES = re.compile(rf"{_DASH}(?: ?{_DASH})+")
# Only names of elements count as markup: "p<0.05 and n>3" is none.
_NAMES = "a|abstract|b|bold|br|div|em|h[1-6]|i|inf|italic|li|ol|p|sc|sec|span|strong|sub|sup|title|u|ul"
_ATTRIBUTE = r"""\s+[\w:.-]+\s*=\s*(?:"[^"]*"|'[^']*')"""
_TAG = re.compile(rf"</?(?:{_NAMES}|(?:jats|mml):[\w-]+)(?:{_ATTRIBUTE})*\s*/?>|<!--.*?-->", re.IGNORECASE | re.DOTALL)
_HEADING = re.compile(
    r"<(h[1-6]|(?:jats:)?title)>\s*(.{0,200}?)\s*:?\s*</\1>\s*(?:<(?:jats:)?p>)?", re.IGNORECASE | re.DOTALL
)
_BLOCK = re.compile(r"</?(?:br|div|li|(?:jats:)?p|(?:jats:)?sec)\s*/?>", re.IGNORECASE)


@dataclass(frozen=True)
class Abstract:
    """One publication; whatever it is made of, its texts are printable, bounded and without runs of dashes.

    id : a PMID, the DOI of a preprint, or the number that the service gave a preprint without one. doi : empty where
    unknown. title, journal : one line. text : one line per section.
    """

    source: SourceName
    id: str
    title: str
    year: int | None
    journal: str
    text: str
    doi: str = ""

    def __post_init__(self) -> None:
        for name in ("id", "title", "journal", "doi"):
            object.__setattr__(self, name, _shortened(one_line(getattr(self, name)), LONGEST_TITLE))
        lines = filter(None, map(one_line, self.text.splitlines()))
        object.__setattr__(self, "text", _shortened("\n".join(lines), LONGEST_TEXT))

    @property
    def cited_as(self) -> str:
        """What a reader finds it by, as it stands in a prompt."""
        name = "PMID" if self.source == "pubmed" else "DOI" if self.id == self.doi else "Europe PMC"
        journal = self.journal if self.source == "pubmed" else f"{self.journal} preprint".strip()
        return ", ".join(filter(None, (f"{name} {self.id}", journal, str(self.year or ""))))

    @property
    def document(self) -> dict[str, Any]:
        """Its fields, as they are stored."""
        return asdict(self)

    @property
    def digest(self) -> str:
        """SHA-256 of its content."""
        return hashlib.sha256(written(self.document).encode()).hexdigest()

    @classmethod
    def of(cls, document: Any) -> Abstract:
        """The abstract that was stored as `document`; `ValueError` where it is none."""
        if not isinstance(document, dict) or set(document) != {field.name for field in fields(cls)}:
            raise ValueError("no fields of an abstract")
        texts = (value for name, value in document.items() if name != "year")
        year = document["year"]
        if not all(isinstance(text, str) for text in texts) or not (year is None or type(year) is int):
            raise ValueError("a field of another type")
        if document["source"] not in ("pubmed", "preprint"):
            raise ValueError("another source")
        return cls(**document)


def quoted(abstracts: Iterable[Abstract]) -> list[dict[str, str]]:
    """Abstracts as a prompt shows them: title, source, text."""
    return [{"title": each.title, "source": each.cited_as, "text": each.text} for each in abstracts]


def written(document: Any) -> str:
    """A document as JSON, the same whatever order its keys came in."""
    return json.dumps(document, sort_keys=True, ensure_ascii=False)


def without_markup(text: str) -> str:
    """A text of HTML or JATS as plain lines: headings begin a line and end in a colon, entities are characters."""
    text = _HEADING.sub(r"\n\2: ", text[:LONGEST_MARKUP])
    # Some records hold tags that were escaped once more: those show only after the first pass.
    for _ in range(2):
        text = html.unescape(_TAG.sub("", _BLOCK.sub("\n", text)))
    return _TAG.sub("", text)


def one_line(text: str) -> str:
    """A text on one line: invisible characters gone, blanks single, and each run of dashes one dash."""
    shown = text if text.isprintable() else "".join(map(_shown, text))
    return _DASHES.sub("\N{EM DASH}", " ".join(unicodedata.normalize("NFC", shown).split()))


def _shown(character: str) -> str:
    if character.isspace():
        return " "
    return "" if unicodedata.category(character) in _INVISIBLE else character


def _shortened(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return text[: longest - len(CUT)].rsplit(None, 1)[0] + CUT
