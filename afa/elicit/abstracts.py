"""Prepare abstracts of publications as plain text for prompts, and cache abstracts and searches on disk.

Markup is removed from an abstract. A run of dashes becomes one dash, because lines of dashes separate the abstracts in
a prompt. The file name of a saved abstract is the hash of its content, and the file name of a saved search is its date.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, StrictInt, TypeAdapter, ValidationError

from afa.errors import ElicitationError, Fault
from afa.io.files import read_whole, write_text
from afa.io.yamlfile import first_error
from afa.model.study import SHA256, SourceKind

LONGEST_TITLE, LONGEST_TEXT = 500, 5000
"""Longest title and abstract, in characters; few abstracts have half as many. Longer texts are cut at a blank."""
LONGEST_MARKUP = 20_000
"""Number of characters of a text with markup that are read."""
CUT_MARK = " [...]"
SourceName = Literal["pubmed", "preprint"]
Stored = TypeVar("Stored")
LARGEST_ABSTRACT_FILE = 16 << 20
"""Largest file, in bytes."""

_INVISIBLE = {"Cc", "Cf", "Cn", "Co", "Cs"}
_DASH = "[\N{HYPHEN-MINUS}\N{ARMENIAN HYPHEN}\N{HYPHEN}-\N{HORIZONTAL BAR}\N{HYPHEN BULLET}\N{MINUS SIGN}" + (
    "\N{BOX DRAWINGS LIGHT HORIZONTAL}\N{BOX DRAWINGS HEAVY HORIZONTAL}\N{TWO-EM DASH}\N{THREE-EM DASH}"
    "\N{SMALL EM DASH}\N{SMALL HYPHEN-MINUS}\N{FULLWIDTH HYPHEN-MINUS}]"
)
_DASHES = re.compile(rf"{_DASH}(?: ?{_DASH})+")
# Only tags with these element names are removed: a text such as "p<0.05 and n>3" is kept.
_ELEMENT_NAMES = "a|abstract|b|bold|br|div|em|h[1-6]|i|inf|italic|li|ol|p|sc|sec|span|strong|sub|sup|title|u|ul"
_ATTRIBUTE = r"""\s+[\w:.-]+\s*=\s*(?:"[^"]*"|'[^']*')"""
_TAG = re.compile(
    rf"</?(?:{_ELEMENT_NAMES}|(?:jats|mml):[\w-]+)(?:{_ATTRIBUTE})*\s*/?>|<!--.*?-->", re.IGNORECASE | re.DOTALL
)
_HEADING = re.compile(
    r"<(h[1-6]|(?:jats:)?title)>\s*(.{0,200}?)\s*:?\s*</\1>\s*(?:<(?:jats:)?p>)?", re.IGNORECASE | re.DOTALL
)
_BLOCK_TAG = re.compile(r"</?(?:br|div|li|(?:jats:)?p|(?:jats:)?sec)\s*/?>", re.IGNORECASE)
# Official gene symbols contain Latin letters instead of Greek letters, such as B for beta in IL1B.
_GREEK = str.maketrans({"α": "a", "β": "b", "γ": "g", "δ": "d", "ε": "e", "κ": "k"})
_ACCENT = re.compile("[\u0300-\u036f]")
_WORD = re.compile(r"[^\W_]+(?:-[^\W_]+)*")


@dataclass(frozen=True)
class Abstract:
    """One publication. All texts of a publication are printable, limited in length, and without runs of dashes.

    Parameters
    ----------
    id : a PMID, the DOI of a preprint, or the service's number of a preprint without a DOI
    title, journal : one line each
    text : one line for each section
    doi : empty if unknown

    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    source: SourceName
    id: str
    title: str
    year: StrictInt | None
    journal: str
    text: str
    doi: str = ""

    def __post_init__(self) -> None:
        for name in ("id", "title", "journal", "doi"):
            object.__setattr__(self, name, _shortened(one_line(getattr(self, name)), LONGEST_TITLE))
        lines = filter(None, map(one_line, self.text.splitlines()))
        object.__setattr__(self, "text", _shortened("\n".join(lines), LONGEST_TEXT))

    @property
    def kind(self) -> SourceKind:
        """Return the kind of publication: `article` (peer-reviewed) or `preprint`."""
        return "article" if self.source == "pubmed" else "preprint"

    @property
    def cited_as(self) -> str:
        """Return the citation that a prompt shows: identifier, journal and year."""
        name = "PMID" if self.source == "pubmed" else "DOI" if self.id == self.doi else "Europe PMC"
        journal = self.journal if self.source == "pubmed" else f"{self.journal} preprint".strip()
        return ", ".join(filter(None, (f"{name} {self.id}", journal, str(self.year or ""))))

    @property
    def document(self) -> dict[str, Any]:
        """Return the fields of the abstract as a dictionary, from which the saved JSON is made."""
        return asdict(self)

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the abstract's content."""
        return hashlib.sha256(json_text(self.document).encode()).hexdigest()


ABSTRACT_PARSER = TypeAdapter(Abstract)
"""Parser of a saved abstract."""


def prompt_abstracts(abstracts: Iterable[Abstract]) -> list[dict[str, str]]:
    """Return a dictionary for each abstract, with the title, the source and the text that a prompt shows."""
    return [{"title": each.title, "source": each.cited_as, "text": each.text} for each in abstracts]


def json_text(document: Any) -> str:
    """Return a document as JSON with sorted keys."""
    return json.dumps(document, sort_keys=True, ensure_ascii=False)


def without_markup(text: str) -> str:
    """Return the plain text of HTML or JATS markup. Each heading begins a line and ends in a colon."""
    text = _HEADING.sub(r"\n\2: ", text[:LONGEST_MARKUP])
    # Unescape the text twice, because some tags are escaped twice (`&amp;lt;p&amp;gt;`). Remove tags each time.
    for _ in range(2):
        text = html.unescape(_TAG.sub("", _BLOCK_TAG.sub("\n", text)))
    return _TAG.sub("", text)


def one_line(text: str) -> str:
    """Return a text on one line, with single blanks and without invisible characters.

    A run of dashes becomes one dash.
    """
    shown = text if text.isprintable() else "".join(map(_visible_character, text))
    return _DASHES.sub("\N{EM DASH}", " ".join(unicodedata.normalize("NFC", shown).split()))


def words(text: str) -> list[str]:
    """Return the words of a text in lower case without accents.

    For a hyphenated word, the list contains the parts of the word and the word without hyphens.

    >>> words("Mucosal IL-1β")
    ['mucosal', 'il', '1b', 'il1b']
    """
    plain = unicodedata.normalize("NFKD", text.casefold().translate(_GREEK))
    found: list[str] = []
    for word in _WORD.findall(_ACCENT.sub("", plain)):
        parts = word.split("-")
        found += parts if len(parts) == 1 else [*parts, "".join(parts)]
    return found


def names_gene(abstract: Abstract, names: Iterable[str]) -> bool:
    """Return True if the title or the text of an abstract contains one of the gene names in `names`.

    A gene name must match whole words of the abstract. If a gene name consists of capital letters only, such as CAT,
    the abstract must contain the name in capitals.
    """
    text = f"{abstract.title}\n{abstract.text}"
    known = f" {' '.join(words(text))} "
    return any(_is_name_in_text(name, text, known) for name in names)


def _is_name_in_text(name: str, text: str, known: str) -> bool:
    if name.isalpha() and name.isupper():
        return re.search(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", text) is not None
    parts = words(name)
    # For a hyphenated name, search only for the name without hyphens, which is the last element of `words(name)`.
    sought = parts[-1:] if "-" in name and " " not in name else parts
    return bool(sought) and f" {' '.join(sought)} " in known


def _visible_character(character: str) -> str:
    if character.isspace():
        return " "
    return "" if unicodedata.category(character) in _INVISIBLE else character


def _shortened(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return text[: longest - len(CUT_MARK)].rsplit(None, 1)[0] + CUT_MARK


@dataclass(frozen=True)
class Search:
    """A literature search in one source, and its result.

    `retrieved` is the date of the search in ISO format, and `most` is the largest number of requested records.

    Parameters
    ----------
    total : number of records at the source
    left_out : number of records found and not used, by reason

    """

    source: SourceName
    query: str
    most: StrictInt
    retrieved: str
    total: StrictInt
    abstracts: tuple[Abstract, ...]
    left_out: Mapping[str, StrictInt] = field(default_factory=dict)


@dataclass(frozen=True)
class _SavedSearch(Search):
    """A saved search, in which the field `abstracts` contains the digest of each abstract instead of the abstract."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    abstracts: tuple[Annotated[str, Field(pattern=SHA256)], ...]  # type: ignore[assignment]


class AbstractCache:
    """A folder of saved searches and abstracts, to which several processes may write at the same time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, search: Search) -> None:
        """Save a search: first a file for each abstract, then a file that lists the digests of the abstracts.

        Because of this order, a saved search has all its abstracts on disk, even if the process is killed.
        """
        for abstract in search.abstracts:
            path = self._abstract_path(abstract.digest)
            if not path.exists():
                write_text(path, json_text(abstract.document) + "\n")
        digests = [abstract.digest for abstract in search.abstracts]
        document = {**vars(search), "abstracts": digests, "left_out": dict(search.left_out)}
        path = self._search_folder(search.source, search.query, search.most) / f"{search.retrieved}.json"
        write_text(path, json_text(document) + "\n")

    def latest(self, source: SourceName, query: str, most: int) -> Search | None:
        """Return the latest saved search with the given source, query and `most`, or None if there is no such search.

        Raises
        ------
        ElicitationError : a file that is not a search or abstract, or does not match its name.

        """
        made = sorted(self._search_folder(source, query, most).glob("????-??-??.json"))
        if not made:
            return None
        path = made[-1]
        saved = _read_stored(path, TypeAdapter(_SavedSearch))
        if (saved.source, saved.query, saved.most, saved.retrieved) != (source, query, most, path.stem):
            raise _damaged_file_error(path, "another search")
        return Search(**{**vars(saved), "abstracts": tuple(map(self._read_abstract, saved.abstracts))})

    def _read_abstract(self, digest: str) -> Abstract:
        path = self._abstract_path(digest)
        abstract = _read_stored(path, ABSTRACT_PARSER)
        if abstract.digest != digest:
            raise _damaged_file_error(path, f"content with the hash {abstract.digest}")
        return abstract

    def _abstract_path(self, digest: str) -> Path:
        return self.folder / "abstracts" / digest[:2] / f"{digest}.json"

    def _search_folder(self, source: SourceName, query: str, most: int) -> Path:
        digest = hashlib.sha256(json_text([source, query, most]).encode()).hexdigest()
        return self.folder / "searches" / source / digest[:2] / digest


def _read_stored(path: Path, stored: TypeAdapter[Stored]) -> Stored:
    try:
        return stored.validate_json(read_whole(path, LARGEST_ABSTRACT_FILE))
    except OSError as error:
        raise _damaged_file_error(path, error.strerror or "an error") from None
    except ValidationError as error:
        raise _damaged_file_error(path, f"other content ({first_error(error, 'the whole')})") from None


def _damaged_file_error(path: Path, found: str) -> ElicitationError:
    step = "remove the search that names it, and retrieve again"
    return ElicitationError(Fault(str(path), found, "what was retrieved, unchanged", step))
