"""Items 1 to 3, 23 and 25: claims about the closure, on small models whose configurations are all listed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from afa.checks.errata.models import (
    SmallModel,
    calibrated,
    generator_of,
    half_potential_pair,
    log_partition_gap,
    maximum_entropy_pair,
    swap_residual,
    total_variation,
)
from afa.checks.errata.rows import EXACT, Row
from afa.gain import cmi, log_odds, wald_magnitude
from afa.inference.exact import exact
from afa.inference.meanfield import Solver, mean_field
from afa.mrf import Evidence, Floats, PairwiseMRF

Mask = NDArray[np.bool_]

EXAMPLE = SmallModel(np.array([1.0, 1.0]), np.array([[0.0, 1.0], [1.0, 0.0]]), "ternary", 1.0)
"""Two features with unaries and coupling 1: small enough to work by hand."""
CLASS_FEATURES = 4


def maximum_entropy(models: Sequence[SmallModel]) -> list[Row]:
    """Item 1: is the half-potential pair the pair of largest joint entropy, and does that one break class symmetry?"""
    point = partial(Row, item=1)
    varying = [model for model in models if model.varies]
    scores = [calibrated(model.scores) for model in varying]
    half = [half_potential_pair(score) for score in scores]
    best = [maximum_entropy_pair(score) for score in scores]
    gap = np.array([other.entropy - pair.entropy for pair, other in zip(half, best, strict=True)])
    distance = [
        (total_variation(pair.one, other.one) + total_variation(pair.zero, other.zero)) / 2
        for pair, other in zip(half, best, strict=True)
    ]
    cross = [
        float((np.exp(pair.zero) - np.exp(pair.one)) @ score) / 2 for pair, score in zip(half, scores, strict=True)
    ]
    residual = {
        name: max(
            (swap_residual(pair, make(-score)) for pair, score in zip(pairs, scores, strict=True)), default=float("nan")
        )
        for name, pairs, make in (
            ("strict", best, maximum_entropy_pair),
            ("half", half, half_potential_pair),
        )
    }
    n = len(varying)
    return [
        point(
            name="entropy_gap",
            claim_value=0.0,
            value=float(gap.mean()),
            n=n,
            holds=bool((gap <= EXACT).all()),
        ),
        *(
            point(
                name=f"entropy_gap_{name}",
                claim_value=0.0,
                value=float(gap[which].mean()),
                n=int(which.sum()),
                holds=bool((gap[which] <= EXACT).all()),
            )
            for name, which in _by_density(varying)
        ),
        point(
            name="larger_entropy",
            claim_value=0.0,
            value=float((gap > EXACT).mean()),
            n=n,
            holds=bool((gap <= EXACT).all()),
        ),
        point(
            name="total_variation",
            claim_value=0.0,
            value=float(np.mean(distance)),
            n=n,
            holds=max(distance) <= EXACT**0.5,
        ),
        point(
            name="cross_term",
            claim_value=0.0,
            value=float(np.mean(cross)),
            n=n,
            holds=bool((np.abs(cross) <= EXACT).all()),
        ),
        point(
            name="strict_symmetry",
            value=residual["strict"],
            n=n,
            holds=residual["strict"] > EXACT,
        ),
        point(
            name="half_symmetry",
            claim_value=0.0,
            value=residual["half"],
            n=n,
            holds=residual["half"] <= EXACT,
        ),
        *(
            point(name=f"example_{name}", claim_value=0.0, value=value, n=1, holds=value <= EXACT)
            for name, value in _example_gaps()
        ),
    ]


def unbiased_start(models: Sequence[SmallModel]) -> list[Row]:
    """Item 2: is the expected sign of S zero before any observation, once Z_0 = Z_1?"""
    point = partial(Row, item=2)
    shifted = np.array([expected_under_mixture(model, _sign_of(model), shift=True) for model in models])
    unshifted = np.array([expected_under_mixture(model, _sign_of(model), shift=False) for model in models])
    tanh = np.array([expected_under_mixture(model, lambda score: np.tanh(score / 2), shift=True) for model in models])
    log_odds = np.array([log_partition_gap(calibrated(model.scores)) for model in models])
    coupled = np.array([model.coupled for model in models])
    return [
        point(
            name="sign_not_zero",
            claim_value=0.0,
            value=float((np.abs(shifted[coupled]) > EXACT).mean()) if coupled.any() else None,
            n=int(coupled.sum()),
            holds=bool((np.abs(shifted[coupled]) <= EXACT).all()) if coupled.any() else None,
            pending="" if coupled.any() else "models with couplings",
        ),
        *(
            point(
                name=f"sign_{kind}{name}",
                claim_value=0.0,
                value=float(np.abs(values[which]).mean()),
                n=int(which.sum()),
                holds=bool((np.abs(values[which]) <= EXACT).all()),
            )
            for kind, values in (("", shifted), ("as_elicited_", unshifted))
            for name, which in _by_density(models)
        ),
        point(
            name="log_odds",
            claim_value=0.0,
            value=float(np.abs(log_odds).max()),
            n=len(models),
            holds=bool((np.abs(log_odds) <= EXACT).all()),
        ),
        point(
            name="expected_tanh",
            claim_value=0.0,
            value=float(np.abs(tanh).max()),
            n=len(models),
            holds=bool((np.abs(tanh) <= EXACT).all()),
        ),
        *(
            point(name=f"example_{name}", claim_value=0.0, value=value, n=1, holds=abs(value) <= EXACT)
            for name, value in (
                ("sign", expected_under_mixture(EXAMPLE, _sign_of(EXAMPLE), shift=True)),
                ("score", expected_under_mixture(EXAMPLE, lambda score: score, shift=True)),
            )
        ),
    ]


def equal_normalisers(models: Sequence[SmallModel]) -> list[Row]:
    """Item 3: for which models do the two classes have one normaliser?"""
    point = partial(Row, item=3)
    gaps = np.array([log_partition_gap(model.scores) for model in models])
    shared = np.array([shared_coupling_gap(model) for model in models])
    coupled = np.array([model.coupled for model in models])
    cases: list[tuple[str, Floats, Mask, Callable[[Floats], np.float64]]] = [
        ("coupled", gaps, coupled, np.mean),
        ("unary_only", gaps, ~coupled, np.max),
        ("shared_couplings", shared, coupled, np.max),
    ]
    rows = [
        point(
            name=name,
            claim_value=0.0,
            value=float(statistic(np.abs(values[which]))) if which.any() else None,
            n=int(which.sum()),
            holds=bool((np.abs(values[which]) <= EXACT).all()) if which.any() else None,
            pending="" if which.any() else "such models",
        )
        for name, values, which, statistic in cases
    ]
    by_density = [
        point(
            name=f"coupled_{name}",
            claim_value=0.0,
            value=float(np.abs(gaps[which]).mean()),
            n=int(which.sum()),
            holds=bool((np.abs(gaps[which]) <= EXACT).all()),
        )
        for name, which in _by_density(models)
    ]
    return rows + by_density


def dropped_normaliser(models: int) -> list[Row]:
    """Item 23: mass under the mixture of two random class models on which S lacks the sign of their log-ratio."""
    rows = []
    for kind in ("gaussian", "ternary"):
        opposite, tied = np.mean([_other_sign(kind, index) for index in range(models)], axis=0)
        for name, value in (("opposite", opposite), ("tied", tied)):
            rows.append(
                Row(23, f"{kind}_{name}", value=float(value), claim_value=0.0, n=models, holds=bool(value <= EXACT))
            )
    return rows


def outside_the_union(solver: Solver) -> list[Row]:
    """Item 25: exact and mean-field gain of a feature on which two entities do not differ, coupled alike to one."""
    entities = [PairwiseMRF([side, 0.0], [[0, 1], [1, 0]]) for side in (1.0, -1.0)]
    duel = Evidence.of(entities[0]), Evidence.of(entities[1])
    gains = {
        "exact_cmi": jensen_shannon(*(exact(model).marginals.probabilities[1] for model in entities)),
        "mean_field_cmi": _mean_field_cmi(*duel, solver),
        "wald_magnitude": float(wald_magnitude(*duel)[1]),
    }
    return [
        Row(25, name, value=value, claim_value=0.0, n=1, holds=bool(abs(value) <= EXACT))
        for name, value in gains.items()
    ]


def _mean_field_cmi(a: Evidence, b: Evidence, solver: Solver) -> float:
    """The planner's gain of the second of two features."""
    of_a, of_b = (mean_field(state.mrf, state, solver=solver).marginals for state in (a, b))
    return float(cmi(log_odds(a, b, solver=solver), of_a, of_b, a.observed)[1])


def jensen_shannon(first: Floats, second: Floats) -> float:
    """Mutual information, nats, of a fair coin and a value drawn from one of two distributions by it."""
    mixed = (first + second) / 2
    return float((first * np.log(first / mixed) + second * np.log(second / mixed)).sum() / 2)


def _other_sign(kind: str, index: int) -> tuple[float, float]:
    """Mass where S is opposite to log p_1 / p_0, and where it alone is 0; all pairs of four features are coupled."""
    generator = generator_of("class pair", kind, index)

    def energy() -> Floats:
        n = CLASS_FEATURES
        if kind == "gaussian":
            unary, strength = generator.standard_normal(n), generator.standard_normal((n, n)) / 2
        else:
            unary, strength = (generator.integers(-1, 2, size).astype(np.float64) for size in (n, (n, n)))
        above = np.triu(strength, 1)
        return SmallModel(unary, above + above.T, kind, 1.0).scores

    one, zero = energy(), energy()
    log_one, log_zero = one - np.logaddexp.reduce(one), zero - np.logaddexp.reduce(zero)
    mixture = (np.exp(log_one) + np.exp(log_zero)) / 2
    score, bayes = (np.where(np.abs(v) <= EXACT, 0.0, np.sign(v)) for v in (one - zero, log_one - log_zero))
    return float(mixture[score * bayes < 0].sum()), float(mixture[(score == 0) & (bayes != 0)].sum())


def _example_gaps() -> list[tuple[str, float]]:
    score = calibrated(EXAMPLE.scores)
    half, best = half_potential_pair(score), maximum_entropy_pair(score)
    apart = max(total_variation(half.one, best.one), total_variation(half.zero, best.zero))
    return [("entropy_gap", best.entropy - half.entropy), ("total_variation", apart)]


def expected_under_mixture(model: SmallModel, of_score: Callable[[Floats], Floats], *, shift: bool) -> float:
    """E_Q[f(S)] by listing, Q the mixture of the two half-potential classes, S shifted so that Z_0 = Z_1 or not."""
    pair = half_potential_pair(model.scores)
    mixture = (np.exp(pair.one) + np.exp(pair.zero)) / 2
    return float(mixture @ of_score(calibrated(model.scores) if shift else model.scores))


def shared_coupling_gap(model: SmallModel) -> float:
    """Log Z_1 - log Z_0 of two classes with the model's couplings each and unaries +-alpha/2: S is unary."""
    with_half = SmallModel(model.unary / 2, model.coupling, model.kind, model.density).scores
    with_negative = SmallModel(-model.unary / 2, model.coupling, model.kind, model.density).scores
    return float(np.logaddexp.reduce(with_half) - np.logaddexp.reduce(with_negative))


def _sign_of(model: SmallModel) -> Callable[[Floats], Floats]:
    return lambda score: np.where(np.abs(score) <= model.rounding, 0.0, np.sign(score))


def _by_density(models: Sequence[SmallModel]) -> list[tuple[str, Mask]]:
    """Name and mask of the models of each kind and density; those that drew no coupling count as density 0."""
    cells = [(model.kind, model.density if model.coupled else 0.0) for model in models]
    return [
        (f"{kind}_density_{density:g}", np.array([cell == (kind, density) for cell in cells]))
        for kind, density in dict.fromkeys(sorted(cells, key=lambda cell: (cell[0] != "ternary", cell)))
    ]
