"""GEO's descriptions of samples: the series matrix, and by way of GEOparse the family SOFT file.

A series matrix has a header of `!Series_` and `!Sample_` lines, then a table that may have no rows and is not kept. No
original file of either kind could be had when this was written; it follows GEO's documented layout and files generated
in that layout. Cells are in double quotes, which GEO does not escape reliably: a cell ends at a quote before a tab.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from afa.cohort.archive import GZIP_ERRORS, damage_of, open_binary
from afa.cohort.expression import LONGEST_LINE, lines_of
from afa.csvfile import quoted, visible
from afa.errors import CohortError, Fault

_LARGEST_HEADER = 256 << 20


def read_series_matrix(path: Path) -> pd.DataFrame:
    """The samples of a series matrix, gzip or plain, as `samples_frame` gives them.

    A `CohortError` names the line where the file breaks the layout or ends early, in its table too.
    """
    fields: dict[str, list[str]] = {}
    characteristics: list[list[str]] = []
    begun = ended = False
    number = size = width = 0
    for number, line in _lines(path):
        if ended or not line:
            continue
        size += len(line) * (not begun)  # held in memory
        if size > _LARGEST_HEADER:
            raise _fault(path, f"more than {_LARGEST_HEADER} characters before the table", "fewer", number)
        name, _, rest = line.partition("\t")
        if begun:
            ended = name.lower() == "!series_matrix_table_end"
            found = len(_cells(line)) if width == 0 else line.count("\t") + 1
            if not ended and found != (width := width or found):
                raise _fault(path, f"{found} cells", f"{width}, as in the table's header", number)
        elif name.lower() == "!series_matrix_table_begin":
            begun = True
        elif name.startswith("!Sample_"):
            cells = _cells(rest)
            expected = len(next(iter(fields.values()), cells))
            if len(cells) != expected:
                raise _fault(path, f"{len(cells)} cells", f"{expected}, one for each sample", number)
            fields.setdefault(name.removeprefix("!Sample_"), cells)
            if name.startswith("!Sample_characteristics_ch1"):
                characteristics.append(cells)
        elif not name.startswith("!"):
            raise _fault(path, repr(line[:40]), "a line that starts with ! before the table", number)
    if not ended:
        missing = "!series_matrix_table_end" if begun else "!series_matrix_table_begin"
        raise _fault(path, f"the end of the file without {missing}", "the whole file", number)
    accessions = fields.get("geo_accession")
    if accessions is None:
        raise _fault(path, "no !Sample_geo_accession line", "one that names the samples", number)
    cells_by_sample = [[row[i] for row in characteristics] for i in range(len(accessions))]
    return samples_frame(path, accessions, fields.get("title", [""] * len(accessions)), cells_by_sample)


def samples_frame(
    path: Path, accessions: Sequence[str], titles: Sequence[str], characteristics: Sequence[Sequence[str]]
) -> pd.DataFrame:
    """Samples (index `sample`) x (`title`, characteristics) from each sample's `key: value` cells; missing is "".

    Keys are joined by name, not by position. A cell without a key goes to `characteristics_ch1`, a characteristic
    called title to `title_ch1`; where a sample has a key twice with two values, they are joined by "; ".
    """
    rows: list[dict[str, str]] = []
    for title, cells in zip(titles, characteristics, strict=True):
        row: dict[str, str] = {"title": title.strip()}
        for cell in filter(str.strip, cells):
            key, colon, value = cell.partition(":")
            name = normal_key(key) if colon else "characteristics_ch1"
            name = "title_ch1" if name == "title" else name
            value = value.strip() if colon else cell.strip()
            before = row.get(name, "")
            row[name] = value if not before or before == value else f"{before}; {value}".removesuffix("; ")
        rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name, "") for row in rows] for name in names}
    return check_accessions(path, pd.DataFrame(columns, index=pd.Index(accessions, name="sample"), dtype=str))


def check_accessions(path: Path, samples: pd.DataFrame) -> pd.DataFrame:
    """The same frame; a `CohortError` if there is none, or one is not a GSM accession or comes twice."""
    where, step = f"{path}, sample accessions", "correct the file, or fetch it again"
    if samples.empty:
        raise CohortError(Fault(where, "no sample", "at least one", step))
    wrong = [name for name in samples.index if not re.fullmatch(r"GSM[0-9]+", name)]
    if wrong:
        raise CohortError(Fault(where, quoted(wrong[0]), "a GSM accession", step))
    twice = samples.index[samples.index.duplicated()]
    if len(twice):
        raise CohortError(Fault(where, f"{twice[0]} twice", "each accession once", step))
    return samples


def normal_key(key: str) -> str:
    """A characteristic's name as a column: lower case, spaces as underscores."""
    return "_".join(key.lower().split())


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends; a byte that is not UTF-8 becomes the replacement character."""
    number = 0
    try:
        with open_binary(path) as binary, io.TextIOWrapper(binary, encoding="utf-8", errors="replace") as text:
            for number, line in enumerate(iter(lambda: text.readline(LONGEST_LINE), ""), 1):
                if len(line) == LONGEST_LINE:
                    raise _fault(path, f"a line of {LONGEST_LINE} characters or more", "shorter ones", number)
                yield number, line.rstrip("\r\n")
    except GZIP_ERRORS as error:
        raise _fault(path, f"a truncated or damaged gzip file ({error})", "the whole file", number) from None
    except OSError as error:
        raise CohortError(Fault(str(path), error.strerror or str(error), "a readable file", "check the path")) from None


def _cells(text: str) -> list[str]:
    """The cells of a line: tabs, colons and quotes may lie inside a quoted cell; a doubled quote stands for one."""
    cells: list[str] = []
    position, closing = 0, 0
    while True:
        # A quote that closes is looked for once, not once for each cell: a line may have millions of them.
        if text.startswith('"', position) and closing <= position:
            closing = text.find('"\t', position + 1)
            if closing < 0:
                closing = len(text) - 1 if text.endswith('"') and len(text) - 1 > position else len(text)
        if text.startswith('"', position) and closing < len(text):
            cells.append(text[position + 1 : closing].replace('""', '"'))
            position = closing + 1
        else:
            tab = text.find("\t", position)
            end = len(text) if tab < 0 else tab
            cells.append(text[position:end])
            position = end
        if position >= len(text):
            return cells
        position += 1


def _fault(path: Path, found: str, expected: str, line: int = 0) -> CohortError:
    where = f"{path}, line {line}" if line else str(path)
    return CohortError(Fault(where, found, expected, "fetch the file again"))


def read_soft(path: Path) -> pd.DataFrame:
    """The samples of a family SOFT file, gzip or plain, as `samples_frame` gives them.

    A `CohortError` names what is missing: GEOparse itself, the file's end, a sample given once.
    """
    try:
        import GEOparse  # noqa: PLC0415  the dependency is optional
    except ImportError as error:
        step = "install it with: pip install 'afa[geo]'"
        raise CohortError(Fault(str(path), f"no GEOparse ({error})", "the package GEOparse", step)) from None
    path = Path(path)
    begun = _check_whole(path)
    GEOparse.set_verbosity("ERROR")
    said: list[str] = []
    # What GEOparse passes over it says in its log alone.
    with _heard(logging.getLogger("GEOparse"), said):
        try:
            family = GEOparse.get_GEO(
                filepath=str(path), geotype="GSE", open_kwargs={"encoding": "utf-8", "errors": "replace"}
            )
        except Exception as error:
            said.append(str(error))
    if said:
        reason = " ".join(said[0].split())[:200]
        raise _fault(path, f"text that GEOparse cannot read ({reason})", "a family SOFT file")
    accessions = list(family.gsms)
    if len(accessions) != begun:
        raise _fault(path, f"{begun} samples of which GEOparse finds {len(accessions)}", "a family SOFT file")
    titles = [next(iter(sample.metadata.get("title", ())), "") for sample in family.gsms.values()]
    characteristics = [sample.metadata.get("characteristics_ch1", []) for sample in family.gsms.values()]
    return samples_frame(path, accessions, titles, characteristics)


@contextmanager
def _heard(logger: logging.Logger, said: list[str]) -> Iterator[None]:
    """Collect in `said` what a logger would have printed."""

    def collect(record: logging.LogRecord) -> bool:
        said.append(record.getMessage())
        return False

    logger.addFilter(collect)
    try:
        yield
    finally:
        logger.removeFilter(collect)


def _check_whole(path: Path) -> int:
    """The number of samples that are begun, and a check of what GEOparse does not look at.

    It returns the part before a damaged block, and the last of two equal samples.
    """
    try:
        damage = damage_of(path)
        if damage is not None:
            raise _fault(path, damage.found, damage.expected)
        begun, seen = 0, set()
        with open_binary(path) as stream:
            for line in lines_of(stream):
                if len(line) == LONGEST_LINE:
                    raise _fault(path, f"a line of {LONGEST_LINE} bytes or more", "shorter ones")
                if line.startswith(b"^SAMPLE"):
                    if line in seen:
                        found = visible(line.decode(errors="replace").strip())
                        raise _fault(path, f"{found} twice", "each sample once")
                    seen.add(line)
                elif line.lower().startswith(b"!sample_table_begin"):
                    begun += 1
                elif line.lower().startswith(b"!sample_table_end"):
                    begun -= 1
    except GZIP_ERRORS as error:
        raise _fault(path, f"a damaged gzip file ({error})", "the whole file") from None
    except OSError as error:
        raise _fault(path, error.strerror or str(error), "a readable file") from None
    if begun:
        raise _fault(path, "a sample table without its end", "the whole file")
    return len(seen)
