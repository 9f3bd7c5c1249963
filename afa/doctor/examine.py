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
from afa.doctor import estimate as estimates
from afa.doctor.facts import Facts, Finding, counted, fault, of_error, ok, tried, warning
from afa.doctor.inputs import (
    check_baselines,
    check_built,
    check_bundle,
    check_cohort_file,
    check_labels,
    check_project,
    is_project,
    shards_text,
)
from afa.doctor.machine import check_cores, check_disk, check_environment, check_memory, check_profile
from afa.doctor.series import check_genes, check_network, check_samples, check_series
from afa.errors import ConfigError, Fault, ReportError
from afa.report.benchmarks import read_stored
from afa.yamlfile import read_mapping

RESULTS = Path("results")
ALL_KNOWN_MB = 250.0
"""Room asked for where no stored run gives an estimate."""


@dataclass(frozen=True)
class Examination:
    """What was found, and the estimate by stage, which is empty where no stored run tells."""

    run: str
    findings: tuple[Finding, ...]
    stages: pd.DataFrame

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


@dataclass(frozen=True)
class _Inputs:
    """What the checks of a run's inputs leave for those of the machine."""

    patients: int | None
    simulated: bool
    to_fetch: tuple[str, ...] | None
    """None where a fault keeps this from being known."""


def examine(
    files: Sequence[Path], entries: Sequence[str], facts: Facts, *, profile: str | None = None, network: bool = False
) -> Examination:
    """Check the run that Snakemake would make here of these settings; nothing is written and nothing is fetched.

    A part whose own setting has a fault is left out, the others are checked all the same.
    """
    findings = check_project()
    if not is_project():
        return Examination("here", tuple(findings), pd.DataFrame())
    settings = read_settings(files, entries)
    findings += settings.findings
    found, inputs = _check_inputs(settings.run, settings.refused)
    findings += found
    fetched_mb = 0.0
    if inputs.to_fetch is not None:
        found, fetched_mb = check_network(inputs.to_fetch, facts, ask=network)
        findings += found
    findings += check_environment(facts)
    found, executor = check_profile(profile, facts)
    findings += found
    on_cluster = executor not in (None, "local")
    found, stages = _check_machine(settings.run, inputs, facts, fetched_mb=fetched_mb, on_cluster=on_cluster)
    return Examination(settings.run.run_name, (*findings, *found), stages)


def _check_inputs(run: RunConfig, refused: frozenset[str]) -> tuple[list[Finding], _Inputs]:
    """Bundle, cohort, series and samples, and what an earlier run left."""
    findings: list[Finding] = []
    content = config = patients = None
    to_fetch: tuple[str, ...] | None = None
    if "bundle" not in refused:
        found, content = check_bundle(run)
        findings += found
    if "baselines" not in refused:
        findings += check_baselines(run, content.entities if content else ())
    if "cohort" not in refused:
        found, config = check_cohort_file(run)
        findings += found
    if config is not None and "geo_mirror" not in refused:
        entities = content.entities if content else ()
        if content:
            findings += check_labels(config, entities)
        extract = carried_extract(run, config.series)
        found, series = check_series(config, mirror=run.geo_mirror, cache=run.geo_cache, extract=extract)
        findings += found
        if content:
            findings += check_genes(config, series, content.features)
        to_fetch = series.to_fetch
        found, patients = check_samples(config, run, series, entities)
        findings += found
    if patients is not None:
        findings += shards_text(patients, run.shards)
    if not refused & {"cohort", "run"}:
        findings += check_built(RESULTS / run.run_name)
    simulated = config is not None and config.origin == "simulated"
    return findings, _Inputs(patients, simulated, to_fetch)


def _check_machine(
    run: RunConfig, inputs: _Inputs, facts: Facts, *, fetched_mb: float, on_cluster: bool
) -> tuple[list[Finding], pd.DataFrame]:
    """Disk, memory and cores against the estimate; on a cluster only the disk is this machine's affair."""
    findings: list[Finding] = []
    whole = None
    try:
        stored = estimates.nearest(read_stored(estimates.STORED), run.cohort, inputs.patients)
    except ReportError as error:
        stored, findings = None, of_error("estimate", error)
    if stored is not None:
        whole = estimates.estimate(stored, run, patients=inputs.patients, simulated=inputs.simulated, cores=facts.cores)
        findings += estimates.describe(
            stored, whole, run, patients=inputs.patients, cores=facts.cores, on_cluster=on_cluster
        )
    elif not findings:
        findings.append(warning("estimate", f"no stored run in {estimates.STORED}: time and memory are not known"))
    needs = {RESULTS: whole.space_mb if whole else ALL_KNOWN_MB}
    if inputs.to_fetch:
        needs[run.geo_cache] = fetched_mb
    findings += check_disk(needs, facts)
    if not on_cluster:
        together, largest = (whole.together_mb, whole.largest_mb) if whole else (None, None)
        findings.append(check_memory(together, largest, facts))
        findings.append(check_cores(run.shards, facts))
    return findings, whole.stages if whole else pd.DataFrame()


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
    given = [partial(read_mapping, path) for path in (MAIN_FILE, *files)]
    given += [partial(parse_entry, entry) for entry in entries]
    for read in given:
        try:
            document = merged(document, read())
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


def _checked(document: Mapping[str, Any]) -> tuple[RunConfig, frozenset[str], list[Finding]]:
    """The settings without the top-level keys that have a fault, those keys, and the faults."""
    try:
        return check_run_config(dict(document)), frozenset(), []
    except ConfigError as error:
        findings = of_error("config", error)
    refused = {key for key, value in document.items() if tried("config", check_run_config, {key: value})}
    sound = {key: value for key, value in document.items() if key not in refused}
    return check_run_config(sound), frozenset(refused), findings


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
    if not own or (lost := tried("config", own_rule_files, run)):
        return lost if own else []
    from afa.allocate.check import rule_of  # noqa: PLC0415 (the engine behind it takes a second to import)

    findings = []
    for name in own:
        try:
            findings += tried("config", rule_of, name)
        except Exception as error:  # whatever a module of the user's own raises
            found = f"key allocation.rules: found {name}, whose module stops with {type(error).__name__}: {error}"
            findings.append(fault("config", found, "correct the module"))
    return findings
