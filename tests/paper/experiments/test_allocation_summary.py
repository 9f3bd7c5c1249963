"""The summary of the allocation grid on tables small enough to work by hand, and against plain loops."""

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

from afa.errors import ConfigError
from afa.evaluate.inputs import rounds_up_to
from afa.model.orders import PAPER_ROUNDS
from afa.paper.experiments.allocation import references, shown_rounds, summarise
from afa.paper.experiments.allocation.cells import GridCell
from afa.paper.experiments.settings import Bootstrap


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
    assert references(GridCell("boundary", "cmi", "paper")) == {
        "random": GridCell("random", "", "every"),
        "greedy": GridCell("greedy", "cmi", "paper"),
        "clustered": GridCell("clustered", "cmi", "paper"),
        "largest_unary": GridCell("largest_unary", "", "paper"),
        "every": GridCell("boundary", "cmi", "every"),
    }
    assert list(references(GridCell("greedy", "cmi", "every"))) == ["random", "clustered", "largest_unary"]
    assert list(references(GridCell("largest_unary", "", "every"))) == ["random"]
    assert references(GridCell("random", "", "every")) == {}


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
    assert rounds_up_to(PAPER_ROUNDS, 21) == [0, 10, 21]
    assert rounds_up_to(PAPER_ROUNDS, 150) == [0, 10, 50, 100, 150]
    assert rounds_up_to(PAPER_ROUNDS, 253) == [0, 10, 50, 100, 150, 253]
    assert shown_rounds(3) == rounds_up_to(PAPER_ROUNDS, 3) == [0, 3]


def test_random_is_the_reference_every_tenth_round_and_the_others_less_often() -> None:
    cells = (RANDOM, GREEDY, ("boundary", "cmi", "every"))
    rows = summary_of(made({(cell, 0): {} for cell in cells}, rounds=22))
    for table, where in (("allocation_sign", LINEARITY), ("certified_round", {"quantity": "certified"})):
        for reference, rounds in (("random", [0, 10, 20, 21]), ("greedy", [0, 10, 21])):
            found = of_cell(rows, table, "gap", cells[2], reference=reference, **where)
            assert found["t"].tolist() == rounds


def test_on_the_hardest_patients_the_papers_rule_is_compared_with_every_method_there_is() -> None:
    ours, lucb = ("priority_clusters", "cmi", "paper"), ("lucb", "cmi", "paper")
    runs: Runs = {
        (RANDOM, 0): {"right": [[1, 2, 3], [0, 0, 2]]},
        (ours, 0): {"right": [[1, 3, 3], [0, 1, 2]]},
        (lucb, 0): {"right": [[2, 2, 3], [0, 2, 2]]},
    }
    rows = summary_of(made(runs, rounds=3))
    # p0, of three duels, is chaotic; p1 has two
    for stratum, leads in {"chaotic": (0, -1 / 3), "non_chaotic": (0, 0)}.items():
        for rule, lead in zip(("random", "lucb"), leads, strict=True):
            found = of_cell(rows, "allocation_sign", "gap", ours, stratum=stratum, reference=rule, **LINEARITY)
            assert found["t"].tolist() == [0, 2]
            assert found["value"].tolist() == pytest.approx([lead, 0])
        assert not of_cell(rows, "allocation_sign", "gap", ours, stratum=stratum, reference="greedy").size
        assert not of_cell(rows, "allocation_sign", "gap", lucb, stratum=stratum).size


def test_rounds_that_the_fallback_decided_are_counted_from_the_first_choice() -> None:
    runs = {(GREEDY, 0): {"fallback": [[False, True, True], [False, False, True]]}}
    found = of_cell(summary_of(made(runs)), "allocation_sign", "rate", GREEDY, quantity="fallback").iloc[0]
    assert found[["value", "n"]].tolist() == [3 / 4, 4]
    assert np.isnan(found["t"])


def test_constant_answers_and_ties_stand_beside_the_accuracies(by_hand: pd.DataFrame) -> None:
    # a beats b twice; a and c win once each, and so do c over b and nobody
    assert values(by_hand, "allocation_sign", "majority", None) == [4 / 5]
    assert values(by_hand, "allocation_sign", "prevalence", None) == [3 / 5]
    ties = of_cell(by_hand, "allocation_sign", "count", None, quantity="tied_at_full_observation")
    assert ties[["value", "n"]].to_numpy().tolist() == [[1, 6]]


def test_every_row_names_guide_and_start_and_leaves_out_a_gain_that_there_is_not(by_hand: pd.DataFrame) -> None:
    assert set(by_hand["guide"]) == {"linearity"}
    assert set(by_hand["start"]) == {"uniform"}
    tables = made(BY_HAND)
    raw = summarise(tables, tables, bootstrap=Bootstrap(resamples=100, confidence=0.9))
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
    counts = rows[(rows["table"] == "allocation_p_at_k") & (rows["metric"] == "count")].set_index("quantity")
    assert counts.loc["patients_without_positive", ["value", "n"]].tolist() == [1, 2]
    assert counts.loc["labelled", ["value", "n"]].tolist() == [2, 3]
    assert counts.loc["k_clinical", "value"] == 1
    assert counts.loc["not_comparable", "value"] == 1


def test_answers_that_look_at_no_patient_stand_beside_the_precision() -> None:
    rows = summary_of(made(PRECISE))
    # a and b are p1's top 2; of p0's b and c are tied, and there is room for one of them
    fixed = of_cell(rows, "allocation_p_at_k", "p_at_k", None, method="fixed_top_k").iloc[0]
    assert fixed[["value", "n", "target"]].tolist() == [1, 2, "likelihood"]
    for metric in ("p_at_k", "r_precision"):
        order = of_cell(rows, "allocation_p_at_k", metric, None, method="prevalence_order").iloc[0]
        assert order[["value", "n", "target"]].tolist() == [1, 1, "clinical"]


def test_a_patient_with_fewer_labels_than_places_has_so_many_places() -> None:
    runs: Runs = {(RANDOM, 0): {}}
    rows = summary_of(made(runs, label={"p0": (None, 1, None), "p1": (0, 1, 1)}, k_clinical=2))
    # p0 has one place and b on it; p1 has b and c, whose labels are positive wherever they are known
    assert values(rows, "allocation_p_at_k", "p_at_k", None, method="prevalence_order") == [1]


@pytest.mark.parametrize("k_clinical", [0, 1])
def test_without_a_clinical_target_there_are_its_counts_alone(k_clinical: int) -> None:
    labels = {"p0": (1, None, None), "p1": (0, None, None)} if k_clinical == 0 else {"p0": (0,) * 3, "p1": (0,) * 3}
    gone = {name: [[np.nan] * 3] * 2 for name in ("clinical_p_at_k", "clinical_r_precision")}
    rows = summary_of(made({(RANDOM, 0): gone, (GREEDY, 0): gone}, label=labels, k_clinical=k_clinical))
    clinical = rows[rows["target"] == "clinical"]
    assert set(clinical["metric"]) == {"count"}
    assert clinical["quantity"].tolist() == ["patients_without_positive", "labelled", "k_clinical", "not_comparable"]


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
        where = LINEARITY | {"target": "likelihood", "quantity": "accuracy", "level": 0.95}
        assert values(rows, "acquisition_saved", "count", cell, **where) == [needed]
        gap = of_cell(rows, "allocation_sign", "gap", cell, reference="random", **LINEARITY).set_index("t")["value"]
        for t in gap.index:
            assert gap[t] == pytest.approx(curves[cell][int(t)] - curves[RANDOM][int(t)])
