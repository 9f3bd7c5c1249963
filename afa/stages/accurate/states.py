"""The states in which decisions are held against accurate inference, and what that inference says of every entity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.engine.compile import in_threads
from afa.engine.duels import Pairs
from afa.engine.elimination import elimination_plan, entries_at_no_observation
from afa.mrf import Floats
from afa.orders import random_order
from afa.stages.accurate.inference import RUNS, Effort, LogZ, Seen, Values, expected_scores, log_z
from afa.stages.inputs import rounds_up_to


@dataclass(frozen=True)
class States:
    """P patients at T rounds: what is observed of whom.

    names : (P,). rounds : (T,), the first 0 and the last M. orders : (P, M). values : (P, M). observed : (P, T, M).
    """

    names: list[str]
    rounds: list[int]
    orders: NDArray[np.int64]
    values: Values
    observed: Seen

    @classmethod
    def of(cls, cohort: Cohort, patients: int, seed: int, rounds: Sequence[int]) -> States:
        """Of at most so many patients, chosen by a hash of their names and `seed`, each in its own random order."""
        rows = random_order(cohort.patients, patient="", seed=seed, experiment="accurate")[:patients]
        names = [cohort.patients[row] for row in rows]
        drawn = [random_order(cohort.features, patient=name, seed=seed) for name in names]
        orders = np.array(drawn, dtype=np.int64).reshape(len(names), len(cohort.features))
        kept = rounds_up_to(rounds, len(cohort.features))
        place = np.argsort(orders, axis=1)
        return cls(names, kept, orders, cohort.values[rows], place[:, None, :] < np.array(kept)[:, None])

    @property
    def shape(self) -> tuple[int, int]:
        """(P, T)."""
        return len(self.names), len(self.rounds)

    @property
    def rows(self) -> tuple[Seen, Values]:
        """What is observed and the values in each state by itself, both (P T, M)."""
        return self.observed.reshape(-1, self.observed.shape[2]), np.repeat(self.values, len(self.rounds), axis=0)

    def first(self, patients: int) -> States:
        """Of the first patients alone."""
        part = slice(0, patients)
        return States(self.names[part], self.rounds, self.orders[part], self.values[part], self.observed[part])

    def table(self, **levels: Sequence[object]) -> pd.DataFrame:
        """One line by (patient, t), and by each further level, the last varying fastest."""
        index = pd.MultiIndex.from_product([self.names, self.rounds, *levels.values()], names=["patient", "t", *levels])
        return index.to_frame(index=False)


@dataclass(frozen=True)
class Expectations:
    """E_u[S_v | x_obs] of all entities u and v in P patients at T rounds, as `Expected` has them.

    value : (3, P, T, N, N), by u and then v. variance : (P, T, N, N). effective : (P, T, N).
    """

    value: Floats
    variance: Floats
    effective: Floats


def all_exact(bundle: Bundle, effort: Effort) -> bool:
    """Whether log Z of every entity is within the limit of exact inference where nothing is observed."""
    plans = (elimination_plan(bundle.mrf(entity)) for entity in bundle.entities)
    return all(entries_at_no_observation(plan) <= effort.limit for plan in plans)


def entity_log_zs(bundle: Bundle, states: States, effort: Effort, threads: int | None) -> LogZ:
    """The log-partition of every entity in every state: value (3, P, T, N), error and effective (P, T, N)."""
    observed, values = states.rows
    found = [log_z(bundle.mrf(name), name, observed, values, effort, threads=threads) for name in bundle.entities]
    value = np.stack([each.value for each in found], axis=-1).reshape(len(RUNS), *states.shape, -1)
    error, effective = (
        np.stack([getattr(each, name) for each in found], axis=-1).reshape(*states.shape, -1)
        for name in ("error", "effective")
    )
    return LogZ(value, error, effective)


def entity_expectations(bundle: Bundle, states: States, effort: Effort, threads: int | None) -> Expectations:
    """The expected scores of every entity under every other, in every state.

    The first round, before any observation, is the same state for all patients, and is solved once.
    """
    n = len(bundle.entities)
    value = np.empty((len(RUNS), *states.shape, n, n))
    variance, effective = np.empty((*states.shape, n, n)), np.empty((*states.shape, n))

    def work(first: int, last: int) -> None:
        for job in range(first, last):
            u, p = divmod(job, len(states.names))
            entity = bundle.entities[u]
            mrf = bundle.mrf(entity)
            for t in range(min(p, 1), len(states.rounds)):
                found = expected_scores(bundle, entity, mrf, states.observed[p, t], states.values[p], effort)
                value[:, p, t, u], variance[p, t, u] = found.value, found.variance
                effective[p, t, u] = found.effective

    in_threads(work, n * len(states.names), threads)
    value[:, :, 0], variance[:, 0], effective[:, 0] = value[:, :1, 0], variance[:1, 0], effective[:1, 0]
    return Expectations(value, variance, effective)


def log_z_duels(found: LogZ, pairs: Pairs) -> tuple[Floats, Floats]:
    """The duels' log Z_a - log Z_b, (3, P, T, Q) nats, and the standard error of the first, (P, T, Q)."""
    a, b = pairs.T
    return found.value[..., a] - found.value[..., b], np.hypot(found.error[..., a], found.error[..., b])


def linearity_duels(found: Expectations, pairs: Pairs) -> tuple[Floats, Floats]:
    """The same of mu_D = (E_a[D] + E_b[D]) / 2 (eq:mu-D), D = S_a - S_b."""
    a, b = pairs.T
    cross = found.value
    difference = 0.5 * ((cross[..., a, a] - cross[..., b, b]) + (cross[..., b, a] - cross[..., a, b]))
    return difference, 0.5 * np.sqrt(found.variance[..., a, b] + found.variance[..., b, a])
