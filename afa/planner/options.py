"""The options that both planners have: checked once, and told again as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afa.allocate import RULES, Rule
from afa.bundle import Bundle, load_bundle
from afa.engine.gains import GAIN_KINDS
from afa.errors import Fault, PlannerError
from afa.gain import TARGETS
from afa.inference.meanfield import Solver
from afa.planner.menu import Costs, Panels
from afa.planner.stop import Stop

if TYPE_CHECKING:
    from afa.planner.base import Planner

SCORES = ("linearity", "wald", "two_elbo", "stack_a", "kl_nonzero")
ALL_DUELS_UP_TO = 200
"""Entities: with more of them, what goes over all duels goes over clusters or the top-k boundary instead."""
GAINS = tuple(dict.fromkeys(gain for gain, _ in GAIN_KINDS))
EXACT_SCORES = ("linearity", "two_elbo", "wald", "kl_nonzero")


@dataclass(frozen=True, kw_only=True)
class Options:
    """As given to a planner; what they mean is said at `TopKPlanner`. A wrong one raises a `PlannerError`."""

    score: str
    gain: str
    target: str | None
    allocation: str | Rule
    inference: str
    solver: Solver | None
    start: str
    look_ahead: str
    costs: Costs
    panels: Panels
    first: Sequence[str]
    stop: Stop | Callable[[Planner], str | bool | None] | None
    patient: str
    seed: int

    def __post_init__(self) -> None:
        if self.score == "kl":
            expected = "a score in which a beats b whenever b loses to a"
            step = "use kl_nonzero, its antisymmetric form"
            raise PlannerError(Fault("planner option score", "'kl'", expected, step))
        one_of("score", self.score, SCORES)
        one_of("gain", self.gain, GAINS)
        one_of("start", self.start, ("uniform", "warm"))
        one_of("look_ahead", self.look_ahead, ("same", "warm"))
        one_of("inference", self.inference, ("mean_field", "exact"))
        if self.gain == "f_target":
            one_of("target", str(self.looked_ahead_to), TARGETS)
        elif self.target is not None:
            where, expected = "planner option target", "none unless gain is f_target"
            raise PlannerError(Fault(where, repr(self.target), expected, "leave it out"))
        if self.inference == "exact" and (self.score not in EXACT_SCORES or self.gain == "f_target"):
            found = f"exact with {self.score} and {self.gain}"
            expected = f"score {', '.join(EXACT_SCORES)} and gain cmi or wald_magnitude"
            step = "use inference='mean_field'"
            raise PlannerError(Fault("planner option inference", found, expected, step))
        if isinstance(self.allocation, str):
            one_of("allocation", self.allocation, tuple(RULES))
        elif not callable(getattr(self.allocation, "choose", None)):
            found, expected = repr(self.allocation), f"{' or '.join(RULES)}, or an object with the method choose(view)"
            raise PlannerError(Fault("planner option allocation", found, expected, "choose one of these"))
        if self.stop is not None and not isinstance(self.stop, Stop) and not callable(self.stop):
            step = "give afa.Stop(certain=True)"
            raise PlannerError(Fault("planner option stop", repr(self.stop), "an afa.Stop or a function", step))
        if isinstance(self.first, str):
            step = f"give [{self.first!r}]"
            raise PlannerError(Fault("planner option first", repr(self.first), "a list of names", step))

    @cached_property
    def rule(self) -> Rule:
        return RULES[self.allocation]() if isinstance(self.allocation, str) else self.allocation

    @property
    def rules_of_stopping(self) -> Stop:
        return self.stop if isinstance(self.stop, Stop) else Stop(own=self.stop)

    @property
    def looked_ahead_to(self) -> str | None:
        """The target of `f_target`: the guiding score where none is given and that can be one."""
        return self.target or (self.score if self.gain == "f_target" and self.score in TARGETS else None)

    def of_patient(self) -> dict[str, Any]:
        """The options of `afa.engine.patient.Patient`."""
        names = ("solver", "start", "inference", "gain", "look_ahead")
        return {name: getattr(self, name) for name in names} | {"target": self.looked_ahead_to}

    def plain(self) -> dict[str, Any]:
        """All of them as plain values; `allocation` is None for a custom rule."""
        named = next((name for name, rule in RULES.items() if type(self.rule) is rule), None)
        same = ("score", "gain", "inference", "start", "look_ahead", "patient", "seed")
        return {name: getattr(self, name) for name in same} | {
            "target": self.looked_ahead_to,
            "allocation": named,
            "solver": asdict(self.solver or Solver()),
            "costs": dict(self.costs) if isinstance(self.costs, Mapping) else self.costs,
            "panels": {name: list(features) for name, features in (self.panels or {}).items()},
            "first": list(self.first),
            "stop": self.rules_of_stopping.plain(),
        }


def bundle_given(bundle: Bundle | str | Path) -> Bundle:
    """A bundle, or that of a folder."""
    if isinstance(bundle, str | Path):
        return load_bundle(bundle)
    if not isinstance(bundle, Bundle):
        step = "give afa.load_bundle(folder), or the folder"
        raise PlannerError(Fault("planner option bundle", type(bundle).__name__, "a Bundle, or its folder", step))
    return bundle


def one_of(option: str, given: str, known: Sequence[str]) -> None:
    """Refuse an option of the planner that is not among the known ones."""
    if given not in known:
        raise PlannerError(Fault(f"planner option {option}", repr(given), " or ".join(known), "choose one of these"))
