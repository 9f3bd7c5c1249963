"""Under which row ids a gene may stand in an expression file, and its values on the scale that is tested, log2."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from afa.errors import CohortError, Fault
from afa.files import read_whole

Names = Mapping[str, Sequence[str]]
Tiers = Mapping[str, Sequence[Sequence[str]]]

_DATE = re.compile(r"^([0-9]{1,2})/([0-9]{1,2})/(?:19|20)[0-9]{2}$")
_ENSEMBL = re.compile(r"^ENSG[0-9]{11}$")


def read_aliases(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Other names of each gene, from a CSV with the columns `symbol,alias`, in file order."""
    return _read_pairs(Path(path), key="symbol", value="alias")


def read_ensembl(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Ensembl gene ids of each symbol, without version, from a CSV with the columns `ensembl,symbol`."""
    table = _read_pairs(Path(path), key="symbol", value="ensembl")
    faults = [
        Fault(f"{path}, symbol {symbol}", repr(found), "an id such as ENSG00000198788", "correct the id")
        for symbol, ids in table.items()
        for found in ids
        if not _ENSEMBL.match(found)
    ]
    if faults:
        raise CohortError(faults)
    return table


def undo_date(row_id: str) -> tuple[str, ...]:
    """The symbols that a spreadsheet can have turned into a date: `9/2/2018` gives `SEPT2`, `SEPTIN2`.

    The symbol as it was comes first, then the one that HGNC has used since 2020. Empty for any other row id.
    `9/15` was the selenoprotein SEP15, there being no fifteenth septin.
    """
    found = _DATE.match(row_id)
    if not found:
        return ()
    month, number = int(found.group(1)), int(found.group(2))
    if month == 3 and 1 <= number <= 11:
        return (f"MARCH{number}", f"MARCHF{number}")
    if month == 9 and number == 15:
        return ("SEP15", "SELENOF")
    if month == 9 and 1 <= number <= 14:
        return (f"SEPT{number}", f"SEPTIN{number}")
    if (month, number) == (12, 1):
        return ("DEC1", "DELEC1")
    return ()


def symbol_candidates(features: Iterable[str], aliases: Names) -> dict[str, tuple[tuple[str, ...], ...]]:
    """For each feature the row ids to look for, in tiers: its symbol, then each alias, then what a date made of them.

    A later tier counts only where the earlier ones have no row: one gene's former symbol can be another's present one.
    """
    tiers: dict[str, tuple[tuple[str, ...], ...]] = {}
    for feature in features:
        names = (feature, *aliases.get(feature, ()))
        dated = tuple(dict.fromkeys(row_id for name in names for row_id in _DATED.get(name, ())))
        tiers[feature] = tuple((name,) for name in (*names, *dated))
    return tiers


def ensembl_candidates(
    features: Iterable[str], aliases: Names, ensembl: Names
) -> dict[str, tuple[tuple[str, ...], ...]]:
    """For each feature its Ensembl ids, in tiers: those of its symbol, then those of each alias."""
    return {
        feature: tuple(tuple(ensembl[name]) for name in (feature, *aliases.get(feature, ())) if name in ensembl)
        for feature in features
    }


def row_ids(tiers: Tiers) -> set[str]:
    """Every row id that may hold one of the features."""
    return {row_id for choices in tiers.values() for tier in choices for row_id in tier}


def first_tier_present(tiers: Tiers, rows: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """For each feature the row ids of its first tier of which `rows` has any; empty where no tier has."""
    present = set(rows)
    return {
        feature: next((tuple(tier) for tier in choices if present.intersection(tier)), ())
        for feature, choices in tiers.items()
    }


def _read_pairs(path: Path, *, key: str, value: str) -> dict[str, tuple[str, ...]]:
    try:
        text = read_whole(path).decode("utf-8-sig")
        lines = (line for line in io.StringIO(text, newline="") if not line.startswith("#"))
        reader = csv.DictReader(lines)
        header = reader.fieldnames or []
        rows = list(reader)
    except OSError as error:
        raise CohortError(Fault(str(path), error.strerror or "an error", "a readable file", "check the path")) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise CohortError(Fault(str(path), f"no table ({error})", "a CSV table in UTF-8", "correct the file")) from None
    if missing := [name for name in (key, value) if name not in header]:
        step = f"add {' and '.join(missing)}"
        raise CohortError(Fault(str(path), f"columns {', '.join(header)[:80]}", f"{key} and {value}", step))
    pairs: dict[str, dict[str, None]] = {}
    for number, row in enumerate(rows, start=2):
        name, other = (row[key] or "").strip(), (row[value] or "").strip()
        if not name or not other:
            step = "fill or remove it"
            raise CohortError(Fault(f"{path}, row {number}", "an empty field", f"{key} and {value}", step))
        pairs.setdefault(name, {})[other] = None
    return {name: tuple(others) for name, others in pairs.items()}


def _dates() -> dict[str, tuple[str, ...]]:
    dated = [f"3/{day}/2018" for day in range(1, 12)] + [f"9/{day}/2018" for day in range(1, 16)] + ["12/1/2018"]
    symbols: dict[str, tuple[str, ...]] = {}
    for row_id in dated:
        for symbol in undo_date(row_id):
            symbols[symbol] = (*symbols.get(symbol, ()), row_id)
    return symbols


_DATED = _dates()
"""Symbol -> the row ids under which `undo_date` finds it, for the year 2018 of the files in hand."""


def log_values(
    values: pd.DataFrame, unit: Literal["tpm", "counts", "log2"], library_size: pd.Series[float]
) -> pd.DataFrame:
    """Values `(n_rows, n_samples)` in log2 units: `log2(TPM + 1)`, `log2(CPM + 1)`, or as they are.

    `library_size` is the sum of all counts of each sample (by sample name) and is used for counts only. The floor
    of a TPM file is kept as it is. A value that is not finite, or below zero where it cannot be, and an
    empty library are `CohortError`s.
    """
    known = values.to_numpy(dtype=np.float64)
    _refuse_cells(values, ~np.isfinite(known), "a finite number")
    if unit == "log2":
        return values.astype(np.float64)
    _refuse_cells(values, known < 0, f"zero or more, the unit being {unit}")
    if unit == "counts":
        library = library_size.reindex(values.columns).to_numpy(dtype=np.float64)
        empty = ~(np.isfinite(library) & (library > 0))
        if empty.any():
            first = int(empty.argmax())
            found = f"a library of {library[first]:g} counts ({empty.sum()} samples have none)"
            step = "drop the sample in the cohort file, or correct the count matrix"
            raise CohortError(Fault(f"sample {values.columns[first]}", found, "a positive library size", step))
        known = known / library * 1e6
    return pd.DataFrame(np.log2(known + 1.0), index=values.index, columns=values.columns)


def choose_rows(
    values: pd.DataFrame, candidates: Mapping[str, Sequence[str]], controls: Sequence[str]
) -> tuple[pd.DataFrame, dict[str, str]]:
    """One row per feature, `(n_features, n_samples)`, and the row id that each was read from.

    `candidates` gives each feature's row ids; among the rows that carry one of them the one of highest mean over
    `controls` is taken, the first of the file where means are equal. A feature without a row is left out.
    """
    mean = values[list(controls)].mean(axis=1).to_numpy()
    places = pd.Series(np.arange(len(values))).groupby(values.index.to_numpy(), sort=False).apply(list).to_dict()
    chosen: dict[str, int] = {}
    for feature, row_ids in candidates.items():
        rows = sorted(row for row_id in row_ids for row in places.get(row_id, ()))
        if rows:
            chosen[feature] = max(rows, key=lambda row: mean[row])
    picked = values.iloc[list(chosen.values())]
    read_from = dict(zip(chosen, picked.index.astype(str), strict=True))
    return picked.set_axis(list(chosen), axis=0), read_from


def _refuse_cells(values: pd.DataFrame, wrong: np.ndarray, expected: str) -> None:
    """Raise a `CohortError` that names gene and sample of the first cell where `wrong` holds."""
    if wrong.any():
        row, place = divmod(int(wrong.argmax()), wrong.shape[1])
        found = f"{float(values.to_numpy()[row, place]):g} ({wrong.sum()} such cells)"
        step = "correct the expression file, or `unit` in the cohort file"
        raise CohortError(Fault(f"gene {values.index[row]}, sample {values.columns[place]}", found, expected, step))
