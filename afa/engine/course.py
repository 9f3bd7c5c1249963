"""What the compiled walk works on, and what it reads of one patient in one round.

The course of a run does not change; the moment of a patient does; `Followed` is where readings are written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.budgets import Budgets, DuelEdges, copy_budgets
from afa.engine.compile import kernel
from afa.engine.duels import Duel, bracket_calls, duel, gaussian_sign, is_stale, vote_call
from afa.engine.gains import Lookahead, add_up, copy_lookahead
from afa.engine.layout import Gains, Indices, Packed, copy_gains
from afa.engine.ranks import LINEARITY, TWO_ELBO, WALD, is_certified, ranks_of, score_table
from afa.engine.rules import Sight
from afa.engine.state import ASCENDED, ITERATIONS, State, copy_state, elbo, elbos, mean_difference, sign
from afa.engine.sweeps import Iteration
from afa.model.mrf import Floats
from afa.scores.bracket import GAMMA

SCORES = ("linearity", "wald", "two_elbo", "stack_a", "kl", "kl_reversed", "kl_nonzero")
STACK_A, KL, KL_REVERSED, KL_NONZERO = 3, 4, 5, 6

SIGNS, RANKS, SOLVES, CERTAIN, CHOICE, BOUNDARY, LARGEST, ENTITIES, MOMENTS, DUELS, CALLS = (1 << i for i in range(11))
"""What can be read: the fields of `Followed` say which of these each belongs to."""

MISSING = -128
"""A value that was not measured: no rule asks for it, and nothing is learned of it (docs/decisions.md, F8)."""

CHANGED, SOLVED = range(2)
VARIANCE, CALLED = range(2)
"""Rows of `Moment.of_entity` and of `Moment.of_duel`."""


class Moment(NamedTuple):
    """What is known of one patient after some observations; kernels change it in place. Q is 0 where not needed.

    of_entity : (2, N) the round in which each entity was last `CHANGED` by an observation, and `SOLVED`. of_duel :
    (2, Q) the round in which the variance and the bracket calls of each duel were last computed, -1 for never; out of
    date where one of its two entities has changed since. variance : (Q,) sigma_D^2. votes : (Q, 2) sign votes. calls :
    (Q, 5) of each bracket. labels : (N,) clusters. worth : (M,) of each feature to the rule, when it last looked.
    closed : (M,) bool, observed, or missing of these patients.
    """

    state: State
    budgets: Budgets
    gains: Gains
    lookahead: Lookahead
    of_entity: Indices
    of_duel: Indices
    variance: Floats
    votes: NDArray[np.int64]
    calls: NDArray[np.int8]
    labels: Indices
    worth: Floats
    closed: NDArray[np.bool_]


class Course(NamedTuple):
    """What does not change from patient to patient.

    empty : (N,) ELBOs before any observation. offset : (N,) nats, taken from D as a difference of two before it
    counts as resolved: 0 for the sign of D, or what calibration takes. feature_rank : (M,) and name_rank : (N,)
    places in the order of names. rule, kind : of `afa.engine.rules` and of
    `afa.engine.gains`. rescore : (r,) whether the rule looks at the gains after so many observations. iteration :
    of the solves after the first. reads : the mask. crossing, ranking, bounding, voting : whether cross
    expectations, the ranks by `linearity`, the tight `l1` budgets and the sign votes are needed. asked : (r + 1,)
    the rounds that are read. only_changes : of these, only those whose feature an entity holds. numbered : whether
    `Followed.t` says which rounds are walked, the others changing nothing. signed, ranked : codes of the scores
    that are read. budget_share : of the brackets.
    """

    packed: Packed
    edges: DuelEdges
    pairs: NDArray[np.int64]
    empty: Floats
    offset: Floats
    feature_rank: Indices
    name_rank: Indices
    rule: int
    kind: int
    rescore: NDArray[np.bool_]
    k: int
    iteration: Iteration
    reads: int
    crossing: bool
    ranking: bool
    bounding: bool
    voting: bool
    asked: NDArray[np.bool_]
    only_changes: bool
    numbered: bool
    signed: Indices
    ranked: Indices
    budget_share: float


class Followed(NamedTuple):
    """What is read of J paths of r rounds, at T of the rounds 0 to r; N entities, K slots, Q duels.

    Second axes are 0 where a field is not read.

    order : (J, r) features as observed, -1 where all that could be measured had been; along given orders
    `only_changes` leaves out those that no entity holds. fallback : (J, r) whether no candidate had any gain left.
    t : (J, T) the round; rows after the last round that changed anything repeat it.
    source : (J, T) the path that was read, of those that had the same history; to it alone the walk writes the others.

    SIGNS : signs (J, T, S, Q) int8 by score, +1 where the first entity is preferred, 0 a tie; `kl` asks for (a, b) and
    `kl_reversed` for (b, a), its sign turned round.
    RANKS : place (J, T, S, N) int16 by score, entities ahead of each by more than its name: equal places are ties.
    SOLVES : iterations, ascended (J, T, N) int32, sweeps of each entity's solve, -1 where it is not solved in this
    round; `ascended` is above 0 where the damped sweeps reached their cap.
    CERTAIN : resolved (J, T, Q) duels that no completion can change; certified (J, T) whether the top k by `linearity`
    cannot change any more.
    CHOICE : worth (J, r), what the t-th choice had to gain when it was made: its gains summed over the duels
    that were open, each counted once; without a gain its absolute effective unaries summed over entities; in nats.
    BOUNDARY : probability (J, T) the least that the present side of the top-k boundary wins, over the open duels across
    it (eq:fsp). LARGEST : gain (J, T) the largest of an unobserved feature, summed over the open duels.
    ENTITIES : constant, elbo (J, T, N). MOMENTS : m, q (J, T, K) by slot, cross (J, T, N, N) E_{q_u}[S_v | x_obs].
    DUELS : mean, stack_a (J, T, Q), mu_D without rounding, and its score; sums (J, T, Q, 6) the fields of `Duel`.
    CALLS : calls (J, T, Q, 5) int8, of each bracket; votes (J, T, Q) int16, sign votes for the first entity.
    """

    order: Indices
    fallback: NDArray[np.bool_]
    t: NDArray[np.int32]
    source: Indices
    signs: NDArray[np.int8]
    place: NDArray[np.int16]
    iterations: NDArray[np.int32]
    ascended: NDArray[np.int32]
    resolved: NDArray[np.bool_]
    certified: NDArray[np.bool_]
    worth: Floats
    probability: Floats
    gain: Floats
    constant: Floats
    elbo: Floats
    m: Floats
    q: Floats
    cross: Floats
    mean: Floats
    stack_a: Floats
    sums: Floats
    calls: NDArray[np.int8]
    votes: NDArray[np.int16]


@kernel(inline=True)
def copy_moment(moment: Moment) -> Moment:
    """A moment that can be changed without changing the given one."""
    state, budgets, gains, lookahead, of_entity, of_duel, variance, votes, calls, labels, worth, closed = moment
    parts = copy_state(state), copy_budgets(budgets), copy_gains(gains), copy_lookahead(lookahead)
    of_duels = of_duel.copy(), variance.copy(), votes.copy(), calls.copy()
    return Moment(*parts, of_entity.copy(), *of_duels, labels.copy(), worth.copy(), closed.copy())


@kernel()
def _put(place: NDArray[Any], numbers: NDArray[Any]) -> None:
    place[:] = numbers


@kernel(borrows=True)
def read_round(  # noqa: PLR0912 (one branch a reading)
    course: Course, moment: Moment, now: Sight, t: int, followed: Followed, path: int, row: int
) -> None:
    """Write what is read of round t."""
    packed, state, reads = course.packed, moment.state, course.reads
    hidden = packed.n_features - t
    followed.t[path, row] = t
    if reads & SIGNS:
        _write_signs(course, moment, t, hidden, followed.signs[path, row])
    if reads & RANKS:
        for i in range(len(course.ranked)):
            if course.ranked[i] == LINEARITY:
                _put(followed.place[path, row, i], now.ranks.place)
            else:
                place = followed.place[path, row, i]
                _write_places(course.ranked[i], state, course.name_rank, hidden, packed.tie, place)
    if reads & CERTAIN:
        _put(followed.resolved[path, row], now.resolved)
        followed.certified[path, row] = is_certified(course.pairs, now.ranks.order, course.k, now.lead, now.resolved)
    if reads & BOUNDARY:
        followed.probability[path, row] = _least_likely(course, moment, now, t)
    if reads & LARGEST:
        followed.gain[path, row] = _largest_gain(moment.gains, now.resolved, moment.closed)
    if reads & ENTITIES:
        _put(followed.constant[path, row], state.constant)
        for entity in range(len(state.bound)):
            followed.elbo[path, row, entity] = elbo(state, entity, hidden)
    if reads & MOMENTS:
        _put(followed.m[path, row], state.m)
        _put(followed.q[path, row], state.q)
        _put(followed.cross[path, row], state.cross)
    if reads & SOLVES:
        for entity in range(len(packed.prior)):
            if moment.of_entity[SOLVED, entity] == t:
                followed.iterations[path, row, entity] = state.solves[ITERATIONS, entity]
                followed.ascended[path, row, entity] = state.solves[ASCENDED, entity]
    if reads & (DUELS | CALLS):
        _write_duels(course, moment, t, followed, path, row)


@kernel()
def _write_signs(course: Course, moment: Moment, t: int, n_hidden: int, signs: NDArray[np.int8]) -> None:
    """Signs of one round by each score, (S, Q). Those of `stack_a` are those of its mean, which is `linearity`."""
    pairs, state, tie, of_mean = course.pairs, moment.state, course.packed.tie, -1
    for i in range(len(course.signed)):
        score, row = course.signed[i], signs[i]
        if score in (LINEARITY, STACK_A) and of_mean >= 0:
            row[:] = signs[of_mean]
        elif score in (LINEARITY, STACK_A):
            of_mean = i
            for p in range(len(pairs)):
                row[p] = sign(mean_difference(state.cross, pairs[p, 0], pairs[p, 1]), tie)
        elif score in (WALD, TWO_ELBO):
            of_one = state.constant if score == WALD else elbos(state, n_hidden)
            for p in range(len(pairs)):
                row[p] = sign(of_one[pairs[p, 0]] - of_one[pairs[p, 1]], tie)
        else:
            _write_vote_signs(score, moment.votes, t, row)


@kernel()
def _write_places(
    score: int, state: State, name_rank: Indices, n_hidden: int, tie: float, place: NDArray[np.int16]
) -> None:
    scores = score_table(state, score, tie, n_hidden)
    place[:] = ranks_of(scores, np.arange(len(scores)), name_rank, tie).place


@kernel()
def _largest_gain(gains: Gains, resolved: NDArray[np.bool_], closed: NDArray[np.bool_]) -> float:
    """The largest gain of a feature that is not closed, summed over the open duels."""
    worth = np.empty(len(closed))
    add_up(gains, (~resolved).astype(np.float64), worth)
    return float(np.max(np.where(closed, 0.0, worth)))


@kernel()
def _write_vote_signs(score: int, votes: NDArray[np.int64], t: int, signs: NDArray[np.int8]) -> None:
    for p in range(len(votes)):
        if score == KL:
            signs[p] = sign(float(2 * votes[p, 0] - t), 0.0)
        elif score == KL_REVERSED:
            signs[p] = -sign(float(2 * votes[p, 1] - t), 0.0)
        else:
            signs[p] = sign(float(votes[p, 0] - votes[p, 1]), 0.0)


@kernel(borrows=True)
def _write_duels(course: Course, moment: Moment, t: int, followed: Followed, path: int, row: int) -> None:
    """Sums and scores of every duel, and the call of each bracket; calls alone where an entity of the duel changed."""
    packed, state, pairs, calls, votes = course.packed, moment.state, course.pairs, moment.calls, moment.votes
    changed_at, made_at = moment.of_entity[CHANGED], moment.of_duel[CALLED]
    for p in range(len(pairs)):
        a, b = pairs[p, 0], pairs[p, 1]
        if course.reads & CALLS:
            followed.votes[path, row, p] = votes[p, 0]
        if not (is_stale(changed_at, made_at[p], a, b) or course.reads & DUELS):
            calls[p, 4] = vote_call(votes[p, 0], t, GAMMA)
            continue
        made_at[p] = t
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
            counted = Duel(
                share * sums.budget, share * sums.between, sums.variance, sums.spread, sums.beta, share * sums.above
            )
            bracket_calls(packed, state, a, b, counted, mean, votes[p], t, GAMMA, calls[p])
    if course.reads & CALLS:
        _put(followed.calls[path, row], calls)


@kernel(borrows=True)
def _least_likely(course: Course, moment: Moment, now: Sight, t: int) -> float:
    """The least probability that the present side of the boundary wins, over the open duels across it (eq:fsp)."""
    pairs, least, inside = course.pairs, 1.0, now.inside
    inside[:] = False
    for i in range(course.k):
        inside[now.ranks.order[i]] = True
    for p in range(len(pairs)):
        a, b = pairs[p, 0], pairs[p, 1]
        if now.resolved[p] or inside[a] == inside[b]:
            continue
        if is_stale(moment.of_entity[CHANGED], moment.of_duel[VARIANCE, p], a, b):
            moment.variance[p] = duel(course.packed, moment.state, a, b).variance
            moment.of_duel[VARIANCE, p] = t
        expected = gaussian_sign(now.scores[a, b], moment.variance[p])
        least = min(least, 0.5 * (1.0 + (expected if inside[a] else -expected)))
    return least
