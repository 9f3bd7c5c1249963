"""Following many courses at once: each wave asks the next question of every course that is not at its end.

Answers are recorded ones, or a live model's: with caps over all that its record has cost, and an estimate before
anything is asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm  # type: ignore[import-untyped]

from afa.baselines import CONTROL, Briefing, Protocol, Trial
from afa.baselines.course import Asking, Course, follow
from afa.elicit.budget import Budget, Used
from afa.elicit.client import Client
from afa.elicit.live import Terms, ask_all
from afa.elicit.prompts import prompt_digest
from afa.elicit.record import UNKNOWN, Entry, Record, Request, request_key
from afa.elicit.study import Endpoint, Manner
from afa.errors import ElicitationError, Fault


def follow_all(courses: Sequence[Asking], source: Source, *, progress: bool = False) -> list[Course]:
    """All courses to their ends, in their order; a bar counts waves of questions, on a terminal alone.

    Raises
    ------
    ElicitationError : a question whose endpoint fails, or that a record has no answer to; what was answered is kept.

    """
    ended: dict[int, Course] = {}
    waiting = {i: next(course) for i, course in enumerate(courses)}
    with tqdm(desc=source.model, unit="turn", disable=None if progress else True) as bar:
        while waiting:
            entries = source.answers(list(waiting.values()))
            if failed := [entry for entry in entries if entry.outcome == "failed"]:  # which says nothing of the model
                found = f"no reply to {len(failed)} of {len(entries)} questions; {failed[0].detail}"
                where, step = f"the endpoint of {failed[0].model}", "run again, which asks what is left"
                raise ElicitationError(Fault(where, found, "a reply", step))
            following = {}
            for i, entry in zip(waiting, entries, strict=True):
                try:
                    following[i] = courses[i].send(entry)
                except StopIteration as end:
                    ended[i] = end.value
            waiting = following
            bar.set_postfix_str(f"{len(waiting)} of {len(courses)} courses open", refresh=False)
            bar.update()
    return [ended[i] for i in range(len(courses))]


@dataclass(frozen=True)
class Recorded:
    """The answers of one model in a store, without any call. manner : as they were asked.

    Raises
    ------
    ElicitationError : on asking, a question that the store has no answer to.

    """

    store: Record
    model: str
    manner: Manner

    def answers(self, requests: Sequence[Request]) -> list[Entry]:
        """The answer to each, or the last attempt where as many were made as `manner` makes."""
        found = [self._entry(request) for request in requests]
        lacking = [request for request, entry in zip(requests, found, strict=True) if entry is None]
        if lacking:
            question = lacking[0].question
            told = f"no answer to {len(lacking)} of {len(found)} questions; first {question.prompt}, {question.run}, "
            told += ", ".join(f"{name} {value}" for name, value in question.values.items())
            step = "complete the record live; or restore bundle, cohort, study and settings that it was made with"
            raise ElicitationError(Fault(f"{self.store.folder}, {self.model}", told, "an answer to each", step))
        return [entry for entry in found if entry is not None]

    def attempts(self, request: Request) -> list[Entry]:
        """All that was ever tried."""
        digest, parameters = prompt_digest(request.question.prompt), self.manner.parameters
        return self.store.attempts(request_key(request.question, self.model, parameters, digest, request.digest))

    def _entry(self, request: Request) -> Entry | None:
        earlier = [entry for entry in self.attempts(request) if entry.outcome != "failed"]
        answer = next((entry for entry in earlier if entry.outcome == "answered"), None)
        return answer or (earlier[-1] if len(earlier) >= self.manner.answers else None)


def recorded(store: Record, model: str | None, manner: Manner, prompts: Sequence[str]) -> Recorded:
    """The answers to these prompts; of the only model that there is unless one is named.

    Raises
    ------
    ElicitationError : no model, or several of which none is named.

    """
    models = sorted({entry.model for entry in store.entries() if entry.question.prompt in prompts})
    if model is None and len(models) != 1:
        found = f"answers of {len(models)} models{': ' if models else ''}{', '.join(models)}"
        step = "name one with baselines.model" if models else "run live first, or name another folder"
        raise ElicitationError(Fault(str(store.folder), found, "of one model", step))
    return Recorded(store, model or models[0], manner)


@dataclass(frozen=True)
class Live:
    """A model that is asked what its record does not have."""

    client: Client
    concurrency: int = 4

    @property
    def model(self) -> str:
        return self.client.endpoint.model

    def answers(self, requests: Sequence[Request]) -> list[Entry]:
        """As of `afa.elicit.live.ask_all`."""
        return ask_all(requests, self.client, concurrency=self.concurrency, progress=False)

    def attempts(self, request: Request) -> list[Entry]:
        """All that was ever tried, in earlier runs too."""
        return self.client.record.attempts(self.client.key(request))


Source = Recorded | Live
"""Where answers come from."""


def live(record: Path, endpoint: Endpoint, manner: Manner, terms: Terms, model: str | None = None) -> Live:
    """A client whose caps count what the record has cost before."""
    budget = Budget(Record(record), terms.caps, terms.prices)
    return Live(Client(replace(endpoint, model=model or endpoint.model), budget, manner), terms.concurrency)


def estimate(trials: Sequence[tuple[Trial, Briefing]], protocol: Protocol, source: Live) -> Used:
    """What is left to ask uses at most, where each turn is answered at the first call.

    At checkpoints along an order of ours all wordings are known. Turn by turn they hang on the answers: then it is the
    first patient's, by the longest labels, times the number of patients.
    """
    patients = list(dict.fromkeys(trial.patient for trial, _ in trials))
    counted = [each for each in trials if protocol.at_checkpoints or each[0].patient == patients[0]]
    used = Used()
    for trial, briefing in counted:
        course = follow(trial, briefing, replace(protocol, answers=1))
        entry, question = _stand_in(trial, briefing), next(course)
        try:
            while True:
                if source.client.recorded(question) is None:
                    used += source.client.expected(question)
                question = course.send(entry(question))
        except StopIteration:
            pass
    return used if protocol.at_checkpoints else sum((used for _ in patients), Used())


def _stand_in(trial: Trial, briefing: Briefing) -> Callable[[Request], Entry]:
    """A legal decision of the longest labels that picks nothing, as an entry that is never stored."""
    labels = sorted(briefing.labels, key=len)[-briefing.size :]
    answer: dict[str, Any] = {"patient_id": trial.alias, "next_gene_to_measure": None, "top_k_labels": labels}
    if trial.entity:
        answer |= {"lit_prob": float(labels != [CONTROL]), "supporting_text": ""}
    else:
        answer |= {"done": False}

    def entry(question: Request) -> Entry:
        asked = (question.question, UNKNOWN, UNKNOWN, UNKNOWN, question.digest)
        return Entry(*asked, "answered", json.dumps(answer), "", 1, UNKNOWN, UNKNOWN)

    return entry
