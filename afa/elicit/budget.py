"""The cost of asking. Caps on calls, tokens and money apply to a record as a whole, over all processes and runs.

Each call is a line in a `.tries` file of the record. The line is written before the call and states its largest
possible use. A second line is written after the reply. The second line has the tokens that the endpoint counted. A
process holds the record's lock while it reads these lines and writes the next one. A call without a second line counts
with its largest possible use. An example is a call of a process that was killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
import uuid
import weakref
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
from filelock import FileLock

from afa.elicit.record import RESTORE, TRIES, JsonLines, Record
from afa.errors import ElicitationError, Fault

OVERHEAD = 64
"""Tokens for roles and separators, added to the tokens of the text in the largest use of a call."""
LOCK = ".lock"
POLL = 0.02
"""Seconds to wait before checking again whether calls have ended and left room under the caps."""
ACCOUNT_COLUMNS = [
    *("prompt", "run", "model", "outcome"),
    *("attempts", "prompt_tokens", "answer_tokens", "uncounted", "money"),
]


@dataclass(frozen=True)
class Caps:
    """Largest use of a record. None means that there is no cap.

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
    """The prices of a million tokens of the prompt and of the answer."""

    prompt: float = 0.0
    answer: float = 0.0
    currency: str = "USD"

    def of(self, prompt: int, answer: int) -> float:
        """Return the price of these numbers of tokens."""
        return (prompt * self.prompt + answer * self.answer) / 1e6


@dataclass(frozen=True)
class Used:
    """The use of calls. The use is either the actual use or the largest possible use."""

    calls: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    money: float = 0.0

    def __add__(self, other: Used) -> Used:
        return Used(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


NO_CAPS, NO_PRICES = Caps(), Prices()


class CapError(ElicitationError):
    """The next call would exceed a cap. Therefore it was not made."""


@dataclass
class _Call:
    key: str
    time: str
    tokens: tuple[int, int]
    file: Path
    is_open: bool = True


class Budget:
    """Caps and prices of a record, and its use so far. Several threads and processes may use it.

    No token is shorter than a byte. Therefore the caps hold for any endpoint that counts tokens correctly.
    """

    def __init__(self, record: Record, caps: Caps = NO_CAPS, prices: Prices = NO_PRICES) -> None:
        self.record, self.caps, self.prices = record, caps, prices
        self._lines = JsonLines(record.folder, TRIES)
        self._calls: dict[str, _Call] = {}
        self._mutex = threading.RLock()
        self._claimed: Path | None = None
        self._before: Used | None = None

    @property
    def used(self) -> Used:
        """Return the use of all calls of the record, including other processes.

        An open call counts with its largest use.
        """
        with self._mutex:
            self._read()
            return self._sum(each.tokens for each in self._calls.values()) + self._used_before_calls()

    def expected(self, prompt: str, most_answer_tokens: int) -> Used:
        """Return the largest use of a call with this prompt. The prompt includes all text that is sent."""
        tokens = len(prompt.encode(errors="surrogatepass")) + OVERHEAD
        return Used(1, tokens, most_answer_tokens, self.prices.of(tokens, most_answer_tokens))

    def begin(self, key: str, expected: Used, attempts: int = 0) -> str | None:
        """Record a call before it is made, and return the call's name. `end` takes this name.

        If open calls may still use less than their largest use, the function waits for room under the caps. The result
        is None if another process has added an attempt at this request. The result is also None if another process has
        an open call for this request.

        Parameters
        ----------
        attempts : number of attempts at the request known to the caller

        Raises
        ------
        CapError : the call would exceed a cap.

        """
        self.record.folder.mkdir(parents=True, exist_ok=True)
        while True:
            with self._mutex, FileLock(self.record.folder / LOCK, poll_interval=POLL / 2):
                self._read()
                # Read attempts after calls. An attempt is recorded before its call ends, so none is missed.
                self.record.refresh()
                others = [each for each in self._calls.values() if each.key == key and self._is_going_on(each)]
                if others or len(self.record.attempts(key)) != attempts:
                    return None
                used = self._sum(each.tokens for each in self._calls.values()) + self._used_before_calls()
                fault = self._passed(used + expected)
                if not fault:
                    return self._write(key, expected)
                # Open calls may turn out to use no tokens, but their number remains.
                least = ((0, 0) if self._is_going_on(each) else each.tokens for each in self._calls.values())
                if self._passed(self._sum(least) + self._used_before_calls() + expected):
                    raise CapError(fault)
            time.sleep(POLL)

    def is_busy(self, key: str) -> bool:
        """Return True if another process has a call for this request open."""
        with self._mutex:
            self._read()
            return any(each.key == key and self._is_going_on(each) for each in self._calls.values())

    def end(self, name: str, tokens: tuple[int, int] | None) -> None:
        """Record the tokens of a call. If the endpoint did not count, `tokens` is None and the largest use remains."""
        with self._mutex:
            given = self._calls[name]
            given.is_open, given.tokens = False, tokens or given.tokens
            # If a power failure loses this line, the call counts as more, never as less.
            self._lines.append({"try": name, "used": tokens}, durable=False)

    def _write(self, key: str, expected: Used) -> str:
        name, now = uuid.uuid4().hex, datetime.now(UTC).isoformat(timespec="microseconds")
        tokens = expected.prompt_tokens, expected.answer_tokens
        path = self._lines.append({"try": name, "key": key, "time": now, "expected": tokens})
        if path != self._claimed:
            # The lock on this process's file is released when the process ends. Until then, open calls of the process
            # count as running.
            descriptor = os.open(path, os.O_RDONLY)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            weakref.finalize(self, os.close, descriptor)
            self._claimed = path
        self._calls[name] = _Call(key, now, tokens, path)
        return name

    def _read(self) -> None:
        faults: list[Fault] = []
        for path, where, line in self._lines.new(faults):
            document = json.loads(line)
            try:
                if "used" in document:
                    given = self._calls[document["try"]]
                    given.is_open = False
                    given.tokens = tuple(document["used"] or given.tokens)
                elif document["try"] not in self._calls:
                    prompt, answer = map(int, document["expected"])
                    given = _Call(str(document["key"]), str(document["time"]), (prompt, answer), path)
                    self._calls[document["try"]] = given
            except (KeyError, TypeError, ValueError):
                faults.append(Fault(where, "no line of a try", "one, or what one has used", RESTORE))
        if faults:
            self._lines.forget()
            raise ElicitationError(faults)

    def _sum(self, tokens: Iterable[tuple[int, int]]) -> Used:
        counts = list(tokens)
        prompt, answer = sum(each[0] for each in counts), sum(each[1] for each in counts)
        return Used(len(counts), prompt, answer, self.prices.of(prompt, answer))

    def _used_before_calls(self) -> Used:
        """Return the use of the entries without recorded calls. Uncounted tokens count with the largest use."""
        if self._before is None:
            first: dict[str, str] = {}
            for each in self._calls.values():
                first[each.key] = min(each.time, first.get(each.key, each.time))
            spent = []
            for entry in self.record.entries():
                # An unknown time sorts after all others.
                if entry.time < first.get(entry.key, "9"):
                    asked = {} if isinstance(entry.parameters, str) else entry.parameters
                    spent.append((0, asked.get("most_tokens", 0)) if isinstance(entry.tokens, str) else entry.tokens)
            self._before = self._sum(spent)
        return self._before

    def _passed(self, after: Used) -> Fault | None:
        """Return the fault for the first cap that the use `after` exceeds, or None."""
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

    def _is_going_on(self, given: _Call) -> bool:
        """Return True if a call is open and its process is alive. Calls of dead processes stay open in the record."""
        if not given.is_open or given.file == self._claimed:
            return given.is_open
        with suppress(FileNotFoundError):
            descriptor = os.open(given.file, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
            finally:
                os.close(descriptor)
        return False


def account_table(record: Record, prices: Prices) -> pd.DataFrame:
    """Return the use of a record, with the columns `ACCOUNT_COLUMNS`.

    There is one row for each prompt, run, model and outcome. The last row, `tries`, is the use that caps count. This
    row includes all calls, also failed ones. Calls without a token count have their largest use. The column `uncounted`
    is the number of attempts for which the endpoint gave no token count.
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
        row = ("tries", "", "", "", used.calls, used.prompt_tokens, used.answer_tokens, 0, used.money)
        table = pd.concat([table, pd.DataFrame([row], columns=ACCOUNT_COLUMNS)], ignore_index=True)
    return table
