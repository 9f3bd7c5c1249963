"""When a planner stops asking: by what may be spent, by certainty, by probability, or for want of gain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from afa.errors import Fault, PlannerError

if TYPE_CHECKING:
    from afa.planner.base import Planner


@dataclass(frozen=True)
class Stop:
    """The first of these that holds ends the acquisition; with none, it ends when everything has been measured.

    budget : the most that may be spent, in the units of the costs. What costs more than is left is passed over for
        what can be afforded; the acquisition ends when nothing can.
    certain : stop when no remaining measurement can change the answer: all duels across the top-k boundary, or
        the duel of the two classes, are resolved by the tight `l1` bracket. Never wrong about the answer at full
        observation; right about the patient only as far as the bundle is.
    posterior : stop when the answer has this posterior probability, above 0 and below 1 (`answer_probability` of the
        planner), and is no tie. Right only as far as the bundle's models are: how often it errs has to be measured
        (docs/stopping.md).
    probability : stop at this probability, above 1/2 and below 1, that the answer stays as it is
        (`TopKPlanner.boundary_probability`, `BinaryPlanner.probability`). An estimate by the same models.
    gain : stop when no open feature or panel has more than this gain, summed over the open duels; 0 or more.
    own : a rule of your own: given the planner, it answers with the reason to stop, or True, or with None or False to
        go on. `stop=rule` of a planner is short for `stop=Stop(own=rule)`.

    >>> from afa.bundle import load_bundle
    >>> from afa.planner import TopKPlanner
    >>> planner = TopKPlanner(load_bundle("tests/data/bundle_tiny"), k=1, stop=Stop(gain=9))
    >>> planner.suggest(), planner.reason
    (None, 'the largest gain left is 0.2497, at most 9')
    """

    budget: float | None = None
    certain: bool = False
    probability: float | None = None
    gain: float | None = None
    posterior: float | None = None
    own: Callable[[Planner], str | bool | None] | None = None

    def __post_init__(self) -> None:
        for option, value, expected, fits in (
            ("budget", self.budget, "a number, 0 or more", lambda x: x >= 0),
            ("probability", self.probability, "a number above 0.5 and below 1", lambda x: 0.5 < x < 1),
            ("posterior", self.posterior, "a number above 0 and below 1", lambda x: 0 < x < 1),
            ("gain", self.gain, "a number, 0 or more", lambda x: x >= 0),
        ):
            if value is None:
                continue
            if not isinstance(value, Real) or isinstance(value, bool) or not fits(value):
                step = "leave it out, or give such a number"
                raise PlannerError(Fault(f"stop option {option}", repr(value), expected, step))
        if not isinstance(self.certain, bool):
            raise PlannerError(Fault("stop option certain", repr(self.certain), "True or False", "give one of these"))
        if self.own is not None and not callable(self.own):
            expected = "a function of the planner"
            raise PlannerError(Fault("stop option own", repr(self.own), expected, "give a function, or leave it out"))

    def met_by(self, planner: Planner) -> str | None:
        """The rule by which the planner's answer is good enough, in words; None where none holds. `budget` is none."""
        if self.certain and planner.certain():
            return "the answer is certain: no remaining measurement can change it"
        posterior, probability = self.posterior, self.probability
        if posterior is not None and not planner.undecided() and (now := planner.answer_probability()) >= posterior:
            return f"the answer has posterior probability {now:.4f}, at least {posterior:g}"
        if probability is not None and (now := planner.confidence()) >= probability:
            return f"the answer stays with probability {now:.4f}, at least {probability:g}"
        if self.gain is not None and (most := planner.largest_gain()) <= self.gain:
            return f"the largest gain left is {most:.4g}, at most {self.gain:g}"
        if self.own is not None and (said := self.own(planner)):
            return said if isinstance(said, str) else "your own rule of stopping holds"
        return None

    def plain(self) -> dict[str, Any]:
        """All of it as plain values; `own` says whether there is a custom rule."""
        return {
            "budget": self.budget,
            "certain": self.certain,
            "probability": self.probability,
            "gain": self.gain,
            "posterior": self.posterior,
            "own": self.own is not None,
        }
