"""Are the probabilities of the binary task as often right as they say? On a cohort's patients, by t (spec S15).

The posterior log-odds of a task given x_obs are l-hat = log Z_1(x_obs) - log Z_0(x_obs), by the difference of two
ELBOs or exactly. `raw` is l-hat itself, whose sign is the paper's decision; `calibrated` is l-hat less its value at no
observation, whose logistic function is the probability.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.closure import STRENGTH, Coupling, shared_potentials
from afa.cohort.cohort import Cohort
from afa.engine.elimination import ENTRY_LIMIT, log_partitions
from afa.errors import InferenceError
from afa.experiments.steps import Cube
from afa.mrf import Floats, PairwiseMRF
from afa.orders import random_order

HALVES = (0.5, -0.5)
WHOLE = (1.0,)
Seen = NDArray[np.bool_]


def rounds_up_to(rounds: Sequence[int], n_features: int) -> list[int]:
    """The rounds that exist with so many features, with 0 and the last, in order."""
    return sorted({0, *(t for t in rounds if t < n_features), n_features})


def cohort_calibration(
    bundle: Bundle,
    cohort: Cohort,
    steps: pd.DataFrame,
    tasks: pd.DataFrame,
    *,
    rounds: Sequence[int],
    coupling: Coupling = "differential",
    strength: float = STRENGTH,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Log-odds of every task after t observations in random order, by mean-field and exactly.

    steps, tasks : tables of `afa.experiments.binary`; random orders only are used, all their seeds. rounds : the t.
    coupling, strength : the closure that the tables were made with.

    Returns `odds`, by (patient, entity, seed, t, inference): `raw` and `calibrated` log-odds in nats; and `left_out`,
    by entity: tasks too dense for exact inference, with what it would have taken.
    """
    entities, patients = list(tasks["entity"]), list(cohort.patients)
    rounds = rounds_up_to(rounds, len(bundle.features))
    random = steps[steps["allocation"] == "random"]
    cube = Cube.of(random, patients, entities, len(bundle.features))
    mean_field = cube.by_round(cube.columns["two_elbo"])[..., rounds]
    shift = tasks["shift"].to_numpy()[None, :, None, None]
    seeds = sorted(random["seed"].unique())
    keys = pd.MultiIndex.from_product([patients, entities, seeds, rounds], names=["patient", "entity", "seed", "t"])
    observed = _observed(bundle, patients, seeds, rounds)
    exact, left_out = np.full(mean_field.shape, np.nan), []
    for i, entity in enumerate(entities):
        try:
            mrf = bundle.mrf(entity)
            models = (mrf,) if coupling == "differential" else shared_potentials(mrf, strength)
            exact[:, i] = _exact_log_odds(models, cohort, observed, threads)
        except InferenceError as error:
            left_out.append({"entity": entity, "reason": error.faults[0].found})
    tables = [
        pd.DataFrame({"raw": raw.ravel(), "calibrated": (raw - empty).ravel()}, index=keys).assign(inference=name)
        for name, raw, empty in (("mean_field", mean_field, shift), ("exact", exact, exact[..., :1]))
    ]
    odds = pd.concat(tables).dropna().reset_index().assign(cohort=cohort.name, bundle=bundle.name)
    return {"odds": odds, "left_out": pd.DataFrame(left_out, columns=["entity", "reason"])}


def _observed(bundle: Bundle, patients: Sequence[str], seeds: Sequence[int], rounds: Sequence[int]) -> Seen:
    """(P, S, T, M) bool: what has been observed after each of the rounds."""
    place = np.empty((len(patients), len(seeds), len(bundle.features)), dtype=np.int64)
    for p, patient in enumerate(patients):
        for s, seed in enumerate(seeds):
            place[p, s, random_order(bundle.features, patient=patient, seed=int(seed))] = np.arange(place.shape[2])
    seen: Seen = place[:, :, None, :] < np.array(rounds)[:, None]
    return seen


def _exact_log_odds(models: Sequence[PairwiseMRF], cohort: Cohort, observed: Seen, threads: int | None) -> Floats:
    """(P, S, T) exact l-hat of one task (eq:ell-hat): of one model of which each class is a half, or of both."""
    values = np.broadcast_to(cohort.values[:, None, None, :], observed.shape)
    rows = (-1, observed.shape[-1])
    parts = [
        log_partitions(
            model,
            observed.reshape(rows),
            values.reshape(rows),
            factors=HALVES if len(models) == 1 else WHOLE,
            limit=ENTRY_LIMIT,
            threads=threads,
        )
        for model in models
    ]
    log_z = np.hstack(parts)
    odds: Floats = (log_z[:, 0] - log_z[:, 1]).reshape(observed.shape[:-1])
    return odds
