"""The recorded elicitation, built into a bundle that says what it is."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml
from records import add_genes, add_pairs, write_study

from afa.elicit.record import UNKNOWN, Record
from afa.elicit.stages import build_recorded_bundle
from afa.errors import ElicitationError
from afa.io.files import sha256_of
from afa.model.bundle import Bundle, load_bundle, validate_bundle
from afa.model.study import load_study

RECORD = Path(__file__).parents[2] / "resources" / "elicitation"


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """One phenotype: A up in three runs, B down in two, C up in two, D in one; A-B opposite, A-C same, B-C unclear."""
    folder = write_study(tmp_path / "study", ["colitis"])
    add_genes(folder, "colitis", "r1", {"A": (1, 0.9), "B": -1, "C": 1})
    add_genes(folder, "colitis", "r2", {"A": (1, 0.6), "B": -1, "D": 1})
    add_genes(folder, "colitis", "r3", {"A": (1, 0.6), "C": (1, 1)})
    add_pairs(folder, "colitis", {("B", "A"): -1}, lit_prob=0.7)
    add_pairs(folder, "colitis", {("A", "C"): 1}, lit_prob=0.8)
    add_pairs(folder, "colitis", {("B", "C"): 0})
    return folder


def test_the_record_in_the_repository_is_what_its_raw_files_make() -> None:
    """The text of a unary answer is its file's; the answer on a pair is its row. What is not known says so."""
    raw = {path.read_text() for path in RECORD.glob("raw/unary/r?/*.json")}
    for path in RECORD.glob("raw/pairwise/*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                genes = row.pop("gene1"), row.pop("gene2")
                raw.add((path.stem, *genes, json.dumps(row | {"lit_prob": float(row["lit_prob"])}, sort_keys=True)))
    entries, found = list(Record(RECORD / "record").entries()), set()
    for entry in entries:
        if entry.question.prompt == "unary":
            found.add(entry.raw)
        else:
            pair = (entry.question.values[name] for name in ("phenotype", "gene1", "gene2"))
            found.add((*pair, json.dumps(json.loads(entry.raw), sort_keys=True)))
    assert (len(entries), found) == (75 + 5879, raw)
    for name in ("model", "parameters", "prompt_digest", "messages", "time", "tokens", "served_model"):
        assert {getattr(entry, name) for entry in entries} == {UNKNOWN}


def test_the_built_bundle_is_as_worked_by_hand(record: Path, tmp_path: Path) -> None:
    bundle, dropped = build_recorded_bundle(record, tmp_path / "bundle", min_agree=2)
    assert bundle.entities == ("colitis",)
    assert bundle.features == ("A", "B", "C")
    assert bundle.unary.tolist() == [[1, -1, 1]]
    assert bundle.couplings("colitis").toarray().tolist() == [[0, -1, 1], [-1, 0, 0], [1, 0, 0]]
    assert dropped.to_numpy().tolist() == [["colitis", "D", "named by 1 of 3 runs, 2 needed"]]
    assert (tmp_path / "bundle" / "unary.csv").read_text().splitlines()[1] == (
        "colitis,A,1,0.7,named by 3 of 3 runs; r1: m"
    )
    assert (tmp_path / "bundle" / "pairwise.csv").read_text() == (
        "entity,feature_a,feature_b,potential,confidence,evidence\n"
        "colitis,A,B,-1,0.7,s\ncolitis,A,C,1,0.8,s\n"
    )  # fmt: skip


def test_a_stricter_consensus_keeps_couplings_only_between_its_survivors(record: Path, tmp_path: Path) -> None:
    bundle, dropped = build_recorded_bundle(record, tmp_path / "bundle", min_agree=3)
    assert bundle.features == ("A",)
    assert bundle.couplings("colitis").nnz == 0
    assert len(dropped) == 3


def test_a_pair_of_survivors_that_was_not_asked_is_refused(record: Path, tmp_path: Path) -> None:
    counted = "found no answer to 3 of 6 questions (3 never asked); first colitis A-D"
    with pytest.raises(ElicitationError, match=re.escape(counted)):
        build_recorded_bundle(record, tmp_path / "bundle", min_agree=1)
    assert not (tmp_path / "bundle").exists()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], tuple[Bundle, Path]]:
    """Builds the bundle of the project's record where so many runs must agree, each once: itself and its folder."""

    @cache
    def build(min_agree: int) -> tuple[Bundle, Path]:
        folder = tmp_path_factory.mktemp("built") / "bundle"
        bundle, _ = build_recorded_bundle(RECORD, folder, min_agree=min_agree)
        return bundle, folder

    return build


@pytest.mark.parametrize(("min_agree", "n_features"), [(2, 253), (3, 183)])
def test_the_bundle_of_the_project_record_is_sound_and_has_the_known_size(
    built, min_agree: int, n_features: int
) -> None:
    bundle, folder = built(min_agree)
    assert len(bundle.features) == n_features
    assert bundle.entities == tuple(load_study(RECORD).names)
    assert validate_bundle(folder) == ([], ["bundle.yaml: no licence"])
    assert load_bundle(folder).digest == bundle.digest


FROZEN = {
    2: {
        "bundle.yaml": "325a7171eca261e1dad3d3dbb8a912a2c5cbec79118b448642e43ca128b851fc",
        "pairwise.csv": "e6d8d135e220374a776ed7a8333e23525d11f019b7be441cc160761564609111",
        "unary.csv": "dad97ef23a59f90b817d8329c6a405c920d48f6e77fdf333f5f18b481e1b4610",
    },
    3: {
        "bundle.yaml": "1610908e1812514bc6111161f293e126a3686684850fde0841f160cd873185a1",
        "pairwise.csv": "cc5dd7f4ce504308b4fe6a69c43871da28895ab55618afec1014c891be5ed92f",
        "unary.csv": "96b1c25bdca8f19986cd8926db1133818b197ee66efbe8425ebf8f2ede71ca9f",
    },
}
"""The files of the bundle of the project's record, by how many runs must agree. Every experiment stands on them."""


@pytest.mark.parametrize("min_agree", FROZEN)
def test_the_project_record_gives_the_same_bundle_in_every_version(built, min_agree: int) -> None:
    _, folder = built(min_agree)
    assert {path.name: sha256_of(path) for path in folder.iterdir()} == FROZEN[min_agree]


def test_building_twice_gives_the_same_bytes(built, tmp_path: Path) -> None:
    _, folder = built(2)
    build_recorded_bundle(RECORD, tmp_path / "again", min_agree=2)
    for path in folder.iterdir():
        assert sha256_of(path) == sha256_of(tmp_path / "again" / path.name)


def test_the_provenance_counts_unclear_pairs_and_says_what_the_record_is_not(built) -> None:
    _, folder = built(2)
    provenance = yaml.safe_load((folder / "bundle.yaml").read_text())["provenance"]
    counts = provenance["counts"]
    assert counts["pairs_asked_of_survivors"] == 5879
    assert (counts["pairs_same"], counts["pairs_opposite"], counts["pairs_unclear"]) == (1918, 497, 3464)
    assert provenance["date"] == "unknown"
    assert provenance["model"].startswith("unknown")
    caveats = " ".join(provenance["caveats"])
    for words in ("one model", "no literature was checked", "confirms nothing", "not calibrated"):
        assert words in caveats


def test_probabilities_stand_beside_the_potentials_of_the_record(built, tmp_path: Path) -> None:
    plain, _ = built(2)
    bundle, _ = build_recorded_bundle(RECORD, tmp_path / "rated", min_agree=2, probabilities=RECORD / "probabilities")
    np.testing.assert_array_equal(bundle.unary, plain.unary)
    np.testing.assert_array_equal(bundle.packed.value, plain.packed.value)
    assert bundle.rates is not None
    assert (len(bundle.rates.probability_rows), bundle.rates.encoding) == (553, "controls")
    assert validate_bundle(tmp_path / "rated")[0] == []
    with_entity, _, spoken = bundle.how_often("abdominal_bloating")
    row = bundle.features.index("AQP8")
    voters = np.array([[0.52, 0.45, 0.03], [0.45, 0.51, 0.04], [0.42, 0.56, 0.02]])
    pooled = np.exp(np.log(voters).mean(axis=0))
    np.testing.assert_allclose(with_entity[row], pooled / pooled.sum(), atol=1e-5)
    assert row in spoken


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("colitis,A,0.5,0.2,0.6,0.2,0.3", "line 2, column p_high_with: found 1.1 low and high together"),
        ("colitis,Z,0.5,0.2,0.1,0.2,0.3", "line 2, column gene: found colitis Z"),
        ("colitis,A,half,0.2,0.1,0.2,0.3", "line 2, column p_high_with: found 'half'"),
        ("colitis,A,.5,.2,.1,.2,\ncolitis,A,.5,.2,.1,.2,", "line 3: found the same as line 2; expected each pair once"),
    ],
)
def test_voters_are_checked_row_by_row(record: Path, tmp_path: Path, row: str, expected: str) -> None:
    header = "phenotype,gene,p_high_with,p_high_without,p_low_with,p_low_without,confidence"
    (tmp_path / "voters").mkdir()
    (tmp_path / "voters" / "one.csv").write_text(f"{header}\n{row}\n")
    with pytest.raises(ElicitationError, match=re.escape(expected)):
        build_recorded_bundle(record, tmp_path / "bundle", min_agree=2, probabilities=tmp_path / "voters")
    assert not (tmp_path / "bundle").exists()
