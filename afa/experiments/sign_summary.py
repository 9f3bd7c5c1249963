"""The numbers of sign convergence over a cohort: accuracy at every t, constant baselines, and what the solves took."""

from __future__ import annotations

import numpy as np
import pandas as pd

from afa.experiments.accuracy import Part, Resampled
from afa.experiments.summary import summary_rows

PURPOSE = "sign_convergence"


def summarise_sign_convergence(
    rounds: pd.DataFrame, duels: pd.DataFrame, orders: pd.DataFrame, *, resamples: int, confidence: float
) -> pd.DataFrame:
    """Summary rows `sign_accuracy_random` of the three tables of `sign_convergence`, all patients together.

    Per method and t: accuracy, balanced accuracy over the two sides of a duel (in bundle order), and accuracy in
    the stratum `prior_wrong`, the duels that the bundle alone calls wrong. Once: `majority`, the accuracy of the
    best constant answer per duel; `prevalence`, the share of duels the first entity wins; `count` of tied duels.
    At full observation `rate` in the stratum `other_order`: calls that another order of the same observations makes
    otherwise. Per start `iterations`, sweeps per solve: at each t, without t over all rounds but the first, and for
    each start but the first the difference to it, its name in `reference`.
    """
    patients = list(rounds["patient"].unique())
    resampled = Resampled.of(len(patients), resamples=resamples, confidence=confidence, purpose=PURPOSE)
    rows: list[pd.DataFrame] = []
    for (start, name), each in rounds.groupby(["start", "method"], sort=False):
        method = str(name).removesuffix("_reversed")
        orientation = "" if method == name else "reversed"
        sums = each.groupby(["patient", "t"], sort=False).sum(numeric_only=True)
        every, first, wrong = (_right_and_total(sums, patients, among) for among in ("", "_first", "_prior_wrong"))
        second = every[0] - first[0], every[1] - first[1]
        for metric, stratum, parts in (
            ("accuracy", "", [every]),
            ("balanced_accuracy", "", [first, second]),
            ("accuracy", "prior_wrong", [wrong]),
        ):
            table = resampled.mean(parts).assign(metric=metric, method=method, start=str(start))
            cut = " ".join(filter(None, (orientation, stratum))) or None
            rows.append(table.assign(stratum=cut, t=np.arange(len(table))))
    rows.append(_constant_answers(duels, patients, resampled))
    rows.append(_order_dependence(orders, patients, resampled).assign(t=int(rounds["t"].max())))
    right = pd.concat(rows, ignore_index=True).assign(target="likelihood")
    whole = pd.concat([right, _sweeps(rounds, patients, resampled)], ignore_index=True)
    return summary_rows("sign_accuracy_random", whole.assign(allocation="random", schedule="every"))


def _right_and_total(sums: pd.DataFrame, patients: list[str], among: str) -> Part:
    """(P, T) duels called right and duels in all, of one kind."""
    right, total = (sums[f"{name}{among}"].unstack("t").loc[patients].to_numpy(float) for name in ("right", "duels"))
    return right, total


def _constant_answers(duels: pd.DataFrame, patients: list[str], resampled: Resampled) -> pd.DataFrame:
    """What is known of the targets without any patient's features: majority per duel, prevalence, ties.

    The majority is taken on these same patients: no constant answer can do better here.
    """
    winners = duels.pivot(index="patient", columns=["entity_a", "entity_b"], values="winner").loc[patients].to_numpy()
    majority = np.where(winners.sum(axis=0) >= 0, 1, -1)
    decided = (winners != 0).sum(axis=1, keepdims=True).astype(float)
    tables = []
    for metric, right in (("majority", winners == majority), ("prevalence", winners > 0)):
        parts = [(right.sum(axis=1, keepdims=True).astype(float), decided)]
        tables.append(resampled.mean(parts).assign(metric=metric))
    ties = pd.DataFrame({"metric": "count", "stratum": "tied_at_full_observation", "value": [(winners == 0).sum()]})
    return pd.concat([*tables, ties], ignore_index=True).assign(n=int(decided.sum()))


def _order_dependence(orders: pd.DataFrame, patients: list[str], resampled: Resampled) -> pd.DataFrame:
    """Share of final calls that differ between two orders of the same observations, by score (spec S4)."""
    tables = []
    for method, table in orders.groupby("method", sort=False):
        by_patient = table.set_index("patient").loc[patients]
        parts = [(by_patient[["different"]].to_numpy(float), by_patient[["compared"]].to_numpy(float))]
        tables.append(resampled.mean(parts).assign(method=method))
    return pd.concat(tables, ignore_index=True).assign(metric="rate", stratum="other_order")


def _sweeps(rounds: pd.DataFrame, patients: list[str], resampled: Resampled) -> pd.DataFrame:
    """Damped sweeps per mean-field solve by start (spec M6), all entities' solves together.

    Every start solves the same states. Before any observation there is nothing to go on from: the first round is the
    same for all of them, and only the later ones tell them apart. Where nothing is solved there is no row.
    """
    tables: list[pd.DataFrame] = []
    later: dict[str, list[Part]] = {}
    for start, each in rounds.groupby("start", sort=False):
        sums = each.groupby(["patient", "t"], sort=False)[["iterations", "solves"]].sum()
        sweeps, solves = (sums[name].unstack("t").loc[patients].to_numpy(float) for name in sums)
        later[str(start)] = [(sweeps[:, 1:].sum(axis=1, keepdims=True), solves[:, 1:].sum(axis=1, keepdims=True))]
        by_t = resampled.mean([(sweeps, solves)]).assign(t=np.arange(sweeps.shape[1]))
        tables += [table.assign(start=str(start)) for table in (by_t, resampled.mean(later[str(start)]))]
    first, *others = later
    for start in others:
        tables.append(resampled.gap(later[start], later[first]).assign(start=start, reference=first))
    whole = pd.concat(tables, ignore_index=True)
    return whole[whole["n"] > 0].assign(metric="iterations")
