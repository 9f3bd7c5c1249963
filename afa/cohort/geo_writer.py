"""A simulated cohort written as GEO distributes a series, so that it is fetched, parsed and encoded like a real one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from afa.cohort.archive import write_gzip
from afa.cohort.config import CohortConfig
from afa.cohort.geo import series_folder
from afa.cohort.simulate import SimulatedCohort, Truth
from afa.errors import CohortError, Fault
from afa.files import atomic_folder

TRUTH = "truth"
NOTICE = "Simulated by afa: no patient, no GEO record"


def write_geo_layout(cohort: SimulatedCohort, config: CohortConfig, folder: Path) -> None:
    """Write the series matrix, the count matrix and the truth; the same cohort gives the same bytes.

    An existing `folder` is replaced, unless it holds another series: then `CohortError`.
    """
    place = Path(series_folder(config.series))
    _refuse_foreign(folder, place)
    with atomic_folder(folder) as temporary:
        series = temporary / place
        write_gzip(series / "matrix" / config.metadata_file, _series_matrix(cohort.samples, config))
        write_gzip(series / "suppl" / config.expression.file, _count_matrix(cohort.counts))
        _write_truth(cohort.truth, temporary / TRUTH)
        (temporary / TRUTH / "simulation.json").write_text(cohort.config.model_dump_json(indent=2) + "\n")


def _refuse_foreign(folder: Path, place: Path) -> None:
    foreign = [path for path in folder.glob("*") if path.name not in (place.parts[0], TRUTH)]
    foreign += [path for path in folder.glob("series/*/*") if path != folder / place]
    if foreign:
        step = "give an empty folder; a mirror of real series must not be overwritten"
        raise CohortError(Fault(str(folder), str(foreign[0]), f"nothing but {place} and {TRUTH}", step))


def _series_matrix(samples: pd.DataFrame, config: CohortConfig) -> Iterator[str]:
    """Lines of a GEO series matrix whose table has no row, as series with supplementary counts have."""
    accessions = list(samples.index)
    for key, value in {
        "title": config.title,
        "geo_accession": config.series,
        "status": NOTICE,
        "summary": NOTICE,
        "type": "Expression profiling by high throughput sequencing",
        "sample_id": " ".join(accessions) + " ",
        "supplementary_file": config.expression.file,
    }.items():
        yield _line(f"!Series_{key}", [value])
    yield "\n"
    for key, values in {
        "title": samples["title"].tolist(),
        "geo_accession": accessions,
        "status": [NOTICE] * len(samples),
        "type": ["SRA"] * len(samples),
        "channel_count": ["1"] * len(samples),
        "source_name_ch1": ["Biopsy"] * len(samples),
        "organism_ch1": ["Homo sapiens"] * len(samples),
    }.items():
        yield _line(f"!Sample_{key}", values)
    for key in samples.columns.drop("title"):
        yield _line("!Sample_characteristics_ch1", (f"{key}: {value}" for value in samples[key]))
    yield _line("!Sample_molecule_ch1", ["total RNA"] * len(samples))
    yield _line("!Sample_data_row_count", ["0"] * len(samples))
    yield "!series_matrix_table_begin\n"
    yield "\t".join(f'"{value}"' for value in ["ID_REF", *accessions]) + "\n"
    yield "!series_matrix_table_end\n"


def _line(key: str, values: Iterable[str]) -> str:
    return "\t".join([key, *(f'"{value}"' for value in values)]) + "\n"


def _count_matrix(counts: pd.DataFrame) -> Iterator[str]:
    """Lines as R's `write.table` leaves them: one space, names in double quotes, no header above the row names."""
    yield " ".join(f'"{name}"' for name in counts.columns) + "\n"
    for gene, row in zip(counts.index, counts.to_numpy().tolist(), strict=True):
        yield f'"{gene}" ' + " ".join(map(str, row)) + "\n"


def _write_truth(truth: Truth, folder: Path) -> None:
    folder.mkdir()
    truth.effects.to_csv(folder / "effects.csv", index=False, float_format="%.9g")
    truth.genes.to_csv(folder / "genes.csv", float_format="%.9g")
    truth.people.to_csv(folder / "people.csv", float_format="%.9g")
    truth.labels.to_csv(folder / "labels.csv")
