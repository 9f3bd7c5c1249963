"""Items 2, 3, 7, 8 and 9 as far as a bundle alone decides them: its entities before any observation, exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from afa.errors import InferenceError
from afa.experiments.errata.exact_entities import NO_LATTICE, TOO_LARGE, Halves, known
from afa.experiments.errata.rows import EXACT, Row
from afa.inference.exact import exact_expected_score
from afa.mrf import Evidence, Floats, PairwiseMRF

MEMORY_LIMIT = 1_000_000_000
"""Bytes of tables of one exact solve; where a model needs more the check is left pending."""
CLOSE = 0.1
"""An estimate on [-1, 1] that is farther than this from what it estimates, on average, does not estimate it."""


def bundle_sign(halves: Sequence[Halves]) -> list[Row]:
    """Items 2 and 9 on the bundle: the expected sign of S before any observation, and what `stack_a` says of it."""
    solved = [entity for entity in halves if entity.expected_sign is not None]
    exact, n = known([entity.expected_sign for entity in halves]), len(solved)
    distance = np.abs(np.array([entity.stack_a for entity in solved]) - exact)
    pending = "" if n else NO_LATTICE
    return [
        Row(
            item=2,
            name="sign_bundle",
            label="prop:mixture-mean",
            claim="the mixture of the two classes expects a sign of S of exactly zero",
            claim_value=0.0,
            check="entities of the bundle as elicited, mean absolute E_Q[sign S], exact",
            value=float(np.abs(exact).mean()) if n else None,
            unit="gap",
            n=n,
            holds=bool((np.abs(exact) <= EXACT).all()) if n else None,
            pending=pending,
        ),
        Row(
            item=9,
            name="stack_a_start",
            label="supp:saddle, eq:fsp",
            claim="stack-A estimates E_Q[sign S]",
            claim_value=0.0,
            check="before any observation, stack-A less exact E_Q[sign S], mean absolute difference over entities",
            value=float(distance.mean()) if n else None,
            unit="gap",
            n=n,
            holds=bool(distance.mean() <= CLOSE) if n else None,
            pending=pending,
        ),
        Row(
            item=9,
            name="expected_sign_start",
            label="supp:saddle",
            claim="stack-A estimates E_Q[sign S]",
            check="exact E_Q[sign S] before any observation, mean over entities",
            value=float(exact.mean()) if n else None,
            unit="gap",
            n=n,
            pending=pending,
        ),
    ]


def bundle_normalisers(halves: Sequence[Halves]) -> list[Row]:
    """Item 3 on the bundle: by how much the two classes' normalisers differ, and the posterior with them."""
    point = partial(Row, item=3, label="eq:Z0-eq-Z1, prop:calibration")
    log_odds = known([entity.log_odds for entity in halves])
    n = len(log_odds)
    claim = "the two half-potential models have one normaliser, so that sigma(S) is the posterior"
    gaps: list[tuple[str, str, str, Floats, Callable[[Floats], np.float64]]] = [
        (
            "bundle_mean",
            "entities of the bundle, mean absolute log Z_1 - log Z_0, exact",
            "nats",
            np.abs(log_odds),
            np.mean,
        ),
        ("bundle_least", "the same, least", "nats", np.abs(log_odds), np.min),
        ("bundle_largest", "the same, largest", "nats", np.abs(log_odds), np.max),
        (
            "bundle_posterior",
            "largest error of sigma(S) as posterior over all S, tanh(|log Z_1 - log Z_0| / 4), mean over entities",
            "gap",
            np.tanh(np.abs(log_odds) / 4),
            np.mean,
        ),
    ]
    return [
        point(
            name=name,
            claim=claim,
            claim_value=0.0,
            check=check,
            value=float(statistic(values)) if n else None,
            unit=unit,
            n=n,
            holds=bool((np.abs(log_odds) <= EXACT).all()) if n else None,
            pending="" if n else TOO_LARGE,
        )
        for name, check, unit, values, statistic in gaps
    ]


def kl_identity(halves: Sequence[Halves]) -> list[Row]:
    """Item 7: half the difference of the two KL divergences against E_Q[D], both exact, before any observation."""
    point = partial(Row, item=7, label="sec:pref_scores, eq:f1-criterion")
    claim = "E_Q[D_ab] is half of KL(p_a, p_b) less KL(p_b, p_a)"
    solved = [entity for entity in halves if entity.log_z is not None]
    cross = _cross_expectations([entity.score for entity in solved])
    if cross is None or len(solved) < 2:
        return [point(name="log_z_spread", claim=claim, check="", unit="nats", pending=TOO_LARGE, headline=True)]
    log_z = known([entity.log_z for entity in solved])
    a, b = np.triu_indices(len(solved), 1)
    own = np.diag(cross)
    expected = 0.5 * (own[a] - cross[a, b] + cross[b, a] - own[b])
    forward = own[a] - cross[a, b] - log_z[a] + log_z[b]
    backward = own[b] - cross[b, a] - log_z[b] + log_z[a]
    difference = expected - 0.5 * (forward - backward)
    opposite = np.sign(expected) * np.sign(0.5 * (forward - backward)) < 0
    holds = bool((np.abs(difference) <= EXACT * np.abs(expected).max(initial=1.0)).all())
    return [
        point(
            name="log_z_spread",
            claim=f"{claim}, which needs one normaliser for all entities",
            claim_value=0.0,
            check="exact log Z of the entities over all features, largest less least",
            value=float(np.ptp(log_z)),
            unit="nats",
            n=len(solved),
            holds=bool(np.ptp(log_z) <= EXACT * np.abs(log_z).max()),
            headline=True,
        ),
        point(
            name="identity_gap",
            claim=claim,
            claim_value=0.0,
            check="the two sides before any observation, both exact, mean absolute difference over duels",
            value=float(np.abs(difference).mean()),
            unit="nats",
            n=len(a),
            holds=holds,
        ),
        point(
            name="opposite_sign",
            claim=claim,
            claim_value=0.0,
            check="share of duels in which the two sides have opposite signs",
            value=float(opposite.mean()),
            unit="rate",
            n=len(a),
            holds=not opposite.any(),
        ),
    ]


def _cross_expectations(models: Sequence[PairwiseMRF]) -> Floats | None:
    scores = [Evidence.of(model) for model in models]
    try:
        rows = [exact_expected_score(model, None, scores, memory_limit=MEMORY_LIMIT) for model in models]
    except InferenceError:
        return None
    return np.array(rows)


def two_elbo_target(halves: Sequence[Halves]) -> list[Row]:
    """Item 8: is F_1 - F_0 an estimate of E_Q[S]? Both before any observation."""
    point = partial(Row, item=8, label="tab:mode-mapping, eq:two-elbo-def")
    claim = "F_1 - F_0 estimates E_Q[S]"
    solved = [entity for entity in halves if entity.expected is not None]
    n = len(solved)
    exact = known([entity.expected for entity in halves])
    approximate = np.array([entity.expected_mean_field for entity in halves])
    raw = np.array([entity.one.elbo - entity.zero.elbo for entity in halves])
    distance = np.array([entity.one.elbo - entity.zero.elbo for entity in solved]) - exact
    return [
        point(
            name="expected_exact",
            claim=f"{claim}; calibrated it is 0 before any observation",
            claim_value=0.0,
            check="exact E_Q[S] before any observation, where the calibrated log-odds are 0 for every entity; mean",
            value=float(exact.mean()) if n else None,
            unit="nats",
            n=n,
            holds=bool((np.abs(exact) <= EXACT).all()) if n else None,
            pending="" if n else NO_LATTICE,
            headline=True,
        ),
        point(
            name="expected_mean_field",
            claim=f"{claim}; calibrated it is 0 before any observation",
            claim_value=0.0,
            check="the same by mean-field, mean over entities",
            value=float(approximate.mean()),
            unit="nats",
            n=len(halves),
            holds=bool((np.abs(approximate) <= EXACT).all()),
        ),
        point(
            name="raw_two_elbo",
            claim=claim,
            check="F_1 - F_0 before any observation, not calibrated, mean over entities",
            value=float(raw.mean()),
            unit="nats",
            n=len(halves),
        ),
        point(
            name="raw_gap",
            claim=claim,
            claim_value=0.0,
            check="F_1 - F_0, not calibrated, less exact E_Q[S], mean absolute difference over entities",
            value=float(np.abs(distance).mean()) if n else None,
            unit="nats",
            n=n,
            holds=bool((np.abs(distance) <= CLOSE * np.abs(exact)).all()) if n else None,
            pending="" if n else NO_LATTICE,
        ),
    ]
