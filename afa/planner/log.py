"""What has been done with a planner, step by step: enough to undo the last step, or to do all again."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Literal

import numpy as np

from afa.bundle import Bundle
from afa.csvfile import suggestion
from afa.errors import Fault, PlannerError
from afa.mrf import VALUES

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


def history_of(actions: Iterable[Action]) -> list[dict[str, Any]]:
    """One row for each value, in order: step, kind, feature, value (None where skipped), cost, spent, reason.

    The cost of a panel stands at its first row.
    """
    rows, spent = list[dict[str, Any]](), 0.0
    for step, action in enumerate(actions, start=1):
        spent += action.cost
        for i, (feature, value) in enumerate(zip(action.features, action.values, strict=True)):
            row = {"step": step, "kind": action.kind, "feature": feature, "value": value}
            rows.append(row | {"cost": 0.0 if i else action.cost, "spent": spent, "reason": action.reason})
    return rows


def log_of(actions: Iterable[Action]) -> Log:
    """The log of these actions, in their order."""
    log = Log()
    for action in actions:
        log.add(action)
    return log


def is_missing(value: Any) -> bool:
    """Whether a cell of a table holds nothing: None, NaN or pandas' NA."""
    if isinstance(value, int | np.integer):
        return False
    import pandas as pd  # noqa: PLC0415 (slow to load, and who gives whole numbers does without)

    return bool(pd.isna(value))


def checked(bundle: Bundle, feature: Any, value: Any = 0) -> None:
    """Refuse what is no feature, or no value that it can take."""
    if not isinstance(feature, str) or feature not in bundle.features:
        raise unknown(bundle.features, feature)
    if isinstance(value, bool) or not isinstance(value, Real) or value not in VALUES:
        step = "encode the measurement as ternary first"
        raise PlannerError(Fault(f"feature {feature}", repr(value), "-1, 0 or 1", step))
    if bundle.ternary:
        return
    possible = bundle.possible[bundle.features.index(feature)]
    if not possible[VALUES.index(value)]:
        expected = " or ".join(str(known) for known, can_be in zip(VALUES, possible, strict=True) if can_be)
        step = "check the measurement, or the values that features.csv gives this feature"
        raise PlannerError(Fault(f"feature {feature}", f"{float(value):g}", expected, step))


def unknown(features: Collection[str], feature: Any) -> PlannerError:
    """The error for a name that is no feature, with the nearest one."""
    step = suggestion(feature, features) if isinstance(feature, str) else "give its name"
    step = "see bundle.features" if step.startswith("correct") else step
    return PlannerError(Fault(f"feature {feature!r}", "an unknown name", "a feature of the bundle", step))


def affordable(spent: float, cost: float) -> None:
    """Refuse a cost with which the sum of all costs is beyond what a number can hold."""
    if not np.isfinite(spent + float(cost)):
        found, step = f"{cost:g}, after {spent:g}", "give costs in a larger unit"
        raise PlannerError(Fault("cost of an observation", found, "a finite sum of costs", step))
