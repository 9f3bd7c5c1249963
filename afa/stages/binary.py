"""Every phenotype as a binary task, under random and informed orders of observation (tab:classification_with_llm).

The target `likelihood` is the sign of S at full observation, S being what the closure in use decides by, `clinical` the
patient's label where there is one. The tables keep scores, not verdicts: what is right is decided where they are
summarised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.bundle.rates import bundle_models, exclusive_log_odds
from afa.closure import Closure
from afa.cohort.cohort import Cohort
from afa.engine.compile import in_threads
from afa.engine.layout import Models
from afa.engine.tasks import METHODS, TASK_BRACKETS, Task, TaskPaths, follow_gain, follow_orders, task_of
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.orders import PAPER_ROUNDS, random_orders
from afa.stages.base import Stage, columns
from afa.stats.accuracy import Part, Resampled, Signs, auroc, by_t, right_of
from afa.stats.summary import Labelled, count_rows, labelled, summary_rows
from afa.stats.tables import ORDER_KEYS, Cube

if TYPE_CHECKING:
    from afa.stages import settings

STAGE = Stage(
    settings=("random_order.seeds", "inference", "closure"),
    scopes=True,
    tables={
        "steps": columns(
            "patient allocation gain guide seed step t wald two_elbo stack_a l1_tight l1_paper hanson_wright entity"
            " cohort bundle"
        ),
        "targets": columns("patient entity likelihood clinical score unary_part cohort bundle"),
        "tasks": columns("entity features support shift cohort bundle"),
    },
    rows={
        "binary": "each phenotype as a task of its own",
        "bracket_rate": "",
    },
    space_mb=8.0,
)

F_TARGETS = ("two_elbo", "stack_a")
CUTS: dict[str, dict[str, str]] = {
    "accuracy": {"metric": "accuracy"},
    "balanced_accuracy": {"metric": "balanced_accuracy"},
    "prior_wrong": {"metric": "accuracy", "stratum": "prior_wrong"},
    "support": {"metric": "accuracy", "variant": "support"},
}
"""What the summary calls the ways that decisions are cut."""


@dataclass(frozen=True)
class Order:
    """How the features of a task are ordered: by which rule, which gain, and of an F-target which F (`guide`)."""

    allocation: str
    gain: str | None = None
    guide: str | None = None


RANDOM = Order("random")
INFORMED = (
    Order("greedy", "cmi"),
    *(Order("greedy", "f_target", target) for target in F_TARGETS),
    Order("largest_unary"),
    Order("static_unary"),
)


def run(
    bundle: Bundle,
    cohort: Cohort,
    *,
    random_order: settings.RandomOrder,
    inference: settings.Inference,
    closure: settings.Closure,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Follow all patients through the tasks of all entities, under every order.

    Orders: random over all M features, one per patient and seed; the rule `greedy` by `cmi` and, but for `explicit`, by
    `f_target` of two scores; `largest_unary`, by absolute effective unary; `static_unary`, by absolute unary, for all
    patients alike.

    Returns three tables.

    `steps`, by (patient, entity, allocation, gain, guide, seed, step): step i is the state after i features of the
    entity's support, reached with the t-th observation; it holds until the next. `wald` and `two_elbo` in nats,
    `stack_a` in [-1, 1]; `l1_tight`, `l1_paper`, `hanson_wright`: the sign each bracket has settled on, 0 while open.

    `targets`, by (patient, entity): `likelihood`, the sign of S(x), 0 for a tie; `clinical`, 0, 1 or missing; S(x) and
    its unary part in nats.

    `tasks`, by entity: `features`, how many there are, and `support`, how many of them its model has; `shift`,
    F_1 - F_0 at no observation less the prior, in nats.
    """
    seeds, coupling, solver = random_order.seeds, closure.coupling, Solver(**dict(inference))
    orders = random_orders(bundle.features, cohort.patients, seeds)
    parts: list[dict[str, pd.DataFrame]] = [{} for _ in bundle.entities]

    def work(first: int, last: int) -> None:
        for i, entity in enumerate(bundle.entities[first:last], start=first):
            task = task_of(bundle, entity, solver=solver, coupling=coupling, strength=closure.strength)
            steps = [
                _steps(paths, cohort.patients, order, numbers).assign(entity=entity)
                for order, numbers, paths in _follow(task, bundle, cohort, entity, seeds, orders)
            ]
            mrf = bundle.mrf(entity)
            row = {"entity": entity, "features": mrf.n_features, "support": len(mrf.support), "shift": task.shift}
            targets = targets_of(bundle, cohort, entity, coupling, task.tie)
            parts[i] = {"steps": pd.concat(steps, ignore_index=True), "targets": targets, "tasks": pd.DataFrame([row])}

    in_threads(work, len(parts), threads)
    return {name: pd.concat([part[name] for part in parts], ignore_index=True) for name in parts[0]}


def targets_of(bundle: Bundle, cohort: Cohort, entity: str, coupling: Closure, tie: float) -> pd.DataFrame:
    """The table `targets` of one entity under one closure; tie : that of its `Task`."""
    score = bundle.energies_of(entity, cohort.values, coupling)
    if coupling == "explicit":
        terms = [np.where(model.possible, model.terms, 0.0) for model in bundle_models(bundle, entity)]
        unary = (terms[0] - terms[1])[np.arange(len(bundle.features)), cohort.values + 1].sum(axis=1)
        unary += exclusive_log_odds(bundle, entity, cohort.values)
    else:
        unary = cohort.values @ bundle.unary[bundle.index(entity)]
    sign = np.sign(np.where(np.abs(score) <= 2 * tie, 0.0, score)).astype(np.int8)
    return pd.DataFrame(
        {
            "patient": list(cohort.patients),
            "entity": entity,
            "likelihood": sign,
            "clinical": cohort.labels.reindex(columns=[entity])[entity].astype("Int8").array,
            "score": score,
            "unary_part": unary,
        }
    )


def _follow(
    task: Task, bundle: Bundle, cohort: Cohort, entity: str, seeds: Sequence[int], orders: NDArray[np.int64]
) -> Iterator[tuple[Order, Sequence[int | None], TaskPaths]]:
    """The paths of every order, with the seed of each of its runs."""
    yield RANDOM, list(seeds), follow_orders(task, cohort.values, orders)
    for order in INFORMED:
        if order.gain == "f_target" and isinstance(task.bundle, Models):
            continue
        if order.allocation == "static_unary":
            fixed = static_order(bundle, entity)
            paths = follow_orders(task, cohort.values, np.tile(fixed, (len(cohort.patients), 1, 1)))
        else:
            paths = follow_gain(task, cohort.values, gain=order.gain or "wald_magnitude", target=order.guide)
        yield order, [None], paths


def static_order(bundle: Bundle, entity: str) -> NDArray[np.int64]:
    """(M,) features by descending absolute unary potential, then those with couplings, then by name."""
    unary = np.abs(bundle.unary[bundle.index(entity)])
    supported = np.isin(np.arange(len(unary)), bundle.support(entity))
    order = sorted(range(len(unary)), key=lambda j: (-unary[j], not supported[j], bundle.features[j]))
    return np.array(order, dtype=np.int64)


def _steps(paths: TaskPaths, patients: Sequence[str], order: Order, seeds: Sequence[int | None]) -> pd.DataFrame:
    n_patients, n_orders, n_steps = paths.t.shape
    return pd.DataFrame(
        {
            "patient": pd.Categorical(np.repeat(list(patients), n_orders * n_steps), categories=list(patients)),
            "allocation": order.allocation,
            "gain": order.gain or "",
            "guide": order.guide or "",
            "seed": pd.array(np.tile(np.repeat(list(seeds), n_steps), n_patients), dtype="Int64"),
            "step": np.tile(np.arange(n_steps, dtype=np.int32), n_patients * n_orders),
            "t": paths.t.ravel(),
            **{method: getattr(paths, method).ravel() for method in METHODS},
            **{bracket: paths.calls[..., i].ravel() for i, bracket in enumerate(TASK_BRACKETS)},
        }
    )


TARGETS = ("likelihood", "clinical")
BRACKET_METHOD = {"l1_tight": "wald", "l1_paper": "wald", "hanson_wright": "stack_a"}
LAYER_ONE = ("random", "largest_unary", "static_unary")


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: settings.Bootstrap) -> pd.DataFrame:
    """Summary rows `binary` and `bracket_rate` of the tables, all patients together.

    Per target, method, order and t: accuracy, balanced accuracy and mean AUROC over tasks; `gap`, the accuracy less
    that of the random order. Stratum `prior_wrong`: tuples that `two_elbo` has wrong before any observation; variant
    `support`: t counted over the features of the entity's support; one `entity` at the paper's rounds. Under the
    random order also `gap` of two methods, the one in `method` less the one in `reference`. Once per target:
    `majority`, `prevalence`, and counts of what is left out.
    """
    steps, targets, tasks = (tables[name] for name in ("steps", "targets", "tasks"))
    entities, patients = list(tasks["entity"]), list(targets["patient"].unique())
    last_round = int(tasks["features"].iloc[0])
    resampled = Resampled.of(patients, **dict(bootstrap), purpose="binary")
    truth = {target: truth_of(targets, target, patients, entities) for target in TARGETS}
    cubes = {
        (str(allocation), str(gain) or None, str(guide) or None): Cube.of(part, patients, entities, last_round)
        for (allocation, gain, guide), part in steps.groupby(ORDER_KEYS, sort=False, observed=True)
    }
    rows: list[Labelled] = []
    random_parts: dict[tuple[str, str], dict[str, list[Part]]] = {}
    for (allocation, gain, guide), cube in cubes.items():
        if allocation == "static_unary":
            continue
        for target, method in ((target, method) for target in TARGETS for method in METHODS):
            if not (truth[target] != 0).any():
                continue
            label = {"method": method, "allocation": allocation, "gain": gain, "guide": guide, "target": target}
            parts = _parts(cube, method, truth[target])
            random_parts.setdefault((target, method), parts)
            made = _accuracies(parts, random_parts[target, method], resampled, informed=allocation != "random")
            made.append(_aurocs(cube, method, truth[target]))
            made.append(_by_entity(cube, method, truth[target], entities, resampled))
            rows += [(table, label) for table in made]
    rows += [(table, {}) for table in (*_leads(random_parts, resampled), _beside(truth, resampled))]
    binary = summary_rows("binary", labelled(rows).assign(schedule="every", start="uniform"))
    return pd.concat([binary, _bracket_rates(cubes, truth["likelihood"], resampled)], ignore_index=True)


def truth_of(targets: pd.DataFrame, target: str, patients: Sequence[str], entities: Sequence[str]) -> Signs:
    """(P, E) in {-1, 0, +1}, 0 where there is no target."""
    table = targets.pivot(index="patient", columns="entity", values=target).loc[list(patients), list(entities)]
    if target == "clinical":
        table = table.astype("Float64").mul(2).sub(1).fillna(0)
    return table.to_numpy(dtype=np.int8)


def _parts(cube: Cube, method: str, truth: Signs) -> dict[str, list[Part]]:
    """Right and total by patient and t, for every way that the decisions are cut."""
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
    parts: dict[str, list[Part]], random: dict[str, list[Part]], resampled: Resampled, *, informed: bool
) -> list[pd.DataFrame]:
    tables = [by_t(resampled.mean(parts[cut])).assign(**keys) for cut, keys in CUTS.items()]
    if informed:
        for cut, variant in (("accuracy", None), ("support", "support")):
            gap = by_t(resampled.gap(parts[cut], random[cut]))
            tables.append(gap.assign(metric="gap", variant=variant, reference="random"))
    return tables


def _leads(random: dict[tuple[str, str], dict[str, list[Part]]], resampled: Resampled) -> list[pd.DataFrame]:
    """How far each method is ahead of each later one: same decisions, orders and resampled patients (A13)."""
    targets = dict.fromkeys(target for target, _ in random)
    return [
        by_t(resampled.gap(random[target, ahead]["accuracy"], random[target, behind]["accuracy"])).assign(
            metric="gap", method=ahead, reference=behind, allocation="random", target=target
        )
        for target in targets
        for ahead, behind in combinations(METHODS, 2)
    ]


def _aurocs(cube: Cube, method: str, truth: Signs) -> pd.DataFrame:
    """Mean over tasks with both classes of the AUROC over patients, each run apart; no interval is given."""
    scores = cube.by_round(cube.columns[method])
    areas, cases = [], 0
    for entity in range(cube.shape[1]):
        known = truth[:, entity] != 0
        runs = [
            auroc(scores[known, entity, run].astype(float), truth[known, entity] > 0) for run in range(cube.shape[2])
        ]
        if not np.isnan(runs[0]).any():
            areas.append(np.mean(runs, axis=0))
            cases += int(known.sum()) * cube.shape[2]
    value = np.mean(areas, axis=0) if areas else np.full(scores.shape[-1], np.nan)
    return by_t(pd.DataFrame({"value": value, "n": cases})).assign(metric="auroc")


def _by_entity(cube: Cube, method: str, truth: Signs, entities: Sequence[str], resampled: Resampled) -> pd.DataFrame:
    """Accuracy of each task by itself at the paper's rounds."""
    rounds = [t for t in PAPER_ROUNDS if t < cube.last_round] + [cube.last_round]
    signs = cube.by_round(cube.signs(method))[..., rounds]
    target = np.repeat(truth[:, :, None], cube.shape[2], axis=2)
    parts = {}
    for i, entity in enumerate(entities):
        one = slice(i, i + 1)
        part = right_of(signs[:, one], target[:, one], np.ones(target[:, one].shape, dtype=bool))
        if part[1].any():
            parts[entity] = part
    right, total = (np.concatenate(side, axis=1) for side in zip(*parts.values(), strict=True))
    table = resampled.mean([(right, total)]).assign(t=rounds * len(parts), metric="accuracy")
    return table.assign(entity=np.repeat(list(parts), len(rounds)))


def _beside(truth: dict[str, Signs], resampled: Resampled) -> pd.DataFrame:
    """Majority, prevalence and what is left out, by target."""
    tables = []
    for name, target in truth.items():
        known = target != 0
        counts = {"tied_at_full_observation" if name == "likelihood" else "without_label": int((~known).sum())}
        if name == "likelihood":
            counts["patients_tied_everywhere"] = int((~known).all(axis=1).sum())
        rows = count_rows({quantity: (count, target.size) for quantity, count in counts.items()})
        tables.append(rows.assign(target=name))
        if known.any():
            tables += [share.assign(target=name) for share in resampled.constant(target)]
    return pd.concat(tables, ignore_index=True)


def _bracket_rates(
    cubes: dict[tuple[str, str | None, str | None], Cube], truth: Signs, resampled: Resampled
) -> pd.DataFrame:
    """One-sided rates of the brackets by t, and the wrong share of what they called (tab:layer1_informed, M1)."""
    tables = [
        table.assign(method=BRACKET_METHOD[bracket], reference=bracket, allocation=allocation)
        for allocation in LAYER_ONE
        for bracket in TASK_BRACKETS
        for table in _rates_of(cubes[allocation, None, None], bracket, truth, resampled)
    ]
    setting = {"stratum": "binary", "schedule": "every", "start": "uniform"}
    return summary_rows("bracket_rate", tables, **setting)


def _rates_of(cube: Cube, bracket: str, truth: Signs, resampled: Resampled) -> Iterator[pd.DataFrame]:
    by_step = cube.columns[bracket]
    target = np.repeat(truth[:, :, None], cube.shape[2], axis=2)
    for variant, spread in ((None, cube.by_round), ("support", cube.by_step)):
        calls = spread(by_step)
        called = _count(calls != 0)
        total = np.full(called.shape, calls.shape[1] * calls.shape[2], dtype=float)
        yield by_t(resampled.mean([(called, total)])).assign(metric="rate", variant=variant)
        wrong = _count((calls != 0) & (calls != target[..., None]))
        yield by_t(resampled.mean([(wrong, called)])).assign(metric="rate", quantity="wrong", variant=variant)


def _count(mask: NDArray[np.bool_]) -> Floats:
    """(P, T) how often a mask (P, E, R, T) holds."""
    return np.asarray(mask.sum(axis=(1, 2)), dtype=np.float64)
