"""Random orders and random numbers that depend only on names and seeds.

The orders and numbers do not depend on the position of a feature or patient, or on the order of computation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from afa.model.arrays import Ints

PAPER_ROUNDS = (0, 10, 50, 100, 150)
"""Numbers of observations at which the paper's tables report results and its planner ranks candidates again."""


def generator_of(*names: object) -> np.random.Generator:
    """Return a random generator whose seed depends only on the given names."""
    text = "\0".join(map(str, names))
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little"))


def random_order(features: Sequence[str], *, patient: str, seed: int, experiment: str = "random") -> Ints:
    """Return the features in the random order of one patient and seed.

    The order sorts features by a hash of (experiment, patient, seed, feature). Therefore, adding, dropping or
    renumbering features does not change the relative order of the remaining features.

    Returns
    -------
    order : (M,) int64, feature indices

    Examples
    --------
    >>> random_order(["a", "b", "c"], patient="p1", seed=0).tolist()
    [0, 2, 1]

    """
    stem = hashlib.sha256(f"{experiment}\0{patient}\0{seed}\0".encode())
    keys = []
    for feature in features:
        key = stem.copy()
        key.update(feature.encode())
        keys.append(key.digest())
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)


def random_orders(features: Sequence[str], patients: Sequence[str], seeds: Sequence[int]) -> Ints:
    """Return the random orders of several patients, one order for each seed.

    Returns
    -------
    orders : (n_patients, n_seeds, M) int64, feature indices

    """
    orders = [[random_order(features, patient=patient, seed=seed) for seed in seeds] for patient in patients]
    return np.array(orders, dtype=np.int64).reshape(len(patients), len(seeds), len(features))
