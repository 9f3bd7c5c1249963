"""The experiments of the paper, one module each; the module `base` explains how an experiment is written."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from afa.paper.experiments.base import Stage

FOLDER = Path(__file__).parent


@cache
def stages() -> dict[str, Stage]:
    """Return every stage by name, sorted, read from the folder.

    Only `STAGE` of each module is executed, with the imports and definitions that it needs. This takes a tenth of the
    time of importing the stages.
    """
    found = {}
    for path in sorted(FOLDER.iterdir()):
        source = path / "__init__.py" if path.is_dir() else path
        if source.suffix == ".py" and source.is_file() and path.stem != "__init__":
            text = source.read_bytes()
            if b"\nSTAGE = " in text:
                found[path.stem] = _described(path.stem, source, text)
    return found


def left_out(entities: int, *, labelled: bool) -> dict[str, str]:
    """Return the stages that a run skips, with the reason.

    A run skips stages whose requirements it does not meet, and stages that read the tables of skipped stages.
    """
    found: dict[str, str] = {}
    for name, stage in stages().items():
        if stage.duels and entities < 2:
            found[name] = "one entity: no duels and no top k"
        elif stage.labels and not labelled:
            found[name] = "no labels"
    while more := {
        name: found[read]
        for name, stage in stages().items()
        if name not in found
        for read in (*stage.inputs, *stage.beside)
        if read in found
    }:
        found |= more
    return found


def sections() -> dict[str, tuple[Any, Any]]:
    """Return type and default of every section of the configuration that stages read, by its key."""
    from afa.paper.experiments.settings import (  # noqa: PLC0415 (importing one stage must not need the others' settings)
        SHARED,
    )

    own = {name: stage.section for name, stage in stages().items() if stage.section is not None}
    return {**SHARED, **{name: (section, section()) for name, section in own.items()}}


def _described(name: str, source: Path, text: bytes) -> Stage:
    """Return `STAGE` of a module, executed from its source."""
    from afa.paper.codedigest import definition  # noqa: PLC0415 (as above)

    module = ModuleType(f"{__name__}.{name} (its description)")
    module.__file__ = str(source)
    sys.modules[module.__name__] = module  # pydantic resolves annotations there
    code = ast.Module(definition(text, source, "STAGE"), [])
    exec(compile(code, source, "exec"), module.__dict__)  # noqa: S102 (our own module)
    stage: Stage = module.__dict__["STAGE"]
    return stage
