"""Many patients at once under an allocation rule: what is chosen, what each round answers, what is certain by then.

Compiled, and lazy: a duel's gains are computed when the rule gives it weight and one of its two entities has changed
since. The choices are those of `TopKPlanner` with the rules of `afa.allocate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.engine.ahead import Ahead, copy_ahead, new_ahead, solve_ahead
from afa.engine.compile import in_threads, kernel, laid_out
from afa.engine.contests import Contests, new_budgets, new_contests, refresh_after
from afa.engine.gains import CMI, WALD_MAGNITUDE, Gains, copy_gains, new_gains, refresh_duel, refresh_gains
from afa.engine.kernels import Iteration, State, copy_state, elbo, new_state, observe, solve_all
from afa.engine.linkage import cluster_labels
from afa.engine.packed import Indices, Packed, pack
from afa.engine.patient import GAIN_KINDS
from afa.engine.rounds import Record, Truth, new_record, write_round
from afa.engine.rules import (
    CLUSTERED,
    LARGEST_UNARY,
    NONE,
    PRIORITY_CLUSTERS,
    RANDOM,
    RULE_NAMES,
    Sight,
    best_feature,
    duel_weights,
    fallback_feature,
    total_unary,
)
from afa.engine.standings import LINEARITY, duel_scores, standings
from afa.engine.trajectories import all_pairs
from afa.inference.meanfield import Solver
from afa.mrf import Floats

C_MIN = 5
T_RE = 50
PAPER_RESCORING = (0, 10, 50, 100, 150)
"""Observations before which the paper ranks its candidates again: its rounds 1, 11, 51, 101 and 151 (spec A6)."""


class Course(NamedTuple):
    """What does not change from patient to patient.

    start, ahead, gains, empty : the state before any observation, all solved, and its gains and ELBOs.
    feature_rank : (M,) and name_rank : (N,) places in the order of names; by_name : (N,) its inverse.
    rescore : (M,) whether the gains are looked at after so many observations.
    """

    packed: Packed
    contests: Contests
    start: State
    ahead: Ahead
    gains: Gains
    empty: Floats
    feature_rank: Indices
    name_rank: Indices
    by_name: Indices
    rule: int
    kind: int
    rescore: NDArray[np.bool_]
    k: int
    n_clusters: int
    iteration: Iteration


@dataclass(frozen=True)
class RulePaths:
    """P patients under one rule, r rounds each.

    order : (P, r) features in the order chosen. fallback : (P, r) whether no candidate had any gain left (spec A7).
    record : what each round answers, t from 0 to r (`afa.engine.rounds.Record`).
    """

    order: NDArray[np.int64]
    fallback: NDArray[np.bool_]
    record: Record


def follow_rule(
    bundle: Bundle,
    values: NDArray[np.int8],
    truth: Truth,
    *,
    allocation: str,
    gain: str | None = None,
    target: str | None = None,
    rescoring: Sequence[int] | None = None,
    orders: NDArray[np.int64] | None = None,
    k: int = 5,
    rounds: int | None = None,
    solver: Solver | None = None,
    threads: int | None = None,
) -> RulePaths:
    """Follow P patients under a rule, guided by `linearity`; the same bytes for any number of threads.

    values : (P, M) in {-1, 0, +1}. truth : of these patients. allocation : a name of `RULE_NAMES`. gain, target : as of
    `TopKPlanner`; not used by `random` and `largest_unary`. rescoring : numbers of observations after which candidates
    are ranked again, to be used up in that order; after every one where None (spec A6). orders : (P, M), the order of
    each patient under `random`. rounds : M unless given.
    """
    rounds = len(bundle.features) if rounds is None else rounds
    course = course_of(bundle, allocation, gain, target, rescoring=rescoring, k=k, solver=solver)
    if orders is None:
        orders = np.zeros((len(values), len(bundle.features)), dtype=np.int64)
    values, orders = laid_out(values), laid_out(orders)
    chosen = np.zeros((len(values), rounds), dtype=np.int64)
    fallback = np.zeros((len(values), rounds), dtype=np.bool_)
    record = new_record(len(values), rounds, len(bundle.entities))

    def follow(first: int, last: int) -> None:
        _follow(course, values, orders, truth, chosen, fallback, record, first, last)

    in_threads(follow, len(values), threads)
    return RulePaths(chosen, fallback, record)


def course_of(
    bundle: Bundle,
    allocation: str,
    gain: str | None,
    target: str | None,
    *,
    rescoring: Sequence[int] | None,
    k: int,
    solver: Solver | None,
) -> Course:
    """Solve the state before any observation, from which every patient starts."""
    solver = solver or Solver()
    packed, n, m = pack(bundle), len(bundle.entities), len(bundle.features)
    pairs, iteration = all_pairs(n), Iteration(solver.damping, solver.tolerance, solver.max_iterations, False)
    start = new_state(packed)
    solve_all(packed, start, iteration)
    empty = np.array([elbo(start, v, m) for v in range(n)])
    kind = GAIN_KINDS[gain or "wald_magnitude", target]
    ahead, gains, every = new_ahead(packed), new_gains(packed, pairs), np.ones(n, dtype=np.bool_)
    if kind not in (WALD_MAGNITUDE, CMI):
        solve_ahead(packed, start, ahead, every, iteration)
    refresh_gains(packed, start, ahead, gains, empty, kind, every)
    rescore = np.ones(m, dtype=np.bool_)
    if rescoring is not None:
        rescore[:] = False
        rescore[[t for t in rescoring if t < m]] = True
    by_name = np.array(sorted(range(n), key=bundle.entities.__getitem__), dtype=np.int64)
    features = np.array(sorted(range(m), key=bundle.features.__getitem__), dtype=np.int64)
    return Course(
        packed=packed,
        contests=new_contests(packed, pairs),
        start=start,
        ahead=ahead,
        gains=gains,
        empty=empty,
        feature_rank=np.argsort(features),
        name_rank=np.argsort(by_name),
        by_name=by_name,
        rule=RULE_NAMES.index(allocation),
        kind=kind,
        rescore=rescore,
        k=k,
        n_clusters=ceil(sqrt(n)),
        iteration=iteration,
    )


@kernel()
def _follow(
    course: Course,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    truth: Truth,
    chosen: NDArray[np.int64],
    fallback: NDArray[np.bool_],
    record: Record,
    first: int,
    last: int,
) -> None:
    packed, contests, rule = course.packed, course.contests, course.rule
    n = len(packed.prior)
    looks_ahead = course.kind not in (WALD_MAGNITUDE, CMI)
    everyone = np.arange(n)
    for patient in range(first, last):
        state, gains = copy_state(course.start), copy_gains(course.gains)
        ahead = copy_ahead(course.ahead) if looks_ahead else course.ahead
        budgets = new_budgets(packed, contests, state)
        stale, stale_ahead = np.zeros(len(contests.pairs), dtype=np.bool_), np.zeros(n, dtype=np.bool_)
        resolved = np.zeros(len(contests.pairs), dtype=np.bool_)
        labels, worth = np.zeros(n, dtype=np.int64), np.zeros(packed.n_features)
        for t in range(chosen.shape[1] + 1):
            for p in range(len(resolved)):
                lead = state.constant[contests.pairs[p, 0]] - state.constant[contests.pairs[p, 1]]
                resolved[p] = abs(lead) > budgets.whole[p] + packed.tie
            scores = duel_scores(state, LINEARITY, packed.tie)
            standing = standings(scores, everyone, course.name_rank, packed.tie)
            write_round(
                packed,
                state,
                contests.pairs,
                scores,
                standing,
                resolved,
                course.name_rank,
                course.k,
                truth,
                record,
                patient,
                t,
            )
            if t == chosen.shape[1]:
                break
            if rule in (CLUSTERED, PRIORITY_CLUSTERS) and t % T_RE == 0:
                labels = _clusters(course, budgets.whole)
            if rule == RANDOM:
                feature = orders[patient, t]
            else:
                if course.rescore[t]:
                    if rule == LARGEST_UNARY:
                        worth = total_unary(packed, state)
                    else:
                        sight = Sight(contests.pairs, scores, standing, resolved, labels, course.name_rank, course.k)
                        weights = duel_weights(rule, packed, state, sight)
                        look(course, state, ahead, gains, weights, stale, stale_ahead)
                        worth = weighted_worth(gains, weights, packed.n_features)
                feature = best_feature(worth, state.observed, course.feature_rank)
                if feature == NONE:
                    feature = fallback_feature(packed, state, course.feature_rank)
                    fallback[patient, t] = True
            chosen[patient, t] = feature
            observe(packed, state, feature, values[patient, feature], course.iteration)
            refresh_after(packed, contests, state, budgets, feature, stale)
            for h in range(packed.first_holder[feature], packed.first_holder[feature + 1]):
                stale_ahead[packed.owner[packed.holder[h]]] = True


@kernel()
def look(
    course: Course,
    state: State,
    ahead: Ahead,
    gains: Gains,
    weights: Floats,
    stale: NDArray[np.bool_],
    stale_ahead: NDArray[np.bool_],
) -> None:
    """Bring the gains up to date of those duels that have a weight."""
    n = len(course.packed.prior)
    if course.kind not in (WALD_MAGNITUDE, CMI):
        needed = np.zeros(n, dtype=np.bool_)
        for p in range(len(weights)):
            if weights[p] > 0.0 and stale[p]:
                needed[gains.pairs[p, 0]] = needed[gains.pairs[p, 1]] = True
        needed &= stale_ahead
        solve_ahead(course.packed, state, ahead, needed, course.iteration)
        stale_ahead[needed] = False
    for p in range(len(weights)):
        if weights[p] > 0.0 and stale[p]:
            refresh_duel(course.packed, state, ahead, gains, course.empty, course.kind, p)
            stale[p] = False


@kernel()
def weighted_worth(gains: Gains, weights: Floats, n_features: int) -> Floats:
    """(M,) gains summed over the duels, each times its weight (eq:feature_selection)."""
    worth = np.zeros(n_features)
    for p in range(len(weights)):
        if weights[p] > 0.0:
            for i in range(gains.first[p], gains.first[p + 1]):
                worth[gains.feature[i]] += weights[p] * gains.gain[i]
    return worth


@kernel()
def _clusters(course: Course, budget: Floats) -> Indices:
    """Cluster labels from the distances between models, which are the budgets of their duels (spec A1)."""
    n = len(course.by_name)
    distance = np.zeros((n, n))
    for p in range(len(budget)):
        a, b = course.contests.pairs[p, 0], course.contests.pairs[p, 1]
        distance[a, b] = distance[b, a] = budget[p]
    return cluster_labels(distance, course.by_name, course.n_clusters, C_MIN)
