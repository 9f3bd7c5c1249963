"""Many patients at once: everything that the engine knows of them at a few rounds of one observation order each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.bracket import GAMMA
from afa.bundle import Bundle
from afa.engine.course import CALLS, DUELS, ENTITIES, MOMENTS
from afa.engine.duels import Pairs, all_pairs
from afa.engine.follow import follow
from afa.engine.layout import Packed, pack
from afa.inference.meanfield import Solver
from afa.mrf import Floats


class Snapshots(NamedTuple):
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


def snapshots(
    bundle: Bundle,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    rounds: Sequence[int],
    *,
    solver: Solver | None = None,
    gamma: float = GAMMA,
    duels: bool = True,
    threads: int | None = None,
) -> Snapshots:
    """Read P patients at the given rounds, ascending; every solve starts from the uniform marginals.

    values : (P, M) in {-1, 0, +1}. orders : (P, M), each a permutation of the features. duels : whether they are read
    too, which takes most of the time; without them Q is 0.
    """
    read = ENTITIES | MOMENTS | (DUELS | CALLS if duels else 0)
    found = follow(bundle, values, orders, read, rounds=rounds, solver=solver, gamma=gamma, threads=threads)
    pairs, shape = all_pairs(len(bundle.entities) if duels else 0), found.elbo.shape[:2]
    of_duels = (getattr(found, name) for name in ("mean", "stack_a", "sums", "calls"))
    return Snapshots(
        pack(bundle),
        pairs,
        np.array(rounds, dtype=np.int64),
        found.constant,
        found.elbo,
        found.m,
        found.q,
        found.cross,
        *(array if duels else np.zeros((*shape, 0, *array.shape[3:]), dtype=array.dtype) for array in of_duels),
    )
