"""The mean-field solves of a run: sweeps and caps by model and round, and cases that never converge (decisions.md M8).

Models are the entities themselves and the two half-potential classes of each, `class_1` and `class_0`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.checks.sanity.subject import Subject
from afa.engine.paths import CAPPED, ITERATIONS, N_SOLVES, UNFINISHED, SolvePaths, solve_paths
from afa.inference.meanfield import Solver

MODELS = ("entity", "class_1", "class_0")


class SolveLog(NamedTuple):
    """Counts of `afa.engine.paths`, by model kind: (3, M + 1, N, 5), (3, P, S, N, 5) and (3, P, S, N)."""

    by_round: NDArray[np.int64]
    by_patient: NDArray[np.int64]
    first_unfinished: NDArray[np.int64]


def solve_log(subject: Subject) -> SolveLog:
    """All solves along all orders of a subject."""
    return solve_log_with(subject, subject.solver)


def solve_log_with(subject: Subject, solver: Solver) -> SolveLog:
    def paths(bundle: Bundle) -> SolvePaths:
        return solve_paths(bundle, subject.values, subject.orders, solver=solver, threads=subject.threads)

    whole, closed = paths(subject.bundle), [paths(bundle) for bundle in subject.closures]
    classes = [
        SolvePaths(
            np.stack([task.by_round[:, e] for task in closed], axis=1),
            np.stack([task.by_patient[:, :, e] for task in closed], axis=2),
            np.stack([task.first_unfinished[:, :, e] for task in closed], axis=2),
        )
        for e in range(2)
    ]
    return SolveLog(*(np.stack(parts) for parts in zip(whole, *classes, strict=True)))


def convergence_table(subject: Subject) -> pd.DataFrame:
    """By (model, entity, t), over patients and seeds: `solves`, their damped sweeps `iterations`, `capped`, `finished`.

    An entity is solved at t = 0 and whenever a feature of its support is observed. `capped` solves reached the cap of
    damped sweeps, `finished` of these were brought within tolerance by coordinate ascent. Rounds without a solve are
    left out.
    """
    log = subject.once(solve_log)
    entities, n_rounds = subject.bundle.entities, log.by_round.shape[1]
    index = pd.MultiIndex.from_product([MODELS, range(n_rounds), entities], names=["model", "t", "entity"])
    counts = log.by_round.reshape(-1, log.by_round.shape[-1])
    table = pd.DataFrame(
        {
            "solves": counts[:, N_SOLVES],
            "iterations": counts[:, ITERATIONS],
            "capped": counts[:, CAPPED],
            "finished": counts[:, CAPPED] - counts[:, UNFINISHED],
        },
        index=index,
    ).reset_index()
    return table[table["solves"] > 0].reset_index(drop=True)


def nonconvergence_table(subject: Subject) -> pd.DataFrame:
    """By (model, patient, entity) that reached the cap at all: solves, `capped` of them, and whether this persists.

    `persistent`: under every seed at least half of the solves of this patient and entity reached the cap. What
    mean-field says of such a case should not be relied upon (supp:sanity).
    """
    by_patient = subject.once(solve_log).by_patient
    persistent = (2 * by_patient[..., CAPPED] >= by_patient[..., N_SOLVES]).all(axis=2)
    summed = by_patient.sum(axis=2)
    names = [MODELS, subject.patients, subject.bundle.entities]
    index = pd.MultiIndex.from_product(names, names=["model", "patient", "entity"])
    table = pd.DataFrame(
        {
            "solves": summed[..., N_SOLVES].ravel(),
            "capped": summed[..., CAPPED].ravel(),
            "persistent": persistent.ravel(),
        },
        index=index,
    ).reset_index()
    return table[table["capped"] > 0].reset_index(drop=True)
