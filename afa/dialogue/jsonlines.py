"""The planner for other programs: one JSON object a line comes in, one goes out for each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel

import afa
from afa.dialogue.keeping import Keeper, all_or_nothing
from afa.dialogue.speech import answer_of, feature_named, standings
from afa.errors import AfaError, Fault, PlannerError
from afa.planner import Planner, TopKPlanner
from afa.yamlfile import check_model

PROTOCOL = 1
LONGEST_LINE = 1_000_000
_SURROGATE = re.compile("[\ud800-\udfff]")
VERBS = ("show", "observe", "correct", "skip", "undo", "explain", "ranking", "history", "save", "quit")
Value = Annotated[int, Field(strict=True, ge=-1, le=1)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Show(_Request):
    do: Literal["show", "undo", "ranking", "history", "quit"]


class _Observe(_Request):
    do: Literal["observe"]
    values: dict[str, Value] = Field(min_length=1)
    cost: float | None = Field(None, ge=0)


class _Correct(_Request):
    do: Literal["correct"]
    feature: str
    value: Value


class _Skip(_Request):
    do: Literal["skip"]
    feature: str


class _Explain(_Request):
    do: Literal["explain"]
    most: int = Field(10, ge=1)


class _Save(_Request):
    do: Literal["save"]
    file: str


_Any = Annotated[_Show | _Observe | _Correct | _Skip | _Explain | _Save, Field(discriminator="do")]


class _Line(RootModel[_Any]):
    pass


def converse(planner: Planner, lines: Iterable[str], keeper: Keeper) -> Iterator[str]:
    """Answer each line of requests with one line; the first line out, before any request, says what there is.

    A request that cannot be carried out, its step kept and its answer written is answered with `ok: false` and changes
    nothing.
    """
    bundle = planner.bundle
    yield _text(
        {
            "ok": True,
            "protocol": PROTOCOL,
            "afa": afa.__version__,
            "bundle": {"name": bundle.name, "version": bundle.version, "digest": planner.asked_of.digest},
            "entities": list(planner.asked_of.entities),
            "features": list(bundle.features),
            **_present(planner),
        }
    )
    for line in lines:
        if not line.strip():
            continue
        try:
            request = _read(line)
            if request.do == "quit":
                return
            with all_or_nothing(planner):
                before = planner.actions
                more = _carry_out(planner, request, keeper)
                answer = _text({"ok": True, **_present(planner), **more})
                if planner.actions != before:
                    keeper.keep(planner)
            yield answer
        except AfaError as error:
            fault = error.faults[0]
            told = {
                "where": fault.where,
                "found": fault.found,
                "expected": fault.expected,
                "next_step": fault.next_step,
            }
            yield _text({"ok": False, "error": told})


def _read(line: str) -> Any:
    if len(line) > LONGEST_LINE:
        found = f"a line of {len(line)} characters"
        raise PlannerError(Fault("request", found, f"at most {LONGEST_LINE}", "send one request a line"))
    try:
        document = json.loads(line, object_pairs_hook=_each_key_once)
    except (ValueError, RecursionError):
        step = 'write for example {"do": "show"}'
        raise PlannerError(Fault("request", "text that is not JSON", "one JSON object a line", step)) from None
    if _SURROGATE.search(json.dumps(document, ensure_ascii=False)):
        found = "half a character (a lone surrogate), or bytes that are not UTF-8"
        raise PlannerError(Fault("request", found, "whole characters", "write the request as UTF-8"))
    if not isinstance(document, dict):
        step = 'write for example {"do": "show"}'
        raise PlannerError(Fault("request", f"a {type(document).__name__}", "a JSON object", step))
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


def _carry_out(planner: Planner, request: Any, keeper: Keeper) -> dict[str, Any]:
    """Do what is asked; the part of the answer that only this request has."""
    match request:
        case _Observe():
            planner.observe_all(_values(planner, request.values), cost=request.cost)
        case _Correct():
            planner.correct(feature_named(planner, request.feature), request.value)
        case _Skip():
            planner.skip(feature_named(planner, request.feature))
        case _Show(do="undo"):
            undone = planner.undo()
            return {"undone": {"kind": undone.kind, "features": undone.features, "values": undone.values}}
        case _:
            return _look(planner, request, keeper)
    return {}


def _look(planner: Planner, request: Any, keeper: Keeper) -> dict[str, Any]:
    """What a request that changes nothing asks to see, beside what every answer holds."""
    match request:
        case _Show(do="ranking"):
            if not isinstance(planner, TopKPlanner):
                found = "a ranking asked of one entity's planner"
                raise PlannerError(Fault("request ranking", found, "the top-k question", "ask for show"))
            return {"ranking": standings(planner), "resolved": planner.resolved()}
        case _Show(do="history"):
            table = planner.history().astype({"value": object})
            return {"history": table.where(table.notna(), None).to_dict(orient="records")}
        case _Explain():
            others = [item.name for item in planner.runners_up()]
            return {"candidates": planner.explain(request.most).to_dict(orient="records"), "runners_up": others}
        case _Save():
            keeper.save_copy(planner, request.file)
            return {"saved": request.file}
        case _:
            return {}


def _values(planner: Planner, given: dict[str, int]) -> dict[str, int]:
    values = {feature_named(planner, name): value for name, value in given.items()}
    if len(values) < len(given):
        found = "two names of one feature"
        raise PlannerError(Fault("request observe, key values", found, "each feature once", "leave one out"))
    return values


def _present(planner: Planner) -> dict[str, Any]:
    """What every answer holds: the next measurement or why there is none, the answer so far, and what was spent."""
    item = planner.suggest()
    suggested = item and {"name": item.name, "features": item.features, "cost": item.cost, "reason": item.reason}
    return {
        "suggestion": suggested,
        "stopped": None if item else planner.reason,
        "answer": answer_of(planner),
        "observed": len(planner.observed),
        "spent": planner.spent,
    }


def _text(answer: dict[str, Any]) -> str:
    return json.dumps(answer, ensure_ascii=False, allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    return value.item()
