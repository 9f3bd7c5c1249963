"""Chance for scores against labels: the same bundle with its genes shuffled.

A shuffled bundle has every potential of the real one, with its sign and in its place in the graph, at another gene of
the same panel. What it still tells of a label is what any list of this size and these signs tells: a claim has to be
better than that. Giving each gene the values of another is the same, and is what is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle.rates import bundle_models, exclusive_log_odds
from afa.engine.compile import in_threads
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.stages.drawn import generator_of
from afa.stages.labels.tasks import GREEDY, RANDOM, Task, as_greedy_chooses, in_random_order, of_one_model, settled
from afa.stats.accuracy import auroc

COLUMNS = ["reference", "coupling", "entity", "allocation", "t", "permutation"]
METRICS = ["auroc", "balanced_accuracy", "balanced_accuracy_calibrated"]


@lru_cache(maxsize=4096)
def shuffled_genes(n_features: int, permutation: int, kinds: tuple[int, ...] = ()) -> NDArray[np.int64]:
    """(M,) the gene whose values each gene is given; the same for every task and setting; not to be changed.

    kinds : (M,) of `Bundle.kinds` where features do not all take the same values: shuffled are those of one kind.
    """
    generator, genes = generator_of("labels", "shuffled genes", permutation), np.arange(n_features)
    of_feature = np.array(kinds or (0,) * n_features)
    for kind in np.unique(of_feature):
        alike = np.flatnonzero(of_feature == kind)
        genes[alike] = generator.permutation(alike)
    return genes


def _shuffled(task: Task, permutation: int) -> NDArray[np.int64]:
    """`shuffled_genes` of a task's bundle."""
    bundle = task.bundle
    kinds = () if bundle.ternary else tuple(bundle.kinds.tolist())
    return shuffled_genes(len(bundle.features), permutation, kinds)


def label_null(
    tasks: Sequence[Task],
    *,
    percents: Sequence[int],
    seed: int,
    permutations: int,
    whole_permutations: int,
    solver: Solver | None = None,
    threads: int | None = None,
) -> pd.DataFrame:
    """Metrics of shuffled bundles, by (reference, coupling, entity, allocation, t, permutation).

    Of the tasks under settings fixed beforehand. At each of `percents` `permutations` bundles, followed along the
    random order of `seed` and as greedy CMI chooses; at full observation, where order does not matter,
    `whole_permutations` of them. `balanced_accuracy` is of the raw score, `balanced_accuracy_calibrated` of the score
    less its value at no observation.
    """
    chosen = [task for task in tasks if not task.setting.variant]
    models = of_one_model(chosen)
    parts: list[pd.DataFrame] = [pd.DataFrame()] * len(chosen)

    def work(first: int, last: int) -> None:
        for members in models[first:last]:
            followed, shift = _followed([chosen[i] for i in members], percents, seed, permutations, solver)
            for i, table in zip(members, followed, strict=True):
                parts[i] = pd.concat([table, _whole(chosen[i], whole_permutations, shift)], ignore_index=True)

    in_threads(work, len(models), threads)
    whole = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return whole.reindex(columns=[*COLUMNS, *METRICS])


def _followed(
    tasks: Sequence[Task], percents: Sequence[int], seed: int, permutations: int, solver: Solver | None
) -> tuple[list[pd.DataFrame], float]:
    """The rows before full observation of tasks of one model, and F_1 - F_0 at no observation.

    All are followed together, because they meet in many states. What they start from shuffling does not change.
    """
    shuffles = [_shuffled(tasks[0], permutation) for permutation in range(permutations)]
    values = np.concatenate([task.values[:, genes] for task in tasks for genes in shuffles])
    tables: list[list[pd.DataFrame]] = [[] for _ in tasks]
    shift = 0.0
    for allocation in (RANDOM, GREEDY):
        if allocation == RANDOM:
            raw, shift = in_random_order(tasks[0], values, percents, seed, solver)
        else:
            raw, shift = as_greedy_chooses(tasks[0], values, percents, solver, to_the_end=False)
        scores = raw[:, 1:-1].reshape(len(tasks), permutations, -1, len(percents)).swapaxes(1, 2)
        for task, own, found in zip(tasks, scores, tables, strict=True):
            found.append(_metrics(task, own, shift).assign(allocation=allocation, t=np.tile(percents, permutations)))
    return [pd.concat(found, ignore_index=True) for found in tables], shift


def _whole(task: Task, permutations: int, shift: float) -> pd.DataFrame:
    """At full observation the score is an energy, whose features are looked up where the shuffled ones are."""
    support, score = task.support, _score_of(task)
    scores = np.empty((len(task.values), permutations, 1))
    for permutation in range(permutations):
        x = task.values[:, _shuffled(task, permutation)[support]]
        scores[:, permutation, 0] = score(x.astype(np.float64))
    found = _metrics(task, settled(scores), shift).assign(t=100)
    return pd.concat([found.assign(allocation=name) for name in (RANDOM, GREEDY)], ignore_index=True)


def _score_of(task: Task) -> Callable[[Floats], Floats]:
    """S of values (P, n) of the support."""
    support = task.support
    if task.setting.coupling == "explicit":
        bundle, entity = task.bundle, task.entity
        one, zero = bundle_models(bundle, entity, features=support)
        return lambda x: one.energies(x) - zero.energies(x) + exclusive_log_odds(bundle, entity, x, support)
    mrf = task.bundle.contrast(task.entity, task.setting.coupling)
    unary, couplings = mrf.unary[support], mrf.couplings[support][:, support].toarray()
    return lambda x: mrf.prior + x @ unary + 0.5 * ((x @ couplings) * x).sum(axis=1)


def _metrics(task: Task, scores: Floats, shift: float) -> pd.DataFrame:
    """One row for each permutation and t of `scores` (P, permutations, T)."""
    flat = scores.reshape(len(scores), -1)
    table = {
        "reference": task.setting.reference,
        "coupling": task.setting.coupling,
        "entity": task.entity,
        "permutation": np.repeat(np.arange(scores.shape[1]), scores.shape[2]).astype(np.int32),
        "auroc": auroc(flat, task.positive),
        "balanced_accuracy": _balanced(flat, task.positive),
        "balanced_accuracy_calibrated": _balanced(settled(flat - shift), task.positive),
    }
    return pd.DataFrame(table)


def _balanced(scores: Floats, positive: NDArray[np.bool_]) -> Floats:
    """(T,) mean over classes of the share of right signs of scores (P, T); 0 is half right."""
    signs = np.sign(scores)
    share: Floats = 0.5 + 0.25 * (signs[positive].mean(axis=0) - signs[~positive].mean(axis=0))
    return share
