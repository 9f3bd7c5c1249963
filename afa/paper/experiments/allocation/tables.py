"""Run every rule with every gain and schedule, and return the tables of the allocation grid.

A cell of the grid (tab:m2_alloc) is one combination of allocation rule, gain and schedule. In all cells, rules choose
features by the score `linearity`. At each round, duels and the top k are decided by two scores, `linearity` and `wald`
(decisions.md A11). A user-defined rule (`module:Class`) is run for one patient at a time, which is ten to a hundred
times slower than a compiled rule. The tables of user-defined and compiled rules have the same columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.cohort.cohort import Cohort
from afa.engine.outcomes import READOUTS, Outcomes, RulePaths, compare_rounds, follow_rule, full_observation
from afa.engine.patient import Patient
from afa.engine.ranks import is_certified, name_places, ranks_of
from afa.engine.rules import COMPILED
from afa.errors import Fault, PlannerError
from afa.evaluate.inputs import label_matrix, note, top_k_size
from afa.evaluate.long_tables import by_patient, rows_of
from afa.evaluate.targets import Targets, clinical_k
from afa.inference.meanfield import Solver
from afa.model.arrays import Codes
from afa.model.bundle import Bundle
from afa.model.orders import PAPER_ROUNDS, random_orders
from afa.model.rule_names import WITHOUT_GAIN
from afa.paper.experiments.allocation.cells import CORRECT_DUEL_COLUMNS, GridCell
from afa.paper.experiments.allocation.frontier import frontier_table
from afa.paper.experiments.allocation.truth import truth_tables
from afa.planner.cluster import Clustering
from afa.planner.rules import RULES, Rule
from afa.planner.rules.base import Choice, View, fall_back, view_of
from afa.planner.rules.check import rule_of

if TYPE_CHECKING:
    from afa.paper.experiments.settings import Allocation, Inference

GRID_GAINS = ("wald_magnitude", "cmi", "f_target")
SCHEDULES: dict[str, Sequence[int] | None] = {"every": None, "paper": PAPER_ROUNDS}


def cells_of(rules: Sequence[str], gains: Sequence[str], schedules: Sequence[str]) -> list[GridCell]:
    """Return the cells of the grid, in the order of `Allocation.parts`.

    The rule `random` is used only with the schedule `every`.
    """
    without = [rule for rule in WITHOUT_GAIN if rule in rules]
    others = [rule for rule in rules if rule not in WITHOUT_GAIN]
    every = (*product([""], without, schedules), *product(gains, others, schedules))
    return list(
        dict.fromkeys(GridCell(rule, gain, "every" if rule == "random" else when) for gain, rule, when in every)
    )


def run(
    bundle: Bundle,
    cohort: Cohort,
    patients: Sequence[int],
    *,
    allocation: Allocation,
    top_k: int,
    inference: Inference,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Run the strategy of every grid cell on the chosen patients.

    `patients` contains row indices of the cohort.

    The rule `random` is run once for each seed. Each finished cell is logged. The tables `rounds` and `choices` have
    one row for each (patient, allocation, gain, schedule, seed, t), and are sorted by patient.

    Returns
    -------
    rounds : one row also for each score, named by `method`. `right` is the number of correct decisions among duels with
        a winner at full observation. A tied decision counts one half. `right_first` counts only duels that the first
        entity wins. `right_prior_wrong` counts only duels that `linearity` decides wrongly before any observation.
        `p_at_k` is the overlap of the k best with the k best at full observation, divided by k. `clinical_p_at_k` is
        the share of positive labels among the k' labelled entities that rank highest. `clinical_r_precision` is this
        share among the r highest, if the patient has r positive labels. Both are missing if the patient has no positive
        label (decisions.md S10)
    choices : `feature` is the t-th observed feature, missing at t = 0. `fallback` is True if the rule of decisions.md
        A7 chose it. `resolved` is the number of duels that no further values can change. `resolved_wrong` is the number
        of resolved duels that have another result at full observation. `certified` is True if the top k cannot change
        any more
    frontier : columns of both tables for each (patient, background, t), for the rule `frontier` and the score
        `background`. The table is empty unless `allocation` contains a rule without a gain. Therefore, only one part of
        the grid computes the table
    duels, targets : the correct answers (`truth_tables`), which are the same in all parts of the grid

    """
    names = [cohort.patients[p] for p in patients]
    values, k, solver = cohort.values[list(patients)], top_k_size(bundle, top_k), Solver(**dict(inference))
    truth = full_observation(bundle, values, solver=solver)
    labels = label_matrix(bundle, cohort)
    targets = Targets.of(truth, labels[list(patients)], k, clinical_k(labels, k))
    parts: dict[str, list[pd.DataFrame]] = {"rounds": [], "choices": []}
    for cell in cells_of(allocation.rules, allocation.gains, allocation.schedules):
        options: dict[str, Any] = {
            "gain": cell.gain or None,
            "target": "linearity" if cell.gain == "f_target" else None,
            "k": k,
            "solver": solver,
        }
        options["rescoring"] = SCHEDULES[cell.schedule]
        for seed in allocation.seeds if cell.allocation == "random" else (0,):
            if cell.allocation in COMPILED:
                orders = random_orders(bundle.features, names, [seed])[:, 0] if cell.allocation == "random" else None
                options |= {"allocation": cell.allocation, "orders": orders, "threads": threads}
                paths = follow_rule(bundle, values, truth, **options)
            else:
                make = RULES.get(cell.allocation) or rule_of(cell.allocation)
                paths = follow_own_rule(bundle, values, truth, make, names=names, **options)
            keys: dict[str, Any] = {**cell._asdict(), "seed": seed}
            parts["rounds"].append(_rounds(paths, targets, names, threads).assign(**keys))
            parts["choices"].append(_choices(paths, names, bundle.features).assign(**keys))
        note(" ".join(filter(None, cell)))
    found = {name: by_patient(tables, names) for name, tables in parts.items()}
    without_gain = any(rule in WITHOUT_GAIN for rule in allocation.rules)
    frontier = frontier_table(bundle, cohort, patients, truth, targets, threads) if without_gain else pd.DataFrame()
    return {**found, "frontier": frontier, **truth_tables(bundle.entities, names, truth, targets)}


def follow_own_rule(
    bundle: Bundle,
    values: Codes,
    truth: Outcomes,
    make: Callable[[], Rule],
    *,
    gain: str | None,
    target: str | None,
    rescoring: Sequence[int] | None,
    k: int,
    solver: Solver,
    names: Sequence[str],
) -> RulePaths:
    """Observe the features of P patients in the order that a rule chooses.

    Arguments are as for `afa.engine.outcomes.follow_rule`.

    Scores are computed only at the rounds in `rescoring`. At all other rounds, the rule uses the scores that were
    computed last, and the current set of observed features. Until scores are computed again, the rule chooses candidate
    features in the order of their last ranking (decisions.md A6). If no candidate is left, the rule of decisions.md A7
    chooses the feature from the current state.

    Parameters
    ----------
    values : (P, M) int8 in {-1, 0, +1}

    """
    n_patients, n_rounds = values.shape
    order = np.zeros((n_patients, n_rounds), dtype=np.int64)
    fallback = np.zeros((n_patients, n_rounds), dtype=np.bool_)
    rounds: list[tuple[NDArray[Any], ...]] = []
    looks = set(range(n_rounds)) if rescoring is None else set(rescoring)
    for patient, name in enumerate(names):
        rule, clustering, seen = make(), Clustering(bundle), dict[str, int]()
        state = Patient(bundle, gain=gain or "wald_magnitude", target=target, solver=solver)
        looked: View | None = None
        for t in range(n_rounds + 1):
            rounds.append(_round_results(state, bundle, k))
            if t == n_rounds:
                break
            now: dict[str, Any] = {"score": "linearity", "k": k, "patient": name}
            now["find_clusters"] = partial(clustering.at, dict(seen))
            view = view_of(state, bundle, **now)
            if t in looks or looked is None:  # copy the state if later rounds use this view again
                looked = view if rescoring is None else view_of(deepcopy(state), bundle, **now)
            choice = _ask_rule(rule, looked, view)
            order[patient, t], fallback[patient, t] = choice.feature, choice.fallback
            value = int(values[patient, choice.feature])
            seen[bundle.features[choice.feature]] = value
            state.observe(choice.feature, value)
    every = (np.stack(parts).reshape(n_patients, n_rounds + 1, *parts[0].shape) for parts in zip(*rounds, strict=True))
    return compare_rounds(truth, order, fallback, *every)


def _round_results(state: Patient, bundle: Bundle, k: int) -> tuple[NDArray[Any], ...]:
    """Return four results of one patient in one round.

    The results are the signs of the duels, the ranks of the entities, which duels are resolved, and whether the top k
    is certain. The function `compare_rounds` takes these four results in this order.
    """
    pairs, n, tie = state.pairs, len(bundle.entities), state.packed.tie
    tables = [state.scores(score) for score in READOUTS]
    ranked = [ranks_of(table, np.arange(n), name_places(bundle.entities), tie) for table in tables]
    signs = np.array([np.sign(table[pairs[:, 0], pairs[:, 1]]) for table in tables], dtype=np.int8)
    place = np.array([ranks.place for ranks in ranked], dtype=np.int16)
    resolved = state.resolved()
    certified = is_certified(pairs, ranked[0].order, k, state.lead(), resolved)
    return signs, place, resolved, np.array(certified)


def _ask_rule(rule: Rule, looked: View, present: View) -> Choice:
    """Return the feature that a rule chooses for a patient.

    The rule chooses by the scores in the view `looked`. These scores were computed in this round or in an earlier
    round. The view `present` contains the patient's current data. If no feature has a positive gain, the potentials in
    `present` determine the choice (the fallback rule of decisions.md A7).
    """
    where = f"allocation rule {type(rule).__name__}, patient {present.patient}, after {present.observed.sum()} features"
    choice = rule.choose(replace(looked, observed=present.observed))
    if not 0 <= choice.feature < len(present.features) or present.observed[choice.feature]:
        expected, step = "an index of an unobserved feature", "hold it to afa.planner.rules.check_policy"
        raise PlannerError(Fault(where, str(choice.feature), expected, step))
    return fall_back(present) if choice.fallback else choice


def _rounds(paths: RulePaths, targets: Targets, names: Sequence[str], threads: int | None) -> pd.DataFrame:
    right = paths.right
    n_patients, n_rounds, n_readouts = right.shape[:3]
    place = paths.place.reshape(n_patients, n_rounds * n_readouts, paths.place.shape[3])
    table = rows_of(patient=names, t=np.arange(n_rounds, dtype=np.int16), method=READOUTS)
    counts = dict(
        zip(CORRECT_DUEL_COLUMNS, np.moveaxis(right, -1, 0).reshape(len(CORRECT_DUEL_COLUMNS), -1), strict=True)
    )
    return table.assign(**counts, **{name: each.ravel() for name, each in targets.precisions(place, threads).items()})


def _choices(paths: RulePaths, names: Sequence[str], features: tuple[str, ...]) -> pd.DataFrame:
    n_patients, n_rounds = paths.certified.shape
    chosen = np.full((n_patients, n_rounds), None, dtype=object)
    chosen[:, 1:] = np.array(features, dtype=object)[paths.order]
    fallback = np.zeros((n_patients, n_rounds), dtype=bool)
    fallback[:, 1:] = paths.fallback
    record = {name: getattr(paths, name).ravel() for name in ("resolved", "resolved_wrong", "certified")}
    table = rows_of(patient=names, t=np.arange(n_rounds, dtype=np.int16))
    return table.assign(feature=chosen.ravel(), fallback=fallback.ravel(), **record)
