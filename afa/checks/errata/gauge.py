"""Items 14 and 20 without patients: what a common gauge moves on random models, and two gauges on a bundle's duels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from afa.bracket import hanson_wright_interval, l1_interval
from afa.bundle import Bundle
from afa.checks.errata.bundle import chosen_duels
from afa.checks.errata.models import SmallModel, generator_of
from afa.checks.errata.rows import EXACT, NEAR, Row
from afa.closure import half_potentials
from afa.inference.meanfield import Solver, mean_field
from afa.mrf import Evidence, PairwiseMRF
from afa.preference import duel_variance, gaussian_sign, linearity

INVARIANT = ("wald", "l1", "full_observation")


def common_gauge(models: Sequence[SmallModel], solver: Solver) -> list[Row]:
    """Share of models whose score moves under a random common gauge, and of those whose decision does."""
    point = partial(Row, item=14)
    moved: dict[str, list[bool]] = {}
    turned: dict[str, list[bool]] = {}
    shifted = []
    for index, model in enumerate(models):
        generator = generator_of("gauge", index)
        values = generator.integers(-1, 2, model.mrf.n_features)
        # half of the features observed: there is something to infer, and something known
        seen = generator.permutation(model.mrf.n_features)[: model.mrf.n_features // 2]
        observations = {model.mrf.features[j]: int(values[j]) for j in seen}
        classes = half_potentials(model.mrf)
        gauge = _random_like(model.mrf, generator)
        before = readings(classes, observations, dict(zip(model.mrf.features, values.tolist(), strict=True)), solver)
        after = readings(
            (_times(classes[0], gauge), _times(classes[1], gauge)),
            observations,
            dict(zip(model.mrf.features, values.tolist(), strict=True)),
            solver,
        )
        for name, numbers in before.items():
            change = np.abs(np.array(after[name]) - np.array(numbers)).max()
            moved.setdefault(name, []).append(bool(change > EXACT * max(1.0, model.mrf.reach)))
            turned.setdefault(name, []).append(_call(after[name]) != _call(numbers))
        shifted.append(_call(before["wald"]) != _call((before["wald"][0] + 1.0,)))
    rows = [
        point(
            name=f"{kind}_{name}",
            claim_value=None if name == "stack_a" else 0.0,
            value=float(np.mean(hits[name])),
            n=len(models),
            holds=None if name == "stack_a" else not any(hits[name]),
        )
        for kind, hits in (("moves", moved), ("turns", turned))
        for name in ("two_elbo", "stack_a", "hanson_wright", *INVARIANT)
    ]
    rows.append(
        point(
            name="constant_turns_wald",
            claim_value=0.0,
            value=float(np.mean(shifted)),
            n=len(models),
            holds=not any(shifted),
        )
    )
    return rows


def readings(
    classes: tuple[PairwiseMRF, PairwiseMRF], observations: dict[str, int], full: dict[str, int], solver: Solver
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
    if min(numbers) > EXACT:
        return 1
    return -1 if max(numbers) < -EXACT else 0


def _random_like(mrf: PairwiseMRF, generator: np.random.Generator) -> PairwiseMRF:
    n = mrf.n_features
    above = np.triu(generator.standard_normal((n, n)), 1)
    return PairwiseMRF(generator.standard_normal(n), above + above.T, 0.0, mrf.features)


def _times(mrf: PairwiseMRF, gauge: PairwiseMRF) -> PairwiseMRF:
    """The model whose distribution is proportional to that of `mrf` times exp of the gauge's energy."""
    return PairwiseMRF(mrf.unary + gauge.unary, mrf.couplings + gauge.couplings, mrf.prior, mrf.features)


def pooled_start(bundle: Bundle, solver: Solver, most_duels: int) -> list[Row]:
    """Item 20 on the bundle: how two gauges correlate over duels with nothing observed, where no patient enters."""

    def start(model: PairwiseMRF) -> float:
        return mean_field(model, solver=solver).elbo

    duels = chosen_duels(bundle, most_duels)
    entities = {id(model): model for duel in duels for model in duel}
    own = {key: start(model) for key, model in entities.items()}
    values = []
    for a, b in duels:
        one, zero = map(start, half_potentials(a - b))
        values.append((one - zero, own[id(a)] - own[id(b)]))
    closed, true = np.array(values, dtype=np.float64).reshape(-1, 2).T
    known_correlation = len(closed) > 2 and np.ptp(closed) > EXACT and np.ptp(true) > EXACT
    correlation = float(np.corrcoef(closed, true)[0, 1]) if known_correlation else None
    return [
        Row(
            item=20,
            name="pooled_start",
            claim_value=0.0,
            value=correlation,
            n=len(closed),
            holds=abs(correlation) <= NEAR if correlation is not None else None,
            pending="" if correlation is not None else "duels whose two_elbo differs before any observation",
        )
    ]
