"""Compare decisions by mean-field inference with decisions by exact inference, from the same observations.

For each patient of a sample, features are observed in one random order. At each number of observed features in the
setting `rounds`, every duel (a comparison of two entities) is decided twice: by the score `two_elbo` and by the score
`linearity`. The binary task of every entity (is the entity present?) is decided under the closures `differential` and
`shared`, two ways to make the class models. Each decision is made with mean-field inference and again with exact
inference by elimination. Both kinds of inference use the same models, so that any difference is due to the mean-field
approximation. A state is excluded if exact inference would exceed the setting `limit`. The table `left_out` counts the
excluded states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from afa.cohort.cohort import Cohort
from afa.engine.compile import in_threads
from afa.engine.duels import all_pairs
from afa.engine.elimination import elimination_plan, log_partitions
from afa.engine.elimination_tables import UNOBSERVED
from afa.engine.layout import Pairs
from afa.engine.paths import snapshots
from afa.engine.tasks import elbo_differences
from afa.errors import InferenceError
from afa.evaluate.accuracy import Resampled
from afa.evaluate.inputs import each_in_threads, rounds_up_to, top_k_size
from afa.evaluate.long_tables import duel_rows, rows_of
from afa.evaluate.summary import summary_rows
from afa.inference.exact import estimate, pair_moments
from afa.inference.meanfield import Solver
from afa.model.arrays import Bools, Codes, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.closure import COUPLINGS, class_models
from afa.model.mrf import LOG3, Evidence, PairwiseMRF
from afa.model.orders import random_order, random_orders
from afa.scores.copeland import ranking

if TYPE_CHECKING:
    from afa.paper.experiments.settings import Accurate, Bootstrap, ClosureSettings, Inference


SCORE_TIE = 1e-9
"""Scores of at most this magnitude, in nats, are rounding errors."""
INFERENCE_COLUMNS = ("mean_field", "accurate")
POSTERIOR = {f"{name}_posterior": name for name in INFERENCE_COLUMNS}
ACCURATE_VS_MEAN_FIELD = "accurate_vs_mean_field"
DUEL, TASK = ["entity_a", "entity_b"], ["entity"]


def run(
    bundle: Bundle,
    cohort: Cohort,
    *,
    accurate: Accurate,
    top_k: int,
    closure: ClosureSettings,
    inference: Inference,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Compute scores for a sample of patients twice: with mean-field inference and with exact inference.

    The score `linearity` is computed only for the first `linearity_patients` patients. Each table except `left_out` has
    one row for each combination of patient, t and the further keys below. The number t of observed features is 0, one
    of `rounds`, or M. States that are too expensive for exact inference are excluded.

    Returns
    -------
    duels : further keys are (method, entity_a, entity_b). Scores are in nats. For `two_elbo`, `mean_field` is a
        difference of ELBOs, and `accurate` is log Z_a - log Z_b. For `linearity`, both are mu_D (eq:mu-D), computed
        with mean-field moments and with exact moments
    sets : a further key is method. Only states with exact scores of all entities have rows. `shared` is the number of
        entities that are in the mean-field top `k` and in the exact top `k`. `right_mean_field` and `right_accurate`
        are the numbers of entities in these two sets that are also in the top `k` at full observation
    tasks : further keys are (coupling, entity). The values are log-odds of class 1 in nats. `..._posterior` has the
        log-odds minus their value without observations
    left_out : one row for each (quantity, t). `states` is the number of pairs of a state and an entity, and `left_out`
        is the number of excluded pairs. `quantity` is the log partition or the moments of the entities, or the log-odds
        of the tasks under a closure

    """
    k, solver = top_k_size(bundle, top_k), Solver(**dict(inference))
    states = States.of(cohort, accurate.patients, accurate.seed, accurate.rounds)
    few = states.first(accurate.linearity_patients)
    pairs = all_pairs(len(bundle.entities))
    read = snapshots(bundle, states.values, states.orders, states.rounds, solver=solver, threads=threads)
    log_zs = np.stack([log_z(bundle.mrf(name), states, accurate.limit, threads) for name in bundle.entities], axis=-1)
    expected = expectations(bundle, few, accurate.limit, threads)
    a, b = pairs.T
    duels, sets = [], []
    for method, of, mean_field, exact in (
        ("two_elbo", states, read.elbo[..., a] - read.elbo[..., b], log_zs[..., a] - log_zs[..., b]),
        ("linearity", few, read.mean[: len(few.names)], linearity_duels(expected, pairs)),
    ):
        scores = {"mean_field": with_ties_as_zero(mean_field), "accurate": with_ties_as_zero(exact)}
        known = np.isfinite(exact)
        flat = {name: each.ravel() for name, each in scores.items()}
        table = duel_rows(bundle.entities, **of.axes).assign(method=method, **flat)
        duels.append(table[known.ravel()])
        complete = known.all(axis=-1)
        roughly, best = (_top_k_mask(bundle, pairs, np.where(known, each, 0.0), k) for each in scores.values())
        counts = {
            "shared": roughly & best,
            "right_mean_field": roughly & best[:, -1:],
            "right_accurate": best & best[:, -1:],
        }
        numbers = {name: members.sum(axis=-1).ravel() for name, members in counts.items()}
        sets.append(rows_of(**of.axes).assign(method=method, k=np.int16(k), **numbers)[complete.ravel()])
    tasks, lacking = _task_log_odds(bundle, states, accurate.limit, closure.strength, solver, threads)
    left_out = [
        _left_out("log_partition", states, log_zs),
        _left_out("moments", few, np.diagonal(expected, axis1=2, axis2=3)),
        *lacking,
    ]
    return {
        "duels": pd.concat(duels, ignore_index=True),
        "sets": pd.concat(sets, ignore_index=True),
        "tasks": tasks,
        "left_out": pd.concat(left_out, ignore_index=True),
    }


@dataclass(frozen=True)
class States:
    """T states of each of P patients, one state for each number of observed features in `rounds`.

    Parameters
    ----------
    names : (P,) names of the patients
    rounds : (T,) numbers of observations, from 0 to M
    orders : (P, M) int64, order of observation
    values : (P, M) int8 in {-1, 0, +1}
    observed : (P, T, M) bool

    """

    names: list[str]
    rounds: list[int]
    orders: Ints
    values: Codes
    observed: Bools

    @classmethod
    def of(cls, cohort: Cohort, patients: int, seed: int, rounds: Sequence[int]) -> States:
        """Choose at most `patients` patients by a hash of name and `seed`.

        Each patient gets one random order of features.
        """
        rows = random_order(cohort.patients, patient="", seed=seed, experiment="accurate")[:patients]
        names = [cohort.patients[row] for row in rows]
        orders = random_orders(cohort.features, names, [seed])[:, 0]
        rounds_read = rounds_up_to(rounds, len(cohort.features))
        place = np.argsort(orders, axis=1)
        return cls(names, rounds_read, orders, cohort.values[rows], place[:, None, :] < np.array(rounds_read)[:, None])

    @property
    def shape(self) -> tuple[int, int]:
        """Return (P, T)."""
        return len(self.names), len(self.rounds)

    @property
    def rows(self) -> tuple[Bools, Codes]:
        """Return two arrays with one row for each state: a mask of the observed features, and the values.

        Returns
        -------
        observed : (P T, M) bool
        values : (P T, M) int8

        """
        return self.observed.reshape(-1, self.observed.shape[2]), np.repeat(self.values, len(self.rounds), axis=0)

    def first(self, patients: int) -> States:
        """Return the states of the first `patients` patients."""
        part = slice(0, patients)
        return States(self.names[part], self.rounds, self.orders[part], self.values[part], self.observed[part])

    @property
    def axes(self) -> dict[str, Sequence[Any]]:
        """Return the key columns of a table that has one row for each state."""
        return {"patient": self.names, "t": self.rounds}


def log_z(mrf: PairwiseMRF, states: States, limit: float, threads: int | None) -> Floats:
    """Return log Z(x_obs) of one model in every state.

    Returns
    -------
    log_z : (P, T) float64, nats, or NaN if elimination would exceed `limit`

    """
    observed, values = states.rows
    support = mrf.support
    codes = np.where(observed[:, support], values[:, support], UNOBSERVED).astype(np.int8)
    _, first, row = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    row = row.reshape(-1)
    seen, known = observed[first], values[first]
    exactly = partial(log_partitions, mrf, factors=(1.0,), plan=elimination_plan(mrf), limit=limit)

    def of_state(i: int) -> float:
        try:
            return float(exactly(seen[[i]], known[[i]], threads=1)[0, 0])
        except InferenceError:
            return np.nan

    try:
        value = exactly(seen, known, threads=threads)[:, 0]
    except InferenceError:  # at least one state exceeds the limit: run the states one by one
        value = np.array(each_in_threads(of_state, range(len(first)), threads))
    uniform = (~observed).sum(axis=1)
    found: Floats = (value[row] + LOG3 * (uniform - uniform[first][row])).reshape(states.shape)
    return found


def expectations(bundle: Bundle, states: States, limit: float, threads: int | None) -> Floats:
    """Return E_u[S_v | x_obs], the expected score of entity v under the model of entity u, for all u, v and states.

    Without observations, the scores are the same for all patients and are computed only once.

    Returns
    -------
    expected : (P, T, N, N) float64, nats, with u on the third axis and v on the last. It is NaN if the pair moments of
        u would take more than `limit` operations

    """
    n = len(bundle.entities)
    found = np.empty((*states.shape, n, n))

    def work(first: int, last: int) -> None:
        for job in range(first, last):
            u, p = divmod(job, len(states.names))
            for t in range(min(p, 1), len(states.rounds)):
                found[p, t, u] = expected_scores(bundle, u, states.observed[p, t], states.values[p], limit)

    in_threads(work, n * len(states.names), threads)
    found[:, 0] = found[:1, 0]
    return found


def expected_scores(bundle: Bundle, entity: int, observed: Bools, values: Codes, limit: float) -> Floats:
    """Return the expected scores of all N entities in one state, under the model of one entity.

    Parameters
    ----------
    observed : (M,) bool
    values : (M,) int8 in {-1, 0, +1}

    Returns
    -------
    expected : (N,) float64, nats, or NaN if exact inference would exceed `limit`

    """
    mrf, packed = bundle.mrf(bundle.entities[entity]), bundle.packed
    evidence = Evidence.of(mrf, {mrf.features[j]: int(values[j]) for j in np.flatnonzero(observed)})
    if estimate(mrf, evidence, pairs=True).operations > limit:
        return np.full(len(bundle.entities), np.nan)
    moments, of_free = pair_moments(mrf, evidence)
    first = moments + evidence.values
    pairs = np.outer(first, first)
    pairs[np.ix_(evidence.free, evidence.free)] = of_free
    quadratic = np.bincount(packed.owner, packed.value * pairs[packed.row, packed.column], len(bundle.entities))
    return np.asarray(bundle.priors + bundle.unary @ first + quadratic)


def linearity_duels(expected: Floats, pairs: Pairs) -> Floats:
    """Return mu_D = (E_a[D] + E_b[D]) / 2 for each pair (a, b) of entities, where D = S_a - S_b (eq:mu-D).

    Parameters
    ----------
    expected : (P, T, N, N) float64, the result of `expectations`
    pairs : (Q, 2), indices of the entities a and b

    Returns
    -------
    mean : (P, T, Q) float64, nats

    """
    a, b = pairs.T
    own = expected[..., a, a] - expected[..., b, b]
    return np.asarray(0.5 * (own + (expected[..., b, a] - expected[..., a, b])))


def _left_out(quantity: str, states: States, values: Floats) -> pd.DataFrame:
    """Return, for each t, the number of all pairs (state, entity) and the number of pairs without an exact value.

    Parameters
    ----------
    values : (P, T, N)

    """
    counts = {"states": values.shape[0] * values.shape[2], "left_out": np.isnan(values).sum(axis=(0, 2))}
    return pd.DataFrame({"quantity": quantity, "t": states.rounds, **counts})


def with_ties_as_zero(scores: Floats) -> Floats:
    """Return the scores, with 0 in place of scores of magnitude at most `SCORE_TIE`.

    Parameters
    ----------
    scores : float64 of any shape, in nats

    """
    return np.where(np.abs(scores) <= SCORE_TIE, 0.0, scores)


def _top_k_mask(bundle: Bundle, pairs: Pairs, scores: Floats, k: int) -> Bools:
    """Return a mask of the k best entities in each state, (P, T, N).

    Parameters
    ----------
    scores : (P, T, Q) scores of duels

    """
    matrix = np.zeros((*scores.shape[:2], len(bundle.entities), len(bundle.entities)))
    matrix[..., pairs[:, 0], pairs[:, 1]] = scores
    matrix -= np.swapaxes(matrix, -1, -2)
    best = [[ranking(one, bundle.entities, tie=SCORE_TIE)[:k] for one in of_patient] for of_patient in matrix]
    return np.array([[np.isin(bundle.entities, names) for names in of_patient] for of_patient in best])


def _task_log_odds(
    bundle: Bundle, states: States, limit: float, strength: float, solver: Solver, threads: int | None
) -> tuple[pd.DataFrame, list[pd.DataFrame]]:
    """Return the log-odds in all binary tasks, and tables that count the states too expensive for exact inference."""
    observed, values = states.rows
    tables, lacking = [], []
    for coupling in COUPLINGS:
        exact_odds = np.full((*states.shape, len(bundle.entities)), np.nan)
        for i, entity in enumerate(bundle.entities):
            rough = elbo_differences(
                bundle, entity, observed, values, solver=solver, coupling=coupling, strength=strength, threads=threads
            )
            one, zero = (
                log_z(model, states, limit, threads) for model in class_models(bundle.mrf(entity), coupling, strength)
            )
            exact_odds[..., i] = one - zero
            exact_odds[np.isnan(exact_odds[:, 0, i]), :, i] = np.nan  # the log-odds at t = 0 are subtracted below
            odds = {"mean_field": rough.raw.reshape(states.shape), "accurate": exact_odds[..., i]}
            table = rows_of(**states.axes).assign(entity=entity, coupling=coupling)
            for name, raw in odds.items():
                table[name] = with_ties_as_zero(raw).ravel()
                table[f"{name}_posterior"] = with_ties_as_zero(raw - raw[:, :1]).ravel()
            tables.append(table.dropna())
        lacking.append(_left_out(f"log_odds_{coupling}", states, exact_odds))
    return pd.concat(tables, ignore_index=True), lacking


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Return the rows of the table `meanfield_vs_exact` in `summary.csv`.

    docs/summary.md describes this table in full.

    Rows about duels are separate for each method. Rows about binary tasks are separate for each method and coupling.

    Returns
    -------
    rate : share of the exact decisions that mean-field changes. A tie instead of a decision counts one half. In the
        stratum `top_k`, it is the share of patients whose top k differs
    nats : mean absolute difference between the mean-field and the exact score
    accuracy : share of decisions that equal the decision at full observation, for each kind of inference (`reference`)
    gap : accuracy with exact inference minus accuracy with mean-field inference
    count : number of pairs of a state and an entity without exact inference, with the quantity `left_out`. `n` is the
        number of all pairs
    exact_shift : a variant of the mean-field log-odds, in which the subtracted value without observations is computed
        exactly

    """
    rows = []
    for name, key, of_part in (
        ("tasks", "coupling", _task_rows),
        ("duels", "method", partial(_decision_rows, keys=DUEL)),
        ("sets", "method", _top_k_set_rows),
    ):
        for label, part in tables[name].groupby(key, sort=False):
            rows += [table.assign(**{key: str(label)}) for table in of_part(part, bootstrap)]
    left_out = tables["left_out"]
    counts = left_out.assign(
        metric="count", stratum=left_out["quantity"], value=left_out["left_out"], n=left_out["states"]
    )
    rows.append(counts[["metric", "stratum", "t", "value", "n"]].assign(quantity="left_out"))
    whole = pd.concat(rows, ignore_index=True).dropna(subset=["value"])
    return summary_rows("meanfield_vs_exact", whole, allocation="random", start="uniform")


def _resampled(table: pd.DataFrame, bootstrap: Bootstrap) -> Resampled:
    return Resampled.of(table["patient"].unique(), **dict(bootstrap), purpose="accurate")


def _task_rows(table: pd.DataFrame, bootstrap: Bootstrap) -> Iterator[pd.DataFrame]:
    posterior = table.drop(columns=list(POSTERIOR.values())).rename(columns=POSTERIOR)
    for method, cases in (("two_elbo", table), ("posterior", posterior)):
        for rows in _decision_rows(cases, bootstrap, TASK):
            yield rows.assign(method=method)
    shift = table["accurate"] - table["accurate_posterior"]
    with_exact_shift = posterior.assign(
        mean_field=with_ties_as_zero((table["mean_field"] - shift).to_numpy(dtype=float))
    )
    for rows in _decision_rows(with_exact_shift, bootstrap, TASK):
        of_mean_field = "reference" not in rows or (rows["reference"] != "accurate").all()
        if "quantity" not in rows and of_mean_field:
            yield rows.assign(method="posterior", variant="exact_shift")


def _decision_rows(table: pd.DataFrame, bootstrap: Bootstrap, keys: list[str]) -> Iterator[pd.DataFrame]:
    """Yield summary rows about decisions.

    The rows are shares of decisions on which mean-field and exact inference differ, mean differences of scores, and
    accuracies.
    """
    signs = {name: np.sign(table[name]) for name in INFERENCE_COLUMNS}
    last = table[table["t"] == table["t"].max()].set_index(["patient", *keys])["accurate"]
    target = np.sign(last.loc[pd.MultiIndex.from_frame(table[["patient", *keys]])].to_numpy())
    changed = (signs["mean_field"] - signs["accurate"]).abs() / 2
    known = target != 0
    table = table[["patient", "t"]].assign(
        one=1,
        changed=changed,
        nats=(table["mean_field"] - table["accurate"]).abs(),
        winner=known,
        right_mean_field=np.where(known, (1 + signs["mean_field"] * target) / 2, 0.0),
        right_accurate=np.where(known, (1 + signs["accurate"] * target) / 2, 0.0),
        disputed=known & (changed > 0),
    )
    table["disputed_right"] = table["right_accurate"].where(table["disputed"], 0.0)
    yield from _shares(
        table,
        bootstrap,
        ("changed", "one", {"metric": "rate"}),
        ("disputed_right", "disputed", {"metric": "rate", "quantity": "accurate_right"}),
        ("nats", "one", {"metric": "nats"}),
    )
    yield from _against_full_observation(table, bootstrap, "winner", "accuracy")


def _top_k_set_rows(table: pd.DataFrame, bootstrap: Bootstrap) -> Iterator[pd.DataFrame]:
    """Yield how often mean-field and exact inference choose different top-k sets, and the precision of both sets."""
    table = table.assign(one=1, changed=table["shared"] < table["k"])
    yield from _shares(table, bootstrap, ("changed", "one", {"metric": "rate", "stratum": "top_k"}))
    yield from _against_full_observation(table, bootstrap, "k", "p_at_k", stratum="top_k")


def _shares(
    table: pd.DataFrame, bootstrap: Bootstrap, *shares: tuple[str, str, Mapping[str, str]]
) -> Iterator[pd.DataFrame]:
    """Yield, for each item of `shares`, the ratio of two columns of `table` at each number t of observed features.

    An item of `shares` is (name of the numerator column, name of the denominator column, labels of the rows). Both
    columns are summed before the division.
    """
    resampled = _resampled(table, bootstrap)
    for counted, total, label in shares:
        yield resampled.share(table, counted, total).assign(**label)


def _against_full_observation(
    table: pd.DataFrame, bootstrap: Bootstrap, total: str, metric: str, **of_gap: str
) -> Iterator[pd.DataFrame]:
    """Yield the accuracies of mean-field and of exact decisions at each t, and the difference of the two accuracies."""
    resampled = _resampled(table, bootstrap)
    names = ("mean_field", "accurate")
    for name in names:
        share = resampled.share(table, f"right_{name}", total)
        yield share.assign(metric=metric, reference=name, target="likelihood")
    mean_field, accurate, cases = resampled.sums(table, *(f"right_{name}" for name in names), total)
    gap = resampled.gap([(accurate, cases)], [(mean_field, cases)]).assign(t=sorted(table["t"].unique()))
    yield gap.assign(metric="gap", reference=ACCURATE_VS_MEAN_FIELD, target="likelihood", **of_gap)
