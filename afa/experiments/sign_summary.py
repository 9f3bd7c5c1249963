"""The numbers of sign convergence over a cohort: accuracy at every t, its interval, and constant baselines."""

from __future__ import annotations

import numpy as np
import pandas as pd

from afa.experiments.bootstrap import interval, patient_weights
from afa.experiments.summary import summary_rows
from afa.mrf import Floats

PURPOSE = "sign_convergence"


def summarise_sign_convergence(
    rounds: pd.DataFrame, duels: pd.DataFrame, orders: pd.DataFrame, *, resamples: int, confidence: float
) -> pd.DataFrame:
    """Summary rows `sign_accuracy_random` of the three tables of `sign_convergence`, all patients together.

    Per method and t: accuracy, balanced accuracy over the two sides of a duel (in bundle order), and accuracy in
    the stratum `prior_wrong`, the duels that the bundle alone calls wrong. Once: `majority`, the accuracy of the
    best constant answer per duel; `prevalence`, the share of duels the first entity wins; `count` of tied duels.
    At full observation `rate` in the stratum `other_order`: calls that another order of the same observations makes
    otherwise.
    """
    patients = list(dict.fromkeys(rounds["patient"]))
    weights = patient_weights(len(patients), resamples=resamples, purpose=PURPOSE)
    rows: list[pd.DataFrame] = []
    for (start, name), table in rounds.groupby(["start", "method"], sort=False):
        method = str(name).removesuffix("_reversed")
        orientation = "" if method == name else "reversed"
        sums = table.groupby(["patient", "t"], sort=False).sum(numeric_only=True)
        every, first, wrong = (_right_and_total(sums, patients, among) for among in ("", "_first", "_prior_wrong"))
        second = every[0] - first[0], every[1] - first[1]
        for metric, stratum, parts in (
            ("accuracy", "", [every]),
            ("balanced_accuracy", "", [first, second]),
            ("accuracy", "prior_wrong", [wrong]),
        ):
            value = _mean_ratio(parts, np.ones((1, len(patients))))[0]
            low, high = interval(_mean_ratio(parts, weights), confidence=confidence)
            n = sum(total for _, total in parts)
            rows.append(
                pd.DataFrame(
                    {
                        "metric": metric,
                        "method": method,
                        "stratum": " ".join(filter(None, (orientation, stratum))) or None,
                        "start": start,
                        "t": np.arange(len(value)),
                        "value": value,
                        "low": low,
                        "high": high,
                        "n": np.asarray(n).sum(axis=0).astype(int),
                    }
                )
            )
    rows.append(_constant_answers(duels, patients, weights, confidence))
    rows.append(_order_dependence(orders, patients, weights, confidence).assign(t=int(rounds["t"].max())))
    whole = pd.concat(rows, ignore_index=True).assign(allocation="random", schedule="every", target="likelihood")
    return summary_rows("sign_accuracy_random", whole)


def _right_and_total(sums: pd.DataFrame, patients: list[str], among: str) -> tuple[Floats, Floats]:
    """(P, T) duels called right and duels in all, of one kind."""
    right, total = (sums[f"{name}{among}"].unstack("t").loc[patients].to_numpy(float) for name in ("right", "duels"))
    return right, total


def _mean_ratio(parts: list[tuple[Floats, Floats]], weights: Floats) -> Floats:
    """Mean over parts of sum(right) / sum(total), (R, C), patients weighted by each row of `weights` (R, P)."""
    ratios = []
    for right, total in parts:
        numerator, denominator = weights @ right, weights @ total
        ratios.append(np.divide(numerator, denominator, out=np.full(numerator.shape, np.nan), where=denominator > 0))
    mean: Floats = np.mean(ratios, axis=0)
    return mean


def _constant_answers(duels: pd.DataFrame, patients: list[str], weights: Floats, confidence: float) -> pd.DataFrame:
    """What is known of the targets without any patient's features: majority per duel, prevalence, ties.

    The majority is taken on these same patients: no constant answer can do better here.
    """
    winners = duels.pivot(index="patient", columns=["entity_a", "entity_b"], values="winner").loc[patients].to_numpy()
    majority = np.where(winners.sum(axis=0) >= 0, 1, -1)
    decided = (winners != 0).sum(axis=1, keepdims=True).astype(float)
    tables = []
    for metric, right in (("majority", winners == majority), ("prevalence", winners > 0)):
        parts = [(right.sum(axis=1, keepdims=True).astype(float), decided)]
        low, high = interval(_mean_ratio(parts, weights), confidence=confidence)
        value = _mean_ratio(parts, np.ones((1, len(patients))))[0]
        tables.append(pd.DataFrame({"metric": metric, "value": value, "low": low, "high": high}))
    ties = pd.DataFrame({"metric": "count", "stratum": "tied_at_full_observation", "value": [(winners == 0).sum()]})
    return pd.concat([*tables, ties], ignore_index=True).assign(n=int(decided.sum()))


def _order_dependence(orders: pd.DataFrame, patients: list[str], weights: Floats, confidence: float) -> pd.DataFrame:
    """Share of final calls that differ between two orders of the same observations, by score (spec S4)."""
    tables = []
    for method, table in orders.groupby("method", sort=False):
        by_patient = table.set_index("patient").loc[patients]
        parts = [(by_patient[["different"]].to_numpy(float), by_patient[["compared"]].to_numpy(float))]
        low, high = interval(_mean_ratio(parts, weights), confidence=confidence)
        value = _mean_ratio(parts, np.ones((1, len(patients))))[0]
        n = int(by_patient["compared"].sum())
        tables.append(pd.DataFrame({"method": method, "value": value, "low": low, "high": high, "n": n}))
    return pd.concat(tables, ignore_index=True).assign(metric="rate", stratum="other_order")
