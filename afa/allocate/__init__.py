"""Allocation rules: which feature to measure next, given what every duel would gain. One file a rule."""

from afa.allocate.base import Choice, Rule, View
from afa.allocate.boundary import Boundary
from afa.allocate.check import check_policy
from afa.allocate.clustered import Clustered
from afa.allocate.greedy import Greedy
from afa.allocate.largest_unary import LargestUnary
from afa.allocate.lucb import Lucb
from afa.allocate.priority import PriorityAll, PriorityClusters
from afa.allocate.random import Random

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

__all__ = [
    "RULES",
    "Boundary",
    "Choice",
    "Clustered",
    "Greedy",
    "LargestUnary",
    "Lucb",
    "PriorityAll",
    "PriorityClusters",
    "Random",
    "Rule",
    "View",
    "check_policy",
]
