"""The bundle on anaemia: sound and explained, and what its README says of the vignettes. No test of accuracy."""

import csv
import functools
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import yaml

from afa.model.bundle import load_bundle, validate_bundle
from afa.planner import TopKPlanner

FOLDER = Path(__file__).parents[2] / "afa" / "examples" / "anaemia"
BUNDLE = load_bundle(FOLDER / "bundle")
COST = dict(zip(BUNDLE.features, BUNDLE.costs.tolist(), strict=True))


def rows(file):
    with (FOLDER / file).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


VIGNETTES = rows("vignettes.csv")
CAUSES = {row["patient"]: row["cause"].split("+") for row in VIGNETTES}
SINGLE = [patient for patient, causes in CAUSES.items() if len(causes) == 1 and not patient.startswith("trap_")]
TYPICAL = [patient for patient in SINGLE if patient.startswith("typical_")]
MIXED = [patient for patient, causes in CAUSES.items() if len(causes) > 1]


def values_of(patient):
    return {row["feature"]: int(row["value"]) for row in VIGNETTES if row["patient"] == patient}


def by_score(patient):
    """The causes at full observation, best first."""
    planner = TopKPlanner(BUNDLE, k=len(BUNDLE.entities) - 1)
    for feature, value in values_of(patient).items():
        planner.observe(feature, value)
    return planner.top_k()


class Walk(NamedTuple):
    """Measurements, and what they cost, until the right cause leads for good and until nothing can change that."""

    led: int
    led_cost: float
    certain: int
    certain_cost: float


@functools.cache
def walk(patient, /, **options):
    values, planner = values_of(patient), TopKPlanner(BUNDLE, k=1, **options)
    leaders, certified, spent = [planner.top_k()], [planner.certified()], [0.0]
    while (feature := planner.next_feature()) is not None:
        planner.observe(feature, values[feature])
        leaders.append(planner.top_k())
        certified.append(planner.certified())
        spent.append(spent[-1] + COST[feature])
    led = max((t + 1 for t, leader in enumerate(leaders) if leader != CAUSES[patient]), default=0)
    certain = certified.index(True)
    return Walk(led, spent[led], certain, spent[certain])


def test_the_bundle_has_no_fault_and_nothing_worth_a_note():
    assert validate_bundle(FOLDER / "bundle") == ([], [])
    assert (len(BUNDLE.entities), len(BUNDLE.features)) == (10, 25)


@pytest.mark.parametrize("file", ["unary.csv", "pairwise.csv"])
def test_each_potential_has_a_reason_and_none_claims_a_confidence(file):
    table = rows(f"bundle/{file}")
    assert all(float(row["potential"]) != 0 and len(row["evidence"].split()) >= 3 for row in table)
    assert not any(row["confidence"] for row in table)


def test_sizes_follow_the_readme_and_only_one_test_of_a_cause_measures_the_cause_itself():
    size = np.abs(BUNDLE.unary)
    assert set(size[size > 0]) == {0.5, 1.0, 2.0}
    assert (size == 2).sum(axis=1).max() == 1
    without = [name for name, row in zip(BUNDLE.entities, size, strict=True) if not (row == 2).any()]
    assert without == ["acute_blood_loss", "aplastic_anaemia"]
    assert set(np.abs(BUNDLE.packed.value)) == {0.5}


def test_panels_share_no_feature_and_cost_less_than_their_parts():
    panels = yaml.safe_load((FOLDER / "panels.yaml").read_text(encoding="utf-8"))
    counted = Counter(feature for panel in panels.values() for feature in panel["features"])
    assert set(counted) <= set(BUNDLE.features)
    assert set(counted.values()) == {1}
    assert not set(panels) & set(BUNDLE.features)
    for panel in panels.values():
        assert 0 < panel["cost"] < sum(COST[feature] for feature in panel["features"])


def test_each_vignette_states_every_value_once_and_each_cause_has_a_typical_one():
    stated = Counter((row["patient"], row["feature"]) for row in VIGNETTES)
    assert stated == Counter((patient, feature) for patient in CAUSES for feature in BUNDLE.features)
    assert {row["value"] for row in VIGNETTES} == {"-1", "0", "1"}
    assert [CAUSES[patient] for patient in TYPICAL] == [[entity] for entity in BUNDLE.entities]
    assert (len(SINGLE), len(MIXED), len(CAUSES)) == (15, 2, 19)


@pytest.mark.parametrize("patient", SINGLE)
def test_the_one_cause_of_a_vignette_comes_first_when_all_is_known(patient):
    assert by_score(patient)[:1] == CAUSES[patient]


@pytest.mark.parametrize("patient", MIXED)
def test_of_two_causes_both_come_out_by_k_2_and_iron_deficiency_alone_by_k_1(patient):
    ranked = by_score(patient)
    assert set(ranked[:2]) == set(CAUSES[patient])
    assert ranked[0] == "iron_deficiency"


def test_where_nothing_deviates_nine_causes_tie_and_no_answer_is_certain():
    patient = "trap_bleeding_since_this_morning"
    values = values_of(patient)
    x = [values[name] for name in BUNDLE.features]
    assert [name for name in BUNDLE.entities if BUNDLE.mrf(name).energy(x) != 0] == ["beta_thalassaemia_trait"]
    planner = TopKPlanner(BUNDLE, k=1)
    for feature, value in values.items():
        planner.observe(feature, value)
    assert not planner.certified()


def test_the_readme_has_the_measured_means_of_the_typical_vignettes():
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    ways = {
        "choosing by gain": [walk(patient, costs="equal") for patient in TYPICAL],
        "choosing by gain per cost": [walk(patient) for patient in TYPICAL],
        "random order": [
            walk(patient, allocation="random", costs="equal", seed=seed, patient=patient)
            for patient in TYPICAL
            for seed in range(10)
        ],
    }
    for name, walks in ways.items():
        led, led_cost, certain, certain_cost = np.mean(walks, axis=0)
        leads = f"{led:.1f} measurements, cost {led_cost:.1f}"
        assert f"| {name} | {leads} | {certain:.1f} measurements, cost {certain_cost:.1f} |" in page


def test_all_typical_vignettes_but_the_one_whose_own_test_is_the_dearest_need_fewer_than_all_values():
    need_all = [patient for patient in TYPICAL if walk(patient).certain == len(BUNDLE.features)]
    assert need_all == ["typical_hereditary_spherocytosis"]
    assert max(COST, key=COST.get) == "ema_binding"


def test_an_antibody_below_detection_is_told_from_spherocytosis_by_half_a_unit_only():
    values = values_of("trap_antibody_below_detection")
    x = [values[name] for name in BUNDLE.features]
    energy = {name: BUNDLE.mrf(name).energy(x) for name in ("autoimmune_haemolysis", "hereditary_spherocytosis")}
    assert energy == {"autoimmune_haemolysis": 6.0, "hereditary_spherocytosis": 5.5}
