"""Pairwise Markov random fields on ternary features, and what has been observed of one.

A model gives each configuration x in {-1, 0, +1}^M the energy

    E(x) = pi + alpha . x + 1/2 x' W x        (eq:mrf-general, with each unordered pair counted once)

where `alpha` are the unary potentials, `W` the symmetric couplings with a zero diagonal, and `pi` the
prior log-odds. Observing features conditions the model exactly: what is left is a model of the same
kind on the unobserved features (App. supp:updatemrf).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from afa.errors import BundleError, Fault, PlannerError

Floats = NDArray[np.float64]
VALUES = (-1, 0, 1)
ROUNDING = 1e-12


@dataclass(frozen=True)
class PairwiseMRF:
    """A pairwise model on M ternary features.

    Parameters
    ----------
    unary : (M,) float, the potential of each feature; finite.
    couplings : (M, M), dense or sparse, symmetric, zero diagonal; finite. Kept as a CSR array.
    prior : prior log-odds `pi`, in nats.
    features : M distinct names; `x0`, `x1`, ... unless given.

    Raises
    ------
    BundleError : a potential is not finite, the couplings are not symmetric or have a diagonal, shapes differ.

    Examples
    --------
    >>> model = PairwiseMRF([1.0, -1.0], [[0.0, 1.0], [1.0, 0.0]])
    >>> model.energy([1, 1])
    1.0

    """

    unary: Floats
    couplings: sp.csr_array
    prior: float = 0.0
    features: tuple[str, ...] = field(default=())

    def __init__(
        self, unary: ArrayLike, couplings: ArrayLike | sp.sparray, prior: float = 0.0, features: tuple[str, ...] = ()
    ) -> None:
        alpha = np.array(unary, dtype=np.float64)
        matrix = sp.csr_array(couplings, dtype=np.float64, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        names = tuple(features) or tuple(f"x{j}" for j in range(len(alpha)))
        _check_model(alpha, matrix, prior, names)
        for array in (alpha, matrix.data, matrix.indices, matrix.indptr):
            array.flags.writeable = False
        object.__setattr__(self, "unary", alpha)
        object.__setattr__(self, "couplings", matrix)
        object.__setattr__(self, "prior", float(prior))
        object.__setattr__(self, "features", names)

    @property
    def n_features(self) -> int:
        """M, how many features there are, in the support or not."""
        return len(self.unary)

    @cached_property
    def support(self) -> NDArray[np.intp]:
        """Sorted indices of the features with a non-zero unary potential or coupling."""
        touched = (self.unary != 0) | (np.diff(self.couplings.indptr) > 0)
        return np.flatnonzero(touched)

    @cached_property
    def reach(self) -> float:
        """Bound on the absolute energy of any configuration: the sum of all absolute potentials and the prior."""
        return float(abs(self.prior) + np.abs(self.unary).sum() + np.abs(self.couplings.data).sum() / 2)

    def energy(self, values: ArrayLike) -> float:
        """E(x) of one full configuration, shape (M,), values in {-1, 0, +1} (eq:mrf-general)."""
        x = np.asarray(values, dtype=np.float64)
        if x.shape != self.unary.shape or not np.isin(x, VALUES).all():
            found = f"shape {x.shape}, values {sorted(set(x.ravel().tolist()))[:5]}"
            raise PlannerError(
                Fault(
                    "a configuration",
                    found,
                    f"shape {self.unary.shape}, values -1, 0 or 1",
                    "pass one value per feature",
                )
            )
        return float(self.prior + self.unary @ x + 0.5 * x @ (self.couplings @ x))

    def scaled(self, factor: float) -> PairwiseMRF:
        """The model of `factor * E(x)`: every potential and the prior multiplied."""
        return PairwiseMRF(factor * self.unary, factor * self.couplings, factor * self.prior, self.features)

    def __sub__(self, other: PairwiseMRF) -> PairwiseMRF:
        """The difference model `D = S_a - S_b` of two models on the same features (App. supp:pair-level)."""
        if self.features != other.features:
            raise PlannerError(
                Fault("a difference of two models", "different features", "the same features", "align them first")
            )
        return PairwiseMRF(
            self.unary - other.unary, self.couplings - other.couplings, self.prior - other.prior, self.features
        )


def _check_model(unary: Floats, couplings: sp.csr_array, prior: float, names: tuple[str, ...]) -> None:
    step = "correct the potentials"
    if unary.ndim != 1 or couplings.shape != (len(unary), len(unary)):
        found = f"unary {unary.shape}, couplings {couplings.shape}"
        raise BundleError(Fault("a pairwise model", found, "shapes (M,) and (M, M)", step))
    if len(names) != len(unary) or len(set(names)) != len(names):
        raise BundleError(
            Fault(
                "a pairwise model",
                f"{len(set(names))} distinct feature names",
                f"{len(unary)}",
                "name each feature once",
            )
        )
    if not (np.isfinite(unary).all() and np.isfinite(couplings.data).all() and np.isfinite(prior)):
        bad = [names[j] for j in np.flatnonzero(~np.isfinite(unary))[:3]]
        where = f"a pairwise model{', feature ' + ', '.join(bad) if bad else ''}"
        raise BundleError(Fault(where, "a potential that is not finite", "finite numbers", step))
    if couplings.diagonal().any():
        j = int(np.flatnonzero(couplings.diagonal())[0])
        raise BundleError(Fault(f"a pairwise model, feature {names[j]}", "a coupling with itself", "none", step))
    if (couplings != couplings.T).nnz:
        row, column = (int(index[0]) for index in (couplings != couplings.T).nonzero())
        where = f"a pairwise model, pair {names[row]}, {names[column]}"
        raise BundleError(Fault(where, "couplings that differ by orientation", "a symmetric matrix", step))


@dataclass(frozen=True)
class Evidence:
    """What has been observed of one model, and the model that is left on the rest (App. supp:updatemrf).

    `observed` (M,) bool; `values` (M,) int8, zero where unobserved; `constant` is the running constant
    (eq:running-constant, the prior included); `field` (M,) the effective unary potentials
    (eq:reduced-unary) at the unobserved features, zero at observed ones. With x_A the unobserved values,
    E(x) = constant + field . x_A + 1/2 x_A' W x_A (eq:diff-decomposition).
    """

    mrf: PairwiseMRF
    observed: NDArray[np.bool_]
    values: NDArray[np.int8]
    constant: float
    field: Floats

    @classmethod
    def of(cls, mrf: PairwiseMRF, observations: Mapping[str, int] | None = None) -> Evidence:
        """Evidence of the named observations, none by default.

        >>> model = PairwiseMRF([1.0, -1.0], [[0.0, 1.0], [1.0, 0.0]], features=("a", "b"))
        >>> Evidence.of(model, {"a": 1}).field
        array([0., 0.])
        """
        m = mrf.n_features
        evidence = cls(mrf, np.zeros(m, dtype=bool), np.zeros(m, dtype=np.int8), mrf.prior, mrf.unary)
        index = {name: j for j, name in enumerate(mrf.features)}
        for name, value in (observations or {}).items():
            if name not in index:
                raise PlannerError(Fault("evidence", repr(name), "a feature of the model", "check the name"))
            evidence = evidence.observe(index[name], value)
        return evidence

    @property
    def free(self) -> NDArray[np.intp]:
        """Indices of the unobserved features inside the support, the only ones that inference solves for."""
        support = self.mrf.support
        return support[~self.observed[support]]

    @property
    def n_uniform(self) -> int:
        """How many unobserved features lie outside the support: uniform, each worth log 3 of log-partition."""
        return int((~self.observed).sum()) - len(self.free)

    def observe(self, feature: int, value: int) -> Evidence:
        """Evidence with one more feature observed; only the neighbours' effective unaries change (supp:updatemrf)."""
        name = self.mrf.features[feature]
        if value not in VALUES:
            raise PlannerError(
                Fault(f"feature {name}", repr(value), "-1, 0 or 1", "encode the measurement as ternary first")
            )
        if self.observed[feature]:
            raise PlannerError(
                Fault(f"feature {name}", "a second observation", "at most one", "correct the earlier one instead")
            )
        couplings = self.mrf.couplings
        neighbours = slice(couplings.indptr[feature], couplings.indptr[feature + 1])
        observed, values, effective = self.observed.copy(), self.values.copy(), self.field.copy()
        constant = self.constant + float(effective[feature]) * value
        observed[feature] = True
        values[feature] = value
        effective[couplings.indices[neighbours]] += couplings.data[neighbours] * value
        effective[observed] = 0.0
        return Evidence(self.mrf, observed, values, constant, effective)
