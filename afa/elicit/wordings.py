"""The wording of what was asked, kept beside the record: each text once, however many requests it was a part of."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from pathlib import Path

from afa.elicit.lines import Lines
from afa.elicit.prompts import Messages
from afa.errors import ElicitationError, Fault

SUFFIX = ".wordings"


def wording_digest(messages: Messages) -> str:
    """SHA-256 of a rendered prompt, as `Entry.messages` has it."""
    return _digest(json.dumps([messages.system, messages.user]))


class Wordings:
    """Rendered prompts by their digest, in the folder of a `Store`; safe from several threads and processes.

    A line is a text by its digest, or a prompt by its digest with those of its two parts.
    """

    def __init__(self, folder: Path) -> None:
        self._lines = Lines(folder, SUFFIX)

    def keep(self, messages: Messages) -> None:
        """Write a prompt, unless it is kept already."""
        parts = {"system": _digest(messages.system), "user": _digest(messages.user)}
        for digest, text in zip(parts.values(), (messages.system, messages.user), strict=True):
            self._keep(digest, {"text": text})
        self._keep(wording_digest(messages), parts)

    def find(self, digest: str) -> Messages | None:
        """The prompt of an entry by `Entry.messages`, or None where it was not kept.

        Raises
        ------
        ElicitationError : a line that is no part of the record, or a text that is not what its digest says.

        """
        found: dict[str, dict[str, str]] = {}
        faults: list[Fault] = []
        for where, line in self._lines.read(faults):
            document = json.loads(line)
            if not _sound(document):
                step = "restore the file, or take it out of the folder"
                faults.append(Fault(where, "another text than its digest says", "a line of the record", step))
            else:
                found[document["sha256"]] = document
        if faults:
            raise ElicitationError(faults)
        parts = [found.get(found.get(digest, {}).get(part, "")) for part in ("system", "user")]
        return None if None in parts else Messages(*(part["text"] for part in parts if part))

    def _keep(self, digest: str, document: dict[str, str]) -> None:
        if digest not in self._kept:
            self._lines.append({"sha256": digest, **document})
            self._kept.add(digest)

    @cached_property
    def _kept(self) -> set[str]:
        documents = [json.loads(line) for _, line in self._lines.read([])]
        return {document["sha256"] for document in documents if _sound(document)}


def _sound(document: object) -> bool:
    if not isinstance(document, dict) or not all(isinstance(value, str) for value in document.values()):
        return False
    if set(document) == {"sha256", "text"}:
        return bool(document["sha256"] == _digest(document["text"]))
    return set(document) == {"sha256", "system", "user"}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
