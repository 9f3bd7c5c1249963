"""Groups of chaotic patients, their gaps and how stable they are, by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of

from afa.cohort.cohort import Cohort
from afa.evaluate.accuracy import Resampled
from afa.model.bundle import Bundle
from afa.paper.experiments.chaos import (
    COMPARISONS,
    DEFINITIONS,
    chaos_strata,
    membership_stability,
    run,
    summarise,
)
from afa.paper.experiments.settings import Bootstrap, Chaos, Inference

SEEDS = {"selecting": (0, 1), "measuring": (4, 2, 7)}


def flips_of(cells: dict[tuple[str, str], tuple[list[int], list[float]]], n: int) -> pd.DataFrame:
    """The table `flips` of n patients: (flips, magnitudes) by (seed_set, definition), the same where none is given."""
    plain = cells[("selecting", "wald")]
    tables = []
    for seed_set in SEEDS:
        for definition in DEFINITIONS:
            flips, magnitude = cells.get((seed_set, definition), plain)
            table = pd.DataFrame({"patient": [f"p{i}" for i in range(n)], "flips": flips, "magnitude": magnitude})
            tables.append(table.assign(seed_set=seed_set, definition=definition, runs=10, nonzero=range(n)))
    return pd.concat(tables, ignore_index=True)


def members(strata: pd.DataFrame, seed_set: str = "selecting", definition: str = "wald") -> list[str]:
    cell = strata[(strata["seed_set"] == seed_set) & (strata["definition"] == definition)]
    return cell.loc[cell["chaotic"], "patient"].tolist()


def test_chaotic_is_at_the_upper_quartile_by_flips_and_above_the_median_in_magnitude() -> None:
    # of 5 values the 75th percentile is the fourth: p1, p3 and p4 reach it; 3.0 is the median and is not above it
    strata = chaos_strata(flips_of({("selecting", "wald"): ([1, 20, 3, 20, 40], [1.0, 4.0, 2.0, 3.0, 5.0])}, 5))
    assert members(strata) == ["p1", "p4"]
    cell = strata[(strata["seed_set"] == "selecting") & (strata["definition"] == "wald")]
    assert cell["flips"].tolist() == [0.1, 2.0, 0.3, 2.0, 4.0]
    assert set(cell["flips_quartile"]) == {2.0}
    assert set(cell["magnitude_median"]) == {3.0}


def made_tables() -> dict[str, pd.DataFrame]:
    """Four patients of two duels and two rounds; p3 is chaotic on the selecting orders and p2 on the measuring ones."""
    flips = flips_of(
        {
            ("selecting", "wald"): ([0, 0, 0, 9], [0.0, 0.0, 1.0, 2.0]),
            ("measuring", "wald"): ([0, 0, 9, 0], [0.0, 0.0, 1.0, 2.0]),
        },
        4,
    )
    flips.loc[(flips["definition"] == "wald_50") & (flips["patient"] == "p2"), "flips"] = 99
    right = {
        ("measuring", "linearity"): [[1.0, 2.0], [1.0, 1.0], [2.0, 2.0], [2.0, 2.0]],
        ("measuring", "wald"): [[1.0, 2.0], [1.0, 1.0], [1.0, 1.0], [0.5, 1.0]],
        ("selecting", "linearity"): [[2.0, 2.0]] * 4,
        ("selecting", "wald"): [[1.0, 1.0]] * 3 + [[0.0, 0.0]],
    }
    rounds = [
        {"patient": f"p{p}", "seed_set": seed_set, "method": method, "t": t, "right": value, "duels": 2}
        for (seed_set, method), by_patient in right.items()
        for p, values in enumerate(by_patient)
        for t, value in enumerate(values)
    ]
    winners = {"p0": (1, 1), "p1": (1, 1), "p2": (1, -1), "p3": (-1, 0)}
    duels = [
        {"patient": name, "entity_a": "u", "entity_b": b, "winner": winner}
        for name, both in winners.items()
        for b, winner in zip("vw", both, strict=True)
    ]
    return {"flips": flips, "rounds": pd.DataFrame(rounds), "duels": pd.DataFrame(duels)}


def summary_of(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    summary = summarise(tables, bootstrap=Bootstrap(resamples=200, confidence=0.95))
    return summary.fillna(dict.fromkeys(["quantity", "stratum", "variant", "reference"], ""))


def values_of(summary: pd.DataFrame, metric: str, **where: str) -> list[float]:
    """By t; quantity, stratum and variant are empty unless given."""
    chosen = summary[summary["metric"] == metric]
    for column, value in {"quantity": "", "stratum": "", "variant": "", **where}.items():
        chosen = chosen[chosen[column] == value]
    assert chosen["t"].isna().all() or chosen["t"].tolist() == list(range(len(chosen)))
    return chosen["value"].tolist()


@pytest.fixture(scope="module")
def summary() -> pd.DataFrame:
    return summary_of(made_tables())


@pytest.mark.parametrize(
    ("group", "gap"),
    [
        ({}, [(6 - 3.5) / 8, (7 - 5) / 8]),
        ({"stratum": "chaotic"}, [1.5 / 2, 1 / 2]),
        ({"stratum": "non_chaotic"}, [1 / 6, 1 / 6]),
        ({"stratum": "chaotic_minus_non_chaotic"}, [1.5 / 2 - 1 / 6, 1 / 2 - 1 / 6]),
        ({"quantity": "selecting"}, [5 / 8, 5 / 8]),
        ({"stratum": "chaotic", "quantity": "selecting"}, [1.0, 1.0]),
        ({"stratum": "non_chaotic", "quantity": "selecting"}, [1 / 2, 1 / 2]),
        ({"stratum": "chaotic", "variant": "wald_50"}, [1 / 2, 1 / 2]),
    ],
)
def test_the_gap_of_groups_formed_on_selecting_orders_is_worked_by_hand(
    summary: pd.DataFrame, group: dict[str, str], gap: list[float]
) -> None:
    assert values_of(summary, "gap", **group) == pytest.approx(gap)


def test_accuracies_are_what_the_gap_is_between(summary: pd.DataFrame) -> None:
    assert values_of(summary, "accuracy", stratum="chaotic", method="linearity") == [1.0, 1.0]
    assert values_of(summary, "accuracy", stratum="chaotic", method="wald") == [0.25, 0.5]
    selecting = {"quantity": "selecting"}
    chosen = {"stratum": "chaotic", "variant": "wald_50", **selecting}
    for group in ({}, {"stratum": "non_chaotic"}, selecting, chosen):
        linearity, wald = (
            np.array(values_of(summary, "accuracy", method=method, **group)) for method in ("linearity", "wald")
        )
        assert linearity.size == 2
        assert values_of(summary, "gap", **group) == pytest.approx((linearity - wald).tolist())


def test_the_orders_that_accuracy_is_counted_on_do_not_move_the_groups() -> None:
    tables = made_tables()
    before = summary_of(tables)
    measured = tables["flips"]["seed_set"] == "measuring"
    tables["flips"].loc[measured, "flips"] = tables["flips"].loc[measured, "flips"].to_numpy()[::-1]
    after = summary_of(tables)
    gaps = [table[table["metric"].isin(["gap", "count", "accuracy"])] for table in (before, after)]
    pd.testing.assert_frame_equal(*gaps)
    tables["flips"].loc[~measured, "flips"] = tables["flips"].loc[~measured, "flips"].to_numpy()[::-1]
    assert values_of(summary_of(tables), "gap", stratum="non_chaotic") != values_of(
        before, "gap", stratum="non_chaotic"
    )


def test_groups_are_counted_and_so_are_ties(summary: pd.DataFrame) -> None:
    counts = summary[summary["metric"] == "count"].set_index(["quantity", "stratum", "variant"])
    sizes, ties = counts.loc[""], counts.loc["tied_at_full_observation"]
    groups = [("", ""), ("chaotic", ""), ("non_chaotic", ""), ("chaotic", "wald_50")]
    assert sizes.loc[groups, "value"].tolist() == [4, 1, 3, 1]
    assert set(sizes["n"]) == {4}
    assert ties[["value", "n"]].to_numpy().tolist() == [[1, 8]]


def test_a_constant_answer_is_chosen_within_the_group_and_beside_it_on_all_patients(summary: pd.DataFrame) -> None:
    # u beats v for all but p3; against w, p0 and p1 have one side, p2 the other, p3 a tie
    majority = summary[(summary["metric"] == "majority") & (summary["variant"] == "")]
    majority = majority.set_index(["stratum", "reference"])
    assert majority.loc[("", ""), "value"] == pytest.approx(5 / 7)
    assert majority.loc[("chaotic", ""), "value"] == 1.0
    assert majority.loc[("chaotic", "all_patients"), "value"] == 0.0
    assert majority.loc[("non_chaotic", ""), "value"] == pytest.approx(5 / 6)
    assert majority.loc[("chaotic", ""), "n"] == 1


def followed(bundle: Bundle, values: np.ndarray) -> dict[str, pd.DataFrame]:
    nobody = pd.DataFrame(index=[f"p{i}" for i in range(len(values))])
    cohort = Cohort("made", bundle.features, tuple(nobody.index), values.astype(np.int8), nobody)
    seeds = Chaos(**{f"{name}_seeds": numbers for name, numbers in SEEDS.items()})
    return run(bundle, cohort, range(len(values)), chaos=seeds, inference=Inference())


def test_the_gap_of_all_patients_is_that_of_the_groups_weighted_by_their_duels(bundle_tiny: Bundle) -> None:
    whole = followed(bundle_tiny, np.random.default_rng(16).integers(-1, 2, (7, len(bundle_tiny.features))))
    summary = summary_of(whole)
    gaps = summary[(summary["metric"] == "gap") & (summary["quantity"] == "") & (summary["variant"] == "")]
    gaps = gaps.set_index(["stratum", "t"])
    assert members(chaos_strata(whole["flips"]))
    for t in range(6):
        chaotic, others, every = (gaps.loc[(name, t)] for name in ("chaotic", "non_chaotic", ""))
        weighted = chaotic["value"] * chaotic["n"] + others["value"] * others["n"]
        assert every["n"] == chaotic["n"] + others["n"]
        assert every["value"] == pytest.approx(weighted / every["n"])


def test_intervals_hold_their_values_and_are_as_wide_as_patients_differ(summary: pd.DataFrame) -> None:
    gaps = summary[(summary["metric"] == "gap") & (summary["t"] == 0)].set_index(["quantity", "variant", "stratum"])
    assert (gaps["low"] <= gaps["value"]).all()
    assert (gaps["value"] <= gaps["high"]).all()
    plain = gaps.sort_index().loc["", ""]
    assert plain.loc["chaotic", ["low", "high"]].tolist() == [0.75, 0.75]
    assert plain.loc["non_chaotic", "high"] > plain.loc["non_chaotic", "low"]


def test_groups_of_a_cohort_without_any_signal_have_their_counts_alone() -> None:
    bundle = bundle_of([[1.0, 0.5], [0.0, 0.5], [-1.0, 0.0]], np.zeros((3, 2, 2)))
    summary = summary_of(followed(bundle, np.zeros((3, 2))))
    assert values_of(summary, "count") == [3]
    assert values_of(summary, "count", stratum="chaotic") == [0]
    assert values_of(summary, "count", stratum="non_chaotic") == [3]
    assert values_of(summary, "count", quantity="tied_at_full_observation") == [9]
    assert (summary.loc[summary["metric"] == "gap", "stratum"] == "").all()


def stability(flips: pd.DataFrame) -> pd.Series:
    strata = chaos_strata(flips)
    n = strata["patient"].nunique()
    resampled = Resampled.of(range(n), resamples=100, confidence=0.9, purpose="test")
    rows = membership_stability(strata, resampled).fillna({"stratum": ""})
    return rows.set_index(["variant", "reference", "stratum", "quantity"])["value"].sort_index()


def test_memberships_that_are_the_same_agree_wholly() -> None:
    found = stability(flips_of({("selecting", "wald"): ([0, 1, 2, 3, 4, 5, 6, 7], list(map(float, range(8))))}, 8))
    for variant, reference, stratum in COMPARISONS:
        of_two = found[variant, reference, stratum or ""]
        assert of_two[["agreement", "found", "flagged", "rank_correlation"]].tolist() == [1, 1, 0.25, 1]
        assert of_two["chance"] == pytest.approx(0.25**2 + 0.75**2)


def test_the_stability_of_memberships_is_worked_by_hand() -> None:
    magnitude = [0.0] * 4 + [1.0] * 4
    # p6 and p7 by the first, p5 and p7 by the second, the only two whose flips differ
    found = stability(
        flips_of(
            {
                ("selecting", "wald"): ([0, 1, 2, 3, 4, 7, 5, 6], magnitude),
                ("selecting", "wald_50"): ([0, 1, 2, 3, 4, 5, 6, 7], magnitude),
            },
            8,
        )
    )["wald_50", "plain", ""]
    assert found[["agreement", "found", "flagged"]].tolist() == [0.75, 0.5, 0.25]
    assert found["rank_correlation"] == pytest.approx(1 - 6 * (4 + 1 + 1) / (8 * 63))


def test_early_membership_is_held_against_whole_runs_on_other_orders() -> None:
    rising, magnitude = list(range(8)), [1.0] * 4 + [2.0] * 4
    cells = {("selecting", "wald"): (rising, magnitude), ("measuring", "wald"): (rising[::-1], magnitude)}
    found = stability(flips_of(cells, 8))
    assert found["early_50", "plain", "", "rank_correlation"] == pytest.approx(1)
    assert found["early_50", "plain", "other_orders", "rank_correlation"] == pytest.approx(-1)
    # on the measuring orders the upper quartile by flips lies below the median in magnitude
    assert np.isnan(found["early_50", "plain", "other_orders", "found"])


def test_flips_are_held_against_how_many_values_are_not_zero() -> None:
    tables = made_tables()
    rows = summary_of(tables)
    # ranks of the flips 0, 0, 0, 9 are 2, 2, 2, 4, those of the counts 1 to 4
    for quantity, ranks in (("flips_nonzero", [1, 2, 3, 4]), ("flips_magnitude", [1.5, 1.5, 3, 4])):
        expected = np.corrcoef([2, 2, 2, 4], ranks)[0, 1]
        assert values_of(rows, "correlation", quantity=quantity) == pytest.approx([expected])
