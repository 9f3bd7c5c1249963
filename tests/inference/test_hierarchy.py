"""Features that imply one another: likelihood, posterior and information against enumeration on small trees."""

from dataclasses import replace
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
def trees(draw, most=5, silence=True):
    """Hierarchies with one parent a feature: each feature is there for a reason of its own or by one below it.

    With silence, an entity is silent on any feature, and then on what implies it.
    """
    n_features, n_entities = draw(st.integers(1, most)), draw(st.integers(2, 4))
    parent = [draw(st.integers(-1, f - 1)) for f in range(n_features)]
    reasons = np.array([[draw(st.floats(0.05, 0.6)) for _ in parent] for _ in range(n_entities + 1)])
    absent = 1.0 - reasons
    for f in range(n_features - 1, -1, -1):
        if parent[f] >= 0:
            absent[:, parent[f]] *= absent[:, f]
    *table, background = 1.0 - absent
    table = np.array(table)
    for row in table if silence else ():
        for f, above in enumerate(parent):
            if (above >= 0 and row[above] == 0) or draw(st.booleans()):
                row[f] = 0.0
    parents = np.zeros((n_features, n_features))
    for f, above in enumerate(parent):
        if above >= 0:
            parents[f, above] = 1
    names = tuple(f"f{f}" for f in range(n_features))
    entities = tuple(f"e{v}" for v in range(n_entities))
    return Hierarchy(entities, names, sparse.csr_array(table), background, sparse.csr_array(parents), 1e-6), reasons


def worlds(model, reasons):
    """Every state of the features with its probability under each entity: of each, what has a reason of its own."""
    table: dict[tuple[int, ...], np.ndarray] = {}
    for own in product((0, 1), repeat=len(model.features)):
        state = list(own)
        for f in range(len(own) - 1, -1, -1):
            if state[f] and model.parent[f] != NOWHERE:
                state[model.parent[f]] = 1
        p = np.prod(np.where(own, reasons[:-1], 1.0 - reasons[:-1]), axis=1)
        table[tuple(state)] = table.get(tuple(state), 0.0) + p
    return table


def answers_of(draw, model):
    state = [draw(st.sampled_from(("?", "yes", "no"))) for _ in model.features]
    present = [f for f, said in enumerate(state) if said == "yes"]
    above = {a for f in present for a in model.ancestors[f]} | set(present)
    absent = [f for f, said in enumerate(state) if said == "no" and f not in above]
    return present, absent


def one_each(answers):
    """Whether no feature that could be there for a reason of its own has two absent ones below it."""
    below = [f for at in answers.asked for f in answers.hierarchy.ancestors[at] if not answers.explained[f]]
    return len(set(below)) == len(below)


@given(st.data())
def test_likelihood_and_information_are_those_of_enumeration(data):
    model, reasons = data.draw(trees(silence=False))
    present, absent = answers_of(data.draw, model)
    answers = Answers.of(model, present, absent)
    if not one_each(answers):
        return
    fits = [(s, p) for s, p in worlds(model, reasons).items() if all(s[f] for f in present)]
    fits = [(s, p) for s, p in fits if not any(s[f] for f in absent)]
    expected = np.sum([p for _, p in fits], axis=0)
    np.testing.assert_allclose(np.exp(answers.log_likelihood), expected, rtol=1e-9)
    np.testing.assert_allclose(answers.posterior, expected / expected.sum(), rtol=1e-9)
    for f in np.flatnonzero(answers.open):
        if not one_each(Answers.of(model, present, [*absent, f])):
            continue
        joint = np.array([np.sum([p * (s[f] == value) for s, p in fits], axis=0) for value in (0, 1)]).T
        np.testing.assert_allclose(answers.predictive(int(f)), joint[:, 1] / joint.sum(axis=1), rtol=1e-9)
        joint /= joint.sum()
        apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
        information = float((joint * np.log(joint / apart)).sum())
        assert answers.information([f])[0] == pytest.approx(information, abs=1e-9)


@given(st.data())
def test_who_is_silent_has_the_backgrounds_share_of_what_is_implied(data):
    model, _ = data.draw(trees())
    answers = data.draw(st.just(answers_of(data.draw, model)))
    table = model.probabilities.toarray()
    for f, above in enumerate(model.parent):
        usual = model.background[f] / (1.0 if above == NOWHERE else model.background[above])
        share = usual * (1.0 if above == NOWHERE else table[:, above])
        table[:, f] = np.where(table[:, f] > 0, table[:, f], share)
    spoken = replace(model, probabilities=sparse.csr_array(table))
    said, silent = Answers.of(spoken, *answers), Answers.of(model, *answers)
    np.testing.assert_allclose(silent.log_likelihood, said.log_likelihood, rtol=0, atol=1e-9)
    open_ = np.flatnonzero(silent.open)
    np.testing.assert_allclose(silent.information(open_), said.information(open_), rtol=0, atol=1e-9)


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
