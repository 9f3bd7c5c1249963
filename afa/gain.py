"""Gains: what a duel is expected to learn from one more feature (sec:gain)."""

from __future__ import annotations

import numpy as np

from afa.mrf import Evidence, Floats


def wald_magnitude(a: Evidence, b: Evidence) -> Floats:
    """|delta_f^eff| of the duel D_ab at every feature, shape (M,), zero where observed (eq:wald_mag).

    The most that observing a feature can add at once to the running constant; no inference is needed.
    """
    return np.abs(a.field - b.field)
