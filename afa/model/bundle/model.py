"""A bundle: a language model's statements about N entities, as potentials on the same M ternary features.

The docstring of `afa.model.bundle.format` describes the files of a bundle folder. A `Bundle` is read-only. The columns
`confidence` and `evidence` of the files are not part of a `Bundle`.
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
from afa.model.arrays import Bools, Codes, Floats, Ints
from afa.model.bundle.format import Potentials
from afa.model.bundle.rates import (
    CONDITION,
    SHARED,
    SMALLEST_PROBABILITY,
    Holds,
    Rates,
    bundle_models,
    exclusive_log_odds,
)
from afa.model.mrf import PairwiseMRF

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = Later("pandas")


@dataclass(frozen=True, eq=False)
class PackedCouplings:
    """The non-zero couplings of all entities, sorted by entity, row and column.

    An entity has at most one coupling between the same two features.

    Attributes
    ----------
    pointer : (N + 1,) int64; the couplings of entity n have the indices pointer[n] to pointer[n + 1] - 1
    row, column : (n_pairs,) int32, indices of the two features of each coupling; row < column
    value : (n_pairs,) float64, coupling, nats
    scope : (n_pairs,) int8, index in `SCOPES` of each coupling's scope: in both classes, or only in the class with the
        entity; None if no coupling has a scope

    """

    pointer: Ints
    row: NDArray[np.int32]
    column: NDArray[np.int32]
    value: Floats
    scope: Codes | None = None

    def of(self, entity: int) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
        """Return the couplings of one entity as three arrays: rows, columns and values.

        Returns
        -------
        row, column : (n,) int32, feature indices
        value : (n,) float64, nats

        """
        part = slice(int(self.pointer[entity]), int(self.pointer[entity + 1]))
        return self.row[part], self.column[part], self.value[part]

    @property
    def owner(self) -> Ints:
        """Return, for each coupling, the index of its entity.

        Returns
        -------
        owner : (n_pairs,) int64

        """
        return np.repeat(np.arange(len(self.pointer) - 1), np.diff(self.pointer))

    def renumbered(self, entities: Ints, features: Ints, included: Bools | bool = True) -> PackedCouplings:
        """Return the selected couplings with new indices of entities and features.

        Parameters
        ----------
        entities, features : (N,) and (M,) int64, new index of each entity and feature, or -1 to drop it
        included : (n_pairs,) bool, True for couplings to keep

        """
        owner = entities[self.owner]
        pairs = np.sort(np.column_stack([features[self.row], features[self.column]]), axis=1)
        rows = included & (owner >= 0) & (pairs[:, 0] >= 0)
        scope = None if self.scope is None else self.scope[rows]
        return packed_couplings(Potentials(owner[rows], pairs[rows], self.value[rows], scope), int(entities.max()) + 1)


@dataclass(frozen=True, eq=False)
class Bundle:
    """A bundle: N entities with unary and pairwise potentials on the same M features.

    All arrays are read-only. Two bundles have the same model if and only if they have the same `digest`. The function
    `load_bundle` reads a bundle from a folder and checks it.

    The attributes `name`, `version`, `provenance` and `licence` are read from bundle.yaml. The attribute `packed`
    contains the couplings of all entities. The attribute `aliases` maps features to alternative names. The attribute
    `display_names` maps names of entities and features to the names that people see.

    Examples
    --------
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
    unary: Floats
    """Unary potentials in nats, (N, M)."""
    packed: PackedCouplings
    priors: Floats
    """Prior of each entity in nats, (N,): log-odds, or log-weights if a patient has at most one entity; 0 by default.
    """
    costs: Floats | None = None
    """Non-negative cost of each feature, (M,); None without costs.csv."""
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    display_names: Mapping[str, str] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    licence: str | None = None
    rates: Rates | None = None
    """Class-conditional probabilities, possible values, and exclusive groups; None if the bundle has none."""
    shares: Floats | None = None
    """Probability of each entity before any measurement, (N,); None unless priors.csv has probabilities."""
    digest: str = field(init=False)
    """SHA-256 of entities, features, non-zero potentials, priors and costs, independent of the layout of the files."""

    def __post_init__(self) -> None:
        packed = (self.packed.pointer, self.packed.row, self.packed.column, self.packed.value, self.packed.scope)
        for array in (self.unary, self.priors, self.shares, self.costs, *packed):
            if array is not None:
                array.flags.writeable = False
        object.__setattr__(self, "digest", _digest(self))

    def __repr__(self) -> str:
        return f"<Bundle {self.name} {self.version}: {len(self.entities)} entities, {len(self.features)} features>"

    def _repr_html_(self) -> str:
        """Return the HTML table of unary potentials that a notebook displays.

        The rows are entities, and the columns are features.
        """
        table = pd.DataFrame(self.unary, index=list(self.entities), columns=list(self.features))
        heading = f"<p><b>{escape(self.name)} {escape(self.version)}</b>: unary potentials</p>"
        return heading + table.to_html(max_rows=20, max_cols=20, float_format="{:g}".format)

    def index(self, entity: str) -> int:
        """Return the index of an entity, or raise a `BundleError` if the entity is unknown."""
        try:
            return self.entities.index(entity)
        except ValueError:
            step = suggestion(str(entity), self.entities)
            where = f"bundle {self.name}"
            raise BundleError(Fault(where, f"no entity {entity!r}", "one of its entities", step)) from None

    def couplings(self, entity: str, included: Bools | None = None) -> sp.csr_array:
        """Return the matrix of couplings of an entity.

        Parameters
        ----------
        included : (n_pairs,) bool over all entities, True for couplings to include, or None for all

        Returns
        -------
        couplings : (M, M) sparse, symmetric with zero diagonal, nats

        """
        v = self.index(entity)
        row, column, value = self.packed.of(v)
        if included is not None:
            here = included[self.packed.pointer[v] : self.packed.pointer[v + 1]]
            row, column, value = row[here], column[here], value[here]
        indices = np.concatenate([row, column]), np.concatenate([column, row])
        shape = (len(self.features), len(self.features))
        return sp.coo_array((np.concatenate([value, value]), indices), shape=shape).tocsr()

    def mrf(self, entity: str) -> PairwiseMRF:
        """Return the model of an entity on all M features, including all couplings and the prior (eq:disc_score).

        The energy of the returned model is the entity's score S_v only if no coupling is in both classes (patients with
        and without the entity). In general, use `contrast` to get the model whose energy is S_v. If a feature has only
        two possible values, its energy term is alpha (s - m), where alpha is the unary potential, s is the value, and m
        is the midpoint of the two possible values (docs/decisions.md, Base rates).
        """
        return self._model(self.index(entity), self.couplings(entity))

    def _model(self, index: int, couplings: sp.csr_array) -> PairwiseMRF:
        parts = self.unary[index], couplings, float(self.log_odds[index]), self.features
        return PairwiseMRF(*parts) if self.ternary else PairwiseMRF.on_values(self.possible, *parts)

    def energies(self, values: ArrayLike, closure: str = "differential", kappa: ArrayLike = 0.0) -> Floats:
        """Return the score S_v(x) of each entity v for each patient x (eq:disc_score).

        Parameters
        ----------
        values : (n, M) float, -1, 0 or +1; NaN if not measured, which adds 0
        closure : `differential`, `shared` or `explicit`
        kappa : (N,) log Z_1 - log Z_0 without observations, nats, for `explicit`

        Returns
        -------
        energies : (n, N) float64, nats

        Raises
        ------
        PlannerError : a value is not possible for its feature

        """
        kappas = np.broadcast_to(kappa, len(self.entities))
        columns = [self.energies_of(v, values, closure, float(k)) for v, k in zip(self.entities, kappas, strict=True)]
        return np.stack(columns, axis=1)

    def energies_of(self, entity: str, values: ArrayLike, closure: str = "differential", kappa: float = 0.0) -> Floats:
        """Return the score S_v(x) of one entity v for each patient x.

        The method `energies` returns the scores of all entities.

        Parameters
        ----------
        values : (n, M) float, -1, 0 or +1; NaN if not measured, which adds 0
        closure, kappa : as in `energies`

        Returns
        -------
        energies : (n,) float64, nats

        """
        if closure != "explicit":
            return self.contrast(entity, closure).energies(values)
        one, zero = bundle_models(self, entity, kappa)
        return np.asarray(one.energies(values) - zero.energies(values) + exclusive_log_odds(self, entity, values))

    def contrast(self, entity: str, closure: str = "differential") -> PairwiseMRF:
        """Return the pairwise model whose energy is S_v = log p_1 - log p_0, the score of one entity v.

        Here p_1 is the distribution of patients with the entity, and p_0 the distribution of patients without it.
        Couplings that are in both distributions cancel.

        Parameters
        ----------
        closure : `differential` or `shared`

        """
        scope = np.zeros(len(self.packed.value), np.int8) if self.packed.scope is None else self.packed.scope
        included = scope != SHARED if closure == "differential" else scope == CONDITION
        return self._model(self.index(entity), self.couplings(entity, included))

    def contrasts(self) -> Bundle:
        """Return the bundle from which duels (comparisons of two entities) are computed.

        The returned bundle has no couplings that are in both classes (patients with and without the entity), because
        such couplings cancel in S_v = log p_1 - log p_0. If no coupling of this bundle is in both classes, return this
        bundle. If couplings were removed, the `provenance` of the returned bundle contains the digest of this bundle
        under the key `restricted_from`.
        """
        scope = self.packed.scope
        if scope is None or not (scope == SHARED).any():
            return self
        numbers = np.arange(len(self.entities)), np.arange(len(self.features))
        packed = self.packed.renumbered(*numbers, scope != SHARED)
        return replace(self, packed=packed, provenance={**self.provenance, "restricted_from": self.digest})

    @property
    def exclusive(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Return the name and the features of each exclusive group.

        In an exclusive group, at most one feature can have the value +1.
        """
        return () if self.rates is None else self.rates.exclusive

    @property
    def holds(self) -> Holds:
        """Return how many entities one patient can have: `several`, `one` or `one or none`."""
        return "several" if self.rates is None else self.rates.holds

    @property
    def log_odds(self) -> Floats:
        """Return, for each entity, the prior log-odds that the entity is present.

        The prior log-odds are used to decide whether one given entity is present. The prior log-odds are equal to
        `priors` unless priors.csv contains probabilities.

        Returns
        -------
        log_odds : (N,) float64, nats

        """
        return self.priors if self.shares is None else np.log(self.shares) - np.log1p(-self.shares)

    @property
    def floor(self) -> float:
        """Return the floor of probabilities: a smaller probability of a possible value is replaced by the floor."""
        return SMALLEST_PROBABILITY if self.rates is None else self.rates.floor

    @property
    def possible(self) -> Bools:
        """Return a mask of the values (-1, 0, +1) that each feature can take.

        Without features.csv, each feature can take all three values.

        Returns
        -------
        possible : (M, 3) bool

        """
        return np.ones((len(self.features), 3), dtype=bool) if self.rates is None else self.rates.possible

    @property
    def kinds(self) -> Ints:
        """Return the kind of each feature as a number; a permutation may only exchange features of the same kind.

        All features of one exclusive group have the same kind. Two features that are in no exclusive group have the
        same kind if they have the same possible values.

        Returns
        -------
        kinds : (M,) int64

        """
        kinds: Ints = self.possible @ np.array([1, 2, 4])
        for number, (_, members) in enumerate(self.exclusive):
            kinds[list(members)] = -1 - number
        return kinds

    @property
    def ternary(self) -> bool:
        """Return True if every feature can take all three values."""
        return self.rates is None or bool(self.rates.possible.all())

    @property
    def has_probabilities(self) -> bool:
        """Return True if the bundle has class-conditional probabilities or background probabilities."""
        return self.rates is not None and (
            len(self.rates.probability_rows) > 0 or bool(self.rates.has_background.any())
        )

    @property
    def background(self) -> Floats:
        """Return the probabilities of each feature's values among all people.

        The background probabilities are read from features.csv. If features.csv does not contain the background of a
        feature, the background is computed from unary.csv. For each entity, unary.csv can contain the probabilities of
        the feature in patients without the entity. The background is the normalised geometric mean of these
        probabilities over the entities. If neither file gives probabilities of a feature, all possible values have
        equal probability.

        Returns
        -------
        background : (M, 3) float64, probabilities of -1, 0, +1

        """
        return self._required_rates().background

    def _required_rates(self) -> Rates:
        if self.rates is None or (self.rates.table is None and not self.has_probabilities):
            step = "add p_low_with, p_high_with, ... to unary.csv (docs/bundle.md)"
            raise BundleError(Fault(f"bundle {self.name}", "directions without probabilities", "probabilities", step))
        return self.rates

    def how_often(self, entity: str) -> tuple[Floats, Floats, NDArray[np.intp]]:
        """Return the class-conditional probabilities of an entity, and the features that the entity's model covers.

        Returns
        -------
        with_entity, without : (M, 3) float64
            P_1 and P_0: probabilities of -1, 0, +1; the background for features that the model does not cover.
        at : (n,) intp
            Indices of the features that the model covers.

        Raises
        ------
        BundleError : the bundle has neither probabilities nor features.csv

        """
        v = self.index(entity)
        row, column, _ = self.packed.of(v)
        return self._required_rates().of_entity(v, self.unary[v], np.concatenate([row, column]))

    def patients_behind(self, entity: str) -> Ints:
        """Return how many labelled patients were used to estimate an entity's probabilities, for each feature.

        All counts are 0 unless `afa.update` made the bundle.

        Returns
        -------
        counts : (M, 2) int64, patients with the entity and without

        """
        counts = np.zeros((len(self.features), 2), dtype=np.int64)
        if self.rates is not None and self.rates.probability_rows.patients is not None:
            own = self.rates.probability_rows.entity == self.index(entity)
            counts[self.rates.probability_rows.feature[own]] = self.rates.probability_rows.patients[own]
        return counts

    def scoped(self, entity: str) -> tuple[sp.csr_array, sp.csr_array]:
        """Return two matrices of an entity's couplings.

        One matrix contains the couplings that are in both classes (patients with and without the entity), and the other
        matrix contains the couplings that are only in the class with the entity. A row of pairwise.csv without a scope
        applies only to the class with the entity.

        Returns
        -------
        shared, condition : (M, M) sparse, nats

        """
        if self.packed.scope is None:
            matrix = self.couplings(entity)
            return 0 * matrix, matrix
        shared = self.packed.scope == SHARED
        return self.couplings(entity, shared), self.couplings(entity, ~shared)

    def support(self, entity: str) -> NDArray[np.intp]:
        """Return the features on which an entity has a non-zero unary potential or a coupling.

        Returns
        -------
        support : (n,) intp, ascending feature indices

        """
        index = self.index(entity)
        row, column, _ = self.packed.of(index)
        used = self.unary[index] != 0
        used[row] = True
        used[column] = True
        return np.flatnonzero(used)

    def shown(self, name: str) -> str:
        """Return the display name of an entity or a feature.

        If display.csv has no display name, return the name itself.
        """
        other = name.removeprefix("not ")
        if name not in self.display_names and name != other and other not in self.features:
            return f"not {self.display_names.get(other, other)}"
        return self.display_names.get(name, name)

    def restrict(self, features: Sequence[str]) -> Bundle:
        """Return a copy of the bundle with only the given features, in the given order.

        Potentials on other features are dropped. The `provenance` of the copy contains the digest of this bundle under
        the key `restricted_from`.

        Raises
        ------
        BundleError : names the features that are unknown or given twice

        """
        return self._restrict_to_names(self.entities, features)

    def restrict_entities(self, entities: Sequence[str]) -> Bundle:
        """Return a copy of the bundle with only the given entities, in the given order, and with all features.

        Errors are raised, and `provenance` is changed, in the same way as by `restrict`.
        """
        return self._restrict_to_names(entities, self.features)

    def _restrict_to_names(self, entities: Sequence[str], features: Sequence[str]) -> Bundle:
        """Return the bundle with only the given entities and features, in the given order.

        If nothing changes, return this bundle.
        """
        if (tuple(entities), tuple(features)) == (self.entities, self.features):
            return self
        where, faults, positions, numbers = f"bundle {self.name}, restricted", list[Fault](), [], []
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
            positions.append([place[name] for name in chosen if name in place])
            numbers.append(np.full(len(known), -1, dtype=np.int64))
            numbers[-1][positions[-1]] = np.arange(len(positions[-1]))
        BundleError.raise_for(faults)
        rows, columns = positions
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
    """Return the non-zero couplings, sorted by entity, row and column.

    The row of a coupling is the smaller of the two feature indices.
    """
    present = pairwise.value != 0
    entity, features, value = pairwise.entity[present], pairwise.features[present], pairwise.value[present]
    order = np.lexsort((features[:, 1], features[:, 0], entity))
    pointer = np.searchsorted(entity[order], np.arange(n_entities + 1)).astype(np.int64)
    row, column = np.ascontiguousarray(features[order].T, dtype=np.int32)
    scope = None if pairwise.scope is None else pairwise.scope[present][order]
    return PackedCouplings(pointer, row, column, value[order], scope)


def _digest(bundle: Bundle) -> str:
    """Return the SHA-256 of the bundle's parts.

    The length of each part is hashed before the part. Numbers are hashed as little-endian 64-bit values.
    """
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
