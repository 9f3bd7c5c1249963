"""Compute the entities' probabilities for a table of patients with the compiled engine (`predict_proba`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.special import expit, softmax

from afa.cohort.cohort import PATIENT
from afa.engine.run import MISSING
from afa.errors import Fault, PlannerError
from afa.evaluate.entrants import HypothesisModel, which, with_and_without
from afa.evaluate.frames import check_possible, codes_of_frame
from afa.evaluate.simulate.walks import informed
from afa.evaluate.update import NO_ENTITY
from afa.inference.meanfield import Solver
from afa.io.csvfile import separator_of
from afa.io.files import atomic_file, write_csv
from afa.model.arrays import Codes, Floats
from afa.model.bundle import Bundle
from afa.model.bundle.rates import Holds
from afa.model.closure import Closure
from afa.planner import BinaryPlanner, TopKPlanner
from afa.planner.options import bundle_given, gauge_of


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

    The probabilities equal `TopKPlanner.posterior`, or `BinaryPlanner.probability` for a bundle with one entity.

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
    PlannerError : `holds` is given for a bundle with one entity.

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
    codes = codes_of_frame(X, model).reindex(columns=list(model.features))
    values = codes.fillna(MISSING).to_numpy(dtype=np.int8)
    check_possible(model, list(codes.index), values, "table X")
    distinct, place = np.unique(values, axis=0, return_inverse=True)
    options: dict[str, Any] = {"coupling": coupling, "solver": solver, "inference": inference}
    found: Floats
    if len(model.entities) == 1:
        if holds is not None:
            raise PlannerError(Fault("holds", repr(holds), "none for a bundle with one entity", "leave it out"))
        binary = BinaryPlanner(model, entity=model.entities[0], **options)
        if inference == "exact":
            found = np.array([[informed(binary.copy(), row).probability()] for row in distinct])
    else:
        planner = TopKPlanner(model, k=1, holds=holds, **options)
        if inference == "exact":
            found = np.array([informed(planner.copy(), row).posterior() for row in distinct])
    if inference != "exact":
        gauge = gauge_of(model, coupling)
        found = _compiled_probabilities(model, distinct, gauge, holds or model.holds, solver=solver, threads=threads)
    return pd.DataFrame(found[place.ravel()], index=codes.index, columns=list(model.entities))


def _compiled_probabilities(bundle: Bundle, values: Codes, gauge: Closure, holds: str, **options: Any) -> Floats:
    """Return the posterior probability of each entity for each patient, (P, N), given `values`, (P, M).

    Parameters
    ----------
    options : `solver` and `threads`

    """
    orders = np.tile(np.arange(values.shape[1]), (len(values), 1))

    def evidence(model: HypothesisModel) -> Floats:
        return model.along(values, orders, [values.shape[1]], **options)[:, 0]

    if len(bundle.entities) == 1 or (gauge == "explicit" and holds == "several"):
        closed = [evidence(with_and_without(bundle, entity, gauge)) for entity in bundle.entities]
        return np.asarray(expit(np.stack([of[:, 0] - of[:, 1] for of in closed], axis=1)))
    if gauge == "explicit":
        log = evidence(which(bundle, NO_ENTITY if holds == "one or none" else None))
        return np.asarray(softmax(log, axis=1)[:, : len(bundle.entities)])
    return np.asarray(softmax(evidence(HypothesisModel(bundle.contrasts())), axis=1))


def write_probabilities(found: pd.DataFrame, path: Path) -> None:
    """Write the result of `predict_proba` as CSV, TSV or Parquet. The suffix of the file name determines the format.

    If the CSV or TSV file exists, it must have the same columns as the result.
    """
    table = found.rename_axis(PATIENT).reset_index()
    if path.suffix == ".parquet":
        with atomic_file(path) as temporary:
            table.to_parquet(temporary, engine="pyarrow", compression="zstd", index=False)
    else:
        write_csv(table, path, sep=separator_of(path), float_format="%.12g")
