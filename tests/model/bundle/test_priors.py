"""Priors: the probability that is stated is the one that planners start from, however many entities hold."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import afa
from afa.errors import BundleError
from afa.model.bundle import save_bundle
from afa.model.bundle.graph import from_networkx, to_networkx
from afa.model.bundle.priors import starting, starting_point

UNARY = """entity,feature,potential,p_low_with,p_high_with,p_low_without,p_high_without
embolism,dyspnoea,,0.01,0.8,0.05,0.3
embolism,d_dimer,,0.01,0.9,0.05,0.35
infarction,troponin,,0.01,0.85,0.05,0.1
infarction,dyspnoea,,0.02,0.5,0.05,0.3
pneumonia,fever,,0.01,0.8,0.05,0.15
"""
HEADER = "entity,feature_a,feature_b,potential,scope\n"
PAIRS = f"{HEADER}embolism,d_dimer,dyspnoea,0.3,condition\n"
ENTITIES = ["embolism", "infarction", "pneumonia"]


def chest(folder: Path, priors: str | None, holds: str = "several", pairs: str = PAIRS, unary: str = UNARY) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "bundle.yaml").write_text(f'name: chest\nversion: "1"\nholds: {holds}\n')
    (folder / "unary.csv").write_text(unary)
    (folder / "pairwise.csv").write_text(pairs)
    if priors is not None:
        (folder / "priors.csv").write_text(priors)
    return folder


def stated(*shares: float) -> str:
    rows = [f"{name},{share}\n" for name, share in zip(ENTITIES, shares, strict=False)]
    return "entity,probability\n" + "".join(rows)


CASES = [("several", (0.19, 0.3, 0.05)), ("one", (0.2, 0.3, 0.5)), ("one or none", (0.19, 0.3, 0.05))]


@pytest.mark.parametrize("inference", ["mean_field", "exact"])
@pytest.mark.parametrize(("holds", "shares"), CASES)
def test_a_stated_probability_is_what_planners_start_from(tmp_path, holds, shares, inference):
    bundle = afa.load_bundle(chest(tmp_path / "b", stated(*shares), holds))
    planner = afa.TopKPlanner(bundle, k=1, inference=inference)
    np.testing.assert_allclose(planner.posterior(), shares, atol=1e-12)
    np.testing.assert_allclose(starting(bundle), shares, atol=1e-12)
    for entity, share in zip(ENTITIES, shares, strict=True):
        alone = afa.BinaryPlanner(bundle, entity=entity, inference=inference)
        assert alone.probability() == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize("holds", ["several", "one"])
def test_a_bundle_of_directions_starts_from_it_too(tmp_path, holds):
    directions = "entity,feature,potential\nembolism,dyspnoea,1\ninfarction,troponin,1\npneumonia,fever,1\n"
    bundle = afa.load_bundle(chest(tmp_path / "b", stated(0.2, 0.3, 0.5), holds, HEADER, directions))
    for entity, share in zip(ENTITIES, (0.2, 0.3, 0.5), strict=True):
        assert afa.BinaryPlanner(bundle, entity=entity).probability() == pytest.approx(share, abs=1e-12)
    # Of three that are independent, exactly one holds with weights of the odds; shares of one are these weights.
    weights = np.array([0.2 / 0.8, 0.3 / 0.7, 0.5 / 0.5]) if holds == "several" else np.array([0.2, 0.3, 0.5])
    np.testing.assert_allclose(afa.TopKPlanner(bundle, k=1).posterior(), weights / weights.sum(), atol=1e-12)


def test_embolism_follows_bayes_from_the_share_of_patients_who_have_it(tmp_path):
    bundle = afa.load_bundle(chest(tmp_path / "b", stated(0.19), pairs=HEADER))
    planner = afa.BinaryPlanner(bundle, entity="embolism")
    planner.observe_all({"dyspnoea": 1, "d_dimer": 1})
    odds = 0.19 / 0.81 * (0.8 / 0.3) * (0.9 / 0.35)
    assert planner.probability() == pytest.approx(odds / (1 + odds), abs=1e-9)
    assert planner.probability() < 0.65  # from one half it would be 0.87


@pytest.mark.parametrize(
    ("holds", "given", "expected"),
    [
        ("several", (0.19,), (0.19, 0.5, 0.5)),
        ("one", (0.2,), (0.2, 0.4, 0.4)),
        ("one or none", (0.1,), (0.1, 0.3, 0.3)),
        ("one", (0.333, 0.333, 0.333), (1 / 3, 1 / 3, 1 / 3)),
    ],
)
def test_entities_without_a_row_share_what_the_others_leave(tmp_path, holds, given, expected):
    np.testing.assert_allclose(starting(afa.load_bundle(chest(tmp_path / "b", stated(*given), holds))), expected)


@pytest.mark.parametrize(
    ("holds", "text", "words"),
    [
        ("one", stated(0.5, 0.6, 0.4), "column probability: found probabilities that sum to 1.5; expected 1, since"),
        ("one", stated(0.2, 0.3, 0.4), "sum to 0.9; expected 1"),
        ("one", stated(0.5, 0.5), "sum to 1; expected less than 1"),
        ("one or none", stated(0.5, 0.3, 0.2), "sum to 1; expected less than 1"),
        (
            "several",
            "entity,probability\nembolism,1\n",
            "line 2, column probability: found '1'; expected a number above",
        ),
        ("several", "entity,probability\nembolism,19\n", "found '19'; expected a number above 0 and below 1"),
        ("several", "entity,probability,log_odds\nembolism,0.2,-1\n", "expected one of the two. Next step: empty one"),
        ("several", "entity,probability,log_odds\nembolism,0.2,\npneumonia,,-1\n", "expected one of the two"),
        ("several", "entity,probability\nembolism,\n", "found neither log-odds nor a probability"),
        ("several", "entity,log_odds\nembolism,0.05\npneumonia,0.2\n", "found 0.05, 0.2, all between 0 and 1"),
    ],
)
def test_priors_that_cannot_be_meant_are_one_error(tmp_path, holds, text, words):
    with pytest.raises(BundleError) as caught:
        afa.load_bundle(chest(tmp_path / "b", text, holds))
    assert words in str(caught.value)
    assert len(caught.value.faults) == 1


def test_log_odds_between_0_and_1_are_taken_with_a_sign_and_saved_with_it(tmp_path):
    bundle = afa.load_bundle(chest(tmp_path / "b", "entity,log_odds\nembolism,+0.5\ninfarction,+0.25\npneumonia,0.1\n"))
    assert bundle.priors.tolist() == [0.5, 0.25, 0.1]
    save_bundle(bundle, tmp_path / "c")
    assert afa.load_bundle(tmp_path / "c").digest == bundle.digest


@pytest.mark.parametrize(("holds", "shares"), CASES)
def test_a_bundle_with_probabilities_is_saved_as_it_is(tmp_path, holds, shares):
    bundle = afa.load_bundle(chest(tmp_path / "b", stated(*shares), holds))
    save_bundle(bundle, tmp_path / "c")
    again = afa.load_bundle(tmp_path / "c")
    assert again.digest == bundle.digest
    assert (tmp_path / "c" / "priors.csv").read_text().startswith("entity,probability\n")
    assert again.digest != afa.load_bundle(chest(tmp_path / "b", stated(*(s * 0.99 for s in shares[:2])), holds)).digest


def test_the_two_columns_say_the_same_where_several_may_hold(tmp_path):
    odds = [np.log(p / (1 - p)) for p in (0.19, 0.3, 0.05)]
    text = "entity,log_odds\n" + "".join(f"{name},{x!r}\n" for name, x in zip(ENTITIES, map(float, odds), strict=True))
    by_odds = afa.load_bundle(chest(tmp_path / "a", text))
    by_share = afa.load_bundle(chest(tmp_path / "b", stated(0.19, 0.3, 0.05)))
    np.testing.assert_allclose(by_share.priors, by_odds.priors, atol=1e-12)
    assert by_odds.shares is None


def test_tables_in_memory_take_probabilities_and_ask_back_too():
    unary = pd.DataFrame({"spots": [1.0, -1.0]}, index=["rust", "wilt"])
    bundle = afa.bundle_from_frame(unary, probabilities={"rust": 0.2})
    assert starting(bundle).tolist() == pytest.approx([0.2, 0.5])
    with pytest.raises(BundleError, match="if they are probabilities, call the column probability"):
        afa.bundle_from_frame(unary, priors={"rust": 0.2})
    assert afa.bundle_from_frame(unary, priors={"rust": "+0.2"}).priors.tolist() == [0.2, 0.0]


def test_a_graph_keeps_log_odds_between_0_and_1():
    pytest.importorskip("networkx")
    unary = pd.DataFrame({"spots": [1.0, -1.0]}, index=["rust", "wilt"])
    bundle = afa.bundle_from_frame(unary, priors={"rust": "+0.2", "wilt": 0.4})
    assert from_networkx(to_networkx(bundle)).digest == bundle.digest


@pytest.mark.parametrize(
    ("holds", "words"),
    [
        ("several", "each of 3 entities has probability 1/2; priors.csv can give other probabilities."),
        ("one", "each of 3 entities has probability 1/3; priors.csv can give other probabilities."),
        (
            "one or none",
            "each of 3 entities has probability 1/4, as has none of them; priors.csv can give other probabilities.",
        ),
    ],
)
def test_without_priors_it_is_said_where_each_entity_starts(tmp_path, holds, words):
    bundle = afa.load_bundle(chest(tmp_path / "b", None, holds))
    assert starting_point(bundle) == f"Before any measurement, {words}"
    start = afa.TopKPlanner(bundle, k=1).posterior()
    np.testing.assert_allclose(start, starting(bundle), atol=1e-12)


def test_with_priors_the_probabilities_are_said(tmp_path):
    bundle = afa.load_bundle(chest(tmp_path / "b", stated(0.19, 0.3, 0.05)))
    said = "Before any measurement, by priors.csv: infarction 0.3, embolism 0.19, pneumonia 0.05."
    assert starting_point(bundle) == said
    alone = starting_point(bundle, entity="embolism")
    assert alone == "Before any measurement, embolism has probability 0.19, as priors.csv says."


def test_directions_alone_say_both_starting_points():
    unary = pd.DataFrame({"spots": [1.0, -1.0]}, index=["rust", "wilt"])
    assert "probability 1/2 (1/2 where exactly one holds)" in starting_point(afa.bundle_from_frame(unary))
