"""Detect source files and input files that change while the jobs of a run use them.

Before its first job, a run records the digests of all files of the package and of all input files in the project. As
its last step, a job computes the digest of every file that the job used. If the digest of a file differs from the
digest recorded at the start of the run, the job fails. Every saved result was therefore computed from files with the
recorded digests.
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
SOURCES_VARIABLE = "AFA_SOURCES"
"""Environment variable with the path of the file of recorded digests."""
LARGEST_DIGESTED = 10_000_000
"""Largest input, in bytes, whose digest is recorded. Larger inputs take too long to read."""


def sources(inputs: Iterable[str | Path] = ()) -> dict[str, str]:
    """Return {path: SHA-256} for all files of the package and all files in `inputs`.

    Files of more than `LARGEST_DIGESTED` bytes are skipped.
    """
    package = [path for path in PACKAGE.rglob("*") if "__pycache__" not in path.parts]
    files = [
        path for path in (*package, *map(Path, inputs)) if path.is_file() and path.stat().st_size <= LARGEST_DIGESTED
    ]
    return {str(path): sha256_of(path) for path in files}


def note_sources(found: dict[str, str], file: str | Path) -> None:
    """Save the digests `found` (a result of `sources`) in a file, at the start of a run."""
    with atomic_file(Path(file)) as path:
        path.write_text(json.dumps(found), encoding="utf-8")


def check_sources(words: Sequence[str]) -> None:
    """Raise an error if a file used by this process has changed since the run began.

    A process uses its imported modules, the data files in the folders of their packages, and the inputs that its
    command line names. If the command line names a folder, the process uses all inputs in this folder.

    Parameters
    ----------
    words : the command line without the program's name

    Raises
    ------
    ConfigError : a file has changed. The message lists all changed files. Outside a run, nothing is compared.

    """
    try:
        noted: dict[str, str] = json.loads(Path(os.environ[SOURCES_VARIABLE]).read_bytes())
    except (KeyError, OSError, ValueError):
        return
    modules = {path for module in list(sys.modules.values()) if (path := getattr(module, "__file__", None))}
    packages = {Path(path).parent for path in modules if Path(path).name == "__init__.py"} - {PACKAGE}
    named = {Path(word.rpartition("=")[2]) for word in words}
    used = [path for path in noted if path in modules or _is_used(Path(path), packages, named)]
    changed = [path for path in used if not Path(path).is_file() or sha256_of(Path(path)) != noted[path]]
    expected = "what it was when the run began"
    step = "give the same command again, and do not edit these files during a run"
    ConfigError.raise_for(Fault(path, "another content, changed while jobs ran", expected, step) for path in changed)


def _is_used(path: Path, packages: set[Path], named: set[Path]) -> bool:
    """Return True if the process uses a file other than an imported module. `path` is the path of this file.

    A file of the package `afa` is used if it is a data file in the folder of one of the imported `packages`. Any other
    file is used if the command line names the file or a folder that contains the file (`named`).
    """
    if not path.is_relative_to(PACKAGE):
        return path in named or not named.isdisjoint(path.parents[:-1])
    inside = next((folder for folder in path.parents if (folder / "__init__.py").is_file()), PACKAGE)
    return path.suffix != ".py" and inside in packages
