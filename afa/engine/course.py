"""What the compiled walk works on: the course of a run, the moment of a patient, and where its readings are written."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.budgets import Budgets, DuelEdges, copy_budgets
from afa.engine.compile import kernel
from afa.engine.gains import Gains, copy_gains
from afa.engine.layout import Indices, Packed
from afa.engine.lookahead import Lookahead, copy_lookahead
from afa.engine.ranks import Ranks
from afa.engine.state import (
    Iteration,
    State,
    copy_state,
)
from afa.mrf import Floats

SCORES = ("linearity", "wald", "two_elbo", "stack_a", "kl", "kl_reversed", "kl_nonzero")
STACK_A, KL, KL_REVERSED, KL_NONZERO = 3, 4, 5, 6

SIGNS, RANKS, SOLVES, CERTAIN, CHOICE, BOUNDARY, LARGEST, ENTITIES, MOMENTS, DUELS, CALLS = (1 << i for i in range(11))
"""What can be read: the fields of `Followed` say which of these each belongs to."""


class Moment(NamedTuple):
    """What is known of one patient after some observations; kernels change it in place. Q is 0 where not needed.

    unsolved : (N,) entities that an observation has changed since they were solved. stale : (Q,) duels whose gains are
    out of date, and stale_ahead : (N,) entities whose look-ahead is. variance, stale_variance : (Q,) sigma_D^2, and
    whether it is out of date. votes : (Q, 2) sign votes. calls, stale_calls : (Q, 5) of each bracket, and (Q,).
    labels : (N,) clusters. worth : (M,) of each feature to the rule, when it last looked.
    """

    state: State
    budgets: Budgets
    gains: Gains
    lookahead: Lookahead
    unsolved: NDArray[np.bool_]
    stale: NDArray[np.bool_]
    stale_ahead: NDArray[np.bool_]
    variance: Floats
    stale_variance: NDArray[np.bool_]
    votes: NDArray[np.int64]
    calls: NDArray[np.int8]
    stale_calls: NDArray[np.bool_]
    labels: Indices
    worth: Floats


class Course(NamedTuple):
    """What does not change from patient to patient.

    empty : (N,) ELBOs before any observation. offset : (N,) nats, taken from D as a difference of two before it
    counts as resolved: 0 for the sign of D, or what calibration takes. feature_rank : (M,) and name_rank : (N,)
    places in the order of names; by_name : (N,) its inverse. rule, kind : of `afa.engine.rules` and of
    `afa.engine.gains`. rescore : (r,) whether the rule looks at the gains after so many observations. iteration :
    of the solves after the first. reads : the mask. crossing, ranking, bounding, voting : whether cross
    expectations, the ranks by `linearity`, the tight `l1` budgets and the sign votes are needed. asked : (r + 1,)
    the rounds that are read. only_changes : of these, only those whose feature an entity holds. numbered : whether
    `Followed.t` says which rounds are walked, the others changing nothing. signed, ranked : codes of the scores
    that are read. gamma, budget_share : of the brackets.
    """

    packed: Packed
    edges: DuelEdges
    pairs: NDArray[np.int64]
    empty: Floats
    offset: Floats
    feature_rank: Indices
    name_rank: Indices
    by_name: Indices
    rule: int
    kind: int
    rescore: NDArray[np.bool_]
    k: int
    n_clusters: int
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
    gamma: float
    budget_share: float


class Followed(NamedTuple):
    """What is read of J paths of r rounds, at T of the rounds 0 to r; N entities, K slots, Q duels.

    Second axes are 0 where a field is not read.

    order : (J, r) features as observed; along given orders `only_changes` leaves out those that no entity holds.
    fallback : (J, r) whether no candidate had any gain left. t : (J, T) the round.
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
    DUELS : mean, stack_a (J, T, Q), mu_D without rounding, and its score; sums (J, T, Q, 5) the fields of `Duel`.
    CALLS : calls (J, T, Q, 5) int8, of each bracket.
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


class Now(NamedTuple):
    """What a rule and the readings of one round have in common; empty where not needed.

    scores : (N, N) by `linearity`. ranks : of all entities by them. lead, resolved : (Q,).
    """

    scores: Floats
    ranks: Ranks
    lead: Floats
    resolved: NDArray[np.bool_]


@kernel()
def copy_moment(moment: Moment) -> Moment:
    """A moment that can be changed without changing the given one."""
    return Moment(
        copy_state(moment.state),
        copy_budgets(moment.budgets),
        copy_gains(moment.gains),
        copy_lookahead(moment.lookahead),
        moment.unsolved.copy(),
        moment.stale.copy(),
        moment.stale_ahead.copy(),
        moment.variance.copy(),
        moment.stale_variance.copy(),
        moment.votes.copy(),
        moment.calls.copy(),
        moment.stale_calls.copy(),
        moment.labels.copy(),
        moment.worth.copy(),
    )
