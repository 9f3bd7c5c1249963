"""Synthetic bundles of growing size, and what one decision or one sign convergence takes on them."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from afa.cohort.cohort import Cohort
from afa.model.bundle import Bundle, PackedCouplings
from afa.paper.experiments.settings import Inference, RandomOrder
from afa.paper.experiments.sign import run as sign_convergence
from afa.planner import TopKPlanner

SUPPORT, DEGREE = 22, 8
MEMORY_LIMIT = 4_000_000_000
SECONDS_LIMIT = 60
DECISIONS = 9


def synthetic_bundle(n_entities: int, n_features: int, *, seed: int = 0) -> Bundle:
    """Entities like the recorded ones: 22 features each, unaries -1 or +1, about 8 couplings a feature.

    A coupling has the sign of its unaries' product, as 99.8 % of the recorded ones have. Fewer features than 22 are
    all held.
    """
    rng = np.random.default_rng([seed, n_entities, n_features])
    size = min(SUPPORT, n_features)
    unary = np.zeros((n_entities, n_features))
    rows, columns, values = [], [], []
    first, second = np.triu_indices(size, 1)
    n_pairs = min(size * DEGREE // 2, len(first))
    for entity in range(n_entities):
        support = np.sort(rng.choice(n_features, size, replace=False))
        unary[entity, support] = rng.choice([-1.0, 1.0], size)
        chosen = np.sort(rng.choice(len(first), n_pairs, replace=False))
        row, column = support[first[chosen]], support[second[chosen]]
        rows.append(row)
        columns.append(column)
        values.append(unary[entity, row] * unary[entity, column])
    return Bundle(
        name=f"synthetic-{n_entities}-{n_features}",
        version="1",
        entities=tuple(f"entity{v:04d}" for v in range(n_entities)),
        features=tuple(f"feature{j:04d}" for j in range(n_features)),
        unary=unary,
        packed=PackedCouplings(
            np.arange(n_entities + 1, dtype=np.int64) * n_pairs,
            np.concatenate(rows).astype(np.int32),
            np.concatenate(columns).astype(np.int32),
            np.concatenate(values),
        ),
        priors=np.zeros(n_entities),
    )


def planted_bundle(n_entities: int, n_features: int, size: int, degree: int, *, seed: int = 0) -> Bundle:
    """Entities in ceil(sqrt N) families, `size` features each, about `degree` couplings a feature.

    An entity has 7 in 10 of its features, and half of the couplings that are possible, from its family; a tenth of its
    signs are its own. Unaries are -0.5 or 0.5, a coupling is 0.1 with the sign of its unaries' product: weak enough
    that many observations go by before a duel is decided.
    """
    rng = np.random.default_rng([seed, n_entities, n_features, size, degree])
    n_families, n_own = math.ceil(math.sqrt(n_entities)), size - 7 * size // 10
    n_links = min(size * degree // 2, size * (size - 1) // 2)
    one, other = np.triu_indices(size, 1)
    models = [rng.permutation(n_features)[:size] for _ in range(n_families)]
    signs = rng.choice([-0.5, 0.5], (n_families, n_features))
    links = [rng.permutation(len(one))[: 2 * n_links] for _ in range(n_families)]
    unary, parts = np.zeros((n_entities, n_features)), []
    for entity in range(n_entities):
        family = entity % n_families
        support = models[family].copy()
        elsewhere = np.setdiff1d(rng.permutation(n_features)[: 3 * size], support)[:n_own]
        support[rng.permutation(size)[: len(elsewhere)]] = rng.permutation(elsewhere)
        unary[entity, support] = signs[family, support] * np.where(rng.random(size) < 0.1, -1.0, 1.0)
        chosen = rng.permutation(links[family])[:n_links]
        ends = np.sort(np.column_stack([support[one[chosen]], support[other[chosen]]]), axis=1)
        ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
        parts.append(np.column_stack([ends, 0.1 * np.sign(unary[entity, ends].prod(axis=1))]))
    row, column, value = np.concatenate(parts).T
    return Bundle(
        name=f"planted-{n_entities}-{n_features}",
        version="1",
        entities=tuple(f"entity{v:05d}" for v in range(n_entities)),
        features=tuple(f"feature{j:05d}" for j in range(n_features)),
        unary=unary,
        packed=PackedCouplings(
            np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64),
            row.astype(np.int32),
            column.astype(np.int32),
            np.ascontiguousarray(value),
        ),
        priors=np.zeros(n_entities),
    )


def decision_point(n_entities: int, n_features: int) -> dict[str, Any]:
    """Median time of a decision (`cmi`, `greedy`) over the first rounds after the first, whose gains are all new.

    Raises `MemoryError` where the process would take more than `MEMORY_LIMIT`.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT, hard))
    _decide(synthetic_bundle(3, 30), 2)
    bundle = synthetic_bundle(n_entities, n_features)
    begin = time.perf_counter()
    decisions, observations = _decide(bundle, min(DECISIONS, n_features - 1))
    return {
        "seconds": float(np.median(decisions[1:])),
        "first_decision": decisions[0],
        "observe": float(np.median(observations)),
        "whole_point": time.perf_counter() - begin,
    }


def _decide(bundle: Bundle, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of each decision and of each observation, of random values."""
    planner = TopKPlanner(bundle, k=1, gain="cmi", allocation="greedy")
    rng = np.random.default_rng(0)
    decisions, observations = [], []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        feature = planner.next_feature()
        decided = time.perf_counter()
        planner.observe(str(feature), int(rng.integers(-1, 2)))
        decisions.append(decided - begin)
        observations.append(time.perf_counter() - decided)
    return decisions, observations


def convergence_point(bundle: Bundle, cohort: Cohort, n_patients: int) -> dict[str, Any]:
    """Time of sign convergence on this many patients, one order each; a small cohort is gone through again."""
    orders = {"random_order": RandomOrder(seeds=(0,), starts=("uniform",)), "inference": Inference()}
    sign_convergence(bundle, cohort, [0], **orders)
    patients = [p % len(cohort.patients) for p in range(n_patients)]
    begin = time.perf_counter()
    sign_convergence(bundle, cohort, patients, **orders)
    return {"seconds": time.perf_counter() - begin}


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float | None:
    """Slope of time against size, by least squares in log-log; None for fewer than two points."""
    if len(sizes) < 2:
        return None
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
