"""Items 1 to 3: what is claimed of the closure, on small random models whose configurations are all listed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from afa.experiments.errata.class_pairs import (
    calibrated,
    half_potential_pair,
    log_partition_gap,
    maximum_entropy_pair,
    swap_residual,
    total_variation,
)
from afa.experiments.errata.rows import EXACT, Row
from afa.experiments.errata.small_models import SmallModel
from afa.mrf import Floats

Mask = NDArray[np.bool_]

LISTED = "all configurations of random models of 3 to 7 ternary features"


def maximum_entropy(models: Sequence[SmallModel]) -> list[Row]:
    """Item 1: is the half-potential pair the pair of largest joint entropy, and does that one break class symmetry?"""
    point = partial(Row, item=1, label="supp:maxent, eq:half-potential")
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
    claim = "among pairs with log p_1/p_0 = S the half-potential pair has the largest H(p_0) + H(p_1)"
    program = f"{LISTED}, S shifted so that Z_0 = Z_1, without which a score of one sign has no pair at all: "
    return [
        point(
            name="entropy_gap",
            claim=claim,
            claim_value=0.0,
            check=f"{program}joint entropy at the constrained maximum less that of the half-potentials, mean",
            value=float(gap.mean()),
            unit="nats",
            n=n,
            holds=bool((gap <= EXACT).all()),
            headline=True,
        ),
        *(
            point(
                name=f"entropy_gap_{name}",
                claim=claim,
                claim_value=0.0,
                check=f"the same, {words}",
                value=float(gap[which].mean()),
                unit="nats",
                n=int(which.sum()),
                holds=bool((gap[which] <= EXACT).all()),
            )
            for name, words, which in _by_density(varying)
        ),
        point(
            name="larger_entropy",
            claim=claim,
            claim_value=0.0,
            check="share of these models in which another pair of the same ratio has more entropy",
            value=float((gap > EXACT).mean()),
            unit="rate",
            n=n,
            holds=bool((gap <= EXACT).all()),
        ),
        point(
            name="total_variation",
            claim=claim,
            claim_value=0.0,
            check="total variation between the two pairs, mean over classes and models",
            value=float(np.mean(distance)),
            unit="gap",
            n=n,
            holds=max(distance) <= EXACT**0.5,
        ),
        point(
            name="cross_term",
            claim="the terms of the joint entropy that are linear in S cancel",
            claim_value=0.0,
            check="the term -sum q S sinh(S/2) that stays, at the half-potential pair, mean",
            value=float(np.mean(cross)),
            unit="nats",
            n=n,
            holds=bool((np.abs(cross) <= EXACT).all()),
        ),
        point(
            name="strict_symmetry",
            label="eq:strict-pointwise",
            claim="the strict maximum breaks the symmetry between S with p_1, p_0 and -S with p_0, p_1",
            check="largest difference of a probability after S is turned into -S and the classes are swapped",
            value=residual["strict"],
            unit="gap",
            n=n,
            holds=residual["strict"] > EXACT,
        ),
        point(
            name="half_symmetry",
            claim="the half-potential pair keeps that symmetry",
            claim_value=0.0,
            check="the same for the half-potential pair",
            value=residual["half"],
            unit="gap",
            n=n,
            holds=residual["half"] <= EXACT,
        ),
    ]


def unbiased_start(models: Sequence[SmallModel]) -> list[Row]:
    """Item 2: is the expected sign of S zero before any observation, once Z_0 = Z_1?"""
    point = partial(Row, item=2, label="prop:mixture-mean")
    claim = "with Z_0 = Z_1 the mixture of the two classes expects a sign of S of exactly zero"
    shifted = np.array([expected_under_mixture(model, _sign_of(model), shift=True) for model in models])
    unshifted = np.array([expected_under_mixture(model, _sign_of(model), shift=False) for model in models])
    tanh = np.array([expected_under_mixture(model, lambda score: np.tanh(score / 2), shift=True) for model in models])
    log_odds = np.array([log_partition_gap(calibrated(model.scores)) for model in models])
    coupled = np.array([model.coupled for model in models])
    plain = f"{LISTED}: "
    return [
        point(
            name="sign_not_zero",
            claim=claim,
            claim_value=0.0,
            check=f"{plain}share of those with couplings whose E_Q[sign S] is not zero, S shifted so that Z_0 = Z_1",
            value=float((np.abs(shifted[coupled]) > EXACT).mean()) if coupled.any() else None,
            unit="rate",
            n=int(coupled.sum()),
            holds=bool((np.abs(shifted[coupled]) <= EXACT).all()) if coupled.any() else None,
            pending="" if coupled.any() else "models with couplings",
            headline=True,
        ),
        *(
            point(
                name=f"sign_{kind}{name}",
                claim=claim,
                claim_value=0.0,
                check=f"mean absolute E_Q[sign S], {words}, {text}",
                value=float(np.abs(values[which]).mean()),
                unit="gap",
                n=int(which.sum()),
                holds=bool((np.abs(values[which]) <= EXACT).all()),
            )
            for kind, text, values in (
                ("", "S shifted so that Z_0 = Z_1", shifted),
                ("as_elicited_", "S as it is", unshifted),
            )
            for name, words, which in _by_density(models)
        ),
        point(
            name="log_odds",
            label="eq:ell-hat",
            claim="what starts at zero is the calibrated log-odds (our reading)",
            claim_value=0.0,
            check="largest absolute log Z_1 - log Z_0 of the shifted score",
            value=float(np.abs(log_odds).max()),
            unit="nats",
            n=len(models),
            holds=bool((np.abs(log_odds) <= EXACT).all()),
        ),
        point(
            name="expected_tanh",
            claim="Z_0 = Z_1 says that E_Q[tanh(S/2)] is zero, not E_Q[sign S] (our reading)",
            claim_value=0.0,
            check="largest absolute E_Q[tanh(S/2)] of the shifted score",
            value=float(np.abs(tanh).max()),
            unit="gap",
            n=len(models),
            holds=bool((np.abs(tanh) <= EXACT).all()),
        ),
    ]


def equal_normalisers(models: Sequence[SmallModel]) -> list[Row]:
    """Item 3: for which models do the two classes have one normaliser?"""
    point = partial(Row, item=3, label="eq:Z0-eq-Z1, prop:calibration")
    gaps = np.array([log_partition_gap(model.scores) for model in models])
    shared = np.array([shared_coupling_gap(model) for model in models])
    coupled = np.array([model.coupled for model in models])
    claim = "the two half-potential models have one normaliser, so that sigma(S) is the posterior"
    plain = f"{LISTED}: "
    cases: list[tuple[str, str, Floats, Mask, Callable[[Floats], np.float64], str]] = [
        ("coupled", "those with couplings, as elicited", gaps, coupled, np.mean, "mean"),
        ("unary_only", "those without couplings", gaps, ~coupled, np.max, "largest"),
        ("shared_couplings", "the couplings given to both classes, S unary", shared, coupled, np.max, "largest"),
    ]
    rows = [
        point(
            name=name,
            claim=claim,
            claim_value=0.0,
            check=f"{plain}{words}, {word} absolute log Z_1 - log Z_0",
            value=float(statistic(np.abs(values[which]))) if which.any() else None,
            unit="nats",
            n=int(which.sum()),
            holds=bool((np.abs(values[which]) <= EXACT).all()) if which.any() else None,
            pending="" if which.any() else "such models",
            headline=name == "coupled",
        )
        for name, words, values, which, statistic, word in cases
    ]
    by_density = [
        point(
            name=f"coupled_{name}",
            claim=claim,
            claim_value=0.0,
            check=f"mean absolute log Z_1 - log Z_0, {words}",
            value=float(np.abs(gaps[which]).mean()),
            unit="nats",
            n=int(which.sum()),
            holds=bool((np.abs(gaps[which]) <= EXACT).all()),
        )
        for name, words, which in _by_density(models)
    ]
    return rows + by_density


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


def _by_density(models: Sequence[SmallModel]) -> list[tuple[str, str, Mask]]:
    """Name, words and mask of the models of each kind and density; those that drew no coupling count as density 0."""
    cells = [(model.kind, model.density if model.coupled else 0.0) for model in models]
    return [
        (
            f"{kind}_density_{density:g}",
            f"{kind} potentials, {f'couplings with chance {density:g}' if density else 'no couplings'}",
            np.array([cell == (kind, density) for cell in cells]),
        )
        for kind, density in dict.fromkeys(sorted(cells, key=lambda cell: (cell[0] != "ternary", cell)))
    ]
