"""Cluster entities with similar models, for the clustered allocation rules and for Layer 0.

The distance of two entities is the l1 distance of their model parameters given the observations. The parameters of a
model are the effective unaries and the couplings of the unobserved features. Each coupling counts once. Clusters of
entities are formed by complete linkage. Allocation rules recompute clusters every `CLUSTER_EVERY` observations
(sec:topk_alloc, docs/decisions.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil, sqrt

import numpy as np
import scipy.sparse as sp

from afa.engine.compile import laid_out
from afa.engine.layout import pack
from afa.engine.rules import CLUSTER_EVERY, SMALLEST_CLUSTER, cluster_labels
from afa.engine.sharing import model_distances, sharing_of
from afa.errors import Fault, PlannerError
from afa.model.arrays import Bools, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.mrf import VALUES, PairwiseMRF

Clusters = tuple[tuple[int, ...], ...]


class Clustering:
    """Return one patient's clusters of entities, computed again after every `CLUSTER_EVERY` observations.

    After t observations, clusters depend on the first n observations, where n is the largest multiple of
    `CLUSTER_EVERY` up to t.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._span = -1
        self._clusters: Clusters = ()

    def at(self, observations: Mapping[str, int]) -> Clusters:
        """Return the clusters of entities, given the observations up to the last multiple of `CLUSTER_EVERY`.

        Parameters
        ----------
        observations : feature -> value, in the order made

        """
        span = len(observations) // CLUSTER_EVERY
        if span != self._span:
            made = distances(self._bundle, dict(islice(observations.items(), span * CLUSTER_EVERY)))
            self._clusters = clusters(made, self._bundle.entities)
            self._span = span
        return self._clusters


@dataclass(frozen=True, eq=False)
class Parameters:
    """Parameters of the conditioned models of N entities as vectors (eq:reduced-unary). Each entity has one row.

    Attributes
    ----------
    values : (N, M + E) sparse float64, nats. The first M columns are effective unaries, 0 at observed features. The
        other E columns are couplings, one for each pair of unobserved features that is coupled in any entity's model
    row, column : (E,) int64, the two features of each of these pairs, row < column

    """

    bundle: Bundle
    values: sp.csr_array
    row: Ints
    column: Ints

    def model(self, vector: Floats, prior: float = 0.0) -> PairwiseMRF:
        """Return the model with the unaries and couplings in `vector`, (M + E,), such as a mean of rows of `values`."""
        m = len(self.bundle.features)
        ends = np.concatenate([self.row, self.column]), np.concatenate([self.column, self.row])
        couplings = sp.coo_array((np.concatenate([vector[m:], vector[m:]]), ends), shape=(m, m))
        return PairwiseMRF(vector[:m], couplings, prior, self.bundle.features)


def parameters(bundle: Bundle, observations: Mapping[str, int] | None = None) -> Parameters:
    """Return the model parameters of all entities given observations.

    Parameters
    ----------
    observations : feature -> value

    Raises
    ------
    PlannerError : an observation has an unknown feature or value

    """
    values, observed = _evidence(bundle, observations or {})
    packed, n_features = bundle.packed, len(bundle.features)
    entity = packed.owner
    fields = bundle.unary.copy()
    np.add.at(fields, (entity, packed.row), packed.value * values[packed.column])
    np.add.at(fields, (entity, packed.column), packed.value * values[packed.row])
    fields[:, observed] = 0.0
    left = ~(observed[packed.row] | observed[packed.column])
    pair = packed.row[left].astype(np.int64) * n_features + packed.column[left]
    known, place = np.unique(pair, return_inverse=True)
    shape = len(bundle.entities), len(known)
    couplings = sp.coo_array((packed.value[left], (entity[left], place.ravel())), shape=shape)
    rows = sp.csr_array(sp.hstack([sp.csr_array(fields), couplings.tocsr()]))
    return Parameters(bundle, rows, known // n_features, known % n_features)


def distances(bundle: Bundle, observations: Mapping[str, int] | None = None) -> Floats:
    """Return the l1 distance between each pair of conditioned models, (N, N) nats."""
    values, observed = _evidence(bundle, observations or {})
    return model_distances(pack(bundle, overlaps=False), sharing_of(bundle), values, observed)


def paper_clusters(n_entities: int) -> int:
    """Return the paper's number of clusters, ceil(sqrt N) (tab:hyperparams)."""
    return ceil(sqrt(n_entities))


def clusters(
    distance: Floats, names: Sequence[str], *, n_clusters: int | None = None, smallest: int = SMALLEST_CLUSTER
) -> Clusters:
    """Return clusters of entities as tuples of entity indices, sorted by the names of the entities.

    Complete linkage first merges the entities into `n_clusters` clusters. Then, as long as some cluster has fewer than
    `smallest` entities, the smallest cluster is merged into its nearest cluster. Distances that differ by at most 1e-9
    of the largest distance count as equal. Ties between clusters are broken by the name of the first member. The result
    does not depend on the order of the entities.

    Parameters
    ----------
    distance : (N, N) float64, symmetric
    names : (N,) distinct
    n_clusters : ceil(sqrt N) if None

    Raises
    ------
    PlannerError : the shapes do not match, or a name occurs twice

    """
    n = len(names)
    if distance.shape != (n, n) or len(set(names)) != n:
        found = f"distances {distance.shape} of {len(set(names))} distinct names"
        raise PlannerError(Fault("clusters", found, f"({n}, {n}) and {n}", "pass one distinct name per row"))
    by_name = np.array(sorted(range(n), key=names.__getitem__), dtype=np.int64)
    wanted = paper_clusters(n) if n_clusters is None else max(1, n_clusters)
    labels = cluster_labels(laid_out(distance.astype(np.float64)), by_name, wanted, smallest)[by_name]
    order = np.argsort(labels, kind="stable")  # a stable sort keeps the members sorted by name
    parts = np.split(by_name[order], np.flatnonzero(np.diff(labels[order])) + 1)
    return tuple(tuple(part.tolist()) for part in parts)


def _evidence(bundle: Bundle, observations: Mapping[str, int]) -> tuple[Floats, Bools]:
    """Return two arrays: the values, (M,) float64, 0 if unobserved, and a mask of the observed features, (M,) bool."""
    index = {name: j for j, name in enumerate(bundle.features)}
    values, observed = np.zeros(len(index)), np.zeros(len(index), dtype=bool)
    for name, value in observations.items():
        if name not in index or value not in VALUES:
            expected = "a feature of the bundle with the value -1, 0 or 1"
            raise PlannerError(Fault("clusters, observations", f"{name!r}: {value!r}", expected, "correct it"))
        values[index[name]], observed[index[name]] = value, True
    return values, observed
