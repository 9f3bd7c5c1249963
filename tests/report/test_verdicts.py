"""Verdicts by hand: the paper's own error, what counts as reproduced, and what a statement comes to."""

import math

import pytest

from afa.report.verdicts import (
    NOT_COMPARABLE,
    NOT_REPRODUCED,
    REPRODUCED,
    SAME_DIRECTION,
    Number,
    Printed,
    Relation,
    Rules,
    judge,
    judge_statement,
)

RULES = Rules()
POINTS = "percentage points"


@pytest.mark.parametrize(
    ("text", "unit", "patients", "error"),
    [
        ("0.50", "share", 100, 1.959964 * 0.05),
        ("50", "percent", 100, 100 * 1.959964 * 0.05),
        ("0.1", "share", 25, 1.959964 * 0.06),
        ("1.000", "share", 100, 0.0),
        ("0.50", "share", None, 0.0),
        ("12.1", POINTS, 100, 0.0),
        ("0.98", "correlation", 100, 0.0),
    ],
)
def test_the_papers_error_is_binomial_over_its_patients_and_there_for_shares_alone(text, unit, patients, error):
    assert Printed(text, unit, patients).error(0.95) == pytest.approx(error, abs=1e-7)


def test_a_lower_confidence_makes_the_papers_error_smaller():
    assert Printed("0.5", "share", 100).error(0.6826895) == pytest.approx(0.05, abs=1e-8)


@pytest.mark.parametrize(("text", "rounding"), [("0.53", 0.005), ("1.000", 0.0005), ("40", 0.5), ("1/3", 0.0)])
def test_a_printed_number_stands_for_half_a_unit_of_its_last_digit_to_either_side(text, rounding):
    assert Printed(text, "").rounding == pytest.approx(rounding)


def test_a_fraction_is_read_as_one():
    assert Printed("-1/3", "").value == pytest.approx(-0.33333333)


@pytest.mark.parametrize(("printed", "expected"), [("0.45", REPRODUCED), ("0.44", NOT_REPRODUCED)])
def test_a_share_is_looked_for_in_our_interval_widened_by_the_papers_error_and_rounding(printed, expected):
    """At p = 0.45 and n = 100 the error is 0.0975, so that 0.55 reaches down to 0.4475; at 0.44 it is 0.0973."""
    verdict = judge(Printed(printed, "share", 100), Number(0.56, 0.55, 0.57), RULES)
    assert verdict.name == expected
    assert verdict.reason.split(" to ")[0].endswith("0.447" if printed == "0.45" else "0.448")


def test_without_the_papers_patients_only_the_rounding_widens():
    ours = Number(0.56, 0.55, 0.57)
    assert judge(Printed("0.55", "share"), ours, RULES).name == REPRODUCED
    assert judge(Printed("0.54", "share"), ours, RULES).name == NOT_REPRODUCED


@pytest.mark.parametrize(
    ("printed", "ours", "expected", "words"),
    [
        ("4.7", Number(4.0, 3.0, 5.0), REPRODUCED, "within"),
        ("4.7", Number(2.0, 1.0, 3.0), SAME_DIRECTION, "same side of 0"),
        ("-4.7", Number(-2.0, -3.0, -1.0), SAME_DIRECTION, "same side of 0"),
        ("4.7", Number(1.0, -0.5, 2.5), NOT_REPRODUCED, "outside"),
        ("4.7", Number(-2.0, -3.0, -1.0), NOT_REPRODUCED, "other side of 0"),
        ("0.0", Number(2.0, 1.0, 3.0), NOT_REPRODUCED, "outside"),
    ],
)
def test_a_difference_has_its_size_or_its_direction_or_neither(printed, ours, expected, words):
    verdict = judge(Printed(printed, POINTS, 100), ours, RULES)
    assert (verdict.name, words in verdict.reason) == (expected, True)


def test_a_share_has_no_direction():
    assert judge(Printed("0.2", "share", 1000), Number(0.9, 0.8, 1.0), RULES).name == NOT_REPRODUCED


@pytest.mark.parametrize(
    ("bound", "low", "high", "expected"),
    [
        ("at most", 1, 3, REPRODUCED),
        ("at most", 5, 7, NOT_REPRODUCED),
        ("at least", 5, 7, REPRODUCED),
        ("at least", 1, 3, NOT_REPRODUCED),
        (None, 5, 7, NOT_REPRODUCED),
    ],
)
def test_a_bound_is_reproduced_on_its_right_side(bound, low, high, expected):
    assert judge(Printed("4", "percent", bound=bound), Number((low + high) / 2, low, high), RULES).name == expected


def test_a_share_of_ten_patients_is_compared_with_nothing():
    """At p = 0.46 and n = 10 the error is 0.309, above the 0.2 that is allowed."""
    printed, ours = Printed("0.46", "share", 10), Number(0.5, 0.4, 0.6)
    assert judge(printed, ours, RULES).name == NOT_COMPARABLE
    assert judge(printed, ours, Rules(largest_error=0.31)).name == REPRODUCED
    assert judge(Printed("46", "percent", 10), ours.scaled(100), RULES).name == NOT_COMPARABLE


@pytest.mark.parametrize(("ours", "expected"), [(3.0, REPRODUCED), (4.0, NOT_REPRODUCED)])
def test_a_number_without_interval_has_to_be_the_printed_one(ours, expected):
    assert judge(Printed("3", "count"), Number(ours), RULES).name == expected


def test_the_range_of_a_share_is_shown_no_wider_than_shares_are():
    assert judge(Printed("0.46", "percent", 167), Number(0.0, 0.0, 0.0), RULES).reason.startswith("within 0 to 1.")


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
        (ABOVE, "=", 3.5, False, False),
        (ABOVE, "=", Number(2.0, 1.5, 2.5), True, False),
        (ABOVE, "=", Number(2.1, 1.5, 2.5), False, False),
        (Number(0.0), "=", 0, True, False),
        (Number(math.nan), ">", 0, False, False),
    ],
)
def test_a_relation_holds_by_the_intervals(left, operator, right, holds, reversed_):
    found = relation(left, operator, right)
    assert (found.holds, found.reversed) == (holds, reversed_)


def test_a_direction_is_at_most_that():
    assert judge_statement([relation(ABOVE, ">", 0)], exact=False).name == SAME_DIRECTION


def test_a_statement_of_equality_or_with_numbers_is_reproduced():
    assert judge_statement([relation(1.0, "=", 1)], exact=False).name == REPRODUCED
    assert judge_statement([relation(ABOVE, ">", 0)], exact=True).name == REPRODUCED
    assert judge_statement([relation(1.0, "=", 1), relation(ABOVE, ">", 0)], exact=False).name == SAME_DIRECTION


@pytest.mark.parametrize(
    ("failing", "how"),
    [
        (relation(ASTRIDE, ">", 0, "second"), "not apart: second"),
        (relation(BELOW, ">", 0, "second"), "the other way round: second"),
        (relation(1.0, "=", 2, "second"), "not the same: second"),
    ],
)
def test_a_statement_of_which_one_part_fails_is_not_reproduced_and_names_it(failing, how):
    verdict = judge_statement([relation(ABOVE, ">", 0, "first"), failing], exact=False)
    assert (verdict.name, verdict.reason) == (NOT_REPRODUCED, how)
