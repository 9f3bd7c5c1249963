"""Every entity of a bundle before any observation, solved exactly and by mean-field, with both of its classes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np

from afa.bundle import Bundle, PackedCouplings
from afa.checks.errata.rows import EXACT, Row
from afa.closure import contraction, half_potentials
from afa.engine.elimination import log_partitions, score_distribution
from afa.errors import InferenceError
from afa.inference.exact import exact_expected_score
from afa.inference.meanfield import MeanField, Solver, mean_field, ternary_moments
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


def halved_contraction(bundle: Bundle, halves: Sequence[Halves], most_duels: int, solver: Solver) -> list[Row]:
    """Item 5: what halving does for the solves, sign by sign, and whether anything contracts."""
    point = partial(Row, item=5)
    differences = [a - b for a, b in chosen_duels(bundle, most_duels)]
    capped = {
        "plus": np.array([not entity.own.converged for entity in halves]),
        "half_plus": np.array([not entity.one.converged for entity in halves]),
        "minus": np.array([not mean_field(entity.score.scaled(-1.0), solver=solver).converged for entity in halves]),
        "half_minus": np.array([not entity.zero.converged for entity in halves]),
    }
    for name, factor in (
        ("duels_plus", 1.0),
        ("duels_half_plus", 0.5),
        ("duels_minus", -1.0),
        ("duels_half_minus", -0.5),
    ):
        if differences:
            solved = (mean_field(model.scaled(factor), solver=solver) for model in differences)
            capped[name] = np.array([not solution.converged for solution in solved])
    rows = []
    for name, hits in capped.items():
        whole = capped[name.replace("half_", "")].mean() if "half" in name else None
        holds = None if whole is None else bool(hits.mean() <= whole)
        rows.append(point(name=f"capped_{name}", claim_value=whole, value=float(hits.mean()), n=len(hits), holds=holds))
    rows.append(point(name="slope", claim_value=1.0, value=largest_slope(), holds=None))
    betas = {"entities": [contraction(entity.score) for entity in halves], "duels": list(map(contraction, differences))}
    for name, found in betas.items():
        rows += (
            [
                point(name=f"beta_{name}_{which}", claim_value=claimed, value=float(value), n=len(found))
                for which, value, claimed in (
                    ("least", min(found), 6.0),
                    ("largest", max(found), 20.0),
                    ("halved_least", min(found) / 2, 3.0),
                    ("halved_largest", max(found) / 2, 10.0),
                )
                if found
            ]
            if found
            else []
        )
    return rows


def largest_slope() -> float:
    """Largest derivative of the ternary moment map, the variance q - m^2, over fields from -20 to 20."""
    m, q = ternary_moments(np.linspace(-20, 20, 4001))
    return float((q - m * m).max())


MEMORY_LIMIT = 1_000_000_000
"""Bytes of tables of one exact solve; where a model needs more the check is left pending."""
CLOSE = 0.1
"""An estimate on [-1, 1] that is farther than this from what it estimates, on average, does not estimate it."""


def bundle_sign(halves: Sequence[Halves]) -> list[Row]:
    """Items 2 and 9 on the bundle: the expected sign of S before any observation, and what `stack_a` says of it."""
    solved = [entity for entity in halves if entity.expected_sign is not None]
    exact, n = known([entity.expected_sign for entity in halves]), len(solved)
    distance = np.abs(np.array([entity.stack_a for entity in solved]) - exact)
    pending = "" if n else NO_LATTICE
    return [
        Row(
            item=2,
            name="sign_bundle",
            claim_value=0.0,
            value=float(np.abs(exact).mean()) if n else None,
            n=n,
            holds=bool((np.abs(exact) <= EXACT).all()) if n else None,
            pending=pending,
        ),
        Row(
            item=9,
            name="stack_a_start",
            claim_value=0.0,
            value=float(distance.mean()) if n else None,
            n=n,
            holds=bool(distance.mean() <= CLOSE) if n else None,
            pending=pending,
        ),
        Row(
            item=9,
            name="expected_sign_start",
            value=float(exact.mean()) if n else None,
            n=n,
            pending=pending,
        ),
    ]


def bundle_normalisers(halves: Sequence[Halves]) -> list[Row]:
    """Item 3 on the bundle: by how much the two classes' normalisers differ, and the posterior with them."""
    point = partial(Row, item=3)
    log_odds = known([entity.log_odds for entity in halves])
    n = len(log_odds)
    gaps: list[tuple[str, Floats, Callable[[Floats], np.float64]]] = [
        ("bundle_mean", np.abs(log_odds), np.mean),
        ("bundle_least", np.abs(log_odds), np.min),
        ("bundle_largest", np.abs(log_odds), np.max),
        ("bundle_posterior", np.tanh(np.abs(log_odds) / 4), np.mean),
    ]
    return [
        point(
            name=name,
            claim_value=0.0,
            value=float(statistic(values)) if n else None,
            n=n,
            holds=bool((np.abs(log_odds) <= EXACT).all()) if n else None,
            pending="" if n else TOO_LARGE,
        )
        for name, values, statistic in gaps
    ]


def kl_identity(halves: Sequence[Halves]) -> list[Row]:
    """Item 7: half the difference of the two KL divergences against E_Q[D], both exact, before any observation."""
    point = partial(Row, item=7)
    solved = [entity for entity in halves if entity.log_z is not None]
    cross = _cross_expectations([entity.score for entity in solved])
    if cross is None or len(solved) < 2:
        return [point(name="log_z_spread", pending=TOO_LARGE)]
    log_z = known([entity.log_z for entity in solved])
    a, b = np.triu_indices(len(solved), 1)
    own = np.diag(cross)
    expected = 0.5 * (own[a] - cross[a, b] + cross[b, a] - own[b])
    forward = own[a] - cross[a, b] - log_z[a] + log_z[b]
    backward = own[b] - cross[b, a] - log_z[b] + log_z[a]
    difference = expected - 0.5 * (forward - backward)
    opposite = np.sign(expected) * np.sign(0.5 * (forward - backward)) < 0
    holds = bool((np.abs(difference) <= EXACT * np.abs(expected).max(initial=1.0)).all())
    return [
        point(
            name="log_z_spread",
            claim_value=0.0,
            value=float(np.ptp(log_z)),
            n=len(solved),
            holds=bool(np.ptp(log_z) <= EXACT * np.abs(log_z).max()),
        ),
        point(
            name="identity_gap",
            claim_value=0.0,
            value=float(np.abs(difference).mean()),
            n=len(a),
            holds=holds,
        ),
        point(
            name="opposite_sign",
            claim_value=0.0,
            value=float(opposite.mean()),
            n=len(a),
            holds=not opposite.any(),
        ),
    ]


def _cross_expectations(models: Sequence[PairwiseMRF]) -> Floats | None:
    scores = [Evidence.of(model) for model in models]
    try:
        rows = [exact_expected_score(model, None, scores, memory_limit=MEMORY_LIMIT) for model in models]
    except InferenceError:
        return None
    return np.array(rows)


def two_elbo_target(halves: Sequence[Halves]) -> list[Row]:
    """Item 8: E_Q[S] and l-hat = log Z_1 - log Z_0, both exact and not shifted, before any observation."""
    solved = [entity for entity in halves if entity.expected is not None and entity.log_odds is not None]
    expected = known([entity.expected for entity in solved])
    log_odds = known([entity.log_odds for entity in solved])
    difference = expected - log_odds
    n = len(solved)
    approximate = np.array([entity.one.elbo - entity.zero.elbo for entity in halves])
    rows = [
        Row(8, name, value=float(value(numbers)) if n else None, n=n, pending="" if n else NO_LATTICE)
        for name, numbers, value in (
            ("expected_score", expected, np.mean),
            ("log_odds", log_odds, np.mean),
            ("difference", difference, np.mean),
            ("difference_least", difference, np.min),
            ("difference_largest", difference, np.max),
        )
    ]
    same = bool((np.abs(difference) <= CLOSE * np.abs(expected) + EXACT).all()) if n else None
    rows = [replace(row, claim_value=0.0, holds=same) if row.name == "difference" else row for row in rows]
    return [*rows, Row(8, "two_elbo", value=float(approximate.mean()), n=len(halves))]
