"""Simulate the observations of many patients, in an order that a rule chooses or that the caller gives.

A path is one patient with one order of observations. The argument `requested` is a bit mask (`afa.engine.run`) that
selects the results to compute. Each result is an array over all paths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from afa.engine.budgets import Budgets, duel_edges, new_budgets
from afa.engine.compile import in_threads, laid_out
from afa.engine.duels import BRACKETS, Duel, all_pairs
from afa.engine.gains import F_LINEARITY, GAIN_KINDS, NO_GAIN, bring_up_to_date, new_lookahead
from afa.engine.layout import Models, Packed, new_gains, pack
from afa.engine.ranks import name_places
from afa.engine.rules import COMPILED, GIVEN_ORDER, GREEDY, INFORMATION, LARGEST_UNARY
from afa.engine.run import (
    BOUNDARY,
    CALLS,
    CERTAIN,
    CHANGED,
    CHOICE,
    DUELS,
    ENGINE_SCORES,
    ENTITIES,
    LARGEST,
    MISSING,
    MOMENTS,
    RANKS,
    SIGNS,
    SOLVES,
    PathState,
    RunSettings,
    WalkResults,
)
from afa.engine.state import State, elbos, new_state, solve_all
from afa.engine.sweeps import Iteration, iteration_of
from afa.engine.walk import walk
from afa.errors import BundleError, CohortError, Fault
from afa.inference.meanfield import Solver
from afa.model.arrays import Codes, Ints
from afa.model.bundle import Bundle

BLOCK_BYTES = 64 * 2**20
"""Largest memory for the results of one block of paths, bytes. Callers that sum results over paths do so block by
block.
"""

PATH_STARTS: WeakKeyDictionary[Bundle | Models, dict[Iteration, State]] = WeakKeyDictionary()


def blocks(n_paths: int, bytes_each: int) -> Iterator[slice]:
    """Split the indices of all paths into consecutive slices whose results take at most `BLOCK_BYTES` for each slice.

    If the results of a single path already take more than `BLOCK_BYTES`, each slice contains the index of one path.
    """
    size = max(1, BLOCK_BYTES // max(1, bytes_each))
    return (slice(first, first + size) for first in range(0, n_paths, size))


def choose(
    bundle: Bundle | Models,
    values: Codes,
    requested: int = 0,
    *,
    allocation: str,
    n_rounds: int | None = None,
    n_rows: int | None = None,
    threads: int | None = None,
    **settings: Any,
) -> WalkResults:
    """Observe the features of P patients in the order that an allocation rule chooses.

    Return the results that the bit mask `requested` selects. The rule makes the same choices as in a `TopKPlanner` with
    the score `linearity`, if three conditions hold: the planner has the same gain (the default of a planner is `cmi`,
    the default here is `wald_magnitude`), `costs="equal"`, and no stopping rule. Planners ignore couplings that the two
    classes of an entity have in common (`Bundle.contrasts`), so pass `bundle.contrasts()` here.

    Parameters
    ----------
    values : (P, M) int8, -1, 0, +1 or `MISSING`
    allocation : a rule of `COMPILED` other than `random`
    n_rounds : number of observations, or None for M
    n_rows : number of result rows after which a patient's run stops, or None for no limit
    settings : keyword arguments of `run_of`

    """
    check_exclusive_codes(bundle, values)
    n_rounds = len(bundle.features) if n_rounds is None else n_rounds
    order = np.zeros((len(values), n_rounds), dtype=np.int64)
    run, start = run_of(bundle, requested, n_rounds, allocation=allocation, **settings)
    return _walk_in_threads(run, start, values, order, threads, n_rows)


def follow(
    bundle: Bundle | Models,
    values: Codes,
    orders: Ints,
    requested: int,
    *,
    threads: int | None = None,
    **settings: Any,
) -> WalkResults:
    """Observe the features of P patients in given orders.

    Return the results that the bit mask `requested` selects. The first axis of each result is the patient. If each
    patient has S orders, the second axis is the order.

    Parameters
    ----------
    values : (P, M) int8, -1, 0, +1 or `MISSING`; missing values are skipped
    orders : (P, r) or (P, S, r) int64, distinct features; if `only_changes` is True, an order must contain all M
        features
    settings : keyword arguments of `run_of`

    """
    check_exclusive_codes(bundle, values)
    flat = laid_out(orders.reshape(prod(orders.shape[:-1]), orders.shape[-1]).copy())
    held, rounds = np.diff(pack(bundle).first_feature_slot) > 0, None
    if settings.get("only_changes"):  # skip features outside all supports
        rounds = np.nonzero(held[flat])[1].reshape(len(flat), held.sum()) + 1
        flat = laid_out(np.take_along_axis(flat, rounds - 1, axis=1))
    run, start = run_of(bundle, requested, flat.shape[1], **settings)
    run = run._replace(numbered=rounds is not None)
    results = _walk_in_threads(run, start, values, flat, threads, rounds=rounds)
    return WalkResults._make(array.reshape(*orders.shape[:-1], *array.shape[1:]) for array in results)


def check_exclusive_codes(bundle: Bundle | Models, values: Codes) -> None:
    """Raise a `CohortError` if a patient has the value +1 for two features of an exclusive group.

    Parameters
    ----------
    values : (P, M) int8, -1, 0, +1 or `MISSING`

    """
    for members in bundle.exclusive if isinstance(bundle, Models) else ():
        present = values[:, members] == 1
        for row in np.flatnonzero(present.sum(axis=1) > 1)[:1]:
            names = [bundle.features[members[i]] for i in np.flatnonzero(present[row])]
            found, expected = f"{' and '.join(names)} at 1", "at most one of an exclusive group"
            raise CohortError(Fault(f"values, row {row}", found, expected, "correct the wrong one"))


def run_of(
    bundle: Bundle | Models,
    requested: int,
    n_rounds: int,
    *,
    allocation: str = "random",
    gain: str | None = None,
    target: str | None = None,
    rescoring: Sequence[int] | None = None,
    k: int = 5,
    solver: Solver | None = None,
    start: str = "uniform",
    rounds: Sequence[int] | None = None,
    only_changes: bool = False,
    signs: Sequence[str] = ENGINE_SCORES,
    ranks: Sequence[str] = ENGINE_SCORES[:1],
    budget_share: float = 1.0,
    tie: float | None = None,
    calibrated: bool = False,
) -> tuple[RunSettings, PathState]:
    """Return the settings of a run, and the state before any observation. Both are the same for all patients.

    Parameters
    ----------
    requested : sum of the masks of `afa.engine.run` that select results
    gain, target : as in `TopKPlanner`; the rule `information` ignores them
    rescoring : numbers of observations after which the rule ranks the features again, or None for all. Between two
        rankings, the rule chooses features in the order of the last ranking
    k : size of the top set
    start : marginals from which each mean-field run starts: `uniform`, or `warm` for the marginals of the previous run
    rounds : numbers of observations after which results are written, or None for all
    only_changes : True to write results only before the first observation, and after the observation of a feature in
        the support of an entity
    signs, ranks : scores whose signs and ranks are written
    budget_share : factor by which the methods in `BRACKETS` multiply the bounds on D. A factor below 1, which only
        tests use, makes the rigorous methods wrong
    tie : largest absolute score that counts as rounding error, or None for the value of the bundle
    calibrated : True to resolve a duel by the sign of its calibrated log-odds instead of the sign of D
        (docs/decisions.md)

    """
    solver, rule = solver or Solver(), COMPILED.index(allocation)
    packed, n, m = pack(bundle), len(bundle.entities), len(bundle.features)
    packed = packed if tie is None else packed._replace(tie=tie)
    pairs, nothing = all_pairs(n), all_pairs(0)
    uses_weights = rule not in (GIVEN_ORDER, LARGEST_UNARY, INFORMATION)
    bounding = uses_weights or bool(requested & (CERTAIN | BOUNDARY | LARGEST | CHOICE))
    ranking = (
        (uses_weights and rule != GREEDY)
        or bool(requested & (CERTAIN | BOUNDARY))
        or (bool(requested & RANKS) and "linearity" in ranks)
    )
    needs_cross = ranking or bool(requested & (MOMENTS | DUELS | CALLS))
    needs_cross |= bool(requested & SIGNS) and not {"linearity", "stack_a"}.isdisjoint(signs)
    gain = None if rule == INFORMATION else gain  # the rule `information` does not use gains
    gains_read = gain is not None and bool(requested & (CHOICE | LARGEST))
    kind = GAIN_KINDS[gain or "wald_magnitude", target] if uses_weights or gains_read else NO_GAIN
    needs_cross |= kind >= F_LINEARITY
    iteration = iteration_of(solver)
    state = _cached_start(bundle, packed, iteration)
    empty = elbos(state, m)
    if kind >= F_LINEARITY and packed.class_conditional:
        found, step = "f_target on a bundle with probabilities", "ask for cmi"
        raise BundleError(Fault("option gain", found, "cmi or wald_magnitude", step))
    lookahead = new_lookahead(packed, kind)
    gains = new_gains(packed, pairs if kind != NO_GAIN else nothing)
    of_entity = np.zeros((2, n), dtype=np.int64)
    if kind != NO_GAIN:
        every = np.ones(len(pairs), dtype=np.bool_)
        bring_up_to_date(packed, state, lookahead, gains, empty, kind, iteration, every, of_entity[CHANGED], 0)
    edges = duel_edges(packed, pairs if bounding else nothing)
    rescore, rounds_requested = (np.ones(size, dtype=np.bool_) for size in (n_rounds, n_rounds + 1))
    if rescoring is not None:
        rescore[:] = np.isin(np.arange(n_rounds), list(rescoring))
    if rounds is not None:
        rounds_requested[:] = np.isin(np.arange(n_rounds + 1), list(rounds))
    path_state = PathState(
        state=state,
        budgets=new_budgets(packed, edges, state) if bounding else Budgets(*np.empty((3, 2, 0))),
        gains=gains,
        lookahead=lookahead,
        of_entity=of_entity,
        of_duel=np.full((2, len(pairs)), -1),
        variance=np.zeros(len(pairs)),
        votes=np.zeros((len(pairs), 2), dtype=np.int64),
        calls=np.zeros((len(pairs), len(BRACKETS)), dtype=np.int8),
        labels=np.zeros(n, dtype=np.int64),
        feature_gain=np.zeros(m),
        closed=np.zeros(m, dtype=np.bool_),
    )
    run = RunSettings(
        packed=packed,
        edges=edges,
        pairs=pairs,
        empty=empty,
        offset=(empty - packed.prior) * calibrated,
        feature_rank=name_places(bundle.features),
        name_rank=name_places(bundle.entities),
        rule=rule,
        kind=kind,
        rescore=rescore,
        k=k,
        iteration=iteration._replace(warm=start == "warm"),
        requested=requested,
        needs_cross=needs_cross,
        ranking=ranking,
        bounding=bounding,
        voting=bool(requested & CALLS) or (bool(requested & SIGNS) and any(name.startswith("kl") for name in signs)),
        rounds_requested=rounds_requested,
        only_changes=only_changes,
        numbered=False,
        signed=np.array([ENGINE_SCORES.index(name) for name in signs], dtype=np.int64),
        ranked=np.array([ENGINE_SCORES.index(name) for name in ranks], dtype=np.int64),
        budget_share=budget_share,
    )
    return run, path_state


def _cached_start(bundle: Bundle | Models, packed: Packed, iteration: Iteration) -> State:
    """Return the mean-field state before any observation, from a cache for each bundle. Callers must not change it."""
    starts = PATH_STARTS.setdefault(bundle, {})
    if iteration not in starts:
        starts[iteration] = new_state(packed)
        solve_all(packed, starts[iteration], iteration, True)
    return starts[iteration]


def _walk_in_threads(
    run: RunSettings,
    start: PathState,
    values: Codes,
    order: Ints,
    threads: int | None,
    n_rows: int | None = None,
    rounds: Ints | None = None,
) -> WalkResults:
    results, values = new_followed(run, order, n_rows), laid_out(values)
    missing = values == MISSING
    patterns, of_patient = missing[:1], np.zeros(len(values), dtype=np.int64)
    if missing.any():
        patterns, of_patient = np.unique(missing, axis=0, return_inverse=True)
    pattern = np.repeat(of_patient.ravel(), len(order) // max(len(values), 1))
    jobs = np.argsort(pattern, kind="stable")  # sort the paths by their missing features
    if rounds is not None:
        results.t[:, 1:] = rounds

    def work(first: int, last: int) -> None:
        walk(run, start, values, results, jobs[first:last], pattern[jobs[first:last]], patterns)

    if threads == 1:
        work(0, len(order))
    else:
        in_threads(work, len(order), threads)
    row = np.arange(results.t.shape[1])
    read_at = results.t[results.source, row]
    last = np.where(read_at > 0, row, 0).max(axis=1, initial=0)  # result row of the last measured feature
    as_row = np.minimum(row, last[:, None])
    path, row = np.nonzero((results.source != np.arange(len(order))[:, None]) | (as_row != row))
    as_row = as_row[path, row]
    for name in set(WalkResults._fields) - {"order", "fallback", "chosen_gain", "source"}:
        read = getattr(results, name)
        if read.shape[1]:
            read[path, row] = read[results.source[path, as_row], as_row]
    return results


def new_followed(run: RunSettings, order: Ints, n_rows: int | None = None) -> WalkResults:
    """Return empty result arrays for J paths of r observations each.

    Parameters
    ----------
    order : (J, r) int64, features in the order of observation
    n_rows : largest number of result rows of a path, or None for no limit

    """
    requested, n, k, q = run.requested, len(run.name_rank), len(run.packed.feature), len(run.pairs)
    t = int(run.rounds_requested.sum())
    if run.only_changes:
        held = int((np.diff(run.packed.first_feature_slot) > 0).sum())
        t = min(t, held + 1)
    t = t if n_rows is None else min(t, n_rows)

    def space(group: int, dtype: type, *shape: int, rounds: int = t) -> NDArray[Any]:
        return np.zeros((len(order), rounds if requested & group else 0, *shape), dtype=dtype)

    brackets, s = len(BRACKETS), len(run.signed)
    return WalkResults(
        order=order,
        fallback=np.zeros(order.shape, dtype=np.bool_),
        t=np.zeros((len(order), t), dtype=np.int32),
        source=np.repeat(np.arange(len(order)), t).reshape(len(order), t),
        signs=space(SIGNS, np.int8, s, q),
        place=space(RANKS, np.int16, len(run.ranked), n),
        iterations=space(SOLVES, np.int32, n) - 1,
        ascended=space(SOLVES, np.int32, n) - 1,
        resolved=space(CERTAIN, np.bool_, q),
        certified=space(CERTAIN, np.bool_),
        chosen_gain=space(CHOICE, np.float64, rounds=order.shape[1]),
        probability=space(BOUNDARY, np.float64),
        gain=space(LARGEST, np.float64),
        constant=space(ENTITIES, np.float64, n),
        elbo=space(ENTITIES, np.float64, n),
        m=space(MOMENTS, np.float64, k),
        q=space(MOMENTS, np.float64, k),
        cross=space(MOMENTS, np.float64, n, n),
        mean=space(DUELS, np.float64, q),
        stack_a=space(DUELS, np.float64, q),
        sums=space(DUELS, np.float64, q, len(Duel._fields)),
        calls=space(CALLS, np.int8, q, brackets),
        votes=space(CALLS, np.int16, q),
    )
