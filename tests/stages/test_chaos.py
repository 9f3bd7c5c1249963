"""Chaotic patients are found on one set of orders and measured on another; every number is that of a plain loop."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from bundles import QUARTERS, bundle_of, random_bundles
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.errors import ConfigError
from afa.inference.meanfield import Solver
from afa.orders import random_order
from afa.planner import TopKPlanner
from afa.stages import sign
from afa.stages.chaos import tables as chaos_module
from afa.stages.chaos.numbers import COMPARISONS, chaos_strata, membership_stability, summarise_chaos
from afa.stages.chaos.tables import DEFINITIONS, EARLY, chaos, count_flips, magnitudes
from afa.stages.inputs import shard_of
from afa.stages.settings import Inference, RandomOrder
from afa.stats.accuracy import Resampled
from afa.stats.tables import gather_tables, write_tables

SEEDS = {"selecting": (0, 1), "measuring": (4, 2, 7)}
NAMES = ("flips", "rounds", "duels")
PATIENTS = 7


def cohort_of(bundle: Bundle, values: np.ndarray) -> Cohort:
    names = tuple(f"p{i}" for i in range(len(values)))
    return Cohort("made", bundle.features, names, values.astype(np.int8), pd.DataFrame(index=list(names)))


def run(bundle: Bundle, cohort: Cohort, patients: range, **changes: object) -> dict[str, pd.DataFrame]:
    settings = {"selecting_seeds": SEEDS["selecting"], "measuring_seeds": SEEDS["measuring"], "solver": Solver()}
    return chaos(bundle, cohort, patients, **{**settings, **changes})


@pytest.fixture(scope="module")
def cohort(bundle_tiny: Bundle) -> Cohort:
    values = np.random.default_rng(16).integers(-1, 2, (PATIENTS, len(bundle_tiny.features)))
    values[3] = 0
    return cohort_of(bundle_tiny, values)


@pytest.fixture(scope="module")
def whole(bundle_tiny: Bundle, cohort: Cohort) -> dict[str, pd.DataFrame]:
    return run(bundle_tiny, cohort, range(PATIENTS))


def turns(path: list[int]) -> int:
    """Changes of side of one pair: its signs without the ties, compared with their neighbours."""
    sides = [sign for sign in path if sign != 0]
    return sum(one != other for one, other in pairwise(sides))


@pytest.mark.parametrize(
    ("path", "flips"),
    [([0, 0, 1], 0), ([1, 0, 1], 0), ([1, 0, -1], 1), ([0, 1, -1, 0, 0, 1, 1], 2), ([1, -1, 1, -1], 3), ([0, 0], 0)],
)
def test_a_tie_keeps_the_sign_before_it_and_a_first_sign_is_no_flip(path: list[int], flips: int) -> None:
    assert count_flips(np.array(path, dtype=np.int8).reshape(1, 1, -1, 1)).tolist() == [[flips]]


@given(arrays(np.int8, st.tuples(*(st.integers(1, 4) for _ in range(4))), elements=st.integers(-1, 1)))
def test_flips_are_those_of_a_plain_loop_over_the_pairs(signs: np.ndarray) -> None:
    expected = [[sum(turns(path) for path in order.T) for order in patient] for patient in signs]
    assert count_flips(signs).tolist() == expected


@given(random_bundles(potentials=QUARTERS), st.data())
def test_the_magnitude_is_the_mean_distance_of_the_energies_of_what_was_seen(
    bundle: Bundle, data: st.DataObject
) -> None:
    m = len(bundle.features)
    values = np.array([data.draw(st.lists(st.integers(-1, 1), min_size=m, max_size=m))], dtype=np.int8)
    orders = np.array([[data.draw(st.permutations(range(m))) for _ in range(2)]], dtype=np.int64)
    t = data.draw(st.integers(0, m))
    distances = []
    for order in orders[0]:
        seen = np.where(np.isin(np.arange(m), order[:t]), values[0], 0)
        energies = [bundle.mrf(entity).energy(seen) for entity in bundle.entities]
        distances += [abs(a - b) for a, b in combinations(energies, 2)]
    assert magnitudes(bundle, values, orders, t) == pytest.approx([np.mean(distances)])


def test_the_flips_of_a_patient_are_those_of_planners_along_the_same_orders(
    bundle_tiny: Bundle, cohort: Cohort, whole: dict[str, pd.DataFrame]
) -> None:
    found = whole["flips"].set_index(["patient", "seed_set", "definition"])
    above = np.triu_indices(len(bundle_tiny.entities), 1)
    for row, patient in enumerate(cohort.patients):
        for seed_set, seeds in SEEDS.items():
            for score in ("wald", "linearity"):
                expected = 0
                for seed in seeds:
                    planner = TopKPlanner(
                        bundle_tiny,
                        k=1,
                        score=score,
                        allocation="random",
                        costs="equal",
                        patient=patient,
                        seed=seed,
                    )
                    paths = [np.sign(planner.scores()[above])]
                    while (feature := planner.next_feature()) is not None:
                        planner.observe(feature, int(cohort.values[row, bundle_tiny.features.index(feature)]))
                        paths.append(np.sign(planner.scores()[above]))
                    expected += sum(turns(list(path)) for path in np.array(paths).T)
                assert found.loc[(patient, seed_set, score), "flips"] == expected
                assert found.loc[(patient, seed_set, score), "runs"] == 3 * len(seeds)
    assert (found["flips"] > 0).any()


def followed(bundle: Bundle, cohort: Cohort, seeds: tuple[int, ...]) -> dict[str, pd.DataFrame]:
    order = RandomOrder(seeds=seeds, starts=("uniform",))
    return sign.run(bundle, cohort, range(PATIENTS), random_order=order, inference=Inference())


def test_the_calls_are_those_of_sign_convergence_on_the_same_seeds(
    bundle_tiny: Bundle, cohort: Cohort, whole: dict[str, pd.DataFrame]
) -> None:
    key = ["patient", "method", "t"]
    for seed_set, seeds in SEEDS.items():
        rounds = followed(bundle_tiny, cohort, seeds)["rounds"]
        rounds = rounds[rounds["method"].isin(["linearity", "wald"])]
        expected = rounds.groupby(key)[["right", "duels"]].sum()
        found = whole["rounds"][whole["rounds"]["seed_set"] == seed_set].set_index(key)[["right", "duels"]]
        pd.testing.assert_frame_equal(found.sort_index(), expected, check_dtype=False)


def test_the_winners_are_those_of_sign_convergence(
    bundle_tiny: Bundle, cohort: Cohort, whole: dict[str, pd.DataFrame]
) -> None:
    expected = followed(bundle_tiny, cohort, (0,))["duels"]
    columns = ["patient", "entity_a", "entity_b", "winner"]
    pd.testing.assert_frame_equal(whole["duels"][columns], expected[columns])


def late_and_early() -> tuple[Bundle, np.ndarray, np.ndarray]:
    """Two entities on 60 features, a patient of ones, and where its first order puts each feature."""
    unary = np.random.default_rng(0).choice([-1.0, 1.0], (2, EARLY + 10))
    bundle = bundle_of(unary, np.zeros((2, EARLY + 10, EARLY + 10)))
    order = random_order(bundle.features, patient="p0", seed=0)
    return bundle, np.ones((1, EARLY + 10)), order


def cells_of(bundle: Bundle, values: np.ndarray) -> pd.DataFrame:
    table = run(bundle, cohort_of(bundle, values), range(1), selecting_seeds=(0,))["flips"]
    return table[table["seed_set"] == "selecting"].set_index("definition")[["flips", "magnitude"]]


def test_what_is_known_at_round_50_does_not_depend_on_what_comes_after() -> None:
    bundle, values, order = late_and_early()
    before = cells_of(bundle, values)
    values[0, order[EARLY:]] *= -1
    after = cells_of(bundle, values)
    assert before.loc["early_50"].tolist() == after.loc["early_50"].tolist()
    assert before.loc["wald_50", "flips"] == after.loc["wald_50", "flips"]
    assert before.loc["wald_50", "magnitude"] != after.loc["wald_50", "magnitude"]


def test_the_fiftieth_observation_is_the_last_that_the_early_definitions_see() -> None:
    _, values, order = late_and_early()
    for place, changes in ((EARLY - 1, True), (EARLY, False)):
        # v0 less v1 is then 0 but for one feature, at this place in the order
        unary = np.zeros((2, EARLY + 10))
        unary[0, order[place]] = 1.0
        only = bundle_of(unary, np.zeros((2, EARLY + 10, EARLY + 10)))
        assert (cells_of(only, values).loc["early_50", "magnitude"] > 0) == changes


@pytest.mark.parametrize("parts", [2, 7])
def test_shards_joined_are_the_whole_byte_for_byte(
    bundle_tiny: Bundle, cohort: Cohort, whole: dict[str, pd.DataFrame], tmp_path: Path, parts: int
) -> None:
    folders = [tmp_path / f"{part}" for part in range(parts + 1)]
    for part, folder in enumerate(folders):
        # the last shard has no patient
        chosen = shard_of(PATIENTS, f"{part + 1}/{parts}") if part < parts else range(0)
        write_tables(run(bundle_tiny, cohort, chosen), folder)
    gather_tables(folders, tmp_path / "joined")
    write_tables(whole, tmp_path / "whole")
    gather_tables([tmp_path / "whole"], tmp_path / "once")
    for name in NAMES:
        joined, once = ((tmp_path / folder / f"{name}.parquet").read_bytes() for folder in ("joined", "once"))
        assert joined == once


def test_the_size_of_blocks_and_the_number_of_threads_do_not_show(
    bundle_tiny: Bundle, cohort: Cohort, whole: dict[str, pd.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chaos_module, "BLOCK_BYTES", 1)
    split = run(bundle_tiny, cohort, range(PATIENTS), threads=2)
    for name in NAMES:
        pd.testing.assert_frame_equal(split[name], whole[name])


@pytest.mark.parametrize(
    ("selecting", "measuring", "found"),
    [((0, 1), (1, 2), "1 in both"), ((), (1,), "seeds none"), ((0,), (), "seeds none"), ((0, 0), (1,), "seeds 0, 0")],
)
def test_groups_cannot_be_measured_on_the_orders_that_formed_them(
    bundle_tiny: Bundle, cohort: Cohort, selecting: tuple[int, ...], measuring: tuple[int, ...], found: str
) -> None:
    with pytest.raises(ConfigError, match=found):
        run(bundle_tiny, cohort, range(1), selecting_seeds=selecting, measuring_seeds=measuring)


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
    summary = summarise_chaos(tables, resamples=200, confidence=0.95)
    return summary.fillna(dict.fromkeys(["quantity", "stratum", "variant", "reference"], ""))


def values_of(summary: pd.DataFrame, metric: str, **where: str) -> list[float]:
    """By t; quantity, stratum and variant are empty unless given."""
    chosen = summary[summary["metric"] == metric]
    for column, value in {"quantity": "", "stratum": "", "variant": "", **where}.items():
        chosen = chosen[chosen[column] == value]
    assert chosen["t"].isna().all() or chosen["t"].tolist() == list(range(len(chosen)))
    return chosen["value"].tolist()


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
    group: dict[str, str], gap: list[float]
) -> None:
    assert values_of(summary_of(made_tables()), "gap", **group) == pytest.approx(gap)


def test_accuracies_are_what_the_gap_is_between() -> None:
    summary = summary_of(made_tables())
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


def test_groups_are_counted_and_so_are_ties() -> None:
    summary = summary_of(made_tables())
    counts = summary[summary["metric"] == "count"].set_index(["quantity", "stratum", "variant"])
    sizes, ties = counts.loc[""], counts.loc["tied_at_full_observation"]
    groups = [("", ""), ("chaotic", ""), ("non_chaotic", ""), ("chaotic", "wald_50")]
    assert sizes.loc[groups, "value"].tolist() == [4, 1, 3, 1]
    assert set(sizes["n"]) == {4}
    assert ties[["value", "n"]].to_numpy().tolist() == [[1, 8]]


def test_a_constant_answer_is_chosen_within_the_group_and_beside_it_on_all_patients() -> None:
    # u beats v for all but p3; against w, p0 and p1 have one side, p2 the other, p3 a tie
    summary = summary_of(made_tables())
    majority = summary[(summary["metric"] == "majority") & (summary["variant"] == "")]
    majority = majority.set_index(["stratum", "reference"])
    assert majority.loc[("", ""), "value"] == pytest.approx(5 / 7)
    assert majority.loc[("chaotic", ""), "value"] == 1.0
    assert majority.loc[("chaotic", "all_patients"), "value"] == 0.0
    assert majority.loc[("non_chaotic", ""), "value"] == pytest.approx(5 / 6)
    assert majority.loc[("chaotic", ""), "n"] == 1


def test_the_gap_of_all_patients_is_that_of_the_groups_weighted_by_their_duels(
    whole: dict[str, pd.DataFrame],
) -> None:
    summary = summary_of(whole)
    gaps = summary[(summary["metric"] == "gap") & (summary["quantity"] == "") & (summary["variant"] == "")]
    gaps = gaps.set_index(["stratum", "t"])
    assert members(chaos_strata(whole["flips"]))
    for t in range(6):
        chaotic, others, every = (gaps.loc[(name, t)] for name in ("chaotic", "non_chaotic", ""))
        weighted = chaotic["value"] * chaotic["n"] + others["value"] * others["n"]
        assert every["n"] == chaotic["n"] + others["n"]
        assert every["value"] == pytest.approx(weighted / every["n"])


def test_intervals_hold_their_values_and_are_as_wide_as_patients_differ() -> None:
    summary = summary_of(made_tables())
    gaps = summary[(summary["metric"] == "gap") & (summary["t"] == 0)].set_index(["quantity", "variant", "stratum"])
    assert (gaps["low"] <= gaps["value"]).all()
    assert (gaps["value"] <= gaps["high"]).all()
    plain = gaps.sort_index().loc["", ""]
    assert plain.loc["chaotic", ["low", "high"]].tolist() == [0.75, 0.75]
    assert plain.loc["non_chaotic", "high"] > plain.loc["non_chaotic", "low"]


def test_groups_of_a_cohort_without_any_signal_have_their_counts_alone() -> None:
    bundle = bundle_of([[1.0, 0.5], [0.0, 0.5], [-1.0, 0.0]], np.zeros((3, 2, 2)))
    summary = summary_of(run(bundle, cohort_of(bundle, np.zeros((3, 2))), range(3)))
    assert values_of(summary, "count") == [3]
    assert values_of(summary, "count", stratum="chaotic") == [0]
    assert values_of(summary, "count", stratum="non_chaotic") == [3]
    assert values_of(summary, "count", quantity="tied_at_full_observation") == [9]
    assert (summary.loc[summary["metric"] == "gap", "stratum"] == "").all()


def stability(flips: pd.DataFrame) -> pd.Series:
    strata = chaos_strata(flips)
    n = strata["patient"].nunique()
    resampled = Resampled.of(n, resamples=100, confidence=0.9, purpose="test")
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


def test_the_values_that_are_not_zero_are_counted(cohort: Cohort, whole: dict[str, pd.DataFrame]) -> None:
    found = whole["flips"].groupby("patient")["nonzero"].agg(["min", "max"])
    expected = (cohort.values != 0).sum(axis=1).tolist()
    assert found["min"].tolist() == found["max"].tolist() == expected
