"""Ways to rank entities at t observations: how unobserved features are predicted, and on which scale scores stand.

A *method* says what is expected: `linearity` asks the two entities of each duel, half and half; `population` asks all
entities and a null, each by its posterior (`afa.preference.population`); `frequency` asks no model, but expects of each
hidden gene its mean in the cohort, whose labels are not needed; `wald` expects nothing of what is hidden. At full
observation all methods are one.

The more genes an entity has, the further its score goes from 0, whatever the patient. Each *scale* is a null with a
mean and a standard deviation for every entity, in closed form, couplings included; the score in units of it is
(S_v - mean) / sd. An entity whose score cannot vary under the null is 0 on that scale: it says nothing of a patient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from scipy.stats import rankdata

from afa.bundle import Bundle
from afa.engine.paths import snapshots
from afa.inference.meanfield import Solver
from afa.mrf import ROUNDING, Floats

METHODS = ("linearity", "population", "frequency", "wald")
Signs = NDArray[np.int8]
Counts = NDArray[np.int64]


class Scale(NamedTuple):
    """What is taken off each score and what it is divided by, of any shape that ends in (N,); `sd` 0 where it is void.

    reach : bound on the absolute score of each entity, (N,).
    """

    mean: Floats
    sd: Floats
    reach: Floats

    @property
    def divisor(self) -> Floats:
        """1 / sd, and 0 for an entity without any."""
        return np.divide(1.0, self.sd, out=np.zeros_like(self.sd), where=self.sd > 0)

    @property
    def tie(self) -> float:
        """Up to this magnitude a difference of two scaled scores is rounding, not a preference (decisions.md S5)."""
        return ROUNDING * float(((self.reach + np.abs(self.mean)) * self.divisor).max(initial=0.0))


def raw_scale(bundle: Bundle) -> Scale:
    """The scores as they are."""
    n = len(bundle.entities)
    return Scale(np.zeros(n), np.ones(n), reaches(bundle))


def uniform_scale(bundle: Bundle) -> Scale:
    """Features independent and uniform on {-1, 0, 1}: variance 2/3 sum of alpha_j^2 + 4/9 sum of psi_jl^2."""
    m = len(bundle.features)
    return independent_scale(bundle, np.zeros(m), np.full(m, 2 / 3))


def cohort_scale(bundle: Bundle, values: NDArray[np.int8]) -> Scale:
    """Features independent, each with its frequencies among the patients in values (P, M); no label enters."""
    return independent_scale(bundle, values.mean(axis=0, dtype=np.float64), values.var(axis=0, dtype=np.float64))


def independent_scale(bundle: Bundle, mean: Floats, variance: Floats) -> Scale:
    """Independent features of the given mean and variance, (M,) each.

    With x = mean + z, S = E[S] + (alpha + W mean).z + 1/2 z'Wz, whose terms are all uncorrelated.
    """
    row, column, value = bundle.packed.row, bundle.packed.column, bundle.packed.value
    field = bundle.unary + _by_gene(bundle, value * mean[column], value * mean[row])
    expected = bundle.priors + bundle.unary @ mean + by_entity(bundle, value * mean[row] * mean[column])
    spread = field**2 @ variance + by_entity(bundle, value**2 * variance[row] * variance[column])
    return _scale(bundle, expected, spread)


def shuffled_scale(bundle: Bundle, plus: Counts, minus: Counts) -> Scale:
    """The patient's own values, each gene having that of another drawn at random: so many +1 and -1 of M genes.

    plus, minus : of any one shape, to which (N,) is appended. Sampling without replacement: all moments of up to four
    genes follow from the two counts, and the score needs no more of the bundle than sums over genes, couplings, and
    couplings that meet.
    """
    value = bundle.packed.value
    at_gene = _by_gene(bundle, value, value)
    alpha, psi = bundle.unary.sum(axis=1), by_entity(bundle, value)
    alpha_squared, psi_squared = (bundle.unary**2).sum(axis=1), by_entity(bundle, value**2)
    meeting = (at_gene**2).sum(axis=1) - 2 * psi_squared
    touching = (bundle.unary * at_gene).sum(axis=1)
    of = moments(plus, minus, len(bundle.features))
    expected = bundle.priors + alpha * of.j + psi * of.jl
    second = alpha_squared * of.jj + (alpha**2 - alpha_squared) * of.jl
    second += psi_squared * of.jjll + meeting * of.jjlk + (psi**2 - psi_squared - meeting) * of.jlki
    second += 2 * (touching * of.jjl + (alpha * psi - touching) * of.jlk)
    return _scale(bundle, expected, second - (expected - bundle.priors) ** 2)


class Moments(NamedTuple):
    """Expected products of the values of distinct genes, a letter for each factor: `jjl` is E[x_j^2 x_l]."""

    j: Floats
    jj: Floats
    jl: Floats
    jjl: Floats
    jlk: Floats
    jjll: Floats
    jjlk: Floats
    jlki: Floats


def moments(plus: Counts, minus: Counts, m: int) -> Moments:
    """Of m genes of which `plus` have +1 and `minus` -1, in random order; 0 where there are too few genes for one."""
    total, squares = ((plus + sign * minus)[..., None].astype(np.float64) for sign in (-1, 1))
    ways = [float(np.prod(np.arange(m, m - genes, -1, dtype=np.float64))) for genes in range(5)]

    def mean_of(products: Floats, genes: int) -> Floats:
        return products / ways[genes] if ways[genes] else np.zeros_like(products)

    return Moments(
        j=mean_of(total, 1),
        jj=mean_of(squares, 1),
        jl=mean_of(total**2 - squares, 2),
        jjl=mean_of(squares * total - total, 2),
        jlk=mean_of(total**3 - 3 * squares * total + 2 * total, 3),
        jjll=mean_of(squares**2 - squares, 2),
        jjlk=mean_of((squares - 2) * (total**2 - squares), 3),
        jlki=mean_of(total**4 - 6 * squares * total**2 + 3 * squares**2 + 8 * total**2 - 6 * squares, 4),
    )


def expected_counts(values: NDArray[np.int8], observed: NDArray[np.bool_]) -> tuple[Counts, Counts]:
    """How many +1 and -1 each patient has, as far as observations tell: (P, R) each, in whole genes.

    values : (P, M). observed : (P, R, M). A hidden gene counts with its frequency among all patients; no value that
    has not been observed enters for the patient alone.
    """
    found = []
    for sign in (1, -1):
        among = (values == sign).sum(axis=0)
        seen = (observed & (values == sign)[:, None, :]).sum(axis=2)
        hidden = among.sum() - np.where(observed, among, 0).sum(axis=2)
        found.append(seen + np.rint(hidden / len(values)).astype(np.int64))
    plus, minus = found
    return plus, np.minimum(minus, values.shape[1] - plus)


def scales_of(bundle: Bundle, values: NDArray[np.int8], observed: NDArray[np.bool_]) -> dict[str, Scale]:
    """Every scale by name, for P patients at R rounds: (N,) where it is the same for all, else (P, R, N)."""
    return {
        "raw": raw_scale(bundle),
        "uniform": uniform_scale(bundle),
        "cohort": cohort_scale(bundle, values),
        "shuffled": shuffled_scale(bundle, *expected_counts(values, observed)),
    }


def by_entity(bundle: Bundle, of_pair: Floats) -> Floats:
    """(..., N) sums over each entity's couplings of something that each coupling has, (..., pairs)."""
    pointer = bundle.packed.pointer
    added = np.concatenate([np.zeros((*of_pair.shape[:-1], 1)), np.cumsum(of_pair, axis=-1)], axis=-1)
    sums: Floats = added[..., pointer[1:]] - added[..., pointer[:-1]]
    return sums


def reaches(bundle: Bundle) -> Floats:
    """(N,) `PairwiseMRF.reach` of every entity."""
    of_pairs = by_entity(bundle, np.abs(bundle.packed.value))
    bound: Floats = np.abs(bundle.priors) + np.abs(bundle.unary).sum(axis=1) + of_pairs
    return bound


def _by_gene(bundle: Bundle, at_row: Floats, at_column: Floats) -> Floats:
    """(N, M) sums over an entity's couplings at each gene, of what they bring to their one and other end, (pairs,)."""
    n, m = bundle.unary.shape
    first = bundle.packed.owner * m
    place = np.concatenate([first + bundle.packed.row, first + bundle.packed.column])
    sums = np.bincount(place, np.concatenate([at_row, at_column]), minlength=n * m).astype(np.float64)
    return sums.reshape(n, m)


def _scale(bundle: Bundle, mean: Floats, variance: Floats) -> Scale:
    """A variance that is rounding, against the largest that there can be, is 0."""
    reach = reaches(bundle)
    return Scale(mean, np.sqrt(np.where(variance > ROUNDING * reach**2, variance, 0.0)), reach)


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
    return bundle.priors + values @ bundle.unary.T + pairs


def posterior_of(bundle: Bundle, elbo: Floats, rounds: Sequence[int]) -> Floats:
    """(P, R, N + 1) `afa.preference.population_posterior`, of ELBOs (P, R, N) of which the first are those at 0."""
    of_null = np.broadcast_to(-np.log(3.0) * np.array(rounds, dtype=np.float64)[:, None], (*elbo.shape[:2], 1))
    log = np.concatenate([bundle.priors + elbo - elbo[:, :1], of_null], axis=2)
    return np.asarray(softmax(log, axis=2))


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
    return (known.posterior[..., None, :-1] @ known.cross)[..., 0, :] + of_null


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
