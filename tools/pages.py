"""What is written of settings and stages: `config.yaml`, its page and schema, and the tables of `docs/summary.md`.

`make schema`, or `python tools/pages.py`, writes them; a test holds them to models and stages. The docstring below a
field is its meaning: all of it on the page, its first sentence in `config.yaml`, where a section has that of its class.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from afa.evaluate.summary import in_order
from afa.paper.config import RunConfig
from afa.paper.experiments.declared import STAGES

ROOT = Path(__file__).parents[1]
FILE, PAGE = ROOT / "config" / "config.yaml", ROOT / "config" / "README.md"
SUMMARY = ROOT / "docs" / "summary.md"
SCHEMA = ROOT / "workflow" / "schemas" / "config.schema.yaml"
NO_STAGE = {
    "llm_baselines": "how do language models that plan on their own compare with the planner on the same patients?"
    " (only if they were run)",
    "llm_choosing": "is a language model that chooses its features better than the planner, by its choices or by its"
    " decisions? (only with the bundled answers)",
}
"""Tables of the summary that no stage of `afa.paper.experiments` makes, each with its question."""
MADE = "# Made by `make schema` from the models of the settings. "
KINDS = ("title", "propertyNames")
"""What pydantic says beside what a reader of the configuration needs."""
ORDER = ("type", "ranges and the like", "description", "default", "properties")
REFERENCE = re.compile(r" \((?:\w+:|app\. |decisions\.md |S)[\w-]+\)")
"""Where the paper or a decision is named."""
LINKED = re.compile(r"\b((?:docs|resources)/[\w/]+\.md)")
"""A page of the project that a text names."""
LIMITS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
COMMENT = 120
"""How long a line of `config.yaml` may be."""


def meanings(model: type[BaseModel], before: str = "") -> Iterator[tuple[str, str]]:
    """Every key with its meaning: the docstring below it. Asked of pydantic, it would be looked for at every start."""
    for owner in (owner for owner in model.__mro__ if owner.__module__.startswith("afa.")):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(definition, ast.ClassDef)
        for key, text in pairwise(definition.body):
            if isinstance(key, ast.AnnAssign) and isinstance(text, ast.Expr):
                yield before + ast.unparse(key.target), " ".join(ast.literal_eval(text.value).split())
    for name, field in model.model_fields.items():
        if inspect.isclass(field.annotation) and issubclass(field.annotation, BaseModel):
            yield from meanings(field.annotation, f"{name}.")


def config_schema() -> dict[str, Any]:
    """The schema as a document, every section in its place."""
    model = RunConfig.model_json_schema(mode="validation")
    default = RunConfig().model_dump(mode="json")
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Settings of a run"}
    return {**about, **_plain(model, model.pop("$defs"), dict(meanings(RunConfig)), default)}


def _plain(
    node: dict[str, Any], parts: dict[str, Any], words: dict[str, str], default: Any = None, key: str = ""
) -> dict[str, Any]:
    """A part of pydantic's schema without references, titles and the names of classes."""
    if "$ref" in node:
        node = {**parts[node["$ref"].rpartition("/")[2]], **{name: node[name] for name in node if name != "$ref"}}
    node = {name: value for name, value in node.items() if name not in (*KINDS, "default")}
    if choices := node.pop("anyOf", None):
        choices = [_plain(choice, parts, words) for choice in choices]
        kinds = [choice["type"] for choice in choices]
        alone = [choice for choice in choices if kinds.count(choice["type"]) == 1]
        node |= {name: value for choice in alone for name, value in choice.items()}
        node["type"] = list(dict.fromkeys(kinds))
    if "const" in node:
        node["enum"] = [node.pop("const")]
    if "items" in node:
        node |= {"items": _plain(node["items"], parts, words), "uniqueItems": True}
    if "description" in node:
        node["description"] = REFERENCE.sub("", " ".join(node["description"].partition("\n\n")[0].split()))
    if "properties" in node:
        node["properties"] = {
            name: _plain(inner, parts, words, default[name], f"{key}.{name}".lstrip("."))
            for name, inner in node["properties"].items()
        }
    elif key:
        node |= {"description": words[key], "default": default}
    return {name: node[name] for name in sorted(node, key=lambda name: ORDER.index(name) if name in ORDER else 1)}


def written() -> dict[Path, str]:
    """The text of each file that is made."""
    schema = config_schema()
    text = yaml.safe_dump(schema, sort_keys=False, allow_unicode=True, width=110)
    head = f"{MADE}Unknown keys are refused.\n# config/README.md says more of each.\n\n"
    keys = (
        (f"`{key}`", _kind(node), _default(node), LINKED.sub(r"[\1](../\1)", node["description"]))
        for key, node in _leaves(schema)
    )
    page = between(PAGE, "settings", ("key", "type", "default", "meaning"), keys)
    questions = NO_STAGE | {
        name: words for stage in STAGES.values() for name, words in stage.summary_tables.items() if words
    }
    tables = ((f"`{name}`", questions[name]) for name in in_order(questions))
    return {
        SCHEMA: f"{MADE}For editors and catalogs.\n{text}",
        FILE: head + "".join(f"{line}\n" for line in _lines(schema["properties"])),
        PAGE: page,
        SUMMARY: between(SUMMARY, "tables", ("table", "question"), tables),
    }


def between(page: Path | str, name: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A page with the table that stands between its two marks of that name made anew."""
    text = page.read_text(encoding="utf-8") if isinstance(page, Path) else page
    start, end = f"<!-- {name}: made by `make schema` -->\n", f"<!-- end of {name} -->\n"
    first, *others = (f"| {' | '.join(row)} |\n" for row in (head, *rows))
    table = f"{first}|{'---|' * len(head)}\n{''.join(others)}"
    return f"{text[: text.index(start) + len(start)]}\n{table}\n{text[text.index(end) :]}"


def _leaves(node: dict[str, Any], before: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key with its schema."""
    for name, inner in node["properties"].items():
        if "properties" in inner:
            yield from _leaves(inner, f"{name}.")
        else:
            yield before + name, inner


def _kind(node: dict[str, Any], plural: str = "") -> str:
    """The type in words: `list of whole numbers, at least 1`."""
    kind = node["type"] if isinstance(node["type"], str) else node["type"][0]
    if kind == "array":
        return "list of " + _kind(node["items"], "s")
    if "enum" in node:
        return ", ".join(f"`{value}`" for value in node["enum"])
    if kind == "boolean":
        return "`true`, `false`"
    if kind == "string":
        word = "path" if node.get("format") == "path" else "name" if "pattern" in node else "text"
    else:
        word = "even number" if node.get("multipleOf") == 2 else "whole number" if kind == "integer" else "number"
    limits = [f"{words} {node[limit]:g}" for limit, words in LIMITS.items() if limit in node]
    return ", ".join([word + plural, *limits])


def _default(node: dict[str, Any]) -> str:
    value = node["default"]
    if value in (None, []):
        return "empty"
    every = node.get("items", {}).get("enum")
    return "all" if value == every else f"`{_yaml(value)}`"


def _yaml(value: Any) -> str:
    """A value in a line of YAML."""
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return re.sub(r"^(\d+)e([+-])0*", r"\1.0e\2", f"{value:g}")
    return "" if value is None else str(value)


def _lines(keys: dict[str, Any], indent: str = "") -> Iterator[str]:
    """Lines of `config.yaml`: each key with its default and the first sentence on it, above it where it is long."""
    for name, node in keys.items():
        comment = f"# {re.split(r'[.] (?=[A-Z])', node['description'])[0].rstrip('.')}"
        if "properties" in node:
            yield from ("", f"{name}: # {comment[2].lower()}{comment[3:]}", *_lines(node["properties"], "  "))
            continue
        line = f"{indent}{name}: {_yaml(node['default'])}".rstrip()
        if len(f"{line} {comment}") <= COMMENT:
            yield f"{line} {comment}"
        else:
            yield from (*textwrap.wrap(comment, COMMENT, initial_indent=indent, subsequent_indent=f"{indent}# "), line)


if __name__ == "__main__":
    for file, content in written().items():
        file.write_text(content, encoding="utf-8")
