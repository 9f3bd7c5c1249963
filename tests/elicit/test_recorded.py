"""The recorded elicitation: strictly read, and built into a bundle that says what it is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml

from afa.elicit.record import Entry
from afa.elicit.recorded import imported
from afa.elicit.stages import build_recorded_bundle
from afa.elicit.tables import genes_named, pairs_judged
from afa.errors import ElicitationError
from afa.io.files import sha256_of
from afa.model.bundle import Bundle, load_bundle, validate_bundle
from afa.model.study import load_study

RECORD = Path(__file__).parents[2] / "resources" / "elicitation"
PAIR_HEADER = "gene1,gene2,lit_direction,lit_prob,evidence_source,supporting_text\n"


def gene(symbol: str, direction: str = "Upregulated", probability: object = 0.5) -> dict:
    return {
        "gene_symbol": symbol,
        "category": "c",
        "direction_in_disease": direction,
        "mechanism_of_action": f"{symbol} acts",
        "tissue": "colon",
        "lit_prob": probability,
        "evidence_source": "model_knowledge",
    }


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """One phenotype: A up in three runs, B down in two, C up in two, D in one; A-B opposite, A-C same, B-C unclear."""
    folder = tmp_path / "record"
    named = {
        "r1": [gene("A", probability=0.9), gene("B", "Downregulated"), gene("C")],
        "r2": [gene("A", probability=0.6), gene("B", "Downregulated"), gene("D")],
        "r3": [gene("A", probability=0.6), gene("C", probability=1)],
    }
    for run, genes in named.items():
        path = folder / "raw" / "unary" / run / "colitis.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"phenotype": "colitis", "run": run, "genes": genes}))
    (folder / "raw" / "pairwise").mkdir()
    (folder / "raw" / "pairwise" / "colitis.csv").write_text(
        PAIR_HEADER
        + "B,A,opposite,0.7,model_knowledge,they part\nA,C,same,0.8,model_knowledge,\nB,C,unclear,0.5,none,\n"
    )
    (folder / "phenotypes.csv").write_text("phenotype,group,definition\ncolitis,gi,Inflamed colon\n")
    (folder / "study.yaml").write_text("name: recorded\ndisease: colitis\ntissue: colon\n")
    return folder


def answer_of(record: Path, run: str = "r1") -> Path:
    return record / "raw" / "unary" / run / "colitis.json"


def edit(path: Path, change: Callable[[dict], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def refused(record: Path) -> str:
    with pytest.raises(ElicitationError) as caught:
        imported(record)
    assert len(caught.value.faults) == 1, str(caught.value)
    return str(caught.value).replace(f"{record}/", "")


def by_prompt(folder: Path) -> tuple[list[Entry], list[Entry]]:
    entries = imported(folder)
    return tuple([each for each in entries if each.question.prompt == prompt] for prompt in ("unary", "pairwise"))


def test_answers_and_pairs_are_read_row_by_row(record: Path) -> None:
    answers, pairs = by_prompt(record)
    named, judged = genes_named(answers), pairs_judged(pairs)
    columns = ["run", "phenotype", "gene", "direction", "lit_prob", "mechanism"]
    assert named[columns].iloc[1].tolist() == ["r1", "colitis", "B", "Downregulated", 0.5, "B acts"]
    rows = [["B", "A", -1, 0.7], ["A", "C", 1, 0.8], ["B", "C", 0, 0.5]]
    assert judged[["gene_a", "gene_b", "sign", "lit_prob"]].values.tolist() == rows


def test_the_project_record_holds_three_runs_of_every_phenotype_in_order() -> None:
    answers, pairs = by_prompt(RECORD)
    named = genes_named(answers)
    phenotypes = list(dict.fromkeys(named["phenotype"]))
    assert len(phenotypes) == 25
    assert phenotypes[0] == "chronic_diarrhea"
    assert len(named.groupby(["run", "phenotype"])) == len(answers) == 75
    assert (len(named), len(pairs)) == (1808, 5879)


def test_a_missing_run_is_refused(record: Path) -> None:
    answer_of(record, "r2").unlink()
    assert refused(record).startswith("raw/unary/r2/colitis.json: found No such file or directory; expected the answer")


def test_a_file_of_an_unknown_phenotype_is_refused(record: Path) -> None:
    (record / "raw" / "pairwise" / "gastritis.csv").write_text(PAIR_HEADER)
    assert refused(record).startswith("raw/pairwise/gastritis.csv: found a file of no known run and phenotype")


def test_text_that_is_not_json_is_refused(record: Path) -> None:
    answer_of(record).write_text("Here are the genes: {")
    assert refused(record).startswith("raw/unary/r1/colitis.json: found text that is not JSON (Expecting value: line 1")


def test_a_json_key_given_twice_is_refused(record: Path) -> None:
    path = answer_of(record)
    path.write_text(path.read_text().replace('"run": "r1"', '"run": "r2", "run": "r1"'))
    assert "key 'run' given twice" in refused(record)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [("run", "r2", "'r1'"), ("phenotype", "gastritis", "'colitis'")],
)
def test_an_answer_must_be_of_the_run_and_phenotype_of_its_file(
    record: Path, key: str, value: str, expected: str
) -> None:
    edit(answer_of(record), lambda document: document.update({key: value}))
    expected = f"raw/unary/r1/colitis.json, key {key}: found {value!r}; expected {expected}, as the file is named"
    assert refused(record).startswith(expected)


@pytest.mark.parametrize(
    ("genes", "said"),
    [
        ([], "[]; expected at least 1 of them"),
        (None, "nothing; expected a list"),
        ("A, B", "'A, B'; expected a list"),
    ],
)
def test_an_answer_without_genes_is_refused(record: Path, genes: object, said: str) -> None:
    edit(answer_of(record), lambda document: document.update(genes=genes))
    assert refused(record).startswith(f"raw/unary/r1/colitis.json, key genes: found {said}")


def test_an_answer_that_names_no_run_is_refused(record: Path) -> None:
    edit(answer_of(record), lambda document: document.update(run=None))
    assert refused(record).startswith("raw/unary/r1/colitis.json, key run: found nothing; expected text")


@pytest.mark.parametrize(
    ("key", "value", "found", "expected"),
    [
        ("direction_in_disease", "up", "'up'", "'Upregulated' or 'Downregulated'"),
        ("lit_prob", 1.5, "1.5", "less than or equal to 1"),
        ("lit_prob", "0.5", "'0.5'", "a number"),
        ("lit_prob", True, "True", "a number"),
        ("lit_prob", float("nan"), "nan", "less than or equal to 1"),
        ("gene_symbol", "", "''", "text of at most 200 characters, none of them invisible, without spaces around it"),
        (
            "gene_symbol",
            " A",
            "' A'",
            "text of at most 200 characters, none of them invisible, without spaces around it",
        ),
        ("tissue", 3, "3", "text; put it in quotes"),
        ("certainty", 1, "an unknown key", "only known keys"),
    ],
)
def test_a_wrong_value_is_named_by_file_gene_and_key(
    record: Path, key: str, value: object, found: str, expected: str
) -> None:
    edit(answer_of(record), lambda document: document["genes"][1].update({key: value}))
    where = f"raw/unary/r1/colitis.json, key genes.1.{key}"
    assert refused(record).startswith(f"{where}: found {found}; expected {expected}. Next step: ")


def test_a_missing_key_is_named(record: Path) -> None:
    edit(answer_of(record), lambda document: document["genes"][2].pop("lit_prob"))
    assert refused(record).startswith("raw/unary/r1/colitis.json, key genes.2.lit_prob: found nothing")


def test_a_gene_that_is_not_an_object_is_refused(record: Path) -> None:
    edit(answer_of(record), lambda document: document["genes"].append("MUC2"))
    assert refused(record).startswith("raw/unary/r1/colitis.json, key genes.3: found 'MUC2'; expected a mapping")


def test_a_gene_named_twice_in_one_answer_is_refused(record: Path) -> None:
    edit(answer_of(record), lambda document: document["genes"].append(gene("A")))
    assert "expected each gene once, not A twice" in refused(record)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            "A,C,same",
            "A,C,equal",
            "line 3, column lit_direction: found 'equal'; expected one of same, opposite, unclear",
        ),
        ("0.8", "1.8", "line 3, column lit_prob: found '1.8'; expected a number in [0, 1]"),
        ("A,C,same", "A,B,same", "line 3: found the same as line 2; expected each pair once, in either order"),
        ("A,C,same", "C,C,same", "line 3, column gene2: found C paired with itself"),
        ("A,C,same", ",C,same", "line 3, column gene1: found nothing; expected a name"),
        ("they part", "they, part", "line 2: found 7 fields; expected 6, as in the header"),
        ("supporting_text", "text", "line 1, column supporting_text: found no such column"),
        ("supporting_text", "supporting_text,x", "line 1, column x: found an unknown column"),
    ],
)
def test_a_faulty_pair_is_named_by_line_and_column(record: Path, old: str, new: str, fault: str) -> None:
    path = record / "raw" / "pairwise" / "colitis.csv"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ElicitationError, match=re.escape(f"raw/pairwise/colitis.csv, {fault}")):
        imported(record)


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("colitis,gi,again\n", "phenotypes.csv, line 3, column phenotype: found colitis again"),
        (",gi,empty\n", "phenotypes.csv, line 3, column phenotype: found nothing; expected a name"),
    ],
)
def test_a_faulty_phenotype_is_refused(record: Path, row: str, fault: str) -> None:
    with (record / "phenotypes.csv").open("a") as stream:
        stream.write(row)
    assert refused(record).startswith(fault)


def test_all_faults_of_a_record_are_raised_at_once(record: Path) -> None:
    edit(answer_of(record, "r1"), lambda document: document["genes"][0].update(lit_prob=2))
    edit(answer_of(record, "r3"), lambda document: document["genes"][0].update(lit_prob=-2))
    with pytest.raises(ElicitationError) as caught:
        imported(record)
    assert len(caught.value.faults) == 2


def test_the_built_bundle_is_as_worked_by_hand(record: Path, tmp_path: Path) -> None:
    bundle, dropped = build_recorded_bundle(record, tmp_path / "bundle", min_agree=2)
    assert bundle.entities == ("colitis",)
    assert bundle.features == ("A", "B", "C")
    assert bundle.unary.tolist() == [[1, -1, 1]]
    assert bundle.couplings("colitis").toarray().tolist() == [[0, -1, 1], [-1, 0, 0], [1, 0, 0]]
    assert dropped.to_numpy().tolist() == [["colitis", "D", "named by 1 of 3 runs, 2 needed"]]
    assert (tmp_path / "bundle" / "unary.csv").read_text().splitlines()[1] == (
        "colitis,A,1,0.7,named by 3 of 3 runs; r1: A acts"
    )
    assert (tmp_path / "bundle" / "pairwise.csv").read_text() == (
        "entity,feature_a,feature_b,potential,confidence,evidence\n"
        "colitis,A,B,-1,0.7,they part\ncolitis,A,C,1,0.8,\n"
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
