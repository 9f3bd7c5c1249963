"""Ask language models the questions of a study, with several requests at once, and estimate the cost."""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import get_args

import pandas as pd
from tqdm import tqdm  # type: ignore[import-untyped]

from afa.elicit.answers import cut_questions, pair_questions, rate_questions, unary_questions
from afa.elicit.budget import NO_CAPS, NO_PRICES, Budget, Caps, Prices, Usage
from afa.elicit.client import Client
from afa.elicit.consensus import check_voters, consensus
from afa.elicit.prompts import AbstractsOfQuestion, request
from afa.elicit.record import UNKNOWN, Entry, Question, Record, Request, first_answer
from afa.elicit.tables import cut_points, genes_named, usable_genes
from afa.errors import ElicitationError, Fault
from afa.io.csvfile import visible
from afa.model.features import Features
from afa.model.study import CUTS, PAIR_PROMPTS, PAIR_RUN, RATES, UNARY, Endpoint, PairMode, Study

INTERRUPT_SECONDS = 10.0
"""Seconds that open calls may take to end after an interrupt."""
INTERRUPT_CHECK_SECONDS = 1.0
"""Seconds between two tests for an interrupt: an interrupt at the start of a wait does not end the wait."""
OUTLOOK_COLUMNS = ["prompt", "pairs", "questions", "calls", "prompt_tokens", "answer_tokens", "money", "how"]
EXACT, MOST = "as counted", "at most: the {} are not known yet"
MOST_KINDS, LONGEST_REASON = 5, 200
"""Largest number of kinds of failures that are listed, and longest reason, in characters."""
LONGEST_NUMBER = -1.2345678901234567e-300
"""The number with the most digits, which stands for a cut point before it is known."""


@dataclass(frozen=True)
class Terms:
    """Limits of a run that sends requests to language models: caps, prices, and number of simultaneous requests.

    Parameters
    ----------
    caps : limits of the whole record when the run ends, earlier runs included, so that a rerun does not start from zero
    unlimited : True to allow a run without caps

    """

    caps: Caps = NO_CAPS
    prices: Prices = NO_PRICES
    unlimited: bool = False
    concurrency: int = 4

    def __post_init__(self) -> None:
        if self.caps == NO_CAPS and not self.unlimited:
            step = "give --calls, --tokens or --money, or say --no-caps"
            raise ElicitationError(Fault("a live run", "no cap on what it may use", "one cap or more", step))
        if self.caps.money is not None and self.prices.of(1, 1) <= 0:
            step = "give --prompt-price and --answer-price, for a million tokens each"
            raise ElicitationError(Fault("the cap on money", "no prices", "the prices of the model", step))


class Live:
    """Send questions to language models, and return the answers.

    All models share one folder of recorded answers and one `Budget`.

    Parameters
    ----------
    endpoint : replaces the addresses of `models` in study.yaml and of the environment
    say : function that prints the estimate before a voter is asked, and the record's use afterwards

    Raises
    ------
    ElicitationError : no address, model or key in the environment; voters that are the same model without `same_model`;
        a record with answers of an unknown model, which must not be mixed with live answers.

    """

    def __init__(
        self,
        study: Study,
        record: Path,
        terms: Terms,
        abstracts: AbstractsOfQuestion,
        endpoint: Endpoint | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.study, self.abstracts, self.say, self.concurrency = study, abstracts, say, terms.concurrency
        self.budget = Budget(Record(record), terms.caps, terms.prices)
        if any(entry.model == UNKNOWN for entry in self.budget.record.entries()):
            step = "name a folder of its own for the answers of a live run, with --record"
            raise ElicitationError(Fault(str(record), "a record made elsewhere", "a record of live answers", step))
        self.clients: dict[str, Client] = {}
        by_endpoint: dict[tuple[Endpoint, str], Client] = {}
        for run in (*study.settings.voters, PAIR_RUN):
            voter = study.settings.voter(run)
            if endpoint is None:
                own = Endpoint.from_environment(model=voter.model, address=voter.address, key=voter.key)
            else:
                own = Endpoint(endpoint.base_url, voter.model or endpoint.model, endpoint.key)
            client = by_endpoint.get((own, own.key)) or Client(own, self.budget, study.settings.manner)
            self.clients[run] = by_endpoint[own, own.key] = client
        if endpoint is None:
            asked = {run: self.clients[run].endpoint for run in study.settings.voters}
            check_voters({run: f"{own.model} at {own.base_url}" for run, own in asked.items()}, study)

    @property
    def place(self) -> str:
        return str(self.budget.record.folder)

    def answers(self, questions: Sequence[Question]) -> list[Entry | None]:
        """Ask all questions, one voter after another, and return the recorded entry of each question."""
        for run in dict.fromkeys(question.run for question in questions):
            client, requests = self.clients[run], self._requests(questions, run)
            at_most = usage_text(usage_estimate(requests, client), self.budget.prices)
            self.say(f"{client.endpoint.model}, {run}: at most {at_most}")
            try:
                ask_all(requests, client, concurrency=self.concurrency)
            finally:
                self.say(f"{self.place} has used {usage_text(self.budget.used, self.budget.prices)}")
                for reason in reasons(self.budget.record.attempts(client.key(each)) for each in requests):
                    self.say(reason)
        keys = [self.clients[each.question.run].key(each) for each in self._requests(questions)]
        return [first_answer(self.budget.record.attempts(key)) for key in keys]

    def outlook(self, *, min_agree: int) -> pd.DataFrame:
        """Return a table of upper bounds on the tokens and cost of unanswered questions, with one row for each prompt.

        The columns are `OUTLOOK_COLUMNS`. If questions on genes are still unanswered, the number of pairs of genes is
        unknown, and the largest possible number is used. If the study asks about features instead of genes, the table
        has two rows: one for questions on cut points, and one for questions on probabilities.

        The column `pairs` contains a mode of asking about pairs of genes; the sign `*` marks the mode that the study
        uses. The column `calls` is the number of requests if one request is sent for each unanswered question, and no
        request is repeated after a failure.
        """
        if self.study.features is not None:
            return self._outlook_of_rates(self.study.features)
        unary, study = unary_questions(self.study), self.study
        rows, known = [self._outlook_row(UNARY, unary)], self._recorded_answers(unary)
        kept = self._placeholder_genes(min_agree)
        if known is not None:
            named, _ = usable_genes(genes_named(known), **study.usable)
            kept, _ = consensus(named, min_agree=min_agree, runs=study.settings.voters)
        modes: tuple[PairMode, ...] = get_args(PairMode)
        for mode in modes:
            questions = pair_questions(study, kept, mode)
            name = mode + ("*" if mode == study.settings.pairs else "")
            if known is not None:
                rows.append(self._outlook_row(PAIR_PROMPTS[mode], questions, name))
            elif questions:
                times = len(questions) * len(study.names)
                rows.append(self._outlook_row(PAIR_PROMPTS[mode], questions[:1], name, MOST.format("genes"), times))
        return pd.DataFrame(rows, columns=OUTLOOK_COLUMNS)

    def _outlook_of_rates(self, features: Features) -> pd.DataFrame:
        cuts, voters = cut_questions(self.study), self.study.settings.voters
        known = self._recorded_answers(cuts)
        ends = {voter: cut_points(features, voter, known or (), self.place) for voter in voters}
        if known is None:
            ends = {voter: dict.fromkeys(features.names, (LONGEST_NUMBER, LONGEST_NUMBER)) for voter in voters}
        rates, how = rate_questions(self.study, ends), EXACT if known is not None else MOST.format("cut points")
        return pd.DataFrame(
            [self._outlook_row(CUTS, cuts), self._outlook_row(RATES, rates, how=how)], columns=OUTLOOK_COLUMNS
        )

    def _outlook_row(
        self, prompt: str, questions: Sequence[Question], pairs: str = "", how: str = EXACT, times: int = 1
    ) -> tuple[object, ...]:
        """Return the row of the table `outlook` for one prompt.

        Each question in `questions` stands for `times` questions of the same length.
        """
        runs = dict.fromkeys(question.run for question in questions)
        left = [usage_estimate(self._requests(questions, run), self.clients[run]) for run in runs]
        return prompt, pairs, len(questions) * times, *astuple(sum(left * times, Usage())), how

    def _recorded_answers(self, questions: Sequence[Question]) -> list[Entry] | None:
        """Return the recorded answers to all questions, or None if an answer is missing."""
        found = [self.clients[each.question.run].recorded(each) for each in self._requests(questions)]
        known = [entry for entry in found if entry is not None and entry.outcome == "answered"]
        return known if len(known) == len(found) else None

    def _placeholder_genes(self, min_agree: int) -> pd.DataFrame:
        """Return a table of placeholder genes, as many as the study can keep for one phenotype.

        The phenotype is the one with the longest name and definition, because its questions have the most tokens.
        """
        settings = self.study.settings
        longest = max(self.study.names, key=lambda name: len(name) + len(self.study.definition(name)))
        genes = [f"GENE{place:06d}" for place in range(len(settings.voters) * settings.most_genes // min_agree)]
        return pd.DataFrame({"phenotype": longest, "gene": genes, "potential": -1})

    def _requests(self, questions: Sequence[Question], run: str | None = None) -> list[Request]:
        return [request(each, self.study, self.abstracts) for each in questions if run in (None, each.run)]


def ask_all(requests: Sequence[Request], client: Client, *, concurrency: int = 4, progress: bool = True) -> list[Entry]:
    """Return one entry for each request, in the order of `requests`.

    If the request has an answer, the entry contains the answer. If not, the entry contains the last attempt.

    Requests with a recorded answer are not sent again, and equal requests are sent once. Each answer is recorded as
    soon as it arrives. After an interruption, a rerun sends only the unanswered requests. If another process is sending
    requests for the same record, the function first waits for that process to finish.

    Parameters
    ----------
    concurrency : largest number of open calls, at least 1
    progress : show a bar if the output is a terminal

    Raises
    ------
    BudgetError, ElicitationError : as in `Client.ask`, after the open calls have ended.
    KeyboardInterrupt, SystemExit : after the open calls have ended or `INTERRUPT_SECONDS` seconds; a repeated interrupt
        does not wait.

    """
    if concurrency < 1:
        raise ElicitationError(Fault("concurrency", str(concurrency), "at least 1", "raise it"))
    keys = [client.key(request) for request in requests]
    shown_as = {"desc": client.endpoint.model, "unit": "question", "disable": None if progress else True}
    with client.budget.alone():
        entries, waiting = _split_recorded(zip(keys, requests, strict=True), client)
        with (
            closing(_ask_concurrently(waiting, client, concurrency)) as asked,
            tqdm(total=len(waiting), **shown_as) as bar,
        ):
            for key, entry in asked:
                entries[key] = entry
                if not bar.disable:
                    used = client.budget.used
                    spent = f"{used.money:.2f} {client.budget.prices.currency}"
                    bar.set_postfix_str(f"{used.calls} calls, {spent}", refresh=False)
                bar.update()
    return [entries[key] for key in keys]


def usage_estimate(requests: Iterable[Request], client: Client) -> Usage:
    """Return upper bounds on the tokens and cost of sending each unanswered request once."""
    _, waiting = _split_recorded(((client.key(request), request) for request in requests), client)
    return sum((client.expected(request) for request in waiting.values()), Usage())


def usage_text(used: Usage, prices: Prices) -> str:
    """Return the number, tokens and cost of requests as one line of text."""
    tokens = f"{used.prompt_tokens:,} + {used.answer_tokens:,} tokens of prompts and answers"
    money = f", {used.money:,.2f} {prices.currency}" if prices.of(1, 1) > 0 else ""
    return f"{used.calls:,} calls, {tokens}{money}"


def reasons(attempts: Iterable[Sequence[Entry]]) -> Iterator[str]:
    """Yield a line for each kind of failure, with the number of failures and an example.

    Two failures are of the same kind if their reasons differ only in numbers. The most frequent kind is first.

    Parameters
    ----------
    attempts : attempts at each question

    """
    kinds: dict[tuple[str, str], list[Entry]] = {}
    for entry in filter(None, map(first_answer, attempts)):
        if entry.outcome != "answered":
            kinds.setdefault((entry.outcome, re.sub(r"\d+", "0", entry.detail)), []).append(entry)
    ranked = sorted(kinds.values(), key=len, reverse=True)
    for first, *others in ranked[:MOST_KINDS]:
        reason = "".join(filter(str.isprintable, first.detail[:LONGEST_REASON]))
        yield f"{1 + len(others):,} {first.outcome}: {reason} (first: {visible(str(first.question))})"
    if rest := sum(map(len, ranked[MOST_KINDS:])):
        yield f"{rest:,} for other reasons: `detail` in the lines of the record"


def _split_recorded(
    keyed: Iterable[tuple[str, Request]], client: Client
) -> tuple[dict[str, Entry], dict[str, Request]]:
    """Return two dictionaries by request key: the recorded results, and the requests that are still to be sent."""
    requests = dict(keyed)
    known = {key: entry for key, each in requests.items() if (entry := client.recorded(each)) is not None}
    return known, {key: each for key, each in requests.items() if key not in known}


def _ask_concurrently(
    waiting: dict[str, Request], client: Client, concurrency: int
) -> Generator[tuple[str, Entry], None, None]:
    """Yield the key and the result of each request as soon as the result arrives. An error stops all requests."""
    work: queue.SimpleQueue[tuple[str, Request]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[str, Entry] | BaseException] = queue.SimpleQueue()
    stop = threading.Event()
    for item in waiting.items():
        work.put(item)

    def ask() -> None:
        with suppress(queue.Empty):
            while not stop.is_set():
                key, each = work.get_nowait()
                if (entry := client.ask(each, stop=stop)) is not None:
                    done.put((key, entry))

    def ask_or_stop() -> None:
        try:
            ask()
        except BaseException as error:
            stop.set()
            done.put(error)

    # Daemon threads do not delay the exit of Python. Therefore a second interrupt ends Python even if an endpoint is
    # slow.
    count = min(concurrency, len(waiting))
    threads = [threading.Thread(target=ask_or_stop, daemon=True) for _ in range(count)]
    patience = float("inf")
    try:
        for thread in threads:
            thread.start()
        for _ in waiting:
            result = None
            while result is None:
                with suppress(queue.Empty):
                    result = done.get(timeout=INTERRUPT_CHECK_SECONDS)
            if isinstance(result, BaseException):
                raise result
            yield result
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        patience = INTERRUPT_SECONDS
        raise
    finally:
        stop.set()
        end = time.monotonic() + patience
        for thread in threads:
            if thread.is_alive():
                thread.join(max(0.0, min(end - time.monotonic(), threading.TIMEOUT_MAX)))
