"""The summary of the allocation grid on tables small enough to work by hand, and against plain loops."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest

from afa.errors import ConfigError, SanityError
from afa.experiments.acquisition_summary import LEVELS, table_of_rounds
from afa.experiments.allocation_cubes import Cell
from afa.experiments.allocation_pairs import compared_rounds, references, shown_rounds
from afa.experiments.allocation_summary import summarise_allocation
from afa.experiments.fixed_topk import fixed_top_k, overlap, positives_by_prevalence

RANDOM = ("random", "", "every")
GREEDY = ("greedy", "cmi", "every")
METHODS = ("linearity", "wald")
ENTITIES = "abc"
PAIRS = list(combinations(ENTITIES, 2))
WINNERS = {"p0": (1, 1, -1), "p1": (1, -1, 0)}
PRIOR_WRONG = {"p0": (False, True, False), "p1": (True, False, True)}
LABELS: dict[str, tuple[int | None, ...]] = {"p0": (1, 0, None), "p1": (0, 0, None)}
TOP = {"p0": (2, 1, 1), "p1": (2, 2, 0)}
LAST = {"right": (3.0, 2.0), "right_first": (2.0, 1.0), "right_prior_wrong": (1.0, 1.0), "p_at_k": (1.0, 1.0)}
"""What the two patients have at full observation; p1 lacks a positive label, so that the clinical target is p0's."""

Runs = dict[tuple[tuple[str, str, str], int], dict[str, Any]]


def made(runs: Runs, rounds: int = 3, *, k_clinical: int = 1, **changes: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """The four tables of runs given as (P, T) by column; what is not given is as at full observation, or nothing.

    A column `wald ...` is the readout of `wald` alone.
    """
    winners, prior, labels, top = (
        changes.get(name, default)
        for name, default in (("winner", WINNERS), ("prior_wrong", PRIOR_WRONG), ("label", LABELS), ("top", TOP))
    )
    patients = list(winners)
    index = pd.MultiIndex.from_product([patients, range(rounds)], names=["patient", "t"])
    positive = np.array([1 in labels[name] for name in patients])
    plain = (
        {name: np.repeat(np.array(LAST[name])[:, None], rounds, axis=1) for name in LAST} if winners is WINNERS else {}
    )
    plain |= dict.fromkeys(("clinical_p_at_k", "clinical_r_precision"), np.where(positive, 1, np.nan)[:, None])
    nothing = {"fallback": False, "resolved": 0, "resolved_wrong": 0, "certified": False}

    def table(given: dict[str, Any], **key: Any) -> pd.DataFrame:
        columns = {name: np.broadcast_to(value, (len(patients), rounds)).ravel() for name, value in given.items()}
        return pd.DataFrame(columns, index=index).reset_index().assign(cohort="made", bundle="made", **key)

    of_rounds, of_choices = [], []
    for ((allocation, gain, schedule), seed), given in runs.items():
        key = {"allocation": allocation, "gain": gain, "schedule": schedule, "seed": seed}
        for method in METHODS:
            values = {n: given.get(f"{method} {n}", given.get(n, plain.get(n))) for n in (*LAST, "clinical_p_at_k")}
            values["clinical_r_precision"] = given.get("clinical_r_precision", plain["clinical_r_precision"])
            of_rounds.append(table(values, method=method, **key))
        of_choices.append(table({name: given.get(name, empty) for name, empty in nothing.items()}, **key))
    duels = [
        {"patient": name, "entity_a": a, "entity_b": b, "winner": winners[name][i], "prior_wrong": prior[name][i]}
        for name in patients
        for i, (a, b) in enumerate(PAIRS)
    ]
    targets = [
        {"patient": name, "entity": entity, "top": top[name][i], "label": labels[name][i]}
        for name in patients
        for i, entity in enumerate(ENTITIES)
    ]
    whole = pd.concat(of_rounds, ignore_index=True).astype({"t": np.int16})
    singles = [name for name in whole if str(name).startswith(("right", "p_at", "clinical"))]
    return {
        "rounds": whole.astype(dict.fromkeys(singles, np.float32)),
        "choices": pd.concat(of_choices, ignore_index=True),
        "duels": pd.DataFrame(duels),
        "targets": pd.DataFrame(targets).astype({"label": "Int8"}).assign(k=2, k_clinical=k_clinical),
    }


def summary_of(tables: dict[str, Any]) -> pd.DataFrame:
    rows = summarise_allocation(tables, resamples=400, confidence=0.9)
    texts = ["method", "gain", "allocation", "schedule", "stratum", "target", "reference"]
    return rows.fillna(dict.fromkeys(texts, ""))


def of_cell(
    rows: pd.DataFrame, table: str, metric: str, cell: tuple[str, str, str] | None, **where: str
) -> pd.DataFrame:
    """The rows of one cell and method, `stratum` and `reference` empty unless given."""
    where = {"stratum": "", "reference": ""} | where
    if cell is not None:
        where |= dict(zip(("allocation", "gain", "schedule"), cell, strict=True))
    chosen = rows[(rows["table"] == table) & (rows["metric"] == metric)]
    for column, value in where.items():
        chosen = chosen[chosen[column] == value]
    return chosen


def values(rows: pd.DataFrame, table: str, metric: str, cell: tuple[str, str, str] | None, **where: str) -> list[float]:
    return of_cell(rows, table, metric, cell, **where)["value"].tolist()


LINEARITY = {"method": "linearity"}
BY_HAND: Runs = {
    (RANDOM, 0): {"right": [[1, 2, 3], [0, 1, 2]], "right_first": [[1, 1, 2], [0, 0, 1]]},
    (RANDOM, 7): {"right": [[1, 3, 3], [1, 1.5, 2]], "right_first": [[1, 2, 2], [0, 0.5, 1]]},
    (GREEDY, 0): {
        "right": [[1, 3, 3], [0, 2, 2]],
        "right_first": [[0, 2, 2], [0, 1, 1]],
        "right_prior_wrong": [[0, 1, 1], [0, 0.5, 1]],
        "wald right": [[0, 0, 3], [0, 0, 2]],
    },
}


@pytest.fixture(scope="module")
def by_hand() -> pd.DataFrame:
    return summary_of(made(BY_HAND))


def test_accuracy_is_the_share_of_the_duels_with_a_winner_over_patients_and_seeds(by_hand: pd.DataFrame) -> None:
    random = of_cell(by_hand, "allocation_sign", "accuracy", RANDOM, **LINEARITY)
    assert random["t"].tolist() == [0, 1, 2]
    assert random["value"].tolist() == pytest.approx([3 / 10, 7.5 / 10, 1])
    assert set(random["n"]) == {10}
    greedy = of_cell(by_hand, "allocation_sign", "accuracy", GREEDY, **LINEARITY)
    assert greedy["value"].tolist() == pytest.approx([1 / 5, 1, 1])
    assert set(greedy["n"]) == {5}
    assert values(by_hand, "allocation_sign", "accuracy", GREEDY, method="wald") == [0, 0, 1]


def test_balanced_accuracy_weighs_the_two_sides_of_a_duel_alike(by_hand: pd.DataFrame) -> None:
    # the first entity wins 2 + 1 duels, the second 1 + 1; of the latter only p0's is right at t = 0
    found = of_cell(by_hand, "allocation_sign", "balanced_accuracy", GREEDY, **LINEARITY)
    assert found["t"].tolist() == [0, 2]
    assert found["value"].tolist() == pytest.approx([(0 + 1 / 2) / 2, 1])


def test_what_the_bundle_alone_has_wrong_is_a_stratum(by_hand: pd.DataFrame) -> None:
    found = of_cell(by_hand, "allocation_sign", "accuracy", GREEDY, stratum="prior_wrong", **LINEARITY)
    assert found[["t", "value", "n"]].to_numpy().tolist() == [[0, 0, 2], [2, 1, 2]]


def test_the_gap_to_random_is_to_the_mean_of_its_seeds(by_hand: pd.DataFrame) -> None:
    found = of_cell(by_hand, "allocation_sign", "gap", GREEDY, reference="random", **LINEARITY)
    assert found["t"].tolist() == [0, 2]
    assert found["value"].tolist() == pytest.approx([1 / 5 - 3 / 10, 0])
    assert not of_cell(by_hand, "allocation_sign", "gap", RANDOM, reference="random").size


def test_rules_are_compared_on_the_same_patients() -> None:
    """Greedy has one duel more than random for each patient, who differ: no resample can have another gap."""
    winners = {"p0": (1, 1, -1), "p1": (1, -1, 1)}
    common = {"right_first": 0, "right_prior_wrong": 0, "p_at_k": 0}
    runs: Runs = {
        (RANDOM, 0): {"right": [[0, 0, 3], [2, 2, 3]]} | common,
        (GREEDY, 0): {"right": [[1, 1, 3], [3, 3, 3]]} | common,
    }
    rows = summary_of(made(runs, winner=winners))
    gap = of_cell(rows, "allocation_sign", "gap", GREEDY, reference="random", **LINEARITY).iloc[0]
    assert gap[["value", "low", "high"]].tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    accuracy = of_cell(rows, "allocation_sign", "accuracy", GREEDY, **LINEARITY).iloc[0]
    assert accuracy["low"] < accuracy["value"] < accuracy["high"]


def test_a_rule_is_held_against_the_baselines_of_its_gain_and_schedule() -> None:
    assert references(Cell("boundary", "cmi", "paper")) == {
        "random": Cell("random", "", "every"),
        "greedy": Cell("greedy", "cmi", "paper"),
        "clustered": Cell("clustered", "cmi", "paper"),
        "largest_unary": Cell("largest_unary", "", "paper"),
        "every": Cell("boundary", "cmi", "every"),
    }
    assert list(references(Cell("greedy", "cmi", "every"))) == ["random", "clustered", "largest_unary"]
    assert list(references(Cell("largest_unary", "", "every"))) == ["random"]
    assert references(Cell("random", "", "every")) == {}


def test_comparisons_need_their_reference_in_the_grid() -> None:
    cells = [
        RANDOM,
        GREEDY,
        ("greedy", "cmi", "paper"),
        ("boundary", "cmi", "paper"),
        ("boundary", "f_target", "every"),
    ]
    rows = summary_of(made({(cell, 0): {} for cell in cells}))
    gaps = rows[(rows["table"] == "allocation_sign") & (rows["metric"] == "gap")]
    assert {tuple(row) for row in gaps[["allocation", "gain", "schedule", "reference"]].to_numpy()} == {
        (*GREEDY, "random"),
        ("greedy", "cmi", "paper", "random"),
        ("greedy", "cmi", "paper", "every"),
        ("boundary", "cmi", "paper", "random"),
        ("boundary", "cmi", "paper", "greedy"),
        ("boundary", "f_target", "every", "random"),
    }


def test_numbers_are_shown_every_tenth_round_and_most_comparisons_at_the_papers() -> None:
    assert shown_rounds(21) == [0, 10, 20, 21]
    assert compared_rounds(21) == [0, 10, 21]
    assert compared_rounds(150) == [0, 10, 50, 100, 150]
    assert compared_rounds(253) == [0, 10, 50, 100, 150, 253]
    assert shown_rounds(3) == compared_rounds(3) == [0, 3]


def test_random_is_the_reference_every_tenth_round_and_the_others_less_often() -> None:
    cells = (RANDOM, GREEDY, ("boundary", "cmi", "every"))
    rows = summary_of(made({(cell, 0): {} for cell in cells}, rounds=22))
    for table, where in (("allocation_sign", LINEARITY), ("certified_round", {"stratum": "certified"})):
        for reference, rounds in (("random", [0, 10, 20, 21]), ("greedy", [0, 10, 21])):
            found = of_cell(rows, table, "gap", cells[2], reference=reference, **where)
            assert found["t"].tolist() == rounds


def test_rounds_that_the_fallback_decided_are_counted_from_the_first_choice() -> None:
    runs = {(GREEDY, 0): {"fallback": [[False, True, True], [False, False, True]]}}
    found = of_cell(summary_of(made(runs)), "allocation_sign", "rate", GREEDY, stratum="fallback").iloc[0]
    assert found[["value", "n"]].tolist() == [3 / 4, 4]
    assert np.isnan(found["t"])


def test_constant_answers_and_ties_stand_beside_the_accuracies(by_hand: pd.DataFrame) -> None:
    # a beats b twice; a and c win once each, and so do c over b and nobody
    assert values(by_hand, "allocation_sign", "majority", None) == [4 / 5]
    assert values(by_hand, "allocation_sign", "prevalence", None) == [3 / 5]
    ties = of_cell(by_hand, "allocation_sign", "count", None, stratum="tied_at_full_observation")
    assert ties[["value", "n"]].to_numpy().tolist() == [[1, 6]]


def test_every_row_names_guide_and_start_and_leaves_out_a_gain_that_there_is_not(by_hand: pd.DataFrame) -> None:
    assert set(by_hand["guide"]) == {"linearity"}
    assert set(by_hand["start"]) == {"uniform"}
    raw = summarise_allocation(made(BY_HAND), resamples=100, confidence=0.9)
    assert raw.loc[raw["allocation"] == "random", "gain"].isna().all()


PRECISE: Runs = {
    (RANDOM, 0): {"p_at_k": [[0.2, 0.4, 1], [0.4, 0.6, 1]], "clinical_p_at_k": [[0, 1, 1], [np.nan] * 3]},
    (RANDOM, 1): {"p_at_k": [[0.2, 0.4, 1], [0.6, 0.6, 1]], "clinical_p_at_k": [[0, 0, 1], [np.nan] * 3]},
    (GREEDY, 0): {"p_at_k": [[0.2, 0.8, 1], [0.4, 0.6, 1]], "clinical_r_precision": [[0, 1, 0.5], [np.nan] * 3]},
}


def test_precision_is_the_mean_over_patients_and_seeds_without_the_noise_of_single_precision() -> None:
    rows = summary_of(made(PRECISE))
    random = of_cell(rows, "allocation_p_at_k", "p_at_k", RANDOM, target="likelihood", **LINEARITY)
    assert random["value"].round(12).tolist() == [0.35, 0.5, 1]
    assert set(random["n"]) == {4}
    gap = of_cell(rows, "allocation_p_at_k", "gap", GREEDY, reference="random", target="likelihood", **LINEARITY)
    assert gap["value"].round(12).tolist() == [-0.05, 0]


def test_patients_without_a_positive_label_are_left_out_of_clinical_precision_and_counted() -> None:
    rows = summary_of(made(PRECISE))
    random = of_cell(rows, "allocation_p_at_k", "p_at_k", RANDOM, target="clinical", **LINEARITY)
    assert random["value"].tolist() == [0, 0.5, 1]
    assert set(random["n"]) == {2}
    assert values(rows, "allocation_p_at_k", "r_precision", GREEDY, **LINEARITY) == [0, 0.5]
    gap = of_cell(rows, "allocation_p_at_k", "gap", GREEDY, reference="random", target="clinical", **LINEARITY)
    assert gap["value"].tolist() == [1, 0]
    counts = rows[(rows["table"] == "allocation_p_at_k") & (rows["metric"] == "count")].set_index("stratum")
    assert counts.loc["patients_without_positive", ["value", "n"]].tolist() == [1, 2]
    assert counts.loc["labelled", ["value", "n"]].tolist() == [2, 3]
    assert counts.loc["k_clinical", "value"] == 1
    assert counts.loc["not_comparable", "value"] == 1


def test_answers_that_look_at_no_patient_stand_beside_the_precision() -> None:
    rows = summary_of(made(PRECISE))
    # a and b are p1's top 2; of p0's b and c are tied, and there is room for one of them
    fixed = of_cell(rows, "allocation_p_at_k", "p_at_k", None, stratum="fixed_top_k").iloc[0]
    assert fixed[["value", "n", "target"]].tolist() == [1, 2, "likelihood"]
    for metric in ("p_at_k", "r_precision"):
        order = of_cell(rows, "allocation_p_at_k", metric, None, stratum="prevalence_order").iloc[0]
        assert order[["value", "n", "target"]].tolist() == [1, 1, "clinical"]


def test_a_patient_with_fewer_labels_than_places_has_so_many_places() -> None:
    runs: Runs = {(RANDOM, 0): {}}
    rows = summary_of(made(runs, label={"p0": (None, 1, None), "p1": (0, 1, 1)}, k_clinical=2))
    # p0 has one place and b on it; p1 has b and c, whose labels are positive wherever they are known
    assert values(rows, "allocation_p_at_k", "p_at_k", None, stratum="prevalence_order") == [1]


@pytest.mark.parametrize("k_clinical", [0, 1])
def test_without_a_clinical_target_there_are_its_counts_alone(k_clinical: int) -> None:
    labels = {"p0": (1, None, None), "p1": (0, None, None)} if k_clinical == 0 else {"p0": (0,) * 3, "p1": (0,) * 3}
    gone = {name: [[np.nan] * 3] * 2 for name in ("clinical_p_at_k", "clinical_r_precision")}
    rows = summary_of(made({(RANDOM, 0): gone, (GREEDY, 0): gone}, label=labels, k_clinical=k_clinical))
    clinical = rows[rows["target"] == "clinical"]
    assert set(clinical["metric"]) == {"count"}
    assert clinical["stratum"].tolist() == ["patients_without_positive", "labelled", "k_clinical", "not_comparable"]


def top_sets(generator: np.random.Generator, k: int) -> np.ndarray:
    top = np.zeros((6, 7), dtype=np.int8)
    for row in top:
        order, sure = generator.permutation(7), int(generator.integers(0, k + 1))
        row[order[:sure]] = 2
        row[order[sure : sure + (int(generator.integers(2, 5)) if sure < k else 0)]] = 1
    return top


@pytest.mark.parametrize("seed", range(20))
def test_no_other_fixed_answer_serves_better(seed: int) -> None:
    top = top_sets(np.random.default_rng(seed), 3)
    worths = {chosen: overlap(top, list(chosen), 3).sum() for chosen in combinations(range(7), 3)}
    assert worths[tuple(fixed_top_k(top, 3))] == max(worths.values())


def test_entities_tied_across_rank_k_fill_the_room_that_is_left() -> None:
    top = np.array([[2, 1, 1, 1, 0]], dtype=np.int8)
    assert overlap(top, [1, 2, 3], 3).tolist() == [2]
    assert overlap(top, [0, 1, 4], 3).tolist() == [2]
    assert overlap(top, [0, 2, 3], 3).tolist() == [3]


@pytest.mark.parametrize("seed", range(5))
def test_the_order_by_prevalence_shares_tied_places_as_random_breaking_would(seed: int) -> None:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, (5, 4)).astype(float)
    labels[generator.random(labels.shape) < 0.3] = np.nan
    labels[0] = [1, 0, 1, 0]
    places = generator.integers(1, 4, 5)
    found = positives_by_prevalence(labels, places)
    prevalence = np.nanmean(labels, axis=0)
    for patient, first in enumerate(places):
        known = [v for v in range(4) if not np.isnan(labels[patient, v])]
        orders = [o for o in permutations(known) if list(prevalence[list(o)]) == sorted(prevalence[list(o)])[::-1]]
        expected = np.mean([labels[patient, list(order[:first])].sum() for order in orders])
        assert found[patient] == pytest.approx(expected)


def certified_from(*rounds: int | None, last: int = 4) -> dict[str, Any]:
    """Certificates of the two patients from these rounds on."""
    return {"certified": [[t is not None and t <= now for now in range(last + 1)] for t in rounds]}


def test_the_certified_round_is_that_by_which_half_of_the_runs_are_certified() -> None:
    runs = {(RANDOM, 0): certified_from(1, 3), (RANDOM, 1): certified_from(2, None), (GREEDY, 0): certified_from(4, 4)}
    rows = summary_of(made(runs, rounds=5))
    certified = {
        stratum: of_cell(rows, "certified_round", "count", RANDOM, stratum=stratum) for stratum in ("q25", "", "q75")
    }
    assert {name: row["value"].tolist() for name, row in certified.items()} == {"q25": [1], "": [2], "q75": [3]}
    assert certified[""]["n"].tolist() == [4]
    # p1 alone has runs certified at 3 and never, p0 alone at 1 and 2
    assert certified[""][["low", "high"]].to_numpy().tolist() == [[1, 3]]
    assert certified["q75"]["low"].tolist() == [2]
    assert certified["q75"]["high"].isna().all()
    assert values(rows, "certified_round", "rate", RANDOM, stratum="never") == [0.25]
    assert values(rows, "certified_round", "rate", RANDOM, stratum="certified") == [0, 0.75]
    assert values(rows, "certified_round", "gap", GREEDY, stratum="certified", reference="random") == [0, 0.25]


def test_a_run_that_is_never_certified_is_later_than_all_others() -> None:
    rows = summary_of(made({(GREEDY, 0): certified_from(2, None)}, rounds=5))
    found = {name: of_cell(rows, "certified_round", "count", GREEDY, stratum=name).iloc[0] for name in ("", "q75")}
    assert found[""]["value"] == 2
    assert np.isnan(found["q75"]["value"])
    assert np.isnan(found["q75"]["high"])


REACHING: Runs = {
    # of 5 duels; the level of 90 % is 4.5
    (RANDOM, 0): {"right": [[1, 1, 2, 2.5, 2.5, 3], [2, 2, 2, 2, 2, 2]], "p_at_k": [[0, 0, 0.8, 0.8, 0.8, 1], [1] * 6]},
    (GREEDY, 0): {"right": [[1, 3, 2, 3, 3, 3], [2, 2, 2, 2, 2, 2]], "p_at_k": [[0, 0, 0, 0, 0, 1], [1] * 6]},
}


def saved(rows: pd.DataFrame, cell: tuple[str, str, str], **where: str) -> dict[str, float]:
    found = of_cell(rows, "acquisition_saved", "count", cell, **(LINEARITY | {"target": "likelihood"} | where))
    return found.set_index("stratum")["value"].to_dict()


def all_strata(rows: pd.DataFrame, cell: tuple[str, str, str], **where: str) -> dict[str, float]:
    names = ["", *(f"{name} {level}%" for name in ("sign", "p_at_k") for level in LEVELS)]
    return {k: v for name in names for k, v in saved(rows, cell, stratum=name, **where).items()}


def test_features_needed_are_counted_until_the_curve_stays_at_its_level() -> None:
    rows = summary_of(made(REACHING, rounds=6))
    # greedy is at 5/5 at t = 1 and falls back to 4/5
    assert all_strata(rows, GREEDY) == {"": 3, "sign 90%": 3, "sign 99%": 3} | dict.fromkeys(
        ("p_at_k 90%", "p_at_k 95%", "p_at_k 99%"), 5
    )
    # 4.5 of 5 duels, and 0.9 of the top k in single precision, are 90 % at t = 3 and t = 2
    assert all_strata(rows, RANDOM) == {
        "": 5,
        "sign 90%": 3,
        "sign 99%": 5,
        "p_at_k 90%": 2,
        "p_at_k 95%": 5,
        "p_at_k 99%": 5,
    }


def test_a_level_is_reached_whatever_single_precision_makes_of_thirds() -> None:
    # at t = 1 one place in all, at full observation 10/9: exactly 90 %
    at_last = {0: [1, 1 / 9], 1: [0, 0], 2: [0, 0]}
    runs = {(RANDOM, seed): {"p_at_k": [[0, 1 / 3, p0], [0, 0, p1]]} for seed, (p0, p1) in at_last.items()}
    assert saved(summary_of(made(runs)), RANDOM, stratum="p_at_k 90%") == {"p_at_k 90%": 1}


def test_an_interval_of_rounds_widens_to_whole_ones_and_is_open_beyond_the_last() -> None:
    of_three = np.array([[2, 2, 2], [1, 1, 1], [2, 2, np.nan], [3, 3, 3], [4, 9, np.nan]])
    table = table_of_rounds(of_three, confidence=0.5, last_round=5)
    assert table.fillna(-1).to_numpy().tolist() == [[2, 1, 4], [2, 1, -1], [2, 1, 3]]


def test_features_saved_are_those_that_random_needs_more() -> None:
    rows = summary_of(made(REACHING, rounds=6))
    assert all_strata(rows, GREEDY, reference="random") == {
        "": 2,
        "sign 90%": 0,
        "sign 99%": 2,
        "p_at_k 90%": -3,
        "p_at_k 95%": 0,
        "p_at_k 99%": 0,
    }
    assert not all_strata(rows, RANDOM, reference="random")


def test_the_clinical_target_has_its_own_levels_of_its_own_end() -> None:
    clinical = [[0.5, 0.25, 0.5], [np.nan] * 3]
    rows = summary_of(made({(RANDOM, 0): {"clinical_p_at_k": clinical}, (GREEDY, 0): {}}))
    label = {"target": "clinical"}
    assert all_strata(rows, RANDOM, **label) == {"p_at_k 90%": 2, "p_at_k 95%": 2, "p_at_k 99%": 2}
    assert all_strata(rows, GREEDY, **label, reference="random") == {"p_at_k 90%": 2, "p_at_k 95%": 2, "p_at_k 99%": 2}


def test_features_saved_are_resampled_together() -> None:
    """p0 needs 2 features under random and 1 under greedy, p1 3 and 2: apart they differ, together never."""
    winners = {"p0": (1, 1, -1), "p1": (1, -1, 1)}
    common = {"right_first": 0, "right_prior_wrong": 0, "p_at_k": 0}
    runs: Runs = {
        (RANDOM, 0): {"right": [[0, 0, 3, 3], [0, 0, 0, 3]]} | common,
        (GREEDY, 0): {"right": [[0, 3, 3, 3], [0, 0, 3, 3]]} | common,
    }
    rows = summary_of(made(runs, rounds=4, winner=winners))
    own = of_cell(rows, "acquisition_saved", "count", GREEDY, target="likelihood", **LINEARITY).iloc[0]
    assert own[["value", "low", "high", "n"]].tolist() == [2, 1, 2, 6]
    less = of_cell(rows, "acquisition_saved", "count", GREEDY, reference="random", target="likelihood", **LINEARITY)
    assert less[["value", "low", "high"]].to_numpy().tolist() == [[1, 1, 1]]


TIED: dict[str, Any] = {"right": 0, "right_first": 0, "right_prior_wrong": 0, "p_at_k": 1}


def test_resamples_without_a_duel_to_call_say_nothing_of_the_features_needed() -> None:
    winners = {"p0": (1, 1, -1), "p1": (0, 0, 0)}
    runs: Runs = {(RANDOM, 0): TIED | {"right": [[0, 1, 3], [0, 0, 0]]}}
    rows = summary_of(made(runs, winner=winners))
    needed = of_cell(rows, "acquisition_saved", "count", RANDOM, target="likelihood", **LINEARITY)
    assert needed[["value", "low", "high"]].to_numpy().tolist() == [[2, 2, 2]]


def test_patients_without_any_signal_have_no_accuracy_and_no_features_to_save() -> None:
    rows = summary_of(made({(RANDOM, 0): TIED, (GREEDY, 0): TIED}, winner={"p0": (0, 0, 0), "p1": (0, 0, 0)}))
    accuracy = of_cell(rows, "allocation_sign", "accuracy", GREEDY, **LINEARITY)
    assert accuracy["value"].isna().all()
    assert set(accuracy["n"]) == {0}
    assert values(rows, "allocation_sign", "count", None, stratum="tied_at_full_observation") == [6]
    strata = rows.loc[(rows["table"] == "acquisition_saved") & (rows["target"] == "likelihood"), "stratum"]
    assert set(strata) == {"p_at_k 90%", "p_at_k 95%", "p_at_k 99%"}


def test_resolved_duels_are_a_share_of_all_and_none_is_wrong() -> None:
    rows = summary_of(made({(RANDOM, 0): {"resolved": [[0, 1, 3], [0, 0, 2]]}, (RANDOM, 1): {"resolved": 1}}))
    found = of_cell(rows, "bracket_rate", "rate", RANDOM, method="wald", reference="l1_tight")
    assert found["t"].tolist() == [0, 2]
    assert found["value"].tolist() == pytest.approx([2 / 12, 7 / 12])
    wrong = of_cell(rows, "bracket_rate", "rate", RANDOM, stratum="wrong", reference="l1_tight")
    assert wrong[["value", "n"]].to_numpy().tolist() == [[0, 2], [0, 7]]


def test_a_rigorous_bracket_that_was_wrong_stops_the_summary_with_cell_and_patient() -> None:
    runs = BY_HAND | {(GREEDY, 0): {"resolved": 2, "resolved_wrong": [[0, 0, 0], [0, 1, 0]]}}
    with pytest.raises(SanityError, match=r"run greedy/cmi/every/0, patient p1, t 1.*contradicts"):
        summary_of(made(runs))


def test_a_certificate_that_is_withdrawn_stops_the_summary() -> None:
    runs = BY_HAND | {(GREEDY, 0): {"certified": [[False, True, False], [False] * 3]}}
    with pytest.raises(SanityError, match=r"patient p0, t 2.*withdrawn"):
        summary_of(made(runs))


def without(name: str, row: int) -> Any:
    return lambda tables: tables | {name: tables[name].drop(index=row)}


def with_value(name: str, row: int, column: str, value: Any) -> Any:
    def change(tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        table = tables[name].copy()
        table[column] = [value if i == row else old for i, old in enumerate(table[column])]
        return tables | {name: table}

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            without("rounds", 4),
            r"table rounds, run random//every/0, method linearity, patient p1, t 1: .*none or several",
        ),
        (without("choices", 17), r"table choices, run greedy/cmi/every/0, patient p1, t 2"),
        (without("duels", 4), r"table duels, patient p1, entity_a and entity_b a/c"),
        (without("targets", 0), r"table targets, patient p0, entity a"),
        (with_value("rounds", 4, "t", 0), r"method linearity, patient p1, t 0: .*none or several"),
        (with_value("rounds", 4, "patient", "p9"), r"table rounds, row 4: found a patient that is missing or unknown"),
        (with_value("choices", 2, "t", 9), r"table choices, row 2: found a t that is"),
        (with_value("rounds", 0, "right", np.nan), r"method linearity, patient p0, t 0: found no right"),
        (with_value("rounds", 0, "right", 3.5), r"patient p0, t 0: found right above what there is"),
        (with_value("rounds", 0, "p_at_k", 1.2), r"found p_at_k above what there is"),
        (
            with_value("rounds", 0, "clinical_p_at_k", np.nan),
            r"patient p0, t 0: found clinical_p_at_k given or missing",
        ),
        (with_value("rounds", 3, "clinical_p_at_k", 0.0), r"patient p1, t 0: found clinical_p_at_k given or missing"),
        (lambda tables: tables | {"choices": tables["choices"].head(12)}, "table choices: found other runs"),
    ],
)
def test_tables_that_are_not_whole_are_refused_by_place(damage: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        summary_of(damage(made(BY_HAND)))


def test_neither_the_order_of_rows_nor_the_type_of_names_matters(by_hand: pd.DataFrame) -> None:
    tables = made(BY_HAND)
    categories = {
        name: table.astype(
            {key: "category" for key in table if key in ("allocation", "gain", "schedule", "method", "patient")}
        )
        for name, table in tables.items()
    }
    pd.testing.assert_frame_equal(summary_of(categories), by_hand)
    shuffled = tables | {name: tables[name].sample(frac=1, random_state=3) for name in ("rounds", "choices")}
    keys = list(by_hand.columns[: list(by_hand.columns).index("value")])
    pd.testing.assert_frame_equal(
        *(rows.sort_values(keys, ignore_index=True) for rows in (summary_of(shuffled), by_hand)), check_exact=True
    )


def test_the_numbers_are_those_of_plain_loops_over_patients() -> None:
    generator = np.random.default_rng(4)
    names = [f"p{i}" for i in range(9)]
    winners = {name: tuple(int(w) for w in generator.integers(-1, 2, 3)) for name in names}
    decided = np.array([[w != 0 for w in winners[name]] for name in names]).sum(axis=1)
    cells = {RANDOM: (0, 1, 2), GREEDY: (0,), ("boundary", "cmi", "paper"): (0,)}
    runs: Runs = {}
    for cell, seeds in cells.items():
        for seed in seeds:
            right = np.floor(generator.random((9, 13)) * (decided[:, None] + 1) * 2) / 2
            right = np.minimum(right, decided[:, None])
            right[:, -1] = decided
            runs[cell, seed] = {
                "right": right,
                "right_first": 0,
                "right_prior_wrong": 0,
                "p_at_k": generator.random((9, 13)),
            }
    same = dict.fromkeys(names, (0, 0, 0))
    gone = dict.fromkeys(("clinical_p_at_k", "clinical_r_precision"), np.nan)
    runs = {key: given | gone for key, given in runs.items()}
    tables = made(runs, rounds=13, winner=winners, prior_wrong=same, label=same, top=dict.fromkeys(names, (2, 2, 0)))
    rows = summary_of(tables)
    curves = {}
    for cell, seeds in cells.items():
        sums = [sum(runs[cell, seed]["right"][p] for seed in seeds) for p in range(9)]
        curves[cell] = sum(sums) / (len(seeds) * decided.sum())
        assert values(rows, "allocation_sign", "accuracy", cell, **LINEARITY) == pytest.approx(curves[cell].tolist())
        precision = np.mean([runs[cell, seed]["p_at_k"] for seed in seeds], axis=(0, 1))
        found = values(rows, "allocation_p_at_k", "p_at_k", cell, target="likelihood", **LINEARITY)
        assert found == pytest.approx(precision.tolist(), abs=1e-7)
        needed = max((t + 1 for t in range(13) if curves[cell][t] < 0.95), default=0)
        assert values(rows, "acquisition_saved", "count", cell, target="likelihood", **LINEARITY) == [needed]
        gap = of_cell(rows, "allocation_sign", "gap", cell, reference="random", **LINEARITY).set_index("t")["value"]
        for t in gap.index:
            assert gap[t] == pytest.approx(curves[cell][int(t)] - curves[RANDOM][int(t)])
