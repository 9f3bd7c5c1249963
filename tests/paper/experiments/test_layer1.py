"""Layer 1 among duels, held to a plain loop over the readable brackets, and its summary."""

from __future__ import annotations

from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of, rearranged

from afa.cohort.cohort import Cohort
from afa.engine.duels import BRACKETS, RIGOROUS, all_pairs
from afa.engine.outcomes import own_order_calls, shared_order_calls
from afa.errors import SanityError
from afa.evaluate.inputs import final_differences
from afa.evaluate.long_tables import gather_tables, write_tables
from afa.evaluate.summary import KEYS, headline
from afa.inference.meanfield import Solver, mean_field
from afa.inference.result import Marginals
from afa.model.bundle import Bundle
from afa.model.mrf import Evidence, PairwiseMRF
from afa.model.orders import random_order
from afa.paper.experiments import layer1
from afa.paper.experiments.layer1 import ALLOCATIONS, informed_order, informed_pair_orders, quantile, two_digits
from afa.paper.experiments.settings import Bootstrap, Inference, Layer1
from afa.scores.bracket import hanson_wright_interval, kl_interval, l1_interval
from afa.scores.preference import duel_variance, linearity, sign_votes, tie_of

SEEDS = (0, 1)
NAMES = ("calls", "steps", "pairs", "left_open")


def cohort_of(bundle: Bundle, values: object) -> Cohort:
    rows = np.asarray(values, dtype=np.int8)
    # names in an order that is not that of the alphabet
    names = tuple(f"p{(7 * i) % 10}" for i in range(len(rows)))
    return Cohort("made", bundle.features, names, rows, pd.DataFrame(index=list(names)))


def run(
    bundle: Bundle, values: object, patients=None, seeds=SEEDS, threads=None, budget_share=1.0
) -> dict[str, pd.DataFrame]:
    """The stage; with a share below 1 of the budgets of the rigorous brackets these are broken."""
    cohort = cohort_of(bundle, values)
    chosen = range(len(cohort.patients)) if patients is None else patients
    settings = Layer1.model_construct(seeds=seeds)
    with pytest.MonkeyPatch.context() as patched:
        for calls in (shared_order_calls, own_order_calls):
            patched.setattr(layer1, calls.__name__, partial(calls, budget_share=budget_share))
        return layer1.run(bundle, cohort, chosen, layer1=settings, inference=Inference(), threads=threads)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    """Entity u on features enough for the votes to be called, v and w on a few, two features that nobody holds."""
    unary, couplings = np.zeros((3, 28)), np.zeros((3, 28, 28))
    unary[0, :22], unary[1, 12:15], unary[2, [3, 13]] = 1.0, [0.5, -1.0, 0.25], [-0.5, -1.5]
    for entity, j, k, potential in ((0, 2, 3, 0.5), (1, 13, 24, 1.0), (1, 14, 25, -0.75), (2, 3, 24, 0.5)):
        couplings[entity, j, k] = potential
    names = [f"g{(9 * j) % 28:02}" for j in range(28)]
    return bundle_of(unary, couplings, features=names, entities=("u", "v", "w"))


@pytest.fixture(scope="module")
def profiles() -> np.ndarray:
    drawn = np.random.default_rng(5).integers(-1, 2, (4, 28))
    drawn[1], drawn[2] = 1, 0
    return drawn


@pytest.fixture(scope="module")
def whole(bundle: Bundle, profiles: np.ndarray) -> dict[str, pd.DataFrame]:
    return run(bundle, profiles)


def readable_calls(
    models: list[PairwiseMRF], tie: float, observed: dict[str, int], solves: list[tuple[Evidence, Marginals]]
) -> list[int]:
    """The side of 0 of each readable interval of the duel of two models, 0 where it holds 0."""
    evidence, marginals = zip(*solves, strict=True)
    mean = float(linearity(evidence, marginals)[0, 1])
    mean = 0.0 if abs(mean) <= tie else mean
    variance = duel_variance(*evidence, *marginals)
    told = [(models[0].features.index(name), value) for name, value in observed.items()]
    ayes, noes = (int(votes[0, 1]) for votes in sign_votes(models, told))
    difference = Evidence.of(models[0] - models[1], observed)
    intervals = [
        l1_interval(difference),
        l1_interval(difference, form="paper"),
        hanson_wright_interval(difference, mean, variance),
        kl_interval(ayes, noes),
        kl_interval(ayes, noes, len(observed)),
    ]
    return [int(low > 0) - int(high < 0) for low, high in intervals]


def plain_orders(bundle: Bundle, patient: str, a: int, b: int) -> list[tuple[str, int | None, list[int]]]:
    """The orders of one duel of one patient, written down from their definitions."""
    features, difference = range(len(bundle.features)), np.abs(bundle.unary[a] - bundle.unary[b])
    held = set(bundle.support(bundle.entities[a])) | set(bundle.support(bundle.entities[b]))
    total = sum(np.abs(bundle.unary[u] - bundle.unary[v]) for u, v in all_pairs(len(bundle.entities)))
    return [
        *(("random", seed, random_order(bundle.features, patient=patient, seed=seed).tolist()) for seed in SEEDS),
        ("informed", None, sorted(features, key=lambda j: (-total[j], bundle.features[j]))),
        (
            "informed_pair",
            None,
            sorted(features, key=lambda j: (-difference[j], j not in held, bundle.features[j])),
        ),
    ]


def plain_rows(bundle: Bundle, cohort: Cohort) -> pd.DataFrame:
    """By (patient, allocation, seed, a, b, t, bracket): the call, D at the end, features of the duel left."""
    rows = []
    models = [bundle.mrf(name) for name in bundle.entities]

    @cache  # duels share their entities, and orders some of their rounds
    def solved(entity: int, observed: frozenset[tuple[str, int]]) -> tuple[Evidence, Marginals]:
        evidence = Evidence.of(models[entity], dict(observed))
        return evidence, mean_field(models[entity], evidence).marginals

    tie = tie_of(models)
    for patient, x in zip(cohort.patients, cohort.values, strict=True):
        energy = [model.energy(x) for model in models]
        for a, b in all_pairs(len(bundle.entities)):
            held = {*bundle.support(bundle.entities[a]), *bundle.support(bundle.entities[b])}
            for allocation, seed, order in plain_orders(bundle, patient, a, b):
                for t in range(len(order) + 1):
                    seen = {bundle.features[j]: int(x[j]) for j in order[:t]}
                    solves = [solved(entity, frozenset(seen.items())) for entity in (a, b)]
                    calls = readable_calls([models[a], models[b]], tie, seen, solves)
                    left = len(held - set(order[:t]))
                    key = (patient, allocation, -1 if seed is None else seed, a, b, t, energy[a] - energy[b])
                    rows += [(*key, len(held), left, name, call) for name, call in zip(BRACKETS, calls, strict=True)]
    columns = ["patient", "allocation", "seed", "a", "b", "t", "final", "held", "left", "bracket", "call"]
    return pd.DataFrame(rows, columns=columns)


@pytest.fixture(scope="module")
def plain(bundle: Bundle, profiles: np.ndarray) -> pd.DataFrame:
    return plain_rows(bundle, cohort_of(bundle, profiles))


def test_the_calls_are_those_of_a_plain_loop_over_the_readable_brackets(
    whole: dict[str, pd.DataFrame], plain: pd.DataFrame
) -> None:
    called, tied = plain["call"] != 0, plain["final"] == 0
    counted = plain.assign(
        called=called & ~tied, wrong=called & ~tied & (plain["call"] != np.sign(plain["final"])), tied=called & tied
    )
    keys = ["patient", "allocation", "seed", "bracket", "t"]
    expected = counted.groupby(keys)[["called", "wrong", "tied"]].sum()
    found = whole["calls"].fillna({"seed": -1}).set_index(keys)[["called", "wrong", "tied"]].sort_index()
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, check_index_type=False)
    assert (expected.sum() > 0).all()


def test_the_steps_count_calls_by_features_of_the_own_supports(
    whole: dict[str, pd.DataFrame], plain: pd.DataFrame
) -> None:
    expected: dict[tuple[object, ...], int] = {}
    most = int(plain["held"].max())
    duels = plain[plain["final"] != 0].groupby(["patient", "allocation", "seed", "bracket", "a", "b"])
    for (patient, allocation, seed, bracket, _, _), rounds in duels:
        for step in range(most + 1):
            held = int(rounds["held"].iloc[0])
            now = rounds[rounds["left"] == held - min(step, held)].iloc[0]
            key = (patient, allocation, seed, bracket, step)
            expected[key] = expected.get(key, 0) + int(now["call"] != 0)
    steps = whole["steps"].fillna({"seed": -1})
    steps = steps[steps["patient"].isin(plain.loc[plain["final"] != 0, "patient"])]
    found = {tuple(row[:5]): row[5] for row in steps.itertuples(index=False)}
    assert found == expected
    assert whole["steps"].loc[whole["steps"]["patient"] == "p4", "called"].eq(0).all()


def test_what_is_left_open_is_that_of_the_plain_loop(whole: dict[str, pd.DataFrame], plain: pd.DataFrame) -> None:
    last = int(plain["t"].max())
    keys = ["patient", "allocation", "seed", "bracket", "a", "b"]
    early = plain[plain["t"] < last]
    ever = (early["call"] != 0).groupby([early[key] for key in keys]).any()
    within = ((early["call"] != 0) & (early["left"] > 0)).groupby([early[key] for key in keys]).any()
    final = plain.groupby(keys)["final"].first().abs().map(lambda d: float(f"{d:.2g}")).rename("magnitude")
    cases = pd.DataFrame({"duels": 1, "never": ~ever, "never_support": ~within, "magnitude": final}).reset_index()
    by = ["patient", "allocation", "bracket", "magnitude"]
    expected = cases.groupby(by)[["duels", "never", "never_support"]].sum()
    found = whole["left_open"].set_index(by)[["duels", "never", "never_support"]].sort_index()
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


def test_pairs_without_a_winner_are_counted_apart(whole: dict[str, pd.DataFrame], plain: pd.DataFrame) -> None:
    final = plain.groupby(["patient", "a", "b"], sort=False)["final"].first()
    expected = (final != 0).groupby("patient", sort=False).sum()
    pairs = whole["pairs"].set_index("patient")
    assert pairs["duels"].to_dict() == expected.to_dict()
    assert (pairs["duels"] + pairs["tied"]).eq(3).all()
    assert pairs.loc["p4", "tied"] == 3


def test_the_shared_informed_order_goes_by_the_sum_over_pairs_then_by_name() -> None:
    """By feature the sums over the pairs uv, uw, vw are 1 + 1 + 0, 1 + 0 + 1 and 2 + 2 + 0."""
    bundle = bundle_of(
        [[1.0, 1.0, 2.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]], np.zeros((3, 3, 3)), features=("z", "a", "m")
    )
    assert [bundle.features[j] for j in informed_order(bundle)] == ["m", "a", "z"]


def test_the_order_of_a_pair_puts_its_own_features_before_those_of_others() -> None:
    """For u and v: d by 1, then c and e, which the supports hold level, before b and a, which neither holds."""
    features, couplings = ("a", "b", "c", "d", "e"), np.zeros((3, 5, 5))
    couplings[0, 2, 3] = couplings[0, 3, 2] = 1.0
    unary = [[0, 0, 0, 1, 0.5], [0, 0, 0, 0, 0.5], [1, 0, 0, 0, 0]]
    bundle = bundle_of(unary, couplings, features=features)
    named = [[features[j] for j in order] for order in informed_pair_orders(bundle)]
    assert named[0] == ["d", "c", "e", "a", "b"]
    assert named[2] == ["a", "e", "b", "c", "d"]


def test_informed_orders_do_not_depend_on_the_order_of_entities(recorded_bundle: Bundle) -> None:
    turned = rearranged(recorded_bundle, entities=recorded_bundle.entities[::-1])
    np.testing.assert_array_equal(informed_order(turned), informed_order(recorded_bundle))
    by_pair = dict(zip(map(tuple, all_pairs(25)), informed_pair_orders(recorded_bundle), strict=True))
    for (a, b), order in zip(all_pairs(25), informed_pair_orders(turned), strict=True):
        np.testing.assert_array_equal(order, by_pair[24 - b, 24 - a])


def test_an_order_of_their_own_that_all_duels_share_calls_what_a_shared_one_does(
    bundle: Bundle, profiles: np.ndarray
) -> None:
    order, values = informed_order(bundle), profiles.astype(np.int8)
    winners = np.sign(final_differences(bundle, values)).astype(np.int8)
    shared = shared_order_calls(bundle, values, np.tile(order, (4, 1, 1)), winners, solver=Solver())
    own = own_order_calls(bundle, values, np.tile(order, (3, 1)), winners, solver=Solver())
    for one, other in zip(shared, own, strict=True):
        np.testing.assert_array_equal(one, other)
    assert shared.counts.any()


def called_share(tables: dict[str, pd.DataFrame], allocation: str, bracket: str) -> np.ndarray:
    """By t, of all duels under all orders."""
    calls = tables["calls"]
    chosen = calls[(calls["allocation"] == allocation) & (calls["bracket"] == bracket)]
    return chosen.groupby("t")["called"].mean().to_numpy()


@pytest.mark.parametrize("bracket", RIGOROUS)
def test_where_one_feature_outweighs_all_others_informed_orders_call_at_once(bracket: str) -> None:
    bundle = bundle_of([[1.0, 1.0, 1.0, 9.0, 1.0], [0.0] * 5], np.zeros((2, 5, 5)))
    tables = run(bundle, [[1, -1, 1, 1, 0], [0, 1, 1, -1, 1]], seeds=range(10))
    random = called_share(tables, "random", bracket)
    for allocation in ("informed", "informed_pair"):
        informed = called_share(tables, allocation, bracket)
        assert informed.tolist() == [0, 1, 1, 1, 1, 1]
        assert (informed >= random).all()
    assert 0 < random[1] < 1


def test_a_duel_called_by_its_last_own_feature_is_late_but_not_never_called() -> None:
    """Leads 0, 1, 2 against budgets 2, 1, 0: called with the second of two features, before the idle third."""
    bundle = bundle_of([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]], np.zeros((2, 3, 3)))
    tables = run(bundle, [[1, 1, 1], [1, -1, 1]])
    open_ones = tables["left_open"].query("allocation == 'informed' and bracket == 'l1_tight'").set_index("patient")
    columns = ["magnitude", "duels", "never", "never_support"]
    assert open_ones.loc["p0", columns].tolist() == [2.0, 1, 0, 1]
    assert open_ones.loc["p7", columns].tolist() == [0.0, 1, 1, 1]


def test_a_call_of_a_rigorous_bracket_against_full_observation_stops_the_stage() -> None:
    """Without a budget the call after the first feature, for u, stands against D = 1 - 2 = -1."""
    bundle = bundle_of([[1.0, 2.0], [0.0, 0.0]], np.zeros((2, 2, 2)), entities=("u", "v"), features=("a", "b"))
    with pytest.raises(SanityError) as raised:
        run(bundle, [[0, 1], [1, -1]], seeds=range(8), budget_share=0.0)
    fault = raised.value.faults[0]
    assert "patient p7, pair u and v, random order, seed" in fault.where
    assert fault.where.endswith("t = 1")
    assert fault.found == "a call for u by l1_tight"
    assert fault.expected == "the sign of D = -1 at full observation"
    assert run(bundle, [[0, 1], [1, -1]], seeds=range(8))["pairs"]["duels"].tolist() == [1, 1]


def test_a_rigorous_call_of_a_duel_that_ends_in_a_tie_stops_the_stage() -> None:
    bundle = bundle_of([[1.0, 1.0], [0.0, 0.0]], np.zeros((2, 2, 2)))
    with pytest.raises(SanityError, match="informed_pair order, t = 1: found a call for v0 by l1_tight"):
        run(bundle, [[1, -1]], seeds=(), budget_share=0.0)
    assert run(bundle, [[1, -1]], seeds=())["pairs"]["tied"].tolist() == [1]


@pytest.mark.parametrize("cuts", [(0, 3, 4), (0, 1, 2, 3, 4), (0, 0, 4)])
def test_tables_of_parts_of_the_patients_follow_on_each_other_byte_for_byte(
    bundle: Bundle,
    profiles: np.ndarray,
    whole: dict[str, pd.DataFrame],
    tmp_path: Path,
    cuts: tuple[int, ...],
) -> None:
    parts = [run(bundle, profiles, range(a, b)) for a, b in pairwise(cuts)]
    filled = [part for part in parts if len(part["pairs"])]
    for name in NAMES:
        joined = pd.concat([part[name] for part in filled], ignore_index=True)
        pd.testing.assert_frame_equal(joined, whole[name], check_exact=True)
    for i, part in enumerate(parts):
        write_tables(part, tmp_path / str(i))
    write_tables(whole, tmp_path / "whole")
    gather_tables([tmp_path / str(i) for i in range(len(parts))], tmp_path / "joined")
    gather_tables([tmp_path / "whole"], tmp_path / "once")
    for name in NAMES:
        joined_bytes, once = ((tmp_path / folder / f"{name}.parquet").read_bytes() for folder in ("joined", "once"))
        assert joined_bytes == once


def test_threads_change_no_byte(bundle: Bundle, profiles: np.ndarray, whole: dict[str, pd.DataFrame]) -> None:
    again = run(bundle, profiles, threads=2)
    for name in NAMES:
        pd.testing.assert_frame_equal(again[name], whole[name], check_exact=True)


@pytest.fixture(scope="module")
def rows(whole: dict[str, pd.DataFrame]) -> pd.DataFrame:
    return layer1.summarise(whole, bootstrap=Bootstrap(resamples=200, confidence=0.9))


def test_keys_of_the_summary_are_unique_and_every_order_and_bracket_has_a_headline(rows: pd.DataFrame) -> None:
    assert not rows.duplicated(KEYS).any()
    rates = headline(rows[rows["metric"] == "rate"])
    assert rates.groupby(["allocation", "reference"])["t"].apply(list).map(lambda t: t == [*range(29)]).all()
    assert set(rates["allocation"]) == set(ALLOCATIONS)
    assert set(rates["reference"]) == set(BRACKETS)
    assert ((rows["low"] <= rows["value"]) & (rows["value"] <= rows["high"]) | rows["low"].isna()).all()


def value(rows: pd.DataFrame, metric: str = "rate", **where: object) -> pd.DataFrame:
    """Rows of these cells; quantity, stratum and variant are empty unless given."""
    chosen = rows[rows["metric"] == metric]
    for key, wanted in {"quantity": None, "stratum": None, "variant": None, **where}.items():
        chosen = chosen[chosen[key].isna() if wanted is None else chosen[key] == wanted]
    return chosen


@pytest.mark.parametrize("allocation", ALLOCATIONS)
def test_rates_are_shares_of_the_cases_of_the_plain_loop(
    rows: pd.DataFrame, plain: pd.DataFrame, allocation: str
) -> None:
    here = plain[(plain["allocation"] == allocation) & (plain["bracket"] == "kl_written") & (plain["t"] == 28)]
    decided, called = here["final"] != 0, here["call"] != 0
    cell = {"allocation": allocation, "reference": "kl_written", "t": 28}
    wrong = called & decided & (here["call"] != np.sign(here["final"]))
    for label, some, of in (
        ({}, called, decided),
        ({"quantity": "wrong"}, wrong, called & decided),
        ({"stratum": "tied"}, called, ~decided),
    ):
        found = value(rows, **cell, **label)
        assert found["value"].iloc[0] == pytest.approx((some & of).sum() / of.sum())
        assert found["n"].iloc[0] == of.sum()


def test_a_gap_is_the_rate_less_that_of_the_random_order(rows: pd.DataFrame) -> None:
    for variant in (None, "support"):
        cell = {"reference": "l1_tight", "variant": variant}
        gap = value(rows, metric="gap", allocation="informed", **cell)["value"].to_numpy()
        informed, random = (value(rows, allocation=name, **cell)["value"].to_numpy() for name in ALLOCATIONS[:2][::-1])
        np.testing.assert_allclose(gap, informed - random)
        assert gap.any()


def test_structural_ties_are_never_called_by_a_rigorous_bracket(rows: pd.DataFrame, plain: pd.DataFrame) -> None:
    final = plain.groupby(["patient", "a", "b"])["final"].first()
    (ties,) = value(rows, quantity="structural_ties")["value"]
    assert ties == (final == 0).mean()
    for bracket in RIGOROUS:
        cell = {"allocation": "informed_pair", "reference": bracket}
        assert value(rows, quantity="never", **cell)["value"].tolist() == [ties]
        assert value(rows, stratum="never", quantity="tied", **cell)["value"].tolist() == [1.0]
        assert value(rows, "nats", stratum="never", quantity="q90", **cell)["value"].tolist() == [0]
        faults = value(rows, "count", quantity="wrong", reference=bracket)
        assert faults["value"].tolist() == [0, 0, 0]
        assert (faults["n"] > 0).all()


def test_a_quantile_is_the_first_level_that_reaches_its_share() -> None:
    counts = np.array([[1.0, 8.0, 1.0], [0.0, 0.0, 0.0], [9.0, 0.0, 1.0]])
    levels = np.array([0.0, 4.0, 8.0])
    np.testing.assert_array_equal(quantile(counts, levels, 0.1), [0.0, np.nan, 0.0])
    np.testing.assert_array_equal(quantile(counts, levels, 0.9), [4.0, np.nan, 0.0])


def test_a_magnitude_that_is_not_a_tie_is_never_rounded_to_one() -> None:
    levels, place = two_digits(np.array([1e-9, 0.0, 123.4]))
    assert levels.tolist() == [0.0, 1e-9, 120.0]
    assert place.tolist() == [1, 0, 2]
