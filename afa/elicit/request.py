"""A question in its wording, as it is sent."""

from __future__ import annotations

from dataclasses import dataclass

from afa.elicit.prompts import Messages
from afa.elicit.store import Question
from afa.elicit.wordings import wording_digest


@dataclass(frozen=True)
class Request:
    """A question in its wording."""

    question: Question
    messages: Messages

    @property
    def digest(self) -> str:
        """SHA-256 of the wording."""
        return wording_digest(self.messages)
