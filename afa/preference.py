"""Preference scores V_ab between entities: a beats b where V_ab > 0, and 0 is a tie (sec:pref_scores).

Each function takes what is known of one patient, entity by entity in bundle order, and returns the
antisymmetric (N, N) matrix of all duels. The compiled form for whole cohorts is `afa.engine`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from afa.inference.result import Marginals
from afa.mrf import Evidence, Floats


def wald(evidence: Sequence[Evidence]) -> Floats:
    """Difference of the running constants, Lambda_ab: the energy of what has been observed (supp:Wald_simple)."""
    constants = np.array([state.constant for state in evidence])
    difference: Floats = constants[:, None] - constants[None, :]
    return difference


def linearity(evidence: Sequence[Evidence], marginals: Sequence[Marginals]) -> Floats:
    """E_Q[D_ab | x_obs] under the mixture Q of the two entities' product measures (eq:f1-criterion, spec S1).

    By linearity it is 1/2 (E_a[S_a] - E_a[S_b] + E_b[S_a] - E_b[S_b]).
    """
    cross = cross_expectations(evidence, marginals)
    return duels_of(cross)


def cross_expectations(evidence: Sequence[Evidence], marginals: Sequence[Marginals]) -> Floats:
    """(N, N) array of E_{q_u}[S_v | x_obs]: row u gives the marginals, column v the score (supp:pair-level)."""
    return np.array([[expected_score(state, of.first) for state in evidence] for of in marginals])


def expected_score(evidence: Evidence, first: Floats) -> float:
    """Expected energy of the conditioned model under a product measure with first moments `first`, shape (M,)."""
    quadratic = 0.5 * first @ (evidence.mrf.couplings @ first)
    return float(evidence.constant + evidence.field @ first + quadratic)


def duels_of(cross: Floats) -> Floats:
    """The antisymmetric matrix 1/2 (C_aa - C_ab + C_ba - C_bb) of cross expectations C, shape (N, N)."""
    own = np.diag(cross)
    return 0.5 * ((own[:, None] - own[None, :]) + (cross.T - cross))
