"""The tutorials do what they print: every file, command and example, in the order of the page."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from pages import ANAEMIA, FEW_LABELS, PAGE, PLAN, ROOT, TABLE, Block, blocks, run_page, run_python, shell, write_files
from snakemake.cli import get_argument_parser, parse_config


def test_every_file_command_and_example_of_the_page_does_what_is_printed(tmp_path, monkeypatch):
    write_files(tmp_path)
    assert sorted(path.name for path in (tmp_path / "plants").iterdir()) == ["bundle.yaml", "pairwise.csv", "unary.csv"]
    monkeypatch.chdir(tmp_path)
    run_page(PAGE, tmp_path)


def test_every_command_and_example_of_the_second_field_does_what_is_printed(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "afa" / "examples" / "anaemia", tmp_path / "afa" / "examples" / "anaemia")
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


def test_every_file_command_and_example_of_the_page_on_tables_does_what_is_printed(tmp_path, monkeypatch):
    write_files(tmp_path, TABLE)
    monkeypatch.chdir(tmp_path)
    run_page(TABLE, tmp_path)


def test_every_file_command_and_example_of_the_page_on_few_labels_does_what_is_printed(tmp_path, monkeypatch):
    write_files(tmp_path, FEW_LABELS)
    monkeypatch.chdir(tmp_path)
    run_page(FEW_LABELS, tmp_path)


def test_a_number_that_the_page_has_wrong_is_noticed():
    with pytest.raises(AssertionError, match=r"Expected:\n +3\n *Got:\n +2"):
        run_python(Block("python", None, ">>> 1 + 1\n3\n", 1), {})


@pytest.mark.parametrize("command", [line for block in blocks("sh") for line in block.text.splitlines()])
def test_make_hands_its_settings_to_snakemake(command):
    code, planned = shell(f"make -n -C {ROOT} {command.removeprefix('make ')}", ROOT)
    assert code == 0, planned
    settings = re.findall(r"([A-Z]+)=(\w+)", command)
    assert settings
    assert all(f'"{key.lower()}={value}"' in planned for key, value in settings), planned


@pytest.mark.parametrize(("target", "rules"), [("reproduce", []), ("league", ["league"])])
def test_settings_of_make_and_what_is_made_are_told_apart(target, rules):
    code, planned = shell(f"make -n -C {ROOT} {target} TABLES=tables COHORT=pima", ROOT)
    line = next(line for line in planned.splitlines() if line.startswith("snakemake "))
    arguments, _ = get_argument_parser().parse_known_args(shlex.split(line)[1:])
    assert (code, list(arguments.targets)) == (0, rules)
    assert parse_config(arguments.config) == {"tables": "tables", "cohort": "pima"}


def test_the_page_on_simulations_shows_what_the_commands_print(tmp_path):
    """The tables too, but for blanks at the ends of lines."""
    page = ROOT / "docs/simulate.md"
    write_files(tmp_path)
    write_files(tmp_path, page)
    for block in blocks("console", page=page):
        for part in ("\n" + block.text).split("\n$ ")[1:]:
            command, _, expected = part.partition("\n")
            _, output = shell(command, tmp_path)
            assert [line.rstrip() for line in output.splitlines()] == expected.splitlines(), command
