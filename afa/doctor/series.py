"""The series behind a cohort: whether its files are in the mirror or the cache, and what its samples come to."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pandas as pd

from afa.cohort.build import read_values
from afa.cohort.config import CohortConfig, simulation_config
from afa.cohort.encode import Names, encode, read_aliases, read_ensembl
from afa.cohort.geo import GEO_URL, Place, Source, SourceFile, fetch, places, read_samples, series_folder
from afa.cohort.samples import make_labels, select
from afa.config import RunConfig
from afa.doctor.facts import Facts, Finding, fault, of_error, ok, size_text, warning
from afa.errors import AfaError
from afa.files import sha256_of

ALIASES, ENSEMBL = Path("resources/genes/aliases.csv"), Path("resources/genes/ensembl.csv")
LARGEST_READ_MB = 100.0
"""Compressed files above this are not read to their end: it would take longer than a look should."""


@dataclass(frozen=True)
class Series:
    """Where a series stands: its sample descriptions, where they are at hand, and the addresses still to be fetched.

    `to_fetch` is None where a fault keeps it from being known.
    """

    samples: Source | None = None
    to_fetch: tuple[str, ...] | None = ()


def check_series(
    config: CohortConfig, *, mirror: Path | None, cache: Path, extract: Path | None = None
) -> tuple[list[Finding], Series]:
    """The series' files, looked for where the run will look for them."""
    if config.origin == "simulated":
        findings = [ok("series", "simulated by the run itself")]
        if mirror is not None:
            findings.append(warning("series", f"geo_mirror {mirror} is not used: this cohort is simulated"))
        return findings, Series()
    if mirror is not None:
        return _in_mirror(config, mirror, cache)
    if extract is not None:
        try:
            source = fetch(config, cache=cache, extract=extract)
        except AfaError as error:
            return of_error("series", error), Series(to_fetch=None)
        return [ok("series", f"{config.series}: the extract that the project carries, {extract}")], Series(source)
    return _in_cache(config, cache)


def check_genes(config: CohortConfig, series: Series, features: Names) -> list[Finding]:
    """Whether an extract carries what the cohort's file and the bundle need; `features` with their other names."""
    if series.samples is None or not series.samples.is_extract:
        return []
    try:
        aliases, ensembl = read_aliases(ALIASES), read_ensembl(ENSEMBL)
        names = {name: (*others, *aliases.get(name, ())) for name, others in features.items()}
        read_values(config, series.samples, list(features), names, ensembl)
    except AfaError as error:
        return of_error("series", error)
    return []


def _in_mirror(config: CohortConfig, mirror: Path, cache: Path) -> tuple[list[Finding], Series]:
    """Both files as the run would find them; the sample descriptions are of use even where the values are amiss."""
    if not mirror.is_dir():
        found = "a file" if mirror.exists() else "nothing"
        step = "correct geo_mirror (GEO_MIRROR for make), or leave it out to fetch the series from GEO"
        wrong = fault("series", f"geo_mirror {mirror}: found {found}; expected a folder in GEO's layout", step)
        return [wrong], Series(to_fetch=None)
    folder = mirror / series_folder(config.series)
    present = [[place for place in choices if (folder / place.name).is_file()] for choices in places(config)]
    samples = _descriptions(config, folder, present[0][0]) if present[0] else None
    paths = [folder / choices[0].name for choices in present if choices]
    if all(present) and max(map(_size_mb, paths)) > LARGEST_READ_MB:
        found = ", ".join(f"{path} ({size_text(_size_mb(path))})" for path in paths)
        note = warning("series", f"{found}: there, but too large to be read to the end here; the run will")
        return [note], Series(samples)
    try:
        source = fetch(config, cache=cache, mirror=mirror)
    except AfaError as error:
        return of_error("series", error), Series(samples, to_fetch=None)
    parts = (source.metadata, source.expression)
    read = ", ".join(f"{part.path.name} ({size_text(part.bytes / 1e6)})" for part in parts)
    form = "as GEO has them" if source.expression.form == "mirror" else "joined tables"
    return [ok("series", f"{config.series} in {mirror}, whole: {read}, {form}")], Series(source)


def _in_cache(config: CohortConfig, cache: Path) -> tuple[list[Finding], Series]:
    """Files of the cache were whole when they came; a hash that the cohort's file gives is held against them."""
    folder = series_folder(config.series)
    wanted = [choices[0] for choices in places(config)]
    kept = [
        (cache / folder / name).is_file() and sha256 in {None, sha256_of(cache / folder / name)}
        for name, sha256, _ in wanted
    ]
    lacking = tuple(f"{GEO_URL}/{folder}/{quote(wanted[i].name)}" for i, there in enumerate(kept) if not there)
    samples = _descriptions(config, cache / folder, wanted[0]) if kept[0] else None
    if lacking:
        return [ok("series", f"{config.series}: {len(lacking)} of 2 files not in {cache} yet")], Series(
            samples, lacking
        )
    return [ok("series", f"{config.series} is in {cache}")], Series(samples)


def _descriptions(config: CohortConfig, folder: Path, place: Place) -> Source:
    """A source of which only the sample descriptions are to be read."""
    path = folder / place.name
    part = SourceFile(path, "", path.stat().st_size, place.form)
    return Source(config.series, part, part)


def _size_mb(path: Path) -> float:
    return path.stat().st_size / 1e6


def check_network(to_fetch: Sequence[str], facts: Facts, *, ask: bool) -> tuple[list[Finding], float]:
    """What the run will fetch, asked for where `ask`; and the MB that are known to come."""
    if not to_fetch:
        return [ok("network", "the run fetches nothing")], 0.0
    if not ask:
        step = "add --network to ask for them"
        return [warning("network", f"to be fetched, not asked for yet: {', '.join(to_fetch)}", step)], 0.0
    with ThreadPoolExecutor(len(to_fetch)) as pool:
        replies = list(pool.map(facts.ask, to_fetch))
    findings = []
    for url, reply in zip(to_fetch, replies, strict=True):
        if reply.is_there:
            size = "size not given" if reply.size_mb is None else size_text(reply.size_mb)
            findings.append(ok("network", f"{url}: {reply.said}, {size}"))
        else:
            step = "check the network, its proxy and the file's name, or give geo_mirror"
            findings.append(fault("network", f"{url}: {reply.said}", step))
    return findings, sum(reply.size_mb or 0.0 for reply in replies)


def check_samples(
    config: CohortConfig, run: RunConfig, series: Series, entities: Sequence[str]
) -> tuple[list[Finding], int | None]:
    """Selection, controls and labels on the sample descriptions themselves; and the number of patients, where known."""
    try:
        if config.origin == "simulated":
            simulated = simulation_config(config)
            _check_controls(simulated.n_controls, config, run)
            found = f"{simulated.n_patients} patients and {simulated.n_controls} controls will be simulated"
            return [ok("samples", found)], simulated.n_patients
        if series.samples is None:
            if series.to_fetch is None:
                return [], None
            return [ok("samples", "not at hand: selection and labels show only after the fetch")], None
        chosen = select(read_samples(series.samples), config)
        _check_controls(len(chosen.controls), config, run)
        labels = make_labels(chosen.samples.loc[list(chosen.patients)], config.labels, entities)
    except AfaError as error:
        return of_error("samples", error), None
    found = f"{len(chosen.patients)} patients and {len(chosen.controls)} controls of {chosen.steps[0][1]} samples"
    counts = "; ".join(f"{name} {int((labels[name] == 1).sum())} of {labels[name].count()}" for name in labels)
    return [ok("samples", f"{found}; positive labels: {counts or 'none'}")], len(chosen.patients)


def _check_controls(n_controls: int, config: CohortConfig, run: RunConfig) -> None:
    """Encode one made-up gene: the encoding itself says whether its test can do with so many controls.

    Where the reference is the cohort itself, none are needed.
    """
    if (config.encoding.reference or run.encoding.reference) == "cohort":
        return
    values = pd.DataFrame([np.arange(n_controls + 1.0)], index=["any gene"])
    test, level = config.encoding.test or run.encoding.test, config.encoding.level or run.encoding.level
    encode(values, np.arange(n_controls + 1) < n_controls, test=test, level=level)
