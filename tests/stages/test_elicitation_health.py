"""Signs of a bundle against each other and against a cohort, and the summary of the elicitation's health."""

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from bundles import bundle_of
from pandas.testing import assert_frame_equal
from records import add_genes, add_pairs, write_study
from scipy.stats import mannwhitneyu
from typer.testing import CliRunner

from afa.bundle import save_bundle
from afa.cli import app
from afa.cohort.cohort import Cohort, write_cohort
from afa.report.publish import dictionary_of
from afa.stages.elicitation_health import STAGE, lit_prob_bin, run, summarise
from afa.stages.elicitation_health.signs import (
    Cases,
    correlation_draws,
    gene_signs,
    label_draws,
    pair_signs,
    unary_draws,
)
from afa.stages.settings import Bootstrap

QUICK = Bootstrap(resamples=100, confidence=0.9)
DRAWS = 40
TWO = bundle_of([[1, -1]], [[[0, 1], [0, 0]]], features=("A", "B"), entities=("P",))


def cohort_of(values, labels=None, features=("A", "B")):
    values = np.array(values, dtype=np.int8)
    names = tuple(f"p{i}" for i in range(len(values)))
    held = pd.DataFrame(labels or {}, index=list(names), dtype="Int8")
    return Cohort("small", tuple(features), names, values, held)


FOUR = cohort_of([[1, 1], [1, 0], [-1, 1], [0, 0]], {"P": [1, 1, 0, 0]})


def random_inputs(seed=3, patients=30, genes=6, entities=3):
    random = np.random.default_rng(seed)
    bundle = bundle_of(random.integers(-1, 2, (entities, genes)), random.integers(-1, 2, (entities, genes, genes)))
    values = random.integers(-1, 2, (patients, genes))
    labels = {name: random.integers(0, 2, patients) for name in bundle.entities[:2]}
    return bundle, cohort_of(values, labels, bundle.features)


def elicitation_health(bundle, cohort, study=None):
    return run(bundle, cohort, study, bootstrap=Bootstrap.model_construct(resamples=DRAWS))


def shares(draws, kind):
    own = draws[(draws["kind"] == kind) & (draws["entity"] == "")]
    return {stratum: (int(part["right"].sum()), int(part["n"].sum())) for stratum, part in own.groupby("stratum")}


def everything(table):
    return {Cases(): np.ones(len(table), dtype=bool)}


def test_a_gene_s_difference_and_a_pair_s_correlation_are_those_worked_by_hand():
    genes = gene_signs(TWO, FOUR, draws=DRAWS).set_index("feature")
    assert genes[["sign", "positive", "negative"]].to_numpy().tolist() == [[1, 2, 2], [-1, 2, 2]]
    assert genes["delta"].tolist() == [1.0, 0.0]
    assert genes["difference"].tolist() == [1.5, 0.0]
    assert genes.loc["B", "p_value"] == 1.0
    (pair,) = pair_signs(TWO, FOUR).to_dict("records")
    assert (pair["sign"], pair["unary_product"]) == (1, -1)
    assert pair["correlation"] == pytest.approx(-2 / np.sqrt(11 * 4))


def test_a_tie_is_left_out_and_a_wrong_sign_is_counted():
    genes, pairs = gene_signs(TWO, FOUR, draws=DRAWS), pair_signs(TWO, FOUR)
    assert shares(label_draws(TWO, FOUR, genes, everything(genes), draws=DRAWS), "observed") == {"": (1, 1)}
    assert shares(correlation_draws(TWO, FOUR, pairs, {}, draws=DRAWS), "observed")["same"] == (0, 1)
    assert shares(unary_draws(TWO, pairs, draws=DRAWS), "observed")[""] == (0, 1)


def test_delta_is_the_mann_whitney_statistic_and_the_correlation_is_pearson_s():
    bundle, cohort = random_inputs()
    for row in gene_signs(bundle, cohort, draws=DRAWS).itertuples():
        values, labels = cohort.values[:, bundle.features.index(row.feature)], cohort.labels[row.entity]
        one, other = values[labels == 1], values[labels == 0]
        rank = mannwhitneyu(one, other).statistic / (len(one) * len(other))
        assert row.delta == pytest.approx(2 * rank - 1)
    for row in pair_signs(bundle, cohort).itertuples():
        ends = [cohort.values[:, bundle.features.index(name)] for name in (row.feature_a, row.feature_b)]
        assert row.correlation == pytest.approx(np.corrcoef(*ends)[0, 1])


def test_the_opposite_bundle_is_right_where_the_bundle_is_wrong_in_every_draw():
    bundle, cohort = random_inputs()
    packed = [bundle.couplings(name).toarray() for name in bundle.entities]
    turned = bundle_of(-bundle.unary, -np.array(packed))
    found = [elicitation_health(model, cohort)["draws"] for model in (bundle, turned)]
    one, other = (table[(table["stratum"] == "") & (table["target"] != "unary_signs")] for table in found)
    assert (one["n"].to_numpy() == other["n"].to_numpy()).all()
    assert (one["right"].to_numpy() + other["right"].to_numpy() == one["n"].to_numpy()).all()


def test_shuffled_unary_signs_stay_with_their_entity():
    # Two up and two down: of all six pairs exactly two are alike, wherever the signs go.
    bundle = bundle_of([[1, 1, -1, -1]], [np.triu(np.ones((4, 4)), 1)])
    cohort = cohort_of(np.eye(4), features=bundle.features)
    draws = unary_draws(bundle, pair_signs(bundle, cohort), draws=DRAWS)
    assert set(draws.loc[(draws["kind"] == "shuffled") & (draws["stratum"] == "same"), "right"]) == {2}


def test_shuffled_genes_find_nothing_where_all_genes_are_alike():
    bundle = bundle_of([[1, 1, 1]], [[[0, 1, -1], [0, 0, 1], [0, 0, 0]]])
    cohort = cohort_of([[1] * 3, [0] * 3, [-1] * 3], features=bundle.features)
    draws = correlation_draws(bundle, cohort, pair_signs(bundle, cohort), {}, draws=DRAWS)
    for kind in ("observed", "shuffled"):
        counts = shares(draws, kind)
        assert counts["same"][0] == counts["same"][1] > 0
        assert counts["opposite"][0] == 0 < counts["opposite"][1]


def test_labels_move_together_when_they_are_shuffled():
    # Both entities have the same labels and signs, so that each shuffle is as right about one as about the other.
    bundle = bundle_of([[1, -1], [1, -1]], np.zeros((2, 2, 2)), features=("A", "B"), entities=("P", "Q"))
    labels = [1, 0, 1, None, 0, 1]
    cohort = cohort_of([[1, 0], [0, 1], [-1, 1], [1, 1], [0, -1], [1, -1]], {"P": labels, "Q": labels})
    genes = gene_signs(bundle, cohort, draws=DRAWS)
    draws = label_draws(bundle, cohort, genes, everything(genes), draws=DRAWS)
    shuffled = draws[(draws["kind"] == "shuffled") & (draws["entity"] != "")]
    one, other = (part["right"].to_numpy() for _, part in shuffled.groupby("entity"))
    assert (one == other).all()
    assert len(set(one)) > 1


def test_an_entity_with_one_class_or_no_labels_is_left_out_and_counted():
    bundle = bundle_of([[1, -1]] * 3, np.zeros((3, 2, 2)), features=("A", "B"), entities=("P", "Q", "R"))
    cohort = cohort_of([[1, 0], [0, 1], [1, 1]], {"P": [1, 0, None], "Q": [1, 1, None]})
    tables = elicitation_health(bundle, cohort)
    assert set(tables["genes"]["entity"]) == {"P"}
    entities = tables["entities"].set_index("entity")[["positive", "negative"]]
    assert entities.to_numpy().tolist() == [[1, 1], [2, 0], [0, 0]]
    rows = summarise(tables, bootstrap=QUICK)
    left_out = rows[rows["quantity"] == "phenotypes_without_both_labels"]
    assert left_out["value"].tolist() == [2]


def test_bins_of_lit_prob_begin_at_their_edge_and_the_last_one_holds_1():
    assert lit_prob_bin(pd.Series([0.1 + 0.2, 0.29, 0.9, 1.0, np.nan])).fillna(-1).tolist() == [0.3, 0.2, 0.9, 0.9, -1]


@pytest.fixture
def study(tmp_path):
    """The record of test_record_agreement, and the bundle that two of its three runs agree on."""
    folder = write_study(tmp_path / "study", ("P", "Q"))
    for phenotype, voter, genes in (
        ("P", "r1", {"A": (1, 0.9), "B": -1, "C": 1}),
        ("P", "r2", {"A": (1, 0.7), "B": -1, "D": 1}),
        ("P", "r3", {"A": (1, 0.8), "B": 1}),
        ("Q", "r1", {"A": 1, "E": -1}),
        ("Q", "r2", {"A": -1, "E": -1}),
        ("Q", "r3", {"E": -1, "F": 1}),
    ):
        add_genes(folder, phenotype, voter, genes)
    add_pairs(folder, "P", {("A", "E"): -1}, lit_prob=0.6)
    couplings = np.zeros((2, 2, 2))
    couplings[0, 0, 1] = -1
    bundle = bundle_of([[1, 0], [0, -1]], couplings, features=("A", "E"), entities=("P", "Q"))
    cohort = cohort_of([[1, -1], [1, 0], [0, 1], [-1, 1]], {"P": [1, 1, 0, 0]}, ("A", "E"))
    return folder, bundle, cohort


def value(rows, target, quantity=None, metric="rate", **keys):
    """The value with these keys; the others are empty."""
    of = (rows["target"] == target) & (rows["metric"] == metric)
    for name in ("quantity", "stratum", "variant", "level", "reference", "entity"):
        wanted = quantity if name == "quantity" else keys.get(name)
        of &= rows[name].isna() if wanted is None else rows[name] == wanted
    (found,) = rows.loc[of, "value"]
    return found


def test_the_summary_of_a_record_is_what_is_worked_by_hand(study):
    folder, bundle, cohort = study
    tables = elicitation_health(bundle, cohort, folder)
    rows = summarise(tables, bootstrap=QUICK)
    assert value(rows, "other_runs") == pytest.approx(10 / 18)
    assert value(rows, "other_runs", reference="other_phenotype") == pytest.approx(8 / 48)
    assert value(rows, "other_runs", metric="gap", reference="other_phenotype") == pytest.approx(10 / 18 - 8 / 48)
    assert value(rows, "other_runs", "direction") == pytest.approx(7 / 10)
    assert value(rows, "other_runs", "direction", reference="other_phenotype") == pytest.approx(4 / 8)
    assert [value(rows, "other_runs", "named_by", level=n) for n in (1, 2, 3)] == pytest.approx([3 / 7, 1 / 7, 3 / 7])
    assert value(rows, "other_runs", "named_by", level=3, entity="P") == pytest.approx(2 / 4)
    assert value(rows, "other_runs", "named_by_no_other_run") == pytest.approx(3 / 14)
    assert value(rows, "other_runs", "kept", "count", variant="2_of_3") == 2
    agreed = value(rows, "other_runs", "stability", variant="2_of_2", reference="2_runs_1_shared")
    assert agreed == pytest.approx(6 / 8)
    # A by P of run r1, and E, which all runs name with one direction, at 0.5
    assert value(rows, "other_runs", variant="lit_prob", level=0.9) == 1
    assert value(rows, "other_runs", variant="lit_prob", level=0.5) == pytest.approx(3 / 11)
    assert value(rows, "labels", "lit_prob_less_share_right", "gap") == pytest.approx(0.8 - 1)
    assert value(rows, "correlations", "lit_prob_less_share_right", "gap") == pytest.approx(0.6 - 1)


def test_one_wording_has_its_name_and_no_number(study):
    folder, bundle, cohort = study
    rows = summarise(elicitation_health(bundle, cohort, folder), bootstrap=QUICK)
    wording = rows[rows["target"] == "other_wording"]
    assert wording["reference"].tolist() == ["one_wording"] * 2
    assert wording["value"].isna().all()


def test_two_wordings_have_a_number_beside_chance(study):
    folder, bundle, cohort = study
    add_pairs(folder, "P", {("A", "E"): 0}, wording="a" * 64)
    rows = summarise(elicitation_health(bundle, cohort, folder), bootstrap=QUICK)
    both = f"{'a' * 12}_and_unknown"
    assert value(rows, "other_wording", stratum="pairwise", reference=both) == 0
    assert value(rows, "other_wording", "by_chance", stratum="pairwise", reference=both) == 0
    assert np.isnan(value(rows, "other_wording", stratum="unary", reference="one_wording"))


def test_without_a_record_only_the_signs_are_compared():
    bundle, cohort = random_inputs()
    tables = elicitation_health(bundle, cohort)
    assert all(tables[name].empty for name in ("asked", "answers", "overlap", "kept", "stability", "wordings"))
    rows = summarise(tables, bootstrap=QUICK)
    assert set(rows["target"]) == {"unary_signs", "labels", "correlations"}
    assert rows["variant"].isna().all()
    assert not rows["stratum"].isin(["often_named", "seldom_named"]).any()


def test_a_bundle_without_couplings_and_a_cohort_without_labels_have_counts_and_no_share():
    bundle = bundle_of([[1, 0]], np.zeros((1, 2, 2)))
    tables = elicitation_health(bundle, cohort_of([[1, 0], [0, 1]], features=bundle.features))
    rows = summarise(tables, bootstrap=QUICK)
    assert set(rows["metric"]) == {"count"}


def test_every_row_s_value_lies_between_0_and_1_and_every_draw_is_the_same_again():
    bundle, cohort = random_inputs()
    one, other = (elicitation_health(bundle, cohort) for _ in range(2))
    for name in STAGE.tables:
        assert_frame_equal(one[name], other[name])
    rows = summarise(one, bootstrap=QUICK)
    rate = rows.loc[rows["metric"] == "rate", "value"]
    assert rate.between(0, 1).all()
    gap = rows[(rows["metric"] == "gap") & (rows["reference"] == "shuffled_labels")]
    assert (gap["low"] <= gap["high"]).all()


def test_the_commands_write_tables_with_a_meaning_for_every_column(study, tmp_path):
    folder, bundle, cohort = study
    save_bundle(bundle, tmp_path / "bundle")
    write_cohort(cohort, tmp_path / "cohort")
    inputs = ["--bundle", tmp_path / "bundle", "--cohort", tmp_path / "cohort"]
    tables, rows = tmp_path / "tables", tmp_path / "rows.csv"
    quick = ["--settings", '{"bootstrap": {"resamples": 100}}']
    for words in (
        ["stage", "elicitation_health", *inputs, "--input", f"study={folder}", *quick, "--out", tables],
        ["summarise", "elicitation_health", tables, *quick, "--out", rows],
    ):
        result = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
        assert result.exit_code == 0, result.output
    assert "elicitation_health,rate,,,,,,,,,,other_runs" in rows.read_text(encoding="utf-8")
    schemas = {f"elicitation_health/{name}": pq.read_schema(tables / f"{name}.parquet") for name in STAGE.tables}
    assert len(dictionary_of(schemas)) > len(STAGE.tables)
