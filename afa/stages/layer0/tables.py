"""Layer 0 on a bundle and a cohort: what it removes, whom that harms, and what it gains for the first choices.

Both sides of the lift are followed with all entities, and read out by `linearity` over all duels: they differ in the
order in which features come, and in nothing else. Where Layer 0 removes nothing, nothing differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.cluster import paper_clusters, parameters
from afa.cohort.cohort import Cohort
from afa.copeland import ranking
from afa.engine.compile import in_threads
from afa.engine.paths import first_signs
from afa.inference.meanfield import Solver
from afa.layer0 import (
    CRITERIA,
    RULES,
    SOUND,
    Certificates,
    Partition,
    centroid_certificates,
    completion_bounds,
    partition,
    sound_certificates,
)
from afa.mrf import Floats
from afa.preference import tie_of
from afa.stages.inputs import final_differences
from afa.stats.accuracy import Part, right_of
from afa.stats.arrays import rows_of

ROUNDS = 10
Removed = Mapping[tuple[int, str, str], tuple[str, ...]]
"""By number of clusters, criterion and rule, the names of the entities that Layer 0 eliminates."""
Lift = Callable[[Bundle, Cohort, Removed], pd.DataFrame]
"""What removing these entities does to acquisition, as `layer0_lift` has it."""


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
    energy = bundle.energies(values)
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
    counts: Sequence[int],
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
    tables = layer0_tables(bundle, cohort, chosen, k=k, solver=solver, lift=lift)
    tables["layer0"]["paper"] = tables["layer0"]["n_clusters"] == paper_clusters(n)
    return tables


def layer0_tables(
    bundle: Bundle,
    cohort: Cohort,
    counts: Sequence[int],
    *,
    k: int,
    solver: Solver | None = None,
    lift: Lift | None = None,
) -> dict[str, pd.DataFrame]:
    """The tables of `layer0_bundle` at exactly these numbers of clusters, without its column `paper`."""
    entities, truth = parameters(bundle), full_observation(bundle, cohort.values, k)
    sound = sound_certificates(entities, k, bounds=completion_bounds(bundle))
    variants, patients, clusters = [], [], []
    removed: dict[tuple[int, str, str], tuple[str, ...]] = {}
    for count in counts:
        parted = partition(entities, count, solver=solver)
        clusters.append(_cluster_table(parted))
        for criterion, rule, certificates in (*_of_centroids(parted, k), (SOUND, "k", sound)):
            keys: dict[str, Any] = {"n_clusters": count, "criterion": criterion, "rule": rule}
            variants.append(keys | _totals(certificates, parted, truth))
            patients.append(_by_patient(certificates, truth, cohort.patients).assign(**keys))
            removed[count, criterion, rule] = certificates.eliminated
    tables = {
        "layer0": pd.DataFrame(variants),
        "patients": pd.concat(patients, ignore_index=True),
        "clusters": pd.concat(clusters, ignore_index=True),
    }
    if lift is not None:
        tables["lift"] = lift(bundle, cohort, removed)
    return {name: table.assign(cohort=cohort.name, bundle=bundle.name) for name, table in tables.items()}


def _of_centroids(parted: Partition, k: int) -> Iterator[tuple[str, str, Certificates]]:
    for criterion, rule in product(CRITERIA, RULES):
        yield criterion, rule, centroid_certificates(parted, k, criterion=criterion, rule=rule)


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
    alike = ("radius", "spread", "score", "converged", "contraction")
    return pd.DataFrame(
        {
            "n_clusters": len(parted.clusters),
            "cluster": [cluster.members[0] for cluster in parted.clusters],
            "members": [len(cluster.members) for cluster in parted.clusters],
            **{name: [getattr(cluster, name) for cluster in parted.clusters] for name in alike},
            "eligible_f2": [constant is not None for constant in constants],
            "lipschitz_f2": np.array(constants, dtype=np.float64),
            "gap": parted.gap,
            "separation": parted.separation,
            "within": within,
            "between": between,
        }
    )


def layer0_lift(
    bundle: Bundle,
    cohort: Cohort,
    removed: Removed,
    *,
    rounds: int = ROUNDS,
    solver: Solver | None = None,
    threads: int | None = 1,
) -> pd.DataFrame:
    """Right calls of all duels after t = 0 to `rounds` observations, with the entities removed and with all.

    removed : by number of clusters, criterion and rule the names of the entities that Layer 0 eliminates.
    Returns by (n_clusters, criterion, rule, patient, t): `right`, calls in the order that `greedy` chooses for the
    entities left, a tie counting one half, `right_greedy`, in the order that it chooses for all, and `duels` with a
    winner at full observation (decisions.md S11).
    """
    rounds = min(rounds, len(bundle.features))
    target = np.sign(final_differences(bundle, cohort.values)).astype(np.int8)
    distinct = list(dict.fromkeys([(), *removed.values()]))
    parts: list[Part] = [(np.empty(0), np.empty(0))] * len(distinct)

    def work(first: int, last: int) -> None:
        for i in range(first, last):
            left = [name for name in bundle.entities if name not in distinct[i]]
            looked_at = bundle.restrict_entities(left) if distinct[i] else bundle
            signs = first_signs(bundle, looked_at, cohort.values, rounds, solver=solver)
            parts[i] = right_of(np.moveaxis(signs, 1, 2), target, np.ones(target.shape, dtype=np.bool_))

    in_threads(work, len(distinct), threads)
    found = dict(zip(distinct, parts, strict=True))
    everyone, _ = found[()]
    tables = []
    for (n_clusters, criterion, rule), names in removed.items():
        right, duels = found[names]
        table = rows_of(patient=cohort.patients, t=range(rounds + 1))
        keys: dict[str, Any] = {"n_clusters": n_clusters, "criterion": criterion, "rule": rule}
        counts = {"right": right.ravel(), "right_greedy": everyone.ravel(), "duels": duels.ravel().astype(np.int64)}
        tables.append(table.assign(**keys, **counts))
    return pd.concat(tables, ignore_index=True)
