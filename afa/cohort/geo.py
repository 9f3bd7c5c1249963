"""Fetch and read the two files of a GEO series: sample descriptions and expression values.

The files come from GEO, from a mirror (a copy of GEO's folders) or from an extract that is bundled with the project.
GEO could not be reached when this module was written, so the module was tested with local servers, with files generated
in GEO's layout, and with a mirror that contains parts of two series in GEO's format. Downloaded files are cached in the
same folders as on GEO, so a cache can be used as a mirror.

Files are downloaded over HTTPS by `afa.cohort.download`. The package GEOparse is not used for downloads, because it
uses FTP without a time limit, can leave a partial file, and accepts a partial file as complete (decisions.md D8).
GEOparse only reads the family SOFT file, which describes the samples and lists the supplementary files.

An extract is the part of a series that one bundle and one cohort file need: the genes of the bundle, and the sample
characteristics that the cohort file reads. Extracts of some series are bundled with the project. An extract consists of
three files. The file `samples.tsv` has one row for each sample, with the library size over *all* rows of the series.
The file `expression.tsv.gz` has the expression values of the extract's genes, in the order of the series. The file
`extract.yaml` contains the accession, the citation, the SHA-256 digests of the extract's files and of GEO's files, and
the row ids that the series lacks. A cohort built from an extract has the same values as a cohort built from the series.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote

import pandas as pd
import yaml

from afa.cohort.archive import read_listed, write_gzip
from afa.cohort.config import SOFT, CohortConfig, ExpressionSource, series_folder
from afa.cohort.download import check_intact, download
from afa.cohort.encode import Tiers, read_transcripts, row_ids
from afa.cohort.expression import Expression, read_gene_matrix, read_sample_files
from afa.cohort.samples import check_accessions, normal_key, read_family, read_series_matrix
from afa.errors import CohortError, Fault
from afa.io.csvfile import first_names, read_csv_table, read_header, visible
from afa.io.files import atomic_folder, sha256_of, write_text
from afa.io.yamlfile import Strict, load_model

GEO_URL = "https://ftp.ncbi.nlm.nih.gov/geo"
Form = Literal["geo", "mirror", "mirror_joined", "extract"]


@dataclass(frozen=True)
class SourceFile:
    """One input file, and its origin: GEO, a mirror's copy, a table that a mirror made, or an extract."""

    path: Path
    sha256: str
    bytes: int
    form: Form


@dataclass(frozen=True)
class Source:
    """The two files from which a cohort is built: sample descriptions and expression values."""

    series: str
    metadata: SourceFile
    expression: SourceFile

    @property
    def is_extract(self) -> bool:
        """Return True if the files are an extract of a series."""
        return self.expression.form == "extract"

    def write(self, path: Path) -> None:
        """Write the source as JSON, with paths relative to the folder in which the workflow runs."""
        write_text(path, json.dumps(asdict(self), indent=2, default=str) + "\n")

    @classmethod
    def read(cls, path: Path) -> Source:
        """Return the `Source` that `write` saved as JSON.

        If the content is invalid, or if a listed file is missing or has changed its size, a `CohortError` is raised.
        """
        step = "fetch the series again"
        source = read_listed(cls, path, "a source list of afa", step)
        for listed in (source.metadata, source.expression):
            where = f"{listed.path} (listed in {path})"
            try:
                found = f"{listed.path.stat().st_size} bytes"
            except OSError as error:
                found = error.strerror or str(error)
            if found != f"{listed.bytes} bytes":
                raise CohortError(Fault(where, found, f"{listed.bytes} bytes", step))
        return source


class FilePlace(NamedTuple):
    """A possible path of a file below the folder of a series.

    Parameters
    ----------
    name : path below the series' folder
    sha256 : required SHA-256, None to accept any
    form : origin of a file at this place

    """

    name: str
    sha256: str | None
    form: Form


def mirror_places(config: CohortConfig) -> tuple[list[FilePlace], list[FilePlace]]:
    """Return the possible paths of the sample descriptions and of the expression values in a mirror.

    Each list begins with the path of GEO's original file. If the config names a table that was joined from GEO's files,
    the path of this table comes second.
    """
    kind, values = "soft" if config.metadata_file.endswith(SOFT) else "matrix", config.expression
    of_samples = [FilePlace(f"{kind}/{config.metadata_file}", None, "mirror")]
    of_values = [FilePlace(f"suppl/{values.file}", values.sha256, "mirror")]
    if config.mirror_metadata_file is not None:
        of_samples.append(FilePlace(f"metadata/{config.mirror_metadata_file}", None, "mirror_joined"))
    if values.joined_file is not None:
        of_values.append(FilePlace(f"suppl/{values.joined_file}", values.joined_sha256, "mirror_joined"))
    return of_samples, of_values


def fetch(
    config: CohortConfig,
    *,
    cache: Path,
    mirror: Path | None = None,
    extract: Path | None = None,
    base_url: str = GEO_URL,
) -> Source:
    """Fetch the two files of a series from a bundled `extract`, from `mirror`, or from GEO.

    If a mirror contains both GEO's original file and a table that was joined from GEO's files, the original file is
    used. Files from GEO are saved in `cache`, in the same folders as on GEO. An incomplete file in `cache` is fetched
    again. If a family SOFT file lists supplementary files, the expression file must be among them. Every file must be
    complete. If the cohort file states a SHA-256 hash for a file of `mirror` or GEO, the file must have this hash.

    Raises
    ------
    DownloadError : a file could not be fetched, is damaged or has another hash.
    CohortError : a mirror lacks a file; the message has all paths searched.

    """
    if extract is not None:
        return _from_extract(config, extract)
    folder = series_folder(config.series)
    if mirror is not None:
        return _from_mirror(config, Path(mirror) / folder)
    if config.origin == "simulated":
        step = "write the simulated series first and give its folder as the mirror"
        raise CohortError(Fault(f"series {config.series}", "a simulated series and no folder", "its folder", step))

    def fetched(place: FilePlace) -> SourceFile:
        target = Path(cache) / folder / place.name
        download(f"{base_url.rstrip('/')}/{folder}/{quote(place.name)}", target, sha256=place.sha256)
        return SourceFile(target, sha256_of(target), target.stat().st_size, "geo")

    of_samples, of_values = (choices[0] for choices in mirror_places(config))
    metadata = fetched(of_samples)
    if metadata.path.name.endswith(SOFT):
        _check_supplementary_files(config, metadata.path)
    return Source(config.series, metadata, fetched(of_values))


def read_samples(source: Source) -> pd.DataFrame:
    """Return the samples of a series as a table of texts.

    The index contains GSM accessions, and the columns are `title` and the characteristics. A missing value is an empty
    text. The columns are the same for a series matrix and for a table that a mirror made from it. A mirror may have
    changed texts when it made its table: for example, `2` may have become `2.0`, and a literal `NA` may have become an
    empty text. If the layout of a table is unknown, a `CohortError` is raised.
    """
    path = source.metadata.path
    if source.metadata.form == "extract":
        return _read_joined_samples(path).drop(columns=LIBRARY_SIZE, errors="ignore")
    if source.metadata.form == "mirror_joined":
        return _read_joined_samples(path)
    return read_family(path).samples if path.name.endswith(SOFT) else read_series_matrix(path)


def read_expression(
    source: Source, config: ExpressionSource, samples: pd.DataFrame, wanted: Collection[str]
) -> Expression:
    """Return the expression values in the rows `wanted`, for all samples in the order of `samples`.

    Columns of the file are matched to samples by name. Negative values are allowed only if the unit is log2.

    Parameters
    ----------
    samples : all rows of `read_samples`, or a selection
    wanted : row ids, as in the file

    Raises
    ------
    CohortError : a file cannot be read, or its columns do not match the samples.

    """
    path = source.expression.path
    if not len(samples):
        step = "loosen the selection in the cohort's config"
        raise CohortError(Fault(f"samples of {source.series}", "none selected", "at least one", step))
    joined = source.expression.form in {"mirror_joined", "extract"}
    of_transcripts = not joined and config.transcripts is not None
    transcripts = read_transcripts(path.parent / str(config.transcripts)) if of_transcripts else {}
    if config.layout == "sample_files" and not joined:
        return read_sample_files(path, list(samples.index), wanted, config, transcripts)
    # The columns of joined tables and of extracts are named by accession, even if GEO's own matrix has other column
    # names.
    by_accession = joined or config.sample_column == "accession"
    names = samples.index if by_accession else samples["title"].str.split(",", n=1).str[0].str.strip()
    columns, gene_column = dict(zip(samples.index, names, strict=True)), None if joined else config.gene_column
    read = read_gene_matrix(
        path,
        columns,
        wanted,
        unit=config.unit,
        row_ids=config.row_ids,
        gene_column=gene_column,
        transcripts=transcripts,
    )
    if source.is_extract:
        sizes = _read_joined_samples(source.metadata.path)[LIBRARY_SIZE].map(float)
        return replace(read, library_size=sizes.reindex(pd.Index(list(samples.index), name="sample")))
    return read


def _check_supplementary_files(config: CohortConfig, path: Path) -> None:
    """Raise a `CohortError` if the family SOFT file lists supplementary files but not the expression file."""
    listed = read_family(path).supplementary
    if listed and config.expression.file not in listed:
        found = f"supplementary files {first_names(listed)}, and no {config.expression.file}"
        step = "correct `expression.file` in the cohort's file"
        raise CohortError(Fault(str(path), found, "the file with the expression values among them", step))


def _from_extract(config: CohortConfig, folder: Path) -> Source:
    card = read_card(folder)
    if card.series != config.series:
        expected, step = f"an extract of {config.series}", "correct the path, or `series` in the cohort's file"
        raise CohortError(Fault(str(folder / EXTRACT_FILE), f"series {card.series}", expected, step))
    files, step = [], "restore the file, or make the extract again with `afa cohort extract`"
    for name in (SAMPLES_FILE, EXPRESSION_FILE):
        path = folder / name
        digest = check_intact(path, card.digests.get(name, f"in {EXTRACT_FILE}"), step)
        files.append(SourceFile(path, digest, path.stat().st_size, "extract"))
    return Source(config.series, *files)


def _from_mirror(config: CohortConfig, folder: Path) -> Source:
    wanted = [[(folder / name, sha256, form) for name, sha256, form in choices] for choices in mirror_places(config)]
    try:
        found = [next((choice for choice in choices if choice[0].is_file()), None) for choices in wanted]
    except OSError as error:
        reason = error.strerror or str(error)
        raise CohortError(Fault(str(folder), reason, "a folder that can be read", "correct its permissions")) from None
    step = "put one of these files there, or leave GEO_MIRROR out to fetch the series from GEO"
    faults = [
        Fault(" or ".join(str(path) for path, _, _ in choices), "no such file", "one of them in the mirror", step)
        for choices, choice in zip(wanted, found, strict=True)
        if choice is None
    ]
    CohortError.raise_for(faults)
    files = []
    for path, sha256, form in filter(None, found):
        files.append(SourceFile(path, check_intact(path, sha256), path.stat().st_size, form))
    return Source(config.series, *files)


def _read_joined_samples(path: Path) -> pd.DataFrame:
    """Read a mirror's table of samples. The samples' accessions are in the column `gsm` or `sample_id`.

    If the column `gsm` precedes the column `title`, all columns after `title` are dropped, because they are not from
    GEO.
    """
    header = read_header(path)
    read = read_csv_table(path, required=header or ["sample_id", "title"], whole_rows=True, brief=True)
    CohortError.raise_for(read.faults.listed())
    keys = [normal_key(name) for name in header]
    accession = next((name for name in ("gsm", "sample_id") if name in keys), None)
    if accession is None or "title" not in keys or len(set(keys)) < len(keys):
        found = f"columns {first_names(header)} ({len(keys)}, {len(set(keys))} of them different)"
        expected, step = "`title`, `sample_id` or `gsm`, and no column twice", "correct it, or use the series matrix"
        raise CohortError(Fault(f"{path}, header", found, expected, step))
    table = pd.DataFrame(dict(zip(keys, read.columns.values(), strict=True)), dtype=str)
    if accession == "gsm" and keys.index("gsm") < keys.index("title"):
        table = table[keys[: keys.index("title") + 1]]
    samples = check_accessions(path, table.set_index(accession).rename_axis(index="sample"))
    return samples[["title", *samples.columns.drop("title")]]


SAMPLES_FILE = "samples.tsv"
EXPRESSION_FILE = "expression.tsv.gz"
EXTRACT_FILE = "extract.yaml"
ACCESSION, LIBRARY_SIZE = "sample_id", "library_size"
FETCH = "fetch the series instead: SOURCE=geo, or GEO_MIRROR=folder for a copy in GEO's layout"
"""Next step if an extract lacks what the cohort needs."""


class Card(Strict):
    """The content of `extract.yaml`.

    Parameters
    ----------
    rows : number of rows of the series' file
    absent : row ids that the series lacks

    """

    series: str
    title: str
    citation: str | None
    genes_of: str
    rows: int
    absent: tuple[str, ...]
    taken_from: tuple[dict[str, str], ...]
    digests: dict[str, str]


def read_card(folder: Path) -> Card:
    """Return the validated content of an extract's `extract.yaml`.

    If the file is missing or invalid, a `ConfigError` is raised.
    """
    return load_model(folder / EXTRACT_FILE, Card)


def write_extract(
    folder: Path,
    config: CohortConfig,
    samples: pd.DataFrame,
    expression: Expression,
    tiers: Tiers,
    *,
    genes_of: str,
    taken_from: Sequence[Mapping[str, str]],
) -> None:
    """Write an extract of a series: all samples, and the genes that one cohort needs.

    The extract is written completely or not at all. The same input always gives the same bytes.

    Parameters
    ----------
    samples, expression : results of `read_samples` and `read_expression`, for all samples and the rows of `tiers`
    tiers : candidate row ids of each feature
    genes_of : name of the bundle with these features
    taken_from : the series' files; if one of the files is an extract, a `CohortError` is raised

    """
    if any(entry["form"] == "extract" for entry in taken_from):
        where = f"extract of {config.series}"
        raise CohortError(Fault(where, "an extract as its source", "the series itself", FETCH))
    keys = [key for key in ("title", *keys_read(config)) if key in samples.columns]
    table = samples[keys].rename_axis(ACCESSION).reset_index()
    table[LIBRARY_SIZE] = [repr(float(size)) for size in expression.library_size.loc[samples.index]]
    present = set(map(str, expression.values.index))
    with atomic_folder(folder, [EXTRACT_FILE, SAMPLES_FILE, EXPRESSION_FILE], EXTRACT_FILE) as temporary:
        rows = ("\t".join(map(_tsv_cell, row)) + "\n" for row in [list(table), *table.itertuples(index=False)])
        (temporary / SAMPLES_FILE).write_text("".join(rows), encoding="utf-8", newline="\n")
        write_gzip(temporary / EXPRESSION_FILE, _expression_lines(expression.values[list(samples.index)]))
        card = Card(
            series=config.series,
            title=config.title,
            citation=config.citation,
            genes_of=genes_of,
            rows=expression.n_rows,
            absent=tuple(sorted(row_ids(tiers) - present)),
            taken_from=tuple(dict(entry) for entry in taken_from),
            digests={name: sha256_of(temporary / name) for name in (SAMPLES_FILE, EXPRESSION_FILE)},
        )
        text = yaml.safe_dump(card.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=100)
        (temporary / EXTRACT_FILE).write_text(text, encoding="utf-8")


def check_keys(folder: Path, config: CohortConfig, samples: pd.DataFrame) -> None:
    """Raise a `CohortError` if the extract lacks a sample characteristic that the cohort's config uses."""
    if lost := [key for key in keys_read(config) if key not in samples.columns]:
        found = f"no characteristic {', '.join(map(visible, lost))}"
        expected = "those that the cohort's file reads"
        raise CohortError(Fault(f"{folder}, an extract of {config.series}", found, expected, FETCH))


def check_genes(folder: Path, rows: Iterable[str], tiers: Tiers) -> None:
    """Raise a `CohortError` if the extract does not cover all features.

    A feature is covered if the extract and the complete series give the same row for the feature. If even the complete
    series has no row for a feature, the feature causes no error. `extract.yaml` lists the row ids that the series
    lacks.

    Parameters
    ----------
    rows : row ids of the extract, among those in `tiers`

    """
    card = read_card(folder)
    present = set(rows)
    outside = [
        feature for feature, choices in tiers.items() if not _is_feature_covered(choices, present, set(card.absent))
    ]
    if outside:
        found = f"no values of {len(outside)} of {len(tiers)} features: {first_names(outside)}"
        expected = f"genes of the bundle {card.genes_of}, which is all that is carried"
        step = f"{FETCH}; or try the bundle on COHORT=demo, which is simulated for any"
        raise CohortError(Fault(f"{folder}, an extract of {card.series}", found, expected, step))


def keys_read(config: CohortConfig) -> tuple[str, ...]:
    """Return the characteristics, except `title`, that the cohort file uses to select, group and label samples."""
    select = config.select
    one_per = select.one_per
    keys = [rule.source for rule in select.derive.values()]
    keys += [*select.keep, *select.drop, config.controls.key, config.patients.key]
    keys += [one_per.key, *one_per.prefer, *([one_per.then] if one_per.then else [])] if one_per else []
    keys += [rule.key for rule in config.labels.values()]
    return tuple(key for key in dict.fromkeys(keys) if key != "title" and key not in select.derive)


def _is_feature_covered(choices: Sequence[Sequence[str]], present: set[str], absent: set[str]) -> bool:
    for tier in choices:
        if not set(tier) <= present | absent:
            return False
        if present.intersection(tier):
            return True
    return bool(choices)


def _tsv_cell(text: str) -> str:
    """Return a cell of a tab-separated table, quoted if necessary.

    The module `csv` is not used, because in Python 3.11 it does not quote a lone carriage return.
    """
    return f'"{text.replace(chr(34), 2 * chr(34))}"' if set(text) & set('\t\r\n"') else text


def _expression_lines(values: pd.DataFrame) -> Iterator[str]:
    """Yield the rows as tab-separated text.

    Each number is written with the fewest digits from which exactly the same number can be read.
    """
    yield "\t".join(["row", *values.columns]) + "\n"
    for row_id, row in zip(values.index, values.to_numpy().tolist(), strict=True):
        yield "\t".join([str(row_id), *(repr(value).removesuffix(".0") for value in row)]) + "\n"
