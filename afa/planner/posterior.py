"""A text that explains posterior probabilities to users, such as `if exactly one of them holds`."""

from __future__ import annotations

from afa.planner.base import Planner
from afa.planner.binary import BinaryPlanner
from afa.planner.topk import TopKPlanner


def posterior_is_of(planner: Planner) -> str:
    """Return a text with the assumption behind `Planner.probabilities`, such as `if exactly one of them holds`.

    The assumption is how many entities a patient can have. For a binary question, the text names the entity and its
    absence instead.
    """
    if isinstance(planner, BinaryPlanner):
        return " and ".join(f"of {planner.question_bundle.shown(name)}" for name in planner.bundle.entities)
    assert isinstance(planner, TopKPlanner)
    if planner.holds == "several":
        return "of each one separately"
    return f"if {'at most' if planner.holds == 'one or none' else 'exactly'} one of them holds"
