"""Where answers come from: a record, by the question alone, or models, which are asked for what their store lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import pandas as pd

from afa.elicit.store import Entry, Question
from afa.errors import ElicitationError, Fault

Name = tuple[object, ...]


class Source(Protocol):
    """Gives for each question its answer, or the last attempt without one, or None where nothing was ever asked.

    kept : the genes that the pairs of a pairwise question are of, with their directions. place : what an error names.
    """

    place: str

    def answers(self, questions: Sequence[Question], kept: pd.DataFrame | None = None) -> list[Entry | None]: ...


class Record:
    """A record: found by question, whatever model and wording it had, as long as it is one.

    models : voter -> model; of a voter that is named only answers of that model count. place : its folder.
    """

    def __init__(self, entries: Iterable[Entry], models: Mapping[str, str] | None = None, place: str = "") -> None:
        self.place = place or "the record"
        self._entries: dict[Name, list[Entry]] = {}
        for entry in entries:
            if (models or {}).get(entry.question.run, entry.model) == entry.model:
                self._entries.setdefault(question_name(entry.question), []).append(entry)

    def answers(self, questions: Sequence[Question], kept: pd.DataFrame | None = None) -> list[Entry | None]:
        """The recorded entry of each question; of a pair in either order of its genes.

        Raises
        ------
        ElicitationError : a question has answers of several models, or to several wordings.

        """
        del kept
        found = [self._entries.get(question_name(question), []) for question in questions]
        for entries in found:
            _check_one(entries, self.place)
        return [_of_attempts(entries) for entries in found]


class Live:
    """Models, asked for what their store lacks.

    ask : gives entries for questions of one voter, in their order; `afa.elicit.live.asking` makes one.
    """

    def __init__(self, ask: Callable[[str, Sequence[Question], pd.DataFrame | None], list[Entry]], place: str) -> None:
        self._ask, self.place = ask, place

    def answers(self, questions: Sequence[Question], kept: pd.DataFrame | None = None) -> list[Entry | None]:
        """What comes of each question, voter by voter."""
        entries: dict[Name, Entry] = {}
        for run in dict.fromkeys(question.run for question in questions):
            own = [question for question in questions if question.run == run]
            answered = self._ask(run, own, kept)
            entries |= {question_name(question): entry for question, entry in zip(own, answered, strict=True)}
        return [entries[question_name(question)] for question in questions]


def question_name(question: Question) -> Name:
    """What a question is found by: the two genes of a pair in either order."""
    genes = frozenset(question.values[key] for key in ("gene1", "gene2") if key in question.values)
    others = tuple(sorted((key, value) for key, value in question.values.items() if key not in ("gene1", "gene2")))
    return question.prompt, question.run, others, genes


def _of_attempts(entries: Sequence[Entry]) -> Entry | None:
    """The first answer, else the last attempt."""
    answered = (entry for entry in entries if entry.outcome == "answered")
    return next(answered, entries[-1] if entries else None)


def _check_one(entries: Sequence[Entry], place: str) -> None:
    """Refuse answers of which nothing says which one counts."""
    answered = [entry for entry in entries if entry.outcome == "answered"]
    if len({entry.key for entry in answered}) < 2:
        return
    question, models = answered[0].question, sorted({entry.model for entry in answered})
    where = f"{place}, {question.prompt} {' '.join(question.values.values())}, run {question.run}"
    if len(models) > 1:
        step = f"name the model of voter {question.run} under models in study.yaml"
        raise ElicitationError(Fault(where, f"answers of {', '.join(models)}", "answers of one model", step))
    count = len({entry.key for entry in answered})
    step = (
        "let `afa elicit merge --prompt` write the answers to one wording into a record of their own, or ask live, "
        "which knows its wording"
    )
    found = f"answers of {models[0]} to {count} wordings or manners of asking"
    raise ElicitationError(Fault(where, found, "answers to one", step))
