"""Pages of the documentation as a reader meets them: files written, commands and code run, in the order of the page."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from commands import afa

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "your_own_bundle.md"
ANAEMIA = ROOT / "docs" / "anaemia.md"
PLAN = ROOT / "docs" / "plan.md"
FEW_LABELS = ROOT / "docs" / "few_labels.md"
TABLE = ROOT / "docs" / "your_own_table.md"
BLOCK = re.compile(r"(?:^`(?P<file>[^`\n]+)`[^\n]*\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced piece of a page: its language, the file it is to be written to if any, its text and its line."""

    kind: str
    file: str | None
    text: str
    line: int
    page: Path = PAGE


def blocks(*kinds, page=PAGE):
    """The fenced pieces of the page in order; of these kinds, or all."""
    text = page.read_text(encoding="utf-8")
    found = [
        Block(m["kind"], m["file"], m["text"], text[: m.start("text")].count("\n"), page) for m in BLOCK.finditer(text)
    ]
    return [block for block in found if not kinds or block.kind in kinds]


def shell(command, folder):
    """Exit code and all output of a command; `afa`, `make` and `snakemake` are those of this environment."""
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}
    if command.startswith("afa ") and not set(command) & set("|<>;&$*\\\n"):
        ended = afa(*shlex.split(command)[1:], folder=folder, environment=environment)
        return ended.returncode, ended.stdout + ended.stderr
    ran = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout


def write_files(folder, page=PAGE):
    for block in blocks("yaml", "csv", page=page):
        path = folder / block.file
        path.parent.mkdir(exist_ok=True)
        path.write_text(block.text, encoding="utf-8")


def run_console(block, folder):
    """Each command after `$ ` must print the lines below it; it fails exactly where those are an error's."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        code, output = shell(command, folder)
        assert _plain(output) == _plain(expected), f"line {block.line}: {command}"
        assert (code != 0) == expected.startswith("afa: "), f"line {block.line}: {command}"


def _plain(text):
    """Its lines without blanks at their ends."""
    return [line.rstrip() for line in text.splitlines()]


def run_python(block, names):
    """The examples of a block, in the names that earlier blocks have left."""
    examples = doctest.DocTestParser().get_doctest(block.text, names, block.page.name, str(block.page), block.line)
    assert examples.examples, f"line {block.line}: a block of Python without a prompt"
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(examples, out=report.append, clear_globs=False)
    assert runner.failures == 0, "".join(report)
    names.update(examples.globs)


def run_page(page, folder):
    names = {}
    for block in blocks("console", "python", page=page):
        if block.kind == "console":
            run_console(block, folder)
        else:
            run_python(block, names)
    assert len(blocks(page=page)) == len(blocks("yaml", "csv", "console", "python", "sh", page=page))
