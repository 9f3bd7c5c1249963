"""What a run starts from: the project's files, bundle, cohort, language models that plan, and what a run has left."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from afa.bundle import load_bundle, validate_bundle
from afa.cohort.cohort import load_cohort
from afa.cohort.config import CohortConfig, simulation_config
from afa.cohort.encode import read_aliases, read_ensembl
from afa.cohort.geo import Source
from afa.cohort.table_cohort import TableCohort, encode_cohort, find_table, load_cohort_file, read_table_labels
from afa.config import Baselines, Elicitation, RunConfig, cohort_file, language_models
from afa.doctor.facts import Finding, counted, fault, of_error, ok, tried, warning
from afa.doctor.series import ALIASES, ENSEMBL
from afa.elicit.consensus import check_voters, consensus
from afa.elicit.endpoint import BASE_URL, KEY, MODEL
from afa.elicit.record import Record
from afa.elicit.recorded import Recorded
from afa.elicit.search import EMAIL
from afa.elicit.study import RECORD_FOLDER, Study, load_study, unary_questions
from afa.elicit.tables import check_answered, genes_named, outcomes, usable_genes
from afa.errors import AfaError
from afa.stages.inputs import check_duels, paper_tables
from afa.stages.layer0_synthetic.portfolio import load_portfolio

COHORTS = Path("config/cohorts")
_FEW = 5


@dataclass(frozen=True)
class Content:
    """What a bundle is about: its entities, in order, and the features that they share, with their other names."""

    entities: tuple[str, ...]
    features: Mapping[str, Sequence[str]]


def is_project() -> bool:
    """Whether this is the folder that a run starts from."""
    return Path("workflow/Snakefile").is_file()


def check_project() -> list[Finding]:
    """The files of the project that every run reads, and whether another run holds the folder."""
    if not is_project():
        step = "go to the project's folder, the one with workflow/Snakefile"
        return [fault("project", f"{Path.cwd()}: found no workflow/Snakefile", step)]
    findings: list[Finding] = []
    readers: tuple[tuple[Callable[[Path], object], Path], ...] = (
        (read_aliases, ALIASES),
        (read_ensembl, ENSEMBL),
        (load_portfolio, Path("config/portfolio.yaml")),
        (paper_tables, Path("resources/paper")),
    )
    for read, path in readers:
        findings += tried("project", read, path)
    if not findings:
        findings.append(ok("project", "gene names, portfolio and the paper's tables can be read"))
    if any(Path(".snakemake/locks").glob("*")):
        step = "wait for that run; where it was killed, the next one takes its lock away by itself"
        findings.append(warning("project", "Snakemake has locked this folder: a run is going on, or was killed", step))
    return findings


def check_bundle(run: RunConfig) -> tuple[list[Finding], Content | None]:
    """The bundle of a run, and what it is about where it has no fault."""
    try:
        described, content, notes = _elicited(run) if run.bundle is None else _own(run.bundle)
    except AfaError as error:
        return of_error("bundle", error), None
    findings = [ok("bundle", f"{described}, {len(content.entities)} entities, {len(content.features)} features")]
    findings += [warning("bundle", note) for note in notes]
    if run.top_k >= len(content.entities):
        smaller = len(content.entities) - 1
        findings.append(
            warning("bundle", f"top_k is {run.top_k}, and the top set will have {smaller}, one less than the entities")
        )
    return findings, content


def _elicited(run: RunConfig) -> tuple[str, Content, list[str]]:
    settings = run.elicitation
    study = load_study(settings.study)
    record = settings.record or settings.study / RECORD_FOLDER
    entries = Recorded(Record(record).entries(), study.settings.known_models).answers(unary_questions(study))
    asked = outcomes(unary_questions(study), entries)
    notes = list(_lacking(run, asked, study))
    if not settings.live:
        check_answered(asked, str(record))
    named, _ = usable_genes(genes_named(entries), **study.usable)
    kept = consensus(named, min_agree=settings.min_agree, runs=study.settings.voters).kept
    described = f"{'live' if settings.live else 'recorded'} elicitation of {settings.study}"
    agreeing = f"{settings.min_agree} of {len(study.settings.voters)} runs agreeing"
    return (
        f"{described}, {agreeing}",
        Content(tuple(study.names), dict.fromkeys(sorted(kept["gene"].unique()), ())),
        notes,
    )


def _lacking(run: RunConfig, asked: pd.DataFrame, study: Study) -> Iterator[str]:
    """What a live run needs, and is still to ask."""
    settings = run.elicitation
    if not settings.live:
        return
    lacking = int((asked["outcome"] != "answered").sum())
    if lacking:
        yield f"live: {lacking} of {len(asked)} questions for genes are still to be asked, before pairs and features"
    voters = {run: study.settings.voter(run) for run in study.settings.voters}
    try:
        check_voters({run: f"{voter.model} at {voter.address}" for run, voter in voters.items()}, study)
    except AfaError:
        yield "live: voters are runs of one model, which the study does not say, and the stage that asks will stop"
    yield from (told for told, _ in _stopping(settings, study.settings.variables))


def _stopping(settings: Elicitation | Baselines, variables: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What a live run cannot do without, and the next step."""
    ends = "and the stage that asks will stop"
    for name in variables:
        if not os.environ.get(name):
            yield f"live: {name} is not set, {ends}", "export it"
    if settings.calls is None and settings.tokens is None and settings.money is None:
        yield f"live: no cap on calls, tokens or money is set, {ends}", "set baselines.calls, tokens or money"


def _own(folder: Path) -> tuple[str, Content, list[str]]:
    bundle = load_bundle(folder)
    check_duels(bundle, folder)
    _, notes = validate_bundle(folder)
    return (
        f"{folder}, {bundle.name} {bundle.version}",
        Content(bundle.entities, {name: bundle.aliases.get(name, ()) for name in bundle.features}),
        notes,
    )


def check_cohort_file(run: RunConfig) -> tuple[list[Finding], CohortConfig | None]:
    """The cohort's file, with its simulation where it has one."""
    try:
        path = cohort_file(run, COHORTS)
        config = load_cohort_file(path)
        if isinstance(config, TableCohort):
            return _check_table(run, path, config), None
        if config.origin == "simulated":
            simulation_config(config)
    except AfaError as error:
        return of_error("cohort", error), None
    return [ok("cohort", f"{path}: {config.title}")], config


def _check_table(run: RunConfig, path: Path, config: TableCohort) -> list[Finding]:
    """Whether the table is there, can be encoded and has no gaps; labels are read too."""
    files = find_table(config, run.tables)
    encoded = encode_cohort(config, files)
    patients, features = encoded.values.shape
    if files.labels is not None:
        read_table_labels(files.labels, list(encoded.values.index), list(encoded.controls.index))
    found = [ok("cohort", f"{path}: {config.title}, {patients} patients x {features} features")]
    found += [warning("cohort", note) for note in encoded.notes]
    if gaps := int(encoded.values.isna().to_numpy().sum()):
        told = f"{gaps:,} missing values in the table: a stage refuses them where the bundle has that feature"
        found.append(warning("cohort", told))
    return found


def check_labels(config: CohortConfig, entities: Sequence[str]) -> list[Finding]:
    """Whether label rules and bundle have entities in common."""
    rules = [entity for entity, rule in config.labels.items() if rule.off is None]
    used = [entity for entity in rules if entity in entities]
    unused = [entity for entity in rules if entity not in entities]
    findings = []
    if unused:
        shown = ", ".join(unused[:_FEW]) + (f" and {len(unused) - _FEW} more" if len(unused) > _FEW else "")
        findings.append(
            warning("cohort", f"label rules that are not used, since the bundle has no such entity: {shown}")
        )
    if not used:
        step = "add rules under `labels` of the cohort's file, if the series records any of the bundle's entities"
        findings.append(warning("cohort", "no entity of the bundle has a label: clinical tables will be empty", step))
    return findings


def check_built(folder: Path) -> list[Finding]:
    """What an earlier run of this name left in `results/<run>`: bundle, cohort and source, with their digests."""
    built, findings = [], []
    if (folder / "bundle").exists():
        built.append("bundle")
        findings += _rebuilt(of_error("built", validate_bundle(folder / "bundle")[0]), folder / "bundle")
    if (folder / "cohort").exists():
        built.append("cohort")
        findings += _rebuilt(tried("built", load_cohort, folder / "cohort"), folder / "cohort")
    if (folder / "source.json").exists():
        step = f"remove {folder / 'source.json'}, and the run finds the series again"
        findings += [warning("built", each.found, step) for each in tried("built", Source.read, folder / "source.json")]
    if findings:
        return findings
    if not built:
        return [ok("built", f"{folder} has no bundle or cohort yet: the run begins at the beginning")]
    return [ok("built", f"{' and '.join(built)} in {folder} are whole and have their digests")]


def _rebuilt(found: Sequence[Finding], folder: Path) -> list[Finding]:
    return [fault(each.check, each.found, f"remove {folder}, and the run makes it again") for each in found]


def shards_text(patients: int, shards: int) -> list[Finding]:
    """Whether there is a patient for every shard."""
    if patients >= shards:
        return []
    step = f"set shards to {patients} or less"
    return [warning("cohort", f"{counted(patients, 'patient')} in {shards} shards: some jobs have nothing to do", step)]


CHECK = "baselines"


def check_baselines(run: RunConfig, entities: Sequence[str]) -> list[Finding]:
    """Whether the settings of `baselines` can be carried out; `entities` are the bundle's, empty where not known."""
    settings = language_models(run)
    if settings.folder is None:
        return [ok(CHECK, "off: not live, and no record of answers to these settings")]
    findings: list[Finding] = []
    if unknown := [name for name in settings.entities if entities and name not in entities]:
        step = "name entities of the bundle, or leave the list empty for all"
        found = f"key baselines.entities: found {', '.join(unknown)}, which the bundle has not"
        findings.append(fault(CHECK, found, step))
    try:
        load_study(settings.study)
        answers = sum(1 for _ in Record(settings.folder).entries()) if settings.folder.exists() else 0
    except AfaError as error:
        return findings + of_error(CHECK, error)
    if not answers and not settings.live:
        findings.append(fault(CHECK, f"{settings.folder}: found no answer", "name a folder of answers, or set live"))
    if settings.live:
        needed = {BASE_URL: True, KEY: True, MODEL: not settings.model, EMAIL: "rag_llm" in settings.methods}
        names = [name for name, is_needed in needed.items() if is_needed]
        findings += [warning(CHECK, told, step) for told, step in _stopping(settings, names)]
    how = "asked for what it lacks" if settings.live else "replayed, and nothing is asked"
    return findings or [ok(CHECK, f"{settings.folder}: {answers} answers, {how}")]
