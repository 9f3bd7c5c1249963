"""The posterior that a planner shows: by entity, and in words what each number is the probability of."""

from __future__ import annotations

from afa.planner.base import Planner
from afa.planner.binary import BinaryPlanner
from afa.planner.topk import TopKPlanner


def posterior_is_of(planner: Planner) -> str:
    """What the numbers of `posterior_of` are the probability of."""
    if isinstance(planner, BinaryPlanner):
        return " and ".join(f"of {planner.asked_of.shown(name)}" for name in planner.bundle.entities)
    assert isinstance(planner, TopKPlanner)
    if planner.holds == "several":
        return "of each by itself"
    return f"if {'at most' if planner.holds == 'one or none' else 'exactly'} one of them holds"


def posterior_of(planner: Planner) -> dict[str, float]:
    """By entity, the probability that it holds if exactly one does; of one entity alone, of it and of its absence.

    Of a bundle that says how often, what `TopKPlanner.posterior` says of as many as hold.
    """
    if isinstance(planner, BinaryPlanner):
        return dict(zip(planner.bundle.entities, (planner.probability(), 1 - planner.probability()), strict=True))
    assert isinstance(planner, TopKPlanner)
    return dict(zip(planner.bundle.entities, planner.posterior().tolist(), strict=True))
