"""What inference returns: marginals of the unobserved features, a log-partition value, and how it went."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from afa.mrf import Evidence, Floats


@dataclass(frozen=True)
class Marginals:
    """Single-feature marginals of a conditioned model.

    `free` (|A|,) are the indices solved for; `first` and `second` (M,) are E[x] and E[x^2] of every
    unobserved feature (0 and 2/3 outside the support, where the marginal is uniform) and 0 at observed ones.
    """

    free: NDArray[np.intp]
    first: Floats
    second: Floats

    @property
    def probabilities(self) -> Floats:
        """(|A|, 3) probabilities of -1, 0 and +1 at the features in `free`."""
        m, q = self.first[self.free], self.second[self.free]
        return np.column_stack([(q - m) / 2, 1 - q, (q + m) / 2])


def spread(evidence: Evidence, m: Floats, q: Floats) -> Marginals:
    """Marginals over all M features from the moments `m` and `q` at `evidence.free`."""
    first = np.zeros(evidence.mrf.n_features)
    second = np.where(evidence.observed, 0.0, 2.0 / 3.0)
    first[evidence.free], second[evidence.free] = m, q
    return Marginals(evidence.free, first, second)
