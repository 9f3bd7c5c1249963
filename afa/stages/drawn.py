"""Patients drawn exactly from an entity's own half-potential models: their class is known, and the model is right."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from afa.closure import half_potentials
from afa.inference.exact import sample
from afa.mrf import PairwiseMRF


def generator_of(*names: object) -> np.random.Generator:
    """Random numbers that depend on these names alone."""
    text = "\0".join(map(str, names))
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little"))


def drawn_patients(mrf: PairwiseMRF, labels: NDArray[np.int8], *names: object) -> NDArray[np.int8]:
    """(n, M) profiles, each from p_1 or p_0 by its label in (n,) (eq:half-potential); `names` make the seed.

    An `InferenceError` tells of a model too dense to draw from.
    """
    values = np.empty((len(labels), mrf.n_features), dtype=np.int8)
    for label, model in zip((1, 0), half_potentials(mrf), strict=True):
        chosen = labels == label
        generator = generator_of(*names, label)
        values[chosen] = sample(model, None, int(chosen.sum()), generator=generator)
    return values
