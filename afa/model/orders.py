"""Random orders of features, and random generators, that depend only on names and seeds.

Results are independent of the positions of features and patients, and of the order in which they are computed.
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
    """Return the indices of the features in a random order, which depends on the patient and the seed.

    The features are sorted by a hash of (experiment, patient, seed, feature). Therefore, the relative order of two
    features does not change if other features are added, dropped or renumbered.

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
    """Return a random order of the features for each patient and each seed.

    Returns
    -------
    orders : (n_patients, n_seeds, M) int64, feature indices

    """
    orders = [[random_order(features, patient=patient, seed=seed) for seed in seeds] for patient in patients]
    return np.array(orders, dtype=np.int64).reshape(len(patients), len(seeds), len(features))
