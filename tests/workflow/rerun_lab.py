"""A copy of the project with finished runs, and which rules Snakemake would run again after a change to it.

Snakemake runs every job for real, with its records, times and checksums; only the programs that jobs call are replaced
by one that writes empty results. The copy has its own `afa`, which stands first on the path.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FOLDERS = ("afa", "benchmarks", "config", "docs", "envs", "notebooks", "resources", "workflow")
"""What is copied of the project, beside the files at its top."""

PROGRAM = r"""#!/bin/sh
# Stands for every program of a job: it writes each result that the command line names, empty. What lies in a folder it
# knows from `made.txt`, a path a line.
while [ $# -gt 0 ]; do
  case "$1" in
    --out|--rows|--readme|--dropped|--report)
      case "${2##*/}" in
        *.*) : > "$2";;
        *) mkdir -p "$2"; grep "^$2/" made.txt | while read -r file; do mkdir -p "${file%/*}"; : > "$file"; done;;
      esac
      shift;;
    figure=*) : > "${1#*=}.pdf"; : > "${1#*=}.svg";;
  esac
  shift
done
"""

OWN_RULE = """\
import importlib

from afa.planner.rules import Greedy

NEAR = importlib.import_module("my_helpers.near")


class Mine(Greedy):
    pass
"""
HELPERS = {"__init__": "", "near": "from . import far\n", "far": "NUMBER = 1\n"}


@dataclass(frozen=True)
class DryRun:
    """What a dry run said: the rules with jobs, why, and the files that its modules of `afa` came from."""

    rules: frozenset[str]
    reasons: Mapping[str, str]
    modules: Mapping[str, str]


class Lab:
    """The copy in `folder`; `runs` maps a run's name to its settings, dotted keys to values."""

    def __init__(self, folder: Path, runs: Mapping[str, Mapping[str, Any]]) -> None:
        self.folder, self.runs = folder, runs
        _copy_project(folder)
        self._settings = yaml.safe_load((folder / "config/config.yaml").read_text(encoding="utf-8"))
        path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
        self._environment = {**os.environ, "PATH": path, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        for name in runs:
            self._finish(name)
        command = [sys.executable, str(Path(__file__).with_name("snakemake_server.py"))]
        self._server = subprocess.Popen(
            command, cwd=folder, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        """End the server of dry runs."""
        self._server.communicate()

    def settings(self, run: str, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The content of `config.yaml` for a run, with some keys changed."""
        document = json.loads(json.dumps(self._settings))
        for key, value in {**self.runs[run], **(changes or {})}.items():
            *sections, last = key.split(".")
            part = document
            for section in sections:
                part = part[section]
            part[last] = value
        return document

    def reruns(
        self, run: str, changes: Mapping[str, Any] | None = None, *, remark: str = "", target: str = "all"
    ) -> DryRun:
        """What would run again with these settings changed, and with the files as they are now."""
        self._write_settings(run, changes, remark)
        answer = self._ask(["-n", "--quiet", "host", "--", target])
        modules = {name: file for name, file in answer["modules"].items() if file is not None}
        blocks = re.findall(r"^(?:local)?rule (\w+):\n((?:    .*\n)*)", answer["text"], re.MULTILINE)
        reasons = {rule: "".join(re.findall(r"    reason: (.*)", block)) for rule, block in blocks}
        return DryRun(frozenset(_jobs(answer["text"])) - {"all"}, reasons, modules)

    def listed_rules(self, run: str, changes: Mapping[str, Any] | None = None) -> set[str]:
        """The names of all rules of the workflow, those without a job too."""
        self._write_settings(run, changes)
        return set(re.findall(r"^(\w+)(?: \(.*\))?$", self._ask(["--list-rules"])["text"], re.MULTILINE))

    def records(self) -> dict[str, dict[str, Any]]:
        """Snakemake's record of every file that the runs made, by the file's path; a temporary file has one too."""
        folder = self.folder / ".snakemake/metadata"
        files = [path for path in folder.rglob("*") if path.is_file()]
        keys = ("".join(part.removeprefix("@") for part in path.relative_to(folder).parts) for path in files)
        return {
            base64.b64decode(key).decode(): json.loads(path.read_text(encoding="utf-8"))
            for key, path in zip(keys, files, strict=True)
        }

    def files(self) -> list[str]:
        """Every file of the copy but results, the stand-ins for programs and the modules of `afa`."""
        hidden = re.compile(r"(results|bin|profiles|\.snakemake)/|afa/.*\.py$")
        names = (path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file())
        return sorted(name for name in names if not hidden.match(name) and name != "made.txt")

    @contextmanager
    def changed(self, contents: Mapping[str, bytes | None], *, replaced: bool = False) -> Iterator[None]:
        """Other contents of files for a while; None: the file is gone. `replaced`: by a new file, as editors do."""
        paths = [self.folder / name for name in contents]
        existing = [path for path in paths if path.exists()]
        before = {path: (path.read_bytes(), path.stat()) for path in existing}
        folders = {path.parent: path.parent.stat() for path in paths}
        try:
            for path, content in zip(paths, contents.values(), strict=True):
                if content is None or replaced:
                    path.unlink()
                if content is not None:
                    path.write_bytes(content)
            yield
        finally:
            for path in paths:
                if path not in before:
                    path.unlink()
                    continue
                content, status = before[path]
                path.write_bytes(content)
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            for folder, status in folders.items():
                os.utime(folder, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _finish(self, run: str) -> None:
        self._write_settings(run)
        planned = subprocess.run(
            [sys.executable, "-m", "snakemake", "-n", "--forceall"],
            cwd=self.folder, env=self._environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        outputs = re.findall(r"^ +output: (.*)", planned.stdout + planned.stderr, re.MULTILINE)
        with (self.folder / "made.txt").open("a", encoding="utf-8") as file:
            file.writelines(f"{path}\n" for line in outputs for path in line.split(", "))
        made = subprocess.run(
            [sys.executable, "-m", "snakemake", "--cores", "2", "--quiet", "all"],
            cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if made.returncode != 0:
            hint = "does PROGRAM in rerun_lab.py know where every command of the workflow writes?"
            raise RuntimeError(f"{hint}\n{made.stdout}{made.stderr}")

    def _write_settings(self, run: str, changes: Mapping[str, Any] | None = None, remark: str = "") -> None:
        text = remark + yaml.safe_dump(self.settings(run, changes), sort_keys=False)
        (self.folder / "config/config.yaml").write_text(text, encoding="utf-8")

    def _ask(self, arguments: list[str]) -> dict[str, Any]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        call = {"folder": str(self.folder), "arguments": arguments, "environment": {}}
        self._server.stdin.write(json.dumps(call) + "\n")
        self._server.stdin.flush()
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        assert answer["code"] == 0, answer["text"]
        return answer


def _copy_project(folder: Path) -> None:
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for file in ROOT.iterdir():
        if file.is_file() and not file.name.startswith("."):
            shutil.copy2(file, folder)
    (folder / "profiles").symlink_to("workflow/profiles")
    shutil.copytree(ROOT / "tests/data/bundle_tiny", folder / "my_bundle")
    (folder / "my_bundle" / "notes.txt").write_text("no part of a bundle\n")
    (folder / "my_rule.py").write_text(OWN_RULE)
    (folder / "my_helpers").mkdir()
    for name, text in HELPERS.items():
        (folder / "my_helpers" / f"{name}.py").write_text(text)
    (folder / "my_study").mkdir()
    for name in ("study.yaml", "phenotypes.csv", "keywords.csv"):
        shutil.copy(ROOT / "resources/elicitation" / name, folder / "my_study")
    shutil.copytree(folder / "my_study", folder / "my_questions")
    with (folder / "my_questions" / "study.yaml").open("a", encoding="utf-8") as study:
        study.write("abstracts: 2\n")
    (folder / "my_questions" / "features.csv").write_text("feature,kind,unit,values,definition\nCCL20,continuous,,,\n")
    (folder / "my_questions" / "aliases.csv").write_text("feature,alias\nCCL20,MIP3A\n")
    (folder / "my_answers").mkdir()
    (folder / "my_answers" / "first.jsonl").write_text("{}\n")
    shutil.copy(folder / "config/cohorts/demo.yaml", folder / "config/cohorts/other.yaml")
    for series in ("GSE117nnn/GSE117993", "GSE109nnn/GSE109142"):
        part = folder / "mirror/series" / series / "suppl"
        part.mkdir(parents=True)
        (part / "values.txt.gz").write_text(series)
    shutil.copytree(folder / "mirror", folder / "mirror_elsewhere")
    programs = folder / "bin"
    programs.mkdir()
    for name in ("afa", "snakemake"):
        (programs / name).write_text(PROGRAM)
        (programs / name).chmod(0o755)


def _jobs(text: str) -> list[str]:
    """The rules of the first table of jobs that Snakemake printed."""
    table = re.search(r"^Job stats:\njob +count\n[- ]+\n(.*?)^total ", text, re.MULTILINE | re.DOTALL)
    if table is None:
        assert "Nothing to be done" in text, text
        return []
    return re.findall(r"^(\w+) +\d+$", table[1], re.MULTILINE)
