"""`afa.simulate`: what acquisition would need on patients in a table in memory, as tables that draw themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.closure import Closure
from afa.cohort.cohort import PATIENT, Cohort
from afa.errors import CohortError, Fault
from afa.planner.options import bundle_given, gauge_of
from afa.stages.simulate import simulate as followed
from afa.stages.simulate import ways_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOP_K_RULES = ("priority_all", "greedy", "largest_unary", "random")
BINARY_RULES = ("greedy", "largest_unary", "random_own", "random")


@dataclass(frozen=True, repr=False)
class Simulated:
    """What came of a simulation.

    curves : the share of patients that is right by the number of features observed, with intervals; by rule.
    features_needed : quantiles of how many were needed, by rule and criterion. patients : whom it was about.
    left_out : patients of whom nothing was measured, by name. gaps : the share of values that were not measured; they
    are never asked for, and what is right is what all that was measured says. title : what was asked.
    """

    curves: pd.DataFrame
    features_needed: pd.DataFrame
    patients: tuple[str, ...]
    left_out: tuple[str, ...]
    gaps: float
    title: str

    def __repr__(self) -> str:
        gaps = f", {100 * self.gaps:.2g} % of values not measured" if self.gaps else ""
        gaps += f", {len(self.left_out)} left out with none" if self.left_out else ""
        columns = ["allocation", "criterion", "counted", "median", "q75", "never"]
        return f"{self.title}{gaps}\n{self.features_needed[columns].to_string(index=False)}"

    def _repr_html_(self) -> str:
        return self.features_needed.to_html(index=False)

    def plot(self) -> Figure:
        """The curves as a figure, one panel a metric; it needs the extra `notebooks`."""
        from afa.report.figures import curves_figure  # noqa: PLC0415 (matplotlib comes with an extra)

        return curves_figure(self.curves, self.title)


def simulate(
    bundle: Bundle | str | Path,
    X: pd.DataFrame,
    y: pd.DataFrame | None = None,
    *,
    rules: Sequence[str] | None = None,
    k: int = 1,
    entity: str | None = None,
    coupling: Closure | None = None,
    holds: str | None = None,
    tau: float | str | None = None,
    gain: str = "cmi",
    score: str | None = None,
    costs: str = "own",
    seeds: Sequence[int] = (0, 1, 2),
    resamples: int = 1000,
    confidence: float = 0.95,
    threads: int = 1,
) -> Simulated:
    """Follow the patients of a table under each rule until all is known: how many features would have been needed?

    Parameters
    ----------
    bundle : the entities and their models, or the folder of a bundle.
    X : patients down and features across, -1, 0, +1 or missing, as whole numbers or not. Columns that the bundle does
        not know are ignored, features that no patient has leave the bundle, patients who have none are left out and
        named. What else is missing is never asked for.
    y : labels, patients down and entities across, 1, 0 or missing; scores are compared with them too.
    rules : allocation rules by name, or `module:Class`; four of them unless given.
    k, entity : the size of the top set, or the one entity that is asked for.
    coupling, holds, tau : as of the planners. gain, score, costs : as of `afa simulate`.
    seeds : of orders drawn at random. resamples, confidence : of the intervals. threads : they change no number.

    Raises
    ------
    CohortError : no patient has a value, or a value is not ternary; the first such cell is named.

    Examples
    --------
    >>> import pandas as pd
    >>> from afa.bundle import load_bundle
    >>> bundle = load_bundle("tests/data/bundle_tiny")
    >>> X = pd.DataFrame([[1.0, 1, 0, -1, 0], [0, -1, 1, 1, None]], columns=bundle.features, index=["p", "q"])
    >>> made = simulate(bundle, X, rules=["greedy"], resamples=10)
    >>> made.patients, round(made.gaps, 2)
    (('p', 'q'), 0.1)
    >>> made.features_needed[["allocation", "criterion", "median"]].head(1).values.tolist()
    [['greedy', 'settled', 0.0]]

    """
    model = bundle_given(bundle)
    for name, table in {"X": X, "y": X if y is None else y}.items():
        if not isinstance(table, pd.DataFrame):
            step = "give pandas.DataFrame(values, columns=names)"
            raise CohortError(Fault(f"table {name}", type(table).__name__, "a DataFrame", step))
    measured = X.reindex(columns=[name for name in model.features if name in X.columns and X[name].notna().any()])
    if measured.columns.empty:
        step = "name the columns as the bundle's features"
        raise CohortError(Fault("table X", "no column of a feature with a value", "one or more", step))
    model = model.restrict(list(measured.columns))
    known = measured.notna().any(axis=1)
    names, there = tuple(map(str, measured.index[known])), measured[known].notna().to_numpy()
    values = _ternary(measured[known], there)
    labels = pd.DataFrame(index=pd.Index(names, name=PATIENT))
    if y is not None:
        labelled = y.set_axis(y.index.map(str)).reindex(list(names))
        labels = labelled.reindex(columns=[name for name in model.entities if name in y.columns]).astype("Int8")
    cohort = Cohort("table X", model.features, names, values, labels)
    usual = "two_elbo" if entity or gauge_of(model, coupling) == "explicit" else "linearity"
    ways = ways_of(rules or (BINARY_RULES if entity else TOP_K_RULES), [gain], [score or usual])
    made = followed(
        model,
        cohort,
        ways,
        k=k,
        entity=entity,
        coupling=coupling,
        holds=holds,
        tau=tau,
        measured=there,
        costs=costs,
        seeds=seeds,
        resamples=resamples,
        confidence=confidence,
        threads=threads,
    )
    asked = f"is it {entity}?" if entity else f"top {k}"
    title = f"bundle {model.name}, {asked}; {len(names)} patients, {len(model.features)} features"
    return Simulated(*made, names, tuple(map(str, measured.index[~known])), float(1 - there.mean()), title)


def _ternary(table: pd.DataFrame, there: NDArray[np.bool_]) -> NDArray[np.int8]:
    """(P, M), 0 where nothing is there, or a `CohortError` that names the first cell that is not -1, 0 or 1."""
    numbers = np.where(there, table.apply(pd.to_numeric, errors="coerce").to_numpy(dtype=np.float64), 0.0)
    wrong = np.argwhere(~np.isin(numbers, (-1.0, 0.0, 1.0)))
    if len(wrong):
        row, column = wrong[0]
        where = f"table X, patient {table.index[row]}, column {table.columns[column]}"
        found, step = repr(table.astype(object).iloc[row, column]), "encode what was measured: afa.encode(X, features)"
        raise CohortError(Fault(where, found, f"-1, 0 or 1 ({len(wrong)} such cells)", step))
    return np.ascontiguousarray(numbers, dtype=np.int8)
