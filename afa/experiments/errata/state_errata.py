"""Items 4, 6, 9 and 12: what holds along the states that patients of a cohort pass through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.closure import half_potentials
from afa.cohort.cohort import Cohort
from afa.engine.elimination import elimination_plan, log_partitions
from afa.engine.elimination_tables import Plan
from afa.errors import InferenceError
from afa.experiments.errata.duel_readings import DuelReadings
from afa.experiments.errata.exact_entities import ENTRY_LIMIT, TOO_LARGE
from afa.experiments.errata.rows import EXACT, Row
from afa.experiments.errata.small_models import generator_of
from afa.experiments.errata.states import Sampling, random_states, share_interval
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
    point = partial(Row, item=4, label="prop:anti-sym, eq:two-elbo-bias")
    claim = "the error of the two-ELBO estimate has no systematic drift towards either class"
    if not len(found.bias):
        return [point(name="favours_one", claim=claim, check="", unit="rate", pending=TOO_LARGE, headline=True)]
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
            claim=claim,
            claim_value=0.5,
            check="random states of patients, one entity each, exact log Z: share in which the error -KL_1 + KL_0 "
            f"favours y = 1; {left_out}",
            value=float(favours.mean()),
            low=low,
            high=high,
            unit="rate",
            n=n,
            holds=low <= 0.5 <= high,
            headline=True,
        ),
        point(
            name="mean_error",
            claim=claim,
            claim_value=0.0,
            check="mean of that error, positive in favour of y = 1",
            value=float(found.bias.mean()),
            unit="nats",
            n=n,
        ),
        point(
            name="antisymmetry",
            claim="the error changes sign with S",
            claim_value=0.0,
            check="largest |b(-S) + b(S)| over these states",
            value=residual,
            unit="nats",
            n=n,
            holds=residual <= EXACT * max(1.0, float(np.abs(found.bias).max())),
        ),
    ]


def expected_duel(read: DuelReadings | None, sampling: Sampling) -> list[Row]:
    """Item 6: the two formulas for E_Q[D], and the mean of the Gaussian score as printed."""
    point = partial(Row, item=6, label="supp:f1-approx, eq:mu-D")
    claim = "E_Q[D] under the mixture is what the averaged moments give"
    if read is None:
        return [point(name="mixture_sign", claim=claim, check="", unit="rate", pending=NO_DUEL, headline=True)]
    difference = np.abs(read.mixture - read.product)
    other_sign = np.sign(read.mixture) != np.sign(read.product)
    low, high = share_interval(other_sign, read.patients, sampling)
    n, equal = len(difference), bool((difference <= read.tie).all())
    return [
        point(
            name="mixture_sign",
            claim=claim,
            claim_value=0.0,
            check=f"{WHERE}: share whose sign differs between the mean of products and the product of means",
            value=float(other_sign.mean()),
            low=low,
            high=high,
            unit="rate",
            n=n,
            holds=equal,
            headline=True,
        ),
        point(
            name="mixture_gap",
            claim=claim,
            claim_value=0.0,
            check=f"{WHERE}: mean absolute difference between the two",
            value=float(difference.mean()),
            unit="nats",
            n=n,
            holds=equal,
        ),
        point(
            name="mixture_size",
            claim=claim,
            check=f"{WHERE}: mean absolute value of the mean of products, for comparison",
            value=float(np.abs(read.mixture).mean()),
            unit="nats",
            n=n,
        ),
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
        label="eq:mu-D, supp:kl-vs-saddle",
        claim="at full observation the mean of the Gaussian is D(x), and its sign right in every duel",
        claim_value=1.0,
        check="sign accuracy at full observation of the mean as printed, without the running constant",
        value=float(right.mean()) if len(right) else None,
        unit="accuracy",
        n=len(right),
        holds=bool((right == 1).all()) if len(right) else None,
        pending="" if len(right) else "patients with a duel that is decided at full observation",
    )


def same_sign(read: DuelReadings | None) -> list[Row]:
    """Item 9: the signs of `stack_a` and of `linearity`."""
    point = partial(Row, item=9, label="eq:fsp, tab:m2_random_sign")
    claim = "that stack-A and linearity predict the same signs is a finding"
    if read is None:
        return [point(name="same_sign", claim=claim, check="", unit="rate", pending=NO_DUEL, headline=True)]
    same = np.sign(read.stack_a) == np.sign(read.mixture)
    return [
        point(
            name="same_sign",
            claim=claim,
            check=f"{WHERE}: share in which the two signs are equal; they must be, one being an increasing function of "
            "the other",
            value=float(same.mean()),
            unit="rate",
            n=len(same),
            holds=not bool(same.all()),
            headline=True,
        )
    ]


def doubled_couplings(read: DuelReadings | None, sampling: Sampling) -> list[Row]:
    """Item 12: widths of the paper's `l1` bracket and of the one that counts each coupling once."""
    point = partial(Row, item=12, label="eq:unobs-budget")
    claim = "the budget is the energy that the unobserved features can add, each coupling once"
    if read is None:
        return [point(name="wider", claim=claim, check="", unit="rate", pending=NO_DUEL, headline=True)]
    narrow, wide = read.tight, read.tight + read.between
    wider, narrower = wide > narrow + read.tie, wide < narrow - read.tie
    still_open = wide > read.tie
    low, high = share_interval(wider, read.patients, sampling)
    return [
        point(
            name="wider",
            claim=claim,
            claim_value=0.0,
            check=f"{WHERE}: share in which the printed budget is wider than that without the doubled couplings",
            value=float(wider.mean()),
            low=low,
            high=high,
            unit="rate",
            n=len(wide),
            holds=not bool(wider.any()),
            headline=True,
        ),
        point(
            name="narrower",
            claim="the printed budget is sound",
            claim_value=0.0,
            check=f"{WHERE}: share in which it is narrower",
            value=float(narrower.mean()),
            unit="rate",
            n=len(wide),
            holds=not bool(narrower.any()),
        ),
        point(
            name="width_ratio",
            claim=claim,
            claim_value=1.0,
            check=f"{WHERE}: width needed over width printed, mean over duels with a width left",
            value=float((narrow[still_open] / wide[still_open]).mean()) if still_open.any() else None,
            unit="rate",
            n=int(still_open.sum()),
            holds=not bool(wider.any()),
            pending="" if still_open.any() else "states with something of a duel unobserved",
        ),
    ]
