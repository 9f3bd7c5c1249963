"""Allocation rules: choose the next feature from the gains of all duels. One file a rule.

A rule is a class with the method `choose(view) -> Choice`, in any file of this folder; its name is the class name in
snake case: `PriorityAll` is `priority_all`. The class attribute `in_the_grid = 9` makes each run compare the rule, at
position nine; `looks_at = "nothing"` marks a rule without gains. Rules in `COMPILED` of `afa.engine.rules` have a
kernel there; other rules run in Python, one patient at a time, about a hundred times slower. The page docs/decisions.md
explains where the rules differ from the paper.
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
"""Rule name -> class, found in this folder (`afa.model.rule_names`)."""

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
