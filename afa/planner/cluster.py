"""Cluster entities with similar models, for the clustered allocation rules and for Layer 0.

The parameters of an entity's model are the effective unaries of all features and the couplings between unobserved
features. The distance of two entities is the l1 distance of their parameters, given the observations of a patient. In
this distance, each coupling counts once. Clusters are formed by complete linkage. The clusters for allocation rules are
computed again after every `CLUSTER_EVERY` observations (sec:topk_alloc, docs/decisions.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil, sqrt

import numpy as np
import scipy.sparse as sp

from afa.engine.compile import INT, laid_out
from afa.engine.layout import pack
from afa.engine.rules import CLUSTER_EVERY, SMALLEST_CLUSTER, cluster_labels
from afa.engine.sharing import model_distances, sharing_of
from afa.errors import Fault, PlannerError
from afa.model.arrays import Bools, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.mrf import VALUES, PairwiseMRF

Clusters = tuple[tuple[int, ...], ...]


class Clustering:
    """Compute the clusters of entities for one patient.

    The clusters are computed again after every `CLUSTER_EVERY` observations. Between these steps, the clusters do not
    change.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._span = -1
        self._clusters: Clusters = ()

    def at(self, observations: Mapping[str, int]) -> Clusters:
        """Return the clusters of entities after the given observations.

        The clusters are based on the first n observations, where n is the largest multiple of `CLUSTER_EVERY` that is
        not above the number of observations.

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
    """Parameters of the models of N entities, given observations (eq:reduced-unary).

    The parameters of each entity are one row of a matrix.

    Attributes
    ----------
    values : (N, M + E) sparse float64, nats. The first M columns contain the effective unaries; they are 0 for observed
        features. The other E columns contain the couplings, one column for each pair of unobserved features that are
        coupled in the model of some entity
    row, column : (E,) int64, indices of the two features of each coupled pair; row < column

    """

    bundle: Bundle
    values: sp.csr_array
    row: Ints
    column: Ints

    def model(self, vector: Floats, prior: float = 0.0) -> PairwiseMRF:
        """Return the model whose unaries and couplings are the elements of `vector`, an array of shape (M + E,).

        For example, `vector` can be the mean of several rows of `values`.
        """
        m = len(self.bundle.features)
        ends = np.concatenate([self.row, self.column]), np.concatenate([self.column, self.row])
        couplings = sp.coo_array((np.concatenate([vector[m:], vector[m:]]), ends), shape=(m, m))
        return PairwiseMRF(vector[:m], couplings, prior, self.bundle.features)


def parameters(bundle: Bundle, observations: Mapping[str, int] | None = None) -> Parameters:
    """Return the parameters of all entities' models, given observations.

    Parameters
    ----------
    observations : feature -> value

    Raises
    ------
    PlannerError : an observation has an unknown feature or value

    """
    values, observed = _observation_arrays(bundle, observations or {})
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
    """Return the l1 distance in nats between the models of each pair of entities, given observations.

    The result has the shape (N, N).
    """
    values, observed = _observation_arrays(bundle, observations or {})
    return model_distances(pack(bundle, overlaps=False), sharing_of(bundle), values, observed)


def paper_clusters(n_entities: int) -> int:
    """Return the number of clusters that the paper uses for N entities, ceil(sqrt N) (tab:hyperparams)."""
    return ceil(sqrt(n_entities))


def clusters(
    distance: Floats, names: Sequence[str], *, n_clusters: int | None = None, smallest: int = SMALLEST_CLUSTER
) -> Clusters:
    """Return clusters of entities, each as a tuple of entity indices.

    In each cluster, the indices are sorted by the names of the entities. First, complete linkage merges the entities
    into `n_clusters` clusters. Then, as long as a cluster has fewer than `smallest` entities, the smallest cluster is
    merged with the cluster nearest to it. Distances count as equal if they differ by at most 1e-9 of the largest
    distance. If several pairs of clusters have the same distance, the names of the clusters' first members decide which
    pair is merged. Therefore, the result does not depend on the order in which the entities are given.

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
    labels = cluster_labels(laid_out(distance.astype(np.float64)), by_name, INT(wanted), INT(smallest))[by_name]
    order = np.argsort(labels, kind="stable")  # because the sort is stable, members stay sorted by name
    parts = np.split(by_name[order], np.flatnonzero(np.diff(labels[order])) + 1)
    return tuple(tuple(part.tolist()) for part in parts)


def _observation_arrays(bundle: Bundle, observations: Mapping[str, int]) -> tuple[Floats, Bools]:
    """Return two arrays of shape (M,): the values of all features, and a mask of the observed features.

    The value of an unobserved feature is 0.
    """
    index = {name: j for j, name in enumerate(bundle.features)}
    values, observed = np.zeros(len(index)), np.zeros(len(index), dtype=bool)
    for name, value in observations.items():
        if name not in index or value not in VALUES:
            expected = "a feature of the bundle with the value -1, 0 or 1"
            raise PlannerError(Fault("clusters, observations", f"{name!r}: {value!r}", expected, "correct it"))
        values[index[name]], observed[index[name]] = value, True
    return values, observed
