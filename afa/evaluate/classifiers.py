"""Train classifiers on labelled patients; like the planner, the classifiers predict from any set of observed features.

Logistic regression and boosting are trained on `COPIES_PER_PATIENT` copies of each labelled patient. In each copy, a
random subset of the features is treated as unobserved. Naive Bayes needs no such copies in training, because its
predictions simply omit the terms of unobserved features. The two classes have equal weight in training, as in a model
without a prior.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, xlogy

from afa.engine.run import MISSING
from afa.model.arrays import Bools, Codes, Floats, Ints

Method = Literal["logistic", "boosting", "naive_bayes"]
CLASSIFIERS: tuple[Method, ...] = ("logistic", "boosting", "naive_bayes")
COPIES_PER_PATIENT = 8
"""Number of training copies of each labelled patient. The expected shares of observed features in the copies are evenly
spaced on a logarithmic scale, from one feature to all features. On this scale, early states differ as much from each
other as late states."""
PENALTY = 1.0
"""C of the logistic regression; the copies of a patient together have the weight of one patient."""
BOOSTING = {"max_iter": 30, "learning_rate": 0.2, "max_leaf_nodes": 4, "min_samples_leaf": COPIES_PER_PATIENT}
"""Settings of boosting. A leaf has at least as many rows as one patient; scikit-learn's twenty are too many for few
patients."""
SCREENED = 64
"""Number of features that boosting uses, to limit its cost. These features have the largest mutual information with the
class in the training data.
"""
SMOOTHING = 3.0
"""Pseudo-count added to each class."""
GAIN_DECIMALS = 9
"""Decimals of a gain, in nats, in the choice of boosting's features; ties go to the first feature in the bundle."""
LEAST_GAIN = 1e-12
"""Gains below this many nats are set to 0, as in the planner."""
GAIN_TIE = 1e-9
"""Gains within this relative difference are ties, which go to the first feature by name."""


@dataclass(frozen=True)
class Classifier:
    """Store a fitted classifier and the name of its method.

    `columns`, (C,), contains the indices of the features that the model uses.
    """

    method: Method
    columns: NDArray[np.intp]
    model: Any

    def log_odds(self, values: Codes, observed: Bools) -> Floats:
        """Return the log-odds of class 1 at even prior odds, (P,).

        The classifier uses only values where `observed`, (P, F), is True.

        Parameters
        ----------
        values, observed : (P, F) int8 and bool

        """
        if not self.columns.size:
            return np.zeros(len(values))
        values, observed = values[:, self.columns], observed[:, self.columns]
        if self.method == "naive_bayes":
            votes = self.model[np.arange(values.shape[1]), values + 1]
            summed: Floats = np.where(observed, votes, 0.0).sum(axis=1)
            return summed
        found: Floats = self.model.decision_function(_input_matrix(self.method, values, observed))
        return found


def _input_matrix(method: Method, values: Codes, observed: Bools) -> Floats:
    """Return the input matrix of a classifier.

    For boosting, the matrix has the shape (P, F) and contains the values, with NaN for unobserved values. For logistic
    regression, the matrix has the shape (P, 2 F): first the values, with 0 for unobserved values, and then the mask
    `observed`.
    """
    if method == "boosting":
        return np.where(observed, values, np.nan)
    return np.hstack([np.where(observed, values, 0.0), observed.astype(np.float64)])


def shown_shares(n_features: int) -> Floats:
    """Return the probability that a feature is observed, for each of a patient's `COPIES_PER_PATIENT` copies.

    In the last copy, every feature is observed with probability 1.
    """
    return np.geomspace(1 / n_features, 1.0, COPIES_PER_PATIENT)


def train(method: Method, values: Codes, positive: Bools, generator: np.random.Generator) -> Classifier:
    """Return a classifier trained on labelled patients of both classes.

    A value other than -1, 0 and +1 counts as not measured: it is unobserved in every training copy of the patient. For
    naive Bayes, the attribute `model` is an array of shape (F, 3): the log-likelihood ratios of -1, 0 and +1 for each
    feature. Logistic regression and boosting ignore features that have the same value in all patients.

    Parameters
    ----------
    values : (n, F) int8
    positive : (n,) bool

    """
    if method == "naive_bayes":
        chances = conditionals(values, positive)
        return Classifier(method, np.arange(values.shape[1]), np.log(chances[1] / chances[0]))
    from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415  the dependency is optional
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    shares = shown_shares(values.shape[1])
    shown = (generator.random((COPIES_PER_PATIENT, *values.shape)) < shares[:, None, None]) & np.isin(
        values, (-1, 0, 1)
    )
    shown = shown.reshape(-1, values.shape[1])
    columns = _screened_features(method, values, positive)
    if not columns.size:
        return Classifier(method, columns, None)
    rows = _input_matrix(method, np.tile(values[:, columns], (COPIES_PER_PATIENT, 1)), shown[:, columns])
    answers = np.tile(positive, COPIES_PER_PATIENT)
    if method == "boosting":
        model: Any = HistGradientBoostingClassifier(
            **BOOSTING, early_stopping=False, class_weight="balanced", categorical_features=None, random_state=0
        )
        return Classifier(method, columns, model.fit(rows, answers))
    model = LogisticRegression(C=PENALTY, class_weight="balanced", max_iter=1000)
    return Classifier(
        method, columns, model.fit(rows, answers, sample_weight=np.full(len(rows), 1 / COPIES_PER_PATIENT))
    )


def _screened_features(method: Method, values: Codes, positive: Bools) -> NDArray[np.intp]:
    """Return the indices of the features that vary between patients, (C,).

    For boosting, return only the `SCREENED` features with the largest mutual information with the class.
    """
    varied: NDArray[np.intp] = np.flatnonzero((values != values[0]).any(axis=0))
    if method != "boosting" or len(varied) <= SCREENED:
        return varied
    gain = mutual_information(np.full((1, 2), 0.5), conditionals(values[:, varied], positive))[0]
    return np.sort(varied[np.argsort(-gain.round(GAIN_DECIMALS), kind="stable")[:SCREENED]])


def conditionals(values: Codes, positive: Bools) -> Floats:
    """Return the smoothed probabilities of -1, 0 and +1 for each feature in class 0 and in class 1, (2, F, 3).

    Smoothing adds `SMOOTHING` artificial patients to each class. Suppose that c of the n labelled patients have a
    certain value of a feature. The value's frequency among the artificial patients is then (c + 1) / (n + 3). This
    frequency is the same in both classes. An equal frequency of 1/3 for -1, 0 and +1 is not used, because smoothing
    would then change a small class more than a large class: even a feature with the same value in all patients would
    seem to differ between the classes.

    Parameters
    ----------
    values : (n, F) int8
    positive : (n,) bool

    """
    counts = np.array([[(values[chosen] == x).sum(axis=0) for x in (-1, 0, 1)] for chosen in (~positive, positive)])
    together = (counts.sum(axis=0) + 1.0) / (len(values) + 3)
    smoothed: Floats = np.moveaxis(counts + SMOOTHING * together, 1, 2)
    smoothed /= smoothed.sum(axis=2, keepdims=True)
    return smoothed


def mutual_information(posterior: Floats, chances: Floats) -> Floats:
    """Return the mutual information between the class and each feature, in nats, for each patient, (P, F).

    Parameters
    ----------
    posterior : (P, C) float64, probabilities of the classes
    chances : (C, F, 3) float64, probabilities of -1, 0, +1 in each class

    """
    mixture = np.einsum("py,yfx->pfx", posterior, chances)
    known = posterior @ xlogy(chances, chances).sum(axis=2)
    logs = np.log(mixture, out=np.zeros_like(mixture), where=mixture > 0)
    gain: Floats = known - np.einsum("pfx,pfx->pf", mixture, logs)
    return np.where(gain < LEAST_GAIN, 0.0, gain)


@dataclass(frozen=True, eq=False)
class Trained:
    """Store the classifiers trained on labelled patients.

    A question with two hypotheses needs one classifier. A question with more hypotheses needs one classifier for each
    hypothesis, which distinguishes this hypothesis from all other hypotheses. Features are chosen as if they were
    independent given the hypothesis.

    Attributes
    ----------
    chances : (C, F, 3) float64, probabilities of -1, 0, +1 under each hypothesis, used to choose features
    features : (F,) names of the features; ties are broken by name
    classifiers : the classifiers

    """

    chances: Floats
    features: Sequence[str]
    classifiers: Sequence[Classifier]

    def planned(self, values: Codes, counts: Sequence[int]) -> Floats:
        """Return the log-odds of each hypothesis after each number of features in `counts`, (P, T, C).

        Features are chosen greedily by their mutual information with the hypothesis (eq:cmi).

        Parameters
        ----------
        values : (P, F) int8; features that were not measured (`MISSING`) are never chosen
        counts : (T,) numbers of features; F or more means all measured features

        """
        observed, measured = np.zeros(values.shape, dtype=np.bool_), values != MISSING
        ends, rows = np.minimum(counts, values.shape[1]), np.arange(len(values))
        found = np.empty((len(values), len(ends), len(self.chances)))
        for step in range(max([t + 1 for t in ends if t < values.shape[1]], default=0)):
            evidence = self._hypothesis_log_odds(values, observed)
            found[:, ends == step] = evidence[:, None]
            distinct, of_patient = np.unique(evidence, axis=0, return_inverse=True)  # early patients are alike
            gain = mutual_information(np.exp(log_softmax(distinct, axis=1)), self.chances)[of_patient]
            chosen = most_informative(np.where(observed | ~measured, -1.0, gain), self.features)
            observed[rows, chosen] = measured[rows, chosen]
        found[:, ends == values.shape[1]] = self._hypothesis_log_odds(values, measured)[:, None]
        return found

    def _hypothesis_log_odds(self, values: Codes, observed: Bools) -> Floats:
        """Return the log-odds of each hypothesis against all other hypotheses, (P, C)."""
        found = [classifier.log_odds(np.where(observed, values, 0), observed) for classifier in self.classifiers]
        return np.stack(found if len(found) > 1 else [*found, np.zeros(len(values))], axis=1)


def most_informative(gain: Floats, features: Sequence[str]) -> NDArray[np.intp]:
    """Return the index of the feature with the largest gain for each patient, (P,).

    Ties are broken by the feature's name (docs/decisions.md, A8).

    Parameters
    ----------
    gain : (P, F) float64, nats

    """
    by_name = np.argsort(np.array(features))
    best = gain.max(axis=1, keepdims=True)
    chosen: NDArray[np.intp] = by_name[(gain[:, by_name] >= best - GAIN_TIE * np.abs(best)).argmax(axis=1)]
    return chosen


def trained(
    method: Method, values: Codes, answers: Ints, features: Sequence[str], generator: np.random.Generator
) -> Trained:
    """Return the classifiers trained on patients with known answers.

    Every hypothesis must be the known answer for at least one patient.

    Parameters
    ----------
    values : (n, M) int8, -1, 0 or +1; any other number means that the feature was not measured
    answers : (n,) int64, hypothesis of each patient

    """
    classes = int(answers.max()) + 1
    asked = (0,) if classes == 2 else range(classes)
    chances = np.stack([conditionals(values, answers == c)[1] for c in range(classes)])
    return Trained(chances, features, [train(method, values, answers == c, generator) for c in asked])


@contextmanager
def one_thread() -> Iterator[None]:
    """Run linear algebra on one thread, and skip scikit-learn's checks, until the context ends.

    Sums are reproducible only on one thread.
    """
    from sklearn import config_context  # noqa: PLC0415  the dependency is optional
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    with threadpool_limits(1), config_context(assume_finite=True, skip_parameter_validation=True):
        yield
