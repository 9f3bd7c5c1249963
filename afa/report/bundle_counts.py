"""A bundle in numbers: what each entity speaks of, and what two entities share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from afa.bundle import Bundle
from afa.mrf import Floats

COUNTS = ["support", "unary +", "unary -", "by couplings only", "couplings +", "couplings -", "prior"]
OVERLAPS = ["entity", "other", "shared features", "l1 distance"]


def entity_counts(bundle: Bundle) -> pd.DataFrame:
    """By entity, the columns `COUNTS`: features in its support by what names them, couplings by sign, prior in nats."""
    couplings = [bundle.packed.of(entity)[2] for entity in range(len(bundle.entities))]
    counts = pd.DataFrame(
        {
            "support": [len(bundle.support(name)) for name in bundle.entities],
            "unary +": (bundle.unary > 0).sum(axis=1),
            "unary -": (bundle.unary < 0).sum(axis=1),
            "couplings +": [int((values > 0).sum()) for values in couplings],
            "couplings -": [int((values < 0).sum()) for values in couplings],
            "prior": bundle.priors,
        },
        index=pd.Index(bundle.entities, name="entity"),
    )
    counts["by couplings only"] = counts["support"] - counts["unary +"] - counts["unary -"]
    return counts[COUNTS]


def uses_of_features(bundle: Bundle) -> pd.Series:
    """By feature, in the number of how many supports it is."""
    used = pd.Series(0, index=pd.Index(bundle.features, name="feature"))
    for name in bundle.entities:
        used.iloc[list(bundle.support(name))] += 1
    return used


def shared_features(bundle: Bundle, order: Sequence[str]) -> pd.DataFrame:
    """(n, n): features that lie in the supports of both entities, rows and columns in `order`."""
    supports = {name: set(bundle.support(name)) for name in order}
    return pd.DataFrame({a: {b: len(supports[a] & supports[b]) for b in order} for a in order}, index=list(order))


def overlaps(bundle: Bundle, apart: Floats, order: Sequence[str]) -> pd.DataFrame:
    """Each pair of entities once, the columns `OVERLAPS`; most shared features first, else in `order`.

    apart : (n_entities, n_entities) distances in the bundle's order, of `afa.cluster.distances`.
    """
    place = [bundle.entities.index(name) for name in order]
    first, second = np.triu_indices(len(order), 1)
    shared, names = shared_features(bundle, order).to_numpy(), np.array(order, dtype=object)
    between = apart[np.ix_(place, place)]
    columns = [names[first], names[second], shared[first, second], between[first, second]]
    table = pd.DataFrame(dict(zip(OVERLAPS, columns, strict=True)))
    return table.sort_values("shared features", ascending=False, kind="stable").reset_index(drop=True)
