"""All checks of a run in the order in which a run would meet them, from its settings as Snakemake would merge them.

How many jobs it has, how long they take and how much they write is estimated by what stored runs took. Those numbers
are of another machine and cohort. They are scaled by patients, upwards only, since what a job takes to start does not
shrink with the cohort; other settings and another bundle do not enter, which is said.
"""

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
from afa.doctor.checks import (
    Finding,
    Findings,
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
    counted,
    size_text,
)
from afa.errors import ConfigError, Fault
from afa.report.benchmarks import StoredRun, read_stored
from afa.stages import stages
from afa.yamlfile import read_mapping

RESULTS, STORED = Path("results"), Path("resources/benchmarks")
ALL_KNOWN_MB = 250.0
"""Room asked for where no stored run gives an estimate."""
MAIN_FILE = Path("config/config.yaml")

SPACE_PATIENTS = 167
SPACE_MB = {
    "bundle": 2.5,
    "cohort": 2.8,
    **{name: stage.space_mb for name, stage in stages().items()},
    "errata": 0.1,
    "notebooks": 7.8,
    "report": 13.7,
}
"""MB of tables, summaries and pages that each stage of the demo cohort left, 167 patients on the recorded bundle."""

SHARDED = [name for name, stage in stages().items() if stage.sharded]
"""Stages whose tables lie twice on the disk while their shards are gathered."""

WITHOUT_PATIENTS = {"bundle", "notebooks", *(name for name, stage in stages().items() if not stage.by_patient)}
"""Stages that take as long for any cohort."""

_STAGES = {
    rule: stage
    for stage, rules in {
        "bundle": "elicit_unary elicit_consensus elicit_evidence elicit_pairwise build_bundle copy_bundle",
        "cohort": "simulate_series fetch_series encode_cohort cohort_by_cohort",
        "report": "summary published comparison explorer run_config report_page",
    }.items()
    for rule in rules.split()
}


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


@dataclass(frozen=True)
class Estimate:
    """Jobs, seconds of all jobs one after the other and MB left on disk by stage, and what the whole comes to."""

    stages: pd.DataFrame
    """Columns stage, jobs, seconds, space_mb; a row per stage in the order of the workflow."""
    elapsed_seconds: float
    space_mb: float
    """With what lies on the disk for a while only."""
    together_mb: float
    largest_mb: float


def stage_of(rule: str) -> str:
    """The stage that a rule of the workflow belongs to, as config/README.md names it.

    >>> [stage_of(rule) for rule in ("gauge_shard", "gauge_summary", "gauge_notebook", "encode_cohort")]
    ['gauge', 'gauge', 'notebooks', 'cohort']
    """
    if rule in _STAGES:
        return _STAGES[rule]
    if rule.endswith("_notebook"):
        return "notebooks"
    for ending in ("_shard", "_summary", "_computed"):
        rule = rule.removesuffix(ending)
    return rule


def nearest(runs: Sequence[StoredRun], cohort: str, patients: int | None) -> StoredRun | None:
    """The stored run of this cohort, else of the most similar number of patients, else the first by name."""
    chosen = [run for run in runs if run.cohort == cohort]
    if not chosen and patients is not None:
        chosen = sorted(runs, key=lambda run: abs(run.patients - patients))
    return next(iter(chosen or runs), None)


def estimate(stored: StoredRun, run: RunConfig, *, patients: int | None, simulated: bool, cores: int) -> Estimate:
    """The run's jobs, time and space; `patients` None counts as many as the stored run has."""
    rules = stored.rules if simulated else stored.rules[stored.rules["rule"] != "simulate_series"]
    rules = rules.assign(stage=rules["rule"].map(stage_of)).reset_index(drop=True)
    for place in rules.index[rules["rule"].str.endswith("_shard")]:  # in this run's number of shards
        parts = len(run.allocation.parts) if rules.loc[place, "rule"] == "allocation_shard" else 1
        rules.loc[place, "longest_seconds"] *= max(1.0, rules.loc[place, "jobs"] / (parts * run.shards))
        rules.loc[place, "jobs"] = parts * run.shards
    grows = ~rules["stage"].isin(WITHOUT_PATIENTS)
    for column in ("seconds", "longest_seconds", "max_rss_mb"):
        rules[column] = rules[column].where(~grows, rules[column] * growth(stored.patients, patients))
    stages = rules.groupby("stage", as_index=False)[["jobs", "seconds"]].sum()
    order = {stage: place for place, stage in enumerate(SPACE_MB)}
    stages = stages.sort_values("stage", key=lambda names: names.map(order), ignore_index=True)
    scale = (patients or stored.patients) / SPACE_PATIENTS
    stages["space_mb"] = [_space(stage, scale) for stage in stages["stage"]]
    passing = sum(_space(stage, scale) for stage in SHARDED)
    jobs = rules.loc[rules.index.repeat(rules["jobs"]), "max_rss_mb"].sort_values(ascending=False)
    return Estimate(
        stages=stages,
        elapsed_seconds=max(float(rules["longest_seconds"].max()), float(rules["seconds"].sum()) / cores),
        space_mb=float(stages["space_mb"].sum()) + passing,
        together_mb=float(jobs.head(cores).sum()),
        largest_mb=float(jobs.max()),
    )


def growth(stored: int, patients: int | None) -> float:
    """By how much the time of a stage over patients is multiplied: never by less than 1."""
    return max(1.0, patients / stored) if patients else 1.0


def _space(stage: str, scale: float) -> float:
    return SPACE_MB.get(stage, 0.0) * (1.0 if stage in WITHOUT_PATIENTS else scale)


def check_estimate(
    findings: Findings, run: RunConfig, cores: int, *, patients: int | None, simulated: bool, on_cluster: bool
) -> Estimate | None:
    """The estimate by the stored run that is nearest, in words and as numbers; None where there is none."""
    with findings.of_errors("estimate"):
        stored = nearest(read_stored(STORED), run.cohort, patients)
        if stored is None:
            findings.warning("estimate", f"no stored run in {STORED}: time and memory are not known")
            return None
        whole = estimate(stored, run, patients=patients, simulated=simulated, cores=cores)
        findings.ok("estimate", described(stored, whole, patients=patients, cores=cores, on_cluster=on_cluster))
        return whole
    return None


def described(stored: StoredRun, whole: Estimate, *, patients: int | None, cores: int, on_cluster: bool) -> str:
    """The estimate in words: the sum, where its numbers are from, and what they do not know of."""
    work = minutes(float(whole.stages["seconds"].sum()))
    wait = f", some {minutes(whole.elapsed_seconds)} on {counted(cores, 'core')}"
    if on_cluster:
        wait = " and what they wait in the queue"
    scaled = f", its stages over patients scaled to {patients}" if growth(stored.patients, patients) > 1 else ""
    return (
        f"{counted(int(whole.stages['jobs'].sum()), 'job')}, {work} of work{wait}; {size_text(whole.space_mb)} on disk;"
        f" by a stored run of {stored.cohort} ({stored.patients} patients), from nothing, on another"
        f" machine{scaled}; other settings and another bundle may take more or less"
    )


def minutes(seconds: float) -> str:
    """A time as people say it: minutes, or hours from ninety minutes on.

    >>> minutes(20), minutes(720), minutes(9000)
    ('1 min', '12 min', '2.5 h')
    """
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{max(1, round(seconds / 60))} min"
