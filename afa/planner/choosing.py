"""What a rule chooses when only some features can be had, and they have costs and come in panels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from afa.allocate import Choice, Rule, View
from afa.errors import Fault, PlannerError
from afa.mrf import Floats
from afa.planner.menu import Menu, Suggestion


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
            Fault(f"rule {type(rule).__name__}", str(choice.feature), expected, "mend the rule's choose()")
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
    )
