"""The symmetric half-potential closure: two class conditionals from one discriminative model (eq:half-potential).

Elicitation gives only S = log(p_1 / p_0). The closure takes p_1 ~ exp(+S/2) and p_0 ~ exp(-S/2): both are pairwise
models on the graph of S, so that everything made for two entities serves the two classes (tab:mode-mapping). The
paper derives it by maximum entropy; that derivation does not hold (see docs/errata.md), the closure is a choice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from afa.bundle import Bundle, PackedCouplings
from afa.inference.meanfield import MeanField, Solver, mean_field
from afa.mrf import Evidence, PairwiseMRF


def half_potentials(mrf: PairwiseMRF) -> tuple[PairwiseMRF, PairwiseMRF]:
    """The models of class 1 and class 0: energies +S/2 and -S/2, the prior halved likewise (eq:half-potential).

    Negating S exchanges the two, and the errors of their bounds with them (prop:anti-sym).
    """
    return mrf.scaled(0.5), mrf.scaled(-0.5)


def closed_bundle(bundle: Bundle, entity: str) -> Bundle:
    """A bundle of two entities, `entity` and `not entity`: the half-potential models of one (tab:mode-mapping)."""
    v = bundle.index(entity)
    row, column, value = bundle.packed.of(v)
    couplings = PackedCouplings(
        pointer=np.array([0, len(value), 2 * len(value)], dtype=np.int64),
        row=np.concatenate([row, row]),
        column=np.concatenate([column, column]),
        value=np.concatenate([value / 2, -value / 2]),
    )
    half = bundle.unary[v] / 2
    return replace(
        bundle,
        name=f"{bundle.name}, {entity}",
        entities=(entity, f"not {entity}"),
        unary=np.stack([half, -half]),
        packed=couplings,
        priors=np.array([bundle.priors[v], -bundle.priors[v]]) / 2,
    )


@dataclass(frozen=True)
class TwoElbo:
    """log-odds of the two classes by mean-field, in nats (eq:two-elbo-def).

    raw : F_1 - F_0, equal to S at full observation. shift : its value at no observation, which is 0 where
    eq:Z0-eq-Z1 holds and the solves are exact.
    positive, negative : the two solves, with their diagnostics.
    """

    raw: float
    shift: float
    positive: MeanField
    negative: MeanField

    @property
    def calibrated(self) -> float:
        """`raw` less its value at no observation: 0 where nothing is known (rem:calibration-shift, spec S3)."""
        return self.raw - self.shift


def two_elbo(mrf: PairwiseMRF, observations: dict[str, int] | None = None, *, solver: Solver | None = None) -> TwoElbo:
    """The two-ELBO estimate of the log-odds of class 1 given `observations`, raw and calibrated.

    Each class has its bound (eq:elbo-half); their difference estimates eq:ell-hat.
    """
    one, zero = half_potentials(mrf)
    given = [mean_field(model, Evidence.of(model, observations), solver=solver) for model in (one, zero)]
    empty = [mean_field(model, solver=solver) for model in (one, zero)]
    return TwoElbo(given[0].elbo - given[1].elbo, empty[0].elbo - empty[1].elbo, *given)


def contraction(mrf: PairwiseMRF, evidence: Evidence | None = None) -> float:
    """Beta L^2, the largest absolute row sum of the couplings among unobserved features (eq:mf-contraction).

    Below 1 the paper's condition holds and mean-field has one fixed point; for ternary features 3/2 is enough, since
    the moment map has slope at most 2/3. Half-potentials have half this value (prop:halved).
    """
    strength = abs(mrf.couplings)
    if evidence is not None:
        hidden = ~evidence.observed
        strength = strength[hidden][:, hidden]
    return float(strength.sum(axis=1).max(initial=0.0))
