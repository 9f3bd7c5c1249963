"""Clusters of entities whose models lie close together, for the clustered allocation rules and for Layer 0.

Two entities are as far apart as the l1 distance of their parameters, given what has been observed: the effective
unaries of the unobserved features and the couplings among them, each unordered pair once. Clusters are made by
complete linkage; the allocation rules make them anew every `T_RE` observations (sec:topk_alloc, decisions.md A1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil, sqrt

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from afa.engine.compile import laid_out
from afa.engine.layout import pack
from afa.engine.rules import C_MIN, T_RE, cluster_labels
from afa.engine.sharing import model_distances, sharing_of
from afa.errors import Fault, PlannerError
from afa.model.bundle import Bundle
from afa.model.mrf import VALUES, Floats, PairwiseMRF

Clusters = tuple[tuple[int, ...], ...]


class Clustering:
    """The clusters of one patient over time, made when they are first asked for in a span of `T_RE` observations.

    Those of `clusters` from `distances`, where distances that are equal but for rounding are equal.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._span = -1
        self._clusters: Clusters = ()

    def at(self, observations: Mapping[str, int]) -> Clusters:
        """Clusters given the observations made so far, in the order made: those of the last multiple of `T_RE`."""
        span = len(observations) // T_RE
        if span != self._span:
            made = distances(self._bundle, dict(islice(observations.items(), span * T_RE)))
            self._clusters = clusters(made, self._bundle.entities)
            self._span = span
        return self._clusters


@dataclass(frozen=True, eq=False)
class Parameters:
    """What is left of the models of N entities as vectors, one row an entity (eq:reduced-unary).

    values : (N, M + E) effective unaries, zero at observed features, then couplings: of each pair of unobserved
    features that any entity couples, once. row, column : (E,) these pairs, row < column.
    """

    bundle: Bundle
    values: sp.csr_array
    row: NDArray[np.int64]
    column: NDArray[np.int64]

    def model(self, vector: Floats, prior: float = 0.0) -> PairwiseMRF:
        """The model with these potentials, (M + E,), such as the mean of some rows of `values`."""
        m = len(self.bundle.features)
        ends = np.concatenate([self.row, self.column]), np.concatenate([self.column, self.row])
        couplings = sp.coo_array((np.concatenate([vector[m:], vector[m:]]), ends), shape=(m, m))
        return PairwiseMRF(vector[:m], couplings, prior, self.bundle.features)


def parameters(bundle: Bundle, observations: Mapping[str, int] | None = None) -> Parameters:
    """Parameters of all entities given observations (feature name -> value); a `PlannerError` names a wrong one."""
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
    """(N, N) l1 distances between what is left of the entities' models, `parameters`; a `PlannerError` as there."""
    values, observed = _evidence(bundle, observations or {})
    return model_distances(pack(bundle, overlaps=False), sharing_of(bundle), values, observed)


def paper_clusters(n_entities: int) -> int:
    """The paper's number of clusters, ceil(sqrt N) (tab:hyperparams)."""
    return ceil(sqrt(n_entities))


def clusters(
    distance: Floats, names: Sequence[str], *, n_clusters: int | None = None, smallest: int = C_MIN
) -> Clusters:
    """Clusters as tuples of entity indices, members and clusters by ascending name (decisions.md A1).

    Complete linkage down to `n_clusters`, ceil(sqrt N) unless given; then, as long as there are two clusters and one
    of fewer than `smallest` entities, the least of those (then by name) joins the cluster nearest to it by complete
    linkage (then by name). A cluster's name is its first member's. Distances that differ by at most a relative 1e-9
    of the largest are equal, and equal distances are told apart by the names of the two clusters: the order of
    entities does not show in the result.

    distance : (N, N), symmetric. names : N, distinct. A `PlannerError` refuses other shapes.
    """
    n = len(names)
    if distance.shape != (n, n) or len(set(names)) != n:
        found = f"distances {distance.shape} of {len(set(names))} distinct names"
        raise PlannerError(Fault("clusters", found, f"({n}, {n}) and {n}", "pass one distinct name per row"))
    by_name = np.array(sorted(range(n), key=names.__getitem__), dtype=np.int64)
    wanted = paper_clusters(n) if n_clusters is None else max(1, n_clusters)
    labels = cluster_labels(laid_out(distance.astype(np.float64)), by_name, wanted, smallest)[by_name]
    order = np.argsort(labels, kind="stable")  # members stay in the order of their names
    parts = np.split(by_name[order], np.flatnonzero(np.diff(labels[order])) + 1)
    return tuple(tuple(part.tolist()) for part in parts)


def _evidence(bundle: Bundle, observations: Mapping[str, int]) -> tuple[Floats, NDArray[np.bool_]]:
    """Values (M,), zero where unobserved, and what is observed (M,)."""
    index = {name: j for j, name in enumerate(bundle.features)}
    values, observed = np.zeros(len(index)), np.zeros(len(index), dtype=bool)
    for name, value in observations.items():
        if name not in index or value not in VALUES:
            expected = "a feature of the bundle with the value -1, 0 or 1"
            raise PlannerError(Fault("clusters, observations", f"{name!r}: {value!r}", expected, "correct it"))
        values[index[name]], observed[index[name]] = value, True
    return values, observed
