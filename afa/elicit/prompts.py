"""Render the prompts of a study. Each prompt has a template, a schema for its answer, and a digest of both.

Templates do not depend on the study: the function `request` fills in the words of a study.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template, TemplateError, UndefinedError
from jinja2.meta import find_referenced_templates

from afa.elicit.answers import ANSWER_SCHEMAS, TEXT_LENGTH
from afa.elicit.record import Messages, Question, Request, request_key
from afa.errors import ElicitationError, Fault
from afa.model.study import Manner, Study

BOUNDS = frozenset({"minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems"})
"""Keywords that some endpoints refuse in a strict schema; every answer is validated with them nevertheless."""
STUDY_SETTINGS = {"disease", "tissue", "most_genes", "bibliography", "exactly", "snippet_length"}
"""Settings that templates use under their own names."""
AbstractsOfQuestion = Callable[[Question], Sequence[Mapping[str, Any]]]
"""Function that returns title, source and text of the abstracts of a question, best first."""
_LINE_BREAK = re.compile("[ \t]*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029][\\s\x1c-\x1e]*")


def request(question: Question, study: Study, abstracts: AbstractsOfQuestion) -> Request:
    """Render the prompt of a question, and return a `Request` with the question and its prompt."""
    settings, phenotype = study.settings, question.values.get("phenotype", "")
    values = {
        **settings.model_dump(include=STUDY_SETTINGS),
        "word": settings.words.model_dump(),
        "vocabulary": study.vocabulary,
        "definition": study.definition(phenotype) if phenotype else "",
        "text_length": TEXT_LENGTH,
        "scope": ", ".join(settings.scope),
        "exclusions": ", ".join(settings.exclusions),
        "abstracts": list(abstracts(question)),
        **question.values,
    }
    if "features" in question.values:
        values["rows"] = prompt_features(study, json.loads(question.values["features"]))
    if directions := question.directions:
        values["direction1"] = directions[question.values["gene1"]]
        values["partners"] = [(gene, directions[gene]) for gene in question.values.get("partners", "").split()]
    return Request(question, render(question.prompt, values))


def prompt_features(study: Study, ends: Mapping[str, Sequence[float | None] | None]) -> list[dict[str, str]]:
    """Return a dictionary of texts for each feature in `ends`: name, unit, values, definition and cut points."""
    if study.features is None:
        return []
    table = study.features.to_frame().set_index("feature").loc[list(ends)]
    rows = []
    for name, kind, unit, coding, definition in zip(
        table.index, table["kind"], table["unit"], table["values"], table["definition"], strict=True
    ):
        low, high = ends[name] or (None, None)
        said = [
            f"{word} {end:g} {unit}".rstrip()
            for word, end in (("Low: below", low), ("High: above", high))
            if end is not None
        ]
        words = "High: it is there." if kind == "binary" else f"{'. '.join(said)}."
        rows.append({"name": name, "unit": unit, "coding": coding, "definition": definition, "ends": words})
    return rows


def no_abstracts(question: Question) -> Sequence[Mapping[str, Any]]:
    """Return an empty tuple, for studies that do not retrieve abstracts."""
    del question
    return ()


def with_fault(messages: Messages, detail: str) -> Messages:
    """Append the error `detail` of the last answer to the prompt. If `detail` is empty, return the prompt unchanged."""
    if not detail:
        return messages
    said = _on_one_line(detail[:300]).rstrip(".")
    return Messages(messages.system, f"{messages.user}\nYour last answer was not taken: {said}. Answer again.\n")


def render(name: str, values: Mapping[str, Any]) -> Messages:
    """Return the prompt `name` with its values filled in.

    A line break in a value becomes a blank, so that a value cannot add a line to the prompt.

    Raises
    ------
    ElicitationError : an unknown prompt, or a missing value that its template needs.

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
    """Return the SHA-256 of a prompt's template, of its included templates, and of the schema of its answer."""
    sources, pending = {}, [f"{name}.md"]
    while pending:
        template = pending.pop()
        if template not in sources:
            sources[template] = _template_source(template)
            pending += [str(part) for part in find_referenced_templates(_environment().parse(sources[template]))]
    parts = json.dumps([sorted(sources.items()), ANSWER_SCHEMAS[name].model_json_schema()], sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()


def key_of(request: Request, model: str, manner: Manner) -> str:
    """Return the key under which a request is recorded. The key depends on prompt, model and call settings."""
    digest = prompt_digest(request.question.prompt)
    return request_key(request.question, model, manner.parameters, digest, request.messages.digest)


def answer_schema(name: str, *, bounds: bool = True) -> dict[str, Any]:
    """Return the JSON schema of the answer to a prompt, with all keys required.

    If `bounds` is False, the schema has none of the keys in `BOUNDS`.
    """
    return dict(json.loads(_schema_text(name, bounds)))


@cache
def _schema_text(name: str, bounds: bool) -> str:
    return json.dumps(_strict_schema(ANSWER_SCHEMAS[name].model_json_schema(), bounds))


def _strict_schema(schema: Any, bounds: bool) -> Any:
    if isinstance(schema, list):
        return [_strict_schema(part, bounds) for part in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict_schema(part, bounds) for key, part in schema.items() if key != "default"}
    if not bounds:
        strict = {key: part for key, part in strict.items() if key not in BOUNDS}
    return {**strict, "required": list(schema["properties"])} if "properties" in schema else strict


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


def _template_source(template: str) -> str:
    source, _, _ = _environment().loader.get_source(_environment(), template)  # type: ignore[union-attr]
    return source


@cache
def _templates(name: str) -> tuple[Template, Template]:
    if name not in ANSWER_SCHEMAS:
        raise ElicitationError(Fault("prompt", repr(name), ", ".join(ANSWER_SCHEMAS), "name one of these"))
    system, _, user = _template_source(f"{name}.md").removeprefix("# System\n").partition("\n# User\n")
    return _environment().from_string(system), _environment().from_string(user)
