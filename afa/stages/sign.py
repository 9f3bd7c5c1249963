"""Sign convergence under random observation order: how soon each score calls every duel (tab:m2_random_sign).

The target of a duel is the sign of D_ab at full observation; a duel tied there has no target and is left out
(S11). A score of exactly 0 is half right (S5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.engine.course import SCORES
from afa.engine.paths import SignPaths, Signs, sign_paths
from afa.inference.meanfield import Solver
from afa.orders import random_orders
from afa.stages.base import Stage
from afa.stages.columns import columns
from afa.stats.accuracy import Part, Resampled
from afa.stats.summary import summary_rows

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap, Inference, RandomOrder

STAGE = Stage(
    settings=("random_order", "inference"),
    sharded=True,
    duels=True,
    tables={
        "rounds": columns(
            "patient seed t method right duels right_first duels_first right_prior_wrong duels_prior_wrong"
            " solves iterations capped ascended cohort bundle start"
        ),
        "duels": columns("patient entity_a entity_b winner"),
        "orders": columns("patient method different compared"),
    },
    space_mb=3.1,
)

INFERENCE_METHODS = ("linearity", "two_elbo", "stack_a")


def run(
    bundle: Bundle,
    cohort: Cohort,
    patients: Sequence[int],
    *,
    random_order: RandomOrder,
    inference: Inference,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Follow the chosen patients through one random order per seed.

    Of the first start of the solves (M6) all scores are read; of the others those that need inference.

    Returns
    -------
    rounds, by (patient, seed, method, t): `right`, duels called right, a tie counting one half, of `duels` with a
    winner; the same over duels that the first entity wins (`right_first`, `duels_first`) and over duels that
    `linearity` calls wrong before any observation (`right_prior_wrong`, `duels_prior_wrong`); and what the solves of
    that round took.

    duels, by (patient, entity_a, entity_b): `winner`, +1 for a, -1 for b, 0 a tie.

    orders, by (patient, method), of the scores that depend on the order (S4): how many of `compared` calls at full
    observation, by two orders each, are `different`.

    """
    seeds, solver = random_order.seeds, Solver(**dict(inference))
    names = [cohort.patients[p] for p in patients]
    orders = random_orders(bundle.features, names, seeds)
    values = cohort.values[list(patients)]
    tables: dict[str, pd.DataFrame] = {}
    for start in random_order.starts:
        paths = sign_paths(bundle, values, orders, solver=solver, start=start, threads=threads)
        winners = paths.signs["wald"][:, 0, -1, :]
        methods = INFERENCE_METHODS if tables else SCORES
        rounds = _rounds(paths, winners, names, seeds, methods)
        rounds = rounds.assign(cohort=cohort.name, bundle=bundle.name, start=start)
        if not tables:
            tables = {"rounds": rounds, "duels": _duels(paths, winners, names, bundle), "orders": _orders(paths, names)}
        else:
            tables["rounds"] = pd.concat([tables["rounds"], rounds], ignore_index=True)
    return tables


def _rounds(
    paths: SignPaths,
    winners: Signs,
    names: Sequence[str],
    seeds: Sequence[int],
    methods: Sequence[str],
) -> pd.DataFrame:
    index = pd.MultiIndex.from_product([names, seeds, range(paths.solves.shape[2])], names=["patient", "seed", "t"])
    among = _kinds_of_duels(winners, paths.signs["linearity"][:, :, 0])
    tables = []
    for method in methods:
        right = _right(paths.signs[method], winners, among)
        table = pd.DataFrame({"method": method}, index=index)
        for kind, suffix in enumerate(("", "_first", "_prior_wrong")):
            table[f"right{suffix}"] = right[..., kind].ravel()
            total = np.broadcast_to(among[..., kind].sum(axis=2)[:, :, None], paths.solves.shape)
            table[f"duels{suffix}"] = total.astype(np.int32).ravel()
        for name in ("solves", "iterations", "capped", "ascended"):
            table[name] = getattr(paths, name).ravel() if method == "linearity" else np.int32(0)
        tables.append(table.reset_index())
    return pd.concat(tables, ignore_index=True)


def _kinds_of_duels(winners: Signs, prior: Signs) -> NDArray[np.float32]:
    """(P, S, Q, 3) masks: duels with a winner; those the first entity wins; those the bundle alone has wrong.

    winners : (P, Q). prior : (P, S, Q), signs before any observation.
    """
    decided = np.broadcast_to((winners != 0)[:, None, :], prior.shape)
    first = np.broadcast_to((winners > 0)[:, None, :], prior.shape)
    wrong = decided & (prior == -winners[:, None, :])
    return np.stack([decided, first, wrong], axis=3).astype(np.float32)


def _right(signs: Signs, winners: Signs, among: NDArray[np.float32]) -> NDArray[np.float64]:
    """(P, S, M + 1, 3) duels called right among each kind, a tie counting one half; exact, all terms being integers."""
    right = np.empty((*signs.shape[:3], among.shape[3]))
    for patient, order in np.ndindex(*signs.shape[:2]):
        weights = winners[patient].astype(np.float32)[:, None] * among[patient, order]
        agreement = signs[patient, order].astype(np.float32) @ weights
        right[patient, order] = (agreement + among[patient, order].sum(axis=0)) / 2
    return right


def _duels(paths: SignPaths, winners: Signs, names: Sequence[str], bundle: Bundle) -> pd.DataFrame:
    entities = np.array(bundle.entities, dtype=object)
    return pd.DataFrame(
        {
            "patient": np.repeat(np.array(names, dtype=object), len(paths.pairs)),
            "entity_a": np.tile(entities[paths.pairs[:, 0]], len(names)),
            "entity_b": np.tile(entities[paths.pairs[:, 1]], len(names)),
            "winner": winners.ravel(),
        }
    )


def _orders(paths: SignPaths, names: Sequence[str]) -> pd.DataFrame:
    """Calls that two orders of the same observations make differently, over all pairs of orders and duels."""
    tables = []
    for method in ("kl", "kl_nonzero"):
        final = paths.signs[method][:, :, -1]
        pairs = list(combinations(range(final.shape[1]), 2))
        different = sum(((final[:, a] != final[:, b]).sum(axis=1) for a, b in pairs), np.zeros(len(names), dtype=int))
        compared = len(pairs) * final.shape[2]
        tables.append(
            pd.DataFrame({"patient": list(names), "method": method, "different": different, "compared": compared})
        )
    return pd.concat(tables, ignore_index=True)


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Summary rows `sign_accuracy_random`, all patients together.

    Per method and t: accuracy, balanced accuracy over the two sides of a duel (in bundle order), and accuracy in
    the stratum `prior_wrong`, the duels that the bundle alone calls wrong; the variant `reversed` asks the score
    for (b, a) and turns its sign round. Once: `majority`, the accuracy of the best constant answer per duel;
    `prevalence`, the share of duels the first entity wins; `count` of tied duels. At full observation `rate` of
    `other_order`: calls that another order of the same observations makes otherwise. Per start `iterations`, sweeps
    per solve: at each t, without t over all rounds but the first, and for each start but the first the difference to
    it, its name in `reference`.
    """
    rounds, duels, orders = (tables[name] for name in ("rounds", "duels", "orders"))
    patients = list(rounds["patient"].unique())
    resampled = Resampled.of(len(patients), **dict(bootstrap), purpose="sign_convergence")
    rows: list[pd.DataFrame] = []
    for (start, name), each in rounds.groupby(["start", "method"], sort=False):
        method = str(name).removesuffix("_reversed")
        variant = None if method == name else "reversed"
        sums = each.groupby(["patient", "t"], sort=False).sum(numeric_only=True)
        every, first, wrong = (_right_and_total(sums, patients, among) for among in ("", "_first", "_prior_wrong"))
        second = every[0] - first[0], every[1] - first[1]
        for metric, stratum, parts in (
            ("accuracy", None, [every]),
            ("balanced_accuracy", None, [first, second]),
            ("accuracy", "prior_wrong", [wrong]),
        ):
            table = resampled.mean(parts).assign(metric=metric, method=method, start=str(start))
            rows.append(table.assign(stratum=stratum, variant=variant, t=np.arange(len(table))))
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
    ties = pd.DataFrame({"metric": "count", "quantity": "tied_at_full_observation", "value": [(winners == 0).sum()]})
    return pd.concat([*tables, ties], ignore_index=True).assign(n=int(decided.sum()))


def _order_dependence(orders: pd.DataFrame, patients: list[str], resampled: Resampled) -> pd.DataFrame:
    """Share of final calls that differ between two orders of the same observations, by score (decisions.md S4)."""
    tables = []
    for method, table in orders.groupby("method", sort=False):
        by_patient = table.set_index("patient").loc[patients]
        parts = [(by_patient[["different"]].to_numpy(float), by_patient[["compared"]].to_numpy(float))]
        tables.append(resampled.mean(parts).assign(method=method))
    return pd.concat(tables, ignore_index=True).assign(metric="rate", quantity="other_order")


def _sweeps(rounds: pd.DataFrame, patients: list[str], resampled: Resampled) -> pd.DataFrame:
    """Damped sweeps per mean-field solve by start (decisions.md M6), all entities' solves together.

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
