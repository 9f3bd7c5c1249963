"""What can be measured and at what price, what a rule chooses of it, and what has been done: the log of all steps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.patient_state import DuelWeights
from afa.errors import Fault, PlannerError, check_number
from afa.io.csvfile import suggestion
from afa.model.bundle import Bundle
from afa.model.mrf import Floats
from afa.planner.rules import Rule, View
from afa.planner.values import ReadValue, code_of, reading_of

if TYPE_CHECKING:
    import pandas as pd

EQUAL = "equal"
Kind = Literal["observe", "skip", "correct"]
Costs = Mapping[str, float] | str | None
Panels = Mapping[str, Sequence[str]] | None


@dataclass(frozen=True)
class Action:
    """One step: values that came in, a value corrected, or what cannot be measured, by its `kind`.

    features, values : what it was about; a skipped feature has the value None. cost : what was paid.
    reason : why the planner had asked for it, or that it had not.
    numbers, units : the numbers behind the values and their units, None and "" where a code was given; empty where
        all were codes.
    """

    kind: Kind
    features: tuple[str, ...]
    values: tuple[int | None, ...]
    cost: float
    reason: str
    numbers: tuple[float | None, ...] = ()
    units: tuple[str, ...] = ()

    def rows(self) -> Iterator[tuple[str, int | None, float | None, str]]:
        """Yield feature, value, number and unit of each value."""
        n = len(self.features)
        numbers, units = self.numbers or (None,) * n, self.units or ("",) * n
        return zip(self.features, self.values, numbers, units, strict=True)


def action_of(kind: Kind, readings: Mapping[str, ReadValue], cost: float, reason: str) -> Action:
    """The step that takes in these readings."""
    features, values = tuple(readings), tuple(reading.code for reading in readings.values())
    if all(reading.number is None for reading in readings.values()):
        return Action(kind, features, values, cost, reason)
    numbers, units = zip(*((reading.number, reading.unit) for reading in readings.values()), strict=True)
    return Action(kind, features, values, cost, reason, numbers, units)


class Log:
    """The actions so far, and what follows from them."""

    def __init__(self, actions: Iterable[Action] = ()) -> None:
        self.actions, self.spent = list[Action](), 0.0
        self.observed, self.skipped = dict[str, int](), set[str]()
        self.numbers = dict[str, float]()
        for action in actions:
            self.add(action)

    def add(self, action: Action) -> None:
        """Take in one more action; a `PlannerError` where the sum of all costs is beyond what a number can hold."""
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
            self.observed[feature] = value  # a correction keeps its place in the order
            self.numbers.pop(feature, None)
            if measured is not None:
                self.numbers[feature] = measured


@dataclass(frozen=True)
class Suggestion:
    """What to measure next: a panel, or a feature by itself.

    name : of the panel or the feature. features : what of it is still open, the rule's choice first.
    cost : what it adds to what has been spent. reason : why this one.
    over : the duels whose gain chose it, with their weights; None where no gain did.
    """

    name: str
    features: tuple[str, ...]
    cost: float
    reason: str
    over: DuelWeights | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class Menu:
    """I items that partition the M features, in order of their first feature.

    names : I names. members : the features of each item, by index. item_of : (M,) index of each feature's item.
    of_feature : the same by the feature's name. cost : (I,) non-negative. panels : features by name of the panel.
    """

    names: tuple[str, ...]
    of_feature: Mapping[str, int]
    members: tuple[tuple[int, ...], ...]
    item_of: NDArray[np.int64]
    cost: Floats
    panels: Mapping[str, Sequence[str]]

    @property
    def plain(self) -> bool:
        """Whether all items are single features of equal cost, so that gain per cost orders them as gain does."""
        return len(self.names) == len(self.item_of) and bool((self.cost == self.cost[0]).all())

    def places(self, first: Sequence[str]) -> tuple[int, ...]:
        """The items of these features or panels, in their order, each once."""
        known = {**{name: i for i, name in enumerate(self.names)}, **self.of_feature}
        for name in first:
            if name not in known:
                found, expected = f"the unknown name {name!r}", "names of features or panels"
                raise PlannerError(Fault("planner option first", found, expected, suggestion(str(name), known)))
        return tuple(dict.fromkeys(known[name] for name in first))

    def per_cost(self, gain: Floats, open_: NDArray[np.bool_]) -> Floats:
        """(M,) gain of each feature's item, summed over its open features, by unit of cost; 0 at closed features.

        Free items are divided by 1. The sum takes the features of a panel as if each taught something of its own.
        """
        total = np.bincount(self.item_of, weights=np.where(open_, gain, 0.0), minlength=len(self.names))
        worth = total / np.where(self.cost > 0, self.cost, 1.0)
        return np.where(open_, worth[self.item_of], 0.0)


class Offer(NamedTuple):
    """What can be asked for now.

    open : (M,) features that are neither observed, nor known without, nor known to be unmeasurable. price : (I,) what
    each item costs now, nothing once something has been paid for a part of it. affordable : (M,) open features whose
    item costs no more than what is left.
    """

    open: NDArray[np.bool_]
    price: Floats
    affordable: NDArray[np.bool_]


def offer_of(menu: Menu, bundle: Bundle, log: Log, left: float) -> Offer:
    """What of the menu can be asked for after the steps of the log, with so much of the budget left."""
    closed = log.observed.keys() | log.skipped | excluded_by(bundle, log.observed)
    open_ = np.array([name not in closed for name in bundle.features], dtype=bool)
    price = menu.cost.copy()
    if len(menu.names) < len(menu.item_of):  # of a panel something can be open that is paid for
        paid = (name for action in log.actions if action.cost > 0 for name in action.features)
        price[[menu.of_feature[name] for name in paid]] = 0.0
    return Offer(open_, price, open_ & (price <= left * (1 + 1e-12))[menu.item_of])


def measurements_of(bundle: Bundle) -> dict[str, tuple[str, ...]]:
    """The features that come of one measurement, by its name, as groups.csv has them."""
    groups = () if bundle.rates is None else bundle.rates.measurements
    return {name: tuple(bundle.features[j] for j in members) for name, members in groups}


def excluded_by(bundle: Bundle, observed: Mapping[str, int]) -> set[str]:
    """Return the unobserved features that cannot be +1, as another feature of their exclusive group is."""
    groups = ({bundle.features[j] for j in members} for _, members in bundle.exclusive)
    hit = (group for group in groups if any(observed.get(name) == 1 for name in group))
    return set().union(*hit) - observed.keys()


def check_exclusive(bundle: Bundle, values: Mapping[str, float]) -> None:
    """Refuse two features of one exclusive group that are both +1."""
    for name, members in bundle.exclusive:
        present = [bundle.features[j] for j in members if values.get(bundle.features[j]) == 1]
        if len(present) > 1:
            found, step = f"{' and '.join(present)} at 1", "correct the wrong one"
            raise PlannerError(Fault(f"group {name}", found, "at most one", step))


def menu_of(bundle: Bundle, costs: Costs, panels: Panels) -> Menu:
    """The menu of a bundle's features, or a `PlannerError` that names the cost or the panel which does not fit.

    costs : by name of a feature or a panel; a feature that is not named costs what the bundle says, or 1, and a panel
        the sum of its features. None takes the bundle's, `equal` lets every feature cost 1.
    panels : features by name of the panel, None for the bundle's measurements; a feature is in one panel at most. One
        that is a measurement of the bundle costs what a single feature costs, unless the bundle or `costs` say
        otherwise.
    """
    panels = measurements_of(bundle) if panels is None else panels
    if not isinstance(panels, Mapping):
        step = "give {name: [features]}"
        raise PlannerError(Fault("planner option panels", type(panels).__name__, "features by panel", step))
    panels = {name: list(features) if is_list(features) else features for name, features in panels.items()}
    index = {name: j for j, name in enumerate(bundle.features)}
    panel_of = _panel_of(panels, index)
    given = _given_costs(costs, set(index) | set(panels))
    own = bundle.costs.copy() if bundle.costs is not None and costs != EQUAL else np.ones(len(index))
    for name, features in measurements_of(bundle).items() if bundle.costs is None or costs == EQUAL else ():
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
    """Whether a value is several, in any kind of collection; a text is one."""
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
    if costs is None or (isinstance(costs, str) and costs == EQUAL):
        return {}
    where = "planner option costs"
    if not isinstance(costs, Mapping):
        expected = f"None, {EQUAL!r}, or costs by name"
        raise PlannerError(Fault(where, repr(costs), expected, "leave it out for the bundle's own"))
    for name, cost in costs.items():
        if name not in known:
            found = f"a cost of {name!r}"
            raise PlannerError(Fault(where, found, "names of features or panels", suggestion(str(name), known)))
        check_number(PlannerError, f"{where}, {name}", cost, "a finite number, 0 or more", lambda x: 0 <= x < np.inf)
    return {name: float(cost) for name, cost in costs.items()}


def chosen_item(rule: Rule, view: View, menu: Menu, price: Floats, offered: NDArray[np.bool_]) -> Suggestion:
    """The item that the rule chooses among the features on offer, (M,) bool, free ones first; `price` is (I,)."""
    free = offered & (price == 0)[menu.item_of]
    for among in (free, offered) if free.any() else (offered,):
        choice = rule.choose(_offering(view, menu, among))
        if not 0 <= choice.feature < len(among) or not among[choice.feature]:
            where, expected = f"rule {type(rule).__name__}", "an index of an unobserved feature"
            raise PlannerError(Fault(where, str(choice.feature), expected, "correct the rule's choose()"))
        if not choice.fallback or free[offered].all():
            break
    item = int(menu.item_of[choice.feature])
    others = [j for j in menu.members[item] if offered[j] and j != choice.feature]
    features = tuple(view.features[j] for j in (choice.feature, *others))
    return Suggestion(menu.names[item], features, float(price[item]), choice.reason, choice.over)


def _offering(view: View, menu: Menu, offered: NDArray[np.bool_]) -> View:
    """The view with all else closed, and gains by item and cost; the same view where that changes nothing."""
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
    """One row for each value, in order: step, kind, feature, value (None where skipped), cost, spent, reason.

    `number` and `unit` follow: the number behind the value, None where a code was given. The cost of a panel stands at
    its first row.
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
    """The readings to take in by feature, without those that are missing; a `PlannerError` where any does not fit.

    values : codes or words. numbers : measured, in the unit of each feature.
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
            code = code_of(bundle, feature, 0 if key == "numbers" else value)  # a wrong name is an error either way
            given[feature] = reading_of(bundle, feature, value) if key == "numbers" else ReadValue(code)
    if not given:
        raise PlannerError(Fault("observations", "none", "one or more", "name a feature and its value"))
    return given


def _is_missing(value: Any) -> bool:
    """Whether a cell of a table holds nothing: None, NaN or pandas' NA."""
    if isinstance(value, int | np.integer | str):
        return False
    import pandas as pd  # noqa: PLC0415 (slow to load, and who gives whole numbers does without)

    return bool(pd.isna(value))
