"""Log-odds of the two classes of an entity: the ratio of their partition functions, and the two-ELBO estimate.

`afa.model.closure` makes the two class models; here both are solved (eq:two-elbo-def).
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from afa.errors import InferenceError
from afa.inference.exact import MEMORY_LIMIT, exact
from afa.inference.meanfield import MeanField, Solver, mean_field
from afa.model.bundle import Bundle
from afa.model.bundle.rates import bundle_models
from afa.model.closure import STRENGTH, Coupling, class_models
from afa.model.mrf import Evidence, PairwiseMRF

SMALL = 10_000_000
"""Bytes of tables that the exact kappa may take where mean-field can go without."""
KAPPAS: WeakKeyDictionary[Bundle, dict[str, float]] = WeakKeyDictionary()


def kappa_of(bundle: Bundle, entity: str) -> float:
    """Log Z_1 - log Z_0 of an entity's explicit models at no observation, by exact inference; 0 in mean-field (F3).

    An `InferenceError` names the estimate of a model that is too dense.
    """
    known = KAPPAS.setdefault(bundle, {})
    if entity not in known:
        spoken = bundle.how_often(entity)[2]
        known[entity] = log_ratio(*bundle_models(bundle, entity, features=spoken))
    return known[entity]


def log_ratio(one: PairwiseMRF, zero: PairwiseMRF, memory_limit: int = MEMORY_LIMIT) -> float:
    """Log Z_1 - log Z_0 of two class models at no observation, without the prior, by exact inference.

    memory_limit : bytes of tables, as of `afa.inference.exact`.
    """
    if not (one.couplings.nnz or zero.couplings.nnz):
        return 0.0
    of_one, of_zero = (exact(model, memory_limit=memory_limit).log_partition for model in (one, zero))
    return of_one - one.prior - of_zero


def known_log_ratio(one: PairwiseMRF, zero: PairwiseMRF) -> float:
    """The same where it takes no more than `SMALL` bytes of tables, else 0."""
    try:
        return log_ratio(one, zero, SMALL)
    except InferenceError:
        return 0.0


@dataclass(frozen=True)
class TwoElbo:
    """log-odds of the two classes by mean-field, in nats (eq:two-elbo-def).

    raw : F_1 - F_0, equal at full observation to S, the difference of the two class models. shift : its value at no
    observation less the prior log-odds; it is 0 where eq:Z0-eq-Z1 holds and the solves are exact.
    positive, negative : the two solves, with their diagnostics.
    """

    raw: float
    shift: float
    positive: MeanField
    negative: MeanField

    @property
    def calibrated(self) -> float:
        """Posterior log-odds, `raw` less `shift`: the prior where nothing is known (rem:calibration-shift)."""
        return self.raw - self.shift


def two_elbo(
    mrf: PairwiseMRF,
    observations: dict[str, int] | None = None,
    *,
    solver: Solver | None = None,
    coupling: Coupling = "differential",
    strength: float = STRENGTH,
) -> TwoElbo:
    """The two-ELBO estimate of the log-odds of class 1 given `observations`, raw and calibrated.

    Each class has its bound (eq:elbo-half), of its model as `class_models` makes it with `coupling` and `strength`;
    their difference estimates eq:ell-hat.
    """
    one, zero = class_models(mrf, coupling, strength)
    given = [mean_field(model, Evidence.of(model, observations), solver=solver) for model in (one, zero)]
    empty = [mean_field(model, solver=solver) for model in (one, zero)]
    return TwoElbo(given[0].elbo - given[1].elbo, empty[0].elbo - empty[1].elbo - mrf.prior, *given)
