"""Compute preference scores V_ab between entities a and b (sec:pref_scores).

If V_ab > 0, a is preferred. V_ab = 0 is a tie. Most functions take one `Evidence` for each entity: the model of the
entity, and the values that were observed in one patient. The functions return the matrix (N, N) of the scores of all
entity pairs. Its rows and columns have the order of the given entities. The matrix is antisymmetric, except for the
score `kl`. A binary task is a comparison of two class models with the energies +S/2 and -S/2 (`afa.model.closure`). The
compiled kernels for many patients are in `afa.engine`. The page docs/decisions.md gives the reasons for these
definitions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import erf

from afa.inference.meanfield import MeanField
from afa.inference.result import Marginals, probabilities_of
from afa.model.arrays import Floats
from afa.model.mrf import ROUNDING, Evidence, PairwiseMRF, difference_terms


def tie_of(models: Sequence[PairwiseMRF]) -> float:
    """Return the largest absolute difference between two energies, in nats, that is treated as a rounding error."""
    return ROUNDING * max((model.reach for model in models), default=0.0)


def wald(evidence: Sequence[Evidence]) -> Floats:
    """Return the score Lambda_ab for every pair of entities a and b (supp:Wald_simple).

    The score Lambda_ab is the running constant of a minus the running constant of b. The running constant of an entity
    is the part of its energy that comes from the prior and the observed features.

    Returns
    -------
    scores : (N, N) float64, nats

    """
    constants = np.array([state.constant for state in evidence])
    difference: Floats = constants[:, None] - constants[None, :]
    return difference


def linearity(evidence: Sequence[Evidence], marginals: Sequence[Marginals], *, moments: str = "mixture") -> Floats:
    """Return E_Q[D_ab | x_obs], where Q is the mixture of the mean-field distributions of a and b (eq:f1-criterion).

    By linearity, the score is 1/2 (E_a[S_a] - E_a[S_b] + E_b[S_a] - E_b[S_b]). If `moments` is `product`, the mixture
    is replaced by a distribution in which the features are independent, and in which each moment of a feature is the
    average of its moments under a and under b. The formula in supp:f1-approx uses this product distribution, and gives
    other scores than the mixture.

    Returns
    -------
    scores : (N, N) float64, nats

    """
    if moments == "mixture":
        return duels_of(cross_expectations(evidence, marginals))
    scores = np.zeros((len(evidence), len(evidence)))
    for a, b in np.ndindex(scores.shape):
        mean = _average_moments(marginals[a], marginals[b])
        scores[a, b] = expected_score(evidence[a], mean) - expected_score(evidence[b], mean)
    return scores


def _average_moments(a: Marginals, b: Marginals) -> Marginals:
    return Marginals(a.free, (a.first + b.first) / 2, (a.second + b.second) / 2)


def cross_expectations(evidence: Sequence[Evidence], marginals: Sequence[Marginals]) -> Floats:
    """Return the expected score E_{q_u}[S_v | x_obs] for every pair of entities u and v (supp:pair-level).

    Returns
    -------
    cross : (N, N) float64, nats; entry (u, v) is the expected score of v under the marginals of u

    """
    return np.array([[expected_score(state, of) for state in evidence] for of in marginals])


def expected_score(evidence: Evidence, marginals: Marginals) -> float:
    """Return the expected energy of a model, in nats, for independent unobserved features with given marginals."""
    unobserved = ~evidence.observed
    centre = 0.0 if evidence.mrf.centre is None else evidence.mrf.centre
    about = np.where(unobserved, marginals.first - centre, 0.0)
    p = probabilities_of(marginals.first, marginals.second)
    linear = (p * np.where(p > 0, evidence.terms, 0.0))[unobserved].sum()
    return float(evidence.constant + linear + 0.5 * about @ (evidence.mrf.couplings @ about))


def duels_of(cross: Floats) -> Floats:
    """Return the antisymmetric matrix 1/2 (C_aa - C_ab + C_ba - C_bb), where C is the matrix `cross`.

    Parameters
    ----------
    cross : (N, N) float64, nats

    Returns
    -------
    scores : (N, N) float64, nats

    """
    own = np.diag(cross)
    scores: Floats = 0.5 * ((own[:, None] - own[None, :]) + (cross.T - cross))
    return scores


def two_elbo(solutions: Sequence[MeanField]) -> Floats:
    """Return F_a - F_b, the difference between the ELBOs of a and b given the observations (eq:two-elbo-def).

    Returns
    -------
    scores : (N, N) float64, nats

    """
    elbo = np.array([solution.elbo for solution in solutions])
    difference: Floats = elbo[:, None] - elbo[None, :]
    return difference


def background(evidence: Sequence[Evidence], frequencies: Floats) -> Floats:
    """Return E[S_a | x_obs] - E[S_b | x_obs], where unobserved features are independent and have given frequencies.

    Parameters
    ----------
    frequencies : (M, 3) float64, probabilities of -1, 0 and +1, for example shares among unlabelled patients

    Returns
    -------
    scores : (N, N) float64, nats

    """
    second = frequencies[:, 2] + frequencies[:, 0]
    first = frequencies[:, 2] - frequencies[:, 0]
    marginals = Marginals(np.arange(len(frequencies)), first, second)
    expected = np.array([expected_score(state, marginals) for state in evidence])
    difference: Floats = expected[:, None] - expected[None, :]
    return difference


def stack_a(evidence: Sequence[Evidence], marginals: Sequence[Marginals]) -> Floats:
    """Return 2 Phi(mu_D / sigma_D) - 1, the Gaussian estimate of E_Q[sign D_ab] (eq:fsp, eq:f2-criterion-stacka).

    Here, mu_D is the score `linearity`. It includes the energy of the observed features, which eq:mu-D in the paper
    does not include. If sigma_D is 0, the result is the sign of mu_D.

    Returns
    -------
    scores : (N, N) float64, from -1 to 1

    """
    means = linearity(evidence, marginals)
    means[np.abs(means) <= tie_of([state.mrf for state in evidence])] = 0.0
    scores = np.zeros_like(means)
    for a, b in np.ndindex(scores.shape):
        scores[a, b] = gaussian_sign(
            float(means[a, b]), duel_variance(evidence[a], evidence[b], marginals[a], marginals[b])
        )
    return scores


def duel_variance(a: Evidence, b: Evidence, of_a: Marginals, of_b: Marginals) -> float:
    """Return sigma_D^2: the variance of unary terms under the mixture, plus a bound for the couplings (eq:sigma-D)."""
    unary, pairs = difference_terms(a, b)
    mixture = _average_moments(of_a, of_b)
    p = probabilities_of(mixture.first, mixture.second)
    value = np.where(p > 0, unary, 0.0)
    variance = (p * value**2).sum(axis=1) - (p * value).sum(axis=1) ** 2
    half = half_range(pairs.reshape(len(pairs), 9))
    return float(variance[~a.observed].sum() + (half**2).sum())


def half_range(values: Floats) -> Floats:
    """Return half the difference between the maximum and the minimum of each row of `values`. NaN is ignored.

    Parameters
    ----------
    values : (n, k) float64

    Returns
    -------
    half_range : (n,) float64

    """
    spread: Floats = (np.nanmax(values, axis=1) - np.nanmin(values, axis=1)) / 2 if len(values) else np.zeros(0)
    return spread


def gaussian_sign(mean: float, variance: float) -> float:
    """Return E[sign X] = 2 Phi(mean / sd) - 1 of a Gaussian X. If the variance is 0, return the sign of the mean."""
    if variance <= 0:
        return float(np.sign(mean))
    return float(erf(mean / np.sqrt(2 * variance)))


def kl(models: Sequence[PairwiseMRF], observations: Sequence[tuple[int, int]]) -> Floats:
    """Return 2 N_+ / |B| - 1 for each pair (a, b): N_+ of the |B| observations vote for entity a (supp:KL_sign_vote).

    If an observation votes for neither entity, it counts like a vote against entity a. Whether an observation votes for
    a or for b can depend on earlier observations, because earlier observations change the effective unary potentials of
    coupled features. The matrix is not antisymmetric, because entry (a, b) counts the votes for a, and entry (b, a)
    counts the votes for b. Without observations, all entries are 0. If all features are observed, the score equals
    eq:kl-fullobs.

    Parameters
    ----------
    observations : tuples (feature index, value), in the order of observation

    Returns
    -------
    scores : (N, N) float64, from -1 to 1

    """
    positive, _ = sign_votes(models, observations)
    n = len(observations)
    return 2 * positive / n - 1 if n else np.zeros_like(positive)


def kl_nonzero(models: Sequence[PairwiseMRF], observations: Sequence[tuple[int, int]]) -> Floats:
    """Return (N_+ - N_-) / (N_+ + N_-), where N_+ observations vote for a and N_- for b. Without votes, return 0.

    Parameters
    ----------
    models, observations : as in `kl`

    Returns
    -------
    scores : (N, N) float64, from -1 to 1

    """
    positive, negative = sign_votes(models, observations)
    votes = positive + negative
    share: Floats = np.divide(positive - negative, votes, out=np.zeros_like(votes), where=votes > 0)
    return share


def sign_votes(models: Sequence[PairwiseMRF], observations: Sequence[tuple[int, int]]) -> tuple[Floats, Floats]:
    """Count the observations that support a and the observations that support b, for every pair of entities (a, b).

    An observation votes for a if u_i(x_i) is positive, and for b if u_i(x_i) is negative. Here, u_i(x_i) is the change
    of D_ab when the feature i is observed with the value x_i. For the paper's models, u_i(x_i) = delta_i^eff x_i, and
    therefore the value 0 votes for neither entity.

    Returns
    -------
    positive, negative : (N, N) float64, whole numbers

    """
    tie = tie_of(models)
    evidence = [Evidence.of(model) for model in models]
    positive, negative = np.zeros((len(models),) * 2), np.zeros((len(models),) * 2)
    for feature, value in observations:
        terms = np.array([state.terms[feature, value + 1] for state in evidence])
        vote = terms[:, None] - terms[None, :]
        positive += vote > tie
        negative += vote < -tie
        evidence = [state.observe(feature, value) for state in evidence]
    return positive, negative
