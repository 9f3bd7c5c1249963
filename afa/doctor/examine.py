"""All checks of a run in the order in which a run would meet them, from its settings as Snakemake would merge them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from afa.config import RunConfig, carried_extract, check_run_config, own_rule_files
from afa.doctor import Checked, Finding, counted, fault, gathered, of_faults, ok, tried
from afa.doctor.estimate import check_estimate
from afa.doctor.inputs import (
    Series,
    check_baselines,
    check_bundle,
    check_cohort_file,
    check_genes,
    check_labels,
    check_network,
    check_project,
    check_samples,
    check_series,
    is_project,
)
from afa.doctor.machine import Facts, check_cores, check_disk, check_environment, check_memory, check_profile
from afa.errors import ConfigError, Fault
from afa.yamlfile import read_mapping

RESULTS = Path("results")
ALL_KNOWN_MB = 250.0
"""Room asked for where no stored run gives an estimate."""
MAIN_FILE = Path("config/config.yaml")
_KEY = re.compile(r"[A-Za-z_][\w-]*\w")


@dataclass(frozen=True)
class Examination:
    """What was found, and the estimate by stage, which is empty where no stored run tells."""

    run: str
    stages: pd.DataFrame
    findings: tuple[Finding, ...]

    @property
    def faults(self) -> int:
        return sum(each.level == "fault" for each in self.findings)

    @property
    def verdict(self) -> str:
        """The final line."""
        warnings = counted(sum(each.level == "warning" for each in self.findings), "warning")
        if self.faults:
            return f"{counted(self.faults, 'fault')}, {warnings}: correct the faults before you start run {self.run}"
        return f"no fault, {warnings}: run {self.run} can start"


def examine(
    files: Sequence[Path], entries: Sequence[str], facts: Facts, *, profile: str | None = None, network: bool = False
) -> Examination:
    """Check the run that Snakemake would make here of these settings; nothing is written and nothing is fetched.

    A part whose own setting has a fault is left out, the others are checked all the same.
    """
    findings, known = gathered(_check_all(files, entries, facts, profile, network))
    return Examination(*known, tuple(findings))


def _check_all(
    files: Sequence[Path], entries: Sequence[str], facts: Facts, profile: str | None, network: bool
) -> Checked[tuple[str, pd.DataFrame]]:
    """Every check; the run's name, and its estimate by stage."""
    yield from check_project()
    if not is_project():
        return "here", pd.DataFrame()
    settings = yield from read_settings(files, entries)
    return settings.run.run_name, (yield from _check_run(settings, facts, profile, network))


@dataclass(frozen=True)
class Settings:
    """The settings as far as they are sound; `refused` are the top-level keys that are not, and have their defaults."""

    run: RunConfig
    refused: frozenset[str]


def read_settings(files: Sequence[Path], entries: Sequence[str]) -> Checked[Settings]:
    """`config/config.yaml`, then `files`, then `entries` of the form key=value, each over the one before."""
    document: dict[str, Any] = {}
    findings: list[Finding] = []
    given = [partial(read_mapping, path) for path in (MAIN_FILE, *files)]
    given += [partial(parse_entry, entry) for entry in entries]
    for read in given:
        try:
            document = merged(document, read())
        except ConfigError as error:
            findings += of_faults("config", error.faults)
    faults = list(tried("config", check_run_config, document))
    refused = {key for key in document if faults and any(tried("config", check_run_config, {key: document[key]}))}
    run = check_run_config({key: value for key, value in document.items() if key not in refused})
    findings += [*faults, *_own_rule_faults(run)]
    named = ", ".join(map(str, [MAIN_FILE, *files]))
    here = f"; set here: {', '.join(entries)}" if entries else ""
    yield from findings or [ok("config", f"{named}: every key and value is allowed{here}")]
    return Settings(run, frozenset(refused))


def _check_run(settings: Settings, facts: Facts, profile: str | None, network: bool) -> Checked[pd.DataFrame]:
    """The inputs of a run, then the machine; the estimate by stage, empty where no stored run tells."""
    run, refused = settings.run, settings.refused
    content = config = patients = None
    series = Series(to_fetch=None)
    if "bundle" not in refused:
        content = yield from check_bundle(run)
    entities = content.entities if content else ()
    if "baselines" not in refused:
        yield from check_baselines(run, entities)
    if "cohort" not in refused:
        config = yield from check_cohort_file(run)
    if config is not None and "geo_mirror" not in refused:
        if content:
            yield from check_labels(config, entities)
        extract = carried_extract(run, config.series)
        series = yield from check_series(config, mirror=run.geo_mirror, cache=run.geo_cache, extract=extract)
        if content:
            yield from check_genes(config, series, content.features)
        patients = yield from check_samples(config, run, series, entities)
    fetched_mb = 0.0
    if series.to_fetch is not None:
        fetched_mb = yield from check_network(series.to_fetch, facts, ask=network)
    yield from check_environment(facts)
    on_cluster = (yield from check_profile(profile, facts)) not in (None, "local")
    simulated = config is not None and config.origin == "simulated"
    whole = yield from check_estimate(run, facts.cores, patients=patients, simulated=simulated, on_cluster=on_cluster)
    needs = {RESULTS: whole.space_mb if whole else ALL_KNOWN_MB}
    if series.to_fetch:
        needs[run.geo_cache] = fetched_mb
    yield from check_disk(needs, facts)
    if not on_cluster:
        yield check_memory(whole.together_mb if whole else None, whole.largest_mb if whole else None, facts)
        yield check_cores(run.shards, facts)
    return whole.stages if whole else pd.DataFrame()


def parse_entry(text: str) -> dict[str, Any]:
    """The setting of one `key=value` of the command line, its value read as Snakemake reads it.

    >>> parse_entry("shards=3"), parse_entry("inference={damping: 0.3}"), parse_entry("bundle=")
    ({'shards': 3}, {'inference': {'damping': '0.3'}}, {'bundle': None})
    """
    key, separator, value = text.partition("=")
    if not separator or not _KEY.fullmatch(key):
        section, dot, name = key.partition(".")
        step = f"write {section}={{{name}: {value}}}" if dot and separator else "write for example cohort=gse109142"
        raise ConfigError(Fault("--config", repr(text), "key=value, or section={key: value}", step))
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


def _own_rule_faults(run: RunConfig) -> Iterator[Finding]:
    """What keeps custom rules from being used; their modules run here as they do in the run."""
    own = [name for name in run.allocation.rules if ":" in name]
    lost = list(tried("config", own_rule_files, run)) if own else []
    yield from lost
    for name in () if lost else own:
        from afa.allocate.check import rule_of  # noqa: PLC0415 (the engine behind it takes a second to import)

        try:
            yield from tried("config", rule_of, name)
        except Exception as error:  # whatever a module of the user's own raises
            found = f"key allocation.rules: found {name}, whose module stops with {type(error).__name__}: {error}"
            yield fault("config", found, "correct the module")
