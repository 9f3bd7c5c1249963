"""Asking a live model: caps over all that the record has cost, and an estimate before anything is asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from afa.baselines.briefing import Briefing, Trial
from afa.baselines.course import follow
from afa.baselines.protocol import CONTROL, Protocol
from afa.elicit.budget import Budget, Used
from afa.elicit.client import Client
from afa.elicit.endpoint import Endpoint, Manner
from afa.elicit.live import Terms, ask_all
from afa.elicit.record import UNKNOWN, Entry, Record, Request


@dataclass(frozen=True)
class Live:
    """A model that is asked what its record does not have."""

    client: Client
    concurrency: int = 4

    @property
    def model(self) -> str:
        return self.client.endpoint.model

    def answers(self, requests: Sequence[Request]) -> list[Entry]:
        """As of `afa.elicit.live.ask_all`."""
        return ask_all(requests, self.client, concurrency=self.concurrency, progress=False)

    def attempts(self, request: Request) -> list[Entry]:
        """All that was ever tried, in earlier runs too."""
        return self.client.record.attempts(self.client.key(request))


def live(record: Path, endpoint: Endpoint, manner: Manner, terms: Terms, model: str | None = None) -> Live:
    """A client whose caps count what the record has cost before."""
    budget = Budget(Record(record), terms.caps, terms.prices)
    return Live(Client(replace(endpoint, model=model or endpoint.model), budget, manner), terms.concurrency)


def estimate(trials: Sequence[tuple[Trial, Briefing]], protocol: Protocol, source: Live) -> Used:
    """What is left to ask uses at most, where each turn is answered at the first call.

    At checkpoints along an order of ours all wordings are known. Turn by turn they hang on the answers: then it is the
    first patient's, by the longest labels, times the number of patients.
    """
    patients = list(dict.fromkeys(trial.patient for trial, _ in trials))
    counted = [each for each in trials if protocol.at_checkpoints or each[0].patient == patients[0]]
    used = Used()
    for trial, briefing in counted:
        course = follow(trial, briefing, replace(protocol, answers=1))
        entry, question = _stand_in(trial, briefing), next(course)
        try:
            while True:
                if source.client.recorded(question) is None:
                    used += source.client.expected(question)
                question = course.send(entry(question))
        except StopIteration:
            pass
    return used if protocol.at_checkpoints else sum((used for _ in patients), Used())


def _stand_in(trial: Trial, briefing: Briefing) -> Callable[[Request], Entry]:
    """A legal decision of the longest labels that picks nothing, as an entry that is never stored."""
    labels = sorted(briefing.labels, key=len)[-briefing.size :]
    answer: dict[str, Any] = {"patient_id": trial.alias, "next_gene_to_measure": None, "top_k_labels": labels}
    if trial.entity:
        answer |= {"lit_prob": float(labels != [CONTROL]), "supporting_text": ""}
    else:
        answer |= {"done": False}

    def entry(question: Request) -> Entry:
        asked = (question.question, UNKNOWN, UNKNOWN, UNKNOWN, question.digest)
        return Entry(*asked, "answered", json.dumps(answer), "", 1, UNKNOWN, UNKNOWN)

    return entry
