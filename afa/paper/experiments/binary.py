"""Decisions in the binary task of each phenotype, for features observed in random and in informed orders.

The target `likelihood` is the sign of the score S when all features are observed. The setting `closure` determines how
S is computed. The target `clinical` is the patient's label, if known (tab:classification_with_llm). `summarise`
compares the decisions of each score with both targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from afa.cohort.cohort import Cohort
from afa.engine.layout import Models
from afa.engine.tasks import TASK_BRACKETS, TASK_SCORES, ClassTask, follow_gain, follow_orders, task_of
from afa.evaluate.accuracy import Part, Resampled, auroc, by_t, right_of
from afa.evaluate.inputs import each_in_threads
from afa.evaluate.long_tables import Cube, groups
from afa.evaluate.summary import Labelled, count_rows, labelled, summary_rows
from afa.inference.meanfield import Solver
from afa.model.arrays import Codes, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.closure import Closure
from afa.model.orders import PAPER_ROUNDS, random_orders

if TYPE_CHECKING:
    from afa.paper.experiments import settings


F_TARGETS = ("two_elbo", "stack_a")
WAYS_OF_COUNTING: dict[str, dict[str, str]] = {
    "accuracy": {"metric": "accuracy"},
    "balanced_accuracy": {"metric": "balanced_accuracy"},
    "prior_wrong": {"metric": "accuracy", "stratum": "prior_wrong"},
    "support": {"metric": "accuracy", "variant": "support"},
}
"""Way of counting correct decisions -> its key columns in the summary."""


TASK_ORDERS = (
    ("random", "", ""),
    ("greedy", "cmi", ""),
    *(("greedy", "f_target", target) for target in F_TARGETS),
    ("largest_unary", "", ""),
    ("static_unary", "", ""),
)
"""Orders of a task's features: the rule, its gain, and the guide. The guide is the score F of `f_target`, else ""."""


def run(
    bundle: Bundle,
    cohort: Cohort,
    *,
    random_order: settings.RandomOrder,
    inference: settings.Inference,
    closure: settings.ClosureSettings,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Compute the scores of all patients in the binary tasks of all entities, for every order of observation.

    Each patient has one random order of all M features for each seed. The rule `greedy` chooses features by expected
    information. The rules `largest_unary` and `static_unary` choose features by unary potentials. `greedy` is run with
    the gain `cmi`, and also with the gain `f_target` for each of the scores `two_elbo` and `stack_a`. If the class
    models are made from probabilities (`explicit`), the gain `f_target` is not used. In each round, `largest_unary`
    chooses the feature whose effective unary potential has the largest magnitude. `static_unary` sorts features by
    absolute unary potential, largest first, and uses this order for all patients.

    Returns
    -------
    steps : one row for each (patient, entity, allocation, gain, guide, seed, step). Step i is the state after i
        features of the entity's support have been observed. A step begins with the t-th observation and lasts until the
        next step. `wald` and `two_elbo` are in nats, and `stack_a` is in [-1, 1]. `l1_tight`, `l1_paper` and
        `hanson_wright` contain the sign that these score bounds have decided, or 0 while undecided
    targets : one row for each (patient, entity). `likelihood` is the sign of S(x), or 0 for a tie. `clinical` is 0, 1
        or missing. `score` is S(x) in nats
    tasks : one row for each entity. `features` is the number of features. `support` is the number of features in the
        entity's model. `shift` is the value of F_1 - F_0 before any observation, minus the prior log-odds, in nats

    """
    return run_along(TASK_ORDERS, bundle, cohort, random_order, inference, closure, threads)


def run_along(
    ways: Sequence[tuple[str, str, str]],
    bundle: Bundle,
    cohort: Cohort,
    random_order: settings.RandomOrder,
    inference: settings.Inference,
    closure: settings.ClosureSettings,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Return the tables of `run`, but only for the orders of features in `ways`."""
    seeds, coupling, solver = random_order.seeds, closure.coupling, Solver(**dict(inference))
    orders = random_orders(bundle.features, cohort.patients, seeds)

    def followed(entity: str) -> dict[str, pd.DataFrame]:
        task = task_of(bundle, entity, solver=solver, coupling=coupling, strength=closure.strength)
        steps = [table.assign(entity=entity) for table in _step_rows(task, bundle, cohort, entity, seeds, orders, ways)]
        mrf = bundle.mrf(entity)
        row = {"entity": entity, "features": mrf.n_features, "support": len(mrf.support), "shift": task.shift}
        targets = targets_of(bundle, cohort, entity, coupling, task.tie)
        return {"steps": pd.concat(steps, ignore_index=True), "targets": targets, "tasks": pd.DataFrame([row])}

    parts = each_in_threads(followed, bundle.entities, threads)
    return {name: pd.concat([part[name] for part in parts], ignore_index=True) for name in parts[0]}


def targets_of(bundle: Bundle, cohort: Cohort, entity: str, coupling: Closure, tie: float) -> pd.DataFrame:
    """Return the rows of the table `targets` for one entity and one way (`coupling`) to make the class models.

    Parameters
    ----------
    tie : largest magnitude of a tied score, in nats, as in `ClassTask`

    """
    score = bundle.energies_of(entity, cohort.values, coupling)
    sign = np.sign(np.where(np.abs(score) <= 2 * tie, 0.0, score)).astype(np.int8)
    return pd.DataFrame(
        {
            "patient": list(cohort.patients),
            "entity": entity,
            "likelihood": sign,
            "clinical": cohort.labels.reindex(columns=[entity])[entity].astype("Int8").array,
            "score": score,
        }
    )


def _step_rows(
    task: ClassTask,
    bundle: Bundle,
    cohort: Cohort,
    entity: str,
    seeds: Sequence[int],
    orders: Ints,
    ways: Sequence[tuple[str, str, str]],
) -> Iterator[pd.DataFrame]:
    """Yield the rows of the table `steps` about one entity, one data frame for each order of observation."""
    patients, values = list(cohort.patients), cohort.values
    for allocation, gain, guide in ways:
        runs: Sequence[int | None] = [None]
        if allocation == "random":
            runs, paths = seeds, follow_orders(task, values, orders)
        elif allocation == "static_unary":
            paths = follow_orders(task, values, np.tile(static_order(bundle, entity), (len(patients), 1, 1)))
        elif gain == "f_target" and isinstance(task.bundle, Models):
            continue
        else:
            paths = follow_gain(task, values, gain=gain or "wald_magnitude", target=guide or None)
        n_patients, n_orders, n_steps = paths.t.shape
        yield pd.DataFrame(
            {
                "patient": pd.Categorical(np.repeat(patients, n_orders * n_steps), categories=patients),
                "allocation": allocation,
                "gain": gain,
                "guide": guide,
                "seed": pd.array(np.tile(np.repeat(list(runs), n_steps), n_patients), dtype="Int64"),
                "step": np.tile(np.arange(n_steps, dtype=np.int32), n_patients * n_orders),
                "t": paths.t.ravel(),
                **{method: getattr(paths, method).ravel() for method in TASK_SCORES},
                **{bracket: paths.calls[..., i].ravel() for i, bracket in enumerate(TASK_BRACKETS)},
            }
        )


def static_order(bundle: Bundle, entity: str) -> Ints:
    """Return the features sorted by their absolute unary potential for one entity, largest first.

    Among features with equal absolute unary potential, features with couplings come first. Remaining ties are sorted by
    name.

    Returns
    -------
    order : (M,) int64, indices of features

    """
    unary = np.abs(bundle.unary[bundle.index(entity)])
    supported = np.isin(np.arange(len(unary)), bundle.support(entity))
    order = sorted(range(len(unary)), key=lambda j: (-unary[j], not supported[j], bundle.features[j]))
    return np.array(order, dtype=np.int64)


TASK_TARGETS = ("likelihood", "clinical")
BRACKET_METHOD = {"l1_tight": "wald", "l1_paper": "wald", "hanson_wright": "stack_a"}
LAYER_ONE = ("random", "largest_unary", "static_unary")


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: settings.Bootstrap) -> pd.DataFrame:
    """Return the rows of the tables `binary` and `bracket_rate` in `summary.csv`.

    There is one row for each target, method, order and t. Rows about a single entity are given only at the values of t
    in the paper's tables.

    Returns
    -------
    accuracy, balanced_accuracy, auroc : means over tasks. The stratum `prior_wrong` has the cases that `two_elbo`
        decides wrongly before any observation. In the variant `support`, t counts features of the entity's support
    gap : for an informed order, its accuracy minus the accuracy along the random order. For the random order, the
        accuracy of the score `method` minus the accuracy of the score `reference`
    majority, prevalence, count : given once for each target. The counts are numbers of excluded cases

    """
    steps, targets, tasks = (tables[name] for name in ("steps", "targets", "tasks"))
    entities, patients = list(tasks["entity"]), list(targets["patient"].unique())
    last_round = int(tasks["features"].iloc[0])
    resampled = Resampled.of(patients, **dict(bootstrap), purpose="binary")
    truth = {target: truth_of(targets, target, patients, entities) for target in TASK_TARGETS}
    cubes = {
        (allocation, gain or None, guide or None): Cube.of(part, patients, entities, last_round)
        for (allocation, gain, guide), part in groups(steps, "allocation", "gain", "guide")
    }
    rows: list[Labelled] = []
    random: dict[tuple[str, str], dict[str, list[Part]]] = {}
    shown = [target for target in TASK_TARGETS if (truth[target] != 0).any()]
    for (allocation, gain, guide), cube in cubes.items():
        if allocation == "static_unary":
            continue
        for target, method in product(shown, TASK_SCORES):
            label = {"method": method, "allocation": allocation, "gain": gain, "guide": guide, "target": target}
            parts = _decision_counts(cube, method, truth[target])
            along = random.setdefault((target, method), parts)
            rows += [(table, label) for table in _accuracies(parts, along, resampled)]
            rows += [(table, label) for table in _task_metric_rows(cube, method, truth[target], entities, resampled)]
    # Each score is compared with each later score of `TASK_SCORES` on the same decisions, orders and resamples (A13).
    for target, (ahead, behind) in product(shown, combinations(TASK_SCORES, 2)):
        gap = resampled.gap(random[target, ahead]["accuracy"], random[target, behind]["accuracy"])
        label = {"metric": "gap", "method": ahead, "reference": behind, "allocation": "random", "target": target}
        rows.append((by_t(gap), label))
    rows += [
        (table, {"target": target})
        for target in TASK_TARGETS
        for table in _constant_answer_rows(truth, target, resampled)
    ]
    binary = summary_rows("binary", labelled(rows).assign(schedule="every", start="uniform"))
    rates = list(_bracket_rates(cubes, truth["likelihood"], resampled))
    brackets = summary_rows("bracket_rate", rates, stratum="binary", schedule="every", start="uniform")
    return pd.concat([binary, brackets], ignore_index=True)


def truth_of(targets: pd.DataFrame, target: str, patients: Sequence[str], entities: Sequence[str]) -> Codes:
    """Return the correct class of each patient in the task of each entity.

    Returns
    -------
    truth : (P, E) int8, -1 or +1, or 0 if the patient has no target

    """
    table = targets.pivot(index="patient", columns="entity", values=target).loc[list(patients), list(entities)]
    if target == "clinical":
        table = table.astype("Float64").mul(2).sub(1).fillna(0)
    return table.to_numpy(dtype=np.int8)


def _decision_counts(cube: Cube, method: str, truth: Codes) -> dict[str, list[Part]]:
    """Return, for each key of `WAYS_OF_COUNTING`, the numbers of correct and of all decisions, by patient and t."""
    by_step = cube.signs(method)
    signs = cube.by_round(by_step)
    target = np.repeat(truth[:, :, None], cube.shape[2], axis=2)
    every = np.ones(target.shape, dtype=bool)
    prior = cube.by_round(cube.signs("two_elbo"))[..., 0]
    return {
        "accuracy": [right_of(signs, target, every)],
        "balanced_accuracy": [right_of(signs, target, target == side) for side in (1, -1)],
        "prior_wrong": [right_of(signs, target, prior == -target)],
        "support": [right_of(cube.by_step(by_step), target, every)],
    }


def _accuracies(
    parts: dict[str, list[Part]], random: dict[str, list[Part]], resampled: Resampled
) -> Iterator[pd.DataFrame]:
    """Yield accuracies for one order of features, and the differences from the accuracies for random orders.

    `WAYS_OF_COUNTING` lists several kinds of accuracy. The differences from random orders are computed only for two
    kinds, `accuracy` and `support`.
    """
    for cut, keys in WAYS_OF_COUNTING.items():
        yield by_t(resampled.mean(parts[cut])).assign(**keys)
    for cut, variant in (("accuracy", None), ("support", "support")) if parts is not random else ():
        gap = by_t(resampled.gap(parts[cut], random[cut]))
        yield gap.assign(metric="gap", variant=variant, reference="random")


def _task_metric_rows(
    cube: Cube, method: str, truth: Codes, entities: Sequence[str], resampled: Resampled
) -> Iterator[pd.DataFrame]:
    """Yield the mean AUROC over tasks, and each task's accuracy at the paper's rounds.

    The AUROC is computed for each order of observation and averaged over orders. It has no interval.
    """
    rounds = [t for t in PAPER_ROUNDS if t < cube.last_round] + [cube.last_round]
    scores, signs = cube.by_round(cube.columns[method]), cube.by_round(cube.signs(method))[..., rounds]
    areas, cases, parts = list[Floats](), 0, dict[str, Part]()
    for i, entity in enumerate(entities):
        known, positive = truth[:, i] != 0, truth[:, i] > 0
        runs = [auroc(scores[known, i, run].astype(float), positive[known]) for run in range(cube.shape[2])]
        if not np.isnan(runs[0]).any():
            areas.append(np.mean(runs, axis=0))
            cases += int(known.sum()) * cube.shape[2]
        if known.any():
            target = np.repeat(truth[:, i, None], cube.shape[2], axis=1)
            parts[entity] = right_of(signs[:, i], target, np.ones(target.shape, dtype=bool))
    value = np.mean(areas, axis=0) if areas else np.full(scores.shape[-1], np.nan)
    yield by_t(pd.DataFrame({"value": value, "n": cases})).assign(metric="auroc")
    right, total = (np.concatenate(side, axis=1) for side in zip(*parts.values(), strict=True))
    table = resampled.mean([(right, total)]).assign(t=rounds * len(parts), metric="accuracy")
    yield table.assign(entity=np.repeat(list(parts), len(rounds)))


def _constant_answer_rows(truth: dict[str, Codes], target: str, resampled: Resampled) -> Iterator[pd.DataFrame]:
    """Yield the numbers of excluded cases, the accuracy of the best constant answer, and the prevalence."""
    known = truth[target] != 0
    counts = {"tied_at_full_observation" if target == "likelihood" else "without_label": (~known).sum()}
    if target == "likelihood":
        counts["patients_tied_everywhere"] = (~known).all(axis=1).sum()
    yield count_rows({quantity: (count, known.size) for quantity, count in counts.items()})
    if known.any():
        yield from resampled.constant(truth[target])


def _bracket_rates(
    cubes: dict[tuple[str, str | None, str | None], Cube], truth: Codes, resampled: Resampled
) -> Iterator[pd.DataFrame]:
    """Yield, for each t, the share of cases decided by score bounds, and the share of wrong decisions.

    Cases that are tied at full observation are excluded (decisions.md M1; tab:layer1_informed).
    """
    decided = truth[:, :, None, None] != 0
    followed = [allocation for allocation in LAYER_ONE if (allocation, None, None) in cubes]
    for allocation, bracket in product(followed, TASK_BRACKETS):
        cube = cubes[allocation, None, None]
        for variant, spread in ((None, cube.by_round), ("support", cube.by_step)):
            calls = spread(cube.columns[bracket])  # (P, E, R, T)
            called_at = (calls != 0) & decided
            masks = called_at, called_at & (calls != truth[:, :, None, None])
            called, wrong = (mask.sum(axis=(1, 2)).astype(np.float64) for mask in masks)
            total = np.broadcast_to(calls.shape[2] * decided.sum(axis=(1, 2)).astype(np.float64), called.shape)
            keys = {"metric": "rate", "variant": variant, "method": BRACKET_METHOD[bracket], "reference": bracket}
            yield by_t(resampled.mean([(called, total)])).assign(allocation=allocation, **keys)
            yield by_t(resampled.mean([(wrong, called)])).assign(allocation=allocation, quantity="wrong", **keys)
