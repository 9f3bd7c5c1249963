"""The belief about all scores: by enumeration of all completions of tiny models, and by hand."""

import json
from itertools import product

import numpy as np
import pytest
from bundles import bundle_of
from scipy.special import ndtr
from scipy.stats import multivariate_normal

from afa.errors import PlannerError
from afa.scores.belief import (
    INTENSITY,
    MOST_FEATURES,
    RAREST,
    SHRINKAGE,
    Background,
    Belief,
    ScoreTable,
    _held_out_log_likelihoods,
    intensity_covariance,
    variances_of,
)

ROWS = np.array(list(product((-1, 0, 1), repeat=4)))


def random_problem(seed, n=4, m=4):
    random = np.random.default_rng(seed)
    bundle = bundle_of(random.normal(size=(n, m)), random.normal(size=(n, m, m)), random.normal(size=n))
    return bundle, Background(random.dirichlet(np.ones(3), m), "patients", "5 patients")


def belief_of(bundle, background, observed=None):
    belief = Belief(ScoreTable.of_bundle(bundle), background)
    for feature, value in (observed or {}).items():
        belief.observe(feature, value)
    return belief


def completions(background, observed):
    """All rows that agree with what is observed, and their probabilities under the background."""
    rows = ROWS[[all(row[j] == value for j, value in observed.items()) for row in ROWS]]
    free = [j for j in range(4) if j not in observed]
    return rows, np.prod(background.probabilities[free, rows[:, free] + 1], axis=1)


OBSERVED = [{}, {2: 1}, {3: -1, 0: 0}, {1: 1, 0: -1, 2: 0}, {0: 1, 1: 0, 2: -1, 3: 1}]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("observed", OBSERVED)
def test_mean_and_covariance_are_those_over_all_completions(seed, observed):
    bundle, background = random_problem(seed)
    belief = belief_of(bundle, background, observed)
    rows, p = completions(background, observed)
    scores = bundle.energies(rows)
    mean = p @ scores
    np.testing.assert_allclose(belief.mean, mean, atol=1e-12)
    covariance = (scores - mean).T @ (p[:, None] * (scores - mean))
    np.testing.assert_allclose(belief.covariance(), covariance, atol=1e-12)
    np.testing.assert_allclose(belief.variances(), np.diag(covariance), atol=1e-12)
    np.testing.assert_allclose(belief.covariance(np.array([2, 0])), covariance[:, [2, 0]], atol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_value_of_a_set_is_the_expected_fall_of_the_variances_across_the_edge(k):
    bundle, background = random_problem(4)
    observed, together = {1: 1}, [0, 2, 3]
    belief = belief_of(bundle, background, observed)
    of = belief.differences(k)
    rows, p = completions(background, observed)
    scores = bundle.energies(rows)
    gaps = scores[:, of.inside][:, :, None] - scores[:, of.outside][:, None, :]
    np.testing.assert_allclose(of.mean, np.tensordot(p, gaps, 1), atol=1e-12)
    np.testing.assert_allclose(of.variance, np.tensordot(p, (gaps - of.mean) ** 2, 1), atol=1e-12)

    def fall(features):
        """Variance of the conditional mean of each difference, given the features, under the weights."""
        total = 0.0
        for values in product((-1, 0, 1), repeat=len(features)):
            here = (rows[:, features] == values).all(axis=1)
            mean = np.tensordot(p[here], gaps[here], 1) / p[here].sum()
            total += p[here].sum() * (of.weights() * (mean - of.mean) ** 2).sum()
        return total

    np.testing.assert_allclose(belief.frontier(k), [fall([j]) if j in together else 0.0 for j in range(4)], atol=1e-12)
    for features in ([0, 2], [3, 0], together):
        assert belief.value_of(features, k) == pytest.approx(fall(features), rel=1e-9)
    assert belief.together(3, k)[0] == int(belief.frontier(k).argmax())
    assert sorted(belief.together(9, k)) == together


def test_features_to_measure_together_are_chosen_for_what_their_pair_tells():
    # Alone x0 is worth most; x1 and x2 are worth the same, but x2 is coupled with x0.
    couplings = np.zeros((2, 3, 3))
    couplings[0, 0, 2] = 1.0
    bundle = bundle_of([[2.0, 1.0, 1.0], [0.0, 0.0, 0.0]], couplings)
    belief = belief_of(bundle, Background.uniform(bundle))
    np.testing.assert_allclose(belief.frontier(1), np.array([4.0, 1.0, 1.0]) * 2 / 3)
    assert belief.together(2, 1) == [0, 2]
    assert belief.value_of([0, 2], 1) == pytest.approx(4 * 2 / 3 + 2 / 3 + 4 / 9)
    assert belief.together(2, 1, np.array([False, True, True])) == [1, 2]


def test_the_worked_example_of_the_page():
    # docs/frontier.md: two features, b(x0) = (0, 1/2, 1/2), b(x1) = (1/4, 1/2, 1/4).
    couplings = np.zeros((2, 2, 2))
    couplings[0, 0, 1] = 1.0
    bundle = bundle_of([[1.0, 0.0], [0.0, 1.0]], couplings)
    background = Background(np.array([[0, 0.5, 0.5], [0.25, 0.5, 0.25]]), "patients", "4 patients")
    belief = belief_of(bundle, background)
    np.testing.assert_allclose(belief.mean, [0.5, 0.0])
    np.testing.assert_allclose(belief.covariance(), [[0.25 + 0.125 + 0.125, 0.25], [0.25, 0.5]])
    of = belief.differences(1)
    assert of.mean.tolist() == [[0.5]]
    np.testing.assert_allclose(of.variance, [[0.5]])
    np.testing.assert_allclose(belief.frontier(1), [0.25, 0.125])
    assert belief.top_probability(1) == pytest.approx(ndtr((0.5 + 0.5) / np.sqrt(0.5)))
    belief.observe(0, 0)
    np.testing.assert_allclose(belief.mean, [0.0, 0.0])
    np.testing.assert_allclose(belief.frontier(1), [0.0, 0.5])


def test_the_normal_probability_of_the_top_is_near_the_exact_one_with_many_features():
    random = np.random.default_rng(7)
    bundle = bundle_of(random.normal(size=(5, 9)), 0.3 * random.normal(size=(5, 9, 9)))
    background = Background(random.dirichlet(np.full(3, 3.0), 9), "patients", "patients")
    rows = np.array(list(product((-1, 0, 1), repeat=9)))
    p = np.prod(background.probabilities[np.arange(9), rows + 1], axis=1)
    scores = bundle.energies(rows)
    belief = belief_of(bundle, background)
    for k in (1, 2, 3, 4):
        of = belief.differences(k)
        exact = p @ (scores[:, of.inside].min(axis=1) >= scores[:, of.outside].max(axis=1))
        assert belief.top_probability(k) == pytest.approx(exact, abs=0.03)


def test_at_full_observation_nothing_is_open_and_the_top_is_certain():
    bundle, background = random_problem(2)
    belief = belief_of(bundle, background, OBSERVED[-1])
    assert belief.top_probability(2) == 1.0
    assert belief.frontier(2).tolist() == [0.0] * 4
    assert belief.together(2, 2) == []
    assert belief.order().tolist() == np.argsort(-bundle.energies(np.array([[1, 0, -1, 1]]))[0]).tolist()


def test_a_value_that_no_patient_had_moves_the_scores_as_any_other():
    bundle, _ = random_problem(3)
    background = Background.of_patients(bundle, np.array([[0, 1, 1, 0], [0, 1, 0, 0]]))
    belief = belief_of(bundle, background, {0: 1})
    other = belief_of(bundle, Background.uniform(bundle), {0: 1})
    for j, value in ((1, -1), (2, 1), (3, 0)):
        belief.observe(j, value)
        other.observe(j, value)
    np.testing.assert_allclose(belief.mean, other.mean, atol=1e-12)


def test_equal_means_go_by_place_in_the_bundle():
    bundle = bundle_of([[0.1, 0.2], [0.0, 0.3], [0.3, 0.0]], np.zeros((3, 2, 2)), entities=["c", "b", "a"])
    belief = belief_of(bundle, Background.uniform(bundle), {0: 1, 1: 1})
    assert belief.order().tolist() == [0, 1, 2]


def test_a_copy_is_a_patient_of_its_own():
    bundle, background = random_problem(5)
    belief = belief_of(bundle, background)
    before = belief.mean.copy(), belief.frontier(1)
    belief.copy().observe(1, 1)
    np.testing.assert_array_equal(belief.mean, before[0])
    np.testing.assert_array_equal(belief.frontier(1), before[1])


def exclusive_table():
    """Two entities on a free binary feature x0 and an exclusive group x1, x2, x3; x0 has a bent term."""
    terms = np.array([[0, 1, -1], [0, 0, 2], [0, 0, -1], [0, 0, 0.5], [0, 0, 1], [0, -1, 1.5]], dtype=float)
    terms[0] = [2, 0.5, -1]
    ends = np.empty((2, 0), dtype=np.int64)
    return ScoreTable(
        ("a", "b"), tuple("wxyz"), np.array([0.1, 0.0]), np.array([0, 0, 0, 0, 1, 1]), np.array([0, 1, 2, 3, 0, 2]),
        terms, np.empty(0, dtype=np.int64), ends, np.empty(0), (np.array([1, 2, 3]),),
    )  # fmt: skip


@pytest.mark.parametrize("observed", [{}, {2: 0}, {2: 1}, {0: -1, 1: 0}, {3: 0, 1: 0}])
def test_members_of_an_exclusive_group_are_believed_together(observed):
    table = exclusive_table()
    p = np.array([[0.3, 0.2, 0.5], [0, 0.8, 0.2], [0, 0.6, 0.4], [0, 0.9, 0.1]])
    rows, weight = [], []
    for w, member in product((-1, 0, 1), (None, 1, 2, 3)):
        row = [w, *(int(member == j) for j in (1, 2, 3))]
        if all(row[j] == value for j, value in observed.items()):
            rows.append(row)
            weight.append(p[0, w + 1] * (p[member, 2] if member else 0.3))
    scores, weight = table.scores(np.array(rows)), np.array(weight) / np.sum(weight)
    belief = Belief(table, Background(p, "patients", "patients"))
    for j, value in observed.items():
        belief.observe(j, value)
    mean = weight @ scores
    np.testing.assert_allclose(belief.mean, mean, atol=1e-12)
    covariance = (scores - mean).T @ (weight[:, None] * (scores - mean))
    np.testing.assert_allclose(belief.covariance(), covariance, atol=1e-12)
    np.testing.assert_allclose(belief.variances(), np.diag(covariance), atol=1e-12)
    of, rows = belief.differences(1), np.array(rows)
    gap = scores[:, of.inside[0]] - scores[:, of.outside[0]]
    for j in np.flatnonzero(~belief.observed):
        parts = [rows[:, j] == value for value in np.unique(rows[:, j])]
        fall = sum(
            weight[part].sum() * (np.average(gap[part], weights=weight[part]) - weight @ gap) ** 2 for part in parts
        )
        assert belief.frontier(1)[j] == pytest.approx(fall * of.weights()[0, 0], abs=1e-12)


def test_the_background_of_patients_counts_everybody_but_the_patient_himself():
    bundle, _ = random_problem(0)
    values = np.array([[1, 0, np.nan, -1], [1, 1, np.nan, 0], [0, 1, np.nan, 0], [-1, -1, 1, 0]])
    background = Background.of_patients(bundle, values, without=3, name="other patients")
    np.testing.assert_allclose(background.probabilities[0], [0, 1 / 3, 2 / 3])
    np.testing.assert_allclose(background.probabilities[2], [1 / 3, 1 / 3, 1 / 3])
    assert (background.kind, background.words) == ("patients", "3 other patients")


def test_few_patients_are_mixed_with_what_the_bundle_states():
    bundle, _ = random_problem(0)
    background = Background.mixture(bundle, np.array([[1, 0, 0, 0], [1, 0, 0, 0]]), prior=4)
    np.testing.assert_allclose(background.probabilities[0], [4 / 18, 4 / 18, (2 + 4 / 3) / 6])
    assert background.words == "2 patients, and as 4 patients no background, every value alike"


@pytest.mark.parametrize("values", [np.zeros((2, 3)), np.full((2, 4), 2.0), np.zeros(4)])
def test_patients_that_do_not_fit_the_bundle_are_refused(values):
    bundle, _ = random_problem(0)
    with pytest.raises(PlannerError, match=r"patients of a background.*encode them first"):
        Background.of_patients(bundle, values)


def test_a_bundle_without_probabilities_has_no_elicited_background():
    bundle, _ = random_problem(0)
    with pytest.raises(PlannerError, match=r"no probabilities; expected a background"):
        Background.elicited(bundle)


def test_a_background_of_another_bundle_is_refused():
    bundle, background = random_problem(0)
    with pytest.raises(PlannerError, match="3 features"):
        Belief(ScoreTable.of_bundle(bundle), Background(background.probabilities[:3], "patients", "x"))
    with pytest.raises(PlannerError, match="sum to 1"):
        Background(np.full((4, 3), 0.5), "patients", "x")


@pytest.mark.parametrize("whole", [False, True])
def test_patients_drawn_from_the_background_have_the_top_as_often_as_is_said(whole):
    random = np.random.default_rng(11)
    unary, couplings = random.normal(size=(6, 24)), 0.3 * random.normal(size=(6, 24, 24))
    if whole:
        unary, couplings = np.round(unary), np.round(couplings * 2)
    bundle = bundle_of(unary, couplings)
    background = Background(random.dirichlet(np.full(3, 2.0), 24), "patients", "patients")
    table = ScoreTable.of_bundle(bundle)
    drawn = random.random((300, 24, 1)) > background.probabilities.cumsum(axis=1)[:, :2]
    values = drawn.sum(axis=2) - 1
    scores, said, right = table.scores(values), [], []
    for row, own in zip(values, scores, strict=True):
        belief = Belief(table, background)
        for _ in range(8):
            feature = int(belief.frontier(2).argmax())
            belief.observe(feature, int(row[feature]))
        said.append(belief.top_probability(2))
        top = belief.order()[:2]
        right.append(own[top].min() >= np.delete(own, top).max() - table.tie)
    assert np.mean(said) == pytest.approx(np.mean(right), abs=0.06)  # 2 standard errors of 300 patients


def dependent_problem(seed, couplings=True):
    random = np.random.default_rng(seed)
    shared = random.integers(-1, 2, 60)
    values = np.where(random.random((60, 4)) < 0.6, shared[:, None], random.integers(-1, 2, (60, 4)))
    psi = random.normal(size=(4, 4, 4)) * couplings
    bundle = bundle_of(random.normal(size=(4, 4)), psi, random.normal(size=4))
    return bundle, Background.of_patients(bundle, values)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("observed", OBSERVED)
def test_features_that_go_together_are_conditioned_as_in_a_normal_distribution(seed, observed):
    bundle, background = dependent_problem(seed)
    belief, sigma = belief_of(bundle, background, observed), background.covariance
    here, free = list(observed), [j for j in range(4) if j not in observed]
    mean = background.probabilities @ (-1, 0, 1)
    by = sigma[np.ix_(free, here)] @ np.linalg.inv(sigma[np.ix_(here, here)])
    middle = np.array([observed.get(j, 0.0) for j in range(4)], dtype=float)
    middle[free] = mean[free] + by @ (middle[here] - mean[here])
    left = np.zeros((4, 4))
    left[np.ix_(free, free)] = sigma[np.ix_(free, free)] - by @ sigma[np.ix_(here, free)]
    np.testing.assert_allclose(belief.middle, middle, atol=1e-12)
    np.testing.assert_allclose(belief.joint, left, atol=1e-12)
    pairs = np.outer(middle, middle)
    unary, psi = bundle.unary, [bundle.mrf(name).couplings.toarray() for name in bundle.entities]
    expected = bundle.log_odds + unary @ middle + [0.5 * (part * pairs).sum() for part in psi]
    np.testing.assert_allclose(belief.mean, expected, atol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_where_features_go_together_the_value_of_a_set_is_the_fall_of_the_variances(k):
    bundle, background = dependent_problem(5, couplings=False)
    belief = belief_of(bundle, background, {1: 1})
    of = belief.differences(k)

    def fall(features):
        after = belief.copy()
        for feature in features:
            after.observe(feature, 0)
        covariance, (a, b) = after.covariance(), np.meshgrid(of.inside, of.outside, indexing="ij")
        left = covariance[a, a] + covariance[b, b] - 2 * covariance[a, b]
        return (of.weights() * (of.variance - left)).sum()

    np.testing.assert_allclose(belief.frontier(k), [0.0 if j == 1 else fall([j]) for j in range(4)], atol=1e-12)
    for features in ([0, 2], [3, 0], [0, 2, 3]):
        assert belief.value_of(features, k) == pytest.approx(fall(features), rel=1e-9)
    first = int(belief.frontier(k).argmax())
    second = max((j for j in range(4) if j not in (1, first)), key=lambda j: fall([first, j]))
    assert belief.together(2, k) == [first, second]


def test_a_covariance_without_any_is_independence():
    bundle, background = random_problem(3)
    apart = Background(background.probabilities, "patients", "5", np.diag(variances_of(background.probabilities)))
    for observed in OBSERVED:
        one, other = belief_of(bundle, background, observed), belief_of(bundle, apart, observed)
        for name in ("mean", "variances", "covariance", "slope"):
            each = [getattr(belief, name) for belief in (one, other)]
            np.testing.assert_allclose(*(part() if callable(part) else part for part in each), atol=1e-12)
        np.testing.assert_allclose(one.frontier(2), other.frontier(2), atol=1e-12)


def test_the_shrinkage_of_correlations_is_chosen_by_the_likelihood_of_patients_left_out():
    random = np.random.default_rng(0)
    z, left_out = random.normal(size=(12, 5)) @ random.normal(size=(5, 5)), random.normal(size=(4, 5))
    found = _held_out_log_likelihoods(z, left_out)
    for share, value in zip(SHRINKAGE, found, strict=True):
        whole = multivariate_normal(np.zeros(5), (1 - share) * z.T @ z / len(z) + share * np.eye(5))
        assert value == pytest.approx(whole.logpdf(left_out).sum() + 0.5 * left_out.size * np.log(2 * np.pi))


def test_correlations_of_patients_are_shrunk_towards_those_of_a_shared_intensity():
    random = np.random.default_rng(0)
    bundle, _ = random_problem(0)
    apart = Background.of_patients(bundle, random.integers(-1, 2, (400, 4)))
    assert np.abs(np.triu(apart.covariance, 1)).max() < 0.1
    first = random.integers(-1, 2, 200)
    values = np.stack([first, first, -first, random.integers(-1, 2, 200)], axis=1)
    alike = Background.of_patients(bundle, values)
    correlation = alike.covariance / np.sqrt(np.outer(np.diag(alike.covariance), np.diag(alike.covariance)))
    np.testing.assert_allclose(correlation[0, 1:3], [0.9, -0.9], atol=0.002)
    target = intensity_covariance(alike.probabilities)
    z = values - alike.probabilities @ (-1, 0, 1)
    off = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose(alike.covariance[off], (0.9 * z.T @ z / 200 + 0.1 * target)[off], atol=1e-6)


def test_the_intensity_changes_every_mean_as_it_tilts_the_probabilities():
    p, step = np.array([[0.1, 0.3, 0.6], [0.2, 0.8, 0.0], [0.25, 0.5, 0.25]]), 1e-6
    theta = 0.5 * np.log((p[:, 2] + RAREST) / (p[:, 0] + RAREST))
    means = []
    for f in (-step, step):
        tilted = p * np.exp(f * theta[:, None] * np.array([-1, 0, 1]))
        means.append(tilted @ (-1, 0, 1) / tilted.sum(axis=1))
    loading, spread = (means[1] - means[0]) / (2 * step), variances_of(p)
    whole = np.diag(spread) + INTENSITY**2 * np.outer(loading, loading)
    scale = np.sqrt(spread / np.diag(whole))
    np.testing.assert_allclose(intensity_covariance(p), whole * np.outer(scale, scale), atol=1e-6)
    assert intensity_covariance(np.full((MOST_FEATURES + 1, 3), 1 / 3)) is None


def test_a_mild_value_lowers_what_is_expected_of_other_features():
    bundle, _ = random_problem(0)
    p = np.tile([0.1, 0.2, 0.7], (4, 1))
    belief = belief_of(bundle, Background(p, "mixture", "patients", intensity_covariance(p)), {0: 0})
    assert (belief.middle[1:] < 0.6).all()
    assert (belief_of(bundle, Background.uniform(bundle), {0: 0}).middle[1:] == 0).all()


def test_a_covariance_counts_nobody_twice_and_not_the_patient_himself():
    bundle, _ = random_problem(0)
    values = np.random.default_rng(1).integers(-1, 2, (40, 4)).astype(float)
    values[:, 1] = values[:, 0]
    values[3, 2] = np.nan
    one = Background.of_patients(bundle, values, without=7)
    other = Background.of_patients(bundle, np.delete(values, 7, axis=0))
    np.testing.assert_array_equal(one.covariance, other.covariance)
    assert one.words == "39 patients, and how their features go together"
    again = Background.given(bundle, json.loads(json.dumps(one.plain())))
    np.testing.assert_array_equal(again.covariance, one.covariance)
    assert (again.words, one.independent().words) == (one.words, "39 patients")
    for few in (Background.of_patients(bundle, values[:9]), Background.of_patients(bundle, values, dependence=False)):
        np.testing.assert_array_equal(few.covariance, intensity_covariance(few.probabilities))
        assert few.words in ("9 patients", "40 patients")
    with pytest.raises(PlannerError, match="its diagonal the variances"):
        Background(one.probabilities, "patients", "39", 2 * one.covariance)


def test_a_value_that_no_patient_had_counts_where_features_go_together():
    bundle, _ = dependent_problem(0)
    shared = np.random.default_rng(0).integers(-1, 2, 60)
    background = Background.of_patients(bundle, np.stack([shared, shared, shared, np.ones(60)], axis=1))
    assert background.covariance is not None
    belief = belief_of(bundle, background, {3: -1, 0: 1, 1: 0, 2: 1})
    np.testing.assert_allclose(belief.mean, bundle.energies(np.array([[1, 0, 1, -1]]))[0], atol=1e-12)


def test_a_covariance_with_a_row_of_another_length_is_refused():
    bundle, background = dependent_problem(0)
    plain = background.plain()
    plain["covariance"][2] = "0.1 0.2"
    with pytest.raises(PlannerError, match="its diagonal the variances"):
        Background.given(bundle, plain)


def test_a_background_is_saved_by_its_kind_alone_only_if_the_bundle_gives_all_of_it():
    p = np.full((4, 3), 1 / 3)
    assert Background(p, "elicited", "stated", intensity_covariance(p)).plain() == "elicited"
    assert Background(p, "elicited", "stated").plain()["probabilities"] == p.tolist()
    assert Background(p, "uniform", "none").plain() == "uniform"


def test_correlations_of_rare_values_among_many_patients_can_be_estimated():
    random = np.random.default_rng(0)
    bundle = bundle_of(random.normal(size=(3, 40)), np.zeros((3, 40, 40)), np.zeros(3))
    values = np.zeros((30_000, 40))
    values[random.integers(0, 30_000, 40), np.arange(40)] = 1
    background = Background.of_patients(bundle, values)
    assert np.linalg.eigvalsh(background.covariance).min() >= -1e-6
