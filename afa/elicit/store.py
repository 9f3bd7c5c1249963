"""The record of what was asked and answered: an append-only folder of JSON lines that nothing is ever taken out of.

An entry is found again by its question, so that a rerun asks nothing that has an answer, an interrupted run goes on
where it stopped, and the files of several people lie side by side in one folder.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from afa.elicit.lines import Lines
from afa.errors import ElicitationError, Fault

UNKNOWN: Final = "unknown"
"""What stands in a field that a record made elsewhere does not have; it is never filled in."""
Outcome = Literal["answered", "refused", "unparsable", "incomplete", "failed"]
SUFFIX = ".jsonl"
TIME = rf"^\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00$|^{UNKNOWN}$"
Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Question:
    """What is asked, apart from its wording: the prompt's name, what fills it, and which of several runs asks.

    values : names only, such as the phenotype and the genes, that tell this question from others of its prompt.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    prompt: str
    values: Mapping[str, str]
    run: str


@dataclass(frozen=True)
class Entry:
    """One attempt at a question, as it went.

    model, parameters, prompt_digest : as asked, or `UNKNOWN`. messages : SHA-256 of the rendered prompt, which depends
    on what was retrieved for it. outcome : `answered` where `raw` is an answer of the prompt's schema. raw : the
    model's text, whole. time : UTC, ISO 8601. tokens : of prompt and answer, as the endpoint counted them.
    detail : why there is no answer, empty otherwise. served_model : the model that the endpoint says has answered.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    question: Question
    model: str
    parameters: Mapping[str, Any] | str
    prompt_digest: str
    messages: str
    outcome: Outcome
    raw: str
    detail: str
    attempt: Annotated[int, Field(ge=1)]
    time: Annotated[str, Field(pattern=TIME)]
    tokens: tuple[Count, Count] | Literal["unknown"]
    served_model: str = UNKNOWN

    @property
    def key(self) -> str:
        """What a rerun looks for: question, model, parameters, wording and messages, as a SHA-256."""
        return request_key(self.question, self.model, self.parameters, self.prompt_digest, self.messages)


def request_key(
    question: Question, model: str, parameters: Mapping[str, Any] | str, prompt_digest: str, messages: str
) -> str:
    """SHA-256 over everything that an answer may depend on."""
    told = [asdict(question), model, parameters, prompt_digest, messages]
    text = json.dumps(told, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


class Store:
    """A folder of entries. Each writer appends to a file of its own; all files are read, once, when first needed.

    A line that a killed writer left unfinished is passed over and counted in `torn`; any other faulty line is an error.
    An entry that stands in several files is one entry.

    Raises
    ------
    ElicitationError : on reading, every line that is no entry.

    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines = Lines(folder, SUFFIX)
        self._lock = threading.Lock()

    @property
    def torn(self) -> int:
        """Lines left unfinished, as of the last reading."""
        return self._lines.torn

    def append(self, entry: Entry) -> None:
        """Write one entry; it is on the disk when this returns. Safe from several threads and processes."""
        with self._lock:
            entries = self._by_key
            self._lines.append(asdict(entry))
            _insert(entries, entry)

    def attempts(self, key: str) -> list[Entry]:
        """Every attempt at a request, in the order of time."""
        with self._lock:
            return list(self._by_key.get(key, ()))

    def answer(self, key: str) -> Entry | None:
        """The first answer to a request, or None: later ones never replace it."""
        return next((entry for entry in self.attempts(key) if entry.outcome == "answered"), None)

    def entries(self) -> Iterator[Entry]:
        """All entries, by key and time, the same whatever files they lie in."""
        with self._lock:
            grouped = [list(entries) for _, entries in sorted(self._by_key.items())]
        for entries in grouped:
            yield from entries

    @cached_property
    def _by_key(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        faults: list[Fault] = []
        for where, line in self._lines.read(faults):
            try:
                _insert(found, _ENTRY.validate_json(line))
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                told = f"no entry ({'.'.join(map(str, first['loc'])) or 'the line'}: {first['msg']})"
                step = "restore the file, or take it out of the folder"
                faults.append(Fault(where, told, "an entry of the record", step))
        if faults:
            raise ElicitationError(faults)
        return found


_ENTRY = TypeAdapter(Entry)


def _insert(found: dict[str, list[Entry]], entry: Entry) -> None:
    entries = found.setdefault(entry.key, [])
    if entry not in entries:
        bisect.insort(entries, entry, key=lambda one: (one.time, one.attempt, one.raw))
