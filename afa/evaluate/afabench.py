"""Wrap the planners as methods of AFABench, the public benchmark of active feature acquisition (arXiv:2508.14734).

The interface is the class `AFAMethod` in `afabench/core/types.py` of the repository Linusaronsson/AFA-Benchmark
(package version 1.0.0, commit 0dd0690e of a public copy, read in November 2026). The features of a batch have the shape
`(*batch, *feature_shape)`; the feature axes are flattened into columns. `act` returns 0 to stop, or i to make selection
i - 1. `predict` returns class probabilities. A selection reveals a single feature or a panel (features measured
together). The selections are numbered from left to right, by the first column of each selection. This module does not
import the benchmark: it accepts any array that NumPy converts, and returns NumPy arrays, or torch tensors for a torch
batch.

The benchmark loads a saved method by the name of its registered class. To register these classes, call
`afabench.common.registry.REGISTERED_CLASSES.update(afa.evaluate.afabench.REGISTRY)`.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np
import yaml
from numpy.typing import NDArray

from afa.errors import Fault, PlannerError
from afa.inference.meanfield import Solver
from afa.io.files import write_text
from afa.io.yamlfile import read_mapping
from afa.model.arrays import Codes, Floats
from afa.model.bundle import Bundle, load_bundle, save_bundle
from afa.model.mrf import VALUES
from afa.planner import BinaryPlanner, TopKPlanner
from afa.planner.menu import measurements_of

REGISTRY = {name: f"afa.evaluate.afabench.{name}" for name in ("BinaryMethod", "TopKMethod")}
"""Class name -> import path of our classes, for the benchmark's registry."""
METHOD_FILE, BUNDLE_FOLDER = "method.yaml", "bundle"
MOST_PLANNERS = 128
OPEN, PASSED = 2, 3
"""Codes of a row in addition to -1, 0 and 1. `OPEN`: the feature has not been selected. `PASSED`: it was selected, but
has no value.
"""
TopKOrBinaryPlanner = TypeVar("TopKOrBinaryPlanner", BinaryPlanner, TopKPlanner)
_KEPT_OUT = {
    "start": "answers depend on the order of observations, which a mask does not tell",
    "layer0": "the classes are the entities of the bundle",
    "patient": "a row has no name",
    "stop": "cost_param says when to stop",
}


class PlannerMethod(ABC, Generic[TopKOrBinaryPlanner]):
    """Define the base class of `BinaryMethod` and `TopKMethod`.

    Options whose results depend on the order of observations are rejected, because a mask does not contain this order.

    Parameters
    ----------
    bundle : the models. A batch has measured numbers for features with cut points in `features.csv`, and -1, 0 or 1 for
        all other features
    features : names of the M columns of the batches, by default in the order of the bundle
    panels : panel name -> columns that one selection reveals. The default is the measurements of the bundle
        (`groups.csv`). A panel is one selection, numbered by its first column
    cost_param : risk at which to stop: `act` returns 0 once 1 - max(predict) is at most `cost_param`. If None, `act`
        stops when no further value can change the planner's answer, or when everything is observed
    seed : seed of random rules. All rows use the same seed
    options : options of the planner
    most_planners : number of planner states cached between calls. The number of rows of a batch is enough. With 25
        entities and 253 features, each state takes 1.4 MB

    """

    _class_version = "1.0.0"  # the benchmark rejects saved methods of another major version
    has_builtin_classifier = True
    force_acquisition = False
    """Set to True to continue until no feature is left, for evaluations that spend a whole budget."""

    def __init__(
        self,
        bundle: Bundle,
        *,
        features: Sequence[str] | None = None,
        panels: Mapping[str, Sequence[str]] | None = None,
        cost_param: float | None = None,
        seed: int | None = 0,
        most_planners: int = MOST_PLANNERS,
        **options: Any,
    ) -> None:
        _check_options(options)
        self._panels = measurements_of(bundle) if panels is None else {name: tuple(panels[name]) for name in panels}
        self.bundle, self._options, self._most = bundle, options | {"panels": self._panels}, most_planners
        self.features = _column_names(bundle, features)
        self._selections = _selections(self.features, self._panels)
        rates = bundle.rates
        self._table = None if rates is None or rates.table is None else rates.table.chosen(self.features)
        self._device: Any = "cpu"
        self._cost_param: float | None = None
        if cost_param is not None:
            self.set_cost_param(cost_param)
        self.set_seed(seed)

    @property
    @abstractmethod
    def classes(self) -> tuple[str, ...]:
        """Return the names of the classes in the order of the probabilities from `predict`."""

    @abstractmethod
    def _new_planner(self) -> TopKOrBinaryPlanner:
        """Return a planner without observations."""

    @abstractmethod
    def _probabilities(self, planner: TopKOrBinaryPlanner) -> Floats:
        """Return the class probabilities, (n_classes,), which sum to 1."""

    def act(
        self,
        masked_features: Any,
        feature_mask: Any,
        selection_mask: Any = None,
        label: Any = None,  # noqa: ARG002
        feature_shape: tuple[int, ...] | None = None,
    ) -> Any:
        """Return the actions, (*batch, 1) int64: 0 to stop, or i to perform selection i - 1. The label is ignored.

        Parameters
        ----------
        masked_features : (*batch, *feature_shape), values where observed
        feature_mask : (*batch, *feature_shape) bool, True where observed
        selection_mask : (*batch, S) bool, True for selections already made. These selections are not repeated
        feature_shape : the shape of the features, by default the last axis

        """
        rows, batch = self._rows_of_batch(masked_features, feature_mask, selection_mask, feature_shape)
        distinct, place = np.unique(rows, axis=0, return_inverse=True)
        actions = np.array([self._action(row) for row in distinct], dtype=np.int64)
        return _as_batch_type(actions[place.ravel()].reshape(*batch, 1), masked_features)

    def predict(
        self,
        masked_features: Any,
        feature_mask: Any,
        label: Any = None,  # noqa: ARG002
        feature_shape: tuple[int, ...] | None = None,
    ) -> Any:
        """Return the probability of each class in `classes` given the observations, (*batch, n_classes) float32."""
        rows, batch = self._rows_of_batch(masked_features, feature_mask, None, feature_shape)
        distinct, place = np.unique(rows, axis=0, return_inverse=True)
        found = [self._probabilities(self._planner_for_row(row)) for row in distinct]
        table = np.array(found, dtype=np.float32).reshape(-1, len(self.classes))
        return _as_batch_type(table[place.ravel()].reshape(*batch, len(self.classes)), masked_features)

    def save(self, path: str | Path) -> None:
        """Write the bundle and the settings to a folder, which is created if it does not exist."""
        if not isinstance(self._options.get("allocation", ""), str | None):
            step = "name a rule of afa.planner.rules.RULES to save the method"
            raise PlannerError(Fault("planner option allocation", "an object", "the name of a rule", step))
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        save_bundle(self.bundle, folder / BUNDLE_FOLDER)
        given = {key: value for key, value in self._options.items() if key != "panels"}
        options = {key: asdict(value) if isinstance(value, Solver) else value for key, value in given.items()}
        setting = {
            "method": type(self).__name__,
            "features": list(self.features),
            "panels": {name: list(columns) for name, columns in self._panels.items()},
            "cost_param": self._cost_param,
            "seed": self._seed,
            "most_planners": self._most,
            "options": options,
        }
        write_text(folder / METHOD_FILE, yaml.safe_dump(setting, sort_keys=False, allow_unicode=True))

    @classmethod
    def load(cls, path: str | Path, device: Any = "cpu") -> Self:
        """Load the method that `save` wrote to a folder."""
        file = Path(path) / METHOD_FILE
        setting = read_mapping(file)
        kind, options = setting.pop("method", None), setting.pop("options", None)
        if kind != cls.__name__ or not isinstance(options, dict):
            found, step = f"a method {kind!r}", "load it by its own class"
            raise PlannerError(Fault(str(file), found, f"{cls.__name__} and its options", step))
        if isinstance(options.get("solver"), dict):
            options["solver"] = Solver(**options["solver"])
        return cls(load_bundle(Path(path) / BUNDLE_FOLDER), **setting, **options).to(device)

    def to(self, device: Any) -> Self:
        """Set the device of the results; all calculations run on the CPU."""
        self._device = device
        return self

    @property
    def device(self) -> Any:
        """Return the device last passed to `to`."""
        return self._device

    @property
    def cost_param(self) -> float | None:
        """Return the risk at which the method stops, or None if no risk is set."""
        return self._cost_param

    def set_cost_param(self, cost_param: float) -> None:
        """Set the risk at which the method stops, in [0, 1).

        The risk is the probability that the most probable class is wrong.
        """
        if not 0 <= cost_param < 1:
            expected = "a probability of error, from 0 to below 1"
            raise PlannerError(Fault("cost_param", f"{cost_param}", expected, "give the risk at which to stop"))
        self._cost_param = float(cost_param)

    def set_seed(self, seed: int | None) -> None:
        """Set the seed of the rule `random`. None means 0."""
        self._seed = seed or 0
        self._empty: TopKOrBinaryPlanner = self._new_planner()
        self._held: OrderedDict[bytes, TopKOrBinaryPlanner] = OrderedDict()

    def _rows_of_batch(
        self, masked_features: Any, feature_mask: Any, selection_mask: Any, feature_shape: Sequence[int] | None
    ) -> tuple[Codes, tuple[int, ...]]:
        """Return the values of a batch as rows, (R, M), and the shape of the batch without the feature axes.

        Raise a `PlannerError` if an argument has the wrong shape, or if a feature without cut points has an observed
        value other than -1, 0 and 1. The message names the first invalid value.
        """
        names, values, mask = self.features, _as_numpy(masked_features), _as_numpy(feature_mask)
        shape: tuple[int, ...] = values.shape[-1:] if feature_shape is None else tuple(feature_shape)
        batch: tuple[int, ...] = values.shape[: max(values.ndim - len(shape), 0)]
        if values.shape != (*batch, *shape) or int(np.prod(shape)) != len(names):
            expected = f"{len(names)} features on the last axes"
            step = "pass feature_shape, or name the columns by features"
            raise PlannerError(Fault("masked_features", f"{values.shape}, feature_shape {shape}", expected, step))
        if mask.shape != values.shape or mask.dtype != np.bool_:
            found, expected = f"{mask.dtype} {mask.shape}", f"bool {values.shape}, as masked_features"
            raise PlannerError(Fault("feature_mask", found, expected, "pass a mask of the same batch"))
        values, mask = self._encode_numbers(values.reshape(-1, len(names))), mask.reshape(-1, len(names))
        strange = mask & ~np.isin(values, VALUES)
        if strange.any():
            row, column = (int(index[0]) for index in np.nonzero(strange))
            place = f"masked_features, row {row}, feature {names[column]}"
            step = "give the feature cut points in the bundle's features.csv, or encode it as ternary first"
            raise PlannerError(Fault(place, f"{values[row, column]}", "-1, 0 or 1", step))
        rows = np.full(values.shape, OPEN, dtype=np.int8)
        rows[mask] = values[mask]
        if selection_mask is not None:
            asked, selections = _as_numpy(selection_mask), self._selections
            if asked.shape != (*batch, len(selections)):
                expected = f"{(*batch, len(selections))}: each feature alone, or with its panel"
                step = "put what the unmasker reveals at once into panels, or into one measurement of groups.csv"
                raise PlannerError(Fault("selection_mask", f"{asked.shape}", expected, step))
            asked = asked.reshape(len(rows), -1).astype(bool)
            for i, members in enumerate(selections):
                gone = np.ix_(asked[:, i], np.array(members))
                rows[gone] = np.where(mask[gone], rows[gone], PASSED)
        return rows, batch

    def _encode_numbers(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values, (R, M), with numbers encoded as -1, 0 or 1 by the cut points of their features."""
        if self._table is None:
            return values
        cut = self._table.has_range & ~self._table.is_binary
        code = np.where(values > self._table.high, 1.0, np.where(values < self._table.low, -1.0, 0.0))
        return np.where(cut & ~np.isnan(values), code, values)

    def _planner_for_row(self, row: Codes) -> TopKOrBinaryPlanner:
        """Return a planner that has observed a row's values. The planner is cached, and the caller must not change it.

        If no cached planner has observed exactly the row's values, a new planner is made. The new planner is a copy of
        a cached planner whose observations all occur in the row. Of several such planners, the planner with the most
        observations is copied. If there is no such planner, the new planner starts without observations. The new
        planner then observes the row's remaining values in the order of the columns. The result depends only on the
        row, up to rounding, if the planner's answers do not depend on the order of observations.
        """
        key = row.tobytes()
        if key not in self._held:
            known, nearest = self._nearest_cached_planner(row)
            planner = self._held[key] = nearest.copy()
            for j in np.flatnonzero((row != OPEN) & (known == OPEN)):
                if row[j] == PASSED:
                    planner.skip(self.features[j])
                else:
                    planner.observe(self.features[j], int(row[j]))
            if len(self._held) > self._most:
                self._held.popitem(last=False)
        self._held.move_to_end(key)
        return self._held[key]

    def _nearest_cached_planner(self, row: Codes) -> tuple[Codes, TopKOrBinaryPlanner]:
        """Return two results: the cached row that agrees with `row` and has the most observations, and its planner."""
        held = np.frombuffer(b"".join(self._held), dtype=np.int8).reshape(len(self._held), len(row))
        fits = np.flatnonzero(((held == OPEN) | (held == row)).all(axis=1))
        if not len(fits):
            return np.full_like(row, OPEN), self._empty
        best = int(fits[np.argmax((held[fits] != OPEN).sum(axis=1))])
        return held[best], self._held[held[best].tobytes()]

    def _action(self, row: Codes) -> int:
        planner = self._planner_for_row(row)
        feature = None if not self.force_acquisition and self._is_certain_enough(planner) else planner.next_feature()
        if feature is None:
            return 0
        column = self.features.index(feature)
        return 1 + next(i for i, columns in enumerate(self._selections) if column in columns)

    def _is_certain_enough(self, planner: TopKOrBinaryPlanner) -> bool:
        risk = self._cost_param
        return planner.certain() or (risk is not None and 1 - self._probabilities(planner).max() <= risk)


class BinaryMethod(PlannerMethod[BinaryPlanner]):
    """Treat one entity as a task with two classes: class 0 without the entity, class 1 with it.

    `predict` returns `BinaryPlanner.probabilities`. Without `cost_param`, the method stops when the sign of the score S
    is certain. Even if the sign is certain, the class with the opposite sign can be more probable (decisions.md S15).

    >>> from afa.model.bundle import load_bundle
    >>> method = BinaryMethod(load_bundle("tests/data/bundle_tiny"), entity="bleeding")
    >>> method.predict(np.zeros((1, 5)), np.zeros((1, 5), dtype=bool))
    array([[0.5, 0.5]], dtype=float32)
    """

    def __init__(self, bundle: Bundle, *, entity: str, **settings: Any) -> None:
        self.entity = entity
        super().__init__(bundle, entity=entity, **settings)

    @property
    def classes(self) -> tuple[str, ...]:
        return (f"not {self.entity}", self.entity)

    def _new_planner(self) -> BinaryPlanner:
        return BinaryPlanner(self.bundle, seed=self._seed, **self._options)

    def _probabilities(self, planner: BinaryPlanner) -> Floats:
        held = planner.probability()
        return np.array([1 - held, held])


class TopKMethod(PlannerMethod[TopKPlanner]):
    """Treat N entities as a task with N classes. The planner searches for the k best entities.

    `predict` always assumes that exactly one entity is present, even if the bundle's settings differ. `predict` returns
    the softmax of log P(x_obs | v) plus prior log-odds (decisions.md S7). `TopKPlanner.top_k` ranks entities by the
    planner's score, so its ranking can differ from the probabilities of `predict`. Without `cost_param`, the method
    stops when the top k is certain.

    >>> from afa.model.bundle import load_bundle
    >>> method = TopKMethod(load_bundle("tests/data/bundle_tiny"), k=1)
    >>> method.predict(np.zeros((1, 5)), np.zeros((1, 5), dtype=bool)).round(2)
    array([[0.45, 0.45, 0.1 ]], dtype=float32)
    """

    def __init__(self, bundle: Bundle, *, k: int = 5, **settings: Any) -> None:
        if settings.get("holds", "one") != "one":
            found, step = repr(settings["holds"]), "leave it out: exactly one class holds of each row"
            raise PlannerError(Fault("method option holds", found, "one", step))
        super().__init__(bundle, k=k, **settings)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.bundle.entities

    def _new_planner(self) -> TopKPlanner:
        planner = TopKPlanner(self.bundle, seed=self._seed, **self._options)
        if planner.holds in (None, "one"):
            return planner
        return TopKPlanner(self.bundle, seed=self._seed, **self._options | {"holds": "one"})

    def _probabilities(self, planner: TopKPlanner) -> Floats:
        return planner.posterior()


def _check_options(options: Mapping[str, Any]) -> None:
    for option, why in _KEPT_OUT.items():
        if option in options:
            raise PlannerError(Fault(f"method option {option}", repr(options[option]), "none", f"leave it out: {why}"))
    if options.get("score") == "kl_nonzero":
        step = "choose a score that is a function of what has been observed"
        raise PlannerError(Fault("method option score", "kl_nonzero, a vote in the order of arrival", "another", step))


def _column_names(bundle: Bundle, features: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the batch's columns; raise a `PlannerError` unless each feature of the bundle occurs once."""
    columns = bundle.features if features is None else tuple(features)
    lacking = [name for name in bundle.features if name not in set(columns)]
    beyond = [name for name in columns if name not in set(bundle.features)]
    if lacking or beyond or len(columns) != len(bundle.features):
        found = f"no column for {', '.join(lacking[:5]) or 'none'}, unknown columns {', '.join(beyond[:5]) or 'none'}"
        step = "leave out the unknown columns, and pass bundle.restrict(columns)"
        raise PlannerError(Fault("method option features", found, "each feature of the bundle once", step))
    return columns


def _selections(names: Sequence[str], panels: Mapping[str, Sequence[str]]) -> tuple[tuple[int, ...], ...]:
    """Return one tuple of column indices for each selection (a panel or a single feature).

    The selections are sorted by the smallest column index of each selection.
    """
    panel_of = {feature: panel for panel, features in panels.items() for feature in features}
    items: dict[str, list[int]] = {}
    for column, name in enumerate(names):
        items.setdefault(panel_of.get(name, name), []).append(column)
    return tuple(map(tuple, items.values()))


def _as_numpy(given: Any) -> NDArray[Any]:
    """Convert an array or a torch tensor to a NumPy array.

    The tensor may be on another device, and may belong to a computation graph.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.Tensor):
        given = given.detach().cpu()
    return np.asarray(given)


def _as_batch_type(answer: NDArray[Any], given: Any) -> Any:
    """Return the result as a torch tensor on the batch's device if the batch is a torch tensor, else unchanged."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.Tensor):
        return torch.from_numpy(answer).to(given.device)
    return answer
