"""All errata that are computed from a bundle and a cohort. This module checks the bundle before any observation.

Items 2, 3, 5, 7 to 9, 13, 17 and 20; of item 13 also what holds of random intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import hypergeom

from afa.bundle import Bundle
from afa.checks.errata import (
    EXACT,
    NEAR,
    Printed,
    Row,
    all_zero,
    frame_of,
    measured,
    patients,
    rate,
    small,
    some_of,
    vanishes,
)
from afa.checks.errata.patients import ENTRY_LIMIT, TOO_LARGE, CohortExpression
from afa.closure import contraction, half_potentials
from afa.cohort.cohort import Cohort
from afa.engine.elimination import log_partitions, score_distribution
from afa.errors import InferenceError
from afa.inference.exact import exact_expected_score
from afa.inference.meanfield import Solver, mean_field, ternary_moments
from afa.mrf import Evidence, Floats, PairwiseMRF
from afa.orders import generator_of
from afa.preference import stack_a

NO_LATTICE = (
    "exact distributions of S, for which no entity of this bundle is small enough or has potentials of one step"
)
MEMORY_LIMIT = 1_000_000_000
"""Bytes of tables of one exact solve; where a model needs more the check is left pending."""
CLOSE = 0.1
"""An estimate on [-1, 1] that is farther than this from what it estimates, on average, does not estimate it."""
BUDGET = 10
N, SMALL_K, LARGE_K = 6, 2, 5
"""Entities of a random set of intervals, and a k below and above one half of them."""
NONE_BEATEN = "sets in which an entity is beaten for certain"


def solve_entities(bundle: Bundle, solver: Solver, *, threads: int | None = 1) -> pd.DataFrame:
    """Every entity before any observation, in its order: its score S and its two half-potential classes p_1 and p_0.

    score : the model of S. two_elbo : difference of the ELBOs of the classes. stack_a : the Gaussian estimate of
    E_Q[sign S]. log_z, log_odds : exact log Z_v over all M features and log Z_1 - log Z_0, missing where exact
    inference is too large. expected, expected_sign : exact E_Q[S] and E_Q[sign S], missing where S has no distribution
    on a lattice either. All numbers in nats.
    """
    rows = []
    for score in map(bundle.mrf, bundle.entities):
        classes = half_potentials(score)
        one, zero = (mean_field(model, solver=solver) for model in classes)
        sign = float(stack_a([Evidence.of(model) for model in classes], [one.marginals, zero.marginals])[0, 1])
        found = {"score": score, "two_elbo": one.elbo - zero.elbo, "stack_a": sign}
        rows.append(found)
        nothing, factors = np.zeros((1, score.n_features), dtype=np.int8), (1.0, 0.5, -0.5)
        with suppress(InferenceError):  # what is not known is left out of each check, which counts what it has
            log_z = log_partitions(score, nothing != 0, nothing, factors=factors, limit=ENTRY_LIMIT, threads=threads)[0]
            found |= {"log_z": float(log_z[0]), "log_odds": float(log_z[1] - log_z[2])}
            law = score_distribution(score, limit=ENTRY_LIMIT, threads=threads)
            found |= {"expected": law.expected_score, "expected_sign": law.expected_sign}
    names = ["score", "two_elbo", "stack_a", "log_z", "log_odds", "expected", "expected_sign"]
    return pd.DataFrame(rows, columns=names).astype(dict.fromkeys(names[1:], "float64"))


def chosen_duels(bundle: Bundle, most: int) -> list[tuple[PairwiseMRF, PairwiseMRF]]:
    """The two models of at most `most` duels, those whose names have the lowest hash, in bundle order."""
    pairs, models = list(combinations(bundle.entities, 2)), {entity: bundle.mrf(entity) for entity in bundle.entities}
    chosen = some_of([f"{a}\0{b}" for a, b in pairs], most, "duel")
    return [(models[a], models[b]) for a, b in (pairs[place] for place in chosen)]


def halved_contraction(bundle: Bundle, most_duels: int, solver: Solver) -> list[Row]:
    """Item 5: what halving does for the solves, sign by sign, and whether anything contracts."""
    scores = [bundle.mrf(entity) for entity in bundle.entities]
    differences = [a - b for a, b in chosen_duels(bundle, most_duels)]
    capped, betas = list[Row](), list[Row]()
    for kind, prefix, models in (("entities", "", scores), ("duels", "duels_", differences)):
        for sign, factor in (("plus", 1.0), ("minus", -1.0)):
            whole, half = (
                float(np.mean([not mean_field(model.scaled(part), solver=solver).converged for model in models]))
                for part in (factor, factor / 2)
            )
            capped.append(Row(5, f"capped_{prefix}{sign}", whole, n=len(models)))
            capped.append(Row(5, f"capped_{prefix}half_{sign}", half, whole, n=len(models), holds=half <= whole))
        beta = np.array([contraction(model) for model in models])
        betas += [
            measured(5, f"beta_{kind}_{name}", beta / share, statistic, claim=claimed)
            for name, share, statistic, claimed in (
                ("least", 1, np.min, 6.0),
                ("largest", 1, np.max, 20.0),
                ("halved_least", 2, np.min, 3.0),
                ("halved_largest", 2, np.max, 10.0),
            )
        ]
    return [*capped, Row(5, "slope", largest_slope(), 1.0), *betas]


def largest_slope() -> float:
    """Largest derivative of the ternary moment map, the variance q - m^2, over fields from -20 to 20."""
    m, q = ternary_moments(np.linspace(-20, 20, 4001))
    return float((q - m * m).max())


def bundle_sign(halves: pd.DataFrame) -> list[Row]:
    """Items 2 and 9 on the bundle: the expected sign of S before any observation, and what `stack_a` says of it."""
    solved = halves.dropna(subset="expected_sign")
    exact = solved["expected_sign"].to_numpy()
    distance = solved["stack_a"].to_numpy() - exact
    return [
        vanishes(2, "sign_bundle", np.abs(exact), pending=NO_LATTICE),
        vanishes(9, "stack_a_start", np.abs(distance), holds=lambda each: each.mean() <= CLOSE, pending=NO_LATTICE),
        measured(9, "expected_sign_start", exact, pending=NO_LATTICE),
    ]


def bundle_normalisers(halves: pd.DataFrame) -> list[Row]:
    """Item 3 on the bundle: by how much the two classes' normalisers differ, and the posterior with them."""
    log_odds = halves["log_odds"].dropna().abs().to_numpy()
    return [
        vanishes(3, name, values, statistic, holds=lambda _: all_zero(log_odds), pending=TOO_LARGE)
        for name, values, statistic in (
            ("bundle_mean", log_odds, np.mean),
            ("bundle_least", log_odds, np.min),
            ("bundle_largest", log_odds, np.max),
            ("bundle_posterior", np.tanh(log_odds / 4), np.mean),
        )
    ]


def kl_identity(halves: pd.DataFrame) -> list[Row]:
    """Item 7: half the difference of the two KL divergences against E_Q[D], both exact, before any observation."""
    solved, cross = halves.dropna(subset="log_z"), None
    models, log_z = solved["score"].tolist(), solved["log_z"].to_numpy()
    scores = [Evidence.of(model) for model in models]
    with suppress(InferenceError):
        cross = np.array([exact_expected_score(model, None, scores, memory_limit=MEMORY_LIMIT) for model in models])
    if cross is None or len(models) < 2:
        return [Row(7, "log_z_spread", pending=TOO_LARGE)]
    a, b = np.triu_indices(len(models), 1)
    own = np.diag(cross)
    expected = 0.5 * (own[a] - cross[a, b] + cross[b, a] - own[b])
    forward = own[a] - cross[a, b] - log_z[a] + log_z[b]
    backward = own[b] - cross[b, a] - log_z[b] + log_z[a]
    gap = np.abs(expected - 0.5 * (forward - backward))
    opposite = np.sign(expected) * np.sign(0.5 * (forward - backward)) < 0
    spread, most = float(np.ptp(log_z)), EXACT * np.abs(expected).max(initial=1.0)
    one_normaliser = bool(spread <= EXACT * np.abs(log_z).max())
    return [
        Row(7, "log_z_spread", spread, 0.0, n=len(models), holds=one_normaliser),
        vanishes(7, "identity_gap", gap, holds=lambda each: (each <= most).all()),
        rate(7, "opposite_sign", opposite),
    ]


def two_elbo_target(halves: pd.DataFrame) -> list[Row]:
    """Item 8: E_Q[S] and l-hat = log Z_1 - log Z_0, both exact and not shifted, before any observation."""
    solved = halves.dropna(subset="expected")
    expected, log_odds = solved["expected"].to_numpy(), solved["log_odds"].to_numpy()
    difference = expected - log_odds
    close = CLOSE * np.abs(expected) + EXACT
    return [
        measured(8, "expected_score", expected, pending=NO_LATTICE),
        measured(8, "log_odds", log_odds, pending=NO_LATTICE),
        vanishes(8, "difference", difference, holds=lambda each: (np.abs(each) <= close).all(), pending=NO_LATTICE),
        measured(8, "difference_least", difference, np.min, pending=NO_LATTICE),
        measured(8, "difference_largest", difference, np.max, pending=NO_LATTICE),
        measured(8, "two_elbo", halves["two_elbo"]),
    ]


def nothing_observed(bundle: Bundle) -> list[Row]:
    """Item 13: whom the profile of zeros lets win."""
    a, b = np.triu_indices(len(bundle.entities), 1)
    decided = np.abs(bundle.priors[a] - bundle.priors[b]) > EXACT
    return [measured(13, "decided_at_zero", decided)]


def support_met(bundle: Bundle) -> list[Row]:
    """Item 17: how much of an entity's support a random order over all M features meets by t = 10."""
    m = len(bundle.features)
    sizes = np.array([len(bundle.support(entity)) for entity in bundle.entities])
    drawn = min(BUDGET, m)
    return [
        measured(17, "support_met", sizes * drawn / m),
        measured(17, "support_informed", np.minimum(sizes, drawn)),
        measured(17, "support_missed", hypergeom.pmf(0, m, sizes, drawn)),
    ]


def pooled_start(bundle: Bundle, solver: Solver, most_duels: int) -> list[Row]:
    """Item 20: how two gauges correlate over duels with nothing observed, where no patient enters."""
    duels = chosen_duels(bundle, most_duels)
    entities = {id(model): model for duel in duels for model in duel}
    own = {key: mean_field(model, solver=solver).elbo for key, model in entities.items()}
    values = []
    for a, b in duels:
        one, zero = (mean_field(model, solver=solver).elbo for model in half_potentials(a - b))
        values.append((one - zero, own[id(a)] - own[id(b)]))
    closed, true = np.array(values, dtype=np.float64).reshape(-1, 2).T
    if len(closed) <= 2 or np.ptp(closed) <= EXACT or np.ptp(true) <= EXACT:
        waits_for = "duels whose two_elbo differs before any observation"
        return [Row(20, "pooled_start", claim_value=0.0, n=len(closed), pending=waits_for)]
    correlation = float(np.corrcoef(closed, true)[0, 1])
    return [Row(20, "pooled_start", correlation, 0.0, n=len(closed), holds=abs(correlation) <= NEAR)]


def enough_better(sets: int) -> list[Row]:
    """Item 13: certificates by `k` and by `N - k` dominating entities, on random sets of sound intervals."""
    intervals = [random_intervals(index) for index in range(sets)]
    dominators = np.array([dominating(low, high) for low, high in intervals])
    small, large = (np.array([in_top_k(low, high, k) for low, high in intervals]) for k in (SMALL_K, LARGE_K))
    by_k, by_rest = dominators >= SMALL_K, dominators >= N - LARGE_K
    return [
        rate(13, "kept_needlessly", dominators[by_k] < N - SMALL_K, pending=NONE_BEATEN),
        rate(13, "k_is_enough", small[by_k], pending=NONE_BEATEN),
        rate(13, "above_one_half", large[by_rest], pending=NONE_BEATEN),
    ]


def random_intervals(index: int) -> tuple[Floats, Floats]:
    """Low and high ends of N sound intervals, each (N,); some overlap and some do not."""
    generator = generator_of("errata", "intervals", index)
    centre, radius = generator.standard_normal(N), generator.exponential(0.4, N)
    return centre - radius, centre + radius


def dominating(low: Floats, high: Floats) -> NDArray[np.intp]:
    """(N,) how many others are better than each entity in every completion."""
    counts: NDArray[np.intp] = (low[None, :] > high[:, None]).sum(axis=1)
    return counts


def in_top_k(low: Floats, high: Floats, k: int) -> NDArray[np.bool_]:
    """(N,) whether an entity is among the k best of some completion; every score is tried at both of its ends.

    The ends are enough: an entity stands highest when its own score is at its high end and the others at their low.
    """
    ends = np.stack([low, high])
    found = np.zeros(len(low), dtype=bool)
    for choice in product((0, 1), repeat=len(low)):
        scores = ends[list(choice), np.arange(len(low))]
        better = (scores[None, :] > scores[:, None]).sum(axis=1)
        found |= better < k
    return found


@dataclass(frozen=True)
class Extent:
    """How many cases each check takes; all are drawn from hashes of names.

    models : small random models of each kind, density and size. class_pairs : random pairs of class models of each
    kind. gauge_models : those of the models, about, that are put into another gauge. intervals : random sets of
    intervals. entities, duels : the most of a bundle that is looked at. exact_states : states of one patient and entity
    with exact log Z. duel_states : states of one patient in which every duel is read. patients : the most whose sign
    votes are counted.
    """

    models: int = 20
    class_pairs: int = 5000
    gauge_models: int = 160
    intervals: int = 400
    entities: int = 40
    duels: int = 300
    exact_states: int = 240
    duel_states: int = 40
    patients: int = 20


def computed_errata(
    bundle: Bundle,
    cohort: Cohort,
    *,
    paper: Mapping[str, pd.DataFrame],
    expression: CohortExpression | None = None,
    solver: Solver | None = None,
    extent: Extent | None = None,
    threads: int | None = 1,
) -> pd.DataFrame:
    """The items of docs/errata.md that are worked out on a bundle and a cohort, without any stage's numbers.

    bundle : of two entities or more. paper : the tables of resources/paper by file name without its ending.
    expression : what the cohort was encoded from, where it is at hand.

    Raises
    ------
    ConfigError : a number of the paper's tables is missing.

    """
    solver, extent = solver or Solver(), extent or Extent()
    some = some_of(bundle.entities, extent.entities, "entity")
    bundle = bundle.restrict_entities([bundle.entities[v] for v in some])
    models = small.random_models(extent.models)
    spread = max(1, len(models) // max(1, extent.gauge_models))
    halves = solve_entities(bundle, solver, threads=threads)
    biases = patients.biases(bundle, cohort, solver, extent.exact_states, threads=threads)
    drawn = patients.random_states(cohort, extent.duel_states, purpose="duels")
    read = patients.duel_readings(bundle, cohort, drawn, solver)
    rows = [
        *small.maximum_entropy(models),
        *small.unbiased_start(models),
        *small.equal_normalisers(models),
        *small.dropped_normaliser(extent.class_pairs),
        *small.outside_the_union(solver),
        *small.common_gauge([model for model in models[::spread] if model.varies], solver),
        *enough_better(extent.intervals),
        *bundle_sign(halves),
        *bundle_normalisers(halves),
        *halved_contraction(bundle, extent.duels, solver),
        *kl_identity(halves),
        *two_elbo_target(halves),
        *pooled_start(bundle, solver, extent.duels),
        *nothing_observed(bundle),
        *support_met(bundle),
        *patients.two_elbo_bias(biases),
        *patients.expected_duel(read),
        *patients.same_sign(read),
        *patients.opposite_profile(bundle, cohort),
        *patients.doubled_couplings(read),
        *patients.vote_for_neither(bundle, cohort, solver, extent.patients),
        *patients.structural_ties(bundle, cohort, Printed(paper).claim("c300") / 100),
        *patients.down_regulation(expression),
    ]
    return frame_of(rows)
