"""Read the sample descriptions of a series, select samples, and derive the labels of patients.

A family SOFT file is first downloaded completely by `afa.cohort.download`, and is then read by GEOparse (decisions.md
D8). GEOparse is called with strict UTF-8 decoding, and with the line feed as the only line end. By default, GEOparse
drops invalid bytes and breaks lines at a lone carriage return. If GEOparse would silently lose or change content, a
`CohortError` is raised. `_check_family` checks the file before GEOparse reads it, and `read_family` checks the result
of GEOparse.

A series matrix, which GEOparse does not read, consists of `!Series_` and `!Sample_` lines, followed by a table of
values. The table of values is not used. The cells of a series matrix are in double quotes, but GEO does not always
escape a quote inside a cell. Therefore, a quote ends a cell only if the quote is followed by a tab or a line end. A
quoted cell may contain line ends.

No original family SOFT file or series matrix was available when this module was written, so the readers of both formats
follow the layout in GEO's documentation, and were tested with generated files.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np
import pandas as pd

from afa.cohort.archive import open_binary, reading
from afa.cohort.cohort import label_counts
from afa.cohort.config import CohortConfig, Derived, LabelRule, OnePer, SampleGroup
from afa.cohort.expression import LONGEST_FILE_LINE
from afa.errors import CohortError, Fault
from afa.io.csvfile import first_names, quoted, visible

_LARGEST_HEADER = 256 << 20
_BOUND = re.compile(r"\s*(≥|>=|>|≤|<=|<)?\s*(.*)", re.DOTALL)
_ABOVE, _BELOW = ("≥", ">=", ">"), ("≤", "<=", "<")
_CHARACTERISTICS = re.compile(r"characteristics_ch[0-9]+")
_CELL = re.compile(r'(?:\A|\t)(?:"(.*?)"(?=\t|\Z)|([^\t]*))', re.DOTALL)
_NEXT = re.compile(r'!(Series|Sample)_\w+\t"|!series_matrix_table_(begin|end)\s*\Z', re.IGNORECASE)
"""Pattern of a line that cannot be inside a quoted cell.

If such a line follows an open quote, the closing quote is missing.
"""
_ENTRIES = ("^DATABASE", "^SERIES", "^PLATFORM", "^SAMPLE")
_TABLE = re.compile(r"!\w+_table_(begin|end)\s*", re.IGNORECASE)
_READ = re.compile(r"!Sample_(title|geo_accession|characteristics_ch[0-9]+)\b")
_MATRIX, _FAMILY = "_series_matrix.txt.gz", "_family.soft.gz"
_CHANGED = re.compile(r"!\w*_|_table_begin|_table_end")
"""Pattern of texts that GEOparse removes from a value, or that make GEOparse skip the line."""


class Family(NamedTuple):
    """A family SOFT file.

    Parameters
    ----------
    samples : as `samples_frame` returns them
    supplementary : names of the series' supplementary files

    """

    samples: pd.DataFrame
    supplementary: tuple[str, ...]


def read_family(path: Path) -> Family:
    """Read a family SOFT file, compressed with gzip or not, with GEOparse.

    Raises
    ------
    CohortError : GEOparse is not installed; or the file ends early, contains a line that GEOparse would lose or change,
        repeats a sample, or lists a sample without describing it.

    """
    path = Path(path)
    try:
        import GEOparse  # noqa: PLC0415  an extra brings it
    except ModuleNotFoundError as error:
        matrix = _series_file_name(path, _MATRIX)
        step = f"run pip install 'afa[geo]', or set metadata_file to {matrix} in the cohort's file"
        found = f"no package {error.name}"
        raise CohortError(Fault(str(path), found, "GEOparse, which reads family SOFT files", step)) from None
    accessions = _check_family(path)
    strict = {"encoding": "utf-8", "errors": "strict", "newline": "\n"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pandas warns about mixed types in tables that are not used
            series = GEOparse.get_GEO(filepath=str(path), geotype="GSE", silent=True, open_kwargs=strict)
    except MemoryError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise _soft_file_error(path, f"text that GEOparse cannot read ({reason})", "a family SOFT file") from None
    # GEOparse reports no error if only a part of the file can be read.
    if list(series.gsms) != accessions:
        found = f"{len(accessions)} samples, of which GEOparse reads {len(series.gsms)}"
        raise _soft_file_error(path, found, "a family SOFT file that can be read to its end")
    listed = series.metadata.get("sample_id", [])
    if missing := [accession for accession in listed if accession not in series.gsms]:
        found = f"no description of {len(missing)} of the {len(listed)} samples of the series: {first_names(missing)}"
        raise _soft_file_error(path, found, "the whole file")
    said = [sample.metadata for sample in series.gsms.values()]
    titles = ["".join(keys.get("title", [])[:1]) for keys in said]
    characteristics = [
        [(key, cell) for key, cells in keys.items() if _CHARACTERISTICS.fullmatch(key) for cell in cells]
        for keys in said
    ]
    addresses = [address for address in series.metadata.get("supplementary_file", []) if address != "NONE"]
    names = tuple(unquote(address.rpartition("/")[2]) for address in addresses)
    return Family(samples_frame(path, accessions, titles, characteristics), names)


def _check_family(path: Path) -> list[str]:
    """Return the samples' accessions.

    If GEOparse would lose or change a line, a `CohortError` names the first such line.
    """
    accessions: dict[str, None] = {}
    number, line, in_table = 0, "", False
    with reading(path), open_binary(path) as stream:
        for number, content in enumerate(iter(partial(stream.readline, LONGEST_FILE_LINE), b""), 1):
            if in_table and content[0] not in b"^!" and content.isascii() and len(content) < LONGEST_FILE_LINE:
                continue  # this fast check handles rows of values, which are most lines of the file
            before, line = line, _soft_line(path, content, number)
            if line.startswith("^"):
                if in_table or before.startswith("^"):
                    found = "a table without its end" if in_table else f"{visible(before)} without a line below it,"
                    raise _soft_file_error(path, f"{found} before {visible(line)}", "the whole file", number)
                kind, _, name = (part.strip() for part in line.partition("="))
                if kind not in _ENTRIES:
                    found = f"an entry of the unknown type {quoted(kind)}"
                    raise _soft_file_error(path, found, "a family SOFT file", number)
                if kind == "^SAMPLE" and name in accessions:
                    raise _soft_file_error(path, f"{visible(line)} twice", "each sample once", number)
                accessions |= {name: None} if kind == "^SAMPLE" else {}
            elif table := _TABLE.fullmatch(line):
                in_table = table[1].lower() == "begin"
            elif _READ.match(line) and (changed := _CHANGED.search(line, 1)):
                found = f"{quoted(changed[0])} within a value, which GEOparse would not keep"
                raise _soft_file_error(path, found, "a value without it", number)
            elif not in_table and not line.startswith(("!", "#")) and line.strip():
                raise _soft_file_error(path, quoted(line[:40].strip()), "a line that starts with ^, ! or #", number)
    if in_table or line.startswith("^"):
        found = "a table without its end" if in_table else f"{visible(line)} without a line below it"
        raise _soft_file_error(path, found, "the whole file", number)
    if line and not line.endswith("\n") and not _TABLE.fullmatch(line):
        raise _soft_file_error(path, "the end of the file within a line", "the whole file", number)
    return list(accessions)


def _soft_line(path: Path, content: bytes, number: int) -> str:
    """Return a line of a family SOFT file as text. A line that is too long or not UTF-8 raises a `CohortError`."""
    if len(content) == LONGEST_FILE_LINE:
        raise _soft_file_error(path, f"a line of {LONGEST_FILE_LINE} bytes or more", "shorter ones", number)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"bytes that are not UTF-8 ({content[error.start : error.start + 8]!r})"
        raise _soft_file_error(path, found, "text in UTF-8", number) from None


def _series_file_name(path: Path, ending: str) -> str:
    """Return the name of a series' file with the given ending."""
    series = re.match(r"GSE[0-9]+", path.name)
    return f"{series[0] if series else '<series>'}{ending}"


def _sample_file_error(path: Path, found: str, expected: str, line: int, other: str = _FAMILY) -> CohortError:
    """Return the error for a file that cannot be read.

    Parameters
    ----------
    other : file ending of the other format, which the error message suggests

    """
    where = f"{path}, line {line}" if line else str(path)
    step = (
        "fetch the file again; if it is as GEO has it, set metadata_file to"
        f" {_series_file_name(path, other)} in the cohort's file"
    )
    return CohortError(Fault(where, found, expected, step))


def _soft_file_error(path: Path, found: str, expected: str, line: int = 0) -> CohortError:
    return _sample_file_error(path, found, expected, line, _MATRIX)


def read_series_matrix(path: Path) -> pd.DataFrame:
    """Read a series matrix, compressed with gzip or not, and return its samples in the form of `samples_frame`.

    If the file has an invalid layout or ends early, even in the unused table, a `CohortError` names the line.
    """
    fields: dict[str, list[str]] = {}
    characteristics: list[tuple[str, list[str]]] = []
    begun = ended = False
    number = size = width = 0
    for number, line in _read_matrix_lines(path):
        if ended or not line:
            continue
        size += len(line) * (not begun)  # the table is not stored in memory
        if size > _LARGEST_HEADER:
            raise _sample_file_error(path, f"more than {_LARGEST_HEADER} characters before the table", "fewer", number)
        name, _, rest = line.partition("\t")
        if begun:
            ended = name.lower() == "!series_matrix_table_end"
            found = len(_matrix_cells(line)) if width == 0 else line.count("\t") + 1
            if not ended and found != (width := width or found):
                raise _sample_file_error(path, f"{found} cells", f"{width}, as in the table's header", number)
        elif name.lower() == "!series_matrix_table_begin":
            begun = True
        elif name.startswith("!Sample_"):
            cells = _matrix_cells(rest)
            expected = len(next(iter(fields.values()), cells))
            if len(cells) != expected:
                raise _sample_file_error(path, f"{len(cells)} cells", f"{expected}, one for each sample", number)
            key = name.removeprefix("!Sample_")
            fields.setdefault(key, cells)
            if _CHARACTERISTICS.fullmatch(key):
                characteristics.append((key, cells))
        elif not name.startswith("!"):
            raise _sample_file_error(path, repr(line[:40]), "a line that starts with ! before the table", number)
    if not ended:
        missing = "!series_matrix_table_end" if begun else "!series_matrix_table_begin"
        raise _sample_file_error(path, f"the end of the file without {missing}", "the whole file", number)
    accessions = fields.get("geo_accession")
    if accessions is None:
        raise _sample_file_error(path, "no !Sample_geo_accession line", "one that names the samples", number)
    of_samples = [[(key, cells[i]) for key, cells in characteristics] for i in range(len(accessions))]
    return samples_frame(path, accessions, fields.get("title", [""] * len(accessions)), of_samples)


def samples_frame(
    path: Path, accessions: Sequence[str], titles: Sequence[str], characteristics: Sequence[Sequence[tuple[str, str]]]
) -> pd.DataFrame:
    """Return the samples as a table of texts.

    The index contains the accessions, and the columns are `title` and the characteristics. A missing value is an empty
    text. Characteristics of different samples are matched by name, not by position. For two-colour arrays, the names of
    second-channel characteristics end in `_ch2`. A cell without a key is stored in the column `characteristics_ch1`. A
    characteristic named title is stored in the column `title_ch1`. If a sample has a key twice with different values,
    the values are joined by "; ".

    Parameters
    ----------
    characteristics : for each sample, the name of the line (such as `characteristics_ch1`) and the `key: value` text of
        each cell

    """
    rows: list[dict[str, str]] = []
    for title, cells in zip(titles, characteristics, strict=True):
        row: dict[str, str] = {"title": title.strip()}
        for line, cell in cells:
            if not cell.strip():
                continue
            key, colon, value = cell.partition(":")
            channel = line.removeprefix("characteristics_")
            name = normal_key(key) if colon else "characteristics"
            if channel != "ch1" or not colon or name == "title":
                name = f"{name}_{channel}"
            value = value.strip() if colon else cell.strip()
            before = row.get(name, "")
            row[name] = value if not before or before == value else f"{before}; {value}".removesuffix("; ")
        rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name, "") for row in rows] for name in names}
    return check_accessions(path, pd.DataFrame(columns, index=pd.Index(accessions, name="sample"), dtype=str))


def check_accessions(path: Path, samples: pd.DataFrame) -> pd.DataFrame:
    """Return `samples` unchanged.

    If the table is empty, repeats an accession, or contains a name that is not a GSM accession, a `CohortError` is
    raised.
    """
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
    """Return a characteristic's name in lower case, with underscores in place of spaces."""
    return "_".join(key.lower().split())


def _read_matrix_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number and the text, without line end, of each line of a series matrix.

    If a quoted cell spans several lines, these lines are joined, and the number is that of the first line. A byte that
    is not UTF-8 becomes the replacement character.
    """
    lines: list[str] = []
    first = size = 0
    with reading(path), io.TextIOWrapper(open_binary(path), encoding="utf-8", errors="replace", newline="") as text:
        for number, line in enumerate(iter(lambda: text.readline(LONGEST_FILE_LINE), ""), 1):
            first = first if lines else number
            size = size + len(line) if lines else len(line)
            if lines and _NEXT.match(line):
                break
            if size >= LONGEST_FILE_LINE:
                raise _sample_file_error(
                    path, f"a line or cell of {LONGEST_FILE_LINE} characters or more", "shorter ones", first
                )
            lines.append(line)
            if not _ends_within_quotes(line, len(lines) > 1):
                yield first, "".join(lines).rstrip("\r\n")
                lines = []
    if lines:
        raise _sample_file_error(path, "a quoted cell without its end", "a quote before a tab or a line end", first)


def _ends_within_quotes(line: str, within: bool) -> bool:
    """Return True if a quoted cell continues on the next line.

    `within` is True if a quoted cell of an earlier line continues on this line.
    """
    if '"' not in line:
        return within
    line, place = line.rstrip("\r\n"), 0
    if not within and line.startswith('"'):
        within, place = True, 1
    while True:
        if within:
            end = line.find('"\t', place)
            if end < 0:
                return not line.endswith('"', place)
            place = end + 1
        else:
            start = line.find('\t"', place)
            if start < 0:
                return False
            place = start + 2
        within = not within


def _matrix_cells(text: str) -> list[str]:
    """Return the cells of a line of a series matrix. A quoted cell may contain tabs, line ends, colons and quotes.

    A doubled quote in a quoted cell stands for one quote.
    """
    return [
        bare if quoted_cell is None else quoted_cell.replace('""', '"')
        for quoted_cell, bare in (cell.groups() for cell in _CELL.finditer(text))
    ]


@dataclass(frozen=True)
class Selected:
    """The selected samples, in the order of the series.

    Parameters
    ----------
    samples : their characteristics, indexed by sample name
    controls, patients : sample names of the two groups
    steps : each selection step, with the number of samples that remain; at the end, the two groups and their sizes

    """

    samples: pd.DataFrame
    controls: tuple[str, ...]
    patients: tuple[str, ...]
    steps: tuple[tuple[str, int], ...]


def is_missing_characteristic(value: str) -> bool:
    """Return True if a characteristic is missing: empty, NA, nan, n/a or unknown. Case does not matter."""
    return value.strip().casefold() in {"", "na", "nan", "n/a", "unknown"}


def column(samples: pd.DataFrame, key: str, asked_by: str) -> pd.Series[str]:
    """Return the characteristic `key` of every sample, as text.

    If the characteristic does not exist, a `CohortError` lists the existing keys.
    """
    if key not in samples.columns:
        known = ", ".join(map(str, samples.columns))
        step = "correct the key in the cohort file"
        raise CohortError(Fault(asked_by, f"no sample characteristic {key!r}", f"one of: {known}", step))
    return samples[key].fillna("").astype(str)


def select(samples: pd.DataFrame, config: CohortConfig) -> Selected:
    """Apply the selection steps `derive`, `keep`, `drop` and `one_per` in order, and separate patients from controls.

    Parameters
    ----------
    samples : characteristics as text, indexed by sample name

    Raises
    ------
    CohortError : the series lacks a key, no controls or no patients remain, or a sample is in both groups.

    """
    where = f"cohort {config.name}"
    steps = [("in the series", len(samples))]
    samples = _derive(samples, config.select.derive, where)
    for name, wanted, keeps in (("keep", config.select.keep, True), ("drop", config.select.drop, False)):
        for key, values in wanted.items():
            there = column(samples, key, f"{where}, key select.{name}")
            _refuse_other_spellings(there, values, f"{where}, key select.{name}")
            found = there.isin(values)
            samples = samples[found if keeps else ~found]
            steps.append((f"{name} {key}: {', '.join(values)}", len(samples)))
    if config.select.one_per is not None:
        samples = _keep_one_per_value(samples, config.select.one_per, where)
        steps.append((f"one per {config.select.one_per.key}", len(samples)))
    groups = config.controls, config.patients
    for group in groups:
        listed = [value for each in groups if each.key == group.key for value in each.values]
        _refuse_other_spellings(column(samples, group.key, where), listed, f"{where}, keys controls and patients")
    controls = _samples_in_group(samples, config.controls, f"{where}, key controls")
    patients = _samples_in_group(samples, config.patients, f"{where}, key patients")
    if both := sorted(set(controls) & set(patients)):
        shared, step = f"{len(both)} samples in both, such as {both[0]}", "make the two groups' values disjoint"
        place = f"{where}, keys controls and patients"
        raise CohortError(Fault(place, shared, "each sample in one group at most", step))
    steps += [("controls", len(controls)), ("patients", len(patients))]
    chosen = samples[samples.index.isin({*controls, *patients})]
    return Selected(chosen, controls, patients, tuple(steps))


def _derive(samples: pd.DataFrame, derive: Mapping[str, Derived], where: str) -> pd.DataFrame:
    """Add each derived characteristic.

    The value of a derived characteristic is the text that the pattern's group matches. If the pattern does not match,
    the derived value is empty.
    """
    samples = samples.copy()
    for name, rule in derive.items():
        place = f"{where}, key select.derive.{name}"
        if name in samples.columns:
            step = "rename what is derived"
            raise CohortError(Fault(place, "a characteristic of the series by that name", "a new name", step))
        source = column(samples, rule.source, place)
        matches = [re.search(rule.pattern, value) for value in source]
        samples[name] = [(match.group(1) or "") if match else "" for match in matches]
        if len(samples) and not any(matches):
            found = f"no sample whose {rule.source} matches {rule.pattern!r}, the first being {source.iloc[0]!r}"
            raise CohortError(Fault(place, found, "at least one", "correct the pattern"))
    return samples


def _keep_one_per_value(samples: pd.DataFrame, rule: OnePer, where: str) -> pd.DataFrame:
    """Return one sample for each value of `rule.key`.

    Samples are sorted first by the lists in `rule.prefer`, second by the numeric characteristic that `rule.then` names,
    and last by sample name. For each value of `rule.key`, the first sample is kept.
    """
    place = f"{where}, key select.one_per"
    owner = column(samples, rule.key, place)
    _refuse_samples(
        samples.index[owner.map(is_missing_characteristic).to_numpy(bool)],
        place,
        f"no {rule.key}",
        "a value for every sample",
    )
    order = pd.DataFrame(index=samples.index)
    for key, values in rule.prefer.items():
        rank = {value: position for position, value in enumerate(values)}
        order[f"prefer {key}"] = [rank.get(value, len(rank)) for value in column(samples, key, f"{place}.prefer")]
    if rule.then is not None:
        number = pd.to_numeric(column(samples, rule.then, f"{place}.then"), errors="coerce")
        _refuse_samples(
            samples.index[~np.isfinite(number)], place, f"no number in {rule.then}", "a number for every sample"
        )
        order["then"] = number
    order["name"] = order.index.astype(str)
    best = order.sort_values(list(order.columns), kind="stable").index
    first = owner[best].drop_duplicates().index
    return samples[samples.index.isin(first)]


def _samples_in_group(samples: pd.DataFrame, group: SampleGroup, where: str) -> tuple[str, ...]:
    """Return the names of the samples in a group, in the order of the series. An empty group raises a `CohortError`."""
    values = column(samples, group.key, where)
    names = tuple(map(str, samples.index[values.isin(group.values).to_numpy(bool)]))
    if not names:
        wanted = ", ".join(map(repr, group.values))
        there = ", ".join(f"{value!r} ({count})" for value, count in values.value_counts().items())
        found = f"no sample with {group.key} in {wanted}; after the selection there is {there or 'no sample at all'}"
        step = "correct the values, or the selection before them; a series without controls cannot be encoded"
        raise CohortError(Fault(where, found, "at least one", step))
    return names


def _refuse_other_spellings(values: pd.Series[str], listed: Sequence[str], where: str) -> None:
    """Raise a `CohortError` if an unlisted value differs from a listed value only in case or blanks.

    Without this check, the value `uc` would silently be ignored if the config lists only `UC`.
    """
    if near := other_spelling(values.unique(), listed):
        count = int((values == near[0]).sum())
        found = f"{near[0]!r} in {count} samples, and {near[1]!r} in the file of the cohort"
        raise CohortError(Fault(where, found, "one spelling, or both in the list", "add it to the list, or remove it"))


def other_spelling(values: Iterable[str], listed: Collection[str]) -> tuple[str, str] | None:
    """Return the first unlisted value that is another spelling of a listed value, and the listed value.

    A value is another spelling of a listed value if the two differ only in case or blanks. If there is no such value,
    the result is None.

    >>> other_spelling(["UC", "healthy ", "CD"], ["Healthy"])
    ('healthy ', 'Healthy')
    """
    plain = {" ".join(value.split()).casefold(): value for value in listed}
    for value in values:
        if value not in listed and (meant := plain.get(" ".join(value.split()).casefold())) is not None:
            return value, meant
    return None


def _refuse_samples(names: Sequence[str] | pd.Index[str], where: str, found: str, expected: str) -> None:
    if len(names):
        shown = ", ".join(map(str, names[:3]))
        step = "correct the rule or drop them"
        raise CohortError(Fault(where, f"{found} in {len(names)} samples, such as {shown}", expected, step))


def make_labels(samples: pd.DataFrame, rules: Mapping[str, LabelRule], entities: Sequence[str]) -> pd.DataFrame:
    """Return the patients' labels, with one column for each rule that is not switched off (decisions.md D4).

    The columns are in the bundle's order of entities. A rule for an entity that the bundle lacks is skipped, so that
    one cohort file can be used with many bundles. `describe_labels` reports the skipped rules.

    Parameters
    ----------
    samples : the patients' characteristics as text

    Returns
    -------
    labels : (n_patients, n_rules) Int8 in {0, 1, missing}

    Raises
    ------
    CohortError : the series lacks a key, a rule cannot interpret a value, or a rule gives no label; all errors are
        raised together.

    """
    faults: list[Fault] = []
    columns: dict[str, list[int | None]] = {}
    for entity in [name for name in entities if name in rules and rules[name].off is None]:
        try:
            columns[entity] = _apply_label_rule(samples, rules[entity], f"key labels.{entity}")
        except CohortError as error:
            faults += error.faults
    CohortError.raise_for(faults)
    return pd.DataFrame(columns, index=samples.index, dtype="Int8")


def rule_text(rule: LabelRule) -> str:
    """Return a rule as text, such as `pucai >= 35`."""
    if rule.at_least is not None:
        return f"{rule.key} >= {rule.at_least:g}"
    if rule.above is not None:
        return f"{rule.key} > {rule.above:g}"
    return f"{rule.key}: 1 for {', '.join(rule.positive or ())}; 0 for {', '.join(rule.negative or ())}"


def describe_labels(
    samples: pd.DataFrame, rules: Mapping[str, LabelRule], labels: pd.DataFrame
) -> dict[str, dict[str, object]]:
    """Return, for each label rule, its text, its reason, and the number of patients with label 1, label 0 and no label.

    If a label rule is switched off in the config, the result contains quantiles of the sample characteristic `rule.key`
    instead of label counts.
    """
    described: dict[str, dict[str, object]] = {}
    for entity, rule in rules.items():
        entry: dict[str, object] = {"rule": rule_text(rule), "reason": rule.reason}
        if rule.off is None and entity not in labels:
            entry["unused"] = "the bundle has no such entity"
        elif rule.off is None:
            entry |= label_counts(labels[entity])
        else:
            numbers = pd.to_numeric(column(samples, rule.key, f"key labels.{entity}"), errors="coerce").dropna()
            quantiles = {
                f"{100 * share:g}%": round(float(numbers.quantile(share)), 6) for share in (0, 0.25, 0.5, 0.75, 1)
            }
            entry |= {"off": rule.off, "quantiles": quantiles if len(numbers) else {}}
            entry["without_number"] = len(samples) - len(numbers)
        described[entity] = entry
    return described


def _apply_label_rule(samples: pd.DataFrame, rule: LabelRule, where: str) -> list[int | None]:
    """Return the label that one rule gives to each sample, in the order of the samples."""
    values = column(samples, rule.key, where)
    if rule.positive is not None and rule.negative is not None:
        if both := sorted(set(rule.positive) & set(rule.negative)):
            step = "remove it from one"
            raise CohortError(Fault(where, f"{', '.join(both)} both positive and negative", "each value once", step))
        _refuse_other_spellings(values, (*rule.positive, *rule.negative), where)
        meaning = dict.fromkeys(rule.negative, 0) | dict.fromkeys(rule.positive, 1)
        labels = [meaning.get(value) for value in values]
    else:
        labels = [_label_by_threshold(str(name), value, rule, where) for name, value in values.items()]
    if all(label is None for label in labels):
        held = ", ".join(map(repr, values.unique()[:8]))
        found = f"no patient that `{rule_text(rule)}` labels; {rule.key} holds {held}"
        raise CohortError(Fault(where, found, "at least one", "correct the rule"))
    return labels


def _label_by_threshold(sample: str, value: str, rule: LabelRule, where: str) -> int | None:
    """Return 1 if the value passes the rule's threshold, 0 if it fails the threshold, and None if the value is missing.

    A bound such as `≥250` is accepted if all values that the bound allows give the same label.
    """
    if is_missing_characteristic(value):
        return None
    sign, text = _BOUND.match(value).groups("")  # type: ignore[union-attr]
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    # `low` and `high` are the smallest and the largest value that the bound allows.
    low = -math.inf if sign in _BELOW else math.nextafter(number, math.inf) if sign == ">" else number
    high = math.inf if sign in _ABOVE else math.nextafter(number, -math.inf) if sign == "<" else number
    passes = [end >= (rule.at_least or 0.0) if rule.above is None else end > rule.above for end in (low, high)]
    if math.isnan(number) or passes[0] != passes[1]:
        expected = f"a number, or a bound that decides `{rule_text(rule)}`"
        step = "use `positive` and `negative` values in the rule, or drop the sample"
        raise CohortError(Fault(f"{where}, sample {sample}", f"{rule.key} = {value!r}", expected, step))
    return int(passes[0])
