"""The budget of a record: no cap is ever passed, whoever calls, however often, and whatever ends a call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from afa.elicit.budget import LOCK, TOKEN_OVERHEAD, Budget, BudgetError, Caps, Prices, Usage
from afa.elicit.record import Entry, Question, Record, merge
from afa.errors import ElicitationError

PRICES = Prices(prompt=2.0, answer=8.0, currency="EUR")
TEN = Usage(1, 10, 5, PRICES.of(10, 5))
NO_CAPS = Caps()


def a_budget(folder: Path, caps: Caps = NO_CAPS) -> Budget:
    return Budget(Record(folder), caps, PRICES)


def used(calls: int, prompt: int, answer: int) -> Usage:
    return Usage(calls, prompt, answer, PRICES.of(prompt, answer))


def begun(budget: Budget, count: int, expected: Usage = TEN) -> list[str]:
    return [budget.begin(f"question {number}", expected) for number in range(count)]


def test_prices_are_of_a_million_tokens():
    assert PRICES.of(1_000_000, 500_000) == 6.0
    assert Prices().of(10**9, 10**9) == 0.0


def test_a_call_is_expected_to_use_a_token_per_byte_and_the_longest_answer(tmp_path):
    assert a_budget(tmp_path).expected("aé", 100) == used(1, 3 + TOKEN_OVERHEAD, 100)


@pytest.mark.parametrize(
    ("caps", "name"),
    [
        (Caps(calls=3), "the cap on calls"),
        (Caps(tokens=45), "the cap on tokens"),
        (Caps(money=3.5 * TEN.money), "the cap on money, in EUR"),
    ],
)
def test_the_last_call_that_a_cap_leaves_room_for_is_made_and_the_next_is_not(tmp_path, caps, name):
    budget = a_budget(tmp_path, caps)
    for try_ in begun(budget, 3):
        budget.end(try_, None)
    with pytest.raises(BudgetError, match=f"{name}: found up to .* after 3 calls; expected at most .*rerun goes on"):
        budget.begin("another", TEN)
    assert budget.used == used(3, 30, 15)


def test_a_cap_of_nothing_lets_no_call_pass_and_no_cap_lets_all(tmp_path):
    with pytest.raises(BudgetError):
        a_budget(tmp_path, Caps(calls=0)).begin("question", TEN)
    budget = a_budget(tmp_path)
    begun(budget, 50)
    assert budget.used.calls == 50


def test_what_a_call_used_takes_the_place_of_what_was_expected(tmp_path):
    budget = a_budget(tmp_path, Caps(tokens=20))
    budget.end(begun(budget, 1)[0], (3, 1))
    assert budget.used == used(1, 3, 1)
    budget.end(budget.begin("another", TEN), None)
    with pytest.raises(BudgetError):
        budget.begin("third", TEN)


def test_a_call_that_used_more_than_expected_is_counted_whole_and_stops_the_next(tmp_path):
    budget = a_budget(tmp_path, Caps(tokens=30))
    budget.end(begun(budget, 1)[0], (100, 5))
    assert budget.used.prompt_tokens == 100
    with pytest.raises(BudgetError):
        budget.begin("another", Usage(1, 0, 0, 0.0))


@pytest.mark.parametrize("counted", [None, (3, 1)])
def test_a_rerun_begins_at_what_earlier_runs_have_used(tmp_path, counted):
    budget = a_budget(tmp_path)
    for name in begun(budget, 2):
        budget.end(name, counted)
    again = a_budget(tmp_path, Caps(calls=2))
    assert again.used == budget.used
    with pytest.raises(BudgetError, match="after 2 calls"):
        again.begin("another", TEN)


def test_a_try_is_on_the_disk_before_it_is_sent(tmp_path):
    a_budget(tmp_path).begin("question", TEN)
    (path,) = tmp_path.glob("*.tries")
    assert json.loads(path.read_text())["expected"] == [10, 5]


CHILD = """
import sys
from pathlib import Path
from elicit.test_budget import TEN, a_budget
budget = a_budget(Path(sys.argv[1]))
with budget.alone():
    budget.begin("question 0", TEN)
    print("begun", flush=True)
    sys.stdin.read()
"""


def test_a_record_is_asked_with_by_one_process_at_a_time_and_a_killed_one_makes_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], env=environment, **pipes)
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"
    budget = a_budget(tmp_path)
    threading.Timer(0.3, child.kill).start()
    with budget.alone():
        assert child.poll() is not None
        assert "waiting for another process that asks with this record" in caplog.text
        budget.begin("question 1", TEN)
    child.communicate()
    # The killed one's call may have been made, and counts as the most that it can have used.
    assert budget.used == used(2, 20, 10)


@pytest.mark.parametrize("caps", [Caps(calls=37), Caps(tokens=37 * 15 + 14), Caps(money=37.5 * TEN.money)])
def test_many_threads_pass_no_cap_and_use_it_up(tmp_path, caps):
    budget, made, start = a_budget(tmp_path, caps), [], threading.Barrier(8)

    def call(number: int) -> None:
        start.wait(30)
        for turn in range(10):
            try:
                name = budget.begin(f"{number}, {turn}", TEN)
            except BudgetError:
                return
            budget.end(name, None)
            made.append(1)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(made) == budget.used.calls == a_budget(tmp_path).used.calls == 37


def test_calls_wait_for_open_ones_and_use_the_room_they_leave(tmp_path):
    expected, budget, refused = Usage(1, 10, 90, 0.0), a_budget(tmp_path, Caps(tokens=260)), []

    def call(number: int) -> None:
        for turn in range(5):
            try:
                name = budget.begin(f"{number}, {turn}", expected)
            except BudgetError:
                refused.append(1)
                return
            time.sleep(0.001)
            budget.end(name, (5, 3))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    # Twenty calls of eight tokens leave room for another hundred after each of them.
    assert budget.used == used(20, 100, 60)
    assert not refused


def test_a_call_that_no_open_one_can_make_room_for_is_refused_at_once(tmp_path):
    budget = a_budget(tmp_path, Caps(calls=1))
    budget.begin("question", TEN)
    with pytest.raises(BudgetError):
        budget.begin("another", TEN)


def test_a_call_is_refused_once_the_open_ones_left_no_room(tmp_path):
    budget, refused = a_budget(tmp_path, Caps(tokens=20)), threading.Event()
    (name,) = begun(budget, 1)

    def call() -> None:
        with pytest.raises(BudgetError):
            budget.begin("another", TEN)
        refused.set()

    thread = threading.Thread(target=call)
    thread.start()
    assert not refused.wait(0.1)
    budget.end(name, None)
    assert refused.wait(10)
    thread.join()


def test_entries_that_were_recorded_before_tries_were_count_and_without_a_count_as_the_longest_answer(tmp_path):
    record = Record(tmp_path)
    for number, tokens in enumerate([(128, 8), "unknown"]):
        question = Question("unary", {"phenotype": f"F{number}"}, "r1")
        parameters, time_ = {"most_tokens": 64}, "2026-01-01T00:00:00+00:00"
        entry = Entry(question, "m", parameters, "p", "w", "answered", "{}", "", 1, time_, tokens)
        record.append(entry)
    assert a_budget(tmp_path).used == used(2, 128, 8 + 64)
    budget = a_budget(tmp_path)
    budget.begin("question", TEN)
    assert a_budget(tmp_path).used == used(3, 138, 13 + 64)


def test_what_two_records_have_used_adds_up_when_they_are_merged(tmp_path):
    for name in ("one", "other"):
        budget = a_budget(tmp_path / name)
        budget.end(begun(budget, 2)[0], (1, 1))
        question = Question("unary", {"phenotype": name}, "r1")
        time_ = "9026-01-01T00:00:00+00:00"
        budget.record.append(Entry(question, "m", {}, "p", "w", "answered", "{}", "", 1, time_, (1, 1)))
        budget.begin(next(budget.record.entries()).key, TEN)
    merge([tmp_path / "one", tmp_path / "other"], tmp_path / "both")
    assert a_budget(tmp_path / "both").used == used(6, 42, 22)
    for choice in ({"model": "another"}, {"prompt": "q"}):
        with pytest.raises(ElicitationError, match="found no answer of the model"):
            merge([tmp_path / "one"], tmp_path / "none", **choice)
        assert not (tmp_path / "none").exists()


def test_a_line_that_is_no_try_is_named(tmp_path):
    (tmp_path / "a.tries").write_text('{"try": "x", "used": [1, 2]}\n')
    with pytest.raises(ElicitationError, match=r"a\.tries, line 1: found a line that is about no call"):
        a_budget(tmp_path).begin("question", TEN)


def test_looking_at_a_record_writes_nothing(tmp_path):
    assert a_budget(tmp_path / "new").used == Usage()
    assert not (tmp_path / "new").exists()
    assert LOCK.startswith(".")
