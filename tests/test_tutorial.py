"""The tutorial as a reader meets it: its files written, its commands and its code run, in the order of the page."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "your_own_bundle.md"
BLOCK = re.compile(r"(?:^`(?P<file>[^`\n]+)`[^\n]*\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced piece of the page: its language, the file it is to be written to if any, its text and its line."""

    kind: str
    file: str | None
    text: str
    line: int


def blocks(*kinds):
    """The fenced pieces of the page in order; of these kinds, or all."""
    page = PAGE.read_text(encoding="utf-8")
    found = [Block(m["kind"], m["file"], m["text"], page[: m.start("text")].count("\n")) for m in BLOCK.finditer(page)]
    return [block for block in found if not kinds or block.kind in kinds]


def shell(command, folder):
    """Exit code and all output of a command; `afa`, `make` and `snakemake` are those of this environment."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}
    ran = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout


def write_files(folder):
    for block in blocks("yaml", "csv"):
        path = folder / block.file
        path.parent.mkdir(exist_ok=True)
        path.write_text(block.text, encoding="utf-8")


def run_console(block, folder):
    """Each command after `$ ` must print the lines below it; it fails exactly where those are an error's."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        code, output = shell(command, folder)
        assert output == expected, f"line {block.line}: {command}"
        assert (code != 0) == expected.startswith("afa: "), f"line {block.line}: {command}"


def run_python(block, names):
    """The examples of a block, in the names that earlier blocks have left."""
    examples = doctest.DocTestParser().get_doctest(block.text, names, PAGE.name, str(PAGE), block.line)
    assert examples.examples, f"line {block.line}: a block of Python without a prompt"
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(examples, out=report.append, clear_globs=False)
    assert runner.failures == 0, "".join(report)
    names.update(examples.globs)


def test_every_file_command_and_example_of_the_page_does_what_is_printed(tmp_path, monkeypatch):
    write_files(tmp_path)
    assert sorted(path.name for path in (tmp_path / "plants").iterdir()) == ["bundle.yaml", "pairwise.csv", "unary.csv"]
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks("console", "python"):
        if block.kind == "console":
            run_console(block, tmp_path)
        else:
            run_python(block, names)
    assert len(blocks()) == len(blocks("yaml", "csv", "console", "python", "sh"))


def test_a_number_that_the_page_has_wrong_is_noticed():
    with pytest.raises(AssertionError, match=r"Expected:\n +3\n +Got:\n +2"):
        run_python(Block("python", None, ">>> 1 + 1\n3\n", 1), {})


@pytest.mark.parametrize("command", [line for block in blocks("sh") for line in block.text.splitlines()])
def test_make_hands_its_settings_to_snakemake(command):
    code, planned = shell(f"make -n -C {ROOT} {command.removeprefix('make ')}", ROOT)
    assert code == 0, planned
    settings = re.findall(r"([A-Z]+)=(\w+)", command)
    assert settings
    assert all(f'"{key.lower()}={value}"' in planned for key, value in settings), planned
