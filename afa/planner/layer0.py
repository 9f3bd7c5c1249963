"""Discard, before any observation, the entities that cannot reach the top k (Layer 0, App. supp:layer0_lipschitz).

Entities are clustered by the l1 distance of their potentials (`afa.planner.cluster`). The paper computes an interval
around the score of each cluster's centroid. All entities of a cluster are excluded if enough other entities have higher
intervals. A certificate states that one entity beats another. The paper's certificates can be false for a patient,
because the score of a centroid is an expectation under the centroid's model and does not depend on the patient's values
(docs/decisions.md). The certificates of the function `sound_certificates` are correct for every patient, because they
are computed from bounds on the scores over all values of the features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from afa.errors import Fault, PlannerError
from afa.inference.exact import estimate, map_state
from afa.inference.meanfield import Solver, mean_field
from afa.model.arrays import Bools, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.closure import contraction
from afa.model.mrf import ROUNDING, Evidence
from afa.planner.cluster import Parameters, clusters, distances, paper_clusters, parameters
from afa.scores.bracket import l1_interval
from afa.scores.preference import expected_score, tie_of

CRITERIA = ("f1", "f2")
SOUND = "sound"
EXCLUSION_RULES = ("n_minus_k", "k")
EXACT_LIMIT = 100_000_000
"""Largest memory, in bytes of tables, for finding the extremes of a score exactly."""
Bounds = tuple[Floats, Floats, Bools]


@dataclass(frozen=True, eq=False)
class Cluster:
    """A cluster of entities. The centroid of a cluster is the mean of its members' log-odds and parameters.

    Attributes
    ----------
    members : names, sorted
    centroid : (1 + M + E,) float64, log-odds, then parameters, nats
    radius, spread : largest distance of a member to the centroid, in the l1 and in the l-infinity norm, nats
    score : E_q[S_c] of the centroid model under its own mean-field marginals without observations, nats
    norm : l1 norm of the centroid, K_c, nats
    contraction : largest beta L^2 of the members
    converged : True if mean-field inference for the centroid converged

    """

    members: tuple[str, ...]
    centroid: Floats
    radius: float
    spread: float
    score: float
    norm: float
    contraction: float
    converged: bool

    def lipschitz(self, criterion: str) -> float | None:
        """Return the Lipschitz constant L_c of the cluster.

        L_c is 1 for the criterion `f1`. For the criterion `f2`, eq:lc-mf gives L_c. Return None if `f2` cannot be
        applied because beta_c L^2 >= 1.
        """
        _check_option("criterion", criterion, CRITERIA)
        if criterion == "f1":
            return 1.0
        return 1.0 + self.norm / (1.0 - self.contraction) if self.contraction < 1 else None

    def interval(self, criterion: str) -> tuple[float, float]:
        """Return the interval from score - L_c r_c to score + L_c r_c.

        Here `score` is the score of the centroid, L_c the Lipschitz constant, and r_c the radius of the cluster. If the
        criterion cannot be applied, the interval is infinite.
        """
        constant = self.lipschitz(criterion)
        if constant is None:
            return -np.inf, np.inf
        return self.score - constant * self.radius, self.score + constant * self.radius


@dataclass(frozen=True, eq=False)
class Partition:
    """A partition of the entities of a bundle into clusters.

    Attributes
    ----------
    label : (N,) int64, index of each entity's cluster
    clusters : the C clusters, in the order of these indices

    """

    bundle: Bundle
    label: Ints
    clusters: tuple[Cluster, ...]

    @cached_property
    def centroid_gaps(self) -> Floats:
        """Return the l1 distance and the l-infinity distance between each pair of centroids, in nats.

        The result has one row for each pair of clusters, and two columns.
        """
        gaps = [np.abs(a.centroid - b.centroid) for a, b in combinations(self.clusters, 2)]
        return np.array([[gap.sum(), gap.max()] for gap in gaps]).reshape(-1, 2)

    @property
    def gap(self) -> float:
        """Return the smallest l1 distance between two centroids in nats, or NaN if there is only one cluster."""
        return float(self.centroid_gaps[:, 0].min()) if len(self.clusters) > 1 else float("nan")

    @property
    def separation(self) -> float:
        """Return the smallest l1 distance between two centroids divided by the largest radius (tab:layer0_synthetic).

        The result is infinite if the radius of all clusters is 0.
        """
        radius = max(cluster.radius for cluster in self.clusters)
        return self.gap / radius if radius > 0 else self.gap * float("inf")

    @property
    def activation(self) -> tuple[float, float]:
        """Return the two l-infinity distances in the paper's activation condition (sec:eval_filter).

        The result contains the largest distance of a member to its centroid, and then the smallest distance between two
        centroids, or NaN if there is only one cluster. The paper requires that the largest distance to a centroid is
        far below the smallest distance between centroids.
        """
        between = self.centroid_gaps[:, 1].min() if len(self.clusters) > 1 else np.nan
        return max(cluster.spread for cluster in self.clusters), float(between)


@dataclass(frozen=True, eq=False)
class Certificates:
    """Certificates of Layer 0: which entities beat which others, and which entities are therefore excluded.

    Attributes
    ----------
    beats : (N, N) bool, True if the entity of the row is certified to beat the entity of the column
    needed : number of entities that must beat an entity to exclude it from the top k

    """

    entities: tuple[str, ...]
    beats: Bools
    needed: int

    @property
    def dominators(self) -> Ints:
        """Return, for each entity, the number of entities that are certified to beat it.

        The result has the shape (N,).
        """
        counts: Ints = self.beats.sum(axis=0)
        return counts

    @property
    def out(self) -> Bools:
        """Return a mask of the entities that are certified to be outside the top k.

        The mask has the shape (N,).
        """
        return np.asarray(self.dominators >= self.needed)

    @property
    def eliminated(self) -> tuple[str, ...]:
        """Return the names of the excluded entities in the order of the bundle."""
        return tuple(name for name, out in zip(self.entities, self.out, strict=True) if out)

    def clusters_out(self, label: Ints) -> Bools:
        """Return a mask of the clusters whose members are all excluded.

        The mask has the shape (C,).

        Parameters
        ----------
        label : (N,) int64, cluster of each entity

        """
        return np.array([bool(self.out[label == cluster].all()) for cluster in range(int(label.max()) + 1)])


def score_distances(entities: Parameters) -> Floats:
    """Return the l1 distance of each pair of entities in their prior log-odds and parameters, in nats.

    The scores of two entities differ by at most this distance. The result has the shape (N, N).
    """
    return distances(entities.bundle) + np.abs(_prior_differences(entities.bundle))


def partition(entities: Parameters, n_clusters: int, *, solver: Solver | None = None) -> Partition:
    """Return a partition of the entities into `n_clusters` clusters, formed by complete linkage.

    Clusters with only one member are allowed. With a minimum of `SMALLEST_CLUSTER` members, there would be at most five
    clusters, but the paper uses up to 24. The score of each cluster's centroid is computed by mean-field inference.

    Parameters
    ----------
    entities : parameters without observations

    Raises
    ------
    PlannerError : there are fewer entities than `n_clusters`

    """
    bundle, n = entities.bundle, len(entities.bundle.entities)
    if not 1 <= n_clusters <= n:
        found, expected = str(n_clusters), f"1 to {n}, the number of entities"
        raise PlannerError(Fault("number of clusters", found, expected, "ask for fewer clusters"))
    vectors = np.column_stack([bundle.priors, entities.values.toarray()])
    beta = np.array([contraction(bundle.mrf(entity)) for entity in bundle.entities])
    label, made = np.empty(n, dtype=np.int64), []
    parts = clusters(score_distances(entities), bundle.entities, n_clusters=n_clusters, smallest=1)
    for number, part in enumerate(parts):
        members = np.array(part)
        label[members] = number
        centroid = vectors[members].mean(axis=0)
        away = np.abs(vectors[members] - centroid)
        model = entities.model(centroid[1:], float(centroid[0]))
        solution = mean_field(model, solver=solver)
        made.append(
            Cluster(
                members=tuple(bundle.entities[v] for v in part),
                centroid=centroid,
                radius=float(away.sum(axis=1).max()),
                spread=float(away.max()),
                score=expected_score(Evidence.of(model), solution.marginals),
                norm=float(np.abs(centroid).sum()),
                contraction=float(beta[members].max()),
                converged=solution.converged,
            )
        )
    return Partition(bundle, label, tuple(made))


def centroid_certificates(parted: Partition, k: int, *, criterion: str = "f1", rule: str = "n_minus_k") -> Certificates:
    """Return the paper's certificates.

    A cluster beats another cluster if its interval of scores is entirely above the interval of the other cluster. Each
    member of the better cluster then beats each member of the worse cluster.

    Parameters
    ----------
    rule : number of dominating entities needed: `n_minus_k` as in the paper, or `k`, which would be enough for sound
        intervals

    """
    _check_option("rule", rule, EXCLUSION_RULES)
    bundle = parted.bundle
    needed = _checked_k(bundle, k) if rule == "k" else len(bundle.entities) - _checked_k(bundle, k)
    low, high = np.array([cluster.interval(criterion) for cluster in parted.clusters]).T
    above = low[:, None] > high[None, :] + _tie_tolerance(bundle)
    return Certificates(bundle.entities, above[np.ix_(parted.label, parted.label)], needed)


def sound_certificates(entities: Parameters, k: int, *, bounds: Bounds | None = None) -> Certificates:
    """Return which entities beat which others, whatever the values of the features are.

    Entity a beats entity b if the lowest possible score of a is above the highest possible score of b. Entity a also
    beats entity b if the prior log-odds of a exceed the prior log-odds of b by more than the l1 distance between the
    parameters of the two models. An entity is excluded from the top k if `k` entities beat it. If all priors are 0, no
    entity is excluded: a patient whose features are all 0 has the score 0 for every entity, so no entity is certain to
    beat another.

    Parameters
    ----------
    bounds : result of `completion_bounds`, if already computed

    """
    bundle = entities.bundle
    needed = _checked_k(bundle, k)
    low, high, _ = completion_bounds(bundle) if bounds is None else bounds
    apart = low[:, None] > high[None, :] + _tie_tolerance(bundle)
    outpaced = _prior_differences(bundle) > distances(bundle) + _tie_tolerance(bundle)
    return Certificates(bundle.entities, apart | outpaced, needed)


def completion_bounds(bundle: Bundle, *, memory_limit: int = EXACT_LIMIT) -> Bounds:
    """Return bounds on each entity's score S_v over all values of the features, and a mask of the exact bounds.

    The result contains three arrays of shape (N,): the lower bounds in nats, the upper bounds in nats, and a mask that
    is True where both bounds are exact. If exact bounds of an entity would need more than `memory_limit` bytes, the
    result contains the `l1` score bounds of this entity, which can be wider than the exact bounds.
    """
    low, high = np.empty(len(bundle.entities)), np.empty(len(bundle.entities))
    exact = np.zeros(len(bundle.entities), dtype=bool)
    for v, entity in enumerate(bundle.entities):
        model = bundle.mrf(entity)
        exact[v] = estimate(model).bytes <= memory_limit
        if exact[v]:
            low[v], high[v] = -map_state(model.scaled(-1.0))[1], map_state(model)[1]
        else:
            low[v], high[v] = l1_interval(Evidence.of(model))
    return low, high, exact


def without_eliminated(
    bundle: Bundle,
    k: int,
    *,
    criterion: str = "f1",
    rule: str | None = None,
    n_clusters: int | None = None,
    solver: Solver | None = None,
) -> Bundle:
    """Return the bundle without the entities that Layer 0 excludes.

    Parameters
    ----------
    criterion : `f1` or `f2` of the paper, whose exclusions can be wrong for a patient, or `sound`, whose exclusions
        cannot
    rule : number of entities that must dominate, `n_minus_k` by default; `sound` uses `k`
    n_clusters : as in `partition`, ceil(sqrt N) by default; not used by `sound`

    Raises
    ------
    PlannerError : no more than k entities are left

    """
    _check_option("criterion", criterion, (*CRITERIA, SOUND))
    if criterion == SOUND:
        _check_option("rule", rule or "k", ("k",))
        certificates = sound_certificates(parameters(bundle), k)
    else:
        count = paper_clusters(len(bundle.entities)) if n_clusters is None else n_clusters
        parted = partition(parameters(bundle), count, solver=solver)
        certificates = centroid_certificates(parted, k, criterion=criterion, rule=rule or EXCLUSION_RULES[0])
    left = [name for name, out in zip(bundle.entities, certificates.out, strict=True) if not out]
    if len(left) <= k:
        found = f"{len(left)} of {len(bundle.entities)} entities left by {criterion}"
        raise PlannerError(Fault("Layer 0", found, f"more than k = {k}", "choose a smaller k, or leave Layer 0 out"))
    return bundle.restrict_entities(left)


def _prior_differences(bundle: Bundle) -> Floats:
    """Return the difference between the prior log-odds of each pair of entities, in nats.

    The result has the shape (N, N).
    """
    leads: Floats = bundle.priors[:, None] - bundle.priors[None, :]
    return leads


def _tie_tolerance(bundle: Bundle) -> float:
    """Return the largest difference between two scores, in nats, that can be due to rounding."""
    return tie_of([bundle.mrf(entity) for entity in bundle.entities]) + ROUNDING


def _checked_k(bundle: Bundle, k: int) -> int:
    if not 1 <= k < len(bundle.entities):
        expected = f"1 to {len(bundle.entities) - 1}, one less than the number of entities"
        raise PlannerError(Fault("option k", str(k), expected, "choose a smaller k"))
    return k


def _check_option(option: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise PlannerError(Fault(f"option {option}", repr(given), " or ".join(known), "choose one of these"))
