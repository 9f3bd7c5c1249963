"""The environments: what is pinned, what is declared, and that the two descriptions of it agree."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import afa

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "envs").glob("*.lock"))
DECLARED: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT: dict[str, Any] = DECLARED["project"]
PINNED = re.compile(r"[A-Za-z0-9._-]+==[^ ]+( ; .+)?( --hash=sha256:[0-9a-f]{64})+")


def entries(lock: Path) -> list[str]:
    """The requirements of a lock, each on one line."""
    joined = re.sub(r"\s*\\\n\s*", " ", lock.read_text(encoding="utf-8"))
    return [line for line in joined.splitlines() if line and not line.startswith("#")]


def requirement(text: str) -> tuple[str, str]:
    """Lower-case name and bound of `name>=1.2` or `name >=1.2`."""
    found = re.fullmatch(r"([A-Za-z0-9._-]+) ?(>=[0-9.]+)?", text)
    assert found, text
    return found[1].lower(), found[2] or ""


def test_there_are_two_locks() -> None:
    assert [lock.name for lock in LOCKS] == ["bootstrap.lock", "requirements.lock"]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_names_no_host(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_requirement_of_a_lock_has_one_version_and_its_hashes(lock: Path) -> None:
    assert entries(lock)
    for entry in entries(lock):
        assert PINNED.fullmatch(entry), entry


def test_the_lock_holds_every_declared_dependency() -> None:
    locked = {entry.split("==")[0].lower() for entry in entries(ROOT / "envs" / "requirements.lock")}
    declared = [
        *PROJECT["dependencies"],
        *(item for extra in PROJECT["optional-dependencies"].values() for item in extra),
        *(item for group in DECLARED["dependency-groups"].values() for item in group if isinstance(item, str)),
    ]
    names = {re.split(r"[\[>=]", item)[0].lower().replace("_", "-") for item in declared} - {"afa"}
    assert names <= locked


def test_the_conda_environment_lists_what_the_workflow_imports_with_the_same_bounds() -> None:
    conda = yaml.safe_load((ROOT / "envs" / "afa.yaml").read_text(encoding="utf-8"))["dependencies"]
    extras = PROJECT["optional-dependencies"]
    jobs = [item for item in extras["workflow"] if not item.startswith(("afa[", "rocrate", "snakemake"))]
    declared = dict(map(requirement, [*PROJECT["dependencies"], *extras["geo"], *extras["notebooks"], *jobs]))
    listed = dict(map(requirement, conda))
    assert len(listed) == len(conda)
    assert listed.pop("python") == PROJECT["requires-python"]
    assert listed.pop("pip") == ""
    assert listed == declared


def test_package_citation_and_codemeta_say_the_same() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    described = json.loads((ROOT / "codemeta.json").read_text(encoding="utf-8"))
    assert PROJECT["dynamic"] == ["version"]
    assert citation["version"] == described["version"] == afa.__version__
    assert described["license"].endswith(f"/{PROJECT['license']}")
    assert citation["keywords"] == described["keywords"] == PROJECT["keywords"]
    python, snakemake = described["programmingLanguage"]
    assert python["version"] == PROJECT["requires-python"]
    assert f"snakemake{snakemake['version']}" in PROJECT["optional-dependencies"]["workflow"]
    paper = PROJECT["urls"]["Paper"]
    assert citation["preferred-citation"]["url"] == described["referencePublication"]["id"] == paper


def test_the_actions_run_what_is_run_here() -> None:
    commands = {}
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        jobs = yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"]
        commands[file.stem] = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert commands == {"ci": [".ci/run"], "nightly": ["make nightly"]}


def test_pre_commit_has_the_linters_of_the_lock() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    revisions = {repo["repo"].rpartition("/")[2]: repo.get("rev", "") for repo in hooks}
    locked = dict(entry.split(" ")[0].split("==") for entry in entries(ROOT / "envs" / "requirements.lock"))
    assert revisions["ruff-pre-commit"] == f"v{locked['ruff']}"
    assert revisions["mirrors-mypy"] == f"v{locked['mypy']}"


def test_the_citation_prefers_the_paper_of_the_method() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["type"] == "software"
    assert citation["license"] == PROJECT["license"]
    assert citation["preferred-citation"]["identifiers"][0]["value"] == "arXiv:2606.18933"
    assert len(citation["preferred-citation"]["authors"]) == 6


def test_make_wheel_builds_no_environment_of_the_project() -> None:
    planned = subprocess.run(["make", "-n", "wheel"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "pip wheel" in planned
    assert ".venv" not in planned


def test_make_builds_its_environment_below_a_path_with_blanks_and_quotes(tmp_path: Path) -> None:
    folder = tmp_path / "path with space's"
    (folder / "envs").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", folder)
    for name in ("envs/requirements.lock", "envs/bootstrap.lock", "pyproject.toml"):
        (folder / name).touch()
    python = tmp_path / "python"
    python.write_text(  # stands for `python -m venv .venv`; its uv notes the environment that it is to fill
        "#!/bin/sh\nmkdir -p .venv/bin\nprintf '#!/bin/sh\\n' > .venv/bin/python\n"
        "printf '#!/bin/sh\\necho \"$VIRTUAL_ENV\" >> uv.txt\\n' > .venv/bin/uv\nchmod +x .venv/bin/*\n"
    )
    python.chmod(0o755)
    ran = subprocess.run(
        ["make", ".venv/.ready", f"PYTHON={python}"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert (folder / "uv.txt").read_text().splitlines() == [str(folder / ".venv")] * 2
