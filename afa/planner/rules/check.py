"""Find a user-defined allocation rule by its name, and test it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from afa.engine.patient import Patient
from afa.errors import ConfigError, Fault, PlannerError
from afa.model.arrays import Bools, Codes, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.mrf import VALUES
from afa.planner.cluster import Clustering
from afa.planner.rules.base import Choice, Rule, View, view_of

N_CHECKED_ROUNDS = 8


def rule_of(name: str) -> Callable[[], Rule]:
    """Return the rule class with the name `module:Class`.

    Python first looks for the module in the working directory.
    """
    module_name, _, class_name = name.partition(":")
    where, expected = f"allocation rule {name!r}", "module:Class with a method choose(view), as in afa.planner.rules"
    if not (module_name and class_name.isidentifier()):
        raise ConfigError(Fault(where, "no module and class", expected, "name a rule of afa.planner.rules or your own"))
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module_name), class_name, None)
    except ImportError as error:
        raise ConfigError(Fault(where, str(error), expected, "check the module's name and its imports")) from error
    if not callable(getattr(found, "choose", None)):
        raise ConfigError(Fault(where, f"{class_name} without choose", expected, "check the class's name"))
    make: Callable[[], Rule] = found  # type: ignore[assignment]
    return make


def check_policy(
    make: Callable[[], Rule],
    bundle: Bundle,
    *,
    k: int = 1,
    score: str = "linearity",
    gain: str = "cmi",
    target: str | None = None,
    values: Codes | None = None,
    labels: Floats | None = None,
    patients: Sequence[str] | None = None,
    seed: int = 0,
) -> None:
    """Test an allocation rule on some patients, and raise a `PlannerError` at the first requirement that it violates.

    Until all features are observed, the rule must return a `Choice` with an unobserved feature and a reason. The choice
    must depend only on the view: if the same view occurs again, the rule must choose the same feature, even if it has
    seen views of other patients in the meantime. The choice must not depend on the order of the entities and features,
    on unobserved values, or on labels.

    Parameters
    ----------
    make : makes a new rule; the class itself if it takes no arguments
    bundle, k, score, gain, target : as in `TopKPlanner`. A bundle with ties and unequal supports finds the most errors
    values : (P, M) int8, -1, 0 or +1, patients to run; two random ones by default
    labels : (P, N) float64, 0, 1 or NaN. Pass the arrays that the rule could read: during the check unobserved values
        and labels are changed in place, and restored afterwards
    patients : P names; `p0`, `p1`, ... by default
    seed : of `view.seed`, of the random values and of the random order

    Examples
    --------
    >>> from afa.planner.rules import Boundary
    >>> from afa.model.bundle import load_bundle
    >>> check_policy(Boundary, load_bundle("tests/data/bundle_tiny"))

    """
    rng = np.random.default_rng(seed)
    n_entities, n_features = len(bundle.entities), len(bundle.features)
    if values is None:
        values = rng.integers(-1, 2, (2, n_features)).astype(np.int8)
    names = tuple(patients or (f"p{row}" for row in range(len(values))))
    _check_arrays(values, labels, names, n_entities, n_features)
    trial = _Trial(bundle, k, score, gain, target, names, seed)
    paths = [trial.path(make(), values, p) for p in range(len(values))]
    shared = make()
    for p in reversed(range(len(values))):
        step = "keep no state: let the answer depend on the view alone"
        trial.compare(p, paths[p], trial.path(make(), values, p), "in a second run", step)
        trial.compare(p, paths[p], trial.path(shared, values, p), "after other patients", step)
        for arrangement in (
            _Arrangement(np.arange(n_entities)[::-1], np.arange(n_features)[::-1]),
            _Arrangement(rng.permutation(n_entities), rng.permutation(n_features)),
        ):
            again = trial.path(make(), values, p, arrangement)
            step = "break ties by name, not by position (afa.planner.rules.base.best)"
            trial.compare(p, paths[p], again, "with entities and features in another order", step)
        for t in sorted({cut * n_features // N_CHECKED_ROUNDS for cut in range(N_CHECKED_ROUNDS)}):
            for by in (1, 2):
                with _change_temporarily(values, labels, p, paths[p][:t], by):
                    again = trial.path(make(), values, p, rounds=t + 1)
                step = "choose from what the view holds"
                trial.compare(p, paths[p][: t + 1], again, "with other unobserved values and labels", step)


@dataclass(frozen=True)
class _Arrangement:
    """A permutation of the entities and a permutation of the features.

    After the permutation, position i contains the entity that had the index `entities[i]` before, and the feature that
    had the index `features[i]` before.
    """

    entities: Ints
    features: Ints

    def of(self, view: View) -> View:
        """Return the view after a permutation of its entities and its features."""
        e, f = self.entities, self.features
        place = np.argsort(e)
        one, other = e[view.pairs].T
        old = view.duels(one, other)  # indices that the duels had before the permutation
        turned = one > other

        def by_old_duel(values: ArrayLike) -> NDArray[Any]:
            given = np.asarray(values)
            moved = np.empty_like(given)
            moved[old] = given
            return moved

        def gain(duels: Bools) -> Floats:
            old_mask = by_old_duel(duels)
            row = np.cumsum(old_mask) - 1
            gains: Floats = view.gain(old_mask)[row[old[np.asarray(duels)]]][:, f]
            return gains

        return replace(
            view,
            features=tuple(view.features[j] for j in f),
            entities=tuple(view.entities[v] for v in e),
            observed=view.observed[f],
            largest_unary=view.largest_unary[f],
            gain=gain,
            total_gain=lambda closed: view.total_gain(by_old_duel(closed))[f],
            weighted_gain=lambda weights: view.weighted_gain(by_old_duel(weights))[f],
            find_scores=lambda: np.ascontiguousarray(view.find_scores()[np.ix_(e, e)]),
            find_rank=None,
            find_lead=lambda duels: np.where(turned, -view.lead[old], view.lead[old])[duels],
            find_resolved=lambda duels: view.resolved[old[duels]],
            find_intervals=lambda: view.find_intervals()[e],
            find_clusters=lambda: tuple(tuple(int(place[v]) for v in part) for part in view.find_clusters()),
        )


@dataclass(frozen=True)
class _Trial:
    """The settings with which a rule is tested, and the names of the patients."""

    bundle: Bundle
    k: int
    score: str
    gain: str
    target: str | None
    names: tuple[str, ...]
    seed: int

    def path(
        self,
        rule: Rule,
        values: Codes,
        patient: int,
        arrangement: _Arrangement | None = None,
        rounds: int | None = None,
    ) -> list[int]:
        """Return the indices of the features that a rule chooses for one patient, in the order of choice.

        Raise a `PlannerError` if a choice is invalid.
        """
        state = Patient(self.bundle, gain=self.gain, target=self.target)
        clustering, seen, path = Clustering(self.bundle), dict[str, int](), list[int]()
        for _ in range(len(self.bundle.features) if rounds is None else rounds):
            view = view_of(
                state,
                self.bundle,
                score=self.score,
                k=self.k,
                find_clusters=lambda: clustering.at(seen),
                patient=self.names[patient],
                seed=self.seed,
            )
            shown = arrangement.of(view) if arrangement else view
            where = f"rule {type(rule).__name__}, patient {self.names[patient]}, after {len(path)} observations"
            choice, again = _valid_choice(rule, shown, where), _valid_choice(rule, replace(shown), where)
            if choice.feature != again.feature:
                found = f"{shown.features[choice.feature]}, then {shown.features[again.feature]}"
                step = "keep no state and draw nothing but from view.seed"
                raise PlannerError(Fault(where, found, "the same feature for the same view", step))
            feature = int(arrangement.features[choice.feature]) if arrangement else choice.feature
            path.append(feature)
            seen[self.bundle.features[feature]] = int(values[patient, feature])
            state.observe(feature, int(values[patient, feature]))
        return path

    def compare(self, patient: int, first: list[int], second: list[int], case: str, step: str) -> None:
        """Raise a `PlannerError` that names the first position at which two sequences of choices differ."""
        for t, (one, other) in enumerate(zip(first, second, strict=True)):
            if one != other:
                where = f"rule under check, patient {self.names[patient]}, after {t} observations"
                found = f"{self.bundle.features[other]} {case}"
                raise PlannerError(Fault(where, found, f"{self.bundle.features[one]}, as at first", step))


def _valid_choice(rule: Rule, view: View, where: str) -> Choice:
    """Return the result of `rule.choose(view)`. Raise a `PlannerError` if the result is invalid."""
    step = "answer every view that has an unobserved feature"
    try:
        choice: Any = rule.choose(view)
    except Exception as error:
        raise PlannerError(Fault(where, repr(error), "a Choice", step)) from error
    if not isinstance(choice, Choice) or not isinstance(choice.feature, Integral):
        raise PlannerError(Fault(where, repr(choice), "a Choice with the index of a feature", step))
    if not 0 <= choice.feature < len(view.features):
        expected = f"an index from 0 to {len(view.features) - 1}"
        raise PlannerError(Fault(where, f"feature {choice.feature}", expected, "choose among view.features"))
    if view.observed[choice.feature]:
        found = f"{view.features[choice.feature]} again"
        raise PlannerError(Fault(where, found, "an unobserved feature", "leave out what view.observed marks"))
    if not isinstance(choice.reason, str) or not choice.reason.strip():
        raise PlannerError(Fault(where, f"the reason {choice.reason!r}", "words", "say why this feature"))
    return choice


@contextmanager
def _change_temporarily(
    values: Codes, labels: Floats | None, patient: int, observed: list[int], by: int
) -> Iterator[None]:
    """Change the arrays `values` and `labels` for the duration of a `with` block.

    All labels are changed. All values are changed, except the observed values of one patient. The values -1, 0 and +1
    are changed cyclically: each value moves by `by` places (1 or 2). At the end of the `with` block, the original
    values and labels are restored.
    """
    before = values.copy(), None if labels is None else labels.copy()
    known = values[patient, observed]
    try:
        values[:] = (values + 1 + by) % 3 - 1
        values[patient, observed] = known
        if labels is not None:
            labels[:] = 1 - labels
        yield
    finally:
        values[:] = before[0]
        if labels is not None:
            labels[:] = before[1]


def _check_arrays(
    values: Codes, labels: Floats | None, names: tuple[str, ...], n_entities: int, n_features: int
) -> None:
    where, step = "check_policy", "pass a copy of the cohort's rows, aligned with the bundle"
    if values.shape != (len(names), n_features) or not len(names) or not np.isin(values, VALUES).all():
        found = f"values of shape {values.shape} for {len(names)} patients"
        raise PlannerError(Fault(where, found, f"({len(names)}, {n_features}), each -1, 0 or 1", step))
    if labels is not None and labels.shape != (len(names), n_entities):
        raise PlannerError(Fault(where, f"labels of shape {labels.shape}", f"({len(names)}, {n_entities})", step))
    if not values.flags.writeable or (labels is not None and not labels.flags.writeable):
        raise PlannerError(Fault(where, "a read-only array", "arrays that can be changed and put back", step))
