"""Verdicts by hand: direction, size, the paper's own error, and what a statement comes to."""

import math

import pytest

from afa.paper.report.verdicts import (
    CLOSE,
    FAR,
    HOLDS,
    IDENTITY,
    NEAR,
    REVERSES,
    UNCLEAR,
    Number,
    Printed,
    Relation,
    judge,
    judge_statement,
    size_of,
)

POINTS = "percentage points"


def test_the_papers_error_is_ours_at_its_number_of_patients():
    ours = Number(0.5, 0.45, 0.55)
    assert Printed("0.5", "share", 50).error(ours, 200) == pytest.approx(0.1)
    assert Printed("0.5", "share", 200).error(ours, 200) == pytest.approx(0.05)
    assert Printed("0.5", "share").error(ours, 200) == 0
    assert Printed("0.5", "share", 50).error(Number(0.5), 200) == 0


@pytest.mark.parametrize(("text", "rounding"), [("0.53", 0.005), ("1.000", 0.0005), ("40", 0.5), ("1/3", 0.0)])
def test_a_printed_number_stands_for_half_a_unit_of_its_last_digit_to_either_side(text, rounding):
    assert Printed(text, "").rounding == pytest.approx(rounding)


def test_a_fraction_is_read_as_one():
    assert Printed("-1/3", "").value == pytest.approx(-0.33333333)


@pytest.mark.parametrize(
    ("unit", "printed", "apart", "size"),
    [
        ("share", "0.9", 0.02, NEAR),
        ("share", "0.9", 0.021, CLOSE),
        ("percent", "90", 5.0, CLOSE),
        ("percent", "90", 5.1, FAR),
        (POINTS, "4", 2.0, NEAR),
        ("correlation", "0.9", 0.03, CLOSE),
        ("count", "200", 4.0, NEAR),
        ("count", "200", 11.0, FAR),
        ("count", "0", 1.0, FAR),
        ("count", "0", 0.0, NEAR),
    ],
)
def test_the_size_is_in_points_and_of_other_numbers_in_per_cent(unit, printed, apart, size):
    assert size_of(Printed(printed, unit), apart) == size


@pytest.mark.parametrize(
    ("printed", "ours", "direction", "size"),
    [
        ("4.7", Number(4.0, 3.0, 5.0), HOLDS, NEAR),
        ("4.7", Number(12.0, 11.0, 13.0), HOLDS, FAR),
        ("-4.7", Number(-2.0, -3.0, -1.0), HOLDS, CLOSE),
        ("4.7", Number(1.0, -0.5, 2.5), UNCLEAR, CLOSE),
        ("4.7", Number(-2.0, -3.0, -1.0), REVERSES, FAR),
        # what the paper prints is within its own error of 0: 1 point at 100 patients of our 100
        ("-0.7", Number(2.0, 1.0, 3.0), UNCLEAR, CLOSE),
        ("0.0", Number(2.0, 1.0, 3.0), UNCLEAR, NEAR),
    ],
)
def test_a_difference_has_a_direction_and_a_size(printed, ours, direction, size):
    verdict = judge(Printed(printed, POINTS, 100), ours, 100)
    assert (verdict.direction, verdict.size) == (direction, size)


def test_fewer_patients_of_the_paper_make_its_direction_unclear():
    ours = Number(3.0, 2.0, 4.0)
    assert judge(Printed("2.5", POINTS, 100), ours, 100).direction == HOLDS
    assert judge(Printed("2.5", POINTS, 10), ours, 100).direction == UNCLEAR


def test_a_level_has_a_size_and_no_direction_and_says_what_both_errors_come_to():
    verdict = judge(Printed("0.864", "share", 100), Number(0.953, 0.943, 0.963), 400)
    assert (verdict.direction, verdict.size) == ("", FAR)
    assert verdict.reason == "0.089 apart; further apart than the error of both, 0.0228"
    near = judge(Printed("0.94", "share", 100), Number(0.953, 0.943, 0.963), 400)
    assert (near.size, near.reason.startswith("0.013 apart; no further apart")) == (NEAR, True)


def test_nothing_on_either_side_counts_for_nothing():
    verdict = judge(Printed("0.0", POINTS, 167), Number(0.0, 0.0, 0.0), 100)
    assert (verdict.direction, verdict.size, verdict.reason) == (IDENTITY, "", "0 = 0")


@pytest.mark.parametrize(
    ("bound", "ours", "size"),
    [("at most", 2, NEAR), ("at most", 14, FAR), ("at least", 14, NEAR), ("at least", 2, CLOSE), (None, 14, FAR)],
)
def test_a_bound_is_no_distance_on_its_right_side(bound, ours, size):
    assert judge(Printed("5", "percent", bound=bound), Number(ours), 100).size == size


def test_the_complement_turns_the_interval_round():
    assert Number(0.2, 0.1, 0.4).complement() == Number(0.8, 0.6, 0.9)


def relation(left, operator, right, text="x"):
    as_number = [side if isinstance(side, Number) else Number(side) for side in (left, right)]
    return Relation(as_number[0], operator, as_number[1], text)


ABOVE, BELOW, ASTRIDE = Number(2.0, 1.0, 3.0), Number(-2.0, -3.0, -1.0), Number(0.5, -1.0, 2.0)


@pytest.mark.parametrize(
    ("left", "operator", "right", "holds", "reversed_"),
    [
        (ABOVE, ">", 0, True, False),
        (BELOW, ">", 0, False, True),
        (ASTRIDE, ">", 0, False, False),
        (BELOW, "<", 0, True, False),
        (ABOVE, ">", Number(0.5, 0.0, 0.9), True, False),
        (ABOVE, ">", Number(0.5, 0.0, 1.0), False, False),
        (ABOVE, "=", 2.5, True, False),
        (ABOVE, "=", 3.5, False, True),
        (ABOVE, "=", Number(2.0, 1.5, 2.5), True, False),
        (ABOVE, "=", Number(2.1, 1.5, 2.5), False, True),
        (Number(0.0), "=", 0, True, False),
        (Number(math.nan), ">", 0, False, False),
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
    ],
)
def test_a_statement_holds_where_all_its_parts_do_and_names_those_that_do_not(parts, direction, reason):
    verdict = judge_statement(parts)
    assert (verdict.direction, verdict.size, verdict.reason) == (direction, "", reason)
