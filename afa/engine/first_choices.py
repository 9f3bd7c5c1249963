"""What `greedy` asks for first, and what every duel says by then, for many patients at once.

The rule looks at the values seen so far and at nothing else, so that patients of equal values so far are one node of a
decision tree: it is solved and chosen for once. Choices are those of `follow_rule`, signs those of `sign_paths`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.engine.allocating import Course, course_of, look, weighted_worth
from afa.engine.compile import kernel, laid_out
from afa.engine.contests import Budgets, new_budgets, refresh_after
from afa.engine.gains import Gains, copy_gains
from afa.engine.kernels import State, copy_state, new_state, observe, sign, solve_all
from afa.engine.packed import Packed, pack
from afa.engine.rules import NONE, best_feature, fallback_feature
from afa.engine.standings import LINEARITY, duel_scores
from afa.engine.trajectories import all_pairs
from afa.inference.meanfield import Solver


class Node(NamedTuple):
    """One state of the tree; kernels do not change that of a node that has been left.

    state : of the entities that the rule looks at. gains, budgets, stale : of their duels, `stale` where the gains are
    out of date. whole : the state of all entities, which may be the same.
    """

    state: State
    gains: Gains
    budgets: Budgets
    stale: NDArray[np.bool_]
    whole: State


def first_signs(
    bundle: Bundle, looked_at: Bundle, values: NDArray[np.int8], rounds: int, *, solver: Solver | None = None
) -> NDArray[np.int8]:
    """(P, rounds + 1, Q) signs by `linearity` of all duels, +1 where the first is preferred, 0 a tie.

    values : (P, M) in {-1, 0, +1}, observed as `greedy` asks for them by conditional mutual information. looked_at :
    the bundle itself, or some of its entities, the only ones that the rule sees. rounds : at most M.
    """
    course = course_of(looked_at, "greedy", "cmi", None, rescoring=None, k=1, solver=solver)
    packed = pack(bundle)
    start = new_state(packed)
    solve_all(packed, start, course.iteration)
    signs = np.zeros((len(values), rounds + 1, len(all_pairs(len(bundle.entities)))), dtype=np.int8)
    _walk(course, packed, start, looked_at is not bundle, laid_out(values), np.arange(len(values)), signs)
    return signs


@kernel()
def _walk(
    course: Course,
    packed: Packed,
    start: State,
    apart: bool,
    values: NDArray[np.int8],
    members: NDArray[np.int64],
    signs: NDArray[np.int8],
) -> None:
    """Walk the tree depth first; `members` (P,) lists the patients, those of a node together.

    apart : whether all entities have a state of their own, beside that of the entities looked at.
    """
    rounds = signs.shape[1] - 1
    first, stale = course.start, np.zeros(len(course.contests.pairs), dtype=np.bool_)
    budgets = new_budgets(course.packed, course.contests, first)
    node = Node(first, copy_gains(course.gains), budgets, stale, start if apart else first)
    path, chosen = [node for _ in range(rounds + 1)], np.zeros(rounds + 1, dtype=np.int64)
    waiting = [(0, 0, len(members))]
    while len(waiting) > 0:
        depth, begin, end = waiting.pop()
        if depth > 0:
            feature = chosen[depth - 1]
            node = _observed(course, packed, path[depth - 1], feature, values[members[begin], feature], apart)
        _write_signs(packed, node.whole, members[begin:end], depth, signs)
        if depth < rounds:
            path[depth], chosen[depth] = node, _choose(course, node)
            before, place = members[begin:end].copy(), begin
            for value in (-1, 0, 1):
                child = place
                for patient in before:
                    if values[patient, chosen[depth]] == value:
                        members[place] = patient
                        place += 1
                if place > child:
                    waiting.append((depth + 1, child, place))


@kernel()
def _observed(course: Course, packed: Packed, node: Node, feature: int, value: int, apart: bool) -> Node:
    """The node that one more value leads to."""
    state, stale, of_duels = copy_state(node.state), node.stale.copy(), node.budgets
    budgets = Budgets(of_duels.coupled.copy(), of_duels.whole.copy(), of_duels.norm.copy())
    observe(course.packed, state, feature, value, course.iteration)
    refresh_after(course.packed, course.contests, state, budgets, feature, stale)
    whole = state
    if apart:
        whole = copy_state(node.whole)
        observe(packed, whole, feature, value, course.iteration)
    return Node(state, copy_gains(node.gains), budgets, stale, whole)


@kernel()
def _choose(course: Course, node: Node) -> int:
    """The feature of largest gain over all duels that are still open; brings the node's gains up to date."""
    pairs, state = course.contests.pairs, node.state
    weights = np.zeros(len(pairs))
    for p in range(len(pairs)):
        lead = state.constant[pairs[p, 0]] - state.constant[pairs[p, 1]]
        weights[p] = 0.0 if abs(lead) > node.budgets.whole[p] + course.packed.tie else 1.0
    look(course, state, course.ahead, node.gains, weights, node.stale, np.zeros(len(state.constant), dtype=np.bool_))
    worth = weighted_worth(node.gains, weights, course.packed.n_features)
    feature = best_feature(worth, state.observed, course.feature_rank)
    return fallback_feature(course.packed, state, course.feature_rank) if feature == NONE else feature


@kernel()
def _write_signs(packed: Packed, state: State, members: NDArray[np.int64], t: int, signs: NDArray[np.int8]) -> None:
    scores, n, p = duel_scores(state, LINEARITY, packed.tie), len(packed.prior), 0
    for a in range(n):
        for b in range(a + 1, n):
            for patient in members:
                signs[patient, t, p] = sign(scores[a, b], 0.0)
            p += 1
