"""Store the questions and replies of an elicitation as JSON lines in append-only files.

A record is a folder with three kinds of files: `*.jsonl` contains attempts to answer questions (entries), `*.wordings`
contains rendered prompts, and `*.tries` contains the requests (see `afa.elicit.budget`). Each process writes only its
own files, and reads the files of all processes. Files of several people can be copied into one folder. After an
interruption, a rerun sends only the unanswered questions.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import os
import shutil
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from afa.errors import ElicitationError, Fault
from afa.io.files import atomic_folder, read_unpacked
from afa.io.yamlfile import first_error

RESTORE = "restore the file, or take it out of the folder"


class JsonLines:
    """All JSON-lines files with a given suffix in a folder. All files are read; new lines are appended to a new file.

    An incomplete last line, which a killed process may leave, is skipped.
    """

    def __init__(self, folder: Path, suffix: str) -> None:
        self.folder, self.suffix = folder, suffix
        self._lock = threading.Lock()
        self._mine: Path | None = None
        self._read: dict[Path, tuple[int, int]] = {}

    def append(self, document: Mapping[str, Any], *, durable: bool = True) -> None:
        """Append one line.

        If `durable` is True, return after the line is on disk. Several threads may call `append`.
        """
        line = json.dumps(document, sort_keys=True).encode() + b"\n"
        with self._lock:
            path = self._mine or self.folder / f"{uuid.uuid4().hex}{self.suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            # A failure may leave an incomplete line, which is only allowed at the end of a file. After a failure, the
            # next line is written to a new file.
            self._mine = None
            with path.open("ab") as stream:
                stream.write(line)
                stream.flush()
                if durable:
                    os.fsync(stream.fileno())
            self._mine = path

    def new(self, faults: list[Fault]) -> Iterator[tuple[str, bytes]]:
        """Yield the place (file and line number) and the text of every JSON line added since the last call of `new`.

        For each line that is not JSON, a `Fault` is added to `faults`.
        """
        if self.folder.exists() and not self.folder.is_dir():
            faults.append(Fault(str(self.folder), "a file", "a folder of the record", "name another folder"))
        for path in sorted(self.folder.glob(f"*{self.suffix}")):
            start, number = self._read.get(path, (0, 0))
            try:
                data = _bytes_from(path, start)
            except OSError as error:
                faults.append(Fault(str(path), error.strerror or "an error", "a file that can be read", RESTORE))
                continue
            *whole, tail = data.split(b"\n")
            for line in whole:
                number, where = number + 1, f"{path}, line {number + 1}"
                if trouble := _json_error(line):
                    faults.append(Fault(where, f"no JSON ({trouble})", "a line of the record", RESTORE))
                elif line.strip():
                    yield where, line
            self._read[path] = start + len(data) - len(tail), number
            if tail.strip() and not _json_error(tail):
                self._read[path] = start + len(data), number
                yield f"{path}, line {number + 1}", tail

    def forget(self) -> None:
        """Forget which lines have been read, so that the next call of `new` reads all files from the start."""
        self._read.clear()


def _bytes_from(path: Path, start: int) -> bytes:
    if not start:
        return read_unpacked(path)
    with path.open("rb") as stream:
        stream.seek(start)
        return stream.read()


def _json_error(line: bytes) -> str:
    """Return the reason why a line is not JSON, or an empty text if the line is valid or blank."""
    try:
        if line.strip():
            json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        return str(error)
    return ""


UNKNOWN: Final = "unknown"
"""Value of a field that an imported record lacks; it is never filled in."""
AnswerOutcome = Literal["answered", "refused", "unparsable", "incomplete", "failed"]
ENTRIES, WORDINGS, TRIES = ".jsonl", ".wordings", ".tries"
RETRIEVED = "retrieved"
"""Folder of a record with the searches and abstracts of its prompts (`afa.elicit.abstracts.AbstractCache`)."""
MERGED = "merged"
TIME = rf"^\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00$|^{UNKNOWN}$"
Count = Annotated[int, Field(ge=0)]
QUESTION_COLUMNS = ["prompt", "phenotype", "gene1", "gene2"]


@dataclass(frozen=True)
class Question:
    """A question to a voter. The fields `prompt` (name of the prompt), `values` and `run` (the voter) identify it.

    Parameters
    ----------
    directions : direction of shift of each gene of a pair, for the prompt; not part of the question's identity, and not
        recorded

    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    prompt: str
    values: Mapping[str, str]
    run: str
    directions: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def name(self) -> tuple[object, ...]:
        """Return a key that identifies the question.

        The order of the two genes of a pair does not change the key.
        """
        genes = frozenset(self.values[key] for key in ("gene1", "gene2") if key in self.values)
        others = tuple(sorted((key, value) for key, value in self.values.items() if key not in ("gene1", "gene2")))
        return self.prompt, self.run, others, genes

    @property
    def asked(self) -> tuple[str, str, str, str]:
        """Return the values of the columns `QUESTION_COLUMNS`: prompt, phenotype and the two genes.

        If the question has no value for a column, the text for this column is empty.
        """
        phenotype, gene1, gene2 = (self.values.get(key, "") for key in QUESTION_COLUMNS[1:])
        return self.prompt, phenotype, gene1, gene2

    @property
    def document(self) -> dict[str, Any]:
        """Return the question as a dictionary, which is recorded as JSON."""
        return {"prompt": self.prompt, "values": self.values, "run": self.run}

    def __str__(self) -> str:
        return f"{self.prompt} {' '.join(self.values.values())}, run {self.run}"


@dataclass(frozen=True)
class Messages:
    """A rendered prompt: a system part and a user part."""

    system: str
    user: str

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the system part and the user part.

        The field `Entry.messages` contains the SHA-256 of a prompt.
        """
        return _sha256(json.dumps([self.system, self.user]))


@dataclass(frozen=True)
class Request:
    """A question with its rendered prompt."""

    question: Question
    messages: Messages


@dataclass(frozen=True)
class Entry:
    """Record of one attempt to answer a question.

    Parameters
    ----------
    model, parameters : the model that was called, and the parameters of the call; or `UNKNOWN`
    prompt_digest : digest of the prompt's template, or `UNKNOWN`
    messages : SHA-256 of the rendered prompt, including its abstracts
    outcome : `answered` if `raw` has an answer in the prompt's schema
    raw : the model's whole text
    detail : why there is no answer, or which text around the answer was not parsed
    time : UTC, ISO 8601
    tokens : of prompt and answer, as the endpoint counted them
    served_model : the model that the endpoint names
    endpoint : the endpoint's address

    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    question: Question
    model: str
    parameters: Mapping[str, Any] | str
    prompt_digest: str
    messages: str
    outcome: AnswerOutcome
    raw: str
    detail: str
    attempt: Annotated[int, Field(ge=1)]
    time: Annotated[str, Field(pattern=TIME)]
    tokens: tuple[Count, Count] | Literal["unknown"]
    served_model: str = UNKNOWN
    endpoint: str = UNKNOWN

    @property
    def key(self) -> str:
        """Return the SHA-256 of question, model, parameters, template and rendered prompt."""
        return request_key(self.question, self.model, self.parameters, self.prompt_digest, self.messages)

    @property
    def document(self) -> dict[str, Any]:
        """Return the entry as a dictionary, which is recorded as JSON.

        If the endpoint is unknown, the dictionary has no endpoint, as in records of earlier versions.
        """
        document = {**vars(self), "question": self.question.document}
        return {name: document[name] for name in document if name != "endpoint" or self.endpoint != UNKNOWN}

    @property
    def digest(self) -> str:
        """Return the SHA-256 of request and answer, without the time, the attempt, the tokens and the endpoint."""
        passing = {"attempt", "time", "tokens", "served_model", "endpoint"}
        lasting = {name: value for name, value in self.document.items() if name not in passing}
        return _sha256(json.dumps(lasting, sort_keys=True, ensure_ascii=False))


def request_key(
    question: Question, model: str, parameters: Mapping[str, Any] | str, prompt_digest: str, messages: str
) -> str:
    """Return the SHA-256 of a request: question, model, parameters, template and rendered prompt."""
    parts = [question.document, model, parameters, prompt_digest, messages]
    return _sha256(json.dumps(parts, sort_keys=True, ensure_ascii=False))


def first_answer(entries: Sequence[Entry]) -> Entry | None:
    """Return the first entry with an answer, else the last entry, or None if there are no entries.

    If several answers are recorded, only the first answer is used.
    """
    answered = (entry for entry in entries if entry.outcome == "answered")
    return next(answered, entries[-1] if entries else None)


class Record:
    """A folder of recorded attempts (entries) and prompts. The files are read when they are first needed.

    Several threads and processes may use the folder.

    An entry that is in several files is used once. If the files contain lines that are not entries, one
    `ElicitationError` lists all these lines.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._entries, self._wordings = JsonLines(folder, ENTRIES), JsonLines(folder, WORDINGS)
        self._by_key: dict[str, list[Entry]] | None = None
        self._kept: set[str] | None = None
        self._lock = threading.RLock()

    def append(self, entry: Entry) -> None:
        """Write one entry, and return after the entry is on disk."""
        with self._lock:
            entries = self._load_entries()
            self._entries.append(entry.document)
            _insert_entry(entries, entry)

    def refresh(self) -> None:
        """Read the entries that other processes have added to the folder."""
        with self._lock:
            self._load_entries(again=True)

    def attempts(self, key: str) -> list[Entry]:
        """Return all attempts at a request, sorted by time."""
        with self._lock:
            return list(self._load_entries().get(key, ()))

    def replies(self, key: str) -> list[Entry]:
        """Return all attempts at a request, except the attempts that failed without a reply of the model."""
        return [entry for entry in self.attempts(key) if entry.outcome != "failed"]

    def settled(self, key: str, most: int) -> Entry | None:
        """Return the recorded answer to a request, or None if the request is to be sent again.

        If a valid reply is recorded, the first valid reply is returned. If at least `most` replies are recorded and all
        of them are invalid, the last reply is returned.
        """
        replies = self.replies(key)
        answered = (entry for entry in replies if entry.outcome == "answered")
        return next(answered, replies[-1] if len(replies) >= most else None)

    def entries(self) -> Iterator[Entry]:
        """Yield all entries, sorted by key and time."""
        with self._lock:
            return iter([entry for _, entries in sorted(self._load_entries().items()) for entry in entries])

    def keep(self, messages: Messages) -> None:
        """Save a rendered prompt.

        A prompt has a system part and a user part. The text of each part is saved once, under its SHA-256 digest. An
        entry for the prompt contains only the digests of its two parts.
        """
        parts = {"system": _sha256(messages.system), "user": _sha256(messages.user)}
        lines = [(parts["system"], {"text": messages.system}), (parts["user"], {"text": messages.user})]
        with self._lock:
            if self._kept is None:
                found = (json.loads(line) for _, line in self._wordings.new([]))
                self._kept = {str(each.get("sha256")) for each in found if isinstance(each, dict)}
            for digest, document in [*lines, (messages.digest, parts)]:
                if digest not in self._kept:
                    self._wordings.append({"sha256": digest, **document})
                    self._kept.add(digest)

    def _load_entries(self, *, again: bool = False) -> dict[str, list[Entry]]:
        if self._by_key is None or again:
            found, faults = [], list[Fault]()
            for where, line in self._entries.new(faults):
                try:
                    found.append(_ENTRY.validate_json(line))
                except ValidationError as error:
                    trouble = f"no entry ({first_error(error, 'the line')})"
                    faults.append(Fault(where, trouble, "an entry of the record", RESTORE))
            if faults:
                self._entries.forget()
                raise ElicitationError(faults)
            self._by_key = self._by_key or {}
            for entry in found:
                _insert_entry(self._by_key, entry)
        return self._by_key


class Recorded:
    """Look up the recorded answers to questions.

    All recorded answers to a question must come from the same model, and belong to the same rendered prompt.

    Parameters
    ----------
    models : model of each voter; for a voter listed here, only answers of this model count
    place : the record's folder

    """

    def __init__(self, entries: Iterable[Entry], models: Mapping[str, str] | None = None, place: str = "") -> None:
        self.place = place or "the record"
        self._entries: dict[tuple[object, ...], list[Entry]] = {}
        for entry in entries:
            if (models or {}).get(entry.question.run, entry.model) == entry.model:
                self._entries.setdefault(entry.question.name, []).append(entry)

    def answers(self, questions: Sequence[Question]) -> list[Entry | None]:
        """Return the recorded entry of each question.

        If a question is on a pair of genes, the order of the two genes does not matter.

        Raises
        ------
        ElicitationError : a question has answers of several models, or to several wordings.

        """
        found = [self._entries.get(question.name, []) for question in questions]
        for entries in found:
            answered = {entry.key: entry for entry in entries if entry.outcome == "answered"}
            if len(answered) < 2:
                continue
            models = sorted({entry.model for entry in answered.values()})
            run, expected = entries[0].question.run, "answers of one model"
            given, step = f"answers of {', '.join(models)}", f"name the model of voter {run} under models in study.yaml"
            if len(models) == 1:
                given, expected = f"{given} to {len(answered)} wordings or manners of asking", "answers to one"
                step = (
                    "let `afa elicit merge --prompt` write the answers to one wording into a record of their own, or "
                    "ask live, which knows its wording"
                )
            raise ElicitationError(Fault(f"{self.place}, {entries[0].question}", given, expected, step))
        return [first_answer(entries) for entries in found]


def merge(records: Sequence[Path], destination: Path, *, model: str = "", prompt: str = "") -> int:
    """Write the recorded attempts of several folders into one folder, and return the number of attempts.

    The result does not depend on the order of `records`. The recorded requests (`*.tries`) of all attempts are merged,
    even if only some attempts are selected, because caps count all requests.

    Parameters
    ----------
    model : select only answers of this model
    prompt : select only answers to the template whose digest begins so

    Raises
    ------
    ElicitationError : a folder without a record, a fault in a record, or no selected answer.
    ConfigError : the destination has files other than those of a merged record.

    """
    ours = [*(f"{MERGED}{suffix}" for suffix in (ENTRIES, WORDINGS, TRIES)), f"{RETRIEVED}/*"]
    chosen: list[Entry] = []
    for record in records:
        found = list(Record(record).entries())
        if not found:
            raise ElicitationError(Fault(str(record), "no answers", "a record", "name folders with files of answers"))
        chosen += [entry for entry in found if model in ("", entry.model) and entry.prompt_digest.startswith(prompt)]
    if not chosen:
        lacking = f"no answer of the model {model!r} to the prompt {prompt!r}"
        step = "take them from the lines of the record, or leave the option out"
        raise ElicitationError(Fault("--model and --prompt", lacking, "one answer or more", step))
    with atomic_folder(destination, ours, f"{MERGED}{ENTRIES}") as made:
        entries = sorted({(_entry_sort_key(entry), json.dumps(entry.document, sort_keys=True)) for entry in chosen})
        _write_lines(made / f"{MERGED}{ENTRIES}", [line.encode() for _, line in entries])
        for suffix in (WORDINGS, TRIES):
            faults: list[Fault] = []
            lines = sorted({line for record in records for _, line in JsonLines(record, suffix).new(faults)})
            ElicitationError.raise_for(faults)
            if lines:
                _write_lines(made / f"{MERGED}{suffix}", lines)
        for record in records:
            if (record / RETRIEVED).is_dir():
                shutil.copytree(record / RETRIEVED, made / RETRIEVED, dirs_exist_ok=True)
    return len(entries)


def _write_lines(path: Path, lines: Sequence[bytes]) -> None:
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def _entry_sort_key(entry: Entry) -> tuple[str, ...]:
    question = entry.question
    return question.prompt, question.run, *(value for _, value in sorted(question.values.items())), entry.time


_ENTRY = TypeAdapter(Entry)


def _insert_entry(found: dict[str, list[Entry]], entry: Entry) -> None:
    entries = found.setdefault(entry.key, [])
    if entry not in entries:
        bisect.insort(entries, entry, key=lambda one: (one.time, one.attempt, one.raw))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
