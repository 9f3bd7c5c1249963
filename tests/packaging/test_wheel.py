"""The wheel by itself, in an environment that holds what it declares and nothing else, as somebody would use it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from cohort import geo_layout
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pages import blocks, write_files

import afa

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCES = ("pyproject.toml", "README.md", "LICENSE")
OF_AN_EXTRA = (
    "GEOparse",
    "snakemake",
    "matplotlib",
    "nbconvert",
    "jinja2",
    "bokeh",
    "bm25s",
    "networkx",
    "pgmpy",
    "sklearn",
    "pytest",
)
EACH_COMMAND = """
import contextlib, io, json, sys
from pathlib import Path
import typer
from afa.cli import app, main

def leaves(command, words):
    for name, inner in getattr(command, "commands", {}).items():
        yield from leaves(inner, (*words, name))
    if not hasattr(command, "commands"):
        yield words, command

def run(words):
    sys.argv = ["afa", *words]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
        except BaseException as error:
            code = repr(error)
    return code, out.getvalue(), err.getvalue()

answers = {}
for words, command in leaves(typer.main.get_command(app), ()):
    needed = [param for param in command.params if param.required]
    given = [
        word
        for param in needed
        for word in (
            *param.opts[:param.param_type_name == "option"],
            "made" + Path(param.metavar or "").suffix if param.name == "out" else "nowhere",
        )
    ]
    answers[" ".join(words)] = (*run([*words, "--help"])[:2], *run([*words, *given]))
print(json.dumps(answers))
"""
EACH_MODULE = """
import importlib, json, pkgutil, sys
import afa
from afa.cli.failures import installing
from afa.errors import AfaError

missed = {}
for module in pkgutil.walk_packages(afa.__path__, "afa."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        missed[module.name] = installing(error)
    except AfaError as error:
        missed[module.name] = error.faults[0].next_step.removeprefix("run ")
print(json.dumps(missed))
"""


class Place(NamedTuple):
    """An environment with the wheel in it, and a folder with the bundle of the tutorial."""

    bin: Path
    folder: Path

    def run(self, *command: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """A command of the environment, in the folder, which is its home too."""
        environment = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.folder), "COLUMNS": "120"}
        environment |= {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.folder,
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as `make wheel` builds it, of a copy of what it is made from."""
    copy = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "afa", copy / "afa", ignore=shutil.ignore_patterns("__pycache__"))
    for name in SOURCES:
        shutil.copy(ROOT / name, copy / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    built = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (made,) = (copy / "dist").iterdir()
    return made


@pytest.fixture(scope="module")
def place(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """An empty environment with the wheel, to which the declared packages of this one are linked."""
    folder = tmp_path_factory.mktemp("elsewhere")
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", "--no-compile", str(wheel)], check=True)
    packages = next(environment.glob("lib/python*/site-packages"))
    for name in sorted(_declared(PROJECT["dependencies"])):
        _link(metadata.distribution(name), packages)
    work = folder / "work"
    work.mkdir()
    write_files(work)
    return Place(environment / "bin", work)


def _declared(requirements: list[str]) -> set[str]:
    """The distributions that these requirements need, and what those need."""
    needed: set[str] = set()
    pending = [Requirement(text) for text in requirements]
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        if name in needed or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        needed.add(name)
        pending += [Requirement(text) for text in metadata.requires(name) or []]
    return needed


def _link(distribution: metadata.Distribution, packages: Path) -> None:
    """Make what a distribution has at the top of its own environment visible in another."""
    for top in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
        if not (packages / top).exists():
            (packages / top).symlink_to(Path(str(distribution.locate_file(top))))


def test_the_wheel_holds_the_package_with_its_data_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "afa").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    info = f"afa-{afa.__version__}.dist-info"
    inside = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    assert names == tracked | inside
    assert {"afa/py.typed", "afa/elicit/prompts/unary.md", "afa/evaluate/templates/report.html"} <= names
    assert wheel.stat().st_size < 2_000_000


@pytest.mark.slow
def test_the_environment_of_these_tests_has_none_of_the_packages_of_an_extra(place: Place) -> None:
    look = "import importlib.util as u, sys; print([name for name in sys.argv[1:] if u.find_spec(name)])"
    assert place.run("python", "-I", "-c", look, *OF_AN_EXTRA).stdout == "[]\n"
    look = "import afa, sys; print(any(path.startswith(sys.argv[1]) for path in (afa.__file__, *sys.path)))"
    assert place.run("python", "-I", "-c", look, str(ROOT)).stdout == "False\n"


@pytest.mark.slow
def test_every_module_imports_or_lacks_a_package_that_an_extra_brings(place: Place) -> None:
    ran = place.run("python", "-I", "-c", EACH_MODULE)
    assert ran.returncode == 0, ran.stderr
    missed = json.loads(ran.stdout)
    assert None not in missed.values(), missed
    extras = ("elicitation", "notebooks", "workflow")
    assert set(missed.values()) == {f"pip install 'afa[{name}]'" for name in extras}
    of_extras = ("afa.elicit", "afa.paper.report", "afa.paper.baselines", "afa.paper.workflow")
    of_extras += ("afa.evaluate.plot", "afa.evaluate.figures", "afa.evaluate.page_parts")
    assert not [name for name in missed if not name.startswith(of_extras)]


@pytest.mark.slow
def test_every_public_name_is_there(place: Place) -> None:
    look = "import afa; print(afa.__version__, all(getattr(afa, name) for name in afa.__all__))"
    assert place.run("python", "-I", "-c", look).stdout == f"{afa.__version__} True\n"


@pytest.mark.slow
def test_every_command_has_help_and_fails_in_lines_that_say_what_to_do(place: Place, tmp_path: Path) -> None:
    ran = place._replace(folder=tmp_path).run("python", "-I", "-c", EACH_COMMAND)
    assert ran.returncode == 0, ran.stderr
    answers = json.loads(ran.stdout)
    assert len(answers) > 40
    wrong = {
        command: (code, err)
        for command, (helped, shown, code, _, err) in answers.items()
        if helped != 0 or "Usage: afa" not in shown or code not in (0, 2) or not _told(err)
    }
    assert wrong == {}
    extras = {name for *_, err in answers.values() for name in re.findall(r"pip install 'afa\[(\w+)\]'", err)}
    assert extras == {"elicitation", "notebooks", "workflow"}


def _told(err: str) -> bool:
    """Whether each line is a fault, or tells how far the compiling of kernels is."""
    known = r"afa: .+: found .+; expected .+\. Next step: .+\.|afa: (\d+ )?(compil|kernels compil).+"
    return all(re.fullmatch(known, line) for line in err.splitlines())


@pytest.mark.slow
def test_help_needs_no_more_than_the_wheel(place: Place) -> None:
    for words in ((), ("report",)):
        ran = place.run("afa", *words, "--help")
        assert (ran.returncode, ran.stderr) == (0, "")
        assert "Usage: afa" in ran.stdout


@pytest.mark.slow
def test_a_graph_file_names_the_extra_that_reads_it(place: Place) -> None:
    ran = place.run("afa", "bundle", "graph", "plants", "--out", "plants.json")
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert "pip install 'afa[formats]'" in ran.stderr


@pytest.mark.slow
def test_a_family_soft_file_names_the_extra_that_reads_it_and_the_file_that_needs_none(place: Place) -> None:
    series = geo_layout.config(metadata_file="GSE123456_family.soft.gz", labels={})
    family = geo_layout.family_soft({"GSM1": ("a", ["diagnosis: Control"], [])})
    geo_layout.put(geo_layout.place(place.folder / "mirror", series, "soft/GSE123456_family.soft.gz"), family)
    geo_layout.put(geo_layout.place(place.folder / "mirror", series, "suppl/GSE123456_RAW.tar"), geo_layout.raw_tar([]))
    (place.folder / "small.yaml").write_text(yaml.safe_dump(series.model_dump(mode="json")), encoding="utf-8")
    ran = place.run("afa", "cohort", "fetch", "small.yaml", "--mirror", "mirror", "--out", "source.json")
    assert (ran.returncode, ran.stderr) == (0, "")
    ran = place.run(
        "afa", "cohort", "build", "small.yaml", "--source", "source.json", "--bundle", "plants", "--out", "x"
    )
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert "pip install 'afa[geo]', or set metadata_file to GSE123456_series_matrix.txt.gz" in ran.stderr


@pytest.mark.slow
def test_a_bundle_is_checked_stamped_and_shown(place: Place) -> None:
    assert place.run("afa", "bundle", "validate", "plants").stdout.endswith("no faults; 3 entities, 5 features\n")
    assert place.run("afa", "bundle", "stamp", "plants").stdout == "stamped plants\n"
    assert "nitrogen_lack        2" in place.run("afa", "bundle", "show", "plants").stdout


@pytest.mark.slow  # half a minute of compilation, which is kept for the next tests
def test_the_planner_answers_in_a_terminal(place: Place) -> None:
    ran = place.run("afa", "plan", "plants", given="-1\nleaf_firmness=-1 brown_edges=1\n")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "no remaining measurement can change this)  3 measured" in ran.stdout


@pytest.mark.slow
def test_the_planner_answers_another_program(place: Place) -> None:
    request = json.dumps({"do": "observe", "values": {"soil_moisture": -1}})
    ran = place.run("afa", "plan", "plants", "--json", given=request + "\n")
    first, second = map(json.loads, ran.stdout.splitlines())
    assert (first["suggestion"]["name"], second["suggestion"]["name"]) == ("soil_moisture", "growth")


@pytest.mark.slow
def test_the_planner_answers_in_python(place: Place) -> None:
    (code,) = [block.text for block in blocks("python", page=ROOT / "README.md") if "TopKPlanner" in block.text]
    plant = {"soil_moisture": -1, "leaf_firmness": -1, "leaf_colour": 0, "brown_edges": 1, "growth": 0}
    code = f"measure = {plant}.get\n{code}".replace("my_bundle", "plants")
    ran = place.run("python", "-I", "-c", code)
    assert ran.returncode == 0, ran.stderr
    assert "\ndrought (ahead by " in ran.stdout


@pytest.mark.slow
def test_simulating_writes_its_tables_and_says_which_package_a_figure_needs(place: Place) -> None:
    features = afa.load_bundle(place.folder / "plants").features
    table = [f"patient,{','.join(features)}", "a,1,0,0,-1,-1", "b,0,-1,-1,0,0"]
    (place.folder / "patients.csv").write_text("\n".join(table) + "\n", encoding="utf-8")
    options = ("--k", "1", "--allocation", "greedy,random", "--seeds", "1", "--resamples", "20")
    ran = place.run("afa", "simulate", "plants", "patients.csv", "--out", "simulated", *options)
    assert ran.returncode == 0, ran.stderr
    assert "no figure and no explorer page" in ran.stdout
    assert "pip install 'afa[notebooks]'" in ran.stdout
    assert list((place.folder / "simulated").glob("*.csv"))
