"""The settings of a run as Snakemake would merge them, with every fault, also those that only a late job sees."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from afa.config import RunConfig, check_run_config, own_rule_files
from afa.doctor.finding import Finding, fault, of_error, ok
from afa.errors import AfaError, ConfigError, Fault
from afa.yamlfile import read_mapping

MAIN_FILE = Path("config/config.yaml")
_KEY = re.compile(r"[A-Za-z_][\w-]*\w")


@dataclass(frozen=True)
class Settings:
    """The settings as far as they are sound; `refused` are the top-level keys that are not, and have their defaults."""

    run: RunConfig
    refused: frozenset[str]
    findings: tuple[Finding, ...]


def read_settings(files: Sequence[Path], entries: Sequence[str]) -> Settings:
    """`config/config.yaml`, then `files`, then `entries` of the form key=value, each over the one before."""
    document: dict[str, Any] = {}
    findings: list[Finding] = []
    for path in (MAIN_FILE, *files):
        try:
            document = merged(document, read_mapping(path))
        except ConfigError as error:
            findings += of_error("config", error)
    for entry in entries:
        try:
            document = merged(document, parse_entry(entry))
        except ConfigError as error:
            findings += of_error("config", error)
    run, refused, faults = _checked(document)
    findings += faults
    findings += _late_faults(run)
    if not findings:
        named = ", ".join(map(str, [MAIN_FILE, *files]))
        here = f"; set here: {', '.join(entries)}" if entries else ""
        findings.append(ok("config", f"{named}: every key and value is allowed{here}"))
    return Settings(run, refused, tuple(findings))


def parse_entry(text: str) -> dict[str, Any]:
    """The setting of one `key=value` of the command line, its value read as Snakemake reads it.

    >>> parse_entry("shards=3"), parse_entry("inference={damping: 0.3}"), parse_entry("bundle=")
    ({'shards': 3}, {'inference': {'damping': '0.3'}}, {'bundle': None})
    """
    key, separator, value = text.partition("=")
    if not separator or not _KEY.fullmatch(key):
        step = "write for example cohort=gse109142"
        raise ConfigError(Fault("--config", repr(text), "key=value, the key of two letters or more", step))
    return {key: _value(value)}


def _value(text: str) -> Any:
    """A whole number, a number, True or False, else YAML in which every scalar is a text."""
    if text == "":
        return None
    readers: tuple[Callable[[str], Any], ...] = (int, float, {"True": True, "False": False}.__getitem__, _yaml_texts)
    for read in readers:
        try:
            return read(text)
        except (ValueError, KeyError, yaml.YAMLError):
            continue
    return text


def _yaml_texts(text: str) -> Any:
    return yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 (makes only texts, lists and mappings)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`; mappings under one key are merged in turn."""
    both = {
        key: merged(base[key], value) if isinstance(base.get(key), dict) and isinstance(value, dict) else value
        for key, value in over.items()
    }
    return {**base, **both}


def _checked(document: Mapping[str, Any]) -> tuple[RunConfig, frozenset[str], list[Finding]]:
    """The settings without the top-level keys that have a fault, those keys, and the faults."""
    try:
        return check_run_config(dict(document)), frozenset(), []
    except ConfigError as error:
        findings = of_error("config", error)
    refused = {key for key, value in document.items() if not _is_sound({key: value})}
    sound = {key: value for key, value in document.items() if key not in refused}
    return check_run_config(sound), frozenset(refused), findings


def _is_sound(document: dict[str, Any]) -> bool:
    try:
        check_run_config(document)
    except ConfigError:
        return False
    return True


def _late_faults(run: RunConfig) -> Iterator[Finding]:
    """What the configuration allows key by key and a stage would refuse, by the functions that the stages call."""
    flips = run.elicitation_error.flips
    if flips[0] != 0:
        step = "let the list begin with 0, which all others are held against"
        yield fault("config", f"key elicitation_error.flips: found {flips[0]:g} first; expected 0", step)
    if common := sorted({*run.chaos.selecting_seeds} & {*run.chaos.measuring_seeds}):
        found = f"keys chaos.selecting_seeds and chaos.measuring_seeds: found {', '.join(map(str, common))} in both"
        step = "give them no seed in common, or the gap is measured on the orders that chose the patients"
        yield fault("config", found, step)
    yield from _own_rule_faults(run)


def _own_rule_faults(run: RunConfig) -> list[Finding]:
    """Custom classes that cannot be imported; their modules run here as they do in the run."""
    own = [name for name in run.allocation.rules if ":" in name]
    if not own or (lost := _tried(own_rule_files, run)):
        return lost if own else []
    from afa.allocate.check import rule_of  # noqa: PLC0415 (the engine behind it takes a second to import)

    findings = []
    for name in own:
        try:
            findings += _tried(rule_of, name)
        except Exception as error:  # whatever a module of the user's own raises
            found = f"key allocation.rules: found {name}, whose module stops with {type(error).__name__}: {error}"
            findings.append(fault("config", found, "correct the module"))
    return findings


def _tried(attempt: Callable[..., object], *arguments: object) -> list[Finding]:
    try:
        attempt(*arguments)
    except AfaError as error:
        return of_error("config", error)
    return []
