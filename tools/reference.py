"""The API reference: a page for each public module, made from its docstrings.

`make api`, or `python tools/reference.py FOLDER`, writes it. What is not in `PUBLIC` may change with any version.
"""

from __future__ import annotations

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from pdoc import doc, render

from afa.io.files import atomic_folder

PUBLIC = (
    *("afa", "afa.planner", "afa.planner.rules", "afa.planner.session", "afa.model.bundle", "afa.model.mrf"),
    *("afa.inference.meanfield", "afa.inference.exact", "afa.inference.result"),
    *("afa.model.closure", "afa.scores.preference", "afa.scores.gain", "afa.scores.bracket", "afa.scores.copeland"),
    "afa.scores.belief",
    *("afa.model.bundle.graph", "afa.model.bundle.markov_network"),
    *("afa.evaluate.plot", "afa.errors"),
)
"""Modules whose public names keep their meaning as CHANGELOG.md says."""

NAMED = re.compile(r"(?:^|(?<=[.;] ))(\w+(?:, \w+)*) : ", re.MULTILINE)
"""Where a docstring says what a parameter or field is: at the start of a line or sentence."""


def write_reference(folder: Path) -> None:
    """Write an HTML page a module and an index into a folder, which takes the place of an earlier one."""
    pages = {name: doc.Module(_resolved(name)) for name in PUBLIC}
    render.configure(docformat="markdown", show_source=False, search=False)
    render.env.filters["to_markdown"] = as_markdown
    with atomic_folder(folder, ["*.html"], "index.html") as target:
        for name, page in pages.items():
            file = target / f"{name.replace('.', '/')}.html"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(render.html_module(page, pages), encoding="utf-8")
        (target / "index.html").write_text(render.html_index(pages), encoding="utf-8")


def as_markdown(docstring: str) -> str:
    """A docstring of ours as Markdown: sections in bold, `name : text` as items of a list, examples as code.

    >>> print(as_markdown("Add two. a : the first, finite. b : the second."))
    Add two.
    <BLANKLINE>
    - `a`: the first, finite.
    - `b`: the second.
    """
    text = re.sub(r"^(\w+)\n-+$", r"**\1**\n", inspect.cleandoc(docstring), flags=re.MULTILINE)
    return "\n\n".join(map(_part, re.split(r"\n\s*\n", text)))


def _part(text: str) -> str:
    """A part of a docstring between blank lines."""
    if text.startswith(">>> "):
        return f"```python\n{text}\n```"
    if not (items := [match.start() for match in NAMED.finditer(text)]):
        return text
    ends = [*items[1:], len(text)]
    listed = [NAMED.sub(r"- `\1`: ", " ".join(text[i:j].split())) for i, j in zip(items, ends, strict=True)]
    return "\n".join([text[: items[0]].rstrip() + "\n", *listed]).lstrip("\n")


def _resolved(name: str) -> ModuleType:
    """A module with all its public names in it: some modules import theirs only when they are asked for."""
    module = import_module(name)
    for public in getattr(module, "__all__", ()):
        setattr(module, public, getattr(module, public))
    return module


if __name__ == "__main__":
    write_reference(Path(sys.argv[1]))
