"""The Human Phenotype Ontology: its files as they are published, frequencies, closure, and patients."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from afa import TopKPlanner
from afa.bundle import load_bundle, validate_bundle
from afa.dialogue.sessions import read_panels
from afa.errors import BundleError, CohortError
from afa.formats.hpo import bundle_from_hpo, disease_terms, frequency_of, read_annotations
from afa.formats.ontology import Ontology, read_ontology
from afa.formats.patients import read_patients
from afa.inference.hierarchy import hierarchy_of

MIRROR = Path(__file__).parents[3] / "shared" / "fields" / "hpo"
needs_mirror = pytest.mark.skipif(not MIRROR.is_dir(), reason="needs ../shared/fields/hpo")


def hp(number: int) -> str:
    return f"HP:{number:07d}"


OBO = """\
format-version: 1.2
data-version: releases/2020-01-01

[Term]
id: HP:0000001
name: All

[Term]
id: HP:0000004
name: Ear: shape ! or size
is_a: HP:0000003 ! Head
is_a: HP:0000005 {source="x"} ! Sense

[Term]
id: HP:0000118
name: Phenotypic abnormality
is_a: HP:0000001 ! All

[Term]
id: HP:0000003
name: Head
alt_id: HP:0000033
is_a: HP:0000118 ! Phenotypic abnormality

[Term]
id: HP:0000005
name: Sense
is_a: HP:0000118

[Term]
id: HP:0000006
name: Large ear
is_a: HP:0000004

[Term]
id: HP:0000007
name: Onset
is_a: HP:0000001

[Term]
id: HP:0000008
name: obsolete Big ear
is_obsolete: true
replaced_by: HP:0000006

[Term]
id: HP:0000009
name: obsolete Odd ear
is_obsolete: true
consider: HP:0000006
consider: HP:0000004

[Typedef]
id: part_of
name: part of
"""
HPOA = """\
#description: "HPO annotations for rare diseases"
#version: 2023-10-09
database_id\tdisease_name\tqualifier\thpo_id\treference\tevidence\tonset\tfrequency\tsex\tmodifier\taspect\tbiocuration
OMIM:1\tOne\t\tHP:0000006\tPMID:1\tPCS\t\t1/4\t\t\tP\tx
OMIM:1\tOne\t\tHP:0000005\tPMID:1\tPCS\t\tHP:0040281\t\t\tP\tx
OMIM:1\tOne\t\tHP:0000007\tPMID:1\tPCS\t\t\t\t\tC\tx
OMIM:2\tTwo\t\tHP:0000008\tPMID:1\tPCS\t\t\t\t\tP\tx
OMIM:2\tTwo\t\tHP:0000033\tPMID:1\tPCS\t\t3/4\t\t\tP\tx
OMIM:3\tThree\tNOT\tHP:0000004\tPMID:1\tPCS\t\t\t\t\tP\tx
OMIM:3\tThree\t\tHP:0000005\tPMID:1\tPCS\t\tsometimes\t\t\tP\tx
OMIM:3\tThree\t\tHP:0000999\tPMID:1\tPCS\t\t\t\t\tP\tx
"""


@pytest.fixture
def ontology(tmp_path: Path) -> Ontology:
    (tmp_path / "hp.obo").write_text(OBO)
    return read_ontology(tmp_path / "hp.obo")


@pytest.fixture
def annotations(tmp_path: Path) -> pd.DataFrame:
    (tmp_path / "phenotype.hpoa").write_text(HPOA)
    return read_annotations(tmp_path / "phenotype.hpoa")


def test_terms_come_after_their_ancestors_and_other_ids_lead_to_the_current_one(ontology: Ontology) -> None:
    assert ontology.version == "releases/2020-01-01"
    assert ontology.names[hp(4)] == "Ear: shape ! or size"
    assert ontology.parents[hp(4)] == (hp(3), hp(5))
    assert ontology.ancestors[hp(6)] == {hp(1), hp(118), hp(3), hp(4), hp(5), hp(6)}
    assert all(ontology.ids.index(above) < ontology.ids.index(t) for t in ontology.ids for above in ontology.parents[t])
    found = [ontology.resolve(hp(number)) for number in (3, 33, 8, 9, 999)]
    assert found == [hp(3), hp(3), hp(6), None, None]


def test_a_term_made_later_is_placed_at_its_nearest_known_ancestors(ontology: Ontology, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text(
        "hpo_id,name,parents,alt_ids\nHP:0000118,P,,\nHP:0000003,Head,HP:0000118,\nHP:0000044,Ear,HP:0000003,HP:0000004\n"
        "HP:0000050,Left ear,HP:0000044|HP:0000003,\nHP:0000051,Tail,,\n"
    )
    newer = read_ontology(tmp_path / "new.csv")
    assert ontology.place(hp(33)) == ((hp(3),), "other_id")
    assert ontology.place(hp(44), newer) == ((hp(4),), "merged")
    assert ontology.place(hp(50), newer) == ((hp(4),), "ancestor")
    assert ontology.place(hp(50)) == ontology.place(hp(77), newer) == ((), "unknown")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no term"),
        (OBO.replace("is_a: HP:0000001 ! All\n\n[Term]\nid: HP:0000003", "[Term]\nid: HP:0000003"), None),
        (OBO.replace("is_a: HP:0000005 {", "is_a: HP:0000055 {"), "term HP:0000004: found the parent HP:0000055"),
        (OBO.replace("is_a: HP:0000118\n", "is_a: HP:0000006\n"), "a circle through"),
    ],
)
def test_an_ontology_that_is_none_is_refused(tmp_path: Path, text: str, words: str | None) -> None:
    (tmp_path / "hp.obo").write_text(text)
    if words is None:
        assert read_ontology(tmp_path / "hp.obo").parents[hp(118)] == ()
        return
    with pytest.raises(BundleError, match=words) as stopped:
        read_ontology(tmp_path / "hp.obo")
    assert len(stopped.value.faults) == 1


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("very rare", 0.01), ("Hallmark", 0.9), ("obligate", 1.0), ("HP:0040282", 0.545), ("3/12", 0.25),
        ("3 of 12", 0.25), ("12.5 %", 0.125), ("75%", 0.75), ("1-2%", 0.015), ("50%-90%", 0.7), ("0/7", 0.0),
        ("HP:0040285", 0.0),
        ("7/3", None), ("0/0", None), ("120%", None), ("hallamark", None), ("", None), ("0.5", None),
    ],
)  # fmt: skip
def test_a_frequency_is_a_word_a_ratio_or_a_range(text: str, number: float | None) -> None:
    found = frequency_of(text)
    assert np.isnan(found) if number is None else found == pytest.approx(number)


def unread(annotations: pd.DataFrame) -> list[str]:
    return annotations.loc[(annotations["said"] != "") & annotations["frequency"].isna(), "said"].tolist()


def test_all_published_forms_say_the_same(annotations: pd.DataFrame, tmp_path: Path) -> None:
    wide = "Disease ID\tDisease Name\tGene ID\tPhenotype ID\tFrequency\tNegation ID\t\n"
    old, table, folder = [], ["disease_id,disease_label,hpo_id,negated,frequency"], {}
    for line in HPOA.splitlines()[3:]:
        disease, name, negated, term, *_rest = line.split("\t")
        frequency = line.split("\t")[7]
        prefix, _, number = disease.partition(":")
        row = [prefix, number, name, negated, term, "PMID:1", "PCS", "", frequency, "", "O", "", "2009", "x"]
        old.append("\t".join(row))
        table.append(f"{disease},{name},{term},{int(negated == 'NOT')},{frequency}")
        folder[disease] = folder.get(disease, wide) + f"{disease}\t{name}\t\t{term}\t{frequency}\t{negated}\n"
    (tmp_path / "phenotype_annotation.tab").write_text("\n".join(old))
    with gzip.open(tmp_path / "annotations.csv.gz", "wt") as stream:
        stream.write("\n".join(table))
    (tmp_path / "annotated").mkdir()
    for disease, text in folder.items():
        (tmp_path / "annotated" / f"{disease.replace(':', '-')}.tab").write_text(text, encoding="latin-1")
    assert unread(annotations) == ["sometimes"]
    for name in ("phenotype_annotation.tab", "annotations.csv.gz", "annotated"):
        again = read_annotations(tmp_path / name)
        pd.testing.assert_frame_equal(again, annotations)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.replace("HP:0000007", "0000007"), "line 6: found 'OMIM:1' and '0000007'"),
        (lambda t: t.replace("hpo_id", "term"), "line 3: found no column hpo_id"),
        (lambda t: t.replace("OMIM:3\tThree\tNOT", "\tThree\tNOT"), "line 9: found nothing and 'HP:0000004'"),
        (lambda t: "", "no annotation"),
    ],
)
def test_a_wrong_row_of_annotations_is_named_by_its_line(tmp_path: Path, change, words: str) -> None:
    (tmp_path / "phenotype.hpoa").write_text(change(HPOA))
    with pytest.raises(BundleError, match=words) as stopped:
        read_annotations(tmp_path / "phenotype.hpoa")
    assert len(stopped.value.faults) == 1
    with pytest.raises(BundleError, match="No such file"):
        read_annotations(tmp_path / "absent.hpoa")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("cut.tab", "OMIM\t1\tOne\t\tHP:0000006\t\t\t\t\t\tO\nOMIM", "line 2: found nothing and nothing"),
        (
            "lines.csv",
            'disease_id,disease_label,hpo_id,negated,frequency\nOMIM:1,"One\n",HP:6,,\n',
            "line 3: found 'OMIM:1'",
        ),
        (
            "open.csv",
            'disease_id,disease_label,hpo_id,negated,frequency\nOMIM:1,"One,HP:6,,\n',
            "line 2: found 'OMIM:1'",
        ),
        ("long.csv", 'disease_id,hpo_id\n"' + "x" * 200_000, "text that is not CSV"),
    ],
)
def test_a_table_of_annotations_that_broke_off_is_named(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BundleError, match=words) as stopped:
        read_annotations(tmp_path / name)
    assert len(stopped.value.faults) == 1


def test_a_table_of_other_columns_is_no_ontology(tmp_path: Path) -> None:
    (tmp_path / "terms.csv").write_text("patient,pmid\na,1\n")
    with pytest.raises(BundleError, match="found no column hpo_id, name, parents, alt_ids"):
        read_ontology(tmp_path / "terms.csv")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no header"),
        ("patient;pmid\n", "separated by ';'"),
        ("patient,pmid,disease_id,observed\na,PMID:1,OMIM:1,\n", "column excluded: found no such column"),
        ("patient,pmid,disease_id,observed,excluded,sex\na,none,OMIM:1,,,f\n", "line 2, column pmid: found 'none'"),
        ("patient,pmid,disease_id,observed,excluded\na,PMID:1,OMIM:1\n", "line 2: found 3 fields"),
    ],
)
def test_what_is_no_table_of_patients_is_named(
    annotations: pd.DataFrame, ontology: Ontology, tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "patients.csv").write_text(text)
    known = disease_terms(annotations, ontology, unstated=0.5)
    with pytest.raises(CohortError, match=words):
        read_patients(tmp_path / "patients.csv", known, ontology, ontology)


@pytest.mark.parametrize("unstated", [0.0, 5.0, float("nan")])
def test_a_share_that_is_none_is_refused(annotations: pd.DataFrame, ontology: Ontology, unstated: float) -> None:
    with pytest.raises(BundleError, match="--unstated"):
        disease_terms(annotations, ontology, unstated=unstated)


def test_an_ancestor_has_the_largest_of_its_descendants_and_silence_follows_the_mean(
    annotations: pd.DataFrame, ontology: Ontology
) -> None:
    made = disease_terms(annotations, ontology, unstated=0.5)
    assert made.entities == ("OMIM:1", "OMIM:2", "OMIM:3")
    assert made.unknown == {hp(999): 1}
    assert made.floor == pytest.approx(1 / 6)
    order = [made.features.index(hp(number)) for number in (3, 5, 4, 6)]
    assert len(made.features) == 4
    floor = 1 / 6
    # One: large ear 1/4 carries ear and head, sense is 0.895 by its own row. Two: the replaced id has 0.5 where nothing
    # is stated, head is 3/4. Three: sense 0.5; ear is negated, and so is large ear below it; head is silent.
    expected = [[0.25, 5 / 6, 0.25, 0.25], [0.75, 0.5, 0.5, 0.5], [0.0, 0.5, floor, floor]]
    np.testing.assert_allclose(made.probabilities.toarray()[:, order], expected)
    assert made.probabilities.nnz == 11
    means = np.array([(0.25 + 0.75) / 3, (0.895 + 0.5 + 0.5) / 3, 0.25, 0.25])
    np.testing.assert_allclose(made.background[order], means)
    ear, head, sense = order[2], order[0], order[1]
    assert made.parents.toarray()[ear].nonzero()[0].tolist() == sorted([head, sense])
    assert made.closed().parent[ear] == head  # 1/3 against 0.63
    assert made.closed().parent[head] == -1


def test_an_ancestor_comes_by_each_of_its_signs_or_by_the_background(ontology: Ontology, tmp_path: Path) -> None:
    rows = ["disease_id,disease_label,hpo_id,negated,frequency", "a,A,HP:0000006,0,1/2", "a,A,HP:0000003,0,3/4"]
    (tmp_path / "a.csv").write_text("\n".join([*rows, "b,B,HP:0000005,0,1/4", ""]))
    made = disease_terms(read_annotations(tmp_path / "a.csv"), ontology, unstated=0.5)
    head, ear, large = (made.features.index(hp(number)) for number in (3, 4, 6))
    b, found = made.background, made.closed().probabilities.toarray()
    assert found[0, large] == pytest.approx(1 - (1 - 0.5) * (1 - b[large]))
    assert found[0, ear] == pytest.approx(1 - (1 - 0.5) * (1 - b[ear]))
    some = 1 - (1 - 0.75) * (1 - 0.5)  # head by its own row, or by the ear
    assert found[0, head] == pytest.approx(min(1 - (1 - some) * (1 - b[head]), 1 - made.floor))


def test_what_does_not_occur_leaves_what_nothing_is_said_of_to_the_background(
    annotations: pd.DataFrame, ontology: Ontology
) -> None:
    made = disease_terms(annotations, ontology, unstated=0.5)
    model = made.closed()
    head, ear, large = (made.features.index(hp(number)) for number in (3, 4, 6))
    found = model.probabilities.toarray()[2]  # Three: no abnormal ear, nothing of the head
    assert found[head] == pytest.approx(model.background[head])
    assert found[[ear, large]].tolist() == pytest.approx([made.floor] * 2)
    others = disease_terms(annotations[~annotations["negated"]], ontology, unstated=0.5).closed()
    np.testing.assert_allclose(model.probabilities.toarray()[:2], others.probabilities.toarray()[:2])


def test_a_bundle_says_what_its_files_say(tmp_path: Path) -> None:
    (tmp_path / "hp.obo").write_text(OBO)
    (tmp_path / "phenotype.hpoa").write_text(HPOA)
    known = bundle_from_hpo(
        tmp_path / "phenotype.hpoa",
        tmp_path / "hp.obo",
        "2020-01-01",
        tmp_path / "bundle",
        unstated=0.5,
        costs="depth",
        panels=tmp_path / "organs.yaml",
    )
    bundle = load_bundle(tmp_path / "bundle")
    assert validate_bundle(tmp_path / "bundle") == ([], [])
    assert (bundle.rates.holds, bundle.floor, bundle.version) == ("one", known.floor, "2020-01-01")
    assert bundle.entities == ("OMIM:1 One", "OMIM:2 Two", "OMIM:3 Three")
    made, place = hierarchy_of(bundle)
    assert [bundle.features[i].split(" ", 1)[0] for i in np.argsort(place)] == list(known.features)
    np.testing.assert_allclose(made.probabilities.toarray(), known.closed().probabilities.toarray(), atol=1e-12)
    ear = next(name for name in bundle.features if name.startswith(hp(4)))
    assert "acknowledged and cited" in bundle.licence
    assert bundle.aliases[next(name for name in bundle.features if name.startswith(hp(3)))] == (hp(3), hp(33), "Head")
    assert bundle.costs[bundle.features.index(ear)] == 2.0
    assert read_panels(tmp_path / "organs.yaml").features["Head"] == (f"{hp(3)} Head", ear)
    planner = TopKPlanner(bundle)
    planner.observe(f"{hp(6)} Large ear", 1)
    assert planner.suggest() is None, "a large ear implies all that there is"
    with pytest.raises(BundleError, match="unstated"):
        bundle_from_hpo(tmp_path / "phenotype.hpoa", tmp_path / "hp.obo", "x", tmp_path / "no", unstated=0.0)


def test_annotations_of_another_ontology_are_refused(annotations: pd.DataFrame, tmp_path: Path) -> None:
    (tmp_path / "other.obo").write_text("[Term]\nid: HP:0000118\nname: x\n")
    with pytest.raises(BundleError, match="no phenotypic term of the ontology"):
        disease_terms(annotations, read_ontology(tmp_path / "other.obo"), unstated=0.5)


@needs_mirror
def test_the_annotations_of_2015_close_within_a_minute_and_terms_are_placed_as_their_table_says() -> None:
    began = time.process_time()
    ontology = read_ontology(MIRROR / "hp_2016-04-01.obo.gz")
    annotations = read_annotations(MIRROR / "annotations_2015.csv.gz")
    made = disease_terms(annotations, ontology, unstated=0.9)
    assert time.process_time() - began < 60
    assert (len(annotations), annotations["disease"].nunique()) == (80_317, 6_843)
    assert unread(annotations) == ["hallamark"]
    assert made.probabilities.shape == (len(made.entities), len(made.features))
    child, parent = made.parents.nonzero()
    held = made.probabilities.toarray()
    clear = held[:, child] > made.floor
    assert (held[:, parent] >= held[:, child])[clear].all()
    newer = read_ontology(MIRROR / "terms_2024-02-08.csv.gz")
    told = pd.read_csv(MIRROR / "terms.csv.gz").fillna("")
    words = {"other_id": "alt_id"}
    for term, expected, how in zip(told["hpo_id"], told["map_2016"], told["how_2016"], strict=True):
        found, way = ontology.place(term, newer)
        assert ("|".join(found), words.get(way, way)) == (expected, how), term
