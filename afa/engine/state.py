"""Observe a feature, run mean-field on an entity's model, and update the cross expectations, with compiled kernels.

Tests compare the kernels with the plain Python definitions in `afa.model.mrf.Evidence`, `afa.inference.meanfield` and
`afa.scores.preference`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from afa.engine.compile import kernel
from afa.engine.layout import CENTRE, EVEN, LEVEL, NEXT, OFFSET, RATIO, SECOND, SIDES, WIDTH, Overlaps, Packed
from afa.engine.sweeps import Iteration as Iteration  # noqa: PLC0414 (re-exported)
from afa.engine.sweeps import bound, converged, padded
from afa.model.arrays import Bools, Floats, Ints

ITERATIONS, ASCENDED = range(2)
"""Rows of `State.solves`: the number of damped sweeps, and the number of sweeps of coordinate ascent. The second number
is 0 if the damped sweeps converged.
"""


class State(NamedTuple):
    """State of one patient for all N entities. Kernels change the arrays in place.

    Attributes
    ----------
    constant : (N,) float64, prior plus energy of the observed features (the running constant) of each entity, nats
    field : (K,) float64, effective unary potentials (unary potentials plus couplings to observed features), nats; 0 at
        observed slots
    m, q : (K,) float64, first and second moments; 0 at observed slots
    observed : (M,) bool, True if a feature is observed, or if its value follows from observed features
    free : (K,) bool, True at slots for which mean-field is run: unobserved features outside exclusive groups
    bound : (N,) float64, contribution of the unobserved features in the support to each ELBO, nats
    n_free : (N,) int64, number of features of each entity for which mean-field is run
    cross : (N, N) float64, E_{q_u}[S_v | x_obs] in nats, where u is the row and v is the column
    solves : (2, N) int64, numbers of sweeps of the last mean-field run on each entity's model; the rows are
        `ITERATIONS` and `ASCENDED`
    origin, pull : (N,) and (K,) float64, the constants and effective unary potentials of the same energies if couplings
        are written as products of values instead of deviations from the means before any observation (`CENTRE`). In the
        paper's models, these means are 0, and `origin` and `pull` have length 0
    volume : as in `Packed`

    """

    constant: Floats
    field: Floats
    m: Floats
    q: Floats
    observed: Bools
    free: Bools
    bound: Floats
    n_free: Ints
    cross: Floats
    solves: Ints
    origin: Floats
    pull: Floats
    volume: float


@kernel(entrance=True)
def new_state(packed: Packed) -> State:
    """Return the state before any observation. Mean-field has not run yet on any entity's model."""
    n, class_conditional = len(packed.prior), packed.class_conditional
    return State(
        packed.prior.copy(),
        packed.unary.copy(),
        packed.site[CENTRE].copy() if class_conditional else np.zeros(len(packed.unary)),
        packed.site[SECOND].copy() if class_conditional else np.full(len(packed.unary), 2.0 / 3.0),
        np.zeros(packed.n_features, dtype=np.bool_),
        packed.site[NEXT] < 0.0 if class_conditional else np.ones(len(packed.unary), dtype=np.bool_),
        np.zeros(n),
        np.zeros(n, dtype=np.int64),
        np.zeros((n, n)),
        np.zeros((2, n), dtype=np.int64),
        packed.prior[: n if class_conditional else 0].copy(),
        packed.unary[: len(packed.unary) if class_conditional else 0].copy(),
        packed.volume,
    )


@kernel(entrance=True)
def copy_state(state: State) -> State:
    """Return an independent copy of the state."""
    constant, field, m, q, observed, free, bound_, n_free, cross, solves, origin, pull, volume = state
    constant, field, m, q, observed = constant.copy(), field.copy(), m.copy(), q.copy(), observed.copy()
    bound_, n_free, cross, solves = bound_.copy(), n_free.copy(), cross.copy(), solves.copy()
    free, origin, pull = free.copy(), origin.copy(), pull.copy()
    return State(constant, field, m, q, observed, free, bound_, n_free, cross, solves, origin, pull, volume)


@kernel(inline=True)
def term(packed: Packed, state: State, slot: int, value: int) -> float:
    """Return how much the observation of a feature with the given value increases an entity's score, nats.

    In models with class-conditional probabilities, the result is log(p / p_0), where p is the probability of the value
    under the entity, and p_0 is its background probability. In this computation, each unobserved feature that is
    coupled to this feature is replaced by the mean that it has without observations (`CENTRE`).
    """
    if not packed.class_conditional:
        return float(state.field[slot] * value)
    if packed.site[NEXT, slot] >= 0.0:
        return math.log(state.m[slot]) if value == 1 else math.log1p(-state.m[slot])
    away = value - packed.site[CENTRE, slot]
    return float(packed.site[RATIO + value, slot] + (state.field[slot] - packed.unary[slot]) * away)


@kernel(entrance=True)
def condition(packed: Packed, state: State, feature: int, value: int) -> None:
    """Observe one feature: add its energy, and update the effective unary potentials of coupled features.

    The update is described in supp:updatemrf.
    """
    observed, field, first_edge, of_slot = state.observed, state.field, packed.first_edge, packed.feature
    other_slot, coupling = packed.other_slot, packed.coupling
    observed[feature] = True
    for h in range(packed.first_feature_slot[feature], packed.first_feature_slot[feature + 1]):
        slot = packed.feature_slots[h]
        state.constant[packed.owner[slot]] += term(packed, state, slot, value)
        away = value - (packed.site[CENTRE, slot] if packed.class_conditional else 0.0)
        for e in range(first_edge[slot], first_edge[slot + 1]):
            other = other_slot[e]
            if not observed[of_slot[other]]:
                field[other] += coupling[e] * away
        if packed.class_conditional:
            state.pull[slot] = 0.0
            if packed.site[NEXT, slot] >= 0.0:
                _update_exclusive_group(packed, state, slot, value)
        field[slot] = state.m[slot] = state.q[slot] = 0.0
        state.free[slot] = False


@kernel(inline=True)
def _update_exclusive_group(packed: Packed, state: State, slot: int, value: int) -> None:
    """Update the other members of an exclusive group after one member is observed.

    If `value` is 1, all other members are set to 0. If `value` is 0, the probability of each other member increases.
    """
    left = 1.0 - state.m[slot]
    other = int(packed.site[NEXT, slot])
    while other != slot:
        if value == 1:
            state.observed[packed.feature[other]] = True
            state.field[other] = state.m[other] = state.q[other] = state.pull[other] = 0.0
        else:
            state.m[other] /= left
            state.q[other] /= left
        other = int(packed.site[NEXT, other])


@kernel(inline=True)
def _write_group_pulls(packed: Packed, state: State, entity: int) -> float:
    """Write `State.pull` for the members of exclusive groups, and return the groups' contribution to `State.origin`.

    The contribution is a sum with one term for each group: the logarithm of the probability that no unobserved member
    of the group is +1. The kernels that compute `State.cross` from `pull` and `origin` then treat each group as one
    variable.
    """
    site, m, total = packed.site, state.m, 0.0
    for last in range(packed.first_slot[entity], packed.first_slot[entity + 1]):
        if not 0.0 <= site[NEXT, last] <= last:
            continue
        left, slot, more = 1.0, last, True
        while more:
            slot = int(site[NEXT, slot])
            left -= m[slot]
            more = slot != last
        more = True
        while more:
            slot = int(site[NEXT, slot])
            state.pull[slot] = math.log(m[slot] / left) if m[slot] > 0.0 else 0.0
            more = slot != last
        total += math.log(left)
    return total


@kernel(inline=True)
def free_part(packed: Packed, state: State, entity: int) -> tuple[Ints, Floats]:
    """Return the array positions (slots) of the features in one entity's mean-field run, and the coupling matrix.

    A slot is the array position of a pair (entity, feature). The coupling matrix of the n returned slots is padded with
    zeros to the size `padded(n)`.
    """
    # reading these fields of the tuples inside the loops would take longer than the additions
    free, first_edge, other_slot, of_edge = state.free, packed.first_edge, packed.other_slot, packed.coupling
    start, stop, n = packed.first_slot[entity], packed.first_slot[entity + 1], 0
    place = np.full(stop - start, -1)
    for slot in range(start, stop):
        if free[slot]:
            place[slot - start] = n
            n += 1
    slots, coupling = np.empty(n, dtype=np.int64), np.zeros((padded(n), padded(n)))
    for slot in range(start, stop):
        here = place[slot - start]
        if here >= 0:
            slots[here] = slot
            for e in range(first_edge[slot], first_edge[slot + 1]):
                there = place[other_slot[e] - start]
                if there >= 0:
                    coupling[here, there] = of_edge[e]
    return slots, coupling


@kernel()
def solve_entity(packed: Packed, state: State, entity: int, iteration: Iteration) -> None:
    """Run mean-field on the unobserved features in one entity's support (eq:mf-update). The caller updates `cross`.

    Members of exclusive groups have no couplings, so they are not part of the mean-field run. The function `condition`
    sets the moments of these members.
    """
    # reading these fields of the tuples inside the loops would take longer than the additions
    field, m, q, site = state.field, state.m, state.q, packed.site
    slots, coupling = free_part(packed, state, entity)
    n, size = len(slots), len(coupling)
    alpha, free_m, free_q = np.zeros(size), np.zeros(size), np.full(size, 2.0 / 3.0)
    free_site = np.ones((3, size if packed.class_conditional else 0))
    for j in range(free_site.shape[1]):
        free_site[1, j] = 0.0
    for j in range(n):
        slot = slots[j]
        alpha[j] = field[slot]
        if iteration.warm:
            free_m[j], free_q[j] = m[slot], q[slot]
        elif packed.class_conditional:
            free_m[j], free_q[j] = site[CENTRE, slot], site[SECOND, slot]
        if packed.class_conditional:
            free_site[0, j], free_site[1, j], free_site[2, j] = site[WIDTH, slot], site[OFFSET, slot], site[SIDES, slot]
            for other in range(n):
                alpha[j] -= coupling[j, other] * site[CENTRE, slots[other]]
    sweeps, ascended = converged(alpha, coupling, free_site, free_m, free_q, n, iteration)
    origin, even = 0.0, 0.0
    for j in range(n):
        slot = slots[j]
        m[slot], q[slot] = free_m[j], free_q[j]
        if packed.class_conditional:
            state.pull[slot] = alpha[j]
            of_centre = 0.5 * (field[slot] - alpha[j]) - (field[slot] - packed.unary[slot])
            origin += site[LEVEL, slot] + site[CENTRE, slot] * of_centre
            even += site[EVEN, slot] * free_q[j]
    state.bound[entity], state.n_free[entity] = bound(alpha, coupling, free_m, free_q, n) + (origin + even), n
    state.solves[ITERATIONS, entity], state.solves[ASCENDED, entity] = sweeps, ascended
    if packed.class_conditional:
        state.origin[entity] = state.constant[entity] + (origin + _write_group_pulls(packed, state, entity))


@kernel(inline=True)
def expected_score(
    overlaps: Overlaps, pair: int, constant: float, field: Floats, field_at: int, m: Floats, m_at: int
) -> float:
    """Return the expected score of entity v under the mean-field distribution of entity u, nats.

    The argument `pair` = u N + v is the index of (u, v) in `overlaps`. The arguments `field_at` and `m_at` are start
    positions in whole arrays. To pass slices of the arrays instead would take longer than the computation itself.

    Parameters
    ----------
    constant : prior of v plus energy of the observed features, nats
    field : (K,) float64, effective unary potentials, nats; the entries of v start at `field_at`
    m : (K,) float64, first moments, 0 for observed features; the entries of u start at `m_at`

    """
    total = constant
    for i in range(overlaps.first[pair], overlaps.first[pair + 1]):
        total += field[field_at + overlaps.of_v[i]] * m[m_at + overlaps.of_u[i]]
    for e in range(overlaps.first_edge[pair], overlaps.first_edge[pair + 1]):
        total += overlaps.coupling[e] * m[m_at + overlaps.edge_j[e]] * m[m_at + overlaps.edge_l[e]]
    return total


@kernel(entrance=True)
def solve_all(packed: Packed, state: State, iteration: Iteration, needs_cross: bool) -> None:
    """Run mean-field on the models of all entities, and fill `cross` if `needs_cross` is True."""
    n = len(packed.prior)
    for entity in range(n):
        solve_entity(packed, state, entity, iteration)
    for entity in range(n if needs_cross else 0):
        cross_of(packed, state, entity)


@kernel(borrows=True)
def cross_of(packed: Packed, state: State, v: int) -> None:
    """Write the row and the column of one entity in `cross`.

    Models with class-conditional probabilities must all cover the same features.
    """
    n = len(packed.prior)
    for i in range(2 * n):
        one, other = (i, v) if i < n else (v, i - n)
        state.cross[one, other] = _cross(packed, state, one, other)


@kernel(inline=True)
def _cross(packed: Packed, state: State, u: int, v: int) -> float:
    """Return E_{q_u}[S_v | x_obs], the expected score of entity v under the mean-field marginals of entity u, nats."""
    pair, at_u, at_v = u * len(packed.prior) + v, packed.first_slot[u], packed.first_slot[v]
    if not packed.class_conditional:
        return expected_score(packed.overlaps, pair, state.constant[v], state.field, at_v, state.m, at_u)
    even = 0.0
    for i in range(packed.overlaps.first[pair], packed.overlaps.first[pair + 1]):
        even += packed.site[EVEN, at_v + packed.overlaps.of_v[i]] * state.q[at_u + packed.overlaps.of_u[i]]
    return expected_score(packed.overlaps, pair, state.origin[v], state.pull, at_v, state.m, at_u) + even


@kernel(inline=True)
def elbo(state: State, entity: int, n_unobserved: int) -> float:
    """Return the ELBO of one entity, nats. `n_unobserved` is the number of unobserved features of the bundle."""
    return (
        float(state.constant[entity])
        + float(state.bound[entity])
        + state.volume * (n_unobserved - int(state.n_free[entity]))
    )


@kernel(entrance=True)
def elbos(state: State, n_unobserved: int) -> Floats:
    """Return the ELBO of every entity.

    Returns
    -------
    elbos : (N,) float64, nats

    """
    every = np.empty(len(state.bound))
    for entity in range(len(every)):
        every[entity] = elbo(state, entity, n_unobserved)
    return every


@kernel(inline=True)
def mean_difference(cross: Floats, a: int, b: int) -> float:
    """Return the mean mu_D of D_ab under the mixture of the two mean-field distributions (eq:mu-D).

    Parameters
    ----------
    cross : (N, N) float64, as in `State`, nats

    """
    return float(0.5 * ((cross[a, a] - cross[b, b]) + (cross[b, a] - cross[a, b])))


@kernel()
def sign(score: float, tie: float) -> int:
    """Return the sign of a score, or 0 if the absolute score is at most `tie`."""
    if score > tie:
        return 1
    return -1 if score < -tie else 0
