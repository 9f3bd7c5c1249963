"""Mean-field beside exact inference: what the stage writes, and what its summary makes of it."""

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of
from cohorts import cohort_of
from oracle import posterior

from afa.cohort.cohort import Cohort
from afa.evaluate.summary import headline
from afa.inference.exact import exact_expected_score
from afa.inference.meanfield import Solver, mean_field
from afa.model.closure import class_models
from afa.model.mrf import Evidence
from afa.paper.experiments.accurate import States, log_z, run, summarise
from afa.paper.experiments.settings import Accurate, Bootstrap, ClosureSettings, Inference
from afa.scores.preference import linearity, two_elbo

LIMIT = 1e9
SETTINGS = {"patients": 3, "linearity_patients": 2, "seed": 0, "rounds": (2, 4)}
READ = {"top_k": 2, "closure": ClosureSettings(), "inference": Inference(tolerance=1e-8)}


def bundle():
    random = np.random.default_rng(7)
    couplings = random.integers(-3, 4, (4, 6, 6)) / 4
    return bundle_of(random.integers(-2, 3, (4, 6)) / 2, couplings, priors=[0.0, 0.5, 0.0, -0.25])


def cohort(model):
    return cohort_of(model, np.random.default_rng(1).integers(-1, 2, (5, len(model.features))))


def tables_by(limit, **changed):
    model = bundle()
    return run(model, cohort(model), accurate=Accurate(limit=limit, **SETTINGS), **READ | changed)


@pytest.fixture(scope="module")
def exactly():
    return tables_by(LIMIT)


def states():
    model = bundle()
    return model, States.of(cohort(model), 3, 0, (2, 4))


def observations(model, here, p, t):
    return {model.features[j]: int(here.values[p, j]) for j in np.flatnonzero(here.observed[p, t])}


def test_patients_and_orders_do_not_depend_on_the_order_of_the_cohort():
    model = bundle()
    people = cohort(model)
    turned = Cohort(people.name, model.features, people.patients[::-1], people.values[::-1], people.labels[::-1])
    one, other = (States.of(each, 3, 0, (2, 4)) for each in (people, turned))
    assert one.names == other.names
    assert one.rounds == [0, 2, 4, 6]
    np.testing.assert_array_equal(one.observed, other.observed)
    np.testing.assert_array_equal(one.values, other.values)
    assert one.observed.sum(axis=2).tolist() == [[0, 2, 4, 6]] * 3


def test_scores_of_duels_are_those_of_enumeration_and_of_the_readable_mean_field(exactly):
    model, here = states()
    models = [model.mrf(entity) for entity in model.entities]
    for p, name in enumerate(here.names):
        for t, observed in enumerate(here.rounds):
            known = observations(model, here, p, t)
            evidence = [Evidence.of(mrf, known) for mrf in models]
            by_index = {model.features.index(feature): value for feature, value in known.items()}
            log_zs = np.array([posterior(mrf, by_index)[2] for mrf in models])
            cross = np.array([exact_expected_score(mrf, evidence[u], evidence) for u, mrf in enumerate(models)])
            duels = exactly["duels"].set_index(["entity_a", "entity_b"])
            rows = duels[(duels["patient"] == name) & (duels["t"] == observed)]
            for names, line in rows.iterrows():
                a, b = map(model.index, names)
                expected = log_zs[a] - log_zs[b]
                if line["method"] == "linearity":
                    expected = (cross[a, a] - cross[a, b] + cross[b, a] - cross[b, b]) / 2
                assert line["accurate"] == pytest.approx(expected, abs=1e-8)
    assert (exactly["left_out"]["left_out"] == 0).all()


def test_mean_field_scores_are_those_of_the_planners(exactly):
    model, here = states()
    known = observations(model, here, 1, 1)
    evidence = [Evidence.of(model.mrf(entity), known) for entity in model.entities]
    solved = [mean_field(state.mrf, state, solver=Solver(0.5, 1e-8)) for state in evidence]
    rows = exactly["duels"].query("patient == @here.names[1] and t == 2")
    found = {name: part["mean_field"].to_numpy() for name, part in rows.groupby("method")}
    upper = np.triu_indices(len(evidence), 1)
    np.testing.assert_allclose(found["two_elbo"], two_elbo(solved)[upper], atol=1e-8)
    np.testing.assert_allclose(
        found["linearity"], linearity(evidence, [one.marginals for one in solved])[upper], atol=1e-8
    )


def test_log_odds_of_tasks_are_those_of_enumeration(exactly):
    model, here = states()
    for coupling in ("differential", "shared"):
        one, zero = class_models(model.mrf("v1"), coupling)
        empty = posterior(one, {})[2] - posterior(zero, {})[2]
        known = {j: int(here.values[2, j]) for j in np.flatnonzero(here.observed[2, 2])}
        odds = posterior(one, known)[2] - posterior(zero, known)[2]
        line = exactly["tasks"].query(
            "patient == @here.names[2] and t == 4 and entity == 'v1' and coupling == @coupling"
        )
        assert line["accurate"].item() == pytest.approx(odds, abs=1e-8)
        assert line["accurate_posterior"].item() == pytest.approx(odds - empty, abs=1e-8)


def test_at_full_observation_nothing_is_inferred_and_nothing_differs(exactly):
    whole = exactly["duels"].query("t == 6")
    np.testing.assert_allclose(whole["mean_field"], whole["accurate"], atol=1e-8)
    sets = exactly["sets"].query("t == 6")
    assert (sets["right_accurate"] == 2).all()
    assert (sets["shared"] == 2).all()


def test_states_that_are_too_large_are_excluded_and_counted_and_the_others_are_as_they_were(exactly):
    found = tables_by(3.0**5)
    counts = found["left_out"].set_index(["quantity", "t"])
    assert (counts.xs(0, level="t")["left_out"] > 0).all()
    assert (counts.loc[["log_partition", "moments"]].xs(6, level="t")["left_out"] == 0).all()
    assert counts.loc[("log_partition", 0), "states"] == 3 * 4
    keys = {"duels": ["method", "entity_a", "entity_b"], "tasks": ["coupling", "entity"], "sets": ["method"]}
    for name, of in keys.items():
        few, whole = (tables[name].set_index(["patient", "t", *of]) for tables in (found, exactly))
        assert 0 < len(few) < len(whole)
        pd.testing.assert_frame_equal(few, whole.loc[few.index])


def test_a_task_without_its_value_at_no_observation_is_excluded_altogether():
    found = tables_by(0)
    assert found["tasks"].empty
    assert set(found["duels"]["t"]) == {6}
    whole = found["left_out"].set_index("quantity").loc["log_odds_shared"]
    assert (whole["left_out"] == whole["states"]).all()


def test_the_log_partition_of_a_state_does_not_depend_on_the_states_solved_beside_it():
    model, here = states()
    mrf = model.mrf("v0")
    some = log_z(mrf, here, 3.0 ** len(mrf.support) / 9, None)
    whole = log_z(mrf, here, LIMIT, None)
    known = np.isfinite(some)
    assert not known[:, 0].any()
    assert known[:, -1].all()
    np.testing.assert_array_equal(some[known], whole[known])


def test_tables_are_the_same_for_any_number_of_threads(exactly):
    other = tables_by(LIMIT, threads=3)
    for name, table in exactly.items():
        pd.testing.assert_frame_equal(table, other[name])


def check_rows():
    """Two patients, two duels, by hand: t = 0 and t = 1 = M."""
    keys = pd.MultiIndex.from_product([["p", "q"], [0, 1], ["b", "c"]], names=["patient", "t", "entity_b"])
    #        p,0: b changed, c the same   p,1        q,0: b tied by mean-field, c changed   q,1
    mean = [-1.0, 2.0, 3.0, 4.0, 0.0, -1.0, -5.0, 6.0]
    good = [1.0, 3.0, 3.0, 4.0, -2.0, 0.5, -5.0, 6.0]
    return keys.to_frame(index=False).assign(entity_a="a", mean_field=mean, accurate=good)


def value_of(rows, **columns):
    for name, value in columns.items():
        rows = rows[rows[name].isna() if value is None else rows[name] == value]
    assert len(rows) == 1, rows
    return rows["value"].item(), int(rows["n"].item())


def test_the_summary_counts_changes_and_ties(exactly):
    tables = {**exactly, "duels": check_rows().assign(method="two_elbo")}
    rows = summarise(tables, bootstrap=Bootstrap(resamples=100, confidence=0.9))
    duels = rows[rows[["coupling", "stratum"]].isna().all(axis=1) & (rows["method"] == "two_elbo") & (rows["t"] == 0)]
    rates = duels[duels["metric"] == "rate"]
    assert value_of(headline(rates)) == (pytest.approx(2.5 / 4), 4)
    assert value_of(rates, quantity="accurate_right") == (1.0, 3)
    assert value_of(duels, metric="nats", quantity=None) == (pytest.approx((2 + 1 + 2 + 1.5) / 4), 4)
    accuracy = duels[duels["metric"] == "accuracy"]
    assert value_of(accuracy, reference="mean_field") == (pytest.approx(1.5 / 4), 4)
    assert value_of(accuracy, reference="accurate") == (1.0, 4)
    assert value_of(duels, metric="gap") == (pytest.approx(2.5 / 4), 4)


def test_the_summary_has_no_change_at_full_observation_and_counts_what_is_excluded(exactly):
    rows = summarise(exactly, bootstrap=Bootstrap(resamples=100, confidence=0.9))
    assert set(rows["table"]) == {"meanfield_vs_exact"}
    last = headline(rows[(rows["t"] == 6) & (rows["metric"] == "rate") & (rows["method"] != "posterior")])
    assert len(last) == 4
    assert (last["value"] == 0).all()
    excluded = rows[rows["quantity"] == "left_out"]
    assert set(excluded["stratum"]) == {"log_partition", "moments", "log_odds_differential", "log_odds_shared"}
    assert (excluded["value"] == 0).all()
    assert (excluded.loc[excluded["stratum"] == "log_partition", "n"] == 12).all()
