"""Generators of files in the layouts that GEO has, small enough to check by eye."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from afa.cohort.config import CohortConfig, ExpressionSource
from afa.cohort.geo import Source, SourceFile, series_folder
from afa.io.files import sha256_of

Rows = Sequence[tuple[str, Sequence[object]]]


def config(**changes: Any) -> CohortConfig:
    """A cohort config of a small made-up series, with the given keys replaced."""
    return CohortConfig.model_validate(
        {
            "name": "small",
            "title": "A small series",
            "series": "GSE123456",
            "expression": {
                "layout": "sample_files",
                "file": "GSE123456_RAW.tar",
                "joined_file": "GSE123456_TPM_matrix.txt.gz",
                "unit": "tpm",
            },
            "metadata_file": "GSE123456_series_matrix.txt.gz",
            "mirror_metadata_file": "GSE123456_metadata.tsv",
            "controls": {"key": "diagnosis", "values": ["Control"]},
            "patients": {"key": "diagnosis", "values": ["UC"]},
            **changes,
        }
    )


def series_matrix(
    accessions: Sequence[str],
    titles: Sequence[str],
    characteristics: Sequence[Sequence[str]],
    table: Rows = (),
    *,
    end: str = "!series_matrix_table_end\n",
) -> str:
    """The text of a series matrix: one list of cells for each line of characteristics."""
    lines = [
        '!Series_title\t"Rectal biopsies"',
        '!Series_geo_accession\t"GSE123456"',
        '!Series_relation\t"BioProject: https://example.org/PRJ1"',
        '!Series_relation\t"SRA: https://example.org/SRP1"',
        "",
        _line("!Sample_title", titles),
        _line("!Sample_geo_accession", accessions),
        _line("!Sample_status", ["Public on Sep 16 2022"] * len(accessions)),
        *(_line("!Sample_characteristics_ch1", cells) for cells in characteristics),
        _line("!Sample_data_row_count", [str(len(table))] * len(accessions)),
        "!series_matrix_table_begin",
        _line('"ID_REF"', accessions),
        *("\t".join([f'"{row_id}"', *map(str, values)]) for row_id, values in table),
    ]
    return "\n".join(lines) + "\n" + end


def family_soft(
    samples: Mapping[str, tuple[str, Sequence[str], Rows]], *, supplementary: Sequence[str] = (), channel: int = 1
) -> str:
    """The text of a family SOFT file: sample -> title, characteristics of a channel, table of VALUE."""
    folder = "ftp://ftp.ncbi.nlm.nih.gov/geo/series/GSE123nnn/GSE123456/suppl"
    lines = [
        "^DATABASE = GeoMiame",
        "!Database_name = Gene Expression Omnibus (GEO)",
        "^SERIES = GSE123456",
        "!Series_title = Rectal biopsies",
        "!Series_geo_accession = GSE123456",
        *(f"!Series_sample_id = {name}" for name in samples),
        *(f"!Series_supplementary_file = {folder}/{quote(name)}" for name in supplementary),
        "^PLATFORM = GPL16791",
        "!Platform_title = Illumina HiSeq 2500",
    ]
    for name, (title, characteristics, rows) in samples.items():
        lines += [f"^SAMPLE = {name}", f"!Sample_title = {title}", f"!Sample_geo_accession = {name}"]
        lines += [f"!Sample_characteristics_ch{channel} = {cell}" for cell in characteristics]
        lines += [f"!Sample_data_row_count = {len(rows)}"]
        if rows:
            lines += ["#ID_REF = ", "#VALUE = log2 signal", "!sample_table_begin", "ID_REF\tVALUE"]
            lines += ["\t".join([row_id, *map(str, values)]) for row_id, values in rows]
            lines += ["!sample_table_end"]
    return "\n".join(lines) + "\n"


def gene_matrix(
    names: Sequence[str], rows: Rows, *, separator: str = "\t", quoted: bool = False, corner: str | None = "Gene"
) -> str:
    """The text of a genes x samples table; without `corner` the header is one field short, as R writes it."""
    mark = '"' if quoted else ""
    header = ([corner] if corner is not None else []) + list(names)
    lines = [separator.join(f"{mark}{name}{mark}" for name in header)]
    lines += [separator.join([f"{mark}{row_id}{mark}", *map(str, values)]) for row_id, values in rows]
    return "\n".join(lines) + "\n"


def sample_text(label: str, rows: Iterable[tuple[str, object]], *, corner: str = "Gene") -> bytes:
    """The text of one sample's two-column file."""
    return "".join(f"{row_id}\t{value}\n" for row_id, value in [(corner, label), *rows]).encode()


def raw_tar(members: Iterable[tuple[str, bytes]]) -> bytes:
    """An archive as GEO's `_RAW.tar`, of members given as they are (not compressed here)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members:
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    return buffer.getvalue()


def put(path: Path, content: str | bytes) -> Path:
    """Write a file and its folders; text goes in compressed where the name ends with .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        content = content.encode()
        content = gzip.compress(content, mtime=0) if path.suffix == ".gz" else content
    path.write_bytes(content)
    return path


def place(root: Path, cohort: CohortConfig, name: str) -> Path:
    """Where `name` lies in a folder of GEO's layout."""
    return root / series_folder(cohort.series) / name


def described(path: Path, form: str = "geo") -> SourceFile:
    return SourceFile(path, sha256_of(path), path.stat().st_size, form)


def source(expression: Path, *, form: str = "geo", metadata: Path | None = None) -> Source:
    """A source of one expression file, for readers that look at nothing else."""
    file = described(expression, form)
    return Source("GSE123456", file if metadata is None else described(metadata), file)


def expression_source(**keys: Any) -> ExpressionSource:
    return ExpressionSource.model_validate({"layout": "count_matrix", "file": "x.txt.gz", "unit": "counts", **keys})


def _line(name: str, cells: Sequence[str]) -> str:
    return "\t".join([name, *(f'"{cell}"' for cell in cells)])
