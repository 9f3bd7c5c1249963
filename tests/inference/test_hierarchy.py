"""Features that imply one another: likelihood, posterior and information against enumeration on small trees."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from afa.engine.implications import NOWHERE
from afa.inference.answers import Answers
from afa.inference.hierarchy import Hierarchy


@st.composite
def trees(draw, most=5):
    """Hierarchies with one parent a feature; P of a feature at most that of its parent, silence anywhere."""
    n_features, n_entities = draw(st.integers(1, most)), draw(st.integers(2, 4))
    parent = [draw(st.integers(-1, f - 1)) for f in range(n_features)]
    shares = st.floats(0.1, 0.9)

    def closed():
        values = []
        for above in parent:
            values.append(draw(shares) * (1.0 if above < 0 else values[above]))
        return values

    background = np.array(closed())
    table = np.zeros((n_entities, n_features))
    for row in table:
        row[:] = closed()
        for f, above in enumerate(parent):  # an entity that is silent on a feature is silent on what implies it
            if (above >= 0 and row[above] == 0) or draw(st.booleans()):
                row[f] = 0.0
    table = np.where((table > 0) & (background[None] * 0 + 1 > 0), table, 0.0)
    edges = [(f, above) for f, above in enumerate(parent) if above >= 0]
    parents = np.zeros((n_features, n_features))
    for f, above in edges:
        parents[f, above] = 1
    names = tuple(f"f{f}" for f in range(n_features))
    entities = tuple(f"e{v}" for v in range(n_entities))
    model = Hierarchy(entities, names, sparse.csr_array(table), background, sparse.csr_array(parents), 1e-4)
    return model, parent


def whole_table(model):
    """(N, T) P of every feature: what an entity is silent on has the background's share of its parent."""
    table = model.probabilities.toarray()
    for f in range(len(model.features)):
        above = model.parent[f]
        share = model.background[f] if above < 0 else table[:, above] * model.background[f] / model.background[above]
        table[:, f] = np.where(table[:, f] > 0, table[:, f], share)
    return table


def ratio(model, v, f, above):
    """P(f | above) of an entity, by the definition."""
    table = whole_table(model)
    part, whole = table[v, f], 1.0 if above < 0 else table[v, above]
    return float(np.clip(part / whole, model.floor, 1 - model.floor))


def worlds(model, parent):
    """Every state of the features with its probability under each entity."""
    for state in product((0, 1), repeat=len(parent)):
        if all(not there or above < 0 or state[above] for there, above in zip(state, parent, strict=True)):
            yield state, [world(model, parent, v, state) for v in range(len(model.entities))]


def world(model, parent, v, state):
    p = 1.0
    for f, above in enumerate(parent):
        if above < 0 or state[above]:
            at = ratio(model, v, f, above)
            p *= at if state[f] else 1 - at
    return p


def answers_of(draw, model):
    state = [draw(st.sampled_from(("?", "yes", "no"))) for _ in model.features]
    present = [f for f, said in enumerate(state) if said == "yes"]
    above = {a for f in present for a in model.ancestors[f]} | set(present)
    absent = [f for f, said in enumerate(state) if said == "no" and f not in above]
    return present, absent


def apart(model, parent, answers):
    """Whether no two absent features have a common ancestor of which nothing is known."""
    unknown = [{a for a in model.ancestors[f] if not answers.present[a]} for f in answers.asked]
    chain = all(
        np.isclose(ratio_chain(model, parent, v, f, answers), 0)
        for v in range(len(model.entities))
        for f in answers.asked
    )
    return chain and all(not (one & other) for i, one in enumerate(unknown) for other in unknown[:i])


def ratio_chain(model, parent, v, f, answers):
    """How far the product of steps to the nearest present ancestor is from one ratio; 0 where no ratio is clipped."""
    at, steps = f, 1.0
    while at >= 0 and not answers.present[at]:
        steps *= ratio(model, v, at, parent[at])
        at = parent[at]
    return steps - ratio(model, v, f, at)


@given(st.data())
def test_likelihood_and_information_are_those_of_enumeration(data):
    model, parent = data.draw(trees())
    present, absent = answers_of(data.draw, model)
    answers = Answers.of(model, present, absent)
    assert [answers.hierarchy.parent[f] for f in range(len(parent))] == [a if a >= 0 else NOWHERE for a in parent]
    if not apart(model, parent, answers):
        return
    fits = [(s, p) for s, p in worlds(model, parent) if all(s[f] for f in present) and not any(s[f] for f in absent)]
    expected = np.array([sum(p[v] for _, p in fits) for v in range(len(model.entities))])
    np.testing.assert_allclose(np.exp(answers.log_likelihood), expected, rtol=1e-9)
    np.testing.assert_allclose(answers.posterior, expected / expected.sum(), rtol=1e-9)
    for f in np.flatnonzero(answers.open):
        more = Answers.of(model, [*present, f], absent)
        if not apart(model, parent, more) or not np.isclose(
            max(abs(ratio_chain(model, parent, v, f, answers)) for v in range(len(expected))), 0
        ):
            continue
        joint = np.array(
            [[sum(p[v] for s, p in fits if s[f] == value) for value in (0, 1)] for v in range(len(expected))]
        )
        joint /= joint.sum()
        apart_ = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
        information = float((joint * np.log(joint / apart_)).sum())
        assert answers.information([f])[0] == pytest.approx(information, abs=1e-9)


@given(st.data())
def test_no_feature_tells_more_than_its_bound_and_the_largest_is_found(data):
    model, _ = data.draw(trees())
    answers = Answers.of(model, *answers_of(data.draw, model))
    open_ = np.flatnonzero(answers.open)
    if not len(open_):
        return
    told = answers.information(open_)
    assert (told <= answers.bounds()[open_] + 1e-9).all()
    assert told[open_.tolist().index(answers.most_informative(open_))] == pytest.approx(told.max(), abs=1e-12)


@given(st.data())
def test_the_order_of_answers_does_not_matter_and_an_implied_one_is_no_evidence(data):
    model, _ = data.draw(trees())
    present, absent = answers_of(data.draw, model)
    answers = Answers.of(model, present, absent)
    again = Answers.of(
        model, [*present[::-1], *np.flatnonzero(answers.present)], [*absent[::-1], *np.flatnonzero(answers.absent)]
    )
    np.testing.assert_allclose(again.log_likelihood, answers.log_likelihood, rtol=0, atol=1e-12)


def test_a_feature_below_a_present_one_may_be_absent_and_one_above_may_not():
    parents = sparse.csr_array(np.array([[0.0, 0.0], [1.0, 0.0]]))
    table = sparse.csr_array(np.array([[0.8, 0.4], [0.5, 0.1]]))
    model = Hierarchy(("a", "b"), ("sign", "kind of sign"), table, np.array([0.3, 0.1]), parents, 1e-4)
    answers = Answers.of(model, present=[0], absent=[1])
    np.testing.assert_allclose(np.exp(answers.log_likelihood), [0.8 * 0.5, 0.5 * 0.8])
    assert list(answers.open) == [False, False]
    with pytest.raises(ValueError, match="sign is absent, and implied by what is present"):
        Answers.of(model, present=[1], absent=[0])


def test_without_ancestors_it_is_naive_bayes():
    table = np.array([[0.8, 0.0, 0.3], [0.2, 0.6, 0.0]])
    none = sparse.csr_array((3, 3))
    background = np.array([0.1, 0.2, 0.3])
    model = Hierarchy(
        ("a", "b"), ("x", "y", "z"), sparse.csr_array(table), background, none, 1e-4, np.log([0.25, 0.75])
    )
    answers = Answers.of(model, present=[0, 1], absent=[2])
    full = np.where(table > 0, table, background)
    likelihood = full[:, 0] * full[:, 1] * (1 - full[:, 2])
    expected = np.array([0.25, 0.75]) * likelihood
    np.testing.assert_allclose(answers.posterior, expected / expected.sum(), rtol=1e-12)
