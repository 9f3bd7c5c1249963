"""Small tables for people to read."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd

from afa.bundle import Bundle
from afa.bundle.rates import SHARED


def bundle_table(bundle: Bundle) -> pd.DataFrame:
    """One row per entity: features in the support, unaries up and down, couplings of either sign, log-odds.

    Where the bundle says how often: also of how many features, and how many couplings are in both classes.
    """
    pointer, value = bundle.packed.pointer, bundle.packed.value
    parts = [value[pointer[v] : pointer[v + 1]] for v in range(len(bundle.entities))]
    table = pd.DataFrame(
        {
            "entity": bundle.entities,
            "support": [len(bundle.support(entity)) for entity in bundle.entities],
            "unary_up": (bundle.unary > 0).sum(axis=1),
            "unary_down": (bundle.unary < 0).sum(axis=1),
            "couplings_same": [int(np.sum(part > 0)) for part in parts],
            "couplings_opposite": [int(np.sum(part < 0)) for part in parts],
            "log_odds": bundle.priors,
        }
    )
    if bundle.rates is None or not bundle.says_how_often:
        return table
    scope = bundle.packed.scope if bundle.packed.scope is not None else np.zeros(len(value), dtype=np.int8)
    return table.assign(
        probabilities=np.bincount(bundle.rates.stated.entity, minlength=len(table)),
        couplings_shared=[int(np.sum(scope[pointer[v] : pointer[v + 1]] == SHARED)) for v in range(len(table))],
    )


def feature_table(bundle: Bundle) -> pd.DataFrame:
    """One row per feature: entities that expect it up and down, couplings of either sign, and its cost where given.

    With features.csv or probabilities also the values that it can take, its range, and how often all people are below
    and above.
    """
    features, packed = len(bundle.features), bundle.packed
    ends, signs = np.concatenate([packed.row, packed.column]), np.tile(np.sign(packed.value), 2)
    table = pd.DataFrame(
        {
            "feature": bundle.features,
            "unary_up": (bundle.unary > 0).sum(axis=0),
            "unary_down": (bundle.unary < 0).sum(axis=0),
            "couplings_same": np.bincount(ends[signs > 0], minlength=features),
            "couplings_opposite": np.bincount(ends[signs < 0], minlength=features),
        }
    )
    if bundle.rates is not None and bundle.rates.table is not None:
        cuts = zip(bundle.rates.table.low, bundle.rates.table.high, strict=True)
        table = table.assign(
            values=[" ".join(itertools.compress(("-1", "0", "1"), row)) for row in bundle.possible],
            range=[" to ".join("" if np.isnan(end) else f"{end:g}" for end in pair).strip() for pair in cuts],
        )
    if bundle.rates is not None and bundle.says_how_often:
        low, _, high = np.round(bundle.rates.background, 4).T
        table = table.assign(p_low=low, p_high=high)
    return table if bundle.costs is None else table.assign(cost=bundle.costs)
