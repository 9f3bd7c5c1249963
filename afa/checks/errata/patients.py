"""Items 4, 6, 9 to 12, 19 and 21: checks on the patients of a cohort, on their values and on random states of them.

Patients and states are drawn from hashes of names; item 21 is about the expression that the values were encoded from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.checks.errata import EXACT, NEAR, Row, by_hash, measured, rate, share_interval, some_of, vanishes
from afa.closure import half_potentials
from afa.cohort.build import overridden, read_values
from afa.cohort.cohort import Cohort
from afa.cohort.config import CohortConfig
from afa.cohort.encode import Coding, Names, Test, choose_rows, encode, first_tier_present, log_values
from afa.cohort.geo import Source
from afa.engine.duels import Duel
from afa.engine.elimination import elimination_plan, log_partitions
from afa.engine.elimination_tables import Plan
from afa.engine.layout import pack
from afa.engine.paths import Snapshots, sign_paths, snapshots
from afa.errors import InferenceError
from afa.inference.meanfield import Solver, mean_field
from afa.mrf import Floats, PairwiseMRF
from afa.orders import generator_of, random_order, random_orders
from afa.preference import tie_of
from afa.stages.inputs import final_differences

ENTRY_LIMIT = 2e7
"""Table entries of one elimination: a model that needs more is left out of the exact checks, which have seconds."""
TOO_LARGE = "exact inference, which is too large for every entity of this bundle"
COIN = 0.5
NO_EXPRESSION = "expression values of the cohort"
NONE_DECIDED = "patients with a duel that is decided at full observation"
SOLVED = 1e-6
"""In nats. A smaller error comes from the solver's tolerance and favours neither class."""


@dataclass(frozen=True)
class CohortExpression:
    """Log2 expression of controls and of patients, genes x samples; the patients' ternary code, its test's level."""

    controls: Floats
    patients: Floats
    code: NDArray[np.int8]
    level: float

    @classmethod
    def of(cls, values: pd.DataFrame, is_control: NDArray[np.bool_], test: Test, level: float) -> CohortExpression:
        """The code is the test about the control centre, as the cohort was encoded (decision D1)."""
        code, known = encode(values, is_control, test=test, level=level).to_numpy(), values.to_numpy(dtype=np.float64)
        return cls(known[:, is_control], known[:, ~is_control], code[:, ~is_control], level)


def load_expression(
    config: CohortConfig, source: Source, bundle: Bundle, coding: Coding, *, aliases: Names, ensembl: Names
) -> CohortExpression:
    """Read the values that a cohort was encoded from, on the bundle's features; arguments as of `build_cohort`.

    Features without a row in the series are left out, as in the cohort. Errors are those of `build_cohort`.
    """
    own = overridden(coding, config.encoding)
    names = {name: (*bundle.aliases.get(name, ()), *aliases.get(name, ())) for name in bundle.features}
    chosen, tiers, read = read_values(config, source, bundle.features, names, ensembl)
    log = log_values(read.values[[*chosen.controls, *chosen.patients]], config.expression.unit, read.library_size)
    values, _ = choose_rows(log, first_tier_present(tiers, map(str, log.index)), chosen.controls)
    return CohortExpression.of(values, np.isin(values.columns, chosen.controls), own.test, own.level)


def vote_for_neither(bundle: Bundle, cohort: Cohort, solver: Solver, most_patients: int) -> list[Row]:
    """Item 10: how often `kl` at full observation lets both entities of a duel lose, and how many values are zero."""
    rows = some_of(cohort.patients, most_patients, "votes")
    names = [cohort.patients[row] for row in rows]
    orders = random_orders(bundle.features, names, [0])
    paths = sign_paths(bundle, cohort.values[rows], orders, solver=solver, threads=1)
    final = {name: signs[:, 0, -1] for name, signs in paths.signs.items()}
    decided = final["wald"] != 0
    # `kl_reversed` is already turned round: +1 says that b, asked for, loses.
    neither = ((final["kl"] < 0) & (final["kl_reversed"] > 0))[decided]
    patients = np.repeat(np.array(names, dtype=object), decided.sum(axis=1))
    return [
        rate(10, "neither", neither, patients=patients, pending=NONE_DECIDED),
        measured(10, "zero_values", cohort.values == 0, claim=1 / 3),
    ]


def opposite_profile(bundle: Bundle, cohort: Cohort) -> list[Row]:
    """Item 11: does a positive S tell a profile from its opposite?"""
    unary = cohort.values.astype(np.float64) @ bundle.unary.T
    quadratic = bundle.energies(cohort.values) - bundle.priors - unary
    tie = tie_of([bundle.mrf(entity) for entity in bundle.entities])
    positive = bundle.priors + unary + quadratic > tie
    mirrored = bundle.priors - unary + quadratic > tie
    negative = unary < -tie
    patients = np.repeat(np.array(cohort.patients, dtype=object), positive.shape[1])
    size = np.abs(unary) + np.abs(quadratic)
    share = np.abs(quadratic)[size > 0] / size[size > 0]
    return [
        *(
            rate(11, name, hits[among], patients=patients[among.ravel()], pending="patients with such a score")
            for name, hits, among in (
                ("against_unaries", positive & negative, np.ones_like(positive)),
                ("negative_sum_positive", positive, negative),
                ("mirror", mirrored, positive),
            )
        ),
        measured(11, "quadratic_share", share, pending="patients with a value that is not zero"),
    ]


def structural_ties(bundle: Bundle, cohort: Cohort, printed_share: float) -> list[Row]:
    """Item 19: the share of duels tied at full observation, where all others are one-sided; and whether it is one."""
    tied = final_differences(bundle, cohort.values) == 0
    return [
        measured(19, "structural_ties", tied, claim=printed_share),
        vanishes(19, "ties_by_patient", tied.mean(axis=1), np.ptp, holds=lambda each: np.ptp(each) <= NEAR),
    ]


def written_code(expression: CohortExpression) -> NDArray[np.int8]:
    """(n_genes, n_patients) code of eq:ternary-encoding as printed: p is the share of controls C with |C| > |x|."""
    size, p = np.sort(np.abs(expression.controls), axis=1), np.empty(expression.patients.shape)
    for gene, each in enumerate(np.abs(expression.patients)):
        p[gene] = 1.0 - np.searchsorted(size[gene], each, side="right") / size.shape[1]
    direction = np.sign(expression.patients - expression.controls.mean(axis=1, keepdims=True))
    return np.where(p < expression.level, direction, 0.0).astype(np.int8)


def down_regulation(expression: CohortExpression | None) -> list[Row]:
    """Item 21: what a p-value two-sided about zero calls down, beside the one about the controls' centre."""
    if expression is None:
        return [Row(21, "lowest_written", pending=NO_EXPRESSION)]
    controls, patients, ours = expression.controls, expression.patients, expression.code
    written = written_code(expression)
    lowest = patients < controls.min(axis=1, keepdims=True)
    above = patients >= np.median(controls, axis=1, keepdims=True)
    below_all, as_printed = "values below all controls", "values that are called down as printed"
    low, coin = written[lowest] < 0, lambda each: bool(each.mean() > COIN)
    return [
        measured(21, "lowest_written", low, claim=1.0, holds=coin, pending=below_all),
        measured(21, "lowest_centred", ours[lowest] < 0, pending=below_all),
        measured(21, "down_written", written < 0),
        measured(21, "up_written", written > 0),
        measured(21, "down_centred", ours < 0),
        measured(21, "up_centred", ours > 0),
        measured(21, "down_above_median", above[written < 0], pending=as_printed),
        measured(21, "negative_values", np.hstack([controls, patients]) < 0),
    ]


class State(NamedTuple):
    """One patient after the first `t` features of `order` (M,), a random one.

    row : of the patient in the cohort. number : of the state among those of this patient, from 0.
    """

    patient: str
    row: int
    number: int
    order: NDArray[np.int64]
    t: int


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
        states.append(State(patient, rows[row], index, order, t))
    return states


def biases(bundle: Bundle, cohort: Cohort, solver: Solver, n_states: int, *, threads: int | None = 1) -> pd.DataFrame:
    """The error -KL_1 + KL_0 (eq:two-elbo-bias), nats, in random states, each of one patient and one entity.

    By state the name of its `patient`, the `bias` for its score S, and `of_negative`, that for -S.
    """
    models = [bundle.mrf(entity) for entity in sorted(bundle.entities)]
    plans = [elimination_plan(model) for model in models]
    found = []
    for state in random_states(cohort, n_states, purpose="two_elbo"):
        chosen = int(generator_of("errata", "entity", state.patient, state.number).integers(len(models)))
        score = models[chosen]
        observed = np.isin(np.arange(len(bundle.features)), state.order[: state.t])
        values = np.where(observed, cohort.values[state.row], 0).astype(np.int8)
        if observed[score.support].all():
            continue
        try:
            pair = [
                bias_of(model, observed, values, solver, plan=plans[chosen], threads=threads)
                for model in (score, score.scaled(-1.0))
            ]
        except InferenceError:
            continue
        found.append((state.patient, *pair))
    return pd.DataFrame(found, columns=["patient", "bias", "of_negative"])


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


def two_elbo_bias(found: pd.DataFrame) -> list[Row]:
    """Item 4: does the error of the two-ELBO estimate favour a class?"""
    if found.empty:
        return [Row(4, "favours_one", pending=TOO_LARGE)]
    bias, of_negative = (found[name].to_numpy(np.float64) for name in ("bias", "of_negative"))
    favours = np.where(np.abs(bias) <= SOLVED, 0.5, bias > 0)
    low, high = share_interval(favours, found["patient"])
    largest = EXACT * max(1.0, float(np.abs(bias).max()))
    return [
        Row(4, "favours_one", float(favours.mean()), 0.5, low, high, len(favours), low <= 0.5 <= high),
        measured(4, "mean_error", bias, claim=0.0),
        vanishes(4, "antisymmetry", np.abs(bias + of_negative), np.max, holds=lambda each: each.max() <= largest),
    ]


@dataclass(frozen=True)
class DuelReadings:
    """What is read of every duel in every state, state by state, and at full observation of each patient met.

    cases : the `patient`; `mixture` and `product`, E_Q[D] as the mean of products and as the product of means, nats, 0
    where rounding; `stack_a`; `tight`, the `l1` budget, and `between`, what the paper adds to it. final : `score`,
    D(x), and the running `constant`'s share in it. tie : magnitude up to which a score is rounding.
    """

    cases: pd.DataFrame
    final: pd.DataFrame
    tie: float


def duel_readings(bundle: Bundle, cohort: Cohort, states: Sequence[State], solver: Solver) -> DuelReadings:
    """Read every duel of a bundle of at least two entities in every state."""
    cases, finals, tie = list[pd.DataFrame](), dict[str, pd.DataFrame](), pack(bundle).tie
    for state in states:
        values, rounds = cohort.values[[state.row]], [state.t, len(bundle.features)]
        read = snapshots(bundle, values, state.order[None], rounds, solver=solver, threads=1)
        a, b = read.pairs.T
        scores = {
            "mixture": read.mean[0, 0],
            "product": product_scores(bundle, read, state.order[: state.t], values[0])[a, b],
            "score": read.mean[0, -1],
        }
        settled = {name: np.where(np.abs(each) <= tie, 0.0, each) for name, each in scores.items()}
        budget, between = (read.sums[0, 0, :, Duel._fields.index(name)] for name in ("budget", "between"))
        final = {"score": settled.pop("score"), "constant": read.constant[0, -1, a] - read.constant[0, -1, b]}
        case = {"patient": state.patient, **settled, "stack_a": read.stack_a[0, 0], "tight": budget, "between": between}
        cases.append(pd.DataFrame(case))
        finals.setdefault(state.patient, pd.DataFrame(final))
    return DuelReadings(pd.concat(cases, ignore_index=True), pd.concat(finals.values(), ignore_index=True), tie)


def product_scores(bundle: Bundle, read: Snapshots, observed: NDArray[np.int64], values: NDArray[np.int8]) -> Floats:
    """(N, N) E[D_ab] under one product measure with the averaged moments of a and b, as supp:f1-approx prints it.

    read : of one patient with `values` (M,), whose first round is after these features are observed. The readable form
    is `afa.preference.linearity` with `moments="product"`.
    """
    n = len(bundle.entities)
    first, expected = np.zeros((n, len(bundle.features))), np.empty((n, n))
    first[read.packed.owner, read.packed.feature] = read.m[0, 0]
    first[:, observed] = values[observed]
    for v in range(n):
        row, column, value = bundle.packed.of(v)
        mean = (first + first[v]) / 2
        expected[v] = bundle.priors[v] + mean @ bundle.unary[v] + (mean[:, row] * mean[:, column]) @ value
    return expected - expected.T


def expected_duel(read: DuelReadings) -> list[Row]:
    """Item 6: the two formulas for E_Q[D], and the mean of the Gaussian score as printed."""
    mixture, product = (read.cases[name].to_numpy() for name in ("mixture", "product"))
    score, constant = (read.final[name].to_numpy() for name in ("score", "constant"))
    difference = np.abs(mixture - product)
    equal = bool((difference <= read.tie).all())
    # the Gaussian mean without the running constant, at full observation
    printed = score - constant
    called = np.where(np.abs(printed) <= read.tie, 0.0, np.sign(printed))
    right = np.where(called == 0, 0.5, called == np.sign(score))[score != 0]
    other_sign = np.sign(mixture) != np.sign(product)
    return [
        rate(6, "mixture_sign", other_sign, holds=lambda _: equal, patients=read.cases["patient"]),
        vanishes(6, "mixture_gap", difference, holds=lambda _: equal),
        measured(6, "mixture_size", np.abs(mixture)),
        measured(6, "printed_mean", right, claim=1.0, holds=lambda each: (each == 1).all(), pending=NONE_DECIDED),
    ]


def same_sign(read: DuelReadings) -> list[Row]:
    """Item 9: the signs of `stack_a` and of `linearity`."""
    same = np.sign(read.cases["stack_a"]) == np.sign(read.cases["mixture"])
    return [measured(9, "same_sign", same, holds=lambda each: not each.all())]


def doubled_couplings(read: DuelReadings) -> list[Row]:
    """Item 12: widths of the paper's `l1` bracket and of the one that counts each coupling once."""
    narrow = read.cases["tight"].to_numpy()
    wide = narrow + read.cases["between"].to_numpy()
    wider, unobserved = wide > narrow + read.tie, wide > read.tie
    ratio, waits_for = narrow[unobserved] / wide[unobserved], "states with something of a duel unobserved"
    return [
        rate(12, "wider", wider, patients=read.cases["patient"]),
        rate(12, "narrower", wide < narrow - read.tie),
        measured(12, "width_ratio", ratio, claim=1.0, holds=lambda _: not wider.any(), pending=waits_for),
    ]
