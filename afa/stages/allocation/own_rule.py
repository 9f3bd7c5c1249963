"""A custom allocation rule in the grid, named `module:Class`: followed patient by patient, as a planner does.

Slower than the compiled rules by one or two orders of magnitude, and with the same record of every round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from afa.allocate import Rule
from afa.allocate.base import Choice, View, fall_back, view_of
from afa.bundle import Bundle
from afa.cluster import Clustering
from afa.engine.patient import Patient
from afa.engine.ranks import is_certified, ranks_of
from afa.engine.rounds import READOUTS, Rounds, RulePaths, Truth, record_of
from afa.errors import Fault, PlannerError
from afa.inference.meanfield import Solver


def follow_own_rule(
    bundle: Bundle,
    values: NDArray[np.int8],
    truth: Truth,
    make: Callable[[], Rule],
    *,
    gain: str | None,
    target: str | None,
    rescoring: Sequence[int] | None,
    k: int,
    solver: Solver,
    names: Sequence[str],
) -> RulePaths:
    """Follow P patients, values (P, M), under a rule; the arguments of `afa.engine.rounds.follow_rule`.

    Between the rounds of `rescoring` the rule is asked again with the view of the last of them, in which only what has
    been observed since is changed: its candidates are used up in its own order (decisions.md A6). Once it has none,
    decisions.md A7 chooses by the present state.
    """
    n_patients, n_rounds = values.shape
    order = np.zeros((n_patients, n_rounds), dtype=np.int64)
    fallback = np.zeros((n_patients, n_rounds), dtype=np.bool_)
    rounds: list[Rounds] = []
    looks = set(range(n_rounds)) if rescoring is None else set(rescoring)
    for patient, name in enumerate(names):
        rule, clustering, seen = make(), Clustering(bundle), dict[str, int]()
        state = Patient(bundle, gain=gain or "wald_magnitude", target=target, solver=solver)
        looked: View | None = None
        for t in range(n_rounds + 1):
            rounds.append(_round(state, bundle, k))
            if t == n_rounds:
                break
            view = view_of(
                state,
                bundle,
                score="linearity",
                k=k,
                find_clusters=lambda: clustering.at(seen),  # noqa: B023 (asked before the loop goes on)
                patient=name,
            )
            if t in looks or looked is None:
                looked = view if rescoring is None else _kept(view)
            choice = _ask(rule, looked, view)
            order[patient, t], fallback[patient, t] = choice.feature, choice.fallback
            value = int(values[patient, choice.feature])
            seen[bundle.features[choice.feature]] = value
            state.observe(choice.feature, value)
    every = (np.stack(parts).reshape(n_patients, n_rounds + 1, *parts[0].shape) for parts in zip(*rounds, strict=True))
    return RulePaths(order, fallback, record_of(Rounds(*every), truth))


def _round(state: Patient, bundle: Bundle, k: int) -> Rounds:
    """What one round of one patient answers."""
    pairs, n, tie = state.pairs, len(bundle.entities), state.packed.tie
    name_rank = np.argsort(sorted(range(n), key=bundle.entities.__getitem__))
    tables = [state.scores(score) for score in READOUTS]
    ranked = [ranks_of(table, np.arange(n), name_rank, tie) for table in tables]
    signs = np.array([np.sign(table[pairs[:, 0], pairs[:, 1]]) for table in tables], dtype=np.int8)
    place = np.array([standing.place for standing in ranked], dtype=np.int16)
    resolved = state.resolved()
    certified = is_certified(pairs, ranked[0].order, k, state.lead(), resolved)
    return Rounds(signs, place, resolved, np.array(certified))


def _ask(rule: Rule, looked: View, present: View) -> Choice:
    """What the rule chooses by the view that it last looked at, or decisions.md A7 by the present one."""
    where = f"allocation rule {type(rule).__name__}, patient {present.patient}, after {present.observed.sum()} features"
    choice = rule.choose(replace(looked, observed=present.observed))
    if not 0 <= choice.feature < len(present.features) or present.observed[choice.feature]:
        expected, step = "an index of an unobserved feature", "hold it to afa.allocate.check_policy"
        raise PlannerError(Fault(where, str(choice.feature), expected, step))
    return fall_back(present) if choice.fallback else choice


def _kept(view: View) -> View:
    """A view that stays as it is when the patient is followed further."""
    table = view.gain(np.ones(len(view.pairs), dtype=np.bool_))
    intervals, clusters = view.intervals, view.clusters
    scores, lead, resolved = view.scores.copy(), view.lead, view.resolved
    return replace(
        view,
        find_scores=lambda: scores,
        find_rank=None,
        find_lead=lambda duels: lead[duels],
        find_resolved=lambda duels: resolved[duels],
        gain=lambda duels: table[duels],
        total_gain=lambda closed: table[~closed].sum(axis=0),
        weighted_gain=lambda weights: (np.asarray(weights)[:, None] * table).sum(axis=0),
        find_intervals=lambda: intervals,
        find_clusters=lambda: clusters,
    )
