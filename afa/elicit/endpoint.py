"""Where a language model is asked, and how."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from afa.errors import ElicitationError, Fault

BASE_URL, MODEL, KEY = "AFA_LLM_BASE_URL", "AFA_LLM_MODEL", "AFA_LLM_API_KEY"
REMOVED = "[key removed]"
SHORTEST_KEY = 8
"""Characters. What is shorter is a word for endpoints that need no key, and may well stand in an answer."""


@dataclass(frozen=True)
class Endpoint:
    """Where a model is asked. The key comes from the environment and is never shown, recorded or compared.

    Raises
    ------
    ElicitationError : an address, a model or a key that cannot be used.

    """

    base_url: str
    model: str
    key: str = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        if faults := list(self._faults()):
            raise ElicitationError(faults)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Endpoint:
        """Read `AFA_LLM_BASE_URL`, `AFA_LLM_MODEL` and `AFA_LLM_API_KEY`; an `ElicitationError` names what lacks."""
        lacking = [name for name in (BASE_URL, MODEL, KEY) if not environment.get(name)]
        if lacking:
            step = "export it; endpoints that need no key take any text"
            raise ElicitationError(Fault(f"the environment, {name}", "nothing", "a value", step) for name in lacking)
        return cls(environment[BASE_URL], environment[MODEL], environment[KEY])

    def redacted(self, text: str) -> str:
        """The text without the key, should an endpoint repeat it."""
        return text.replace(self.key, REMOVED) if len(self.key) >= SHORTEST_KEY else text

    def _faults(self) -> Iterator[Fault]:
        # Neither the address nor the key is shown: a password may stand in the one, the other is one.
        where = "the endpoint's {} ({})"
        try:
            address = urlsplit(self.base_url)
            sound = address.scheme in ("http", "https") and bool(address.hostname) and (address.port or 1) > 0
            secret = address.username or address.password or address.query or address.fragment
        except ValueError:
            sound, secret = False, None
        if not sound or secret:
            found = "a user, a password or a query in it" if secret else "no address"
            step = "the key has its own variable; give the address as the endpoint's manual does"
            yield Fault(where.format("address", BASE_URL), found, "http(s)://host/path alone", step)
        if not self.model.strip():
            yield Fault(where.format("model", MODEL), "nothing", "the name of a model", "name it")
        if not re.fullmatch(r"[!-~]+", self.key):
            found = f"{len(self.key)} characters that no header takes, such as blanks or ends of lines"
            yield Fault(where.format("key", KEY), found, "printable ASCII without blanks", "copy the key alone")


@dataclass(frozen=True)
class Manner:
    """How a model is asked.

    temperature, seed, most_tokens : sent with each request; None is not sent. limit : the name that the endpoint has
    for the last of these. structured : how the answer's schema is passed on: as a schema, as the word that JSON is
    wanted, or in the prompt alone. stream : whether the answer comes in pieces. timeout : seconds without a byte.
    calls : tries for one answer while the endpoint fails. answers : answers asked for while none is of the schema.

    Raises
    ------
    ElicitationError : a number out of its range.

    """

    temperature: float | None = 0.0
    seed: int | None = None
    most_tokens: int = 4096
    structured: Literal["json_schema", "json_object", "prompt"] = "json_schema"
    stream: bool = False
    timeout: float = 120.0
    calls: int = 5
    answers: int = 3
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"

    def __post_init__(self) -> None:
        numbers = {name: getattr(self, name) for name in ("most_tokens", "timeout", "calls", "answers")}
        low = [name for name, value in numbers.items() if not value >= (1 if isinstance(value, int) else 1e-3)]
        if low:
            step = "choose a larger one"
            raise ElicitationError(Fault(f"manner, {n}", str(numbers[n]), "a positive number", step) for n in low)

    @property
    def parameters(self) -> dict[str, Any]:
        """What of this an answer may depend on."""
        return {
            "temperature": None if self.temperature is None else float(self.temperature),
            "seed": self.seed,
            "most_tokens": self.most_tokens,
            "structured": self.structured,
        }


USUAL = Manner()
