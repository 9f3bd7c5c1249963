"""The suite that every allocation rule passes: `check_policy` on bundles with ties, unequal supports and clusters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from bundles import bundle_of

from afa.model.bundle import Bundle, load_bundle
from afa.planner.cluster import CLUSTER_EVERY
from afa.planner.rules import Rule
from afa.planner.rules import check_policy as check_on

TINY = Path(__file__).parents[1] / "data" / "bundle_tiny"


def tied(seed: int) -> Bundle:
    """Five entities on eight features with potentials of -1, 0 and +1 and names out of order: ties everywhere."""
    rng = np.random.default_rng(seed)
    couplings = rng.choice([-1, 0, 0, 0, 1], (5, 8, 8))
    unary = rng.choice([-1, 0, 0, 1], (5, 8))
    return bundle_of(unary, couplings, features=tuple("hbdacgfe"), entities=("u", "z", "x", "y", "w"))


def long() -> Bundle:
    """Twelve entities in two clusters on more features than are observed before clusters are made anew."""
    rng = np.random.default_rng(1)
    m = CLUSTER_EVERY + 6
    couplings = np.zeros((12, m, m))
    unary = np.zeros((12, m))
    for entity in range(12):
        support = rng.choice(m, 12, replace=False)
        unary[entity, support] = rng.choice([-0.5, 0.5, 1.0], 12)
        couplings[entity, support[::2], support[1::2]] = rng.choice([-0.5, 0.5], 6)
    unary[:6, 0] += 20.0
    couplings += couplings.swapaxes(1, 2)
    return bundle_of(unary, couplings, features=rng.permutation([f"f{j}" for j in range(m)]).tolist())


def check_policy(make: Callable[[], Rule]) -> None:
    """Raise a `PlannerError` with the first case in which a rule fails."""
    check_on(make, load_bundle(TINY))
    for seed in range(2):
        check_on(make, tied(seed), k=2, seed=seed)
        check_on(make, tied(seed), k=1, gain="wald_magnitude", score="wald", seed=seed)
    check_on(make, tied(0), k=3, score="two_elbo", gain="f_target", target="linearity")
    bundle = long()
    one = np.random.default_rng(0).integers(-1, 2, (1, len(bundle.features))).astype(np.int8)
    check_on(make, bundle, k=3, gain="wald_magnitude", values=one)
