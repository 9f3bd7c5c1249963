"""All checks of a run in the order in which a run would meet them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from afa.config import RunConfig, carried_extract
from afa.doctor import estimate as estimates
from afa.doctor.facts import Facts
from afa.doctor.finding import Finding, counted, of_error, warning
from afa.doctor.inputs import (
    check_built,
    check_bundle,
    check_cohort_file,
    check_labels,
    check_project,
    is_project,
    shards_text,
)
from afa.doctor.llm_planners import check_baselines
from afa.doctor.machine import check_cores, check_disk, check_environment, check_memory, check_profile
from afa.doctor.series import check_genes, check_network, check_samples, check_series
from afa.doctor.settings import read_settings
from afa.errors import ReportError

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
    found, chosen = check_profile(profile, facts)
    findings += found
    on_cluster = chosen is not None and chosen.executor != "local"
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
        stored = estimates.nearest(estimates.read_stored(), run.cohort, inputs.patients)
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
