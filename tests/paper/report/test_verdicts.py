"""Verdicts by hand: direction, size, the paper's own error, and what a statement comes to."""

import math

import pytest

from afa.paper.report.verdicts import (
    HOLDS,
    IDENTITY,
    NONE_HERE,
    NOT_RUN,
    ONLY_HERE,
    OTHER_SIZE,
    REPRODUCED,
    REVERSES,
    UNCLEAR,
    WITHIN_2_POINTS,
    WITHIN_5_POINTS,
    WITHIN_FACTOR_1_25,
    WITHIN_FACTOR_2,
    Printed,
    Relation,
    RunNumber,
    judge,
    judge_statement,
    outcome,
    size_of,
)

POINTS = "percentage points"


def test_the_papers_error_is_ours_at_its_number_of_patients():
    ours = RunNumber(0.5, 0.45, 0.55)
    assert Printed("0.5", "share", 50).error(ours, 200) == pytest.approx(0.1)
    assert Printed("0.5", "share", 200).error(ours, 200) == pytest.approx(0.05)
    assert Printed("0.5", "share").error(ours, 200) == 0
    assert Printed("0.5", "share", 50).error(RunNumber(0.5), 200) == 0


@pytest.mark.parametrize(("text", "rounding"), [("0.53", 0.005), ("1.000", 0.0005), ("40", 0.5), ("1/3", 0.0)])
def test_a_printed_number_stands_for_half_a_unit_of_its_last_digit_to_either_side(text, rounding):
    assert Printed(text, "").rounding == pytest.approx(rounding)


def test_a_fraction_is_read_as_one():
    assert Printed("-1/3", "").value == pytest.approx(-0.33333333)


@pytest.mark.parametrize(
    ("unit", "printed", "apart", "size"),
    [
        ("share", "0.9", 0.02, WITHIN_2_POINTS),
        ("share", "0.9", 0.021, WITHIN_5_POINTS),
        ("percent", "90", 5.0, WITHIN_5_POINTS),
        ("percent", "90", 5.1, OTHER_SIZE),
        # a rate below a tenth is judged by its ratio, unless it is half a point away
        ("percent", "4.0", -4.0, OTHER_SIZE),
        ("percent", "4.0", 3.9, WITHIN_FACTOR_2),
        ("percent", "0.08", -0.08, WITHIN_2_POINTS),
        ("correlation", "0.9", 0.03, WITHIN_5_POINTS),
        ("count", "200", 4.0, WITHIN_2_POINTS),
        ("count", "200", 11.0, OTHER_SIZE),
        ("count", "0", 1.0, OTHER_SIZE),
        ("count", "0", 0.0, WITHIN_2_POINTS),
    ],
)
def test_the_size_of_a_level_is_in_points_and_of_other_numbers_in_per_cent(unit, printed, apart, size):
    assert size_of(Printed(printed, unit), apart) == size


@pytest.mark.parametrize(
    ("printed", "ours", "direction", "size"),
    [
        ("4.7", RunNumber(4.0, 3.0, 5.0), HOLDS, WITHIN_FACTOR_1_25),
        ("4.7", RunNumber(9.0, 8.0, 10.0), HOLDS, WITHIN_FACTOR_2),
        ("4.7", RunNumber(12.0, 11.0, 13.0), HOLDS, OTHER_SIZE),
        ("28.7", RunNumber(3.2, 1.5, 4.8), HOLDS, OTHER_SIZE),
        ("-4.7", RunNumber(-2.0, -2.5, -1.5), HOLDS, OTHER_SIZE),
        ("-4.7", RunNumber(-2.5, -3.0, -2.0), HOLDS, WITHIN_FACTOR_2),
        ("4.7", RunNumber(-2.0, -3.0, -1.0), REVERSES, ""),
        # our interval holds 0: no effect here, however near in points
        ("4.7", RunNumber(-0.1, -0.3, 0.2), NONE_HERE, ""),
        ("8.8", RunNumber(-0.1, -1.7, 1.6), NONE_HERE, ""),
        # an interval that holds 0 and the printed effect tells neither
        ("4.7", RunNumber(3.0, -1.0, 7.0), UNCLEAR, ""),
        # what the paper prints is within its own error of 0: half of our interval at as many patients
        ("-0.7", RunNumber(13.6, 12.9, 14.3), ONLY_HERE, ""),
        ("-0.7", RunNumber(0.1, -1.0, 1.2), HOLDS, ""),
        ("0.5", RunNumber(1.2, 0.2, 2.2), HOLDS, ""),
    ],
)
def test_an_effect_is_judged_by_its_interval_and_its_ratio_and_not_in_points(printed, ours, direction, size):
    verdict = judge(Printed(printed, POINTS, 100), ours, 100)
    assert (verdict.direction, verdict.size) == (direction, size)


def test_ten_times_the_points_give_the_same_verdict():
    for printed, low, value, high in ((4.0, 2.0, 3.0, 4.0), (4.0, 1.0, 1.5, 2.0), (4.0, -0.5, 0.1, 0.7)):
        small, large = (
            judge(Printed(f"{k * printed:.2f}", POINTS, 100), RunNumber(k * value, k * low, k * high), 100)
            for k in (1, 10)
        )
        assert (small.direction, small.size) == (large.direction, large.size)


def test_few_patients_of_the_paper_make_its_effect_no_contradiction_of_ours():
    ours = RunNumber(3.0, 2.0, 4.0)
    assert judge(Printed("2.5", POINTS, 100), ours, 100).size == WITHIN_FACTOR_1_25
    few = judge(Printed("2.5", POINTS, 10), ours, 100)
    assert (few.direction, few.size) == (HOLDS, "")


@pytest.mark.parametrize(
    ("verdict", "size", "word"),
    [
        (HOLDS, WITHIN_FACTOR_1_25, REPRODUCED),
        (HOLDS, OTHER_SIZE, OTHER_SIZE),
        (HOLDS, "", REPRODUCED),
        ("", WITHIN_5_POINTS, REPRODUCED),
        ("", OTHER_SIZE, OTHER_SIZE),
        (NONE_HERE, "", NONE_HERE),
        (REVERSES, "", REVERSES),
        (NOT_RUN, "", ""),
        ("", "", ""),
    ],
)
def test_each_verdict_counts_under_one_word(verdict, size, word):
    assert outcome({"verdict": verdict, "size": size}) == word


def test_a_level_has_a_size_and_no_direction_and_says_what_both_errors_come_to():
    verdict = judge(Printed("0.864", "share", 100), RunNumber(0.953, 0.943, 0.963), 400)
    assert (verdict.direction, verdict.size) == ("", OTHER_SIZE)
    assert verdict.reason == "0.089 apart; further apart than the error of both, 0.0228"
    near = judge(Printed("0.94", "share", 100), RunNumber(0.953, 0.943, 0.963), 400)
    assert (near.size, near.reason.startswith("0.013 apart; no further apart")) == (WITHIN_2_POINTS, True)


def test_nothing_on_either_side_counts_for_nothing():
    verdict = judge(Printed("0.0", POINTS, 167), RunNumber(0.0, 0.0, 0.0), 100)
    assert (verdict.direction, verdict.size, verdict.reason) == (IDENTITY, "", "0 = 0")


@pytest.mark.parametrize(
    ("bound", "ours", "size"),
    [
        ("at most", 2, WITHIN_2_POINTS),
        ("at most", 14, OTHER_SIZE),
        ("at least", 14, WITHIN_2_POINTS),
        ("at least", 4.6, WITHIN_2_POINTS),
        (None, 9, WITHIN_FACTOR_2),
    ],
)
def test_a_bound_is_no_distance_on_its_right_side(bound, ours, size):
    assert judge(Printed("5", "percent", bound=bound), RunNumber(ours), 100).size == size


def test_the_complement_turns_the_interval_round():
    assert RunNumber(0.2, 0.1, 0.4, n=5).complement() == RunNumber(0.8, 0.6, 0.9, n=5)


def relation(left, operator, right, text="x"):
    as_number = [side if isinstance(side, RunNumber) else RunNumber(side) for side in (left, right)]
    return Relation(as_number[0], operator, as_number[1], text)


ABOVE, BELOW, ASTRIDE = RunNumber(2.0, 1.0, 3.0), RunNumber(-2.0, -3.0, -1.0), RunNumber(0.5, -1.0, 2.0)


@pytest.mark.parametrize(
    ("left", "operator", "right", "holds", "reversed_"),
    [
        (ABOVE, ">", 0, True, False),
        (BELOW, ">", 0, False, True),
        (ASTRIDE, ">", 0, False, False),
        (BELOW, "<", 0, True, False),
        (ABOVE, ">", RunNumber(0.5, 0.0, 0.9), True, False),
        (ABOVE, ">", RunNumber(0.5, 0.0, 1.0), False, False),
        (ABOVE, "=", 2.5, True, False),
        (ABOVE, "=", 3.5, False, True),
        (ABOVE, "=", RunNumber(2.0, 1.5, 2.5), True, False),
        (ABOVE, "=", RunNumber(2.1, 1.5, 2.5), False, True),
        (RunNumber(0.0), "=", 0, True, False),
        (RunNumber(math.nan), ">", 0, False, False),
    ],
)
def test_a_relation_holds_by_the_intervals(left, operator, right, holds, reversed_):
    found = relation(left, operator, right)
    assert (found.holds, found.reversed) == (holds, reversed_)


@pytest.mark.parametrize(
    ("parts", "direction", "reason"),
    [
        ([relation(ABOVE, ">", 0, "first")], HOLDS, "first"),
        ([relation(1.0, "=", 1, "first"), relation(ABOVE, ">", 0, "second")], HOLDS, "first; second"),
        ([relation(ABOVE, ">", 0, "first"), relation(ASTRIDE, ">", 0, "second")], UNCLEAR, "second"),
        ([relation(ASTRIDE, ">", 0, "first"), relation(BELOW, ">", 0, "second")], REVERSES, "second"),
        ([relation(1.0, "=", 2, "first")], REVERSES, "first"),
        # a whole interval within half a point of 0 is no effect, and not unclear
        (
            [relation(RunNumber(0.1, -0.3, 0.4, POINTS), ">", 0, "first"), relation(ASTRIDE, ">", 0, "x")],
            NONE_HERE,
            "first",
        ),
        ([relation(RunNumber(0.1, -0.3, 0.6, POINTS), ">", 0, "first")], UNCLEAR, "first"),
    ],
)
def test_a_statement_holds_where_all_its_parts_do_and_names_those_that_do_not(parts, direction, reason):
    verdict = judge_statement(parts)
    assert (verdict.direction, verdict.size, verdict.reason) == (direction, "", reason)
