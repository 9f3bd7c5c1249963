"""The comparison of gauges counts what a plain loop counts, and says where nothing can be concluded."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of
from pydantic import ValidationError

from afa.cohort.cohort import Cohort
from afa.evaluate.long_tables import gather_tables, read_table, write_tables
from afa.evaluate.summary import headline
from afa.inference.meanfield import mean_field
from afa.model.bundle import Bundle
from afa.model.closure import half_potentials
from afa.model.mrf import Evidence
from afa.model.orders import random_order
from afa.paper.experiments.gauge import clinical_winners, run, summarise
from afa.paper.experiments.settings import Bootstrap, Gauge, Inference
from afa.scores.preference import stack_a, two_elbo, wald

SEEDS = (0, 3)
GRID = (2, 4)
READ = {"gauge": Gauge(seeds=SEEDS, rounds=GRID), "inference": Inference()}
ONE = {"gauge": Gauge(seeds=(0,)), "inference": Inference()}
SCORE_GAUGES = [(method, gauge_name) for method in ("two_elbo", "stack_a") for gauge_name in ("true", "maxent")]


def cohort_of(bundle: Bundle, values: np.ndarray, labels: dict[str, list[object]] | None = None) -> Cohort:
    names = [f"p{i:02d}" for i in range(len(values))]
    return Cohort("made", bundle.features, tuple(names), values.astype(np.int8), pd.DataFrame(labels or {}, names))


@pytest.fixture(scope="module")
def cohort(bundle_tiny: Bundle) -> Cohort:
    generator = np.random.default_rng(2)
    values = generator.integers(-1, 2, (40, len(bundle_tiny.features)))
    values[3] = 0
    a, b, c = bundle_tiny.entities
    # a and b differ in 31 patients, a and c in 29, b and c in 20
    labels: dict[str, list[object]] = {
        a: [1] * 31 + [0] * 9,
        b: [0] * 31 + [None] * 2 + [0] * 7,
        c: [0] * 20 + [1] * 2 + [0] * 9 + [None] * 9,
    }
    return cohort_of(bundle_tiny, values, labels)


@pytest.fixture(scope="module")
def whole(bundle_tiny: Bundle, cohort: Cohort) -> dict[str, pd.DataFrame]:
    return run(bundle_tiny, cohort, range(40), **READ)


@pytest.fixture(scope="module")
def summary(whole: dict[str, pd.DataFrame]) -> pd.DataFrame:
    return summarise(whole, bootstrap=Bootstrap(resamples=100, confidence=0.95))


@pytest.fixture(scope="module")
def plain(bundle_tiny: Bundle, cohort: Cohort) -> pd.DataFrame:
    """Every score of the first six patients by the readable functions, by (patient, seed, t, pair)."""
    rows = []
    for row, seed in np.ndindex(6, len(SEEDS)):
        order = random_order(bundle_tiny.features, patient=cohort.patients[row], seed=SEEDS[seed])
        for t in range(len(order) + 1):
            known = {bundle_tiny.features[f]: int(cohort.values[row, f]) for f in order[:t]}
            for a, b in combinations(bundle_tiny.entities, 2):
                entities = bundle_tiny.mrf(a), bundle_tiny.mrf(b)
                cells: dict[str, object] = {"patient": cohort.patients[row], "seed": SEEDS[seed], "t": t}
                cells |= {"entity_a": a, "entity_b": b}
                for name, models in (("true", entities), ("maxent", half_potentials(entities[0] - entities[1]))):
                    evidence = [Evidence.of(model, known) for model in models]
                    solutions = [mean_field(state.mrf, state) for state in evidence]
                    cells[f"two_elbo_{name}"] = two_elbo(solutions)[0, 1]
                    cells[f"stack_a_{name}"] = stack_a(evidence, [s.marginals for s in solutions])[0, 1]
                    cells["wald_"] = wald(evidence)[0, 1]
                rows.append(cells)
    scores = pd.DataFrame(rows).set_index(["patient", "seed", "t", "entity_a", "entity_b"])
    return scores.where(scores.abs() > 1e-10, 0.0)


def first_six(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    return table[table["patient"] < "p06"].set_index(keys).sort_index()


def test_scalars_are_kept_on_the_grid_and_at_the_end(whole: dict[str, pd.DataFrame], plain: pd.DataFrame) -> None:
    found = first_six(whole["scalars"], list(plain.index.names))
    expected = plain[plain.index.get_level_values("t").isin([0, 2, 4, 5])].sort_index()
    columns = [f"{method}_{name}" for method, name in SCORE_GAUGES]
    pd.testing.assert_frame_equal(found[columns], expected[columns], atol=1e-9, rtol=0)


def test_agreement_is_the_share_of_equal_signs(whole: dict[str, pd.DataFrame], plain: pd.DataFrame) -> None:
    found = first_six(whole["agreement"], ["method", "patient", "seed", "t"])
    for method in ("two_elbo", "stack_a"):
        true, closed = np.sign(plain[f"{method}_true"]), np.sign(plain[f"{method}_maxent"])
        agree = (true == closed) + 0.5 * ((true == 0) != (closed == 0))
        expected = agree.groupby(["patient", "seed", "t"]).sum()
        pd.testing.assert_series_equal(found.loc[method, "agree"], expected.sort_index(), check_names=False)
    assert (found["duels"] == 3).all()


def test_a_tie_against_a_decision_agrees_by_half_and_two_ties_wholly() -> None:
    # unary models: before any observation the closure is tied, the true gauge is not where the log Z differ;
    # u and z mirror each other, so that both gauges tie
    bundle = bundle_of([[1.0, 0.0], [0.5, 0.0], [-1.0, 0.0]], np.zeros((3, 2, 2)), entities=("u", "w", "z"))
    tables = run(bundle, cohort_of(bundle, np.array([[1, 1]])), [0], **ONE)
    table = tables["agreement"].set_index(["method", "t"])
    scalars = tables["scalars"].set_index(["entity_a", "entity_b", "t"])
    assert scalars.loc[("u", "w", 0), "two_elbo_true"] > 0.1
    assert scalars.loc[("u", "z", 0), "two_elbo_true"] == 0.0
    assert (scalars.xs(0, level="t")["two_elbo_maxent"].abs() < 1e-15).all()
    assert table.loc[("two_elbo", 0), "agree"] == 0.5 + 1.0 + 0.5
    assert table.loc[("two_elbo", 2), "agree"] == 3.0


def counted(plain: pd.DataFrame, column: str, winner: pd.Series) -> pd.DataFrame:
    """Counts of one score against a winner per (patient, pair), 0 for none, as `rounds` gives them."""
    signs = np.sign(plain[column])
    target = winner.reindex(signs.index.droplevel(["seed", "t"])).set_axis(signs.index).fillna(0)
    start = signs.xs(0, level="t").reindex(signs.index.droplevel("t")).set_axis(signs.index)
    credit = (1 + signs * target) / 2
    among = {"": target != 0, "_first": target > 0, "_prior_wrong": (target != 0) & (start == -target)}
    columns = {}
    for suffix, mask in among.items():
        columns[f"right{suffix}"] = credit.where(mask, 0.0)
        columns[f"duels{suffix}"] = mask.astype(int)
    return pd.DataFrame(columns).groupby(["patient", "seed", "t"]).sum()


@pytest.mark.parametrize("target", ["likelihood", "clinical"])
def test_accuracy_counts_are_those_of_a_plain_loop(
    target: str, whole: dict[str, pd.DataFrame], plain: pd.DataFrame, bundle_tiny: Bundle
) -> None:
    a, b, _ = bundle_tiny.entities
    if target == "likelihood":
        winner = np.sign(plain["wald_"].xs((SEEDS[0], 5), level=("seed", "t")))
    else:
        only = [(f"p{i:02d}", a, b) for i in range(6)]
        winner = pd.Series(1.0, pd.MultiIndex.from_tuples(only, names=["patient", "entity_a", "entity_b"]))
    found = first_six(whole["rounds"], ["target", "method", "reference", "patient", "seed", "t"]).loc[target]
    for method, name in [*SCORE_GAUGES, ("wald", "")]:
        expected = counted(plain, f"{method}_{name}", winner)
        ours = found.loc[(method, name)][expected.columns]
        pd.testing.assert_frame_equal(ours, expected.sort_index(), check_dtype=False)


def test_a_label_decides_a_duel_only_where_the_other_is_known_and_differs(bundle_tiny: Bundle) -> None:
    a, b, _ = bundle_tiny.entities
    labels: dict[str, list[object]] = {a: [1, 0, 1, 0, 1, None], b: [0, 1, 1, 0, None, 0]}
    winners = clinical_winners(bundle_tiny, cohort_of(bundle_tiny, np.zeros((6, 5)), labels))
    np.testing.assert_array_equal(winners[:, 0], [1, -1, 0, 0, np.nan, np.nan])
    assert np.isnan(winners[:, 1:]).all()


def test_pairs_with_fewer_than_thirty_patients_draw_no_conclusion(
    whole: dict[str, pd.DataFrame], bundle_tiny: Bundle
) -> None:
    targets = whole["targets"].groupby(["entity_a", "entity_b"], sort=False)
    differing = targets["clinical"].agg(lambda winners: int((winners.abs() == 1).sum()))
    a, b, c = bundle_tiny.entities
    assert differing.to_dict() == {(a, b): 31, (a, c): 29, (b, c): 2}
    assert targets["conclusive"].all().to_dict() == {(a, b): True, (a, c): False, (b, c): False}
    clinical = whole["rounds"].query("target == 'clinical' and method == 'wald' and t == 0")
    assert clinical["duels"].sum() == 31 * len(SEEDS)


def test_what_is_conclusive_is_decided_by_the_whole_cohort(
    bundle_tiny: Bundle, cohort: Cohort, whole: dict[str, pd.DataFrame]
) -> None:
    part = run(bundle_tiny, cohort, [0, 1], **READ)
    expected = whole["targets"].query("patient < 'p02'").reset_index(drop=True)
    pd.testing.assert_frame_equal(part["targets"], expected)


@pytest.mark.parametrize("parts", [[range(0), range(40)], [range(13), range(13, 40)]])
def test_the_split_of_patients_and_the_threads_do_not_show(
    parts: list[range], bundle_tiny: Bundle, cohort: Cohort, whole: dict[str, pd.DataFrame], tmp_path: Path
) -> None:
    folders = []
    for number, chosen in enumerate(parts):
        tables = run(
            bundle_tiny,
            cohort,
            chosen,
            **READ,
            threads=1 + number,
        )
        folders.append(tmp_path / str(number))
        write_tables(tables, folders[-1])
    write_tables(whole, tmp_path / "whole")
    gather_tables(folders, tmp_path / "joined")
    gather_tables([tmp_path / "whole"], tmp_path / "once")
    for name in whole:
        joined, once = ((tmp_path / folder / f"{name}.parquet").read_bytes() for folder in ("joined", "once"))
        assert joined == once
    summaries = []
    for folder in ("joined", "once"):
        tables = {name: read_table(tmp_path / folder, name) for name in whole}
        summaries.append(summarise(tables, bootstrap=Bootstrap(resamples=100, confidence=0.9)))
    pd.testing.assert_frame_equal(*summaries, check_exact=True)


@pytest.mark.parametrize("rounds", [(2, 2), (-1, 3), ()])
def test_rounds_that_are_none_are_refused(rounds: tuple[int, ...]) -> None:
    with pytest.raises(ValidationError):
        Gauge(rounds=rounds)


def test_rounds_of_the_grid_beyond_the_last_are_left_out(bundle_tiny: Bundle, cohort: Cohort) -> None:
    tables = run(bundle_tiny, cohort, [0], **ONE)
    assert sorted(tables["scalars"]["t"].unique()) == [0, 5]


def rows_of(summary: pd.DataFrame, table: str, metric: str, **where: object) -> pd.DataFrame:
    rows = summary[(summary["table"] == table) & (summary["metric"] == metric)]
    for column, value in where.items():
        rows = rows[rows[column].isna() if value is None else rows[column] == value]
    return rows.set_index("t")


@pytest.mark.parametrize("method", ["two_elbo", "stack_a"])
def test_the_headline_correlation_is_the_mean_over_pairs_of_the_correlation_within(
    method: str, whole: dict[str, pd.DataFrame], summary: pd.DataFrame
) -> None:
    table = whole["scalars"].query("t == 2")
    within = [
        np.corrcoef(part[f"{method}_true"], part[f"{method}_maxent"])[0, 1]
        for _, part in table.groupby(["entity_a", "entity_b"])
    ]
    pooled = np.corrcoef(table[f"{method}_true"], table[f"{method}_maxent"])[0, 1]
    expected = {"pair_q25": np.percentile(within, 25), "pair_q50": np.median(within)}
    expected |= {"pair_min": min(within), "pair_max": max(within)}
    cell = {"table": "gauge_correlation", "metric": "correlation", "method": method}
    for quantity, value in expected.items():
        row = rows_of(summary, quantity=quantity, **cell).loc[2]
        assert row["value"] == pytest.approx(value, abs=1e-12)
        assert row["n"] == 3
    over_all = rows_of(summary, variant="pooled", **cell).loc[2]
    assert over_all["value"] == pytest.approx(pooled, abs=1e-12)
    assert over_all["n"] == len(table)
    mean = rows_of(headline(summary), **cell).loc[2]
    assert mean["value"] == pytest.approx(np.mean(within), abs=1e-12)
    assert mean["low"] < mean["value"] < mean["high"]


def test_before_any_observation_a_correlation_within_pairs_is_missing_and_a_pooled_one_is_not(
    summary: pd.DataFrame,
) -> None:
    within = rows_of(headline(summary), "gauge_correlation", "correlation", method="two_elbo")
    pooled = rows_of(summary, "gauge_correlation", "correlation", method="two_elbo", variant="pooled")
    assert np.isnan(within.loc[0, ["value", "low", "high"]].astype(float)).all()
    assert within.loc[0, "n"] == 0
    assert pooled.loc[0, "n"] == 3 * 40 * len(SEEDS)
    assert abs(pooled.loc[0, "value"]) <= 1
    assert within.loc[5, "value"] == pytest.approx(1.0)
    assert within.loc[5, "n"] == 3


def test_agreement_and_accuracy_of_the_summary_are_ratios_of_the_sums(
    whole: dict[str, pd.DataFrame], summary: pd.DataFrame
) -> None:
    agreement = whole["agreement"].query("method == 'stack_a' and t == 2")
    row = rows_of(summary, "gauge_agreement", "rate", method="stack_a", reference="maxent_vs_true").loc[2]
    assert row["value"] == agreement["agree"].sum() / agreement["duels"].sum()
    assert row["n"] == 3 * 40 * len(SEEDS)
    shares = {}
    for gauge_name in ("true", "maxent"):
        of = whole["rounds"].query(f"method == 'two_elbo' and reference == '{gauge_name}' and t == 2")
        likelihood = of.query("target == 'likelihood'")
        shares[gauge_name] = likelihood["right"].sum() / likelihood["duels"].sum()
        key = {"method": "two_elbo", "reference": gauge_name, "target": "likelihood"}
        row = rows_of(headline(summary), "gauge_accuracy", "accuracy", **key).loc[2]
        assert row["value"] == shares[gauge_name]
        wrong = rows_of(summary, "gauge_accuracy", "accuracy", stratum="prior_wrong", **key)
        assert wrong.loc[0, "value"] == 0.0
        assert wrong.loc[5, "value"] == 1.0
        second = likelihood["right"].sum() - likelihood["right_first"].sum()
        sides = [
            likelihood["right_first"].sum() / likelihood["duels_first"].sum(),
            second / (likelihood["duels"].sum() - likelihood["duels_first"].sum()),
        ]
        balanced = rows_of(summary, "gauge_accuracy", "balanced_accuracy", **key).loc[2]
        assert balanced["value"] == pytest.approx(np.mean(sides))
    gap = rows_of(summary, "gauge_accuracy", "gap", method="two_elbo", target="likelihood").loc[2, "value"]
    assert gap == pytest.approx(shares["maxent"] - shares["true"])


def test_wald_has_no_gauge_and_without_priors_nothing_wrong_before_any_observation(
    bundle_tiny: Bundle, cohort: Cohort
) -> None:
    bundle = replace(bundle_tiny, priors=np.zeros(3))
    tables = run(bundle, cohort, range(5), **ONE)
    summary = summarise(tables, bootstrap=Bootstrap(resamples=100, confidence=0.95))
    wald_rows = summary[(summary["table"] == "gauge_accuracy") & (summary["method"] == "wald")]
    assert wald_rows["reference"].isna().all()
    assert wald_rows["stratum"].isna().all()
    assert rows_of(summary, "gauge_accuracy", "accuracy", method="wald", target="likelihood").loc[0, "value"] == 0.5


def test_what_is_left_out_and_the_constant_answers_stand_beside_the_accuracies(
    whole: dict[str, pd.DataFrame], summary: pd.DataFrame
) -> None:
    counts = rows_of(summary, "gauge_accuracy", "count").set_index("quantity")["value"]
    ties = int((whole["targets"]["likelihood"] == 0).sum())
    assert ties > 0
    assert counts.to_dict() == {
        "tied_at_full_observation": ties,
        "pairs_conclusive": 1,
        "pairs_inconclusive": 2,
        "pairs_without_labels": 0,
        "tuples": 31,
        "tuples_inconclusive": 31,
    }
    for metric in ("majority", "prevalence"):
        assert rows_of(summary, "gauge_accuracy", metric, target="clinical")["value"].tolist() == [1.0]
    likelihood = whole["targets"].query("likelihood != 0")
    by_pair = (
        (likelihood["likelihood"] > 0).groupby([likelihood["entity_a"], likelihood["entity_b"]]).agg(["sum", "size"])
    )
    best = np.maximum(by_pair["sum"], by_pair["size"] - by_pair["sum"]).sum() / len(likelihood)
    first = (likelihood["likelihood"] > 0).mean()
    assert rows_of(summary, "gauge_accuracy", "majority", target="likelihood")["value"].item() == pytest.approx(best)
    assert rows_of(summary, "gauge_accuracy", "prevalence", target="likelihood")["value"].item() == pytest.approx(first)


def test_a_cohort_without_labels_gives_no_clinical_rows_but_the_counts(bundle_tiny: Bundle) -> None:
    values = np.random.default_rng(4).integers(-1, 2, (4, 5))
    tables = run(bundle_tiny, cohort_of(bundle_tiny, values), range(4), **ONE)
    assert set(tables["rounds"]["target"]) == {"likelihood"}
    assert tables["targets"]["clinical"].isna().all()
    summary = summarise(tables, bootstrap=Bootstrap(resamples=100, confidence=0.95))
    clinical = summary[summary["target"] == "clinical"]
    assert set(clinical["metric"]) == {"count"}
    assert clinical.set_index("quantity").loc["pairs_without_labels", "value"] == 3
