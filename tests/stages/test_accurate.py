"""Mean-field against accurate inference: what the stage writes, and what its summary makes of it."""

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of
from oracle import posterior

from afa.closure import class_models
from afa.cohort.cohort import Cohort
from afa.inference.exact import exact_expected_score
from afa.inference.meanfield import Solver, mean_field
from afa.mrf import Evidence
from afa.preference import linearity, two_elbo
from afa.stages.accurate import Settings, run, summarise
from afa.stages.accurate.reference import States, evidence_of, log_z, sampled_state, scores_of
from afa.stages.settings import Bootstrap, Closure, Inference
from afa.stats.summary import headline

EXACT = Settings(limit=1e9, chains=40, steps=10)
SAMPLED = Settings(limit=0, chains=2000, steps=60)
SETTINGS = {"patients": 3, "linearity_patients": 2, "seed": 0, "rounds": (2, 4)}
READ = {"top_k": 2, "closure": Closure(), "inference": Inference(tolerance=1e-8)}


def bundle():
    random = np.random.default_rng(7)
    couplings = random.integers(-3, 4, (4, 6, 6)) / 4
    return bundle_of(random.integers(-2, 3, (4, 6)) / 2, couplings, priors=[0.0, 0.5, 0.0, -0.25])


def cohort(model):
    values = np.random.default_rng(1).integers(-1, 2, (5, len(model.features))).astype(np.int8)
    names = tuple(f"p{i}" for i in range(5))
    return Cohort("tiny", model.features, names, values, pd.DataFrame(index=list(names)))


def tables_by(effort, **changed):
    model = bundle()
    own = {name: changed.pop(name) for name in list(changed) if name in Settings.model_fields}
    accurate = Settings(**dict(effort) | SETTINGS | own)
    return run(model, cohort(model), accurate=accurate, **READ | changed)


@pytest.fixture(scope="module")
def exactly():
    return tables_by(EXACT)


@pytest.fixture(scope="module")
def sampled():
    return tables_by(SAMPLED)


def states():
    model = bundle()
    return model, States.of(cohort(model), 3, 0, (2, 4))


def observations(model, here, p, t):
    return {model.features[j]: int(here.values[p, j]) for j in np.flatnonzero(here.observed[p, t])}


def test_patients_and_orders_do_not_depend_on_the_order_of_the_cohort():
    model = bundle()
    people = cohort(model)
    turned = Cohort("tiny", model.features, people.patients[::-1], people.values[::-1], people.labels[::-1])
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
    assert (exactly["duels"]["error"] == 0).all()
    assert exactly["duels"]["first"].equals(exactly["duels"]["accurate"])


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


def test_at_full_observation_nothing_is_inferred_and_nothing_differs(exactly, sampled):
    for tables in (exactly, sampled):
        whole = tables["duels"].query("t == 6")
        np.testing.assert_allclose(whole["mean_field"], whole["accurate"], atol=1e-8)
        assert (whole["error"] == 0).all()
        sets = tables["sets"].query("t == 6")
        assert (sets["right_accurate"] == 2).all()
        assert (sets["shared"] == 2).all()


def test_sampled_scores_are_the_exact_ones_within_their_errors(exactly, sampled):
    names = set(sampled["tasks"]["patient"])
    one, other = (tables["duels"][tables["duels"]["patient"].isin(names)] for tables in (exactly, sampled))
    error = other["error"].to_numpy()
    assert (error[other["t"] < 6] > 0).mean() > 0.9
    assert error.max() < 0.2
    apart = np.abs(one["accurate"].to_numpy() - other["accurate"].to_numpy())
    assert (apart <= 4 * error + 1e-8).all()
    assert (other.query("t == 0")["first"] != other.query("t == 0")["second"]).any()
    whole, tasks = exactly["tasks"][exactly["tasks"]["patient"].isin(names)], sampled["tasks"]
    apart = np.abs(whole["accurate_posterior"].to_numpy() - tasks["accurate_posterior"].to_numpy())
    assert (apart <= 4 * tasks["error_posterior"] + 1e-8).all()
    assert (tasks.query("t == 0")["accurate_posterior"] == 0).all()


def test_where_log_z_has_to_be_sampled_only_the_patients_of_linearity_are_looked_at(exactly, sampled):
    assert exactly["tasks"]["patient"].nunique() == 3
    few = exactly["duels"].query("method == 'linearity'")["patient"].unique()
    assert sampled["tasks"]["patient"].unique().tolist() == few.tolist()
    assert len(few) == 2


def test_the_table_says_how_each_state_was_solved(exactly, sampled):
    assert set(exactly["solves"]["inference"]) == {"exact"}
    hidden = sampled["solves"].query("t < 6")
    assert set(hidden["inference"]) == {"annealed"}
    assert (hidden["effective"] > 10).all()


def test_states_that_are_too_large_are_sampled_and_the_others_exact():
    model, here = states()
    mrf = model.mrf("v0")
    entries = 3.0 ** len(mrf.support)
    found = log_z(mrf, "v0", *here.rows, Settings(limit=entries / 9, chains=2000, steps=50))
    whole = log_z(mrf, "v0", *here.rows, EXACT)
    nothing_seen = here.rows[0].sum(axis=1) == 0
    assert (found.error[nothing_seen] > 0).all()
    assert (found.error[here.rows[0].sum(axis=1) == 6] == 0).all()
    assert (np.abs(found.value[0] - whole.value[0]) <= 4 * found.error + 1e-9).all()


def test_sampled_tables_are_the_same_for_any_number_of_threads():
    effort = Settings(limit=0, chains=20, steps=4)
    one, other = (tables_by(effort, threads=threads) for threads in (1, 3))
    for name, table in one.items():
        pd.testing.assert_frame_equal(table, other[name])


def test_a_state_is_sampled_by_its_name_and_its_observations_alone():
    model, here = states()
    mrf = model.mrf("v2")
    effort = Settings(limit=0, chains=10, steps=3)
    one, again = (sampled_state(mrf, "v2", here.observed[0, 0], here.values[p], effort) for p in (0, 1))
    other = sampled_state(mrf, "v3", here.observed[0, 0], here.values[0], effort)
    assert one.log_partition == again.log_partition != other.log_partition


def test_scores_of_given_values_are_energies():
    model, here = states()
    mrf = model.mrf("v1")
    evidence = evidence_of(mrf, here.observed[0, 1], here.values[0])
    draws = np.random.default_rng(0).integers(-1, 2, (5, len(evidence.free))).astype(np.int8)
    found = scores_of(model, evidence, draws)
    for draw, scores in zip(draws, found, strict=True):
        x = evidence.values.copy()
        x[evidence.free] = draw
        assert scores == pytest.approx([model.mrf(entity).energy(x) for entity in model.entities])


def check_rows():
    """Two patients, two duels, by hand: t = 0 and t = 1 = M."""
    keys = pd.MultiIndex.from_product([["p", "q"], [0, 1], ["b", "c"]], names=["patient", "t", "entity_b"])
    #        p,0: b changed, c the same   p,1        q,0: b tied by mean-field, c open   q,1
    mean = [-1.0, 2.0, 3.0, 4.0, 0.0, -1.0, -5.0, 6.0]
    good = [1.0, 3.0, 3.0, 4.0, -2.0, 0.5, -5.0, 6.0]
    table = keys.to_frame(index=False).assign(entity_a="a", mean_field=mean, accurate=good)
    table["error"] = [0.0, 0.0, 0.0, 0.0, 0.0, 0.4, 0.0, 0.0]
    table["first"], table["second"] = table["accurate"], [1.0, 3.0, 3.0, 4.0, -2.0, -0.5, -5.0, 6.0]
    return table


def value_of(rows, **columns):
    for name, value in columns.items():
        rows = rows[rows[name].isna() if value is None else rows[name] == value]
    assert len(rows) == 1, rows
    return rows["value"].item(), int(rows["n"].item())


def test_the_summary_counts_changes_ties_and_what_is_open(exactly):
    tables = {**exactly, "duels": check_rows().assign(method="two_elbo")}
    rows = summarise(tables, bootstrap=Bootstrap(resamples=100, confidence=0.9))
    duels = rows[rows[["coupling", "stratum"]].isna().all(axis=1) & (rows["method"] == "two_elbo") & (rows["t"] == 0)]
    rates = duels[duels["metric"] == "rate"]
    assert value_of(headline(rates)) == (pytest.approx(1.5 / 3), 3)
    assert value_of(rates, quantity="undecided") == (0.25, 4)
    assert value_of(rates, quantity="two_runs") == (0.25, 4)
    # p: accurate right; q: right where mean-field ties
    assert value_of(rates, quantity="accurate_right") == (1.0, 2)
    assert value_of(duels, metric="nats", quantity=None) == (pytest.approx((2 + 1 + 2 + 1.5) / 4), 4)
    assert value_of(duels, metric="nats", quantity="error") == (0.4, 1)
    accuracy = duels[duels["metric"] == "accuracy"]
    assert value_of(accuracy, reference="mean_field") == (pytest.approx(1.5 / 4), 4)
    assert value_of(accuracy, reference="accurate") == (1.0, 4)
    assert value_of(duels, metric="gap") == (pytest.approx(2.5 / 4), 4)


def test_the_summary_of_exact_tables_has_no_error_and_two_equal_runs(exactly):
    rows = summarise(exactly, bootstrap=Bootstrap(resamples=100, confidence=0.9))
    assert set(rows["table"]) == {"meanfield_vs_exact"}
    assert (rows.loc[rows["quantity"] == "two_runs", "value"] == 0).all()
    assert (rows.loc[rows["stratum"] == "annealed", "value"] == 0).all()
    assert rows[rows["quantity"] == "error"].empty
    last = headline(rows[(rows["t"] == 6) & (rows["metric"] == "rate") & (rows["method"] != "posterior")])
    assert len(last) == 4
    assert (last["value"] == 0).all()
    checked = rows[(rows["stratum"] == "annealed_vs_exact") & (rows["quantity"] == "within")]
    assert len(checked) == 6
    assert (checked["value"] > 0.5).all()
