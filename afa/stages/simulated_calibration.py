"""Simulation-based calibration of the binary posterior: are its probabilities right where the model is?

For each entity pairs (y, x) are drawn, y fair and x exactly from p_y. After some features of the support the posterior
is P(y = 1 | x_obs), the logistic function of the calibrated l-hat. Were labels drawn from the true posterior, y would
have every rank among them equally often: exact inference must pass, the shortfall of mean-field is its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import chdtrc, expit

from afa.bundle import Bundle
from afa.engine.elimination import log_partitions
from afa.engine.tasks import elbo_differences
from afa.errors import InferenceError
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.orders import generator_of, random_order
from afa.stages.base import Stage
from afa.stages.inputs import drawn_patients
from afa.stats.accuracy import ProbabilitySums, Resampled, sums_by
from afa.stats.summary import summary_rows
from afa.stats.tables import groups, joined, rows_of

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap, Calibration, Inference

COLUMNS = {
    "draws": "entity draw label step t inference probability rank iterations capped ascended bundle",
    "left_out": "entity reason bundle",
    "histogram": "inference step bin count",
}
STAGE = Stage(
    inputs=("bundle",),
    settings=("calibration.simulated", "inference"),
    by_patient=False,
    tables={
        **COLUMNS,
    },
    rows={"calibration": ""},
    space_mb=0.5,
)
EXPERIMENT = "simulated_calibration"
COUNTS = (0, 1, 2, 4, 8, 16)
WHOLE = "whole"
LABELS_DRAWN = 99
RANK_BINS = 20


def run(
    bundle: Bundle, *, calibration: Calibration, inference: Inference, threads: int | None = None
) -> dict[str, pd.DataFrame]:
    """Draw labelled patients from every entity's own models and ask for the posterior along a random order.

    It is asked after `COUNTS` observed features of the support, as many as there are, and after the whole support.

    Returns three tables.

    `draws`, by (entity, draw, step, inference): the true `label`; `t`, features of the support observed; `probability`
    of class 1 in [0, 1]; `rank` of the label among 99 drawn from that probability, 0 to 99, ties broken at random; what
    the two mean-field solves took. `step` is the count as text, or `whole`; inference is `exact` or `mean_field`.

    `left_out`, by entity: those too dense for exact inference, and the reason.

    `histogram`, by (inference, step, bin), over all entities: `count` of the ranks in each of 20 bins of 5.
    """
    tables, left_out, solver = [], [], Solver(**dict(inference))
    for entity in bundle.entities:
        try:
            tables.append(_simulate(bundle, entity, calibration.simulated, solver, threads).assign(entity=entity))
        except InferenceError as error:
            left_out.append({"entity": entity, "reason": error.faults[0].found})
    draws = joined(tables, COLUMNS["draws"].split()[:-1])
    lacking = pd.DataFrame(left_out, columns=["entity", "reason"])
    return {"draws": draws, "left_out": lacking, "histogram": histogram(draws)}


def _simulate(bundle: Bundle, entity: str, draws: int, solver: Solver, threads: int | None) -> pd.DataFrame:
    """The rows of one entity: draws, then steps, then inferences."""
    mrf = bundle.mrf(entity)
    labels = generator_of(EXPERIMENT, entity, "label").integers(0, 2, draws).astype(np.int8)
    values = drawn_patients(mrf, labels, EXPERIMENT, entity)
    support = mrf.support
    steps = {**{str(t): t for t in COUNTS if t <= len(support)}, WHOLE: len(support)}
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
        # classes are drawn equally often, whatever the prior
        "mean_field": (solved.raw - solved.start, solved.iterations, solved.capped, solved.ascended),
    }
    uniforms = generator_of(EXPERIMENT, entity, "posterior labels").random((draws, LABELS_DRAWN + 1))
    index = rows_of(draw=range(draws), step=list(steps)).assign(
        label=np.repeat(labels, len(steps)), t=np.tile(list(steps.values()), draws)
    )
    tables = []
    for inference, (odds, iterations, capped, ascended) in log_odds.items():
        probability = expit(odds)
        rank = ranks(probability.reshape(draws, -1), labels, uniforms).ravel()
        solves = {"iterations": iterations, "capped": capped, "ascended": ascended}
        tables.append(index.assign(inference=inference, probability=probability, rank=rank, **solves))
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


def summed(draws: pd.DataFrame, unit: NDArray[np.int64], n_units: int) -> tuple[ProbabilitySums, Floats]:
    """Sums of a part of the table `draws` by the unit (n,) of each row, and (P, 100) draws of each with each rank."""
    probability, label = draws["probability"].to_numpy(np.float64), draws["label"].to_numpy(np.float64)
    rank = draws["rank"].to_numpy(np.int64)
    counts = sums_by(unit, rank, n_units, LABELS_DRAWN + 1, np.ones(len(rank)))
    return ProbabilitySums.of(probability, label, unit, n_units), counts


def p_value_of(counts: Floats) -> float:
    """The p-value of ranks (P, 100) against uniform: chi-square of 20 bins, 19 degrees of freedom."""
    binned = counts.sum(axis=0).reshape(RANK_BINS, -1).sum(axis=1)
    expected = binned.sum() / RANK_BINS
    return float(chdtrc(RANK_BINS - 1, ((binned - expected) ** 2 / expected).sum()))


def gap_to_uniform(counts: Floats) -> Floats:
    """(R,) largest absolute difference between the distribution functions of ranks (R, 100) and of the uniform."""
    summed = np.cumsum(counts, axis=1)
    uniform = np.arange(1, summed.shape[1] + 1) / summed.shape[1]
    largest: Floats = np.abs(summed / summed[:, -1:] - uniform).max(axis=1)
    return largest


def histogram(draws: pd.DataFrame) -> pd.DataFrame:
    """The table `histogram` of the table `draws`."""
    tables = []
    for (inference, step), part in groups(draws, "inference", "step"):
        count = np.bincount(part["rank"] * RANK_BINS // (LABELS_DRAWN + 1), minlength=RANK_BINS)
        tables.append(pd.DataFrame({"inference": inference, "step": step, "bin": range(RANK_BINS), "count": count}))
    return joined(tables, COLUMNS["histogram"].split())


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Summary rows `calibration` on drawn patients, all entities together: `ece`, `brier` and `gap` by inference and t.

    `reference` is the inference and t the number of observed support features, with the stratum `simulated`; after the
    whole support, which differs from entity to entity, t is empty and the stratum `simulated_whole`. `rate` of the
    quantity `uniformity_p` is the p-value of uniform ranks. Intervals: a percentile bootstrap over the numbers of the
    draws, each standing for one patient of every entity. A resampled `gap` is larger than the gap itself, so that it
    has no interval; beside it, as reference `uniform`, is what truly uniform ranks stay below with probability
    `confidence`.
    """
    draws = tables["draws"]
    n_units = 1 if draws.empty else int(draws["draw"].max()) + 1
    resampled = Resampled.of(range(n_units), **dict(bootstrap), purpose=EXPERIMENT)
    rows = []
    for (inference, step), part in groups(draws, "inference", "step"):
        sums, counts = summed(part, part["draw"].to_numpy(np.int64), n_units)
        stratum = "simulated_whole" if step == WHOLE else "simulated"
        t = np.nan if step == WHOLE else int(step)
        ece, brier = (resampled.statistic(of, len(part)) for of in (sums.calibration_error, sums.brier))
        n, gap = len(part), gap_to_uniform(counts.sum(axis=0, keepdims=True))
        found = [
            ece.assign(metric="ece"),
            brier.assign(metric="brier"),
            pd.DataFrame({"metric": "gap", "value": gap, "n": n}),
            pd.DataFrame({"metric": "rate", "quantity": "uniformity_p", "value": [p_value_of(counts)], "n": n}),
        ]
        rows.append(pd.concat(found, ignore_index=True).assign(stratum=stratum, reference=inference, t=t))
        if inference == "exact":
            limit = [uniform_gap(n, **dict(bootstrap))]
            table = pd.DataFrame({"metric": "gap", "value": limit, "n": n})
            rows.append(table.assign(stratum=stratum, reference="uniform", t=t))
    left_out = {"quantity": "left_out", "value": [float(len(tables["left_out"]))]}
    count = pd.DataFrame({"metric": "count", "stratum": "simulated", **left_out})
    return summary_rows("calibration", [*rows, count], method="two_elbo", target="drawn")


def uniform_gap(n: int, *, resamples: int, confidence: float) -> float:
    """The `gap` that n uniform ranks stay below with this probability, from simulated ranks."""
    n_ranks = LABELS_DRAWN + 1
    counts = generator_of(EXPERIMENT, "uniform", n).multinomial(n, np.full(n_ranks, 1 / n_ranks), size=resamples)
    return float(np.quantile(gap_to_uniform(counts.astype(np.float64)), confidence))
