"""Every phenotype as a binary task, under random and informed orders of observation (tab:classification_with_llm).

The target `likelihood` is the sign of S at full observation, S being what the closure in use decides by, `clinical` the
patient's label where there is one. The tables keep scores, not verdicts: what is right is decided where they are
summarised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.bundle.rates import bundle_models, exclusive_log_odds
from afa.closure import STRENGTH
from afa.closure import Closure as Gauge
from afa.cohort.cohort import Cohort
from afa.engine.compile import in_threads
from afa.engine.layout import Models
from afa.engine.tasks import METHODS, TASK_BRACKETS, Task, TaskPaths, follow_gain, follow_orders, task_of
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.orders import random_orders
from afa.stages.base import Stage
from afa.stages.binary.numbers import summarise_binary
from afa.stages.columns import columns

if TYPE_CHECKING:
    from afa.stages import settings

STAGE = Stage(
    settings=("random_order.seeds", "inference", "closure"),
    tables={
        "steps": columns(
            "patient allocation gain guide seed step t wald two_elbo stack_a l1_tight l1_paper hanson_wright entity"
            " cohort bundle"
        ),
        "targets": columns("patient entity likelihood clinical score unary_part cohort bundle"),
        "tasks": columns("entity features support shift cohort bundle"),
    },
    space_mb=8.0,
)

F_TARGETS = ("two_elbo", "stack_a")


@dataclass(frozen=True)
class Order:
    """How the features of a task are ordered: by which rule, which gain, and of an F-target which F (`guide`)."""

    allocation: str
    gain: str | None = None
    guide: str | None = None


class Closure(NamedTuple):
    """Which two class models a task has (`afa.closure`)."""

    coupling: Gauge
    strength: float


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
    """The tables of `binary_tasks`, of all entities."""
    return binary_tasks(
        bundle,
        cohort,
        range(len(bundle.entities)),
        seeds=random_order.seeds,
        solver=Solver(**dict(inference)),
        **dict(closure),
        threads=threads,
    )


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: settings.Bootstrap) -> pd.DataFrame:
    """The rows of `summarise_binary`."""
    return summarise_binary(tables["steps"], tables["targets"], tables["tasks"], **dict(bootstrap))


def binary_tasks(
    bundle: Bundle,
    cohort: Cohort,
    entities: Sequence[int],
    *,
    seeds: Sequence[int],
    solver: Solver,
    coupling: Gauge = "differential",
    strength: float = STRENGTH,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Follow all patients through the tasks of the chosen entities (indices of the bundle), under every order.

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
    closure = Closure(coupling, strength)
    orders = random_orders(bundle.features, cohort.patients, seeds)
    parts: list[dict[str, pd.DataFrame]] = [{} for _ in entities]

    def work(first: int, last: int) -> None:
        for i in range(first, last):
            parts[i] = _one_task(bundle, cohort, bundle.entities[entities[i]], seeds, orders, solver, closure)

    in_threads(work, len(entities), threads)
    whole = {name: pd.concat([part[name] for part in parts], ignore_index=True) for name in parts[0]}
    return {name: table.assign(cohort=cohort.name, bundle=bundle.name) for name, table in whole.items()}


def _one_task(
    bundle: Bundle,
    cohort: Cohort,
    entity: str,
    seeds: Sequence[int],
    orders: NDArray[np.int64],
    solver: Solver,
    closure: Closure,
) -> dict[str, pd.DataFrame]:
    task = task_of(bundle, entity, solver=solver, coupling=closure.coupling, strength=closure.strength)
    steps = [
        _steps(paths, cohort.patients, order, numbers).assign(entity=entity)
        for order, numbers, paths in _follow(task, bundle, cohort, entity, seeds, orders)
    ]
    targets = targets_of(bundle, cohort, entity, closure.coupling, task.tie)
    mrf = bundle.mrf(entity)
    tasks = pd.DataFrame(
        {"entity": [entity], "features": [mrf.n_features], "support": [len(mrf.support)], "shift": [task.shift]}
    )
    return {"steps": pd.concat(steps, ignore_index=True), "targets": targets, "tasks": tasks}


def targets_of(bundle: Bundle, cohort: Cohort, entity: str, coupling: Gauge, tie: float) -> pd.DataFrame:
    """The table `targets` of one entity under one closure; tie : that of its `Task`."""
    if coupling == "explicit":
        score = bundle.energies_of(entity, cohort.values, coupling)
        terms = [np.where(model.possible, model.terms, 0.0) for model in bundle_models(bundle, entity)]
        unary = (terms[0] - terms[1])[np.arange(len(bundle.features)), cohort.values + 1].sum(axis=1)
        unary += exclusive_log_odds(bundle, entity, cohort.values)
    else:
        unary, decider = cohort.values @ bundle.unary[bundle.index(entity)], bundle.contrast(entity, coupling)
        score = np.array([decider.energy(values) for values in cohort.values])
    sign = np.sign(np.where(np.abs(score) <= 2 * tie, 0.0, score)).astype(np.int8)
    labels = cohort.labels[entity] if entity in cohort.labels else pd.Series(pd.NA, cohort.labels.index, dtype="Int8")
    return pd.DataFrame(
        {
            "patient": list(cohort.patients),
            "entity": entity,
            "likelihood": sign,
            "clinical": labels.array,
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
    table = pd.DataFrame(
        {
            "patient": pd.Categorical(np.repeat(list(patients), n_orders * n_steps), categories=list(patients)),
            "allocation": order.allocation,
            "gain": order.gain or "",
            "guide": order.guide or "",
            "seed": pd.array(np.tile(np.repeat(list(seeds), n_steps), n_patients), dtype="Int64"),
            "step": np.tile(np.arange(n_steps, dtype=np.int32), n_patients * n_orders),
            "t": paths.t.ravel(),
        }
    )
    for method in METHODS:
        values: Floats = getattr(paths, method)
        table[method] = values.ravel()
    for i, bracket in enumerate(TASK_BRACKETS):
        table[bracket] = paths.calls[..., i].ravel()
    return table
