"""The numbers of the binary task over a cohort: the paper's table at every t, and what must stand beside it (S13)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.engine.tasks import METHODS, TASK_BRACKETS
from afa.orders import PAPER_ROUNDS
from afa.stats.accuracy import Part, Resampled, Signs, auroc, constant_answers, right_of
from afa.stats.arrays import ORDER_KEYS, Cube
from afa.stats.summary import Labelled, labelled, summary_rows

TARGETS = ("likelihood", "clinical")
BRACKET_METHOD = {"l1_tight": "wald", "l1_paper": "wald", "hanson_wright": "stack_a"}
LAYER_ONE = ("random", "largest_unary", "static_unary")


def summarise_binary(
    steps: pd.DataFrame,
    targets: pd.DataFrame,
    tasks: pd.DataFrame,
    *,
    resamples: int,
    confidence: float,
) -> pd.DataFrame:
    """Summary rows `binary` and `bracket_rate` of the tables of `binary_tasks`, all patients together.

    Per target, method, order and t: accuracy, balanced accuracy and mean AUROC over tasks; `gap`, the accuracy less
    that of the random order. Stratum `prior_wrong`: tuples that `two_elbo` has wrong before any observation; variant
    `support`: t counted over the features of the entity's support; one `entity` at the paper's rounds. Under the
    random order also `gap` of two methods, the one in `method` less the one in `reference`. Once per target:
    `majority`, `prevalence`, and counts of what is left out.
    """
    entities, patients = list(tasks["entity"]), list(targets["patient"].unique())
    resampled = Resampled.of(len(patients), resamples=resamples, confidence=confidence, purpose="binary")
    truth = {target: _truth(targets, target, patients, entities) for target in TARGETS}
    cubes = {
        _key(key): Cube.of(part, patients, entities, int(tasks["features"].iloc[0]))
        for key, part in steps.groupby(ORDER_KEYS, sort=False, observed=True)
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
            tables = _accuracies(parts, random_parts[target, method], resampled, informed=allocation != "random")
            tables.append(_aurocs(cube, method, truth[target]))
            tables.append(_by_entity(cube, method, truth[target], entities, resampled))
            rows += [(table, label) for table in tables]
    rows += [(table, {}) for table in (*_leads(random_parts, resampled), _beside(truth, resampled))]
    binary = summary_rows("binary", labelled(rows).assign(schedule="every", start="uniform"))
    return pd.concat([binary, _bracket_rates(cubes, truth["likelihood"], resampled)], ignore_index=True)


def _key(key: tuple[Hashable, ...]) -> tuple[str, str | None, str | None]:
    allocation, gain, guide = map(str, key)
    return allocation, gain or None, guide or None


def _truth(targets: pd.DataFrame, target: str, patients: Sequence[str], entities: Sequence[str]) -> Signs:
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
    tables = [
        _by_t(resampled.mean(parts["accuracy"])).assign(metric="accuracy"),
        _by_t(resampled.mean(parts["balanced_accuracy"])).assign(metric="balanced_accuracy"),
        _by_t(resampled.mean(parts["prior_wrong"])).assign(metric="accuracy", stratum="prior_wrong"),
        _by_t(resampled.mean(parts["support"])).assign(metric="accuracy", variant="support"),
    ]
    if informed:
        for cut, variant in (("accuracy", None), ("support", "support")):
            gap = _by_t(resampled.gap(parts[cut], random[cut]))
            tables.append(gap.assign(metric="gap", variant=variant, reference="random"))
    return tables


def _leads(random: dict[tuple[str, str], dict[str, list[Part]]], resampled: Resampled) -> list[pd.DataFrame]:
    """How far each method is ahead of each later one: same decisions, orders and resampled patients (A13)."""
    targets = dict.fromkeys(target for target, _ in random)
    return [
        _by_t(resampled.gap(random[target, ahead]["accuracy"], random[target, behind]["accuracy"])).assign(
            metric="gap", method=ahead, reference=behind, allocation="random", target=target
        )
        for target in targets
        for ahead, behind in combinations(METHODS, 2)
    ]


def _by_t(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(t=np.arange(len(table)))


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
    return _by_t(pd.DataFrame({"value": value, "n": cases})).assign(metric="auroc")


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
        for quantity, count in counts.items():
            row = {"metric": "count", "quantity": quantity, "value": count, "n": target.size, "target": name}
            tables.append(pd.DataFrame([row]))
        if known.any():
            for metric, answer in zip(("majority", "prevalence"), constant_answers(target), strict=True):
                share = resampled.mean([right_of(answer[:, :, None], target, known)])
                tables.append(share.assign(metric=metric, target=name))
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
    return summary_rows("bracket_rate", pd.concat(tables, ignore_index=True).assign(**setting))


def _rates_of(cube: Cube, bracket: str, truth: Signs, resampled: Resampled) -> Iterator[pd.DataFrame]:
    by_step = cube.columns[bracket]
    target = np.repeat(truth[:, :, None], cube.shape[2], axis=2)
    for variant, spread in ((None, cube.by_round), ("support", cube.by_step)):
        calls = spread(by_step)
        called = _count(calls != 0)
        total = np.full(called.shape, calls.shape[1] * calls.shape[2], dtype=float)
        yield _by_t(resampled.mean([(called, total)])).assign(metric="rate", variant=variant)
        wrong = _count((calls != 0) & (calls != target[..., None]))
        yield _by_t(resampled.mean([(wrong, called)])).assign(metric="rate", quantity="wrong", variant=variant)


def _count(mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(P, T) how often a mask (P, E, R, T) holds."""
    count: NDArray[np.float64] = mask.sum(axis=(1, 2)).astype(np.float64)
    return count
