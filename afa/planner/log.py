"""What has been done with a planner, step by step: enough to undo the last step, or to do all again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["observe", "skip", "correct"]


@dataclass(frozen=True)
class Action:
    """One step: values that came in, a value corrected, or what cannot be measured, by its `kind`.

    features, values : what it was about; a skipped feature has the value None. cost : what was paid.
    reason : why the planner had asked for it, or that it had not.
    """

    kind: Kind
    features: tuple[str, ...]
    values: tuple[int | None, ...]
    cost: float
    reason: str


@dataclass
class Log:
    """The actions so far, and what follows from them."""

    actions: list[Action] = field(default_factory=list)
    observed: dict[str, int] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    spent: float = 0.0

    def add(self, action: Action) -> None:
        """Take in one more action."""
        self.actions.append(action)
        self.spent += action.cost
        for feature, value in zip(action.features, action.values, strict=True):
            if value is None:
                self.skipped.add(feature)
            else:
                self.skipped.discard(feature)
                self.observed[feature] = value  # a correction keeps its place in the order


def log_of(actions: Iterable[Action]) -> Log:
    """The log of these actions, in their order."""
    log = Log()
    for action in actions:
        log.add(action)
    return log
