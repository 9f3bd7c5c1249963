"""Allocation rules choose the next feature to measure. Most rules compare the gains of duels.

Each allocation rule has its own file.

A rule is a class with the method `choose(view) -> Choice`. If a rule uses no gains, its attribute `looks_at` is
"nothing". The rules in `COMPILED` of `afa.engine.rules` have a compiled kernel. Rules without a kernel run in Python,
one patient at a time, and are about a hundred times slower. docs/decisions.md explains where the rules differ from the
paper.
"""

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
    "random": Random,
    "largest_unary": LargestUnary,
    "greedy": Greedy,
    "lucb": Lucb,
    "clustered": Clustered,
    "priority_clusters": PriorityClusters,
    "priority_all": PriorityAll,
    "boundary": Boundary,
}
"""Rule name -> class. `afa.model.rule_names` lists the names for modules that must not import NumPy."""

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
