"""Planners of bundles that say how often: naive Bayes, exact inference, certificates, groups, none (F1 to F16)."""

from itertools import product

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rated import FEVERS, rated, written
from scipy.special import expit, logit, logsumexp, softmax

from afa.errors import PlannerError
from afa.inference.class_odds import log_ratio
from afa.inference.meanfield import Solver
from afa.model.bundle import load_bundle
from afa.model.bundle.rates import bundle_models, hypotheses_of
from afa.model.mrf import Evidence
from afa.planner import BinaryPlanner, TopKPlanner
from afa.planner.explicit import ENUMERATED
from afa.planner.rules import RULES
from afa.planner.session import load_session, save_session
from afa.scores.bracket import duel_interval

SEEDS = st.integers(0, 2**32 - 1)
TIGHT = Solver(tolerance=1e-12, max_iterations=2000)
HOLDS = ("several", "one", "one or none")


def naive_bayes(case, values, seen, against):
    """(N,) prior log-odds and log-ratios of what was seen."""
    at = values[list(seen)] + 1
    ratios = np.log(case.one[:, list(seen), at] / against[..., list(seen), at])
    return case.bundle.priors + ratios.sum(axis=1)


@examples(12)
@given(SEEDS)
def test_without_couplings_every_planner_is_naive_bayes_at_every_partial_observation(tmp_path_factory, seed):
    rng = np.random.default_rng(seed)
    case = rated(rng, coupled=False, n=3, m=4)
    values, order = case.values(rng), rng.permutation(4)
    session = tmp_path_factory.mktemp("s") / "session.yaml"
    planners = [TopKPlanner(case.bundle, k=1, holds=holds) for holds in HOLDS]
    asked = BinaryPlanner(case.bundle, entity="v1")
    for t in range(5):
        seen = order[:t]
        several = naive_bayes(case, values, seen, case.zero)
        rivals = naive_bayes(case, values, seen, case.background)
        assert asked.log_odds() == pytest.approx(several[1], abs=1e-9)
        np.testing.assert_allclose(planners[0].posterior(), expit(several), atol=1e-9)
        np.testing.assert_allclose(planners[1].posterior(), softmax(rivals), atol=1e-9)
        np.testing.assert_allclose(planners[2].posterior(), softmax(np.append(rivals, 0))[:3], atol=1e-9)
        assert planners[0].ranking()[0] == case.bundle.entities[int(several.argmax())]
        for planner in (*planners, asked):
            save_session(planner, session)
            resumed = load_session(session, case.bundle)
            assert resumed.settings == planner.settings
            again = resumed.log_odds() if isinstance(resumed, BinaryPlanner) else resumed.posterior()
            before = planner.log_odds() if isinstance(planner, BinaryPlanner) else planner.posterior()
            np.testing.assert_allclose(again, before, atol=1e-12)
            if t < 4:
                planner.observe(case.bundle.features[order[t]], int(values[order[t]]))


@examples(12)
@given(SEEDS)
def test_before_any_observation_the_posterior_is_the_prior(seed):
    case = rated(np.random.default_rng(seed))
    for inference in ("mean_field", "exact"):
        for v, entity in enumerate(case.bundle.entities):
            found = BinaryPlanner(case.bundle, entity=entity, inference=inference).log_odds()
            assert found == pytest.approx(case.bundle.priors[v], abs=1e-12 if inference == "mean_field" else 1e-9)
        one = TopKPlanner(case.bundle, k=1, holds="one", inference=inference).posterior()
        np.testing.assert_allclose(one, softmax(case.bundle.priors), atol=1e-9)


def log_partition(model, given):
    """By the sum over every completion, for what `model` has of the values `given`."""
    domain = [
        [given[name]] if name in given else (np.flatnonzero(row) - 1).tolist()
        for name, row in zip(model.features, model.possible, strict=True)
    ]
    return logsumexp([model.energy(x) for x in product(*domain)])


@examples(15)
@given(SEEDS)
def test_exact_planners_agree_with_the_sum_over_every_completion(seed):
    rng = np.random.default_rng(seed)
    case = rated(rng, n=3, m=4)
    values = case.values(rng)
    seen = case.named(values, rng.permutation(4)[: rng.integers(0, 5)])
    several = []
    for v, entity in enumerate(case.bundle.entities):
        models = bundle_models(case.bundle, entity)
        kappa = [log_partition(model, {}) for model in models]
        given_ = [log_partition(model, seen) for model in models]
        several.append(given_[0] - given_[1] - (kappa[0] - kappa[1]) + case.bundle.priors[v])
    planner = TopKPlanner(case.bundle, k=1, inference="exact")
    rivals = TopKPlanner(case.bundle, k=1, inference="exact", holds="one")
    if seen:
        planner.observe_all(seen)
        rivals.observe_all(seen)
    np.testing.assert_allclose(logit(planner.posterior()), several, atol=1e-8)
    evidence = []
    for model, _ in hypotheses_of(case.bundle):
        told = sum(np.log(case.background[int(name[1:]), x + 1]) for name, x in seen.items() if name in model.features)
        evidence.append(log_partition(model, seen) - log_partition(model, {}) + model.prior - told)
    np.testing.assert_allclose(rivals.posterior(), softmax(evidence), atol=1e-8)


@examples(20)
@given(SEEDS)
def test_at_full_observation_exact_and_mean_field_differ_by_kappa_and_by_nothing_else(seed):
    rng = np.random.default_rng(seed)
    case = rated(rng)
    values = case.named(case.values(rng), range(5))
    for v, entity in enumerate(case.bundle.entities):
        found = []
        for inference in ("mean_field", "exact"):
            planner = BinaryPlanner(case.bundle, entity=entity, inference=inference)
            planner.observe_all(values)
            found.append(planner.log_odds())
        kappa = log_ratio(*bundle_models(case.bundle, entity))
        energy = case.bundle.energies([list(values.values())], "explicit")[0, v]
        assert found[0] == pytest.approx(energy, abs=1e-9)
        assert found[0] - found[1] == pytest.approx(kappa, abs=1e-9)


@examples(20)
@given(SEEDS)
def test_the_bracket_of_a_planner_is_the_readable_one(seed):
    rng = np.random.default_rng(seed)
    case = rated(rng)
    seen = case.named(case.values(rng), rng.permutation(5)[:2])
    planner = BinaryPlanner(case.bundle, entity="v0")
    planner.observe_all(seen)
    models = bundle_models(case.bundle, "v0")
    expected = duel_interval(*(Evidence.of(model, seen) for model in models))
    np.testing.assert_allclose(planner._state.intervals()[0], expected, atol=1e-9)


@pytest.mark.parametrize("size", [4, ENUMERATED + 2])
def test_the_bracket_of_features_that_exclude_each_other_holds_every_completion(size):
    rng = np.random.default_rng(0)
    bundle = rated(rng, n=2, m=size, group=size, coupled=False, speaks=1.0).bundle
    before = TopKPlanner(bundle, k=1)._state
    low, high = before.intervals().T
    reached = []
    for _ in range(100):
        state = TopKPlanner(bundle, k=1)._state
        seen = rng.permutation(size)[: rng.integers(0, size + 1)]
        for i, feature in enumerate(seen):  # of those that are seen the last is there, or none
            state.observe(int(feature), int(i == len(seen) - 1 and rng.random() < 0.5))
        state.lead()
        reached.append(state.leads)
    least, most = np.min(reached, axis=0), np.max(reached, axis=0)
    assert (low - 1e-9 <= least).all()
    assert (most <= high + 1e-9).all()
    if size <= ENUMERATED:  # every subset is tried
        np.testing.assert_allclose([low, high], [least, most], atol=1e-9)


def check_certificates(seed, **options):
    """Ask until certain; then no completion, and no part of one, exact or by mean-field, says otherwise."""
    rng = np.random.default_rng(seed)
    holds = HOLDS[seed % 3]
    case = rated(rng, n=int(rng.integers(2, 4)), m=int(rng.integers(2, 5)), holds=holds, coupled=bool(seed % 5))
    top, values = TopKPlanner(case.bundle, k=1, **options), case.values(rng)
    one = BinaryPlanner(case.bundle, entity="v0", **options)
    certain = 0
    for planner in (top, one):
        while not planner.certain() and (name := planner.next_feature()):
            planner.observe(name, int(values[int(name[1:])]))
        if not planner.certain():
            continue
        certain += 1
        for _ in range(3):
            rest = [j for j, name in enumerate(case.bundle.features) if name not in planner.observed]
            more = case.named(case.values(rng), rng.permutation(rest)[: rng.integers(0, len(rest) + 1)] if rest else [])
            for inference in ("mean_field",) if options else ("exact", "mean_field"):
                final = type(planner)(case.bundle, inference=inference, solver=TIGHT, **_question(planner), **options)
                if seen := planner.observed | more:
                    final.observe_all(seen)
                if planner is top:
                    assert final.top_k() == planner.top_k()
                else:
                    assert final.decision() == one.decision()
    return certain


def _question(planner):
    return {"k": 1} if isinstance(planner, TopKPlanner) else {"entity": planner.entity}


def test_certificates_are_never_wrong():
    assert sum(check_certificates(seed) for seed in range(40)) > 20


def test_certificates_are_never_wrong_where_repeated_findings_are_discounted():
    assert sum(check_certificates(seed, tau="effective") for seed in range(30)) > 15


@pytest.mark.slow
def test_certificates_are_never_wrong_on_two_thousand_bundles():
    assert sum(check_certificates(seed) for seed in range(40, 2040)) > 1000
    assert sum(check_certificates(seed, tau="effective") for seed in range(30, 100)) > 35


@pytest.fixture
def fevers(tmp_path):
    """Two entities; three colours of which a patient has at most one, seen with one look; and a cough."""
    return load_bundle(written(tmp_path / "fevers", FEVERS))


def odds_of(bundle, **values):
    planner = BinaryPlanner(bundle, entity="flu")
    planner.observe_all(values)
    return planner.log_odds()


def test_of_features_that_exclude_each_other_each_says_what_one_variable_says(fevers):
    assert odds_of(fevers, red=1) == pytest.approx(np.log(0.6 / 0.2))
    assert odds_of(fevers, red=0) == pytest.approx(np.log(0.4 / 0.8))
    assert odds_of(fevers, red=0, blue=0) == pytest.approx(np.log(0.2 / 0.5))
    assert odds_of(fevers, blue=1, red=0) == pytest.approx(np.log(0.2 / 0.3)), "the zero of red is not counted"
    assert odds_of(fevers, red=0, blue=0, green=0, cough=1) == pytest.approx(np.log(0.1 / 0.2) + np.log(0.9 / 0.3))


def test_once_one_of_them_is_there_the_others_are_known(fevers):
    planner = TopKPlanner(fevers, k=1)
    planner.observe("blue", 1)
    assert planner.suggest().features == ("cough",)
    with pytest.raises(PlannerError, match="group colour: found red and blue at 1; expected at most one"):
        planner.observe("red", 1)
    planner.observe("cough", 0)
    assert planner.stopped() == "every feature has been observed"


def test_what_comes_of_one_look_has_one_cost_and_the_gain_of_its_states(fevers):
    planner = BinaryPlanner(fevers, entity="flu")
    item = planner.suggest()
    assert {item.name: item.cost} == {"cough": 1.0}
    table = planner.explain().set_index("feature")
    classes = np.array([[0.6, 0.2, 0.1, 0.1], [0.2, 0.3, 0.3, 0.2]])
    mixed = classes.mean(axis=0)
    expected = (classes * np.log(classes / mixed)).sum() / 2
    assert table.loc[["red", "blue", "green"], "gain"].sum() == pytest.approx(expected)
    assert (table.loc[["red", "blue", "green"], "cost"] == 1.0).all()
    assert table.loc["red", "gain_per_cost"] == pytest.approx(expected)


@pytest.mark.parametrize("holds", HOLDS)
def test_certificates_hold_for_features_that_exclude_each_other(fevers, holds):
    colours = [{"red": int(i == 0), "blue": int(i == 1), "green": int(i == 2)} for i in range(4)]
    for first in ({}, {"cough": 1}, {"cough": 0}, {"red": 0}, {"red": 0, "cough": 1}):
        planner = TopKPlanner(fevers, k=1, holds=holds)
        if first:
            planner.observe_all(first)
        if not planner.certified():
            continue
        for colour, cough in product(colours, (0, 1)):
            values = colour | {"cough": cough} | first
            if sum(values[name] for name in colour) > 1:
                continue
            for keep in product((True, False), repeat=4):
                final = TopKPlanner(fevers, k=1, holds=holds)
                kept = {name: x for (name, x), stays in zip(values.items(), keep, strict=True) if stays} | first
                if kept:
                    final.observe_all(kept)
                assert final.top_k() == planner.top_k()


def test_none_has_a_posterior_where_at_most_one_holds_and_bounds_where_several_may(fevers):
    planner = TopKPlanner(fevers, k=1)
    planner.observe("cough", 0)
    weights = np.array([0.1 / 0.7, 0.3 / 0.7, 1.0])
    np.testing.assert_allclose(planner.posterior(), (weights / weights.sum())[:2])
    assert planner.none() == pytest.approx((weights[2] / weights.sum(),) * 2)
    assert planner.none_is_likelier()
    several = TopKPlanner(fevers, k=1, holds="several")
    several.observe("cough", 0)
    each = several.posterior()
    assert several.none() == (max(0.0, 1 - each.sum()), 1 - each.max())
    assert several.none_is_likelier() == (each < 0.5).all()
    assert TopKPlanner(fevers, k=1, holds="one").none() == (0.0, 0.0)


def test_of_a_bundle_of_directions_nothing_can_be_said_of_none(bundle_tiny):
    with pytest.raises(PlannerError, match="none of the entities: found a bundle of directions"):
        TopKPlanner(bundle_tiny, k=1).none()


def test_log_odds_that_are_believed_by_half_keep_their_order_and_the_prior(fevers):
    whole, half = BinaryPlanner(fevers, entity="flu"), BinaryPlanner(fevers, entity="flu", tau=0.5)
    for planner in (whole, half):
        planner.observe_all({"cough": 1, "red": 1})
    assert half.log_odds() == pytest.approx(whole.log_odds() / 2)
    assert half.decision() == whole.decision()


ALIKE = {
    "bundle.yaml": 'name: alike\nversion: "1"\n',
    "features.csv": "feature,kind\na,binary\nb,binary\nc,binary\n",
    "unary.csv": "entity,feature,potential,p_high_with,p_high_without\n"
    + "".join(f"flu,{name},,0.7,0.3\n" for name in "abc"),
    "pairwise.csv": "entity,feature_a,feature_b,potential,scope\n"
    + "".join(f"flu,{pair[0]},{pair[1]},0.5,shared\n" for pair in ("ab", "ac", "bc")),
    "priors.csv": "entity,log_odds\nflu,-1\n",
}
"""Three findings of one kind, which everybody has together or not at all."""


def test_findings_that_repeat_each_other_are_believed_by_how_many_they_are_worth(tmp_path):
    """Of n findings alike with correlation rho, n / (1 + (n - 1) rho) are worth counting; of one, one."""
    alike = load_bundle(written(tmp_path / "alike", ALIKE))
    planner, rho, told = BinaryPlanner(alike, entity="flu", tau="effective"), 0.5 * 0.7 * 0.3, np.log(0.7 / 0.3)
    assert planner.log_odds() == pytest.approx(-1)
    for n, name in enumerate("abc", start=1):
        planner.observe(name, 1)
        assert planner.log_odds() == pytest.approx(-1 + n * told / (1 + (n - 1) * rho))
    save_session(planner, tmp_path / "s.yaml")
    assert load_session(tmp_path / "s.yaml", alike).log_odds() == planner.log_odds()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"score": "linearity"}, "planner option score: found 'linearity'; expected two_elbo or wald"),
        ({"gain": "f_target"}, "planner option gain: found 'f_target'; expected cmi or wald_magnitude"),
        ({"tau": 0}, "planner option tau: found 0; expected a number above 0, at most 1, or effective"),
        ({"tau": "half"}, "planner option tau: found 'half'"),
        ({"tau": "effective"}, "planner option tau: found effective with exclusive groups"),
        ({"holds": "two"}, "planner option holds: found 'two'; expected several or one or one or none"),
        ({"layer0": "sound"}, "planner option layer0: found 'sound'; expected none where the bundle has probabilities"),
        ({"coupling": "differential"}, "planner option coupling: found differential on features that cannot be -1"),
        ({"coupling": "shared"}, "planner option coupling"),
    ],
)
def test_options_that_do_not_go_with_the_explicit_gauge_are_refused(fevers, options, expected):
    with pytest.raises(PlannerError) as caught:
        TopKPlanner(fevers, k=1, **options)
    assert expected in str(caught.value)


def test_options_of_the_explicit_gauge_need_a_bundle_that_says_how_often(bundle_tiny):
    for options in ({"holds": "one"}, {"tau": 0.5}):
        with pytest.raises(PlannerError, match="expected a bundle with probabilities"):
            TopKPlanner(bundle_tiny, k=1, **options)


def test_a_value_that_cannot_occur_is_refused_by_planner_and_session(fevers, tmp_path):
    planner = TopKPlanner(fevers, k=1)
    with pytest.raises(PlannerError, match="feature cough: found -1; expected 0 or 1"):
        planner.observe("cough", -1)
    planner.observe("cough", 1)
    save_session(planner, tmp_path / "s.yaml")
    text = (tmp_path / "s.yaml").read_text()
    (tmp_path / "s.yaml").write_text(text.replace("values:\n  - 1", "values:\n  - -1"))
    with pytest.raises(PlannerError, match="feature cough: found -1; expected 0 or 1"):
        load_session(tmp_path / "s.yaml", fevers)


def test_what_cannot_be_measured_moves_no_probability(fevers):
    planner = TopKPlanner(fevers, k=1)
    before = planner.posterior()
    planner.skip("cough")
    np.testing.assert_array_equal(planner.posterior(), before)
    assert "cough" not in planner.suggest().features


def test_a_session_is_taken_up_with_what_it_was_made_with(fevers, tmp_path):
    planner = TopKPlanner(fevers, k=1, holds="several", tau=0.7, inference="exact")
    planner.observe_all({"red": 0, "cough": 1})
    save_session(planner, tmp_path / "s.yaml")
    again = load_session(tmp_path / "s.yaml", fevers)
    assert (again.holds, again.settings) == ("several", planner.settings)
    np.testing.assert_array_equal(again.posterior(), planner.posterior())
    assert again.suggest() == planner.suggest()


def test_every_rule_asks_for_each_feature_once(fevers):
    for name in RULES:
        planner = TopKPlanner(fevers, k=1, allocation=name)
        asked = []
        while item := planner.suggest():
            asked += item.features
            planner.observe_all(dict.fromkeys(item.features, 0))
        assert sorted(asked) == sorted(fevers.features), name
