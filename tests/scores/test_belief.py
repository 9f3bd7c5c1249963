"""The belief about all scores: by enumeration of all completions of tiny models, and by hand."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from bundles import bundle_of
from scipy.special import ndtr

from afa.errors import PlannerError
from afa.scores.belief import INTENSITY, RAREST, Background, Belief, ScoreTable, variances_of

ROWS = np.array(list(product((-1, 0, 1), repeat=4)))


def random_problem(seed, n=4, m=4):
    random = np.random.default_rng(seed)
    bundle = bundle_of(random.normal(size=(n, m)), random.normal(size=(n, m, m)), random.normal(size=n))
    return bundle, Background(random.dirichlet(np.ones(3), m), "patients", "5 patients", intensity=0)


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
    background = Background(np.array([[0, 0.5, 0.5], [0.25, 0.5, 0.25]]), "patients", "4 patients", intensity=0)
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
    background = Background(random.dirichlet(np.full(3, 3.0), 9), "patients", "patients", intensity=0)
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
    background = Background(random.dirichlet(np.full(3, 2.0), 24), "patients", "patients", intensity=0)
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


def shared_problem(seed, couplings=True):
    """Four entities on four features, and a background of patients whose intensities differ."""
    random = np.random.default_rng(seed)
    psi = random.normal(size=(4, 4, 4)) * couplings
    bundle = bundle_of(random.normal(size=(4, 4)), psi, random.normal(size=4))
    return bundle, Background(random.dirichlet(np.ones(3), 4), "patients", "patients", intensity=0.8)


def sigma_of(background):
    """Covariance of the features: variances on the diagonal, and the variance of the intensity times both loadings."""
    p, variances = background.probabilities, variances_of(background.probabilities)
    theta = 0.5 * np.log((p[:, 2] + RAREST) / (p[:, 0] + RAREST))
    whole = np.diag(variances) + background.intensity**2 * np.outer(variances * theta, variances * theta)
    scale = np.sqrt(variances / np.diag(whole))
    return whole * np.outer(scale, scale)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("observed", OBSERVED)
def test_features_that_share_an_intensity_are_conditioned_as_in_a_normal_distribution(seed, observed):
    bundle, background = shared_problem(seed)
    belief, sigma = belief_of(bundle, background, observed), sigma_of(background)
    here, free = list(observed), [j for j in range(4) if j not in observed]
    mean = background.probabilities @ (-1, 0, 1)
    by = sigma[np.ix_(free, here)] @ np.linalg.inv(sigma[np.ix_(here, here)])
    middle = np.array([observed.get(j, 0.0) for j in range(4)], dtype=float)
    middle[free] = mean[free] + by @ (middle[here] - mean[here])
    left = np.zeros((4, 4))
    left[np.ix_(free, free)] = sigma[np.ix_(free, free)] - by @ sigma[np.ix_(here, free)]
    np.testing.assert_allclose(belief.middle, middle, atol=1e-12)
    np.testing.assert_allclose(belief.spread, np.diag(left), atol=1e-12)
    pairs = np.outer(middle, middle)
    unary, psi = bundle.unary, [bundle.mrf(name).couplings.toarray() for name in bundle.entities]
    expected = bundle.log_odds + unary @ middle + [0.5 * (part * pairs).sum() for part in psi]
    np.testing.assert_allclose(belief.mean, expected, atol=1e-12)
    slope = unary + np.array([part @ middle for part in psi])
    covariance = slope @ left @ slope.T
    for v, w in np.ndindex(4, 4):
        covariance[v, w] += 0.5 * (psi[v] * psi[w] * np.outer(np.diag(left), np.diag(left))).sum()
    np.testing.assert_allclose(belief.covariance(), covariance, atol=1e-12)
    np.testing.assert_allclose(belief.variances(), np.diag(covariance), atol=1e-12)


def test_the_loading_is_the_change_of_the_mean_with_the_intensity():
    background = Background(np.array([[0.1, 0.3, 0.6], [0.2, 0.8, 0.0], [0.25, 0.5, 0.25]]), "patients", "3")
    p, step = background.probabilities, 1e-6
    theta = 0.5 * np.log((p[:, 2] + RAREST) / (p[:, 0] + RAREST))
    means = []
    for f in (-step, step):
        tilted = p * np.exp(f * theta[:, None] * np.array([-1, 0, 1]))
        means.append(tilted @ (-1, 0, 1) / tilted.sum(axis=1))
    np.testing.assert_allclose(background.loadings, (means[1] - means[0]) / (2 * step), atol=1e-8)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_where_features_share_an_intensity_the_value_of_a_set_is_the_fall_of_the_variances(k):
    bundle, background = shared_problem(5, couplings=False)
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


def test_a_patient_like_a_milder_population_is_expected_to_be_milder_elsewhere():
    bundle, _ = random_problem(0)
    background = Background(np.tile([0.1, 0.2, 0.7], (4, 1)), "patients", "patients")
    belief = belief_of(bundle, background, {0: 0})
    assert (belief.middle[1:] < 0.6).all()
    assert (belief_of(bundle, Background.uniform(bundle), {0: 0}).middle[1:] == 0).all()


def test_the_intensity_is_kept_with_the_background_and_no_patient_counts_twice():
    bundle, _ = random_problem(0)
    values = np.random.default_rng(1).integers(-1, 2, (40, 4)).astype(float)
    values[3, 2] = np.nan
    one = Background.of_patients(bundle, values, without=7)
    other = Background.of_patients(bundle, np.delete(values, 7, axis=0))
    np.testing.assert_array_equal(one.probabilities, other.probabilities)
    assert (one.words, one.intensity) == ("39 patients", INTENSITY)
    alike = replace(Background.uniform(bundle), intensity=0.0)
    for background in (one, replace(one, intensity=0.25), Background.uniform(bundle), alike):
        again = Background.given(bundle, json.loads(json.dumps(background.plain())))
        np.testing.assert_array_equal(again.probabilities, background.probabilities)
        assert (again.words, again.intensity) == (background.words, background.intensity)
    for wrong in (-0.1, np.inf, np.nan):
        with pytest.raises(PlannerError, match="intensity of a background"):
            replace(one, intensity=wrong)


def test_a_value_that_no_patient_had_counts_where_features_share_an_intensity():
    bundle, _ = shared_problem(0)
    shared = np.random.default_rng(0).integers(-1, 2, 60)
    background = Background.of_patients(bundle, np.stack([shared, shared, shared, np.ones(60)], axis=1))
    belief = belief_of(bundle, background, {3: -1, 0: 1, 1: 0, 2: 1})
    np.testing.assert_allclose(belief.mean, bundle.energies(np.array([[1, 0, 1, -1]]))[0], atol=1e-12)
