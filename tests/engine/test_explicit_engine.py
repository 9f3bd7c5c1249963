"""Models of probabilities in the engine: what it reads on the way is what the readable functions say, also of gaps."""

from itertools import combinations

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rated import rated

from afa.engine.follow import choose, follow
from afa.engine.layout import Models
from afa.engine.run import CALLS, CERTAIN, CHOICE, DUELS, ENTITIES, LARGEST, MISSING, MOMENTS, SIGNS, SOLVES
from afa.errors import BundleError
from afa.inference.meanfield import Solver, mean_field
from afa.model.bundle.rates import explicit_models, hypotheses_of
from afa.model.mrf import Evidence, PairwiseMRF
from afa.scores.bracket import duel_interval
from afa.scores.gain import cmi, wald_magnitude
from afa.scores.preference import duel_variance, gaussian_sign, linearity, sign_votes, wald

TIGHT = Solver(tolerance=1e-13, max_iterations=4000)
READ = CALLS | CERTAIN | CHOICE | DUELS | ENTITIES | LARGEST | MOMENTS | SIGNS
CLOSE = {"abs": 1e-9, "rel": 1e-9}


@st.composite
def cases(draw, couplings=True):
    """Two class models on two to five features of two or three values, some silent, and a few patients with gaps."""
    n, m = draw(st.integers(1, 4)), draw(st.integers(0, 2))
    share = st.floats(0.02, 1)
    kinds = [draw(st.sampled_from([(1, 1, 1), (0, 1, 1), (1, 1, 0)])) for _ in range(n + m)]
    table = np.array([[[draw(share) * part for part in kind] for _ in range(3)] for kind in kinds])
    table /= table.sum(axis=2, keepdims=True)
    weight = st.sampled_from([-1.0, -0.4, 0.0, 0.3, 0.8]) if couplings else st.just(0.0)
    shared, condition = np.zeros((n, n)), np.zeros((n, n))
    for j in range(n):
        for k in range(j):
            shared[j, k] = shared[k, j] = draw(weight)
            condition[j, k] = condition[k, j] = draw(weight)
    at = np.sort(draw(st.permutations(range(n + m)))[:n])
    names = tuple(f"f{j}" for j in range(n + m))
    pair = explicit_models(
        table[at, 0],
        table[at, 1],
        shared,
        condition,
        prior=draw(st.sampled_from([0.0, -1.5, 0.7])),
        features=tuple(names[j] for j in at),
    )
    models = Models("drawn", ("with", "without"), names, pair, (at, at), table[:, 2])
    value = [st.sampled_from([MISSING, *(np.flatnonzero(row[0] > 0) - 1).tolist()]) for row in table]
    values = np.array([[draw(one) for one in value] for _ in range(3)], dtype=np.int8)
    return models, values


def seen_of(models, row, order):
    """What has been observed of a patient, in order, in the models' own places."""
    place = {int(j): i for i, j in enumerate(models.at[0])}
    return [(place[j], int(row[j])) for j in order if j in place and row[j] != MISSING]


def states_of(models, seen):
    states = [Evidence.of(model) for model in models.models]
    for feature, value in seen:
        states = [state.observe(feature, value) for state in states]
    return states


@given(cases(), st.data())
@examples(30)
def test_along_given_orders_the_engine_reads_what_the_readable_functions_say(case, data):
    models, values = case
    orders = np.array([data.draw(st.permutations(range(values.shape[1]))) for _ in values])
    found = follow(models, values, orders, READ, gain="cmi", k=1, solver=TIGHT, threads=1)
    for i, order in enumerate(orders):
        for t in range(len(order) + 1):
            states = states_of(models, seen_of(models, values[i], order[:t]))
            solved = [
                mean_field(model, state, solver=TIGHT) for model, state in zip(models.models, states, strict=True)
            ]
            marginals = [solution.marginals for solution in solved]
            lead = wald(states)[0, 1]
            odds = solved[0].elbo - solved[1].elbo
            assert found.constant[i, t, 0] - found.constant[i, t, 1] == pytest.approx(lead, **CLOSE)
            assert found.elbo[i, t, 0] - found.elbo[i, t, 1] == pytest.approx(odds, **CLOSE)
            mean, variance = linearity(states, marginals)[0, 1], duel_variance(*states, *marginals)
            assert found.mean[i, t, 0] == pytest.approx(mean, **CLOSE)
            assert found.stack_a[i, t, 0] == pytest.approx(gaussian_sign(mean, variance), abs=1e-6)
            below, _, of_engine, _, _, above = found.sums[i, t, 0]
            assert of_engine == pytest.approx(variance, **CLOSE)
            low, high = duel_interval(*states)
            assert (lead - below, lead + above) == pytest.approx((low, high), **CLOSE)
            call = 1 if low > 1e-9 else -1 if high < -1e-9 else 0
            if min(abs(low), abs(high)) > 1e-9:
                assert found.calls[i, t, 0, 0] == found.calls[i, t, 0, 1] == call
                assert found.resolved[i, t, 0] == (call != 0)
            gap = [row == MISSING for row in values[i, models.at[0]]]
            gains = np.where(gap, 0.0, cmi(odds, *marginals, observed=states[0].observed))
            expected = 0.0 if found.resolved[i, t, 0] else gains.max(initial=0.0)
            assert found.gain[i, t] == pytest.approx(expected, **CLOSE)
            if t < len(order) and order[t] in models.at[0]:
                at = int(np.searchsorted(models.at[0], order[t]))
                expected = 0.0 if found.resolved[i, t, 0] else gains[at]
                assert found.chosen_gain[i, t] == pytest.approx(expected, **CLOSE)


@pytest.mark.parametrize("seed", range(12))
def test_an_entity_that_is_silent_of_a_feature_has_the_background_there(seed):
    rng = np.random.default_rng(400 + seed)
    found = rated(rng, n=3, m=4, speaks=0.5, holds="one", coupled=bool(seed % 2))
    bundle, values = found.bundle, np.array([found.values(rng) for _ in range(2)], dtype=np.int8)
    sparse, full = hypotheses_of(bundle), []
    for own, (model, at) in zip(found.one, sparse, strict=True):
        couplings = np.zeros((4, 4))
        couplings[np.ix_(at, at)] = model.couplings.toarray()
        full.append(PairwiseMRF.from_probabilities(own, couplings, model.prior))
    parts, at = zip(*sparse, strict=True)
    models = Models("rated", bundle.entities, bundle.features, parts, at, bundle.background)
    orders = np.array([rng.permutation(4) for _ in values])
    read = follow(models, values, orders, ENTITIES | DUELS, solver=TIGHT, threads=1)
    for i, t in np.ndindex(len(orders), 5):
        states = [Evidence.of(model) for model in full]
        for j in orders[i, :t]:
            states = [state.observe(int(j), int(values[i, j])) for state in states]
        marginals = [mean_field(*pair, solver=TIGHT).marginals for pair in zip(full, states, strict=True)]
        for p, (a, b) in enumerate(combinations(range(3), 2)):
            lead, sums = read.constant[i, t, a] - read.constant[i, t, b], read.sums[i, t, p]
            variance = duel_variance(states[a], states[b], marginals[a], marginals[b])
            expected = (*duel_interval(states[a], states[b]), variance)
            assert (lead - sums[0], lead + sums[5], sums[2]) == pytest.approx(expected, **CLOSE)
            if not seed % 2:  # then the sum of squares of half the range of each feature is all there is
                possible = np.isfinite(full[a].terms)
                each = np.subtract(states[a].terms, states[b].terms, out=np.zeros((4, 3)), where=possible)
                assert sums[3] == pytest.approx((np.ptp(each, axis=1) ** 2).sum() / 4, **CLOSE)


@given(cases())
@examples(20)
def test_solves_that_reach_the_cap_are_finished_as_the_readable_function_does(case):
    models, values = case
    solver = Solver(damping=0.01, tolerance=1e-12, max_iterations=20)
    orders = np.tile(np.arange(values.shape[1]), (len(values), 1))
    found = follow(models, values, orders, ENTITIES | SOLVES, solver=solver, threads=1)
    for model, name in zip(models.models, range(2), strict=True):
        solution = mean_field(model, solver=solver)
        assert found.elbo[0, 0, name] == pytest.approx(solution.elbo, **CLOSE)
        assert found.ascended[0, 0, name] == solution.ascended


@given(cases(), st.data())
@examples(40)
def test_votes_are_those_of_the_readable_function(case, data):
    models, values = case
    order = np.array([data.draw(st.permutations(range(values.shape[1])))])
    found = follow(models, values[:1], order, SIGNS, signs=("kl_nonzero",), solver=TIGHT, threads=1)
    for t in range(order.shape[1] + 1):
        positive, negative = sign_votes(models.models, seen_of(models, values[0], order[0, :t]))
        assert found.signs[0, t, 0, 0] == np.sign(positive[0, 1] - negative[0, 1])


@given(cases(couplings=False), st.data())
@examples(40)
def test_without_couplings_log_odds_and_wald_are_naive_bayes_at_every_round(case, data):
    models, values = case
    orders = np.array([data.draw(st.permutations(range(values.shape[1]))) for _ in values])
    found = follow(models, values, orders, ENTITIES, solver=TIGHT, threads=1)
    one, zero = models.models
    for i, order in enumerate(orders):
        for t in range(len(order) + 1):
            seen = seen_of(models, values[i], order[:t])
            expected = one.prior + sum(one.terms[j, s + 1] - zero.terms[j, s + 1] for j, s in seen)
            for score in (found.constant, found.elbo):
                assert score[i, t, 0] - score[i, t, 1] == pytest.approx(expected, abs=1e-9)


@given(cases(), st.sampled_from(["cmi", "wald_magnitude"]))
def test_greedy_asks_for_the_largest_gain_and_never_for_what_is_missing(case, gain):
    models, values = case
    found = choose(models, values, ENTITIES | CERTAIN, allocation="greedy", gain=gain, k=1, solver=TIGHT, threads=1)
    for i, order in enumerate(found.order):
        measured = np.flatnonzero(values[i] != MISSING)
        assert sorted(order[order >= 0]) == measured.tolist()
        assert (order[len(measured) :] == -1).all()
        for t, chosen in enumerate(order[: len(measured)]):
            states = states_of(models, seen_of(models, values[i], order[:t]))
            solved = [
                mean_field(model, state, solver=TIGHT) for model, state in zip(models.models, states, strict=True)
            ]
            magnitude = wald_magnitude(*states)
            gains = magnitude
            if gain == "cmi":
                marginals = [solution.marginals for solution in solved]
                gains = cmi(solved[0].elbo - solved[1].elbo, *marginals, observed=states[0].observed)
            by_gain = found.fallback[i, t]
            worth = np.zeros(values.shape[1])
            worth[models.at[0]] = magnitude if by_gain else gains
            worth[values[i] == MISSING] = 0.0
            worth[order[:t]] = 0.0
            assert worth[chosen] == pytest.approx(worth.max(), rel=1e-6, abs=1e-11)
        assert (found.constant[i, len(measured) :] == found.constant[i, len(measured)]).all()


@given(cases())
@examples(20)
def test_the_company_of_other_patients_and_the_number_of_threads_change_nothing(case):
    models, values = case
    together = choose(models, values, ENTITIES, allocation="greedy", gain="cmi", k=1, threads=3)
    for i in range(len(values)):
        alone = choose(models, values[i : i + 1], ENTITIES, allocation="greedy", gain="cmi", k=1, threads=1)
        assert (alone.order[0] == together.order[i]).all()
        assert (alone.elbo[0] == together.elbo[i]).all()


def test_gains_that_look_ahead_are_refused():
    one, zero = explicit_models([[0, 0.2, 0.8]], [[0, 0.8, 0.2]], [[0]], [[0]])
    models = Models("x", ("a", "b"), ("f",), (one, zero), (np.array([0]), np.array([0])), np.array([[0, 0.5, 0.5]]))
    with pytest.raises(BundleError, match="f_target on a bundle with probabilities; expected cmi"):
        choose(models, np.zeros((1, 1), np.int8), allocation="greedy", gain="f_target", target="linearity", k=1)
