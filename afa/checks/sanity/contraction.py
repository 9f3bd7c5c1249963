"""Contraction constants of every model of a bundle: where mean-field has one fixed point (eq:mf-contraction)."""

from __future__ import annotations

from itertools import combinations

import pandas as pd

from afa.bundle import Bundle
from afa.closure import contraction, half_potentials

TERNARY_SLOPE = 2 / 3


def contraction_table(bundle: Bundle) -> pd.DataFrame:
    """By (model, entity, opponent), before any observation: `contraction`, beta L^2, and `ternary`, 2/3 of it.

    model : `entity`, `duel` (the difference model) or `closure`, whose two classes have the same value. opponent is
    empty where there is none. The paper's condition is `contraction` < 1; since the moment map of a ternary feature
    has slope at most 2/3, `ternary` < 1, that is `contraction` < 3/2, is enough (erratum 5).
    """
    models = [bundle.mrf(entity) for entity in bundle.entities]
    rows = [("entity", entity, "", contraction(model)) for entity, model in zip(bundle.entities, models, strict=True)]
    rows += [
        ("duel", bundle.entities[a], bundle.entities[b], contraction(models[a] - models[b]))
        for a, b in combinations(range(len(models)), 2)
    ]
    rows += [
        ("closure", entity, "", contraction(half_potentials(model)[0]))
        for entity, model in zip(bundle.entities, models, strict=True)
    ]
    table = pd.DataFrame(rows, columns=["model", "entity", "opponent", "contraction"])
    return table.assign(ternary=TERNARY_SLOPE * table["contraction"])
