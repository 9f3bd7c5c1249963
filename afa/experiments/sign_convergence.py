"""Sign convergence under random observation order: how soon each score calls every duel (tab:m2_random_sign).

The target of a duel is the sign of D_ab at full observation; a duel tied there has no target and is left out
(spec S11). A score of exactly 0 is half right (spec S5).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.engine.trajectories import SCORES, SignPaths, Signs, sign_paths
from afa.inference.meanfield import Solver
from afa.orders import random_order

METHODS = SCORES
INFERENCE_METHODS = ("linearity", "two_elbo", "stack_a")


def sign_convergence(
    bundle: Bundle,
    cohort: Cohort,
    patients: Sequence[int],
    *,
    seeds: Sequence[int],
    solver: Solver,
    starts: Sequence[str] = ("uniform",),
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Follow the chosen patients (row indices of the cohort) through one random order per seed.

    `starts` says where the solves begin (spec M6): of the first, all methods are read out; of the others those that
    need inference.

    Returns three tables:

    `rounds`, by (patient, seed, method, t): `right`, duels called right, a tie counting one half, of `duels` with a
    winner; the same over duels that the first entity wins (`right_first`, `duels_first`) and over duels that
    `linearity` calls wrong before any observation (`right_prior_wrong`, `duels_prior_wrong`); and what the solves of
    that round took.

    `duels`, by (patient, entity_a, entity_b): `winner`, +1 for a, -1 for b, 0 a tie.

    `orders`, by (patient, method), of the scores that depend on the order (spec S4): how many of `compared` calls at
    full observation, by two orders each, are `different`.
    """
    names = [cohort.patients[p] for p in patients]
    drawn = [[random_order(bundle.features, patient=name, seed=seed) for seed in seeds] for name in names]
    orders = np.array(drawn, dtype=np.int64).reshape(len(names), len(seeds), len(bundle.features))
    values = cohort.values[list(patients)]
    tables: dict[str, pd.DataFrame] = {}
    for start in starts:
        paths = sign_paths(bundle, values, orders, solver=solver, start=start, threads=threads)
        winners = paths.signs["wald"][:, 0, -1, :]
        methods = INFERENCE_METHODS if tables else METHODS
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
