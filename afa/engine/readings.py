"""Many patients at once: everything that the engine knows of them at a few rounds of one observation order each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.bracket import GAMMA
from afa.bundle import Bundle
from afa.engine.ahead import gaussian_sign
from afa.engine.brackets import BRACKETS, bracket_calls
from afa.engine.compile import in_threads, kernel, laid_out
from afa.engine.duels import Pairs, duel, vote
from afa.engine.kernels import Iteration, State, condition, elbo, new_state, solve_all
from afa.engine.packed import Packed, pack
from afa.engine.trajectories import all_pairs
from afa.inference.meanfield import Solver
from afa.mrf import Floats


class Readings(NamedTuple):
    """P patients at R rounds, N entities with K slots in all, Q pairs.

    packed : the layout of the bundle. pairs : (Q, 2). rounds : (R,) numbers of observations.
    constant, elbo : (P, R, N). m, q : (P, R, K) moments by slot. cross : (P, R, N, N) E_{q_u}[S_v | x_obs].
    mean, stack_a : (P, R, Q), mu_D without rounding, and its score. sums : (P, R, Q, 5) the fields of `Duel`.
    calls : (P, R, Q, 5) int8, by bracket.
    """

    packed: Packed
    pairs: Pairs
    rounds: NDArray[np.int64]
    constant: Floats
    elbo: Floats
    m: Floats
    q: Floats
    cross: Floats
    mean: Floats
    stack_a: Floats
    sums: Floats
    calls: NDArray[np.int8]


def readings(
    bundle: Bundle,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    rounds: Sequence[int],
    *,
    solver: Solver | None = None,
    gamma: float = GAMMA,
    duels: bool = True,
    threads: int | None = None,
) -> Readings:
    """Read P patients at the given rounds, ascending; every solve starts from the uniform marginals (spec M6).

    values : (P, M) in {-1, 0, +1}. orders : (P, M), each a permutation of the features. duels : whether they are read
    too, which takes most of the time; without them Q is 0.
    """
    solver, values, orders = solver or Solver(), laid_out(values), laid_out(orders)
    packed, pairs = pack(bundle), all_pairs(len(bundle.entities) if duels else 0)
    iteration = Iteration(solver.damping, solver.tolerance, solver.max_iterations, False)
    shape, n, k = (len(values), len(rounds)), len(bundle.entities), len(packed.unary)
    read = Readings(
        packed=packed,
        pairs=pairs,
        rounds=np.array(rounds, dtype=np.int64),
        constant=np.zeros((*shape, n)),
        elbo=np.zeros((*shape, n)),
        m=np.zeros((*shape, k)),
        q=np.zeros((*shape, k)),
        cross=np.zeros((*shape, n, n)),
        mean=np.zeros((*shape, len(pairs))),
        stack_a=np.zeros((*shape, len(pairs))),
        sums=np.zeros((*shape, len(pairs), 5)),
        calls=np.zeros((*shape, len(pairs), len(BRACKETS)), dtype=np.int8),
    )

    def follow(first: int, last: int) -> None:
        _follow(read, values, orders, iteration, gamma, first, last)

    in_threads(follow, len(values), threads)
    return read


@kernel()
def _follow(
    read: Readings,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    iteration: Iteration,
    gamma: float,
    first: int,
    last: int,
) -> None:
    """Follow patients first to last - 1; entities are solved at the rounds that are read, and at no other."""
    packed = read.packed
    for patient in range(first, last):
        state = new_state(packed)
        votes = np.zeros((len(read.pairs), 2), dtype=np.int64)
        t = 0
        for r in range(len(read.rounds)):
            while t < read.rounds[r]:
                feature = orders[patient, t]
                vote(packed, state, read.pairs, votes, feature, values[patient, feature])
                condition(packed, state, feature, values[patient, feature])
                t += 1
            solve_all(packed, state, iteration)
            _read(read, state, votes, t, gamma, patient, r)


@kernel()
def _read(read: Readings, state: State, votes: NDArray[np.int64], t: int, gamma: float, patient: int, r: int) -> None:
    packed, cross = read.packed, state.cross
    read.constant[patient, r] = state.constant
    read.m[patient, r] = state.m
    read.q[patient, r] = state.q
    read.cross[patient, r] = cross
    for entity in range(len(packed.prior)):
        read.elbo[patient, r, entity] = elbo(state, entity, packed.n_features - t)
    for p in range(len(read.pairs)):
        a, b = read.pairs[p, 0], read.pairs[p, 1]
        sums = duel(packed, state, a, b)
        mean = 0.5 * ((cross[a, a] - cross[b, b]) + (cross[b, a] - cross[a, b]))
        if abs(mean) <= packed.tie:
            mean = 0.0
        read.mean[patient, r, p] = mean
        read.stack_a[patient, r, p] = gaussian_sign(mean, sums.variance)
        for i in range(5):
            read.sums[patient, r, p, i] = sums[i]
        bracket_calls(packed, state, a, b, sums, mean, votes[p], t, gamma, read.calls[patient, r, p])
