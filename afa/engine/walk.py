"""The compiled walk: run patients from one observation to the next and write results on the way.

Every cohort of patients runs through this loop: *choose* a feature (by an allocation rule or a given order), *observe*
the feature, *solve* the entities with the feature in their support, *write* the requested results. Patients with equal
histories are computed together until their values or given orders differ. A mask of integers selects the results, and
arrays of other results are empty. A callback would be simpler, but numba cannot cache a kernel with a function as
argument. `afa.engine.follow` has the two entry points.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from afa.engine.budgets import number_of, settled, update_budgets
from afa.engine.compile import INT, kernel
from afa.engine.course import (
    CHANGED,
    CHOICE,
    LARGEST,
    MISSING,
    SOLVED,
    Followed,
    Moment,
    RunSettings,
    copy_moment,
    read_round,
)
from afa.engine.duels import vote
from afa.engine.gains import NO_GAIN, add_up, bring_up_to_date
from afa.engine.layout import Indices, Packed, Pairs
from afa.engine.ranks import LINEARITY, Ranks, ranks_of, score_table
from afa.engine.rules import (
    C_MIN,
    CLUSTERED,
    GIVEN,
    INFORMATION,
    LARGEST_UNARY,
    NONE,
    PRIORITY_CLUSTERS,
    T_RE,
    Sight,
    best_feature,
    cluster_labels,
    fallback_feature,
    information_of,
    total_unary,
    weigh,
)
from afa.engine.state import State, condition, cross_of, solve_entity
from afa.engine.sweeps import Iteration
from afa.model.mrf import Floats


@kernel(entrance=True)
def walk(
    course: RunSettings,
    begin_at: Moment,
    values: NDArray[np.int8],
    followed: Followed,
    paths: Indices,
    pattern: Indices,
    patterns: NDArray[np.bool_],
) -> None:
    """Run some paths depth first, paths with the same history together.

    Parameters
    ----------
    begin_at : state before any observation, solved
    values : (P, M) int8; path j belongs to patient j // (J / P)
    followed : results, written; `followed.order` has the orders where they are given
    paths : (n,) int64, numbers of the paths
    pattern : (n,) int64, ascending, row of `patterns` for each path
    patterns : (m, M) bool, features not measured

    """
    members, keys, now = paths.copy(), np.empty(len(paths), dtype=np.int64), _room(course)
    # patient state, observations, rows written, range of the members, True if the state may be changed in place
    waiting = [(begin_at, 0, 0, 0, 0, False)]
    first = 0
    for i in range(1, len(paths) + 1):
        if i == len(paths) or pattern[i] != pattern[first]:
            waiting.append((begin_at, 0, 0, first, i, False))
            first = i
    while len(waiting) > 0:
        moment, t, row, begin, end, own = waiting.pop()
        if begin == end:
            continue
        if not own:
            moment = copy_moment(moment)
        if t == 0:
            moment.closed[:] = patterns[pattern[begin]]
        t, row, part = _walk_on(course, moment, now, values, followed, members[begin:end], keys[begin:end], t, row)
        if part:
            # last in, first out: only the first part may change the state in place, after all others have copied it
            parts = np.flatnonzero(np.diff(keys[begin:end])) + begin + 1
            for i in range(len(parts) + 1):
                start, stop = parts[i - 1] if i else begin, parts[i] if i < len(parts) else end
                waiting.append((moment, t, row, start, stop, i == 0))


@kernel(borrows=True)
def _walk_on(  # noqa: PLR0912 (the one loop of the engine)
    course: RunSettings,
    moment: Moment,
    now: Sight,
    values: NDArray[np.int8],
    followed: Followed,
    members: Indices,
    keys: Indices,
    t: int,
    row: int,
) -> tuple[int, int, bool]:
    """Run paths of one history until they differ or end.

    Return t, the number of rows written, and True if the paths differ.
    """
    packed, state, path, order = course.packed, moment.state, members[0], followed.order
    n_rounds, n_rows = order.shape[1], followed.t.shape[1]
    patient = path // (len(order) // len(values))
    while True:
        number, changes = (followed.t[path, t] if course.numbered else t), t == 0
        if t > 0:
            feature = order[path, t - 1]
            changes = feature != NONE and packed.first_holder[feature] < packed.first_holder[feature + 1]
            if feature != NONE and values[patient, feature] != MISSING and not state.observed[feature]:
                value = INT(values[patient, feature])
                if changes and course.voting:
                    vote(packed, state, moment.votes, feature, value)
                condition(packed, state, feature, value)
                moment.closed[feature] = True
                if packed.stated:
                    for implied in range(len(moment.closed)):
                        moment.closed[implied] |= state.observed[implied]
                if changes and course.bounding:
                    update_budgets(packed, course.edges, state, moment.budgets, feature)
                for h in range(packed.first_holder[feature], packed.first_holder[feature + 1]):
                    moment.of_entity[CHANGED, packed.owner[packed.holder[h]]] = number
        is_read = course.asked[t] and (changes or not course.only_changes)
        chooses = t < n_rounds and course.rule != GIVEN
        if t % T_RE == 0 and course.rule in (CLUSTERED, PRIORITY_CLUSTERS):
            _cluster(course.pairs, moment.budgets.whole[0], course.name_rank, moment.labels)
        if is_read or (chooses and course.rescore[t]) or (course.reads & CHOICE) != 0:
            _settle(packed, state, moment.of_entity, course.iteration, course.crossing, number)
            if course.ranking or course.bounding:
                _look_at(course, moment, now)
            if course.kind != NO_GAIN:
                _bring_gains_up_to_date(course, moment, now, order, members, t, number)
        if is_read:
            read_round(course, moment, now, number, followed, path, row)
            for member in members:
                followed.source[member, row] = path
            row += 1
        if t == n_rounds or row == n_rows:
            return t, row, False
        if chooses:
            t = _choose(course, moment, followed, members, t)
        if course.reads & CHOICE:
            for member in members:
                followed.worth[member, t] = _gain_of(course, moment, now, order[member, t])
        t += 1
        if len(members) > 1:
            rounds = followed.t if course.numbered else followed.t[:, :0]
            if not _keep_together(packed.first_holder, values, order, rounds, members, keys, t):
                return t, row, True


@kernel()
def _room(course: RunSettings) -> Sight:
    """Return an empty view for the quantities of one round."""
    n, q = len(course.name_rank), len(course.pairs)
    ranks = Ranks(np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64))
    inside, resolved = np.zeros(n, dtype=np.bool_), np.zeros(q, dtype=np.bool_)
    scores, lead, weights, wanted = np.zeros((n, n)), np.zeros(q), np.zeros(q), np.zeros(q, dtype=np.bool_)
    return Sight(course.pairs, course.name_rank, course.k, scores, ranks, lead, resolved, inside, weights, wanted)


@kernel()
def _keep_together(
    first_holder: Indices,
    values: NDArray[np.int8],
    order: Indices,
    rounds: NDArray[np.int32],
    members: Indices,
    keys: Indices,
    t: int,
) -> bool:
    """Return True if all members make the same t-th observation; otherwise sort the members by observation.

    Values outside every support do not distinguish members.

    Parameters
    ----------
    rounds : (J, T) int32, number of the t-th round, which also distinguishes observations; T = 0 where rounds are not
        numbered
    members : (n,) int64, paths; sorted in place
    keys : (n,) int64, key of each member's observation; written

    """
    orders_each, n_rounds = len(order) // max(len(values), 1), len(first_holder)
    for i in range(len(members)):
        feature = order[members[i], t - 1]
        held = feature != NONE and first_holder[feature] < first_holder[feature + 1]
        value = values[members[i] // orders_each, feature] if held else -1
        keys[i] = 3 * feature + (0 if value == MISSING else value + 1)  # missing for all members or for none
        keys[i] = keys[i] * n_rounds + (rounds[members[i], t] if rounds.shape[1] else 0)
    if np.all(keys == keys[0]):
        return True
    by_key = np.argsort(keys * len(keys) + np.arange(len(keys)))
    members[:] = members[by_key]
    keys[:] = keys[by_key]
    return False


@kernel(inline=True)
def _settle(packed: Packed, state: State, of_entity: Indices, iteration: Iteration, crossing: bool, t: int) -> None:
    """Solve the entities that have changed since their last solve."""
    n = len(packed.prior)
    for entity in range(n):
        if of_entity[CHANGED, entity] > of_entity[SOLVED, entity]:
            solve_entity(packed, state, entity, iteration)
    for entity in range(n):
        if of_entity[CHANGED, entity] > of_entity[SOLVED, entity]:
            of_entity[SOLVED, entity] = t
            if crossing:
                cross_of(packed, state, entity)


@kernel(inline=True)
def _look_at(course: RunSettings, moment: Moment, now: Sight) -> None:
    """Write those scores, ranks and resolved duels of a solved state that the run needs."""
    state, tie = moment.state, course.packed.tie
    if course.ranking:
        _rank(state, course.name_rank, tie, now.scores, now.ranks)
    if course.bounding:
        # unpack the tuples here: inside the loop, unpacking would cost more than the differences
        pairs, constant, offset, whole = course.pairs, state.constant, course.offset, moment.budgets.whole
        lead, resolved = now.lead, now.resolved
        for p in range(len(pairs)):
            a, b = pairs[p, 0], pairs[p, 1]
            lead[p] = constant[a] - constant[b]
            calibrated = lead[p] - (offset[a] - offset[b])
            resolved[p] = settled(calibrated, whole[0, p], whole[1, p], tie) != 0


@kernel()
def _rank(state: State, name_rank: Indices, tie: float, scores: Floats, ranks: Ranks) -> None:
    """Write the scores and the ranks by `linearity`."""
    scores[:] = score_table(state, INT(LINEARITY), tie, INT(0))
    found = ranks_of(scores, np.arange(len(scores)), name_rank, tie)
    ranks.order[:] = found.order
    ranks.place[:] = found.place


@kernel(inline=True)
def _bring_gains_up_to_date(
    course: RunSettings, moment: Moment, now: Sight, order: Indices, members: Indices, t: int, number: int
) -> None:
    """Compute the gains that this round needs, and their sums for the rule."""
    rescores = t < len(course.rescore) and course.rescore[t] and course.rule not in (GIVEN, LARGEST_UNARY, INFORMATION)
    if not rescores and course.reads & (LARGEST | CHOICE) == 0:
        return
    weights, wanted = now.weights, now.wanted
    weights[:] = 0.0
    if rescores:
        weigh(course.rule, course.packed, moment.state, moment.labels, now)
    for p in range(len(wanted)):
        wanted[p] = weights[p] > 0.0 or (course.reads & LARGEST and not now.resolved[p])
    if course.reads & CHOICE and t < order.shape[1]:
        for member in members:
            _want(course, now, order[member, t])
    packed, state, lookahead, gains = course.packed, moment.state, moment.lookahead, moment.gains
    empty, kind, iteration, changed_at = course.empty, course.kind, course.iteration, moment.of_entity[CHANGED]
    bring_up_to_date(packed, state, lookahead, gains, empty, kind, iteration, wanted, changed_at, number)
    if rescores:
        add_up(gains, weights, moment.worth)


@kernel(inline=True)
def _choose(course: RunSettings, moment: Moment, followed: Followed, members: Indices, t: int) -> int:
    """Write the chosen feature and whether the choice was a fallback; return the round in which it is observed.

    With `only_changes` the fallback is repeated, one round later each time, until the feature lies in the support of
    some entity.
    """
    packed, closed = course.packed, moment.closed
    if course.rule in (LARGEST_UNARY, INFORMATION) and course.rescore[t]:
        _rate_without_duels(course.rule, packed, moment.state, course.empty, moment.worth)
    feature = best_feature(moment.worth, closed, course.feature_rank)
    while True:
        fallback = feature == NONE
        if fallback:
            feature = fallback_feature(packed, moment.state, closed, course.feature_rank)
        for member in members:
            followed.order[member, t], followed.fallback[member, t] = feature, fallback
        held = feature != NONE and packed.first_holder[feature] < packed.first_holder[feature + 1]
        if held or not course.only_changes or t + 1 == followed.order.shape[1]:
            break
        if feature != NONE:
            moment.state.observed[feature] = closed[feature] = True
        feature, t = NONE, t + 1
    return t


@kernel()
def _rate_without_duels(rule: int, packed: Packed, state: State, empty: Floats, total: Floats) -> None:
    """Write the quantity that a rule without duels maximises, (M,): the total unary, or the information."""
    total[:] = information_of(packed, state, empty) if rule == INFORMATION else total_unary(packed, state)


@kernel()
def _cluster(pairs: Pairs, budget: Floats, name_rank: Indices, labels: Indices) -> None:
    """Write cluster labels, (N,); the distances between models are the budgets of their duels."""
    n = len(name_rank)
    distance = np.zeros((n, n))
    for p in range(len(budget)):
        a, b = pairs[p, 0], pairs[p, 1]
        distance[a, b] = distance[b, a] = budget[p]
    labels[:] = cluster_labels(distance, np.argsort(name_rank), math.ceil(math.sqrt(n)), C_MIN)


@kernel(borrows=True)
def _want(course: RunSettings, now: Sight, feature: int) -> None:
    """Mark the unresolved duels with a feature in the support of one of their entities; other duels gain nothing."""
    packed, n = course.packed, len(course.name_rank)
    if feature == NONE:
        return
    for h in range(packed.first_holder[feature], packed.first_holder[feature + 1]):
        one = packed.owner[packed.holder[h]]
        for other in range(n):
            if other != one:
                p = number_of(n, one, other)
                now.wanted[p] |= not now.resolved[p]


@kernel(borrows=True)
def _gain_of(course: RunSettings, moment: Moment, now: Sight, feature: int) -> float:
    """Return the gain of one feature, as defined at `Followed.worth`."""
    packed, gains, total = course.packed, moment.gains, 0.0
    if feature == NONE or moment.closed[feature]:
        return total
    if course.kind == NO_GAIN:
        for h in range(packed.first_holder[feature], packed.first_holder[feature + 1]):
            total += abs(moment.state.field[packed.holder[h]])
        return total
    now.wanted[:] = False
    _want(course, now, feature)
    for p in range(len(now.wanted)):
        if now.wanted[p]:
            for i in range(gains.first[p], gains.first[p + 1]):
                if gains.feature[i] == feature:
                    total += gains.gain[i]
    return total
