"""Allocation rules: which feature to measure next, given what every duel would gain. One file a rule."""

from afa.allocate.base import Choice, Rule, View
from afa.allocate.greedy import Greedy
from afa.allocate.largest_unary import LargestUnary
from afa.allocate.random import Random

RULES: dict[str, type[Rule]] = {"random": Random, "largest_unary": LargestUnary, "greedy": Greedy}

__all__ = ["RULES", "Choice", "Greedy", "LargestUnary", "Random", "Rule", "View"]
