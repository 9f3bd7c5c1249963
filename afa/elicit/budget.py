"""Limit the number and cost of requests to language models.

A record is a folder of recorded answers. Each cap (on requests, tokens or money) limits the sum over all processes and
runs that use the same record. Before a request is sent, its largest possible number of tokens is written to a `.tries`
file of the record. After the reply, the number of tokens that the endpoint counted is written to a second line. If the
process is killed before the reply, later runs assume that the request used its largest possible number of tokens. Only
one process at a time sends requests for a record (`Budget.alone`).
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from datetime import UTC, datetime

import pandas as pd
from filelock import FileLock, Timeout

from afa.elicit.record import RESTORE, TRIES, JsonLines, Record
from afa.errors import ElicitationError, Fault

TOKEN_OVERHEAD = 64
"""Tokens for roles and separators, added to the tokens of the text in the largest use of a call."""
LOCK = ".lock"
POLL_SECONDS = 0.02
"""Seconds to wait before checking again whether calls have ended and left room under the caps."""
ACCOUNT_COLUMNS = [
    *("prompt", "run", "model", "outcome"),
    *("attempts", "prompt_tokens", "answer_tokens", "uncounted", "money"),
]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Caps:
    """Limits on the number, tokens and cost of requests to language models. None means no limit.

    Parameters
    ----------
    tokens : of prompts and answers together
    money : at the given `Prices`

    """

    calls: int | None = None
    tokens: int | None = None
    money: float | None = None


@dataclass(frozen=True)
class Prices:
    """Prices of a million prompt tokens and of a million answer tokens."""

    prompt: float = 0.0
    answer: float = 0.0
    currency: str = "USD"

    def of(self, prompt: int, answer: int) -> float:
        """Return the price of a number of prompt tokens (`prompt`) plus a number of answer tokens (`answer`)."""
        return (prompt * self.prompt + answer * self.answer) / 1e6


@dataclass(frozen=True)
class Usage:
    """Number of requests, number of tokens, and cost: actual values or upper bounds."""

    calls: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    money: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


NO_CAPS, NO_PRICES = Caps(), Prices()


class BudgetError(ElicitationError):
    """Error raised before a request is sent, because the request could exceed a cap."""


@dataclass
class _Call:
    key: str
    time: str
    tokens: tuple[int, int]
    is_open: bool = False


class Budget:
    """Caps, prices, and the numbers of requests and tokens used so far, for one folder of recorded answers.

    Several threads may share a `Budget`.

    Before the endpoint has counted the tokens of a prompt, each byte counts as one token, and `TOKEN_OVERHEAD` tokens
    are added. The result is an upper bound, because no token is shorter than one byte.
    """

    def __init__(self, record: Record, caps: Caps = NO_CAPS, prices: Prices = NO_PRICES) -> None:
        self.record, self.caps, self.prices = record, caps, prices
        self._lines = JsonLines(record.folder, TRIES)
        self._calls: dict[str, _Call] = {}
        self._mutex = threading.RLock()
        self._before: Usage | None = None

    @property
    def used(self) -> Usage:
        """Return the number, tokens and cost of all recorded requests, including requests of other processes.

        For a request without a reply, the largest possible number of tokens is added.
        """
        with self._mutex:
            self._read_requests()
            return self._total_usage(each.tokens for each in self._calls.values()) + self._usage_without_requests()

    def expected(self, prompt: str, most_answer_tokens: int) -> Usage:
        """Return upper bounds on the tokens and cost of one request. `prompt` contains all text of the request."""
        tokens = len(prompt.encode(errors="surrogatepass")) + TOKEN_OVERHEAD
        return Usage(1, tokens, most_answer_tokens, self.prices.of(tokens, most_answer_tokens))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock of the record during a `with` block. If another process holds the lock, wait first."""
        self.record.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.record.folder / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            log.warning("%s: waiting for another process that asks with this record", self.record.folder)
            lock.acquire()
        try:
            self.record.refresh()
            yield
        finally:
            lock.release()

    def begin(self, key: str, expected: Usage) -> str:
        """Record a request before it is sent, and return a name by which the method `end` identifies the request.

        For each unfinished request, the largest possible number of tokens is counted. If the new request exceeds a cap
        only because of unfinished requests, wait until they end.

        Raises
        ------
        BudgetError : the call would exceed a cap.

        """
        while True:
            with self._mutex:
                used, calls = self.used, list(self._calls.values())
                fault = self._exceeded_cap(used + expected)
                if not fault:
                    return self._write_request(key, expected)
                # If the new request would exceed a cap even if all unfinished requests used no tokens, waiting for the
                # end of the unfinished requests does not help.
                least = self._total_usage((0, 0) if each.is_open else each.tokens for each in calls)
                if self._exceeded_cap(least + self._usage_without_requests() + expected):
                    raise BudgetError(fault)
            time.sleep(POLL_SECONDS)

    def end(self, name: str, tokens: tuple[int, int] | None) -> None:
        """Record the number of tokens that a finished request used.

        If `tokens` is None, the largest possible number of tokens of the request is counted.
        """
        with self._mutex:
            given = self._calls[name]
            given.is_open, given.tokens = False, tokens or given.tokens
            # If a power failure destroys this line, later runs assume that the request used the largest possible number
            # of tokens.
            self._lines.append({"try": name, "used": tokens}, durable=False)

    def _write_request(self, key: str, expected: Usage) -> str:
        name, now = uuid.uuid4().hex, datetime.now(UTC).isoformat(timespec="microseconds")
        tokens = expected.prompt_tokens, expected.answer_tokens
        self._lines.append({"try": name, "key": key, "time": now, "expected": tokens})
        self._calls[name] = _Call(key, now, tokens, is_open=True)
        return name

    def _read_requests(self) -> None:
        faults: list[Fault] = []
        for where, line in self._lines.new(faults):
            document = json.loads(line)
            try:
                if "used" in document:
                    given = self._calls[document["try"]]
                    given.tokens = tuple(document["used"] or given.tokens)
                elif document["try"] not in self._calls:
                    prompt, answer = map(int, document["expected"])
                    self._calls[document["try"]] = _Call(str(document["key"]), str(document["time"]), (prompt, answer))
            except (KeyError, TypeError, ValueError):
                faults.append(Fault(where, "a line that is about no call", "a call, or what a call has used", RESTORE))
        if faults:
            self._lines.forget()
            raise ElicitationError(faults)

    def _total_usage(self, tokens: Iterable[tuple[int, int]]) -> Usage:
        counts = list(tokens)
        prompt, answer = sum(each[0] for each in counts), sum(each[1] for each in counts)
        return Usage(len(counts), prompt, answer, self.prices.of(prompt, answer))

    def _usage_without_requests(self) -> Usage:
        """Return the tokens and cost of recorded answers that are missing from the log of requests.

        If the number of tokens of an answer is unknown, the largest number that an answer may have is used.
        """
        if self._before is None:
            first: dict[str, str] = {}
            for each in self._calls.values():
                first[each.key] = min(each.time, first.get(each.key, each.time))
            spent = []
            for entry in self.record.entries():
                # Times are compared as texts. Every date begins with a digit below 9, and so comes before the text "9".
                # The time `unknown` comes after "9" and after every date, so that an entry with this time is never
                # counted here.
                if entry.time < first.get(entry.key, "9"):
                    asked = {} if isinstance(entry.parameters, str) else entry.parameters
                    spent.append((0, asked.get("most_tokens", 0)) if isinstance(entry.tokens, str) else entry.tokens)
            self._before = self._total_usage(spent)
        return self._before

    def _exceeded_cap(self, after: Usage) -> Fault | None:
        """Return a `Fault` for the first cap that the numbers in `after` exceed, or None if they exceed no cap."""
        caps = (
            ("calls", self.caps.calls, after.calls),
            ("tokens", self.caps.tokens, after.prompt_tokens + after.answer_tokens),
            (f"money, in {self.prices.currency}", self.caps.money, after.money),
        )
        for name, cap, value in caps:
            if cap is not None and value > cap:
                found = f"up to {value:,.10g} with the next call, after {after.calls - 1} calls"
                step = "raise the cap; what was answered is kept, and a rerun goes on from there"
                return Fault(f"the cap on {name}", found, f"at most {cap:,.10g}", step)
        return None


def account_table(record: Record, prices: Prices) -> pd.DataFrame:
    """Return a table of the tokens and cost of recorded answers, with the columns `ACCOUNT_COLUMNS`.

    The table has one row for each combination of prompt, run, model and outcome. The column `uncounted` is the number
    of attempts for which the endpoint gave no token count; such an attempt adds no tokens to its row. The last row,
    `all requests`, sums over all requests, including failed requests, and its sums are compared with the caps. If the
    tokens of a request were not counted, the sums in the row `all requests` include the largest possible number of
    tokens of this request.
    """
    rows = []
    for entry in record.entries():
        counted = (0, 0, 1) if isinstance(entry.tokens, str) else (*entry.tokens, 0)
        rows.append((entry.question.prompt, entry.question.run, entry.model, entry.outcome, 1, *counted))
    table = pd.DataFrame(rows, columns=ACCOUNT_COLUMNS[:-1])
    table = table.groupby(ACCOUNT_COLUMNS[:4], sort=True, as_index=False).sum()
    spent = [prices.of(p, a) for p, a in zip(table["prompt_tokens"], table["answer_tokens"], strict=True)]
    table = table.assign(money=spent)
    used = Budget(record, prices=prices).used
    if used.calls:
        row = ("all requests", "", "", "", used.calls, used.prompt_tokens, used.answer_tokens, 0, used.money)
        table = pd.concat([table, pd.DataFrame([row], columns=ACCOUNT_COLUMNS)], ignore_index=True)
    return table
