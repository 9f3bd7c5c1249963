"""Gate: every mean-field solve ends within tolerance, and its ELBO is never above the exact log Z."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from afa.bundle import Bundle
from afa.checks.sanity.convergence import MODELS, SolveLog, solve_log, solve_log_with
from afa.checks.sanity.gate import Failure, Gate, Outcome
from afa.checks.sanity.subject import Subject
from afa.engine.paths import Snapshots, snapshots
from afa.inference.exact import exact
from afa.inference.meanfield import ASCENT_FACTOR, Solver, entropy
from afa.mrf import Evidence, Floats

SMALL, PATIENTS, ROUNDS = 7, 2, 17
SLACK = 1e-9


def check(subject: Subject, *, solver: Solver | None = None, entropies: float = 1.0) -> Outcome:
    """Every solve along the random orders, then the ELBOs of a few states with few free features.

    solver : another one than the subject's. entropies : how often the entropy is counted in the ELBO.
    """
    log = subject.once(solve_log) if solver is None else solve_log_with(subject, solver)
    return _finished(subject, log, solver or subject.solver) + _below_exact(subject, entropies)


def _finished(subject: Subject, log: SolveLog, solver: Solver) -> Outcome:
    """Solves whose coordinate ascent used all its sweeps; one that met the tolerance in the very last counts too."""
    total, most = Outcome(), ASCENT_FACTOR * solver.max_iterations
    for i, model in enumerate(MODELS):

        def describe(p: int, s: int, v: int, i: int = i, model: str = model) -> Failure:
            t, count = log.first_unfinished[i, p, s, v], log.by_patient[i, p, s, v, 3]
            case = (
                f"{subject.named(v)} (model {model}), patient {subject.patients[p]}, seed {subject.seeds[s]}, t = {t}"
            )
            found = f"no end within {solver.max_iterations} sweeps and {most} of coordinate ascent, {count} times"
            return Failure(case, found, f"a change below {solver.tolerance:g}")

        unfinished = log.by_patient[i, ..., 3]
        outcome = Outcome.of(unfinished > 0, describe)
        solves = int(log.by_patient[i, ..., 0].sum())
        total += replace(outcome, cases=solves, failures=int(unfinished.sum()))
    return total


def _below_exact(subject: Subject, entropies: float) -> Outcome:
    total = Outcome()
    for bundle in (subject.bundle, *subject.closures):
        total += _bundle_below_exact(subject, bundle, entropies)
    return total


def _bundle_below_exact(subject: Subject, bundle: Bundle, entropies: float) -> Outcome:
    """The ELBOs of all entities of one bundle at the states with few enough free features to solve exactly.

    Their distance to log Z is a divergence and cannot be negative (eq:elbo-slack).
    """
    chosen, rounds = subject.some(PATIENTS), subject.rounds(ROUNDS)
    values, orders = subject.values[chosen], subject.orders[chosen, 0]
    read = snapshots(bundle, values, orders, rounds, solver=subject.solver, duels=False, threads=subject.threads)
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


GATE = Gate(
    "mean_field",
    check,
    (partial(check, solver=Solver(max_iterations=1)), partial(check, entropies=2.0)),
    "raise inference.max_iterations; an ELBO above log Z is a fault of the program: report it with the bundle",
)
