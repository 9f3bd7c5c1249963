"""How often: the probabilities of each value with and without an entity, and what else a bundle may say beside them.

docs/decisions.md has the decisions that are named here: what can occur (F1), the background (F5), several
distributions pooled to one (F7), and from the rows of a bundle to probabilities (F10).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from afa.features import Features

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Group = tuple[tuple[str, tuple[int, ...]], ...]
"""Features, by index, by the name of what they have in common."""
FLOOR = 0.01
"""Least probability of a value that can occur, in elicited answers."""
Holds = Literal["several", "one", "one or none"]
HOLDS: tuple[Holds, ...] = get_args(Holds)
SCOPES = ("", "shared", "condition")
"""What `scope` of a coupling can be: not said, in both classes, in the entity's class alone; by index."""
SHARED, CONDITION = 1, 2
VALUES = np.array([-1.0, 0.0, 1.0])
LARGEST_TILT = 300.0
"""A larger potential, in nats, would give a value that can occur the probability 0 in 64 bits."""


def three_values(p_low: npt.ArrayLike, p_high: npt.ArrayLike) -> Floats:
    """(..., 3) Probabilities of -1, 0, +1 from the shares below and above; the middle is the rest."""
    low, high = np.asarray(p_low, dtype=np.float64), np.asarray(p_high, dtype=np.float64)
    return np.stack([low, 1.0 - low - high, high], axis=-1)


def floored(probabilities: npt.ArrayLike, possible: npt.ArrayLike, floor: float = FLOOR) -> Floats:
    """(..., 3) Raised to the floor where a value can occur, 0 elsewhere, and normalised."""
    raised = np.where(np.asarray(possible, dtype=bool), np.maximum(probabilities, floor), 0.0)
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def pool(probabilities: npt.ArrayLike, possible: npt.ArrayLike, floor: float = FLOOR) -> Floats:
    r"""One distribution of several voters': the normalised mean of log-probabilities.

    \[ P(s) \propto \exp\Bigl(\frac{1}{n} \sum_i \log P_i(s)\Bigr), \quad s \in V_j \] each voter's `P_i` being floored
    and normalised first, so that log-ratios between any two values are the means of the voters'.

    Parameters
    ----------
    probabilities
        (n_voters, ..., 3) Of -1, 0, +1; NaN throughout for a voter who does not say.
    possible
        (..., 3) Which values can occur (`afa.features.Features.possible`).
    floor
        Least probability of a value that can occur, before normalisation.

    Returns
    -------
    ndarray : (..., 3); 0 for values that cannot occur, NaN where no voter says anything

    >>> pool([[0.1, 0.3, 0.6], [0.0, 0.4, 0.6], [0.2, 0.5, 0.3]], [True, True, True]).round(5).tolist()
    [0.06314, 0.42269, 0.51417]

    """
    can_be = np.asarray(possible, dtype=bool)
    voters = np.asarray(probabilities, dtype=np.float64)
    said = ~np.isnan(voters).any(axis=-1, keepdims=True)
    logs = np.log(np.where(can_be, floored(voters, can_be, floor), 1.0))
    with np.errstate(invalid="ignore"):
        mean = np.where(said, logs, 0.0).sum(axis=0) / said.sum(axis=0)
    raw = np.where(can_be, np.exp(mean), 0.0)
    return np.asarray(raw / raw.sum(axis=-1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Stated:
    """The n rows of unary.csv that state probabilities, sorted by entity and then by feature.

    entity, feature : (n,) indices. with_entity, without : (n, 3) as stated, NaN throughout where a row does not say.
    directed : (n,) bool, whether the row has a potential of its own too.
    """

    entity: Indices
    feature: Indices
    with_entity: Floats
    without: Floats
    directed: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.entity)

    def chosen(self, rows: npt.NDArray[np.intp], entity: Indices, feature: Indices) -> Stated:
        """These rows, with other indices, sorted again."""
        order = np.lexsort((feature, entity))
        kept = rows[order]
        return Stated(entity[order], feature[order], self.with_entity[kept], self.without[kept], self.directed[kept])


NONE_STATED = Stated(
    np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 3)), np.empty((0, 3)), np.empty(0, np.bool_)
)


@dataclass(frozen=True, eq=False)
class Rates:
    """What a bundle says beside directions; without it a bundle means what it did before there was any of this.

    Parameters
    ----------
    n_features
        M of the bundle.
    table
        `features.csv`, in the order of the bundle; None without the file: every feature has three values.
    stated
        The probabilities, by entity and feature.
    measurements, exclusive
        `groups.csv`: features by the measurement that they come from; features of which at most one is +1.
    parents
        `implies.csv`: (child, parent) features by index.
    encoding
        The one that the probabilities hold for: `ranges`, `controls` or `cohort`; None where not said (F10a).
    floor
        Least probability of a value that can occur.
    holds
        How many entities hold for one patient: `several`, `one`, or `one or none` (F6).

    """

    n_features: int
    table: Features | None = None
    stated: Stated = NONE_STATED
    measurements: Group = ()
    exclusive: Group = ()
    parents: tuple[tuple[int, int], ...] = ()
    encoding: str | None = None
    floor: float = FLOOR
    holds: Holds = "several"

    @cached_property
    def possible(self) -> npt.NDArray[np.bool_]:
        """(M, 3) Which of -1, 0, +1 each feature can be (F1)."""
        return np.ones((self.n_features, 3), dtype=bool) if self.table is None else self.table.possible

    @cached_property
    def background_stated(self) -> npt.NDArray[np.bool_]:
        """(M,) Where the background is stated in `features.csv`, or the entities' *without* is."""
        found = np.zeros(self.n_features, dtype=bool)
        if self.table is not None:
            found |= np.isfinite(self.table.p_low)
        found[self.stated.feature[np.isfinite(self.stated.without[:, 0])]] = True
        return found

    @cached_property
    def background(self) -> Floats:
        """(M, 3) b, the values of everybody: as stated, else pooled from *without*, else uniform; floored (F5)."""
        uniform = self.possible / self.possible.sum(axis=1, keepdims=True)
        found = np.full((self.n_features, 3), np.nan) if self.table is None else self.table.background
        found = np.where(np.isnan(found), np.nan, floored(np.nan_to_num(found), self.possible, self.floor))
        stated = self.stated
        for j in np.unique(stated.feature[np.isnan(found[stated.feature, 0])]):
            said = stated.without[(stated.feature == j) & np.isfinite(stated.without[:, 0])]
            if len(said):
                found[j] = pool(said, self.possible[j], self.floor)
        return np.where(np.isnan(found), uniform, found)

    def of_entity(
        self, entity: int, unary: Floats, paired: npt.ArrayLike
    ) -> tuple[Floats, Floats, npt.NDArray[np.intp]]:
        """P_1 and P_0 of one entity, (M, 3) each, and the features that it speaks of (F10).

        unary : (M,) its potentials. paired : the features that it couples. Silent features have P_1 = P_0 = b. Who
        speaks of one member of an exclusive group speaks of all: what one is says what the others can be.
        """
        with_entity, without = self.background.copy(), self.background.copy()
        leaning = np.flatnonzero(unary)
        tilt = np.clip(unary[leaning, None], -LARGEST_TILT, LARGEST_TILT) * VALUES
        tilt = np.where(self.possible[leaning], tilt, -np.inf)
        tilted = self.background[leaning] * np.exp(tilt - tilt.max(axis=1, keepdims=True))
        with_entity[leaning] = tilted / tilted.sum(axis=1, keepdims=True)
        rows = slice(*np.searchsorted(self.stated.entity, [entity, entity + 1]))
        at = self.stated.feature[rows]
        for into, said in ((with_entity, self.stated.with_entity[rows]), (without, self.stated.without[rows])):
            into[at] = self.background[at]
            here = np.isfinite(said[:, 0])
            into[at[here]] = floored(said[here], self.possible[at[here]], self.floor)
        speaks = np.zeros(self.n_features, dtype=bool)
        for part in (leaning, at, np.asarray(paired, dtype=np.intp)):
            speaks[part] = True
        for _, members in self.exclusive:
            speaks[list(members)] |= speaks[list(members)].any()
        return with_entity, without, np.flatnonzero(speaks)

    def contents(self) -> list[bytes]:
        """What of it a model depends on, for the digest of a bundle: not how the values are encoded or called."""
        stated = self.stated
        numbers: list[Floats] = [stated.with_entity, stated.without, np.array([self.floor])]
        if self.table is not None:
            numbers += [self.table.possible.astype(np.float64), self.table.p_low, self.table.p_high]
        integers = [stated.entity, stated.feature, stated.directed.astype(np.int64)]
        words = repr((self.measurements, self.exclusive, self.parents, self.holds)).encode()
        return [
            *(array.astype("<i8").tobytes() for array in integers),
            *((array + 0.0).astype("<f8").tobytes() for array in numbers),
            words,
        ]

    def directions(self) -> Floats:
        """(n,) The sign of mu_1 - mu_0 of every stated row: its potential under the paper's closures (F10)."""
        stated, b = self.stated, self.background[self.stated.feature]
        means = []
        for said in (stated.with_entity, stated.without):
            there = floored(np.nan_to_num(said), self.possible[stated.feature], self.floor)
            means.append(np.where(np.isnan(said), b, there) @ VALUES)
        gap = means[0] - means[1]
        return np.where(np.abs(gap) <= 1e-12, 0.0, np.sign(gap))

    def restricted(self, kept: Sequence[int], names: Sequence[str]) -> Rates:
        """On these features alone, by index, in this order."""
        new = np.full(self.n_features, -1, dtype=np.int64)
        new[list(kept)] = np.arange(len(kept))
        stated = self.stated
        rows = np.flatnonzero(new[stated.feature] >= 0)
        groups = [
            tuple((name, tuple(int(new[j]) for j in members if new[j] >= 0)) for name, members in group)
            for group in (self.measurements, self.exclusive)
        ]
        return replace(
            self,
            n_features=len(kept),
            table=None if self.table is None else self.table.chosen(names),
            stated=stated.chosen(rows, stated.entity[rows], new[stated.feature[rows]]),
            measurements=tuple(group for group in groups[0] if group[1]),
            exclusive=tuple(group for group in groups[1] if len(group[1]) > 1),
            parents=tuple((int(new[a]), int(new[b])) for a, b in self.parents if min(new[a], new[b]) >= 0),
        )

    def restricted_entities(self, kept: Sequence[int]) -> Rates:
        """Of these entities alone, by index, in this order."""
        rows = [np.flatnonzero(self.stated.entity == v) for v in kept]
        new = np.repeat(np.arange(len(kept)), [len(part) for part in rows]).astype(np.int64)
        chosen = np.concatenate(rows)
        return replace(self, stated=self.stated.chosen(chosen, new, self.stated.feature[chosen]))
