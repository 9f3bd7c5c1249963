"""Compute the exact log-partition of one model for each of many sets of observations, by variable elimination.

Each set of observations is called a state. The features of every state are eliminated in the same order, which is the
min-fill order of the model before any observation (`afa.inference.elimination`). The kernels multiply weights exp(E)
instead of adding logarithms, and divide each message by its largest entry. If the weights of a state still exceed the
range of double precision, the slower `afa.inference.exact`, which uses logarithms, computes the log-partition of this
state.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import INT, in_threads, kernel
from afa.engine.elimination_tables import (
    UNOBSERVED,
    Plan,
    clamp,
    eliminate,
    message_size,
    new_clamped,
    new_incoming,
    new_tables,
)
from afa.errors import Fault, InferenceError
from afa.inference.elimination import BYTES, components
from afa.inference.exact import MEMORY_LIMIT, exact
from afa.model.arrays import Bools, Codes, Floats
from afa.model.mrf import LOG3, Evidence, PairwiseMRF

ENTRY_LIMIT = 2e8


def elimination_plan(mrf: PairwiseMRF) -> Plan:
    """Return the arrays of the model, sorted by the min-fill elimination order of the model without observations."""
    evidence = Evidence.of(mrf)
    members, separators, couplings, offset = [], [], [], 0
    for part in components(evidence):
        members.append(evidence.free[part.members])
        for v, separator in enumerate(part.separators):
            separators.append(np.array(separator, dtype=np.int64) + offset)
            couplings.append(part.coupling[v, list(separator)])
        offset += part.n
    feature = np.concatenate([*members, np.empty(0)]).astype(np.int64)
    return Plan(
        feature=feature,
        unary=mrf.unary[feature],
        first=np.cumsum([0, *map(len, separators)]).astype(np.int64),
        separator=np.concatenate([*separators, np.empty(0)]).astype(np.int64),
        coupling=np.concatenate([*couplings, np.empty(0)]).astype(np.float64),
    )


def log_partitions(
    mrf: PairwiseMRF,
    observed: Bools,
    values: Codes,
    *,
    factors: Sequence[float] = (0.5, -0.5),
    plan: Plan | None = None,
    limit: float = ENTRY_LIMIT,
    threads: int | None = None,
) -> Floats:
    """Return the exact log Z(x_obs) of the energy `factor * E` for each state and factor (eq:clamped-logZ).

    The log-partition includes the prior, the energy of the observed features, and log 3 for each unobserved feature
    that has no potential in the model.

    Parameters
    ----------
    observed : (R, M) bool, features observed in each state
    values : (R, M) int8, -1, 0 or +1; values of unobserved features are ignored
    factors : multiples of the energy E
    plan : elimination plan of `mrf`, computed if None
    limit : largest number of table entries for one state
    threads : number of threads, or None for one thread on each core

    Returns
    -------
    log_partitions : (R, n_factors) float64, nats

    Raises
    ------
    InferenceError : a state needs more than `limit` entries

    """
    plan = plan or elimination_plan(mrf)
    codes = np.where(observed[:, plan.feature], values[:, plan.feature], UNOBSERVED).astype(np.int8)
    states, row = _distinct_rows(codes)
    entries = _count_table_entries(plan, states).max(initial=0.0)
    if entries > limit:
        size, expected = (
            f"tables of {entries:.3g} entries over {len(plan.feature)} features",
            f"at most {limit:.3g} entries",
        )
        step = "use mean-field, observe more features first, or pass a larger limit"
        raise InferenceError(Fault("exact elimination", size, expected, step))
    solved = np.empty((len(states), len(factors)))
    scaled = np.array(factors, dtype=np.float64)
    most = int(MEMORY_LIMIT / max(BYTES * entries / 3, 1.0))  # threads whose tables fit together
    threads = max(1, min(threads or len(os.sched_getaffinity(0)), most))
    in_threads(_solve_states, len(states), threads, plan, states, scaled, solved)
    for i in np.flatnonzero(np.isnan(solved).any(axis=1)):
        solved[i] = _solve_with_logarithms(mrf, plan, states[i], factors)
    uniform = (~observed).sum(axis=1) - (codes == UNOBSERVED).sum(axis=1)
    found: Floats = solved[row] + mrf.prior * scaled + LOG3 * uniform[:, None]
    return found


def _distinct_rows(codes: Codes) -> tuple[Codes, NDArray[np.intp]]:
    """Return the distinct rows of `codes`, and for each row its index among the distinct rows."""
    n_rows, n = codes.shape
    if n == 0 or n_rows == 0:
        return codes[:1], np.zeros(n_rows, dtype=np.intp)
    states, row = np.unique(codes, axis=0, return_inverse=True)
    return states, row.reshape(-1)


def _solve_with_logarithms(mrf: PairwiseMRF, plan: Plan, state: Codes, factors: Sequence[float]) -> Floats:
    """Compute the logarithm of the partition function with `exact`, once for each number in `factors`.

    The energy of the model is multiplied by this number. In `state`, some features are observed, and the partition
    function is a sum over the values of the unobserved features. The result excludes the prior and the features outside
    the support.
    """
    seen = plan.feature[state != UNOBSERVED]
    observations = dict(zip([mrf.features[j] for j in seen], state[state != UNOBSERVED].tolist(), strict=True))
    found = []
    for factor in factors:
        model = PairwiseMRF(factor * mrf.unary, factor * mrf.couplings, 0.0, mrf.features)
        evidence = Evidence.of(model, observations)
        outside = mrf.n_features - len(plan.feature)
        found.append(exact(model, evidence).log_partition - LOG3 * outside)
    return np.array(found)


@kernel(entrance=True)
def _count_table_entries(plan: Plan, states: Codes) -> Floats:
    """Return for each state (set of observations) the number of table entries that its elimination needs."""
    clamped = new_clamped(plan)
    entries = np.empty(len(states))
    for i in range(len(states)):
        n_free, _ = clamp(plan, states[i], clamped)
        entries[i] = 3.0 * message_size(clamped, n_free)[0]
    return entries


@kernel(entrance=True)
def _solve_states(plan: Plan, states: Codes, factors: Floats, solved: Floats, first: int, last: int) -> None:
    """Write the log-partitions of the states with the indices `first` to `last - 1` into `solved`.

    If the weights of a state exceed the range of double precision, the log-partition is NaN.
    """
    clamped, incoming = new_clamped(plan), new_incoming(len(plan.unary))
    largest, widest = 0, 0
    tables = new_tables(INT(0), INT(0))
    for i in range(first, last):
        n_free, constant = clamp(plan, states[i], clamped)
        size, width = message_size(clamped, n_free)
        if size > largest or width > widest:
            largest, widest = max(largest, int(size)), max(widest, width)
            tables = new_tables(largest, widest)
        for f in range(len(factors)):
            solved[i, f] = factors[f] * constant + eliminate(clamped, n_free, factors[f], incoming, tables)
