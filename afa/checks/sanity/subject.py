"""What the checks are made on: the run's own bundle and patients, and small synthetic ones that never change."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle, PackedCouplings
from afa.closure import closed_bundle
from afa.cohort.cohort import Cohort
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.orders import random_order

T = TypeVar("T")
N_ENTITIES, N_FEATURES, N_PATIENTS = 4, 7, 12


@dataclass(frozen=True, eq=False)
class Subject:
    """A bundle and P patients on its features.

    values : (P, M) in {-1, 0, +1}. seeds : of the random orders, at least one.
    """

    bundle: Bundle
    patients: tuple[str, ...]
    values: NDArray[np.int8]
    seeds: tuple[int, ...]
    solver: Solver
    threads: int | None
    _made: dict[Callable[[Subject], Any], Any] = field(default_factory=dict, init=False)

    @cached_property
    def orders(self) -> NDArray[np.int64]:
        """(P, S, M) the random observation orders of every patient, by seed."""
        drawn = [
            [random_order(self.bundle.features, patient=name, seed=seed) for seed in self.seeds]
            for name in self.patients
        ]
        return np.array(drawn, dtype=np.int64).reshape(len(self.patients), len(self.seeds), len(self.bundle.features))

    @cached_property
    def closures(self) -> list[Bundle]:
        """The binary task of each entity, as the duel of its two half-potential models."""
        return [closed_bundle(self.bundle, entity) for entity in self.bundle.entities]

    def once(self, make: Callable[[Subject], T]) -> T:
        """`make(self)`, which must be a function of the subject alone; made at the first call and kept."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast(T, self._made[make])

    def some(self, n: int) -> NDArray[np.intp]:
        """Indices of at most n patients, evenly spaced."""
        return np.unique(np.linspace(0, len(self.patients) - 1, min(n, len(self.patients))).astype(np.intp))

    def rounds(self, n: int) -> list[int]:
        """At most n numbers of observations, evenly spaced from 0 to M."""
        return sorted({int(t) for t in np.linspace(0, len(self.bundle.features), n)})

    def direct_energies(self, bundle: Bundle | None = None) -> Floats:
        """(P, N) S_v(x) of every patient, from the potentials alone: no conditioning, no engine."""
        bundle = bundle or self.bundle
        x = self.values.astype(np.float64)
        columns = []
        for v, prior in enumerate(bundle.priors):
            row, column, value = bundle.packed.of(v)
            columns.append(prior + x @ bundle.unary[v] + (x[:, row] * x[:, column]) @ value)
        return np.stack(columns, axis=1)

    def named(self, entity: int) -> str:
        """An entity in words; of a synthetic bundle with the bundle's name."""
        return f"{self.bundle.name}, entity {self.bundle.entities[entity]}"

    def named_pair(self, a: int, b: int) -> str:
        return f"{self.bundle.name}, pair {self.bundle.entities[a]} against {self.bundle.entities[b]}"


def run_subject(
    bundle: Bundle, cohort: Cohort, *, seeds: Sequence[int], solver: Solver, threads: int | None
) -> Subject:
    """All patients of a cohort."""
    return Subject(bundle, cohort.patients, cohort.values, tuple(seeds), solver, threads)


def synthetic_subjects(*, threads: int | None = None) -> list[Subject]:
    """Three bundles of 4 entities on 7 features, each with 12 patients, one of them all zero; the same in every run.

    `signs` has potentials -1, 0 and +1, so that scores tie, and two entities alike; `real` has real potentials and
    priors; `opposed` has strong couplings of both signs, on which damped iteration often fails.
    """
    made = []
    for name in ("signs", "real", "opposed"):
        draw = generator(f"synthetic\0{name}")
        values = draw.integers(-1, 2, (N_PATIENTS, N_FEATURES)).astype(np.int8)
        values[-1] = 0
        patients = tuple(f"{name} {i}" for i in range(N_PATIENTS))
        made.append(Subject(_synthetic_bundle(name, draw), patients, values, (0, 1), Solver(), threads))
    return made


def generator(purpose: str) -> np.random.Generator:
    """Random numbers that depend on the purpose and on nothing else."""
    return np.random.default_rng(int.from_bytes(hashlib.sha256(f"sanity\0{purpose}".encode()).digest()[:8], "little"))


def bundle_of(
    name: str, entities: Sequence[str], features: Sequence[str], unary: Floats, couplings: Floats, priors: Floats
) -> Bundle:
    """A bundle from dense arrays: unary (N, M), couplings (N, M, M) of which the upper triangle is read."""
    entity, row, column = np.nonzero(np.triu(couplings, 1))
    packed = PackedCouplings(
        pointer=np.searchsorted(entity, np.arange(len(entities) + 1)).astype(np.int64),
        row=row.astype(np.int32),
        column=column.astype(np.int32),
        value=couplings[entity, row, column],
    )
    return Bundle(name, "1", tuple(entities), tuple(features), unary, packed, priors)


def _synthetic_bundle(name: str, draw: np.random.Generator) -> Bundle:
    n, m = N_ENTITIES, N_FEATURES
    held = draw.random((n, m)) < 0.8
    joint = held[:, :, None] & held[:, None, :]
    if name == "signs":
        unary = draw.integers(-1, 2, (n, m)).astype(float) * held
        couplings = draw.integers(-1, 2, (n, m, m)).astype(float) * joint
        unary[-1], couplings[-1] = unary[0], couplings[0]
    elif name == "real":
        unary, couplings = draw.normal(0, 1, (n, m)) * held, draw.normal(0, 0.7, (n, m, m)) * joint
    else:
        unary, couplings = draw.normal(0, 0.3, (n, m)) * held, np.full((n, m, m), 2.0) * joint
        couplings[::2] *= -1
    priors = np.array([0.5, 0.0, -1.0, 0.0]) if name == "real" else np.zeros(n)
    names = [f"v{i}" for i in range(n)], [f"f{j}" for j in range(m)]
    return bundle_of(f"synthetic {name}", *names, unary, couplings, priors)
