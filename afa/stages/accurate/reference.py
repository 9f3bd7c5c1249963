"""What an entity's model says of a state without the mean-field approximation: exactly, or by annealed sampling.

Each state is solved exactly where elimination stays within a limit, and by annealed importance sampling elsewhere. A
sampled answer carries its standard error, and is given three times: by all chains, and by each half of them, which are
two independent runs. Where a state is exact the three agree. The states are those of some patients at a few rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.engine.compile import in_threads
from afa.engine.duels import all_pairs
from afa.engine.elimination import elimination_plan, entries_at_no_observation, log_partitions
from afa.engine.layout import Pairs
from afa.errors import InferenceError
from afa.inference.annealed import Annealed, annealed
from afa.inference.exact import estimate, pair_moments
from afa.mrf import LOG3, Evidence, Floats, PairwiseMRF
from afa.orders import generator_of, random_order, random_orders
from afa.stages.inputs import each_in_threads, rounds_up_to
from afa.stats.tables import rows_of

if TYPE_CHECKING:
    from afa.stages.accurate import Settings

Seen = NDArray[np.bool_]
Values = NDArray[np.int8]
RUNS = ("all chains", "first half", "second half")
UNOBSERVED = 2
OPEN = 2.0
"""A sampled difference within so many standard errors of 0 decides nothing."""


class LogZ(NamedTuple):
    """log Z(x_obs) of one model in R states, nats; of all entities of a bundle (..., N).

    value : (3, R), by `RUNS`. error : (R,) standard error of the first, 0 where it is exact. effective : (R,) effective
    chains, NaN where it is exact.
    """

    value: Floats
    error: Floats
    effective: Floats


def log_z(
    mrf: PairwiseMRF, name: str, observed: Seen, values: Values, effort: Settings, *, threads: int | None = None
) -> LogZ:
    """The log-partition of `mrf` in R states, observed and values (R, M); `name` makes the seeds of samples.

    effort : the limit of one exact solve, and the chains and steps of a sampled one.
    """
    support = mrf.support
    codes = np.where(observed[:, support], values[:, support], UNOBSERVED).astype(np.int8)
    _, first, row = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    row = row.reshape(-1)
    seen, known = observed[first], values[first]
    error, effective = np.zeros(len(first)), np.full(len(first), np.nan)
    exactly = partial(log_partitions, mrf, factors=(1.0,), plan=elimination_plan(mrf), limit=effort.limit)

    def of_state(i: int) -> list[float]:
        try:
            return [float(exactly(seen[[i]], known[[i]], threads=1)[0, 0])] * len(RUNS)
        except InferenceError:
            sampled = sampled_state(mrf, name, seen[i], known[i], effort)
            error[i], effective[i] = sampled.error, sampled.effective
            return log_partitions_of(sampled)

    try:
        value = np.tile(exactly(seen, known, threads=threads)[:, 0], (len(RUNS), 1))
    except InferenceError:  # of one state or more: each is judged by itself
        value = np.transpose(each_in_threads(of_state, range(len(first)), threads))
    uniform = (~observed).sum(axis=1)
    return LogZ(value[:, row] + LOG3 * (uniform - uniform[first][row]), error[row], effective[row])


def sampled_state(mrf: PairwiseMRF, name: str, observed: Seen, values: Values, effort: Settings) -> Annealed:
    """Annealed chains in one state, (M,); the same ones for the same name and the same observations of the support."""
    evidence = evidence_of(mrf, observed, values)
    told = [f"{mrf.features[j]}={values[j]:+d}" for j in mrf.support if observed[j]]
    generator = generator_of("accurate", name, *sorted(told))
    return annealed(mrf, evidence, chains=effort.chains, steps=effort.steps, generator=generator)


def evidence_of(mrf: PairwiseMRF, observed: Seen, values: Values) -> Evidence:
    """The evidence of one state, observed and values (M,)."""
    return Evidence.of(mrf, {mrf.features[j]: int(values[j]) for j in np.flatnonzero(observed)})


def halves(found: Annealed) -> list[slice]:
    """The chains of the two independent runs that sampled chains are."""
    middle = len(found.weights) // 2
    return [slice(0, middle), slice(middle, len(found.weights))]


def log_partitions_of(found: Annealed) -> list[float]:
    """The log-partition by all chains and by each half of them (`RUNS`), in nats."""
    parts = [float(np.log(len(found.weights) * found.weights[half].mean())) for half in halves(found)]
    return [found.log_partition, *(found.log_partition + part for part in parts)]


def scores_of(bundle: Bundle, evidence: Evidence, values: Values) -> Floats:
    """(K, N) S_v at K values (K, n) of the free features in `evidence`, in nats.

    Features that are neither observed nor free have expectation 0.
    """
    x = np.tile(evidence.values.astype(np.float64), (len(values), 1))
    x[:, evidence.free] = values
    parts = [bundle.packed.of(v) for v in range(len(bundle.entities))]
    quadratic = [(x[:, row] * x[:, column]) @ value for row, column, value in parts]
    return np.asarray(bundle.priors + x @ bundle.unary.T + np.stack(quadratic, axis=1))


class Expected(NamedTuple):
    """E[S_v | x_obs] of all N scores under the model of entity u in one state, nats; of P patients at T rounds too.

    value : (3, N) by `RUNS`, or (3, P, T, N, N) by u and then v. variance : (N,) or (P, T, N, N), squared standard
    error of E[S_u - S_v] by all chains: 0 where it is exact, infinite where too few chains are effective. effective :
    of the chains, one number or (P, T, N), NaN where it is exact.
    """

    value: Floats
    variance: Floats
    effective: Floats


def expected_scores(
    bundle: Bundle, entity: str, mrf: PairwiseMRF, observed: Seen, values: Values, effort: Settings
) -> Expected:
    """All scores under the model `mrf` of `entity`, exactly where its pair moments take few enough operations."""
    evidence, packed = evidence_of(mrf, observed, values), bundle.packed
    if estimate(mrf, evidence, pairs=True).operations > effort.limit:
        return sampled_scores(bundle, entity, evidence, sampled_state(mrf, entity, observed, values, effort))
    moments, of_free = pair_moments(mrf, evidence)
    first = moments + evidence.values
    pairs = np.outer(first, first)
    pairs[np.ix_(evidence.free, evidence.free)] = of_free
    quadratic = np.bincount(packed.owner, packed.value * pairs[packed.row, packed.column], len(bundle.entities))
    exact = bundle.priors + bundle.unary @ first + quadratic
    return Expected(np.tile(exact, (len(RUNS), 1)), np.zeros(len(exact)), np.array(np.nan))


def sampled_scores(bundle: Bundle, entity: str, evidence: Evidence, found: Annealed) -> Expected:
    """All scores under the sampled chains of an entity; errors by the delta method."""
    each = scores_of(bundle, evidence, found.values)
    value = [np.einsum("k,kv->v", found.weights, each)]
    for half in halves(found):
        weights = found.weights[half] / found.weights[half].sum()
        value.append(np.einsum("k,kv->v", weights, each[half]))
    beyond = each[:, [bundle.index(entity)]] - each
    about = found.weights[:, None] * (beyond - np.einsum("k,kv->v", found.weights, beyond))
    variance: Floats = np.einsum("kv,kv->v", about, about)
    if not np.isfinite(found.error):
        variance = np.full_like(variance, np.inf)
    return Expected(np.array(value), variance, np.array(found.effective))


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
        orders = random_orders(cohort.features, names, [seed])[:, 0]
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

    @property
    def axes(self) -> dict[str, Sequence[Any]]:
        """What a table of the states is by."""
        return {"patient": self.names, "t": self.rounds}


def all_exact(bundle: Bundle, effort: Settings) -> bool:
    """Whether log Z of every entity is within the limit of exact inference where nothing is observed."""
    plans = (elimination_plan(bundle.mrf(entity)) for entity in bundle.entities)
    return all(entries_at_no_observation(plan) <= effort.limit for plan in plans)


def entity_log_zs(bundle: Bundle, states: States, effort: Settings, threads: int | None) -> LogZ:
    """The log-partition of every entity in every state: value (3, P, T, N), error and effective (P, T, N)."""
    observed, values = states.rows
    found = [log_z(bundle.mrf(name), name, observed, values, effort, threads=threads) for name in bundle.entities]
    value, *others = (np.stack(parts, axis=-1) for parts in zip(*found, strict=True))
    error, effective = (each.reshape(*states.shape, -1) for each in others)
    return LogZ(value.reshape(len(RUNS), *states.shape, -1), error, effective)


def entity_expectations(bundle: Bundle, states: States, effort: Settings, threads: int | None) -> Expected:
    """The expected scores of every entity under every other, in every state."""

    def expected(entity: str, observed: Seen, values: Values) -> Expected:
        return expected_scores(bundle, entity, bundle.mrf(entity), observed, values, effort)

    value, variance, effective = in_every_state(bundle, states, expected, threads)
    return Expected(np.moveaxis(value, 3, 0), variance, effective)


def entity_samples(bundle: Bundle, states: States, effort: Settings, threads: int | None) -> tuple[LogZ, Expected]:
    """Every entity in every state by sampling, shapes as in `entity_log_zs` and `entity_expectations`."""

    def sampled(entity: str, observed: Seen, values: Values) -> tuple[Any, ...]:
        mrf = bundle.mrf(entity)
        found = sampled_state(mrf, entity, observed, values, effort)
        scores = sampled_scores(bundle, entity, evidence_of(mrf, observed, values), found)
        return log_partitions_of(found), found.error, *scores

    log_zs, error, value, variance, effective = in_every_state(bundle, states, sampled, threads)
    return LogZ(np.moveaxis(log_zs, 3, 0), error, effective), Expected(np.moveaxis(value, 3, 0), variance, effective)


def in_every_state(
    bundle: Bundle, states: States, answer: Callable[[str, Seen, Values], tuple[Any, ...]], threads: int | None
) -> list[Floats]:
    """(P, T, N, ...) each of the numbers or arrays that `answer` says of each entity in each state.

    The first round, before any observation, is the same state for all patients, and is asked about once.
    """
    found = np.empty((*states.shape, len(bundle.entities)), dtype=object)

    def work(first: int, last: int) -> None:
        for job in range(first, last):
            u, p = divmod(job, len(states.names))
            for t in range(min(p, 1), len(states.rounds)):
                found[p, t, u] = answer(bundle.entities[u], states.observed[p, t], states.values[p])

    in_threads(work, len(bundle.entities) * len(states.names), threads)
    found[:, 0] = found[:1, 0]
    return [np.array(each).reshape(*found.shape, *np.shape(each[0])) for each in zip(*found.flat, strict=True)]


def log_z_duels(found: LogZ, pairs: Pairs) -> tuple[Floats, Floats]:
    """The duels' log Z_a - log Z_b, (3, P, T, Q) nats, and the standard error of the first, (P, T, Q)."""
    a, b = pairs.T
    return found.value[..., a] - found.value[..., b], np.hypot(found.error[..., a], found.error[..., b])


def linearity_duels(found: Expected, pairs: Pairs) -> tuple[Floats, Floats]:
    """The same of mu_D = (E_a[D] + E_b[D]) / 2 (eq:mu-D), D = S_a - S_b."""
    a, b = pairs.T
    cross = found.value
    difference = 0.5 * ((cross[..., a, a] - cross[..., b, b]) + (cross[..., b, a] - cross[..., a, b]))
    return difference, 0.5 * np.sqrt(found.variance[..., a, b] + found.variance[..., b, a])


def checked_duels(
    bundle: Bundle, states: States, log_zs: LogZ, expected: Expected, effort: Settings, threads: int | None
) -> pd.DataFrame:
    """What sampling gets wrong where the exact answer is known: the null of everything that rests on it.

    A decision that the two make otherwise is the sampler's, and not mean-field's. `log_zs` and `expected` are the
    accurate ones of at least these patients. Full observation is left out, where there is nothing to sample.
    """
    n, pairs = len(states.names), all_pairs(len(bundle.entities))
    sampled_z, sampled_scores = entity_samples(bundle, states, effort, threads)
    known_z, known_scores = log_zs.error[:n] == 0, np.isnan(expected.effective[:n])
    duels = []
    for method, (accurate, _), (sampled, error), known in (
        ("two_elbo", log_z_duels(log_zs, pairs), log_z_duels(sampled_z, pairs), known_z),
        ("linearity", linearity_duels(expected, pairs), linearity_duels(sampled_scores, pairs), known_scores),
    ):
        both = known[..., pairs].all(axis=-1)
        undecided = both & (np.abs(sampled[0]) <= OPEN * error)
        apart = np.abs(accurate[0, :n] - sampled[0])
        signs = np.abs(np.sign(accurate[0, :n]) - np.sign(sampled[0])) / 2
        counted = {
            "duels": both,
            "open": undecided,
            "changed": np.where(both & ~undecided, signs, 0.0),
            "apart": np.where(both, apart, 0.0),
            "within": both & (apart <= OPEN * error),
        }
        sums = {name: each.sum(axis=-1).ravel() for name, each in counted.items()}
        duels.append(rows_of(**states.axes).assign(method=method, **sums))
    whole = pd.concat(duels, ignore_index=True)
    return whole[whole["t"] < states.rounds[-1]].reset_index(drop=True)
