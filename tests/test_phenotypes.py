"""Patients with rare diseases: signs placed in the ontology, orders of questions, and what is told of them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import afa

from afa.errors import CohortError
from afa.formats.hpo import DiseaseTerms, disease_terms, read_annotations
from afa.formats.ontology import Ontology, read_ontology
from afa.formats.patients import Patient, chosen, read_patients
from afa.inference.answers import Answers
from afa.phenotypes import (
    ALL_NOTED,
    ORDERS,
    acquisition,
    at_full_observation,
    likelihood_ratio_score,
    over_papers,
    rank_of,
    summary,
    until_final,
    walk,
)

OBO = """[Term]
id: HP:0000118
name: Phenotypic abnormality

[Term]
id: HP:0000001
name: Abnormality of the ear
is_a: HP:0000118

[Term]
id: HP:0000002
name: Large ear
is_a: HP:0000001

[Term]
id: HP:0000003
name: Deafness
is_a: HP:0000001

[Term]
id: HP:0000004
name: Seizure
is_a: HP:0000118
"""
NEWER = (
    OBO
    + """
[Term]
id: HP:0000009
name: Very large ear
is_a: HP:0000002
"""
)
ANNOTATIONS = """disease_id,disease_label,hpo_id,negated,frequency
a,A,HP:0000002,0,9/10
a,A,HP:0000004,0,1/10
b,B,HP:0000003,0,8/10
c,C,HP:0000004,0,9/10
"""
PATIENTS = """patient,pmid,disease_id,observed,excluded
p,PMID:1,a,HP:0000009,HP:0000003|HP:0000001|HP:0000004
q,PMID:1,c,HP:0000004,
r,PMID:2,b,HP:0000003|HP:0000004,HP:0000009
s,PMID:3,unknown,HP:0000003,
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hp.obo").write_text(OBO)
    (tmp_path / "newer.obo").write_text(NEWER)
    (tmp_path / "annotations.csv").write_text(ANNOTATIONS)
    (tmp_path / "patients.csv").write_text(PATIENTS)
    return tmp_path


@pytest.fixture
def ontology(folder: Path) -> Ontology:
    return read_ontology(folder / "hp.obo")


@pytest.fixture
def known(folder: Path, ontology: Ontology) -> DiseaseTerms:
    return disease_terms(read_annotations(folder / "annotations.csv"), ontology, unstated=0.5)


@pytest.fixture
def patients(folder: Path, known: DiseaseTerms, ontology: Ontology) -> list[Patient]:
    return read_patients(folder / "patients.csv", known, ontology, read_ontology(folder / "newer.obo"))


def test_a_newer_sign_counts_as_its_known_ancestor_only_where_it_was_seen(
    patients: list[Patient], known: DiseaseTerms
) -> None:
    large, deaf, seizure = (known.features.index(f"HP:000000{n}") for n in (2, 3, 4))
    assert [patient.name for patient in patients] == ["p", "q", "r"], "the disease of s has no annotation"
    p, _, r = patients
    assert p.present == (large,)
    assert p.absent == (deaf, seizure), "an abnormality of the ear cannot be absent with a large one"
    assert (r.present, r.absent) == ((deaf, seizure), ())


def test_ranks_share_the_middle_of_their_places() -> None:
    score = np.array([3.0, 1.0, 1.0, 0.0])
    assert [rank_of(score, disease) for disease in range(4)] == [1.0, 2.5, 2.5, 4.0]


def test_likelihood_ratios_by_hand(known: DiseaseTerms) -> None:
    model = known.closed()
    large, seizure = known.features.index("HP:0000002"), known.features.index("HP:0000004")
    p, b = model.probabilities.toarray(), model.background
    found = likelihood_ratio_score(model, [large], [seizure])
    ear = known.features.index("HP:0000001")
    with_ear = p[1, ear] * b[large] / b[ear]  # b has another sign of the ear
    expected = np.log([p[0, large] / b[large], with_ear / b[large], 1.0])
    expected += np.log([(1 - p[0, seizure]), 1 - b[seizure], 1 - p[2, seizure]]) - np.log(1 - b[seizure])
    np.testing.assert_allclose(found, expected)


def test_a_walk_asks_each_open_sign_once_and_ends_with_all_that_is_reported(
    patients: list[Patient], known: DiseaseTerms
) -> None:
    model = known.closed()
    for patient in patients:
        reported = [*patient.present, *patient.absent]
        final = rank_of(Answers.of(model, patient.present, patient.absent).posterior, patient.disease)
        for order in ORDERS:
            ranks = walk(model, patient, reported, order)
            assert ranks[-1] == final
            assert len(ranks) - 1 <= len(reported)


def test_a_sign_that_the_paper_does_not_report_costs_a_question_and_moves_nothing(
    patients: list[Patient], known: DiseaseTerms
) -> None:
    model, q = known.closed(), patients[1]
    seizure = known.features.index("HP:0000004")
    others = [term for term in range(len(known.features)) if term != seizure]
    ranks = walk(model, q, [*others, seizure], "paper", most=len(known.features))
    before = rank_of(Answers.of(model).posterior, q.disease)
    assert ranks[:-1] == [before] * len(known.features)
    assert ranks[-1] == rank_of(Answers.of(model, [seizure]).posterior, q.disease) == 1.0


def test_the_planner_asks_first_what_tells_most(patients: list[Patient], known: DiseaseTerms) -> None:
    model = known.closed()
    every = np.arange(len(known.features))
    information = Answers.of(model).information(every)
    assert Answers.of(model).most_informative(every) == int(np.argmax(information))


def test_questions_until_the_rank_is_final_are_counted_from_the_last_time_it_was_not() -> None:
    table = pd.DataFrame({"patient": "p", "paper": "x", "questions": "reported", "order": "random"}, index=range(5))
    table = table.assign(asked=range(5), rank=[9.0, 4.0, 7.0, 4.2, 4.0])
    assert until_final(table)["asked"].tolist() == [3]


def test_intervals_are_over_papers() -> None:
    table = pd.DataFrame({"paper": ["x"] * 50 + ["y"], "value": [1.0] * 50 + [0.0], "signs": "all"})
    (row,) = over_papers(table, "value", ["signs"]).itertuples()
    assert row.mean == pytest.approx(50 / 51)
    assert (row.low, row.high) == (0.0, 1.0), "two papers, either of which may be drawn alone"


def test_the_command_writes_its_tables_or_says_what_is_wrong(folder: Path) -> None:
    given = [folder / name for name in ("annotations.csv", "hp.obo", "patients.csv")]
    options = ["--newer", folder / "newer.obo", "--out", folder / "made", "--every", "2"]
    done = afa("phenotypes", *given, *options)
    assert done.returncode == 0, done.stderr
    assert "3 diseases, 4 signs, 3 patients" in done.stdout
    rows = pd.read_csv(folder / "made" / "summary.csv")
    assert set(rows["questions"]) == {"all", "present", "reported", "every", ALL_NOTED}
    full, walked = (pd.read_parquet(folder / "made" / f"{name}.parquet") for name in ("full", "walks"))
    pd.testing.assert_frame_equal(summary(full, walked), rows, check_dtype=False)
    refused = afa("phenotypes", *given, *options, "--later-than", "9")
    assert (refused.returncode, refused.stderr) == (
        2,
        "afa: patients: found none later than PMID:9; expected one or more. Next step: lower --later-than.\n",
    )


def test_patients_are_chosen_by_paper(patients: list[Patient], known: DiseaseTerms) -> None:
    assert [patient.name for patient in chosen(patients, 0, 1)] == ["p", "r"]
    assert [patient.name for patient in chosen(patients, 1, 9)] == ["r"]
    with pytest.raises(CohortError, match="none later"):
        chosen(patients, 2, 9)
    every = acquisition(known.closed(), patients[:1], questions="every", most=2)
    assert set(every["order"]) == set(ORDERS) - {"paper"}
    assert every["asked"].max() == 2


def test_what_no_paper_notes_can_count_as_absent(patients: list[Patient], known: DiseaseTerms) -> None:
    model, every = known.closed(), range(len(known.features))
    q = patients[1]
    noted = walk(model, q, every, "most_frequent")
    absent = walk(model, q, every, "most_frequent", noted=False)
    final = Answers.of(model, q.present, [at for at in every if at not in q.present]).posterior
    assert absent[-1] == rank_of(final, q.disease)
    assert noted[-1] == rank_of(Answers.of(model, q.present, q.absent).posterior, q.disease)


def test_the_summary_compares_the_same_patients_and_names_its_subsets(
    patients: list[Patient], known: DiseaseTerms
) -> None:
    full = at_full_observation(known.closed(), patients)
    walked = acquisition(known.closed(), patients, questions="reported")
    late = summary(full.assign(paper="PMID:30000000"), walked, {"p"})
    subsets = {"all", "later", "later, with frequencies", "later, 1 to 4 signs", "walked"}
    assert set(late["subset"]) == subsets
    lead = late[(late["of"] == "planner less random") & (late["asked"] == 0)]
    assert (lead["mean"] == 0).all(), "before the first question all orders are alike"
    wide = (
        full[full["signs"] == "all"]
        .assign(ten=full["rank"] <= 10)
        .pivot_table(index="patient", columns="scorer", values="ten")
    )
    found = late[(late["what"] == "ten") & (late["subset"] == "all") & (late["questions"] == "all")].set_index("of")[
        "mean"
    ]
    assert found["posterior less likelihood_ratio"] == (wide["posterior"] - wide["likelihood_ratio"]).mean()
    assert found["frequency"] == wide["frequency"].mean()


def test_a_table_without_a_column_is_refused(folder: Path, known: DiseaseTerms, ontology: Ontology) -> None:
    (folder / "patients.csv").write_text(PATIENTS.replace("observed", "seen", 1))
    with pytest.raises(CohortError, match="column observed: found no such column"):
        read_patients(folder / "patients.csv", known, ontology, ontology)
