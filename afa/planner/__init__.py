"""Planners suggest the next measurement for a patient, and report the current answer and its probability."""

from afa.planner.base import Planner
from afa.planner.binary import BinaryPlanner
from afa.planner.menu import Action, Suggestion
from afa.planner.options import ALL_DUELS_UP_TO, DUEL_GAINS, EXACT_SCORES, GAINS, SCORES, Stop
from afa.planner.topk import TopKPlanner

__all__ = [
    "ALL_DUELS_UP_TO",
    "DUEL_GAINS",
    "EXACT_SCORES",
    "GAINS",
    "SCORES",
    "Action",
    "BinaryPlanner",
    "Planner",
    "Stop",
    "Suggestion",
    "TopKPlanner",
]
