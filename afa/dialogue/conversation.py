"""Answer the requests that the terminal, the web page or other programs send to a planner.

Other programs send requests as JSON. A request that fails is answered with `ok: false` and changes nothing. If a step
cannot be carried out, saved or answered, the step is undone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from operator import methodcaller
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, RootModel

import afa
from afa.dialogue.sessions import SessionFile, saved_or_undone
from afa.dialogue.words import (
    answer_of,
    assumption_of,
    ending_of,
    entity_named,
    feature_named,
    open_features,
    order_of,
    outcomes_of,
    question_of,
    ranking_rows,
    scales_of,
    start_of,
    value_words,
)
from afa.errors import AfaError, Fault, PlannerError
from afa.io.yamlfile import Strict, check_model
from afa.model.bundle import Bundle
from afa.model.mrf import VALUES
from afa.planner import Planner, TopKPlanner
from afa.planner.menu import history_of
from afa.planner.options import ALL_DUELS_UP_TO
from afa.planner.posterior import posterior_is_of
from afa.planner.values import ReadValue, code_of, echo, read_number, read_typed, word_of
from afa.planner.why import outcomes, shares

PROTOCOL = 1
LONGEST_LINE = 1_000_000
_SURROGATE = re.compile("[\ud800-\udfff]")
VERBS = ("show", "observe", "correct", "skip", "undo", "explain", "why", "ranking", "history", "view", "save", "quit")
LONGEST_TYPED = 200
MOST_ENTITIES_SHOWN = 12
"""Largest number of entities on a page."""


def _code_or_word(value: Any) -> int | str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value not in VALUES:
        raise ValueError("-1, 0 or 1, or a word such as low, usual, high, no, yes")
    return int(value)


def _check_json_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a number; what a person typed goes to the key typed")
    return value


Value = Annotated[int | str, BeforeValidator(_code_or_word)]
JsonNumber = Annotated[float, BeforeValidator(_check_json_number)]
Typed = Annotated[str, Field(max_length=LONGEST_TYPED)]


class _Show(Strict):
    do: Literal["show", "view", "undo", "ranking", "history", "quit"]


class _Observe(Strict):
    do: Literal["observe"]
    values: dict[str, Value] = Field(default={}, min_length=1)
    numbers: dict[str, JsonNumber] = Field(default={}, min_length=1)
    typed: dict[str, Typed] = Field(default={}, min_length=1)
    cost: float | None = Field(None, ge=0)


class _Correct(Strict):
    do: Literal["correct"]
    feature: str
    value: Value | None = None
    number: JsonNumber | None = None
    typed: Typed | None = None


class _Skip(Strict):
    do: Literal["skip"]
    feature: str


class _Explain(Strict):
    do: Literal["explain"]
    most: int = Field(10, ge=1)


class _Why(Strict):
    do: Literal["why"]
    entity: str


class _Save(Strict):
    do: Literal["save"]
    file: str


_Any = Annotated[_Show | _Observe | _Correct | _Skip | _Explain | _Why | _Save, Field(discriminator="do")]


class _Line(RootModel[_Any]):
    pass


def _read_code(bundle: Bundle, feature: str, value: Any) -> ReadValue:
    return ReadValue(code_of(bundle, feature, value))


READERS: Mapping[str, Callable[[Bundle, str, Any], ReadValue]] = {
    "value": _read_code,
    "number": read_number,
    "typed": read_typed,
}
"""Functions of bundle, feature and value that return a `ReadValue`, by the form of a value in a request."""


class Conversation:
    """Object that passes requests to one planner. `keeper` saves the session after every step."""

    def __init__(self, planner: Planner, keeper: SessionFile) -> None:
        self.planner, self.keeper = planner, keeper
        self.ended = False

    def greeting(self) -> dict[str, Any]:
        """Return the greeting, which describes the planner and the bundle, and is sent before the first request."""
        planner, bundle = self.planner, self.planner.question_bundle
        return {
            "ok": True,
            "protocol": PROTOCOL,
            "afa": afa.__version__,
            "bundle": {"name": bundle.name, "version": bundle.version, "digest": bundle.digest},
            "question": question_of(planner),
            "entities": list(bundle.entities),
            "features": list(bundle.features),
            "display_names": {
                name: bundle.shown(name)
                for name in (*planner.bundle.entities, *bundle.features)
                if bundle.shown(name) != name
            },
            "scales": scales_of(bundle),
            "patient": planner.patient,
            "changed": self.keeper.changes,
            "start": start_of(planner),
            "assumption": assumption_of(planner),
            "ending": ending_of(planner),
            **self._common_answer_fields(),
        }

    def hear(self, line: str) -> dict[str, Any]:
        """Carry out one request and return the answer. The request `quit` sets `ended` and has an empty answer."""
        try:
            request = _parse_request(line)
            if request.do == "quit":
                self.ended = True
                return {}
            return self._answer_request(request)
        except AfaError as error:
            return refused(error.faults[0])

    def do(self, **request: Any) -> dict[str, Any]:
        """Carry out one request, given as keyword arguments, and return the answer.

        The keywords are the fields of a request in JSON. A request that fails raises an `AfaError`.
        """
        return self._answer_request(check_model(request, _Line, "request").root)

    def _answer_request(self, request: Any) -> dict[str, Any]:
        with saved_or_undone(self.planner, self.keeper):
            more = self._carry_out(request)
            return {"ok": True, **self._common_answer_fields(), **more}

    def _carry_out(self, request: Any) -> dict[str, Any]:
        """Carry out a request, and return the part of the answer that is specific to this request."""
        planner, more = self.planner, dict[str, Any]()
        match request:
            case _Observe():
                read_values = self._read_values(request)
                planner.observe_values(read_values, cost=request.cost)
                more = {"read": self._describe_values(read_values)}
            case _Correct():
                feature = feature_named(planner, request.feature)
                read_value = self._correction(feature, request)
                planner.replace_value(feature, read_value)
                more = {"read": self._describe_values({feature: read_value})}
            case _Why():
                entity = entity_named(planner, request.entity)
                more = {"entity": entity, "ordered_by": planner.ordered_by, "findings": shares(planner, entity)}
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
                more = {"ranking": ranking_rows(planner), "resolved": planner.resolved()}
            case _Show(do="history"):
                more = {"history": history_of(planner.actions)}
            case _Show(do="view"):
                more = {"view": self._page_data()}
        return more

    def _read_values(self, request: _Observe) -> dict[str, ReadValue]:
        """Return the measured value of each feature in a request.

        If a value is invalid or a feature is repeated, a `PlannerError` is raised.
        """
        kinds: dict[str, Mapping[str, Any]] = {
            "value": request.values,
            "number": request.numbers,
            "typed": request.typed,
        }
        given = [(kind, name, value) for kind, values in kinds.items() for name, value in values.items()]
        if not given:
            raise PlannerError(Fault("request, key observe.values", "nothing", "a value", "add the key"))
        read_values = dict[str, ReadValue]()
        for kind, name, value in given:
            feature = feature_named(self.planner, name)
            if feature in read_values:
                found = "two names of one feature"
                raise PlannerError(Fault("request observe, key values", found, "each feature once", "leave one out"))
            read_values[feature] = READERS[kind](self.planner.question_bundle, feature, value)
        return read_values

    def _correction(self, feature: str, request: _Correct) -> ReadValue:
        """Return the corrected value of a feature, as a `ReadValue`."""
        given = {kind: getattr(request, kind) for kind in READERS if getattr(request, kind) is not None}
        if len(given) != 1:
            found = "no value" if not given else "several values"
            expected = "one of the keys value, number, typed"
            raise PlannerError(Fault("request correct", found, expected, "give one of them"))
        [(kind, value)] = given.items()
        return READERS[kind](self.planner.question_bundle, feature, value)

    def _describe_values(self, read_values: Mapping[str, ReadValue]) -> list[dict[str, Any]]:
        """Return, for each value in a request, its code, its number with unit, and its description for a screen."""
        bundle = self.planner.question_bundle
        return [
            {"feature": name, "value": read_value.code, "number": read_value.number, "unit": read_value.unit}
            | {"words": echo(bundle, name, read_value)}
            for name, read_value in read_values.items()
        ]

    def _common_answer_fields(self) -> dict[str, Any]:
        """Return the fields that all answers contain: suggestion or reason to stop, the planner's answer, and cost."""
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

    def _page_data(self) -> dict[str, Any]:
        """Return the data for a page: probabilities, values, skipped and available features, history, and outcomes."""
        planner = self.planner
        item = planner.suggest()
        return {
            "posterior": planner.probabilities(),
            "of": f"Posterior probability, {posterior_is_of(planner)}",
            "order": [place._asdict() for place in order_of(planner, MOST_ENTITIES_SHOWN)],
            "assumption": assumption_of(planner),
            "values": planner.observed,
            "numbers": planner.numbers,
            "said": {feature: value_words(planner, feature) for feature in planner.observed},
            "skipped": sorted(planner.skipped),
            "open": open_features(planner),
            "history": history_of(planner.actions),
            "outcomes": {
                feature: [row | {"word": word_of(planner.question_bundle, feature, row["value"])} for row in rows]
                for feature, rows in outcomes_of(planner, item).items()
            },
            "runners_up": [other.name for other in planner.runners_up()],
            "priced": planner.priced,
            "panels": list(planner.panels),
        }


def converse(planner: Planner, lines: Iterable[str], keeper: SessionFile) -> Iterator[str]:
    """Yield the greeting as one line, and then the answer to each request as one line."""
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
    """Return the answer to a request that failed."""
    return {"ok": False, "error": asdict(fault)}


def as_text(answer: dict[str, Any]) -> str:
    """Return an answer as one line of JSON."""
    return json.dumps(answer, ensure_ascii=False, allow_nan=False, default=methodcaller("item"))  # NumPy's numbers


def _parse_request(line: str) -> Any:
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
