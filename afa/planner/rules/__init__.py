"""Allocation rules: which feature to measure next, given what every duel would gain. One file a rule.

A rule is a class with the method `choose(view) -> Choice`, in any file of this folder, and is known by the name of its
class: `PriorityAll` is `priority_all`. Its class says `in_the_grid = 9` where each run compares it, as the ninth, and
`looks_at = "nothing"` where it looks at no gain. The engine follows those in `COMPILED` of `afa.engine.rules`, with a
twin of their weights there; any other is followed patient by patient, some hundred times slower.
"""

from importlib import import_module

from afa.model.rule_names import RULE_CLASSES
from afa.planner.rules.base import Choice, Rule, View
from afa.planner.rules.boundary import Boundary
from afa.planner.rules.check import check_policy
from afa.planner.rules.clustered import Clustered
from afa.planner.rules.frontier import Frontier
from afa.planner.rules.greedy import Greedy
from afa.planner.rules.information import Information
from afa.planner.rules.largest_unary import LargestUnary
from afa.planner.rules.lucb import Lucb
from afa.planner.rules.priority import PriorityAll, PriorityClusters
from afa.planner.rules.random import Random

RULES: dict[str, type[Rule]] = {
    name: getattr(import_module(f"{__name__}.{module}"), class_name)
    for name, (module, class_name) in RULE_CLASSES.items()
}
"""The rules by name, read from this folder (`afa.model.rule_names`)."""

__all__ = [
    "RULES",
    "Boundary",
    "Choice",
    "Clustered",
    "Frontier",
    "Greedy",
    "Information",
    "LargestUnary",
    "Lucb",
    "PriorityAll",
    "PriorityClusters",
    "Random",
    "Rule",
    "View",
    "check_policy",
]
