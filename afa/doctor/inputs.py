"""What a run starts from: the project's folder, bundle, cohort, series, and models that plan."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

from afa.bundle import load_bundle, validate_bundle
from afa.cohort.config import CohortConfig, simulation_config
from afa.cohort.geo import GEO_URL, Source, SourceFile, fetch, places, read_samples, series_folder
from afa.cohort.samples import make_labels, select
from afa.cohort.table_cohort import TableCohort, encode_cohort, find_table, load_cohort_file, read_table_labels
from afa.config import Baselines, Elicitation, RunConfig, carried_extract, cohort_file, language_models
from afa.doctor import Findings
from afa.elicit.answers import unary_questions
from afa.elicit.record import Record
from afa.elicit.recorded import Recorded
from afa.elicit.search import EMAIL
from afa.elicit.study import BASE_URL, KEY, MODEL, RECORD_FOLDER, load_study
from afa.elicit.tables import check_answered, outcomes
from afa.files import sha256_of
from afa.stages.inputs import check_duels

COHORTS = Path("config/cohorts")


def check_project(findings: Findings) -> bool:
    """Whether this is the folder that a run starts from; a warning where another run holds it."""
    if not Path("workflow/Snakefile").is_file():
        step = "go to the project's folder, the one with workflow/Snakefile"
        findings.fault("project", f"{Path.cwd()}: found no workflow/Snakefile", step)
        return False
    findings.ok("project", "workflow/Snakefile is here")
    if any(Path(".snakemake/locks").glob("*")):
        step = "wait for that run; where it was killed, the next one takes its lock away by itself"
        findings.warning("project", "Snakemake has locked this folder: a run is going on, or was killed", step)
    return True


def check_bundle(findings: Findings, run: RunConfig) -> tuple[str, ...] | None:
    """The bundle of a run, its own or the elicited one; its entities, None where it has a fault."""
    with findings.of_errors("bundle"):
        if run.bundle is not None:
            bundle = load_bundle(run.bundle)
            check_duels(bundle, run.bundle)
            sizes = f"{len(bundle.entities)} entities, {len(bundle.features)} features"
            findings.ok("bundle", f"{run.bundle}, {bundle.name} {bundle.version}, {sizes}")
            for note in validate_bundle(run.bundle)[1]:
                findings.warning("bundle", note)
            return bundle.entities
        settings = run.elicitation
        study = load_study(settings.study)
        record, questions = settings.record or settings.study / RECORD_FOLDER, unary_questions(study)
        answers = Recorded(Record(record).entries(), study.settings.known_models).answers(questions)
        asked = outcomes(questions, answers)
        if settings.live:
            lacking = int((asked["outcome"] != "answered").sum())
            findings.ok("bundle", f"live elicitation of {settings.study}, {len(study.names)} entities")
            if lacking:
                left = f"{lacking} of {len(asked)} questions for genes are still to be asked"
                findings.warning("bundle", f"live: {left}, before pairs and features")
            _check_live(findings, "bundle", settings, study.settings.variables)
        else:
            check_answered(asked, str(record))
            findings.ok("bundle", f"recorded elicitation of {settings.study}, {len(study.names)} entities")
        return tuple(study.names)
    return None


def _check_live(findings: Findings, check: str, settings: Elicitation | Baselines, variables: Iterable[str]) -> None:
    """What a live run cannot do without."""
    ends = "and the stage that asks will stop"
    for name in variables:
        if not os.environ.get(name):
            findings.warning(check, f"live: {name} is not set, {ends}", "export it")
    if settings.calls is None and settings.tokens is None and settings.money is None:
        step = "set calls, tokens or money beside `live`"
        findings.warning(check, f"live: no cap on calls, tokens or money is set, {ends}", step)


def check_baselines(findings: Findings, run: RunConfig, entities: Sequence[str]) -> None:
    """Whether the settings of `baselines` can be carried out; `entities` are the bundle's, empty where not known."""
    check = "baselines"
    with findings.of_errors(check):
        settings = language_models(run)
        if settings.folder is None:
            findings.ok(check, "off: not live, and no record of answers to these settings")
            return
        if unknown := [name for name in settings.entities if entities and name not in entities]:
            step = "name entities of the bundle, or leave the list empty for all"
            findings.fault(check, f"key baselines.entities: found {', '.join(unknown)}, which the bundle has not", step)
        load_study(settings.study)
        answers = sum(1 for _ in Record(settings.folder).entries()) if settings.folder.exists() else 0
        if settings.live:
            needed = {BASE_URL: True, KEY: True, MODEL: not settings.model, EMAIL: "rag_llm" in settings.methods}
            _check_live(findings, check, settings, [name for name, is_needed in needed.items() if is_needed])
        elif not answers:
            findings.fault(check, f"{settings.folder}: found no answer", "name a folder of answers, or set live")
        if answers or settings.live:
            how = "asked for what it lacks" if settings.live else "replayed, and nothing is asked"
            findings.ok(check, f"{settings.folder}: {answers} answers, {how}")


def check_cohort_file(findings: Findings, run: RunConfig) -> CohortConfig | None:
    """The cohort's file, with its simulation where it has one; None for a table, which is encoded."""
    with findings.of_errors("cohort"):
        path = cohort_file(run, COHORTS)
        config = load_cohort_file(path)
        if not isinstance(config, TableCohort):
            if config.origin == "simulated":
                simulation_config(config)
            findings.ok("cohort", f"{path}: {config.title}")
            return config
        files = find_table(config, run.tables)
        encoded = encode_cohort(config, files)
        patients, features = encoded.values.shape
        if files.labels is not None:
            read_table_labels(files.labels, list(encoded.values.index), list(encoded.controls.index))
        findings.ok("cohort", f"{path}: {config.title}, {patients} patients x {features} features")
        for note in encoded.notes:
            findings.warning("cohort", note)
        if gaps := int(encoded.values.isna().to_numpy().sum()):
            found = f"{gaps:,} missing values in the table: a stage refuses them where the bundle has that feature"
            findings.warning("cohort", found)
    return None


def check_series(
    findings: Findings, config: CohortConfig, run: RunConfig, entities: Sequence[str]
) -> tuple[tuple[str, ...] | None, int | None]:
    """The series' files, looked for where the run will look for them; those of an extract and a mirror are whole.

    Returns
    -------
    The addresses still to be fetched, None where a fault keeps them from being known; and the number of patients, where
    the sample descriptions are at hand and selection and labels hold on them.

    """
    if config.origin == "simulated":
        simulated = simulation_config(config)
        findings.ok("series", f"{simulated.n_patients} patients and {simulated.n_controls} controls will be simulated")
        return (), simulated.n_patients
    extract = carried_extract(run, config.series)
    if extract is not None or run.geo_mirror is not None:
        with findings.of_errors("series"):
            source = fetch(config, cache=run.geo_cache, mirror=run.geo_mirror, extract=extract)
            findings.ok("series", f"{config.series} in {extract or run.geo_mirror}, whole")
            return (), _check_samples(findings, config, source, entities)
        return None, None
    folder = run.geo_cache / series_folder(config.series)
    wanted = [choices[0] for choices in places(config)]
    lacking = [
        place
        for place in wanted
        if not (folder / place.name).is_file() or place.sha256 not in (None, sha256_of(folder / place.name))
    ]
    found = f"{len(lacking)} of 2 files not in {run.geo_cache} yet" if lacking else f"in {run.geo_cache}"
    findings.ok("series", f"{config.series}: {found}")
    addresses = tuple(f"{GEO_URL}/{series_folder(config.series)}/{quote(place.name)}" for place in lacking)
    if wanted[0] in lacking:
        findings.ok("samples", "not at hand: selection and labels show only after the fetch")
        return addresses, None
    path = folder / wanted[0].name
    samples = SourceFile(path, "", path.stat().st_size, wanted[0].form)
    return addresses, _check_samples(findings, config, Source(config.series, samples, samples), entities)


def _check_samples(findings: Findings, config: CohortConfig, source: Source, entities: Sequence[str]) -> int | None:
    """Selection and labels on the sample descriptions themselves; and the number of patients."""
    with findings.of_errors("samples"):
        chosen = select(read_samples(source), config)
        labels = make_labels(chosen.samples.loc[list(chosen.patients)], config.labels, entities)
        found = f"{len(chosen.patients)} patients and {len(chosen.controls)} controls of {chosen.steps[0][1]} samples"
        counts = "; ".join(f"{name} {int((labels[name] == 1).sum())} of {labels[name].count()}" for name in labels)
        findings.ok("samples", f"{found}; positive labels: {counts or 'none'}")
        return len(chosen.patients)
    return None
