"""The tables beside the gates are what the readable functions say, one patient and one round at a time."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of

from afa.cohort.cohort import Cohort
from afa.engine.paths import CAPPED, solve_paths
from afa.evaluate.summary import headline
from afa.inference.meanfield import Solver, mean_field
from afa.model.bundle import Bundle
from afa.model.closure import closed_bundle
from afa.model.mrf import Evidence, PairwiseMRF
from afa.model.orders import random_order
from afa.paper.experiments.sanity import run, summarise
from afa.paper.experiments.settings import Bootstrap, Inference, Sanity
from afa.paper.sanity import Subject
from afa.paper.sanity.paths import contraction_table, convergence_table, nonconvergence_table, solve_log
from afa.scores.bracket import hanson_wright_interval, kl_interval, l1_interval
from afa.scores.preference import duel_variance, linearity, sign_votes

SEEDS = (0, 4)
READ: dict[str, Any] = {"sanity": Sanity(seeds=SEEDS), "inference": Inference()}


@pytest.fixture(scope="module")
def cohort(bundle_tiny: Bundle) -> Cohort:
    values = np.random.default_rng(5).integers(-1, 2, (4, len(bundle_tiny.features))).astype(np.int8)
    names = tuple(f"p{i}" for i in range(len(values)))
    return Cohort("made", bundle_tiny.features, names, values, pd.DataFrame(index=list(names)))


@pytest.fixture(scope="module")
def tables(bundle_tiny: Bundle, cohort: Cohort) -> dict[str, pd.DataFrame]:
    return run(bundle_tiny, cohort, **READ, threads=2)


def called_by_hand(models: list[PairwiseMRF], observed: list[tuple[int, int]]) -> dict[str, int]:
    """The side that each bracket of the duel of two models calls, by the readable functions."""
    named = {models[0].features[j]: value for j, value in observed}
    evidence = [Evidence.of(model, named) for model in models]
    marginals = [mean_field(model, state).marginals for model, state in zip(models, evidence, strict=True)]
    mean = float(linearity(evidence, marginals)[0, 1])
    variance = duel_variance(*evidence, *marginals)
    difference = Evidence.of(models[0] - models[1], named)
    positive, negative = (int(counts[0, 1]) for counts in sign_votes(models, observed))
    ends = {
        "l1_tight": l1_interval(difference),
        "l1_paper": l1_interval(difference, form="paper"),
        "hanson_wright": hanson_wright_interval(difference, 0.0 if abs(mean) < 1e-9 else mean, variance),
        "kl": kl_interval(positive, negative),
        "kl_written": kl_interval(positive, negative, len(observed)),
    }
    return {name: int(low > 1e-12) - int(high < -1e-12) for name, (low, high) in ends.items()}


def brackets_by_hand(bundle: Bundle, cohort: Cohort) -> pd.DataFrame:
    rows = []
    tasks = [("duels", bundle, pair) for pair in combinations(range(len(bundle.entities)), 2)]
    tasks += [("binary", closed_bundle(bundle, entity), (0, 1)) for entity in bundle.entities]
    for population, of, pair in tasks:
        models = [of.mrf(of.entities[v]) for v in pair]
        for values, patient in zip(cohort.values, cohort.patients, strict=True):
            final = [model.energy(values) for model in models]
            winner = int(np.sign(round(final[0] - final[1], 9)))
            for seed in SEEDS:
                order = random_order(bundle.features, patient=patient, seed=seed)
                for t in range(len(order) + 1):
                    observed = [(int(j), int(values[j])) for j in order[:t]]
                    for bracket, call in called_by_hand(models, observed).items():
                        key = {"population": population, "t": t, "bracket": bracket, "patient": patient}
                        decided = winner != 0
                        counts = {"decided": decided, "called": decided and call != 0}
                        counts |= {"wrong": decided and call == -winner, "tied_called": not decided and call != 0}
                        rows.append(key | {name: int(value) for name, value in counts.items()})
    return pd.DataFrame(rows)


def test_bracket_tables_count_what_the_readable_brackets_call(
    bundle_tiny: Bundle, cohort: Cohort, tables: dict[str, pd.DataFrame]
) -> None:
    expected = brackets_by_hand(bundle_tiny, cohort)
    for name, by in (("brackets", "t"), ("bracket_patients", "patient")):
        keys = ["population", by, "bracket"]
        summed = expected.groupby(keys)[["decided", "called", "wrong", "tied_called"]].sum()
        found = tables[name].set_index(keys)[summed.columns].sort_index()
        pd.testing.assert_frame_equal(found, summed.sort_index(), check_dtype=False)
    assert expected["called"].sum() > 0


def test_convergence_counts_the_solves_of_the_readable_mean_field(
    bundle_tiny: Bundle, cohort: Cohort, tables: dict[str, pd.DataFrame]
) -> None:
    counts: dict[tuple[str, int, str], np.ndarray] = {}
    for entity in bundle_tiny.entities:
        closed = closed_bundle(bundle_tiny, entity)
        models = {"entity": bundle_tiny.mrf(entity)}
        models |= {f"class_{1 - e}": closed.mrf(closed.entities[e]) for e in range(2)}
        for (kind, model), values, patient in (
            (item, row, name)
            for item in models.items()
            for row, name in zip(cohort.values, cohort.patients, strict=True)
        ):
            for seed in SEEDS:
                evidence = Evidence.of(model)
                order = [None, *random_order(bundle_tiny.features, patient=patient, seed=seed)]
                for t, feature in enumerate(order):
                    if feature is not None:
                        evidence = evidence.observe(int(feature), int(values[feature]))
                    if feature is None or feature in model.support:
                        solved = mean_field(model, evidence)
                        row = np.array([1, solved.iterations, not solved.converged, not solved.converged])
                        counts[kind, t, entity] = counts.get((kind, t, entity), 0) + row
    found = tables["convergence"].set_index(["model", "t", "entity"])[["solves", "iterations", "capped", "finished"]]
    assert found.index.is_unique
    assert {key: row.tolist() for key, row in zip(found.index, found.to_numpy(), strict=True)} == {
        key: row.tolist() for key, row in counts.items()
    }


def frustrated(n: int, strength: float) -> Subject:
    """An entity whose features repel each other, solved along two orders; and one with a single feature."""
    couplings = np.zeros((2, n, n))
    couplings[0] = -strength * np.triu(np.ones((n, n)), 1)
    unary = np.zeros((2, n))
    unary[0], unary[1, 0] = 0.5, 1.0
    bundle = bundle_of(unary, couplings, entities=("frustrated", "free"))
    return Subject(bundle, ("p",), np.zeros((1, n), dtype=np.int8), SEEDS, Solver(), 1)


def test_non_convergence_persists_where_half_of_the_solves_of_every_seed_reach_the_cap() -> None:
    subject = frustrated(12, 3.0)
    table = nonconvergence_table(subject).set_index(["model", "entity"])
    assert set(table["solves"]) == {2 * 13}
    assert table.loc[("entity", "frustrated"), "persistent"] == (table.loc[("entity", "frustrated"), "capped"] >= 13)
    assert table.loc[("entity", "frustrated"), "persistent"]
    assert "free" not in table.index.get_level_values("entity")
    capped = convergence_table(subject).groupby(["model", "entity"])["capped"].sum()
    assert capped["entity", "frustrated"] == table.loc[("entity", "frustrated"), "capped"]


def test_one_seed_that_converges_is_enough_not_to_persist() -> None:
    subject = frustrated(12, 3.0)
    subject.once(solve_log).by_patient[0, 0, 1, 0, CAPPED] = 6
    assert not nonconvergence_table(subject).set_index(["model", "entity"]).loc[("entity", "frustrated"), "persistent"]


def test_contraction_constants_of_three_features_by_hand() -> None:
    """Of u, f0-f1 are coupled by 2, f1-f2 by -1: the row of f1 sums to 3; v has the first alone: D the second."""
    couplings = np.zeros((2, 3, 3))
    couplings[0, 0, 1], couplings[0, 1, 2], couplings[1, 0, 1] = 2.0, -1.0, 2.0
    table = contraction_table(bundle_of(np.zeros((2, 3)), couplings, entities=("u", "v")))
    assert table["model"].tolist() == ["entity", "entity", "duel", "closure", "closure"]
    assert table["contraction"].tolist() == [3.0, 2.0, 1.0, 1.5, 1.0]
    assert table["ternary"].tolist() == pytest.approx([2.0, 4 / 3, 2 / 3, 1.0, 2 / 3])


def test_a_healthy_run_passes_all_gates(tables: dict[str, pd.DataFrame]) -> None:
    gates = tables["gates"]
    assert gates["name"].tolist()[::2] == ["full_observation", "gauge", "mean_field", "bracket_soundness", "copeland"]
    assert gates["input"].tolist() == ["run", "synthetic"] * 5
    assert (gates["cases"] > 0).all()
    assert (gates.loc[gates["input"] == "synthetic", "perturbed_failures"] > 0).all()


def test_one_and_two_threads_give_the_same_tables(
    bundle_tiny: Bundle, cohort: Cohort, tables: dict[str, pd.DataFrame]
) -> None:
    again = run(bundle_tiny, cohort, **READ, threads=1)
    for name, table in tables.items():
        pd.testing.assert_frame_equal(again[name], table, check_exact=True)


def test_solve_counts_are_the_same_for_any_number_of_threads(bundle_tiny: Bundle, cohort: Cohort) -> None:
    orders = np.array([[random_order(bundle_tiny.features, patient=name, seed=0)] for name in cohort.patients])
    one, two = (solve_paths(bundle_tiny, cohort.values, orders, threads=n) for n in (1, 2))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(one, two, strict=True))


def test_the_summary_holds_the_shares_of_the_tables(tables: dict[str, pd.DataFrame]) -> None:
    rows = summarise(tables, bootstrap=Bootstrap(resamples=100))
    whole = rows[rows["t"].isna()].fillna({"stratum": "", "reference": "", "quantity": ""})
    by = whole.set_index(["metric", "quantity", "stratum", "reference"])
    assert by.loc[("count", "bracket_soundness", "", ""), "value"] == 0
    head = headline(rows[rows["t"].isna()])
    assert head[["metric", "value", "n"]].to_numpy().tolist() == [["count", 0, tables["gates"]["cases"].sum()]]
    patients = tables["bracket_patients"].query("population == 'duels' and bracket == 'l1_tight'")
    called = by.loc[("rate", "called", "duels", "l1_tight")]
    assert called["value"] == patients["called"].sum() / patients["decided"].sum()
    assert called["low"] <= called["value"] <= called["high"]
    convergence = tables["convergence"].query("model == 'class_0'")
    sweeps = by.loc[("iterations", "", "class_0", ""), "value"]
    assert sweeps == convergence["iterations"].sum() / convergence["solves"].sum()
    largest = by.loc[("contraction", "largest", "duel", ""), "value"]
    assert largest == tables["contraction"].query("model == 'duel'")["contraction"].max()


def test_a_bundle_of_one_entity_has_no_duels_and_is_checked_all_the_same() -> None:
    bundle = bundle_of([[1.0, -0.5]], np.triu(np.ones((1, 2, 2)), 1))
    values = np.array([[1, -1], [0, 0]], dtype=np.int8)
    one = Cohort("one", bundle.features, ("p", "q"), values, pd.DataFrame(index=["p", "q"]))
    tables = run(bundle, one, sanity=Sanity(), inference=Inference(), threads=1)
    assert tables["brackets"].query("population == 'duels'")["decided"].sum() == 0
    assert tables["brackets"].query("population == 'binary'")["decided"].sum() > 0
    summarise(tables, bootstrap=Bootstrap(resamples=100))
