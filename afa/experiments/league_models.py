"""Who takes part in the league: what a bundle says, in several readings, and classifiers that were given labels.

All answer the same two questions: which feature comes next, and what is known after some have been observed. A value
that was not measured (`MISSING`) stands last in every order and tells nothing (docs/decisions.md, F8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from afa.bundle import Bundle
from afa.closure import Coupling
from afa.engine.course import ENTITIES
from afa.engine.follow import choose, follow
from afa.engine.tasks import task_of
from afa.errors import ConfigError, Fault
from afa.mrf import Floats
from afa.stages.labels_needed.classifiers import (
    Classifier,
    Mask,
    Method,
    conditionals,
    information_of,
    most_told,
    train,
)

Values = NDArray[np.int8]
Orders = NDArray[np.int64]
MISSING = 2


class Model(Protocol):
    """Orders of features (P, M), and log-evidence (P, T, C) of C hypotheses after `rounds` (T,) of an order."""

    def orders(self, values: Values) -> Orders: ...
    def first(self) -> Floats: ...
    def along(self, values: Values, orders: Orders, rounds: Sequence[int]) -> Floats: ...


def measured_first(orders: Orders, values: Values) -> Orders:
    """(P, M) the same orders with what was not measured at the end."""
    missing = np.take_along_axis(values == MISSING, orders, axis=1)
    ordered: Orders = np.take_along_axis(orders, np.argsort(missing, axis=1, kind="stable"), axis=1)
    return ordered


def observed_after(t: int, orders: Orders, values: Values) -> Mask:
    """(P, M) which features are known after t observations, all that was measured where that is less."""
    observed = np.zeros(values.shape, dtype=np.bool_)
    np.put_along_axis(observed, orders[:, :t], values=True, axis=1)
    known: Mask = observed & (values != MISSING)
    return known


class _Greedy:
    """The rule `greedy`: the feature that tells most of the hypotheses, values being independent within each.

    chances : (C, M, 3) probabilities of -1, 0, +1 under each hypothesis. features : (M,) names, which settle ties.
    """

    chances: Floats
    features: Sequence[str]

    def evidence(self, values: Values, observed: Mask) -> Floats:
        raise NotImplementedError

    def posterior(self, values: Values, observed: Mask) -> Floats:
        return np.asarray(np.exp(log_softmax(self.evidence(values, observed), axis=1)))

    def first(self) -> Floats:
        """(M,) what each feature tells at no observation."""
        nothing = np.full((1, len(self.features)), MISSING, dtype=np.int8)
        return np.asarray(information_of(self.posterior(nothing, nothing != MISSING), self.chances)[0])

    def orders(self, values: Values) -> Orders:
        """(P, M) each patient's order."""
        taken, missing = np.zeros(values.shape, dtype=np.bool_), values == MISSING
        order, rows = np.empty(values.shape, dtype=np.int64), np.arange(len(values))
        for step in range(values.shape[1]):
            gain = information_of(self.posterior(values, taken & ~missing), self.chances)
            order[:, step] = most_told(np.where(taken, -2.0, np.where(missing, -1.0, gain)), self.features)
            taken[rows, order[:, step]] = True
        return order

    def along(self, values: Values, orders: Orders, rounds: Sequence[int]) -> Floats:
        """(P, T, C) log-evidence after each of `rounds`."""
        found = [self.evidence(values, observed_after(t, orders, values)) for t in rounds]
        return np.stack(found, axis=1)


@dataclass(frozen=True, eq=False)
class Stated(_Greedy):
    """What a bundle says of how often, without couplings: the explicit gauge, which then is naive Bayes (F4)."""

    chances: Floats
    features: Sequence[str]
    prior: Floats

    def evidence(self, values: Values, observed: Mask) -> Floats:
        """(P, C) prior plus log-probability of what is observed."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.chances)
        place, columns = np.where(observed, values + 1, 0), np.arange(values.shape[1])
        told = np.where(observed, logs[:, columns, place], 0.0).sum(axis=2).T
        return np.asarray(self.prior + told)


@dataclass(frozen=True, eq=False)
class Trained(_Greedy):
    """Classifiers of labelled patients, one for each hypothesis against all others (one alone where there are two)."""

    chances: Floats
    features: Sequence[str]
    classifiers: tuple[Classifier, ...]

    @classmethod
    def of(
        cls,
        method: Method,
        values: Values,
        answers: NDArray[np.int64],
        features: Sequence[str],
        seed: np.random.Generator,
    ) -> Trained:
        """Train on patients (n, M) whose hypothesis is `answers` (n,), every one of which has a patient.

        A missing value is hidden in every copy of a patient.
        """
        classes = int(answers.max()) + 1
        asked = (0,) if classes == 2 else range(classes)
        votes = [conditionals(values, answers == c) for c in range(classes)]
        chances = np.stack([vote[1] for vote in votes])
        return cls(chances, features, tuple(train(method, values, answers == c, seed) for c in asked))

    def evidence(self, values: Values, observed: Mask) -> Floats:
        """(P, C) log-odds of each hypothesis against the others."""
        found = [classifier.log_odds(np.where(observed, values, 0), observed) for classifier in self.classifiers]
        if len(found) == 1:
            found.append(np.zeros(len(values)))
        return np.stack(found, axis=1)


@dataclass(frozen=True, eq=False)
class Coupled:
    """What a bundle says of how often, with centred couplings, read as S of what is observed (`Bundle.energies`).

    Its order is that of the same knowledge without couplings.
    """

    bundle: Bundle
    entity: str
    alone: Stated

    def first(self) -> Floats:
        """(M,) what each feature tells at no observation."""
        return self.alone.first()

    def orders(self, values: Values) -> Orders:
        """(P, M) each patient's order."""
        return self.alone.orders(values)

    def along(self, values: Values, orders: Orders, rounds: Sequence[int]) -> Floats:
        """(P, T, 2) S, and 0 for the other hypothesis."""
        place, found = self.bundle.index(self.entity), []
        for t in rounds:
            known = np.where(observed_after(t, orders, values), values, np.nan)
            found.append(self.bundle.energies(known, "explicit")[:, place])
        scores = np.stack(found, axis=1)
        return np.stack([scores, np.zeros_like(scores)], axis=2)


@dataclass(frozen=True, eq=False)
class Closed:
    """The paper's models, from directions alone, followed by the compiled engine.

    entity : a binary task, its hypotheses the entity and not the entity; without one all entities, of which one holds.
    """

    bundle: Bundle
    coupling: Coupling
    entity: str | None

    def first(self) -> Floats:
        """(M,) the size of the potentials of each feature, by which a fixed order goes (A9)."""
        rows = [self.bundle.index(self.entity)] if self.entity else range(len(self.bundle.entities))
        return np.asarray(np.abs(self.bundle.unary[list(rows)]).sum(axis=0))

    def orders(self, values: Values) -> Orders:
        """(P, M) as `greedy` chooses by conditional mutual information."""
        self._complete(values)
        if self.entity is None:
            return choose(self.bundle, values, allocation="greedy", gain="cmi", k=1).order
        task = task_of(self.bundle, self.entity, coupling=self.coupling)
        return choose(task.bundle, values, allocation="greedy", gain="cmi", k=1).order

    def along(self, values: Values, orders: Orders, rounds: Sequence[int]) -> Floats:
        """(P, T, C) ELBO of each hypothesis less its value at no observation."""
        self._complete(values)
        bundle = (
            self.bundle if self.entity is None else task_of(self.bundle, self.entity, coupling=self.coupling).bundle
        )
        shown = sorted({0, *rounds})
        elbo = follow(bundle, values, orders, ENTITIES, rounds=shown).elbo
        known = elbo - elbo[:, :1]
        return np.asarray(known[:, [shown.index(t) for t in rounds]])

    def _complete(self, values: Values) -> None:
        if (values == MISSING).any():
            step = "leave out the patients with missing values"
            raise ConfigError(Fault("the league", "a missing value", "none, under the paper's closures", step))
