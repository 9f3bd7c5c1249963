"""Compute gains in plain Python: how much one more measurement is expected to change a duel (sec:gain).

A duel is a comparison of two entities a and b. The gains `cmi` and `f_target` are expectations over the value x_f of
the measured feature. The distribution of x_f is the mixture of its marginals under a and b, with the posterior
probabilities of a and b as weights (docs/decisions.md).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit, xlogy

from afa.inference.meanfield import Solver, mean_field
from afa.inference.result import Marginals, probabilities_of
from afa.model.arrays import Bools, Floats
from afa.model.mrf import VALUES, Evidence, difference_terms
from afa.scores.preference import half_range, linearity, stack_a, two_elbo

ZERO_GAIN = 1e-12
"""Gains below this number, in nats, are rounding errors of 0."""
TARGETS = ("linearity", "two_elbo", "stack_a")


def wald_magnitude(a: Evidence, b: Evidence) -> Floats:
    """Return half the range of each feature's term u_f in the log-odds D (eq:wald_mag).

    For the paper's models, the result is |delta_f^eff|: if f is observed, the part of the log-odds D that depends on
    observed features changes by at most this amount. The computation needs no mean-field inference.

    Returns
    -------
    gain : (M,) float64, nats, 0 for observed features

    """
    return half_range(difference_terms(a, b)[0])


def log_odds(a: Evidence, b: Evidence, *, solver: Solver | None = None) -> float:
    """Return the posterior log-odds log P(a | x_obs) - log P(b | x_obs), in nats.

    The log-likelihood of entity v is log P(x_obs | v) = ELBO_v(x_obs) - ELBO_v(empty). This formula differs from
    eq:clamped-marginal, because each of the two entities has a separate normaliser.
    """
    evidence = [_log_evidence(state, solver) for state in (a, b)]
    return evidence[0] - evidence[1]


def _log_evidence(state: Evidence, solver: Solver | None) -> float:
    given = mean_field(state.mrf, state, solver=solver).elbo
    return state.mrf.prior + given - mean_field(state.mrf, solver=solver).elbo


def cmi(odds: float, of_a: Marginals, of_b: Marginals, observed: Bools) -> Floats:
    """Return the mutual information I(y; x_f | x_obs) of each feature x_f and the entity y, where y is a or b (eq:cmi).

    With mean-field marginals, the mutual information equals the Jensen-Shannon divergence of the marginals of x_f under
    a and b, with the posterior probabilities of a and b as weights. The mutual information is between 0 and the entropy
    H(y).

    Parameters
    ----------
    odds : log-odds of a over b given x_obs, nats
    of_a, of_b : marginals under the two entities
    observed : (M,) bool

    Returns
    -------
    information : (M,) float64, nats, 0 for observed features

    """
    weight = np.array([expit(odds), expit(-odds)])
    each = np.stack([site_probabilities(of_a), site_probabilities(of_b)])
    return np.where(observed, 0.0, information(weight, each))


def information(posterior: Floats, predictive: Floats) -> Floats:
    """Return the mutual information I(y; x_f) of each feature x_f and the entity y, where y is one of N entities.

    Parameters
    ----------
    posterior : (N,) float64, sums to 1
    predictive : (N, M, 3) float64, probabilities of -1, 0, +1 under each entity

    Returns
    -------
    information : (M,) float64, nats

    """
    mixed = np.einsum("v,vfs->fs", posterior, predictive)
    ratio = np.divide(predictive, mixed, out=np.ones_like(predictive), where=predictive > 0)
    gain = np.einsum("v,vfs->f", posterior, xlogy(predictive, ratio))
    return np.where(gain < ZERO_GAIN, 0.0, gain)


def divergence(odds: Floats, one: Floats, other: Floats) -> Floats:
    """Return the weighted Jensen-Shannon divergence between two distributions.

    Parameters
    ----------
    odds : (...) float64, log-odds w of the first distribution; the weights are expit(w) and 1 - expit(w)
    one, other : (..., S) float64, probabilities

    Returns
    -------
    divergence : (...) float64, nats

    """
    weight = expit(odds)[..., None]
    mixed = weight * one + (1.0 - weight) * other
    total = np.zeros(np.broadcast_shapes(weight.shape, mixed.shape)[:-1])
    for share, part in ((weight, one), (1.0 - weight, other)):
        ratio = np.divide(part, mixed, out=np.ones_like(mixed), where=mixed > 0)
        total += (share * xlogy(part, ratio)).sum(axis=-1)
    return total


def site_probabilities(marginals: Marginals) -> Floats:
    """Return the probabilities of the values of each feature. Features outside the support have uniform probabilities.

    Returns
    -------
    probabilities : (M, 3) float64, of -1, 0, +1

    """
    return probabilities_of(marginals.first, marginals.second)


def f_target(a: Evidence, b: Evidence, *, target: str = "linearity", solver: Solver | None = None) -> Floats:
    """Return E_{x_f}[ |F(x_obs, x_f) - F(x_obs)| ] for each feature, where F is the score `target` (eq:smart_delta).

    For each value of x_f, both models are conditioned on this value, and mean-field is run again from uniform
    marginals.

    Returns
    -------
    gain : (M,) float64, in the unit of the score, 0 for observed features

    """
    score = _SCORE[target]
    now = [mean_field(state.mrf, state, solver=solver) for state in (a, b)]
    before = score([a, b], now)
    weight = expit(log_odds(a, b, solver=solver))
    predictive = weight * site_probabilities(now[0].marginals) + (1 - weight) * site_probabilities(now[1].marginals)
    gain = np.zeros(a.mrf.n_features)
    for feature in np.flatnonzero(~a.observed):
        for column in np.flatnonzero(a.mrf.possible[feature]):
            value = VALUES[column]
            lookahead = [state.observe(int(feature), value) for state in (a, b)]
            after = score(lookahead, [mean_field(state.mrf, state, solver=solver) for state in lookahead])
            gain[feature] += predictive[feature, column] * abs(after - before)
    return np.where(gain < ZERO_GAIN, 0.0, gain)


_SCORE: dict[str, Callable[..., float]] = {
    "linearity": lambda states, solved: float(linearity(states, [s.marginals for s in solved])[0, 1]),
    "two_elbo": lambda _, solved: float(two_elbo(solved)[0, 1]),
    "stack_a": lambda states, solved: float(stack_a(states, [s.marginals for s in solved])[0, 1]),
}
