"""The tutorials as a reader meets them: files written, commands and code run, in the order of the page."""

import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from commands import afa

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "your_own_bundle.md"
ANAEMIA = ROOT / "docs" / "anaemia.md"
PLAN = ROOT / "docs" / "plan.md"
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
        assert output == expected, f"line {block.line}: {command}"
        assert (code != 0) == expected.startswith("afa: "), f"line {block.line}: {command}"


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


def test_every_file_command_and_example_of_the_page_does_what_is_printed(tmp_path, monkeypatch):
    write_files(tmp_path)
    assert sorted(path.name for path in (tmp_path / "plants").iterdir()) == ["bundle.yaml", "pairwise.csv", "unary.csv"]
    monkeypatch.chdir(tmp_path)
    run_page(PAGE, tmp_path)


def test_every_command_and_example_of_the_second_field_does_what_is_printed(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "resources" / "anaemia", tmp_path / "resources" / "anaemia")
    monkeypatch.chdir(tmp_path)
    run_page(ANAEMIA, tmp_path)
    assert not blocks("yaml", "csv", page=ANAEMIA), "a block that nothing checks"


def test_every_command_and_example_of_the_planner_s_page_does_what_is_printed(tmp_path, monkeypatch):
    write_files(tmp_path)
    write_files(tmp_path, PLAN)
    assert shell("afa bundle stamp plants", tmp_path)[0] == 0
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    run_page(PLAN, tmp_path)


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
