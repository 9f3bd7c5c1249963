"""One change in a copy of the project, and whether exactly the rules run again that the contract names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from code_changes import other_code
from code_reach import modules_and_names
from pydantic import ValidationError
from rerun_contract import DEFAULT_RUN, Contract, Trial
from rerun_lab import DryRun, Lab

from afa.paper.config import RunConfig


class Trials:
    """Changes to try in a lab."""

    def __init__(self, lab: Lab, contract: Contract) -> None:
        self.lab, self.contract = lab, contract
        self._listed: dict[str, frozenset[str]] = {}

    def nothing(self, run: str) -> None:
        """With no change at all nothing runs again."""
        self.expect("no change", run, (), self.lab.reruns(run))

    def setting(self, key: str, trial: Trial) -> None:
        """Another value of one key."""
        self._settings(trial.run, {key: trial.to}, trial.first)

    def swap(self, run: str, one: str, other: str) -> bool:
        """The values of two keys change places; False where they are equal or are not allowed to."""
        values = {key: value_of(self.lab.settings(run), key) for key in (one, other)}
        changes = {one: values[other], other: values[one]}
        try:
            RunConfig.model_validate(self.lab.settings(run, changes))
        except ValidationError:
            return False
        if values[one] == values[other]:
            return False
        self._settings(run, changes, self._first_of_key(run, one) | self._first_of_key(run, other))
        return True

    def file(self, name: str) -> None:
        """A line more in one file, written in its place."""
        trial = self.contract.file(name)
        assert trial is not None
        content = (self.lab.folder / name).read_bytes()
        with self.lab.changed({name: content + b"\n"}):
            self.expect(name, trial.run, trial.first, self.lab.reruns(trial.run))

    def new_file(self, name: str, first: Sequence[str], run: str) -> None:
        """One file more."""
        with self.lab.changed({name: b"new\n"}):
            self.expect(f"{name}, a new file", run, first, self.lab.reruns(run))

    def module(self, module: str) -> None:
        """A constant changed in one function of a module of `afa`."""
        file = module_file(self.lab.folder, module)
        name = file.relative_to(self.lab.folder).as_posix()
        changed, under = other_code(file.read_bytes(), runs_now=module in self.run_at_start)
        compile(changed, name, "exec")
        with self.lab.changed({name: changed}):
            done = self.lab.reruns(DEFAULT_RUN)
        self.expect(f"{module}, {under}", DEFAULT_RUN, self.rules_of(module, under), done)

    @cached_property
    def run_at_start(self) -> frozenset[str]:
        """The modules of `afa` that run whenever Snakemake starts."""
        return frozenset(self.lab.reruns(DEFAULT_RUN).modules)

    @cached_property
    def jobs(self) -> Mapping[str, Mapping[str, Any]]:
        """Snakemake's record of one job of each rule but `kernels`, of the default run if it has such a job.

        Runs split a stage differently, so that jobs of one rule can have different commands.
        """
        of_default = f"results/{self.contract.runs[DEFAULT_RUN]['cohort']}/"
        records = sorted(self.lab.records().items(), key=lambda item: item[0].startswith(of_default))
        return {record["rule"]: record for _, record in records if record["rule"] != "kernels"}

    @property
    def commands(self) -> Mapping[str, str]:
        """The shell command of each of `jobs`, by rule."""
        return {rule: job["shellcmd"] for rule, job in self.jobs.items()}

    def rules_of(self, module: str, name: str) -> frozenset[str]:
        """The rules whose command reaches a module, or the name in the module that the command itself is in."""
        found = set()
        for rule, command in self.commands.items():
            whole, names = modules_and_names(command)
            if module in whole or name in names.get(module, ()):
                found.add(rule)
        return frozenset(found)

    def _first_of_key(self, run: str, key: str) -> frozenset[str]:
        return next(trial.first for trial in self.contract.settings[key] if trial.run == run)

    def _settings(self, run: str, changes: Mapping[str, Any], first: frozenset[str]) -> None:
        what = ", ".join(f"{key} = {value}" for key, value in changes.items())
        done = self.lab.reruns(run, changes)
        self.expect(what, run, first | self.contract.every_setting, done, changes)

    def expect(
        self, what: str, run: str, first: Sequence[str] | AbstractSet[str], done: DryRun,
        changes: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """After a change the rules `first` run again, all that follow them, and no other."""
        expected = self.contract.following(first, self._rules(run, changes or {}))
        if done.rules == expected:
            return
        text = [f"{what} (run {run!r}):"]
        text += self._described("runs again and should not: ", done.rules - expected, done)
        text += self._described("should run again and does not", expected - done.rules, done)
        text.append("Correct the rule, or the contract, tests/workflow/reruns.yaml.")
        pytest.fail("\n".join(text))

    def _described(self, word: str, rules: frozenset[str], done: DryRun) -> list[str]:
        first = sorted(self.contract.earliest(rules))
        text = [f"  {rule} {word}{done.reasons.get(rule, '')[:300]}" for rule in first]
        return [*text, f"  and {len(rules) - len(first)} rules that follow"] if len(rules) > len(first) else text

    def _rules(self, run: str, changes: Mapping[str, Any]) -> frozenset[str]:
        """The rules that there are in a run; which, depends on a few settings alone."""
        settings = self.lab.settings(run, changes)
        kind = str([value_of(settings, key) for key in ("cohort", "bundle", "baselines.record", "baselines.live")])
        if kind not in self._listed:
            self._listed[kind] = frozenset(self.lab.listed_rules(run, changes))
        return self._listed[kind]


def value_of(document: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key."""
    value: Any = document
    for part in key.split("."):
        value = value[part]
    return value


def module_file(folder: Path, module: str) -> Path:
    """The file of a module of `afa` in a copy of the project."""
    base = folder.joinpath(*module.split("."))
    package = base / "__init__.py"
    return package if package.is_file() else base.with_suffix(".py")
