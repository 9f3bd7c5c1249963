"""What is read of one patient in one round of the compiled walk."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from afa.engine.brackets import bracket_calls, vote_call
from afa.engine.compile import kernel
from afa.engine.course import (
    BOUNDARY,
    CALLS,
    CERTAIN,
    DUELS,
    ENTITIES,
    KL,
    KL_REVERSED,
    LARGEST,
    MOMENTS,
    RANKS,
    SIGNS,
    STACK_A,
    Course,
    Followed,
    Moment,
    Now,
)
from afa.engine.duels import Duel, duel
from afa.engine.gains import add_up
from afa.engine.lookahead import gaussian_sign
from afa.engine.ranks import LINEARITY, TWO_ELBO, WALD, is_certified, ranks_of, score_table
from afa.engine.state import (
    elbos,
    mean_difference,
    sign,
)


@kernel()
def read_round(course: Course, moment: Moment, now: Now, t: int, followed: Followed, path: int, row: int) -> None:
    """Write what is read of round t."""
    packed, state, reads, tie = course.packed, moment.state, course.reads, course.packed.tie
    hidden = packed.n_features - t
    followed.t[path, row] = t
    if reads & SIGNS:
        _write_signs(course, moment, t, followed.signs[path, row])
    if reads & RANKS:
        for i in range(len(course.ranked)):
            if course.ranked[i] == LINEARITY:
                followed.place[path, row, i] = now.ranks.place
            else:
                scores = score_table(state, course.ranked[i], tie, hidden)
                followed.place[path, row, i] = ranks_of(scores, np.arange(len(scores)), course.name_rank, tie).place
    if reads & CERTAIN:
        followed.resolved[path, row] = now.resolved
        followed.certified[path, row] = is_certified(course.pairs, now.ranks.order, course.k, now.lead, now.resolved)
    if reads & BOUNDARY:
        followed.probability[path, row] = _least_likely(course, moment, now)
    if reads & LARGEST:
        worth = np.empty(packed.n_features)
        add_up(moment.gains, (~now.resolved).astype(np.float64), worth)
        followed.gain[path, row] = np.max(np.where(state.observed, 0.0, worth))
    if reads & ENTITIES:
        followed.constant[path, row] = state.constant
        followed.elbo[path, row] = elbos(state, hidden)
    if reads & MOMENTS:
        followed.m[path, row] = state.m
        followed.q[path, row] = state.q
        followed.cross[path, row] = state.cross
    if reads & (DUELS | CALLS):
        _write_duels(course, moment, t, followed, path, row)


@kernel(inline=True)
def _write_signs(course: Course, moment: Moment, t: int, signs: NDArray[np.int8]) -> None:
    """Signs of one round by each score, (S, Q). Those of `stack_a` are those of its mean, which is `linearity`."""
    pairs, state, tie = course.pairs, moment.state, course.packed.tie
    for i in range(len(course.signed)):
        score, row = course.signed[i], signs[i]
        if score in (LINEARITY, STACK_A):
            for p in range(len(pairs)):
                row[p] = sign(mean_difference(state.cross, pairs[p, 0], pairs[p, 1]), tie)
        elif score in (WALD, TWO_ELBO):
            of_one = state.constant if score == WALD else elbos(state, course.packed.n_features - t)
            for p in range(len(pairs)):
                row[p] = sign(of_one[pairs[p, 0]] - of_one[pairs[p, 1]], tie)
        else:
            _write_vote_signs(score, moment.votes, t, row)


@kernel()
def _write_vote_signs(score: int, votes: NDArray[np.int64], t: int, signs: NDArray[np.int8]) -> None:
    for p in range(len(votes)):
        if score == KL:
            signs[p] = sign(2 * votes[p, 0] - t, 0.0)
        elif score == KL_REVERSED:
            signs[p] = -sign(2 * votes[p, 1] - t, 0.0)
        else:
            signs[p] = sign(votes[p, 0] - votes[p, 1], 0.0)


@kernel(inline=True)
def _write_duels(course: Course, moment: Moment, t: int, followed: Followed, path: int, row: int) -> None:
    """Sums and scores of every duel, and the call of each bracket; calls alone where an entity of the duel changed."""
    packed, state, pairs, calls, votes = course.packed, moment.state, course.pairs, moment.calls, moment.votes
    for p in range(len(pairs)):
        a, b = pairs[p, 0], pairs[p, 1]
        if not (moment.stale_calls[p] or course.reads & DUELS):
            calls[p, 4] = vote_call(votes[p, 0], t, course.gamma)
            continue
        moment.stale_calls[p] = False
        sums = duel(packed, state, a, b)
        mean = mean_difference(state.cross, a, b)
        if abs(mean) <= packed.tie:
            mean = 0.0
        if course.reads & DUELS:
            followed.mean[path, row, p] = mean
            followed.stack_a[path, row, p] = gaussian_sign(mean, sums.variance)
            for i in range(len(sums)):
                followed.sums[path, row, p, i] = sums[i]
        if course.reads & CALLS:
            share = course.budget_share
            counted = Duel(share * sums.budget, share * sums.between, sums.variance, sums.spread, sums.beta)
            bracket_calls(packed, state, a, b, counted, mean, votes[p], t, course.gamma, calls[p])
    if course.reads & CALLS:
        followed.calls[path, row] = calls


@kernel(inline=True)
def _least_likely(course: Course, moment: Moment, now: Now) -> float:
    """The least probability that the present side of the boundary wins, over the open duels across it (eq:fsp)."""
    pairs, least, inside = course.pairs, 1.0, np.zeros(len(course.by_name), dtype=np.bool_)
    inside[now.ranks.order[: course.k]] = True
    for p in range(len(pairs)):
        a, b = pairs[p, 0], pairs[p, 1]
        if now.resolved[p] or inside[a] == inside[b]:
            continue
        if moment.stale_variance[p]:
            moment.variance[p] = duel(course.packed, moment.state, a, b).variance
            moment.stale_variance[p] = False
        expected = gaussian_sign(now.scores[a, b], moment.variance[p])
        least = min(least, 0.5 * (1.0 + (expected if inside[a] else -expected)))
    return least
