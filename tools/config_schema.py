"""The JSON schema of `config/config.yaml`: kinds, ranges and defaults of the model, words of the page on configuration.

`python tools/config_schema.py FILE` writes it. A test holds the file to the model and the page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml

from afa.config import RunConfig

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "config" / "README.md"
FILE = ROOT / "workflow" / "schemas" / "config.schema.yaml"
HEAD = "# Made by `make schema` from the models of the settings and config/README.md. For editors and catalogs.\n"
KINDS = ("title", "format", "propertyNames")
"""What pydantic says beside what a reader of the configuration needs."""


ORDER = ("type", "ranges and the like", "description", "default", "properties")


def meanings(page: str) -> dict[str, str]:
    """The meaning of every key, by the first table of the page: plain words, without links."""
    rows = re.findall(r"^\| `([\w.]+)` \|[^|]*\|[^|]*\| (.+) \|$", page.partition("\n## On the command line")[0], re.M)
    return {key: re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", meaning) for key, meaning in rows}


def config_schema(page: str) -> dict[str, Any]:
    """The schema as a document, every section in its place.

    Parameters
    ----------
    page : the text of `config/README.md`.

    """
    model = RunConfig.model_json_schema(mode="validation")
    default = RunConfig().model_dump(mode="json")
    plain = _plain(model, model.pop("$defs"), default, meanings(page), "")
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Settings of a run"}
    return {**about, **plain}


def _plain(
    node: dict[str, Any], parts: dict[str, Any], default: Any, words: dict[str, str], key: str
) -> dict[str, Any]:
    """A part of pydantic's schema without references, titles and the names of classes."""
    if "$ref" in node:
        node = {**parts[node["$ref"].rpartition("/")[2]], **{name: node[name] for name in node if name != "$ref"}}
    node = {name: value for name, value in node.items() if name not in (*KINDS, "description", "default")}
    if choices := node.pop("anyOf", None):
        choices = [_plain(choice, parts, None, words, "") for choice in choices]
        kinds = [choice["type"] for choice in choices]
        alone = [choice for choice in choices if kinds.count(choice["type"]) == 1]
        node |= {name: value for choice in alone for name, value in choice.items()}
        node["type"] = list(dict.fromkeys(kinds))
    if "const" in node:
        node["enum"] = [node.pop("const")]
    if "items" in node:
        node |= {"items": _plain(node["items"], parts, None, words, ""), "uniqueItems": True}
    if "properties" in node:
        node["properties"] = {
            name: _plain(inner, parts, default[name], words, f"{key}.{name}".lstrip("."))
            for name, inner in node["properties"].items()
        }
    elif key:
        node |= {"description": words[key], "default": default}
    return {name: node[name] for name in sorted(node, key=lambda name: ORDER.index(name) if name in ORDER else 1)}


def written(page: str) -> str:
    """The text of the file."""
    return HEAD + yaml.safe_dump(config_schema(page), sort_keys=False, allow_unicode=True, width=110)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
