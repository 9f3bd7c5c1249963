"""When a run is certain, what a rule saves and what is resolved: on tables small enough to work by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from grids import (
    BY_HAND,
    GREEDY,
    LINEARITY,
    RANDOM,
    Runs,
    made,
    of_cell,
    summary_of,
    values,
)

from afa.errors import SanityError
from afa.evaluate.resampling import table_of_rounds
from afa.paper.experiments.allocation import LEVELS


def certified_from(*rounds: int | None, last: int = 4) -> dict[str, Any]:
    """Certificates of the two patients from these rounds on."""
    return {"certified": [[t is not None and t <= now for now in range(last + 1)] for t in rounds]}


def test_the_certified_round_is_that_by_which_half_of_the_runs_are_certified() -> None:
    runs = {(RANDOM, 0): certified_from(1, 3), (RANDOM, 1): certified_from(2, None), (GREEDY, 0): certified_from(4, 4)}
    rows = summary_of(made(runs, rounds=5))
    certified = {name: of_cell(rows, "certified_round", "count", RANDOM, quantity=name) for name in ("q25", "", "q75")}
    assert {name: row["value"].tolist() for name, row in certified.items()} == {"q25": [1], "": [2], "q75": [3]}
    assert certified[""]["n"].tolist() == [4]
    # p1 alone has runs certified at 3 and never, p0 alone at 1 and 2
    assert certified[""][["low", "high"]].to_numpy().tolist() == [[1, 3]]
    assert certified["q75"]["low"].tolist() == [2]
    assert certified["q75"]["high"].isna().all()
    assert values(rows, "certified_round", "rate", RANDOM, quantity="never") == [0.25]
    assert values(rows, "certified_round", "rate", RANDOM, quantity="certified") == [0, 0.75]
    assert values(rows, "certified_round", "gap", GREEDY, quantity="certified", reference="random") == [0, 0.25]


def test_a_run_that_is_never_certified_is_later_than_all_others() -> None:
    rows = summary_of(made({(GREEDY, 0): certified_from(2, None)}, rounds=5))
    found = {name: of_cell(rows, "certified_round", "count", GREEDY, quantity=name).iloc[0] for name in ("", "q75")}
    assert found[""]["value"] == 2
    assert np.isnan(found["q75"]["value"])
    assert np.isnan(found["q75"]["high"])


REACHING: Runs = {
    # of 5 duels; the level of 90 % is 4.5
    (RANDOM, 0): {"right": [[1, 1, 2, 2.5, 2.5, 3], [2, 2, 2, 2, 2, 2]], "p_at_k": [[0, 0, 0.8, 0.8, 0.8, 1], [1] * 6]},
    (GREEDY, 0): {"right": [[1, 3, 2, 3, 3, 3], [2, 2, 2, 2, 2, 2]], "p_at_k": [[0, 0, 0, 0, 0, 1], [1] * 6]},
}


def saved(rows: pd.DataFrame, cell: tuple[str, str, str], quantity: str, **where: str) -> dict[float, float]:
    where = LINEARITY | {"target": "likelihood", "quantity": quantity} | where
    return of_cell(rows, "acquisition_saved", "count", cell, **where).set_index("level")["value"].to_dict()


def test_features_needed_are_counted_until_the_curve_stays_at_its_level() -> None:
    rows = summary_of(made(REACHING, rounds=6))
    # greedy is at 5/5 at t = 1 and falls back to 4/5
    assert saved(rows, GREEDY, "accuracy") == dict.fromkeys(LEVELS, 3)
    assert saved(rows, GREEDY, "p_at_k") == dict.fromkeys(LEVELS, 5)
    # 4.5 of 5 duels, and 0.9 of the top k in single precision, are 90 % at t = 3 and t = 2
    assert saved(rows, RANDOM, "accuracy") == {0.9: 3, 0.95: 5, 0.99: 5}
    assert saved(rows, RANDOM, "p_at_k") == {0.9: 2, 0.95: 5, 0.99: 5}


def test_a_level_is_reached_whatever_single_precision_makes_of_thirds() -> None:
    # at t = 1 one place in all, at full observation 10/9: exactly 90 %
    at_last = {0: [1, 1 / 9], 1: [0, 0], 2: [0, 0]}
    runs = {(RANDOM, seed): {"p_at_k": [[0, 1 / 3, p0], [0, 0, p1]]} for seed, (p0, p1) in at_last.items()}
    assert saved(summary_of(made(runs)), RANDOM, "p_at_k")[0.9] == 1


def test_an_interval_of_rounds_widens_to_whole_ones_and_is_open_beyond_the_last() -> None:
    of_three = np.array([[2, 2, 2], [1, 1, 1], [2, 2, np.nan], [3, 3, 3], [4, 9, np.nan]])
    table = table_of_rounds(of_three, confidence=0.5, last_round=5)
    assert table.fillna(-1).to_numpy().tolist() == [[2, 1, 4], [2, 1, -1], [2, 1, 3]]


def test_features_saved_are_those_that_random_needs_more() -> None:
    rows = summary_of(made(REACHING, rounds=6))
    assert saved(rows, GREEDY, "accuracy", reference="random") == {0.9: 0, 0.95: 2, 0.99: 2}
    assert saved(rows, GREEDY, "p_at_k", reference="random") == {0.9: -3, 0.95: 0, 0.99: 0}
    for quantity in ("accuracy", "p_at_k"):
        assert not saved(rows, RANDOM, quantity, reference="random")


def test_the_clinical_target_has_its_own_levels_of_its_own_end() -> None:
    clinical = [[0.5, 0.25, 0.5], [np.nan] * 3]
    rows = summary_of(made({(RANDOM, 0): {"clinical_p_at_k": clinical}, (GREEDY, 0): {}}))
    assert saved(rows, RANDOM, "p_at_k", target="clinical") == dict.fromkeys(LEVELS, 2)
    assert saved(rows, GREEDY, "p_at_k", target="clinical", reference="random") == dict.fromkeys(LEVELS, 2)
    assert not saved(rows, RANDOM, "accuracy", target="clinical")


def test_features_saved_are_resampled_together() -> None:
    """p0 needs 2 features under random and 1 under greedy, p1 3 and 2: apart they differ, together never."""
    winners = {"p0": (1, 1, -1), "p1": (1, -1, 1)}
    common = {"right_first": 0, "right_prior_wrong": 0, "p_at_k": 0}
    runs: Runs = {
        (RANDOM, 0): {"right": [[0, 0, 3, 3], [0, 0, 0, 3]]} | common,
        (GREEDY, 0): {"right": [[0, 3, 3, 3], [0, 0, 3, 3]]} | common,
    }
    rows = summary_of(made(runs, rounds=4, winner=winners))
    where = LINEARITY | {"target": "likelihood", "quantity": "accuracy", "level": 0.95}
    own = of_cell(rows, "acquisition_saved", "count", GREEDY, **where).iloc[0]
    assert own[["value", "low", "high", "n"]].tolist() == [2, 1, 2, 6]
    less = of_cell(rows, "acquisition_saved", "count", GREEDY, reference="random", **where)
    assert less[["value", "low", "high"]].to_numpy().tolist() == [[1, 1, 1]]


TIED: dict[str, Any] = {"right": 0, "right_first": 0, "right_prior_wrong": 0, "p_at_k": 1}


def test_resamples_without_a_duel_to_call_say_nothing_of_the_features_needed() -> None:
    winners = {"p0": (1, 1, -1), "p1": (0, 0, 0)}
    runs: Runs = {(RANDOM, 0): TIED | {"right": [[0, 1, 3], [0, 0, 0]]}}
    rows = summary_of(made(runs, winner=winners))
    where = LINEARITY | {"target": "likelihood", "quantity": "accuracy", "level": 0.95}
    needed = of_cell(rows, "acquisition_saved", "count", RANDOM, **where)
    assert needed[["value", "low", "high"]].to_numpy().tolist() == [[2, 2, 2]]


def test_patients_without_any_signal_have_no_accuracy_and_no_features_to_save() -> None:
    rows = summary_of(made({(RANDOM, 0): TIED, (GREEDY, 0): TIED}, winner={"p0": (0, 0, 0), "p1": (0, 0, 0)}))
    accuracy = of_cell(rows, "allocation_sign", "accuracy", GREEDY, **LINEARITY)
    assert accuracy["value"].isna().all()
    assert set(accuracy["n"]) == {0}
    assert values(rows, "allocation_sign", "count", None, quantity="tied_at_full_observation") == [6]
    needed = rows[(rows["table"] == "acquisition_saved") & (rows["target"] == "likelihood")]
    assert set(needed["quantity"]) == {"p_at_k"}


def test_resolved_duels_are_a_share_of_all_and_none_is_wrong() -> None:
    rows = summary_of(made({(RANDOM, 0): {"resolved": [[0, 1, 3], [0, 0, 2]]}, (RANDOM, 1): {"resolved": 1}}))
    found = of_cell(rows, "bracket_rate", "rate", RANDOM, method="wald", reference="l1_tight")
    assert found["t"].tolist() == [0, 2]
    assert found["value"].tolist() == pytest.approx([2 / 12, 7 / 12])
    wrong = of_cell(rows, "bracket_rate", "rate", RANDOM, quantity="wrong", reference="l1_tight")
    assert wrong[["value", "n"]].to_numpy().tolist() == [[0, 2], [0, 7]]


def test_a_rigorous_bracket_that_was_wrong_stops_the_summary_with_cell_and_patient() -> None:
    runs = BY_HAND | {(GREEDY, 0): {"resolved": 2, "resolved_wrong": [[0, 0, 0], [0, 1, 0]]}}
    with pytest.raises(SanityError, match=r"run greedy/cmi/every/0, patient p1, t 1.*contradicts"):
        summary_of(made(runs))


def test_a_certificate_that_is_withdrawn_stops_the_summary() -> None:
    runs = BY_HAND | {(GREEDY, 0): {"certified": [[False, True, False], [False] * 3]}}
    with pytest.raises(SanityError, match=r"patient p0, t 2.*withdrawn"):
        summary_of(made(runs))
