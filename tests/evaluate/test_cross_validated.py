"""What an update would bring: nobody is scored by a bundle that has seen his label."""

from dataclasses import replace

import numpy as np
import pytest
from rated import rated

import afa.evaluate.cross_validated as module
from afa.evaluate.cross_validated import N_FOLDS, brought_text, folds_of, update_brings
from afa.evaluate.update import update_of


@pytest.fixture
def cases():
    """A bundle of one entity on three features, patients with another law than it says, and their labels."""
    rng = np.random.default_rng(4)
    bundle = rated(rng, n=1, m=3, speaks=1.0, coupled=False, priors=False).bundle
    labels = np.arange(60) % 2
    values = np.array([[0, 1][y] if rng.random() < 0.9 else [1, 0][y] for y in labels for _ in range(3)]).reshape(60, 3)
    values = np.where(bundle.possible[:, 2], values, -values).astype(np.int8)
    return bundle, values, labels[:, None].astype(float)


def test_each_patient_is_scored_by_a_bundle_that_the_others_updated(cases, monkeypatch):
    bundle, values, labels = cases
    values = values.copy()
    values[:, 0] = np.where(bundle.possible[0, 2], 1, -1) * (np.arange(60) // 6 % 2)
    seen = []

    def spied(bundle, of_others, known):
        seen.append(len(of_others))
        return update_of(bundle, of_others, known)

    monkeypatch.setattr(module, "update_of", spied)
    update_brings(bundle, values, labels, resamples=20)
    assert seen == [54] * N_FOLDS


def test_a_fold_has_each_answer_as_often_as_another():
    answers = np.array([0] * 20 + [1] * 30)
    fold = folds_of("flu", answers)
    assert [np.bincount(answers[fold == part]).tolist() for part in range(N_FOLDS)] == [[2, 3]] * N_FOLDS
    assert folds_of("flu", answers[:4]).max() == 3


def test_patients_of_another_law_than_the_bundle_s_bring_what_it_lacked(cases):
    found = update_brings(*cases, resamples=200)
    last = found.iloc[-1]
    assert found["t"].tolist() == [1, 2, 3]
    assert last["updated"] > 0.9
    assert last["brought"] == pytest.approx(last["updated"] - last["alone"])
    assert last["low"] <= last["brought"] <= last["high"]
    bundle = replace(cases[0], display_names={last["question"]: "Red leaves"})
    assert "brought" in brought_text(found, bundle)
    assert brought_text(found, bundle).splitlines()[-1].split("  ")[0].strip() == "Red leaves"


def test_with_shuffled_labels_nothing_is_brought(cases):
    bundle, values, labels = cases
    shuffled = np.random.default_rng(0).permutation(labels)
    found = update_brings(bundle, values, shuffled, resamples=200)
    assert found["updated"].iloc[-1] < 0.7


def test_a_question_with_one_patient_of_an_answer_is_not_asked(cases):
    bundle, values, _ = cases
    found = update_brings(bundle, values, np.where(np.arange(60)[:, None] == 0, 1.0, 0.0), resamples=20)
    assert found.empty
    assert brought_text(found, bundle) == ""
