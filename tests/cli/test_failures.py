"""What a command says when a package is missing, or when a place may not be used: one line with a next step."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import pytest
from commands import afa

from afa.cli import failures
from afa.cli.failures import as_error, installing
from afa.errors import ConfigError, Fault

TINY = Path(__file__).parents[1] / "data" / "bundle_tiny"
FAULT = Fault("here", "this", "that", "do so")


def missing(name: str, room: str = "") -> ModuleNotFoundError:
    """What an import of a module that is not installed raises in a file of that room of afa."""
    file = failures.PACKAGE / room / "any.py"
    try:
        exec(compile(f"import {name}", str(file), "exec"), {})
    except ModuleNotFoundError as error:
        return error
    raise AssertionError(f"{name} is installed")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which no optional package is found."""
    for module in ("snakemake", "matplotlib", "jinja2", "bm25s", "pgmpy", "markdown_it", "sklearn"):
        monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.parametrize(
    ("module", "room", "extra"),
    [
        ("snakemake.io", "paper/report", "workflow"),
        ("sklearn.linear_model", "evaluate", "workflow"),
        ("matplotlib.axes", "evaluate", "notebooks"),
        ("markdown_it", "evaluate", "notebooks"),
        ("jinja2", "evaluate", "notebooks"),
        ("jinja2", "elicit", "elicitation"),
        ("bm25s", "elicit", "elicitation"),
    ],
)
@pytest.mark.usefixtures("bare")
def test_a_missing_package_is_told_with_the_extra_that_brings_it_to_that_room(
    module: str, room: str, extra: str
) -> None:
    assert installing(missing(module, room)) == f"pip install 'afa[{extra}]'"


def test_a_module_that_no_extra_brings_stays_the_error_that_it_is() -> None:
    error = missing("no_such_module_anywhere")
    assert installing(error) is None
    assert as_error(error, ["plan"]) is None


@pytest.mark.usefixtures("bare")
def test_a_missing_package_is_a_line_with_the_command_and_what_to_install() -> None:
    told = as_error(missing("matplotlib", "evaluate"), ["notebook", "x.ipynb"])
    assert str(told) == (
        "afa notebook: found no package matplotlib; expected what this command needs. "
        "Next step: run pip install 'afa[notebooks]'."
    )


def test_an_error_of_afa_is_told_as_it_is() -> None:
    error = ConfigError(FAULT)
    assert as_error(error, []) is error


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            PermissionError(errno.EACCES, "Permission denied", "/there/.session.afa-ab12_xyz.yaml"),
            "/there: found Permission denied; expected a place that may be used. "
            "Next step: change its rights, or choose another place.",
        ),
        (
            NotADirectoryError(errno.ENOTDIR, "Not a directory", "file/out"),
            "file/out: found Not a directory; expected a path that fits what is there. Next step: choose another path.",
        ),
        (MemoryError(), "afa summary: found no memory left"),
    ],
)
def test_a_place_that_may_not_be_used_is_named(error: Exception, line: str) -> None:
    assert str(as_error(error, ["summary"])).startswith(line)


@pytest.mark.parametrize("error", [ValueError("wrong"), OSError(errno.EIO, "Input/output error", "x"), KeyError("x")])
def test_what_may_be_a_fault_of_afa_is_not_put_on_its_user(error: Exception) -> None:
    assert as_error(error, ["plan"]) is None


def test_a_session_that_cannot_be_kept_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file\n")
    ran = afa("plan", TINY, "--session", tmp_path / "taken/s.yaml")
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1), ran.stderr
    assert ran.stderr.startswith(f"afa: {tmp_path / 'taken/s.yaml'}: found ")
