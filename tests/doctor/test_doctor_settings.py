"""The settings that `afa doctor` checks are those that Snakemake would take, and late faults are seen early."""

import shutil
from pathlib import Path

import pytest
from doctored import gathered, listed
from snakemake.cli import parse_config

from afa.config import RunConfig
from afa.doctor import parse_entry, read_settings
from afa.errors import ConfigError

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with the project's settings, in which the test works."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def faults(*entries, files=()):
    return [each.found for each in listed(read_settings, list(files), list(entries)) if each.level == "fault"]


@pytest.mark.parametrize(
    "entry",
    [
        "shards=3",
        "encoding={level: 0.01, test: t}",
        "cohort=gse109142",
        "bundle=",
        "run=2024",
        "run=True",
        "geo_mirror=../shared/a b",
        "allocation={rules: [random, 'mine:Rule'], seeds: [0]}",
        "run=[unclosed",
    ],
)
def test_an_entry_is_read_as_snakemake_reads_it(entry):
    assert parse_entry(entry) == parse_config([entry])


@pytest.mark.parametrize("entry", ["cohort", "=demo", "3k=1", "k=3"])
def test_an_entry_that_snakemake_refuses_is_refused(entry):
    with pytest.raises(ValueError, match="Invalid config definition"):
        parse_config([entry])
    with pytest.raises(ConfigError, match="key=value"):
        parse_entry(entry)
    assert len(faults(entry)) == 1


def test_a_section_given_in_part_keeps_its_other_keys(folder):
    (folder / "mine.yaml").write_text("inference:\n  damping: 0.25\n")
    run, _ = gathered(read_settings, [Path("mine.yaml")], ["inference={max_iterations: 7}"])[1]
    assert (run.inference.damping, run.inference.max_iterations) == (0.25, 7)


def test_the_command_line_goes_over_a_file_and_a_file_over_the_project(folder):
    (folder / "mine.yaml").write_text("top_k: 7\nshards: 2\n")
    run, _ = gathered(read_settings, [Path("mine.yaml")], ["shards=9"])[1]
    assert (run.top_k, run.shards, run.cohort) == (7, 9, "gse109142")


def test_the_settings_of_the_project_have_no_fault():
    assert [each.level for each in listed(read_settings, [], [])] == ["ok"]


def test_a_missing_file_of_settings_is_a_fault():
    assert "mine.yaml" in faults(files=[Path("mine.yaml")])[0]


def test_a_faulty_key_leaves_the_others_as_they_are():
    findings, (run, refused) = gathered(read_settings, [], ["shards=0", "chort=x", "cohort=gse109142"])
    assert refused == {"shards", "chort"}
    assert (run.cohort, run.shards) == ("gse109142", RunConfig().shards)
    assert [each.next_step for each in findings] == ["correct the value", "rename it to cohort"]


LISTS = [
    (section, name)
    for section, model in RunConfig()
    if hasattr(model, "__iter__") and not isinstance(model, str)
    for name, value in model
    if isinstance(value, tuple) and value
]


@pytest.mark.parametrize(("section", "name"), LISTS, ids=[".".join(key) for key in LISTS])
def test_a_list_that_names_something_twice_is_a_fault(section, name):
    first = getattr(getattr(RunConfig(), section), name)[0]
    (found,) = {text.partition(":")[0] for text in faults(f"{section}={{{name}: [{first}, {first}]}}")}
    assert f"{section}.{name}" in found


def test_seeds_that_choose_patients_and_measure_them_are_a_fault():
    (found,) = faults("chaos={measuring_seeds: [2, 5]}")
    assert "chaos: found" in found
    assert "expected no seed in both lists: 2 would" in found


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("from afa.allocate import Greedy\n\n\nclass Mine(Greedy):\n    pass\n", None),
        ("class Mine:\n    pass\n", "Mine without choose"),
        ("raise RuntimeError('not today')\n", "RuntimeError: not today"),
        (None, "a Python module of_my_own"),
    ],
)
def test_a_rule_of_ones_own_is_imported(folder, module, words, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(__import__("sys").modules, "of_my_own", raising=False)
    if module:
        (folder / "of_my_own.py").write_text(module)
    found = faults("allocation={rules: ['of_my_own:Mine']}")
    assert found == [] if words is None else words in found[0]
