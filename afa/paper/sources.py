"""Whether what a job runs and reads of the project is still what it was when its run began.

A run notes the content of every file of the package, and of the files of the project that its rules name as inputs,
before its first job. Each job compares with it at its end. So a module, a template or an input that is edited while
jobs run makes those jobs fail that use it, even where it is changed back later: no result is recorded as made of what
did not make it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from afa.errors import ConfigError, Fault
from afa.io.files import atomic_file, sha256_of

PACKAGE = Path(__file__).parents[1]
NOTED = "AFA_SOURCES"
"""The environment variable by which a run tells its jobs the file that it noted the sources in."""
LARGEST = 10_000_000
"""Bytes of an input that is noted; larger ones would be read for too long."""


def sources(inputs: Iterable[str | Path] = ()) -> dict[str, str]:
    """Return the SHA-256 of every file of the package, and of those inputs that are files, by path."""
    package = [path for path in PACKAGE.rglob("*") if "__pycache__" not in path.parts]
    files = [path for path in (*package, *map(Path, inputs)) if path.is_file() and path.stat().st_size <= LARGEST]
    return {str(path): sha256_of(path) for path in files}


def note_sources(found: dict[str, str], file: str | Path) -> None:
    """Write down what `sources` returned when the run began."""
    with atomic_file(Path(file)) as path:
        path.write_text(json.dumps(found), encoding="utf-8")


def check_sources(words: Sequence[str]) -> None:
    """Raise an error if a file that this process has used has changed since the run began.

    That is: the modules that are imported, the data beside them, and the inputs that a word of the command line names,
    or that lie in a folder that one names.

    words : the command line without the program's name.

    Raises
    ------
    ConfigError : the files that have another content. Outside a run nothing is compared.

    """
    try:
        noted: dict[str, str] = json.loads(Path(os.environ[NOTED]).read_bytes())
    except (KeyError, OSError, ValueError):
        return
    modules = {path for module in list(sys.modules.values()) if (path := getattr(module, "__file__", None))}
    packages = {Path(path).parent for path in modules if Path(path).name == "__init__.py"} - {PACKAGE}
    named = {Path(word.rpartition("=")[2]) for word in words}
    used = [path for path in noted if path in modules or _is_used(Path(path), packages, named)]
    changed = [path for path in used if not Path(path).is_file() or sha256_of(Path(path)) != noted[path]]
    expected = "what it was when the run began"
    step = "give the same command again, and leave what a run uses alone while it goes on"
    ConfigError.raise_for(Fault(path, "another content, changed while jobs ran", expected, step) for path in changed)


def _is_used(path: Path, packages: set[Path], named: set[Path]) -> bool:
    """Whether a file is data of one of some packages, or is named or lies in a folder that is."""
    if not path.is_relative_to(PACKAGE):
        return path in named or not named.isdisjoint(path.parents[:-1])
    inside = next((folder for folder in path.parents if (folder / "__init__.py").is_file()), PACKAGE)
    return path.suffix != ".py" and inside in packages
