"""The public interface: everything is described, typed and shown by an example, and the reference can be made of it."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pandas as pd
import pytest
from reference import PUBLIC, as_markdown, write_reference

import afa
from afa.planner.rules import Rule

ROOT = Path(__file__).parents[2]
SAID_BY_ITS_TYPE = re.compile(
    r"\b(PairwiseMRF|Evidence|Marginals|MeanField|Solver|Bundle|View|Coupling|Generator|Action)\b"
)
"""A parameter of one of these types needs no more words: the reference has a page on it."""
SAID_BY_ITS_NAME = {
    "path": "the file or folder that the first sentence names",
    "feature": "its name",
    "most": "how many at most",
    "value": "-1, 0 or 1",
    "other": "the second entity of a duel",
    "reason": "why",
    "members": "those to choose among",
    "settings": "the keyword arguments of the class that it wraps",
}
CHOOSE = re.compile(r"afa\.planner\.rules\.\w+\.choose")
"""What this does is said once for all rules, by the docstring of `Rule`."""


def public_objects() -> Iterator[tuple[str, Any]]:
    """Each public class and function once, by its full name."""
    seen = set()
    for name in PUBLIC:
        module = import_module(name)
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == name]
        for key in getattr(module, "__all__", [key for key in own if not key.startswith("_")]):
            found = getattr(module, key)
            if (inspect.isclass(found) or inspect.isfunction(found)) and found not in seen:
                seen.add(found)
                yield f"{name}.{key}", found


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class defines itself, bare of `classmethod` and the like."""
    for key, value in vars(owner).items():
        if not key.startswith("_") and (
            inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
        ):
            yield key, value


def callables() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Everything public that can be called, with the docstrings that say what its parameters are."""
    for name, found in public_objects():
        if inspect.isfunction(found):
            yield name, found, told(found, found.__doc__ or "")
            continue
        about = told(found, found.__doc__ or "")
        if not getattr(found, "_is_protocol", False) and "__init__" in vars(found):
            yield f"{name}.__init__", found.__init__, about + attribute_docs(found)
        for key, value in members(found):
            if not isinstance(value, property):
                bare = getattr(value, "__func__", value)
                yield f"{name}.{key}", bare, about + told(found, bare.__doc__ or "")


def told(found: Any, text: str) -> str:
    """A docstring with those that it points to: "those of `exact`", "as `exact`"."""
    module = sys.modules[found.__module__]
    for name in re.findall(r"(?:those of|as) `(\w+)`", text):
        text += getattr(getattr(module, name, None) or getattr(afa, name, None), "__doc__", None) or ""
    return text


def attribute_docs(owner: type) -> str:
    """Names of the fields of a class that have a docstring of their own below them."""
    body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    assert isinstance(body, ast.ClassDef)
    pairs = zip(body.body, body.body[1:], strict=False)
    return " ".join(
        field.target.id
        for field, text in pairs
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr)
    )


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return [each for each in inspect.signature(function).parameters.values() if each.name not in ("self", "cls")]


def test_every_public_class_function_and_method_has_a_docstring() -> None:
    silent = []
    for name, found in public_objects():
        if not found.__doc__ or found.__doc__.startswith(f"{found.__name__}("):  # a dataclass's own is no docstring
            silent.append(name)
        if inspect.isclass(found):
            silent += [f"{name}.{key}" for key, _ in members(found) if not inspect.getdoc(getattr(found, key))]
    assert [name for name in silent if not CHOOSE.fullmatch(name)] == []
    assert "`choose`" in (Rule.__doc__ or "")


def test_every_public_parameter_is_described() -> None:
    bare = [
        f"{name}({each.name}: {each.annotation})"
        for name, function, text in callables()
        for each in parameters(function)
        if not re.search(rf"\b{each.name}\b", text)
        and each.name not in SAID_BY_ITS_NAME
        and not SAID_BY_ITS_TYPE.search(str(each.annotation))
    ]
    assert bare == []


def test_every_public_annotation_names_something_that_is_there() -> None:
    """Annotations of `pandas` resolve too, although planners do without it."""
    unresolved = []
    inherited = [
        (f"{name}.{key}", getattr(value, "__func__", getattr(value, "fget", None) or value))
        for name, found in public_objects()
        if inspect.isclass(found)
        for owner in found.__mro__
        if owner.__module__.startswith("afa")
        for key, value in members(owner)
    ]
    for name, found in [*public_objects(), *inherited]:
        try:
            get_type_hints(found)
        except NameError as error:
            unresolved.append(f"{name}: {error}")
    assert unresolved == []
    assert get_type_hints(afa.TopKPlanner.explain)["return"] is pd.DataFrame


def test_dir_lists_every_name_of_the_package_and_its_figures() -> None:
    assert {*afa.__all__, "plot"} <= set(dir(afa))


def test_every_public_signature_is_typed_in_full() -> None:
    untyped = [
        f"{name}({each.name})"
        for name, function, _ in callables()
        for each in parameters(function)
        if each.annotation is inspect.Parameter.empty
    ]
    untyped += [
        name for name, function, _ in callables() if inspect.signature(function).return_annotation is inspect._empty
    ]
    getters = [
        (f"{name}.{key}", value.fget)
        for name, found in public_objects()
        if inspect.isclass(found)
        for key, value in members(found)
        if isinstance(value, property)
    ]
    untyped += [name for name, getter in getters if "return" not in getter.__annotations__]
    assert untyped == []


@pytest.mark.parametrize("name", afa.__all__)
def test_each_name_of_the_package_is_shown_by_an_example_that_the_tests_run(name: str) -> None:
    found = getattr(afa, name)
    texts = [found.__doc__ or ""]
    if inspect.isclass(found):
        texts += [inspect.getdoc(getattr(found, key)) or "" for key, _ in members(found)]
    assert any(">>> " in text for text in texts)
    configured = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'^testpaths = \["tests", "afa"\]$', configured, re.MULTILINE)
    assert "--doctest-modules" in configured


def test_the_package_says_which_modules_are_public() -> None:
    assert set(re.findall(r"`(afa\.[\w.]+)`", afa.__doc__ or "")) == set(PUBLIC) - {"afa"}


def test_the_reference_has_a_page_a_module_with_its_names(tmp_path: Path) -> None:
    write_reference(tmp_path / "api")
    pages = {path.relative_to(tmp_path / "api").as_posix() for path in (tmp_path / "api").rglob("*.html")}
    assert pages == {f"{name.replace('.', '/')}.html" for name in PUBLIC} | {"index.html"}
    first = (tmp_path / "api/afa.html").read_text(encoding="utf-8")
    assert all(f'id="{name}"' in first for name in afa.__all__)
    assert 'href="afa/planner.html"' in first


def test_parameters_become_a_list_and_examples_code() -> None:
    docstring = """One sentence.

    Parameters
    ----------
    k : size, 1 <= k
        < N.
    seed, patient : names.

    >>> 1 + 1
    2
    """
    assert as_markdown(docstring) == (
        "One sentence.\n\n**Parameters**\n\n- `k`: size, 1 <= k < N.\n- `seed, patient`: names.\n\n"
        "```python\n>>> 1 + 1\n2\n```"
    )
