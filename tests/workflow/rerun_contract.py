"""The contract of reruns, `reruns.yaml`, and what follows from it for one change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

FILE = Path(__file__).with_name("reruns.yaml")
DEFAULT_RUN = "recorded"


@dataclass(frozen=True)
class Trial:
    """A change of one key or file in a finished run, and the rules that read it."""

    run: str
    first: frozenset[str]
    to: Any = None


@dataclass(frozen=True)
class Contract:
    """What `reruns.yaml` says."""

    runs: dict[str, dict[str, Any]]
    rules: dict[str, frozenset[str]]
    instead: dict[str, str]
    targets: frozenset[str]
    every_setting: frozenset[str]
    settings: dict[str, list[Trial]]
    files: dict[str, Trial]
    docstrings_count: tuple[str, ...]
    read_at_start: tuple[str, ...]

    def following(self, first: Iterable[str], there: frozenset[str]) -> frozenset[str]:
        """Of the rules that are `there`, these and all that read a file of theirs, or of one that follows them."""
        found = set(first) & there
        while more := {rule for rule in there & set(self.rules) if self._read(rule, there) & found} - found:
            found |= more
        return frozenset(found)

    def earliest(self, rules: frozenset[str]) -> frozenset[str]:
        """Those of some rules that read no file of another of them."""
        return frozenset(rule for rule in rules if not self.rules.get(rule, frozenset()) & rules)

    def _read(self, rule: str, there: frozenset[str]) -> frozenset[str]:
        """The rules that a rule reads files of, where some of them may stand in the place of others."""
        return self.rules[rule] | {other for other in there if self.instead.get(other) in self.rules[rule]}

    def readers(self, key: str) -> frozenset[str]:
        """The rules that read a setting, in whatever run."""
        return frozenset[str]().union(*(trial.first for trial in self.settings[key]))

    def file(self, name: str) -> Trial | None:
        """The trial of a file of the project, by the first pattern that fits; None where no pattern does."""
        for pattern, trial in self.files.items():
            parts = re.escape(pattern).replace(r"\*", ".*").replace(r"\{part\}", r"(?P<part>[^/]*)")
            if fits := re.fullmatch(parts, name):
                return Trial(trial.run, frozenset(rule.format(**fits.groupdict()) for rule in trial.first))
        return None

    def is_read_at_start(self, name: str) -> bool:
        """Whether Snakemake reads this file whenever it starts."""
        return any(Path(name).match(pattern) for pattern in self.read_at_start)


def fits(pattern: str, name: str) -> bool:
    """Return True if a pattern of `reruns.yaml` or of the README's table fits a name."""
    return fnmatch(name, pattern.replace("{part}", "*"))


def load_contract() -> Contract:
    """The contract as it is in the repository."""
    text = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    for name, stage in text["stages"].items():
        _add_stage(text, name, **stage)
    return Contract(
        runs=text["runs"],
        rules={rule: frozenset(_flat(read)) for rule, read in text["rules"].items()},
        instead=text["instead"],
        targets=frozenset([*text["targets"], *text["stages"], "allocation"]),
        every_setting=frozenset(text["every_setting"]),
        settings={key: [_trial(entry) for entry in _listed(entries)] for key, entries in text["settings"].items()},
        files={pattern: _trial(entry) for pattern, entry in text["files"].items()},
        docstrings_count=tuple(text["docstrings_count"]),
        read_at_start=tuple(text["read_at_start"]),
    )


def keys_of(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The dotted names of all settings of a model, sections opened."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from keys_of(kind, f"{prefix}{name}.")
        else:
            yield prefix + name


def _add_stage(
    text: dict[str, Any],
    name: str,
    *,
    reads: list[str],
    split: bool = False,
    figure: bool = False,
    summarised: bool = True,
    shared: Iterable[str] = (),
    own: Mapping[str, Any] | None = None,
) -> None:
    """Put what `reruns.yaml` says of one stage where it says the same of other rules."""
    job, tables, notebook = f"{name}_shard" if split else f"{name}_tables", f"{name}_tables", f"{name}_notebook"
    rules, settings = text["rules"], text["settings"]
    rows = f"{name}_rows" if split else tables
    rules |= {tables: [job, *reads], job: reads, rows: [tables]} if split else {tables: reads}
    rules |= {notebook: ["encode_cohort", tables]} if figure else {}
    rules["summary"] += dict.fromkeys([rows, tables]) if summarised else []
    rules["published"].append(tables)
    text["notebooks"] += [notebook] if figure else []
    settings |= {f"{name}.{key}": {"to": value, "first": [job]} for key, value in (own or {}).items()}
    readers = [*((key, job) for key in shared), ("bootstrap", rows), *([("shards", job)] if split else [])]
    for read, rule in readers:
        found = [key for key in settings if key == read or key.startswith(f"{read}.")]
        assert found, f"{FILE.name}, stage {name}: no entry of a setting {read}"
        for entry in (entry for key in found for entry in _listed(settings[key])):
            entry["first"].append(rule)


def _trial(entry: Any) -> Trial:
    if not isinstance(entry, dict):
        entry = {"first": entry}
    run = entry.get("in", DEFAULT_RUN)
    return Trial(run, frozenset(_flat(entry["first"])), entry.get("to"))


def _listed(entries: Any) -> list[Any]:
    return entries if isinstance(entries, list) else [entries]


def _flat(names: list[Any]) -> Iterator[str]:
    for name in names:
        if isinstance(name, list):
            yield from _flat(name)
        else:
            yield name
