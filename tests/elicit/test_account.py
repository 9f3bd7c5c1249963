"""The account: no cap is ever passed, whoever calls at once, and what was used takes the place of what was expected."""

from __future__ import annotations

import threading
import time

import pytest

from afa.elicit.account import OVERHEAD, Account, CapError, Caps, Prices, Used

PRICES = Prices(prompt=2.0, answer=8.0, currency="EUR")
TEN = Used(1, 10, 5, PRICES.of(10, 5))


def test_prices_are_of_a_million_tokens():
    assert PRICES.of(1_000_000, 500_000) == 6.0
    assert Prices().of(10**9, 10**9) == 0.0


def test_what_is_used_adds_up_and_takes_away():
    assert TEN + TEN - TEN == TEN
    assert Used() == TEN - TEN


def test_a_call_is_expected_to_use_a_token_per_byte_and_the_longest_answer():
    expected = Account(Caps(), PRICES).expected("aé", 100)
    assert expected == Used(1, 3 + OVERHEAD, 100, PRICES.of(3 + OVERHEAD, 100))


@pytest.mark.parametrize(
    ("caps", "name"),
    [
        (Caps(calls=3), "the cap on calls"),
        (Caps(tokens=45), "the cap on tokens"),
        (Caps(money=3 * TEN.money), "the cap on money, in EUR"),
    ],
)
def test_the_last_call_that_a_cap_leaves_room_for_is_made_and_the_next_is_not(caps, name):
    account = Account(caps, PRICES)
    for _ in range(3):
        account.reserve(TEN)
    with pytest.raises(CapError, match=f"{name}: found up to .* after 3 calls; expected at most .*rerun goes on"):
        account.reserve(TEN)
    assert account.used == TEN + TEN + TEN


def test_a_cap_of_nothing_lets_no_call_pass_and_no_cap_lets_all():
    with pytest.raises(CapError):
        Account(Caps(calls=0)).reserve(TEN)
    account = Account(Caps())
    for _ in range(1000):
        account.reserve(TEN)
    assert account.used.calls == 1000


def test_what_a_call_used_takes_the_place_of_what_was_expected():
    account = Account(Caps(tokens=20), PRICES)
    account.reserve(TEN)
    account.settle(TEN, 3, 1)
    assert account.used == Used(1, 3, 1, PRICES.of(3, 1))
    account.reserve(TEN)
    with pytest.raises(CapError):
        account.reserve(TEN)


@pytest.mark.parametrize("counted", [(None, None), (3, None), (None, 1)])
def test_without_a_count_the_expectation_stays(counted):
    account = Account(Caps(), PRICES)
    account.reserve(TEN)
    account.settle(TEN, *counted)
    assert account.used == TEN


def test_a_call_that_used_more_than_expected_is_counted_whole_and_stops_the_next():
    account = Account(Caps(tokens=30), PRICES)
    account.reserve(TEN)
    account.settle(TEN, 100, 5)
    assert account.used.prompt_tokens == 100
    with pytest.raises(CapError):
        account.reserve(Used(1, 0, 0, 0.0))


def test_what_an_earlier_run_used_counts():
    account = Account(Caps(calls=2), PRICES, used=TEN + TEN)
    with pytest.raises(CapError, match="after 2 calls"):
        account.reserve(TEN)


@pytest.mark.parametrize("caps", [Caps(calls=37), Caps(tokens=37 * 15 + 14), Caps(money=37.5 * TEN.money)])
def test_many_threads_at_once_pass_no_cap_and_use_it_up(caps):
    account, made, start = Account(caps, PRICES), [], threading.Barrier(16)

    def call() -> None:
        start.wait(30)
        for _ in range(10):
            try:
                account.reserve(TEN)
            except CapError:
                return
            made.append(1)

    threads = [threading.Thread(target=call) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(made) == account.used.calls == 37


def test_patient_calls_wait_for_open_ones_and_use_the_room_they_leave():
    expected, account, most, lock = Used(1, 10, 90, 0.0), Account(Caps(tokens=260)), [0], threading.Lock()
    refused = []

    def call() -> None:
        for _ in range(5):
            try:
                account.reserve(expected, patient=True)
            except CapError:
                refused.append(1)
                return
            with lock:
                most[0] = max(most[0], account.used.prompt_tokens + account.used.answer_tokens)
            time.sleep(0.001)
            account.settle(expected, 5, 3)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert most[0] <= 260
    # Twenty calls of eight tokens leave room for another hundred after each of them.
    assert account.used == Used(20, 100, 60, 0.0)
    assert not refused


def test_a_patient_call_that_no_settling_can_make_room_for_is_refused_at_once():
    account = Account(Caps(calls=1))
    account.reserve(TEN)
    with pytest.raises(CapError):
        account.reserve(TEN, patient=True)


def test_a_patient_call_is_refused_once_the_open_ones_left_no_room():
    account, refused = Account(Caps(tokens=20)), threading.Event()
    account.reserve(TEN)

    def call() -> None:
        with pytest.raises(CapError):
            account.reserve(TEN, patient=True)
        refused.set()

    thread = threading.Thread(target=call)
    thread.start()
    assert not refused.wait(0.05)
    account.settle(TEN, None, None)
    assert refused.wait(10)
    thread.join()


def test_a_patient_call_does_not_wait_where_none_is_open_though_sums_are_not_exact():
    account, parts, refused = Account(Caps()), [Used(1, 0, 0, 0.1), Used(1, 0, 0, 0.2)], threading.Event()
    for part in parts:
        account.reserve(part)
    for part in parts:
        account.settle(part, 0, 0)
    assert account.used.money > 0
    account.caps = Caps(money=0.0)

    def call() -> None:
        with pytest.raises(CapError):
            account.reserve(Used(1, 0, 0, 0.0), patient=True)
        refused.set()

    threading.Thread(target=call, daemon=True).start()
    assert refused.wait(10)
