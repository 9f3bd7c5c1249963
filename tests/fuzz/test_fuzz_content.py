"""Whole files of strange content, drawn by hypothesis: in a sound form, so that they are looked at to the end."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from cohort import geo_layout
from fuzz.corpus import ACCESSIONS, OUT, ROOT, Reader
from fuzz.harness import DRAWN, SEED, check
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from afa.bundle import load_bundle, save_bundle
from afa.cohort.cohort import load_cohort, write_cohort
from afa.cohort.config import load_cohort_config, simulation_config
from afa.cohort.gene_matrix import read_gene_matrix
from afa.cohort.sample_files import read_sample_files
from afa.cohort.series_matrix import read_series_matrix
from afa.cohort.soft import read_soft
from afa.config import check_run_config
from afa.elicit.stages import build_recorded_bundle
from afa.stages.layer0_synthetic.config import load_portfolio
from afa.yamlfile import read_mapping

_FUZZING = settings(
    max_examples=DRAWN,
    deadline=None,
    database=None,
    phases=(Phase.generate,),  # shrinking a case that hangs would take longer than all others
    suppress_health_check=list(HealthCheck),
)


def fuzzed(test: Callable[[], None]) -> Callable[[], None]:
    """Draw as many files as are asked for, the same for the same `AFA_FUZZ_SEED`."""
    return seed(SEED)(_FUZZING(test))


NAMES = st.sampled_from(
    ["MUC2", "CXCL8", "=HYPERLINK(1)", "-catenin", "+x", "@y", "a,b", 'a"b', "é", "e\u0301", "名前", "x" * 150, "null"]
)
STRANGE_TEXT = st.one_of(
    st.sampled_from(
        [
            *("", " ", "\n", "a\nb", "a\r\nb", "\0", "\u202eb", "\u200f", "\ufeffa", "\x1b[2J", "\t=1", "x" * 3000),
            *("nan", "inf", "-inf", "1e400", "-1e400", "1e308", "1_0", "\u0661", "0x10", "-0", "9" * 400, "TRUE", "NA"),
            *("../../x", "/etc/passwd", "C:\\x", "%s%n", "{0}", "!!int x", "&a", "*a", "<<", "~"),
        ]
    ),
    st.text(max_size=8),
)
CELLS = st.one_of(NAMES, NAMES, st.sampled_from(["0", "1", "-1", "0.5"]), STRANGE_TEXT)
NUMBERS = st.one_of(
    st.integers(-2, 2),
    st.integers(),
    st.floats(),
    st.sampled_from([2**31, 2**63, -(2**64), 10**400, 1e308, math.nan, math.inf, -0.0]),
)
PLAIN = st.one_of(st.none(), st.booleans(), NUMBERS, CELLS)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.one_of(CELLS, PLAIN), inner, max_size=4)),
    max_leaves=8,
)


def _read(name: str, files: Mapping[str, bytes], read: Callable[[Path], object], folder: Path, *places: str) -> bool:
    """Whether the files, written into a new folder, are read; they are removed again."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as own:
        inside = Path(own) / "in"
        for file, content in files.items():
            (inside / file).parent.mkdir(parents=True, exist_ok=True)
            (inside / file).write_bytes(content)
        return check(Reader(name, files, read, places), inside) is None


def _csv(rows: list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", errors="surrogatepass")


def _table(*header: str, rows: int = 4) -> st.SearchStrategy[bytes]:
    cells = st.lists(CELLS, min_size=len(header), max_size=len(header))
    return st.lists(cells, max_size=rows).map(lambda body: _csv([list(header), *body]))


def _potentials(*names: str) -> st.SearchStrategy[bytes]:
    """Mostly sound rows, so that some files are read whole."""
    number = st.one_of(st.sampled_from(["1", "-1", "0", "1e99", "-0.5"]), CELLS)
    row = st.tuples(*[st.one_of(NAMES, CELLS) for _ in names], number).map(list)
    sound = st.tuples(*[NAMES for _ in names], st.sampled_from(["1", "-1", "2.5", "1e99"])).map(list)
    rows = st.one_of(st.lists(sound, max_size=4), st.lists(row, max_size=4))
    return rows.map(lambda body: _csv([[*names, "potential"], *body]))


@fuzzed
@given(
    header=st.fixed_dictionaries(
        {"name": st.one_of(NAMES, VALUES), "version": st.one_of(st.just("1"), VALUES)},
        optional={
            "entities": VALUES,
            "features": VALUES,
            "provenance": VALUES,
            "digests": VALUES,
            "licence": VALUES,
            "value_domain": VALUES,
        },
    ),
    unary=_potentials("entity", "feature"),
    pairwise=_potentials("entity", "feature_a", "feature_b"),
    others=st.fixed_dictionaries(
        {},
        optional={
            "priors.csv": _table("entity", "log_odds"),
            "costs.csv": _table("feature", "cost"),
            "aliases.csv": _table("feature", "alias"),
        },
    ),
)
def test_a_bundle_of_strange_content_is_refused_or_comes_back_as_it_was_written(
    header: dict[str, Any], unary: bytes, pairwise: bytes, others: dict[str, bytes]
) -> None:
    def read(folder: Path) -> None:
        bundle = load_bundle(folder)
        save_bundle(bundle, folder.parent / OUT)
        assert load_bundle(folder.parent / OUT).digest == bundle.digest

    files = {"bundle.yaml": _yaml(header), "unary.csv": unary, "pairwise.csv": pairwise, **others}
    with tempfile.TemporaryDirectory() as scratch:
        _read("bundle", files, read, Path(scratch) / "in")


def _yaml(document: Any) -> bytes:
    return yaml.safe_dump(document, allow_unicode=True).encode("utf-8", errors="surrogatepass")


class _Period(pa.ExtensionType):
    """An extension type of another library."""

    def __init__(self) -> None:
        super().__init__(pa.int8(), "other.library")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> _Period:
        return cls()


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if isinstance(kind, _Period):
        return pa.ExtensionArray.from_storage(kind, pa.array([1] * len(values), pa.int8()))
    if pa.types.is_dictionary(kind):
        return pa.array([str(value) for value in values]).dictionary_encode()
    if pa.types.is_nested(kind):
        return pa.array([[1]] * len(values), kind)
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return pa.nulls(len(values), kind)


KINDS = st.sampled_from(
    [
        *(pa.int8(), pa.int8(), pa.int64(), pa.uint64(), pa.float64(), pa.float16(), pa.bool_(), pa.string()),
        *(pa.large_string(), pa.binary(), pa.null(), pa.date32(), pa.timestamp("ns", "UTC"), pa.duration("s")),
        *(pa.decimal128(5, 2), pa.list_(pa.int8()), pa.dictionary(pa.int8(), pa.string()), _Period()),
    ]
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Features and labels, mostly of the same patients."""
    rows = draw(st.integers(0, 3))
    return draw(parquet([-1, 0, 1], rows)), draw(parquet([0, 1, None], rows))


@st.composite
def parquet(draw: st.DrawFn, allowed: list[Any], rows: int) -> bytes:
    cells = st.lists(st.one_of(st.sampled_from(allowed), PLAIN), min_size=rows, max_size=rows)
    sound = st.lists(st.sampled_from(allowed), min_size=rows, max_size=rows)
    if not draw(st.booleans()):
        cells, kinds = sound, st.sampled_from([pa.int8(), pa.int64(), pa.float64()])
        names = draw(st.lists(NAMES, max_size=3, unique=True))
    else:
        kinds = st.one_of(st.just(pa.int8()), KINDS)
        names = draw(st.lists(st.one_of(NAMES, CELLS), max_size=3))
    known = st.just([f"P{i}" for i in range(rows)])
    patients = draw(st.one_of(known, known, known, cells))
    arrays = [_column(patients, draw(st.sampled_from([pa.string()] * 9 + [pa.int64()])))]
    arrays += [_column(draw(st.one_of(sound, cells)), draw(kinds)) for _ in names]
    columns = [draw(st.sampled_from(["patient"] * 9 + ["Patient"])), *names]
    columns = [name.encode("utf-8", errors="replace").decode() for name in columns]
    strange = [{"pandas": "{"}, {"pandas": '{"index_columns": ["x"]}'}, {"ARROW:schema": "x"}]
    metadata = draw(st.sampled_from([None, *strange]))
    buffer = io.BytesIO()
    table = pa.table(arrays, names=columns)
    pq.write_table(table.replace_schema_metadata(metadata), buffer)
    return buffer.getvalue()


@fuzzed
@given(
    card=st.fixed_dictionaries({"name": st.one_of(NAMES, VALUES)}, optional={"digests": VALUES, "series": VALUES}),
    both=tables(),
)
def test_a_cohort_of_strange_tables_is_refused_or_comes_back_as_it_was_written(
    card: dict[str, Any], both: tuple[bytes, bytes]
) -> None:
    def read(folder: Path) -> None:
        cohort = load_cohort(folder)
        write_cohort(cohort, folder.parent / OUT)
        again = load_cohort(folder.parent / OUT)
        np.testing.assert_array_equal(again.values, cohort.values)
        assert again.labels.equals(cohort.labels)

    files = {"cohort.yaml": _yaml(card), "features.parquet": both[0], "labels.parquet": both[1]}
    with tempfile.TemporaryDirectory() as scratch:
        _read("cohort", files, read, Path(scratch) / "in", "cohort ")


GENE = st.fixed_dictionaries(
    {
        "gene_symbol": st.one_of(NAMES, VALUES),
        "direction_in_disease": st.one_of(st.sampled_from(["Upregulated", "Downregulated"]), VALUES),
        "lit_prob": st.one_of(st.floats(0, 1), NUMBERS, VALUES),
        **dict.fromkeys(("category", "mechanism_of_action", "tissue", "evidence_source"), CELLS),
    }
)
SOUND_GENE = {
    **dict.fromkeys(("category", "mechanism_of_action", "tissue", "evidence_source"), "c"),
    "direction_in_disease": "Upregulated",
    "lit_prob": 0.5,
}
SOUND_ANSWER = {"genes": [{"gene_symbol": name, **SOUND_GENE} for name in ("IL6", "TNF")]}
ANSWER = st.one_of(
    st.just(SOUND_ANSWER),
    st.just(SOUND_ANSWER),
    st.fixed_dictionaries({"genes": st.one_of(st.lists(GENE, min_size=1, max_size=3), VALUES)}),
)
PAIRS = ("gene1", "gene2", "lit_direction", "lit_prob", "evidence_source", "supporting_text")
SOUND_PAIRS = CELLS.map(lambda text: _csv([list(PAIRS), ["IL6", "TNF", "same", "0.5", "knowledge", text]]))


@fuzzed
@given(
    phenotype=st.one_of(*[st.just("fever")] * 8, CELLS),
    answers=st.tuples(ANSWER, ANSWER, ANSWER),
    pairs=st.one_of(SOUND_PAIRS, SOUND_PAIRS, _table(*PAIRS)),
)
def test_a_record_of_strange_answers_is_refused_or_gives_a_bundle(
    phenotype: str, answers: tuple[dict[str, Any], ...], pairs: bytes
) -> None:
    files = {
        "phenotypes.csv": _csv([["phenotype", "group", "definition"], [phenotype, "g", "d"]]),
        "study.yaml": b"name: recorded\ndisease: influenza\ntissue: blood\n",
    }
    for run, answer in zip(("r1", "r2", "r3"), answers, strict=True):
        content = {"phenotype": "fever", "run": run, **answer}
        files[f"raw/unary/{run}/fever.json"] = json.dumps(_texted(content)).encode()
    files["raw/pairwise/fever.csv"] = pairs
    with tempfile.TemporaryDirectory() as scratch:
        _read(
            "recorded",
            files,
            lambda folder: build_recorded_bundle(folder, folder.parent / OUT, min_agree=2),
            Path(scratch) / "in",
        )


def _texted(value: Any) -> Any:
    """The same value as JSON can have it."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else repr(key)[:20]: _texted(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_texted(part) for part in value]
    return value


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
        _read("run_config", {}, lambda folder: check_run_config(document), Path(scratch) / "in", "the configuration")


@fuzzed
@given(_changed({name: PORTFOLIO[name] for name in list(PORTFOLIO)[:2]}))
def test_a_portfolio_of_strange_values_is_refused_or_read(document: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        _read(
            "portfolio",
            {"portfolio.yaml": _yaml(document)},
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
        _read("cohort_config", {"own.yaml": _yaml(document)}, read, Path(scratch) / "in", "cohort ")


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
        "family.soft.gz": read_soft,
        "counts.txt.gz": lambda path: read_gene_matrix(path, columns, {"MUC2"}),
    }
    with tempfile.TemporaryDirectory() as scratch:
        for file, text in texts.items():
            packed = gzip.compress(text.encode("utf-8", errors="replace"), compresslevel=1)
            _read(file, {file: packed}, lambda folder, file=file: reads[file](folder / file), Path(scratch) / "in")


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
        _read(
            "sample_files",
            {"GSE1_RAW.tar": buffer.getvalue()},
            lambda folder: read_sample_files(folder / "GSE1_RAW.tar", ACCESSIONS, {"MUC2"}),
            Path(scratch) / "in",
        )
