"""The words that follow *posterior probability* in the labels of plots and of the web page."""

from __future__ import annotations

from afa.planner.base import Planner
from afa.planner.binary import BinaryPlanner
from afa.planner.topk import TopKPlanner


def posterior_is_of(planner: Planner) -> str:
    """Return the words that follow *posterior probability* in a label, such as `if exactly one of them holds`.

    For a planner of the top k, the words state how many entities a patient can have. For a binary question, the words
    name the entity and its absence.
    """
    if isinstance(planner, BinaryPlanner):
        return " and ".join(f"of {planner.question_bundle.shown(name)}" for name in planner.bundle.entities)
    assert isinstance(planner, TopKPlanner)
    if planner.holds == "several":
        return "of each one separately"
    return f"if {'at most' if planner.holds == 'one or none' else 'exactly'} one of them holds"
