"""The page on formats as a reader meets it, and its commands where something is wrong."""

import shutil
from pathlib import Path

import pytest
from pages import ROOT, blocks, run_page, shell

from afa.model.bundle import load_bundle

pytest.importorskip("pgmpy")

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
    assert load_bundle("tiny").digest == load_bundle(TINY).digest


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (f"graph {TINY} --out tiny.png", "--out tiny.png: found the suffix '.png'; expected .graphml or .json"),
        ("graph nowhere --out tiny.json", "nowhere: found nothing; expected a bundle folder"),
        ("from-graph nowhere.json --out made", "nowhere.json: found No such file or directory"),
        ("from-graph empty.graphml --out made", "empty.graphml: found text that is no such graph"),
        ("from-graph plain.json --out made", "graph without a name: found no list of entities"),
    ],
)
def test_a_command_that_cannot_be_done_says_why_and_leaves_nothing(folder, command, words):
    (folder / "empty.graphml").write_text("")
    (folder / "plain.json").write_text('{"nodes": [{"id": "a"}], "edges": []}')
    before = sorted(folder.iterdir())
    code, output = shell(f"afa bundle {command}", folder)
    assert code == 2, output
    assert output.startswith(f"afa: {words}")
    assert len(output.splitlines()) == 1
    assert sorted(folder.iterdir()) == before


def test_a_graph_of_one_s_own_becomes_a_bundle_by_a_command(folder):
    (folder / "plain.json").write_text('{"nodes": [{"id": "a", "unary": 1}], "edges": []}')
    code, output = shell("afa bundle from-graph plain.json --entity rust --name plants --version 7 --out made", folder)
    assert (code, output) == (0, "plants: 1 entities, 1 features into made\n")
    bundle = load_bundle("made")
    assert (bundle.name, bundle.version, bundle.entities, bundle.unary.tolist()) == ("plants", "7", ("rust",), [[1.0]])
