"""Our planners under AFABench's protocol: its signatures, and an evaluation by batches."""

import inspect
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pytest
from batches import TINY, evaluate, random_bundle, row_of, values_of
from scipy.special import softmax

from afa.errors import PlannerError
from afa.evaluate.afabench import BinaryMethod, TopKMethod
from afa.inference.exact import exact
from afa.inference.meanfield import Solver, mean_field
from afa.planner import BinaryPlanner, TopKPlanner
from afa.planner.rules import Greedy


@runtime_checkable
class AFAMethod(Protocol):
    """The members of the benchmark's protocol, in our words; tensors are `Any` here."""

    def act(
        self,
        masked_features: Any,
        feature_mask: Any,
        selection_mask: Any | None = None,
        label: Any | None = None,
        feature_shape: Any | None = None,
    ) -> Any: ...

    def predict(
        self, masked_features: Any, feature_mask: Any, label: Any | None = None, feature_shape: Any | None = None
    ) -> Any: ...

    def save(self, path: Path) -> None: ...

    @classmethod
    def load(cls, path: Path, device: Any) -> Any: ...

    def to(self, device: Any) -> Any: ...

    @property
    def device(self) -> Any: ...

    @property
    def has_builtin_classifier(self) -> bool: ...

    @property
    def cost_param(self) -> float | None: ...

    def set_cost_param(self, cost_param: float) -> None: ...

    def set_seed(self, seed: int | None) -> None: ...


def test_a_method_has_every_member_of_the_protocol(method):
    assert isinstance(method, AFAMethod)
    assert method.has_builtin_classifier
    assert method.cost_param is None


@pytest.mark.parametrize("name", ["act", "predict", "save", "load", "to", "set_cost_param", "set_seed"])
def test_parameters_have_the_names_and_the_order_of_the_protocol(method, name):
    ours = list(inspect.signature(getattr(method, name)).parameters.values())
    theirs = [p for p in inspect.signature(getattr(AFAMethod, name)).parameters.values() if p.name != "self"]
    assert [p.name for p in ours] == [p.name for p in theirs]
    for own, stated in zip(ours, theirs, strict=True):
        assert stated.default is inspect.Parameter.empty or own.default is stated.default


def test_a_batch_is_acquired_row_by_row_until_a_stop_or_the_budget(method):
    features = values_of(method, 9)
    actions, predictions = evaluate(method, features, budget=4)
    for row_actions, row_predictions in zip(actions, predictions, strict=True):
        asked = [action for action in row_actions if action]
        assert len(set(asked)) == len(asked) <= 4
        assert all(action > 0 for action in row_actions[:-1])
        assert all(len(scores) == len(method.classes) for scores in row_predictions)
        np.testing.assert_allclose([scores.sum() for scores in row_predictions], 1, atol=1e-6)


def test_a_row_takes_the_path_of_a_planner_of_its_own(method):
    features = values_of(method, 9)
    actions, _ = evaluate(method, features, budget=6)
    for row, row_actions in zip(features, actions, strict=True):
        planner = method._new_planner()
        for action in row_actions:
            certain = planner.resolved() if isinstance(planner, BinaryPlanner) else planner.certified()
            if certain or len(planner.observed) == len(row):
                assert action == 0
            else:
                name = planner.next_feature()
                assert action == method.features.index(name) + 1
                planner.observe(name, int(row[action - 1]))


def test_answers_do_not_depend_on_what_was_asked_before(method):
    features = values_of(method, 6)
    masks = np.random.default_rng(1).random((6, len(method.features))) < 0.5
    batch = np.where(masks, features, 0)
    first = [method.act(batch[[row]], masks[[row]]) for row in range(6)]
    evaluate(method, values_of(method, 5, seed=7), budget=None)
    again = method.act(batch[::-1], masks[::-1])[::-1]
    np.testing.assert_array_equal(np.concatenate(first), again)
    fresh = type(method)(method.bundle, **method._options)
    np.testing.assert_allclose(method.predict(batch, masks), fresh.predict(batch, masks), atol=1e-6)


def test_a_binary_prediction_is_the_planner_s_probability():
    method = BinaryMethod(TINY, entity="bleeding")
    planner = BinaryPlanner(TINY, entity="bleeding")
    planner.observe("CXCL8", 1)
    planner.observe("MUC2", -1)
    predicted = method.predict(*row_of(method, {"CXCL8": 1, "MUC2": -1}))
    assert method.classes == ("not bleeding", "bleeding")
    np.testing.assert_allclose(predicted, [[1 - planner.probability(), planner.probability()]], rtol=1e-6)


def test_a_top_k_prediction_is_the_posterior_over_the_entities():
    method = TopKMethod(TINY, k=1, solver=Solver(tolerance=1e-12))
    observed = {"CXCL8": 1, "AQP8": -1}
    evidence = [
        TINY.priors[n]
        + mean_field(TINY.mrf(entity), observed, solver=Solver(tolerance=1e-12)).elbo
        - mean_field(TINY.mrf(entity), {}, solver=Solver(tolerance=1e-12)).elbo
        for n, entity in enumerate(TINY.entities)
    ]
    np.testing.assert_allclose(method.predict(*row_of(method, observed))[0], softmax(evidence), atol=1e-6)


def test_the_exact_posterior_is_that_of_enumeration():
    method = TopKMethod(TINY, k=1, inference="exact")
    observed = {"CXCL8": 1, "AQP8": -1}
    models = [TINY.mrf(entity) for entity in TINY.entities]
    evidence = [m.prior + exact(m, observed).log_partition - exact(m).log_partition for m in models]
    np.testing.assert_allclose(method.predict(*row_of(method, observed))[0], softmax(evidence), atol=1e-6)


def test_it_stops_where_no_completion_changes_the_answer():
    method = BinaryMethod(TINY, entity="bleeding")
    # S = x_CXCL8 - x_MUC2 - x_MUC2 x_CXCL8: 1 + 1 + 1 at CXCL8 = 1, MUC2 = -1, whatever the rest is
    assert method.act(*row_of(method, {"CXCL8": 1, "MUC2": -1}))[0, 0] == 0
    assert method.act(*row_of(method, {"CXCL8": 1}))[0, 0] > 0


def test_it_stops_at_a_risk_that_is_low_enough():
    method = BinaryMethod(TINY, entity="bleeding")
    row = row_of(method, {"CXCL8": 1})
    risk = float(1 - method.predict(*row).max())
    assert 0 < risk < 0.5
    method.set_cost_param(risk * 1.01)
    assert method.cost_param == risk * 1.01
    assert method.act(*row)[0, 0] == 0
    method.set_cost_param(risk * 0.99)
    assert method.act(*row)[0, 0] > 0


def test_forced_acquisition_goes_on_to_full_observation():
    method = BinaryMethod(TINY, entity="bleeding", cost_param=0.4)
    method.force_acquisition = True
    actions, _ = evaluate(method, values_of(method, 4), budget=None)
    assert all(sorted(row) == [1, 2, 3, 4, 5] for row in actions)


def test_what_was_asked_for_and_gave_no_value_is_not_asked_for_again(method):
    features, mask = row_of(method, {})
    asked, order = np.zeros_like(mask), []
    while (action := int(method.act(features, mask, asked)[0, 0])) > 0:
        order.append(action)
        asked[0, action - 1] = True
    assert sorted(order) == list(range(1, len(method.features) + 1))


def test_a_label_changes_nothing(method):
    batch, mask = values_of(method, 3), np.ones((3, len(method.features)), dtype=bool)
    mask[:, 1:] = False
    labels = np.eye(len(method.classes))[[0, 1, 0]]
    np.testing.assert_array_equal(method.act(batch, mask), method.act(batch, mask, label=labels))
    np.testing.assert_array_equal(method.predict(batch, mask), method.predict(batch, mask, label=labels))


def test_features_may_have_any_shape_and_a_batch_any_number_of_axes(method):
    m = len(method.features)
    features, mask = values_of(method, 6), np.random.default_rng(3).random((6, m)) < 0.4
    flat = method.act(features, mask), method.predict(features, mask)
    shaped = features.reshape(2, 3, 2, m // 2), mask.reshape(2, 3, 2, m // 2)
    asked = np.zeros((2, 3, m), dtype=bool)
    action = method.act(*shaped, asked, feature_shape=(2, m // 2))
    assert action.shape == (2, 3, 1)
    np.testing.assert_array_equal(action.reshape(6, 1), flat[0])
    predicted = method.predict(*shaped, feature_shape=(2, m // 2))
    np.testing.assert_array_equal(predicted.reshape(flat[1].shape), flat[1])


def test_a_batch_may_have_no_row(method):
    empty = np.zeros((0, len(method.features)))
    assert method.act(empty, empty.astype(bool)).shape == (0, 1)
    assert method.predict(empty, empty.astype(bool)).shape == (0, len(method.classes))


def test_columns_may_stand_in_another_order():
    names = TINY.features[::-1]
    method, turned = BinaryMethod(TINY, entity="bleeding"), BinaryMethod(TINY, entity="bleeding", features=names)
    observed = {"CXCL8": 1, "TFF3": 0}
    chosen, other = (m.act(*row_of(m, observed))[0, 0] - 1 for m in (method, turned))
    assert method.features[chosen] == names[other]
    np.testing.assert_array_equal(method.predict(*row_of(method, observed)), turned.predict(*row_of(turned, observed)))


def test_values_where_nothing_is_observed_are_not_looked_at(method):
    features, mask = row_of(method, {method.features[0]: 1})
    garbage = np.where(mask, features, np.nan)
    np.testing.assert_array_equal(method.act(garbage, mask), method.act(features, mask))
    np.testing.assert_array_equal(method.predict(garbage, mask), method.predict(features, mask))


@pytest.mark.parametrize("planner", [BinaryPlanner, TopKPlanner])
def test_masks_that_only_grow_build_one_planner_and_observe_each_value_once(monkeypatch, planner):
    counts = {"built": 0, "observed": 0}
    init, observe = planner.__init__, planner.observe

    def counted_init(self, *arguments, **options):
        counts["built"] += 1
        init(self, *arguments, **options)

    def counted_observe(self, *arguments, **options):
        counts["observed"] += 1
        observe(self, *arguments, **options)

    monkeypatch.setattr(planner, "__init__", counted_init)
    monkeypatch.setattr(planner, "observe", counted_observe)
    bundle = random_bundle(4)
    method = BinaryMethod(bundle, entity="v0") if planner is BinaryPlanner else TopKMethod(bundle, k=2)
    features = values_of(method, 8)
    method.force_acquisition = True
    actions, _ = evaluate(method, features, budget=None)
    states = {
        tuple(sorted((a, row[a - 1]) for a in chosen[: t + 1]))
        for row, chosen in zip(features, actions, strict=True)
        for t in range(len(chosen))
    }
    assert counts == {"built": 1, "observed": len(states)}


def test_a_small_cache_changes_no_answer():
    bundle = random_bundle(2)
    wide, narrow = TopKMethod(bundle, k=2), TopKMethod(bundle, k=2, most_planners=1)
    features = values_of(wide, 7)
    (actions, predictions), (same, near) = evaluate(wide, features, None), evaluate(narrow, features, None)
    assert actions == same
    for one, other in zip(predictions, near, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert len(narrow._held) == 1


def test_what_is_saved_loads_as_the_same_method(method, tmp_path):
    method.set_cost_param(0.1)
    method.save(tmp_path / "data")
    loaded = type(method).load(tmp_path / "data", "cpu")
    assert loaded.bundle.digest == method.bundle.digest
    assert (loaded.cost_param, loaded.classes, loaded.features) == (0.1, method.classes, method.features)
    features = values_of(method, 5)
    assert evaluate(loaded, features, None)[0] == evaluate(method, features, None)[0]


def test_a_solver_is_saved_with_the_method(tmp_path):
    BinaryMethod(TINY, entity="fistula", solver=Solver(damping=0.3)).save(tmp_path)
    assert BinaryMethod.load(tmp_path)._options["solver"] == Solver(damping=0.3)


def test_a_rule_that_is_an_object_is_not_saved(tmp_path):
    with pytest.raises(PlannerError, match=r"allocation.*the name of a rule"):
        BinaryMethod(TINY, entity="fistula", allocation=Greedy()).save(tmp_path)


def test_a_method_of_the_other_setting_is_not_loaded(tmp_path):
    BinaryMethod(TINY, entity="fistula").save(tmp_path)
    with pytest.raises(PlannerError, match="'BinaryMethod'; expected TopKMethod"):
        TopKMethod.load(tmp_path)


def test_the_seed_is_that_of_a_random_order():
    method = BinaryMethod(random_bundle(1), entity="v0", allocation="random")
    orders = []
    for seed in (0, 1, 2, None):
        method.set_seed(seed)
        orders.append(evaluate(method, values_of(method, 1), None)[0][0])
    assert orders[3] == orders[0]
    assert any(one != other for one, other in pairwise(orders[:3]))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"start": "warm"}, "start.*order of observations"),
        ({"patient": "p1"}, "patient"),
        ({"score": "kl_nonzero"}, "kl_nonzero"),
        ({"features": TINY.features[1:]}, "no column for AQP8"),
        ({"features": [*TINY.features, "AQP9"]}, "unknown columns AQP9"),
        ({"features": [*TINY.features[1:], "CXCL8"]}, "each feature of the bundle once"),
        ({"cost_param": 1.0}, "cost_param.*below 1"),
        ({"score": "best"}, "score"),
    ],
)
def test_options_that_a_mask_cannot_serve_are_refused(options, words):
    with pytest.raises(PlannerError, match=words):
        BinaryMethod(TINY, **{"entity": "bleeding"} | options)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"masked_features": np.zeros((2, 4))}, "masked_features.*5 features on the last axes"),
        ({"feature_shape": (4,)}, "masked_features"),
        ({"feature_shape": (5, 1)}, "masked_features"),
        ({"feature_mask": np.zeros((2, 5))}, "feature_mask: found float64"),
        ({"feature_mask": np.zeros((1, 5), dtype=bool)}, "feature_mask.*bool"),
        ({"selection_mask": np.zeros((2, 3), dtype=bool)}, "selection_mask.*feature alone"),
        ({"masked_features": np.array([[0, 0, 0, 0, 0], [0, 0.5, 0, 0, 0]])}, "row 1, feature CXCL8: found 0.5"),
        ({"masked_features": np.array([[np.nan, 0, 0, 0, 0], [0, 0, 0, 0, 0]])}, "row 0, feature AQP8: found nan"),
    ],
)
def test_a_batch_of_another_form_is_refused_by_name(change, words):
    method = BinaryMethod(TINY, entity="bleeding")
    batch = {"masked_features": np.zeros((2, 5)), "feature_mask": np.ones((2, 5), dtype=bool)}
    with pytest.raises(PlannerError, match=words):
        method.act(**batch | change)
