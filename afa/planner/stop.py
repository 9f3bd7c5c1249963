"""When a planner stops asking: by what may be spent, by certainty, by probability, or for want of gain."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from afa.errors import Fault, PlannerError


@dataclass(frozen=True)
class Stop:
    """The first of these that holds ends the acquisition; with none, it ends when everything has been measured.

    budget : the most that may be spent, in the units of the costs. What costs more than is left is passed over for
        what can be afforded; the acquisition ends when nothing can.
    certain : stop when no completion of what is open can change the answer: all duels across the top-k boundary, or
        the duel of the two classes, are resolved by the tight `l1` bracket. Never wrong about the answer at full
        observation; right about the patient only as far as the bundle is.
    probability : stop at this probability, above 1/2 and below 1, that the answer stays as it is
        (`TopKPlanner.boundary_probability`, `BinaryPlanner.probability`). An estimate by the bundle's own models: how
        often it errs has to be measured (docs/stopping.md).
    gain : stop when no open feature or panel has more than this gain, summed over the open duels; 0 or more.

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

    def __post_init__(self) -> None:
        for option, value, expected, fits in (
            ("budget", self.budget, "a number, 0 or more", lambda x: x >= 0),
            ("probability", self.probability, "a number above 0.5 and below 1", lambda x: 0.5 < x < 1),
            ("gain", self.gain, "a number, 0 or more", lambda x: x >= 0),
        ):
            if value is None:
                continue
            if not isinstance(value, Real) or isinstance(value, bool) or not fits(value):
                step = "leave it out, or give such a number"
                raise PlannerError(Fault(f"stop option {option}", repr(value), expected, step))
        if not isinstance(self.certain, bool):
            raise PlannerError(Fault("stop option certain", repr(self.certain), "True or False", "give one of these"))
