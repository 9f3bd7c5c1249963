"""One entity as a binary task while the rule `greedy` chooses the features, for many patients at once.

What the rule chooses depends on the values seen so far and on nothing else, so that patients of equal values so far
are one node of a decision tree: it is solved and chosen for once. The numbers are those of `BinaryPlanner`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from afa.engine.ahead import Ahead, new_ahead, solve_ahead
from afa.engine.compile import kernel, laid_out
from afa.engine.duels import duel
from afa.engine.gains import CMI, WALD_MAGNITUDE, Gains, add_up, new_gains, refresh_gains
from afa.engine.kernels import State, condition, new_state, solve_all
from afa.engine.patient import GAIN_KINDS
from afa.engine.rules import NONE, best_feature, fallback_feature
from afa.engine.tasks import Record, Task, TaskPaths, new_paths, record_of, support_mask, write_step
from afa.mrf import Floats


def follow_gain(
    task: Task, values: NDArray[np.int8], *, gain: str, target: str | None = None, last_step: int | None = None
) -> TaskPaths:
    """Follow P patients, values (P, M), as `greedy` chooses by a gain of `afa.gain`; one order each.

    last_step : of the support's features observed; all of them unless given. Later steps are as `new_paths` made them.
    A feature without any gain left is chosen as spec A7 says, and near-ties by name (A8), as `afa.allocate` does.
    """
    paths = new_paths(task, len(values), 1)
    whole = record_of(paths)
    record = Record(whole.t[:, 0], whole.wald[:, 0], whole.two_elbo[:, 0], whole.stack_a[:, 0], whole.calls[:, 0])
    n_support = int(task.packed.first_slot[1])
    last = n_support if last_step is None else min(last_step, n_support)
    _follow_gain(task, laid_out(values), GAIN_KINDS[gain, target], record, np.arange(len(values)), last)
    return paths


@kernel()
def _follow_gain(
    task: Task,
    values: NDArray[np.int8],
    kind: int,
    record: Record,
    members: NDArray[np.int64],
    last: int,
) -> None:
    """Walk the decision tree of the rule step by step; `members` (P,) lists the patients, those of a node together."""
    packed = task.packed
    n_patients = len(values)
    in_support = support_mask(packed)
    gains, ahead = new_gains(packed, np.array([[0, 1]])), new_ahead(packed)
    history = np.zeros((n_patients, packed.n_features), dtype=np.int64)
    first_of_node = np.zeros(n_patients, dtype=np.int64)
    rounds = np.zeros(n_patients, dtype=np.int64)
    for step in range(last + 1):
        begin = 0
        while begin < n_patients:
            end = begin + 1
            while end < n_patients and first_of_node[end] == begin:
                end += 1
            leader, t = members[begin], rounds[begin]
            state = new_state(packed)
            for i in range(t):
                condition(packed, state, history[leader, i], values[leader, history[leader, i]])
            solve_all(packed, state, task.iteration)
            for i in range(begin, end):
                patient = members[i]
                row = Record(
                    record.t[patient],
                    record.wald[patient],
                    record.two_elbo[patient],
                    record.stack_a[patient],
                    record.calls[patient],
                )
                if i == begin:
                    write_step(task, state, row, step, t)
                else:
                    _copy(record, leader, patient, step)
            if step < last:
                total = _total_gain(task, state, gains, ahead, kind)
                feature = NONE
                while feature == NONE or not in_support[feature]:
                    feature = best_feature(total, state.observed, task.rank)
                    if feature == NONE:
                        feature = fallback_feature(packed, state, task.rank)
                    state.observed[feature] = True
                    history[leader, t] = feature
                    t += 1
                for i in range(begin, end):
                    history[members[i], :t] = history[leader, :t]
                    rounds[i] = t
                _split(values, feature, members, first_of_node, begin, end)
            begin = end


@kernel()
def _copy(record: Record, source: int, target: int, step: int) -> None:
    """Give one patient the step of another."""
    record.t[target, step] = record.t[source, step]
    record.wald[target, step] = record.wald[source, step]
    record.two_elbo[target, step] = record.two_elbo[source, step]
    record.stack_a[target, step] = record.stack_a[source, step]
    record.calls[target, step] = record.calls[source, step]


@kernel()
def _total_gain(task: Task, state: State, gains: Gains, ahead: Ahead, kind: int) -> Floats:
    """(M,) gain of the task at every feature, all 0 once no completion can change its sign (spec A4)."""
    packed = task.packed
    total = np.zeros(packed.n_features)
    lead = state.constant[0] - state.constant[1]
    if abs(lead) > duel(packed, state, 0, 1).budget + packed.tie:
        return total
    both = np.ones(2, dtype=np.bool_)
    if kind not in (WALD_MAGNITUDE, CMI):
        solve_ahead(packed, state, ahead, both, task.iteration)
    refresh_gains(packed, state, ahead, gains, task.empty, kind, both)
    add_up(gains, np.zeros(1, dtype=np.bool_), total)
    return total


@kernel()
def _split(
    values: NDArray[np.int8],
    feature: int,
    members: NDArray[np.int64],
    first_of_node: NDArray[np.int64],
    begin: int,
    end: int,
) -> None:
    """Part the node at places begin to end - 1 by its patients' values of one feature, keeping their order."""
    before = members[begin:end].copy()
    place = begin
    for value in (-1, 0, 1):
        child = place
        for patient in before:
            if values[patient, feature] == value:
                members[place] = patient
                first_of_node[place] = child
                place += 1
