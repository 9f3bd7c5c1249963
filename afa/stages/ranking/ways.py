"""Ways to rank entities at t observations: how unobserved features are predicted, and on which scale scores stand.

A *method* says what is expected: `linearity` asks the two entities of each duel, half and half; `population` asks all
entities and a null, each by its posterior (`afa.preference.population`); `frequency` asks no model, but expects of each
hidden gene its mean in the cohort, whose labels are not needed; `wald` expects nothing of what is hidden. A *scale*
(`afa.stages.ranking.scales`) says in which units. At full observation all methods are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from afa.bundle import Bundle
from afa.engine.paths import snapshots
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.stages.ranking.scales import Scale, by_entity

METHODS = ("linearity", "population", "frequency", "wald")
Signs = NDArray[np.int8]


class Known(NamedTuple):
    """P patients at R rounds, the first at no observation and the last at full observation; N entities.

    rounds : (R,). constant : (P, R, N) running constants. frequency : (P, R, N) E[S_v | x_obs] where hidden genes are
    independent, each with its mean among all P patients. posterior : (P, R, N + 1), of the entities and, last, of the
    null. cross : (P, R, N, N) E_{q_u}[S_v | x_obs], row u the marginals. observed : (P, R, M).
    """

    rounds: list[int]
    constant: Floats
    frequency: Floats
    posterior: Floats
    cross: Floats
    observed: NDArray[np.bool_]


def known(
    bundle: Bundle,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    rounds: Sequence[int],
    *,
    solver: Solver | None = None,
    threads: int | None = None,
) -> Known:
    """Read P patients, values (P, M), at 0, `rounds` and M of their orders (P, M); uniform starts (decisions.md M6).

    rounds : ascending, above 0 and below M. At no observation all patients are one, at full observation nothing is
    inferred: both are read without following anybody.
    """
    p, m, n = *values.shape, len(bundle.entities)
    shown = [0, *rounds, m]
    start = snapshots(bundle, values[:1], orders[:1], [0], solver=solver, duels=False, threads=1)
    constant, elbo = (np.empty((p, len(shown), n)) for _ in range(2))
    cross = np.empty((p, len(shown), n, n))
    constant[:, 0], elbo[:, 0], cross[:, 0] = start.constant[0, 0], start.elbo[0, 0], start.cross[0, 0]
    constant[:, -1] = elbo[:, -1] = whole_scores(bundle, values)
    cross[:, -1] = constant[:, -1, None, :]
    if rounds:
        read = snapshots(bundle, values, orders, rounds, solver=solver, duels=False, threads=threads)
        constant[:, 1:-1], elbo[:, 1:-1], cross[:, 1:-1] = read.constant, read.elbo, read.cross
    observed = np.argsort(orders, axis=1)[:, None, :] < np.array(shown)[:, None]
    # the score is linear in every gene, so that its mean over independent ones is its value at their means
    filled = np.where(observed, values[:, None, :], values.mean(axis=0, dtype=np.float64))
    frequency = whole_scores(bundle, filled)
    return Known(shown, constant, frequency, posterior_of(bundle, elbo, shown), cross, observed)


def whole_scores(bundle: Bundle, values: NDArray[np.int8] | Floats) -> Floats:
    """(..., N) S of every entity, of values (..., M)."""
    pairs = by_entity(bundle, values[..., bundle.packed.row] * values[..., bundle.packed.column] * bundle.packed.value)
    scores: Floats = bundle.priors + values @ bundle.unary.T + pairs
    return scores


def posterior_of(bundle: Bundle, elbo: Floats, rounds: Sequence[int]) -> Floats:
    """(P, R, N + 1) `afa.preference.population_posterior`, of ELBOs (P, R, N) of which the first are those at 0."""
    of_null = np.broadcast_to(-np.log(3.0) * np.array(rounds, dtype=np.float64)[:, None], (*elbo.shape[:2], 1))
    log = np.concatenate([bundle.priors + elbo - elbo[:, :1], of_null], axis=2)
    weights = np.exp(log - log.max(axis=2, keepdims=True))
    posterior: Floats = weights / weights.sum(axis=2, keepdims=True)
    return posterior


def leads(known: Known, method: str, scale: Scale, pairs: NDArray[np.int64]) -> Floats:
    """(P, R, Q) by how much the first entity of each pair (Q, 2) is ahead, on a scale; 0 where that is rounding."""
    divisor = scale.divisor
    if method == "linearity":
        cross = (known.cross - scale.mean[..., None, :]) * divisor[..., None, :]
        own = np.diagonal(cross, axis1=2, axis2=3)
        across = np.swapaxes(cross, 2, 3) - cross
        a, b = pairs[:, 0], pairs[:, 1]
        lead = 0.5 * ((own[..., a] - own[..., b]) + across[..., a, b])
    else:
        scores = (expected_scores(known, method) - scale.mean) * divisor
        lead = scores[..., pairs[:, 0]] - scores[..., pairs[:, 1]]
    lead[np.abs(lead) <= scale.tie] = 0.0
    return lead


def expected_scores(known: Known, method: str) -> Floats:
    """(P, R, N) the score that a method expects of each entity by itself: all methods but `linearity`."""
    if method != "population":
        return known.constant if method == "wald" else known.frequency
    of_null = known.posterior[..., -1:] * known.constant
    expected: Floats = (known.posterior[..., None, :-1] @ known.cross)[..., 0, :] + of_null
    return expected


def places(lead: Floats, pairs: NDArray[np.int64], n: int, tie: float) -> NDArray[np.int64]:
    """(..., N) how many entities are ahead of each by more than its name, from leads (..., Q); equal for ties.

    By duels won, then by the sum of the leads (decisions.md S6, `afa.copeland.ranking`); sums that differ from the
    next larger one by no more than rounding (`tie` times N) are equal.
    """
    side = np.zeros((len(pairs), n))
    side[np.arange(len(pairs)), pairs[:, 0]] = 1.0
    side[np.arange(len(pairs)), pairs[:, 1]] = -1.0
    won, margin = np.sign(lead) @ side, lead @ side
    largest_first = np.argsort(-margin, axis=-1, kind="stable")
    falling = np.take_along_axis(margin, largest_first, axis=-1)
    apart = np.cumsum(np.diff(falling, axis=-1, prepend=falling[..., :1]) < -tie * n, axis=-1)
    step = np.empty_like(largest_first)
    np.put_along_axis(step, largest_first, apart, axis=-1)
    behind = step - np.rint(won).astype(np.int64) * n
    place: NDArray[np.int64] = rankdata(behind, method="min", axis=-1).astype(np.int64) - 1
    return place
