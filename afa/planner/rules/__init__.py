"""Allocation rules, which choose the next feature to measure.

Each rule has its own module. A rule is a class with the method `choose(view) -> Choice`. Most rules compare the gains
of features in duels (comparisons of two entities). A rule that uses no gains has the attribute `looks_at` with the
value "nothing".

The rules in `COMPILED` of `afa.engine.rules` have a compiled kernel. Other rules run in Python for one patient at a
time, which is about a hundred times slower. docs/decisions.md explains where the rules differ from the paper.
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
"""Mapping from the name of each rule to its class. `afa.model.rule_names` lists the names for modules that must not
import NumPy.
"""

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
