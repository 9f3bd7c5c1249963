"""Every entity of a bundle before any observation, solved exactly and by mean-field, with both of its classes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from afa.bundle import Bundle, PackedCouplings
from afa.closure import half_potentials
from afa.engine.elimination import log_partitions, score_distribution
from afa.errors import InferenceError
from afa.inference.meanfield import MeanField, Solver, mean_field
from afa.mrf import Evidence, Floats, PairwiseMRF
from afa.preference import linearity, stack_a

ENTRY_LIMIT = 2e7
"""Table entries of one elimination: a model that needs more is left out of the exact checks, which have seconds."""
TOO_LARGE = "exact inference, which is too large for every entity of this bundle"
NO_LATTICE = (
    "exact distributions of S, for which no entity of this bundle is small enough or has potentials of one step"
)


@dataclass(frozen=True)
class Halves:
    """Before any observation: an entity's score S, its own distribution p_v and its two half-potential classes.

    own, one, zero : mean-field solutions of p_v, p_1 and p_0. expected_mean_field : E_Q[S] by them, nats; stack_a : the
    Gaussian estimate of E_Q[sign S]. log_z, log_odds : exact log Z_v over all M features and log Z_1 - log Z_0, nats,
    None where exact inference is too large. expected, expected_sign : exact E_Q[S] and E_Q[sign S], None where S has no
    distribution on a lattice either.
    """

    entity: str
    score: PairwiseMRF
    own: MeanField
    one: MeanField
    zero: MeanField
    expected_mean_field: float
    stack_a: float
    log_z: float | None
    log_odds: float | None
    expected: float | None
    expected_sign: float | None


def some_entities(bundle: Bundle, most: int) -> Bundle:
    """The bundle with at most `most` of its entities, those whose names have the lowest hash, in its own order."""
    if len(bundle.entities) <= most:
        return bundle
    names = set(chosen_names(bundle.entities, most))
    kept = [v for v, entity in enumerate(bundle.entities) if entity in names]
    couplings = [bundle.packed.of(v) for v in kept]
    row, column, value = (np.concatenate(parts) for parts in zip(*couplings, strict=True))
    sizes = [len(values) for _, _, values in couplings]
    return replace(
        bundle,
        entities=tuple(bundle.entities[v] for v in kept),
        unary=bundle.unary[kept],
        packed=PackedCouplings(np.cumsum([0, *sizes]).astype(np.int64), row, column, value),
        priors=bundle.priors[kept],
    )


def solve_entities(bundle: Bundle, solver: Solver, *, threads: int | None = 1) -> list[Halves]:
    """Every entity of the bundle, in its order."""
    return [_solve(bundle.mrf(entity), entity, solver, threads) for entity in bundle.entities]


def chosen_names(names: Sequence[str], most: int, purpose: str = "entity") -> list[str]:
    """At most `most` of the names: those whose hash is lowest, whatever order they come in."""
    return sorted(names, key=lambda name: hashlib.sha256(f"errata\0{purpose}\0{name}".encode()).digest())[:most]


def chosen_duels(bundle: Bundle, most: int) -> list[tuple[PairwiseMRF, PairwiseMRF]]:
    """The two models of at most `most` duels, those whose names have the lowest hash, in bundle order."""
    pairs = {f"{a}\0{b}": (a, b) for a, b in combinations(bundle.entities, 2)}
    kept = set(chosen_names(list(pairs), most, "duel"))
    models = {entity: bundle.mrf(entity) for entity in bundle.entities}
    return [(models[a], models[b]) for name, (a, b) in pairs.items() if name in kept]


def _solve(score: PairwiseMRF, entity: str, solver: Solver, threads: int | None) -> Halves:
    classes = half_potentials(score)
    own, one, zero = (mean_field(model, solver=solver) for model in (score, *classes))
    evidence = [Evidence.of(model) for model in classes]
    marginals = [one.marginals, zero.marginals]
    log_z, log_odds, expected, expected_sign = None, None, None, None
    try:
        nothing = np.zeros((1, score.n_features), dtype=bool)
        values = nothing.astype(np.int8)
        found = log_partitions(score, nothing, values, factors=(1.0, 0.5, -0.5), limit=ENTRY_LIMIT, threads=threads)[0]
        log_z, log_odds = float(found[0]), float(found[1] - found[2])
        law = score_distribution(score, limit=ENTRY_LIMIT, threads=threads)
        expected, expected_sign = law.expected_score, law.expected_sign
    except InferenceError:
        # what is None is left out of each check, which counts the entities that it has
        pass
    return Halves(
        entity,
        score,
        own,
        one,
        zero,
        float(linearity(evidence, marginals)[0, 1]),
        float(stack_a(evidence, marginals)[0, 1]),
        log_z,
        log_odds,
        expected,
        expected_sign,
    )


def known(values: Sequence[float | None]) -> Floats:
    """The numbers among these values."""
    return np.array([value for value in values if value is not None], dtype=np.float64)
