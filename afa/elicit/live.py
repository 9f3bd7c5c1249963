"""Asking models for a study: one client per model, one account for all, what was answered kept in one store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from afa.elicit.account import Account, Caps, Prices, Used
from afa.elicit.asking import account_of, ask_all, estimate
from afa.elicit.client import Client
from afa.elicit.endpoint import Endpoint
from afa.elicit.request import Request
from afa.elicit.source import Live
from afa.elicit.store import UNKNOWN, Entry, Question, Store
from afa.elicit.study import PAIR_RUN, Study
from afa.elicit.worded import Abstracts, worded
from afa.errors import ElicitationError, Fault

NO_CAPS, NO_PRICES = Caps(), Prices()


@dataclass(frozen=True)
class Terms:
    """What a live run may cost, and how many calls are open at once.

    caps : of all that the store holds when the run ends, calls of earlier runs included, so that a rerun does not begin
    at nothing. unlimited : says on purpose that there is no cap.
    """

    caps: Caps = NO_CAPS
    prices: Prices = NO_PRICES
    unlimited: bool = False
    concurrency: int = 4

    def __post_init__(self) -> None:
        if self.caps == NO_CAPS and not self.unlimited:
            step = "give --calls, --tokens or --money, or say --no-caps"
            raise ElicitationError(Fault("a live run", "no cap on what it may use", "at least one", step))
        if self.caps.money is not None and self.prices.of(1, 1) <= 0:
            step = "give --prompt-price and --answer-price, for a million tokens each"
            raise ElicitationError(Fault("the cap on money", "no prices", "the prices of the model", step))


@dataclass(frozen=True)
class Asking:
    """The clients of a study's voters, which share a store and an account."""

    study: Study
    clients: Mapping[str, Client]
    abstracts: Abstracts
    concurrency: int

    def requests(self, questions: Sequence[Question], kept: pd.DataFrame | None = None) -> list[Request]:
        """The questions in their wording."""
        return [worded(question, self.study, self.abstracts, kept) for question in questions]

    def recorded(self, questions: Sequence[Question]) -> list[Entry | None]:
        """What the store has for unary questions."""
        return [self.clients[request.question.run].recorded(request) for request in self.requests(questions)]

    def left(self, questions: Sequence[Question], kept: pd.DataFrame | None = None) -> Used:
        """What asking the questions still uses at most, where each is answered at the first call."""
        used = Used()
        for run in dict.fromkeys(question.run for question in questions):
            own = [question for question in questions if question.run == run]
            used += estimate(self.requests(own, kept), self.clients[run])
        return used

    def source(self, told: Callable[[str], None]) -> Live:
        """These models as a source of answers; `told` hears the estimate before a voter is asked, the account after."""

        def ask(run: str, questions: Sequence[Question], kept: pd.DataFrame | None) -> list[Entry]:
            client = self.clients[run]
            requests = self.requests(questions, kept)
            prices = client.account.prices
            told(f"{client.endpoint.model}, {run}: at most {shown(estimate(requests, client), prices)}")
            try:
                return ask_all(requests, client, concurrency=self.concurrency)
            finally:
                told(f"{client.store.folder} has used {shown(client.account.used, prices)}")

        return Live(ask, str(next(iter(self.clients.values())).store.folder))


def asking(study: Study, record: Path, terms: Terms, abstracts: Abstracts, endpoint: Endpoint) -> Asking:
    """Clients for the voters of a study, by `models` of study.yaml, else the model of `endpoint`.

    Raises
    ------
    ElicitationError : the store holds answers of an unknown model, which live ones must not lie among.

    """
    store = Store(record)
    if any(entry.model == UNKNOWN for entry in store.entries()):
        step = "name a folder of its own for the answers of a live run, with --record"
        raise ElicitationError(Fault(str(record), "a record made elsewhere", "a store of live answers", step))
    account = Account(terms.caps, terms.prices, used=account_of(store, terms.prices))
    settings, by_model = study.settings, dict[str, Client]()
    clients = {}
    for voter in voters_of(study):
        model = settings.models.get(voter, endpoint.model)
        if model not in by_model:
            by_model[model] = Client(replace(endpoint, model=model), store, account, settings.manner)
        clients[voter] = by_model[model]
    return Asking(study, clients, abstracts, terms.concurrency)


def voters_of(study: Study) -> list[str]:
    """Who is asked: the voters, and the run that judges pairs."""
    return [*study.settings.voters, PAIR_RUN]


def shown(used: Used, prices: Prices) -> str:
    """What calls use, in a line."""
    tokens = f"{used.prompt_tokens:,} + {used.answer_tokens:,} tokens of prompts and answers"
    money = f", {used.money:,.2f} {prices.currency}" if prices.of(1, 1) > 0 else ""
    return f"{used.calls:,} calls, {tokens}{money}"
