"""What an entity's score comes to by chance, so that scores of long and short lists can be put on one scale.

The more genes an entity has, the further its score goes from 0, whatever the patient. Each scale here is a null with a
mean and a standard deviation for every entity, in closed form, couplings included; the score in units of it is
(S_v - mean) / sd. An entity whose score cannot vary under the null is 0 on that scale: it says nothing of a patient.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.mrf import ROUNDING, Floats

SCALES = ("raw", "uniform", "cohort", "shuffled")
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
    first = np.repeat(np.arange(n), np.diff(bundle.packed.pointer)) * m
    place = np.concatenate([first + bundle.packed.row, first + bundle.packed.column])
    sums = np.bincount(place, np.concatenate([at_row, at_column]), minlength=n * m).astype(np.float64)
    return sums.reshape(n, m)


def _scale(bundle: Bundle, mean: Floats, variance: Floats) -> Scale:
    """A variance that is rounding, against the largest that there can be, is 0."""
    reach = reaches(bundle)
    return Scale(mean, np.sqrt(np.where(variance > ROUNDING * reach**2, variance, 0.0)), reach)
