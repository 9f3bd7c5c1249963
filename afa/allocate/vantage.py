"""From the state of a patient to the `View` that a rule sees of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from afa.allocate.base import View, name_places
from afa.bundle import Bundle
from afa.cluster import Clusters
from afa.engine.patient import Patient, entity_intervals, weighted_gain


def view_of(
    state: Patient,
    bundle: Bundle,
    *,
    score: str,
    k: int,
    find_clusters: Callable[[], Clusters],
    patient: str = "",
    seed: int = 0,
) -> View:
    """The view of one patient now; it is good until the next observation, and holds no value that is unobserved.

    score : the guiding score. find_clusters : makes the clusters of the present round when a rule asks for them.
    """
    return View(
        features=bundle.features,
        entities=bundle.entities,
        observed=state.state.observed.copy(),
        tie=state.packed.tie,
        largest_unary=state.total_unary(),
        gain=state.gains,
        total_gain=state.total_gain,
        weighted_gain=partial(weighted_gain, state),
        find_scores=partial(state.present_scores, score),
        find_rank=partial(state.ranks, name_places(bundle.entities)) if score == "linearity" else None,
        find_lead=state.lead,
        find_resolved=state.resolved,
        find_intervals=partial(entity_intervals, state),
        find_clusters=find_clusters,
        k=k,
        patient=patient,
        seed=seed,
        find_information=lambda offered, _: np.where(offered, state.information(), 0.0),
    )
