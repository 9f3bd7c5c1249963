"""The features and panels that can be measured, their prices, and the log of all steps.

A panel is a group of features that are measured together. The module also applies an allocation rule to features and
panels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from afa.engine.patient_state import DuelWeights
from afa.errors import Fault, PlannerError, check_number
from afa.io.csvfile import suggestion
from afa.model.arrays import Bools, Floats, Ints
from afa.model.bundle import Bundle
from afa.planner.rules import Rule, View
from afa.planner.values import ReadValue, code_of, read_number

if TYPE_CHECKING:
    import pandas as pd

EQUAL_COSTS = "equal"
ActionKind = Literal["observe", "skip", "correct"]
Costs = Mapping[str, float] | str | None
Panels = Mapping[str, Sequence[str]] | None


@dataclass(frozen=True)
class Action:
    """A step of a planner. The `kind` of a step is `observe`, `correct` or `skip`.

    Attributes
    ----------
    features, values : the features of the step, and their codes; the code of a skipped feature is None
    cost : the cost paid
    reason : why the planner suggested the step, or a note that it did not suggest the step
    numbers, units : the measured number and the unit of each value, or None and "" if the value was not entered as a
        number; both are empty if no value was

    """

    kind: ActionKind
    features: tuple[str, ...]
    values: tuple[int | None, ...]
    cost: float
    reason: str
    numbers: tuple[float | None, ...] = ()
    units: tuple[str, ...] = ()

    def rows(self) -> Iterator[tuple[str, int | None, float | None, str]]:
        """Yield, for each feature of the step, the name, the code, the number and the unit."""
        n = len(self.features)
        numbers, units = self.numbers or (None,) * n, self.units or ("",) * n
        return zip(self.features, self.values, numbers, units, strict=True)


def action_of(kind: ActionKind, read_values: Mapping[str, ReadValue], cost: float, reason: str) -> Action:
    """Return the `Action` that records the given values."""
    features, values = tuple(read_values), tuple(read_value.code for read_value in read_values.values())
    if all(read_value.number is None for read_value in read_values.values()):
        return Action(kind, features, values, cost, reason)
    numbers, units = zip(*((read_value.number, read_value.unit) for read_value in read_values.values()), strict=True)
    return Action(kind, features, values, cost, reason, numbers, units)


class Log:
    """All steps of a planner, and the resulting values, skipped features and total cost."""

    def __init__(self, actions: Iterable[Action] = ()) -> None:
        self.actions, self.spent = list[Action](), 0.0
        self.observed, self.skipped = dict[str, int](), set[str]()
        self.numbers = dict[str, float]()
        for action in actions:
            self.add(action)

    def add(self, action: Action) -> None:
        """Append a step. Raise a `PlannerError` if the total cost is too large for a float."""
        if not np.isfinite(self.spent + action.cost):
            found, step = f"{action.cost:g}, after {self.spent:g}", "give costs in a larger unit"
            raise PlannerError(Fault("cost of an observation", found, "a finite sum of costs", step))
        self.actions.append(action)
        self.spent += action.cost
        for feature, value, measured, _ in action.rows():
            if value is None:
                self.skipped.add(feature)
                continue
            self.skipped.discard(feature)
            self.observed[feature] = value  # a correction does not change the order of the features
            self.numbers.pop(feature, None)
            if measured is not None:
                self.numbers[feature] = measured


@dataclass(frozen=True)
class Suggestion:
    """The suggested item, which is a panel or a single feature.

    Attributes
    ----------
    name : name of the panel or the feature
    features : the unmeasured features of the item; the feature that the rule chose is first
    cost : price of the item in the current state
    reason : explanation of the choice
    over : the duels (comparisons of two entities) whose gains led to the choice, and their weights; None if the choice
        used no gains of duels

    """

    name: str
    features: tuple[str, ...]
    cost: float
    reason: str
    over: DuelWeights | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class Menu:
    """The items that an allocation rule chooses from: panels and single features.

    Each of the M features belongs to one of the I items. The items are sorted by the position of their first feature in
    the bundle.

    Attributes
    ----------
    names : I names
    members : the indices of each item's features
    item_of : (M,) int64, index of each feature's item
    of_feature : feature name -> index of its item
    cost : (I,) float64, 0 or more
    panels : panel name -> features

    """

    names: tuple[str, ...]
    of_feature: Mapping[str, int]
    members: tuple[tuple[int, ...], ...]
    item_of: Ints
    cost: Floats
    panels: Mapping[str, Sequence[str]]

    @property
    def plain(self) -> bool:
        """Return True if all items are single features with equal costs.

        Costs then do not affect which feature is suggested.
        """
        return len(self.names) == len(self.item_of) and bool((self.cost == self.cost[0]).all())

    def places(self, first: Sequence[str]) -> tuple[int, ...]:
        """Return the indices of the items with the given names, in the given order and without repetitions.

        A name is the name of a panel or of a feature.
        """
        known = {**{name: i for i, name in enumerate(self.names)}, **self.of_feature}
        for name in first:
            if name not in known:
                found, expected = f"the unknown name {name!r}", "names of features or panels"
                raise PlannerError(Fault("planner option first", found, expected, suggestion(str(name), known)))
        return tuple(dict.fromkeys(known[name] for name in first))

    def per_cost(self, gain: Floats, open_: Bools) -> Floats:
        """Return, for each feature, the gain per unit of cost of the item that contains the feature.

        The gain of a panel is the sum of the gains of its available features, as if the features were independent. If
        the cost of an item is 0, the result is the gain of the item. For unavailable features, the result is 0. The
        result has the shape (M,).

        Parameters
        ----------
        gain : (M,) float64, gain of each feature
        open_ : (M,) bool, True for available features

        """
        total = np.bincount(self.item_of, weights=np.where(open_, gain, 0.0), minlength=len(self.names))
        per_price = total / np.where(self.cost > 0, self.cost, 1.0)
        return np.where(open_, per_price[self.item_of], 0.0)


class Offer(NamedTuple):
    """The features that can be suggested in the current state.

    Attributes
    ----------
    open : (M,) bool, True for features that are not observed, not skipped, and not excluded by an exclusive group
    price : (I,) float64, current price of each item; 0 if the item has been paid for
    affordable : (M,) bool, True for open features whose item costs no more than the unspent budget

    """

    open: Bools
    price: Floats
    affordable: Bools


def offer_of(menu: Menu, bundle: Bundle, log: Log, left: float) -> Offer:
    """Return the features that can be suggested after the steps in `log`.

    The parameter `left` is the part of the budget that has not been spent.
    """
    closed = log.observed.keys() | log.skipped | excluded_by(bundle, log.observed)
    open_ = np.array([name not in closed for name in bundle.features], dtype=bool)
    price = menu.cost.copy()
    if len(menu.names) < len(menu.item_of):  # a paid panel can have unobserved features
        paid = (name for action in log.actions if action.cost > 0 for name in action.features)
        price[[menu.of_feature[name] for name in paid]] = 0.0
    return Offer(open_, price, open_ & (price <= left * (1 + 1e-12))[menu.item_of])


def measurements_of(bundle: Bundle) -> dict[str, tuple[str, ...]]:
    """Return a mapping from the name of each measurement in groups.csv to its features."""
    groups = () if bundle.rates is None else bundle.rates.measurements
    return {name: tuple(bundle.features[j] for j in members) for name, members in groups}


def excluded_by(bundle: Bundle, observed: Mapping[str, int]) -> set[str]:
    """Return the unobserved features that cannot be +1.

    A feature cannot be +1 if another feature of its exclusive group is observed as +1.
    """
    groups = ({bundle.features[j] for j in members} for _, members in bundle.exclusive)
    hit = (group for group in groups if any(observed.get(name) == 1 for name in group))
    return set().union(*hit) - observed.keys()


def check_exclusive(bundle: Bundle, values: Mapping[str, float]) -> None:
    """Raise a `PlannerError` if two features of an exclusive group are both +1."""
    for name, members in bundle.exclusive:
        present = [bundle.features[j] for j in members if values.get(bundle.features[j]) == 1]
        if len(present) > 1:
            found, step = f"{' and '.join(present)} at 1", "correct the wrong one"
            raise PlannerError(Fault(f"group {name}", found, "at most one", step))


def menu_of(bundle: Bundle, costs: Costs, panels: Panels) -> Menu:
    """Return the menu (panels and single features) of a bundle.

    If a cost or panel is invalid, raise a `PlannerError` that names it.

    Parameters
    ----------
    costs : feature or panel -> cost. The default for a feature is its cost in the bundle, or 1; the default for a panel
        is the sum of its features. None takes the bundle's costs; `equal` sets all to 1
    panels : panel name -> features, each feature in at most one panel; None for the measurements of the bundle. A panel
        that is a measurement of the bundle costs as much as a single feature, unless the bundle or `costs` give its
        cost

    """
    panels = measurements_of(bundle) if panels is None else panels
    if not isinstance(panels, Mapping):
        step = "give {name: [features]}"
        raise PlannerError(Fault("planner option panels", type(panels).__name__, "features by panel", step))
    panels = {name: list(features) if is_list(features) else features for name, features in panels.items()}
    index = {name: j for j, name in enumerate(bundle.features)}
    panel_of = _panel_of(panels, index)
    given = _given_costs(costs, set(index) | set(panels))
    own = bundle.costs.copy() if bundle.costs is not None and costs != EQUAL_COSTS else np.ones(len(index))
    for name, features in measurements_of(bundle).items() if bundle.costs is None or costs == EQUAL_COSTS else ():
        if tuple(panels.get(name, ())) == features:
            own[[index[feature] for feature in features]] = 1.0 / len(features)
    for name in given.keys() & index.keys():
        own[index[name]] = given[name]
    names = tuple(dict.fromkeys(panel_of.get(name, name) for name in bundle.features))
    place = {name: i for i, name in enumerate(names)}
    item_of = np.array([place[panel_of.get(name, name)] for name in bundle.features], dtype=np.int64)
    cost = np.bincount(item_of, weights=own, minlength=len(names)).astype(np.float64)
    for name in given.keys() & panels.keys():
        cost[place[name]] = given[name]
    if not np.isfinite(cost.sum()):
        found, step = "costs whose sum overflows", "give costs in a larger unit"
        raise PlannerError(Fault("planner option costs", found, "a finite sum of all costs", step))
    members: list[list[int]] = [[] for _ in names]
    for j, item in enumerate(item_of):
        members[item].append(j)
    of_feature = dict(zip(bundle.features, item_of.tolist(), strict=True))
    return Menu(names, of_feature, tuple(map(tuple, members)), item_of, cost, panels)


def is_list(value: object) -> bool:
    """Return True if the value is a collection, but not a text."""
    return isinstance(value, Collection) and not isinstance(value, str)


def _panel_of(panels: Mapping[str, Sequence[str]], index: Mapping[str, int]) -> dict[str, str]:
    panel_of: dict[str, str] = {}
    for panel, features in panels.items():
        where = f"panel {panel!r}"
        if panel in index:
            raise PlannerError(Fault(where, "the name of a feature", "a name of its own", "rename the panel"))
        if not is_list(features) or not len(features):
            expected = "a list of one or more features"
            raise PlannerError(Fault(where, repr(features), expected, "name the features that come together"))
        for feature in features:
            if feature not in index:
                found = f"the unknown feature {feature!r}"
                raise PlannerError(Fault(where, found, "features of the bundle", suggestion(str(feature), index)))
            if feature in panel_of:
                found = f"{feature}, which panel {panel_of[feature]!r} has"
                raise PlannerError(Fault(where, found, "each feature in one panel at most", "leave it out of one"))
            panel_of[feature] = panel
    return panel_of


def _given_costs(costs: Costs, known: set[str]) -> dict[str, float]:
    if costs is None or (isinstance(costs, str) and costs == EQUAL_COSTS):
        return {}
    where = "planner option costs"
    if not isinstance(costs, Mapping):
        expected = f"None, {EQUAL_COSTS!r}, or costs by name"
        raise PlannerError(Fault(where, repr(costs), expected, "leave it out for the bundle's own"))
    for name, cost in costs.items():
        if name not in known:
            found = f"a cost of {name!r}"
            raise PlannerError(Fault(where, found, "names of features or panels", suggestion(str(name), known)))
        check_number(PlannerError, f"{where}, {name}", cost, "a finite number, 0 or more", lambda x: 0 <= x < np.inf)
    return {name: float(cost) for name, cost in costs.items()}


def chosen_item(rule: Rule, view: View, menu: Menu, price: Floats, offered: Bools) -> Suggestion:
    """Return the feature or panel that the rule chooses among the available features.

    The rule first chooses among the free features. If none of them has a positive gain, the rule chooses among all
    available features.

    Parameters
    ----------
    price : (I,) float64
    offered : (M,) bool, True for available features

    """
    free = offered & (price == 0)[menu.item_of]
    for among in (free, offered) if free.any() else (offered,):
        choice = rule.choose(_restrict_view(view, menu, among))
        if not 0 <= choice.feature < len(among) or not among[choice.feature]:
            where, expected = f"rule {type(rule).__name__}", "an index of an unobserved feature"
            raise PlannerError(Fault(where, str(choice.feature), expected, "correct the rule's choose()"))
        if not choice.fallback or free[offered].all():
            break
    item = int(menu.item_of[choice.feature])
    others = [j for j in menu.members[item] if offered[j] and j != choice.feature]
    features = tuple(view.features[j] for j in (choice.feature, *others))
    return Suggestion(menu.names[item], features, float(price[item]), choice.reason, choice.over)


def _restrict_view(view: View, menu: Menu, offered: Bools) -> View:
    """Return a view (the input of an allocation rule) in which every unavailable feature is marked as observed.

    If there are costs or panels, the gain of each feature in the returned view is a gain per unit of cost: the sum of
    the gains of the feature's panel, divided by the cost of the panel.
    """
    if menu.plain:
        return view if (offered == ~view.observed).all() else replace(view, observed=~offered)

    def by_item(gain: Floats) -> Floats:
        return menu.per_cost(gain, offered)

    return replace(
        view,
        observed=~offered,
        largest_unary=by_item(view.largest_unary),
        gain=lambda duels: np.array([by_item(row) for row in view.gain(duels)]).reshape(-1, len(offered)),
        total_gain=lambda closed: by_item(view.total_gain(closed)),
        weighted_gain=lambda weights: by_item(view.weighted_gain(weights)),
        find_information=lambda: by_item(view.information()),
        find_frontier=lambda: by_item(view.frontier()),
    )


def history_of(actions: Iterable[Action]) -> list[dict[str, Any]]:
    """Return a list with one row for each feature that was measured, corrected or skipped.

    The keys of a row are step, kind, feature, value, cost, spent, reason, number and unit. The `value` of a skipped
    feature is None. If a value was not entered as a number, its `number` is None. If a step has several features, only
    its first row contains the cost, and this cost is for the whole step.
    """
    rows, spent = list[dict[str, Any]](), 0.0
    for step, action in enumerate(actions, start=1):
        spent += action.cost
        for i, (feature, value, measured, unit) in enumerate(action.rows()):
            row: dict[str, Any] = {"step": step, "kind": action.kind, "feature": feature, "value": value}
            row |= {"cost": 0.0 if i else action.cost, "spent": spent, "reason": action.reason}
            rows.append(row | {"number": measured, "unit": unit})
    return rows


def given_values(
    bundle: Bundle,
    values: Mapping[str, Any] | pd.Series | None,
    numbers: Mapping[str, float] | pd.Series | None,
) -> dict[str, ReadValue]:
    """Return a mapping from each feature to its entered value. Missing values are omitted.

    Raise a `PlannerError` if a value is invalid or no value is given.

    Parameters
    ----------
    values : feature -> code or word
    numbers : feature -> number, in the unit of the feature

    """
    given = dict[str, ReadValue]()
    for key, several in (("values", values), ("numbers", numbers)):
        if several is not None and not hasattr(several, "items"):
            step = "give {feature: value}, or a row of a table"
            raise PlannerError(Fault("observations", type(several).__name__, "values by feature", step))
        for name, value in () if several is None else several.items():
            if _is_missing(value):
                continue
            feature = str(name)
            if feature in given:
                raise PlannerError(
                    Fault(f"feature {feature}", "a value and a number", "one of the two", "leave one out")
                )
            code = code_of(bundle, feature, 0 if key == "numbers" else value)  # raises for an unknown name
            given[feature] = read_number(bundle, feature, value) if key == "numbers" else ReadValue(code)
    if not given:
        raise PlannerError(Fault("observations", "none", "one or more", "name a feature and its value"))
    return given


def _is_missing(value: Any) -> bool:
    """Return True if the value is missing: None, NaN or the NA of pandas."""
    if isinstance(value, int | np.integer | str):
        return False
    import pandas as pd  # noqa: PLC0415 (slow to import, and not needed for whole numbers)

    return bool(pd.isna(value))
