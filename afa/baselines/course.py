"""A patient's course before a model, turn by turn: asked, measured what was picked, asked again, until all is known.

An answer is judged in two parts, the feature that it picks and the labels that it decides for; each part counts where
it is legal. An answer about another patient has no legal part (app. llm-planning-prompts).

The rule for what is no legal turn (decision N2): a turn whose answer breaks a rule is asked again, with what it
broke; when `Protocol.answers` answers did not help, the last one counts as far as it is legal. A pick that stays
illegal, or is not there, gives way to the unobserved feature that is first by name; a decision that is not there is
missing, which is no default but a wrong one, and both are counted.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from afa.baselines import CONTROL, TRAJECTORY, Briefing, Protocol, Trial
from afa.elicit.answers import ANSWERS, BinaryTurn, MulticlassTurn, read_answer
from afa.elicit.prompts import render
from afa.elicit.record import Entry, Outcome, Question, Request
from afa.errors import ElicitationError, Fault

PATIENT = "other_patient"
FAULTS: Mapping[str, str] = {
    PATIENT: "patient_id is another patient's",
    "unknown": "next_gene_to_measure is no feature of the list",
    "measured": "next_gene_to_measure has been measured already",
    "none": "next_gene_to_measure is null, but features are left",
    "number": "top_k_labels has another number of labels than was asked for",
    "candidate": "top_k_labels names what is no candidate",
    "twice": "top_k_labels names a label twice",
    "probability": "top_k_labels and lit_prob are on different sides",
}
"""What an answer may break, by the word of the tables, as the model reads it when it is asked again."""
PICK, LABELS = "pick", "labels"
THRESHOLD = 0.5


@dataclass(frozen=True)
class State:
    """What is known of the patient at a turn: t observations in their order; and the earlier turns, where listed."""

    observed: tuple[tuple[str, int], ...]
    earlier: tuple[Mapping[str, Any], ...] = ()

    @property
    def t(self) -> int:
        return len(self.observed)

    def unobserved(self, briefing: Briefing) -> list[str]:
        """What may be picked, in the order of names."""
        seen = {feature for feature, _ in self.observed}
        return [feature for feature in briefing.features if feature not in seen]


@dataclass(frozen=True)
class Said:
    """What one answer comes to. pick_fault, label_fault : keys of `FAULTS`, "" where that part is legal.

    decision : +1 for the condition, -1 for a control, None without a legal label or for the top k. labels : the legal
    ones, in their order. done : whether measuring is to end, which only an answer with legal labels can say.
    """

    pick: str = ""
    pick_fault: str = ""
    label_fault: str = ""
    decision: int | None = None
    probability: float | None = None
    labels: tuple[str, ...] = ()
    done: bool = False


def request(trial: Trial, briefing: Briefing, state: State, protocol: Protocol, asked: int, fault: str) -> Request:
    """The question of a turn, the `asked`-th time; `fault` : what the answer before broke, "" the first time."""
    values = {
        **briefing.told,
        "patient": trial.alias,
        "turn": state.t + 1,
        "turns": protocol.last_of(len(briefing.features)) + 1,
        "total": len(briefing.features),
        "observed": state.observed,
        "unobserved": state.unobserved(briefing),
        "prior_turns": state.earlier if protocol.turns == TRAJECTORY else (),
        "fault": FAULTS.get(fault, ""),
    }
    names = {"patient": trial.alias, "t": str(state.t), "asked": str(asked)}
    names |= {"condition": trial.entity} if trial.entity else {}
    run = protocol.turns if not protocol.at_checkpoints else f"{protocol.turns}, {protocol.order}"
    return Request(Question(briefing.prompt, names, run), render(briefing.prompt, values))


def said(entry: Entry, trial: Trial, briefing: Briefing, state: State) -> Said:
    """What an answered entry comes to at this turn."""
    try:
        answer = read_answer(ANSWERS[briefing.prompt], entry.raw)
    except ValueError as error:
        where = f"the record, {entry.question.prompt} {' '.join(entry.question.values.values())}"
        raise ElicitationError(Fault(where, str(error), "an answer of its schema", "correct the record")) from None
    if not isinstance(answer, BinaryTurn | MulticlassTurn):
        raise TypeError(f"{briefing.prompt} is no prompt of a turn")
    label_fault = _label_fault(answer, trial, briefing)
    done = isinstance(answer, MulticlassTurn) and answer.done and not label_fault
    legal = () if label_fault else tuple(answer.top_k_labels)
    of_condition = isinstance(answer, BinaryTurn) and not label_fault
    return Said(
        pick=answer.next_gene_to_measure or "",
        pick_fault="" if done else _pick_fault(answer, trial, briefing, state),
        label_fault=label_fault,
        decision=(-1 if legal[0] == CONTROL else 1) if of_condition else None,
        probability=answer.lit_prob if isinstance(answer, BinaryTurn) and not label_fault else None,
        labels=legal,
        done=done,
    )


def _pick_fault(answer: BinaryTurn | MulticlassTurn, trial: Trial, briefing: Briefing, state: State) -> str:
    pick, unobserved = answer.next_gene_to_measure, state.unobserved(briefing)
    if not unobserved:
        return ""
    if answer.patient_id != trial.alias:
        return PATIENT
    if pick is None:
        return "none"
    if pick in unobserved:
        return ""
    return "measured" if pick in briefing.features else "unknown"


def _label_fault(answer: BinaryTurn | MulticlassTurn, trial: Trial, briefing: Briefing) -> str:
    labels: Sequence[str] = answer.top_k_labels
    if answer.patient_id != trial.alias:
        return PATIENT
    if not set(labels) <= set(briefing.labels):
        return "candidate"
    if len(set(labels)) < len(labels):
        return "twice"
    if len(labels) != briefing.size:
        return "number"
    if isinstance(answer, BinaryTurn) and (answer.lit_prob >= THRESHOLD) != (labels[0] != CONTROL):
        return "probability"
    return ""


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
    course, last, own = Course(trial), protocol.last_of(len(briefing.features)), trial.order is None
    rounds = range(last + 1) if own else protocol.rounds_of(len(briefing.features))
    for t in rounds:
        if trial.order is not None:
            course.path = list(trial.order[:t])
        state = _state(course)
        turn = yield from _asked(course, state, briefing, protocol, picks=own and t < last)
        if own and t < last and not turn.said.done:
            legal = turn.said.pick if not turn.said.pick_fault else ""
            turn = replace(turn, measured=legal or state.unobserved(briefing)[0], by_rule=not legal)
            course.path.append(turn.measured)
        course.turns.append(turn)
        if turn.said.done:
            break
    course.turns += [Turn(t, STANDS, turn.said, 0) for t in rounds if t > turn.t]
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
