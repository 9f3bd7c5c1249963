"""Pairwise Markov random fields on ternary features, and their conditioning on observations.

The energy of a configuration x in {-1, 0, +1}^M is

    E(x) = pi + sum_j f_j(x_j) + 1/2 (x - mu)' W (x - mu)

Here `W` is the symmetric matrix of couplings with a zero diagonal, and `pi` is the prior log-odds. In the paper's
models, `f_j(s) = alpha_j s` and `mu = 0`. The energy of the paper's models is E(x) = pi + alpha . x + 1/2 x' W x
(eq:mrf-general). Because of the factor 1/2, each pair of features counts once. In models with class-conditional
probabilities, f_j(s) is log P_j(s), and `mu` contains the means of the distributions P_j. Because the couplings are
centred on `mu`, they do not change the mean-field marginals before any observation (docs/decisions.md, Base rates). For
impossible values, f_j(s) is -inf.

Given observations of some features, the distribution of the unobserved features is exactly described by a model of the
same kind (App. supp:updatemrf).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from afa.errors import BundleError, Fault, PlannerError
from afa.model.arrays import Bools, Codes, Floats

VALUES = (-1, 0, 1)
ROUNDING = 1e-12
RELATIVE_TIE = 1e-9
"""Gains or distances count as equal if they differ by less than this fraction of the largest of them."""

LOG3 = float(np.log(3.0))


@dataclass(frozen=True, init=False)
class PairwiseMRF:
    """A pairwise Markov random field on M ternary features.

    The constructor builds a model of the paper, whose unary terms are linear. The method `from_probabilities` builds a
    model with class-conditional probabilities.

    Parameters
    ----------
    unary : (M,) float64, potential alpha of each feature, nats; finite
    couplings : (M, M) float64, dense or sparse, symmetric with zero diagonal, nats; finite. Stored as a CSR array
    prior : prior log-odds `pi`, nats
    features : M distinct names; `x0`, `x1`, ... by default

    Attributes
    ----------
    terms : (M, 3) float64, f_j(s) for s = -1, 0, +1, nats; -inf for impossible values
    centre : (M,) float64, values `mu` that are subtracted from x in the energy terms of couplings; None if all are 0

    Raises
    ------
    BundleError : a potential is not finite, the couplings are not symmetric or have a diagonal, or shapes differ

    Examples
    --------
    >>> model = PairwiseMRF([1.0, -1.0], [[0.0, 1.0], [1.0, 0.0]])
    >>> model.energy([1, 1])
    1.0

    """

    unary: Floats
    couplings: sp.csr_array
    prior: float
    features: tuple[str, ...]
    terms: Floats
    centre: Floats | None

    def __init__(
        self, unary: ArrayLike, couplings: ArrayLike | sp.sparray, prior: float = 0.0, features: tuple[str, ...] = ()
    ) -> None:
        alpha = np.array(unary, dtype=np.float64)
        terms = alpha[:, None] * np.array(VALUES) if alpha.ndim == 1 else alpha
        self._set_parts(alpha, couplings, prior, features, terms, None)

    @classmethod
    def on_values(
        cls,
        possible: ArrayLike,
        unary: ArrayLike,
        couplings: ArrayLike | sp.sparray,
        prior: float = 0.0,
        features: tuple[str, ...] = (),
    ) -> PairwiseMRF:
        """Return a model with the paper's linear terms. Some values of the features may be impossible.

        The energy term f_j(s) of feature j is alpha_j (s - m_j), where m_j is the midpoint of the possible values of
        the feature. The midpoint m_j is +1/2 if the value -1 is impossible, -1/2 if the value +1 is impossible, and 0
        if both or neither are possible. A coupling W_ij of two features i and j adds W_ij (x_i - m_i) (x_j - m_j) to
        the energy.

        Parameters
        ----------
        possible : (M, 3) bool, True for possible values of -1, 0, +1
        unary : (M,) float64, potential alpha of each feature, nats
        couplings : (M, M) float64, as in `PairwiseMRF`

        Examples
        --------
        >>> model = PairwiseMRF.on_values([[False, True, True]], [2.0], [[0.0]])
        >>> model.energy([0]), model.energy([1])
        (-1.0, 1.0)

        """
        can_be, alpha = np.array(possible, dtype=bool), np.array(unary, dtype=np.float64)
        middle = (can_be[:, 2].astype(np.float64) - can_be[:, 0]) / 2
        terms = np.where(can_be, alpha[:, None] * (np.array(VALUES) - middle[:, None]), -np.inf)
        return cls.__new__(cls)._set_parts(alpha, couplings, prior, features, terms, middle)

    @classmethod
    def from_probabilities(
        cls,
        probabilities: ArrayLike,
        couplings: ArrayLike | sp.sparray,
        prior: float = 0.0,
        features: tuple[str, ...] = (),
    ) -> PairwiseMRF:
        """Return a model whose mean-field marginals before any observation are the given probabilities.

        A coupling W_ij of two features i and j adds W_ij (x_i - mu_i) (x_j - mu_j) to the energy, where mu_j is the
        mean value of feature j under the given probabilities. The attribute `unary` contains the coefficients of x_j in
        log P_j(x_j).

        Parameters
        ----------
        probabilities : (M, 3) float64, of -1, 0, +1; rows sum to 1, the probability of 0 is positive, and the
            probability of an impossible value is 0
        couplings : (M, M) float64, as in `PairwiseMRF`

        Raises
        ------
        BundleError : a row of `probabilities` does not meet these conditions

        Examples
        --------
        >>> model = PairwiseMRF.from_probabilities([[0.0, 0.2, 0.8], [0.5, 0.5, 0.0]], [[0, 1], [1, 0]])
        >>> round(model.energy([1, -1]), 6), model.centre.tolist()
        (-1.016291, [0.8, -0.5])

        """
        p = np.array(probabilities, dtype=np.float64)
        sound = p.ndim == 2 and p.shape[1] == len(VALUES)
        rows = (p >= 0).all(axis=1) & (p[:, 1] > 0) & (np.abs(p.sum(axis=1) - 1) <= ROUNDING) if sound else [False]
        if not np.all(rows):
            found = str(p[~np.asarray(rows)][0].tolist()) if sound else f"shape {p.shape}"
            expected = "three probabilities a feature that sum to 1, that of 0 above 0"
            raise BundleError(Fault("a model of probabilities", found, expected, "correct the probabilities"))
        low, middle, high = np.log(np.where(p > 0, p, 1.0)).T
        linear = np.select([p[:, 0] == 0, p[:, 2] == 0], [high - middle, middle - low], (high - low) / 2)
        linear = np.where((p[:, 0] == 0) & (p[:, 2] == 0), 0.0, linear)
        terms = np.where(p > 0, np.column_stack([low, middle, high]), -np.inf)
        means = p @ np.array(VALUES, dtype=np.float64)
        return cls.__new__(cls)._set_parts(linear, couplings, prior, features, terms, means)

    def _set_parts(
        self,
        unary: Floats,
        couplings: ArrayLike | sp.sparray,
        prior: float,
        features: tuple[str, ...],
        terms: Floats,
        centre: Floats | None,
    ) -> PairwiseMRF:
        """Check the parts of the model, make its arrays read-only, and return the model."""
        matrix = sp.csr_array(couplings, dtype=np.float64, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        names = tuple(features) or tuple(f"x{j}" for j in range(len(unary)))
        _check_model(unary, matrix, prior, names)
        for array in (unary, matrix.data, matrix.indices, matrix.indptr, terms, centre):
            if array is not None:
                array.flags.writeable = False
        parts = {"unary": unary, "couplings": matrix, "prior": float(prior), "features": names}
        for name, value in (parts | {"terms": terms, "centre": centre}).items():
            object.__setattr__(self, name, value)
        return self

    @property
    def n_features(self) -> int:
        """Return M, the number of all features of the model."""
        return len(self.unary)

    @cached_property
    def possible(self) -> Bools:
        """Return a mask of the values (-1, 0, +1) that each feature can take.

        Returns
        -------
        possible : (M, 3) bool

        """
        return np.isfinite(self.terms)

    @cached_property
    def support(self) -> NDArray[np.intp]:
        """Return the support: the indices of the features that affect the model.

        A feature is in the support if it has a coupling, or if the terms of its possible values are unequal.

        Returns
        -------
        support : (n,) intp, ascending indices

        """
        middle = self.terms[:, 1:2]
        uneven = ((self.terms != middle) & self.possible).any(axis=1)
        return np.flatnonzero(uneven | (np.diff(self.couplings.indptr) > 0))

    @cached_property
    def reach(self) -> float:
        """Return an upper bound on |E(x)| over all x, in nats.

        The bound is computed from the absolute values of the prior, the terms and the couplings.
        """
        of_values = np.where(self.possible, np.abs(self.terms), 0.0).max(axis=1, initial=0.0).sum()
        about = np.ones(self.n_features) if self.centre is None else 1.0 + np.abs(self.centre)
        return float(abs(self.prior) + of_values + about @ (abs(self.couplings) @ about) / 2)

    def energy(self, values: ArrayLike) -> float:
        """Return the energy E(x), in nats, of one configuration of all features (eq:mrf-general).

        Parameters
        ----------
        values : (M,) -1, 0 or +1, only possible values

        """
        x = np.asarray(values, dtype=np.float64)
        if x.shape != self.unary.shape or not np.isin(x, VALUES).all():
            found = f"shape {x.shape}, values {sorted(set(x.ravel().tolist()))[:5]}"
            expected = f"shape {self.unary.shape}, values -1, 0 or 1"
            raise PlannerError(Fault("a configuration", found, expected, "pass one value per feature"))
        return float(self.energies(x[None])[0])

    def energies(self, values: ArrayLike) -> Floats:
        """Return the energy of each of n configurations.

        Parameters
        ----------
        values : (n, M) float, -1, 0 or +1; NaN if not measured, which adds 0

        Returns
        -------
        energies : (n,) float64, nats

        """
        x = np.asarray(values, dtype=np.float64)
        measured, at = np.isfinite(x), np.arange(self.n_features)
        column = np.where(measured, x, 0.0).astype(np.int64) + 1
        for i, j in np.argwhere(measured & ~self.possible[at, column])[:1]:
            raise PlannerError(_impossible_value_fault(self, int(j), int(x[i, j])))
        about = np.where(measured, x if self.centre is None else x - self.centre, 0.0)
        of_values = np.where(measured, self.terms[at, column], 0.0).sum(axis=1)
        pulls = (self.couplings @ about.T).T
        return np.asarray(self.prior + of_values + 0.5 * (about * pulls).sum(axis=1))

    def uncentred(self) -> PairwiseMRF:
        """Return a model with the same energies as this model, in which `mu` (the attribute `centre`) is 0.

        The terms and the prior are changed so that the energies remain the same.
        """
        if self.centre is None:
            return self
        pull = self.couplings @ self.centre
        prior = self.prior + 0.5 * float(self.centre @ pull)
        terms = self.terms - pull[:, None] * np.array(VALUES)
        return self._with_same_features(self.unary - pull, self.couplings, prior, terms)

    def scaled(self, factor: float) -> PairwiseMRF:
        """Return the model with the energy `factor * E(x)`.

        All terms, all couplings and the prior are multiplied by `factor`.
        """
        plain = self.uncentred()
        terms = np.where(plain.possible, factor * np.where(plain.possible, plain.terms, 0.0), -np.inf)
        return self._with_same_features(factor * plain.unary, factor * plain.couplings, factor * plain.prior, terms)

    def __sub__(self, other: PairwiseMRF) -> PairwiseMRF:
        """Return the model whose energy is the difference D = S_a - S_b of two models' energies (App. supp:pair-level).

        Both models must have the same features with the same possible values.
        """
        if self.features != other.features or not np.array_equal(self.possible, other.possible):
            found, expected = "different features or values", "the same features with the same values"
            raise PlannerError(Fault("a difference of two models", found, expected, "align them first"))
        one, two = self.uncentred(), other.uncentred()
        terms = np.where(self.possible, one.terms - np.where(self.possible, two.terms, 0.0), -np.inf)
        return self._with_same_features(
            one.unary - two.unary, one.couplings - two.couplings, one.prior - two.prior, terms
        )

    def _with_same_features(self, unary: Floats, couplings: sp.csr_array, prior: float, terms: Floats) -> PairwiseMRF:
        return PairwiseMRF.__new__(PairwiseMRF)._set_parts(unary, couplings, prior, self.features, terms, None)


def _impossible_value_fault(mrf: PairwiseMRF, feature: int, value: int) -> Fault:
    values = [str(known) for known, possible in zip(VALUES, mrf.possible[feature], strict=True) if possible]
    step = "check the measurement, or the values that the bundle gives this feature"
    return Fault(f"feature {mrf.features[feature]}", str(value), " or ".join(values), step)


def _check_model(unary: Floats, couplings: sp.csr_array, prior: float, names: tuple[str, ...]) -> None:
    step = "correct the potentials"
    if unary.ndim != 1 or couplings.shape != (len(unary), len(unary)):
        found = f"unary {unary.shape}, couplings {couplings.shape}"
        raise BundleError(Fault("a pairwise model", found, "shapes (M,) and (M, M)", step))
    if len(names) != len(unary) or len(set(names)) != len(names):
        found = f"{len(set(names))} distinct feature names"
        raise BundleError(Fault("a pairwise model", found, f"{len(unary)}", "name each feature once"))
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
    """Observations of one patient, and the resulting model of the unobserved features (App. supp:updatemrf).

    If A is the set of unobserved features, the energy is E(x) = constant + sum_A terms(x_j) + 1/2 (x - mu)_A' W (x -
    mu)_A (eq:diff-decomposition).

    Attributes
    ----------
    observed : (M,) bool
    values : (M,) int8, 0 for unobserved features
    constant : contribution of the prior and of the observed features to the energy, nats (eq:running-constant)
    shift : (M,) float64, amount that observed neighbours add to the linear term of each unobserved feature, nats; 0 for
        observed features

    """

    mrf: PairwiseMRF
    observed: Bools
    values: Codes
    constant: float
    shift: Floats

    @classmethod
    def of(cls, mrf: PairwiseMRF, observations: Mapping[str, int] | None = None) -> Evidence:
        """Return the `Evidence` of a model after the given observations.

        The argument `observations` maps names of features to values. By default, there are no observations.

        Examples
        --------
        >>> model = PairwiseMRF([1.0, -1.0], [[0.0, 1.0], [1.0, 0.0]], features=("a", "b"))
        >>> Evidence.of(model, {"a": 1}).field
        array([0., 0.])

        """
        if not isinstance(mrf, PairwiseMRF):
            step = "give that of an entity, bundle.mrf(name)"
            raise PlannerError(Fault("model", type(mrf).__name__, "a PairwiseMRF", step))
        m = mrf.n_features
        evidence = cls(mrf, np.zeros(m, dtype=bool), np.zeros(m, dtype=np.int8), mrf.prior, np.zeros(m))
        index = {name: j for j, name in enumerate(mrf.features)}
        for name, value in (observations or {}).items():
            if name not in index:
                raise PlannerError(Fault("evidence", repr(name), "a feature of the model", "check the name"))
            evidence = evidence.observe(index[name], value)
        return evidence

    @property
    def field(self) -> Floats:
        """Return the effective unary potentials of the unobserved features (eq:reduced-unary).

        The effective unary potential of a feature is its unary potential plus the amounts that observed neighbours add.

        Returns
        -------
        field : (M,) float64, nats, 0 for observed features

        """
        return np.where(self.observed, 0.0, self.mrf.unary + self.shift)

    @property
    def terms(self) -> Floats:
        """Return the energy term f_j(s) of each unobserved feature j, given the observations.

        This (effective) energy term is the energy term in the model plus the amounts that observed neighbours of the
        feature add.

        Returns
        -------
        terms : (M, 3) float64, of -1, 0, +1, nats; 0 for observed features

        """
        about = np.array(VALUES) - (0.0 if self.mrf.centre is None else self.mrf.centre[:, None])
        return np.where(self.observed[:, None], 0.0, self.mrf.terms + self.shift[:, None] * about)

    def uncentred(self) -> tuple[float, Floats]:
        """Return the constant and the terms of the energy, written without deviations from the mean.

        The energy of the model contains products of the deviations x_j - mu_j, where mu is the model's `centre`. Here,
        the same energy is written with products of the values x_j.

        Returns
        -------
        constant : float, nats
        terms : (M, 3) float64, of -1, 0, +1, nats; 0 for observed features

        """
        if self.mrf.centre is None:
            return self.constant, self.terms
        centre = np.where(self.observed, 0.0, self.mrf.centre)
        pull = np.where(self.observed, 0.0, self.mrf.couplings @ centre)
        terms = self.terms - pull[:, None] * np.array(VALUES)
        return self.constant + 0.5 * float(centre @ pull), terms

    @property
    def free(self) -> NDArray[np.intp]:
        """Return the indices of the unobserved features in the support of the model.

        Inference computes the marginals of these features.

        Returns
        -------
        free : (n_free,) intp, feature indices

        """
        support = self.mrf.support
        return support[~self.observed[support]]

    @property
    def log_volume(self) -> float:
        """Return the logarithm of the partition function of the unobserved features outside the support.

        In the paper's models, each of these features contributes log 3.
        """
        outside = ~self.observed
        outside[self.mrf.support] = False
        mass = np.exp(self.mrf.terms[outside]).sum(axis=1)
        return float(np.log(mass).sum())

    def observe(self, feature: int, value: int) -> Evidence:
        """Return the evidence after one more observation.

        Only the terms of the observed feature's neighbours change (supp:updatemrf).
        """
        name = self.mrf.features[feature]
        if value not in VALUES:
            raise PlannerError(
                Fault(f"feature {name}", repr(value), "-1, 0 or 1", "encode the measurement as ternary first")
            )
        if self.observed[feature]:
            raise PlannerError(
                Fault(f"feature {name}", "a second observation", "at most one", "correct the earlier one instead")
            )
        if not self.mrf.possible[feature, int(value) + 1]:
            raise PlannerError(_impossible_value_fault(self.mrf, feature, int(value)))
        couplings = self.mrf.couplings
        neighbours = slice(couplings.indptr[feature], couplings.indptr[feature + 1])
        observed, values, shift = self.observed.copy(), self.values.copy(), self.shift.copy()
        about = value if self.mrf.centre is None else value - float(self.mrf.centre[feature])
        constant = self.constant + float(self.mrf.terms[feature, int(value) + 1]) + about * float(shift[feature])
        observed[feature] = True
        values[feature] = value
        shift[couplings.indices[neighbours]] += couplings.data[neighbours] * about
        shift[observed] = 0.0
        return Evidence(self.mrf, observed, values, constant, shift)


def difference_terms(a: Evidence, b: Evidence) -> tuple[Floats, Floats]:
    """Return how much each unobserved feature, and each pair of them, contributes to E_a(x) - E_b(x), in nats.

    The evidence of both models must contain the same observations. In the paper's models, u_j(s) = delta_j s and
    w_jl(s, t) = delta_jl s t.

    Returns
    -------
    u : (M, 3) float64, u_j(s); 0 for observed features, NaN for impossible values
    w : (n, 3, 3) float64, w_jl(s, t) of the n unobserved pairs that a model couples; NaN for impossible values

    """
    possible, free = a.mrf.possible, ~a.observed
    unary = np.where(possible, a.terms - np.where(possible, b.terms, 0.0), np.nan)
    unary[a.observed] = 0.0
    rows, columns = sp.triu(abs(a.mrf.couplings) + abs(b.mrf.couplings)).nonzero()
    inside = free[rows] & free[columns]
    return unary, pair_terms(a.mrf, b.mrf, rows[inside], columns[inside])


def pair_terms(a: PairwiseMRF, b: PairwiseMRF, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Floats:
    """Return how much each of n pairs of features contributes to E_a(x) - E_b(x), for all values of the two features.

    Parameters
    ----------
    rows, columns : (n,) int, indices of the two features of each pair

    Returns
    -------
    pairs : (n, 3, 3) float64, nats, for each combination of the two features' values; NaN for impossible values

    """
    pairs = np.where(a.possible[rows][:, :, None] & a.possible[columns][:, None, :], 0.0, np.nan)
    for sign, mrf in ((1.0, a), (-1.0, b)):
        weight = sign * mrf.couplings.toarray()[rows, columns]
        centre = np.zeros(mrf.n_features) if mrf.centre is None else mrf.centre
        left, right = (np.array(VALUES) - centre[ends][:, None] for ends in (rows, columns))
        pairs += weight[:, None, None] * left[:, :, None] * right[:, None, :]
    return pairs
