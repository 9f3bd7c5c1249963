"""What is common to both ways of talking: names as people write them, and the answer so far as plain values."""

from __future__ import annotations

from collections import Counter
from typing import Any

from afa.copeland import copeland_wins
from afa.csvfile import suggestion
from afa.errors import Fault, PlannerError
from afa.planner import BinaryPlanner, Planner, TopKPlanner

WRITTEN = {"-1": -1, "-": -1, "0": 0, "1": 1, "+1": 1, "+": 1}


def feature_named(planner: Planner, written: str) -> str:
    """The feature that a name stands for: itself, one of its aliases, or the only one that differs in case alone.

    A panel's name stands for itself. Raises `PlannerError` with the nearest name where there is none.
    """
    names: dict[str, str] = {name: name for name in planner.panels}
    names |= {alias: name for name, aliases in planner.asked_of.aliases.items() for alias in aliases}
    names |= {name: name for name in planner.bundle.features}
    if written in names:
        return names[written]
    alike = {name for shown, name in names.items() if shown.casefold() == written.casefold()}
    if len(alike) == 1:
        return alike.pop()
    step = suggestion(written, names)
    step = "ask for the list of features" if step.startswith("correct") else step
    raise PlannerError(Fault(f"feature {written!r}", "an unknown name", "a feature of the bundle, or an alias", step))


def value_written(feature: str, written: str) -> int:
    """-1, 0 or 1 from `-1`, `-`, `0`, `1`, `+1` or `+`."""
    if written not in WRITTEN:
        raise PlannerError(Fault(f"value of {feature}", repr(written), "-1, 0 or 1", "write one of these"))
    return WRITTEN[written]


def answer_of(planner: Planner) -> dict[str, Any]:
    """The answer so far: `top_k` or `decision`, whether it is `certain`, and its `probability`."""
    if isinstance(planner, BinaryPlanner):
        return {
            "entity": planner.entity,
            "decision": planner.decision(),
            "probability": planner.probability(),
            "certain": planner.certain(),
        }
    assert isinstance(planner, TopKPlanner)
    return {
        "top_k": planner.top_k(),
        "probability": planner.boundary_probability(),
        "certain": planner.certain(),
    }


def standings(planner: TopKPlanner) -> list[dict[str, Any]]:
    """Every entity, best first: `entity`, `wins` (ties half), `certain` (its duels resolved), `posterior`."""
    wins = dict(zip(planner.bundle.entities, copeland_wins(planner.scores()), strict=True))
    posterior = dict(zip(planner.bundle.entities, planner.posterior(), strict=True))
    resolved = Counter(name for duel in planner.resolved() for name in duel)
    return [
        {"entity": v, "wins": float(wins[v]), "certain": resolved[v], "posterior": float(posterior[v])}
        for v in planner.ranking()
    ]
