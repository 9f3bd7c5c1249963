"""What inference returns: marginals of the unobserved features, a log-partition value, and how it went."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from afa.model.mrf import Evidence, Floats


@dataclass(frozen=True)
class Marginals:
    """Single-feature marginals of a conditioned model.

    `free` (|A|,) are the indices solved for; `first` and `second` (M,) are E[x] and E[x^2] of every
    unobserved feature (uniform outside the support: 0 and 2/3 where ternary) and 0 at observed ones.
    """

    free: NDArray[np.intp]
    first: Floats
    second: Floats

    @property
    def probabilities(self) -> Floats:
        """(|A|, 3) probabilities of -1, 0 and +1 at the features in `free`."""
        return probabilities_of(self.first[self.free], self.second[self.free])


def probabilities_of(first: Floats, second: Floats) -> Floats:
    """(..., 3) probabilities of -1, 0 and +1 from the moments `first`, E[x], and `second`, E[x^2], each (...)."""
    return np.stack([(second - first) / 2, 1 - second, (second + first) / 2], axis=-1)


def spread(evidence: Evidence, m: Floats, q: Floats) -> Marginals:
    """Marginals over all M features from the moments `m` and `q` at `evidence.free`."""
    uniform = evidence.mrf.possible / evidence.mrf.possible.sum(axis=1, keepdims=True)
    first = np.where(evidence.observed, 0.0, uniform[:, 2] - uniform[:, 0])
    second = np.where(evidence.observed, 0.0, uniform[:, 2] + uniform[:, 0])
    first[evidence.free], second[evidence.free] = m, q
    return Marginals(evidence.free, first, second)
