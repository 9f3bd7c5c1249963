"""Following many courses at once: each wave asks the next question of every course that is not at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tqdm import tqdm  # type: ignore[import-untyped]

from afa.baselines.course import Asking, Course
from afa.elicit.endpoint import Manner
from afa.elicit.prompts import prompt_digest
from afa.elicit.record import Entry, Record, Request, request_key
from afa.errors import ElicitationError, Fault


class Source(Protocol):
    """Where answers come from. model : the one that is asked. attempts : all that was ever made at a request."""

    @property
    def model(self) -> str: ...
    def answers(self, requests: Sequence[Request]) -> list[Entry]: ...
    def attempts(self, request: Request) -> list[Entry]: ...


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
            _check_reached(entries)
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


def _check_reached(entries: Sequence[Entry]) -> None:
    """An endpoint that failed has said nothing of the model: that is no outcome of a turn."""
    failed = [entry for entry in entries if entry.outcome == "failed"]
    if failed:
        found = f"no reply to {len(failed)} of {len(entries)} questions; {failed[0].detail}"
        step = "run again, which asks what is left"
        raise ElicitationError(Fault(f"the endpoint of {failed[0].model}", found, "a reply", step))


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
        return self.store.attempts(self._key(request))

    def _entry(self, request: Request) -> Entry | None:
        earlier = [entry for entry in self.attempts(request) if entry.outcome != "failed"]
        answer = next((entry for entry in earlier if entry.outcome == "answered"), None)
        return answer or (earlier[-1] if len(earlier) >= self.manner.answers else None)

    def _key(self, request: Request) -> str:
        digest = prompt_digest(request.question.prompt)
        parameters: Mapping[str, Any] = self.manner.parameters
        return request_key(request.question, self.model, parameters, digest, request.digest)


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
