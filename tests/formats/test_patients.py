"""Phenopackets of single patients: what was seen, what was excluded, and files that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from afa.errors import CohortError
from afa.formats.patients import read_phenopacket

PACKET = {
    "id": "PMID_1_p1",
    "subject": {"id": "p1", "sex": "FEMALE"},
    "phenotypicFeatures": [
        {"type": {"id": "HP:0000006", "label": "Large ear"}, "onset": {"age": {"iso8601duration": "P3Y"}}},
        {"type": {"id": "HP:0000005"}, "excluded": True},
        {"type": {"id": "HP:0000006"}},
        {"type": {"id": "HANCESTRO:0852"}},
    ],
    "interpretations": [{"diagnosis": {"disease": {"id": "OMIM:1", "label": "One"}}}],
    "diseases": [{"term": {"id": "OMIM:1"}}, {"term": {"id": "OMIM:2"}, "excluded": True}],
}


def packet(tmp_path: Path, **changes: object) -> Path:
    path = tmp_path / "patient.json"
    path.write_text(json.dumps({**PACKET, **changes}))
    return path


def test_a_phenopacket_says_what_was_seen_and_what_was_excluded(tmp_path: Path) -> None:
    patient = read_phenopacket(packet(tmp_path))
    assert (patient.name, patient.diseases) == ("PMID_1_p1", ("OMIM:1",))
    assert (patient.observed, patient.excluded, patient.others) == (
        ("HP:0000006",),
        ("HP:0000005",),
        ("HANCESTRO:0852",),
    )
    first = [{"type": {"id": "HP:0000005"}, "negated": True}]  # version 1
    assert read_phenopacket(packet(tmp_path, phenotypicFeatures=first, id=None)).name == "patient"
    assert read_phenopacket(packet(tmp_path, phenotypicFeatures=first)).excluded == ("HP:0000005",)
    assert read_phenopacket(packet(tmp_path, phenotypicFeatures=[], subject=None, diseases=3)).observed == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"phenotypicFeatures": None}, "no list `phenotypicFeatures`"),
        ({"phenotypicFeatures": [{"label": "x"}]}, "feature 1: found no `type` with an `id`"),
        (
            {"phenotypicFeatures": [{"type": {"id": "HP:0000005"}}, {"type": {"id": "HP:0000005"}, "excluded": True}]},
            "HP:0000005 observed and excluded",
        ),
    ],
)
def test_what_is_no_phenopacket_is_refused(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    with pytest.raises(CohortError, match=words):
        read_phenopacket(packet(tmp_path, **changes))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_not_json_is_one_line(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "patient.json").write_bytes(data)
    with pytest.raises(CohortError) as stopped:
        read_phenopacket(tmp_path / "patient.json")
    assert len(stopped.value.faults) == 1
