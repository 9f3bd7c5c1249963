"""Acceptance tests ("gates"): checks that must pass on correct inputs and fail on perturbed inputs (supp:sanity).

The input of a check (class `Subject`) is a bundle with patients. A check counts the cases that fail, where a case is,
for example, one score of one patient. Each check runs on the bundle and the patients of the user's run. Each check also
runs on three small synthetic bundles with synthetic patients, which are the same in every run. To show that a check can
fail, the check also runs on inputs that are perturbed in a known way. If the check passes on a perturbed input, the
acceptance test is faulty. Only the synthetic inputs are perturbed, because a perturbation of a user's bundle might have
no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.engine.paths import StateSamples, snapshots
from afa.errors import Fault, SanityError
from afa.inference.meanfield import Solver
from afa.model.arrays import Bools, Codes, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.bundle.format import Potentials
from afa.model.bundle.model import packed_couplings
from afa.model.closure import closed_bundle
from afa.model.orders import generator_of, random_orders

MOST_DESCRIBED = 3
T = TypeVar("T")
Patients = NDArray[np.intp] | slice
N_ENTITIES, N_FEATURES, N_PATIENTS = 4, 7, 12


@dataclass(frozen=True, eq=False)
class Subject:
    """The input of a check: a bundle, and the values of its features in P patients.

    Parameters
    ----------
    values : (P, M) int8 in {-1, 0, +1}
    seeds : seeds of the random orders, at least one

    """

    bundle: Bundle
    patients: tuple[str, ...]
    values: Codes
    seeds: tuple[int, ...]
    solver: Solver
    threads: int | None
    _made: dict[Callable[[Subject], Any], Any] = field(default_factory=dict, init=False)

    @cached_property
    def orders(self) -> Ints:
        """Return one random order of the features for each patient and seed.

        Returns
        -------
        orders : (P, S, M) int64

        """
        return random_orders(self.bundle.features, self.patients, self.seeds)

    @cached_property
    def closures(self) -> list[Bundle]:
        """Return, for each entity, a bundle with the two class models of the entity's binary task.

        The two class models of a task are proportional to exp(S/2) and exp(-S/2).
        """
        return [closed_bundle(self.bundle, entity) for entity in self.bundle.entities]

    def once(self, make: Callable[[Subject], T]) -> T:
        """Return `make(self)`, which is computed once and cached.

        The result of `make` must depend on the subject only.
        """
        if make not in self._made:
            self._made[make] = make(self)
        return cast(T, self._made[make])

    def some(self, n: int) -> NDArray[np.intp]:
        """Return the indices of at most n patients, evenly spaced.

        Returns
        -------
        indices : (n,) int64, or fewer

        """
        return np.unique(np.linspace(0, len(self.patients) - 1, min(n, len(self.patients))).astype(np.intp))

    def rounds(self, n: int) -> list[int]:
        """Return at most n values of t (the number of observed features), evenly spaced from 0 to M."""
        return sorted({int(t) for t in np.linspace(0, len(self.bundle.features), n)})

    @cached_property
    def energies(self) -> Floats:
        """Return the score S_v(x) of every patient and entity, computed from the potentials and not by the engine.

        Returns
        -------
        energies : (P, N) float64, nats

        """
        return self.bundle.energies(self.values)

    def read(
        self, bundle: Bundle, rounds: Sequence[int], patients: Patients = slice(None), *, duels: bool = True
    ) -> StateSamples:
        """Return the inference results for a bundle at the given rounds, for the random orders of one seed.

        Parameters
        ----------
        bundle : a bundle with the same features
        patients : indices of the patients; the default is all patients

        """
        values, orders = self.values[patients], self.orders[patients, 0]
        return snapshots(bundle, values, orders, rounds, solver=self.solver, duels=duels, threads=self.threads)

    @cached_property
    def names(self) -> list[str]:
        """Return the names that failure messages use for the entities."""
        return [f"{self.bundle.name}, entity {entity}" for entity in self.bundle.entities]

    @cached_property
    def tasks(self) -> list[str]:
        """Return the names that failure messages use for the binary tasks of the entities."""
        return [f"{name} as a binary task" for name in self.names]

    @cached_property
    def pairs(self) -> list[str]:
        """Return the names that failure messages use for the pairs of entities, in the order of `all_pairs`."""
        return [f"{self.bundle.name}, pair {a} against {b}" for a, b in combinations(self.bundle.entities, 2)]


def synthetic_subjects(*, threads: int | None = None) -> list[Subject]:
    """Return three synthetic inputs of checks: bundles of 4 entities and 7 features, each with 12 patients.

    For each bundle, one patient has the value 0 for all features. The bundle `signs` has two identical entities and the
    potentials -1, 0 and +1, so that scores tie. The bundle `real` has real-valued potentials and priors. The bundle
    `opposed` has strong couplings of both signs, for which damped iteration often fails.
    """
    made = []
    for name in ("signs", "real", "opposed"):
        draw = generator_of("sanity", "synthetic", name)
        values = draw.integers(-1, 2, (N_PATIENTS, N_FEATURES)).astype(np.int8)
        values[-1] = 0
        patients = tuple(f"{name} {i}" for i in range(N_PATIENTS))
        made.append(Subject(_synthetic_bundle(name, draw), patients, values, (0, 1), Solver(), threads))
    return made


def bundle_of(
    name: str, entities: Sequence[str], features: Sequence[str], unary: Floats, couplings: Floats, priors: Floats
) -> Bundle:
    """Return a bundle with potentials from dense arrays.

    Parameters
    ----------
    unary : (N, M) float64
    couplings : (N, M, M) float64. Only the upper triangle is used
    priors : (N,) float64

    """
    entity, row, column = np.nonzero(np.triu(couplings, 1))
    pairwise = Potentials(entity, np.column_stack([row, column]), couplings[entity, row, column])
    packed = packed_couplings(pairwise, len(entities))
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


@dataclass(frozen=True)
class Failure:
    """A failed case. `case` names the patient, t, and the entity or the pair of entities."""

    case: str
    found: str
    expected: str


@dataclass(frozen=True)
class CheckResult:
    """The result of a check: number of cases, number of failures, and descriptions of the first failures."""

    cases: int = 0
    failures: int = 0
    failing: tuple[Failure, ...] = ()

    def __add__(self, other: CheckResult) -> CheckResult:
        failing = (*self.failing, *other.failing)[:MOST_DESCRIBED]
        return CheckResult(self.cases + other.cases, self.failures + other.failures, failing)

    @classmethod
    def of(cls, wrong: Bools, describe: Callable[..., Failure]) -> CheckResult:
        """Return the outcome of a check from an array of its cases.

        Parameters
        ----------
        wrong : bool of any shape, True for failed cases
        describe : function from the indices of a case to its `Failure`

        """
        places = np.argwhere(wrong)
        return cls(wrong.size, len(places), tuple(describe(*map(int, place)) for place in places[:MOST_DESCRIBED]))


Check = Callable[[Subject], CheckResult]


@dataclass(frozen=True)
class Gate:
    """An acceptance test: a check, the same check on perturbed inputs, and the user's next step after a failure."""

    name: str
    check: Check
    perturbed: tuple[Check, ...]
    next_step: str


def run_gates(gates: Sequence[Gate], run: Subject, synthetic: Sequence[Subject]) -> pd.DataFrame:
    """Run acceptance tests, and return a table with one row for each test and kind of input (`run` or `synthetic`).

    `cases` is the number of tested cases, and `failures` is the number of failed cases. Failed cases are counted
    separately for each perturbation of the inputs, and `perturbed_failures` is the smallest of these counts. In rows
    with the input `run`, `perturbed_failures` is missing, because only synthetic inputs are perturbed.

    Raises
    ------
    SanityError : a check fails, or a check cannot fail. The message has one fault for each such check.

    """
    rows, faults = [], list[Fault]()
    for gate in gates:
        noticed = min((_run_check(check, synthetic).failures for check in gate.perturbed), default=0)
        for name, subjects in (("run", [run]), ("synthetic", synthetic)):
            outcome, where = _run_check(gate.check, subjects), f"sanity check {gate.name} ({name})"
            rows.append((gate.name, name, outcome.cases, outcome.failures, None if name == "run" else noticed))
            if outcome.failures:
                first = outcome.failing[0]
                found = f"{first.case}: {first.found} ({outcome.failures} of {outcome.cases} cases)"
                faults.append(Fault(where, found, first.expected, gate.next_step))
            if name == "synthetic" and not noticed:
                found = f"no failure among the {outcome.cases} cases of a copy broken on purpose"
                faults.append(Fault(where, found, "at least one", "repair the check: it cannot fail"))
    if faults:
        raise SanityError(faults)
    table = pd.DataFrame(rows, columns=["name", "input", "cases", "failures", "perturbed_failures"])
    return table.astype({"perturbed_failures": "Int64"})


def _run_check(check: Check, subjects: Sequence[Subject]) -> CheckResult:
    return sum((check(subject) for subject in subjects), CheckResult())
