"""Items 1 to 3, 14, 23 and 25: on small random models, whose configurations are all listed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from afa.bracket import hanson_wright_interval, l1_interval
from afa.checks.errata import EXACT, Row, measured, rate, vanishes
from afa.closure import half_potentials
from afa.errors import Fault, InferenceError
from afa.gain import cmi, log_odds, wald_magnitude
from afa.inference.exact import exact
from afa.inference.meanfield import Solver, mean_field
from afa.mrf import ROUNDING, Evidence, Floats, PairwiseMRF
from afa.orders import generator_of
from afa.preference import duel_variance, gaussian_sign, linearity

Mask = NDArray[np.bool_]
SIZES = (3, 4, 5, 6, 7)
DENSITIES = (0.0, 0.25, 0.5, 1.0)
KINDS = ("ternary", "gaussian")


@dataclass(frozen=True)
class SmallModel:
    """A discriminative model S on n features, `unary` (n,) and `coupling` (n, n); n is small enough to list 3^n.

    kind : `ternary`, potentials in {-1, 0, +1}, or `gaussian`, standard normal. density : probability of each coupling.
    """

    unary: Floats
    coupling: Floats
    kind: str
    density: float

    @cached_property
    def scores(self) -> Floats:
        """S(x) of every configuration, (3^n,) nats."""
        return self.mrf.energies(np.indices((3,) * len(self.unary)).reshape(len(self.unary), -1).T - 1)

    @property
    def coupled(self) -> bool:
        """Whether any coupling is non-zero."""
        return bool(self.coupling.any())

    @property
    def varies(self) -> bool:
        """Whether S takes more than one value: a constant one says nothing of the classes."""
        return bool(np.ptp(self.scores) > self.rounding)

    @property
    def rounding(self) -> float:
        """Magnitude up to which a score is rounding."""
        return ROUNDING * float(np.abs(self.unary).sum() + np.abs(self.coupling).sum() / 2)

    @property
    def mrf(self) -> PairwiseMRF:
        return PairwiseMRF(self.unary, self.coupling)


def random_models(
    per_cell: int, *, sizes: Sequence[int] = SIZES, densities: Sequence[float] = DENSITIES, kinds: Sequence[str] = KINDS
) -> list[SmallModel]:
    """`per_cell` models of every kind, density and size, each drawn from a seed of its own name."""
    return [_draw(*cell) for cell in product(kinds, densities, sizes, range(per_cell))]


def _draw(kind: str, density: float, n: int, index: int) -> SmallModel:
    generator = generator_of("errata", "model", kind, density, n, index)
    above = np.triu(generator.random((n, n)) < density, 1)
    if kind == "ternary":
        unary = generator.integers(-1, 2, n).astype(np.float64)
        strength = generator.choice([-1.0, 1.0], (n, n))
    else:
        unary, strength = generator.standard_normal(n), generator.standard_normal((n, n))
    coupling = np.where(above, strength, 0.0)
    return SmallModel(unary, coupling + coupling.T, kind, density)


MOST_STEPS = 200
TOLERANCE = 1e-13


class ClassPair(NamedTuple):
    """Log-probabilities of every configuration under class 1 and under class 0, both (C,) nats."""

    one: Floats
    zero: Floats

    @property
    def entropy(self) -> float:
        """H(p_0) + H(p_1), nats."""
        return -sum(float(np.exp(log_p) @ log_p) for log_p in self)


def log_partition_gap(scores: Floats) -> float:
    """Log Z_1 - log Z_0 of the half-potentials of these scores, (C,), in nats (eq:Ze-def-supp)."""
    return float(logsumexp(scores / 2) - logsumexp(-scores / 2))


def calibrated(scores: Floats) -> Floats:
    """The scores less the constant that makes Z_0 = Z_1 (rem:calibration-shift)."""
    return scores - log_partition_gap(scores)


def half_potential_pair(scores: Floats) -> ClassPair:
    """p_e proportional to exp(+-S/2) (eq:half-potential); `scores` (C,) nats."""
    return ClassPair(scores / 2 - logsumexp(scores / 2), -scores / 2 - logsumexp(-scores / 2))


def maximum_entropy_pair(scores: Floats) -> ClassPair:
    """The pair of largest H(p_0) + H(p_1) with p_1 = exp(S) p_0, both normalised (eq:strict-pointwise).

    With w = exp(S) the objective is -sum (1 + w) p_0 log p_0 - sum p_0 w log w. Setting its derivative, less a_0 and
    a_1 w for the two sums, to zero gives

        log p_0 = -1 - (w log w + a_0 + a_1 w) / (1 + w) = -1 - sigma(S) S - sigma(-S) a_0 - sigma(S) a_1,

    and the multipliers minimise the convex dual sum p_0 + sum p_1 + a_0 + a_1, here by damped Newton steps.

    Raises
    ------
    InferenceError : the scores do not take both signs, so that no such pair exists.

    """
    if not (scores.min() < 0 < scores.max()):
        advice = "shift the score by the constant that makes Z_0 = Z_1"
        raise InferenceError(Fault("a pair of classes", "a score that does not change sign", "both signs", advice))
    weight = np.stack([expit(-scores), expit(scores)])

    def pair_at(multipliers: Floats) -> ClassPair:
        zero = -1.0 - scores * weight[1] - multipliers @ weight
        return ClassPair(zero + scores, zero)

    def dual_at(multipliers: Floats) -> float:
        with np.errstate(over="ignore"):
            one, zero = np.exp(pair_at(multipliers))
            return float(zero.sum() + one.sum() + multipliers.sum())

    multipliers = np.full(2, float(logsumexp(-scores * weight[1])) - 1.0)
    for _ in range(MOST_STEPS):
        p_one, p_zero = np.exp(pair_at(multipliers))
        gradient = 1.0 - np.array([p_zero.sum(), p_one.sum()])
        if np.abs(gradient).max() < TOLERANCE:
            break
        step = np.linalg.solve((weight * (p_zero + p_one)) @ weight.T, gradient)
        before, slope, length = dual_at(multipliers), float(gradient @ step), 1.0
        slack = TOLERANCE * max(1.0, abs(before))
        # the longest of the steps 1, 1/2, 1/4, ... that does not raise the dual
        while length >= 1e-12 and dual_at(multipliers - length * step) > before - 1e-4 * length * slope + slack:
            length /= 2
        multipliers = multipliers - length * step
    return pair_at(multipliers)


def total_variation(first: Floats, second: Floats) -> float:
    """Half the summed absolute difference of two distributions given by log-probabilities, 0 to 1."""
    return float(np.abs(np.exp(first) - np.exp(second)).sum() / 2)


def swap_residual(pair: ClassPair, of_negative: ClassPair) -> float:
    """Largest difference between p_e for S and p_{1-e} for -S: 0 where swapping the classes changes nothing."""
    swapped = np.exp(of_negative.zero), np.exp(of_negative.one)
    return float(np.abs(np.exp(pair) - swapped).max())


EXAMPLE = SmallModel(np.array([1.0, 1.0]), np.array([[0.0, 1.0], [1.0, 0.0]]), "ternary", 1.0)
"""Two features with unaries and coupling 1: small enough to work by hand."""
CLASS_FEATURES = 4
INVARIANT = ("wald", "l1", "full_observation")


def maximum_entropy(models: Sequence[SmallModel]) -> list[Row]:
    """Item 1: is the half-potential pair the pair of largest joint entropy, and does that one break class symmetry?"""
    varying = [model for model in models if model.varies]
    scores = [calibrated(model.scores) for model in varying]
    half, best = (list(map(make, scores)) for make in (half_potential_pair, maximum_entropy_pair))
    gap = np.array([other.entropy - pair.entropy for pair, other in zip(half, best, strict=True)])
    distance = [
        (total_variation(pair.one, other.one) + total_variation(pair.zero, other.zero)) / 2
        for pair, other in zip(half, best, strict=True)
    ]
    cross = [(np.exp(pair.zero) - np.exp(pair.one)) @ score / 2 for pair, score in zip(half, scores, strict=True)]
    of_strict, of_half = (
        [swap_residual(pair, make(-score)) for pair, score in zip(pairs, scores, strict=True)]
        for pairs, make in ((best, maximum_entropy_pair), (half, half_potential_pair))
    )
    example = calibrated(EXAMPLE.scores)
    one, other = half_potential_pair(example), maximum_entropy_pair(example)
    apart = max(total_variation(one.one, other.one), total_variation(one.zero, other.zero))
    return [
        vanishes(1, "entropy_gap", gap),
        *(vanishes(1, f"entropy_gap_{name}", gap[which]) for name, which in _by_density(varying)),
        rate(1, "larger_entropy", gap > EXACT),
        vanishes(1, "total_variation", distance, holds=lambda each: each.max() <= EXACT**0.5),
        vanishes(1, "cross_term", cross),
        measured(1, "strict_symmetry", of_strict, np.max, holds=lambda each: each.max() > EXACT),
        vanishes(1, "half_symmetry", of_half, np.max),
        vanishes(1, "example_entropy_gap", [other.entropy - one.entropy]),
        vanishes(1, "example_total_variation", [apart]),
    ]


def unbiased_start(models: Sequence[SmallModel]) -> list[Row]:
    """Item 2: is the expected sign of S zero before any observation, once Z_0 = Z_1?"""
    shifted, unshifted = (
        np.array([expected_under_mixture(model, _sign_of(model), shift=shift) for model in models])
        for shift in (True, False)
    )
    tanh = np.array([expected_under_mixture(model, lambda score: np.tanh(score / 2), shift=True) for model in models])
    odds = np.array([log_partition_gap(calibrated(model.scores)) for model in models])
    coupled = np.array([model.coupled for model in models])
    return [
        rate(2, "sign_not_zero", np.abs(shifted[coupled]) > EXACT, pending="models with couplings"),
        *(
            vanishes(2, f"sign_{kind}{name}", np.abs(values[which]))
            for kind, values in (("", shifted), ("as_elicited_", unshifted))
            for name, which in _by_density(models)
        ),
        vanishes(2, "log_odds", np.abs(odds), np.max),
        vanishes(2, "expected_tanh", np.abs(tanh), np.max),
        vanishes(2, "example_sign", [expected_under_mixture(EXAMPLE, _sign_of(EXAMPLE), shift=True)]),
        vanishes(2, "example_score", [expected_under_mixture(EXAMPLE, lambda score: score, shift=True)]),
    ]


def equal_normalisers(models: Sequence[SmallModel]) -> list[Row]:
    """Item 3: for which models do the two classes have one normaliser?"""
    gaps = np.abs([log_partition_gap(model.scores) for model in models])
    shared = np.abs([shared_coupling_gap(model) for model in models])
    coupled = np.array([model.coupled for model in models])
    return [
        vanishes(3, "coupled", gaps[coupled], pending="such models"),
        vanishes(3, "unary_only", gaps[~coupled], np.max, pending="such models"),
        vanishes(3, "shared_couplings", shared[coupled], np.max, pending="such models"),
        *(vanishes(3, f"coupled_{name}", gaps[which]) for name, which in _by_density(models)),
    ]


def dropped_normaliser(models: int) -> list[Row]:
    """Item 23: mass under the mixture of two random class models on which S lacks the sign of their log-ratio."""
    rows = []
    for kind in ("gaussian", "ternary"):
        masses = np.mean([_other_sign(kind, index) for index in range(models)], axis=0)
        for name, value in zip(("opposite", "tied"), masses.tolist(), strict=True):
            rows.append(Row(23, f"{kind}_{name}", value, 0.0, n=models, holds=value <= EXACT))
    return rows


def outside_the_union(solver: Solver) -> list[Row]:
    """Item 25: exact and mean-field gain of a feature on which two entities do not differ, coupled alike to one."""
    entities = [PairwiseMRF([side, 0.0], [[0, 1], [1, 0]]) for side in (1.0, -1.0)]
    a, b = (Evidence.of(model) for model in entities)
    of_a, of_b = (mean_field(state.mrf, state, solver=solver).marginals for state in (a, b))
    gains = {
        "exact_cmi": jensen_shannon(*(exact(model).marginals.probabilities[1] for model in entities)),
        "mean_field_cmi": cmi(log_odds(a, b, solver=solver), of_a, of_b, a.observed)[1],
        "wald_magnitude": wald_magnitude(a, b)[1],
    }
    return [vanishes(25, name, [value]) for name, value in gains.items()]


def jensen_shannon(first: Floats, second: Floats) -> float:
    """Mutual information, nats, of a fair coin and a value drawn from one of two distributions by it."""
    mixed = (first + second) / 2
    return float((first * np.log(first / mixed) + second * np.log(second / mixed)).sum() / 2)


def _other_sign(kind: str, index: int) -> tuple[float, float]:
    """Mass where S is opposite to log p_1 / p_0, and where it alone is 0; all pairs of four features are coupled."""
    generator = generator_of("errata", "class pair", kind, index)

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


def expected_under_mixture(model: SmallModel, of_score: Callable[[Floats], Floats], *, shift: bool) -> float:
    """E_Q[f(S)] by listing, Q the mixture of the two half-potential classes, S shifted so that Z_0 = Z_1 or not."""
    pair = half_potential_pair(model.scores)
    mixture = (np.exp(pair.one) + np.exp(pair.zero)) / 2
    return float(mixture @ of_score(calibrated(model.scores) if shift else model.scores))


def shared_coupling_gap(model: SmallModel) -> float:
    """Log Z_1 - log Z_0 of two classes with the model's couplings each and unaries +-alpha/2: S is unary."""
    one, zero = (SmallModel(side * model.unary / 2, model.coupling, model.kind, 1.0).scores for side in (1.0, -1.0))
    return float(np.logaddexp.reduce(one) - np.logaddexp.reduce(zero))


def _sign_of(model: SmallModel) -> Callable[[Floats], Floats]:
    return lambda score: np.where(np.abs(score) <= model.rounding, 0.0, np.sign(score))


def _by_density(models: Sequence[SmallModel]) -> list[tuple[str, Mask]]:
    """Name and mask of the models of each kind and density; those that drew no coupling count as density 0."""
    cells = [(model.kind, model.density if model.coupled else 0.0) for model in models]
    return [
        (f"{kind}_density_{density:g}", np.array([cell == (kind, density) for cell in cells]))
        for kind, density in dict.fromkeys(sorted(cells, key=lambda cell: (cell[0] != "ternary", cell)))
    ]


def common_gauge(models: Sequence[SmallModel], solver: Solver) -> list[Row]:
    """Item 14: share of models whose score moves under a random common gauge, and of those whose decision does."""
    found = []
    for index, model in enumerate(models):
        generator = generator_of("errata", "gauge", index)
        mrf, n = model.mrf, model.mrf.n_features
        full = dict(zip(mrf.features, generator.integers(-1, 2, n).tolist(), strict=True))
        # half of the features observed: there is something to infer, and something known
        observations = {mrf.features[j]: full[mrf.features[j]] for j in generator.permutation(n)[: n // 2]}
        above = np.triu(generator.standard_normal((n, n)), 1)
        gauge = PairwiseMRF(generator.standard_normal(n), above + above.T, 0.0, mrf.features)
        halves, taken_off = half_potentials(mrf), gauge.scaled(-1.0)
        before = readings(halves, observations, full, solver)
        after = readings([half - taken_off for half in halves], observations, full, solver)
        hits = {"constant_turns_wald": _call(before["wald"]) != _call((before["wald"][0] + 1.0,))}
        for name, numbers in before.items():
            change = np.abs(np.array(after[name]) - np.array(numbers)).max()
            hits[f"moves_{name}"] = change > EXACT * max(1.0, mrf.reach)
            hits[f"turns_{name}"] = _call(after[name]) != _call(numbers)
        found.append(hits)
    scores = ("two_elbo", "stack_a", "hanson_wright", *INVARIANT)
    names = [*(f"{kind}_{score}" for kind in ("moves", "turns") for score in scores), "constant_turns_wald"]
    cases = {name: [hits[name] for hits in found] for name in names}
    # nobody says that stack-A stays
    return [measured(14, name, hits) if "stack_a" in name else rate(14, name, hits) for name, hits in cases.items()]


def readings(
    classes: Sequence[PairwiseMRF], observations: dict[str, int], full: dict[str, int], solver: Solver
) -> dict[str, tuple[float, ...]]:
    """Scores and brackets of the duel of two class models, given `observations`; `full` has all values."""
    evidence = [Evidence.of(model, observations) for model in classes]
    solved = [mean_field(model, state, solver=solver) for model, state in zip(classes, evidence, strict=True)]
    marginals = [solution.marginals for solution in solved]
    mean = float(linearity(evidence, marginals)[0, 1])
    variance = duel_variance(evidence[0], evidence[1], marginals[0], marginals[1])
    difference = Evidence.of(classes[0] - classes[1], observations)
    complete = [mean_field(model, full, solver=solver).elbo for model in classes]
    return {
        "two_elbo": (solved[0].elbo - solved[1].elbo,),
        "stack_a": (gaussian_sign(mean, variance),),
        "hanson_wright": hanson_wright_interval(difference, mean, variance),
        "wald": (evidence[0].constant - evidence[1].constant,),
        "l1": l1_interval(difference),
        "full_observation": (complete[0] - complete[1],),
    }


def _call(numbers: Sequence[float]) -> int:
    """The side of zero on which a score or a whole interval lies, 0 where it says neither."""
    return int(min(numbers) > EXACT) - int(max(numbers) < -EXACT)
