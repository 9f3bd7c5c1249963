"""Layer 0: entities that are put out of the top-k before anything is observed (App. supp:layer0_lipschitz).

Entities are clustered by the l1 distance of their potentials. The paper gives each cluster an interval about the score
of its centroid and removes a cluster that enough entities dominate. That score is one of the centroid model's own
expectation, not of a patient's state, so that these certificates can be false (spec L2). The sound ones beside them
compare what the scores can be at every completion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.spatial.distance import pdist, squareform

from afa.bracket import l1_interval
from afa.bundle import Bundle
from afa.closure import contraction
from afa.errors import Fault, PlannerError
from afa.inference.exact import estimate, map_state
from afa.inference.meanfield import Solver, mean_field
from afa.mrf import ROUNDING, Evidence, Floats, PairwiseMRF
from afa.preference import expected_score, tie_of

CRITERIA = ("f1", "f2")
RULES = ("n_minus_k", "k")
EXACT_LIMIT = 100_000_000
"""Bytes of tables up to which the extremes of a score are found exactly."""
Bounds = tuple[Floats, Floats, NDArray[np.bool_]]


@dataclass(frozen=True, eq=False)
class Parameters:
    """The potentials of N entities as vectors: prior, M unaries, and each coupling that any of them has, once.

    values : (N, 1 + M + E). row, column : (E,) the coupled features, row < column.
    """

    bundle: Bundle
    values: Floats
    row: NDArray[np.intp]
    column: NDArray[np.intp]

    @classmethod
    def of(cls, bundle: Bundle) -> Parameters:
        m, packed = len(bundle.features), bundle.packed
        edge, place = np.unique(packed.row.astype(np.int64) * m + packed.column, return_inverse=True)
        couplings = np.zeros((len(bundle.entities), len(edge)))
        couplings[np.repeat(np.arange(len(bundle.entities)), np.diff(packed.pointer)), place] = packed.value
        return cls(bundle, np.column_stack([bundle.priors, bundle.unary, couplings]), edge // m, edge % m)

    @cached_property
    def distances(self) -> Floats:
        """(N, N) l1 distances: no profile separates the scores of two entities by more."""
        distances: Floats = squareform(pdist(self.values, "cityblock"))
        return distances

    def model(self, vector: Floats) -> PairwiseMRF:
        """The model with these potentials, (1 + M + E,)."""
        m = len(self.bundle.features)
        weight = vector[1 + m :]
        ends = np.concatenate([self.row, self.column]), np.concatenate([self.column, self.row])
        couplings = sp.coo_array((np.concatenate([weight, weight]), ends), shape=(m, m))
        return PairwiseMRF(vector[1 : 1 + m], couplings, float(vector[0]), self.bundle.features)


@dataclass(frozen=True, eq=False)
class Cluster:
    """A cluster of entities and its centroid, the mean of their parameters.

    members : names, sorted. radius, spread : largest l1 and l-infinity distance of a member to the centroid.
    score : E_q[S_c] in nats of the centroid model under its own mean-field marginals at no observation. norm : the l1
    norm of its parameters, K_c. contraction : the largest beta L^2 of the members. converged : of the centroid's solve.
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
        """L_c: 1 for `f1`, eq:lc-mf for `f2`, None where that is not eligible because beta_c L^2 >= 1."""
        _one_of("criterion", criterion, CRITERIA)
        if criterion == "f1":
            return 1.0
        return 1.0 + self.norm / (1.0 - self.contraction) if self.contraction < 1 else None

    def interval(self, criterion: str) -> tuple[float, float]:
        """Centroid score plus and minus L_c r_c; the whole line where the criterion is not eligible."""
        constant = self.lipschitz(criterion)
        if constant is None:
            return -np.inf, np.inf
        return self.score - constant * self.radius, self.score + constant * self.radius


@dataclass(frozen=True, eq=False)
class Partition:
    """The entities of a bundle in clusters; `label` (N,) gives the cluster of each entity, in bundle order."""

    bundle: Bundle
    label: NDArray[np.int64]
    clusters: tuple[Cluster, ...]

    @cached_property
    def centroid_gaps(self) -> Floats:
        """(pairs of clusters, 2) the l1 and l-infinity distances between their centroids."""
        gaps = [np.abs(a.centroid - b.centroid) for a, b in combinations(self.clusters, 2)]
        return np.array([[gap.sum(), gap.max()] for gap in gaps]).reshape(-1, 2)

    @property
    def gap(self) -> float:
        """Smallest l1 distance between two centroids; NaN for one cluster."""
        return float(self.centroid_gaps[:, 0].min()) if len(self.clusters) > 1 else float("nan")

    @property
    def separation(self) -> float:
        """The gap over the largest radius (tab:layer0_synthetic); infinite where no cluster has an extent."""
        radius = max(cluster.radius for cluster in self.clusters)
        return self.gap / radius if radius > 0 else self.gap * float("inf")

    @property
    def activation(self) -> tuple[float, float]:
        """Both sides of the activation condition (sec:eval_filter): the first should be far below the second.

        Largest l-infinity distance of a member to its centroid, and smallest one between centroids (NaN for one).
        """
        between = self.centroid_gaps[:, 1].min() if len(self.clusters) > 1 else np.nan
        return max(cluster.spread for cluster in self.clusters), float(between)


@dataclass(frozen=True, eq=False)
class Certificates:
    """What Layer 0 says before any observation.

    beats : (N, N) bool, whether row is said to be better than column whatever is observed. needed : so many entities
    that dominate another put it out of the top-k.
    """

    entities: tuple[str, ...]
    beats: NDArray[np.bool_]
    needed: int

    @property
    def dominators(self) -> NDArray[np.int64]:
        """(N,) how many entities dominate each."""
        counts: NDArray[np.int64] = self.beats.sum(axis=0)
        return counts

    @property
    def out(self) -> NDArray[np.bool_]:
        """(N,) whether an entity is certified not to be among the k best."""
        return np.asarray(self.dominators >= self.needed)

    @property
    def eliminated(self) -> tuple[str, ...]:
        """Names of the entities that are out, in bundle order."""
        return tuple(name for name, out in zip(self.entities, self.out, strict=True) if out)

    def clusters_out(self, label: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(C,) whether all members of each cluster are out."""
        return np.array([bool(self.out[label == cluster].all()) for cluster in range(int(label.max()) + 1)])


def complete_linkage(distances: Floats, n_clusters: int, names: Sequence[str]) -> NDArray[np.int64]:
    """Cluster of each item, (N,) in 0 .. n_clusters - 1, by complete linkage of `distances` (N, N).

    Distances that differ by rounding are equal; ties go by name, so that the clusters do not depend on the order of the
    items. Clusters are numbered by their first name. A `PlannerError` where there are not so many items.
    """
    n = len(names)
    if not 1 <= n_clusters <= n:
        found, expected = str(n_clusters), f"1 to {n}, the number of entities"
        raise PlannerError(Fault("number of clusters", found, expected, "ask for fewer clusters"))
    order = np.array(sorted(range(n), key=names.__getitem__), dtype=np.intp)
    found_labels = np.arange(n)
    if n_clusters < n:
        # equal sums that were added in another order must tie, and a power of two rounds them without a new error
        unit = 2.0 ** np.floor(np.log2(max(float(distances.max()), 1e-300)) - 30)
        ranked = np.rint(distances[np.ix_(order, order)] / unit) * unit
        found_labels = cut_tree(linkage(squareform(ranked, checks=False), "complete"), n_clusters=[n_clusters])[:, 0]
    first_seen = {cluster: number for number, cluster in enumerate(dict.fromkeys(found_labels.tolist()))}
    label = np.empty(n, dtype=np.int64)
    label[order] = [first_seen[cluster] for cluster in found_labels.tolist()]
    return label


def partition(parameters: Parameters, n_clusters: int, *, solver: Solver | None = None) -> Partition:
    """The entities in `n_clusters` clusters, with one mean-field solve on each centroid."""
    bundle = parameters.bundle
    label = complete_linkage(parameters.distances, n_clusters, bundle.entities)
    beta = np.array([contraction(bundle.mrf(entity)) for entity in bundle.entities])
    clusters = []
    for number in range(n_clusters):
        members = np.flatnonzero(label == number)
        members = members[np.argsort([bundle.entities[v] for v in members])]
        centroid = parameters.values[members].mean(axis=0)
        away = np.abs(parameters.values[members] - centroid)
        model = parameters.model(centroid)
        solution = mean_field(model, solver=solver)
        clusters.append(
            Cluster(
                members=tuple(bundle.entities[v] for v in members),
                centroid=centroid,
                radius=float(away.sum(axis=1).max()),
                spread=float(away.max()),
                score=expected_score(Evidence.of(model), solution.marginals.first),
                norm=float(np.abs(centroid).sum()),
                contraction=float(beta[members].max()),
                converged=solution.converged,
            )
        )
    return Partition(bundle, label, tuple(clusters))


def centroid_certificates(
    clusters: Partition, k: int, *, criterion: str = "f1", rule: str = "n_minus_k"
) -> Certificates:
    """The paper's certificates: a cluster's interval lies above another's, so all of its members do.

    rule : `n_minus_k` dominating entities are needed, as the paper has it, or `k`, which would do if the intervals were
    sound (spec L1). They are not: a false certificate is no fault of the program here.
    """
    _one_of("rule", rule, RULES)
    bundle = clusters.bundle
    needed = _checked_k(bundle, k) if rule == "k" else len(bundle.entities) - _checked_k(bundle, k)
    low, high = np.array([cluster.interval(criterion) for cluster in clusters.clusters]).T
    above = low[:, None] > high[None, :] + _tie(bundle)
    return Certificates(bundle.entities, above[np.ix_(clusters.label, clusters.label)], needed)


def sound_certificates(parameters: Parameters, k: int, *, bounds: Bounds | None = None) -> Certificates:
    """Certificates that hold at every completion: `k` entities that are better whatever the profile (spec L1, L2).

    One entity beats another where the lowest value of its score exceeds the highest of the other, or where their
    log-odds are further apart than the l1 distance of their other potentials: at one and the same profile the scores
    cannot make that up. Without priors all scores are 0 at x = 0, and nothing is certified. `bounds` as from
    `completion_bounds`, where these are at hand.
    """
    bundle = parameters.bundle
    needed = _checked_k(bundle, k)
    low, high, _ = completion_bounds(bundle) if bounds is None else bounds
    lead = bundle.priors[:, None] - bundle.priors[None, :]
    apart = low[:, None] > high[None, :] + _tie(bundle)
    outpaced = lead > parameters.distances - np.abs(lead) + _tie(bundle)
    return Certificates(bundle.entities, apart | outpaced, needed)


def completion_bounds(bundle: Bundle, *, memory_limit: int = EXACT_LIMIT) -> Bounds:
    """Lowest and highest S_v over all profiles, (N,) nats each, and whether they are the exact extremes.

    Where their tables would take more than `memory_limit` bytes the tight `l1` interval stands in, which is wider.
    """
    low, high = np.empty(len(bundle.entities)), np.empty(len(bundle.entities))
    exact = np.zeros(len(bundle.entities), dtype=bool)
    for v, entity in enumerate(bundle.entities):
        model = bundle.mrf(entity)
        exact[v] = estimate(model, memory_limit=memory_limit).bytes <= memory_limit
        if exact[v]:
            low[v], high[v] = -map_state(model.scaled(-1.0))[1], map_state(model)[1]
        else:
            low[v], high[v] = l1_interval(Evidence.of(model))
    return low, high, exact


def _tie(bundle: Bundle) -> float:
    """A difference of scores of at most this magnitude is rounding."""
    return tie_of([bundle.mrf(entity) for entity in bundle.entities]) + ROUNDING


def _checked_k(bundle: Bundle, k: int) -> int:
    if not 1 <= k < len(bundle.entities):
        expected = f"1 to {len(bundle.entities) - 1}, one less than the number of entities"
        raise PlannerError(Fault("option k", str(k), expected, "choose a smaller k"))
    return k


def _one_of(option: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise PlannerError(Fault(f"option {option}", repr(given), " or ".join(known), "choose one of these"))
