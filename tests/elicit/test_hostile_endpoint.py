"""An endpoint that misbehaves in twenty ways at random, runs that are killed, and two of them at once.

What holds: the server never sees more calls than the cap, the key is in no file, no answer is lost and none is asked
for twice, and where an answer was had it is the one of a quiet run.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from elicit import llm_faults as faults
from elicit.client_lab import a_request
from elicit.elicit_lab import Lab
from elicit.llm_script import line, scripted
from elicit.llm_server import KEY, Document, Endpoint, Fault, Reply, serve

from afa.elicit.budget import Budget, Caps
from afa.elicit.client import Client
from afa.elicit.live import ask_all
from afa.elicit.record import Record, Request
from afa.elicit.tables import genes_named, outcome_table
from afa.model.study import Endpoint as Address
from afa.model.study import Manner

MANNER = Manner(timeout=1.0, deadline=1.5, calls=2, answers=4, failures=40, most_tokens=4096)
WAYS: tuple[Fault, ...] = (
    faults.malformed,
    faults.fenced,
    faults.thinks,
    faults.extra_key,
    faults.missing_key,
    faults.empty,
    faults.repeats_key,
    faults.refused,
    faults.filtered,
    faults.truncated,
    faults.no_finish,
    faults.no_choices,
    faults.no_usage,
    faults.closed,
    faults.reset,
    faults.not_json,
    faults.half_json,
    faults.server_error,
    faults.rate_limited("0"),
    faults.drips,
)
READABLE = (
    None,
    faults.fenced,
    faults.thinks,
    faults.extra_key,
    faults.repeats_key,
    faults.no_finish,
    faults.no_usage,
)
"""Ways in which the answer is whole."""
CHILD = """
import sys
from pathlib import Path
from elicit.test_hostile_endpoint import a_client, questions
from afa.elicit.live import ask_all
import time
count, calls = map(int, sys.argv[2:4])
client = a_client(Path(sys.argv[1]), calls)
client._pause = lambda seconds, stop: time.sleep(min(seconds, 0.05))
ask_all(questions(count), client, concurrency=8, progress=False)
"""


def questions(count: int) -> list[Request]:
    return [a_request(f"Phenotype {number}") for number in range(count)]


def a_client(folder: Path, calls: int) -> Client:
    return Client(Address.from_environment(), Budget(Record(folder), Caps(calls=calls)), MANNER)


def at_random(number: int, document: Document) -> Fault | None:
    """One of the ways in half of the calls; which one hangs on the call's number and question."""
    draw = hashlib.sha256(f"{number} {line(document, 'Phenotype')}".encode()).digest()
    return WAYS[draw[1] % len(WAYS)] if draw[0] < 128 else None


class Counting:
    """The plan, and which questions got a whole answer that could be read."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()

    def __call__(self, number: int, document: Document) -> Fault:
        fault = at_random(number, document)

        def given(reply: Reply, asked: Document) -> Reply:
            changed = fault(reply, asked) if fault else reply
            if fault in READABLE:
                self.sent[line(document, "Phenotype")] += 1
            return changed

        return given


def a_run(folder: Path, server: Endpoint, count: int, calls: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **server.environment, "PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), str(count), str(calls)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def has_ended(run: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a run ends within so many seconds."""
    try:
        run.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def check(folder: Path, quiet: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """What holds of a record beside that of a quiet run; how many questions have an answer."""
    with serve(scripted) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        whole = ask_all(questions(count), a_client(quiet, 10**6), progress=False)
    entries = list(Record(folder).entries())
    answered = [entry for entry in entries if entry.outcome == "answered"]
    keys = Counter(entry.key for entry in answered)
    assert max(keys.values(), default=1) == 1
    expected = {entry.key: entry for entry in whole}
    own = sorted(answered, key=lambda entry: entry.question.values["phenotype"])
    others = [expected[entry.key] for entry in own]
    columns = ["phenotype", "gene", "direction", "lit_prob", "mechanism", "evidence_source"]
    assert genes_named(own)[columns].equals(genes_named(others)[columns])
    assert set(outcome_table([entry.question for entry in own], own)["outcome"]) <= {"answered"}
    for path in folder.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes()
    return len(answered)


def killed_and_doubled(folder: Path, count: int, calls: int, kills: int) -> tuple[Endpoint, Counting]:
    """Runs that are killed at so many moments, two at once; then runs until everything is answered or capped."""
    plan = Counting()
    with serve(scripted, plan) as server:
        for moment in range(kills):
            runs = [a_run(folder, server, count, calls) for _ in range(2)]
            target, end = len(server.asked) + count // (2 * kills), time.monotonic() + 120
            while len(server.asked) < target and time.monotonic() < end and not has_ended(runs[0], 0.02):
                pass
            for run in (runs[moment % 2], runs[1 - moment % 2]):
                run.send_signal(signal.SIGKILL)
                run.wait(30)
                time.sleep(0.3)
        for _ in range(4):
            runs = [a_run(folder, server, count, calls) for _ in range(2)]
            codes = [run.wait(600) for run in runs]
            if not any(codes) or len(server.asked) >= calls:
                break
        time.sleep(0.2)
    return server, plan


@pytest.mark.parametrize(
    ("count", "calls", "kills"),
    [(24, 10_000, 1), pytest.param(1000, 100_000, 5, marks=pytest.mark.slow)],
)
def test_nothing_is_lost_or_asked_twice_though_runs_are_killed_and_two_go_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, calls: int, kills: int
) -> None:
    server, plan = killed_and_doubled(tmp_path / "record", count, calls, kills)
    answered = check(tmp_path / "record", tmp_path / "quiet", count, monkeypatch)
    assert answered >= 0.9 * count
    # A question is answered again only where a kill came between its reply and its line: a few calls were open then.
    again = sum(plan.sent.values()) - answered
    assert 0 <= again <= kills * 2 * 8
    assert Budget(Record(tmp_path / "record")).used.calls >= len(server.asked)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "calls", "kills"), [(24, 20, 1), (1000, 700, 5)])
def test_no_more_calls_reach_the_server_than_the_cap_though_runs_are_killed_and_two_go_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, calls: int, kills: int
) -> None:
    server, _ = killed_and_doubled(tmp_path / "record", count, calls, kills)
    # A process that is killed between its line and its call has used it up.
    assert calls - kills * 2 * 8 <= len(server.asked) <= calls
    check(tmp_path / "record", tmp_path / "quiet", count, monkeypatch)


def test_a_terminated_run_ends_soon_though_the_endpoint_hangs(tmp_path: Path) -> None:
    asked = threading.Event()

    def hang(reply: Reply, _: Document) -> Reply:
        asked.set()
        return replace(reply, wait=60.0)

    lab = Lab(tmp_path)
    with serve(scripted, lambda *_: hang) as server:
        process = lab.start("unary", "--live", "--calls=9", environment=server.environment, patience=1.0)
        assert asked.wait(60)
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) != 0
        assert time.monotonic() - begin < 25
    assert not (lab.run / "unary").exists()
    tries = [json.loads(text) for path in lab.record.glob("*.tries") for text in path.read_text().splitlines()]
    assert 1 <= len(server.asked) <= sum("expected" in each for each in tries) <= 4
