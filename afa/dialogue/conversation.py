"""One conversation with a planner, by requests and answers as JSON: what the page and other programs speak.

A request that cannot be carried out, its step kept and its answer written is answered with `ok: false` and changes
nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from operator import methodcaller
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, RootModel

import afa
from afa.dialogue.sessions import Keeper, kept_or_taken_back
from afa.dialogue.words import (
    answer_of,
    feature_named,
    outcomes_of,
    posterior_is_of,
    posterior_of,
    question_of,
    read_number,
    scales_of,
    standings,
)
from afa.errors import AfaError, Fault, PlannerError
from afa.mrf import VALUES
from afa.planner import Planner, TopKPlanner
from afa.planner.menu import history_of
from afa.planner.options import ALL_DUELS_UP_TO
from afa.planner.why import outcomes
from afa.yamlfile import Strict, check_model

PROTOCOL = 1
LONGEST_LINE = 1_000_000
_SURROGATE = re.compile("[\ud800-\udfff]")
VERBS = ("show", "observe", "correct", "skip", "undo", "explain", "ranking", "history", "view", "save", "quit")


def _ternary(value: Any) -> int:
    if isinstance(value, bool) or value not in VALUES:
        raise ValueError("-1, 0 or 1")
    return int(value)


Value = Annotated[int, BeforeValidator(_ternary)]


class _Show(Strict):
    do: Literal["show", "view", "undo", "ranking", "history", "quit"]


class _Observe(Strict):
    do: Literal["observe"]
    values: dict[str, Value] = Field(default={}, min_length=1)
    numbers: dict[str, float] = Field(default={}, min_length=1)
    cost: float | None = Field(None, ge=0)


class _Correct(Strict):
    do: Literal["correct"]
    feature: str
    value: Value


class _Skip(Strict):
    do: Literal["skip"]
    feature: str


class _Explain(Strict):
    do: Literal["explain"]
    most: int = Field(10, ge=1)


class _Save(Strict):
    do: Literal["save"]
    file: str


_Any = Annotated[_Show | _Observe | _Correct | _Skip | _Explain | _Save, Field(discriminator="do")]


class _Line(RootModel[_Any]):
    pass


class Conversation:
    """What is said to one planner, and what it answers; `keeper` keeps every step that was carried out."""

    def __init__(self, planner: Planner, keeper: Keeper) -> None:
        self.planner, self.keeper = planner, keeper
        self.ended = False

    def greeting(self) -> dict[str, Any]:
        """What there is, before any request."""
        planner, bundle = self.planner, self.planner.asked_of
        return {
            "ok": True,
            "protocol": PROTOCOL,
            "afa": afa.__version__,
            "bundle": {"name": bundle.name, "version": bundle.version, "digest": bundle.digest},
            "question": question_of(planner),
            "entities": list(bundle.entities),
            "features": list(bundle.features),
            "scales": scales_of(bundle),
            **self._present(),
        }

    def hear(self, line: str) -> dict[str, Any]:
        """Carry out one request and answer it; `ended` is true after `quit`, which has no answer."""
        try:
            request = _read(line)
            if request.do == "quit":
                self.ended = True
                return {}
            with kept_or_taken_back(self.planner, self.keeper):
                more = self._carry_out(request)
                answer = {"ok": True, **self._present(), **more}
        except AfaError as error:
            return refused(error.faults[0])
        return answer

    def _carry_out(self, request: Any) -> dict[str, Any]:
        """Do what is asked; the part of the answer that only this request has."""
        planner, more = self.planner, dict[str, Any]()
        match request:
            case _Observe():
                planner.observe_all(self._values(request), cost=request.cost)
            case _Correct():
                planner.correct(feature_named(planner, request.feature), request.value)
            case _Skip():
                planner.skip(feature_named(planner, request.feature))
            case _Explain():
                rows = planner.explain(request.most).to_dict(orient="records")
                if len(planner.bundle.entities) <= ALL_DUELS_UP_TO:
                    rows = [row | {"outcomes": outcomes(planner, row["feature"])} for row in rows]
                more = {"candidates": rows, "runners_up": [item.name for item in planner.runners_up()]}
            case _Save():
                self.keeper.save_copy(planner, request.file)
                more = {"saved": request.file}
            case _Show(do="undo"):
                undone = planner.undo()
                more = {"undone": {"kind": undone.kind, "features": undone.features, "values": undone.values}}
            case _Show(do="ranking"):
                if not isinstance(planner, TopKPlanner):
                    found = "a ranking asked of one entity's planner"
                    raise PlannerError(Fault("request ranking", found, "the top-k question", "ask for show"))
                more = {"ranking": standings(planner), "resolved": planner.resolved()}
            case _Show(do="history"):
                more = {"history": history_of(planner.actions)}
            case _Show(do="view"):
                more = {"view": self._view()}
        return more

    def _values(self, request: _Observe) -> dict[str, int]:
        values = {feature_named(self.planner, name): value for name, value in request.values.items()}
        numbers = {feature_named(self.planner, name): number for name, number in request.numbers.items()}
        read = {name: read_number(self.planner.asked_of, name, number) for name, number in numbers.items()}
        if not request.values and not request.numbers:
            raise PlannerError(Fault("request, key observe.values", "nothing", "a value", "add the key"))
        if len(values | read) < len(request.values) + len(request.numbers):
            found = "two names of one feature"
            raise PlannerError(Fault("request observe, key values", found, "each feature once", "leave one out"))
        return values | read

    def _present(self) -> dict[str, Any]:
        """What every answer holds: the next measurement or why there is none, the answer so far, what was spent."""
        planner = self.planner
        item = planner.suggest()
        suggested = item and {"name": item.name, "features": item.features, "cost": item.cost, "reason": item.reason}
        return {
            "suggestion": suggested,
            "stopped": None if item else planner.reason,
            "answer": answer_of(planner),
            "observed": len(planner.observed),
            "spent": planner.spent,
        }

    def _view(self) -> dict[str, Any]:
        """All that a page shows: posteriors, values, skipped and open features, history, outcomes, what comes next."""
        planner = self.planner
        closed = planner.observed.keys() | planner.skipped
        item = planner.suggest()
        return {
            "posterior": posterior_of(planner),
            "of": f"Posterior probability, {posterior_is_of(planner)}",
            "values": planner.observed,
            "skipped": sorted(planner.skipped),
            "open": [name for name in planner.bundle.features if name not in closed],
            "history": history_of(planner.actions),
            "outcomes": outcomes_of(planner, item),
            "runners_up": [other.name for other in planner.runners_up()],
            "priced": planner.priced,
            "panels": list(planner.panels),
        }


def converse(planner: Planner, lines: Iterable[str], keeper: Keeper) -> Iterator[str]:
    """Answer each line of requests with one line; the first line out, before any request, says what there is."""
    conversation = Conversation(planner, keeper)
    yield as_text(conversation.greeting())
    for line in lines:
        if not line.strip():
            continue
        answer = conversation.hear(line)
        if conversation.ended:
            return
        yield as_text(answer)


def refused(fault: Fault) -> dict[str, Any]:
    """The answer to a request that cannot be carried out."""
    return {"ok": False, "error": asdict(fault)}


def as_text(answer: dict[str, Any]) -> str:
    """An answer as one line of JSON."""
    return json.dumps(answer, ensure_ascii=False, allow_nan=False, default=methodcaller("item"))  # NumPy's numbers


def _read(line: str) -> Any:
    example = 'write for example {"do": "show"}'
    if len(line) > LONGEST_LINE:
        found = f"a line of {len(line)} characters"
        raise PlannerError(Fault("request", found, f"at most {LONGEST_LINE}", "send one request a line"))
    try:
        document = json.loads(line, object_pairs_hook=_each_key_once)
    except (ValueError, RecursionError):
        raise PlannerError(Fault("request", "text that is not JSON", "one JSON object a line", example)) from None
    if _SURROGATE.search(json.dumps(document, ensure_ascii=False)):
        found = "half a character (a lone surrogate), or bytes that are not UTF-8"
        raise PlannerError(Fault("request", found, "whole characters", "write the request as UTF-8"))
    if not isinstance(document, dict):
        raise PlannerError(Fault("request", f"a {type(document).__name__}", "a JSON object", example))
    if document.get("do") not in VERBS:
        found = repr(document["do"])[:80] if "do" in document else "nothing"
        raise PlannerError(Fault("request, key do", found, " or ".join(VERBS), "choose one of these"))
    return check_model(document, _Line, "request").root


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [name for name, _ in pairs]
        found = f"key {next(name for name in names if names.count(name) > 1)!r} given twice"
        raise PlannerError(Fault("request", found, "each key once", "leave one out"))
    return document
