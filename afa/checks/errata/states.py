"""Items 4, 6, 9 and 12: what holds along random states of a cohort's patients, drawn from hashes of their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.checks.errata.bundle import ENTRY_LIMIT, TOO_LARGE
from afa.checks.errata.models import by_hash
from afa.checks.errata.rows import EXACT, Row, measured, rate, share_interval, vanishes
from afa.closure import half_potentials
from afa.cohort.cohort import Cohort
from afa.engine.duels import duel
from afa.engine.elimination import elimination_plan, log_partitions
from afa.engine.elimination_tables import Plan
from afa.engine.layout import Packed, pack
from afa.engine.patient import Patient
from afa.errors import InferenceError
from afa.inference.meanfield import Solver, mean_field
from afa.mrf import Evidence, Floats, PairwiseMRF
from afa.orders import generator_of, random_order

NO_DUEL = "a bundle of two entities or more"
SOLVED = 1e-6
"""An error of no more nats than this is what the solver's tolerance leaves: it favours neither class."""


@dataclass(frozen=True)
class State:
    """One patient after `t` features of a random order over all M: `observed` (t,) are their indices, in order.

    row : of the patient in the cohort. index : of the state among those of this patient.
    """

    patient: str
    row: int
    index: int
    observed: NDArray[np.int64]

    def observations(self, bundle: Bundle, cohort: Cohort) -> dict[str, int]:
        """Values by feature name."""
        return {bundle.features[j]: int(cohort.values[self.row, j]) for j in self.observed}

    def followed(self, bundle: Bundle, cohort: Cohort, packed: Packed, solver: Solver) -> Patient:
        """The engine's patient in this state."""
        patient = Patient(bundle, solver=solver, packed=packed)
        for j in self.observed:
            patient.observe(int(j), int(cohort.values[self.row, j]))
        return patient


def random_states(cohort: Cohort, n: int, *, purpose: str) -> list[State]:
    """`n` states, spread evenly over the patients; t is uniform on 0 to M - 1, so that something is unobserved.

    Which patients come first where there are more than `n` depends on a hash of their names, and not on their order.
    """
    rows = by_hash(cohort.patients, purpose)
    states = []
    for i in range(n):
        index, row = divmod(i, len(rows))
        patient = cohort.patients[rows[row]]
        t = int(generator_of("errata", purpose, patient, index).integers(0, len(cohort.features)))
        order = random_order(cohort.features, patient=patient, seed=index, experiment=f"errata {purpose}")
        states.append(State(patient, rows[row], index, order[:t]))
    return states


@dataclass(frozen=True)
class Biases:
    """Errors of the two-ELBO estimate in random states, and of the negated score; `patients` names each state's.

    States in which nothing of the entity is unobserved, or that are too large to solve exactly, are left out.
    """

    bias: Floats
    of_negative: Floats
    patients: Sequence[str]


def biases(
    bundle: Bundle, cohort: Cohort, entities: Sequence[str], solver: Solver, n_states: int, *, threads: int | None = 1
) -> Biases:
    """The error -KL_1 + KL_0 (eq:two-elbo-bias), nats, in random states, each of one patient and one of `entities`."""
    models = [bundle.mrf(entity) for entity in sorted(entities)]
    plans = [elimination_plan(model) for model in models]
    found, patients = [], []
    for state in random_states(cohort, n_states, purpose="two_elbo"):
        chosen = int(generator_of("errata", "entity", state.patient, state.index).integers(len(models)))
        score = models[chosen]
        evidence = Evidence.of(score, state.observations(bundle, cohort))
        if len(evidence.free) == 0:
            continue
        try:
            pair = [
                bias_of(model, evidence.observed, evidence.values, solver, plan=plans[chosen], threads=threads)
                for model in (score, score.scaled(-1.0))
            ]
        except InferenceError:
            continue
        found.append(pair)
        patients.append(state.patient)
    bias, of_negative = np.array(found, dtype=np.float64).reshape(-1, 2).T.copy()
    return Biases(bias, of_negative, patients)


def bias_of(
    score: PairwiseMRF,
    observed: NDArray[np.bool_],
    values: NDArray[np.int8],
    solver: Solver,
    *,
    plan: Plan | None = None,
    threads: int | None = 1,
) -> float:
    """-KL_1 + KL_0 in one state, nats, by exact log Z; `observed` and `values` (M,). Raises `InferenceError`.

    plan : of the score, or of its negative, where it has been made already.
    """
    log_z = log_partitions(score, observed[None], values[None], plan=plan, limit=ENTRY_LIMIT, threads=threads)[0]
    given = {score.features[j]: int(values[j]) for j in np.flatnonzero(observed)}
    elbo = [mean_field(model, given, solver=solver).elbo for model in half_potentials(score)]
    return float((elbo[0] - log_z[0]) - (elbo[1] - log_z[1]))


def two_elbo_bias(found: Biases) -> list[Row]:
    """Item 4: does the error of the two-ELBO estimate favour a class?"""
    if not len(found.bias):
        return [Row(4, "favours_one", pending=TOO_LARGE)]
    favours = np.where(np.abs(found.bias) <= SOLVED, 0.5, found.bias > 0)
    low, high = share_interval(favours, found.patients)
    largest = EXACT * max(1.0, float(np.abs(found.bias).max()))
    return [
        Row(4, "favours_one", float(favours.mean()), 0.5, low, high, len(favours), low <= 0.5 <= high),
        measured(4, "mean_error", found.bias, claim=0.0),
        vanishes(
            4, "antisymmetry", np.abs(found.bias + found.of_negative), np.max, holds=lambda each: each.max() <= largest
        ),
    ]


@dataclass(frozen=True)
class DuelReadings:
    """One entry per duel and state, state by state; `final_` arrays have one per duel and patient met.

    patients : the name of each entry's patient. mixture, product : E_Q[D] as the mean of products and as the product of
    means, nats, 0 where rounding. stack_a : its score. tight, between : the `l1` budget, and what the paper adds to it.
    final_score : D(x) at full observation. final_constant : the running constant's share in it.
    tie : magnitude up to which a score is rounding.
    """

    patients: NDArray[np.object_]
    mixture: Floats
    product: Floats
    stack_a: Floats
    tight: Floats
    between: Floats
    final_score: Floats
    final_constant: Floats
    tie: float


def duel_readings(bundle: Bundle, cohort: Cohort, states: Sequence[State], solver: Solver) -> DuelReadings:
    """Read every duel of a bundle of at least two entities in every state."""
    packed, above = pack(bundle), np.triu_indices(len(bundle.entities), 1)
    read: dict[str, list[Floats]] = {name: [] for name in ("mixture", "product", "stack_a", "tight", "between")}
    finals: dict[str, tuple[Floats, Floats]] = {}
    for state in states:
        patient = state.followed(bundle, cohort, packed, solver)
        sums = [duel(packed, patient.state, int(a), int(b)) for a, b in zip(*above, strict=True)]
        product = product_scores(bundle, patient)[above]
        read["mixture"].append(patient.scores("linearity")[above])
        read["product"].append(np.where(np.abs(product) <= packed.tie, 0.0, product))
        read["stack_a"].append(patient.scores("stack_a")[above])
        read["tight"].append(np.array([one.budget for one in sums]))
        read["between"].append(np.array([one.between for one in sums]))
        if state.patient not in finals:
            for j in np.flatnonzero(~patient.state.observed):
                patient.observe(int(j), int(cohort.values[state.row, j]))
            constant = patient.state.constant
            finals[state.patient] = (patient.scores("linearity")[above], constant[above[0]] - constant[above[1]])
    names = np.repeat(np.array([state.patient for state in states], dtype=object), len(above[0]))
    joined = {name: np.concatenate(parts) for name, parts in read.items()}
    score, constant = (np.concatenate([pair[i] for pair in finals.values()]) for i in (0, 1))
    return DuelReadings(names, **joined, final_score=score, final_constant=constant, tie=packed.tie)


def product_scores(bundle: Bundle, patient: Patient) -> Floats:
    """(N, N) E[D_ab] under one product measure with the averaged moments of a and b, as supp:f1-approx prints it.

    The readable form is `afa.preference.linearity` with `moments="product"`.
    """
    n = len(bundle.entities)
    fields = patient.fields()
    first = np.zeros_like(fields)
    first[patient.packed.owner, patient.packed.feature] = patient.state.m
    expected = np.empty((n, n))
    for v in range(n):
        row, column, value = bundle.packed.of(v)
        mean = (first + first[v]) / 2
        # observed features have a first moment of 0, so that only couplings among unobserved ones count
        expected[v] = patient.state.constant[v] + mean @ fields[v] + (mean[:, row] * mean[:, column]) @ value
    return expected - expected.T


def expected_duel(read: DuelReadings | None) -> list[Row]:
    """Item 6: the two formulas for E_Q[D], and the mean of the Gaussian score as printed."""
    if read is None:
        return [Row(6, "mixture_sign", pending=NO_DUEL)]
    difference = np.abs(read.mixture - read.product)
    equal = bool((difference <= read.tie).all())
    # the Gaussian mean without the running constant, at full observation
    printed = read.final_score - read.final_constant
    called = np.where(np.abs(printed) <= read.tie, 0.0, np.sign(printed))
    right = np.where(called == 0, 0.5, called == np.sign(read.final_score))[read.final_score != 0]
    other_sign = np.sign(read.mixture) != np.sign(read.product)
    return [
        rate(6, "mixture_sign", other_sign, holds=lambda _: equal, patients=read.patients),
        vanishes(6, "mixture_gap", difference, holds=lambda _: equal),
        measured(6, "mixture_size", np.abs(read.mixture)),
        measured(
            6,
            "printed_mean",
            right,
            claim=1.0,
            holds=lambda each: (each == 1).all(),
            pending="patients with a duel that is decided at full observation",
        ),
    ]


def same_sign(read: DuelReadings | None) -> list[Row]:
    """Item 9: the signs of `stack_a` and of `linearity`."""
    if read is None:
        return [Row(9, "same_sign", pending=NO_DUEL)]
    same = np.sign(read.stack_a) == np.sign(read.mixture)
    return [measured(9, "same_sign", same, holds=lambda each: not each.all())]


def doubled_couplings(read: DuelReadings | None) -> list[Row]:
    """Item 12: widths of the paper's `l1` bracket and of the one that counts each coupling once."""
    if read is None:
        return [Row(12, "wider", pending=NO_DUEL)]
    narrow, wide = read.tight, read.tight + read.between
    wider, unobserved = wide > narrow + read.tie, wide > read.tie
    return [
        rate(12, "wider", wider, patients=read.patients),
        rate(12, "narrower", wide < narrow - read.tie),
        measured(
            12,
            "width_ratio",
            narrow[unobserved] / wide[unobserved],
            claim=1.0,
            holds=lambda _: not wider.any(),
            pending="states with something of a duel unobserved",
        ),
    ]
