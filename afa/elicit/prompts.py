"""The questions that a language model is asked: templates under version control, each with its schema and digest."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template, TemplateError, UndefinedError
from jinja2.meta import find_referenced_templates

from afa.elicit.answers import Answer, BinaryTurn, MulticlassTurn, PairAnswer, UnaryAnswer
from afa.errors import ElicitationError, Fault

ANSWERS: Mapping[str, type[Answer]] = {
    "unary": UnaryAnswer,
    "pairwise": PairAnswer,
    "binary_potentials": BinaryTurn,
    "binary_literature": BinaryTurn,
    "multiclass_potentials": MulticlassTurn,
    "multiclass_literature": MulticlassTurn,
}
"""Every prompt by name, with the schema of its answer."""
BOUNDS = frozenset({"minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems"})
"""Keywords that endpoints refuse in a strict schema; an answer is held to them once it is here."""
_LINE_BREAK = re.compile("[ \t]*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029][\\s\x1c-\x1e]*")


@dataclass(frozen=True)
class Messages:
    """A rendered prompt: what the model is told to be, and what it is asked."""

    system: str
    user: str


def render(name: str, values: Mapping[str, Any]) -> Messages:
    """The prompt `name` with its values filled in, each on one line, so that none can pass for a part of the prompt.

    Raises
    ------
    ElicitationError : no such prompt, or a value that its template needs and that is not given.

    """
    parts = {}
    for part, template in zip(("system", "user"), _templates(name), strict=True):
        try:
            parts[part] = template.render(values).strip() + "\n"
        except (TemplateError, TypeError, ValueError) as error:
            step = "pass every value that the template names"
            raise ElicitationError(Fault(f"prompt {name}, {part}", str(error), "all its values", step)) from error
    return Messages(**parts)


@cache
def prompt_digest(name: str) -> str:
    """SHA-256 over a prompt's template, what that includes, and the schema of its answer."""
    sources, pending = {}, [f"{name}.md"]
    while pending:
        template = pending.pop()
        if template not in sources:
            sources[template] = _source(template)
            pending += [str(part) for part in find_referenced_templates(_environment().parse(sources[template]))]
    told = json.dumps([sorted(sources.items()), ANSWERS[name].model_json_schema()], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()


def answer_schema(name: str) -> dict[str, Any]:
    """The JSON schema of the answer to a prompt, every key required, without `BOUNDS`, as strict endpoints want it."""
    return dict(json.loads(_schema_text(name)))


@cache
def _schema_text(name: str) -> str:
    return json.dumps(_unbounded(ANSWERS[name].model_json_schema()))


def _unbounded(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_unbounded(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _unbounded(part) for key, part in schema.items() if key not in BOUNDS}


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("afa.elicit", "prompts"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 (plain text)
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_on_one_line,
    )


def _on_one_line(value: Any) -> Any:
    if value is None:
        raise UndefinedError("a value is None")
    return _LINE_BREAK.sub(" ", value) if isinstance(value, str) else value


def _source(template: str) -> str:
    source, _, _ = _environment().loader.get_source(_environment(), template)  # type: ignore[union-attr]
    return source


@cache
def _templates(name: str) -> tuple[Template, Template]:
    if name not in ANSWERS:
        raise ElicitationError(Fault("prompt", repr(name), ", ".join(ANSWERS), "name one of these"))
    system, _, user = _source(f"{name}.md").removeprefix("# System\n").partition("\n# User\n")
    return _environment().from_string(system), _environment().from_string(user)
