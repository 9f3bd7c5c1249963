"""Layer 0 on a bundle and a cohort: how much it removes at each number of clusters, and how much of that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.cluster import Parameters, paper_clusters, parameters
from afa.cohort.cohort import Cohort
from afa.copeland import ranking
from afa.inference.meanfield import Solver
from afa.layer0 import (
    CRITERIA,
    RULES,
    SOUND,
    Bounds,
    Certificates,
    Partition,
    centroid_certificates,
    completion_bounds,
    partition,
    sound_certificates,
)
from afa.mrf import Floats
from afa.preference import tie_of

COUNTS = (5, 8, 10, 12, 15, 20, 24)
Removed = Mapping[tuple[int, str, str], tuple[str, ...]]
"""By number of clusters, criterion and rule, the names of the entities that Layer 0 eliminates."""
Lift = Callable[[Bundle, Cohort, Removed], pd.DataFrame]
"""What removing these entities does to acquisition, as `afa.stages.layer0.lift.layer0_lift` has it."""


@dataclass(frozen=True, eq=False)
class FullObservation:
    """What is true of P patients once everything is measured.

    energy : (P, N) S_v(x). top : (P, N) whether an entity is among the k best by Copeland (decisions.md S6). tie : a
    difference of energies of at most this magnitude is a tie.
    """

    energy: Floats
    top: NDArray[np.bool_]
    tie: float


def full_observation(bundle: Bundle, values: NDArray[np.int8], k: int) -> FullObservation:
    """Energies and top-k of profiles (P, M) in {-1, 0, +1}."""
    x = values.astype(np.float64)
    energy = np.empty((len(x), len(bundle.entities)))
    for v, prior in enumerate(bundle.priors):
        row, column, value = bundle.packed.of(v)
        energy[:, v] = prior + x @ bundle.unary[v] + (x[:, row] * x[:, column]) @ value
    tie = tie_of([bundle.mrf(entity) for entity in bundle.entities])
    top = np.zeros(energy.shape, dtype=bool)
    for p, scores in enumerate(energy):
        best = ranking(scores[:, None] - scores[None, :], bundle.entities, tie=tie)[:k]
        top[p] = np.isin(bundle.entities, best)
    return FullObservation(energy, top, tie)


def layer0_bundle(
    bundle: Bundle,
    cohort: Cohort,
    *,
    counts: Sequence[int] = COUNTS,
    k: int = 5,
    solver: Solver | None = None,
    lift: Lift | None = None,
) -> dict[str, pd.DataFrame]:
    """Layer 0 at each of these numbers of clusters and at the paper's, checked on every patient.

    Numbers above that of the entities are left out. A variant is (criterion, rule): `f1` and `f2` with the paper's
    centroid score, each by `n_minus_k` and by `k` dominating entities, and `sound` by `k`. Returns three tables, each
    with the columns `cohort` and `bundle`.

    `layer0`, by (n_clusters, criterion, rule): whether that is the `paper`'s number; `entities` in all; `needed`
    dominating ones and the `most_dominators` that any entity has; `clusters_out`, `entities_out`; `contradicted`,
    certificates that some patient's full observation contradicts.

    `patients`, by (n_clusters, criterion, rule, patient): `certificates`, entities said to be out of the top-k, and
    `false_certificates`, those of them in it; `duels`, dominations of entities that have a winner at full observation,
    and `false_duels`, those that the other one wins.

    `clusters`, by (n_clusters, cluster), the cluster named by its first member: `members`, their number; `radius` and
    `spread`, the largest l1 and l-infinity distance to the centroid; `score` (nats) and `converged` of the centroid;
    `contraction`; `eligible_f2` and `lipschitz_f2` (missing where not eligible); of all clusters together `gap`, the
    smallest l1 distance between centroids, `separation`, the gap over the largest radius, and `within` and `between`,
    the two sides of the activation condition. Distances are in nats, as potentials are.

    With `lift` also its table `lift`, for the entities that each variant removes at each number of clusters.

    Raises `PlannerError` where k is not below the number of entities.
    """
    n = len(bundle.entities)
    chosen = sorted({count for count in (*counts, paper_clusters(n)) if count <= n})
    bounds = completion_bounds(bundle)
    tables = layer0_tables(bundle, cohort, chosen, k=k, solver=solver, bounds=bounds)
    tables["layer0"].insert(3, "paper", tables["layer0"]["n_clusters"] == paper_clusters(n))
    if lift is not None:
        removed = eliminated(bundle, chosen, k=k, solver=solver, bounds=bounds)
        tables["lift"] = lifted(bundle, cohort, removed, lift)
    return tables


def layer0_tables(
    bundle: Bundle,
    cohort: Cohort,
    counts: Sequence[int],
    *,
    k: int,
    solver: Solver | None = None,
    bounds: Bounds | None = None,
) -> dict[str, pd.DataFrame]:
    """The tables of `layer0_bundle` at exactly these numbers of clusters, without its column `paper`.

    `bounds` as from `completion_bounds`, where these are at hand.
    """
    entities, bounds = parameters(bundle), bounds or completion_bounds(bundle)
    truth = full_observation(bundle, cohort.values, k)
    variants, patients, clusters = [], [], []
    for count in counts:
        parted = partition(entities, count, solver=solver)
        clusters.append(_cluster_table(parted))
        for criterion, rule, certificates in _variants(entities, parted, k, bounds):
            keys = {"n_clusters": count, "criterion": criterion, "rule": rule}
            variants.append(keys | _totals(certificates, parted, truth))
            of_patients = _by_patient(certificates, truth, cohort.patients)
            patients.append(of_patients.assign(n_clusters=count, criterion=criterion, rule=rule))
    names = {"cohort": cohort.name, "bundle": bundle.name}
    tables = {
        "layer0": pd.DataFrame(variants),
        "patients": pd.concat(patients, ignore_index=True),
        "clusters": pd.concat(clusters, ignore_index=True),
    }
    first = [*names, "n_clusters", "criterion", "rule"]
    return {
        name: table.assign(**names).pipe(_with_first, [column for column in first if column in {*names, *table}])
        for name, table in tables.items()
    }


def eliminated(
    bundle: Bundle, counts: Sequence[int], *, k: int, solver: Solver | None = None, bounds: Bounds | None = None
) -> Removed:
    """Whom each variant puts out of the top-k at each of these numbers of clusters; `bounds` as in `layer0_tables`."""
    entities, bounds = parameters(bundle), bounds or completion_bounds(bundle)
    return {
        (count, criterion, rule): certificates.eliminated
        for count in counts
        for criterion, rule, certificates in _variants(entities, partition(entities, count, solver=solver), k, bounds)
    }


def lifted(bundle: Bundle, cohort: Cohort, removed: Removed, lift: Lift) -> pd.DataFrame:
    found = lift(bundle, cohort, removed)
    return _with_first(found.assign(cohort=cohort.name, bundle=bundle.name), ["cohort", "bundle"])


def _variants(
    entities: Parameters, parted: Partition, k: int, bounds: Bounds
) -> Iterator[tuple[str, str, Certificates]]:
    for criterion in CRITERIA:
        for rule in RULES:
            yield criterion, rule, centroid_certificates(parted, k, criterion=criterion, rule=rule)
    yield SOUND, "k", sound_certificates(entities, k, bounds=bounds)


def _totals(certificates: Certificates, parted: Partition, truth: FullObservation) -> dict[str, int]:
    out = certificates.out
    return {
        "entities": len(out),
        "needed": certificates.needed,
        "most_dominators": int(certificates.dominators.max()),
        "clusters_out": int(certificates.clusters_out(parted.label).sum()),
        "entities_out": int(out.sum()),
        "contradicted": int((truth.top.any(axis=0) & out).sum()),
    }


def _by_patient(certificates: Certificates, truth: FullObservation, patients: Sequence[str]) -> pd.DataFrame:
    better, worse = np.nonzero(certificates.beats)
    lead = truth.energy[:, better] - truth.energy[:, worse]
    return pd.DataFrame(
        {
            "patient": list(patients),
            "certificates": int(certificates.out.sum()),
            "false_certificates": (truth.top & certificates.out).sum(axis=1),
            "duels": (np.abs(lead) > truth.tie).sum(axis=1),
            "false_duels": (lead < -truth.tie).sum(axis=1),
        }
    )


def _cluster_table(parted: Partition) -> pd.DataFrame:
    within, between = parted.activation
    constants = [cluster.lipschitz("f2") for cluster in parted.clusters]
    return pd.DataFrame(
        {
            "n_clusters": len(parted.clusters),
            "cluster": [cluster.members[0] for cluster in parted.clusters],
            "members": [len(cluster.members) for cluster in parted.clusters],
            "radius": [cluster.radius for cluster in parted.clusters],
            "spread": [cluster.spread for cluster in parted.clusters],
            "score": [cluster.score for cluster in parted.clusters],
            "converged": [cluster.converged for cluster in parted.clusters],
            "contraction": [cluster.contraction for cluster in parted.clusters],
            "eligible_f2": [constant is not None for constant in constants],
            "lipschitz_f2": np.array(constants, dtype=np.float64),
            "gap": parted.gap,
            "separation": parted.separation,
            "within": within,
            "between": between,
        }
    )


def _with_first(table: pd.DataFrame, first: Sequence[str]) -> pd.DataFrame:
    """The columns `first` first, then the others as they are."""
    return table[[*first, *(column for column in table.columns if column not in first)]]
