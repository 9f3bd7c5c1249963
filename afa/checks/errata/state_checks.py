"""Items 4, 6, 9 and 12: what holds along the states that patients of a cohort pass through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.checks.errata.bundle import ENTRY_LIMIT, TOO_LARGE
from afa.checks.errata.models import generator_of
from afa.checks.errata.rows import EXACT, Row
from afa.checks.errata.states import DuelReadings, Sampling, random_states, share_interval
from afa.closure import half_potentials
from afa.cohort.cohort import Cohort
from afa.engine.elimination import elimination_plan, log_partitions
from afa.engine.elimination_tables import Plan
from afa.errors import InferenceError
from afa.inference.meanfield import Solver, mean_field
from afa.mrf import Evidence, Floats, PairwiseMRF

NO_DUEL = "a bundle of two entities or more"
SOLVED = 1e-6
"""An error of no more nats than this is what the solver's tolerance leaves: it favours neither class."""
WHERE = "every duel in random states of patients"


@dataclass(frozen=True)
class Biases:
    """Errors of the two-ELBO estimate in random states, and of the negated score; `patients` names each state's.

    complete : states left out because nothing of the entity was unobserved. refused : those too large to solve exactly.
    """

    bias: Floats
    of_negative: Floats
    patients: Sequence[str]
    complete: int
    refused: int


def biases(
    bundle: Bundle, cohort: Cohort, entities: Sequence[str], solver: Solver, n_states: int, *, threads: int | None = 1
) -> Biases:
    """The error -KL_1 + KL_0 (eq:two-elbo-bias), nats, in random states, each of one patient and one of `entities`."""
    models = [bundle.mrf(entity) for entity in sorted(entities)]
    plans = [elimination_plan(model) for model in models]
    bias, of_negative, patients, complete, refused = [], [], [], 0, 0
    for state in random_states(cohort, n_states, purpose="two_elbo"):
        chosen = int(generator_of("entity", state.patient, state.index).integers(len(models)))
        score = models[chosen]
        evidence = Evidence.of(score, state.observations(bundle, cohort))
        if len(evidence.free) == 0:
            complete += 1
            continue
        try:
            pair = [
                bias_of(model, evidence.observed, evidence.values, solver, plan=plans[chosen], threads=threads)
                for model in (score, score.scaled(-1.0))
            ]
        except InferenceError:
            refused += 1
            continue
        bias.append(pair[0])
        of_negative.append(pair[1])
        patients.append(state.patient)
    return Biases(np.array(bias), np.array(of_negative), patients, complete, refused)


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


def two_elbo_bias(found: Biases, sampling: Sampling) -> list[Row]:
    """Item 4: does the error of the two-ELBO estimate favour a class?"""
    point = partial(Row, item=4)
    if not len(found.bias):
        return [point(name="favours_one", pending=TOO_LARGE)]
    favours = np.where(np.abs(found.bias) <= SOLVED, 0.5, found.bias > 0)
    low, high = share_interval(favours, found.patients, sampling)
    residual = float(np.abs(found.bias + found.of_negative).max())
    left_out = f"left out: {found.complete} in which the error is 0, nothing of the entity being unobserved"
    if found.refused:
        left_out += f", and {found.refused} too large to solve exactly"
    n = len(found.bias)
    return [
        point(
            name="favours_one",
            claim_value=0.5,
            value=float(favours.mean()),
            low=low,
            high=high,
            n=n,
            holds=low <= 0.5 <= high,
        ),
        point(
            name="mean_error",
            claim_value=0.0,
            value=float(found.bias.mean()),
            n=n,
        ),
        point(
            name="antisymmetry",
            claim_value=0.0,
            value=residual,
            n=n,
            holds=residual <= EXACT * max(1.0, float(np.abs(found.bias).max())),
        ),
    ]


def expected_duel(read: DuelReadings | None, sampling: Sampling) -> list[Row]:
    """Item 6: the two formulas for E_Q[D], and the mean of the Gaussian score as printed."""
    point = partial(Row, item=6)
    if read is None:
        return [point(name="mixture_sign", pending=NO_DUEL)]
    difference = np.abs(read.mixture - read.product)
    other_sign = np.sign(read.mixture) != np.sign(read.product)
    low, high = share_interval(other_sign, read.patients, sampling)
    n, equal = len(difference), bool((difference <= read.tie).all())
    return [
        point(
            name="mixture_sign",
            claim_value=0.0,
            value=float(other_sign.mean()),
            low=low,
            high=high,
            n=n,
            holds=equal,
        ),
        point(
            name="mixture_gap",
            claim_value=0.0,
            value=float(difference.mean()),
            n=n,
            holds=equal,
        ),
        point(name="mixture_size", value=float(np.abs(read.mixture).mean()), n=n),
        _printed_mean(read, point),
    ]


def _printed_mean(read: DuelReadings, point: partial[Row]) -> Row:
    """The Gaussian mean without the running constant, at full observation."""
    printed = read.final_score - read.final_constant
    called = np.where(np.abs(printed) <= read.tie, 0.0, np.sign(printed))
    decided = read.final_score != 0
    right = np.where(called == 0, 0.5, called == np.sign(read.final_score))[decided]
    return point(
        name="printed_mean",
        claim_value=1.0,
        value=float(right.mean()) if len(right) else None,
        n=len(right),
        holds=bool((right == 1).all()) if len(right) else None,
        pending="" if len(right) else "patients with a duel that is decided at full observation",
    )


def same_sign(read: DuelReadings | None) -> list[Row]:
    """Item 9: the signs of `stack_a` and of `linearity`."""
    point = partial(Row, item=9)
    if read is None:
        return [point(name="same_sign", pending=NO_DUEL)]
    same = np.sign(read.stack_a) == np.sign(read.mixture)
    return [
        point(
            name="same_sign",
            value=float(same.mean()),
            n=len(same),
            holds=not bool(same.all()),
        )
    ]


def doubled_couplings(read: DuelReadings | None, sampling: Sampling) -> list[Row]:
    """Item 12: widths of the paper's `l1` bracket and of the one that counts each coupling once."""
    point = partial(Row, item=12)
    if read is None:
        return [point(name="wider", pending=NO_DUEL)]
    narrow, wide = read.tight, read.tight + read.between
    wider, narrower = wide > narrow + read.tie, wide < narrow - read.tie
    still_open = wide > read.tie
    low, high = share_interval(wider, read.patients, sampling)
    return [
        point(
            name="wider",
            claim_value=0.0,
            value=float(wider.mean()),
            low=low,
            high=high,
            n=len(wide),
            holds=not bool(wider.any()),
        ),
        point(
            name="narrower",
            claim_value=0.0,
            value=float(narrower.mean()),
            n=len(wide),
            holds=not bool(narrower.any()),
        ),
        point(
            name="width_ratio",
            claim_value=1.0,
            value=float((narrow[still_open] / wide[still_open]).mean()) if still_open.any() else None,
            n=int(still_open.sum()),
            holds=not bool(wider.any()),
            pending="" if still_open.any() else "states with something of a duel unobserved",
        ),
    ]
