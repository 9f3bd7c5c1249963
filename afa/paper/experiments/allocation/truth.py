"""Correct answers for the stage `allocation`: each patient's winners of duels and top k at full observation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from afa.engine.outcomes import Outcomes
from afa.evaluate.long_tables import duel_rows, rows_of
from afa.evaluate.targets import Targets


def truth_tables(
    entities: Sequence[str], patients: Sequence[str], truth: Outcomes, targets: Targets
) -> dict[str, pd.DataFrame]:
    """Return the correct answers for the stage `allocation`: each patient's winners of duels and k best entities.

    Parameters
    ----------
    entities, patients : names, in the order of `truth` and `targets`

    Returns
    -------
    duels : by (patient, entity_a, entity_b). `winner` at full observation is +1 for a, -1 for b, or 0 for a tie.
        `prior_wrong` is True if `linearity` decides for the loser before any observation
    targets : by (patient, entity). `top` is 2 if the entity is certainly among the k best at full observation, 1 if it
        is tied for the last of the k places, else 0. `label` is 0, 1 or missing. `k` is the size of the top set at full
        observation, and `k_clinical` is its size by labels. Both are the same in all rows

    """
    duels = duel_rows(entities, patient=patients).assign(
        winner=truth.winner.ravel(), prior_wrong=((truth.winner != 0) & (truth.prior == -truth.winner)).ravel()
    )
    table = rows_of(patient=patients, entity=entities).assign(
        top=(2 * targets.sure + targets.tied).astype(np.int8).ravel(),
        label=pd.array(targets.labels.ravel(), dtype="Float64").astype("Int8"),
        k=targets.k,
        k_clinical=targets.k_clinical,
    )
    return {"duels": duels, "targets": table}
