"""A client of a scripted server, and what one asks it for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elicit.llm_server import Endpoint as Server
from elicit.llm_server import Fault

from afa.elicit.budget import Budget, Caps, Prices
from afa.elicit.client import Client
from afa.elicit.prompts import render
from afa.elicit.record import Question, Record, Request
from afa.model.study import Endpoint, Manner, Words

ASKING = {"disease": "IBD", "tissue": "colon", "definition": "", "most_genes": 9, "snippet_length": 90, "abstracts": []}
ASKING |= {"bibliography": 0, "exactly": False, "word": Words().model_dump(), "vocabulary": ()}
USUAL = Manner(timeout=30, calls=2, answers=2, most_tokens=4096)
FREE = Caps()


def a_request(phenotype: str = "Fibrosis", run: str = "r1", **values: Any) -> Request:
    question = Question("unary", {"phenotype": phenotype}, run)
    return Request(question, render("unary", {**ASKING, "phenotype": phenotype, **values}))


class Asking:
    """A client of a server, what it slept, and its store."""

    def __init__(self, server: Server, folder: Path, manner: Manner = USUAL, caps: Caps = FREE) -> None:
        self.waits: list[float] = []
        self.budget, self.server = Budget(Record(folder), caps, Prices(1e6, 1e6)), server
        endpoint = Endpoint.from_environment(server.environment)
        self.client = Client(endpoint, self.budget, manner)
        self.client._pause = lambda seconds, _: self.waits.append(seconds)  # type: ignore[method-assign]
        self.ask = self.client.ask


def always(fault: Fault | None) -> Any:
    """The plan of a server that does this at every call."""
    return lambda number, document: fault
