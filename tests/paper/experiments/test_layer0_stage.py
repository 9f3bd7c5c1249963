"""The Layer 0 stage against a plain loop, its summary by hand, and the synthetic portfolio as the paper prints it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of
from cohorts import cohort_of

from afa.cohort.cohort import Cohort
from afa.errors import PlannerError
from afa.evaluate.summary import headline
from afa.inference.meanfield import Solver
from afa.model.bundle import Bundle
from afa.paper.experiments import layer0 as layer0_stage
from afa.paper.experiments import layer0_synthetic
from afa.paper.experiments.layer0 import Removed, layer0_tables, top_k
from afa.paper.experiments.layer0_synthetic import layer0_portfolio
from afa.paper.experiments.layer0_synthetic.portfolio import load_portfolio, simulated_bundle, simulated_cohort
from afa.paper.experiments.settings import Bootstrap, Inference, Layer0
from afa.planner import TopKPlanner
from afa.planner.cluster import paper_clusters, parameters
from afa.planner.layer0 import centroid_certificates, partition, sound_certificates

ROOT = Path(__file__).parents[3]
PRINTED = ROOT / "resources" / "paper" / "tab_layer0_synthetic.csv"
PORTFOLIO = load_portfolio(ROOT / "config" / "portfolio.yaml")
BY_NAME = {config.name: config for config in PORTFOLIO}
QUICK = Bootstrap(resamples=100, confidence=0.9)


def layer0_bundle(bundle: Bundle, cohort: Cohort) -> dict[str, pd.DataFrame]:
    settings = Layer0(clusters=(2, 6, 7, 9))
    return layer0_stage.run(bundle, cohort, layer0=settings, top_k=2, inference=Inference())


@contextmanager
def made_up(lift: Callable[[Bundle, Cohort, Removed], pd.DataFrame]) -> Iterator[None]:
    """In the place of `layer0_lift`."""

    def instead(bundle: Bundle, cohort: Cohort, removed: Removed, **_: Any) -> pd.DataFrame:
        return lift(bundle, cohort, removed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer0_stage, "layer0_lift", instead)
        yield


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    """Seven entities on five features, the first two with priors that nothing makes up for."""
    draw = np.random.default_rng(5)
    unary = draw.normal(0, 1, (7, 5)) * np.linspace(0.2, 2, 7)[:, None]
    couplings = draw.normal(0, 0.3, (7, 5, 5))
    return bundle_of(unary, couplings, priors=[-80.0, -60.0, 0, 0, 0, 0, 0])


@pytest.fixture(scope="module")
def cohort(bundle: Bundle) -> Cohort:
    values = np.random.default_rng(6).integers(-1, 2, (30, 5))
    values[4] = 0
    return cohort_of(bundle, values)


@pytest.fixture(scope="module")
def tables(bundle: Bundle, cohort: Cohort) -> dict[str, pd.DataFrame]:
    return layer0_bundle(bundle, cohort)


@pytest.fixture(scope="module")
def portfolio() -> dict[str, pd.DataFrame]:
    chosen = [BY_NAME["pathway_C4"], BY_NAME["compositional"]]
    return layer0_portfolio(chosen, n_patients=40, solver=Solver())


def chosen(table: pd.DataFrame, **keys: object) -> pd.DataFrame:
    for column, value in keys.items():
        table = table[table[column] == value]
    return table


# the bundle


def test_the_top_k_at_full_observation_is_that_of_a_planner_that_saw_everything(bundle_tiny: Bundle) -> None:
    values = np.random.default_rng(1).integers(-1, 2, (8, len(bundle_tiny.features))).astype(np.int8)
    values[0] = 0
    found = top_k(bundle_tiny, bundle_tiny.energies(values), 2)
    for row, top in zip(values, found, strict=True):
        planner = TopKPlanner(bundle_tiny, k=2, score="wald")
        for feature, value in zip(bundle_tiny.features, row.tolist(), strict=True):
            planner.observe(feature, value)
        assert {name for name, inside in zip(bundle_tiny.entities, top, strict=True) if inside} == set(planner.top_k())


@pytest.mark.parametrize(("n", "expected"), [(1, 1), (2, 2), (9, 3), (10, 4), (25, 5)])
def test_the_papers_number_of_clusters_is_the_root_rounded_up(n: int, expected: int) -> None:
    assert paper_clusters(n) == expected


def test_counts_above_the_number_of_entities_are_left_out_and_the_papers_is_there(
    tables: dict[str, pd.DataFrame],
) -> None:
    layer0 = tables["layer0"]
    assert sorted(set(layer0["n_clusters"])) == [2, 3, 6, 7]
    assert set(layer0.loc[layer0["paper"], "n_clusters"]) == {3}
    assert tables["clusters"].groupby("n_clusters")["members"].sum().tolist() == [7, 7, 7, 7]


def test_every_patient_is_judged_as_a_plain_loop_judges(
    bundle: Bundle, cohort: Cohort, tables: dict[str, pd.DataFrame]
) -> None:
    entities = parameters(bundle)
    models = [bundle.mrf(entity) for entity in bundle.entities]
    for n_clusters in (2, 6):
        parted = partition(entities, n_clusters)
        variants = {
            ("f1", "n_minus_k"): centroid_certificates(parted, 2),
            ("f1", "k"): centroid_certificates(parted, 2, rule="k"),
            ("f2", "k"): centroid_certificates(parted, 2, criterion="f2", rule="k"),
            ("sound", "k"): sound_certificates(entities, 2),
        }
        for (criterion, rule), certificates in variants.items():
            found = chosen(tables["patients"], n_clusters=n_clusters, criterion=criterion, rule=rule)
            for values, row in zip(cohort.values, found.itertuples(), strict=True):
                energy = [model.energy(values) for model in models]
                best = sorted(range(7), key=lambda v: -energy[v])[:2]
                pairs = [(energy[u], energy[v]) for u in range(7) for v in range(7) if certificates.beats[u, v]]
                decided = [(a, b) for a, b in pairs if abs(a - b) > 1e-9]
                assert row.certificates == len(certificates.eliminated)
                assert row.false_certificates == sum(bundle.entities[v] in certificates.eliminated for v in best)
                assert row.duels == len(decided)
                assert row.false_duels == sum(a < b for a, b in decided)


def test_certificates_by_centroids_are_false_on_some_patient_and_the_sound_ones_on_none(
    tables: dict[str, pd.DataFrame],
) -> None:
    sound = chosen(tables["patients"], criterion="sound")
    assert (sound["certificates"] == 2).all()
    assert (sound["false_certificates"] == 0).all()
    assert (sound["false_duels"] == 0).all()
    by_centroids = chosen(tables["patients"], criterion="f1", rule="k", n_clusters=7)
    assert by_centroids["false_certificates"].sum() > 0


def test_a_certificate_is_contradicted_where_any_patient_has_the_entity_in_its_top_k(
    bundle: Bundle, cohort: Cohort, tables: dict[str, pd.DataFrame]
) -> None:
    certificates = centroid_certificates(partition(parameters(bundle), 7), 2, rule="k")
    top = top_k(bundle, bundle.energies(cohort.values), 2)
    expected = sum(top[:, bundle.index(name)].any() for name in certificates.eliminated)
    row = chosen(tables["layer0"], n_clusters=7, criterion="f1", rule="k").iloc[0]
    assert (row["entities_out"], row["contradicted"]) == (len(certificates.eliminated), expected)


def test_a_k_as_large_as_the_bundle_is_refused(bundle: Bundle, cohort: Cohort) -> None:
    with pytest.raises(PlannerError, match="1 to 6"):
        layer0_tables(bundle, cohort, [2], k=7, solver=Solver())


# the summary


def test_the_summary_counts_and_shares_of_a_variant(tables: dict[str, pd.DataFrame]) -> None:
    summary = layer0_stage.summarise(tables, bootstrap=QUICK)
    rows = chosen(summary, reference="f1_k", variant="clusters", level=7).fillna({"quantity": ""})
    rows = rows[rows["t"].isna()].set_index(["metric", "quantity"])
    of_seven = {"n_clusters": 7, "criterion": "f1", "rule": "k"}
    layer0, patients = chosen(tables["layer0"], **of_seven).iloc[0], chosen(tables["patients"], **of_seven)
    assert rows.loc[("count", ""), "value"] == layer0["clusters_out"]
    assert rows.loc[("count", "entities"), "value"] == layer0["entities_out"]
    share = patients["false_certificates"].sum() / patients["certificates"].sum()
    false = rows.loc[("rate", "")]
    assert false["value"] == pytest.approx(share)
    assert false["low"] <= share <= false["high"]
    harmed = rows.loc[("rate", "harmed")]
    assert harmed["value"] == pytest.approx((patients["false_certificates"] > 0).mean())
    assert harmed["n"] == 30
    assert rows.loc[("rate", "contradicted"), "value"] == layer0["contradicted"] / layer0["entities_out"]


def test_the_headline_of_the_summary_is_the_papers_number_of_clusters(tables: dict[str, pd.DataFrame]) -> None:
    summary = layer0_stage.summarise(tables, bootstrap=QUICK)
    found = chosen(headline(summary), metric="count").set_index("reference")["value"]
    row = chosen(tables["layer0"], n_clusters=3, criterion="f1", rule="k").iloc[0]
    assert found["f1_k"] == row["clusters_out"]


def test_the_headline_of_the_portfolio_adds_up_its_configurations(portfolio: dict[str, pd.DataFrame]) -> None:
    summary = layer0_synthetic.summarise(portfolio, bootstrap=QUICK)
    counts = chosen(summary, metric="count", reference="f1_k")
    single = counts[counts["quantity"].isna()].set_index("stratum")["value"]
    assert headline(counts)["value"].item() == single["pathway_C4"] + single["compositional"] > 0
    assert chosen(counts, quantity="configurations")["value"].tolist() == [1]


@pytest.fixture(scope="module")
def lifted() -> tuple[dict[str, Removed], dict[str, pd.DataFrame]]:
    """A made-up lift after 0, 1, 2 observations: where something is removed 2 of 10 calls more, or 4 for strains."""
    asked = {}

    def lift(bundle: Bundle, cohort: Cohort, removed: Removed) -> pd.DataFrame:
        asked[bundle.name] = removed
        right = 10 if bundle.name == "strain_C3" else 8
        rounds = {"t": [0, 1, 2], "duels": 10, "right_greedy": [5, 6, 6]}
        each = [
            {"n_clusters": n, "criterion": c, "rule": r, "patient": p, **rounds, "right": [5, 6, right if names else 6]}
            for (n, c, r), names in removed.items()
            for p in cohort.patients
        ]
        return pd.concat(map(pd.DataFrame, each), ignore_index=True)

    chosen = [BY_NAME["pathway_C4"], BY_NAME["strain_C3"]]
    with made_up(lift):
        return asked, layer0_portfolio(chosen, n_patients=10, solver=Solver())


def test_the_lift_is_asked_for_whom_each_variant_removes(lifted: tuple[dict[str, Removed], object]) -> None:
    removed = lifted[0]["pathway_C4"]
    variants = [("f1", "n_minus_k"), ("f1", "k"), ("f2", "n_minus_k"), ("f2", "k"), ("sound", "k")]
    assert list(removed) == [(4, *variant) for variant in variants]
    assert removed[4, "f1", "n_minus_k"] == tuple(f"c1_{i:02d}" for i in range(1, 6))
    assert removed[4, "sound", "k"] == ()


def test_the_lift_is_the_gap_to_greedy_of_each_variant(lifted: tuple[object, dict[str, pd.DataFrame]]) -> None:
    summary = layer0_synthetic.summarise(lifted[1], bootstrap=QUICK)
    gaps = chosen(summary, metric="gap", reference="f1_n_minus_k").assign(
        stratum=lambda rows: rows["stratum"].fillna("")
    )
    by_round = gaps.pivot(index="t", columns="stratum", values="value")
    assert by_round["pathway_C4"].tolist() == pytest.approx([0, 0, 0.2])
    assert by_round["strain_C3"].tolist() == pytest.approx([0, 0, 0.4])
    assert by_round[""].tolist() == pytest.approx([0, 0, 0.3])
    assert (chosen(summary, metric="gap", reference="sound_k")["value"] == 0).all()


def test_the_accuracy_beside_the_lift_is_that_of_greedy_alone(lifted: tuple[object, dict[str, pd.DataFrame]]) -> None:
    accuracy = chosen(layer0_synthetic.summarise(lifted[1], bootstrap=QUICK), metric="accuracy", t=2)
    assert accuracy["stratum"].fillna("").tolist() == ["", "pathway_C4", "strain_C3"]
    assert accuracy["value"].tolist() == pytest.approx([0.6, 0.6, 0.6])
    assert accuracy["reference"].isna().all()


def test_the_interval_of_the_lift_is_over_the_patients_that_resamples_draw(portfolio: dict[str, pd.DataFrame]) -> None:
    """Every other patient is called wrong with Layer 0: how many of those a resample draws, the gap shows."""
    names = [f"p{i:03d}" for i in range(1, 41)]
    rows = [
        {"bundle": config, "criterion": "f1", "rule": "k", "patient": name, "t": 0, "right": i % 2, "right_greedy": 1}
        for config in ("pathway_C4", "compositional")
        for i, name in enumerate(names)
    ]
    lift = pd.DataFrame(rows).assign(duels=1)
    gap = chosen(layer0_synthetic.summarise({**portfolio, "lift": lift}, bootstrap=QUICK), metric="gap")
    assert gap["value"].tolist() == [-0.5] * 3
    assert (gap["low"] < -0.5).all()
    assert (gap["high"] > -0.5).all()
    assert gap["n"].tolist() == [80, 40, 40]


@pytest.fixture(scope="module")
def lifted_bundle(bundle: Bundle, cohort: Cohort) -> tuple[Removed, dict[str, pd.DataFrame]]:
    """A made-up lift: each entity removed costs every patient one right call of ten at t = 1, where greedy has six."""
    asked: Removed = {}

    def lift(bundle: Bundle, cohort: Cohort, removed: Removed) -> pd.DataFrame:
        nonlocal asked
        asked = removed
        greedy = {"t": [0, 1], "duels": 10, "right_greedy": [5, 6]}
        each = [
            {"n_clusters": n, "criterion": c, "rule": r, "patient": p, **greedy, "right": [5, 6 - len(names)]}
            for (n, c, r), names in removed.items()
            for p in cohort.patients
        ]
        return pd.concat(map(pd.DataFrame, each), ignore_index=True)

    with made_up(lift):
        tables = layer0_bundle(bundle, cohort)
    return asked, tables


def test_on_the_bundle_the_lift_is_asked_for_once_for_all_numbers_of_clusters(
    lifted_bundle: tuple[Removed, dict[str, pd.DataFrame]],
) -> None:
    removed, tables = lifted_bundle
    assert list(dict.fromkeys(count for count, *_ in removed)) == [2, 3, 6, 7]
    out = tables["layer0"].set_index(["n_clusters", "criterion", "rule"])["entities_out"].to_dict()
    assert {variant: len(names) for variant, names in removed.items()} == out
    assert {"cohort", "bundle", "n_clusters", "criterion", "rule"} < set(tables["lift"])


def test_the_lift_on_the_bundle_is_by_number_of_clusters_and_the_headline_is_the_papers(
    lifted_bundle: tuple[Removed, dict[str, pd.DataFrame]],
) -> None:
    removed, tables = lifted_bundle
    summary = layer0_stage.summarise(tables, bootstrap=QUICK)
    gaps = chosen(summary, metric="gap", t=1, variant="clusters").set_index(["level", "reference"])["value"]
    for (count, criterion, rule), names in removed.items():
        assert gaps[count, f"{criterion}_{rule}"] == pytest.approx(-len(names) / 10)
    assert chosen(headline(summary), metric="gap", t=1, reference="f1_k")["value"].item() == gaps[3, "f1_k"]
    assert gaps[7, "f1_k"] != gaps[7, "sound_k"]


def test_the_accuracy_of_greedy_on_the_bundle_stands_once_whatever_the_clusters(
    lifted_bundle: tuple[Removed, dict[str, pd.DataFrame]],
) -> None:
    accuracy = chosen(layer0_stage.summarise(lifted_bundle[1], bootstrap=QUICK), metric="accuracy")
    assert accuracy[["t", "value", "n"]].to_numpy().tolist() == [[0, 0.5, 300], [1, 0.6, 300]]
    assert len(headline(accuracy)) == 2


# the portfolio


def test_the_portfolio_is_the_papers_table() -> None:
    printed = pd.read_csv(PRINTED).pivot(index="row", columns="column", values="value")
    assert set(printed.index) == set(BY_NAME)
    for name, config in BY_NAME.items():
        row = printed.loc[name]
        assert (config.letter, config.story, config.separation) == (row["Sim"], row["Story"], float(row["Sep ratio"]))


@pytest.mark.parametrize("config", PORTFOLIO, ids=lambda config: config.name)
def test_separation_is_within_a_quarter_of_the_printed_one_and_linkage_finds_the_clusters(config) -> None:
    bundle = simulated_bundle(config)
    parted = partition(parameters(bundle), len(config.sizes))
    assert abs(parted.separation / config.separation - 1) < 0.25
    made = {frozenset(np.flatnonzero(config.home == cluster).tolist()) for cluster in range(len(config.sizes))}
    assert {frozenset(np.flatnonzero(parted.label == c).tolist()) for c in range(len(config.sizes))} == made


def test_pathways_meet_the_activation_condition_with_the_papers_numbers() -> None:
    within, between = partition(parameters(simulated_bundle(BY_NAME["pathway_C4"])), 4).activation
    assert within < 0.2
    assert between == pytest.approx(5, abs=0.75)


def test_the_adversarial_story_contracts_as_little_as_ibd_and_is_not_eligible() -> None:
    clusters = partition(parameters(simulated_bundle(BY_NAME["adversarial_ibd"])), 5).clusters
    assert all(6 <= cluster.contraction <= 20 for cluster in clusters)
    assert [cluster.lipschitz("f2") for cluster in clusters] == [None] * 5
    assert sorted(len(cluster.members) for cluster in clusters) == [1, 1, 1, 1, 21]


def test_the_same_entities_and_patients_come_each_time_whatever_else_is_made() -> None:
    first = [simulated_bundle(BY_NAME[name]) for name in ("drug_C4", "hier_C3")]
    again = [simulated_bundle(BY_NAME[name]) for name in ("hier_C3", "drug_C4")][::-1]
    assert [bundle.digest for bundle in first] == [bundle.digest for bundle in again]
    cohorts = [simulated_cohort(BY_NAME["hier_C3"], first[1], 12) for _ in range(2)]
    assert np.array_equal(cohorts[0].values, cohorts[1].values)


def test_patients_have_their_true_entities_and_profiles_that_favour_them() -> None:
    config = BY_NAME["hier_C4"]
    bundle = simulated_bundle(config)
    cohort = simulated_cohort(config, bundle)
    true = cohort.labels.to_numpy(dtype=bool)
    assert len(cohort.patients) == 200
    assert (true.sum(axis=1) == config.n_true).all()
    energy = bundle.energies(cohort.values)
    assert energy[true].mean() > energy[~true].mean() + 5


def test_mixtures_without_clusters_lose_nothing_to_the_papers_rule(portfolio: dict[str, pd.DataFrame]) -> None:
    out = chosen(portfolio["layer0"], criterion="f1", rule="n_minus_k").set_index("bundle")["clusters_out"]
    assert out.to_dict() == {"pathway_C4": 1, "compositional": 0}
