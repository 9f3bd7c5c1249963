"""Compute the mean and covariance of one patient's scores S_v, and the gain of each measurement (docs/frontier.md).

The background consists of the distribution of each feature among all patients and the covariance of the features.
Labels are not needed to estimate the background. Features are correlated, because some patients are more severely ill
than others. If features are correlated, an observation also changes the expected values of the other features (by
linear regression). Given the observations, the scores at full observation are random. The mean and covariance of the
scores are sums over features and over coupled pairs of features. These sums need no mean-field inference, and they are
exact if features are independent.

`Background` contains the distributions of the features. `ScoreTable` contains the arrays that define the scores of a
bundle. `Belief` is the state of one patient. A planner calls the methods of `Belief` in this order: `order`,
`differences`, `frontier`, `value_of`, `top_probability`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from afa.errors import Fault, PlannerError
from afa.io.csvfile import first_names
from afa.model.arrays import Bools, Codes, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.bundle.rates import floored
from afa.model.mrf import RELATIVE_TIE, ROUNDING, VALUES

Kind = Literal["patients", "elicited", "mixture", "uniform"]
PRIOR_PATIENTS = 10.0
"""Weight of the bundle's probabilities in a mean with the shares among few patients, as a number of patients."""
FEW_PATIENTS = 30
"""For tables with fewer patients, commands average the shares of values in the table with the bundle's probabilities.
"""
DRAWS = 4096
"""Number of random samples for the probability that the top k is correct. Its standard error is at most 0.008."""
NEAR = 100
"""Largest number of entities outside the top k that are sampled. For all other entities, a risk is subtracted from the
probability instead (`Belief.top_probability`).
"""
VALUE_ARRAY = np.array(VALUES, dtype=np.float64)
TOGETHER = ", and how their features go together"
"""Last words of `Background.words` if correlations were estimated from the patients."""
MOST_FEATURES = 500
"""Largest number of features for which a background has a covariance."""
INTENSITY = 0.5
"""Standard deviation of the patients' intensity f. At f = 0 a feature has its background probabilities, and at f = -1
its values -1 and +1 are equally probable.
"""
RAREST = 0.005
"""Number that is added to a probability before its logarithm is taken."""
SHRINKAGE = np.linspace(0.1, 1.0, 10)
"""Candidate weights of the correlations that one shared intensity explains. The rest is the patients' correlations."""
FOLDS = 5
"""Number of folds of the cross-validation that chooses the shrinkage."""
DIGITS = 6
"""Number of decimals of a covariance. The rounding ensures that a saved and reloaded session has the same numbers."""


@dataclass(frozen=True, eq=False)
class Background:
    """Distribution of each feature among all patients, with a text that names its source.

    Parameters
    ----------
    probabilities : (n_features, 3) float64
        Probabilities of -1, 0 and +1; each row sums to 1.
    kind : str
        `patients`, `elicited`, `mixture` or `uniform`.
    words : str
        Source of the background. The text is shown next to each number that depends on the background.
    covariance : (n_features, n_features) float64 or None
        Covariance of the features; the diagonal contains the variances under `probabilities`. None if features are
        treated as independent.

    Examples
    --------
    >>> from afa import Background, TopKPlanner, load_bundle
    >>> bundle = load_bundle("tests/data/bundle_tiny")
    >>> others = Background.of_patients(bundle, [[1, 0, 0, 0, -1], [1, 1, 0, 0, 0]], name="patients of last year")
    >>> planner = TopKPlanner(bundle, k=1, score="background", background=others)
    >>> planner.background.words, planner.top_k()
    ('2 patients of last year', ['bleeding'])

    """

    probabilities: Floats
    kind: Kind
    words: str
    covariance: Floats | None = None

    def __post_init__(self) -> None:
        p = np.asarray(self.probabilities, dtype=np.float64)
        sound = p.ndim == 2 and p.shape[1] == len(VALUES)
        if not sound or not ((p >= 0).all() and (np.abs(p.sum(axis=1) - 1) <= RELATIVE_TIE).all()):
            expected = "three probabilities a feature that sum to 1"
            raise PlannerError(
                Fault("a background", f"shape {p.shape}, or sums other than 1", expected, "correct them")
            )
        p.flags.writeable = False
        object.__setattr__(self, "probabilities", p)
        if self.covariance is not None:
            s = _parse_covariance(self.covariance)
            if s.shape != (len(p), len(p)) or not (np.abs(np.diag(s) - variances_of(p)) <= 10.0**-DIGITS).all():
                expected = "(n_features, n_features), its diagonal the variances"
                raise PlannerError(Fault("covariance of a background", f"shape {s.shape}", expected, "correct it"))
            s.flags.writeable = False
            object.__setattr__(self, "covariance", s)

    @classmethod
    def given(cls, bundle: Bundle, background: Background | Mapping[str, Any] | str | None) -> Background:
        """Return a planner's option `background` (a distribution of the features among all patients) as a `Background`.

        The option is a `Background`, a result of `Background.plain`, or one of the names `elicited` and `uniform`. If
        the option is None, the background is `elicited` if the bundle has probabilities, and `uniform` if it has none.
        """
        if background is None:
            background = "elicited" if bundle.has_probabilities else "uniform"
        if isinstance(background, Mapping):
            keys = first_names(map(str, background))
            try:
                background = cls(**background)
            except PlannerError:
                raise
            except (TypeError, ValueError, AttributeError) as fault:
                expected = "the keys probabilities, kind and words of Background.plain()"
                step = "make the background by Background.of_patients"
                raise PlannerError(Fault("planner option background", keys, expected, step)) from fault
        known = {"elicited": cls.elicited, "uniform": cls.uniform}
        if isinstance(background, str) and background in known:
            background = known[background](bundle)
        if not isinstance(background, Background):
            expected = "an afa.Background, elicited or uniform"
            raise PlannerError(Fault("planner option background", repr(background), expected, "give one of these"))
        if len(background.probabilities) != len(bundle.features):
            found, expected = f"{len(background.probabilities)} features", f"the bundle's {len(bundle.features)}"
            raise PlannerError(Fault("planner option background", found, expected, "make it for this bundle"))
        return background

    def plain(self) -> str | dict[str, Any]:
        """Return the background as strings, numbers and lists. `Background.given` reverses the conversion."""
        rebuilt = self.covariance is not None or len(self.probabilities) > MOST_FEATURES
        if self.kind == "uniform" or (self.kind == "elicited" and rebuilt):
            return self.kind
        found = {"probabilities": self.probabilities.tolist(), "kind": self.kind, "words": self.words}
        if self.covariance is not None:
            found["covariance"] = [" ".join(map(str, row[: i + 1].tolist())) for i, row in enumerate(self.covariance)]
        return found

    def independent(self) -> Background:
        """Return a copy of the background without its covariance."""
        return Background(self.probabilities, self.kind, self.words.removesuffix(TOGETHER))

    @classmethod
    def uniform(cls, bundle: Bundle) -> Background:
        """Return a background distribution in which all possible values of a feature are equally probable."""
        possible = bundle.possible
        return cls(possible / possible.sum(axis=1, keepdims=True), "uniform", "no background, every value alike")

    @classmethod
    def elicited(cls, bundle: Bundle) -> Background:
        """Return the distribution of each feature among all patients, computed from the probabilities in the bundle.

        The file features.csv gives the probabilities `p_low` and `p_high` of a feature. If `p_low` and `p_high` are
        missing, the mean of the feature's class-conditional probabilities in the bundle is used. If the
        class-conditional probabilities are also missing, all possible values of the feature are equally probable.

        Raises
        ------
        PlannerError : the bundle has no probabilities

        """
        if bundle.rates is None or not bundle.has_probabilities:
            step = "add p_low,p_high to features.csv, or give patients"
            raise PlannerError(Fault(f"bundle {bundle.name}", "no probabilities", "a background", step))
        found, probability_rows = np.full((len(bundle.features), 3), np.nan), bundle.rates.probability_rows
        total, n = np.zeros_like(found), np.zeros(len(found))
        for said in (probability_rows.with_entity, probability_rows.without):
            here = np.isfinite(said[:, 0])
            np.add.at(total, probability_rows.feature[here], said[here])
            np.add.at(n, probability_rows.feature[here], 1.0)
        found[n > 0] = total[n > 0] / n[n > 0, None]
        if bundle.rates.table is not None:
            own = bundle.rates.table.background
            found = np.where(np.isnan(own), found, own)
        known = np.isfinite(found[:, 0])
        found = floored(np.where(known[:, None], found, 1.0), bundle.possible, ROUNDING)
        words = f"what the bundle states of {known.sum()} of {len(known)} features"
        return cls(found, "elicited", words, intensity_covariance(found))

    @classmethod
    def of_patients(
        cls,
        bundle: Bundle,
        values: ArrayLike,
        *,
        without: int | None = None,
        name: str = "patients",
        dependence: bool = True,
    ) -> Background:
        """Return the distribution of each feature among all patients, estimated from patients without labels.

        The probabilities are the shares of the values among the patients. If no patient has a value of a feature, all
        possible values of this feature are equally probable. The covariance is computed by `shrunk_covariance`, or by
        `intensity_covariance` if `shrunk_covariance` returns None. If the bundle has more than 500 features, no
        covariance is computed, and the features are treated as independent.

        Parameters
        ----------
        values : (n_patients, n_features) float64
            -1, 0, +1, or NaN if not measured. The columns have the order of the bundle's features.
        without : int
            Row of the patient to plan for. This patient is excluded. None if the patient is not in the table.
        name : str
            Name of the group of patients in `words`.
        dependence : bool
            True to estimate the correlations of the features from the patients. False for patients of another
            population: the covariance is then computed by `intensity_covariance` alone.

        """
        values = np.asarray(values, dtype=np.float64)
        counts = counts_of(bundle, values)
        if without is not None:
            counts -= counts_of(bundle, values[without : without + 1])
            values = np.delete(values, without, axis=0)
        total = counts.sum(axis=1, keepdims=True)
        alike = cls.uniform(bundle).probabilities
        shares = np.divide(counts, total, out=alike.copy(), where=total > 0)
        words, covariance = f"{len(values)} {name}", intensity_covariance(shares)
        if dependence and covariance is not None:
            estimated = shrunk_covariance(values, shares)
            covariance, words = (covariance, words) if estimated is None else (estimated, words + TOGETHER)
        return cls(shares, "patients", words, covariance)

    @classmethod
    def mixture(cls, bundle: Bundle, values: Floats | Codes, *, prior: float = PRIOR_PATIENTS) -> Background:
        """Return the mean of two distributions: the values among the given patients, and the bundle's probabilities.

        The mean is weighted and is computed for each feature. The weight of the patients' distribution is the number of
        patients in whom the feature was measured. The weight of the bundle's probabilities is `prior`. If the bundle
        has no probabilities, the second distribution gives equal probability to all possible values.

        Parameters
        ----------
        values : (n_patients, n_features) float64, as in `of_patients`
        prior : weight of the bundle's probabilities, as a number of patients

        """
        expected = cls.elicited(bundle) if bundle.has_probabilities else cls.uniform(bundle)
        counts = counts_of(bundle, values) + prior * expected.probabilities
        shares = counts / counts.sum(axis=1, keepdims=True)
        words = f"{len(values)} patients, and as {prior:g} patients {expected.words}"
        return cls(shares, "mixture", words, intensity_covariance(shares))


def counts_of(bundle: Bundle, values: Floats | Codes) -> Floats:
    """Count the patients with each value of each feature.

    Parameters
    ----------
    values : (n_patients, n_features) float64, as in `Background.of_patients`

    Returns
    -------
    counts : (n_features, 3) float64, numbers of patients with -1, 0 and +1

    Raises
    ------
    PlannerError : the table does not fit the bundle

    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 2 or x.shape[1] != len(bundle.features) or not (np.isnan(x) | np.isin(x, VALUES)).all():
        expected = f"(n, {len(bundle.features)}) values -1, 0, 1 or missing"
        raise PlannerError(Fault("patients of a background", f"shape {x.shape}", expected, "encode them first"))
    return np.stack([(x == value).sum(axis=0) for value in VALUES], axis=1).astype(np.float64)


def variances_of(probabilities: Floats) -> Floats:
    """Return the variance of each feature.

    Parameters
    ----------
    probabilities : (n_features, 3) float64, of -1, 0 and +1

    Returns
    -------
    variances : (n_features,) float64, from 0 to 1

    """
    p = probabilities
    return np.where(p.max(axis=1) == 1, 0.0, np.maximum(p @ VALUE_ARRAY**2 - (p @ VALUE_ARRAY) ** 2, 0.0))


def _parse_covariance(covariance: Any) -> Floats:
    """Return a covariance matrix (M, M) that is given as an array, or as M strings from `Background.plain`.

    Parameters
    ----------
    covariance : a matrix, or M strings. String i contains row i of the lower triangle: i + 1 numbers with blanks
        between them. If a string has a wrong number of numbers, its row becomes NaN

    """
    if isinstance(covariance, np.ndarray):
        return np.array(covariance, dtype=np.float64)
    lower = np.zeros((len(covariance), len(covariance)))
    for i, row in enumerate(covariance):
        numbers = row.split()
        lower[i, : i + 1] = numbers if len(numbers) == i + 1 else np.nan
    return np.asarray(lower + np.tril(lower, -1).T)


def intensity_covariance(probabilities: Floats) -> Floats | None:
    """Return the covariance of features whose probabilities all depend on one number f, the intensity of the patient.

    The result is None for more than 500 features. At intensity f, feature j has the probabilities b_j(s) exp(f theta_j
    s), scaled to sum 1, where theta_j is half the log ratio of b_j(+1) and b_j(-1). To first order, the mean of feature
    j then changes by theta_j s_j f, where s_j is its variance. The covariance of two features i and j is g_i g_j, where
    g_j = `INTENSITY` theta_j s_j / sqrt(1 + `INTENSITY`^2 theta_j^2 s_j). Without the division by the square root, the
    intensity would increase the variance of feature j above s_j.

    Parameters
    ----------
    probabilities : (n_features, 3) float64
        Probabilities b_j of -1, 0 and +1.

    Returns
    -------
    covariance : (n_features, n_features) float64
        Symmetric. The diagonal contains the variances of the features.

    """
    if len(probabilities) > MOST_FEATURES:
        return None
    spread, loading = variances_of(probabilities), _loadings_of_intensity(probabilities)
    covariance = np.round(np.outer(loading, loading), DIGITS)
    np.fill_diagonal(covariance, spread)
    return covariance


def _loadings_of_intensity(probabilities: Floats) -> Floats:
    """Return one number for each feature, so that the product of two numbers is the covariance of their features."""
    spread = variances_of(probabilities)
    theta = 0.5 * np.log((probabilities[:, 2] + RAREST) / (probabilities[:, 0] + RAREST))
    return np.asarray(INTENSITY * theta * spread / np.sqrt(1 + INTENSITY**2 * theta**2 * spread))


def shrunk_covariance(values: Floats, probabilities: Floats) -> Floats | None:
    """Return the covariance of the features among the patients, shrunk towards the result of `intensity_covariance`.

    Cross-validation with `FOLDS` folds chooses the shrinkage: the value in `SHRINKAGE` for which held-out patients have
    the largest log-likelihood under a normal distribution. If the chosen shrinkage is 1, the result is None. The result
    is also None if the number of patients is less than twice the number of folds, or if fewer than two features vary
    among the patients.

    Parameters
    ----------
    values : (n_patients, n_features) float64
        -1, 0, +1, or NaN if not measured. NaN is replaced by the mean of the feature.
    probabilities : (n_features, 3) float64
        Shares of -1, 0 and +1 among these patients.

    Returns
    -------
    covariance : (n_features, n_features) float64
        Symmetric. The diagonal contains the variances of the features.

    """
    spread = variances_of(probabilities)
    varies, n = spread > 0, len(values)
    if n < 2 * FOLDS or varies.sum() < 2:
        return None
    scale = np.sqrt(spread[varies])
    z = np.nan_to_num((values - probabilities @ VALUE_ARRAY)[:, varies] / scale)
    loading = _loadings_of_intensity(probabilities)[varies] / scale
    expected = np.outer(loading, loading)
    np.fill_diagonal(expected, 1.0)
    # transform the values so that the correlation matrix `expected` becomes the identity matrix
    whitened = np.linalg.solve(np.linalg.cholesky(expected), z.T).T
    part, total = np.arange(n) % FOLDS, np.zeros(len(SHRINKAGE))
    for fold in range(FOLDS):
        total += _held_out_log_likelihoods(whitened[part != fold], whitened[part == fold])
    lost = float(SHRINKAGE[np.argmax(total)])
    if lost == 1:
        return None
    correlation = (1 - lost) * (z.T @ z) / n + lost * expected
    np.fill_diagonal(correlation, 1.0)
    covariance = np.zeros((len(spread), len(spread)))
    covariance[np.ix_(varies, varies)] = np.round(correlation * np.outer(scale, scale), DIGITS)
    np.fill_diagonal(covariance, spread)
    return covariance


def _held_out_log_likelihoods(z: Floats, left_out: Floats) -> Floats:
    """Return for each shrinkage the normal log-likelihood of held-out patients, up to a constant.

    With shrinkage t, the correlation matrix is (1 - t) z'z / n + t I.

    Parameters
    ----------
    z : (n, m) float64, standardised values of the patients from whom the correlations are estimated
    left_out : (n_left_out, m) float64, standardised values of the held-out patients

    """
    _, size, axes = np.linalg.svd(z, full_matrices=False)
    along = left_out @ axes.T
    rest = (left_out**2).sum() - (along**2).sum()
    found = np.zeros(len(SHRINKAGE))
    for i, share in enumerate(SHRINKAGE):
        eigenvalues = (1 - share) * size**2 / len(z) + share
        log_det = np.log(eigenvalues).sum() + (z.shape[1] - len(size)) * np.log(share)
        found[i] = -0.5 * (len(left_out) * log_det + (along**2 / eigenvalues).sum() + rest / share)
    return found


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Arrays that define the scores S_v(x) = constant_v + sum_j f_vj(x_j) + sum_{j<l} psi_vjl x_j x_l of entities v.

    A slot is a pair of an entity v and a feature on which the score S_v depends. The slots (pairs of an entity and a
    feature) are sorted by entity, then by feature.

    Parameters
    ----------
    entities, features : tuple of str
        N and M names.
    constant : (n_entities,) float64
        Part of each score that depends on no feature, nats.
    entity, feature : (n_slots,) int64
        Entity index and feature index of each slot.
    terms : (n_slots, 3) float64
        f_vj(-1), f_vj(0) and f_vj(+1) of each slot, nats; 0 for values that cannot occur.
    owner : (n_pairs,) int64
        Entity of each coupling, ascending.
    ends : (2, n_pairs) int64
        The two slots of each coupling, the lower feature first.
    psi : (n_pairs,) float64
        Couplings, nats.
    groups : tuple of (n_members,) int64
        Exclusive groups of features. Each member is 0 or +1, at most one member is +1, and no member is coupled.
    places : (n_entities,) int64
        Position of each entity in the order that breaks ties of scores. The default is the order of the bundle.

    """

    entities: tuple[str, ...]
    features: tuple[str, ...]
    constant: Floats
    entity: Ints
    feature: Ints
    terms: Floats
    owner: Ints
    ends: Ints
    psi: Floats
    groups: tuple[Ints, ...] = ()
    places: Ints | None = None

    @classmethod
    def of_bundle(cls, bundle: Bundle) -> ScoreTable:
        """Return the `ScoreTable` of a bundle.

        A coupling with the scope `shared` is omitted, because it is equal for patients with and without the entity, and
        therefore cancels in the score.

        Raises
        ------
        PlannerError : the bundle has features that cannot take all three values

        """
        if not bundle.ternary:
            found, step = "features that cannot be -1, or cannot be +1", "use the scores of the explicit gauge"
            raise PlannerError(Fault(f"bundle {bundle.name}", found, "three values of every feature", step))
        contrasts = bundle.contrasts()
        packed, m = contrasts.packed, len(bundle.features)
        unary = np.flatnonzero(contrasts.unary)
        ends = packed.owner * m + np.stack([packed.row, packed.column]).astype(np.int64)
        slots = np.unique(np.concatenate([unary, ends.ravel()]))
        entity, feature = np.divmod(slots, m)
        return cls(
            bundle.entities,
            bundle.features,
            contrasts.log_odds.copy(),
            entity,
            feature,
            contrasts.unary[entity, feature, None] * VALUE_ARRAY,
            packed.owner,
            np.searchsorted(slots, ends),
            packed.value,
        )

    @cached_property
    def slots_of(self) -> tuple[Ints, Ints]:
        """Return the slots (pairs of entity and feature) sorted by feature, and the start of each feature.

        Returns
        -------
        slots : (n_slots,) int64
        start : (n_features + 1,) int64, position in `slots` of each feature's first slot

        """
        return self._sort_by_feature(self.feature)

    @cached_property
    def neighbours(self) -> tuple[Ints, Floats, Ints]:
        """Return all couplings sorted by feature. Each coupling occurs twice: once for each of its two features.

        Returns
        -------
        there : (2 n_pairs,) int64, slot of the other feature of each coupling
        psi : (2 n_pairs,) float64, couplings, nats
        start : (n_features + 1,) int64, position of each feature's first entry

        """
        order, start = self._sort_by_feature(self.feature[np.concatenate(self.ends)])
        return np.concatenate(self.ends[::-1])[order], np.concatenate([self.psi, self.psi])[order], start

    def _sort_by_feature(self, feature: NDArray[np.integer[Any]]) -> tuple[Ints, Ints]:
        order = np.argsort(feature, kind="stable")
        return order, np.searchsorted(feature[order], np.arange(len(self.features) + 1))

    @cached_property
    def pair_features(self) -> Ints:
        """Return the two features of each coupling.

        Returns
        -------
        features : (2, n_pairs) int64

        """
        return self.feature[self.ends]

    @cached_property
    def distinct_pairs(self) -> tuple[Ints, Ints]:
        """Return the distinct pairs of coupled features, and for each coupling the index of its pair.

        Returns
        -------
        features : (2, n_distinct) int64
        which : (n_pairs,) int64, index of each coupling's pair in `features`

        """
        m = len(self.features)
        keys, which = np.unique(self.pair_features[0] * m + self.pair_features[1], return_inverse=True)
        return np.stack(np.divmod(keys, m)), which

    @cached_property
    def pairs_pointer(self) -> Ints:
        """Return the position of each entity's first coupling.

        Returns
        -------
        pointer : (n_entities + 1,) int64

        """
        return np.searchsorted(self.owner, np.arange(len(self.entities) + 1))

    @cached_property
    def by_pair(self) -> tuple[Ints, Ints]:
        """Return the couplings sorted by pair of features, and the position of each pair's first coupling.

        Returns
        -------
        couplings : (n_pairs,) int64
        start : (n_distinct + 1,) int64

        """
        features, which = self.distinct_pairs
        order = np.argsort(which, kind="stable")
        return order, np.searchsorted(which[order], np.arange(features.shape[1] + 1))

    @cached_property
    def pointer(self) -> Ints:
        """Return for each entity the position of its first slot (pair of the entity and a feature).

        Returns
        -------
        pointer : (n_entities + 1,) int64

        """
        return np.searchsorted(self.entity, np.arange(len(self.entities) + 1))

    @cached_property
    def _slot_pattern(self) -> sp.csr_array:
        shape = len(self.entities), len(self.features)
        return sp.csr_array((np.ones(len(self.feature)), self.feature, self.pointer), shape=shape)

    def matrix(self, of_slots: Floats) -> sp.csr_array:
        """Convert one number for each slot (pair of entity and feature) to a sparse matrix (n_entities, n_features).

        Parameters
        ----------
        of_slots : (n_slots,) float64

        Returns
        -------
        matrix : (n_entities, n_features) sparse

        """
        found = copy(self._slot_pattern)  # all returned matrices have the same index arrays
        found.data = of_slots
        return found

    @cached_property
    def tie(self) -> float:
        """Return the largest difference between two scores, in nats, that is treated as a rounding error."""
        largest = np.abs(self.constant) + self.by_entity(np.abs(self.terms).max(axis=1, initial=0.0))
        largest += np.bincount(self.owner, weights=np.abs(self.psi), minlength=len(self.entities))
        return 10 * ROUNDING * float(largest.max(initial=0.0))

    @cached_property
    def step(self) -> float:
        """Return 1 if all potentials, and therefore all scores, are whole numbers. Otherwise, return 0."""
        parts = (self.constant, self.terms, self.psi)
        return float(all((part == np.round(part)).all() for part in parts))

    def by_entity(self, of_slots: Floats) -> Floats:
        """Return for each entity the sum of `of_slots` over its slots (pairs of the entity and a feature).

        Parameters
        ----------
        of_slots : (n_slots,) float64

        Returns
        -------
        sums : (n_entities,) float64

        """
        return np.asarray(np.bincount(self.entity, weights=of_slots, minlength=len(self.entities)))

    def scores(self, values: Codes) -> Floats:
        """Return the score S_v of each entity for given values of all features.

        Parameters
        ----------
        values : (n, n_features) int8, -1, 0 or +1

        Returns
        -------
        scores : (n, n_entities) float64, nats

        """
        x = np.asarray(values, dtype=np.int64)
        found = np.tile(self.constant, (len(x), 1))
        slots, (first, second) = np.arange(len(self.feature)), self.pair_features
        for i, row in enumerate(x):
            found[i] += self.by_entity(self.terms[slots, row[self.feature] + 1])
            found[i] += np.bincount(self.owner, weights=self.psi * row[first] * row[second], minlength=len(found[i]))
        return found


class Differences(NamedTuple):
    """Differences D_ab = S_a - S_b between each entity a inside the top k and each entity b outside the top k.

    Attributes
    ----------
    inside, outside : (k,) and (N - k,) int64, indices of the entities inside and outside the top k, most preferred
        first
    mean, variance : (k, N - k) float64, mean (nats) and variance (nats squared) of each difference

    """

    inside: Ints
    outside: Ints
    mean: Floats
    variance: Floats

    def weights(self) -> Floats:
        """Return the weight of each difference D_ab: its normal density at 0, scaled to a maximum of 1.

        Let d and V be the mean and the variance of D_ab. The weight is phi(d / sqrt V) / sqrt V, or 0 if V is 0. The
        weight is near 0 if the sign of D_ab is almost certain. The scaling avoids underflow, and does not change the
        chosen feature.

        Returns
        -------
        weights : (k, N - k) float64, from 0 to 1

        """
        open_ = self.variance > 0
        v = np.where(open_, self.variance, 1.0)
        log = np.where(open_, -0.5 * (self.mean**2 / v + np.log(v)), -np.inf)
        most = log.max(initial=-np.inf)
        return np.exp(log - most) if np.isfinite(most) else np.zeros_like(log)


class Belief:
    """Mean and covariance of one patient's final scores, predicted from the features observed so far.

    The final scores are the scores after the observation of all features.

    Parameters
    ----------
    table : ScoreTable
        The scores.
    background : Background
        Distribution of the unobserved features. The covariance of the background is ignored if there are exclusive
        groups, or if a score is not linear in a feature (bundles with probabilities).
    exact : bool
        True to include the second-order terms of coupled pairs in the covariance of the scores; False to ignore them.

    Attributes
    ----------
    mean : (n_entities,) float64
        Expected score E S_v = S_v(m) of each entity, nats, where m is `middle`.
    middle, spread : (n_features,) float64
        Mean and variance of each feature. The mean of an observed feature is its value, and the variance is 0.
    joint : (n_features, n_features) float64 or None
        Covariance of the features. Entries of observed features are 0. None if features are treated as independent.
    background : Background
        The given background. If the covariance is ignored, the text `words` does not mention correlations.
    observed : (n_features,) bool
        True for each observed feature, and for a feature that must be 0 because another member of its exclusive group
        is +1.

    """

    def __init__(self, table: ScoreTable, background: Background, *, exact: bool = True) -> None:
        p = background.probabilities
        if len(p) != len(table.features):
            expected = f"{len(table.features)} features, those of the bundle"
            raise PlannerError(Fault("a background", f"{len(p)} features", expected, "give that of this bundle"))
        self.table, self.exact = table, exact
        self.middle, self.spread = p @ VALUE_ARRAY, variances_of(p)
        self.observed = np.zeros(len(p), dtype=bool)
        self._value = np.zeros(len(p), dtype=np.int64)
        of, at = p[table.feature], table.feature
        self._expected = (of * table.terms).sum(axis=1)
        self._linear = (of * _standardise_rows(VALUE_ARRAY - self.middle[:, None], p)[at] * table.terms).sum(axis=1)
        # for a constant feature, use half the range: regression gives no slope
        slope = (table.terms[:, 2] - table.terms[:, 0]) / 2
        self._linear = np.divide(self._linear, np.sqrt(self.spread[at]), out=slope, where=self.spread[at] > 0)
        self._bend = (of * _quadratic_component(p)[at] * table.terms).sum(axis=1)
        self._bend[np.abs(self._bend) <= table.tie] = 0.0
        apart = bool(table.groups) or bool(self._bend.any())
        covariance = None if apart else background.covariance
        self.joint: Floats | None = None if covariance is None else covariance.copy()
        self.background = background.independent() if apart and background.kind == "patients" else background
        self._update_expected_scores()

    def _update_expected_scores(self) -> None:
        """Compute the expected scores (`mean`), and the contribution of the couplings to each slope (`slope`)."""
        self._products: Floats | None = None
        table, (first, second) = self.table, self.table.pair_features
        self._pull = np.zeros(len(table.feature))
        for here, there in (table.ends, table.ends[::-1]):
            self._pull += np.bincount(here, table.psi * self.middle[table.feature[there]], minlength=len(self._pull))
        of_pairs = self.middle[first] * self.middle[second]
        self.mean = table.constant + table.by_entity(self._expected)
        self.mean += np.bincount(table.owner, weights=table.psi * of_pairs, minlength=len(self.mean))

    @property
    def slope(self) -> Floats:
        """Return the slopes c_vj: the first-order change of the expected score E S_v if x_j increases by 1.

        Returns
        -------
        slope : (n_slots,) float64, nats

        """
        return np.asarray(self._linear + self._pull)

    def copy(self) -> Belief:
        """Return an independent copy of the belief."""
        other = copy(self)
        for name in ("middle", "spread", "observed", "mean", "_value", "_expected", "_pull"):
            setattr(other, name, getattr(self, name).copy())
        other.joint = None if self.joint is None else self.joint.copy()
        return other

    def __deepcopy__(self, _: object) -> Belief:
        return self.copy()

    def observe(self, feature: int, value: int) -> None:
        """Update the belief with one observed value.

        If the background has a covariance, the means of all other features change by linear regression on the observed
        feature. If a member of an exclusive group is observed as 0, the probabilities of the other members increase. If
        it is observed as +1, the other members are set to 0.
        """
        if self.joint is not None:
            self._observe_jointly(feature, value)
            return
        others = [group for group in self.table.groups if feature in group]
        chance = {int(j): self.middle[j] for group in others for j in group if j != feature and not self.observed[j]}
        left = 1.0 - self.middle[feature]
        self._set_mean_and_variance(feature, float(value), 0.0, value)
        self.observed[feature] = True
        for j, before in chance.items():
            p = 0.0 if value == 1 or left <= 0 else min(before / left, 1.0)
            self._set_mean_and_variance(j, p, p * (1.0 - p), None)
            self.observed[j] = value == 1

    def _observe_jointly(self, feature: int, value: int) -> None:
        """Update the belief with one observed value, including the means of all correlated features.

        All scores must be linear in x.
        """
        self.middle = self.middle + self._regression(feature) * (value - self.middle[feature])
        self.middle[feature], self._value[feature], self.observed[feature] = value, value, True
        self._condition_on_feature(feature)
        self._expected = self._linear * self.middle[self.table.feature]
        self._update_expected_scores()

    def _regression(self, feature: int) -> Floats:
        """Return the change of the mean of each feature if the value of `feature` increases by 1."""
        assert self.joint is not None
        own = self.spread[feature]
        return self.joint[feature] / own if own > 0 else np.zeros(len(self.spread))

    def _condition_on_feature(self, feature: int) -> None:
        """Set the variance of a feature to 0, and condition the covariance of all other features on this feature."""
        if self.joint is not None:
            self._products = None
            self.joint -= np.outer(self._regression(feature), self.joint[feature])
            self.joint[feature] = self.joint[:, feature] = 0.0
            self.spread = np.maximum(np.diag(self.joint), 0.0)
        self.spread[feature] = 0.0

    def _set_mean_and_variance(self, feature: int, middle: float, spread: float, value: int | None) -> None:
        """Set the mean and the variance of a feature. If `value` is not None, also set the value of the feature."""
        table, step = self.table, middle - self.middle[feature]
        order, start = table.slots_of
        slots = order[start[feature] : start[feature + 1]]
        if value is None:
            change = self._linear[slots] * step
        else:
            change = table.terms[slots, value + 1] - self._expected[slots]
            self._value[feature] = value
        self._expected[slots] += change
        self.mean[table.entity[slots]] += change + self._pull[slots] * step
        there, psi, begin = table.neighbours
        part = slice(begin[feature], begin[feature + 1])
        self._pull[there[part]] += psi[part] * step
        self.middle[feature], self.spread[feature] = middle, spread

    def order(self) -> Ints:
        """Return all entities, sorted by decreasing expected score. Ties are sorted by `ScoreTable.places`.

        Returns
        -------
        order : (n_entities,) int64

        """
        rounded = np.round(self.mean / self.table.tie) if self.table.tie > 0 else self.mean
        places = np.arange(len(rounded)) if self.table.places is None else self.table.places
        return np.asarray(np.lexsort((places, -rounded)), dtype=np.int64)

    @property
    def _score_feature_covariance(self) -> Floats:
        """Return the matrix product c Sigma (N, M): the first-order covariance of each score with each feature."""
        if self._products is None:
            self._products = np.asarray(self.table.matrix(self.slope) @ self.joint)
        return self._products

    def _loadings(self) -> list[tuple[Any, Floats]]:
        """Return pairs (loadings, scales): they define how much a measurement reduces the variance of each score.

        The loadings L have the shape (N, M), and the scales d have the shape (M,). A measurement of feature j reduces
        the variance of score v by L_vj^2 d_j. If there are several pairs, their reductions are added. If features are
        independent, the loadings are the slopes c, and the scales are the variances s of the features. If features have
        a covariance Sigma, the loadings are the matrix product c Sigma, and the scales are 1 / s.
        """
        if self.joint is not None:
            inverse = np.divide(1.0, self.spread, out=np.zeros_like(self.spread), where=self.spread > 0)
            return [(self._score_feature_covariance, inverse)]
        parts = [(self.table.matrix(self.slope), self.spread)]
        if self._bend.any():
            parts.append((self.table.matrix(self._bend), (~self.observed & (self.spread > 0)).astype(np.float64)))
        return parts

    def covariance(self, entities: Ints | None = None) -> Floats:
        """Return the covariance of each score with the score of each given entity.

        For independent features, the covariance of S_v and S_w is sum_j c_vj c_wj s_j + sum_{j<l} psi_vjl psi_wjl s_j
        s_l, plus terms for exclusive groups and for scores that are not linear in a feature (bundles with
        probabilities). This result is exact. If features have a covariance Sigma, the first sum is replaced by c_v
        Sigma c_w, and the second sum is an approximation.

        Parameters
        ----------
        entities : (n,) int64, or None for all entities

        Returns
        -------
        covariance : (n_entities, n) float64, nats squared

        """
        chosen = np.arange(len(self.mean)) if entities is None else entities
        if self.joint is not None:
            total = self._score_feature_covariance @ _dense_rows(self.table.matrix(self.slope), chosen).T
            return total + self._covariance_of_pairs(chosen) if self.exact else total
        total = np.zeros((len(self.mean), len(chosen)))
        loadings = self._loadings()
        for matrix, s in loadings:
            total += matrix @ (_dense_rows(matrix, chosen) * s).T
        for group in self._open_groups():
            own = loadings[0][0][:, group].toarray() * self.middle[group]
            total += own @ own[chosen].T - np.outer(own.sum(axis=1), own[chosen].sum(axis=1))
        return total + self._covariance_of_pairs(chosen) if self.exact else total

    def _covariance_of_pairs(self, chosen: Ints) -> Floats:
        """Return the sum over j < l of psi_vjl psi_wjl s_j s_l, for each entity v and each given entity w."""
        table, n = self.table, len(self.mean)
        features, which = table.distinct_pairs
        at, member = _entries_of_rows(table.pairs_pointer, chosen)
        columns, place = np.unique(which[at], return_inverse=True)
        weight = np.zeros((len(chosen), len(columns)))
        weight[member, place] = table.psi[at]
        weight *= self.spread[features[:, columns]].prod(axis=0)
        order, start = table.by_pair
        at, column = _entries_of_rows(start, columns)
        at = order[at]
        owner, psi = table.owner[at], table.psi[at]
        return np.stack([np.bincount(owner, weights=psi * row[column], minlength=n) for row in weight], axis=1)

    def _open_groups(self) -> list[Ints]:
        """Return the unobserved members of each exclusive group that has at least two unobserved members."""
        parts = (group[~self.observed[group]] for group in self.table.groups)
        return [part for part in parts if len(part) > 1]

    def variances(self) -> Floats:
        """Return the variance of each score S_v (the diagonal of `covariance`).

        Returns
        -------
        variances : (n_entities,) float64, nats squared

        """
        table = self.table
        if self.joint is None:
            total = table.by_entity(self.slope**2 * self.spread[table.feature])
        else:
            shared = self._score_feature_covariance[table.entity, table.feature]
            total = np.maximum(table.by_entity(self.slope * shared), 0.0)
        if self._bend.any():
            total += table.by_entity(self._bend**2 * (~self.observed & (self.spread > 0))[table.feature])
        for group in self._open_groups():
            part = self._loadings()[0][0][:, group].toarray() * self.middle[group]
            total += (part**2).sum(axis=1) - part.sum(axis=1) ** 2
        if self.exact:
            shared = self.spread[table.distinct_pairs[0]].prod(axis=0)[table.distinct_pairs[1]]
            total += np.bincount(table.owner, weights=table.psi**2 * shared, minlength=len(total))
        return total

    def differences(self, k: int) -> Differences:
        """Return the mean and variance of D_ab for each entity a inside and each entity b outside the current top k."""
        order, variances = self.order(), self.variances()
        inside, outside = order[:k], order[k:]
        shared = self.covariance(inside)[outside].T
        variance = variances[inside][:, None] + variances[outside] - 2 * shared
        rounding = RELATIVE_TIE * (variances[inside][:, None] + variances[outside])
        mean = self.mean[inside][:, None] - self.mean[outside]
        return Differences(inside, outside, mean, np.where(variance > rounding, variance, 0.0))

    def frontier(self, k: int) -> Floats:
        """Return the gain of a measurement of each feature, for the current top k.

        If features are independent, a measurement of feature j reduces the variance of D_ab by (c_aj - c_bj)^2 s_j. The
        gain of feature j is a weighted sum of these reductions over all pairs of an entity a in the top k and an entity
        b outside the top k. The weights w_ab are the result of `Differences.weights`.

        Returns
        -------
        gain : (n_features,) float64, 0 for observed features

        """
        return self._frontier_gains(self.differences(k))

    def _frontier_gains(self, of: Differences) -> Floats:
        total = np.zeros(len(self.middle))
        for matrix, s in self._loadings():
            linear = self.joint is None and matrix.data is not self._bend
            total += _weighted_variance_reductions(of, self._correct_for_groups(matrix) if linear else matrix, s)
        # set gains below the rounding error to 0
        return np.where(self.observed | (total <= RELATIVE_TIE * total.max(initial=0.0)), 0.0, total)

    def _correct_for_groups(self, slopes: sp.csr_array) -> sp.csr_array:
        """Return the slopes, corrected for exclusive groups.

        If a member of an exclusive group is +1, all other members are 0. The corrected slope of a member is its slope
        minus the mean slope of the other members.
        """
        groups = self._open_groups()
        if not groups:
            return slopes
        whole = slopes.tolil()
        for group in groups:
            c, p = slopes[:, group].toarray(), self.middle[group]
            others = (c * p).sum(axis=1, keepdims=True) - c * p
            whole[:, group] = c - others / np.maximum(1.0 - p, ROUNDING)
        return sp.csr_array(whole)

    def value_of(self, features: Sequence[int], k: int) -> float:
        """Return the gain of a joint measurement of several features, for the current top k.

        The gain has two parts. The first part is the sum of the gains (`frontier`) of the features, where each gain is
        computed as if the previous features in the list had been measured. The second part is the sum of w_ab
        (psi_ajl - psi_bjl)^2 s_j s_l over all coupled pairs (j, l) of the given features, all entities a inside the top
        k and all entities b outside the top k. If several features belong to one exclusive group, the result is larger
        than the correct gain.
        """
        of, chosen, total, ahead = self.differences(k), list(dict.fromkeys(features)), 0.0, self.copy()
        for i, j in enumerate(chosen):
            total += float(ahead._frontier_gains(of)[j]) + float(self._gain_increases(of, j)[chosen[i + 1 :]].sum())
            ahead._condition_on_feature(j)
        return total

    def _gain_increases(self, of: Differences, feature: int) -> Floats:
        """Return how much the gain of every other feature increases if `feature` is also measured.

        The increase is 0 for features that are not coupled to `feature`.
        """
        table = self.table
        there, psi, begin = table.neighbours
        part = slice(begin[feature], begin[feature + 1])
        at = table.entity[there[part]], table.feature[there[part]]
        matrix = sp.csr_array((psi[part], at), shape=(len(table.entities), len(table.features)))
        return _weighted_variance_reductions(of, matrix, self.spread * self.spread[feature])

    def together(
        self,
        n: int,
        k: int,
        offered: Bools | None = None,
        *,
        item_of: Ints | None = None,
        price: Floats | None = None,
        left: float = np.inf,
        first: Sequence[int] = (),
    ) -> list[int]:
        """Choose up to n items to measure at once, and return the features of these items.

        An item is one feature, or a group of features with a common price. The method adds one item at a time: the item
        with the largest gain divided by price.

        Parameters
        ----------
        n, k : int
            Number of items, and the size of the top set.
        offered : (n_features,) bool
            Features that can be chosen; by default all unobserved features.
        item_of : (n_features,) int64
            Item that includes each feature; by default each feature is an item.
        price : (n_items,) float64
            Price of each item. The gain of an item is divided by its price, or by 1 if the price is 0. The default is
            0.
        left : float
            Largest total price.
        first : sequence of int
            Features of the first item, if the caller has already chosen it.

        """
        of, ahead, pairs = self.differences(k), self.copy(), np.zeros(len(self.middle))
        allowed = ~self.observed if offered is None else offered & ~self.observed
        items = np.arange(len(pairs)) if item_of is None else item_of
        cost = np.zeros(int(items.max(initial=0)) + 1) if price is None else price
        chosen, taken, new = list[int](), 0, list(first)
        while True:
            if new:
                chosen, taken, left = [*chosen, *new], taken + 1, left - float(cost[items[new[0]]])
                allowed = allowed & (items != items[new[0]])
                for j in new:
                    pairs += self._gain_increases(of, j)
                    ahead._condition_on_feature(j)
            gained_variance = ahead._frontier_gains(of) + pairs
            allowed = allowed & (cost <= left * (1 + ROUNDING))[items]
            total = np.bincount(items, weights=np.where(allowed, gained_variance, 0.0), minlength=len(cost))
            per_cost = np.where(allowed, (total / np.where(cost > 0, cost, 1.0))[items], 0.0)
            if taken == n or not per_cost.max(initial=0.0) > 0:
                return chosen
            ties = np.flatnonzero(per_cost >= per_cost.max() * (1 - RELATIVE_TIE))
            best = min(ties, key=lambda j: self.table.features[j])
            new = [int(best), *(int(j) for j in np.flatnonzero(allowed & (items == items[best])) if j != best)]

    def top_probability(self, k: int) -> float:
        """Return the probability that the current top k is also the top k at full observation.

        All scores are sampled 4,096 times from a normal distribution with their mean and covariance. The seed is fixed.
        The result is the share of samples in which no score outside the top k exceeds a score in the top k. If all
        scores are whole numbers, differences up to 1/2 do not count (continuity correction).

        If there are more than 100 entities outside the top k, only the 100 entities with the largest risk are sampled,
        and the risks of the other entities are subtracted from the result. For each entity in the top k, there is a
        probability that its score is exceeded by the score of an entity outside the top k. The risk of the entity
        outside the top k is the largest of these probabilities.
        """
        half = max(self.table.step / 2, self.table.tie)
        of = self.differences(k)
        spread = np.sqrt(np.where(of.variance > 0, of.variance, 1.0))
        ahead = np.where(of.variance > 0, ndtr((of.mean + half) / spread), (of.mean >= -half).astype(np.float64))
        risk = (1 - ahead).max(axis=0)
        if k == 1 and len(of.outside) == 1:
            return float(ahead[0, 0])
        near = np.sort(np.argsort(-risk, kind="stable")[:NEAR])
        drawn = np.concatenate([of.inside, of.outside[near]])
        values, vectors = np.linalg.eigh(self.covariance(drawn)[drawn])
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        normal = np.random.default_rng(0).standard_normal((DRAWS, len(drawn)))
        scores = self.mean[drawn] + normal @ root.T
        right = scores[:, :k].min(axis=1) >= scores[:, k:].max(axis=1) - half
        missed = np.delete(risk, near).sum()
        return float(max(right.mean() - missed, 0.0))


def _entries_of_rows(pointer: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return all entries of the given rows as two arrays: the positions of the entries, and the rows of the entries.

    A row is identified by its index in `rows`.

    The entries of row i have the positions `pointer[i]` to `pointer[i + 1] - 1`.
    """
    count = pointer[rows + 1] - pointer[rows]
    which = np.repeat(np.arange(len(rows)), count)
    return np.arange(len(which)) + np.repeat(pointer[rows] - np.cumsum(count) + count, count), which


def _dense_rows(matrix: sp.csr_array, rows: Ints) -> Floats:
    """Return the given rows of a sparse matrix as a dense array."""
    at, which = _entries_of_rows(matrix.indptr, rows)
    dense = np.zeros((len(rows), matrix.shape[1]))
    dense[which, matrix.indices[at]] = matrix.data[at]
    return dense


def _weighted_variance_reductions(of: Differences, loadings: sp.csr_array | Floats, s: Floats) -> Floats:
    """Return for each feature j the sum of w_ab (c_aj - c_bj)^2 s_j over all differences D_ab in `of`.

    Each difference D_ab compares an entity a in the top k with an entity b outside the top k.

    Parameters
    ----------
    loadings : (N, M) float64, slopes c
    s : (M,) float64, variances

    """
    weights, n = of.weights(), loadings.shape[0]
    if isinstance(loadings, np.ndarray):
        inside, outside = loadings[of.inside], loadings[of.outside]
        single = weights.sum(axis=1) @ inside**2 + weights.sum(axis=0) @ outside**2
        return np.asarray(np.maximum(single - 2 * ((weights @ outside) * inside).sum(axis=0), 0.0) * s)
    every, against = np.zeros(n), np.zeros((n, len(of.inside)))
    every[of.inside], every[of.outside] = weights.sum(axis=1), weights.sum(axis=0)
    against[of.outside] = weights.T
    squares = np.repeat(every, np.diff(loadings.indptr)) * loadings.data**2
    single = np.bincount(loadings.indices, weights=squares, minlength=len(s))
    crossed = (_dense_rows(loadings, of.inside) * (loadings.T @ against).T).sum(axis=0)
    return np.asarray(np.maximum(single - 2 * crossed, 0.0) * s)


def _standardise_rows(vectors: Floats, p: Floats) -> Floats:
    """Scale each row of `vectors` to mean square 1 under the probabilities in the same row of `p`.

    Both arrays have the shape (M, 3). Rows with mean square 0 become 0.
    """
    size = np.sqrt((p * vectors**2).sum(axis=1, keepdims=True))
    return np.asarray(np.divide(vectors, size, out=np.zeros_like(vectors), where=size > np.sqrt(ROUNDING)))


def _quadratic_component(p: Floats) -> Floats:
    """Return for each feature x a function of x with mean 0, mean square 1 and correlation 0 with x.

    Row j of the result contains the function at -1, 0 and +1, and row j of `p` contains the probabilities of these
    values.
    """
    line = _standardise_rows(VALUE_ARRAY - (p @ VALUE_ARRAY)[:, None], p)
    square = VALUE_ARRAY**2 - (p @ VALUE_ARRAY**2)[:, None]
    return _standardise_rows(square - (p * line * square).sum(axis=1, keepdims=True) * line, p)
