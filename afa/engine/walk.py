"""Observe the features of patients one by one, and write results after each observation, with compiled kernels.

The docstring of the package `afa.engine` lists the steps that the kernels take for each observation. A bit mask selects
the results. Arrays of results that are not requested are empty. The kernels use no callbacks, because numba cannot
cache a kernel with a function as argument.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from afa.engine.budgets import number_of, resolved_sign, update_budgets
from afa.engine.compile import INT, kernel
from afa.engine.duels import vote
from afa.engine.gains import NO_GAIN, add_up, bring_up_to_date
from afa.engine.layout import Packed, Pairs
from afa.engine.ranks import LINEARITY, Ranks, ranks_of, score_table
from afa.engine.rules import (
    CLUSTER_EVERY,
    CLUSTERED,
    GIVEN_ORDER,
    INFORMATION,
    LARGEST_UNARY,
    NONE,
    PRIORITY_CLUSTERS,
    SMALLEST_CLUSTER,
    RoundView,
    best_feature,
    cluster_labels,
    fallback_feature,
    information_of,
    total_unary,
    weigh,
)
from afa.engine.run import (
    CHANGED,
    CHOICE,
    LARGEST,
    MISSING,
    SOLVED,
    PathState,
    RunSettings,
    WalkResults,
    copy_path_state,
    write_round,
)
from afa.engine.state import State, condition, cross_of, solve_entity
from afa.engine.sweeps import Iteration
from afa.model.arrays import Bools, Codes, Floats, Ints


@kernel(entrance=True)
def walk(
    run: RunSettings,
    begin_at: PathState,
    values: Codes,
    results: WalkResults,
    paths: Ints,
    pattern: Ints,
    patterns: Bools,
) -> None:
    """Observe features along the given paths, and write results. A path is one patient with one order of observations.

    Paths with the same observations so far are processed together, depth first.

    Parameters
    ----------
    begin_at : solved state before any observation
    values : (P, M) int8, -1, 0, +1 or `MISSING`; path j belongs to patient j // (J / P)
    results : results to write; if orders are given, `results.order` contains them
    paths : (n,) int64, numbers of the paths
    pattern : (n,) int64, ascending, row in `patterns` of each path
    patterns : (m, M) bool, True for features without a measured value

    """
    members, keys, now = paths.copy(), np.empty(len(paths), dtype=np.int64), _new_round_view(run)
    # each entry describes a group of paths: the state, the number of observations, the number of written rows, the
    # start and end of the group in `members`, and True if the state may be changed
    waiting = [(begin_at, 0, 0, 0, 0, False)]
    first = 0
    for i in range(1, len(paths) + 1):
        if i == len(paths) or pattern[i] != pattern[first]:
            waiting.append((begin_at, 0, 0, first, i, False))
            first = i
    while len(waiting) > 0:
        path_state, t, row, begin, end, own = waiting.pop()
        if begin == end:
            continue
        if not own:
            path_state = copy_path_state(path_state)
        if t == 0:
            path_state.closed[:] = patterns[pattern[begin]]
        t, row, part = _walk_group(run, path_state, now, values, results, members[begin:end], keys[begin:end], t, row)
        if part:
            # part 0 is popped last. By then, all other parts have copied the state, so that part 0 may change it
            parts = np.flatnonzero(np.diff(keys[begin:end])) + begin + 1
            for i in range(len(parts) + 1):
                start, stop = parts[i - 1] if i else begin, parts[i] if i < len(parts) else end
                waiting.append((path_state, t, row, start, stop, i == 0))


@kernel(borrows=True)
def _walk_group(  # noqa: PLR0912 (the one loop of the engine)
    run: RunSettings,
    path_state: PathState,
    now: RoundView,
    values: Codes,
    results: WalkResults,
    members: Ints,
    keys: Ints,
    t: int,
    row: int,
) -> tuple[int, int, bool]:
    """Observe features for a group of paths with the same observations so far, until their next observations differ.

    The function also stops at the end of the paths. Observations count as the same if they have the same effect on the
    models of all entities. Return the number of observations, the number of written rows, and True if two paths of the
    group have different next observations.
    """
    packed, state, path, order = run.packed, path_state.state, members[0], results.order
    n_rounds, n_rows = order.shape[1], results.t.shape[1]
    patient = path // (len(order) // len(values))
    while True:
        number, changes = (results.t[path, t] if run.numbered else t), t == 0
        if t > 0:  # the numbers in comments are those of the steps in the docstring of `afa.engine`
            feature = order[path, t - 1]  # 1
            changes = feature != NONE and packed.first_feature_slot[feature] < packed.first_feature_slot[feature + 1]
            if feature != NONE and values[patient, feature] != MISSING and not state.observed[feature]:
                value = INT(values[patient, feature])
                if changes and run.voting:
                    vote(packed, state, path_state.votes, feature, value)
                condition(packed, state, feature, value)
                path_state.closed[feature] = True
                if packed.class_conditional:
                    for implied in range(len(path_state.closed)):
                        path_state.closed[implied] |= state.observed[implied]
                if changes and run.bounding:
                    update_budgets(packed, run.edges, state, path_state.budgets, feature)
                for h in range(packed.first_feature_slot[feature], packed.first_feature_slot[feature + 1]):
                    path_state.of_entity[CHANGED, packed.owner[packed.feature_slots[h]]] = number
        is_requested = run.rounds_requested[t] and (changes or not run.only_changes)
        chooses = t < n_rounds and run.rule != GIVEN_ORDER
        if t % CLUSTER_EVERY == 0 and run.rule in (CLUSTERED, PRIORITY_CLUSTERS):  # 2
            _cluster_entities(run.pairs, path_state.budgets.whole[0], run.name_rank, path_state.labels)
        if is_requested or (chooses and run.rescore[t]) or (run.requested & CHOICE) != 0:
            _solve_changed(packed, state, path_state.of_entity, run.iteration, run.needs_cross, number)  # 3
            if run.ranking or run.bounding:
                _update_round_view(run, path_state, now)  # 4
            if run.kind != NO_GAIN:
                _refresh_gains(run, path_state, now, order, members, t, number)  # 5
        if is_requested:
            write_round(run, path_state, now, number, results, path, row)  # 6
            for member in members:
                results.source[member, row] = path
            row += 1
        if t == n_rounds or row == n_rows:
            return t, row, False
        if chooses:
            t = _choose_feature(run, path_state, results, members, t)  # 7
        if run.requested & CHOICE:
            for member in members:
                results.chosen_gain[member, t] = _chosen_gain(run, path_state, now, order[member, t])
        t += 1
        if len(members) > 1:
            rounds = results.t if run.numbered else results.t[:, :0]
            if _sort_by_observation(packed.first_feature_slot, values, order, rounds, members, keys, t):  # 8
                return t, row, True


@kernel()
def _new_round_view(run: RunSettings) -> RoundView:
    """Return a `RoundView` whose arrays are 0, for the kernels to fill."""
    n, q = len(run.name_rank), len(run.pairs)
    ranks = Ranks(np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64))
    inside, resolved = np.zeros(n, dtype=np.bool_), np.zeros(q, dtype=np.bool_)
    scores, lead, weights, wanted = np.zeros((n, n)), np.zeros(q), np.zeros(q), np.zeros(q, dtype=np.bool_)
    return RoundView(run.pairs, run.name_rank, run.k, scores, ranks, lead, resolved, inside, weights, wanted)


@kernel()
def _sort_by_observation(
    first_feature_slot: Ints,
    values: Codes,
    order: Ints,
    rounds: NDArray[np.int32],
    members: Ints,
    keys: Ints,
    t: int,
) -> bool:
    """Return True if the t-th observations of the paths in `members` differ, after sorting the paths by observation.

    If all observations are the same, the paths are not sorted. For a feature outside all supports, different values
    count as the same observation.

    Parameters
    ----------
    rounds : (J, T) int32, number of observations at each step, which must also be equal; T is 0 if
        `RunSettings.numbered` is False
    members : (n,) int64, indices of the paths, sorted in place
    keys : (n,) int64, integer that identifies each path's observation, written

    """
    orders_each, n_rounds = len(order) // max(len(values), 1), len(first_feature_slot)
    for i in range(len(members)):
        feature = order[members[i], t - 1]
        held = feature != NONE and first_feature_slot[feature] < first_feature_slot[feature + 1]
        value = values[members[i] // orders_each, feature] if held else -1
        keys[i] = 3 * feature + (0 if value == MISSING else value + 1)  # the paths have the same missing features
        keys[i] = keys[i] * n_rounds + (rounds[members[i], t] if rounds.shape[1] else 0)
    if np.all(keys == keys[0]):
        return False
    by_key = np.argsort(keys * len(keys) + np.arange(len(keys)))
    members[:] = members[by_key]
    keys[:] = keys[by_key]
    return True


@kernel(inline=True)
def _solve_changed(
    packed: Packed, state: State, of_entity: Ints, iteration: Iteration, needs_cross: bool, t: int
) -> None:
    """Run mean-field on each entity's model that an observation has changed since the last run."""
    n = len(packed.prior)
    for entity in range(n):
        if of_entity[CHANGED, entity] > of_entity[SOLVED, entity]:
            solve_entity(packed, state, entity, iteration)
    for entity in range(n):
        if of_entity[CHANGED, entity] > of_entity[SOLVED, entity]:
            of_entity[SOLVED, entity] = t
            if needs_cross:
                cross_of(packed, state, entity)


@kernel(inline=True)
def _update_round_view(run: RunSettings, path_state: PathState, now: RoundView) -> None:
    """Write into `now` the scores, the ranks and the resolved duels (entity pairs), if the run needs them."""
    state, tie = path_state.state, run.packed.tie
    if run.ranking:
        _write_scores_and_ranks(state, run.name_rank, tie, now.scores, now.ranks)
    if run.bounding:
        # reading these fields of the tuples inside the loop would take longer than the subtractions
        pairs, constant, offset, whole = run.pairs, state.constant, run.offset, path_state.budgets.whole
        lead, resolved = now.lead, now.resolved
        for p in range(len(pairs)):
            a, b = pairs[p, 0], pairs[p, 1]
            lead[p] = constant[a] - constant[b]
            calibrated = lead[p] - (offset[a] - offset[b])
            resolved[p] = resolved_sign(calibrated, whole[0, p], whole[1, p], tie) != 0


@kernel()
def _write_scores_and_ranks(state: State, name_rank: Ints, tie: float, scores: Floats, ranks: Ranks) -> None:
    """Write the scores of all entity pairs by `linearity`, and the ranks by these scores."""
    scores[:] = score_table(state, INT(LINEARITY), tie, INT(0))
    found = ranks_of(scores, np.arange(len(scores)), name_rank, tie)
    ranks.order[:] = found.order
    ranks.place[:] = found.place


@kernel(inline=True)
def _refresh_gains(
    run: RunSettings, path_state: PathState, now: RoundView, order: Ints, members: Ints, t: int, number: int
) -> None:
    """Compute the gains that are needed at this step.

    If the rule chooses features by gains, also compute the weighted sum of each feature's gains over all entity
    pairs.
    """
    rescores = t < len(run.rescore) and run.rescore[t] and run.rule not in (GIVEN_ORDER, LARGEST_UNARY, INFORMATION)
    if not rescores and run.requested & (LARGEST | CHOICE) == 0:
        return
    weights, wanted = now.weights, now.wanted
    weights[:] = 0.0
    if rescores:
        weigh(run.rule, run.packed, path_state.state, path_state.labels, now)
    for p in range(len(wanted)):
        wanted[p] = weights[p] > 0.0 or (run.requested & LARGEST and not now.resolved[p])
    if run.requested & CHOICE and t < order.shape[1]:
        for member in members:
            _mark_wanted_duels(run, now, order[member, t])
    packed, state, lookahead, gains = run.packed, path_state.state, path_state.lookahead, path_state.gains
    empty, kind, iteration, changed_at = run.empty, run.kind, run.iteration, path_state.of_entity[CHANGED]
    bring_up_to_date(packed, state, lookahead, gains, empty, kind, iteration, wanted, changed_at, number)
    if rescores:
        add_up(gains, weights, path_state.feature_gain)


@kernel(inline=True)
def _choose_feature(run: RunSettings, path_state: PathState, results: WalkResults, members: Ints, t: int) -> int:
    """Write the chosen feature, and write to `fallback` whether no feature had a positive gain.

    If `only_changes` is True and the chosen feature is outside all supports, `fallback_feature` chooses further
    features until one is in a support. Return the position of the last chosen feature in the order of observation.
    """
    packed, closed = run.packed, path_state.closed
    if run.rule in (LARGEST_UNARY, INFORMATION) and run.rescore[t]:
        _score_features_without_duels(run.rule, packed, path_state.state, run.empty, path_state.feature_gain)
    feature = best_feature(path_state.feature_gain, closed, run.feature_rank)
    while True:
        fallback = feature == NONE
        if fallback:
            feature = fallback_feature(packed, path_state.state, closed, run.feature_rank)
        for member in members:
            results.order[member, t], results.fallback[member, t] = feature, fallback
        held = feature != NONE and packed.first_feature_slot[feature] < packed.first_feature_slot[feature + 1]
        if held or not run.only_changes or t + 1 == results.order.shape[1]:
            break
        if feature != NONE:
            path_state.state.observed[feature] = closed[feature] = True
        feature, t = NONE, t + 1
    return t


@kernel()
def _score_features_without_duels(rule: int, packed: Packed, state: State, empty: Floats, total: Floats) -> None:
    """Write for each feature the quantity that the rule `largest_unary` or `information` maximises."""
    total[:] = information_of(packed, state, empty) if rule == INFORMATION else total_unary(packed, state)


@kernel()
def _cluster_entities(pairs: Pairs, budget: Floats, name_rank: Ints, labels: Ints) -> None:
    """Write the cluster of each entity.

    The distance between two entities is a bound on how far the unobserved features can still lower the log-odds D of
    the pair.
    """
    n = len(name_rank)
    distance = np.zeros((n, n))
    for p in range(len(budget)):
        a, b = pairs[p, 0], pairs[p, 1]
        distance[a, b] = distance[b, a] = budget[p]
    n_clusters = math.ceil(math.sqrt(n))
    labels[:] = cluster_labels(distance, np.argsort(name_rank), n_clusters, INT(SMALLEST_CLUSTER))


@kernel(borrows=True)
def _mark_wanted_duels(run: RunSettings, now: RoundView, feature: int) -> None:
    """Mark the unresolved duels with at least one entity that has the feature in its support.

    The gain of the feature is 0 for a duel (entity pair) if the feature is outside both supports.
    """
    packed, n = run.packed, len(run.name_rank)
    if feature == NONE:
        return
    for h in range(packed.first_feature_slot[feature], packed.first_feature_slot[feature + 1]):
        one = packed.owner[packed.feature_slots[h]]
        for other in range(n):
            if other != one:
                p = number_of(n, one, other)
                now.wanted[p] |= not now.resolved[p]


@kernel(borrows=True)
def _chosen_gain(run: RunSettings, path_state: PathState, now: RoundView, feature: int) -> float:
    """Return the gain of one feature, as `WalkResults.chosen_gain` defines it."""
    packed, gains, total = run.packed, path_state.gains, 0.0
    if feature == NONE or path_state.closed[feature]:
        return total
    if run.kind == NO_GAIN:
        for h in range(packed.first_feature_slot[feature], packed.first_feature_slot[feature + 1]):
            total += abs(path_state.state.field[packed.feature_slots[h]])
        return total
    now.wanted[:] = False
    _mark_wanted_duels(run, now, feature)
    for p in range(len(now.wanted)):
        if now.wanted[p]:
            for i in range(gains.first[p], gains.first[p + 1]):
                if gains.feature[i] == feature:
                    total += gains.gain[i]
    return total
