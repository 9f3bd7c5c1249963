"""Settings, series and archives of strange content, in a sound form, so that they are looked at to the end."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cohort import geo_layout
from fuzz.corpus import ACCESSIONS, ROOT
from fuzz.strange import (
    CELLS,
    NAMES,
    NUMBERS,
    VALUES,
    fuzzed,
    read_of,
    yaml_of,
)
from hypothesis import given
from hypothesis import strategies as st

from afa.cohort.config import load_cohort_config, simulation_config
from afa.cohort.expression import read_gene_matrix, read_sample_files
from afa.cohort.samples import read_family, read_series_matrix
from afa.io.yamlfile import read_mapping
from afa.paper.config import check_run_config
from afa.paper.experiments.layer0_synthetic.portfolio import load_portfolio


def _paths(document: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield (*before, key)
            yield from _paths(value, (*before, key))


def _changed(document: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """The document with the values of one to three of its keys replaced, or strange keys added."""

    def put(changes: list[tuple[tuple[Any, ...], Any]]) -> dict[str, Any]:
        changed = json.loads(json.dumps(document))
        for path, value in changes:
            place = changed
            for key in path[:-1]:
                place = place.setdefault(key, {}) if isinstance(place, dict) else {}
            if isinstance(place, dict):
                place[path[-1]] = value
        return changed

    known = st.sampled_from(list(_paths(document)))
    mild = st.lists(st.tuples(known, st.one_of(st.integers(0, 9), st.floats(0, 9), NAMES)), max_size=1)
    strange = st.lists(st.tuples(st.one_of(known, st.tuples(CELLS)), VALUES), min_size=1, max_size=3)
    return st.one_of(mild, strange).map(put)


RUN = read_mapping(ROOT / "config" / "config.yaml")
PORTFOLIO = read_mapping(ROOT / "config" / "portfolio.yaml")
COHORT = read_mapping(ROOT / "config" / "cohorts" / "demo.yaml")
COHORT["labels"] = dict(list(COHORT["labels"].items())[:1])


@fuzzed
@given(_changed(RUN))
def test_a_run_config_of_strange_values_is_refused_or_read(document: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        read_of("run_config", {}, lambda folder: check_run_config(document), Path(scratch) / "in", "the configuration")


@fuzzed
@given(_changed({name: PORTFOLIO[name] for name in list(PORTFOLIO)[:2]}))
def test_a_portfolio_of_strange_values_is_refused_or_read(document: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        read_of(
            "portfolio",
            {"portfolio.yaml": yaml_of(document)},
            lambda folder: load_portfolio(folder / "portfolio.yaml"),
            Path(scratch) / "in",
        )


@fuzzed
@given(_changed(COHORT))
def test_a_cohort_config_of_strange_values_is_refused_or_read(document: dict[str, Any]) -> None:
    def read(folder: Path) -> None:
        config = load_cohort_config(folder / "own.yaml")
        if config.simulation is not None:
            simulation_config(config)

    with tempfile.TemporaryDirectory() as scratch:
        read_of("cohort_config", {"own.yaml": yaml_of(document)}, read, Path(scratch) / "in", "cohort ")


ONE_LINE = CELLS.map(lambda cell: cell.encode("utf-8", errors="replace").decode().replace("\n", " ").replace("\r", " "))
THREE = st.lists(ONE_LINE, min_size=3, max_size=3)
ROWS = st.lists(st.tuples(ONE_LINE, st.lists(st.one_of(NUMBERS, ONE_LINE), min_size=3, max_size=3)), max_size=3)
GSM = st.one_of(st.just(list(ACCESSIONS)), st.just(list(ACCESSIONS)), THREE)


@fuzzed
@given(names=GSM, titles=THREE, cells=st.lists(THREE, max_size=3), rows=ROWS)
def test_series_files_of_strange_cells_are_refused_or_read(
    names: list[str], titles: list[str], cells: list[list[str]], rows: list[tuple[str, list[Any]]]
) -> None:
    """Series matrix, family SOFT file and genes x samples table of the same content."""
    samples = {
        name: (titles[i], [row[i] for row in cells], [(gene, [values[i]]) for gene, values in rows])
        for i, name in enumerate(names)
    }
    texts = {
        "matrix.txt.gz": geo_layout.series_matrix(names, titles, cells, rows),
        "family.soft.gz": geo_layout.family_soft(samples),
        "counts.txt.gz": geo_layout.gene_matrix(names, rows),
    }
    columns = {name: name for name in ACCESSIONS}
    reads: dict[str, Callable[[Path], object]] = {
        "matrix.txt.gz": read_series_matrix,
        "family.soft.gz": read_family,
        "counts.txt.gz": lambda path: read_gene_matrix(path, columns, {"MUC2"}),
    }
    with tempfile.TemporaryDirectory() as scratch:
        for file, text in texts.items():
            packed = gzip.compress(text.encode("utf-8", errors="replace"), compresslevel=1)
            read_of(file, {file: packed}, lambda folder, file=file: reads[file](folder / file), Path(scratch) / "in")


MEMBER_NAMES = st.one_of(
    st.sampled_from([f"{name}_x.txt.gz" for name in ACCESSIONS]),
    st.sampled_from(["../../x", "/etc/passwd", "a" * 300, "GSM11_x.txt.gz\n", "", "GSM11_/../../x.txt.gz"]),
    ONE_LINE,
)
TYPES = st.sampled_from([tarfile.REGTYPE] * 9 + list("123456SxgLKVX"))
"""Mostly plain files; the letters are links, devices, folders, files with holes, and extended headers."""
CONTENT = st.one_of(
    ROWS.map(lambda rows: gzip.compress(geo_layout.sample_text("x", [(gene, values[0]) for gene, values in rows]))),
    st.just(gzip.compress(b"Gene\tx\nMUC2\t1\nTFF3\t2\n")),
    st.binary(max_size=40),
)


@fuzzed
@given(
    members=st.lists(
        st.tuples(MEMBER_NAMES, CONTENT, TYPES, st.sampled_from([0] * 9 + [512, -512, 2**40])), max_size=4
    ),
    form=st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    before=st.booleans(),
)
def test_an_archive_of_strange_members_is_refused_or_read(
    members: list[tuple[str, bytes, bytes | str, int]], form: int, before: bool
) -> None:
    buffer = io.BytesIO()
    sound = [(f"{name}_x.txt.gz", gzip.compress(b"Gene\tx\nMUC2\t1\n"), tarfile.REGTYPE, 0) for name in ACCESSIONS]
    for name, content, kind, more in [*(sound if before else ()), *members]:
        header = tarfile.TarInfo(name)
        header.type = kind if isinstance(kind, bytes) else kind.encode()
        header.size, header.linkname = len(content) + more, "../../x"
        buffer.write(header.tobuf(form, "utf-8", "surrogateescape"))
        buffer.write(content.ljust(-(-len(content) // 512) * 512, b"\0"))
    buffer.write(b"\0" * 1024)
    with tempfile.TemporaryDirectory() as scratch:
        read_of(
            "sample_files",
            {"GSE1_RAW.tar": buffer.getvalue()},
            lambda folder: read_sample_files(folder / "GSE1_RAW.tar", ACCESSIONS, {"MUC2"}),
            Path(scratch) / "in",
        )
