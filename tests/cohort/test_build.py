from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from afa.cohort import geo
from afa.cohort.build import assemble, build_cohort, row_tiers
from afa.cohort.cohort import Cohort, load_cohort, write_cohort
from afa.cohort.config import CohortConfig, load_cohort_config
from afa.cohort.encode import read_aliases, read_ensembl
from afa.cohort.expression import Expression
from afa.cohort.samples import make_labels, select
from afa.errors import CohortError

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "config" / "cohorts"
ENTITIES = ["fever", "chill"]

CONFIG: dict[str, Any] = {
    "name": "small",
    "title": "A small series",
    "series": "GSE1",
    "expression": {"layout": "count_matrix", "file": "counts.txt.gz", "unit": "counts"},
    "metadata_file": "GSE1_series_matrix.txt.gz",
    "controls": {"key": "diagnosis", "values": ["Control"]},
    "patients": {"key": "diagnosis", "values": ["UC"]},
    "labels": {"fever": {"key": "temperature", "at_least": 38, "reason": "the limit"}},
}


def samples(n_controls: int = 20) -> pd.DataFrame:
    names = [f"C{i}" for i in range(n_controls)] + ["P0", "P1", "P2"]
    diagnosis = ["Control"] * n_controls + ["UC"] * 3
    temperature = ["NA"] * n_controls + ["39", "37", ""]
    table = pd.DataFrame({"title": names, "diagnosis": diagnosis, "temperature": temperature}, index=names)
    return table.rename_axis("sample")


def expression(n_controls: int = 20) -> Expression:
    """Counts with libraries of a million each, but for P1, whose library is twice that.

    A rises in P0 and falls in P2, P1 being deeper sequenced only; CTGF has two rows; FLAT is seen in P0 alone.
    """
    base = np.arange(100.0, 100.0 + n_controls)
    rows = [
        ("A", [*base, 900.0, 220.0, 3.0]),
        ("CTGF", [*np.zeros(n_controls), 9e5, 9e5, 9e5]),
        ("CTGF", [*base, 110.0, 220.0, 0.0]),
        ("FLAT", [*np.zeros(n_controls), 7.0, 0.0, 0.0]),
    ]
    names = samples(n_controls).index
    values = pd.DataFrame([row for _, row in rows], [name for name, _ in rows], names)
    size = pd.Series(1e6, index=names)
    size["P1"] = 2e6
    return Expression(values, size, 4)


def made(features: Sequence[str], n_controls: int = 20, **changes: Any) -> Cohort:
    config = CohortConfig.model_validate(CONFIG | changes)
    tiers = row_tiers(config, features, {"CCN2": ("CTGF",)}, {"A": ("ENSG00000000001",)})
    return assemble(config, select(samples(n_controls), config), expression(n_controls), tiers, ENTITIES)


def test_a_small_series_encoded_by_hand() -> None:
    cohort = made(["CCN2", "A", "FLAT"])
    assert cohort.features == ("CCN2", "A", "FLAT")
    assert cohort.patients == ("P0", "P1", "P2")
    assert cohort.values.tolist() == [[0, 1, 1], [0, 0, 0], [-1, -1, 0]]
    assert cohort.labels["fever"].tolist() == [1, 0, pd.NA]


def test_the_record_says_what_was_done() -> None:
    record = made(["CCN2", "A", "FLAT"]).provenance
    how = {"reference": "controls", "test": "empirical", "level": 0.05, "test_of_controls": "t"}
    assert record["encoding"] == how | {"unit": "counts"}
    assert (record["controls"], record["patients"]) == (20, 3)
    assert record["genes_without_spread"] == ["FLAT"]
    assert record["aliases_used"] == {"CCN2": "CTGF"}
    assert record["shares"] == {"down": 0.222222, "zero": 0.555556, "up": 0.222222}
    assert record["all_zero_patients"] == 1
    assert record["labels"]["fever"]["missing"] == 1
    assert record["selection"][0] == {"step": "in the series", "samples": 23}


def test_controls_are_of_the_cohort_each_encoded_without_itself(tmp_path: Path) -> None:
    cohort = made(["CCN2", "A", "FLAT"], n_controls=21)
    assert "test_of_controls" not in cohort.provenance["encoding"]
    assert cohort.controls.shape == (21, 3)
    assert not set(cohort.controls.index) & set(cohort.patients)
    write_cohort(cohort, tmp_path / "c")
    found = load_cohort(tmp_path / "c").controls
    pd.testing.assert_frame_equal(found, cohort.controls, check_names=False)
    found.drop(columns="A").reset_index(names="patient").to_parquet(tmp_path / "c" / "controls.parquet")
    with pytest.raises(CohortError, match=r"controls.parquet: found other features"):
        load_cohort(tmp_path / "c")


def test_the_record_survives_the_folder(tmp_path: Path) -> None:
    cohort = made(["CCN2", "A", "FLAT"])
    write_cohort(cohort, tmp_path / "c")
    assert load_cohort(tmp_path / "c").provenance == cohort.provenance


def test_the_cohorts_own_encoding_overrides_the_runs() -> None:
    cohort = made(["A"], n_controls=12, encoding={"test": "t", "level": 0.01})
    assert cohort.provenance["encoding"] == {"reference": "controls", "test": "t", "level": 0.01, "unit": "counts"}
    assert cohort.values[:, 0].tolist() == [1, 0, -1]


def test_twelve_controls_with_the_empirical_test_are_refused() -> None:
    with pytest.raises(CohortError, match=r"12 controls.*test: t"):
        made(["A"], n_controls=12)


def test_genes_that_the_platform_lacks_are_listed() -> None:
    with pytest.raises(CohortError, match=r"no row of 2 features: X, Y.*allow_missing_genes"):
        made(["A", "X", "Y"])


def test_genes_that_the_platform_lacks_are_dropped_where_that_is_allowed() -> None:
    cohort = made(["X", "A", "Y"], allow_missing_genes=True)
    assert cohort.features == ("A",)
    assert cohort.provenance["dropped_features"] == ["X", "Y"]


def test_only_the_genes_that_are_named_may_be_missing_and_the_reason_is_recorded() -> None:
    cohort = made(["X", "A"], allow_missing_genes={"X": "not on this platform", "B": "nor this"})
    assert cohort.features == ("A",)
    assert cohort.provenance["dropped_because"] == {"X": "not on this platform"}
    with pytest.raises(CohortError, match="no row of 1 features: Y"):
        made(["X", "A", "Y"], allow_missing_genes={"X": "not on this platform"})


def test_a_cohort_of_no_gene_at_all_is_never_allowed() -> None:
    with pytest.raises(CohortError, match="no row of 1 features"):
        made(["X"], allow_missing_genes=True)


def test_a_symbol_without_ensembl_id_is_told_from_a_gene_without_a_row() -> None:
    source = CONFIG["expression"] | {"row_ids": "ensembl"}
    with pytest.raises(CohortError) as caught:
        made(["A", "X"], expression=source)
    assert [fault.found for fault in caught.value.faults] == [
        "no row of 1 features: A",
        "no Ensembl id known for 1 features: X",
    ]


def test_a_gene_is_read_by_its_ensembl_id_where_the_rows_are_those() -> None:
    config = CohortConfig.model_validate(CONFIG | {"expression": CONFIG["expression"] | {"row_ids": "ensembl"}})
    tiers = row_tiers(config, ["CCN2"], {"CCN2": ("CTGF",)}, {"CCN2": ("ENSG00000118523",)})
    values = expression()
    named = Expression(values.values.rename(index={"A": "ENSG00000118523"}), values.library_size, 4)
    cohort = assemble(config, select(samples(), config), named, tiers, ENTITIES)
    assert cohort.values[:, 0].tolist() == [1, 0, -1]
    assert cohort.provenance["aliases_used"] == {}


def test_a_label_for_an_entity_that_the_bundle_lacks_is_recorded_as_unused() -> None:
    rules = CONFIG["labels"] | {"rash": {"key": "temperature", "at_least": 38, "reason": "the limit"}}
    cohort = made(["A"], labels=rules)
    assert list(cohort.labels.columns) == ["fever"]
    assert "unused" in cohort.provenance["labels"]["rash"]


def test_a_sample_without_expression_values_is_named() -> None:
    config = CohortConfig.model_validate(CONFIG)
    values = expression()
    short = Expression(values.values.drop(columns="P2"), values.library_size, 4)
    with pytest.raises(CohortError, match="1 selected samples, such as P2"):
        assemble(config, select(samples(), config), short, row_tiers(config, ["A"], {}, {}), ENTITIES)


def phenotypes(mirror: Path) -> list[str]:
    with (mirror.parent / "elicitation" / "phenotypes.csv").open(encoding="utf-8", newline="") as stream:
        return [row["phenotype"] for row in csv.DictReader(stream)]


def agreed_genes(mirror: Path) -> list[str]:
    """The genes that two of three recorded runs name for one phenotype in one direction, none dissenting."""
    named: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for path in sorted((mirror.parent / "elicitation" / "raw" / "unary").glob("r*/*.json")):
        answer = json.loads(path.read_text(encoding="utf-8"))
        for gene in answer["genes"]:
            named[answer["phenotype"], gene["gene_symbol"]][gene["direction_in_disease"]] += 1
    return sorted({gene for (_, gene), votes in named.items() if len(votes) == 1 and max(votes.values()) >= 2})


@pytest.mark.mirror
@pytest.mark.parametrize(
    ("name", "controls", "patients", "positive"),
    [
        (
            "gse109142",
            20,
            206,
            {
                "endoscopic_activity": 88,
                "clinical_activity": 152,
                "histologic_activity": 176,
                "elevated_calprotectin": 138,
            },
        ),
        pytest.param("gse117993", 55, 135, {"ileal_involvement": 60}, marks=pytest.mark.slow),
    ],
)
def test_a_real_series_becomes_a_cohort(
    name: str, controls: int, patients: int, positive: dict[str, int], geo_mirror: Path, tmp_path: Path
) -> None:
    config = load_cohort_config(CONFIGS / f"{name}.yaml")
    source = geo.fetch(config, cache=tmp_path, mirror=geo_mirror)
    features = agreed_genes(geo_mirror)
    aliases = read_aliases(ROOT / "resources" / "genes" / "aliases.csv")
    cohort = build_cohort(config, source, features, phenotypes(geo_mirror), aliases=aliases)
    assert cohort.values.shape == (patients, len(features)) == (patients, 253)
    assert (cohort.provenance["controls"], cohort.provenance["dropped_features"]) == (controls, [])
    assert cohort.provenance["aliases_used"] == {"CCN2": "CTGF", "SQOR": "SQRDL"}
    assert cohort.labels.sum().to_dict() == positive
    for marker in ("DUOX2", "CXCL8"):
        assert cohort.values[:, features.index(marker)].mean() > 0.2, "higher in inflamed mucosa than in controls"


@pytest.mark.mirror
def test_the_selection_of_gse193677_takes_one_rectal_biopsy_of_each_participant(geo_mirror: Path) -> None:
    config = load_cohort_config(CONFIGS / "gse193677.yaml")
    path = geo_mirror / "series/GSE193nnn/GSE193677/metadata/GSE193677_sample_metadata.tsv.gz"
    table = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False, index_col="gsm").rename_axis("sample")
    chosen = select(table, config)
    assert [left for _, left in chosen.steps] == [2490, 904, 904, 890, 225, 665]
    patients = chosen.samples.loc[list(chosen.patients)]
    assert patients["typere"].value_counts().to_dict() == {"NonI": 405, "I": 260}
    labels = make_labels(patients, config.labels, phenotypes(geo_mirror))
    assert labels.sum().to_dict() == {
        "endoscopic_activity": 198,
        "clinical_activity": 98,
        "histologic_activity": 107,
        "elevated_crp": 285,
    }


@pytest.mark.mirror
def test_gse193677_is_built_from_counts_in_geos_own_layout(geo_mirror: Path, tmp_path: Path) -> None:
    """The samples are the real ones; the counts, which no mirror has, are made: DUOX2 is tenfold in inflamed mucosa."""
    config = load_cohort_config(CONFIGS / "gse193677.yaml")
    folder = "series/GSE193nnn/GSE193677"
    for part in ("metadata", "suppl"):
        (tmp_path / folder / part).mkdir(parents=True)
    metadata = Path(folder) / "metadata" / "GSE193677_sample_metadata.tsv.gz"
    (tmp_path / metadata).symlink_to(geo_mirror / metadata)
    table = pd.read_csv(geo_mirror / metadata, sep="\t", dtype=str, keep_default_na=False).sample(
        frac=1, random_state=1
    )
    random = np.random.default_rng(1)
    readthrough = "ENSG00000244255"
    counts = pd.DataFrame(
        random.poisson(200, (5, len(table))),
        ["ENSG00000140279", "ENSG00000198788", "ENSG00000000419", readthrough, "ENSG00000243649"],
        table["title"].str.split(",").str[0],
    )
    counts.iloc[0] *= np.where(table["typere"] == "I", 10, 1)
    counts.iloc[2] = 1_000_000
    counts.iloc[3] *= np.where(table["ibd_disease"] == "Control", 2, 20)
    header, *lines = counts.to_csv(sep=" ", quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n").splitlines()
    text = "\n".join([header.split(" ", 1)[1], *lines]) + "\n"
    (tmp_path / folder / "suppl" / config.expression.file).write_bytes(gzip.compress(text.encode()))
    source = geo.fetch(config, cache=tmp_path, mirror=tmp_path)
    ensembl = read_ensembl(ROOT / "resources" / "genes" / "ensembl.csv")
    cohort = build_cohort(config, source, ["DUOX2", "MUC2", "CFB", "PECAM1"], phenotypes(geo_mirror), ensembl=ensembl)
    assert cohort.features == ("DUOX2", "MUC2", "CFB")
    assert cohort.values.shape == (665, 3)
    assert list(cohort.provenance["dropped_because"]) == ["PECAM1"]
    inflamed = table.set_index("gsm").loc[list(cohort.patients), "typere"].to_numpy() == "I"
    assert (cohort.values[inflamed, 0] == 1).all()
    assert np.abs(cohort.values[~inflamed, 0]).mean() < 0.1
    assert np.abs(cohort.values[:, 1]).mean() < 0.1
    assert np.abs(cohort.values[:, 2]).mean() < 0.1, "the gene's own row, not that of the readthrough"
    assert cohort.provenance["files"][1]["form"] == "mirror"


@pytest.mark.mirror
def test_every_gene_of_the_recorded_bundle_has_an_ensembl_id_that_public_tables_confirm(geo_mirror: Path) -> None:
    path = ROOT / "resources" / "genes" / "ensembl.csv"
    assert not set(agreed_genes(geo_mirror)) - set(read_ensembl(path))
    confirmed = pd.read_csv(geo_mirror.parent / "genes" / "ensembl_confirmed.csv")
    listed = confirmed[["ensembl_id_confirmed", "symbol", "n_sources"]].to_numpy().tolist()
    assert pd.read_csv(path).to_numpy().tolist() == listed
