"""Preference scores V_ab between entities: a beats b where V_ab > 0, and 0 is a tie (sec:pref_scores).

Each function takes what is known of one patient, entity by entity in bundle order, and returns the (N, N) matrix
of all duels: antisymmetric, but for `kl`. The binary setting is the duel of the two half-potential models
(`afa.model.closure`), whose difference is S itself. The compiled form for whole cohorts is `afa.engine`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import erf

from afa.inference.meanfield import MeanField
from afa.inference.result import Marginals, probabilities_of
from afa.model.mrf import ROUNDING, Evidence, Floats, PairwiseMRF, difference_terms


def tie_of(models: Sequence[PairwiseMRF]) -> float:
    """The magnitude up to which a difference of two energies is rounding, not a preference (decisions.md S5)."""
    return ROUNDING * max((model.reach for model in models), default=0.0)


def wald(evidence: Sequence[Evidence]) -> Floats:
    """Difference of the running constants, Lambda_ab: the energy of what has been observed (supp:Wald_simple)."""
    constants = np.array([state.constant for state in evidence])
    difference: Floats = constants[:, None] - constants[None, :]
    return difference


def linearity(evidence: Sequence[Evidence], marginals: Sequence[Marginals], *, moments: str = "mixture") -> Floats:
    """E_Q[D_ab | x_obs] under the mixture Q of the two entities' product measures (eq:f1-criterion, decisions.md S1).

    By linearity it is 1/2 (E_a[S_a] - E_a[S_b] + E_b[S_a] - E_b[S_b]). `moments="product"` takes instead one
    product measure with the averaged moments, as supp:f1-approx prints it: a different quantity.
    """
    if moments == "mixture":
        return duels_of(cross_expectations(evidence, marginals))
    scores = np.zeros((len(evidence), len(evidence)))
    for a, b in np.ndindex(scores.shape):
        mean = _mixture(marginals[a], marginals[b])
        scores[a, b] = expected_score(evidence[a], mean) - expected_score(evidence[b], mean)
    return scores


def _mixture(a: Marginals, b: Marginals) -> Marginals:
    return Marginals(a.free, (a.first + b.first) / 2, (a.second + b.second) / 2)


def cross_expectations(evidence: Sequence[Evidence], marginals: Sequence[Marginals]) -> Floats:
    """(N, N) array of E_{q_u}[S_v | x_obs]: row u gives the marginals, column v the score (supp:pair-level)."""
    return np.array([[expected_score(state, of) for state in evidence] for of in marginals])


def expected_score(evidence: Evidence, marginals: Marginals) -> float:
    """Expected energy of the conditioned model under the product measure of `marginals`."""
    hidden = ~evidence.observed
    centre = 0.0 if evidence.mrf.centre is None else evidence.mrf.centre
    about = np.where(hidden, marginals.first - centre, 0.0)
    p = probabilities_of(marginals.first, marginals.second)
    linear = (p * np.where(p > 0, evidence.terms, 0.0))[hidden].sum()
    return float(evidence.constant + linear + 0.5 * about @ (evidence.mrf.couplings @ about))


def duels_of(cross: Floats) -> Floats:
    """The antisymmetric matrix 1/2 (C_aa - C_ab + C_ba - C_bb) of cross expectations C, shape (N, N)."""
    own = np.diag(cross)
    scores: Floats = 0.5 * ((own[:, None] - own[None, :]) + (cross.T - cross))
    return scores


def two_elbo(solutions: Sequence[MeanField]) -> Floats:
    """F_a - F_b, the difference of log-partition estimates given x_obs (eq:two-elbo-def, decisions.md S3 and S14)."""
    elbo = np.array([solution.elbo for solution in solutions])
    difference: Floats = elbo[:, None] - elbo[None, :]
    return difference


def background(evidence: Sequence[Evidence], frequencies: Floats) -> Floats:
    """E[S_a | x_obs] - E[S_b | x_obs] where unobserved features are independent, each with its own frequencies (ours).

    Parameters
    ----------
    frequencies : (n_features, 3) float64
        Probabilities of -1, 0 and +1 of each feature, for example its shares among unlabelled patients.

    """
    second = frequencies[:, 2] + frequencies[:, 0]
    first = frequencies[:, 2] - frequencies[:, 0]
    marginals = Marginals(np.arange(len(frequencies)), first, second)
    expected = np.array([expected_score(state, marginals) for state in evidence])
    difference: Floats = expected[:, None] - expected[None, :]
    return difference


def stack_a(evidence: Sequence[Evidence], marginals: Sequence[Marginals]) -> Floats:
    """2 Phi(mu_D / sigma_D) - 1 in [-1, 1], the Gaussian estimate of E_Q[sign D_ab] (eq:fsp, decisions.md S2).

    What it estimates is eq:f2-criterion-stacka. mu_D is `linearity`: eq:mu-D with what has been observed added. Where
    sigma_D is 0 it is the sign of mu_D.
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
    """sigma_D^2: unary terms by the variance of the mixture at each feature, couplings by their bound (eq:sigma-D)."""
    unary, pairs = difference_terms(a, b)
    mixture = _mixture(of_a, of_b)
    p = probabilities_of(mixture.first, mixture.second)
    value = np.where(p > 0, unary, 0.0)
    variance = (p * value**2).sum(axis=1) - (p * value).sum(axis=1) ** 2
    half = half_range(pairs.reshape(len(pairs), 9))
    return float(variance[~a.observed].sum() + (half**2).sum())


def half_range(values: Floats) -> Floats:
    """Half the range of each row (n,) of `values` (n, k), NaN left out."""
    spread: Floats = (np.nanmax(values, axis=1) - np.nanmin(values, axis=1)) / 2 if len(values) else np.zeros(0)
    return spread


def gaussian_sign(mean: float, variance: float) -> float:
    """E[sign X] of a Gaussian X: 2 Phi(mean / sd) - 1, and sign(mean) where the variance is 0."""
    if variance <= 0:
        return float(np.sign(mean))
    return float(erf(mean / np.sqrt(2 * variance)))


def kl(models: Sequence[PairwiseMRF], observations: Sequence[tuple[int, int]]) -> Floats:
    """2 N_+ / |B| - 1: the share of observations that vote for a, zero votes counting against (supp:KL_sign_vote).

    `observations` are (feature index, value) in the order made: a vote uses the effective unary of that moment
    (decisions.md S4). Not antisymmetric: entry (a, b) asks whether a beats b. 0 before any observation; at full
    observation it is eq:kl-fullobs.
    """
    positive, _ = sign_votes(models, observations)
    n = len(observations)
    return 2 * positive / n - 1 if n else np.zeros_like(positive)


def kl_nonzero(models: Sequence[PairwiseMRF], observations: Sequence[tuple[int, int]]) -> Floats:
    """(N_+ - N_-) / (N_+ + N_-): the sign vote without its zero votes; 0 where there is no vote. Given as `kl`."""
    positive, negative = sign_votes(models, observations)
    votes = positive + negative
    share: Floats = np.divide(positive - negative, votes, out=np.zeros_like(votes), where=votes > 0)
    return share


def sign_votes(models: Sequence[PairwiseMRF], observations: Sequence[tuple[int, int]]) -> tuple[Floats, Floats]:
    """(N, N) counts of the observations that vote for a and for b, by the sign of u_i(x_i) when made.

    For the paper's models u_i(x_i) is delta_i^eff x_i, and a value of 0 does not vote.
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
