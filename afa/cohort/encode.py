"""Find the rows of genes in a series, convert their values to log2 units, and encode the values as -1, 0, +1."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import ConfigDict, Field

from afa.cohort.counters import Unit, without_version
from afa.errors import CohortError, Fault, check_number
from afa.io.csvfile import first_names, name_column, read_csv_table, read_header
from afa.model.arrays import Bools, Codes, Floats

Names = Mapping[str, Sequence[str]]
Tiers = Mapping[str, Sequence[Sequence[str]]]

_DATED = {
    f"{word}{day}": (f"{month}/{day}/2018",)
    for words, month, last in ((("MARCH", "MARCHF"), 3, 11), (("SEPT", "SEPTIN"), 9, 14), (("DEC", "DELEC"), 12, 1))
    for word in words
    for day in range(1, last + 1)
} | dict.fromkeys(("SEP15", "SELENOF"), ("9/15/2018",))
"""Dates to which spreadsheets converted gene symbols (MARCH1 became 3/1/2018).

The keys are the old symbols and the symbols that HGNC introduced in 2020. SEP15 is not a septin but a selenoprotein,
now called SELENOF.
"""
_ENSEMBL = re.compile(r"^ENSG[0-9]{11}$")


def read_aliases(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Read the aliases of each gene, in file order, from a CSV with the columns `symbol,alias`."""
    return _read_key_values(Path(path), key="symbol", value="alias")


def read_ensembl(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Read the Ensembl gene ids of each symbol, without version, from a CSV with the columns `ensembl,symbol`."""
    pairs = _read_key_values(Path(path), key="symbol", value="ensembl")
    table = {symbol: tuple(dict.fromkeys(map(without_version, ids))) for symbol, ids in pairs.items()}
    faults = [
        Fault(f"{path}, symbol {symbol}", repr(found), "an id such as ENSG00000198788", "correct the id")
        for symbol, ids in table.items()
        for found in ids
        if not _ENSEMBL.match(found)
    ]
    CohortError.raise_for(faults)
    return table


def read_transcripts(path: str | Path) -> dict[str, str]:
    """Read the gene of each transcript from a CSV with the columns `transcript,gene`.

    Version numbers are removed from Ensembl ids.
    """
    pairs = _read_key_values(Path(path), key="transcript", value="gene")
    table: dict[str, str] = {}
    faults = []
    for name, genes in pairs.items():
        transcript, gene = without_version(name), without_version(genes[0])
        if len(genes) > 1 or table.setdefault(transcript, gene) != gene:
            step = "keep one of the rows"
            faults.append(Fault(f"{path}, transcript {name}", "more than one gene", "one", step))
    CohortError.raise_for(faults)
    return table


def symbol_candidates(features: Iterable[str], aliases: Names) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return the candidate row ids of each feature, as lists in order of preference.

    Each list contains a single id. The first list contains the feature's symbol, and the next lists contain its
    aliases. The last lists contain dates, because spreadsheets convert some gene symbols to dates: for example, MARCH1
    becomes 3/1/2018. If an expression file contains an id from one list, all later lists are ignored, because a gene's
    former symbol can be the present symbol of another gene.
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
    """Return the candidate Ensembl ids of each feature, as lists in order of preference.

    The first list contains the Ensembl ids of the feature's symbol. Each later list contains the Ensembl ids of one
    alias.
    """
    return {
        feature: tuple(tuple(ensembl[name]) for name in (feature, *aliases.get(feature, ())) if name in ensembl)
        for feature in features
    }


def row_ids(tiers: Tiers) -> set[str]:
    """Return the candidate row ids of all features."""
    return {row_id for choices in tiers.values() for tier in choices for row_id in tier}


def first_tier_present(tiers: Tiers, rows: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return one list of candidate row ids for each feature: the first list that contains an id in `rows`.

    If no candidate row id of a feature is in `rows`, the result for the feature is an empty tuple.
    """
    present = set(rows)
    return {
        feature: next((tuple(tier) for tier in choices if present.intersection(tier)), ())
        for feature, choices in tiers.items()
    }


def _read_key_values(path: Path, *, key: str, value: str) -> dict[str, tuple[str, ...]]:
    others = [name for name in read_header(path) if name not in (key, value)]
    table = read_csv_table(path, required=(key, value), optional=others, unread=others)
    for column in (key, value):
        name_column(table, column)
    CohortError.raise_for(table.faults.listed())
    pairs = pd.DataFrame(dict(table.columns)).drop_duplicates()
    return {str(name): tuple(found) for name, found in pairs.groupby(key, sort=False)[value]}


def log_values(values: pd.DataFrame, unit: Unit, library_size: pd.Series[float]) -> pd.DataFrame:
    """Return expression values in log2 units: `log2(TPM + 1)` or `log2(CPM + 1)`.

    If `unit` is log2, the values are returned unchanged.

    Parameters
    ----------
    values : (n_rows, n_samples) in `unit`; if the series has a lower limit for TPM values, the limit is not removed
    library_size : (n_samples,) sum of the counts of all genes, by sample name; used for counts only

    Raises
    ------
    CohortError : a value is not finite, or is negative although the unit is not log2, or the counts of a sample sum to
        0.

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
    """Return the expression values of each feature, and the id of the row from which they were read.

    The values have the shape (n_features, n_samples). If several rows are candidates for a feature, the row with the
    highest mean over `controls` is used. If several rows have the highest mean, the first of these rows is used.
    Features without a row in `values` are excluded.

    Parameters
    ----------
    candidates : row ids of each feature

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


def _refuse_cells(
    values: pd.DataFrame, wrong: np.ndarray, expected: str, other: str = "correct `unit` in the cohort file"
) -> None:
    """Raise a `CohortError` if `wrong` is True for any cell.

    The error names the gene and the sample of the first wrong cell.

    Parameters
    ----------
    other : alternative advice to the user

    """
    if wrong.any():
        row, place = divmod(int(wrong.argmax()), wrong.shape[1])
        found = f"{float(values.to_numpy()[row, place]):g} ({wrong.sum()} such cells)"
        step = f"correct the expression file, or {other}"
        raise CohortError(Fault(f"gene {values.index[row]}, sample {values.columns[place]}", found, expected, step))


Test = Literal["empirical", "normal", "t"]
EncodingReference = Literal["controls", "cohort"]

MAD_TO_SD = 1.4826
"""Ratio of the standard deviation of a normal distribution to its median absolute deviation."""

CODE_ROUNDING = 1e-12
"""A difference from a mean or a cut point counts as rounding error if its relative size is below this number.

Values are compared exactly with ranges from `features.csv`.
"""


@dataclass(frozen=True)
class Coding:
    """Settings of the ternary encoding. A value is tested against the controls, or compared with the cohort's median.

    Parameters
    ----------
    reference : `controls` or `cohort`; None if every feature has a range
    test, level : test and its significance level, used if `reference` is `controls`
    threshold : number of robust standard deviations from the median, used if `reference` is `cohort`

    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    reference: EncodingReference | None = None
    test: Test = "empirical"
    level: Annotated[float, Field(gt=0, lt=1)] = 0.05
    threshold: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.5

    def __post_init__(self) -> None:
        for option, value, expected, fits in (
            ("level", self.level, "a number above 0 and below 1", lambda x: 0 < x < 1),
            ("threshold", self.threshold, "a finite number, 0 or more", lambda x: 0 <= x < math.inf),
        ):
            check_number(CohortError, f"encoding option {option}", value, expected, fits)


def encode_by_controls(
    values: pd.DataFrame, is_control: npt.ArrayLike, *, test: Test = "empirical", level: float = 0.05
) -> pd.DataFrame:
    """Return the ternary code of every sample, by a test against the controls (`eq:ternary-encoding`, decision D1).

    The code of a value `x` is the sign of `x - mu` if the test gives `p < level`, else 0. Here `mu` is the gene's mean
    over the controls. For a gene that has the same value in all controls, the test is always `empirical`.

    Parameters
    ----------
    values : (n_genes, n_samples) in log2 units, controls included
    is_control : (n_samples,) bool

    Returns
    -------
    code : (n_genes, n_samples) int8 in {-1, 0, 1}, with the same labels

    Raises
    ------
    CohortError : a value that is not finite; too few controls for the test.

    """
    known = values.to_numpy(dtype=np.float64)
    chosen = np.asarray(is_control, dtype=bool)
    _refuse_cells(values, ~np.isfinite(known), "a finite number", "drop the sample")
    controls = known[:, chosen]
    check_controls(controls.shape[1], test, level)
    if flat := list(values.index[without_spread(controls)]):
        of = f" and {len(flat)} genes without spread among them: {first_names(flat)}"
        check_controls(controls.shape[1], "empirical", level, of, "leave these genes out of the bundle")
    return pd.DataFrame(_codes_by_controls(known, controls, test, level), index=values.index, columns=values.columns)


def _codes_by_controls(values: Floats, controls: Floats, test: Test, level: float) -> Codes:
    away = values - controls.mean(axis=1, keepdims=True)
    return np.where(np.abs(away) > reach(controls, test, level), np.sign(away), 0).astype(np.int8)


def encode_controls(
    controls: pd.DataFrame, *, test: Test = "empirical", level: float = 0.05
) -> tuple[pd.DataFrame, Test]:
    """Return the ternary code of every control, and the test that was used (decision F9).

    Each control is tested against the mean, spread and ranks of the other controls. If there are n controls, each
    control is therefore compared with n - 1 controls, and each patient with n controls. If there are too few controls
    for `empirical`, the test `t` is used instead. If a gene has the same value in all controls except the tested one,
    the test for this gene is always `empirical`. The code of such a gene is 0 if there are too few controls for
    `empirical` to give `p < level`. If there are fewer than three controls, the returned table of codes has no columns.

    Parameters
    ----------
    controls : (n_genes, n_controls) in log2 units

    Returns
    -------
    code : (n_genes, n_controls) int8 in {-1, 0, 1}, with the same labels
    used : name of the test that was used

    """
    known = controls.to_numpy(dtype=np.float64)
    count = known.shape[1]
    used: Test = "t" if test == "empirical" and count - 1 < least_controls(level) else test
    code = np.zeros(known.shape, dtype=np.int8)
    if count < 3:
        return controls.iloc[:, :0].astype(np.int8), used
    for place in range(count):
        code[:, [place]] = _codes_by_controls(known[:, [place]], np.delete(known, place, axis=1), used, level)
    return pd.DataFrame(code, index=controls.index, columns=controls.columns), used


def encode_by_cohort(values: pd.DataFrame, *, threshold: float = 0.5) -> pd.DataFrame:
    """Return the ternary code of every patient, by the distance from the median of all patients.

    Labels and controls are not used. The code of a value `x` is the sign of `x - median` if the distance exceeds
    `threshold` robust standard deviations, else 0. A robust standard deviation is 1.4826 times the median absolute
    deviation. A gene with the same value in more than half the patients has a robust standard deviation of 0, and code
    0 for all patients.

    Parameters
    ----------
    values : (n_genes, n_patients) in log2 units

    Returns
    -------
    code : (n_genes, n_patients) int8 in {-1, 0, 1}, with the same labels

    Raises
    ------
    CohortError : a value that is not finite.

    """
    known = values.to_numpy(dtype=np.float64)
    _refuse_cells(values, ~np.isfinite(known), "a finite number", "drop the sample")
    distance = known - np.median(known, axis=1, keepdims=True)
    code = np.where(np.abs(distance) > robust_reach(known, threshold), np.sign(distance), 0)
    return pd.DataFrame(code.astype(np.int8), index=values.index, columns=values.columns)


def robust_reach(values: Floats, threshold: float) -> Floats:
    """Return one distance for each gene: values up to this distance from the gene's median are encoded as 0.

    Parameters
    ----------
    values : (n_genes, n_patients) float64
    threshold : in robust standard deviations

    Returns
    -------
    distance : (n_genes, 1) float64, infinite for a gene with a median absolute deviation of 0

    """
    far = threshold * robust_scale(values)[:, None] + _rounding_tolerance(values)
    return np.where(without_robust_spread(values)[:, None], np.inf, far)


def robust_scale(values: Floats) -> Floats:
    """Return 1.4826 times the median absolute deviation of each gene.

    Parameters
    ----------
    values : (n_genes, n_patients) float64

    Returns
    -------
    scale : (n_genes,) float64, in the unit of `values`

    """
    centre = np.median(values, axis=1, keepdims=True)
    return np.asarray(MAD_TO_SD * np.median(np.abs(values - centre), axis=1))


def without_robust_spread(values: Floats) -> Bools:
    """Return True for genes whose median absolute deviation is 0 up to rounding.

    Parameters
    ----------
    values : (n_genes, n_patients) float64

    Returns
    -------
    flat : (n_genes,) bool

    """
    return np.asarray(robust_scale(values) <= _rounding_tolerance(values)[:, 0])


def _rounding_tolerance(values: Floats) -> Floats:
    return np.asarray(CODE_ROUNDING * np.abs(values).max(axis=1, initial=0.0, keepdims=True))


def reach(controls: Floats, test: Test, level: float) -> Floats:
    r"""Return, for each gene, the largest distance from the controls' mean that is not significant (`p >= level`).

    Here `mu` and `s` are the mean and the standard deviation of the controls. The p-value of a sample's value `x` is:

    - `empirical`: \[ p = \frac{1 + \#\{c : |c - \mu| \ge |x - \mu|\}}{n + 1} \] This is the share of values, among the
      sample and the controls, that are at least as far from the mean as the sample. Distances that differ only by
      rounding count as equal.
    - `normal`: the two-sided p-value of \( z = (x - \mu) / s \), where `s` has `n - 1` degrees of freedom.
    - `t`: the two-sided p-value of \( (x - \mu) / (s \sqrt{1 + 1/n}) \) under Student's t with `n - 1` degrees of
      freedom.

    For a gene that has the same value in all controls, the test is always `empirical`.

    Parameters
    ----------
    controls : (n_genes, n) float64

    Returns
    -------
    distance : (n_genes, 1) float64, infinite if no distance gives `p < level`

    """
    count = controls.shape[1]
    distance = np.sort(np.abs(controls - controls.mean(axis=1, keepdims=True)), axis=1)[:, ::-1]
    # If a sample has p < level, at most `allowed` values (including the sample) are at least as far from the mean as
    # the sample.
    allowed = int(((1.0 + np.arange(count)) / (count + 1.0) < level).sum())
    far = np.full((len(controls), 1), np.inf)
    if allowed:
        far = distance[:, [allowed - 1]] + CODE_ROUNDING * np.abs(controls).max(axis=1, initial=0.0, keepdims=True)
    if test != "empirical":
        from scipy import stats  # noqa: PLC0415 (slow to load: the workflow's rules import this module)

        quantile = float(stats.norm.isf(level / 2))
        if test == "t":
            quantile = float(stats.t.isf(level / 2, df=count - 1)) * math.sqrt(1.0 + 1.0 / count)
        spread = controls.std(axis=1, ddof=1, keepdims=True)
        far = np.where(without_spread(controls)[:, None], far, quantile * spread)
    return np.asarray(far)


def without_spread(controls: Floats) -> Bools:
    """Return True for genes that have the same value in all controls, up to rounding.

    Parameters
    ----------
    controls : (n_genes, n_controls) float64

    Returns
    -------
    flat : (n_genes,) bool

    """
    return np.asarray(np.ptp(controls, axis=1) <= CODE_ROUNDING * np.abs(controls).max(axis=1))


def least_controls(level: float) -> int:
    """Return the smallest number of controls for which `empirical` can give `p < level`.

    For level 0.05, at least 20 controls are needed.
    """
    fewest = max(1, math.floor(1.0 / level) - 1)
    while 1.0 / (fewest + 1.0) >= level:
        fewest += 1
    return fewest


def check_controls(
    n_controls: int,
    test: Test,
    level: float,
    of: str = "",
    instead: str = "set `encoding: {test: t}` in the cohort file",
) -> None:
    """Raise a `CohortError` if there are too few controls for the test to give `p < level`.

    Parameters
    ----------
    of : description of the controls, for the error message
    instead : advice other than adding controls

    """
    needed = least_controls(level) if test == "empirical" else 2
    if n_controls < needed:
        expected = f"at least {needed} for the test {test!r} to reach p < {level:g}"
        step = f"{instead}, or add controls" if test == "empirical" and n_controls > 1 else "add controls"
        raise CohortError(Fault("controls", f"{n_controls} controls{of}", expected, step))
