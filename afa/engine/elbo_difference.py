"""Two-ELBO log-odds of one entity in many states that have nothing to do with each other (eq:two-elbo-def)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.closure import STRENGTH, Coupling, closed_bundle
from afa.engine.compile import in_threads, kernel
from afa.engine.layout import Packed, pack
from afa.engine.state import Iteration, condition, elbo, new_state, solve_entity
from afa.inference.meanfield import Solver
from afa.mrf import Floats


@dataclass(frozen=True)
class ElboDifferences:
    """F_1 - F_0 in R states, and what the two solves of each took.

    raw : (R,) nats. start : its value at no observation. prior : log-odds, nats. iterations, capped, ascended :
    (R,) int32, sums over the two solves, as in `afa.inference.meanfield.MeanField`.
    """

    raw: Floats
    start: float
    prior: float
    iterations: NDArray[np.int32]
    capped: NDArray[np.int32]
    ascended: NDArray[np.int32]

    @property
    def shift(self) -> float:
        """What calibration takes away, nats: the value at no observation less the prior (decisions.md S3)."""
        return self.start - self.prior

    @property
    def calibrated(self) -> Floats:
        """(R,) posterior log-odds: the prior where nothing is known."""
        return self.raw - self.shift


def elbo_differences(
    bundle: Bundle,
    entity: str,
    observed: NDArray[np.bool_],
    values: NDArray[np.int8],
    *,
    solver: Solver | None = None,
    coupling: Coupling = "differential",
    strength: float = STRENGTH,
    threads: int | None = None,
) -> ElboDifferences:
    """Mean-field log-odds of the two class models of one entity, each state solved from uniform marginals.

    observed : (R, M). values : (R, M) in {-1, 0, +1}, read where observed. The same bytes for any number of threads.
    """
    solver = solver or Solver()
    packed = pack(closed_bundle(bundle, entity, coupling, strength))
    iteration = Iteration(solver.damping, solver.tolerance, solver.max_iterations, False)
    nothing = np.zeros((1, observed.shape[1]), dtype=bool)
    states = np.concatenate([nothing, observed])
    known = np.concatenate([nothing.astype(np.int8), values])
    raw, counts = np.empty(len(states)), np.zeros((3, len(states)), dtype=np.int32)

    def work(first: int, last: int) -> None:
        _solve(packed, states, known, iteration, raw, counts, first, last)

    in_threads(work, len(states), threads)
    prior = float(packed.prior[0] - packed.prior[1])
    return ElboDifferences(raw[1:], float(raw[0]), prior, *counts[:, 1:])


@kernel()
def _solve(
    packed: Packed,
    observed: NDArray[np.bool_],
    values: NDArray[np.int8],
    iteration: Iteration,
    raw: Floats,
    counts: NDArray[np.int32],
    first: int,
    last: int,
) -> None:
    """Write F_1 - F_0 and the diagnostics, (3, R), of the states first to last - 1."""
    for row in range(first, last):
        state = new_state(packed)
        for feature in range(packed.n_features):
            if observed[row, feature]:
                condition(packed, state, feature, values[row, feature])
        for side in range(2):
            solve_entity(packed, state, side, iteration)
            counts[0, row] += state.iterations[side]
            counts[1, row] += state.capped[side]
            counts[2, row] += state.ascended[side]
        n_free = state.n_free[0]
        raw[row] = elbo(state, 0, n_free) - elbo(state, 1, n_free)
