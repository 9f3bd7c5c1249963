"""What the pages of the bundle and of inference count, on models that can be counted by hand."""

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of

from afa.paper.report.tables import (
    bundle_table,
    contraction_by_entity,
    log_odds_error,
    named_solves,
    overlaps,
    supports,
    work_of,
)

COUPLINGS = np.zeros((3, 4, 4))
COUPLINGS[0, 0, 1], COUPLINGS[0, 1, 2], COUPLINGS[1, 2, 3] = 1, -1, 1
BUNDLE = bundle_of(
    [[1, -1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]], COUPLINGS, features=("f", "g", "h", "i"), entities=("a", "b", "c")
)


def test_an_entity_is_counted_by_direction_and_by_the_sign_of_its_couplings():
    counts = bundle_table(BUNDLE).set_index("entity").drop(columns="log_odds")
    assert counts.loc["a"].tolist() == [3, 1, 1, 1, 1]
    assert counts.loc["b"].tolist() == [3, 2, 0, 1, 0]
    assert counts.loc["c"].tolist() == [0, 0, 0, 0, 0]


def test_a_feature_is_used_by_the_entities_that_have_it_in_their_support():
    assert supports(BUNDLE, BUNDLE.entities).sum().to_dict() == {"f": 1, "g": 2, "h": 2, "i": 1}


def test_pairs_stand_by_what_they_share_with_the_distance_of_their_names_not_of_their_places():
    apart = np.array([[0.0, 5.0, 6.0], [5.0, 0.0, 7.0], [6.0, 7.0, 0.0]])
    lines = overlaps(BUNDLE, apart, ("c", "a", "b")).to_numpy().tolist()
    assert lines == [["a", "b", 2, 5.0], ["c", "a", 0, 6.0], ["c", "b", 0, 7.0]]
    inside = supports(BUNDLE, ("c", "a", "b"))
    assert (inside @ inside.T).loc["a"].tolist() == [0, 3, 2]


ROUNDS = pd.DataFrame(
    {"start": "warm", "t": [0, 0, 1], "solves": [3, 1, 2], "iterations": [30, 10, 8], "capped": [1, 0, 0]}
)
CONVERGENCE = pd.DataFrame(
    {"model": ["class_1", "entity"], "entity": "a", "t": 0, "solves": [2, 9], "iterations": [6, 99]}
    | {"capped": [1, 9]}
)


def test_work_is_added_up_by_round_before_it_is_divided():
    work = work_of(named_solves(ROUNDS, CONVERGENCE), "solve", "t")
    assert work.loc[("entity, warm start", 0), ["sweeps", "capped_share"]].tolist() == [10.0, 0.25]
    assert work.loc[("entity, warm start", 1), "sweeps"] == 4.0
    assert work.loc[("closure, class 1", 0), "sweeps"] == 3.0
    assert len(work) == 3


CONTRACTION = pd.DataFrame(
    {
        "model": ["entity", "entity", "duel", "duel", "closure"],
        "entity": ["b", "a", "a", "a", "a"],
        "opponent": ["", "", "b", "c", ""],
        "contraction": [2.0, 1.0, 3.0, 5.0, 0.5],
    }
)


def test_a_duel_counts_for_both_of_its_sides():
    table = contraction_by_entity(CONTRACTION)
    assert table.index.tolist() == ["a", "b"]
    assert table.loc["a", ["alone", "closure", "min", "median", "max"]].tolist() == [1.0, 0.5, 3.0, 4.0, 5.0]
    assert table.loc["b", ["alone", "min", "max"]].tolist() == [2.0, 3.0, 3.0]
    assert pd.isna(table.loc["b", "closure"])


def test_the_error_of_mean_field_is_only_of_states_that_have_both():
    state = {"patient": "p", "entity": "a", "seed": 0}
    odds = pd.DataFrame(
        [
            state | {"t": 0, "inference": "exact", "raw": 1.0},
            state | {"t": 0, "inference": "mean_field", "raw": 1.5},
            state | {"t": 1, "inference": "mean_field", "raw": 9.0},
        ]
    )
    assert log_odds_error(odds).to_dict() == {("p", "a", 0, 0): pytest.approx(0.5)}
