"""Simulation-based calibration of the binary posterior: are its probabilities right where the model is?

For each entity pairs (y, x) are drawn, y fair and x exactly from p_y. After some features of the support the posterior
is P(y = 1 | x_obs), the logistic function of the calibrated l-hat. Were labels drawn from the true posterior, y would
have every rank among them equally often: exact inference must pass, the shortfall of mean-field is its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from afa.bundle import Bundle
from afa.engine.elbo_difference import elbo_differences
from afa.engine.elimination import log_partitions
from afa.errors import ConfigError, Fault, InferenceError
from afa.experiments.drawn import drawn_patients, generator_of
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.orders import random_order

EXPERIMENT = "simulated_calibration"
COUNTS = (0, 1, 2, 4, 8, 16)
WHOLE = "whole"
LABELS_DRAWN = 99
COLUMNS = [
    "entity",
    "draw",
    "label",
    "step",
    "t",
    "inference",
    "probability",
    "rank",
    "iterations",
    "capped",
    "ascended",
]


def simulated_calibration(
    bundle: Bundle,
    *,
    entities: Sequence[str] | None = None,
    counts: Sequence[int] = COUNTS,
    draws: int = 200,
    solver: Solver | None = None,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Draw labelled patients from every entity's own models and ask for the posterior along a random order.

    entities : those to do, all by default, so that shards can be joined. counts : numbers of observed support features
    at which to ask; those that an entity's support does not hold are left out, the whole support is always added.

    Returns two tables.

    `draws`, by (entity, draw, step, inference): the true `label`; `t`, features of the support observed; `probability`
    of class 1 in [0, 1]; `rank` of the label among 99 drawn from that probability, 0 to 99, ties broken at random; what
    the two mean-field solves took. `step` is the count as text, or `whole`; inference is `exact` or `mean_field`.

    `left_out`, by entity: those too dense for exact inference, and the reason.

    Raises
    ------
    ConfigError : a count below 0, or no draw.

    """
    if draws < 1 or min(counts, default=0) < 0:
        found = f"{draws} draws, counts {', '.join(map(str, counts))}"
        step = "correct the settings"
        raise ConfigError(Fault(EXPERIMENT, found, "at least one draw, counts of 0 or more", step))
    tables, left_out = [], []
    for entity in bundle.entities if entities is None else entities:
        try:
            table = _simulate(bundle, entity, sorted(set(counts)), draws, solver, threads)
        except InferenceError as error:
            left_out.append({"entity": entity, "reason": error.faults[0].found})
        else:
            tables.append(table.assign(entity=entity))
    whole = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
    found_tables = {
        "draws": whole.reindex(columns=COLUMNS),
        "left_out": pd.DataFrame(left_out, columns=["entity", "reason"]),
    }
    return {name: table.assign(bundle=bundle.name) for name, table in found_tables.items()}


def _simulate(
    bundle: Bundle, entity: str, counts: Sequence[int], draws: int, solver: Solver | None, threads: int | None
) -> pd.DataFrame:
    """The rows of one entity: draws, then steps, then inferences."""
    mrf = bundle.mrf(entity)
    labels = generator_of(EXPERIMENT, entity, "label").integers(0, 2, draws).astype(np.int8)
    values = drawn_patients(mrf, labels, EXPERIMENT, entity)
    support = mrf.support
    steps = {**{str(t): t for t in counts if t <= len(support)}, WHOLE: len(support)}
    place = np.full((draws, mrf.n_features), mrf.n_features)
    names = [bundle.features[j] for j in support]
    for draw in range(draws):
        order = random_order(names, patient=f"{entity}, draw {draw}", seed=0, experiment=EXPERIMENT)
        place[draw, support[order]] = np.arange(len(support))
    seen = place[:, None, :] < np.array(list(steps.values()))[:, None]
    observed = seen.reshape(-1, mrf.n_features)
    known = np.repeat(values, len(steps), axis=0)
    states = np.concatenate([np.zeros((1, mrf.n_features), dtype=bool), observed])
    log_z = log_partitions(mrf, states, np.concatenate([known[:1], known]), threads=threads)
    exact = log_z[:, 0] - log_z[:, 1]
    solved = elbo_differences(bundle, entity, observed, known, solver=solver, threads=threads)
    none = np.zeros(len(observed), dtype=np.int32)
    log_odds = {
        "exact": (exact[1:] - exact[0], none, none, none),
        "mean_field": (solved.calibrated, solved.iterations, solved.capped, solved.ascended),
    }
    uniforms = generator_of(EXPERIMENT, entity, "posterior labels").random((draws, LABELS_DRAWN + 1))
    tables = []
    for inference, (odds, iterations, capped, ascended) in log_odds.items():
        probability = expit(odds)
        table = {
            "draw": np.repeat(np.arange(draws), len(steps)),
            "label": np.repeat(labels, len(steps)),
            "step": np.tile(np.array(list(steps), dtype=object), draws),
            "t": np.tile(np.array(list(steps.values())), draws),
            "inference": inference,
            "probability": probability,
            "rank": ranks(probability.reshape(draws, -1), labels, uniforms).ravel(),
            "iterations": iterations,
            "capped": capped,
            "ascended": ascended,
        }
        tables.append(pd.DataFrame(table))
    return pd.concat(tables, ignore_index=True)


def ranks(probability: Floats, labels: NDArray[np.int8], uniforms: Floats) -> NDArray[np.int64]:
    """(n, T) rank of each label among labels drawn from each probability, (n, T); 0 to the number drawn.

    labels : (n,). uniforms : (n, L + 1) in [0, 1); the first L of a row draw its labels, the last breaks its ties.
    """
    drawn, tie_break = uniforms[:, :-1], uniforms[:, -1:]
    ones = (drawn[:, None, :] < probability[:, :, None]).sum(axis=2)
    zeros = drawn.shape[1] - ones
    positive = labels[:, None] == 1
    below, tied = np.where(positive, zeros, 0), np.where(positive, ones, zeros)
    rank: NDArray[np.int64] = below + np.floor(tie_break * (tied + 1)).astype(np.int64)
    return rank
