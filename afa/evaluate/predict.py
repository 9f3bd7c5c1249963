"""`predict_proba`: probabilities of the entities for a whole table of patients, computed by the compiled engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, softmax

from afa.cohort.cells import cells_of_frame, check_alike, numbers_of
from afa.cohort.cohort import PATIENT, Cohort
from afa.engine.follow import follow
from afa.engine.layout import Models
from afa.engine.run import ENTITIES, MISSING
from afa.engine.tasks import classes_of
from afa.errors import CohortError, Fault
from afa.evaluate.entrants import which
from afa.evaluate.inputs import check_possible
from afa.evaluate.simulate.walks import informed
from afa.inference.meanfield import Solver
from afa.io.csvfile import separator_of
from afa.io.files import atomic_file, write_csv
from afa.model.bundle import Bundle
from afa.model.bundle.rates import Holds
from afa.model.closure import STRENGTH, Closure
from afa.model.mrf import Floats
from afa.planner import BinaryPlanner, TopKPlanner
from afa.planner.options import bundle_given, gauge_of

NOBODY = "none of the entities"


def predict_proba(
    bundle: Bundle | str | Path,
    X: pd.DataFrame,
    *,
    coupling: Literal["explicit", "differential"] | None = None,
    holds: Holds | None = None,
    inference: Literal["mean_field", "exact"] = "mean_field",
    solver: Solver | None = None,
    threads: int | None = None,
) -> pd.DataFrame:
    """Return the probability of each entity for each patient, given all measured values of the patient.

    The probabilities are those of `TopKPlanner.posterior`, or of `BinaryPlanner.probability` for a bundle with one
    entity.

    Parameters
    ----------
    bundle : the entities and their models, or the folder of a bundle.
    X : (P, columns) the codes -1, 0, +1, as returned by `afa.encode`. A value that was not measured is missing. The
        index has the names of the patients. Columns that are not features are ignored. A feature without a column
        counts as missing.
    coupling, holds : as in `TopKPlanner`. For a bundle of directions alone, exactly one entity holds.
    inference : `mean_field` or `exact`. `mean_field` is inaccurate for coupled features. `exact` is slow, because it
        runs patient by patient, and it raises an error for dense models.
    solver : settings of the mean-field iteration.
    threads : number of threads; the results do not depend on it.

    Returns
    -------
    DataFrame : (P, N). The rows are in the order of the table, and the columns in the order of the bundle's entities

    Raises
    ------
    CohortError : no feature has a column, a name occurs twice, or a value is no code or is impossible for its feature.

    Examples
    --------
    >>> from afa.model.bundle import load_bundle
    >>> bundle = load_bundle("tests/data/bundle_tiny")
    >>> X = pd.DataFrame({"CXCL8": [1, None], "MMP9": [-1, 0]}, index=["ann", "ben"])
    >>> predict_proba(bundle, X).round(2).loc["ann"].to_dict()
    {'bleeding': 0.71, 'diarrhea': 0.28, 'fistula': 0.01}
    >>> predict_proba(bundle, X, inference="exact").round(2).loc["ann"].to_dict()
    {'bleeding': 0.7, 'diarrhea': 0.29, 'fistula': 0.01}

    """
    model = bundle_given(bundle)
    if not isinstance(X, pd.DataFrame):
        step = "give pandas.DataFrame(values, index=patients, columns=features)"
        raise CohortError(Fault("table X", type(X).__name__, "a DataFrame", step))
    check_alike(X.columns, model.features, model, "table X")
    there = [name for name in model.features if name in X.columns]
    if not there:
        step = "name the columns as the bundle's features"
        raise CohortError(Fault("table X", "no column of a feature", "one or more", step))
    rows, step = [f"patient {name}" for name in X.index], "encode what was measured: afa.encode(X, features)"
    cells = cells_of_frame(X[there], "table X", rows=rows)
    known = numbers_of(cells, there, "-1, 0, 1 or nothing", only=(-1.0, 0.0, 1.0), step=step)
    CohortError.raise_for(cells.table.faults.listed())
    values = np.full((len(X), len(model.features)), MISSING, dtype=np.int8)
    values[:, [model.features.index(name) for name in there]] = np.where(np.isnan(known), MISSING, known)
    measured, names = values != MISSING, tuple(cells.names)
    nothing = pd.DataFrame(index=pd.Index(names, name=PATIENT))
    cohort = Cohort("table X", model.features, names, np.where(measured, values, 0).astype(np.int8), nothing)
    check_possible(model, cohort, measured)
    distinct, place = np.unique(values, axis=0, return_inverse=True)
    options: dict[str, Any] = {"coupling": coupling, "holds": holds, "solver": solver}
    if inference == "exact":
        found = _by_planner(model, distinct, inference=inference, **options)
    else:
        found = _compiled(model, distinct, threads=threads, **options)
    return pd.DataFrame(found[place.ravel()], index=nothing.index, columns=list(model.entities))


def _by_planner(bundle: Bundle, values: NDArray[np.int8], *, holds: Holds | None, **options: Any) -> Floats:
    """Return the posteriors (P, N) of patients with `values` (P, M), computed patient by patient."""
    if len(bundle.entities) == 1:
        one = [informed(BinaryPlanner(bundle, entity=bundle.entities[0], **options), row) for row in values]
        return np.array([[planner.probability()] for planner in one])
    many = [informed(TopKPlanner(bundle, k=1, holds=holds, **options), row) for row in values]
    return np.stack([planner.posterior() for planner in many])


def _compiled(
    bundle: Bundle,
    values: NDArray[np.int8],
    *,
    coupling: Closure | None,
    holds: Holds | None,
    solver: Solver | None,
    threads: int | None,
) -> Floats:
    """Return the posteriors (P, N) of patients with `values` (P, M), computed for all patients at once."""
    _planner_takes(bundle, coupling, holds, solver)
    gauge, holds = gauge_of(bundle, coupling), holds or bundle.holds

    def evidence(models: Bundle | Models) -> Floats:
        orders = np.tile(np.arange(values.shape[1]), (len(values), 1))
        elbo = follow(
            models, values, orders, ENTITIES, rounds=[0, values.shape[1]], solver=solver, threads=threads
        ).elbo
        return np.asarray(np.array(models.priors) + elbo[:, -1] - elbo[:, 0])

    if len(bundle.entities) == 1 or (gauge == "explicit" and holds == "several"):
        closed = [evidence(classes_of(bundle, entity, gauge, STRENGTH)) for entity in bundle.entities]
        return np.asarray(expit(np.stack([of[:, 0] - of[:, 1] for of in closed], axis=1)))
    if gauge == "explicit":
        log = evidence(which(bundle, NOBODY if holds == "one or none" else None).models)
        return np.asarray(softmax(log, axis=1)[:, : len(bundle.entities)])
    return np.asarray(softmax(evidence(bundle.contrasts()), axis=1))


def _planner_takes(bundle: Bundle, coupling: Closure | None, holds: Holds | None, solver: Solver | None) -> None:
    """Raise the `PlannerError` that a planner of the bundle would raise for these options."""
    options: dict[str, Any] = {"coupling": coupling, "solver": solver}
    if len(bundle.entities) == 1:
        BinaryPlanner(bundle, entity=bundle.entities[0], **options)
    else:
        TopKPlanner(bundle, k=1, holds=holds, **options)


def write_probabilities(found: pd.DataFrame, path: Path) -> None:
    """Write the result of `predict_proba` as CSV, TSV or Parquet. The suffix of the path determines the format.

    An existing CSV or TSV file must have the same columns.
    """
    table = found.rename_axis(PATIENT).reset_index()
    if path.suffix == ".parquet":
        with atomic_file(path) as temporary:
            table.to_parquet(temporary, engine="pyarrow", compression="zstd", index=False)
    else:
        write_csv(table, path, sep=separator_of(path), float_format="%.12g")
