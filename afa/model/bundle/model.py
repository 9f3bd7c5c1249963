"""A bundle: what a language model said of N entities, as potentials on one shared space of M ternary features.

The folder format is described in `afa.model.bundle.format`. A `Bundle` is read-only and knows nothing of confidence or
evidence, which stay in the files.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from afa.errors import BundleError, Fault
from afa.io.csvfile import suggestion
from afa.io.later import Later
from afa.model.bundle.format import Potentials
from afa.model.bundle.rates import CONDITION, FLOOR, SHARED, Holds, Rates, bundle_models, exclusive_log_odds
from afa.model.mrf import PairwiseMRF

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = Later("pandas")


@dataclass(frozen=True, eq=False)
class PackedCouplings:
    """The non-zero couplings of all entities, each unordered pair once.

    Those of entity n are the slice `pointer[n]:pointer[n + 1]` of `row`, `column` and `value` (n_pairs,), sorted by
    row and then column, with `row < column`; `pointer` is (N + 1,). `scope` (n_pairs,) are indices of `SCOPES`; None
    where no coupling says whether it is of both classes.
    """

    pointer: NDArray[np.int64]
    row: NDArray[np.int32]
    column: NDArray[np.int32]
    value: NDArray[np.float64]
    scope: NDArray[np.int8] | None = None

    def of(self, entity: int) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]:
        """Rows, columns and values of the entity with this index."""
        part = slice(int(self.pointer[entity]), int(self.pointer[entity + 1]))
        return self.row[part], self.column[part], self.value[part]

    @property
    def owner(self) -> NDArray[np.int64]:
        """(n_pairs,) the index of the entity that each coupling is of."""
        return np.repeat(np.arange(len(self.pointer) - 1), np.diff(self.pointer))

    def renumbered(
        self, entities: NDArray[np.int64], features: NDArray[np.int64], kept: NDArray[np.bool_] | bool = True
    ) -> PackedCouplings:
        """Couplings marked in `kept` whose entity and features have new indices, (N,) and (M,); -1: none."""
        owner = entities[self.owner]
        pairs = np.sort(np.column_stack([features[self.row], features[self.column]]), axis=1)
        rows = kept & (owner >= 0) & (pairs[:, 0] >= 0)
        scope = None if self.scope is None else self.scope[rows]
        return packed_couplings(Potentials(owner[rows], pairs[rows], self.value[rows], scope), int(entities.max()) + 1)


@dataclass(frozen=True, eq=False)
class Bundle:
    """N entities with pairwise potentials on a shared space of M features; all arrays are read-only.

    Two bundles hold the same model exactly when their `digest` is equal. `load_bundle` makes one of a folder, and
    checks it; `packed` has the couplings of all entities, `aliases` other names of a feature, `display_names` what
    people are shown for an entity or a feature; `name`, `version`, `provenance` and `licence` are what bundle.yaml
    says.

    >>> from afa.model.bundle import load_bundle
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
    """(N,), log-odds, or log weights where one entity holds; zeros unless the bundle has priors.csv."""
    costs: NDArray[np.float64] | None = None
    """(M,), non-negative; None where all features cost the same."""
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    display_names: Mapping[str, str] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    licence: str | None = None
    rates: Rates | None = None
    """How often, what can occur, and groups; None where the bundle says nothing of them."""
    shares: NDArray[np.float64] | None = None
    """(N,), the probabilities before anything is measured, where priors.csv states those and no log-odds."""
    digest: str = field(init=False)
    """SHA-256 over entities, features, non-zero potentials, priors and costs; not over how the files are written."""

    def __post_init__(self) -> None:
        packed = (self.packed.pointer, self.packed.row, self.packed.column, self.packed.value, self.packed.scope)
        for array in (self.unary, self.priors, self.shares, self.costs, *packed):
            if array is not None:
                array.flags.writeable = False
        object.__setattr__(self, "digest", _digest(self))

    def __repr__(self) -> str:
        return f"<Bundle {self.name} {self.version}: {len(self.entities)} entities, {len(self.features)} features>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the unary potentials, entities down and features across."""
        table = pd.DataFrame(self.unary, index=list(self.entities), columns=list(self.features))
        heading = f"<p><b>{escape(self.name)} {escape(self.version)}</b>: unary potentials</p>"
        return heading + table.to_html(max_rows=20, max_cols=20, float_format="{:g}".format)

    def index(self, entity: str) -> int:
        """Position of an entity; a `BundleError` for one that the bundle does not have."""
        try:
            return self.entities.index(entity)
        except ValueError:
            step = suggestion(str(entity), self.entities)
            where = f"bundle {self.name}"
            raise BundleError(Fault(where, f"no entity {entity!r}", "one of its entities", step)) from None

    def couplings(self, entity: str, kept: NDArray[np.bool_] | None = None) -> sp.csr_array:
        """The couplings of an entity, (M, M) symmetric with zero diagonal.

        kept : (n_pairs,) over all entities, which of the couplings; every one unless given.
        """
        v = self.index(entity)
        row, column, value = self.packed.of(v)
        if kept is not None:
            here = kept[self.packed.pointer[v] : self.packed.pointer[v + 1]]
            row, column, value = row[here], column[here], value[here]
        indices = np.concatenate([row, column]), np.concatenate([column, row])
        shape = (len(self.features), len(self.features))
        return sp.coo_array((np.concatenate([value, value]), indices), shape=shape).tocsr()

    def mrf(self, entity: str) -> PairwiseMRF:
        """The model of an entity on all M features with all its couplings, its log-odds as prior (eq:disc_score).

        It is S_v where no coupling is stated as of both classes; else S_v is `contrast`. Where a side cannot occur,
        values count from the middle of those that can (docs/decisions.md, F10).
        """
        return self._model(self.index(entity), self.couplings(entity))

    def _model(self, index: int, couplings: sp.csr_array) -> PairwiseMRF:
        parts = self.unary[index], couplings, float(self.log_odds[index]), self.features
        return PairwiseMRF(*parts) if self.ternary else PairwiseMRF.on_values(self.possible, *parts)

    def energies(self, values: ArrayLike, closure: str = "differential", kappa: ArrayLike = 0.0) -> NDArray[np.float64]:
        """(n, N) S_v(x) of every entity and patient (eq:disc_score; docs/decisions.md, F3 and F8).

        values : (n, M), NaN where not measured: that adds nothing. closure : `differential`, `shared` or `explicit`.
        kappa : of `explicit`, (N,) log Z_1 - log Z_0 at no observation. A `PlannerError` names a value that cannot
        occur.
        """
        kappas = np.broadcast_to(kappa, len(self.entities))
        columns = [self.energies_of(v, values, closure, float(k)) for v, k in zip(self.entities, kappas, strict=True)]
        return np.stack(columns, axis=1)

    def energies_of(
        self, entity: str, values: ArrayLike, closure: str = "differential", kappa: float = 0.0
    ) -> NDArray[np.float64]:
        """(n,) the column of `energies` of one entity; values, closure, kappa : as there."""
        if closure != "explicit":
            return self.contrast(entity, closure).energies(values)
        one, zero = bundle_models(self, entity, kappa)
        return np.asarray(one.energies(values) - zero.energies(values) + exclusive_log_odds(self, entity, values))

    def contrast(self, entity: str, closure: str = "differential") -> PairwiseMRF:
        """S of one entity, the difference of its two classes: without the couplings that both have.

        closure : `differential` or `shared`.
        """
        scope = np.zeros(len(self.packed.value), np.int8) if self.packed.scope is None else self.packed.scope
        kept = scope != SHARED if closure == "differential" else scope == CONDITION
        return self._model(self.index(entity), self.couplings(entity, kept))

    def contrasts(self) -> Bundle:
        """The bundle of every S_v alone, on which duels are fought: without the couplings stated as of both classes.

        Those cancel in S_v = log p_1 - log p_0 (docs/decisions.md, M9). The bundle itself where there are none; else
        the result's provenance is as in `restrict`.
        """
        scope = self.packed.scope
        if scope is None or not (scope == SHARED).any():
            return self
        numbers = np.arange(len(self.entities)), np.arange(len(self.features))
        packed = self.packed.renumbered(*numbers, scope != SHARED)
        return replace(self, packed=packed, provenance={**self.provenance, "restricted_from": self.digest})

    @property
    def exclusive(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Groups of features of which at most one is +1, by name."""
        return () if self.rates is None else self.rates.exclusive

    @property
    def holds(self) -> Holds:
        """How many entities hold for one patient, as the bundle says: `several`, `one` or `one or none`."""
        return "several" if self.rates is None else self.rates.holds

    @property
    def log_odds(self) -> NDArray[np.float64]:
        """(N,) Log-odds of each entity against its absence before anything is measured: for a question about it alone.

        They are `priors` unless priors.csv states probabilities.
        """
        return self.priors if self.shares is None else np.log(self.shares) - np.log1p(-self.shares)

    @property
    def floor(self) -> float:
        """Least probability of a value that can occur."""
        return FLOOR if self.rates is None else self.rates.floor

    @property
    def possible(self) -> NDArray[np.bool_]:
        """(M, 3), which of -1, 0, +1 each feature can be; all unless features.csv says otherwise (F1)."""
        return np.ones((len(self.features), 3), dtype=bool) if self.rates is None else self.rates.possible

    @property
    def kinds(self) -> NDArray[np.int64]:
        """(M,) What each feature can be exchanged for: others that take the same values, in a group others of it."""
        kinds: NDArray[np.int64] = self.possible @ np.array([1, 2, 4])
        for number, (_, members) in enumerate(self.exclusive):
            kinds[list(members)] = -1 - number
        return kinds

    @property
    def ternary(self) -> bool:
        """Whether every feature can take all three values."""
        return self.rates is None or bool(self.rates.possible.all())

    @property
    def says_how_often(self) -> bool:
        """Whether the bundle states probabilities, of a class or of the background."""
        return self.rates is not None and (len(self.rates.stated) > 0 or bool(self.rates.background_stated.any()))

    @property
    def background(self) -> NDArray[np.float64]:
        """(M, 3), probabilities of -1, 0, +1 in everybody: stated, pooled or uniform (F5)."""
        return self._rates().background

    def _rates(self) -> Rates:
        if self.rates is None or (self.rates.table is None and not self.says_how_often):
            step = "add p_low_with, p_high_with, ... to unary.csv (docs/bundle.md)"
            raise BundleError(Fault(f"bundle {self.name}", "directions alone", "probabilities", step))
        return self.rates

    def how_often(self, entity: str) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
        """P_1 and P_0 of an entity, (M, 3) probabilities of -1, 0, +1, and the features that it speaks of (F10).

        Of what it is silent on both are the background. A `BundleError` where the bundle has directions alone: neither
        probabilities nor features.csv.
        """
        v = self.index(entity)
        row, column, _ = self.packed.of(v)
        return self._rates().of_entity(v, self.unary[v], np.concatenate([row, column]))

    def patients_behind(self, entity: str) -> NDArray[np.int64]:
        """Return the labelled patients behind the probabilities of an entity, (M, 2): with it and without it.

        All are 0 unless `afa.update` made the bundle.
        """
        counts = np.zeros((len(self.features), 2), dtype=np.int64)
        if self.rates is not None and self.rates.stated.patients is not None:
            own = self.rates.stated.entity == self.index(entity)
            counts[self.rates.stated.feature[own]] = self.rates.stated.patients[own]
        return counts

    def scoped(self, entity: str) -> tuple[sp.csr_array, sp.csr_array]:
        """The couplings of an entity that are in both classes, and those of its class alone, as `couplings`.

        Where a row of pairwise.csv does not say, it is of the entity's class alone.
        """
        if self.packed.scope is None:
            matrix = self.couplings(entity)
            return 0 * matrix, matrix
        shared = self.packed.scope == SHARED
        return self.couplings(entity, shared), self.couplings(entity, ~shared)

    def support(self, entity: str) -> NDArray[np.intp]:
        """Sorted indices of the features with a non-zero unary or coupling of an entity."""
        index = self.index(entity)
        row, column, _ = self.packed.of(index)
        used = self.unary[index] != 0
        used[row] = True
        used[column] = True
        return np.flatnonzero(used)

    def shown(self, name: str) -> str:
        """Return what people are shown for an entity or a feature: its name, unless display.csv says otherwise."""
        other = name.removeprefix("not ")
        if name not in self.display_names and name != other and other not in self.features:
            return f"not {self.display_names.get(other, other)}"
        return self.display_names.get(name, name)

    def restrict(self, features: Sequence[str]) -> Bundle:
        """The bundle on these features alone, in this order; potentials on others are dropped.

        A `BundleError` names the features that are unknown or given twice. The result's provenance holds the digest of
        this bundle as `restricted_from`.
        """
        return self._chosen(self.entities, features)

    def restrict_entities(self, entities: Sequence[str]) -> Bundle:
        """The bundle of these entities alone, in this order, on all features; errors and provenance as `restrict`."""
        return self._chosen(entities, self.features)

    def _chosen(self, entities: Sequence[str], features: Sequence[str]) -> Bundle:
        """The bundle of some entities on some features, in this order; itself where that is all of them as they are."""
        if (tuple(entities), tuple(features)) == (self.entities, self.features):
            return self
        where, faults, kept, numbers = f"bundle {self.name}, restricted", list[Fault](), [], []
        for kind, chosen, known in (("entity", entities, self.entities), ("feature", features, self.features)):
            place = {name: index for index, name in enumerate(known)}
            for name in dict.fromkeys(name for name in chosen if name not in place):
                expected = f"one of the bundle's {len(known)}"
                faults.append(Fault(where, f"no {kind} {name!r}", expected, suggestion(str(name), known)))
            if twice := sorted({str(name) for name, count in Counter(chosen).items() if count > 1}):
                found, expected = f"{', '.join(twice)} more than once", f"each {kind} once"
                faults.append(Fault(where, found, expected, "remove the others"))
            if not chosen:
                step = "check that names match those of the bundle"
                faults.append(Fault(where, f"no {kind}", "at least one", step))
            kept.append([place[name] for name in chosen if name in place])
            numbers.append(np.full(len(known), -1, dtype=np.int64))
            numbers[-1][kept[-1]] = np.arange(len(kept[-1]))
        BundleError.raise_for(faults)
        rows, columns = kept
        return replace(
            self,
            entities=tuple(entities),
            features=tuple(features),
            unary=self.unary[np.ix_(rows, columns)],
            packed=self.packed.renumbered(numbers[0], numbers[1]),
            priors=self.priors[rows],
            shares=None if self.shares is None else self.shares[rows],
            costs=None if self.costs is None else self.costs[columns],
            aliases={name: others for name, others in self.aliases.items() if name in set(features)},
            display_names={name: text for name, text in self.display_names.items() if name in {*entities, *features}},
            provenance={**self.provenance, "restricted_from": self.digest},
            rates=None if self.rates is None else self.rates.renumbered(numbers[0], numbers[1]),
        )


def packed_couplings(pairwise: Potentials, n_entities: int) -> PackedCouplings:
    """Non-zero couplings, each pair once with the lower feature first, sorted by entity, row and column."""
    present = pairwise.value != 0
    entity, features, value = pairwise.entity[present], pairwise.features[present], pairwise.value[present]
    order = np.lexsort((features[:, 1], features[:, 0], entity))
    pointer = np.searchsorted(entity[order], np.arange(n_entities + 1)).astype(np.int64)
    row, column = np.ascontiguousarray(features[order].T, dtype=np.int32)
    scope = None if pairwise.scope is None else pairwise.scope[present][order]
    return PackedCouplings(pointer, row, column, value[order], scope)


def _digest(bundle: Bundle) -> str:
    """SHA-256 over length-prefixed parts, numbers as little-endian 64 bit."""
    entity, feature = np.nonzero(bundle.unary)
    packed = bundle.packed
    integers: list[ArrayLike] = [entity, feature, packed.pointer, packed.row, packed.column]
    numbers = [bundle.unary[entity, feature], packed.value, bundle.priors, bundle.costs]
    parts = [str(len(bundle.entities)).encode(), *(name.encode() for name in (*bundle.entities, *bundle.features))]
    parts += [np.asarray(values, dtype="<i8").tobytes() for values in integers]
    parts += [b"" if values is None else (values + 0.0).astype("<f8").tobytes() for values in numbers]
    if bundle.rates is not None:
        parts += [b"rates", *bundle.rates.contents()]
    if packed.scope is not None:
        parts += [b"scope", packed.scope.tobytes()]
    if bundle.shares is not None:
        parts += [b"shares", bundle.shares.astype("<f8").tobytes()]
    state = hashlib.sha256()
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.hexdigest()
