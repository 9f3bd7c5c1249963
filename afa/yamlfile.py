"""YAML files checked against a pydantic model, with every fault named by file and key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from afa.errors import ConfigError, Fault

Model = TypeVar("Model", bound=BaseModel)

_BOOLEAN = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")


class _UniqueKeyLoader(yaml.SafeLoader):
    """A safe loader that refuses a key given twice, and reads only true and false as truth values.

    Plain YAML lets the last of two equal keys win in silence, and takes the words yes, no, on and off for booleans.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 (how PyYAML is told)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(None, None, "a key that is a list", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


_UniqueKeyLoader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOLEAN, list("tTfF"))


def read_mapping(path: str | Path) -> dict[str, Any]:
    """The mapping that a YAML file holds; a `ConfigError` says what is there instead."""
    path = Path(path)
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)  # noqa: S506 (a safe loader)
    except OSError as error:
        raise ConfigError(Fault(str(path), error.strerror or "an error", "a readable file", "check the path")) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            Fault(str(path), f"bytes that are not UTF-8 ({error.reason})", "UTF-8 text", "save it as UTF-8")
        ) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        found = getattr(error, "problem", None) or "text that is not YAML"
        raise ConfigError(Fault(where, found, "valid YAML", "mend that line")) from None
    if not isinstance(document, dict):
        found = "an empty file" if document is None else f"a {type(document).__name__}"
        raise ConfigError(Fault(str(path), found, "a mapping of keys to values", "write `key: value` lines"))
    return document


def load_model(path: str | Path, model: type[Model]) -> Model:
    """Read a YAML file as `model`; all faults are raised together as one `ConfigError`."""
    return check_model(read_mapping(path), model, str(path))


def check_model(document: Any, model: type[Model], where: str) -> Model:
    """Validate a mapping as `model`; `where` names it in the faults."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise ConfigError(_faults(error, model, where)) from None


def _faults(error: ValidationError, model: type[BaseModel], where: str) -> Iterator[Fault]:
    for item in error.errors(include_url=False):
        key = ".".join(map(str, item["loc"])) or "(whole file)"
        place = f"{where}, key {key}"
        if item["type"] == "extra_forbidden":
            known = _known_keys(model, item["loc"][:-1])
            close = difflib.get_close_matches(str(item["loc"][-1]), known, n=1)
            step = f"rename it to {close[0]}" if close else f"remove it; known keys: {', '.join(known)}"
            yield Fault(place, "an unknown key", "only known keys", step)
        elif item["type"] == "missing":
            yield Fault(place, "nothing", "a value", "add the key")
        else:
            message = item["msg"].removeprefix("Value error, ")
            yield Fault(place, repr(item["input"])[:80], message[:1].lower() + message[1:], "correct the value")


def _known_keys(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """The keys that `model` knows at a location inside it; none where the location is not a model of its own."""
    current: Any = model
    for part in location:
        field = current.model_fields.get(part) if _is_model(current) else None
        if field is None:
            return []
        candidates = [field.annotation, *getattr(field.annotation, "__args__", ())]
        current = next((candidate for candidate in candidates if _is_model(candidate)), None)
    return sorted(current.model_fields) if _is_model(current) else []


def _is_model(candidate: Any) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, BaseModel)
