"""`simulate` on bundles that say how often, and on patients of whom not all was measured."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rated import FEVERS, rated, written
from scipy.special import expit

import afa
from afa.cohort.cohort import Cohort
from afa.engine.run import MISSING
from afa.errors import AfaError
from afa.evaluate.simulate import simulate_strategies
from afa.evaluate.simulate.binary import BinaryTask
from afa.evaluate.simulate.walks import SimulationSetting, Strategy, TopKTask
from afa.inference.meanfield import Solver
from afa.model.bundle import load_bundle
from afa.planner import BinaryPlanner, TopKPlanner

SEEDS = st.integers(0, 2**32 - 1)
TIGHT = Solver(tolerance=1e-12, max_iterations=2000)
GREEDY, RANDOM = Strategy("greedy", "cmi", "two_elbo"), Strategy("random", "", "two_elbo")
OWN, BY_WALD = Strategy("random_own", "", "two_elbo"), Strategy("greedy", "wald_magnitude", "wald")


def nobody(_):
    """No bar to move."""


def patients_of(case, rng, n=3):
    """(n, M) values, some missing, of patients by name."""
    values = np.array([case.values(rng) for _ in range(n)], dtype=np.int8)
    return tuple(f"p{i}" for i in range(n)), np.where(rng.random(values.shape) < 0.7, values, np.int8(MISSING))


def task_of(kind, bundle, names, values, labels, **asked):
    setting = SimulationSetting(**{"costs": "equal", "solver": TIGHT, **asked})
    return kind(bundle=bundle, patients=names, values=values, labels=labels, setting=setting)


def asked(case, names, values, entity="v0"):
    no_labels = np.full(len(values), np.nan)
    return task_of(BinaryTask, case.bundle, names, values, no_labels, entity=entity, coupling="explicit")


@examples(15)
@given(SEEDS)
def test_without_couplings_what_is_followed_is_naive_bayes_at_every_round(seed):
    rng = np.random.default_rng(seed)
    case = rated(rng, coupled=False, n=3, m=4)
    names, values = patients_of(case, rng)
    task = asked(case, names, values, "v1")
    seen = task.block(slice(0, 3))
    ratios = np.log(np.where(case.one > 0, case.one, 1.0)) - np.log(np.where(case.zero > 0, case.zero, 1.0))
    for way in (GREEDY, RANDOM, OWN):
        scores, orders = task.walk(seen, way, 0, nobody).scores, task._paths_by_planners(seen, way, 0, nobody)[0]
        for i, order in enumerate(orders):
            for t in range(5):
                at = [j for j in order[:t] if j >= 0 and values[i, j] != MISSING]
                expected = case.bundle.priors[1] + ratios[1, at, values[i, at] + 1].sum()
                assert scores[i, t] == pytest.approx(expected, abs=1e-9)


@examples(15)
@given(SEEDS)
def test_what_the_engine_follows_is_what_a_planner_says_of_patients_with_gaps(seed):
    rng = np.random.default_rng(seed)
    case = rated(rng, n=2, m=4)
    names, values = patients_of(case, rng)
    task = asked(case, names, values)
    seen = task.block(slice(0, 3))
    for way in (RANDOM, OWN, GREEDY, BY_WALD):
        _, followed, certified = task._paths_by_engine(task.task, seen, way, 0)
        _, walked, sure = task._paths_by_planners(seen, way, 0, nobody)
        np.testing.assert_allclose(followed[:, [0, -1]], walked[:, [0, -1]], atol=1e-8)
        assert (np.sign(walked[:, -1].round(9)) == seen.targets["sign_accuracy"][:, 0]).all() or way is BY_WALD
        if way in (RANDOM, OWN):
            np.testing.assert_allclose(followed, walked, atol=1e-8)
            assert (certified == sure).all()


@examples(15)
@given(SEEDS, st.sampled_from(["several", "one", "one or none"]))
def test_the_top_k_is_that_of_planners_told_all_that_was_measured(seed, holds):
    rng = np.random.default_rng(seed)
    case = rated(rng, n=3, m=4)
    names, values = patients_of(case, rng)
    labels = np.full((3, 3), np.nan)
    task = task_of(TopKTask, case.bundle, names, values, labels, k=1, coupling="explicit", holds=holds)
    seen = task.block(slice(0, 3))
    for i, row in enumerate(values):
        planner = TopKPlanner(case.bundle, k=1, holds=holds, solver=TIGHT)
        known = {case.bundle.features[j]: int(x) for j, x in enumerate(row) if x != MISSING}
        if known:
            planner.observe_all(known)
        scores = planner.scores()
        assert seen.truth.winner[i].tolist() == np.sign(scores[np.triu_indices(3, 1)]).tolist()
        assert case.bundle.entities[int(seen.truth.place[i].argmin())] in planner.ranking()[: 1 + (scores == 0).sum()]
    walk = task.walk(seen, GREEDY, 0, nobody)
    right, of = walk.parts["sign_accuracy"]
    assert (right[:, -1:] == of).all()  # at all that was measured nothing is wrong
    certified, right = walk.parts["certified"][0] > 0, walk.parts["p_at_k"][0]
    assert (right[certified] == right.max()).all()  # a certificate is never wrong


def test_a_value_that_cannot_be_or_is_encoded_otherwise_is_refused(tmp_path):
    fevers = load_bundle(written(tmp_path / "fevers", FEVERS))
    table = pd.DataFrame({"red": [1, 0], "cough": [1, -1]}, index=["a", "b"])
    with pytest.raises(AfaError, match="patient b, feature cough: found -1; expected 0, 1"):
        afa.simulate(fevers, table, resamples=10)
    by_ranges = replace(fevers, rates=replace(fevers.rates, encoding="ranges"))
    values = np.zeros((1, 4), dtype=np.int8)
    labels = pd.DataFrame(index=["a"])
    other = Cohort("c", fevers.features, ("a",), values, labels, {"encoding": {"reference": "cohort"}})
    with pytest.raises(AfaError, match="found values encoded by cohort; expected by ranges"):
        simulate_strategies(by_ranges, other, [GREEDY], SimulationSetting(k=1, resamples=10))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"holds": "one", "entity": "flu"}, "none where one entity is asked for"),
        ({"tau": 2.0}, "planner option tau"),
        ({"score": "linearity"}, "planner option score"),
        ({"entity": "flu", "score": "stack_a"}, "planner option score"),
        ({"gain": "f_target"}, "planner option gain"),
        ({"coupling": "differential"}, "planner option coupling"),
    ],
)
def test_an_option_that_does_not_go_with_how_often_is_named(tmp_path, options, words):
    fevers = written(tmp_path / "fevers", FEVERS)
    table = pd.DataFrame({"red": [1, 0], "cough": [1, 0]}, index=["a", "b"])
    with pytest.raises(AfaError, match=words):
        afa.simulate(fevers, table, rules=["greedy"], resamples=10, **options)


@pytest.mark.parametrize("tau", [None, 0.5])
def test_exclusive_groups_and_tau_are_followed_by_the_planner(tmp_path, tau):
    fevers = load_bundle(written(tmp_path / "fevers", FEVERS))
    table = pd.DataFrame(
        {"red": [1, 0, None], "blue": [0, 0, 1], "green": [0, 0, 0], "cough": [1, None, 0]}, index=["a", "b", "c"]
    )
    labels = pd.DataFrame({"flu": [1, 0, 0]}, index=table.index)
    made = afa.simulate(fevers, table, labels, rules=["greedy", "random"], entity="flu", tau=tau, resamples=10)
    rows = made.curves.query("allocation == 'greedy' and metric == 'label_accuracy'")
    right = []
    for name, row in table.iterrows():
        planner = BinaryPlanner(fevers, entity="flu", tau=tau)
        planner.observe_all(row)
        right.append((1 + planner.decision() * (2 * labels.loc[name, "flu"] - 1)) / 2)
    assert rows["value"].iloc[-1] == pytest.approx(np.mean(right))
    assert made.gaps == pytest.approx(2 / 12)
    by_rank = afa.simulate(fevers, table, rules=["greedy"], tau=tau, resamples=10)
    assert by_rank.curves.query("metric == 'sign_accuracy' and t == 4 and allocation == 'greedy'")["value"].item() == 1


@pytest.mark.parametrize("coupling", ["explicit", "differential"])
def test_features_of_one_measurement_are_asked_for_as_the_planner_does(coupling):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        case = rated(rng, n=2, m=6, coupled=False, speaks=1.0)
        rates = replace(case.bundle.rates, measurements=(("draw", (0, 3)),), table=None)
        bundle = replace(case.bundle, rates=rates)
        values = rng.integers(-1, 2, (4, 6)).astype(np.int8)
        names, labels = tuple(f"p{i}" for i in range(4)), np.full(4, np.nan)
        task = task_of(BinaryTask, bundle, names, values, labels, entity="v0", coupling=coupling)
        scores = task.walk(task.block(slice(0, 4)), GREEDY, 0, nobody).scores
        for row, found in zip(values, scores, strict=True):
            planner = BinaryPlanner(bundle, entity="v0", coupling=coupling, solver=TIGHT)
            for t in range(7):
                assert np.sign(found[t]) == planner.decision()
                if (name := planner.next_feature()) is not None:
                    planner.observe(name, int(row[int(name[1:])]))


def test_gaps_of_a_bundle_of_directions_count_nothing_at_the_end(bundle_tiny):
    rng = np.random.default_rng(3)
    values = rng.integers(-1, 2, (6, 5)).astype(float)
    table = pd.DataFrame(values, columns=list(bundle_tiny.features), index=[f"p{i}" for i in range(6)])
    gaps = table.where(rng.random(table.shape) < 0.7)
    filled = gaps.fillna(0)
    for options in ({"score": "wald"}, {"entity": "fistula"}, {"entity": "fistula", "coupling": "shared"}):
        with_gaps, without = (
            afa.simulate(bundle_tiny, each, rules=["random"], costs="equal", resamples=10, **options)
            for each in (gaps, filled)
        )
        last = [
            made.curves.query("metric == 'sign_accuracy' and t == 5")["value"].tolist() for made in (with_gaps, without)
        ]
        assert last[0] == last[1]


def test_probabilities_of_the_end_are_those_of_the_planner(tmp_path):
    fevers = load_bundle(written(tmp_path / "fevers", FEVERS | {"groups.csv": "feature,measurement,exclusive\n"}))
    values = np.array([[1, 0, MISSING, 1]], dtype=np.int8)
    nobody_knows = np.array([np.nan])
    task = task_of(BinaryTask, fevers, ("a",), values, nobody_knows, entity="flu", coupling="explicit")
    scores = task.walk(task.block(slice(0, 1)), GREEDY, 0, nobody).scores
    by_hand = np.log([0.6 / 0.2, 0.8 / 0.7, 0.9 / 0.3]).sum()
    assert expit(scores[0, -1]) == pytest.approx(expit(by_hand), abs=1e-9)
