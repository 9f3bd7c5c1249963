"""The page on formats as a reader meets it, and its commands where something is wrong."""

import shutil
from pathlib import Path

import pytest
from pages import ROOT, blocks, run_page, shell

pytest.importorskip("networkx")

PAGE = ROOT / "docs" / "formats.md"
TINY = Path("tests/data/bundle_tiny")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that has the small bundle where the page looks for it."""
    shutil.copytree(ROOT / TINY, tmp_path / TINY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_and_example_of_the_page_does_what_is_printed(folder):
    run_page(PAGE, folder)
    assert not blocks("yaml", "csv", "sh", page=PAGE), "a block that nothing checks"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (f"graph {TINY} --out tiny.png", "--out tiny.png: found the suffix '.png'; expected .graphml or .json"),
        ("graph nowhere --out tiny.json", "nowhere: found nothing; expected a bundle folder"),
    ],
)
def test_a_command_that_cannot_be_done_says_why_and_leaves_nothing(folder, command, words):
    before = sorted(folder.iterdir())
    code, output = shell(f"afa bundle {command}", folder)
    assert code == 2, output
    assert output.startswith(f"afa: {words}")
    assert len(output.splitlines()) == 1
    assert sorted(folder.iterdir()) == before
