"""Small tables for people to read."""

from __future__ import annotations

import numpy as np
import pandas as pd

from afa.bundle import Bundle


def bundle_table(bundle: Bundle) -> pd.DataFrame:
    """One row per entity: features in the support, unaries up and down, couplings of either sign, log-odds."""
    pointer, value = bundle.packed.pointer, bundle.packed.value
    parts = [value[pointer[v] : pointer[v + 1]] for v in range(len(bundle.entities))]
    return pd.DataFrame(
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


def feature_table(bundle: Bundle) -> pd.DataFrame:
    """One row per feature: entities that expect it up and down, couplings of either sign, and its cost where given."""
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
    return table if bundle.costs is None else table.assign(cost=bundle.costs)
