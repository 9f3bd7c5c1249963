"""Define `Marginals`, the result of inference: marginal distributions of single features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from afa.model.arrays import Floats
from afa.model.mrf import Evidence


@dataclass(frozen=True)
class Marginals:
    """Marginal distributions of single features, given observations.

    Attributes
    ----------
    free : (n_free,) int, indices of the unobserved features in the support
    first, second : (M,) float64, E[x] and E[x^2] of each unobserved feature, and 0 for each observed feature. Outside
        the support, the moments are those of the uniform distribution

    """

    free: NDArray[np.intp]
    first: Floats
    second: Floats

    @property
    def probabilities(self) -> Floats:
        """Return the probabilities of -1, 0 and +1 for each feature in `free`.

        Returns
        -------
        probabilities : (n_free, 3) float64, of -1, 0 and +1

        """
        return probabilities_of(self.first[self.free], self.second[self.free])


def probabilities_of(first: Floats, second: Floats) -> Floats:
    """Convert first and second moments to the probabilities of -1, 0 and +1.

    Parameters
    ----------
    first, second : (...) float64, E[x] and E[x^2]

    Returns
    -------
    probabilities : (..., 3) float64, of -1, 0 and +1

    """
    return np.stack([(second - first) / 2, 1 - second, (second + first) / 2], axis=-1)


def spread(evidence: Evidence, m: Floats, q: Floats) -> Marginals:
    """Return the `Marginals` of all M features, from the moments of the features in `evidence.free`.

    Parameters
    ----------
    m, q : (n_free,) float64, E[x] and E[x^2]

    """
    uniform = evidence.mrf.possible / evidence.mrf.possible.sum(axis=1, keepdims=True)
    first = np.where(evidence.observed, 0.0, uniform[:, 2] - uniform[:, 0])
    second = np.where(evidence.observed, 0.0, uniform[:, 2] + uniform[:, 0])
    first[evidence.free], second[evidence.free] = m, q
    return Marginals(evidence.free, first, second)
