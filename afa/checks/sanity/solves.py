"""Gate: every mean-field solve ends within tolerance, and its ELBO is never above the exact log Z; and their tables.

The tables count sweeps, caps and cases that never converge (decisions.md M8), and hold the contraction constants.
Models are the entities themselves and the two half-potential classes of each, `class_1` and `class_0`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.checks.sanity.gate import Failure, Gate, Outcome, Subject
from afa.closure import contraction, half_potentials
from afa.engine.paths import CAPPED, ITERATIONS, N_SOLVES, UNFINISHED, Snapshots, SolvePaths, solve_paths
from afa.inference.exact import exact
from afa.inference.meanfield import ASCENT_FACTOR, Solver, entropy
from afa.mrf import Evidence, Floats
from afa.stats.tables import rows_of

MODELS = ("entity", "class_1", "class_0")
SMALL, PATIENTS, ROUNDS = 7, 2, 17
SLACK = 1e-9
TERNARY_SLOPE = 2 / 3


class SolveLog(NamedTuple):
    """Counts of `afa.engine.paths`, by model kind: (3, M + 1, N, 5), (3, P, S, N, 5) and (3, P, S, N)."""

    by_round: NDArray[np.int64]
    by_patient: NDArray[np.int64]
    first_unfinished: NDArray[np.int64]


def solve_log(subject: Subject, solver: Solver | None = None) -> SolveLog:
    """All solves along all orders of a subject, by its own solver or another."""

    def paths(bundle: Bundle) -> SolvePaths:
        solved_by = solver or subject.solver
        return solve_paths(bundle, subject.values, subject.orders, solver=solved_by, threads=subject.threads)

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


def check(subject: Subject, *, solver: Solver | None = None, entropies: float = 1.0) -> Outcome:
    """Every solve along the random orders, then the ELBOs of a few states with few free features.

    solver : another one than the subject's. entropies : how often the entropy is counted in the ELBO.
    """
    log = subject.once(solve_log) if solver is None else solve_log(subject, solver)
    total = _finished(subject, log, solver or subject.solver)
    for bundle in (subject.bundle, *subject.closures):
        total += _below_exact(subject, bundle, entropies)
    return total


def _finished(subject: Subject, log: SolveLog, solver: Solver) -> Outcome:
    """Solves whose coordinate ascent used all its sweeps; one that met the tolerance in the very last counts too."""
    unfinished, most = log.by_patient[..., UNFINISHED], ASCENT_FACTOR * solver.max_iterations

    def describe(i: int, p: int, s: int, v: int) -> Failure:
        patient, seed, t = subject.patients[p], subject.seeds[s], log.first_unfinished[i, p, s, v]
        found = f"no end within {solver.max_iterations} sweeps and {most} of coordinate ascent"
        return Failure(
            f"{subject.names[v]} (model {MODELS[i]}), patient {patient}, seed {seed}, t = {t}",
            f"{found}, {unfinished[i, p, s, v]} times",
            f"a change below {solver.tolerance:g}",
        )

    outcome = Outcome.of(unfinished > 0, describe)
    return replace(outcome, cases=int(log.by_patient[..., N_SOLVES].sum()), failures=int(unfinished.sum()))


def _below_exact(subject: Subject, bundle: Bundle, entropies: float) -> Outcome:
    """The ELBOs of all entities of one bundle at the states with few enough free features to solve exactly.

    Their distance to log Z is a divergence and cannot be negative (eq:elbo-slack).
    """
    chosen, rounds = subject.some(PATIENTS), subject.rounds(ROUNDS)
    values, orders = subject.values[chosen], subject.orders[chosen, 0]
    read = subject.read(bundle, rounds, chosen, duels=False)
    bound = read.elbo + (entropies - 1.0) * _entropies(read)
    total = Outcome()
    for v, entity in enumerate(bundle.entities):
        model = bundle.mrf(entity)
        held = np.isin(np.arange(len(bundle.features)), model.support)
        for p, order in enumerate(orders):
            states = [(r, t) for r, t in enumerate(rounds) if 0 < held[order[t:]].sum() <= SMALL]
            for r, t in states[::2]:
                seen = {bundle.features[j]: int(values[p, j]) for j in order[:t]}
                log_partition = exact(model, Evidence.of(model, seen)).log_partition
                above = np.array([bound[p, r, v] > log_partition + SLACK + read.packed.tie])
                case = f"{bundle.name}, model {entity}, patient {subject.patients[chosen[p]]}, t = {t}"
                found, expected = f"ELBO {bound[p, r, v]:.12g}", f"at most log Z = {log_partition:.12g}"
                failure = Failure(case, found, expected)
                total += Outcome.of(above, lambda _, failure=failure: failure)
    return total


def _entropies(read: Snapshots) -> Floats:
    """(P, R, N) entropies of the free features of each entity, in nats."""
    observed = read.q == 0.0
    by_slot = np.where(observed, 0.0, entropy(read.m.ravel(), read.q.ravel()).reshape(read.m.shape))
    first = read.packed.first_slot
    parts = [by_slot[..., first[v] : first[v + 1]].sum(axis=-1) for v in range(len(first) - 1)]
    return np.stack(parts, axis=-1)


def convergence_table(subject: Subject) -> pd.DataFrame:
    """By (model, entity, t), over patients and seeds: `solves`, their damped sweeps `iterations`, `capped`, `finished`.

    An entity is solved at t = 0 and whenever a feature of its support is observed. `capped` solves reached the cap of
    damped sweeps, `finished` of these were brought within tolerance by coordinate ascent. Rounds without a solve are
    left out.
    """
    counts = subject.once(solve_log).by_round
    kinds = {"solves": N_SOLVES, "iterations": ITERATIONS, "capped": CAPPED}
    table = rows_of(model=MODELS, t=range(counts.shape[1]), entity=subject.bundle.entities)
    table = table.assign(**{name: counts[..., kind].ravel() for name, kind in kinds.items()})
    table["finished"] = table["capped"] - counts[..., UNFINISHED].ravel()
    return table[table["solves"] > 0].reset_index(drop=True)


def nonconvergence_table(subject: Subject) -> pd.DataFrame:
    """By (model, patient, entity) that reached the cap at all: solves, `capped` of them, and whether this persists.

    `persistent`: under every seed at least half of the solves of this patient and entity reached the cap. What
    mean-field says of such a case should not be relied upon (supp:sanity).
    """
    by_patient = subject.once(solve_log).by_patient
    persistent = (2 * by_patient[..., CAPPED] >= by_patient[..., N_SOLVES]).all(axis=2)
    counts = by_patient.sum(axis=2)
    table = rows_of(model=MODELS, patient=subject.patients, entity=subject.bundle.entities).assign(
        solves=counts[..., N_SOLVES].ravel(), capped=counts[..., CAPPED].ravel(), persistent=persistent.ravel()
    )
    return table[table["capped"] > 0].reset_index(drop=True)


def contraction_table(bundle: Bundle) -> pd.DataFrame:
    """By (model, entity, opponent), before any observation: `contraction`, beta L^2, and `ternary`, 2/3 of it.

    model : `entity`, `duel` (the difference model) or `closure`, whose two classes have the same value. opponent is
    empty where there is none. The paper's condition is `contraction` < 1 (eq:mf-contraction); since the moment map of a
    ternary feature has slope at most 2/3, `ternary` < 1, that is `contraction` < 3/2, is enough (erratum 5).
    """
    models = {entity: bundle.mrf(entity) for entity in bundle.entities}
    rows = [("entity", entity, "", contraction(model)) for entity, model in models.items()]
    rows += [("duel", a, b, contraction(models[a] - models[b])) for a, b in combinations(models, 2)]
    rows += [("closure", entity, "", contraction(half_potentials(model)[0])) for entity, model in models.items()]
    table = pd.DataFrame(rows, columns=["model", "entity", "opponent", "contraction"])
    return table.assign(ternary=TERNARY_SLOPE * table["contraction"])


MEAN_FIELD = Gate(
    "mean_field",
    check,
    (partial(check, solver=Solver(max_iterations=1)), partial(check, entropies=2.0)),
    "raise inference.max_iterations; an ELBO above log Z is a fault of the program: report it with the bundle",
)
