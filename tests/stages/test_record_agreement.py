"""Agreement of recorded answers, on a record of two phenotypes and three runs that is worked by hand."""

import pytest
from records import add_anchor, add_conditional, add_genes, add_pairs, write_study

from afa.elicit.record import Record
from afa.elicit.study import load_study
from afa.errors import ElicitationError
from afa.stages.elicitation_health.answers import check_of_record, read_answers, record_agreement, run_orders, votes

ANSWERS = {
    ("P", "r1"): {"A": (1, 0.9), "B": -1, "C": 1},
    ("P", "r2"): {"A": (1, 0.7), "B": -1, "D": 1},
    ("P", "r3"): {"A": (1, 0.8), "B": 1},
    ("Q", "r1"): {"A": 1, "E": -1},
    ("Q", "r2"): {"A": -1, "E": -1},
    ("Q", "r3"): {"E": -1, "F": 1},
}
ONE, OTHER = "a" * 64, "b" * 64


@pytest.fixture
def study(tmp_path):
    folder = write_study(tmp_path / "study", ("P", "Q"))
    for (phenotype, run), genes in ANSWERS.items():
        add_genes(folder, phenotype, run, genes)
    add_pairs(folder, "P", {("B", "A"): -1, ("A", "C"): 0})
    return folder


def answers_of(folder, counting=()):
    return read_answers(load_study(folder), folder / "record", counting)


def sums(table, keys, columns):
    return {key: tuple(part[list(columns)].sum()) for key, part in table.groupby(keys)}


def test_the_record_is_read_by_run_phenotype_and_gene(study):
    answers = answers_of(study)
    assert answers.entities == ("P", "Q")
    assert answers.runs == ("r1", "r2", "r3")
    named = answers.named.set_index(["entity", "run", "feature"])
    assert len(named) == 14
    assert named.loc[("P", "r2", "B"), "sign"] == -1
    assert named.loc[("P", "r2", "A"), "lit_prob"] == 0.7
    assert answers.judged[["entity", "feature_a", "feature_b", "sign"]].to_numpy().tolist() == [
        ["P", "A", "B", -1],
        ["P", "A", "C", 0],
    ]


def test_pairs_count_however_they_were_asked_for_and_two_ways_are_two_wordings(study):
    add_anchor(study, "P", "A", {"B": -1, "C": 1}, ONE)
    add_anchor(study, "P", "B", {"C": 1}, ONE)
    add_conditional(study, "P", "C", "A", 0.2, 0.6, OTHER)
    answers = answers_of(study)
    judged = answers.judged.set_index(["wording", "feature_a", "feature_b"])["sign"]
    assert judged[ONE].to_dict() == {("A", "B"): -1, ("A", "C"): 1, ("B", "C"): 1}
    assert judged[OTHER].to_dict() == {("A", "C"): -1}
    asked = answers.asked[(answers.asked["prompt"] == "pairwise") & (answers.asked["entity"] == "P")]
    assert asked.set_index("wording")[["asked", "answered"]].T.to_dict("list") == {
        ONE: [3, 3],
        OTHER: [1, 1],
        "unknown": [2, 2],
    }
    twice = record_agreement(answers)["wordings"].query("prompt == 'pairwise'").set_index(["wording_a", "wording_b"])
    assert twice["shared"].to_dict() == {(ONE, OTHER): 1, (ONE, "unknown"): 2, (OTHER, "unknown"): 1}
    assert twice["same"].to_dict() == {(ONE, OTHER): 0, (ONE, "unknown"): 1, (OTHER, "unknown"): 0}


def test_two_runs_share_the_genes_that_both_name(study):
    overlap = record_agreement(answers_of(study))["overlap"]
    counts = sums(overlap, ["entity", "run_a", "run_b"], ("shared", "union", "same"))
    assert counts == {
        ("P", "r1", "r2"): (2, 4, 2),
        ("P", "r1", "r3"): (2, 3, 1),
        ("P", "r2", "r3"): (2, 3, 1),
        ("Q", "r1", "r2"): (2, 2, 1),
        ("Q", "r1", "r3"): (1, 3, 1),
        ("Q", "r2", "r3"): (1, 3, 1),
    }


def test_the_baseline_holds_runs_against_other_runs_of_another_phenotype(study):
    baseline = record_agreement(answers_of(study))["baseline"]
    assert sums(baseline, "entity", ("shared", "union", "same")) == {"P": (4, 24, 2), "Q": (4, 24, 2)}


def test_a_consensus_of_more_runs_or_fewer_votes_keeps_what_the_rule_says(study):
    kept = record_agreement(answers_of(study))["kept"]
    mean = sums(kept.assign(kept=kept["kept"] / kept["orders"]), ["runs", "min_agree"], ["kept"])
    assert {key: pytest.approx(value) for key, (value,) in mean.items()} == {
        (1, 1): 14 / 3,
        (2, 1): 5,
        (2, 2): 7 / 3,
        (3, 1): 5,
        (3, 2): 2,
        (3, 3): 2,
    }


def test_two_consensuses_are_compared_with_the_fewest_runs_in_common_and_with_all_runs(study):
    table = record_agreement(answers_of(study))["stability"]
    table = table.assign(shared=table["shared"] / table["orders"], union=table["union"] / table["orders"])
    shares = sums(table, ["runs", "min_agree", "other_runs", "shared_runs"], ("shared", "union"))
    assert set(shares) == {(1, 1, 1, 0), (1, 1, 3, 1), (2, 1, 2, 1), (2, 1, 3, 2), (2, 2, 2, 1), (2, 2, 3, 2)}
    jaccard = {key: shared / union for key, (shared, union) in shares.items()}
    assert jaccard[1, 1, 1, 0] == pytest.approx(7 / 21)
    assert jaccard[2, 2, 2, 1] == pytest.approx(6 / 8)
    assert jaccard[2, 2, 3, 2] == pytest.approx(6 / 7)


def test_an_answer_says_who_else_names_its_gene_and_how(study):
    table = record_agreement(answers_of(study))["answers"].set_index(["entity", "run", "feature"])
    assert tuple(table.loc[("P", "r3", "B"), ["named_by", "same", "phenotypes"]]) == (3, 0, 1)
    assert tuple(table.loc[("P", "r1", "B"), ["named_by", "same", "phenotypes"]]) == (3, 1, 1)
    assert tuple(table.loc[("Q", "r2", "A"), ["named_by", "same", "phenotypes"]]) == (2, 0, 2)


def test_a_phenotype_that_a_run_has_not_answered_for_is_in_no_comparison(study):
    folder = write_study(study.parent / "more", ("P", "Q", "R"))
    for (phenotype, run), genes in {**ANSWERS, ("R", "r1"): {"A": 1}}.items():
        add_genes(folder, phenotype, run, genes)
    answers = answers_of(folder)
    assert votes(answers)[0].entities == ("P", "Q")
    assert answers.asked.set_index("entity")["answered"].to_dict() == {"P": 3, "Q": 3, "R": 1}


def test_one_wording_gives_no_comparison_and_a_second_one_is_held_against_it(study):
    assert record_agreement(answers_of(study))["wordings"].empty
    for run in ("r1", "r2", "r3"):
        add_genes(study, "P", run, {"A": 1, "B": -1}, wording=ONE)
    add_pairs(study, "P", {("A", "B"): -1, ("C", "A"): 1}, wording=ONE)
    tables = record_agreement(answers_of(study))
    unary, pairs = tables["wordings"].to_dict("records")
    assert (unary["prompt"], unary["entity"], unary["wording_a"], unary["wording_b"]) == ("unary", "P", ONE, "unknown")
    # r1 {A+ B- C+}, r2 {A+ B- D+}, r3 {A+ B+} against {A+ B-} each
    assert (unary["shared"], unary["union"], unary["same"]) == (6, 8, 5)
    # one wording says -1 and 1, the other -1 and 0
    assert (pairs["shared"], pairs["same"], pairs["expected_same"]) == (2, 1, 0.5)
    assert set(tables["overlap"]["wording"]) == {ONE, "unknown"}


def test_of_several_answers_in_one_wording_the_one_that_the_bundle_is_made_of_counts(study):
    add_genes(study, "P", "r1", {"Z": 1}, wording=ONE, model="one")
    add_genes(study, "P", "r1", {"Y": 1}, wording=ONE, model="other")
    assert "Z" not in set(answers_of(study).named["feature"])
    digests = {entry.raw[40:60]: entry.digest for entry in Record(study / "record").entries() if '"Y"' in entry.raw}
    named = answers_of(study, set(digests.values())).named
    assert named.loc[named["wording"] == ONE, "feature"].tolist() == ["Y"]


def test_a_bundle_of_other_answers_is_refused_with_the_gene(study, recorded_bundle):
    with pytest.raises(ElicitationError, match=r"sign [+-]1, in no answer"):
        check_of_record(recorded_bundle, answers_of(study))


def test_more_runs_than_all_orders_are_tried_of_are_drawn_the_same_each_time():
    assert len(run_orders(4)) == 24
    many = run_orders(9)
    assert len(many) == 200
    assert many == run_orders(9)
    assert all(sorted(order) == list(range(9)) for order in many)


def test_the_consensus_of_all_runs_keeps_the_genes_of_the_recorded_bundle(recorded_elicitation, recorded_bundle):
    answers = answers_of(recorded_elicitation)
    check_of_record(recorded_bundle, answers)
    kept = record_agreement(answers)["kept"]
    whole = kept[(kept["runs"] == 3) & (kept["min_agree"] == 2)]
    assert (whole["kept"] / whole["orders"]).sum() == (recorded_bundle.unary != 0).sum()
