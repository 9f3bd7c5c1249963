"""Extracts of series: the same numbers as from the whole series, and a clear word where they are not enough."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from geo_layout import config, gene_matrix, place, put, series_matrix

from afa.cohort import geo
from afa.cohort.build import build_cohort, origin_files, read_values, row_tiers
from afa.cohort.cohort import write_cohort
from afa.cohort.config import CohortConfig, load_cohort_config
from afa.cohort.encode import log_values, read_aliases, row_ids
from afa.cohort.geo import EXPRESSION_FILE, SAMPLES_FILE, check_genes, write_extract
from afa.errors import CohortError, DownloadError
from afa.io.files import sha256_of
from afa.model.bundle import Bundle

ROOT = Path(__file__).parents[2]
CARRIED = ROOT / "resources" / "series"
ALIASES = ROOT / "resources" / "genes" / "aliases.csv"
SAMPLES = [f"GSM{number}" for number in range(1, 26)]
ROWS = [
    ("IL8", range(10, 35)),
    ("MUC2", range(50, 0, -2)),
    ("MUC2", [7] * 25),
    ("REST", [900 + 40 * i for i in range(25)]),
    ("DUOX2", [i % 7 for i in range(25)]),
]
ENTITIES = ["fever"]
OTHER_NAMES: Mapping[str, tuple[str, ...]] = {"CXCL8": ("IL8",)}


def counted(**changes: Any) -> CohortConfig:
    """A series of counts, of which 20 samples are controls."""
    source = {"layout": "count_matrix", "file": "GSE123456_counts.txt.gz", "unit": "counts"}
    labels = {"fever": {"key": "hot", "positive": ["yes"], "negative": ["no"], "reason": "made up"}}
    return config(expression=source, labels=labels, **changes)


@pytest.fixture
def series(tmp_path: Path) -> geo.Source:
    """The whole series, in GEO's layout."""
    cells = [
        ["diagnosis: Control"] * 20 + ["diagnosis: UC"] * 5,
        ["hot: no"] * 23 + ["hot: yes"] * 2,
        [f"age: {number}" for number in range(25)],
    ]
    root, cohort = tmp_path / "mirror", counted()
    titles = ['"a" b'] + [f"biopsy, {name}" for name in SAMPLES[1:]]
    put(place(root, cohort, "matrix/GSE123456_series_matrix.txt.gz"), series_matrix(SAMPLES, titles, cells))
    put(place(root, cohort, "suppl/GSE123456_counts.txt.gz"), gene_matrix(SAMPLES, ROWS))
    return geo.fetch(cohort, cache=tmp_path, mirror=root)


def extract_of(source: geo.Source, folder: Path, features: list[str], cohort: CohortConfig | None = None) -> Path:
    cohort = cohort or counted()
    tiers = row_tiers(cohort, features, OTHER_NAMES, {})
    samples = geo.read_samples(source)
    values = geo.read_expression(source, cohort.expression, samples, row_ids(tiers))
    write_extract(folder, cohort, samples, values, tiers, genes_of="small", taken_from=origin_files(source))
    return folder


def fetched(folder: Path, cohort: CohortConfig | None = None) -> geo.Source:
    return geo.fetch(cohort or counted(), cache=folder, extract=folder)


def test_values_libraries_and_labels_are_those_of_the_whole_series(series: geo.Source, tmp_path: Path) -> None:
    features = ["CXCL8", "MUC2"]
    small = fetched(extract_of(series, tmp_path / "extract", features))
    one, other = (read_values(counted(), source, features, OTHER_NAMES, {}) for source in (series, small))
    pd.testing.assert_frame_equal(
        log_values(one[2].values, "counts", one[2].library_size),
        log_values(other[2].values, "counts", other[2].library_size),
        check_exact=True,
    )
    assert other[2].library_size["GSM1"] == 10 + 50 + 7 + 900 + 0
    assert list(other[0].samples["title"]) == list(one[0].samples["title"])
    cohorts = [build_cohort(counted(), source, features, ENTITIES, aliases=OTHER_NAMES) for source in (series, small)]
    assert (cohorts[0].values == cohorts[1].values).all()
    assert cohorts[0].labels.equals(cohorts[1].labels)
    assert [entry["file"] for entry in cohorts[1].provenance["files"]] == [
        SAMPLES_FILE,
        EXPRESSION_FILE,
        "GSE123456_series_matrix.txt.gz",
        "GSE123456_counts.txt.gz",
    ]


def test_only_the_genes_and_the_characteristics_that_are_read_are_carried(series: geo.Source, tmp_path: Path) -> None:
    folder = extract_of(series, tmp_path / "extract", ["CXCL8", "MUC2", "TNF"])
    lines = gzip.decompress((folder / EXPRESSION_FILE).read_bytes()).decode().splitlines()
    assert [line.split("\t")[0] for line in lines] == ["row", "IL8", "MUC2", "MUC2"]
    header = (folder / SAMPLES_FILE).read_text().splitlines()[0]
    assert header.split("\t") == ["sample_id", "title", "diagnosis", "hot", "library_size"]
    card = yaml.safe_load((folder / "extract.yaml").read_text())
    assert (card["rows"], card["absent"]) == (5, ["CXCL8", "TNF"])
    assert [entry["sha256"] for entry in card["taken_from"]] == [series.metadata.sha256, series.expression.sha256]


def test_a_gene_that_is_not_carried_is_named_with_the_way_to_fetch(series: geo.Source, tmp_path: Path) -> None:
    small = fetched(extract_of(series, tmp_path / "extract", ["CXCL8", "TNF"]))
    with pytest.raises(CohortError) as raised:
        build_cohort(counted(), small, ["CXCL8", "DUOX2", "MUC2"], ENTITIES, aliases=OTHER_NAMES)
    message = str(raised.value)
    assert "no values of 2 of 3 features: DUOX2, MUC2; expected genes of the bundle small" in message
    assert "SOURCE=geo, or GEO_MIRROR=folder" in message
    with pytest.raises(CohortError, match="no row of 1 features: TNF"):
        build_cohort(counted(), small, ["CXCL8", "TNF"], ENTITIES, aliases=OTHER_NAMES)


def test_another_name_matters_only_where_no_earlier_one_has_a_row(series: geo.Source, tmp_path: Path) -> None:
    folder = extract_of(series, tmp_path / "extract", ["CXCL8", "MUC2", "TNF"])
    check_genes(folder, ["MUC2"], {"MUC2": [["MUC2"], ["NOT SEARCHED"]]})
    for tiers in ([["TNF"], ["NOT SEARCHED"]], [["NOT SEARCHED"], ["MUC2"]], [["MUC2", "NOT SEARCHED"]]):
        with pytest.raises(CohortError, match="no values of 1 of 1 features: gene"):
            check_genes(folder, ["MUC2"], {"gene": tiers})


def test_a_characteristic_that_is_not_carried_is_named(series: geo.Source, tmp_path: Path) -> None:
    small = fetched(extract_of(series, tmp_path / "extract", ["MUC2"]))
    by_age = counted(select={"one_per": {"key": "hot", "then": "age"}})
    with pytest.raises(CohortError, match=r"no characteristic age; expected .*SOURCE=geo"):
        build_cohort(by_age, small, ["MUC2"], ENTITIES)
    kept = fetched(extract_of(series, tmp_path / "by_age", ["MUC2"], by_age), by_age)
    assert len(geo.read_samples(kept).columns) == 4


def test_an_extract_that_was_changed_is_refused(series: geo.Source, tmp_path: Path) -> None:
    folder = extract_of(series, tmp_path / "extract", ["MUC2"])
    path = folder / SAMPLES_FILE
    path.write_text(path.read_text().replace("hot", "HOT"))
    with pytest.raises(DownloadError, match=r"samples\.tsv: found SHA-256 .*expected SHA-256 .*restore the file"):
        fetched(folder)


def test_an_extract_of_another_series_or_of_an_extract_is_refused(series: geo.Source, tmp_path: Path) -> None:
    folder = extract_of(series, tmp_path / "extract", ["MUC2"])
    with pytest.raises(CohortError, match=r"series GSE123456; expected an extract of GSE1\."):
        fetched(folder, counted(series="GSE1"))
    with pytest.raises(CohortError, match="an extract as its source"):
        extract_of(fetched(folder), tmp_path / "second", ["MUC2"])
    assert not (tmp_path / "second").exists()


def carried(name: str) -> tuple[CohortConfig, Path]:
    settings = load_cohort_config(ROOT / "config" / "cohorts" / f"{name}.yaml")
    return settings, CARRIED / settings.series


@pytest.mark.parametrize(("name", "patients"), [("gse109142", 206), ("gse117993", 135)])
def test_the_carried_extracts_make_the_cohorts_of_the_recorded_bundle(
    name: str, patients: int, recorded_bundle: Bundle
) -> None:
    settings, folder = carried(name)
    source = geo.fetch(settings, cache=folder, extract=folder)
    model, aliases = recorded_bundle, read_aliases(ALIASES)
    cohort = build_cohort(settings, source, model.features, model.entities, aliases=aliases)
    assert cohort.values.shape == (patients, 253)
    assert cohort.provenance["aliases_used"] == {"CCN2": "CTGF", "SQOR": "SQRDL"}
    assert sum(path.stat().st_size for path in folder.iterdir()) < 300_000


@pytest.mark.mirror
@pytest.mark.parametrize("name", ["gse109142", pytest.param("gse117993", marks=pytest.mark.slow)])
def test_the_carried_extracts_are_made_again_and_give_the_cohort_of_the_whole_series(
    name: str, recorded_bundle: Bundle, geo_mirror: Path, tmp_path: Path
) -> None:
    settings, folder = carried(name)
    model, aliases = recorded_bundle, read_aliases(ALIASES)
    whole = geo.fetch(settings, cache=tmp_path, mirror=geo_mirror)
    tiers = row_tiers(settings, model.features, aliases, {})
    samples = geo.read_samples(whole)
    values = geo.read_expression(whole, settings.expression, samples, row_ids(tiers))
    again, files = tmp_path / "again", origin_files(whole)
    write_extract(again, settings, samples, values, tiers, genes_of=model.name, taken_from=files)
    assert {path.name: sha256_of(path) for path in again.iterdir()} == {
        path.name: sha256_of(path) for path in folder.iterdir()
    }
    for source, out in ((whole, "whole"), (geo.fetch(settings, cache=tmp_path, extract=folder), "extract")):
        cohort = build_cohort(settings, source, model.features, model.entities, aliases=aliases)
        write_cohort(cohort, tmp_path / out)
    for table in ("features.parquet", "labels.parquet"):
        assert (tmp_path / "whole" / table).read_bytes() == (tmp_path / "extract" / table).read_bytes()
