"""A patient's course before a model, turn by turn: asked, measured what was picked, asked again, until all is known.

The rule for what is no legal turn (decision N2): a turn whose answer breaks a rule is asked again, with what it
broke; when `Protocol.answers` answers did not help, the last one counts as far as it is legal. A pick that stays
illegal, or is not there, gives way to the unobserved feature that is first by name; a decision that is not there is
missing, which is no default but a wrong one, and both are counted.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from afa.baselines.briefing import Briefing, Trial
from afa.baselines.protocol import Protocol
from afa.baselines.turn import LABELS, PICK, Said, State, request, said
from afa.elicit.record import Entry, Outcome, Request

STANDS = "stands"
"""The outcome of a turn that was not asked since the model was done: its last decision stands."""


@dataclass(frozen=True)
class Turn:
    """What a turn came to, after t observations.

    asked : how many times. measured : the feature then measured, "" at checkpoints and at the end. by_rule : whether
    that is not the model's pick.
    """

    t: int
    outcome: Outcome | str
    said: Said
    asked: int
    measured: str = ""
    by_rule: bool = False


@dataclass(frozen=True)
class Broken:
    """A part of an answer that broke a rule; asked : which answer of the turn it was, from 1."""

    t: int
    asked: int
    part: str
    kind: str


@dataclass
class Course:
    """All turns of a trial, what was asked, and what was broken.

    path : features in the order in which they were observed.
    """

    trial: Trial
    turns: list[Turn] = field(default_factory=list)
    requests: list[tuple[int, int, Request]] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    path: list[str] = field(default_factory=list)


Asking = Generator[Request, Entry, Course]
"""Yields what is asked, is sent what came of it, and returns the whole."""


def follow(trial: Trial, briefing: Briefing, protocol: Protocol) -> Asking:
    """The course of a trial: at the rounds read out along the trial's order, or each turn by the model's own picks."""
    course, last = Course(trial), protocol.last_of(len(briefing.features))
    if trial.order is not None:
        for t in protocol.rounds_of(len(briefing.features)):
            course.path = list(trial.order[:t])
            turn = yield from _asked(course, _state(course), briefing, protocol, picks=False)
            course.turns.append(turn)
            if turn.said.done:
                break
        _stand(course, [t for t in protocol.rounds_of(len(briefing.features)) if t > course.turns[-1].t])
        return course
    while True:
        state = _state(course)
        turn = yield from _asked(course, state, briefing, protocol, picks=state.t < last)
        if turn.said.done or state.t == last:
            course.turns.append(turn)
            break
        legal = turn.said.pick if not turn.said.pick_fault else ""
        chosen = legal or state.unobserved(briefing)[0]
        course.turns.append(Turn(turn.t, turn.outcome, turn.said, turn.asked, chosen, not legal))
        course.path.append(chosen)
    _stand(course, list(range(course.turns[-1].t + 1, last + 1)))
    return course


def _state(course: Course) -> State:
    observed = tuple((feature, course.trial.values[feature]) for feature in course.path)
    earlier = tuple(
        {
            "turn": turn.t + 1,
            "feature": turn.measured,
            "value": course.trial.values[turn.measured],
            "labels": turn.said.labels,
        }
        for turn in course.turns
        if turn.measured
    )
    return State(observed, earlier)


def _asked(
    course: Course, state: State, briefing: Briefing, protocol: Protocol, *, picks: bool
) -> Generator[Request, Entry, Turn]:
    """One turn, asked until its answer breaks no rule that matters; a pick does only where it is followed."""
    fault, trial = "", course.trial
    for asked in range(1, protocol.answers + 1):
        question = request(trial, briefing, state, protocol, asked, fault)
        course.requests.append((state.t, asked, question))
        entry = yield question
        if entry.outcome != "answered":
            return Turn(state.t, entry.outcome, Said(), asked)
        answer = said(entry, trial, briefing, state)
        parts = ((PICK, answer.pick_fault), (LABELS, answer.label_fault))
        course.broken += [Broken(state.t, asked, part, kind) for part, kind in parts if kind]
        fault = answer.label_fault or (answer.pick_fault if picks else "")
        if not fault:
            break
    return Turn(state.t, entry.outcome, answer, asked)


def _stand(course: Course, rounds: list[int]) -> None:
    """The last turn stands for all later rounds."""
    last = course.turns[-1].said
    course.turns += [Turn(t, STANDS, last, 0) for t in rounds]
