"""Items 10, 11, 17, 19 and 21 as far as a cohort's values decide them, without any inference."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.engine.paths import sign_paths
from afa.experiments.errata.expression import CohortExpression, written_code
from afa.experiments.errata.rows import NEAR, Row
from afa.experiments.errata.states import Sampling, share_interval, some_patients
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.orders import random_order
from afa.preference import tie_of

BUDGET = 10
COIN = 0.5
NO_EXPRESSION = "expression values of the cohort"


def vote_for_neither(
    bundle: Bundle, cohort: Cohort, solver: Solver, most_patients: int, sampling: Sampling
) -> list[Row]:
    """Item 10: how often `kl` at full observation lets both entities of a duel lose, and how many values are zero."""
    point = partial(Row, item=10, label="supp:KL_sign_vote, supp:kl-vs-saddle")
    rows = some_patients(cohort, most_patients, purpose="votes")
    names = [cohort.patients[row] for row in rows]
    orders = np.array([[random_order(bundle.features, patient=name, seed=0)] for name in names], dtype=np.int64)
    paths = sign_paths(bundle, cohort.values[rows], orders, solver=solver, threads=1)
    final = {name: signs[:, 0, -1] for name, signs in paths.signs.items()}
    decided = final["wald"] != 0
    # `kl_reversed` is already turned round: +1 says that b, asked for, loses.
    neither = ((final["kl"] < 0) & (final["kl_reversed"] > 0))[decided]
    patients = np.repeat(np.array(names, dtype=object), decided.sum(axis=1))
    zeros = float((cohort.values == 0).mean())
    n = len(neither)
    low, high = share_interval(neither, patients, sampling) if n else (None, None)
    return [
        point(
            name="neither",
            claim="the sign vote of a duel says which entity wins",
            claim_value=0.0,
            check="decided duels at full observation: share in which kl says the other one, whichever is asked for",
            value=float(neither.mean()) if n else None,
            low=low,
            high=high,
            unit="rate",
            n=n,
            holds=not bool(neither.any()) if n else None,
            pending="" if n else "patients with a duel that is decided at full observation",
        ),
        point(
            name="zero_values",
            label="eq:kl-fullobs",
            claim="a third of the ternary values are zero",
            claim_value=1 / 3,
            check="share of zeros among the cohort's values; a feature outside both supports votes zero too",
            value=zeros,
            unit="rate",
            n=cohort.values.size,
        ),
    ]


def opposite_profile(bundle: Bundle, cohort: Cohort, sampling: Sampling) -> list[Row]:
    """Item 11: does a positive S tell a profile from its opposite?"""
    point = partial(Row, item=11, label="eq:disc_score")
    unary, quadratic = score_parts(bundle, cohort.values)
    tie = tie_of([bundle.mrf(entity) for entity in bundle.entities])
    prior = bundle.priors[None, :]
    positive = prior + unary + quadratic > tie
    mirrored = prior - unary + quadratic > tie
    against = positive & (unary < -tie)
    size = np.abs(unary) + np.abs(quadratic)
    share = np.divide(np.abs(quadratic), size, out=np.zeros_like(size), where=size > 0)
    patients = np.repeat(np.array(cohort.patients, dtype=object), positive.shape[1])
    claim = "S above 0 says that the patient's profile supports the condition"

    def rate(
        name: str, words: str, hits: NDArray[np.bool_], among: NDArray[np.bool_], *, headline: bool = False
    ) -> Row:
        flat, kept = hits[among], patients[among.ravel()]
        low, high = share_interval(flat, kept, sampling) if len(kept) else (None, None)
        return point(
            name=name,
            claim=claim,
            claim_value=0.0,
            check=words,
            value=float(flat.mean()) if len(kept) else None,
            low=low,
            high=high,
            unit="rate",
            n=len(kept),
            holds=not bool(flat.any()) if len(kept) else None,
            pending="" if len(kept) else "patients with such a score",
            headline=headline,
        )

    every = np.ones_like(positive)
    return [
        rate(
            "against_unaries",
            "patients x entities: share with a negative unary sum and a positive S",
            against,
            every,
            headline=True,
        ),
        rate(
            "negative_sum_positive",
            "of those with a negative unary sum, share with a positive S",
            positive,
            unary < -tie,
        ),
        rate(
            "mirror",
            "of those with a positive S, share whose exact opposite -x has a positive S too",
            mirrored,
            positive,
        ),
        point(
            name="quadratic_share",
            claim=claim,
            check="mean share of the quadratic part, which is even in x, in |unary part| + |quadratic part|",
            value=float(share[size > 0].mean()) if (size > 0).any() else None,
            unit="rate",
            n=int((size > 0).sum()),
            pending="" if (size > 0).any() else "patients with a value that is not zero",
        ),
    ]


def score_parts(bundle: Bundle, values: NDArray[np.int8]) -> tuple[Floats, Floats]:
    """Unary and quadratic part of S_v(x), each (P, N) nats, of configurations `values` (P, M); priors left out."""
    x = values.astype(np.float64)
    unary = x @ bundle.unary.T
    quadratic = np.empty_like(unary)
    for v in range(len(bundle.entities)):
        row, column, value = bundle.packed.of(v)
        quadratic[:, v] = (x[:, row] * x[:, column]) @ value
    return unary, quadratic


def support_met(bundle: Bundle) -> list[Row]:
    """Item 17: how much of an entity's support a random order over all M features meets by t = 10."""
    point = partial(Row, item=17, label="tab:classification_with_llm")
    m = len(bundle.features)
    sizes = np.array([len(bundle.support(entity)) for entity in bundle.entities])
    drawn = min(BUDGET, m)
    claim = "the gain of an informed order at t = 10 shows what acquisition is worth"
    informed = np.minimum(sizes, drawn)
    met = sizes * drawn / m
    return [
        point(
            name="support_met",
            claim=claim,
            check=f"features of an entity's support among {drawn} drawn at random of {m}: expected, mean over entities",
            value=float(met.mean()),
            unit="count",
            n=len(sizes),
        ),
        point(
            name="support_informed",
            claim=claim,
            check=f"the same for an order that observes the support first: the lesser of {drawn} and its size, mean",
            value=float(informed.mean()),
            unit="count",
            n=len(sizes),
        ),
        point(
            name="support_missed",
            claim=claim,
            check=f"chance that {drawn} features drawn at random hold none of the support, mean over entities",
            value=float(hypergeom.pmf(0, m, sizes, drawn).mean()),
            unit="rate",
            n=len(sizes),
        ),
    ]


def structural_ties(bundle: Bundle, cohort: Cohort, printed_share: float) -> list[Row]:
    """Item 19: the share of duels tied at full observation, where all others are one-sided; and whether it is one."""
    unary, quadratic = score_parts(bundle, cohort.values)
    scores = bundle.priors[None, :] + unary + quadratic
    a, b = np.triu_indices(len(bundle.entities), 1)
    tie = tie_of([bundle.mrf(entity) for entity in bundle.entities])
    tied = np.abs(scores[:, a] - scores[:, b]) <= tie
    point = partial(Row, item=19, pending="" if tied.size else "bundles of two entities or more")
    of_patients = tied.mean(axis=1) if tied.size else np.zeros(0)
    spread = float(np.ptp(of_patients)) if tied.size else None
    return [
        point(
            name="structural_ties",
            label="supp:drop_pairs, eq:l1-bracket",
            claim="about 16 % of duels never reach a one-sided bracket",
            claim_value=printed_share,
            check="share of duels with D(x) = 0 at full observation; the budget is 0 there, so that no other is open",
            value=float(tied.mean()) if tied.size else None,
            unit="rate",
            n=int(tied.size),
        ),
        point(
            name="ties_by_patient",
            label="supp:drop_pairs",
            claim="the share of structural ties is a property of the entities",
            claim_value=0.0,
            check="largest less least share of tied duels of a patient, the entities being the same",
            value=spread,
            unit="gap",
            n=len(of_patients),
            holds=None if spread is None else spread <= NEAR,
        ),
    ]


def down_regulation(expression: CohortExpression | None) -> list[Row]:
    """Item 21: what a p-value two-sided about zero calls down, beside the one about the controls' centre."""
    point = partial(Row, item=21, label="eq:ternary-encoding", unit="rate")
    claim = "the encoding marks significant up- and down-regulation"
    if expression is None:
        return [point(name="lowest_written", claim=claim, check="", pending=NO_EXPRESSION, headline=True)]
    known = expression.values.to_numpy(dtype=np.float64)
    controls, patients = known[:, expression.is_control], known[:, ~expression.is_control]
    written, ours = written_code(expression), expression.code()
    lowest = patients < controls.min(axis=1, keepdims=True)
    above = patients >= np.median(controls, axis=1, keepdims=True)
    written_words, our_words = "p the share of controls of larger size, as printed", "the test about their centre (D1)"

    def share(name: str, check: str, hits: NDArray[np.bool_], *, waits_for: str = "", headline: bool = False) -> Row:
        value = float(hits.mean()) if hits.size else None
        pending = "" if hits.size else waits_for
        return point(name=name, claim=claim, check=check, value=value, n=hits.size, pending=pending, headline=headline)

    below_all = "values below all controls"
    called = share(
        "lowest_written",
        f"of {below_all}, share called down with {written_words}",
        written[lowest] < 0,
        waits_for=below_all,
        headline=True,
    )
    verdict = called.value > COIN if called.value is not None else None
    return [
        replace(called, claim_value=1.0, holds=verdict),
        share("lowest_centred", f"the same with {our_words}", ours[lowest] < 0, waits_for=below_all),
        share("down_written", f"share of patients x genes called down with {written_words}", written < 0),
        share("up_written", f"share called up with {written_words}", written > 0),
        share("down_centred", f"share called down with {our_words}", ours < 0),
        share("up_centred", f"share called up with {our_words}", ours > 0),
        share(
            "down_above_median",
            "of those called down as printed, share at or above the controls' median: their mean has outliers",
            above[written < 0],
            waits_for="values that are called down as printed",
        ),
        share("negative_values", "share of expression values below zero", known < 0),
    ]
