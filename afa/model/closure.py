"""Build two class models from one elicited model (eq:half-potential).

Elicitation gives only the score S = log(p_1 / p_0). Here p_1 is the distribution of patients with the entity, and p_0
the distribution of patients without it. A *closure* is an assumption that determines the distributions p_1 and p_0 of
the two classes from the score S.

The closure of the paper, `differential`, sets p_1 ~ exp(+S/2) and p_0 ~ exp(-S/2). If S contains a coupling of two
features, both class models of the closure `differential` contain a coupling of these features, with opposite signs. All
methods that compare two entities can also compare the two class models of one entity (tab:mode-mapping). The paper
derives the closure `differential` from the principle of maximum entropy, but this derivation is wrong (docs/errata.md),
so the closure is an assumption without proof.

The other assumption, `shared`, is not in the paper. It states that coupled features vary together in both classes: p_1
~ exp(+alpha.x/2 + x'Psi x/2) and p_0 ~ exp(-alpha.x/2 + x'Psi x/2). Because p_0(x) = p_1(-x), the partition functions
Z_0 and Z_1 are exactly equal, and the expectation E_Q[sign S] is exactly 0 before any observation. Under the closure
`shared`, the score S is alpha.x, and the couplings serve only to predict unobserved features.

The closures `differential` and `shared` add half the prior log-odds to the energy of p_1, and subtract half the prior
log-odds from the energy of p_0.

If a bundle has class-conditional probabilities, no assumption is needed. With the closure `explicit`, the two class
models are made from these probabilities (`afa.model.bundle.rates`).
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
"""Names of the closures. The closure `explicit` needs class-conditional probabilities."""


def half_potentials(mrf: PairwiseMRF) -> tuple[PairwiseMRF, PairwiseMRF]:
    """Return the models of class 1 and class 0, which have the energies +S/2 and -S/2 (eq:half-potential).

    The prior log-odds are also multiplied by +1/2 and -1/2. If S is replaced by -S, the two models are exchanged, and
    so are the errors of their bounds (prop:anti-sym).
    """
    return mrf.scaled(0.5), mrf.scaled(-0.5)


def shared_potentials(mrf: PairwiseMRF, strength: float = STRENGTH) -> tuple[PairwiseMRF, PairwiseMRF]:
    """Return the models of class 1 and class 0, which have the same couplings Psi.

    The unary potentials and the prior are those of the model `mrf`, multiplied by +1/2 for class 1 and by -1/2 for
    class 0. Psi contains the elicited couplings, scaled down so that the absolute values in each row of Psi sum to at
    most `strength`.
    """
    couplings = shared_factor(mrf, strength) * mrf.couplings
    one, zero = (
        PairwiseMRF(side * mrf.unary, couplings, side * mrf.prior, features=mrf.features) for side in (0.5, -0.5)
    )
    return one, zero


def shared_factor(mrf: PairwiseMRF, strength: float = STRENGTH) -> float:
    """Return the factor by which shared couplings are multiplied.

    The factor is min(1, `strength` / L), where L is the largest row sum of the absolute couplings.
    """
    if not 0 < strength < 1:
        step = "leave it at 0.9, or give a smaller one"
        raise PlannerError(Fault("option strength", repr(strength), "a number above 0 and below 1", step))
    return strength / max(contraction(mrf), strength)


def class_models(
    mrf: PairwiseMRF, coupling: Coupling = "differential", strength: float = STRENGTH
) -> tuple[PairwiseMRF, PairwiseMRF]:
    """Return the model of patients with the entity, and the model of patients without the entity.

    The argument `coupling` is the name of the assumption (closure) from which the two models are made. The argument
    `strength` has an effect only if `coupling` is `shared`.
    """
    return half_potentials(mrf) if known_coupling(coupling) == "differential" else shared_potentials(mrf, strength)


def contrast(mrf: PairwiseMRF, coupling: Coupling = "differential") -> PairwiseMRF:
    """Return the model whose energy is S, the log-ratio of the two class models.

    If `coupling` is `shared`, the returned model is the elicited model without its couplings, because both class models
    have equal couplings, which cancel in S.
    """
    if known_coupling(coupling) == "differential":
        return mrf
    return PairwiseMRF(mrf.unary, 0 * mrf.couplings, mrf.prior, mrf.features)


def known_coupling(coupling: str) -> Coupling:
    """Return the argument `coupling` if it is `differential` or `shared`, else raise a `PlannerError`."""
    for known in COUPLINGS:
        if coupling == known:
            return known
    step = "differential is the paper's, shared puts the couplings in both classes"
    raise PlannerError(Fault("option coupling", repr(coupling), " or ".join(COUPLINGS), step))


def closed_bundle(
    bundle: Bundle, entity: str, coupling: Coupling = "differential", strength: float = STRENGTH
) -> Bundle:
    """Return a bundle with two entities, `entity` and `not entity`, whose models are the class models of `entity`.

    Comparing the two entities answers the binary question of whether `entity` is present (tab:mode-mapping).

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
    """Return beta L^2, the largest row sum of absolute couplings between unobserved features (eq:mf-contraction).

    The paper requires beta L^2 < 1, so that mean-field inference has one fixed point. For ternary features, beta L^2 <
    3/2 is enough for one fixed point, because the mean of a feature changes by at most 2/3 per unit of its field. For
    the class models with the energies +S/2 and -S/2, beta L^2 is half as large as for the model with the energy S
    (prop:halved). In class models made by the closure `shared`, beta L^2 is at most `strength`.
    """
    strength = abs(mrf.couplings)
    if evidence is not None:
        unobserved = ~evidence.observed
        strength = strength[unobserved][:, unobserved]
    return float(strength.sum(axis=1).max(initial=0.0))
