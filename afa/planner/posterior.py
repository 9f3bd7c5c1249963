"""The posterior probabilities that a planner shows, and a text on the condition under which they hold."""

from __future__ import annotations

from afa.planner.base import Planner
from afa.planner.binary import BinaryPlanner
from afa.planner.topk import TopKPlanner


def posterior_is_of(planner: Planner) -> str:
    """Return the condition of the probabilities of `posterior_of`, in words."""
    if isinstance(planner, BinaryPlanner):
        return " and ".join(f"of {planner.asked_of.shown(name)}" for name in planner.bundle.entities)
    assert isinstance(planner, TopKPlanner)
    if planner.holds == "several":
        return "of each by itself"
    return f"if {'at most' if planner.holds == 'one or none' else 'exactly'} one of them holds"


def posterior_of(planner: Planner) -> dict[str, float]:
    """Return the probabilities shown to people by entity; for the binary question, of the entity and of its absence.

    For a top-k question these are the values of `TopKPlanner.posterior`.
    """
    if isinstance(planner, BinaryPlanner):
        return dict(zip(planner.bundle.entities, (planner.probability(), 1 - planner.probability()), strict=True))
    assert isinstance(planner, TopKPlanner)
    return dict(zip(planner.bundle.entities, planner.posterior().tolist(), strict=True))
