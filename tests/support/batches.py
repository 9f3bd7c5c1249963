"""Methods of AFABench on small bundles, and an evaluation by batches."""

from pathlib import Path

import numpy as np
from bundles import bundle_of

from afa.evaluate.afabench import BinaryMethod, TopKMethod
from afa.model.bundle import load_bundle

TINY = load_bundle(Path(__file__).parent.parent / "data" / "bundle_tiny")


def random_bundle(seed, n=4, m=6):
    rng = np.random.default_rng(seed)
    couplings = rng.choice([-1.0, -0.5, 0, 0, 0, 0.5, 1.0], (n, m, m))
    return bundle_of(rng.choice([-1.0, 0, 0, 0.5, 1.0], (n, m)), couplings, priors=rng.choice([0.0, 0.5], n))


METHODS = {
    "binary": lambda: BinaryMethod(random_bundle(1), entity="v2"),
    "binary, greedy by wald": lambda: BinaryMethod(random_bundle(1), entity="v1", score="wald", gain="wald_magnitude"),
    "top-k": lambda: TopKMethod(random_bundle(2), k=2),
    "top-k, lucb": lambda: TopKMethod(random_bundle(3), k=1, allocation="lucb"),
}


def values_of(method, n_rows, seed=0):
    return np.random.default_rng(seed).integers(-1, 2, (n_rows, len(method.features))).astype(np.float32)


def evaluate(method, features, budget, *, hands_out=lambda array: array):
    """Acquire feature by feature for all rows that have not stopped; actions and predictions by row.

    As the benchmark does it: a row ends when it stops, when all is observed, or when its budget is spent; the rows that
    go on become a smaller batch.
    """
    n_rows, m = features.shape
    mask, asked = np.zeros((n_rows, m), dtype=bool), np.zeros((n_rows, m), dtype=bool)
    actions, predictions = [[] for _ in range(n_rows)], [[] for _ in range(n_rows)]
    active = np.arange(n_rows)
    while len(active):
        seen, known = np.where(mask, features, 0)[active], mask[active]
        action = np.asarray(method.act(hands_out(seen), hands_out(known), hands_out(asked[active]), None, (m,)))
        assert action.shape == (len(active), 1)
        for row, chosen in zip(active, action[:, 0], strict=True):
            actions[row].append(int(chosen))
            if chosen > 0:
                mask[row, chosen - 1] = asked[row, chosen - 1] = True
        seen, known = np.where(mask, features, 0)[active], mask[active]
        predicted = np.asarray(method.predict(hands_out(seen), hands_out(known), None, (m,)))
        for row, scores in zip(active, predicted, strict=True):
            predictions[row].append(scores)
        ended = [actions[row][-1] == 0 or mask[row].all() or len(actions[row]) == budget for row in active]
        active = active[~np.array(ended)]
    return actions, predictions


def row_of(method, observed):
    """A batch of one row: masked features and mask."""
    features, mask = np.zeros((1, len(method.features))), np.zeros((1, len(method.features)), dtype=bool)
    for name, value in observed.items():
        column = method.features.index(name)
        features[0, column], mask[0, column] = value, True
    return features, mask
