"""The gain over entities beside sums over duels on drawn patients."""

import sys
from pathlib import Path

import numpy as np
import pytest

from afa import TopKPlanner
from afa.engine.patient import Patient
from afa.engine.run import MISSING
from afa.errors import ConfigError
from afa.evaluate.entrants import read_entrant
from afa.model.bundle import load_bundle

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from gains import GAINS, _told, gains_of_drawn, gains_of_field


def test_all_gains_end_alike_and_the_lead_of_information_over_itself_is_none():
    bundle = load_bundle("tests/data/bundle_tiny")
    table = gains_of_drawn(bundle, 10, resamples=50)
    assert (len(table), set(table["gain"]), set(table["t"])) == (len(GAINS) * 4, set(GAINS), {1, 2, 3, 5})
    assert (table.loc[table["gain"] == "information", "lead"] == 0).all()
    assert table.loc[table["t"] == 5, "first"].nunique() == 1, "every feature is known then"
    assert table["first"].between(table["low"], table["high"]).all()


def test_with_two_entities_every_gain_is_the_one_duels():
    bundle = load_bundle("tests/data/bundle_tiny").restrict_entities(("bleeding", "fistula"))
    patient = Patient(bundle, gain="cmi")
    patient.observe(0, 1)
    told = [_told(patient, gain) for gain in GAINS[:3]]
    np.testing.assert_allclose(told[0], told[1], atol=1e-9)
    np.testing.assert_allclose(told[0], told[2], atol=1e-9)


def test_on_a_field_all_gains_have_the_labels_to_answer_to():
    entrant = read_entrant("resources/fields/dermatology").some(6)
    table = gains_of_field(entrant, resamples=50).set_index(["gain", "t"])
    task = next(task for task in entrant.tasks if task.main)
    first = []
    for values, answer in zip(entrant.values, task.answers, strict=True):
        planner = TopKPlanner(entrant.bundle, gain="information", k=1)
        for _ in range(5):
            told = planner.explain()
            told = told[[values[entrant.features.index(name)] != MISSING for name in told["feature"]]]
            feature = told.loc[told["gain"].idxmax(), "feature"]
            planner.observe(feature, int(values[entrant.features.index(feature)]))
        first.append(planner.posterior().argmax() == answer)
    assert table.loc[("information", 5), "first"] == np.mean(first)


def test_a_field_of_yes_and_no_has_no_gain_over_entities():
    with pytest.raises(ConfigError, match="which of several entities holds"):
        gains_of_field(read_entrant("resources/fields/pima"))
