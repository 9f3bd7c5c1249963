"""The compiled walk: patients followed from one observation to the next, and what is read of them on the way.

Every cohort of patients goes through this one loop: *choose* a feature (an allocation rule, of which the given order
is one), *observe* it, *solve* the entities that hold it, *read* what was asked for. Patients of equal histories are
walked once and part where their values, or their given orders, first differ. What is read is a mask of whole numbers,
and arrays that are empty where nothing is: a function as an argument of a kernel would keep its machine code out of
the cache. `afa.engine.follow` has the two entrances.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from afa.engine.budgets import update_budgets
from afa.engine.compile import kernel
from afa.engine.course import CHOICE, LARGEST, SOLVES, Course, Followed, Moment, Now, copy_moment
from afa.engine.duels import number_of, vote
from afa.engine.gains import CMI, NO_GAIN, WALD_MAGNITUDE, Gains, add_up, refresh_duel
from afa.engine.layout import Indices, Packed
from afa.engine.linkage import C_MIN, T_RE, cluster_labels
from afa.engine.lookahead import Lookahead, solve_lookahead
from afa.engine.ranks import LINEARITY, Ranks, ranks_of, score_table
from afa.engine.reading import read_round
from afa.engine.rules import (
    CLUSTERED,
    GIVEN,
    LARGEST_UNARY,
    NONE,
    PRIORITY_CLUSTERS,
    Sight,
    best_feature,
    duel_weights,
    fallback_feature,
    total_unary,
)
from afa.engine.state import (
    Iteration,
    State,
    condition,
    cross_of,
    solve_entity,
)
from afa.mrf import Floats


@kernel()
def walk(  # noqa: PLR0912 (the one loop of the engine)
    course: Course, begin_at: Moment, values: NDArray[np.int8], followed: Followed, first: int, last: int
) -> None:
    """Walk the paths first to last - 1 depth first, those of one history together.

    begin_at : the moment before any observation, all solved. values : (P, M); path j is of patient j // (J / P).
    `followed.order` has the orders where they are given.
    """
    packed, n_rounds, n_rows = course.packed, followed.order.shape[1], followed.t.shape[1]
    orders_each = len(followed.order) // max(len(values), 1)
    members, keys = np.arange(first, last), np.empty(last - first, dtype=np.int64)
    # moment, observations, rows read, the members' places, whether the moment may be changed
    waiting = [(begin_at, 0, 0, 0, last - first, False)]
    while len(waiting) > 0:
        moment, t, row, begin, end, own = waiting.pop()
        if not own:
            moment = copy_moment(moment)
        walking = begin < end
        while walking:
            path = members[begin]
            changes = t == 0
            if t > 0:
                feature = followed.order[path, t - 1]
                changes = packed.first_holder[feature] < packed.first_holder[feature + 1]
                _take_in(course, moment, feature, values[path // orders_each, feature])
            is_read = course.asked[t] and (changes or not course.only_changes)
            chooses = t < n_rounds and course.rule != GIVEN
            looks = is_read or (chooses and course.rescore[t]) or (course.reads & CHOICE) != 0
            if looks:
                _settle(course, moment, followed, t, path, row if is_read else -1)
            now = _look_at(course, moment, looks)
            if t % T_RE == 0 and course.rule in (CLUSTERED, PRIORITY_CLUSTERS):
                moment.labels[:] = _clusters(course, moment.budgets.whole)
            if looks and course.kind != NO_GAIN:
                _bring_gains_up_to_date(course, moment, now, followed, members[begin:end], t)
            if is_read:
                read_round(course, moment, now, followed.t[path, row] if course.numbered else t, followed, path, row)
                for i in range(begin, end):
                    followed.source[members[i], row] = path
                row += 1
            if t == n_rounds or row == n_rows:
                break
            if chooses:
                t = _choose(course, moment, followed, members[begin:end], t)
            if course.reads & CHOICE:
                for i in range(begin, end):
                    followed.worth[members[i], t] = _gain_of(course, moment, now, followed.order[members[i], t])
            t += 1
            if end - begin > 1:
                rounds = followed.t if course.numbered else followed.t[:, :0]
                part, key = members[begin:end], keys[begin:end]
                walking = _keep_together(packed.first_holder, values, followed.order, rounds, part, key, t)
                if not walking:
                    # last in, first out: the first part alone may change the moment, once all others have copied it
                    parts = np.flatnonzero(np.diff(keys[begin:end])) + begin + 1
                    for i in range(len(parts) + 1):
                        start, stop = parts[i - 1] if i else begin, parts[i] if i < len(parts) else end
                        waiting.append((moment, t, row, start, stop, i == 0))


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
    """Whether the members see the same as their t-th observation; if not they are sorted by what they see.

    rounds : (J, T) what tells a t-th observation from another of the same value, or with T = 0 nothing. keys : what
    each sees, written here, as long as `members`. A value that no entity looks at is not seen.
    """
    orders_each, n_rounds = len(order) // max(len(values), 1), len(first_holder)
    for i in range(len(members)):
        feature = order[members[i], t - 1]
        held = first_holder[feature] < first_holder[feature + 1]
        keys[i] = 3 * feature + (values[members[i] // orders_each, feature] + 1 if held else 0)
        keys[i] = keys[i] * n_rounds + (rounds[members[i], t] if rounds.shape[1] else 0)
    if np.all(keys == keys[0]):
        return True
    by_key = np.argsort(keys * len(keys) + np.arange(len(keys)))
    members[:] = members[by_key]
    keys[:] = keys[by_key]
    return False


@kernel(inline=True)
def _take_in(course: Course, moment: Moment, feature: int, value: int) -> None:
    """Condition on one feature and mark what that puts out of date (App. supp:updatemrf)."""
    packed, state, n = course.packed, moment.state, len(course.packed.prior)
    if course.voting:
        vote(packed, state, moment.votes, feature, value)
    condition(packed, state, feature, value)
    if course.bounding:
        update_budgets(packed, course.edges, state, moment.budgets, feature)
    for h in range(packed.first_holder[feature], packed.first_holder[feature + 1]):
        one = packed.owner[packed.holder[h]]
        moment.unsolved[one] = moment.stale_ahead[one] = True
        for other in range(n):
            if other != one:
                p = number_of(n, one, other)
                moment.stale[p] = moment.stale_variance[p] = moment.stale_calls[p] = True


@kernel(inline=True)
def _settle(course: Course, moment: Moment, followed: Followed, t: int, path: int, row: int) -> None:
    """Solve the entities that observations have changed; how that went is written to `row`, unless it is -1."""
    packed, state, unsolved = course.packed, moment.state, moment.unsolved
    for entity in range(len(unsolved)):
        if unsolved[entity]:
            solve_entity(packed, state, entity, course.iteration)
        if row >= 0 and (course.reads & SOLVES) and (unsolved[entity] or t == 0):
            followed.iterations[path, row, entity] = state.iterations[entity]
            followed.ascended[path, row, entity] = state.ascended[entity]
    for entity in range(len(unsolved)):
        if unsolved[entity] and course.crossing:
            cross_of(packed, state, entity)
        unsolved[entity] = False


@kernel(inline=True)
def _look_at(course: Course, moment: Moment, looks: bool) -> Now:
    """The scores, ranks and resolved duels of a moment that is settled; empty unless it `looks` and needs them."""
    state, tie, nobody = moment.state, course.packed.tie, np.empty(0, dtype=np.int64)
    scores, ranks = np.empty((0, 0)), Ranks(nobody, nobody)
    if looks and course.ranking:
        scores = score_table(state, LINEARITY, tie, 0)
        ranks = ranks_of(scores, np.arange(len(scores)), course.name_rank, tie)
    pairs = course.pairs[: len(course.pairs) if looks and course.bounding else 0]
    lead, resolved = np.empty(len(pairs)), np.zeros(len(pairs), dtype=np.bool_)
    for p in range(len(pairs)):
        a, b = pairs[p]
        lead[p] = state.constant[a] - state.constant[b]
        resolved[p] = abs(lead[p] - (course.offset[a] - course.offset[b])) > moment.budgets.whole[p] + tie
    return Now(scores, ranks, lead, resolved)


@kernel(inline=True)
def _bring_gains_up_to_date(
    course: Course, moment: Moment, now: Now, followed: Followed, members: Indices, t: int
) -> None:
    """Compute the gains that are looked at in this round, and sum them up for the rule."""
    rescores = t < len(course.rescore) and course.rescore[t] and course.rule not in (GIVEN, LARGEST_UNARY)
    weights = np.zeros(len(course.pairs))
    if rescores:
        sight = Sight(course.pairs, now.scores, now.ranks, now.resolved, moment.labels, course.name_rank, course.k)
        weights = duel_weights(course.rule, course.packed, moment.state, sight)
    wanted = weights > 0.0
    if course.reads & LARGEST:
        wanted |= ~now.resolved
    if course.reads & CHOICE and t < followed.order.shape[1]:
        for member in members:
            _want(course, now, followed.order[member, t], wanted)
    _refresh_gains(
        course.packed,
        moment.state,
        moment.gains,
        moment.lookahead,
        moment.stale,
        moment.stale_ahead,
        course.empty,
        course.kind,
        course.iteration,
        wanted,
    )
    if rescores:
        add_up(moment.gains, weights, moment.worth)


@kernel(inline=True)
def _choose(course: Course, moment: Moment, followed: Followed, members: Indices, t: int) -> int:
    """Write the feature that the rule asks for, and whether it had no candidate with any gain left; returns its t.

    With `only_changes` features that no entity holds are passed over until one is held: the rule falls back again.
    """
    packed, observed = course.packed, moment.state.observed
    if course.rule == LARGEST_UNARY and course.rescore[t]:
        moment.worth[:] = total_unary(packed, moment.state)
    feature = best_feature(moment.worth, observed, course.feature_rank)
    while True:
        fallback = feature == NONE
        if fallback:
            feature = fallback_feature(packed, moment.state, course.feature_rank)
        for member in members:
            followed.order[member, t], followed.fallback[member, t] = feature, fallback
        held = packed.first_holder[feature] < packed.first_holder[feature + 1]
        if held or not course.only_changes or t + 1 == followed.order.shape[1]:
            break
        observed[feature], feature, t = True, NONE, t + 1
    return t


@kernel()
def _clusters(course: Course, budget: Floats) -> Indices:
    """Cluster labels from the distances between models, which are the budgets of their duels."""
    n = len(course.by_name)
    distance = np.zeros((n, n))
    for p in range(len(budget)):
        a, b = course.pairs[p, 0], course.pairs[p, 1]
        distance[a, b] = distance[b, a] = budget[p]
    return cluster_labels(distance, course.by_name, course.n_clusters, C_MIN)


@kernel()
def _want(course: Course, now: Now, feature: int, wanted: NDArray[np.bool_]) -> None:
    """Mark the open duels that have an entity that holds a feature: no other has anything to gain from it."""
    packed, n = course.packed, len(course.by_name)
    for h in range(packed.first_holder[feature], packed.first_holder[feature + 1]):
        one = packed.owner[packed.holder[h]]
        for other in range(n):
            if other != one:
                p = number_of(n, one, other)
                wanted[p] |= not now.resolved[p]


@kernel()
def _refresh_gains(
    packed: Packed,
    state: State,
    gains: Gains,
    lookahead: Lookahead,
    stale: NDArray[np.bool_],
    stale_ahead: NDArray[np.bool_],
    empty: Floats,
    kind: int,
    iteration: Iteration,
    wanted: NDArray[np.bool_],
) -> None:
    """Bring the gains of the wanted duels up to date."""
    if kind not in (WALD_MAGNITUDE, CMI):
        needed = np.zeros(len(packed.prior), dtype=np.bool_)
        for p in range(len(wanted)):
            if wanted[p] and stale[p]:
                needed[gains.pairs[p, 0]] = needed[gains.pairs[p, 1]] = True
        needed &= stale_ahead
        solve_lookahead(packed, state, lookahead, needed, iteration)
        stale_ahead[needed] = False
    for p in range(len(wanted)):
        if wanted[p] and stale[p]:
            refresh_duel(packed, state, lookahead, gains, empty, kind, p)
            stale[p] = False


@kernel()
def _gain_of(course: Course, moment: Moment, now: Now, feature: int) -> float:
    """What one feature has to gain: `Followed.worth`."""
    packed, gains, total = course.packed, moment.gains, 0.0
    if course.kind == NO_GAIN:
        for h in range(packed.first_holder[feature], packed.first_holder[feature + 1]):
            total += abs(moment.state.field[packed.holder[h]])
        return total
    wanted = np.zeros(len(now.resolved), dtype=np.bool_)
    _want(course, now, feature, wanted)
    for p in np.flatnonzero(wanted):
        for i in range(gains.first[p], gains.first[p + 1]):
            if gains.feature[i] == feature:
                total += gains.gain[i]
    return total
