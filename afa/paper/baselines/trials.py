"""Dialogues with a language model, which decides about a patient and chooses the next feature in each round.

An answer of the language model has two parts: the feature to measure next, and the labels that the language model
assigns to the patient. Each part of an answer is used if it is valid, even if the other part is invalid. If an answer
names the wrong patient, both parts of the answer are invalid (app. llm-planning-prompts).

If an answer breaks a rule, the question is asked again, and the new prompt states the broken rule (decision N2). A
question is asked at most `Protocol.answers` times. The dialogue uses the valid parts of the last answer to a question.
If the choice of a feature is invalid or missing, the first unobserved feature in alphabetical order is measured. A
missing decision counts as wrong. The tables count two failures of a language model: no valid choice of a feature, and
no decision.

Many dialogues run at once: all unfinished dialogues ask their next questions together. Each answer is read from the
recorded answers, or requested from a live model. The number of requests to a live model is limited, and is estimated
before the first question.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm  # type: ignore[import-untyped]

from afa.elicit.answers import ANSWER_SCHEMAS, BinaryTurn, MulticlassTurn, read_answer
from afa.elicit.budget import Budget, Usage
from afa.elicit.client import Client
from afa.elicit.live import Terms, ask_all
from afa.elicit.prompts import key_of, render
from afa.elicit.record import UNKNOWN, AnswerOutcome, Entry, Question, Record, Request
from afa.errors import ElicitationError, Fault
from afa.model.study import Endpoint, Manner
from afa.paper.baselines import CONTROL, TRAJECTORY, Briefing, Protocol, Trial

OTHER_PATIENT = "other_patient"
FAULT_TEXTS: Mapping[str, str] = {
    OTHER_PATIENT: "patient_id is another patient's",
    "unknown": "next_gene_to_measure is no feature of the list",
    "measured": "next_gene_to_measure has been measured already",
    "none": "next_gene_to_measure is null, but features are left",
    "number": "top_k_labels has another number of labels than was asked for",
    "candidate": "top_k_labels names what is no candidate",
    "twice": "top_k_labels names a label twice",
    "probability": "top_k_labels and lit_prob are on different sides",
}
"""Rules that an answer may break. The key is the word in tables; the value is the text for the model in the next
question.
"""
PICK, LABELS = "pick", "labels"
DECISION_THRESHOLD = 0.5


@dataclass(frozen=True)
class ModelAnswer:
    """The parsed answer of a language model to one question.

    Parameters
    ----------
    pick_fault, label_fault : keys of `FAULT_TEXTS`, or "" if the part of the answer is valid
    decision : +1 for the condition, -1 for a control. It is None for the top k, or if there is no valid label
    labels : the valid labels, in the answer's order
    done : True if the language model wants no more measurements. An answer with invalid labels does not end the
        dialogue

    """

    pick: str = ""
    pick_fault: str = ""
    label_fault: str = ""
    decision: int | None = None
    probability: float | None = None
    labels: tuple[str, ...] = ()
    done: bool = False


STANDS = "stands"
"""Outcome of a turn without a question, because the language model wanted no more measurements.

The last decision of the language model is also its decision in such a turn.
"""


@dataclass(frozen=True)
class Turn:
    """One turn of a dialogue: the model's last answer after t observations, and the feature measured next.

    Parameters
    ----------
    asked : number of questions in the turn
    measured : the feature measured next, or "" at checkpoints and at the end
    by_rule : True if the measured feature is not the model's choice

    """

    t: int
    outcome: AnswerOutcome | str
    said: ModelAnswer
    asked: int
    measured: str = ""
    by_rule: bool = False


@dataclass
class TrialDialogue:
    """The dialogue of a trial: turns, requests to the model, and rules that the answers broke.

    Parameters
    ----------
    broken : one row (t, asked, part, kind) for each part of an answer that broke a rule. `asked` is the number of the
        answer within its turn, from 1
    path : features in the order of observation

    """

    trial: Trial
    briefing: Briefing
    protocol: Protocol
    turns: list[Turn] = field(default_factory=list)
    requests: list[tuple[int, int, Request]] = field(default_factory=list)
    broken: list[dict[str, Any]] = field(default_factory=list)
    path: list[str] = field(default_factory=list)

    def follow(self) -> TrialRequests:
        """Run the dialogue: yield each request, receive the model's answer, and return the finished dialogue.

        If the order of features is given, the model is asked only at the evaluated rounds. If the model chooses
        features, it is asked in every round.
        """
        last, order = self.protocol.last_of(len(self.briefing.features)), self.trial.order
        rounds = range(last + 1) if order is None else self.protocol.rounds_of(len(self.briefing.features))
        for t in rounds:
            if order is not None:
                self.path = list(order[:t])
            picks = order is None and t < last
            turn = yield from self._ask_until_valid(picks=picks)
            if picks and not turn.said.done:
                legal = turn.said.pick if not turn.said.pick_fault else ""
                turn = replace(turn, measured=legal or self.unobserved[0], by_rule=not legal)
                self.path.append(turn.measured)
            self.turns.append(turn)
            if turn.said.done:
                break
        self.turns += [Turn(t, STANDS, turn.said, 0) for t in rounds if t > turn.t]
        return self

    @property
    def unobserved(self) -> list[str]:
        """Return the unobserved features, sorted by name."""
        seen = set(self.path)
        return [feature for feature in self.briefing.features if feature not in seen]

    def _ask_until_valid(self, *, picks: bool) -> Generator[Request, Entry, Turn]:
        """Ask the question of one turn until an answer is valid, at most `Protocol.answers` times.

        If `picks` is False, an answer is valid even if its choice of a feature is invalid.
        """
        fault, t = "", len(self.path)
        for asked in range(1, self.protocol.answers + 1):
            question = self._question(asked, fault)
            self.requests.append((t, asked, question))
            entry = yield question
            if entry.outcome != "answered":
                return Turn(t, entry.outcome, ModelAnswer(), asked)
            answer = self._parse_answer(entry)
            parts = ((PICK, answer.pick_fault), (LABELS, answer.label_fault))
            self.broken += [{"t": t, "asked": asked, "part": part, "kind": kind} for part, kind in parts if kind]
            fault = answer.label_fault or (answer.pick_fault if picks else "")
            if not fault:
                break
        return Turn(t, entry.outcome, answer, asked)

    def _question(self, asked: int, fault: str) -> Request:
        """Return the request to the model in the current turn.

        The argument `asked` is the number of the question within a turn, starting from 1.

        Parameters
        ----------
        fault : the rule that the last answer broke, or "" for the first question of a turn

        """
        trial, briefing, protocol, t = self.trial, self.briefing, self.protocol, len(self.path)
        measured = [(turn, trial.values[turn.measured]) for turn in self.turns if turn.measured]
        earlier = [
            {"turn": turn.t + 1, "feature": turn.measured, "value": value, "labels": turn.said.labels}
            for turn, value in measured
        ]
        values = {
            **briefing.facts,
            "patient": trial.alias,
            "turn": t + 1,
            "turns": protocol.last_of(len(briefing.features)) + 1,
            "total": len(briefing.features),
            "observed": [(feature, trial.values[feature]) for feature in self.path],
            "unobserved": self.unobserved,
            "prior_turns": earlier if protocol.asked.turns == TRAJECTORY else (),
            "fault": FAULT_TEXTS.get(fault, ""),
        }
        names = {"patient": trial.alias, "t": str(t), "asked": str(asked)}
        names |= {"condition": trial.entity} if trial.entity else {}
        run = f"{protocol.asked.turns}, {protocol.asked.order}" if protocol.at_checkpoints else protocol.asked.turns
        return Request(Question(briefing.prompt, names, run), render(briefing.prompt, values))

    def _parse_answer(self, entry: Entry) -> ModelAnswer:
        """Parse the model's answer in the current turn, and check its two parts."""
        prompt = self.briefing.prompt
        try:
            answer = read_answer(ANSWER_SCHEMAS[prompt], entry.raw)
        except ValueError as error:
            where = f"the record, {entry.question.prompt} {' '.join(entry.question.values.values())}"
            raise ElicitationError(Fault(where, str(error), "an answer of its schema", "correct the record")) from None
        if not isinstance(answer, BinaryTurn | MulticlassTurn):
            raise TypeError(f"{prompt} is no prompt of a turn")
        label_fault = self._label_fault(answer)
        done = isinstance(answer, MulticlassTurn) and answer.done and not label_fault
        legal = () if label_fault else tuple(answer.top_k_labels)
        of_condition = isinstance(answer, BinaryTurn) and not label_fault
        return ModelAnswer(
            pick=answer.next_gene_to_measure or "",
            pick_fault="" if done else self._pick_fault(answer),
            label_fault=label_fault,
            decision=(-1 if legal[0] == CONTROL else 1) if of_condition else None,
            probability=answer.lit_prob if isinstance(answer, BinaryTurn) and not label_fault else None,
            labels=legal,
            done=done,
        )

    def _pick_fault(self, answer: BinaryTurn | MulticlassTurn) -> str:
        pick, unobserved = answer.next_gene_to_measure, self.unobserved
        if not unobserved:
            return ""
        if answer.patient_id != self.trial.alias:
            return OTHER_PATIENT
        if pick is None:
            return "none"
        if pick in unobserved:
            return ""
        return "measured" if pick in self.briefing.features else "unknown"

    def _label_fault(self, answer: BinaryTurn | MulticlassTurn) -> str:
        labels: Sequence[str] = answer.top_k_labels
        if answer.patient_id != self.trial.alias:
            return OTHER_PATIENT
        if not set(labels) <= set(self.briefing.labels):
            return "candidate"
        if len(set(labels)) < len(labels):
            return "twice"
        if len(labels) != self.briefing.size:
            return "number"
        if isinstance(answer, BinaryTurn) and (answer.lit_prob >= DECISION_THRESHOLD) != (labels[0] != CONTROL):
            return "probability"
        return ""


TrialRequests = Generator[Request, Entry, TrialDialogue]
"""Generator that yields requests, receives their entries, and returns the complete dialogue."""


def follow_all(
    dialogues: Sequence[TrialRequests], source: AnswerSource, *, progress: bool = False
) -> list[TrialDialogue]:
    """Run all dialogues to their end, and return the finished dialogues in the order of `dialogues`.

    If `progress` is True and the output is a terminal, a progress bar is shown.

    Raises
    ------
    ElicitationError : an endpoint fails, or a question has no recorded answer. All answers so far have been recorded.

    """
    ended: dict[int, TrialDialogue] = {}
    waiting = {i: next(dialogue) for i, dialogue in enumerate(dialogues)}
    with tqdm(desc=source.model, unit="turn", disable=None if progress else True) as bar:
        while waiting:
            entries = source.answers(list(waiting.values()))
            if failed := [entry for entry in entries if entry.outcome == "failed"]:  # no answer of the model
                found = f"no reply to {len(failed)} of {len(entries)} questions; {failed[0].detail}"
                where, step = f"the endpoint of {failed[0].model}", "run again, which asks what is left"
                raise ElicitationError(Fault(where, found, "a reply", step))
            following = {}
            for i, entry in zip(waiting, entries, strict=True):
                try:
                    following[i] = dialogues[i].send(entry)
                except StopIteration as end:
                    ended[i] = end.value
            waiting = following
            bar.set_postfix_str(f"{len(waiting)} of {len(dialogues)} dialogues open", refresh=False)
            bar.update()
    return [ended[i] for i in range(len(dialogues))]


@dataclass(frozen=True)
class AnswerSource:
    """A source of one model's answers: recorded answers and, optionally, a client that asks the model.

    Parameters
    ----------
    manner : settings with which the questions were asked

    """

    store: Record
    model: str
    manner: Manner
    client: Client | None = None
    concurrency: int = 4

    def answers(self, requests: Sequence[Request]) -> list[Entry]:
        """Return the answer to each request.

        If all attempts at a request have failed, the last failed attempt is returned. If a reply is invalid, the
        request is repeated. The setting `manner.answers` is the largest number of replies to a request.

        Raises
        ------
        ElicitationError : there is no client, and a question has no recorded answer. With a client, see `ask_all`.

        """
        if self.client is not None:
            return ask_all(requests, self.client, concurrency=self.concurrency, progress=False)
        found = [
            self.store.settled(key_of(request, self.model, self.manner), self.manner.answers) for request in requests
        ]
        lacking = [request for request, entry in zip(requests, found, strict=True) if entry is None]
        if lacking:
            question = lacking[0].question
            text = f"no answer to {len(lacking)} of {len(found)} questions; first {question.prompt}, {question.run}, "
            text += ", ".join(f"{name} {value}" for name, value in question.values.items())
            step = "complete the record live; or restore bundle, cohort, study and settings that it was made with"
            raise ElicitationError(Fault(f"{self.store.folder}, {self.model}", text, "an answer to each", step))
        return [entry for entry in found if entry is not None]

    def attempts(self, request: Request) -> list[Entry]:
        """Return all attempts at a request, including attempts in earlier runs."""
        return self.store.attempts(key_of(request, self.model, self.manner))


def recorded(store: Record, model: str | None, manner: Manner, prompts: Sequence[str]) -> AnswerSource:
    """Return an answer source that reads a model's recorded answers to the given prompts.

    `model` may be None if all recorded answers are from one model.

    Raises
    ------
    ElicitationError : the record has no model, or it has several models and `model` is None.

    """
    models = sorted({entry.model for entry in store.entries() if entry.question.prompt in prompts})
    if model is None and len(models) != 1:
        found = f"answers of {len(models)} models{': ' if models else ''}{', '.join(models)}"
        step = "name one with baselines.model" if models else "run live first, or name another folder"
        raise ElicitationError(Fault(str(store.folder), found, "of one model", step))
    return AnswerSource(store, model or models[0], manner)


def live(record: Path, endpoint: Endpoint, manner: Manner, terms: Terms, model: str | None = None) -> AnswerSource:
    """Return an answer source that asks the model only questions that have no recorded answer.

    Recorded requests also count towards the limits in `terms.caps`.
    """
    budget = Budget(Record(record), terms.caps, terms.prices)
    client = Client(replace(endpoint, model=model or endpoint.model), budget, manner)
    return AnswerSource(budget.record, client.endpoint.model, manner, client, terms.concurrency)


def trials_usage_estimate(trials: Sequence[tuple[Trial, Briefing]], protocol: Protocol, client: Client) -> Usage:
    """Return an upper estimate of the requests and tokens for all questions without a recorded answer.

    The estimate assumes that the first answer to each turn is valid. If the order of features is given, all prompts are
    known in advance. If the model chooses features, prompts depend on earlier answers, and the estimate for the first
    patient is multiplied by the number of patients. The assumed answers consist of the longest labels, so that the
    number of tokens is not underestimated.
    """
    patients = list(dict.fromkeys(trial.patient for trial, _ in trials))
    counted = [each for each in trials if protocol.at_checkpoints or each[0].patient == patients[0]]
    used = Usage()
    for trial, briefing in counted:
        dialogue = TrialDialogue(trial, briefing, replace(protocol, answers=1)).follow()
        answer, question = _invented_answer(trial, briefing), next(dialogue)
        with suppress(StopIteration):
            while True:
                if client.recorded(question) is None:
                    used += client.expected(question)
                asked = (question.question, UNKNOWN, UNKNOWN, UNKNOWN, question.messages.digest)
                question = dialogue.send(Entry(*asked, "answered", answer, "", 1, UNKNOWN, UNKNOWN))
    return used if protocol.at_checkpoints else sum((used for _ in patients), Usage())


def _invented_answer(trial: Trial, briefing: Briefing) -> str:
    """Return an invented answer of a language model, from which the number of tokens is estimated.

    The answer assigns the labels with the longest names to the patient. The answer names no feature to measure next.
    """
    labels = sorted(briefing.labels, key=len)[-briefing.size :]
    answer: dict[str, Any] = {"patient_id": trial.alias, "next_gene_to_measure": None, "top_k_labels": labels}
    if trial.entity:
        answer |= {"lit_prob": float(labels != [CONTROL]), "supporting_text": ""}
    else:
        answer |= {"done": False}
    return json.dumps(answer)
