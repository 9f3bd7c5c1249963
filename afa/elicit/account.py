"""What asking costs: hard caps on calls, tokens and money, counted before a call is made and after it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

from afa.errors import ElicitationError, Fault

OVERHEAD = 64
"""Tokens beside those of the text that a call is counted at most: of roles and separators."""


@dataclass(frozen=True)
class Caps:
    """What one run may use at most; None is no cap. tokens : of prompts and answers. money : in `Prices.currency`."""

    calls: int | None = None
    tokens: int | None = None
    money: float | None = None


@dataclass(frozen=True)
class Prices:
    """Price of a million tokens of prompt and of answer."""

    prompt: float = 0.0
    answer: float = 0.0
    currency: str = "USD"

    def of(self, prompt: int, answer: int) -> float:
        """Price of so many tokens."""
        return (prompt * self.prompt + answer * self.answer) / 1e6


@dataclass(frozen=True)
class Used:
    """What calls have used, or are expected to use."""

    calls: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    money: float = 0.0

    def __add__(self, other: Used) -> Used:
        return Used(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.answer_tokens + other.answer_tokens,
            self.money + other.money,
        )

    def __sub__(self, other: Used) -> Used:
        return Used(
            self.calls - other.calls,
            self.prompt_tokens - other.prompt_tokens,
            self.answer_tokens - other.answer_tokens,
            self.money - other.money,
        )


@dataclass
class Account:
    """The running account of one run; safe from several threads.

    A call is reserved at its expected cost before it is made, and settled at what the endpoint counted, so that calls
    which run at the same time cannot pass a cap together. As no token is shorter than a byte, an endpoint that counts
    as it says passes none.
    """

    caps: Caps
    prices: Prices = Prices()
    used: Used = Used()
    _open: Used = field(default=Used(), init=False, repr=False)
    _settled: threading.Condition = field(default_factory=threading.Condition, init=False, repr=False)

    def expected(self, prompt: str, most_answer_tokens: int) -> Used:
        """What a call with this prompt, all that is sent as text, uses at most."""
        tokens = len(prompt.encode(errors="surrogatepass")) + OVERHEAD
        return Used(1, tokens, most_answer_tokens, self.prices.of(tokens, most_answer_tokens))

    def reserve(self, expected: Used, *, patient: bool = False) -> None:
        """Count a call before it is made; each call that is reserved must be settled.

        patient : wait while other calls are open that may turn out to use less than was expected of them.

        Raises
        ------
        CapError : the cap that the call would pass.

        """
        with self._settled:
            while fault := self._passed(self.used + expected):
                hopeless = not self._open.calls or self._passed(self.used - _freed(self._open) + expected)
                if hopeless or not patient:
                    raise CapError(fault)
                self._settled.wait()
            self.used, self._open = self.used + expected, self._open + expected

    def settle(self, expected: Used, prompt_tokens: int | None, answer_tokens: int | None) -> None:
        """Put what a call has used in place of what was expected; without a count the expectation stays."""
        actual = expected
        if prompt_tokens is not None and answer_tokens is not None:
            actual = Used(1, prompt_tokens, answer_tokens, self.prices.of(prompt_tokens, answer_tokens))
        with self._settled:
            self.used, self._open = self.used - expected + actual, self._open - expected
            self._settled.notify_all()

    def _passed(self, after: Used) -> Fault | None:
        """The cap that is passed where so much has been used."""
        caps = (
            ("calls", self.caps.calls, after.calls),
            ("tokens", self.caps.tokens, after.prompt_tokens + after.answer_tokens),
            (f"money, in {self.prices.currency}", self.caps.money, after.money),
        )
        for name, cap, value in caps:
            if cap is not None and value > cap:
                found = f"up to {value:,.10g} with the next call, after {self.used.calls} calls"
                step = "raise the cap; what was answered is kept, and a rerun goes on from there"
                return Fault(f"the cap on {name}", found, f"at most {cap:,.10g}", step)
        return None


def _freed(open_calls: Used) -> Used:
    """What settling may give back of what was expected: a call that was made stays one."""
    return replace(open_calls, calls=0)


class CapError(ElicitationError):
    """A cap would be passed by the next call, which was not made."""
