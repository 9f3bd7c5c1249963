"""Layer 0: entities that are put out of the top-k before anything is observed (App. supp:layer0_lipschitz).

Entities are clustered by the l1 distance of their potentials (`afa.planner.cluster`). The paper gives each cluster an
interval about the score of its centroid and removes a cluster that enough entities dominate. That score is one of the
centroid model's own expectation, not of a patient's state, so that these certificates can be false (decisions.md L2).
The sound ones beside them compare what the scores can be at every completion. `without_eliminated` is the opt-in filter
of a planner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from afa.errors import Fault, PlannerError
from afa.inference.exact import estimate, map_state
from afa.inference.meanfield import Solver, mean_field
from afa.model.bundle import Bundle
from afa.model.closure import contraction
from afa.model.mrf import ROUNDING, Evidence, Floats
from afa.planner.cluster import Parameters, clusters, distances, paper_clusters, parameters
from afa.scores.bracket import l1_interval
from afa.scores.preference import expected_score, tie_of

CRITERIA = ("f1", "f2")
SOUND = "sound"
RULES = ("n_minus_k", "k")
EXACT_LIMIT = 100_000_000
"""Bytes of tables up to which the extremes of a score are found exactly."""
Bounds = tuple[Floats, Floats, NDArray[np.bool_]]


@dataclass(frozen=True, eq=False)
class Cluster:
    """A cluster of entities and its centroid, the mean of their log-odds and parameters, (1 + M + E,).

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


def score_distances(entities: Parameters) -> Floats:
    """(N, N) l1 distances of log-odds and parameters: no profile separates the scores of two entities by more."""
    return distances(entities.bundle) + np.abs(_leads(entities.bundle))


def partition(entities: Parameters, n_clusters: int, *, solver: Solver | None = None) -> Partition:
    """The entities in `n_clusters` clusters by complete linkage, with one mean-field solve on each centroid.

    entities : before any observation. A `PlannerError` where there are not so many of them. Clusters may be of
    any size: `C_MIN` of `afa.planner.cluster` would leave at most five of the paper's up to 24 (docs/decisions.md, A1).
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
    """The paper's certificates: a cluster's interval lies above another's, so all of its members do.

    rule : `n_minus_k` dominating entities are needed, as the paper has it, or `k`, which would do if the intervals were
    sound (decisions.md L1). They are not: a false certificate is no fault of the program here.
    """
    _one_of("rule", rule, RULES)
    bundle = parted.bundle
    needed = _checked_k(bundle, k) if rule == "k" else len(bundle.entities) - _checked_k(bundle, k)
    low, high = np.array([cluster.interval(criterion) for cluster in parted.clusters]).T
    above = low[:, None] > high[None, :] + _tie(bundle)
    return Certificates(bundle.entities, above[np.ix_(parted.label, parted.label)], needed)


def sound_certificates(entities: Parameters, k: int, *, bounds: Bounds | None = None) -> Certificates:
    """Certificates that hold at every completion: `k` entities are better at any profile (decisions.md L1, L2).

    One entity beats another where the lowest value of its score exceeds the highest of the other, or where their
    log-odds are further apart than the l1 distance of their other potentials: at one and the same profile the scores
    cannot make that up. Without priors all scores are 0 at x = 0, and nothing is certified. `bounds` as from
    `completion_bounds`, where these are at hand.
    """
    bundle = entities.bundle
    needed = _checked_k(bundle, k)
    low, high, _ = completion_bounds(bundle) if bounds is None else bounds
    apart = low[:, None] > high[None, :] + _tie(bundle)
    outpaced = _leads(bundle) > distances(bundle) + _tie(bundle)
    return Certificates(bundle.entities, apart | outpaced, needed)


def completion_bounds(bundle: Bundle, *, memory_limit: int = EXACT_LIMIT) -> Bounds:
    """Lowest and highest S_v over all profiles, (N,) nats each, and whether they are the exact extremes.

    Where their tables would take more than `memory_limit` bytes the tight `l1` interval stands in, which is wider.
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
    """The bundle of the entities that Layer 0 leaves, in the same order and on all features.

    criterion : `f1` or `f2`, of the paper, which a patient may contradict (decisions.md L2), or `sound`, which none
    can. rule : how many entities must dominate, `n_minus_k` unless given; `sound` asks for `k`. n_clusters : as in
    `partition`, ceil(sqrt N) unless given; `sound` makes none. A `PlannerError` where no more than k entities are left.
    """
    _one_of("criterion", criterion, (*CRITERIA, SOUND))
    if criterion == SOUND:
        _one_of("rule", rule or "k", ("k",))
        certificates = sound_certificates(parameters(bundle), k)
    else:
        count = paper_clusters(len(bundle.entities)) if n_clusters is None else n_clusters
        parted = partition(parameters(bundle), count, solver=solver)
        certificates = centroid_certificates(parted, k, criterion=criterion, rule=rule or RULES[0])
    left = [name for name, out in zip(bundle.entities, certificates.out, strict=True) if not out]
    if len(left) <= k:
        found = f"{len(left)} of {len(bundle.entities)} entities left by {criterion}"
        raise PlannerError(Fault("Layer 0", found, f"more than k = {k}", "choose a smaller k, or leave Layer 0 out"))
    return bundle.restrict_entities(left)


def _leads(bundle: Bundle) -> Floats:
    """(N, N) log-odds of each entity less those of each other."""
    leads: Floats = bundle.priors[:, None] - bundle.priors[None, :]
    return leads


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
