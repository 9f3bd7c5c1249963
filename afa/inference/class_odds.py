"""Compute the log-odds of an entity's two classes, exactly or as a two-ELBO estimate (eq:two-elbo-def).

Class 1 means that a patient has the entity, and class 0 means that a patient does not have it. `afa.model.closure`
builds the models of the two classes.
"""

from __future__ import annotations

from dataclasses import dataclass

from afa.errors import InferenceError
from afa.inference.exact import MEMORY_LIMIT, exact
from afa.inference.meanfield import MeanField, Solver, mean_field
from afa.model.closure import STRENGTH, Coupling, class_models
from afa.model.mrf import Evidence, PairwiseMRF

KAPPA_MEMORY = 10_000_000
"""Largest memory of tables for the exact kappa = log Z_1 - log Z_0, bytes. If more is needed, kappa is taken as 0."""


def log_ratio(one: PairwiseMRF, zero: PairwiseMRF, memory_limit: int = MEMORY_LIMIT) -> float:
    """Return the exact log Z_1 - log Z_0 of two class models, nats, without observations and without priors.

    In mean-field inference, this number is taken as 0 (docs/decisions.md, Base rates).

    Parameters
    ----------
    memory_limit : largest memory of tables, in bytes, as in `afa.inference.exact`

    """
    if not (one.couplings.nnz or zero.couplings.nnz):
        return 0.0
    of_one, of_zero = (exact(model, memory_limit=memory_limit).log_partition for model in (one, zero))
    return of_one - one.prior - of_zero


def known_log_ratio(one: PairwiseMRF, zero: PairwiseMRF) -> float:
    """Return `log_ratio` of the two class models, or 0 if the computation needs more than `KAPPA_MEMORY` bytes."""
    try:
        return log_ratio(one, zero, KAPPA_MEMORY)
    except InferenceError:
        return 0.0


@dataclass(frozen=True)
class TwoElbo:
    """Mean-field estimate of the log-odds of class 1 (the patient has the entity), nats (eq:two-elbo-def).

    Attributes
    ----------
    raw : F_1 - F_0, the difference of the two ELBOs; at full observation it equals S
    shift : `raw` without observations minus the prior log-odds; 0 if eq:Z0-eq-Z1 holds and inference is exact
    positive, negative : mean-field solutions of class 1 and class 0, with diagnostics

    """

    raw: float
    shift: float
    positive: MeanField
    negative: MeanField

    @property
    def calibrated(self) -> float:
        """Return the posterior log-odds in nats, which are `raw` minus `shift` (rem:calibration-shift).

        Without observations, the posterior log-odds equal the prior log-odds.
        """
        return self.raw - self.shift


def two_elbo(
    mrf: PairwiseMRF,
    observations: dict[str, int] | None = None,
    *,
    solver: Solver | None = None,
    coupling: Coupling = "differential",
    strength: float = STRENGTH,
) -> TwoElbo:
    """Return the two-ELBO estimate of the log-odds of class 1 (the patient has the entity), given `observations`.

    The estimate is the ELBO of the model of class 1 minus the ELBO of the model of class 0 (eq:elbo-half, eq:ell-hat).
    The function `class_models` builds both models.
    """
    one, zero = class_models(mrf, coupling, strength)
    given = [mean_field(model, Evidence.of(model, observations), solver=solver) for model in (one, zero)]
    empty = [mean_field(model, solver=solver) for model in (one, zero)]
    return TwoElbo(given[0].elbo - given[1].elbo, empty[0].elbo - empty[1].elbo - mrf.prior, *given)
