"""What can be measured and at what price, single features and panels of features, and what a rule chooses of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.allocate import Choice, Rule, View
from afa.bundle import Bundle
from afa.csvfile import suggestion
from afa.engine.patient import DuelWeights
from afa.errors import Fault, PlannerError, check_number
from afa.mrf import Floats
from afa.planner.implied import implied_values
from afa.planner.log import Log

EQUAL = "equal"
Costs = Mapping[str, float] | str | None
Panels = Mapping[str, Sequence[str]] | None


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
    of_feature : the same by the feature's name. cost : (I,) non-negative.
    """

    names: tuple[str, ...]
    of_feature: Mapping[str, int]
    members: tuple[tuple[int, ...], ...]
    item_of: NDArray[np.int64]
    cost: Floats

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
    closed = log.observed.keys() | log.skipped | implied_by(bundle, log.observed)
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


def panels_of(bundle: Bundle, given: Panels) -> dict[str, Sequence[str]]:
    """The panels that are given, or the bundle's measurements."""
    panels = measurements_of(bundle) if given is None else given
    if not isinstance(panels, Mapping):
        step = "give {name: [features]}"
        raise PlannerError(Fault("planner option panels", type(panels).__name__, "features by panel", step))
    return {name: list(features) if is_list(features) else features for name, features in panels.items()}


def implied_by(bundle: Bundle, observed: Mapping[str, int]) -> set[str]:
    """The features that need not be measured: another one of their exclusive group is +1, or one implies them."""
    groups = ({bundle.features[j] for j in members} for _, members in bundle.exclusive)
    hit = (group for group in groups if any(observed.get(name) == 1 for name in group))
    return set().union(*hit, implied_values(bundle, observed)) - observed.keys()


def check_together(bundle: Bundle, values: Mapping[str, float]) -> None:
    """Refuse two features of one exclusive group that are both +1, and one that is 0 though another implies it."""
    implied_values(bundle, values)
    for name, members in bundle.exclusive:
        present = [bundle.features[j] for j in members if values.get(bundle.features[j]) == 1]
        if len(present) > 1:
            found, step = f"{' and '.join(present)} at 1", "correct the wrong one"
            raise PlannerError(Fault(f"group {name}", found, "at most one", step))


def menu_of(bundle: Bundle, costs: Costs, panels: Mapping[str, Sequence[str]]) -> Menu:
    """The menu of a bundle's features, or a `PlannerError` that names the cost or the panel which does not fit.

    costs : by name of a feature or a panel; a feature that is not named costs what the bundle says, or 1, and a panel
        the sum of its features. None takes the bundle's, `equal` lets every feature cost 1.
    panels : features by name of the panel; a feature is in one panel at most. One that is a measurement of the bundle
        costs what a single feature costs, unless the bundle or `costs` say otherwise.
    """
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
    return Menu(names, of_feature, tuple(map(tuple, members)), item_of, cost)


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
    choice = _choice(rule, _offering(view, menu, free), free) if free.any() else None
    if choice is None or (choice.fallback and not free[offered].all()):
        choice = _choice(rule, _offering(view, menu, offered), offered)
    item = int(menu.item_of[choice.feature])
    others = [j for j in menu.members[item] if offered[j] and j != choice.feature]
    features = tuple(view.features[j] for j in (choice.feature, *others))
    return Suggestion(menu.names[item], features, float(price[item]), choice.reason, choice.over)


def _choice(rule: Rule, view: View, offered: NDArray[np.bool_]) -> Choice:
    choice = rule.choose(view)
    if not 0 <= choice.feature < len(offered) or not offered[choice.feature]:
        expected = "an index of an unobserved feature"
        raise PlannerError(
            Fault(f"rule {type(rule).__name__}", str(choice.feature), expected, "correct the rule's choose()")
        )
    return choice


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
        find_information=lambda among, _: menu.per_cost(replace(view, observed=~among).information(every=True), among),
    )
