"""All checks of a run in the order in which a run would meet them, from its settings as Snakemake would merge them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from snakemake.cli import parse_config
from snakemake.utils import update_config

from afa.config import RunConfig, check_run_config, own_rule_files
from afa.doctor import Finding, Findings, counted
from afa.doctor.checks import (
    check_baselines,
    check_bundle,
    check_cohort_file,
    check_cores,
    check_disk,
    check_memory,
    check_network,
    check_profile,
    check_project,
    check_series,
)
from afa.doctor.estimate import check_estimate
from afa.errors import ConfigError, Fault
from afa.yamlfile import read_mapping

RESULTS = Path("results")
ALL_KNOWN_MB = 250.0
"""Room asked for where no stored run gives an estimate."""
MAIN_FILE = Path("config/config.yaml")


@dataclass(frozen=True)
class Examination:
    """What was found, and the estimate by stage, which is empty where no stored run tells."""

    run: str
    stages: pd.DataFrame
    findings: Sequence[Finding]

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
    files: Sequence[Path], entries: Sequence[str], *, profile: str | None = None, network: bool = False
) -> Examination:
    """Check the run that Snakemake would make here of these settings; nothing is written and nothing is fetched.

    A part whose own setting has a fault is left out, the others are checked all the same.
    """
    findings, stages = Findings(), pd.DataFrame()
    if not check_project(findings):
        return Examination("here", stages, findings)
    run, refused = read_settings(findings, files, entries)
    entities = config = to_fetch = patients = None
    if "bundle" not in refused:
        entities = check_bundle(findings, run)
    if "baselines" not in refused:
        check_baselines(findings, run, entities or ())
    if "cohort" not in refused:
        config = check_cohort_file(findings, run)
    if config is not None and "geo_mirror" not in refused:
        to_fetch, patients = check_series(findings, config, run, entities or ())
    fetched_mb = 0.0 if to_fetch is None else check_network(findings, to_fetch, ask=network)
    on_cluster = check_profile(findings, profile) not in (None, "local")
    simulated, cores = config is not None and config.origin == "simulated", len(os.sched_getaffinity(0))
    whole = check_estimate(findings, run, cores, patients=patients, simulated=simulated, on_cluster=on_cluster)
    needs = {RESULTS: whole.space_mb if whole else ALL_KNOWN_MB}
    if to_fetch:
        needs[run.geo_cache] = fetched_mb
    check_disk(findings, needs)
    if not on_cluster:
        check_memory(findings, whole.together_mb if whole else None, whole.largest_mb if whole else None)
        check_cores(findings, run.shards, cores)
    return Examination(run.run_name, whole.stages if whole else stages, findings)


def read_settings(findings: Findings, files: Sequence[Path], entries: Sequence[str]) -> tuple[RunConfig, set[str]]:
    """`config/config.yaml`, then `files`, then `entries` of the form key=value, each over the one before.

    Returns
    -------
    The settings as far as they are sound, and the top-level keys that are not, which have their defaults.

    """
    document: dict[str, Any] = {}
    before = len(findings)
    for path in (MAIN_FILE, *files):
        with findings.of_errors("config"):
            update_config(document, read_mapping(path))
    for entry in entries:
        with findings.of_errors("config"):
            update_config(document, parse_entry(entry))
    refused = set[str]()
    with findings.of_errors("config"):
        check_run_config(document)
    for key, value in document.items():
        try:
            check_run_config({key: value})
        except ConfigError:
            refused.add(key)
    run = check_run_config({key: value for key, value in document.items() if key not in refused})
    _check_own_rules(findings, run)
    if len(findings) == before:
        here = f"; set here: {', '.join(entries)}" if entries else ""
        findings.ok("config", f"{', '.join(map(str, [MAIN_FILE, *files]))}: every key and value is allowed{here}")
    return run, refused


def parse_entry(text: str) -> dict[str, Any]:
    """The setting of one `key=value` of the command line, as Snakemake reads it.

    >>> parse_entry("shards=3"), parse_entry("inference={damping: 0.3}"), parse_entry("bundle=")
    ({'shards': 3}, {'inference': {'damping': '0.3'}}, {'bundle': None})
    """
    try:
        return dict(parse_config([text]))
    except ValueError:
        step = "write for example cohort=gse109142, or inference={damping: 0.3}"
        raise ConfigError(Fault("--config", repr(text), "key=value, or section={key: value}", step)) from None


def _check_own_rules(findings: Findings, run: RunConfig) -> None:
    """What keeps custom rules from being used; their modules run here as they do in the run."""
    own = [name for name in run.allocation.rules if ":" in name]
    if not own:
        return
    from afa.allocate.check import rule_of  # noqa: PLC0415 (the engine behind it takes a second to import)

    with findings.of_errors("config"):
        own_rule_files(run)
        for name in own:
            try:
                with findings.of_errors("config"):
                    rule_of(name)
            except Exception as error:  # whatever a module of the user's own raises
                found = f"key allocation.rules: found {name}, whose module stops with {type(error).__name__}: {error}"
                findings.fault("config", found, "correct the module")
