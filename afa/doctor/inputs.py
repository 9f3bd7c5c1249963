"""What a run starts from: the project's files, bundle, cohort, series, models that plan, and what a run has left."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pandas as pd

from afa.bundle import load_bundle, validate_bundle
from afa.cohort.build import read_values
from afa.cohort.config import CohortConfig, simulation_config
from afa.cohort.encode import Names, encode, read_aliases, read_ensembl
from afa.cohort.geo import GEO_URL, Place, Source, SourceFile, fetch, places, read_samples, series_folder
from afa.cohort.samples import make_labels, select
from afa.cohort.table_cohort import TableCohort, encode_cohort, find_table, load_cohort_file, read_table_labels
from afa.config import Baselines, Elicitation, RunConfig, cohort_file, language_models
from afa.doctor import Checked, Finding, ends_with_errors, fault, ok, size_text, tried, warning
from afa.doctor.machine import Facts
from afa.elicit.answers import unary_questions
from afa.elicit.consensus import check_voters, consensus
from afa.elicit.record import Record
from afa.elicit.recorded import Recorded
from afa.elicit.search import EMAIL
from afa.elicit.study import BASE_URL, KEY, MODEL, RECORD_FOLDER, Study, load_study
from afa.elicit.tables import check_answered, genes_named, outcomes, usable_genes
from afa.errors import AfaError
from afa.files import sha256_of
from afa.stages.inputs import check_duels, paper_tables
from afa.stages.layer0_synthetic.portfolio import load_portfolio

COHORTS = Path("config/cohorts")
ALIASES, ENSEMBL = Path("resources/genes/aliases.csv"), Path("resources/genes/ensembl.csv")
CHECK = "baselines"
LARGEST_READ_MB = 100.0
"""Compressed files above this are not read to their end: it would take longer than a look should."""
_FEW = 5


@dataclass(frozen=True)
class Content:
    """What a bundle is about: its entities, in order, and the features that they share, with their other names."""

    entities: tuple[str, ...]
    features: Mapping[str, Sequence[str]]


def is_project() -> bool:
    """Whether this is the folder that a run starts from."""
    return Path("workflow/Snakefile").is_file()


def check_project() -> Checked[None]:
    """The files of the project that every run reads, and whether another run holds the folder."""
    if not is_project():
        step = "go to the project's folder, the one with workflow/Snakefile"
        yield fault("project", f"{Path.cwd()}: found no workflow/Snakefile", step)
        return
    readers = {
        ALIASES: read_aliases,
        ENSEMBL: read_ensembl,
        Path("config/portfolio.yaml"): load_portfolio,
        Path("resources/paper"): paper_tables,
    }
    findings = [found for path, read in readers.items() for found in tried("project", read, path)]
    yield from findings or [ok("project", "gene names, portfolio and the paper's tables can be read")]
    if any(Path(".snakemake/locks").glob("*")):
        step = "wait for that run; where it was killed, the next one takes its lock away by itself"
        yield warning("project", "Snakemake has locked this folder: a run is going on, or was killed", step)


@ends_with_errors("bundle")
def check_bundle(run: RunConfig) -> Checked[Content]:
    """The bundle of a run, and what it is about where it has no fault."""
    described, content, notes = _elicited(run) if run.bundle is None else _own(run.bundle)
    yield ok("bundle", f"{described}, {len(content.entities)} entities, {len(content.features)} features")
    yield from (warning("bundle", note) for note in notes)
    if run.top_k >= len(content.entities):
        smaller = len(content.entities) - 1
        found = f"top_k is {run.top_k}, and the top set will have {smaller}, one less than the entities"
        yield warning("bundle", found)
    return content


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


@ends_with_errors("cohort")
def check_cohort_file(run: RunConfig) -> Checked[CohortConfig | None]:
    """The cohort's file, with its simulation where it has one."""
    path = cohort_file(run, COHORTS)
    config = load_cohort_file(path)
    if isinstance(config, TableCohort):
        yield from _check_table(run, path, config)
        return None
    if config.origin == "simulated":
        simulation_config(config)
    yield ok("cohort", f"{path}: {config.title}")
    return config


def _check_table(run: RunConfig, path: Path, config: TableCohort) -> Iterator[Finding]:
    """Whether the table is there, can be encoded and has no gaps; labels are read too."""
    files = find_table(config, run.tables)
    encoded = encode_cohort(config, files)
    patients, features = encoded.values.shape
    if files.labels is not None:
        read_table_labels(files.labels, list(encoded.values.index), list(encoded.controls.index))
    yield ok("cohort", f"{path}: {config.title}, {patients} patients x {features} features")
    yield from (warning("cohort", note) for note in encoded.notes)
    if gaps := int(encoded.values.isna().to_numpy().sum()):
        told = f"{gaps:,} missing values in the table: a stage refuses them where the bundle has that feature"
        yield warning("cohort", told)


def check_labels(config: CohortConfig, entities: Sequence[str]) -> Checked[None]:
    """Whether label rules and bundle have entities in common."""
    rules = [entity for entity, rule in config.labels.items() if rule.off is None]
    unused = [entity for entity in rules if entity not in entities]
    if unused:
        shown = ", ".join(unused[:_FEW]) + (f" and {len(unused) - _FEW} more" if len(unused) > _FEW else "")
        yield warning("cohort", f"label rules that are not used, since the bundle has no such entity: {shown}")
    if len(unused) == len(rules):
        step = "add rules under `labels` of the cohort's file, if the series records any of the bundle's entities"
        yield warning("cohort", "no entity of the bundle has a label: clinical tables will be empty", step)


@ends_with_errors(CHECK)
def check_baselines(run: RunConfig, entities: Sequence[str]) -> Checked[None]:
    """Whether the settings of `baselines` can be carried out; `entities` are the bundle's, empty where not known."""
    settings = language_models(run)
    if settings.folder is None:
        yield ok(CHECK, "off: not live, and no record of answers to these settings")
        return
    unknown = [name for name in settings.entities if entities and name not in entities]
    if unknown:
        step = "name entities of the bundle, or leave the list empty for all"
        yield fault(CHECK, f"key baselines.entities: found {', '.join(unknown)}, which the bundle has not", step)
    load_study(settings.study)
    answers = sum(1 for _ in Record(settings.folder).entries()) if settings.folder.exists() else 0
    lacking: list[tuple[str, str]] = []
    if settings.live:
        needed = {BASE_URL: True, KEY: True, MODEL: not settings.model, EMAIL: "rag_llm" in settings.methods}
        lacking += _stopping(settings, [name for name, is_needed in needed.items() if is_needed])
        yield from (warning(CHECK, *told) for told in lacking)
    elif not answers:
        yield fault(CHECK, f"{settings.folder}: found no answer", "name a folder of answers, or set live")
    if not unknown and not lacking and (answers or settings.live):
        how = "asked for what it lacks" if settings.live else "replayed, and nothing is asked"
        yield ok(CHECK, f"{settings.folder}: {answers} answers, {how}")


@dataclass(frozen=True)
class Series:
    """Where a series stands: its sample descriptions, where they are at hand, and the addresses still to be fetched.

    `to_fetch` is None where a fault keeps it from being known.
    """

    samples: Source | None = None
    to_fetch: tuple[str, ...] | None = ()


def check_series(
    config: CohortConfig, *, mirror: Path | None, cache: Path, extract: Path | None = None
) -> Checked[Series]:
    """The series' files, looked for where the run will look for them."""
    if config.origin == "simulated":
        yield ok("series", "simulated by the run itself")
        if mirror is not None:
            yield warning("series", f"geo_mirror {mirror} is not used: this cohort is simulated")
        return Series()
    if mirror is not None:
        return (yield from _in_mirror(config, mirror, cache))
    if extract is None:
        return (yield from _in_cache(config, cache))
    source = yield from tried("series", lambda: fetch(config, cache=cache, extract=extract))
    if source is None:
        return Series(to_fetch=None)
    yield ok("series", f"{config.series}: the extract that the project carries, {extract}")
    return Series(source)


def check_genes(config: CohortConfig, series: Series, features: Names) -> Checked[None]:
    """Whether an extract carries what the cohort's file and the bundle need; `features` with their other names."""
    if series.samples is not None and series.samples.is_extract:
        yield from tried("series", _read_genes, config, series.samples, features)


def _read_genes(config: CohortConfig, samples: Source, features: Names) -> None:
    aliases, ensembl = read_aliases(ALIASES), read_ensembl(ENSEMBL)
    names = {name: (*others, *aliases.get(name, ())) for name, others in features.items()}
    read_values(config, samples, list(features), names, ensembl)


def _in_mirror(config: CohortConfig, mirror: Path, cache: Path) -> Checked[Series]:
    """Both files as the run would find them; the sample descriptions are of use even where the values are amiss."""
    if not mirror.is_dir():
        found = "a file" if mirror.exists() else "nothing"
        step = "correct geo_mirror (GEO_MIRROR for make), or leave it out to fetch the series from GEO"
        yield fault("series", f"geo_mirror {mirror}: found {found}; expected a folder in GEO's layout", step)
        return Series(to_fetch=None)
    folder = mirror / series_folder(config.series)
    present = [[place for place in choices if (folder / place.name).is_file()] for choices in places(config)]
    samples = _descriptions(config, folder, present[0][0]) if present[0] else None
    sizes = {path: path.stat().st_size / 1e6 for path in (folder / choices[0].name for choices in present if choices)}
    if all(present) and max(sizes.values()) > LARGEST_READ_MB:
        found = ", ".join(f"{path} ({size_text(size)})" for path, size in sizes.items())
        yield warning("series", f"{found}: there, but too large to be read to the end here; the run will")
        return Series(samples)
    source = yield from tried("series", lambda: fetch(config, cache=cache, mirror=mirror))
    if source is None:
        return Series(samples, to_fetch=None)
    parts = (source.metadata, source.expression)
    read = ", ".join(f"{part.path.name} ({size_text(part.bytes / 1e6)})" for part in parts)
    form = "as GEO has them" if source.expression.form == "mirror" else "joined tables"
    yield ok("series", f"{config.series} in {mirror}, whole: {read}, {form}")
    return Series(source)


def _in_cache(config: CohortConfig, cache: Path) -> Checked[Series]:
    """Files of the cache were whole when they came; a hash that the cohort's file gives is held against them."""
    folder = series_folder(config.series)
    wanted = [choices[0] for choices in places(config)]
    kept = [
        (cache / folder / name).is_file() and sha256 in {None, sha256_of(cache / folder / name)}
        for name, sha256, _ in wanted
    ]
    lacking = tuple(f"{GEO_URL}/{folder}/{quote(wanted[i].name)}" for i, there in enumerate(kept) if not there)
    place = f"{len(lacking)} of 2 files not in {cache} yet" if lacking else f"is in {cache}"
    yield ok("series", f"{config.series}{': ' if lacking else ' '}{place}")
    return Series(_descriptions(config, cache / folder, wanted[0]) if kept[0] else None, lacking)


def _descriptions(config: CohortConfig, folder: Path, place: Place) -> Source:
    """A source of which only the sample descriptions are to be read."""
    path = folder / place.name
    part = SourceFile(path, "", path.stat().st_size, place.form)
    return Source(config.series, part, part)


def check_network(to_fetch: Sequence[str], facts: Facts, *, ask: bool) -> Checked[float]:
    """What the run will fetch, asked for where `ask`; and the MB that are known to come."""
    if not to_fetch:
        yield ok("network", "the run fetches nothing")
        return 0.0
    if not ask:
        yield warning(
            "network", f"to be fetched, not asked for yet: {', '.join(to_fetch)}", "add --network to ask for them"
        )
        return 0.0
    with ThreadPoolExecutor(len(to_fetch)) as pool:
        replies = list(pool.map(facts.ask, to_fetch))
    for url, reply in zip(to_fetch, replies, strict=True):
        if reply.is_there:
            size = "size not given" if reply.size_mb is None else size_text(reply.size_mb)
            yield ok("network", f"{url}: {reply.said}, {size}")
        else:
            step = "check the network, its proxy and the file's name, or give geo_mirror"
            yield fault("network", f"{url}: {reply.said}", step)
    return sum(reply.size_mb or 0.0 for reply in replies)


@ends_with_errors("samples")
def check_samples(config: CohortConfig, run: RunConfig, series: Series, entities: Sequence[str]) -> Checked[int | None]:
    """Selection, controls and labels on the sample descriptions themselves; and the number of patients, where known."""
    if config.origin == "simulated":
        simulated = simulation_config(config)
        _check_controls(simulated.n_controls, config, run)
        found = f"{simulated.n_patients} patients and {simulated.n_controls} controls will be simulated"
        yield ok("samples", found)
        return simulated.n_patients
    if series.samples is None:
        if series.to_fetch is not None:
            yield ok("samples", "not at hand: selection and labels show only after the fetch")
        return None
    chosen = select(read_samples(series.samples), config)
    _check_controls(len(chosen.controls), config, run)
    labels = make_labels(chosen.samples.loc[list(chosen.patients)], config.labels, entities)
    found = f"{len(chosen.patients)} patients and {len(chosen.controls)} controls of {chosen.steps[0][1]} samples"
    counts = "; ".join(f"{name} {int((labels[name] == 1).sum())} of {labels[name].count()}" for name in labels)
    yield ok("samples", f"{found}; positive labels: {counts or 'none'}")
    return len(chosen.patients)


def _check_controls(n_controls: int, config: CohortConfig, run: RunConfig) -> None:
    """Encode one made-up gene: the encoding itself says whether its test can do with so many controls.

    Where the reference is the cohort itself, none are needed.
    """
    if (config.encoding.reference or run.encoding.reference) == "cohort":
        return
    values = pd.DataFrame([np.arange(n_controls + 1.0)], index=["any gene"])
    test, level = config.encoding.test or run.encoding.test, config.encoding.level or run.encoding.level
    encode(values, np.arange(n_controls + 1) < n_controls, test=test, level=level)
