"""A bundle: what a language model said of N entities, as potentials on one shared space of M ternary features.

The folder format is described in `afa.bundle.format`. A `Bundle` is read-only and knows nothing of confidence or
evidence, which stay in the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from afa.bundle.format import Potentials
from afa.csvfile import suggestion
from afa.errors import BundleError, Fault
from afa.mrf import PairwiseMRF


@dataclass(frozen=True, eq=False)
class PackedCouplings:
    """The non-zero couplings of all entities, each unordered pair once.

    Those of entity n are the slice `pointer[n]:pointer[n + 1]` of `row`, `column` and `value` (n_pairs,), sorted by
    row and then column, with `row < column`; `pointer` is (N + 1,).
    """

    pointer: NDArray[np.int64]
    row: NDArray[np.int32]
    column: NDArray[np.int32]
    value: NDArray[np.float64]

    def of(self, entity: int) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]:
        """Rows, columns and values of the entity with this index."""
        part = slice(int(self.pointer[entity]), int(self.pointer[entity + 1]))
        return self.row[part], self.column[part], self.value[part]


@dataclass(frozen=True, eq=False)
class Bundle:
    """N entities with pairwise potentials on a shared space of M features; all arrays are read-only.

    Two bundles hold the same model exactly when their `digest` is equal. `load_bundle` makes one of a folder, and
    checks it; `packed` has the couplings of all entities, `aliases` other names of a feature; `name`, `version`,
    `provenance` and `licence` are what bundle.yaml says.

    >>> from afa.bundle import load_bundle
    >>> bundle = load_bundle("tests/data/bundle_tiny")
    >>> bundle.entities, bundle.unary.shape
    (('bleeding', 'diarrhea', 'fistula'), (3, 5))
    >>> [bundle.features[j] for j in bundle.support("fistula")]
    ['CXCL8', 'MMP9']
    """

    name: str
    version: str
    entities: tuple[str, ...]
    features: tuple[str, ...]
    unary: NDArray[np.float64]
    """(N, M), finite."""
    packed: PackedCouplings
    priors: NDArray[np.float64]
    """(N,), log-odds; zeros unless the bundle has priors.csv."""
    costs: NDArray[np.float64] | None = None
    """(M,), non-negative; None where all features cost the same."""
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    licence: str | None = None
    digest: str = field(init=False)
    """SHA-256 over entities, features, non-zero potentials, priors and costs; not over how the files are written."""

    def __post_init__(self) -> None:
        packed = (self.packed.pointer, self.packed.row, self.packed.column, self.packed.value)
        for array in (self.unary, self.priors, self.costs, *packed):
            if array is not None:
                array.flags.writeable = False
        object.__setattr__(self, "digest", _digest(self))

    def index(self, entity: str) -> int:
        """Position of an entity; a `BundleError` for one that the bundle does not have."""
        try:
            return self.entities.index(entity)
        except ValueError:
            step = suggestion(str(entity), self.entities)
            raise BundleError(
                Fault(f"bundle {self.name}", f"no entity {entity!r}", "one of its entities", step)
            ) from None

    def couplings(self, entity: str) -> sp.csr_array:
        """The couplings of an entity, (M, M) symmetric with zero diagonal."""
        row, column, value = self.packed.of(self.index(entity))
        indices = np.concatenate([row, column]), np.concatenate([column, row])
        shape = (len(self.features), len(self.features))
        return sp.coo_array((np.concatenate([value, value]), indices), shape=shape).tocsr()

    def mrf(self, entity: str) -> PairwiseMRF:
        """The model S_v of an entity on all M features, its log-odds as prior (eq:disc_score)."""
        index = self.index(entity)
        return PairwiseMRF(self.unary[index], self.couplings(entity), float(self.priors[index]), self.features)

    def support(self, entity: str) -> NDArray[np.intp]:
        """Sorted indices of the features with a non-zero unary or coupling of an entity."""
        index = self.index(entity)
        row, column, _ = self.packed.of(index)
        used = self.unary[index] != 0
        used[row] = True
        used[column] = True
        return np.flatnonzero(used)

    def restrict(self, features: Sequence[str]) -> Bundle:
        """The bundle on these features alone, in this order; potentials on others are dropped.

        A `BundleError` names the features that are unknown or given twice. The result's provenance holds the digest of
        this bundle as `restricted_from`.
        """
        chosen = tuple(features)
        if chosen == self.features:
            return self
        _check_selection(self, chosen, "feature", self.features)
        old_index = {name: index for index, name in enumerate(self.features)}
        kept = np.array([old_index[name] for name in chosen], dtype=np.intp)
        new_index = np.full(len(self.features), -1, dtype=np.int64)
        new_index[kept] = np.arange(len(kept))
        entity = np.repeat(np.arange(len(self.entities)), np.diff(self.packed.pointer))
        pairs = np.sort(np.column_stack([new_index[self.packed.row], new_index[self.packed.column]]), axis=1)
        inside = pairs[:, 0] >= 0
        pairwise = Potentials(entity[inside], pairs[inside], self.packed.value[inside])
        return replace(
            self,
            features=chosen,
            unary=np.ascontiguousarray(self.unary[:, kept]),
            packed=packed_couplings(pairwise, len(self.entities)),
            costs=None if self.costs is None else self.costs[kept],
            aliases={name: names for name, names in self.aliases.items() if name in set(chosen)},
            provenance={**self.provenance, "restricted_from": self.digest},
        )

    def restrict_entities(self, entities: Sequence[str]) -> Bundle:
        """The bundle of these entities alone, in this order, on all features; errors and provenance as `restrict`."""
        chosen = tuple(entities)
        if chosen == self.entities:
            return self
        _check_selection(self, chosen, "entity", self.entities)
        kept = [self.index(name) for name in chosen]
        row, column, value = (np.concatenate(parts) for parts in zip(*(self.packed.of(v) for v in kept), strict=True))
        sizes = np.diff(self.packed.pointer)[kept]
        return replace(
            self,
            entities=chosen,
            unary=self.unary[kept],
            packed=PackedCouplings(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), row, column, value),
            priors=self.priors[kept],
            provenance={**self.provenance, "restricted_from": self.digest},
        )


def packed_couplings(pairwise: Potentials, n_entities: int) -> PackedCouplings:
    """Non-zero couplings, each pair once with the lower feature first, sorted by entity, row and column."""
    present = pairwise.value != 0
    entity, features, value = pairwise.entity[present], pairwise.features[present], pairwise.value[present]
    order = np.lexsort((features[:, 1], features[:, 0], entity))
    pointer = np.searchsorted(entity[order], np.arange(n_entities + 1)).astype(np.int64)
    row, column = np.ascontiguousarray(features[order].T, dtype=np.int32)
    return PackedCouplings(pointer, row, column, value[order])


def _digest(bundle: Bundle) -> str:
    """SHA-256 over length-prefixed parts, numbers as little-endian 64 bit."""
    entity, feature = np.nonzero(bundle.unary)
    packed = bundle.packed
    integers: list[ArrayLike] = [entity, feature, packed.pointer, packed.row, packed.column]
    numbers = [bundle.unary[entity, feature], packed.value, bundle.priors, bundle.costs]
    parts = [str(len(bundle.entities)).encode(), *(name.encode() for name in (*bundle.entities, *bundle.features))]
    parts += [np.asarray(values, dtype="<i8").tobytes() for values in integers]
    parts += [b"" if values is None else (values + 0.0).astype("<f8").tobytes() for values in numbers]
    state = hashlib.sha256()
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.hexdigest()


def _check_selection(bundle: Bundle, chosen: tuple[str, ...], kind: str, known: tuple[str, ...]) -> None:
    where = f"bundle {bundle.name}, restricted"
    faults = [
        Fault(where, f"no {kind} {name!r}", f"one of the bundle's {len(known)}", suggestion(str(name), known))
        for name in dict.fromkeys(chosen)
        if name not in set(known)
    ]
    if len(set(chosen)) < len(chosen):
        twice = sorted({str(name) for name in chosen if chosen.count(name) > 1})
        faults.append(Fault(where, f"{', '.join(twice)} more than once", f"each {kind} once", "remove the others"))
    if not chosen:
        faults.append(Fault(where, f"no {kind}", "at least one", "check that names match those of the bundle"))
    if faults:
        raise BundleError(faults)
