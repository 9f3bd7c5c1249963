"""Copeland wins and the ranking, worked by hand and under any order of the entities."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from afa.engine.ranks import ranks_of
from afa.scores.copeland import copeland_wins, ranking


def duels(n: int, **scores: float) -> np.ndarray:
    """An antisymmetric matrix from upper entries named by two digits, `_01=2.0`."""
    matrix = np.zeros((n, n))
    for pair, score in scores.items():
        a, b = int(pair[1]), int(pair[2])
        matrix[a, b], matrix[b, a] = score, -score
    return matrix


@st.composite
def tournaments(draw: st.DrawFn) -> tuple[np.ndarray, list[str]]:
    """Antisymmetric scores of few distinct values, so that ties of every kind are common."""
    n = draw(st.integers(2, 6))
    matrix = np.zeros((n, n))
    for a in range(n):
        for b in range(a):
            matrix[a, b] = draw(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0]))
            matrix[b, a] = -matrix[a, b]
    return matrix, [f"v{i}" for i in range(n)]


def test_each_duel_won_is_a_win() -> None:
    assert copeland_wins(duels(3, _01=1.0, _02=5.0, _12=0.1)).tolist() == [2, 1, 0]


def test_a_score_of_zero_is_half_a_win_for_both() -> None:
    assert copeland_wins(duels(3, _02=1.0)).tolist() == [1.5, 1, 0.5]


def test_a_score_no_larger_than_the_tie_is_half_a_win() -> None:
    assert copeland_wins(duels(2, _01=1e-13), tie=1e-12).tolist() == [0.5, 0.5]
    assert copeland_wins(duels(2, _01=1e-11), tie=1e-12).tolist() == [1, 0]


def test_an_entity_does_not_meet_itself() -> None:
    assert copeland_wins(np.zeros((1, 1))).tolist() == [0]


def test_more_wins_rank_higher_whatever_the_margins() -> None:
    assert ranking(duels(3, _01=0.1, _02=0.1, _12=9.0), ["a", "b", "c"]) == ["a", "b", "c"]


def test_equal_wins_are_told_apart_by_the_sum_of_scores() -> None:
    cycle = duels(3, _01=1.0, _12=2.0, _02=-4.0)  # a > b > c > a; sums -3, 1, 2
    assert copeland_wins(cycle).tolist() == [1, 1, 1]
    assert ranking(cycle, ["a", "b", "c"]) == ["c", "b", "a"]


def test_equal_wins_and_equal_sums_are_told_apart_by_name() -> None:
    assert ranking(np.zeros((3, 3)), ["c", "a", "b"]) == ["a", "b", "c"]


@given(tournaments())
def test_wins_sum_to_the_number_of_duels(tournament: tuple[np.ndarray, list[str]]) -> None:
    scores, names = tournament
    assert copeland_wins(scores).sum() == len(names) * (len(names) - 1) / 2


@given(tournaments(), st.data())
def test_the_ranking_does_not_depend_on_the_order_of_the_entities(
    tournament: tuple[np.ndarray, list[str]], data: st.DataObject
) -> None:
    scores, names = tournament
    order = data.draw(st.permutations(range(len(names))))
    permuted = scores[np.ix_(order, order)]
    assert ranking(permuted, [names[i] for i in order]) == ranking(scores, names)
    assert ranking(permuted, [names[i] for i in order], tie=1e-12) == ranking(scores, names, tie=1e-12)


@given(tournaments())
def test_every_entity_is_ranked_once(tournament: tuple[np.ndarray, list[str]]) -> None:
    scores, names = tournament
    assert sorted(ranking(scores, names)) == sorted(names)


@given(tournaments(), st.data())
def test_the_compiled_ranks_of_some_entities_are_those_of_their_own_duels(case, data) -> None:
    scores, names = case
    members = np.array(data.draw(st.lists(st.sampled_from(range(len(names))), min_size=1, unique=True)))
    found = ranks_of(scores, members, np.arange(len(names)), 0.0)
    own = ranking(scores[np.ix_(members, members)], [names[v] for v in members])
    assert [names[v] for v in found.order] == own
