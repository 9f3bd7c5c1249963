"""The ternary code of a sample's expression, against the controls or against the cohort itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from afa.errors import CohortError, Fault, check_number

Test = Literal["empirical", "normal", "t"]
Reference = Literal["controls", "cohort"]
Floats = npt.NDArray[np.float64]

MAD_TO_SD = 1.4826
"""The standard deviation of a normal law in units of its median absolute deviation."""

ROUNDING = 1e-12
"""Share of a value below which a difference from a mean or a cut point is that of rounding; ranges are exact."""


@dataclass(frozen=True)
class Coding:
    """How values become ternary: by a test against the controls, or by distance from the cohort's own median.

    reference : `controls` or `cohort`; None where every feature has a range. test, level : of the controls.
    threshold : of the cohort, in robust standard deviations from the median.
    """

    reference: Reference | None = None
    test: Test = "empirical"
    level: float = 0.05
    threshold: float = 0.5

    def __post_init__(self) -> None:
        for option, value, expected, fits in (
            ("level", self.level, "a number above 0 and below 1", lambda x: 0 < x < 1),
            ("threshold", self.threshold, "a finite number, 0 or more", lambda x: 0 <= x < math.inf),
        ):
            check_number(CohortError, f"encoding option {option}", value, expected, fits)


def encode(
    values: pd.DataFrame, is_control: npt.ArrayLike, *, test: Test = "empirical", level: float = 0.05
) -> pd.DataFrame:
    """Ternary code of every sample, controls included, against the controls (`eq:ternary-encoding`, decision D1).

    `values` is `(n_genes, n_samples)` in log2 units, `is_control` `(n_samples,)` of truth values; the result has the
    same shape and names, int8 in {-1, 0, 1}: the sign of `x - mu` where `p < level`, else 0, with `mu` the
    gene's mean over the controls. A gene without spread among the controls is tested by `empirical` whatever
    `test` says. A value that is not finite and too few controls for the test are `CohortError`s.
    """
    known = values.to_numpy(dtype=np.float64)
    chosen = np.asarray(is_control, dtype=bool)
    _check_finite(values, known)
    controls = known[:, chosen]
    _check_controls(controls.shape[1], test, level)
    flat = without_spread(controls)
    if flat.any():
        _check_flat(values.index[flat], controls.shape[1], level)
    p = np.empty_like(known)
    p[flat] = empirical_p(known[flat], controls[flat])
    p[~flat] = _P_VALUES[test](known[~flat], controls[~flat])
    direction = np.sign(known - controls.mean(axis=1, keepdims=True))
    return pd.DataFrame(np.where(p < level, direction, 0).astype(np.int8), index=values.index, columns=values.columns)


def encode_controls(
    controls: pd.DataFrame, *, test: Test = "empirical", level: float = 0.05
) -> tuple[pd.DataFrame, Test]:
    """Ternary code of every control against the others, itself left out of centre, spread and ranks (decision F9).

    `controls` is `(n_genes, n_controls)` in log2 units; the code has the same shape and names. `empirical` needs one
    control more than for patients: with fewer the predictive `t` stands in for it at the same level, so the test that
    was taken is returned too. A gene without spread among the others is tested by `empirical` alone, and is 0 where
    that cannot reach the level. One control alone has nothing to be held against: no column is returned.
    """
    known = controls.to_numpy(dtype=np.float64)
    count = known.shape[1]
    used: Test = "t" if test == "empirical" and count - 1 < least_controls(level) else test
    code = np.zeros(known.shape, dtype=np.int8)
    if count < 3:
        return controls.iloc[:, :0].astype(np.int8), used
    for place in range(count):
        own, others = known[:, [place]], np.delete(known, place, axis=1)
        flat = without_spread(others)
        p = empirical_p(own, others)
        p[~flat] = _P_VALUES[used](own[~flat], others[~flat])
        code[:, place] = np.where(p < level, np.sign(own - others.mean(axis=1, keepdims=True)), 0)[:, 0]
    return pd.DataFrame(code, index=controls.index, columns=controls.columns), used


def encode_by_cohort(values: pd.DataFrame, *, threshold: float = 0.5) -> pd.DataFrame:
    """Ternary code of every patient against the patients as a whole, no label and no control being read.

    `values` is `(n_genes, n_patients)` in log2 units; the result has the same shape and names, int8 in {-1, 0, 1}: the
    sign of `x - median` where that is more than `threshold` robust standard deviations, 1.4826 times the median
    absolute deviation, else 0. A gene of which more than half the patients have one value has no such scale and is 0
    throughout (`without_robust_spread` names them). A value that is not finite is a `CohortError`.
    """
    known = values.to_numpy(dtype=np.float64)
    _check_finite(values, known)
    distance = known - np.median(known, axis=1, keepdims=True)
    far = np.abs(distance) > threshold * robust_scale(known)[:, None] + _slack(known)
    code = np.where(far & ~without_robust_spread(known)[:, None], np.sign(distance), 0)
    return pd.DataFrame(code.astype(np.int8), index=values.index, columns=values.columns)


def robust_scale(values: Floats) -> Floats:
    """1.4826 times the median absolute deviation of each row of `values` `(n_genes, n_patients)`: `(n_genes,)`."""
    centre = np.median(values, axis=1, keepdims=True)
    return np.asarray(MAD_TO_SD * np.median(np.abs(values - centre), axis=1))


def without_robust_spread(values: Floats) -> npt.NDArray[np.bool_]:
    """Which genes of `values` `(n_genes, n_patients)` have a median absolute deviation of 0, up to rounding."""
    return np.asarray(robust_scale(values) <= _slack(values)[:, 0])


def _slack(values: Floats) -> Floats:
    return np.asarray(ROUNDING * np.abs(values).max(axis=1, initial=0.0, keepdims=True))


def empirical_p(values: Floats, controls: Floats) -> Floats:
    r"""Share of the controls at least as far from their mean, the sample itself counted among them.

    \[ p = \frac{1 + \#\{c : |c - \mu| \ge |x - \mu|\}}{n + 1} \] for `values` `(n_genes, n_samples)` and `controls`
    `(n_genes, n_controls)`; in (0, 1], never below `1 / (n + 1)`. Distances equal up to rounding count as equal.
    """
    n_controls = controls.shape[1]
    centre = controls.mean(axis=1, keepdims=True)
    control_distance = np.sort(np.abs(controls - centre), axis=1)
    slack = ROUNDING * (np.abs(controls).max(axis=1, initial=0.0, keepdims=True) + np.abs(values))
    least = np.abs(values - centre) - slack
    nearer = np.empty(values.shape, dtype=np.intp)
    for gene in range(len(values)):
        nearer[gene] = np.searchsorted(control_distance[gene], least[gene], side="left")
    return np.asarray((1.0 + n_controls - nearer) / (n_controls + 1.0))


def normal_p(values: Floats, controls: Floats) -> Floats:
    """Two-sided p of `z = (x - mu) / s` under the normal law; shapes as in `empirical_p`, `s` with `n - 1`."""
    from scipy import stats  # noqa: PLC0415 (slow to load: the workflow's rules import this module)

    return np.asarray(2.0 * stats.norm.sf(np.abs(_standardised(values, controls))))


def predictive_t_p(values: Floats, controls: Floats) -> Floats:
    r"""Two-sided p of a new value: \( (x - \mu) / (s \sqrt{1 + 1/n}) \) under Student's t with `n - 1` degrees."""
    from scipy import stats  # noqa: PLC0415 (slow to load: the workflow's rules import this module)

    n_controls = controls.shape[1]
    statistic = _standardised(values, controls) / math.sqrt(1.0 + 1.0 / n_controls)
    return np.asarray(2.0 * stats.t.sf(np.abs(statistic), df=n_controls - 1))


def without_spread(controls: Floats) -> npt.NDArray[np.bool_]:
    """Which genes of `controls` `(n_genes, n_controls)` have one value only, up to rounding: `(n_genes,)`."""
    return np.asarray(np.ptp(controls, axis=1) <= ROUNDING * np.abs(controls).max(axis=1))


def least_controls(level: float) -> int:
    """The least number of controls with which `empirical` can reach `p < level`: 20 at 0.05."""
    fewest = max(1, math.floor(1.0 / level) - 1)
    while 1.0 / (fewest + 1.0) >= level:
        fewest += 1
    return fewest


_P_VALUES = {"empirical": empirical_p, "normal": normal_p, "t": predictive_t_p}


def _standardised(values: Floats, controls: Floats) -> Floats:
    centre = controls.mean(axis=1, keepdims=True)
    return np.asarray((values - centre) / controls.std(axis=1, ddof=1, keepdims=True))


def _check_finite(values: pd.DataFrame, known: Floats) -> None:
    wrong = ~np.isfinite(known)
    if wrong.any():
        gene, sample = divmod(int(wrong.argmax()), wrong.shape[1])
        where = f"gene {values.index[gene]}, sample {values.columns[sample]}"
        step = "correct the expression file or drop the sample"
        raise CohortError(Fault(where, f"{known[gene, sample]} ({wrong.sum()} such cells)", "a finite number", step))


def _check_controls(n_controls: int, test: Test, level: float) -> None:
    needed = least_controls(level) if test == "empirical" else 2
    if n_controls < needed:
        step = "set `encoding: {test: t}` in the cohort file" if test == "empirical" else "add controls to the cohort"
        found, expected = f"{n_controls} controls", f"at least {needed} for the test {test!r} to reach p < {level:g}"
        raise CohortError(Fault("controls", found, expected, step if n_controls > 1 else "add controls to the cohort"))


def _check_flat(genes: pd.Index[str], n_controls: int, level: float) -> None:
    needed = least_controls(level)
    if n_controls < needed:
        found = f"{len(genes)} genes without spread among {n_controls} controls: {', '.join(map(str, genes))}"
        expected = f"at least {needed} controls, such genes being tested by 'empirical' only"
        raise CohortError(Fault("controls", found, expected, "leave these genes out of the bundle, or add controls"))
