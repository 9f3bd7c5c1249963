"""Asking many questions at once, going on where an earlier run stopped, and what that uses."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing

from tqdm import tqdm  # type: ignore[import-untyped]

from afa.elicit.account import Prices, Used
from afa.elicit.client import Client, Request
from afa.elicit.store import Entry, Store
from afa.errors import ElicitationError, Fault

PATIENCE = 10.0
"""Seconds that calls which are open may take to end after an interrupt."""


def ask_all(requests: Sequence[Request], client: Client, *, concurrency: int = 4, progress: bool = True) -> list[Entry]:
    """What comes of every request, in their order: the answer, or the last attempt where there is none.

    Requests that the store knows are not asked again, and equal ones are asked once. What was answered is in the
    store whenever this ends, so that a rerun asks the rest. concurrency : calls that are open at once, at most; from 1.
    progress : show a bar on a terminal; elsewhere there is none.

    Raises
    ------
    CapError, ElicitationError : as of `Client.ask`, after the calls that were open have ended.
    KeyboardInterrupt : after they have ended or `PATIENCE` seconds have passed; a second one does not wait.

    """
    if concurrency < 1:
        raise ElicitationError(Fault("concurrency", str(concurrency), "at least 1", "raise it"))
    keys = [client.key(request) for request in requests]
    entries, waiting = _split(zip(keys, requests, strict=True), client)
    with (
        closing(_asked(waiting, client, concurrency)) as asked,
        tqdm(
            total=len(entries) + len(waiting),
            initial=len(entries),
            desc=client.endpoint.model,
            unit="question",
            disable=None if progress else True,
        ) as bar,
    ):
        for key, entry in asked:
            entries[key] = entry
            used = client.account.used
            bar.set_postfix_str(f"{used.calls} calls, {used.money:.2f} {client.account.prices.currency}", refresh=False)
            bar.update()
    return [entries[key] for key in keys]


def estimate(requests: Iterable[Request], client: Client) -> Used:
    """What is left to ask uses at most, with one call for each request; calls that must be repeated come on top."""
    _, waiting = _split(((client.key(request), request) for request in requests), client)
    return sum((client.expected(request) for request in waiting.values()), Used())


def account_of(store: Store, prices: Prices) -> Used:
    """What the attempts in a store have used as far as endpoints counted: one call each, and the tokens they told."""
    used = Used()
    for entry in store.entries():
        prompt, answer = (0, 0) if isinstance(entry.tokens, str) else entry.tokens
        used += Used(1, prompt, answer, prices.of(prompt, answer))
    return used


def _split(keyed: Iterable[tuple[str, Request]], client: Client) -> tuple[dict[str, Entry], dict[str, Request]]:
    """What the store knows, and what is left to ask, both by key."""
    known: dict[str, Entry] = {}
    waiting: dict[str, Request] = {}
    for key, request in keyed:
        entry = client.recorded(request)
        if entry is None:
            waiting[key] = request
        else:
            known[key] = entry
    return known, waiting


def _asked(waiting: dict[str, Request], client: Client, concurrency: int) -> Generator[tuple[str, Entry], None, None]:
    """Each request with what came of it, in the order in which they end; the first error stops the others."""
    work: queue.SimpleQueue[tuple[str, Request]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[str, Entry | BaseException]] = queue.SimpleQueue()
    stop = threading.Event()
    for item in waiting.items():
        work.put(item)
    # Threads that do not keep the interpreter alive: after a second interrupt nothing waits for a slow endpoint.
    threads = [
        threading.Thread(target=_work, args=(work, done, client, stop), daemon=True)
        for _ in range(min(concurrency, len(waiting)))
    ]
    deadline = float("inf")
    try:
        for thread in threads:
            thread.start()
        for _ in waiting:
            key, entry = done.get()
            if isinstance(entry, BaseException):
                raise entry
            yield key, entry
    except (KeyboardInterrupt, GeneratorExit):
        deadline = time.monotonic() + PATIENCE
        raise
    finally:
        stop.set()
        for thread in threads:
            if thread.is_alive():
                thread.join(max(0.0, min(deadline - time.monotonic(), threading.TIMEOUT_MAX)))


def _work(
    work: queue.SimpleQueue[tuple[str, Request]],
    done: queue.SimpleQueue[tuple[str, Entry | BaseException]],
    client: Client,
    stop: threading.Event,
) -> None:
    while not stop.is_set():
        try:
            key, request = work.get_nowait()
        except queue.Empty:
            return
        try:
            done.put((key, client.ask(request, stop=stop)))
        except BaseException as error:
            stop.set()
            done.put((key, error))
