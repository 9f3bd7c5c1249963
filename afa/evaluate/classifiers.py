"""Classifiers trained on labelled patients that answer, as the planner does, from whatever has been observed so far.

Logistic regression and boosting learn it: each labelled patient stands in their training set `COPIES` times, with other
features hidden each time. Naive Bayes needs no copies, since what is hidden has no vote in it. Both classes weigh
the same, as they do in a model without a prior.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import log_softmax, xlogy

from afa.engine.run import MISSING
from afa.evaluate.label_tasks import GREEDY, RANDOM, LabelTask
from afa.evaluate.long_tables import rows_of
from afa.model.mrf import Floats
from afa.model.orders import generator_of

COUPLINGS = {"controls": "differential", "ranges": "differential", "cohort": "shared"}
"""The zero-shot settings that classifiers are held against, by reference: the paper's, and both changes together."""

Values = NDArray[np.int8]
Mask = NDArray[np.bool_]
Method = Literal["logistic", "boosting", "naive_bayes"]
METHODS: tuple[Method, ...] = ("logistic", "boosting", "naive_bayes")
COPIES = 8
"""Copies of a labelled patient. The shares of their features that are shown are evenly spaced on a logarithmic scale,
from one feature to all: early states are as different from each other as late ones, and there are few of them."""
PENALTY = 1.0
"""C of the logistic regression, in which the copies of a patient weigh as one patient."""
BOOSTING = {"max_iter": 30, "learning_rate": 0.2, "max_leaf_nodes": 4, "min_samples_leaf": COPIES}
"""A leaf holds as many rows as one patient has: with ten of them the usual twenty rows would be too many."""
SCREENED = 64
"""Features that boosting looks at, for what each costs it: those that tell most by themselves, in training."""
SMOOTHING = 3.0
"""Cases added to the counts of each class."""
DIGITS = 9
"""Decimals of a gain in nats that decide which features boosting looks at; of equal ones the first in the bundle."""
ODDS_DIGITS = 6
"""Decimals of a classifier's log-odds: its fit ends at a tolerance, and what is beyond tells nothing."""
FURTHEST = 25
"""Per cent of the support up to which classifiers choose features for themselves."""
LEAST_GAIN = 1e-12
"""In nats; below it a gain is 0, as it is for the planner."""
TIE = 1e-9
"""Gains that differ by a smaller share are one gain, of which the first feature by name is taken."""


@dataclass(frozen=True)
class Classifier:
    """A fitted model by its method; `columns` (C,) are the features that it looks at, of all F."""

    method: Method
    columns: NDArray[np.intp]
    model: Any

    def log_odds(self, values: Values, observed: Mask) -> Floats:
        """(P,) log-odds of class 1 of patients (P, F) of whom `observed` (P, F) is known, from even odds."""
        if not self.columns.size:
            return np.zeros(len(values))
        values, observed = values[:, self.columns], observed[:, self.columns]
        if self.method == "naive_bayes":
            votes = self.model[np.arange(values.shape[1]), values + 1]
            summed: Floats = np.where(observed, votes, 0.0).sum(axis=1)
            return summed
        found: Floats = self.model.decision_function(_inputs(self.method, values, observed))
        return found


def _inputs(method: Method, values: Values, observed: Mask) -> Floats:
    """What is hidden is 0 beside a column that says so, (P, 2 F); boosting knows missing values as such, (P, F)."""
    if method == "boosting":
        return np.where(observed, values, np.nan)
    return np.hstack([np.where(observed, values, 0.0), observed.astype(np.float64)])


def shown_shares(n_features: int) -> Floats:
    """(COPIES,) chances with which each feature of a copy is shown, the last 1."""
    return np.geomspace(1 / n_features, 1.0, COPIES)


def train(method: Method, values: Values, positive: Mask, generator: np.random.Generator) -> Classifier:
    """The classifier of labelled patients: values (n, F), positive (n,) with both classes in it.

    A value that is none of -1, 0 and +1 was not measured: it is hidden in every copy.

    Of naive Bayes the model is the votes (F, 3) of the values -1, 0 and +1, from `conditionals`. The others do not look
    at a feature of which all labelled patients have one value: there is nothing to learn from it.
    """
    if method == "naive_bayes":
        chances = conditionals(values, positive)
        return Classifier(method, np.arange(values.shape[1]), np.log(chances[1] / chances[0]))
    from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415  the dependency is optional
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    shares = shown_shares(values.shape[1])
    shown = (generator.random((COPIES, *values.shape)) < shares[:, None, None]) & np.isin(values, (-1, 0, 1))
    shown = shown.reshape(-1, values.shape[1])
    columns = _looked_at(method, values, positive)
    if not columns.size:
        return Classifier(method, columns, None)
    rows = _inputs(method, np.tile(values[:, columns], (COPIES, 1)), shown[:, columns])
    answers = np.tile(positive, COPIES)
    if method == "boosting":
        model: Any = HistGradientBoostingClassifier(
            **BOOSTING, early_stopping=False, class_weight="balanced", categorical_features=None, random_state=0
        )
        return Classifier(method, columns, model.fit(rows, answers))
    model = LogisticRegression(C=PENALTY, class_weight="balanced", max_iter=1000)
    return Classifier(method, columns, model.fit(rows, answers, sample_weight=np.full(len(rows), 1 / COPIES)))


def _looked_at(method: Method, values: Values, positive: Mask) -> NDArray[np.intp]:
    """The features (C,) that have more than one value, for boosting the first `SCREENED` by their information."""
    varied: NDArray[np.intp] = np.flatnonzero((values != values[0]).any(axis=0))
    if method != "boosting" or len(varied) <= SCREENED:
        return varied
    gain = information(np.full((1, 2), 0.5), conditionals(values[:, varied], positive))[0]
    return np.sort(varied[np.argsort(-gain.round(DIGITS), kind="stable")[:SCREENED]])


def conditionals(values: Values, positive: Mask) -> Floats:
    """(2, F, 3) chance of -1, 0 and +1 for each feature in class 0 and in class 1, smoothed.

    In each class `SMOOTHING` cases are added that are distributed as all labelled patients are, these with one case of
    each value added. With one case of each value in each class, a feature of which everybody has one value would seem
    to tell a large class from a small one; here it hardly does.
    """
    counts = np.array([[(values[chosen] == x).sum(axis=0) for x in (-1, 0, 1)] for chosen in (~positive, positive)])
    together = (counts.sum(axis=0) + 1.0) / (len(values) + 3)
    smoothed: Floats = np.moveaxis(counts + SMOOTHING * together, 1, 2)
    smoothed /= smoothed.sum(axis=2, keepdims=True)
    return smoothed


def information(posterior: Floats, chances: Floats) -> Floats:
    """(P, F) mutual information of class and feature, nats; posterior : (P, C) of the classes, chances : (C, F, 3)."""
    mixture = np.einsum("py,yfx->pfx", posterior, chances)
    known = posterior @ xlogy(chances, chances).sum(axis=2)
    logs = np.log(mixture, out=np.zeros_like(mixture), where=mixture > 0)
    gain: Floats = known - np.einsum("pfx,pfx->pf", mixture, logs)
    return np.where(gain < LEAST_GAIN, 0.0, gain)


@dataclass(frozen=True, eq=False)
class Trained:
    """Classifiers of labelled patients, one for each hypothesis against all others (one alone where there are two).

    chances : (C, F, 3) of -1, 0, +1 under each hypothesis, by which features are chosen: they are independent given it,
    so that what has been observed counts through the hypotheses alone. features : (F,) names, which settle ties.
    """

    chances: Floats
    features: Sequence[str]
    classifiers: Sequence[Classifier]

    def planned(self, values: Values, counts: Sequence[int]) -> Floats:
        """(P, T, C) log-odds of each hypothesis after so many features, each the one that tells most (eq:cmi).

        values : (P, F); what was not measured (`MISSING`) is never asked for. counts : (T,), F or more
        for all that was measured.
        """
        observed, measured = np.zeros(values.shape, dtype=np.bool_), values != MISSING
        ends, rows = np.minimum(counts, values.shape[1]), np.arange(len(values))
        found = np.empty((len(values), len(ends), len(self.chances)))
        for step in range(max([t + 1 for t in ends if t < values.shape[1]], default=0)):
            evidence = self._evidence(values, observed)
            found[:, ends == step] = evidence[:, None]
            distinct, of_patient = np.unique(evidence, axis=0, return_inverse=True)  # early on patients are alike
            gain = information(np.exp(log_softmax(distinct, axis=1)), self.chances)[of_patient]
            chosen = most_told(np.where(observed | ~measured, -1.0, gain), self.features)
            observed[rows, chosen] = measured[rows, chosen]
        found[:, ends == values.shape[1]] = self._evidence(values, measured)[:, None]
        return found

    def _evidence(self, values: Values, observed: Mask) -> Floats:
        """(P, C) log-odds of each hypothesis against the others."""
        found = [classifier.log_odds(np.where(observed, values, 0), observed) for classifier in self.classifiers]
        return np.stack(found if len(found) > 1 else [*found, np.zeros(len(values))], axis=1)


def most_told(gain: Floats, features: Sequence[str]) -> NDArray[np.intp]:
    """(P,) the feature of largest gain (P, F), of equal ones the first by name (docs/decisions.md, A8)."""
    by_name = np.argsort(np.array(features))
    best = gain.max(axis=1, keepdims=True)
    chosen: NDArray[np.intp] = by_name[(gain[:, by_name] >= best - TIE * np.abs(best)).argmax(axis=1)]
    return chosen


def predicted(
    task: LabelTask, labelled: Mask, shuffled: bool, repeat: int, percents: Sequence[int], seed: int
) -> Iterator[pd.DataFrame]:
    """What each classifier says of the patients without a label, along the random order of `seed` and of its own."""
    names = ("labels needed", task.entity, int(labelled.sum()), repeat, task.setting.reference)
    answers = task.positive[labelled]
    if shuffled:
        answers = generator_of(*names, "shuffled").permutation(answers)
    near = [t for t in percents if t <= FURTHEST]
    patients = np.array(task.patients, dtype=object)[~labelled]
    support, panel, others = task.values[:, task.support], task.values[labelled], task.values[~labelled]
    seen = task.seen(percents, seed)[~labelled].reshape(-1, support.shape[1])
    told = np.repeat(support[~labelled], len(percents), axis=0)
    chances = conditionals(panel, answers)[::-1]
    for method in METHODS:
        # by the very features that the zero-shot score sees, trained on those of the support alone
        along = train(method, support[labelled], answers, generator_of(*names, "support")).log_odds(told, seen)
        # by as many features, chosen among all of the panel: it knows no support
        own = Trained(chances, task.bundle.features, [train(method, panel, answers, generator_of(*names, "panel"))])
        chosen = own.planned(others, task.counts(near))[..., 0]
        for allocation, shown, log_odds in ((RANDOM, percents, along), (GREEDY, near, chosen)):
            rows = rows_of(patient=patients, t=np.array(shown, dtype=np.int32)).assign(allocation=allocation)
            answer = np.round(log_odds, ODDS_DIGITS).ravel() + 0.0
            keys = {"reference": task.setting.reference, "entity": task.entity, "method": method}
            yield rows.assign(**keys, permuted=shuffled, log_odds=answer)


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums of linear algebra in one order, whatever the machine and its settings; and no checks of our own arrays."""
    from sklearn import config_context  # noqa: PLC0415  the dependency is optional
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    with threadpool_limits(1), config_context(assume_finite=True, skip_parameter_validation=True):
        yield
