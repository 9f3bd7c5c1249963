"""Read YAML files and validate their content by a pydantic model. Every error message names the file and the key."""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Hashable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from afa.errors import ConfigError, Fault
from afa.io.files import read_text

ModelT = TypeVar("ModelT", bound=BaseModel)

LARGEST_FILE = 16 << 20
MOST_NODES = 100_000
DEEPEST_NESTING = 50
MOST_SHOWN = 100

_PLAINLY = (
    (r"'\\t' that|\btab\b", "a tab", "blanks", "replace the tab by blanks"),
    (r"escape", "a \\ in double quotes", "single quotes around a text with \\", "use single quotes"),
    (r"^while scanning a (double-)?quoted", "a quote that is not closed", "quotes in pairs", "close the quote"),
    (
        r"cannot start|alias|anchor|\btag\b|constructor|directive|incompatible|block scalar",
        "a text that begins with @, *, !, | or another mark of YAML",
        "such text in quotes",
        "put it in quotes",
    ),
    (r"or '[\]}]'", "a bracket that is not closed, or text after a value in it", "`[a, b]` or `{a: b}`", "close it"),
    (r"expected ':'", "text without a key", "`key: value`", "write it so, or indent it to go on with the line before"),
    (r"single document", "a second document, after ---", "one", "remove what follows ---"),
    (
        r"",
        "what does not go with the lines before it",
        "`key: value`, indented as the lines that belong with it",
        "indent it as those, or put a text with ': ' in quotes, all of it",
    ),
)
"""Each entry contains the pattern of a PyYAML message, and plain words for three parts: found, expected, next step."""

_BOOLEAN = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORSE_THAN_YAML = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions that PyYAML raises if a value does not fit its tag."""


_OF_KIND = {
    **dict.fromkeys(("model_type", "dict_type", "mapping_type", "dataclass_type"), "a mapping of keys to values"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), "a list"),
    **dict.fromkeys(("int_parsing", "int_parsing_size", "int_type", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "a number"),
    "finite_number": "a finite number",
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false"),
    "string_type": "text",
}
"""Description of the expected value, by the type of a pydantic error.

For other types, pydantic's own words are used.
"""


class Strict(BaseModel):
    """A frozen pydantic model that forbids unknown keys and numbers that are not finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Refused(yaml.MarkedYAMLError):
    """Error for YAML that the strict loader of this module refuses."""

    def __init__(self, found: str, mark: Any) -> None:
        super().__init__(problem=found, problem_mark=mark)


class _UniqueKeyLoader(yaml.SafeLoader):
    """A safe loader that refuses repeated keys, and reads only true and false as booleans.

    Plain YAML silently takes the last of two equal keys, and reads yes, no, on and off as booleans. A document with
    more than `DEEPEST_NESTING` levels of nesting or more than `MOST_NODES` values is also refused.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML reads this attribute)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._level = 0
        self._composed = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        self._level += 1
        self._composed += 1
        if self._level > DEEPEST_NESTING:
            raise _Refused(f"more than {DEEPEST_NESTING} levels", mark)
        if self._composed > MOST_NODES:
            raise _Refused(f"more than {MOST_NODES} values", mark)
        node = super().compose_node(parent, index)
        self._level -= 1
        if isinstance(node, yaml.ScalarNode) and _SURROGATE.search(node.value):
            raise _Refused("half a character (a lone surrogate)", mark)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except _WORSE_THAN_YAML:
            kind = node.tag.rpartition(":")[2]
            found = f"a value that is no {kind}"
            raise _Refused(found, node.start_mark) from None

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        value: int = super().construct_yaml_int(node)
        if abs(value) >= 2**63:
            raise _Refused("a whole number beyond 64 bits", node.start_mark)
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise _Refused("a key that is a list", key_node.start_mark)
            if key in seen:
                raise _Refused(f"key {key!r} given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


_UniqueKeyLoader.add_constructor("tag:yaml.org,2002:int", _UniqueKeyLoader.construct_yaml_int)
_UniqueKeyLoader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOLEAN, list("tTfF"))


def read_mapping(path: str | Path) -> dict[str, Any]:
    """Return the mapping in a YAML file. If the content is not a mapping, a `ConfigError` is raised."""
    path = Path(path)
    try:
        text = read_text(path, LARGEST_FILE)
        document = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 (a safe loader)
    except OSError as error:
        raise ConfigError(Fault(str(path), error.strerror or "an error", "a readable file", "check the path")) from None
    except yaml.YAMLError as error:
        raise ConfigError(_yaml_fault(error, path, text)) from None
    except _WORSE_THAN_YAML:
        raise ConfigError(Fault(str(path), "text that is not YAML", "`key: value` lines", "correct it")) from None
    if not isinstance(document, dict):
        found = "an empty file" if document is None else "a list" if isinstance(document, list) else "a value alone"
        raise ConfigError(Fault(str(path), found, "a mapping of keys to values", "write `key: value` lines"))
    if _is_too_large(document):
        found = f"aliases that stand for more than {MOST_NODES} values or {DEEPEST_NESTING} levels"
        raise ConfigError(Fault(str(path), found, "fewer", "write out what they stand for"))
    return document


def _is_too_large(document: Any) -> bool:
    """Return True if a document with expanded aliases has more than `MOST_NODES` values or `DEEPEST_NESTING` levels.

    A value is counted once for each alias that repeats it.
    """
    waiting, values = [(document, 1)], 1
    while waiting:
        value, level = waiting.pop()
        parts = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        values += len(parts)
        if values > MOST_NODES or level > DEEPEST_NESTING:
            return True
        waiting += [(part, level + 1) for part in parts]
    return False


def _yaml_fault(error: yaml.YAMLError, path: Path, text: str) -> Fault:
    """Return a `Fault` that names the invalid line of a YAML file and states what was expected there."""
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position)
        found, expected, step = f"the character {chr(error.character)!r}", "text that can be printed", "remove it"
        return Fault(f"{path}, line {line + 1}", found, expected, step)
    assert isinstance(error, yaml.MarkedYAMLError)
    said, begun, mark = f"{error.context}, {error.problem}", error.context_mark, error.problem_mark
    if isinstance(error, _Refused):
        found, expected, step = str(error.problem), "valid YAML", "correct that line"
    else:
        found, expected, step = next(plain for words, *plain in _PLAINLY if re.search(words, said))
        if begun is not None and re.search("not closed|without a key", found):
            mark = begun
    lines = text.splitlines()
    if mark is None or mark.line >= len(lines):
        return Fault(str(path), found, expected, step)
    return Fault(f"{path}, line {mark.line + 1}", f"{found} ({_short_value(lines[mark.line].strip())})", expected, step)


def load_model(path: str | Path, model: type[ModelT]) -> ModelT:
    """Read a YAML file, and check it against the pydantic class `model`.

    All errors in the file are raised as one `ConfigError`.
    """
    return check_model(read_mapping(path), model, str(path))


def check_model(document: Any, model: type[ModelT], where: str) -> ModelT:
    """Check a mapping against the pydantic class `model`, and return an instance of this class.

    The argument `where` is the name of the mapping in error messages.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise ConfigError(_validation_faults(error, model, where)) from None


def first_error(error: ValidationError, whole: str) -> str:
    """Return the message and place of the first error, in one line.

    If the error concerns the whole document, the place is the text in `whole`.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or whole}: {first['msg']}"


def _validation_faults(error: ValidationError, model: type[BaseModel], where: str) -> Iterator[Fault]:
    items = error.errors(include_url=False)
    for item in items[:MOST_SHOWN]:
        key = ".".join(map(str, item["loc"]))
        place = f"{where}, key {key}" if key else where
        if item["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            known = _known_keys(model, item["loc"][:-1])
            close = difflib.get_close_matches(str(item["loc"][-1]), known, n=1)
            step = "remove it" + (f"; known keys: {', '.join(known)}" if known else "")
            step = f"rename it to {close[0]}" if close else step
            yield Fault(place, "an unknown key", "only known keys", step)
        elif item["type"] == "missing":
            yield Fault(place, "nothing", "a value", "add the key")
        else:
            message = item["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
            message = _OF_KIND.get(item["type"], message[:1].lower() + message[1:])
            if item["type"] == "too_short":
                message = f"at least {item['ctx']['min_length']} of them"
            if item["type"] == "string_type" and isinstance(item["input"], bool | int | float | date):
                message += "; put it in quotes"
            found = _short_value(item["input"]) if key else "values that do not go together"
            yield Fault(place, found, message, "correct the value")
    if len(items) > MOST_SHOWN:
        yield Fault(where, f"{len(items) - MOST_SHOWN} more such values", "none", "correct those named above first")


def _short_value(value: Any) -> str:
    return "nothing" if value is None else (repr(value) if isinstance(value, str) else reprlib.repr(value))[:80]


def _known_keys(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Return the keys that `model` allows at a location in a document, or an empty list if no model applies there."""
    for part in location:
        field = model.model_fields.get(str(part))
        kinds = [field.annotation, *get_args(field.annotation)] if field else []
        models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if not models:
            return []
        model = models[0]
    return sorted(model.model_fields)
