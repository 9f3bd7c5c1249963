"""Asking many at once: in order, once each, and whatever stops it, a rerun asks the rest and nothing else."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from elicit import llm_faults as faults
from elicit.client_lab import FREE, USUAL, a_request
from elicit.llm_script import line, scripted
from elicit.llm_server import Document, Fault, Plan, serve
from elicit.llm_server import Endpoint as Server

from afa.elicit import live
from afa.elicit.budget import Budget, BudgetError, Caps, Prices, Usage
from afa.elicit.client import Client
from afa.elicit.live import ask_all, reasons, usage_estimate
from afa.elicit.record import Entry, Question, Record, Request
from afa.errors import ElicitationError
from afa.model.study import Endpoint

PRICES = Prices(1.0, 2.0)


def requests_for(count: int) -> list[Request]:
    return [a_request(f"Phenotype {number}") for number in range(count)]


def client_of(server: Server, folder: Path, caps: Caps = FREE) -> Client:
    endpoint = Endpoint.from_environment(server.environment)
    client = Client(endpoint, Budget(Record(folder), caps, PRICES), USUAL)
    client._pause = lambda seconds, stop: None
    return client


def _numbers(server: Server) -> list[int]:
    """Which phenotypes the server was asked for, in order."""
    return [_number(asked.document) for asked in server.asked]


def _number(document: Document) -> int:
    return int(line(document, "Phenotype").split()[1])


def _on(numbers: set[int], fault: Fault) -> Plan:
    return lambda _, document: fault if _number(document) in numbers else None


def test_results_come_in_the_order_of_the_requests_whatever_order_they_end_in(tmp_path):
    slower = lambda _, document: faults.slow(0.02 * (7 - _number(document)))  # noqa: E731
    with serve(scripted, slower) as server:
        entries = ask_all(requests_for(8), client_of(server, tmp_path), concurrency=8)
    assert [entry.question.values["phenotype"] for entry in entries] == [f"Phenotype {n}" for n in range(8)]
    assert {entry.outcome for entry in entries} == {"answered"}
    assert sorted(_numbers(server)) == list(range(8))


@pytest.mark.parametrize("concurrency", [1, 3])
def test_no_more_calls_are_open_at_once_than_allowed(tmp_path, concurrency):
    together = threading.Barrier(concurrency)  # as many calls as are allowed wait for one another

    def plan(_number, _document):
        together.wait(60)
        return faults.slow(0.05)

    with serve(scripted, plan) as server:
        ask_all(requests_for(9), client_of(server, tmp_path), concurrency=concurrency)
        assert server.most_at_once == concurrency


def test_records_are_the_same_for_any_concurrency(tmp_path):
    told = []
    for concurrency in (1, 6):
        with serve(scripted, _on({1, 4}, faults.refused)) as server:
            entries = ask_all(requests_for(6), client_of(server, tmp_path / str(concurrency)), concurrency=concurrency)
        told.append([(entry.key, entry.outcome, entry.raw, entry.attempt) for entry in entries])
    assert told[0] == told[1]


def test_a_rerun_asks_nothing_and_returns_the_same(tmp_path):
    with serve(scripted, _on({2}, faults.refused)) as server:
        first = ask_all(requests_for(4), client_of(server, tmp_path))
        calls = len(server.asked)
        client = client_of(server, tmp_path)
        assert ask_all(requests_for(4), client) == first
        assert len(server.asked) == calls == 5
        assert client.budget.used.calls == 5


def test_requests_that_the_store_knows_are_not_asked_with_the_rest(tmp_path):
    with serve(scripted) as server:
        ask_all(requests_for(3), client_of(server, tmp_path))
        ask_all(requests_for(6), client_of(server, tmp_path))
        assert sorted(_numbers(server)) == list(range(6))


def test_equal_requests_are_asked_once_and_all_get_the_answer(tmp_path):
    (request,) = requests_for(1)
    with serve(scripted) as server:
        entries = ask_all([request] * 5, client_of(server, tmp_path), concurrency=5)
        assert len(server.asked) == 1
    assert len(entries) == 5
    assert len({entry.time for entry in entries}) == 1


def test_no_requests_give_no_entries_and_no_call(tmp_path):
    with serve(scripted) as server:
        assert ask_all([], client_of(server, tmp_path)) == []
        assert server.asked == []


def test_questions_without_an_answer_do_not_stop_the_others(tmp_path):
    plan = lambda _, document: {0: faults.refused, 1: faults.server_error, 2: faults.malformed}.get(_number(document))  # noqa: E731
    with serve(scripted, plan) as server:
        entries = ask_all(requests_for(5), client_of(server, tmp_path))
    assert [entry.outcome for entry in entries] == ["refused", "failed", "unparsable", "answered", "answered"]


def test_a_cap_stops_the_rest_is_not_passed_and_keeps_what_was_answered(tmp_path):
    with serve(scripted) as server:
        with pytest.raises(BudgetError, match="the cap on calls"):
            ask_all(requests_for(12), client_of(server, tmp_path, Caps(calls=7)), concurrency=4)
        assert len(server.asked) == 7
        kept = {entry.key for entry in Record(tmp_path).entries()}
        assert len(kept) == 7
        entries = ask_all(requests_for(12), client_of(server, tmp_path), concurrency=4)
        assert {entry.outcome for entry in entries} == {"answered"}
        assert max(Counter(_numbers(server)).values()) == 1


def test_a_cap_on_tokens_leaves_room_for_all_calls_that_fit_one_after_another(tmp_path):
    with serve(scripted) as server:
        client = client_of(server, tmp_path)
        client.budget.caps = Caps(tokens=client.expected(requests_for(1)[0]).prompt_tokens + 4096 + 3500)
        entries = ask_all(requests_for(8), client, concurrency=8)
    assert {entry.outcome for entry in entries} == {"answered"}
    assert client.budget.used.prompt_tokens + client.budget.used.answer_tokens <= client.budget.caps.tokens


def test_a_fatal_error_stops_the_rest_and_keeps_what_was_answered(tmp_path):
    with serve(scripted, _on({5}, faults.forbidden)) as server:
        with pytest.raises(ElicitationError, match="Incorrect API key"):
            ask_all(requests_for(40), client_of(server, tmp_path), concurrency=2)
        assert 6 <= len(server.asked) <= 8
        assert len(list(Record(tmp_path).entries())) == len(server.asked) - 1


def test_after_a_fatal_error_a_lone_worker_makes_no_other_call(tmp_path):
    with serve(scripted, _on({3}, faults.forbidden)) as server:
        with pytest.raises(ElicitationError):
            ask_all(requests_for(30), client_of(server, tmp_path), concurrency=1)
        assert _numbers(server) == [0, 1, 2, 3]


def test_calls_that_are_open_when_an_error_comes_are_kept(tmp_path):
    opened, released = threading.Event(), threading.Event()

    def plan(number: int, document: Document) -> Fault:
        if _number(document) == 0:
            opened.set()
            return faults.slow(released)
        opened.wait(60)
        threading.Timer(0.2, released.set).start()
        return faults.forbidden

    with serve(scripted, plan) as server, pytest.raises(ElicitationError):
        ask_all(requests_for(9), client_of(server, tmp_path), concurrency=2)
    (entry,) = Record(tmp_path).entries()
    assert entry.question.values == {"phenotype": "Phenotype 0"}
    assert entry.outcome == "answered"


def test_a_faulty_record_is_an_error_before_any_call(tmp_path):
    (tmp_path / "a.jsonl").write_text("{}\n")
    with serve(scripted) as server:
        with pytest.raises(ElicitationError, match="line 1"):
            ask_all(requests_for(3), client_of(server, tmp_path))
        assert server.asked == []


def test_a_full_disk_stops_the_rest(tmp_path, monkeypatch):
    with serve(scripted) as server:
        client = client_of(server, tmp_path)

        def full(entry: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(client.record, "append", full)
        with pytest.raises(OSError, match="No space"):
            ask_all(requests_for(9), client, concurrency=2)
        assert len(server.asked) <= 3


@pytest.mark.parametrize("concurrency", [0, -1])
def test_a_concurrency_below_one_is_refused(tmp_path, concurrency):
    with serve(scripted) as server, pytest.raises(ElicitationError, match="concurrency"):
        ask_all(requests_for(1), client_of(server, tmp_path), concurrency=concurrency)


@pytest.fixture
def interruptible():
    """SIGINT as Python handles it by itself: a shell that starts tests in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_keeps_what_is_open_and_a_rerun_asks_the_rest(tmp_path):
    def plan(number: int, document: Document) -> Fault | None:
        if number == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return faults.slow(0.1)

    with serve(scripted, plan) as server:
        with pytest.raises(KeyboardInterrupt):
            ask_all(requests_for(30), client_of(server, tmp_path), concurrency=2)
        asked = len(server.asked)
        assert asked <= 8
        assert len(list(Record(tmp_path).entries())) == asked
        server.plan = ()
        entries = ask_all(requests_for(30), client_of(server, tmp_path))
        assert {entry.outcome for entry in entries} == {"answered"}
        assert sorted(_numbers(server)) == list(range(30))


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_does_not_wait_for_a_silent_endpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "INTERRUPT_SECONDS", 0.2)

    def plan(number: int, document: Document) -> Fault | None:
        if number == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return faults.slow(20)

    with serve(scripted, plan) as server:
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            ask_all(requests_for(4), client_of(server, tmp_path), concurrency=2)
        assert time.monotonic() - start < 10


CHILD = """
import sys
from pathlib import Path
from elicit.client_lab import USUAL
from elicit.test_live import requests_for
from afa.elicit.budget import Budget
from afa.elicit.live import ask_all
from afa.elicit.client import Client
from afa.model.study import Endpoint
from afa.elicit.record import Record
ask_all(requests_for(40), Client(Endpoint.from_environment(), Budget(Record(Path(sys.argv[1]))), USUAL))
"""


def test_a_run_that_is_killed_half_way_goes_on_where_it_stopped(tmp_path):
    half = threading.Event()

    def plan(number: int, document: Document) -> Fault:
        if number >= 20:
            half.set()
        return faults.slow(0.03)

    with serve(scripted, plan) as server:
        environment = {**os.environ, **server.environment, "PYTHONPATH": str(Path(__file__).parents[1])}
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], env=environment)
        try:
            assert half.wait(60)
        finally:
            child.send_signal(signal.SIGKILL)
            assert child.wait(30) == -signal.SIGKILL
    kept = {entry.key: entry for entry in Record(tmp_path).entries()}
    assert 10 <= len(kept) < 40
    # Another server: requests of the dead run may still be on their way to the first.
    with serve(scripted) as server:
        client = client_of(server, tmp_path)
        requests = requests_for(40)
        entries = ask_all(requests, client)
        again = sorted(_numbers(server))
        assert again == [number for number, request in enumerate(requests) if client.key(request) not in kept]
    assert all(kept.get(entry.key, entry) == entry for entry in entries)
    with serve(scripted) as server:
        whole = ask_all(requests, client_of(server, tmp_path / "another"))
    assert [entry.raw for entry in whole] == [entry.raw for entry in entries]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "progress", "shown"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_a_bar_is_shown_on_a_terminal_alone(tmp_path, monkeypatch, terminal, progress, shown):
    screen = _Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    with serve(scripted) as server:
        ask_all(requests_for(2), client_of(server, tmp_path))
        screen.seek(0)
        screen.truncate()
        ask_all(requests_for(3), client_of(server, tmp_path), progress=progress)
    written = screen.getvalue()
    assert bool(written) is shown
    if shown:
        assert "0/1" in written
        assert "1/1" in written
        assert "3 calls, 0.00 USD" in written


def test_an_estimate_is_at_most_what_is_left_to_ask_and_calls_nobody(tmp_path):
    requests = requests_for(6)
    with serve(scripted) as server:
        client = client_of(server, tmp_path)
        before = usage_estimate([*requests, requests[0]], client)
        assert server.asked == []
        assert before.calls == 6
        assert before.answer_tokens == 6 * USUAL.most_tokens
        assert before.money == pytest.approx(PRICES.of(before.prompt_tokens, before.answer_tokens))
        ask_all(requests[:4], client)
        left = usage_estimate(requests, client)
        assert left == sum((client.expected(request) for request in requests[4:]), Usage())
        ask_all(requests, client)
        assert usage_estimate(requests, client) == Usage()
        used = client.budget.used
        assert used.prompt_tokens <= before.prompt_tokens
        assert used.answer_tokens <= before.answer_tokens


def test_what_has_no_more_attempts_left_is_not_in_the_estimate(tmp_path):
    with serve(scripted, lambda _, document: faults.refused) as server:
        client = client_of(server, tmp_path)
        ask_all(requests_for(2), client)
        assert usage_estimate(requests_for(2), client) == Usage()
        client.manner = replace(client.manner, answers=3)
        assert usage_estimate(requests_for(2), client).calls == 2


def test_reasons_are_told_by_kind_the_commonest_first_with_the_last_attempt_at_a_question():
    def entry(number: int, outcome: str, detail: str) -> Entry:
        question = Question("unary", {"phenotype": f"F{number}"}, "r1")
        return Entry(question, "m", {}, "p", "w", outcome, "", detail, 1, "2026-01-01T00:00:00+00:00", (1, 1))

    attempts = [[entry(n, "failed", "HTTP status 503: busy"), entry(n, "refused", f"no {'x' * n}")] for n in range(7)]
    attempts += [[entry(n, "unparsable", f"line 1 column {n}: \x1b[2J, cut")] for n in range(10, 12)]
    attempts += [[entry(12, "failed", "busy"), entry(12, "answered", "")], []]
    assert list(reasons(attempts)) == [
        "2 unparsable: line 1 column 10: [2J, cut (first: unary F10, run r1)",
        *(f"1 refused: no {'x' * n} (first: unary F{n}, run r1)" for n in range(4)),
        "3 for other reasons: `detail` in the lines of the record",
    ]
