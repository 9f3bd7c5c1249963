"""No file that afa reads can make it run code: none of the ways to do so occurs in the package."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import afa
from afa.io.yamlfile import _UniqueKeyLoader

PACKAGE = Path(afa.__file__).parent
MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "cloudpickle",
    "dill",
    "joblib",
    "marshal",
    "shelve",
    "code",
    "codeop",
    "runpy",
}
NAMES = {"eval", "exec", "compile", "__import__", "execfile"}
ATTRIBUTES = {
    *("read_pickle", "to_pickle", "read_hdf", "extractall", "unsafe_load", "unsafe_load_all", "full_load", "load_all"),
    *("UnsafeLoader", "FullLoader", "Loader", "CLoader", "mktemp", "PyExtensionType"),
}
ALLOWED = {
    "paper/workflow.py": {
        "extractall"
    },  # of an archive that git makes, by the filter that keeps files inside the folder
}
SAFE_LOADERS = {"BaseLoader", "SafeLoader", "CSafeLoader", "_UniqueKeyLoader"}


def offences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each way to run code that a module has."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").partition(".")[0] in MODULES:
                yield node.lineno, node.module or ""
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in ATTRIBUTES)
        elif isinstance(node, ast.Attribute) and (node.attr in ATTRIBUTES or _is_shell(node)):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Call):
            yield from _calls(node)


def _is_shell(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "os" and node.attr in {"system", "popen"}


def _calls(node: ast.Call) -> Iterator[tuple[int, str]]:
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    if isinstance(node.func, ast.Name) and node.func.id in NAMES:
        yield node.lineno, node.func.id
    for name in ("shell", "allow_pickle"):
        value = keywords.get(name)
        if value is not None and not (isinstance(value, ast.Constant) and value.value is False):
            yield node.lineno, name
    target = node.func
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "yaml":
        loader = keywords.get("Loader") or (node.args[1] if len(node.args) > 1 else None)
        safe = getattr(loader, "id", getattr(loader, "attr", None)) in SAFE_LOADERS
        if target.attr in {"load", "compose", "compose_all"} and not safe:
            yield node.lineno, f"yaml.{target.attr}"


def test_no_module_has_a_way_to_run_what_a_file_says() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): {name for _, name in offences(ast.parse(path.read_bytes()))}
        for path in PACKAGE.rglob("*.py")
    }
    assert {path: names for path, names in found.items() if names} == ALLOWED


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from joblib import load",
        "import yaml\nyaml.load(text)",
        "import yaml\nyaml.load(text, yaml.Loader)",
        "import yaml\nyaml.load(text, Loader=yaml.UnsafeLoader)",
        "from yaml import full_load",
        "eval(text)",
        "exec(text)",
        "import pandas as pd\npd.read_pickle(path)",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "import subprocess\nsubprocess.run(text, shell=True)",
        "archive.extractall(path)",
        "import os\nos.system(text)",
    ],
)
def test_each_way_to_run_code_would_be_found(line: str) -> None:
    assert list(offences(ast.parse(line)))


def test_the_loader_of_all_yaml_files_knows_no_tag_of_python() -> None:
    assert not [tag for tag in _UniqueKeyLoader.yaml_constructors if tag and "python" in tag]
    assert not [tag for tag in _UniqueKeyLoader.yaml_multi_constructors if tag and "python" in tag]
