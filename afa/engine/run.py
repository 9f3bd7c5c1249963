"""Define the settings of a run (`RunSettings`), the state of a patient (`PathState`) and results (`WalkResults`)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.budgets import Budgets, DuelEdges, copy_budgets
from afa.engine.compile import kernel
from afa.engine.duels import Duel, bracket_calls, duel, gaussian_sign, is_stale, vote_call
from afa.engine.gains import Lookahead, add_up, copy_lookahead
from afa.engine.layout import Gains, Packed, copy_gains
from afa.engine.ranks import LINEARITY, TWO_ELBO, WALD, is_certified, ranks_of, score_table
from afa.engine.rules import RoundView
from afa.engine.state import ASCENDED, ITERATIONS, State, copy_state, elbo, elbos, mean_difference, sign
from afa.engine.sweeps import Iteration
from afa.model.arrays import Bools, Codes, Floats, Ints
from afa.scores.bracket import GAMMA

ENGINE_SCORES = ("linearity", "wald", "two_elbo", "stack_a", "kl", "kl_reversed", "kl_nonzero")
STACK_A, KL, KL_REVERSED, KL_NONZERO = 3, 4, 5, 6

SIGNS, RANKS, SOLVES, CERTAIN, CHOICE, BOUNDARY, LARGEST, ENTITIES, MOMENTS, DUELS, CALLS = (1 << i for i in range(11))
"""Bits of the mask that selects groups of results. The docstring of `WalkResults` names the group of each field."""

MISSING = -128
"""Code of a value that was not measured. Rules never choose a feature with this value, and the value adds no evidence
(docs/decisions.md).
"""

CHANGED, SOLVED = range(2)
VARIANCE, CALLED = range(2)
"""Rows of `PathState.of_entity` and of `PathState.of_duel`."""


class PathState(NamedTuple):
    """State of one patient after some observations. Kernels change the arrays in place.

    Q is the number of duels (entity pairs), or 0 if the run needs no results of duels.

    Attributes
    ----------
    state, budgets, gains, lookahead : model state, budgets and gains of the patient
    of_entity : (2, N) int64; row `CHANGED` is the step at which an observation last changed each entity's model, and
        row `SOLVED` is the step at which mean-field last ran on the entity's model
    of_duel : (2, Q) int64; rows `VARIANCE` and `CALLED` are the steps at which `variance` and `calls` of each duel were
        last computed, or -1 for never. If the model of one of the two entities has changed since this step, `variance`
        and `calls` are outdated
    variance : (Q,) float64, sigma_D^2
    votes : (Q, 2) int64, sign votes for each of the two entities
    calls : (Q, 5) int8, early decision of each method in `BRACKETS`
    labels : (N,) int64, cluster of each entity
    feature_gain : (M,) float64, gain of each feature at the last step at which the rule computed gains
    closed : (M,) bool, True if a feature is observed, or was not measured in these patients

    """

    state: State
    budgets: Budgets
    gains: Gains
    lookahead: Lookahead
    of_entity: Ints
    of_duel: Ints
    variance: Floats
    votes: Ints
    calls: Codes
    labels: Ints
    feature_gain: Floats
    closed: Bools


class RunSettings(NamedTuple):
    """Settings of a run. They are the same for all patients.

    Attributes
    ----------
    packed, edges : kernel arrays of the bundle and of its duels
    pairs : (Q, 2) int64, entities a < b of each duel
    empty : (N,) float64, ELBO of each entity before any observation, nats
    offset : (N,) float64, nats, 0 or the calibration shift; entity a is preferred to entity b if D - (offset[a] -
        offset[b]) is positive
    feature_rank, name_rank : (M,) and (N,) int64, position of each feature and of each entity in the order of names
    rule, kind : numbers of the allocation rule (`afa.engine.rules`) and of the gain (`afa.engine.gains`)
    rescore : (r,) bool, entry t is True if the rule computes gains again after t observations
    k : size of the top set
    iteration : settings of all mean-field runs after the first
    requested : mask of the groups of results to write
    needs_cross, ranking, bounding, voting : True if the run needs, in this order, cross expectations, ranks by
        `linearity`, bounds on the log-odds (`Budgets`), and votes (`duels.vote`)
    rounds_requested : (r + 1,) bool, True for each number of observations after which results are written
    only_changes : True to write results only before the first observation, and after the observation of a feature in
        the support of an entity
    numbered : True if the orders exclude features outside all supports; `WalkResults.t` then contains the number of
        observations at each step
    signed, ranked : (S,) int64, numbers of the scores whose signs and ranks are written
    budget_share : factor by which the methods in `BRACKETS` multiply the bounds on D; 1 except in tests of these
        methods

    """

    packed: Packed
    edges: DuelEdges
    pairs: Ints
    empty: Floats
    offset: Floats
    feature_rank: Ints
    name_rank: Ints
    rule: int
    kind: int
    rescore: Bools
    k: int
    iteration: Iteration
    requested: int
    needs_cross: bool
    ranking: bool
    bounding: bool
    voting: bool
    rounds_requested: Bools
    only_changes: bool
    numbered: bool
    signed: Ints
    ranked: Ints
    budget_share: float


class WalkResults(NamedTuple):
    """Results of J paths for N entities, Q duels (entity pairs) and K slots (entity, feature).

    A path is one patient with one order of r observations. Each path has T rows of results, one for each requested
    number of observations. If the caller did not request a group of results, the second axis of the group's arrays has
    length 0.

    Attributes
    ----------
    order : (J, r) int64, features in the order of observation, then -1. If `only_changes` is True and the orders were
        given, features outside all supports are skipped
    fallback : (J, r) bool, True if no candidate had a positive gain
    t : (J, T) int32, number of observations at each row; rows after the last result of a path repeat this result
    source : (J, T) int64, path from which each row was copied; while several paths have the same observations, kernels
        write the results of only one of them
    signs : (J, T, S, Q) int8, group SIGNS, sign of each of S scores: +1 if the first entity is preferred, -1 if the
        second entity is preferred, 0 for a tie. The score `kl` compares (a, b); the score `kl_reversed` compares (b, a)
        and reverses the sign
    place : (J, T, S, N) int16, group RANKS, number of entities that each score ranks strictly ahead of each entity;
        tied entities have equal places
    iterations : (J, T, N) int32, group SOLVES, number of damped mean-field sweeps for each entity, or -1 if mean-field
        did not run on the entity's model at this step
    ascended : (J, T, N) int32, group SOLVES, number of sweeps of coordinate ascent, above 0 only if the damped sweeps
        did not converge
    resolved : (J, T, Q) bool, group CERTAIN, True if no further observation can change the winner of the duel
    certified : (J, T) bool, group CERTAIN, True if the top k by `linearity` is final
    chosen_gain : (J, r) float64, group CHOICE, nats, gain of the feature chosen at each step, summed over the
        unresolved duels. If the run computes no gains, this is the sum of the feature's absolute effective unary
        potentials over the entities
    probability : (J, T) float64, group BOUNDARY, smallest probability that an entity inside the top k wins against an
        entity outside it, over the unresolved duels (eq:fsp)
    gain : (J, T) float64, group LARGEST; the gains of each unobserved feature are summed over the unresolved duels, and
        the largest sum is returned
    constant, elbo : (J, T, N) float64, group ENTITIES, nats
    m, q : (J, T, K) float64, group MOMENTS, first and second moment of each slot
    cross : (J, T, N, N) float64, group MOMENTS, E_{q_u}[S_v | x_obs], nats
    mean : (J, T, Q) float64, group DUELS, mu_D in nats, with rounding errors set to 0
    stack_a : (J, T, Q) float64, group DUELS, the score `stack_a`, from -1 to 1
    sums : (J, T, Q, 6) float64, group DUELS, the fields of `Duel`
    calls : (J, T, Q, 5) int8, group CALLS, early decision of each method in `BRACKETS`
    votes : (J, T, Q) int16, group CALLS, sign votes for the first entity

    """

    order: Ints
    fallback: Bools
    t: NDArray[np.int32]
    source: Ints
    signs: Codes
    place: NDArray[np.int16]
    iterations: NDArray[np.int32]
    ascended: NDArray[np.int32]
    resolved: Bools
    certified: Bools
    chosen_gain: Floats
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
    calls: Codes
    votes: NDArray[np.int16]


@kernel(inline=True)
def copy_path_state(path_state: PathState) -> PathState:
    """Return an independent copy of a patient's state."""
    state, budgets, gains, lookahead, of_entity, of_duel, variance, votes, calls, labels, feature_gain, closed = (
        path_state
    )
    parts = copy_state(state), copy_budgets(budgets), copy_gains(gains), copy_lookahead(lookahead)
    of_duels = of_duel.copy(), variance.copy(), votes.copy(), calls.copy()
    return PathState(*parts, of_entity.copy(), *of_duels, labels.copy(), feature_gain.copy(), closed.copy())


@kernel(inline=True)
def _copy_numbers(place: NDArray[Any], numbers: NDArray[Any]) -> None:
    """Copy a one-dimensional array into `place` in a loop, because a slice assignment would need reference counting."""
    for i in range(len(numbers)):
        place[i] = numbers[i]


@kernel(borrows=True)
def write_round(  # noqa: PLR0912 (one branch for each group of results)
    run: RunSettings, path_state: PathState, now: RoundView, t: int, results: WalkResults, path: int, row: int
) -> None:
    """Write the requested results of one path after t observations into `row` of `results`."""
    packed, state, requested = run.packed, path_state.state, run.requested
    n_unobserved = packed.n_features - t
    results.t[path, row] = t
    if requested & SIGNS:
        _write_signs(run, path_state, t, n_unobserved, results.signs[path, row])
    if requested & RANKS:
        for i in range(len(run.ranked)):
            if run.ranked[i] == LINEARITY:
                _copy_numbers(results.place[path, row, i], now.ranks.place)
            else:
                place = results.place[path, row, i]
                _write_places(run.ranked[i], state, run.name_rank, n_unobserved, packed.tie, place)
    if requested & CERTAIN:
        _copy_numbers(results.resolved[path, row], now.resolved)
        results.certified[path, row] = is_certified(run.pairs, now.ranks.order, run.k, now.lead, now.resolved)
    if requested & BOUNDARY:
        results.probability[path, row] = _smallest_win_probability(run, path_state, now, t)
    if requested & LARGEST:
        results.gain[path, row] = _largest_gain(path_state.gains, now.resolved, path_state.closed)
    if requested & ENTITIES:
        _copy_numbers(results.constant[path, row], state.constant)
        for entity in range(len(state.bound)):
            results.elbo[path, row, entity] = elbo(state, entity, n_unobserved)
    if requested & MOMENTS:
        _copy_numbers(results.m[path, row], state.m)
        _copy_numbers(results.q[path, row], state.q)
        for entity in range(len(state.cross)):
            _copy_numbers(results.cross[path, row, entity], state.cross[entity])
    if requested & SOLVES:
        for entity in range(len(packed.prior)):
            if path_state.of_entity[SOLVED, entity] == t:
                results.iterations[path, row, entity] = state.solves[ITERATIONS, entity]
                results.ascended[path, row, entity] = state.solves[ASCENDED, entity]
    if requested & (DUELS | CALLS):
        _write_duels(run, path_state, t, results, path, row)


@kernel()
def _write_signs(run: RunSettings, path_state: PathState, t: int, n_unobserved: int, signs: Codes) -> None:
    """Write the signs of the requested scores for all duels (entity pairs) after t observations.

    The scores `stack_a` and `linearity` have the same sign, because `linearity` is the mean of the Gaussian in
    `stack_a`.
    """
    pairs, state, tie, of_mean = run.pairs, path_state.state, run.packed.tie, -1
    for i in range(len(run.signed)):
        score, row = run.signed[i], signs[i]
        if score in (LINEARITY, STACK_A) and of_mean >= 0:
            row[:] = signs[of_mean]
        elif score in (LINEARITY, STACK_A):
            of_mean = i
            for p in range(len(pairs)):
                row[p] = sign(mean_difference(state.cross, pairs[p, 0], pairs[p, 1]), tie)
        elif score in (WALD, TWO_ELBO):
            of_one = state.constant if score == WALD else elbos(state, n_unobserved)
            for p in range(len(pairs)):
                row[p] = sign(of_one[pairs[p, 0]] - of_one[pairs[p, 1]], tie)
        else:
            _write_vote_signs(score, path_state.votes, t, row)


@kernel()
def _write_places(
    score: int, state: State, name_rank: Ints, n_unobserved: int, tie: float, place: NDArray[np.int16]
) -> None:
    """Write into `place` the number of entities that one score ranks strictly ahead of each entity."""
    scores = score_table(state, score, tie, n_unobserved)
    place[:] = ranks_of(scores, np.arange(len(scores)), name_rank, tie).place


@kernel()
def _largest_gain(gains: Gains, resolved: Bools, closed: Bools) -> float:
    """Sum each feature's gains over the unresolved duels, and return the largest sum of a feature not in `closed`."""
    total = np.empty(len(closed))
    add_up(gains, (~resolved).astype(np.float64), total)
    return float(np.max(np.where(closed, 0.0, total)))


@kernel()
def _write_vote_signs(score: int, votes: Ints, t: int, signs: Codes) -> None:
    """Write the sign of one vote-based score (`kl`, `kl_reversed` or `kl_nonzero`) for all entity pairs."""
    for p in range(len(votes)):
        if score == KL:
            signs[p] = sign(float(2 * votes[p, 0] - t), 0.0)
        elif score == KL_REVERSED:
            signs[p] = -sign(float(2 * votes[p, 1] - t), 0.0)
        else:
            signs[p] = sign(float(votes[p, 0] - votes[p, 1]), 0.0)


@kernel(borrows=True)
def _write_duels(run: RunSettings, path_state: PathState, t: int, results: WalkResults, path: int, row: int) -> None:
    """Write the requested results of all entity pairs: the values of `Duel`, the scores, and the early decisions.

    If the caller requested only early decisions, a decision is computed again only if an observation has changed the
    model of one of the two entities. The decision of the method `kl_written` is always computed again, because it
    depends on the number of observations.
    """
    packed, state, pairs, calls, votes = run.packed, path_state.state, run.pairs, path_state.calls, path_state.votes
    changed_at, computed_at = path_state.of_entity[CHANGED], path_state.of_duel[CALLED]
    for p in range(len(pairs)):
        a, b = pairs[p, 0], pairs[p, 1]
        if run.requested & CALLS:
            results.votes[path, row, p] = votes[p, 0]
        if not (is_stale(changed_at, computed_at[p], a, b) or run.requested & DUELS):
            calls[p, 4] = vote_call(votes[p, 0], t, GAMMA)
            continue
        computed_at[p] = t
        sums = duel(packed, state, a, b)
        mean = mean_difference(state.cross, a, b)
        if abs(mean) <= packed.tie:
            mean = 0.0
        if run.requested & DUELS:
            results.mean[path, row, p] = mean
            results.stack_a[path, row, p] = gaussian_sign(mean, sums.variance)
            for i in range(len(sums)):
                results.sums[path, row, p, i] = sums[i]
        if run.requested & CALLS:
            share = run.budget_share
            counted = Duel(
                share * sums.budget, share * sums.between, sums.variance, sums.spread, sums.beta, share * sums.above
            )
            bracket_calls(packed, state, a, b, counted, mean, votes[p], t, GAMMA, calls[p])
    if run.requested & CALLS:
        for p in range(len(pairs)):
            _copy_numbers(results.calls[path, row, p], calls[p])


@kernel(borrows=True)
def _smallest_win_probability(run: RunSettings, path_state: PathState, now: RoundView, t: int) -> float:
    """Return the smallest probability that an entity inside the top k wins against an entity outside it (eq:fsp).

    If no further observation can change the winner of an entity pair, the pair is excluded.
    """
    pairs, least, inside = run.pairs, 1.0, now.inside
    inside[:] = False
    for i in range(run.k):
        inside[now.ranks.order[i]] = True
    for p in range(len(pairs)):
        a, b = pairs[p, 0], pairs[p, 1]
        if now.resolved[p] or inside[a] == inside[b]:
            continue
        if is_stale(path_state.of_entity[CHANGED], path_state.of_duel[VARIANCE, p], a, b):
            path_state.variance[p] = duel(run.packed, path_state.state, a, b).variance
            path_state.of_duel[VARIANCE, p] = t
        expected = gaussian_sign(now.scores[a, b], path_state.variance[p])
        least = min(least, 0.5 * (1.0 + (expected if inside[a] else -expected)))
    return least
