"""Are the probabilities of the binary task as often right as they say? On a cohort's patients, by t (S15).

The posterior log-odds of a task given x_obs are l-hat = log Z_1(x_obs) - log Z_0(x_obs), by the difference of two
ELBOs or exactly. `raw` is l-hat itself, whose sign is the paper's decision; `calibrated` is l-hat less its value at no
observation less the prior, whose logistic function is the probability.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from afa.bundle import Bundle
from afa.closure import shared_potentials
from afa.cohort.cohort import Cohort
from afa.engine.elimination import ENTRY_LIMIT, log_partitions
from afa.errors import InferenceError
from afa.mrf import Floats, PairwiseMRF
from afa.orders import random_orders
from afa.stages.base import Stage
from afa.stages.columns import columns
from afa.stages.inputs import rounds_up_to
from afa.stats.accuracy import Part, Resampled
from afa.stats.steps import Cube
from afa.stats.summary import summary_rows

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap, Calibration, Closure

STAGE = Stage(
    inputs=("bundle", "cohort", "binary"),
    settings=("calibration.rounds", "closure"),
    beside=("binary",),
    tables={
        "odds": columns("patient entity seed t raw calibrated inference cohort bundle"),
        "left_out": columns("entity reason"),
        "reliability": columns("bin cases probability positive inference kind target t"),
    },
    space_mb=2.1,
    single=("odds",),
)
HALVES = (0.5, -0.5)
WHOLE = (1.0,)
BINS = 10
KINDS = ("calibrated", "raw")
NOT_COMPILED = "exact inference of explicit models is of one patient at a time"
Seen = NDArray[np.bool_]


class Cut(NamedTuple):
    """Which cases: by which inference, which reading of the log-odds, against which target, after t observations."""

    inference: str
    kind: str
    target: str
    t: int


def run(
    bundle: Bundle,
    cohort: Cohort,
    binary: Mapping[str, pd.DataFrame],
    *,
    calibration: Calibration,
    closure: Closure,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Log-odds of every task after t observations in random order, by mean-field and exactly.

    Parameters
    ----------
    binary : tables of that stage, made with the same closure; random orders only are used, all their seeds.

    Returns
    -------
    odds, by (patient, entity, seed, t, inference): `raw` and `calibrated` log-odds in nats.

    left_out, by entity: tasks too dense for exact inference, with what it would have taken; all that are explicit.

    reliability, by (inference, kind, target, t, bin): predicted against observed shares in ten bins of the
    probability. `cases`, the mean `probability` and the share that is `positive`; empty bins are left out.

    """
    steps, tasks, targets = (binary[name] for name in ("steps", "tasks", "targets"))
    entities, patients = list(tasks["entity"]), list(cohort.patients)
    rounds = rounds_up_to(calibration.rounds, len(bundle.features))
    random = steps[steps["allocation"] == "random"]
    cube = Cube.of(random, patients, entities, len(bundle.features))
    mean_field = cube.by_round(cube.columns["two_elbo"])[..., rounds]
    shift = tasks["shift"].to_numpy()[None, :, None, None]
    prior = np.array([bundle.mrf(entity).prior for entity in entities])[None, :, None, None]
    seeds = sorted(random["seed"].unique())
    keys = pd.MultiIndex.from_product([patients, entities, seeds, rounds], names=["patient", "entity", "seed", "t"])
    observed = _observed(bundle, patients, seeds, rounds)
    exact, left_out = np.full(mean_field.shape, np.nan), []
    for i, entity in enumerate(entities):
        try:
            mrf = bundle.mrf(entity)
            if closure.coupling == "explicit":
                left_out.append({"entity": entity, "reason": NOT_COMPILED})
                continue
            models = (mrf,) if closure.coupling == "differential" else shared_potentials(mrf, closure.strength)
            exact[:, i] = _exact_log_odds(models, cohort, observed, threads)
        except InferenceError as error:
            left_out.append({"entity": entity, "reason": error.faults[0].found})
    tables = [
        pd.DataFrame({"raw": raw.ravel(), "calibrated": (raw - empty).ravel()}, index=keys).assign(inference=name)
        for name, raw, empty in (("mean_field", mean_field, shift), ("exact", exact, exact[..., :1] - prior))
    ]
    odds = pd.concat(tables).dropna().reset_index().assign(cohort=cohort.name, bundle=bundle.name)
    dense = pd.DataFrame(left_out, columns=["entity", "reason"])
    return {"odds": odds, "left_out": dense, "reliability": reliability(odds, targets)}


def _observed(bundle: Bundle, patients: Sequence[str], seeds: Sequence[int], rounds: Sequence[int]) -> Seen:
    """(P, S, T, M) bool: what has been observed after each of the rounds."""
    orders = random_orders(bundle.features, patients, [int(seed) for seed in seeds])
    place = np.argsort(orders, axis=2)
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


def reliability(odds: pd.DataFrame, targets: pd.DataFrame) -> pd.DataFrame:
    tables = []
    for cut, cases in cases_of(odds, targets):
        by_bin = cases.groupby("bin")
        table = by_bin.agg(cases=("y", "size"), probability=("p", "mean"), positive=("y", "mean")).reset_index()
        tables.append(table.assign(inference=cut.inference, kind=cut.kind, target=cut.target, t=cut.t))
    return pd.concat(tables, ignore_index=True)


def cases_of(odds: pd.DataFrame, targets: pd.DataFrame) -> Iterator[tuple[Cut, pd.DataFrame]]:
    """Probability `p`, truth `y` and `bin` of every case, for each inference, t, kind and target that has any."""
    truth = targets.assign(likelihood=targets["likelihood"].map({1: 1.0, -1: 0.0}))
    whole = odds.merge(truth[["patient", "entity", "likelihood", "clinical"]], on=["patient", "entity"])
    for target in ("likelihood", "clinical"):
        known = whole[whole[target].notna()]
        for (inference, t), part in known.groupby(["inference", "t"], sort=False):
            for kind in KINDS:
                p = expit(part[kind].to_numpy())
                cases = pd.DataFrame(
                    {
                        "patient": part["patient"].to_numpy(),
                        "p": p,
                        "y": part[target].to_numpy(dtype=float),
                        "bin": np.minimum((p * BINS).astype(int), BINS - 1),
                    }
                )
                yield Cut(str(inference), kind, target, int(str(t))), cases


def summarise(
    tables: Mapping[str, pd.DataFrame], binary: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap
) -> pd.DataFrame:
    """Summary rows `calibration` on the cohort: expected calibration error and Brier score, by t.

    The headline is the calibrated probability, stratum `raw` the logistic function of the raw score, whose sign
    decides. `rate` in the stratum `at_odds`: where probability and decision are on different sides.
    """
    odds, targets = tables["odds"], binary["targets"]
    patients = list(targets["patient"].unique())
    resampled = Resampled.of(len(patients), **dict(bootstrap), purpose="calibration")
    rows = []
    for cut, cases in cases_of(odds, targets):
        keys = {"stratum": None if cut.kind == "calibrated" else cut.kind, "target": cut.target}
        both = [
            _calibration_error(cases, patients, resampled).assign(metric="ece"),
            _brier(cases, patients, resampled).assign(metric="brier"),
        ]
        rows += [table.assign(**keys, t=cut.t, reference=cut.inference) for table in both]
    opposed = odds.assign(opposed=np.sign(odds["raw"]) * np.sign(odds["calibrated"]) < 0)
    for (inference, t), part in opposed.groupby(["inference", "t"], sort=False):
        counts = [_by_patient(part["patient"], patients, each) for each in (part["opposed"], np.ones(len(part)))]
        share = resampled.mean([(counts[0][:, None], counts[1][:, None])])
        rows.append(share.assign(metric="rate", stratum="at_odds", t=int(str(t)), reference=str(inference)))
    whole = pd.concat(rows, ignore_index=True).assign(method="two_elbo", allocation="random", start="uniform")
    return summary_rows("calibration", whole)


def _by_patient(names: pd.Series, patients: Sequence[str], values: ArrayLike) -> Floats:
    """(P,) sums of values by patient."""
    codes = pd.Categorical(names, categories=list(patients)).codes
    sums = np.bincount(codes, weights=np.asarray(values, dtype=float), minlength=len(patients))
    return sums.astype(np.float64)


def _calibration_error(cases: pd.DataFrame, patients: Sequence[str], resampled: Resampled) -> pd.DataFrame:
    """Mean over cases of |mean probability - share positive| of their bin, resampled by patient."""
    gaps, counts = np.zeros((len(patients), BINS)), np.zeros((len(patients), BINS))
    for b in range(BINS):
        part = cases[cases["bin"] == b]
        gaps[:, b] = _by_patient(part["patient"], patients, part["p"] - part["y"])
        counts[:, b] = _by_patient(part["patient"], patients, np.ones(len(part)))
    return resampled.statistic(
        lambda weights: np.abs(weights @ gaps).sum(axis=1) / (weights @ counts).sum(axis=1), len(cases)
    )


def _brier(cases: pd.DataFrame, patients: Sequence[str], resampled: Resampled) -> pd.DataFrame:
    """Mean of (p - y)^2."""
    squares = _by_patient(cases["patient"], patients, (cases["p"] - cases["y"]) ** 2)
    counts = _by_patient(cases["patient"], patients, np.ones(len(cases)))
    part: Part = (squares[:, None], counts[:, None])
    return resampled.mean([part])
