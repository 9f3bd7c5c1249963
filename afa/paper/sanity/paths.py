"""Two acceptance tests in which features are observed one by one: a test of score bounds and a test of inference.

Rigorous score bounds must never be wrong.

Score bounds (a bracket) decide a sign when they exclude 0 (column `called`). If score bounds decide for one sign, and
the score has another sign at full observation, the decision is wrong. A mean-field run must end within tolerance, and
the run's ELBO must not exceed the exact log Z. The tables count the decisions made from rigorous and from heuristic
score bounds (decisions.md B4). The tables also count sweeps, mean-field runs that reach the limit on sweeps, and cases
that do not converge (decisions.md M8). A further table contains the contraction constants. For each entity, mean-field
inference is run on three models: the model of the entity, and the class models `class_1` and `class_0`, proportional to
exp(S/2) and exp(-S/2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from afa.engine.duels import BRACKETS, RIGOROUS, all_pairs
from afa.engine.outcomes import CALLED, EARLY, TIED, WRONG, CallPaths, shared_order_calls
from afa.engine.paths import CAPPED, ITERATIONS, N_SOLVES, UNFINISHED, SolvePaths, solve_paths
from afa.evaluate.long_tables import rows_of
from afa.inference.exact import exact
from afa.inference.meanfield import ASCENT_FACTOR, Solver, entropy
from afa.model.arrays import Codes, Floats
from afa.model.bundle import Bundle
from afa.model.closure import contraction, half_potentials
from afa.model.mrf import ROUNDING, Evidence
from afa.paper.sanity import CheckResult, Failure, Gate, Subject
from afa.scores.preference import tie_of

POPULATIONS = ("duels", "binary")
DECISION_WORDS = {1: "a call for the first", -1: "a call for the second", 0: "no call, a tie"}
CLASS_MODELS = ("entity", "class_1", "class_0")
SMALL, PATIENTS, ROUNDS = 7, 2, 17
BOUND_TOLERANCE = 1e-9
TERNARY_SLOPE = 2 / 3


class Called(NamedTuple):
    """The decisions made from score bounds in all Q duels (comparisons of two entities), or in one binary task (Q = 1).

    Parameters
    ----------
    names : (Q,) names of the duels
    final : (P, Q) float64, D (duels) or S (binary task) at full observation, in nats
    winners : (P, Q) int8, the sign of `final`, or 0 for a tie

    """

    names: Sequence[str]
    final: Floats
    winners: Codes
    paths: CallPaths


def check_calls(subject: Subject, *, budget_share: float = 1.0) -> CheckResult:
    """Check every decision that is made from the score bounds `l1_tight` and `l1_paper` in duels and binary tasks.

    Features are observed in one random order for each patient and seed. A decided sign must equal the sign of the score
    at full observation. If a duel or task ends in a tie at full observation, the duel or task must stay undecided.
    `l1_paper` must not decide a duel that `l1_tight` leaves undecided.

    Parameters
    ----------
    budget_share : factor by which the budget of every score bound is multiplied. The budget is the largest change that
        unobserved features can still make. The correct factor is 1

    """
    calls = subject.once(all_calls) if budget_share == 1.0 else all_calls(subject, budget_share)
    return sum((_compare_with_winners(subject, each) for each in calls), CheckResult())


def all_calls(subject: Subject, budget_share: float = 1.0) -> list[Called]:
    """Return the decisions made from score bounds, first for all duels, then for each binary task."""
    energy, (a, b) = subject.energies, all_pairs(len(subject.bundle.entities)).T
    tasks = zip(subject.closures, ([task] for task in subject.tasks), energy.T[:, :, None], strict=True)
    found = []
    for bundle, names, final in ((subject.bundle, subject.pairs, energy[:, a] - energy[:, b]), *tasks):
        tie = 4 * tie_of([bundle.mrf(entity) for entity in bundle.entities]) + ROUNDING
        winners = np.where(np.abs(final) <= tie, 0, np.sign(final)).astype(np.int8)
        paths = shared_order_calls(
            bundle,
            subject.values,
            subject.orders,
            winners,
            solver=subject.solver,
            threads=subject.threads,
            budget_share=budget_share,
        )
        found.append(Called(names, final, winners, paths))
    return found


def _compare_with_winners(subject: Subject, calls: Called) -> CheckResult:
    counts = calls.paths.counts[..., : len(RIGOROUS), :].sum(axis=(0, 1, 2, 3))

    def describe(p: int, s: int) -> Failure:
        t, q, bracket, call = (int(number) for number in calls.paths.first[p, s])
        winner, expected = int(calls.winners[p, q]), "a call by l1_tight no later than by l1_paper"
        if winner != call:
            expected = f"{DECISION_WORDS[winner]}: {calls.final[p, q]:.12g} at full observation"
        case = f"{calls.names[q]}, patient {subject.patients[p]}, seed {subject.seeds[s]}, t = {t}"
        return Failure(case, f"{DECISION_WORDS[call]} by {BRACKETS[bracket]}", expected)

    outcome = CheckResult.of(calls.paths.first[..., 0] >= 0, describe)
    evaluated = int(np.prod(calls.paths.counts.shape[:3])) * len(calls.names) * len(RIGOROUS)
    return replace(outcome, cases=evaluated, failures=int(counts[[WRONG, TIED, EARLY]].sum()))


def bracket_table(subject: Subject) -> pd.DataFrame:
    """Return the numbers of decisions and of wrong decisions for each (population, bracket, t).

    The numbers are summed over patients and seeds.

    `decided` is the number of duels or tasks with a winner at full observation. `called` and `wrong` are the numbers of
    decisions and of wrong decisions in the duels or tasks with a winner. A decision is counted at every t at which the
    score bounds exclude 0. `tied_called` is the number of decisions in duels and tasks that end in a tie at full
    observation. A duel or task that ends in a tie should stay undecided.
    """
    return _count_calls(subject, (0, 1), "t", range(len(subject.bundle.features) + 1))


def bracket_patients_table(subject: Subject) -> pd.DataFrame:
    """Return the counts of `bracket_table` for each (population, bracket, patient), summed over all t."""
    return _count_calls(subject, (1, 2), "patient", subject.patients)


def _count_calls(subject: Subject, axes: tuple[int, ...], by: str, cells: Sequence[object]) -> pd.DataFrame:
    """Return counts for duels and for binary tasks, summed over some of the axes patient, seed and t.

    `axes` contains the indices of the summed axes.
    """
    duels, *tasks = subject.once(all_calls)
    decided, counts = [], []
    for calls in ([duels], tasks):
        of_patient = np.sum([np.count_nonzero(each.winners, axis=1) for each in calls], axis=0)
        decided.append(np.broadcast_to(of_patient[:, None, None], duels.paths.counts.shape[:3]).sum(axis=axes))
        counts.append(np.sum([each.paths.counts.sum(axis=axes, dtype=np.int64) for each in calls], axis=0))
    table = rows_of(**{"population": POPULATIONS, by: cells, "bracket": BRACKETS})
    kinds = np.stack(counts).reshape(len(table), -1)
    table["decided"] = np.repeat(np.concatenate(decided), len(BRACKETS))
    return table.assign(called=kinds[:, CALLED], wrong=kinds[:, WRONG], tied_called=kinds[:, TIED])


def solve_log(subject: Subject, solver: Solver | None = None) -> SolvePaths:
    """Run mean-field inference along all orders of all patients, and count runs, sweeps and failures to converge.

    The first axis of each array is the kind of model, in the order of `CLASS_MODELS`. If `solver` is None,
    `subject.solver` is used.
    """

    def paths(bundle: Bundle) -> SolvePaths:
        solved_by = solver or subject.solver
        return solve_paths(bundle, subject.values, subject.orders, solver=solved_by, threads=subject.threads)

    counts = []
    for axis, own, *of_tasks in zip((1, 2, 2), *map(paths, (subject.bundle, *subject.closures)), strict=True):
        classes = np.concatenate(of_tasks, axis=axis)  # entity 0 class 1, entity 0 class 0, entity 1 class 1, ...
        counts.append(np.stack([own, *(np.take(classes, range(e, 2 * own.shape[axis], 2), axis) for e in (0, 1))]))
    return SolvePaths(*counts)


def check_solves(subject: Subject, *, solver: Solver | None = None, entropies: float = 1.0) -> CheckResult:
    """Check all mean-field runs along the random orders, and the ELBOs of a few states with few unobserved features.

    Parameters
    ----------
    solver : solver to use instead of `subject.solver`
    entropies : weight of the entropy in the ELBO. The correct value is 1

    """
    log = subject.once(solve_log) if solver is None else solve_log(subject, solver)
    total = _check_convergence(subject, log, solver or subject.solver)
    for bundle in (subject.bundle, *subject.closures):
        total += _check_elbo_bound(subject, bundle, entropies)
    return total


def _check_convergence(subject: Subject, log: SolvePaths, solver: Solver) -> CheckResult:
    """Check that all mean-field runs have converged.

    If a run does not converge by damped sweeps, the run continues with coordinate ascent.
    """
    unfinished, most = log.by_patient[..., UNFINISHED], ASCENT_FACTOR * solver.max_iterations

    def describe(i: int, p: int, s: int, v: int) -> Failure:
        patient, seed, t = subject.patients[p], subject.seeds[s], log.first_unfinished[i, p, s, v]
        found = f"no end within {solver.max_iterations} sweeps and {most} of coordinate ascent"
        return Failure(
            f"{subject.names[v]} (model {CLASS_MODELS[i]}), patient {patient}, seed {seed}, t = {t}",
            f"{found}, {unfinished[i, p, s, v]} times",
            f"a change below {solver.tolerance:g}",
        )

    outcome = CheckResult.of(unfinished > 0, describe)
    return replace(outcome, cases=int(log.by_patient[..., N_SOLVES].sum()), failures=int(unfinished.sum()))


def _check_elbo_bound(subject: Subject, bundle: Bundle, entropies: float) -> CheckResult:
    """Check that no ELBO exceeds the exact log Z, in states with few unobserved features.

    Log Z minus an ELBO is a divergence and cannot be negative (eq:elbo-slack).
    """
    chosen, rounds = subject.some(PATIENTS), subject.rounds(ROUNDS)
    values, orders = subject.values[chosen], subject.orders[chosen, 0]
    read = subject.read(bundle, rounds, chosen, duels=False)
    free = np.where(read.q == 0.0, 0.0, entropy(read.m.ravel(), read.q.ravel()).reshape(read.m.shape))
    of_entity = [free[..., i:j].sum(axis=-1) for i, j in pairwise(read.packed.first_slot)]
    bound = read.elbo + (entropies - 1.0) * np.stack(of_entity, axis=-1)
    total = CheckResult()
    for v, entity in enumerate(bundle.entities):
        model = bundle.mrf(entity)
        held = np.isin(np.arange(len(bundle.features)), model.support)
        for p, order in enumerate(orders):
            states = [(r, t) for r, t in enumerate(rounds) if 0 < held[order[t:]].sum() <= SMALL]
            for r, t in states[::2]:
                seen = {bundle.features[j]: int(values[p, j]) for j in order[:t]}
                log_partition = exact(model, Evidence.of(model, seen)).log_partition
                above = bound[p, r, v] > log_partition + BOUND_TOLERANCE + read.packed.tie
                case = f"{bundle.name}, model {entity}, patient {subject.patients[chosen[p]]}, t = {t}"
                found, expected = f"ELBO {bound[p, r, v]:.12g}", f"at most log Z = {log_partition:.12g}"
                total += CheckResult(1, 1, (Failure(case, found, expected),)) if above else CheckResult(1)
    return total


def convergence_table(subject: Subject) -> pd.DataFrame:
    """Return the numbers of mean-field runs and sweeps for each (model, entity, t), summed over patients and seeds.

    Mean-field inference is run for a model at t = 0, and whenever a feature of the model's support is observed.
    `iterations` is the number of damped sweeps in all mean-field runs. `capped` is the number of runs that reached the
    limit on damped sweeps. `finished` is the number of runs that first reached the limit on damped sweeps, and then
    converged by coordinate ascent. Rounds without a mean-field run are excluded.
    """
    counts = subject.once(solve_log).by_round
    kinds = {"solves": N_SOLVES, "iterations": ITERATIONS, "capped": CAPPED}
    table = rows_of(model=CLASS_MODELS, t=range(counts.shape[1]), entity=subject.bundle.entities)
    table = table.assign(**{name: counts[..., kind].ravel() for name, kind in kinds.items()})
    table["finished"] = table["capped"] - counts[..., UNFINISHED].ravel()
    return table[table["solves"] > 0].reset_index(drop=True)


def nonconvergence_table(subject: Subject) -> pd.DataFrame:
    """Return the number of mean-field runs that reached the limit on sweeps, for each (model, patient, entity).

    A (model, patient, entity) without such a run has no row.

    `solves` is the number of mean-field runs. `capped` is the number of runs that reached the limit on damped sweeps.
    `persistent` is True if, for every seed, at least half of the mean-field runs reached the limit on damped sweeps. In
    this case, mean-field results are not reliable (supp:sanity).
    """
    by_patient = subject.once(solve_log).by_patient
    persistent = (2 * by_patient[..., CAPPED] >= by_patient[..., N_SOLVES]).all(axis=2)
    counts = by_patient.sum(axis=2)
    table = rows_of(model=CLASS_MODELS, patient=subject.patients, entity=subject.bundle.entities).assign(
        solves=counts[..., N_SOLVES].ravel(), capped=counts[..., CAPPED].ravel(), persistent=persistent.ravel()
    )
    return table[table["capped"] > 0].reset_index(drop=True)


def contraction_table(bundle: Bundle) -> pd.DataFrame:
    """Return a table with the contraction constant beta L^2 of each model, before any feature is observed.

    `contraction` is beta L^2, and `ternary` is 2/3 of `contraction`. The column `model` names the kind of model:
    `entity` (the model of one entity), `duel` (the difference of the models of two entities) or `closure` (the class
    models of one entity). The two class models of an entity have the same contraction constant, so that the table has
    only one row for both. The column `opponent` contains the second entity of a duel. The paper's condition for
    convergence is `contraction` < 1 (eq:mf-contraction). The weaker condition `ternary` < 1 is also sufficient for
    convergence. The reason is that the mean of a ternary feature changes by at most 2/3 per unit of the feature's
    field.
    """
    models = {entity: bundle.mrf(entity) for entity in bundle.entities}
    rows = [("entity", entity, "", contraction(model)) for entity, model in models.items()]
    rows += [("duel", a, b, contraction(models[a] - models[b])) for a, b in combinations(models, 2)]
    rows += [("closure", entity, "", contraction(half_potentials(model)[0])) for entity, model in models.items()]
    table = pd.DataFrame(rows, columns=["model", "entity", "opponent", "contraction"])
    return table.assign(ternary=TERNARY_SLOPE * table["contraction"])


SOUNDNESS = Gate(
    "bracket_soundness",
    check_calls,
    (partial(check_calls, budget_share=0.0),),
    "report this with the bundle: a rigorous bracket that is wrong once is a fault of the program, not a rate",
)
MEAN_FIELD = Gate(
    "mean_field",
    check_solves,
    (partial(check_solves, solver=Solver(max_iterations=1)), partial(check_solves, entropies=2.0)),
    "raise inference.max_iterations; an ELBO above log Z is a fault of the program: report it with the bundle",
)
