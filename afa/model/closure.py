"""Build two class models from one elicited model, with one of two assumptions, called *closures* (eq:half-potential).

Elicitation gives only S = log(p_1 / p_0), where p_1 is the class with the entity and p_0 the class without it. The
paper's closure, `differential`, sets p_1 ~ exp(+S/2) and p_0 ~ exp(-S/2). Both class models are pairwise models on the
graph of S. Therefore all methods for two entities apply to the two classes (tab:mode-mapping). The paper derives
`differential` by maximum entropy. The derivation is wrong (docs/errata.md). Therefore, this closure is an assumption.

The closure `shared`, which the paper does not have, treats an elicited coupling as co-variation in both classes: p_1 ~
exp(+alpha.x/2 + x'Psi x/2) and p_0 ~ exp(-alpha.x/2 + x'Psi x/2). Because p_0(x) = p_1(-x), Z_0 = Z_1 exactly, and
E_Q[sign S] = 0 exactly before any observation. Under `shared`, S is alpha.x, and couplings only help to predict
unobserved features. In `differential` and `shared`, each class gets half the prior log-odds.

A bundle with class-conditional probabilities needs no closure: `explicit` uses the two classes of the bundle
(`afa.model.bundle.rates`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from afa.errors import Fault, PlannerError
from afa.model.bundle import Bundle, PackedCouplings
from afa.model.bundle.rates import CONDITION, NO_ROWS, SHARED
from afa.model.bundle.rates import STRENGTH as STRENGTH  # noqa: PLC0414 (re-exported)
from afa.model.mrf import Evidence, PairwiseMRF

Coupling = Literal["differential", "shared"]
COUPLINGS: tuple[Coupling, ...] = get_args(Coupling)
Closure = Literal["differential", "shared", "explicit"]
"""Names of the closures; `explicit` needs class-conditional probabilities in addition to directions."""


def half_potentials(mrf: PairwiseMRF) -> tuple[PairwiseMRF, PairwiseMRF]:
    """Return the models of class 1 and class 0, with the energies +S/2 and -S/2 (eq:half-potential).

    Each model has half the prior log-odds. If S is negated, the two models are exchanged, and so are the errors of
    their bounds (prop:anti-sym).
    """
    return mrf.scaled(0.5), mrf.scaled(-0.5)


def shared_potentials(mrf: PairwiseMRF, strength: float = STRENGTH) -> tuple[PairwiseMRF, PairwiseMRF]:
    """Return the models of class 1 and class 0, which share the couplings Psi.

    Class 1 has +1/2 times the unary potentials and the prior of `mrf`, and class 0 has -1/2 times the same numbers. Psi
    is the matrix of elicited couplings, scaled down so that beta L^2 is at most `strength`.
    """
    couplings = shared_factor(mrf, strength) * mrf.couplings
    one, zero = (
        PairwiseMRF(side * mrf.unary, couplings, side * mrf.prior, features=mrf.features) for side in (0.5, -0.5)
    )
    return one, zero


def shared_factor(mrf: PairwiseMRF, strength: float = STRENGTH) -> float:
    """Return the factor by which shared couplings are scaled: the minimum of 1 and `strength` / (beta L^2)."""
    if not 0 < strength < 1:
        step = "leave it at 0.9, or give a smaller one"
        raise PlannerError(Fault("option strength", repr(strength), "a number above 0 and below 1", step))
    return strength / max(contraction(mrf), strength)


def class_models(
    mrf: PairwiseMRF, coupling: Coupling = "differential", strength: float = STRENGTH
) -> tuple[PairwiseMRF, PairwiseMRF]:
    """Return the models of class 1 and class 0 under the closure `coupling`. Only `shared` uses `strength`."""
    return half_potentials(mrf) if known_coupling(coupling) == "differential" else shared_potentials(mrf, strength)


def contrast(mrf: PairwiseMRF, coupling: Coupling = "differential") -> PairwiseMRF:
    """Return the model of S, the log-ratio of the two class models.

    Under `shared`, the model of S is the elicited model without couplings.
    """
    if known_coupling(coupling) == "differential":
        return mrf
    return PairwiseMRF(mrf.unary, 0 * mrf.couplings, mrf.prior, mrf.features)


def known_coupling(coupling: str) -> Coupling:
    """Return `coupling` if a closure has this name, else raise a `PlannerError`."""
    for known in COUPLINGS:
        if coupling == known:
            return known
    step = "differential is the paper's, shared puts the couplings in both classes"
    raise PlannerError(Fault("option coupling", repr(coupling), " or ".join(COUPLINGS), step))


def closed_bundle(
    bundle: Bundle, entity: str, coupling: Coupling = "differential", strength: float = STRENGTH
) -> Bundle:
    """Return a bundle of two entities, `entity` and `not entity`: the two class models of `entity` (tab:mode-mapping).

    Parameters
    ----------
    coupling, strength : closure and its strength, as in `class_models`

    """
    v = bundle.index(entity)
    row, column, value = bundle.packed.of(v)
    both = value if known_coupling(coupling) == "shared" else 0 * value
    if bundle.packed.scope is not None:
        scope = bundle.packed.scope[bundle.packed.pointer[v] : bundle.packed.pointer[v + 1]]
        both = np.where(scope == SHARED, value, np.where(scope == CONDITION, 0.0, both))
    shared = shared_factor(bundle.mrf(entity), strength) * both if both.any() else both
    positive, negative = shared + (value - both) / 2, shared - (value - both) / 2
    couplings = PackedCouplings(
        pointer=np.array([0, len(value), 2 * len(value)], dtype=np.int64),
        row=np.concatenate([row, row]),
        column=np.concatenate([column, column]),
        value=np.concatenate([positive, negative]),
    )
    half = bundle.unary[v] / 2
    return replace(
        bundle,
        name=f"{bundle.name}, {entity}",
        entities=(entity, f"not {entity}"),
        unary=np.stack([half, -half]),
        packed=couplings,
        priors=np.array([bundle.log_odds[v], -bundle.log_odds[v]]) / 2,
        shares=None,
        rates=None if bundle.rates is None else replace(bundle.rates, probability_rows=NO_ROWS),
    )


def contraction(mrf: PairwiseMRF, evidence: Evidence | None = None) -> float:
    """Return beta L^2, the largest absolute row sum of the couplings among unobserved features (eq:mf-contraction).

    If beta L^2 is below 1, the paper's condition is met, and mean-field has one fixed point. For ternary features, a
    value below 3/2 is enough, because the moment map has slope at most 2/3. The models with energies +S/2 and -S/2 have
    half the beta L^2 of S (prop:halved). With shared couplings, beta L^2 is at most `strength`.
    """
    strength = abs(mrf.couplings)
    if evidence is not None:
        unobserved = ~evidence.observed
        strength = strength[unobserved][:, unobserved]
    return float(strength.sum(axis=1).max(initial=0.0))
