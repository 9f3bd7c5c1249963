"""Sign convergence under random observation order: how soon each score calls every duel (tab:m2_random_sign).

The target of a duel is the sign of D_ab at full observation; a duel tied there has no target and is left out
(spec S11). A score of exactly 0 is half right (spec S5).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.engine.trajectories import SignPaths, Signs, sign_paths
from afa.inference.meanfield import Solver
from afa.orders import random_order

METHODS = ("linearity", "wald")


def sign_convergence(
    bundle: Bundle,
    cohort: Cohort,
    patients: Sequence[int],
    *,
    seeds: Sequence[int],
    solver: Solver,
    start: str = "uniform",
    threads: int | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Follow the chosen patients (row indices of the cohort) through one random order per seed.

    Returns two tables. By (patient, seed, method, t): `right`, duels called right, a tie counting one half, of
    `duels` with a winner; the same over duels that the first entity wins (`right_first`, `duels_first`) and over
    duels that `linearity` calls wrong before any observation (`right_prior_wrong`, `duels_prior_wrong`); and
    what the solves of that round took. By (patient, entity_a, entity_b): `winner`, +1 for a, -1 for b, 0 a tie.
    """
    names = [cohort.patients[p] for p in patients]
    orders = np.array([[random_order(bundle.features, patient=name, seed=seed) for seed in seeds] for name in names])
    orders = orders.reshape(len(names), len(seeds), len(bundle.features))
    paths = sign_paths(bundle, cohort.values[list(patients)], orders, solver=solver, start=start, threads=threads)
    winners = paths.wald[:, 0, -1, :]
    return _rounds(paths, winners, names, seeds, bundle, cohort, start), _duels(paths, winners, names, bundle)


def _rounds(
    paths: SignPaths,
    winners: Signs,
    names: Sequence[str],
    seeds: Sequence[int],
    bundle: Bundle,
    cohort: Cohort,
    start: str,
) -> pd.DataFrame:
    n_patients, n_seeds, n_rounds, _ = paths.wald.shape
    index = pd.MultiIndex.from_product([names, seeds, range(n_rounds)], names=["patient", "seed", "t"])
    decided = np.broadcast_to((winners != 0)[:, None, None, :], (n_patients, n_seeds, 1, winners.shape[1]))
    first = np.broadcast_to((winners > 0)[:, None, None, :], decided.shape)
    prior_wrong = decided & (paths.linearity[:, :, :1] != winners[:, None, None, :])
    tables = []
    for method in METHODS:
        credit = _credit(getattr(paths, method), winners)
        table = pd.DataFrame(index=index)
        for suffix, among in (("", decided), ("_first", first), ("_prior_wrong", prior_wrong)):
            table[f"right{suffix}"] = (credit * among).sum(axis=3).ravel() / 2
            table[f"duels{suffix}"] = np.broadcast_to(among.sum(axis=3), paths.solves.shape).astype(np.int32).ravel()
        table.insert(0, "method", method)
        if method == "linearity":
            for name in ("solves", "iterations", "capped", "ascended"):
                table[name] = getattr(paths, name).ravel()
        tables.append(table.reset_index())
    rounds = pd.concat(tables, ignore_index=True)
    counts = ["solves", "iterations", "capped", "ascended"]
    rounds[counts] = rounds[counts].fillna(0).astype(np.int32)
    rounds.insert(0, "cohort", cohort.name)
    rounds.insert(1, "bundle", bundle.name)
    rounds.insert(2, "start", start)
    return rounds


def _credit(signs: Signs, winners: Signs) -> NDArray[np.int8]:
    """Twice the credit of each call: 2 right, 1 a tie, 0 wrong; shape (P, S, M + 1, Q)."""
    credit: NDArray[np.int8] = (1 + signs * winners[:, None, None, :]).astype(np.int8)
    return credit


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
