"""Compute brackets: intervals for the value of a score at full observation.

A bracket bounds the score S of one entity, or the difference D = S_a - S_b between two entities. If an interval for D
excludes 0, the comparison of the two entities is decided before all features are observed. The bracket `l1` is
rigorous: for all values of the unobserved features, the final score is in the interval. The brackets `kl` and
`hanson_wright` are heuristic, because they treat the observed features as a random sample, which is not the case. The
page docs/decisions.md states how the intervals `l1`, `kl` and `hanson_wright` differ from the intervals in the paper.
"""

from __future__ import annotations

import numpy as np
from scipy.special import rel_entr

from afa.model.closure import contraction
from afa.model.mrf import Evidence, difference_terms
from afa.scores.preference import gaussian_sign

GAMMA = 0.05
K1, ALPHA = 405.5, 1.1


def l1_budget(evidence: Evidence, *, form: str = "tight") -> float:
    """Return a bound on the energy that the unobserved features can add or subtract, nats (eq:unobs-budget).

    Parameters
    ----------
    form : `tight` includes only the couplings among unobserved features. `paper` also includes the couplings between
        observed and unobserved features, which the effective unaries already contain. Both bounds are valid, and the
        bound of `tight` is never larger than the bound of `paper`

    """
    unobserved = ~evidence.observed
    strength = abs(evidence.mrf.couplings)
    budget = np.abs(evidence.field).sum() + strength[unobserved][:, unobserved].sum() / 2
    if form == "paper":
        budget += strength[unobserved][:, evidence.observed].sum()
    return float(budget)


def l1_interval(evidence: Evidence, *, form: str = "tight") -> tuple[float, float]:
    """Return a lower and an upper bound on S(x) for all values of the unobserved features (eq:l1-bracket).

    The argument `form` is explained in `l1_budget`.
    """
    budget = l1_budget(evidence, form=form)
    return evidence.constant - budget, evidence.constant + budget


def duel_interval(a: Evidence, b: Evidence) -> tuple[float, float]:
    """Return an interval that contains E_a(x) - E_b(x) for all values of the unobserved features.

    The difference E_a(x) - E_b(x) is a sum of terms. To get the lower bound, each term that depends on unobserved
    features is replaced by its smallest value. To get the upper bound, each such term is replaced by its largest value.
    A NaN term (of a feature that is never measured) adds 0. For the paper's models, the interval equals the tight
    `l1_interval` of D_ab. For models with class-conditional probabilities, the two bounds can have unequal distances
    from the running constant (the contribution of the priors and of the observed features).
    """
    at = a.constant - b.constant
    unary, pairs = difference_terms(a, b)
    parts = [unary, pairs.reshape(len(pairs), 9)]
    low = sum(float(np.nanmin(part, axis=1, initial=0.0).sum()) for part in parts)
    high = sum(float(np.nanmax(part, axis=1, initial=0.0).sum()) for part in parts)
    return at + low, at + high


def kl_interval(positive: int, negative: int, n: int | None = None, *, gamma: float = GAMMA) -> tuple[float, float]:
    """Return an interval for the sign-vote score 2 p - 1, from the Bernoulli KL bound of KL-LUCB (supp:kl_bracket).

    Here, p is the expected share of votes for a, and p_hat is the observed share. The interval contains 2 p - 1 for
    each p with n kl(p_hat, p) <= log(k1 n^alpha / gamma).

    Parameters
    ----------
    positive, negative : N_+ and N_-, votes for a and for b (`afa.scores.preference.sign_votes`)
    n : number of observations. Observations without a vote then count against a, as in the paper. If n is None, such
        observations are ignored (n = N_+ + N_-), and the interval of (b, a) mirrors the interval of (a, b)
    gamma : allowed fraction of wrong decisions

    """
    from scipy.optimize import brentq  # noqa: PLC0415 (slow to import, and needed by this function alone)

    n = positive + negative if n is None else n
    if n == 0:
        return -1.0, 1.0
    share, level = positive / n, np.log(K1 * n**ALPHA / gamma) / n

    def excess(p: float) -> float:
        return float(rel_entr(share, p) + rel_entr(1 - share, 1 - p) - level)

    low = brentq(excess, 1e-300, share) if share > 0 and excess(1e-300) > 0 else 0.0
    high = brentq(excess, share, 1 - 1e-16) if share < 1 and excess(1 - 1e-16) > 0 else 1.0
    return 2 * low - 1, 2 * high - 1


def hanson_wright_interval(
    evidence: Evidence, mean: float, variance: float, *, gamma: float = GAMMA
) -> tuple[float, float]:
    """Return an interval in [-1, 1] for the score F = `stack_a` of two entities (eq:hw-bracket).

    The half-width is C sqrt(log(2 / gamma) / n_eff), with C = sqrt(2) s |F / mu_D| and n_eff = 1 / (1 + beta). The
    number s^2 is the variance of D if each unobserved feature is -1 or +1, independently and with probability 1/2. It
    equals the sum of delta_k^2 over the unobserved features k, plus the sum of delta_jk^2 over pairs j, k of unobserved
    features. The number beta is the largest row sum of absolute couplings between unobserved features, which bounds the
    spectral norm of these couplings. If all features are observed, the half-width is 0. The constants C and n_eff
    differ from the constants of the paper.

    Parameters
    ----------
    evidence : evidence of the difference model D
    mean, variance : mean and variance of D, as in `stack_a`
    gamma : allowed fraction of wrong decisions

    """
    score = gaussian_sign(mean, variance)
    unobserved = ~evidence.observed
    coupling = evidence.mrf.couplings[unobserved][:, unobserved]
    spread = float(np.sqrt((evidence.field**2).sum() + (coupling.data**2).sum() / 2))
    if spread == 0:
        return score, score
    if mean == 0:
        return -1.0, 1.0
    deviation = spread * np.sqrt(2 * np.log(2 / gamma) * (1 + contraction(evidence.mrf, evidence)))
    width = abs(score) * deviation / abs(mean)
    return max(-1.0, score - width), min(1.0, score + width)
