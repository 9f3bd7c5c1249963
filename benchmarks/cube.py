"""CUBE and CUBE-NM of AFABench, in its own evaluator: the planner with the generator's knowledge, at hard budgets.

    PYTHONPATH=AFABENCH:. python benchmarks/cube.py --out results/bench/cube.csv

AFABENCH is a checkout of the benchmark; its code wants Python 3.12 and torch. docs/formats.md has the numbers.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from afa.evaluate.afabench import TopKMethod
from afa.model.bundle import Bundle, load_bundle

CLASSES, BITS, BLOCK = 8, 3, 10
CUTS = (0.25, 0.75)
"""Where an informative value, 0 or 1 with a deviation of 0.1, is told from the middle."""
CERTAINTY = 0.9938
"""P(x < 0.25) of a value that is normal around 0 with deviation 0.1."""
BUDGETS = {"cube": (3, 5, 10), "cube_nm": (5, 10, 15)}
"""The benchmark's hard budgets: numbers of actions."""
Act = Callable[..., Any]


def tilt(bit: int) -> float:
    """The potential of an informative feature: log-odds of its side against the middle."""
    return (1 if bit else -1) * float(np.log(CERTAINTY / (1 - CERTAINTY)))


def informative(label: int) -> list[tuple[int, int]]:
    """The three features of a class in a block, each with its bit of the class, the lowest first."""
    return [((label + i) % BLOCK, label >> i & 1) for i in range(BITS)]


def cube_bundle(folder: Path) -> Bundle:
    """What the generator of CUBE does, as a bundle: eight classes on ten informative and ten dummy features."""
    features = [f"x{j:02d}" for j in range(2 * BLOCK)]
    unary = [(f"class {y}", features[j], tilt(bit)) for y in range(CLASSES) for j, bit in informative(y)]
    return written(folder, "cube", features, dict.fromkeys(features, CUTS), unary, [], {})


def cube_nm_bundle(folder: Path, contexts: int = 5) -> Bundle:
    """CUBE-NM: a block is informative only where its context is 1, of which there is one in five.

    A context is -1 or +1, cut at 0.5. Half of a tilt is unary, half is a coupling with the context: together the whole
    tilt where the context is +1, and none where it is -1. The unary potential of the context makes up for what its
    three couplings would add to its probability.
    """
    context = [f"context {c}" for c in range(contexts)]
    block = [[f"x{c}{j}" for j in range(BLOCK)] for c in range(contexts)]
    features = [*context, *(name for names in block for name in names)]
    cuts = dict.fromkeys(context, (0.5, 0.5)) | {name: CUTS for names in block for name in names}
    added = BITS * np.log((1 + 2 * np.cosh(tilt(1))) / 3)
    rare = float(-np.log(contexts - 1) - added) / 2  # of log-odds, since the two values are 2 apart
    unary, pairs = [], []
    for y in range(CLASSES):
        unary += [(f"class {y}", name, rare) for name in context]
        for c in range(contexts):
            for j, bit in informative(y):
                unary.append((f"class {y}", block[c][j], tilt(bit) / 2))
                pairs.append((f"class {y}", context[c], block[c][j], tilt(bit) / 2))
    return written(folder, "cube-nm", features, cuts, unary, pairs, dict.fromkeys(context, "context"))


def written(
    folder: Path,
    name: str,
    features: list[str],
    cuts: dict[str, tuple[float, float]],
    unary: list[tuple[str, str, float]],
    pairs: list[tuple[str, str, str, float]],
    measurements: dict[str, str],
) -> Bundle:
    """A bundle folder of these potentials, read again as any bundle is."""
    folder.mkdir(parents=True, exist_ok=True)
    entities = [f"class {y}" for y in range(CLASSES)]
    header = [f"name: {name}", 'version: "1"', f"entities: {entities}", f"features: {features}"]
    (folder / "bundle.yaml").write_text("\n".join(header) + "\n", encoding="utf-8")
    tables = {
        "unary": pd.DataFrame(unary, columns=["entity", "feature", "potential"]),
        "pairwise": pd.DataFrame(pairs, columns=["entity", "feature_a", "feature_b", "potential"]),
        "features": pd.DataFrame(
            [(name, "continuous", *cuts[name]) for name in features], columns=["feature", "kind", "low", "high"]
        ),
    }
    if measurements:
        tables["groups"] = pd.DataFrame(list(measurements.items()), columns=["feature", "measurement"])
    for table, rows in tables.items():
        rows.to_csv(folder / f"{table}.csv", index=False)
    return load_bundle(folder)


def planner(bundle: Bundle) -> TopKMethod:
    """The planner with its default rule, by exact inference, as a method that spends its whole budget."""
    method = TopKMethod(bundle, k=1, inference="exact", most_planners=4096)
    method.force_acquisition = True
    return method


def context_first(method: TopKMethod) -> Act:
    """The planner, made to buy the context before anything else."""

    def act(masked_features: Any, feature_mask: Any, *rest: Any, **named: Any) -> Any:
        actions = method.act(masked_features, feature_mask, *rest, **named)
        actions[~feature_mask[:, 0]] = 1
        return actions

    return act


def oracle(method: TopKMethod, contexts: int) -> Act:
    """Buys the context, if there is one, then the three features that carry the label, which it knows."""

    def act(masked_features: Any, feature_mask: Any, selection_mask: Any, label: Any, feature_shape: Any) -> Any:
        actions = method.act(masked_features, feature_mask, selection_mask, None, feature_shape)
        for row, (known, done, hot) in enumerate(zip(masked_features, selection_mask, label, strict=True)):
            block = int(known[:contexts].argmax()) if contexts else 0
            first = [0] if contexts else []
            wanted = first + [len(first) + BLOCK * block + j for j, _ in informative(int(hot.argmax()))]
            actions[row] = next((i + 1 for i in wanted if not done[i]), int(actions[row]))
        return actions

    return act


def followed(dataset: Any, unmask: Any, act: Act, method: TopKMethod, most: int) -> pd.DataFrame:
    """The benchmark's table of an evaluation with `most` actions: a row a sample and number of selections."""
    from afabench.common.initializers import ZeroInitializer
    from afabench.eval.eval import eval_afa_method

    costs = unmask.get_selection_costs(dataset.get_feature_acquisition_costs())
    return eval_afa_method(
        act,
        unmask.unmask,
        unmask.get_n_selections(dataset.feature_shape),
        ZeroInitializer().initialize,
        dataset,
        builtin_afa_predict_fn=method.predict,
        selection_budget=most,
        batch_size=len(dataset),
        selection_costs=costs.tolist(),
    )


def results(task: str, samples: int, seed: int) -> pd.DataFrame:
    """Accuracy of each way of choosing at each budget, with its standard error."""
    import torch
    from afabench.common.afa_methods import RandomDummyAFAMethod
    from afabench.common.datasets.datasets import CubeDataset, CubeNMDataset
    from afabench.common.unmaskers import CubeNMUnmasker, DirectUnmasker

    torch.manual_seed(seed)
    contexts = 5 if task == "cube_nm" else 0
    with tempfile.TemporaryDirectory() as folder:
        bundle = cube_nm_bundle(Path(folder)) if contexts else cube_bundle(Path(folder))
    dataset = (CubeNMDataset if contexts else CubeDataset)(n_samples=samples, seed=seed)
    unmask = CubeNMUnmasker(contexts) if contexts else DirectUnmasker()
    method = planner(bundle)
    ways: dict[str, Act] = {"random": RandomDummyAFAMethod(CLASSES).act, "planner": method.act}
    if contexts:
        ways["context, then planner"] = context_first(method)
    ways["oracle"] = oracle(method, contexts)
    found = []
    for way, act in ways.items():
        table = followed(dataset, unmask, act, method, max(BUDGETS[task]))
        table["spent"] = table["prev_selections_performed"].map(len)
        for budget in BUDGETS[task]:
            at = table[table["spent"] == budget]
            right = (at["builtin_predicted_class"] == at["true_class"]).mean()
            bought = at["prev_selections_performed"].map(lambda done: 0 in done).mean() if contexts else np.nan
            error = float(np.sqrt(right * (1 - right) / len(at)))
            found.append((task, way, budget, len(at), right, error, bought))
    whole = method.predict(dataset.features, torch.ones_like(dataset.features, dtype=torch.bool)).argmax(-1)
    right = float((whole == dataset.labels.argmax(-1)).float().mean())
    found.append((task, "all features", dataset.features.shape[1], samples, right, np.nan, np.nan))
    return pd.DataFrame(found, columns=["task", "way", "budget", "samples", "accuracy", "error", "context_bought"])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--samples", type=int, default=200)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    table = pd.concat([results(task, given.samples, given.seed) for task in BUDGETS], ignore_index=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(given.out, index=False)
    sys.stdout.write(table.to_string(index=False, float_format="%.3f") + "\n")


if __name__ == "__main__":
    main()
