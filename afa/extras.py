"""Packages that only some commands need: which extra of afa brings one that is not installed.

Read from the metadata of the installed package, so that pyproject.toml is the only list.
"""

from __future__ import annotations

import re
from collections import defaultdict
from importlib import metadata
from pathlib import Path
from types import TracebackType

PACKAGE = Path(__file__).parent
_NAMED_OTHERWISE = {"sklearn": "scikit_learn", "git": "gitpython"}
_DECLARED = re.compile(r"""([\w.-]+)[^;]*; extra == ['"]([\w.-]+)['"]""")


def installing(error: ModuleNotFoundError) -> str | None:
    """The command that installs what an import has missed, or None for a module that no extra of afa brings.

    Of several extras the smallest will do; where that leaves more than one, it is that of which the room of afa that
    asked for the module imports most.
    """
    module = (error.name or "").partition(".")[0]
    extras = {name: packages for name, packages in _extras().items() if any(_brings(p, module) for p in packages)}
    smallest = [name for name in extras if not any(other < extras[name] for other in extras.values())]
    if not module or not smallest:
        return None
    imported = _imported_in(_room(error.__traceback__))
    chosen = max(sorted(smallest), key=lambda name: sum(any(_brings(p, m) for m in imported) for p in extras[name]))
    return f"pip install 'afa[{chosen}]'"


def _extras() -> dict[str, frozenset[str]]:
    """The packages of each extra, those of the extras that it includes among them."""
    try:
        declared = metadata.requires("afa") or []
    except metadata.PackageNotFoundError:  # afa is imported from a folder where it was not installed
        return {}
    packages: defaultdict[str, set[str]] = defaultdict(set)
    for requirement in declared:
        if found := _DECLARED.fullmatch(requirement):
            packages[found[2]].add(found[1])
    return {name: frozenset(members) for name, members in packages.items()}


def _brings(package: str, module: str) -> bool:
    """Whether the module seems to be the package's: markdown-it-py brings markdown_it."""
    name = re.sub(r"[-_.]+", "_", package).casefold()
    module = _NAMED_OTHERWISE.get(module, module).casefold()
    return name == module or name.startswith(f"{module}_")


def _room(trace: TracebackType | None) -> Path:
    """The folder of the innermost code of afa in a traceback."""
    room = PACKAGE
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if file.is_relative_to(PACKAGE):
            room = file.parent
        trace = trace.tb_next
    return room


def _imported_in(room: Path) -> set[str]:
    """First parts of the modules that the files of a folder import, by the look of their lines."""
    lines = re.compile(r"^\s*(?:from|import) (\w+)", re.MULTILINE)
    return {name for file in room.glob("*.py") for name in lines.findall(file.read_text(encoding="utf-8"))}
