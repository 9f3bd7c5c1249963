"""Whether the code of a job is still what it was when its run began.

A run notes the content of every file of the package before its first job, and each job compares with it at its end. So
a module or a template that is edited while jobs run makes those jobs fail that use it, even where it is changed back:
no result is recorded as made by code that did not make it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from afa.errors import ConfigError, Fault
from afa.files import atomic_file, sha256_of

PACKAGE = Path(__file__).parent
NOTED = "AFA_SOURCES"
"""The environment variable by which a run tells its jobs the file that it noted the sources in."""


def sources() -> dict[str, str]:
    """Return the SHA-256 of every file of the package, by path; 2 MB are read in some milliseconds."""
    files = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path): sha256_of(path) for path in files}


def note_sources(found: Mapping[str, str], file: str | Path) -> None:
    """Write down what `sources` returned when the run began."""
    with atomic_file(Path(file)) as path:
        path.write_text(json.dumps(found), encoding="utf-8")


def check_sources() -> None:
    """Compare the modules that this process has imported, and the data beside them, with what its run noted.

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
    mine = [path for path in noted if path in modules or (not path.endswith(".py") and _package(path) in packages)]
    changed = [path for path in mine if not Path(path).is_file() or sha256_of(Path(path)) != noted[path]]
    step = "give the same command again, and edit no code while it runs"
    expected = "what it was when the run began"
    ConfigError.raise_for(Fault(path, "another content, changed while jobs ran", expected, step) for path in changed)


def _package(path: str) -> Path:
    """The folder of the innermost package that a file of data lies in."""
    folders = (folder for folder in Path(path).parents if (folder / "__init__.py").is_file())
    return next(folders, PACKAGE)
