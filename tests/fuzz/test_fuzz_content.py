"""Bundles, cohorts and records of strange content, in a sound form, so that they are looked at to the end."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fuzz.corpus import OUT
from fuzz.strange import (
    CELLS,
    NAMES,
    NUMBERS,
    PLAIN,
    VALUES,
    fuzzed,
    potentials_of,
    read_of,
    table_of,
    yaml_of,
)
from hypothesis import given
from hypothesis import strategies as st
from records import entry_of

from afa.cohort.cohort import load_cohort, write_cohort
from afa.elicit.record import Question
from afa.elicit.stages import build_recorded_bundle
from afa.model.bundle import load_bundle, save_bundle


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
    unary=potentials_of("entity", "feature"),
    pairwise=potentials_of("entity", "feature_a", "feature_b"),
    others=st.fixed_dictionaries(
        {},
        optional={
            "priors.csv": table_of("entity", "log_odds"),
            "costs.csv": table_of("feature", "cost"),
            "aliases.csv": table_of("feature", "alias"),
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

    files = {"bundle.yaml": yaml_of(header), "unary.csv": unary, "pairwise.csv": pairwise, **others}
    with tempfile.TemporaryDirectory() as scratch:
        read_of("bundle", files, read, Path(scratch) / "in")


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

    files = {"cohort.yaml": yaml_of(card), "features.parquet": both[0], "labels.parquet": both[1]}
    with tempfile.TemporaryDirectory() as scratch:
        read_of("cohort", files, read, Path(scratch) / "in", "cohort ")


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
PAIR = st.fixed_dictionaries(
    {
        "lit_direction": st.one_of(st.sampled_from(["same", "opposite", "unclear"]), VALUES),
        "lit_prob": st.one_of(st.floats(0, 1), NUMBERS, VALUES),
        **dict.fromkeys(("evidence_source", "supporting_text"), CELLS),
    }
)


@fuzzed
@given(answers=st.tuples(ANSWER, ANSWER, ANSWER), pair=PAIR)
def test_a_record_of_strange_answers_is_refused_or_gives_a_bundle(
    answers: tuple[dict[str, Any], ...], pair: dict[str, Any]
) -> None:
    asked = [
        (Question("unary", {"phenotype": "fever"}, f"r{place}"), {"phenotype": "fever", "run": "r", **answer})
        for place, answer in enumerate(answers, start=1)
    ]
    asked.append((Question("pairwise", {"phenotype": "fever", "gene1": "IL6", "gene2": "TNF"}, "pairs"), pair))
    lines = [json.dumps(entry_of(question, json.dumps(_texted(answer))).document) for question, answer in asked]
    files = {
        "phenotypes.csv": b"phenotype,group,definition\nfever,g,d\n",
        "study.yaml": b"name: recorded\ndisease: influenza\ntissue: blood\n",
        "record/a.jsonl": "".join(f"{line}\n" for line in lines).encode(),
    }
    with tempfile.TemporaryDirectory() as scratch:
        read_of(
            "recorded",
            files,
            lambda folder: build_recorded_bundle(folder, folder.parent / OUT, min_agree=2),
            Path(scratch) / "in",
            "the consensus",
        )


def _texted(value: Any) -> Any:
    """The same value as JSON can have it."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else repr(key)[:20]: _texted(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_texted(part) for part in value]
    return value
