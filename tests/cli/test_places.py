"""No command writes over what is not its own earlier result, and none over what it reads."""

from __future__ import annotations

import inspect
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pandas as pd
import pytest
import typer
import yaml
from commands import afa as run_afa
from records import add_genes, add_pairs, write_study

import afa
from afa.cli import app
from afa.cli.options import FILE, FOLDER
from afa.errors import ConfigError
from afa.evaluate.long_tables import write_tables
from afa.io.files import atomic_folder
from afa.model.bundle import load_bundle, save_bundle

PACKAGE, PROJECT = Path(afa.__file__).parent, Path(__file__).parents[2]
TINY, RESOURCES, DEMO = PROJECT / "tests/data/bundle_tiny", PROJECT / "resources", PROJECT / "config/cohorts/demo.yaml"


def commands(group: typer.Typer, *names: str) -> Iterator[tuple[str, Callable[..., None]]]:
    for each in group.registered_commands:
        assert each.callback is not None
        yield " ".join([*names, each.name or each.callback.__name__]), each.callback
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        assert inner.name is not None or not names
        yield from commands(inner.typer_instance, *names, *([inner.name] if inner.name else []))


def parameters(command: Callable[..., None]) -> dict[str, tuple[Any, Any]]:
    """Type and option or argument of each parameter."""
    hints, names = get_type_hints(command, include_extras=True), inspect.signature(command).parameters
    return {name: (hints[name].__origin__, hints[name].__metadata__[0]) for name in names}


def places(command: Callable[..., None]) -> dict[str, str]:
    """The parameters that name what a command writes, with their metavar."""
    shown = {name: option.metavar or "" for name, (_, option) in parameters(command).items()}
    return {name: text for name, text in shown.items() if re.match(rf"({FOLDER}|{FILE}\.\w+)", text)}


COMMANDS = dict(commands(app))
WRITERS = [(name, place) for name, command in COMMANDS.items() for place in places(command)]
READS_NOTHING = {"demo", "kernels"}


def given(name: str, place: str, path: Path, reads: Path) -> dict[str, Any]:
    """Arguments of a command: `path` for what it writes, `reads` for each path that it reads."""
    command = COMMANDS[name]
    said: dict[str, Any] = {}
    for each, (kind, _) in parameters(command).items():
        if each in places(command):
            form = places(command)[each].removeprefix(FILE).partition("|")[0]
            said |= {each: reads.parent.parent / f"beside_{each}{form}"}
        elif kind == list[Path]:
            said |= {each: [reads]}
        elif kind in (Path, Path | None):
            said |= {each: reads}
        elif inspect.signature(command).parameters[each].default is inspect.Parameter.empty:
            said |= {each: "x"}
    return said | {place: path}


def test_every_option_out_says_what_is_written() -> None:
    silent = [
        name for name, command in COMMANDS.items() if "out" in parameters(command) and "out" not in places(command)
    ]
    assert len(WRITERS) > 35
    assert silent == []


@pytest.mark.parametrize(("name", "place"), WRITERS)
def test_no_command_writes_over_what_it_reads(tmp_path: Path, name: str, place: str) -> None:
    reads = tmp_path / "folder" / "input.csv"
    reads.parent.mkdir()
    reads.write_text("mine")
    for taken in (reads, reads.parent, tmp_path) if name not in READS_NOTHING else ():
        with pytest.raises(ConfigError, match="expected a place apart from the other paths"):
            COMMANDS[name](**given(name, place, taken, reads))
    assert reads.read_text() == "mine"


@pytest.mark.parametrize(("name", "place"), WRITERS)
def test_a_file_takes_the_place_of_no_folder_and_a_folder_that_of_no_file(
    tmp_path: Path, name: str, place: str
) -> None:
    reads = tmp_path / "read" / "input.csv"
    (tmp_path / "file.docx").write_text("mine")
    (tmp_path / "folder.csv").mkdir()
    for taken in ["file.docx"] if places(COMMANDS[name])[place] == FOLDER else ["file.docx", "folder.csv"]:
        with pytest.raises(ConfigError, match=r"found (a file|a folder|the suffix '.docx'); expected"):
            COMMANDS[name](**given(name, place, tmp_path / taken, reads))
    assert (tmp_path / "file.docx").read_text() == "mine"
    assert (tmp_path / "folder.csv").is_dir()


def held(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the commands below read, each the result of another command."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "table.csv").write_text("patient,heat,noise\na,70,1\nb,20,2\n")
    (folder / "features.csv").write_text("feature,kind,low,high\nheat,continuous,,60\nnoise,continuous,0,3\n")
    write_tables({"numbers": pd.DataFrame({"patient": ["a", "b"], "value": [1.0, 2.0]})}, folder / "shard")
    study = write_study(folder / "study", ["fever"])
    for run in ("r1", "r2", "r3"):
        add_genes(study, "fever", run, {"MUC2": 1, "AQP8": -1})
    add_pairs(study, "fever", {("AQP8", "MUC2"): -1})
    config = yaml.safe_load(DEMO.read_text())
    config["simulation"] |= {"n_patients": 30, "n_controls": 24, "n_background_genes": 40}
    (folder / "demo.yaml").write_text(yaml.safe_dump(config | {"labels": {}}))
    for words in (
        f"bundle graph {TINY} --out graph.json",
        f"cohort simulate demo.yaml --bundle {TINY} --out mirror",
        "cohort fetch demo.yaml --mirror mirror --out source.json",
        "elicit unary study --out unary",
    ):
        ran = run_afa(*words.split(), folder=folder)
        assert ran.returncode == 0, ran.stderr
    return folder


@pytest.mark.parametrize(
    "words",
    [
        f"bundle copy {TINY}",
        "bundle from-graph graph.json",
        f"field bundle {RESOURCES}/fields/dermatology",
        "elicit unary study",
        "elicit consensus study --unary unary",
        "elicit merge study/record",
        f"cohort simulate demo.yaml --bundle {TINY}",
        f"cohort build demo.yaml --source source.json --bundle {TINY}",
        "gather sign shard",
    ],
)
def test_a_folder_is_written_over_an_earlier_result_and_over_no_other_folder(made: Path, words: str) -> None:
    out = made / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    for _ in ("over an empty folder", "over its own result"):
        ran = run_afa(*words.split(), "--out", "out", folder=made)
        assert ran.returncode == 0, ran.stderr
    (out / "more").mkdir()
    (out / "more" / "thesis.docx").write_text("mine")
    before = held(made)
    ran = run_afa(*words.split(), "--out", "out", folder=made)
    assert (ran.returncode, "found a folder with other files: more/thesis.docx" in ran.stderr) == (2, True)
    assert held(made) == before


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ("encode table.csv --features features.csv --out", "out.csv"),
        ("bundle build study --out again --dropped", "dropped.csv"),
    ],
)
def test_a_table_is_written_over_an_earlier_one_and_over_no_other(made: Path, words: str, file: str) -> None:
    for _ in ("where there is none", "over its own result"):
        ran = run_afa(*words.split(), file, folder=made)
        assert ran.returncode == 0, ran.stderr
    (made / "labels.csv").write_text("patient,leak\na,1\n")
    ran = run_afa(*words.split(), "labels.csv", folder=made)
    assert (ran.returncode, "labels.csv: found a file with" in ran.stderr) == (2, True)
    assert (made / "labels.csv").read_text() == "patient,leak\na,1\n"


def test_a_copy_of_the_example_replaces_nothing_not_even_a_copy(tmp_path: Path) -> None:
    assert run_afa("demo", "--copy", tmp_path / "mine").returncode == 0
    (tmp_path / "mine" / "bundle" / "unary.csv").write_text("edited")
    assert run_afa("demo", "--copy", tmp_path / "mine").returncode == 2
    assert (tmp_path / "mine" / "bundle" / "unary.csv").read_text() == "edited"


@pytest.mark.parametrize("path", [".", "..", "../here", "sub/.."])
def test_the_folder_that_one_is_in_is_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    (tmp_path / "here" / "sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    ran = run_afa("bundle", "copy", TINY, "--out", path)
    assert (ran.returncode, "found the folder that you are in" in ran.stderr) == (2, True)


def test_what_is_of_the_same_kind_by_name_alone_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "unary.csv").write_text("entity,feature,potential\nby,hand,1\n")
    with pytest.raises(
        ConfigError, match=r"found a folder without bundle\.yaml; expected a new or empty folder, or an"
    ):
        save_bundle(load_bundle(TINY), tmp_path)


def test_a_file_that_came_while_the_result_was_made_is_kept(tmp_path: Path) -> None:
    writing = atomic_folder(tmp_path / "out", ["*.csv"])
    (writing.__enter__() / "a.csv").touch()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes").touch()
    with pytest.raises(ConfigError, match="notes"):
        writing.__exit__(None, None, None)
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "notes"]


def test_a_link_stays_a_link_and_what_it_names_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "scratch")
    for name in ("a.csv", "b.csv"):
        with atomic_folder(tmp_path / "out", ["*.csv"]) as folder:
            (folder / name).touch()
    assert (tmp_path / "out").is_symlink()
    assert [path.name for path in (tmp_path / "scratch").iterdir()] == ["b.csv"]


def test_folders_are_removed_in_three_places_alone() -> None:
    """By `atomic_folder`, which looks at what is there; of a run's shards; and of kernels that are not as listed."""
    removing = re.compile(r"rmtree|rmdir|removedirs|shutil\.move|os\.rename")
    found = [str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if removing.search(path.read_text())]
    assert sorted(found) == ["engine/compile.py", "io/files.py", "paper/workflow.py"]
