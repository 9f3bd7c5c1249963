"""The gain over entities beside sums over duels on drawn patients."""

import numpy as np

from afa.bundle import load_bundle
from afa.engine.patient import Patient
from afa.stages.league.gains import GAINS, _told, compare_gains


def test_all_gains_end_alike_and_the_lead_of_information_over_itself_is_none():
    bundle = load_bundle("tests/data/bundle_tiny")
    table = compare_gains(bundle, 10, resamples=50)
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
