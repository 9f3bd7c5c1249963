"""Sound files for every reader, small, and the call that reads them."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from cohort import geo_layout
from records import add_genes, add_pairs, write_study

from afa.cohort.build import build_cohort
from afa.cohort.cohort import Cohort, load_cohort, write_cohort
from afa.cohort.config import CohortConfig, SimulationConfig, load_cohort_config, simulation_config
from afa.cohort.encode import read_aliases, read_ensembl
from afa.cohort.expression import read_gene_matrix, read_sample_files
from afa.cohort.geo import fetch
from afa.cohort.samples import read_family, read_series_matrix
from afa.cohort.simulate import simulate_cohort, write_geo_layout
from afa.elicit.stages import build_recorded_bundle
from afa.io.yamlfile import read_mapping
from afa.model.bundle import load_bundle
from afa.paper.config import check_run_config
from afa.paper.experiments.layer0_synthetic.portfolio import load_portfolio

ROOT = Path(__file__).parent.parent.parent
TINY = ROOT / "tests" / "data" / "bundle_tiny"
OUT = "made"
"""Where a reader that also writes puts its output: it must not be there after an error."""


@dataclass(frozen=True)
class Reader:
    """Sound files by name, the call that reads their folder, and what a fault's place may begin with beside it."""

    name: str
    files: Mapping[str, bytes]
    read: Callable[[Path], object]
    places: tuple[str, ...] = ()


def _bundle() -> Reader:
    files = {path.name: path.read_bytes() for path in sorted(TINY.iterdir())}
    header = files["bundle.yaml"].decode()
    # With its digests every other change would be refused before it is looked at.
    files["bundle.yaml"] = header[: header.index("digests:")].encode()
    return Reader("bundle", files, load_bundle)


def _cohort(scratch: Path) -> Reader:
    patients = tuple(f"P{i}" for i in range(6))
    values = np.resize(np.array([1, 0, -1, 0], dtype=np.int8), (6, 3))
    given = {"fever": [1, 0, None, 1, 0, 1], "chill": [0, 0, 1, 1, None, 0]}
    labels = pd.DataFrame(given, list(patients), dtype="Int8")
    write_cohort(Cohort("small", ("A", "B", "C"), patients, values, labels, {"series": "GSE1"}), scratch)
    files = {path.name: path.read_bytes() for path in sorted(scratch.iterdir())}
    files["cohort.yaml"] = files["cohort.yaml"].split(b"digests:")[0]
    return Reader("cohort", files, load_cohort)


ACCESSIONS = ("GSM11", "GSM12", "GSM13")
_ROWS = [("MUC2", [1.5, 2, 0]), ("CXCL8", [0, 0.25, 1e-3]), ("AQP8", [7, 8, 9]), ("TFF3", [4, 5, 6])]
_CELLS = [["diagnosis: UC", "diagnosis: UC", "diagnosis: Control"], ["Total Mayo Score: 3", "", "note: a; b"]]


def _series_matrix() -> Reader:
    text = geo_layout.series_matrix(ACCESSIONS, ["first, UC", "second", "third"], _CELLS, _ROWS)
    files = {"plain.txt": text.encode(), "packed.txt.gz": gzip.compress(text.encode(), mtime=0)}
    return Reader("series_matrix", files, lambda folder: [read_series_matrix(folder / name) for name in files])


def _soft() -> Reader:
    samples = {
        name: (f"title of {name}", [row[i] for row in _CELLS], [(gene, [values[i]]) for gene, values in _ROWS])
        for i, name in enumerate(ACCESSIONS)
    }
    return Reader(
        "soft",
        {"family.soft.gz": gzip.compress(geo_layout.family_soft(samples).encode(), mtime=0)},
        lambda folder: read_family(folder / "family.soft.gz"),
    )


def _gene_matrix() -> Reader:
    r_style = geo_layout.gene_matrix(ACCESSIONS, _ROWS, separator=" ", quoted=True, corner=None)
    files = {
        "plain.txt": geo_layout.gene_matrix(ACCESSIONS, _ROWS).encode(),
        "packed.txt.gz": gzip.compress(r_style.encode(), mtime=0),
    }
    columns = {name: name for name in reversed(ACCESSIONS)}
    return Reader(
        "gene_matrix",
        files,
        lambda folder: [read_gene_matrix(folder / name, columns, {"MUC2", "TFF3"}) for name in files],
    )


def real_gene_matrix(mirror: Path) -> Reader:
    """The head of a real series' matrix, its first rows and all its samples."""
    path = mirror / "series" / "GSE117nnn" / "GSE117993" / "suppl" / "GSE117993_TPM_matrix.txt.gz"
    with gzip.open(path) as stream:
        lines = [stream.readline() for _ in range(12)]
    names = lines[0].decode().rstrip("\n").split("\t")[1:]
    columns = {name: name for name in names[:20]}
    files = {"head.txt.gz": gzip.compress(b"".join(lines), mtime=0)}
    genes = {line.split(b"\t")[0].decode() for line in lines[1::2]}
    return Reader("gene_matrix_real", files, lambda folder: read_gene_matrix(folder / "head.txt.gz", columns, genes))


def _sample_files() -> Reader:
    texts = {name: geo_layout.sample_text(name, [(g, v[i]) for g, v in _ROWS]) for i, name in enumerate(ACCESSIONS)}
    members = [(f"{name}_x.txt.gz", gzip.compress(text, mtime=0)) for name, text in texts.items()]
    files = {"GSE1_RAW.tar": geo_layout.raw_tar(members)}
    return Reader(
        "sample_files", files, lambda folder: read_sample_files(folder / "GSE1_RAW.tar", ACCESSIONS, {"MUC2", "TFF3"})
    )


def _run_config() -> Reader:
    def read(folder: Path) -> object:
        return check_run_config(read_mapping(folder / "config.yaml"))

    files = {"config.yaml": (ROOT / "config" / "config.yaml").read_bytes()}
    return Reader("run_config", files, read, ("the configuration",))


def _cohort_config() -> Reader:
    folder = ROOT / "config" / "cohorts"
    demo = read_mapping(folder / "demo.yaml")
    demo["labels"] = dict(list(demo["labels"].items())[:1])
    files = {
        "demo.yaml": yaml.safe_dump(demo, sort_keys=False).encode(),
        "gse109142.yaml": (folder / "gse109142.yaml").read_bytes(),
    }

    def read(place: Path) -> object:
        settings = [load_cohort_config(place / name) for name in files]
        return [simulation_config(one) for one in settings if one.simulation is not None]

    return Reader("cohort_config", files, read, ("cohort ",))


def _recorded(scratch: Path) -> Reader:
    study = write_study(scratch, ["fever", "chill"])
    for phenotype, genes in (("fever", ("IL6", "TNF", "CRP")), ("chill", ("IL6", "SAA1"))):
        for run in ("r1", "r2", "r3"):
            add_genes(study, phenotype, run, dict.fromkeys(genes, 1))
        add_pairs(study, phenotype, {(a, b): 1 for i, a in enumerate(genes) for b in genes[i + 1 :]})
    files = {path.name: path.read_bytes() for path in study.iterdir() if path.is_file()}
    files["record/a.jsonl"] = b"".join(sorted(path.read_bytes() for path in (study / "record").iterdir()))
    return Reader(
        "recorded",
        files,
        lambda folder: build_recorded_bundle(folder, folder.parent / OUT, min_agree=2),
        ("bundle ", "consensus", "the consensus"),
    )


def _portfolio() -> Reader:
    files = {"portfolio.yaml": (ROOT / "config" / "portfolio.yaml").read_bytes()}
    return Reader("portfolio", files, lambda folder: load_portfolio(folder / "portfolio.yaml"))


def _gene_names() -> Reader:
    folder = ROOT / "resources" / "genes"
    names = ("aliases.csv", "ensembl.csv")
    files = {name: b"".join((folder / name).read_bytes().splitlines(True)[:40]) for name in names}
    return Reader(
        "gene_names", files, lambda place: (read_aliases(place / "aliases.csv"), read_ensembl(place / "ensembl.csv"))
    )


def small_series(place: Path) -> tuple[CohortConfig, dict[str, bytes]]:
    """A simulated series of a few patients in GEO's layout, on the tiny bundle: its config, and its files by path."""
    config = geo_layout.config(
        origin="simulated",
        expression={
            "layout": "count_matrix",
            "file": "counts.txt.gz",
            "unit": "counts",
            "sample_column": "title_before_comma",
        },
        controls={"key": "diagnosis", "values": ["Control"]},
        patients={"key": "diagnosis", "values": ["IBD"]},
        labels={
            "fistula": {"key": "phenotype_fistula", "positive": ["yes"], "negative": ["no"], "reason": "as simulated"}
        },
        mirror_metadata_file=None,
    )
    settings: dict[str, Any] = {"seed": 1, "n_patients": 4, "n_controls": 20, "n_background_genes": 5}
    settings["prevalences"] = {"bleeding": 0.5, "diarrhea": 0.5, "fistula": 0.5}
    write_geo_layout(simulate_cohort(SimulationConfig.model_validate(settings), load_bundle(TINY)), config, place)
    return config, {str(p.relative_to(place)): p.read_bytes() for p in sorted(place.rglob("*.gz"))}


def _build(scratch: Path) -> Reader:
    config, files = small_series(scratch)
    bundle = load_bundle(TINY)

    def read(folder: Path) -> object:
        source = fetch(config, cache=folder / "cache", mirror=folder)
        made = build_cohort(config, source, bundle.features, bundle.entities)
        write_cohort(made, folder.parent / OUT)
        return load_cohort(folder.parent / OUT)

    return Reader("cohort_build", files, read, ("cohort small", "controls", "patients", "key labels."))


def readers(scratch: Path) -> dict[str, Reader]:
    """Every reader that needs no mirror, by name; `scratch` is a folder to make files in."""
    made = [
        _bundle(),
        _cohort(scratch / "cohort"),
        _series_matrix(),
        _soft(),
        _gene_matrix(),
        _sample_files(),
        _run_config(),
        _cohort_config(),
        _recorded(scratch / "study"),
        _portfolio(),
        _gene_names(),
        _build(scratch / "series"),
    ]
    return {reader.name: reader for reader in made}
