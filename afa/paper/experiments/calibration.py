"""Calibration of the probabilities in binary tasks, for each number t of observed features (decisions.md S15).

Given the observed values x_obs, the log-odds of class 1 in a task are l-hat = log Z_1(x_obs) - log Z_0(x_obs). The
stage computes l-hat in two ways: exactly, and approximately as the difference of two ELBOs. `raw` is l-hat. In the
paper, class 1 is chosen if `raw` is positive. `calibrated` is l-hat minus its value without observations, plus the
prior log-odds. The predicted probability of class 1 is the logistic function of `calibrated`. The setting `closure`
determines how the two class models of a task are made. If the bundle's probabilities fit the cohort's encoding, the
stage also makes class models in all other ways that the bundle allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import expit

from afa.cohort.cohort import Cohort
from afa.engine.elimination import ENTRY_LIMIT, log_partitions
from afa.engine.tasks import elbo_differences, task_of
from afa.errors import Fault, InferenceError
from afa.evaluate.accuracy import BINS, Resampled, bins_of
from afa.evaluate.inputs import closures_beside, rounds_up_to
from afa.evaluate.long_tables import Cube, groups, rows_of
from afa.evaluate.summary import summary_rows
from afa.inference.meanfield import Solver
from afa.model.arrays import Bools, Codes, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.closure import Closure as Gauge
from afa.model.closure import closed_bundle, known_coupling
from afa.model.orders import random_orders
from afa.paper.experiments.binary import targets_of

if TYPE_CHECKING:
    from afa.paper.experiments.settings import Bootstrap, Calibration, ClosureSettings, Inference

HALF_FACTORS: Sequence[float] = (0.5, -0.5)
WHOLE_FACTOR: Sequence[float] = (1.0,)
ODDS_KINDS = ("calibrated", "raw")
NOT_COMPILED = "exact inference of explicit models is of one patient at a time"


def run(
    bundle: Bundle,
    cohort: Cohort,
    binary: Mapping[str, pd.DataFrame],
    *,
    calibration: Calibration,
    inference: Inference,
    closure: ClosureSettings,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Return the log-odds of every task after t observations in random order, with mean-field and with exact inference.

    Parameters
    ----------
    binary : tables of the stage `binary`, made with the same closure. Only its random orders are used, with all seeds.

    Returns
    -------
    odds : `raw` and `calibrated` log-odds in nats, for each (coupling, patient, entity, seed, t, inference).
    targets : the targets of the stage `binary` for each (coupling, patient, entity).
    left_out : tasks without exact inference, one row for each (coupling, entity), with the reason. These are tasks with
        too many couplings, and all tasks with the coupling `explicit`.
    reliability : predicted and observed shares in ten bins of the probability, one row for each (coupling, inference,
        kind, target, t, bin). A bin has the number of `cases`, their mean `probability`, and the share `positive`.
        Empty bins have no row.

    """
    steps, tasks = binary["steps"], binary["tasks"]
    entities, patients = list(tasks["entity"]), list(cohort.patients)
    rounds = rounds_up_to(calibration.rounds, len(bundle.features))
    random = steps[steps["allocation"] == "random"]
    seeds, solver = sorted(int(seed) for seed in random["seed"].unique()), Solver(**dict(inference))
    keys = rows_of(patient=patients, entity=entities, seed=seeds, t=rounds)
    place = np.argsort(random_orders(bundle.features, patients, seeds), axis=2)
    observed = place[:, :, None, :] < np.array(rounds)[:, None]  # axes: patient, order, round, feature
    values = np.broadcast_to(cohort.values[:, None, None, :], observed.shape)
    states = observed.reshape(-1, observed.shape[-1]), values.reshape(-1, observed.shape[-1])
    prior = np.array([bundle.log_odds[bundle.index(entity)] for entity in entities])[None, :, None, None]
    tables, targets, left_out = [], [], []
    for coupling in closures_beside(bundle, cohort, closure.coupling):
        if coupling == closure.coupling:
            cube = Cube.of(random, patients, entities, len(bundle.features))
            rough, truth = cube.by_round(cube.columns["two_elbo"])[..., rounds], binary["targets"]
            shifts = tasks["shift"].to_numpy()
        else:
            options: dict[str, Any] = {"solver": solver, "coupling": coupling, "strength": closure.strength}
            solved = [elbo_differences(bundle, entity, *states, threads=threads, **options) for entity in entities]
            rough = np.stack([one.raw.reshape(observed.shape[:-1]) for one in solved], axis=1)
            shifts = np.array([one.shift for one in solved])
            ties = [task_of(bundle, entity, **options).tie for entity in entities]
            truth = pd.concat(
                [targets_of(bundle, cohort, entity, coupling, tie) for entity, tie in zip(entities, ties, strict=True)]
            )
        exact = np.full(rough.shape, np.nan)  # the axes are patient, entity, order and round
        for i, entity in enumerate(entities):
            try:
                log_odds = _exact_log_odds(bundle, entity, coupling, closure.strength, states, threads)
                exact[:, i] = log_odds.reshape(observed.shape[:-1])
            except InferenceError as error:
                left_out.append({"coupling": coupling, "entity": entity, "reason": error.faults[0].found})
        starts = {"mean_field": (rough, shifts[None, :, None, None]), "exact": (exact, exact[..., :1] - prior)}
        tables += [
            keys.assign(raw=raw.ravel(), calibrated=(raw - empty).ravel(), inference=name, coupling=coupling)
            for name, (raw, empty) in starts.items()
        ]
        targets.append(truth[["patient", "entity", "likelihood", "clinical"]].assign(coupling=coupling))
    odds, answers = pd.concat(tables).dropna().reset_index(drop=True), pd.concat(targets, ignore_index=True)
    lacking = pd.DataFrame(left_out, columns=["coupling", "entity", "reason"])
    return {"odds": odds, "targets": answers, "left_out": lacking, "reliability": reliability(odds, answers)}


def _exact_log_odds(
    bundle: Bundle, entity: str, coupling: Gauge, strength: float, states: tuple[Bools, Codes], threads: int | None
) -> Floats:
    """Return the exact log-odds l-hat of one binary task in each of n states, in nats (eq:ell-hat).

    Parameters
    ----------
    states : a mask of the observed features, (n, M), and the values, (n, M) int8

    Raises
    ------
    InferenceError : the class models have too many couplings for exact inference, or the coupling is `explicit`.

    """
    if coupling == "explicit":
        raise InferenceError(Fault(entity, NOT_COMPILED, "another closure", "leave exact inference out"))
    # The two class models have the energies S/2 and -S/2, unless the condition below is met.
    models, factors = [bundle.contrast(entity)], HALF_FACTORS
    if coupling != "differential" or bundle.packed.scope is not None:
        closed = closed_bundle(bundle, entity, known_coupling(coupling), strength)
        models, factors = [closed.mrf(name) for name in closed.entities], WHOLE_FACTOR
    parts = [log_partitions(each, *states, factors=factors, limit=ENTRY_LIMIT, threads=threads) for each in models]
    log_z = np.hstack(parts)
    return np.asarray(log_z[:, 0] - log_z[:, 1])


def reliability(odds: pd.DataFrame, targets: pd.DataFrame) -> pd.DataFrame:
    tables = []
    for cut, cases in cases_of(odds, targets):
        by_bin = cases.groupby("bin")
        table = by_bin.agg(cases=("y", "size"), probability=("p", "mean"), positive=("y", "mean")).reset_index()
        tables.append(table.assign(**cut))
    return pd.concat(tables, ignore_index=True)


def cases_of(odds: pd.DataFrame, targets: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield (keys, table of cases) for each combination of coupling, inference, kind of log-odds, target and t.

    The columns of a table of cases are `patient`, the predicted probability `p`, the true class `y`, and the `bin` of
    the probability.
    """
    truth = targets.assign(likelihood=targets["likelihood"].map({1: 1.0, -1: 0.0}))
    keys = ["coupling", "patient", "entity"]
    whole = odds.merge(truth[[*keys, "likelihood", "clinical"]], on=keys)
    for target in ("likelihood", "clinical"):
        known = whole[whole[target].notna()]
        for (coupling, inference, t), part in groups(known, "coupling", "inference", "t"):
            for kind in ODDS_KINDS:
                p = expit(part[kind].to_numpy())
                cases = {"patient": part["patient"].to_numpy(), "p": p, "y": part[target].to_numpy(dtype=float)}
                table = pd.DataFrame({**cases, "bin": bins_of(p)})
                cut = {"coupling": coupling, "inference": inference, "kind": kind, "target": target, "t": t}
                yield cut, table


def sums_by(unit: Ints, column: Ints, n_units: int, n_columns: int, values: Floats) -> Floats:
    """Return the sum of `values` for each pair of a unit (for example, a patient) and a column.

    Parameters
    ----------
    unit, column : (n,) int64, indices of the unit and of the column of each value
    values : (n,) float64

    Returns
    -------
    sums : (n_units, n_columns) float64

    """
    sums = np.bincount(unit * n_columns + column, weights=values, minlength=n_units * n_columns)
    return sums.reshape(n_units, n_columns).astype(np.float64)


@dataclass(frozen=True)
class ProbabilitySums:
    """Sums over each patient's cases, from which the calibration error and the Brier score are computed.

    Parameters
    ----------
    excess : (P, BINS) float64, sums of (probability - truth) in each bin of the probability
    squares : (P,) float64, sums of (probability - truth)^2
    n : (P,) float64, numbers of cases

    """

    excess: Floats
    squares: Floats
    n: Floats

    @classmethod
    def of(cls, probability: Floats, truth: Floats, unit: Ints, n_units: int) -> ProbabilitySums:
        """Compute the sums from single cases. A unit is a patient.

        Parameters
        ----------
        probability : (n,) float64 in [0, 1]
        truth : (n,) float64, 0 or 1
        unit : (n,) int64, index of each case's unit

        """
        squares, n = (
            sums_by(unit, unit * 0, n_units, 1, values)[:, 0]
            for values in ((probability - truth) ** 2, np.ones(len(probability)))
        )
        return cls(sums_by(unit, bins_of(probability), n_units, BINS, probability - truth), squares, n)

    def calibration_error(self, weights: Floats) -> Floats:
        """Return the expected calibration error for each row of `weights`.

        The error is the mean of |mean probability - share of class 1| over the bins, weighted by the number of cases in
        a bin.

        Parameters
        ----------
        weights : (R, P) float64

        Returns
        -------
        error : (R,) float64 in [0, 1]

        """
        error: Floats = np.abs(weights @ self.excess).sum(axis=1) / (weights @ self.n)
        return error

    def brier(self, weights: Floats) -> Floats:
        """Return the Brier score, the mean of (probability - truth)^2, for each row of `weights`.

        Parameters
        ----------
        weights : (R, P) float64

        Returns
        -------
        score : (R,) float64 in [0, 1]

        """
        return (weights @ self.squares) / (weights @ self.n)


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Return the rows of the table `calibration` in `summary.csv`: calibration error and Brier score.

    Rows without a variant use the calibrated probability. The variant `raw` uses the logistic function of the raw
    log-odds as probability. With the quantity `at_odds`, `rate` is the share of cases in which raw and calibrated
    log-odds have opposite signs. In the paper, class 1 is chosen if the raw log-odds are positive.
    """
    odds, targets = tables["odds"], tables["targets"]
    resampled = Resampled.of(targets["patient"].unique(), **dict(bootstrap), purpose="calibration")
    rows = []
    for cut, cases in cases_of(odds, targets):
        cut["reference"], kind = cut.pop("inference"), cut.pop("kind")
        keys = {**cut, "variant": None if kind == "calibrated" else kind}
        unit = resampled.places(cases["patient"])
        sums = ProbabilitySums.of(cases["p"].to_numpy(), cases["y"].to_numpy(), unit, len(resampled.units))
        for metric, statistic in (("ece", sums.calibration_error), ("brier", sums.brier)):
            rows.append(resampled.statistic(statistic, len(cases)).assign(metric=metric, **keys))
    opposed = odds.assign(opposed=np.sign(odds["raw"]) * np.sign(odds["calibrated"]) < 0, one=1)
    for (coupling, inference, t), part in groups(opposed, "coupling", "inference", "t"):
        share = resampled.share(part, "opposed", "one", by=None)
        rows.append(share.assign(metric="rate", quantity="at_odds", t=t, coupling=coupling, reference=inference))
    return summary_rows("calibration", rows, method="two_elbo", allocation="random", start="uniform")
