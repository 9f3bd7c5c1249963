"""Where a language model is asked, and how."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import urlsplit

from afa.errors import ElicitationError, Fault

BASE_URL, MODEL, KEY = "AFA_LLM_BASE_URL", "AFA_LLM_MODEL", "AFA_LLM_API_KEY"
REMOVED = "[key removed]"
SHORTEST_KEY = 8
"""Characters. What is shorter is a word for endpoints that need no key, and may well stand in an answer."""


@dataclass(frozen=True)
class Endpoint:
    """An address, a model and a key, which comes from the environment and is never shown, recorded or compared.

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
    def from_environment(
        cls, environment: Mapping[str, str] = os.environ, *, model: str = "", address: str = "", key: str = KEY
    ) -> Endpoint:
        """Read `AFA_LLM_BASE_URL`, `AFA_LLM_MODEL` and `AFA_LLM_API_KEY`; an `ElicitationError` names what is missing.

        model, address : in place of the first two. key : the variable that holds the key.
        """
        found = {BASE_URL: address or environment.get(BASE_URL, ""), MODEL: model or environment.get(MODEL, "")}
        found[key] = environment.get(key, "")
        if lacking := [name for name, value in found.items() if not value]:
            step = "export it; endpoints that need no key take any text"
            raise ElicitationError(Fault(f"the environment, {name}", "nothing", "a value", step) for name in lacking)
        return cls(found[BASE_URL], found[MODEL], found[key])

    def redacted(self, text: str) -> str:
        """The text without the key, plain or in the escapes of JSON, should an endpoint repeat it."""
        return _pattern(self.key).sub(REMOVED, text) if len(self.key) >= SHORTEST_KEY else text

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


@lru_cache
def _pattern(key: str) -> re.Pattern[str]:
    r"""The key with each character as itself, as `\u` and four digits, or after a backslash."""
    return re.compile("".join(rf"(?:\\?{re.escape(c)}|\\u(?i:{ord(c):04x}))" for c in key))


@dataclass(frozen=True)
class Manner:
    """How a model is asked.

    temperature, seed, most_tokens : sent with each request; None is not sent. limit : the endpoint's name for the last
    of these. structured : how the schema of the answer is passed on: with its bounds (lengths and ranges), without them
    for endpoints that refuse those (`bare_schema`), as the word that JSON is wanted, or in the prompt alone. stream :
    whether the answer comes in pieces. timeout : seconds without a byte. deadline : seconds of a call in all. calls :
    tries for one answer while the endpoint fails. answers : answers asked for while none is of the schema. failures :
    tries in a row, of all questions, that fail before a run stops. patience : the longest `Retry-After`, in seconds,
    that is waited for; a longer one stops the run.

    Raises
    ------
    ElicitationError : a number out of its range.

    """

    temperature: float | None = None
    seed: int | None = None
    most_tokens: int = 16_384
    structured: Literal["json_schema", "bare_schema", "json_object", "prompt"] = "json_schema"
    stream: bool = False
    timeout: float = 120.0
    deadline: float = 600.0
    calls: int = 5
    answers: int = 3
    failures: int = 20
    patience: float = 300.0
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_completion_tokens"

    def __post_init__(self) -> None:
        names = ("most_tokens", "timeout", "deadline", "calls", "answers", "failures", "patience")
        numbers = {name: getattr(self, name) for name in names}
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
