"""Patients followed under one way of choosing features in the top-k setting: what is right after each, and when enough.

The numbers are those of a `TopKPlanner` that is asked and told until everything has been measured. Ways guided by
`linearity` are followed by the compiled engine; other scores, custom rules, rules that have costs to weigh and
bundles that say how often, by the planner itself, which takes more than ten times as long. Random orders look at no
costs. What of a patient was not measured is never asked for (docs/decisions.md, F8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from afa.engine.duels import all_pairs
from afa.engine.ranks import name_places, ranks_of
from afa.engine.rounds import Outcomes, follow_rule, full_observation
from afa.engine.rules import COMPILED, NONE
from afa.engine.run import MISSING
from afa.evaluate.accuracy import overlap, precisions_by_prevalence
from afa.evaluate.cubes import UNIT
from afa.evaluate.resampling import first_where
from afa.evaluate.topk import Targets, clinical_k
from afa.inference.meanfield import Solver
from afa.model.bundle import Bundle
from afa.model.closure import Closure
from afa.model.mrf import Floats
from afa.model.orders import random_orders
from afa.model.rule_names import WITHOUT_GAIN
from afa.planner import Planner, TopKPlanner
from afa.planner.menu import measurements_of
from afa.planner.options import BACKGROUND, FRONTIER
from afa.planner.rules.check import rule_of

AnyPlanner = TypeVar("AnyPlanner", bound=Planner)

CHOOSES_WITHOUT_GAIN = (*WITHOUT_GAIN, "random_own", FRONTIER)
DRAWN = ("random", "random_own")
IN_UNITS = ("p_at_k", "label_p_at_k", "label_r_precision")
"""Metrics whose sums are in whole numbers of 1 / `UNIT`, so that they are exact in any order of adding up."""

MOST_BUDGETS = 100
"""Budgets at which curves by cost are read, at most, beside 0 and the whole cost."""
BLOCK = 128
"""Patients that are followed at a time."""
NEARLY = (19, 20)
"""Nearly as accurate as in the end: 95 %, as whole numbers."""


class Way(NamedTuple):
    """One way to choose features: a rule, the gain it looks at ("" where none), the score that guides and is read."""

    allocation: str
    gain: str
    score: str


@dataclass(frozen=True, kw_only=True)
class SimulationSetting:
    """What is asked of all patients, and how.

    k, entity : the size of the top set, or the one entity that is asked for. coupling, holds, tau : as of the planners.
    background : maps the name of a patient to the option of that name; None for what the bundle states.
    costs : `own`, those of the bundle, which rules weigh gains by, or `equal`. seeds : of orders drawn at random, each
    followed once. resamples, confidence : of the intervals. solver : of the mean-field iteration. threads : they change
    no number.
    """

    k: int = 1
    entity: str | None = None
    coupling: Closure | None = None
    holds: str | None = None
    tau: float | str | None = None
    background: Callable[[str], Any] | None = None
    costs: str = "own"
    seeds: Sequence[int] = (0,)
    resamples: int = 1000
    confidence: float = 0.95
    solver: Solver = field(default_factory=Solver)
    threads: int = 1

    @property
    def explicit(self) -> bool:
        """Whether the classes are as the bundle states them, where the coupling is known."""
        return self.coupling == "explicit"


class Walk(NamedTuple):
    """What one run shows of B patients, t from 0 to M.

    parts : by metric, how much is right, and of how much; (B, M + 1), or (B, 1) where t does not matter.
    needed : by criterion and what is counted, (B,) the features, or where they differ in cost the units of cost too,
    after which it holds for good; inf where never, NaN where it has no meaning.
    scores : (B, M + 1) the score itself where there is one number a patient.
    spent : (B, M + 1) what the features up to t cost; None where costs do not differ.
    """

    parts: Mapping[str, tuple[Floats, Floats]]
    needed: Mapping[tuple[str, str], Floats]
    scores: Floats | None = None
    spent: Floats | None = None


Paths = tuple[NDArray[np.int64], Floats, NDArray[np.int64], NDArray[np.bool_]]
"""Of B patients: the order chosen (B, M); duels called right (B, M + 1), the place of each entity (B, M + 1, N), and
whether the top k is certified (B, M + 1), by t from 0 to M."""


class Seen(NamedTuple):
    """A block of patients, what is true of them at full observation, and their places in the cohort."""

    names: Sequence[str]
    values: NDArray[np.int8]
    rows: slice
    truth: Outcomes
    targets: Targets


@dataclass(frozen=True, eq=False, kw_only=True)
class Asked:
    """What is asked of P patients, values (P, M), labels (P, ...) in {0, 1, NaN}: `TopKTask` or `BinaryTask`."""

    bundle: Bundle
    patients: Sequence[str]
    values: NDArray[np.int8]
    labels: Floats
    setting: SimulationSetting

    @property
    def blocks(self) -> list[slice]:
        """The patients, some at a time."""
        return [slice(first, first + BLOCK) for first in range(0, len(self.patients), BLOCK)]


@dataclass(frozen=True, eq=False, kw_only=True)
class TopKTask(Asked):
    """The k most supported entities of P patients, labels (P, N); and what needs no observation."""

    @cached_property
    def k_labels(self) -> int:
        """The size of the top set among the labelled entities (decisions.md S10)."""
        return clinical_k(self.labels, self.setting.k)

    @cached_property
    def usual(self) -> tuple[NDArray[np.int8], list[int]]:
        """(Q,) the winner of each duel in most patients, and the entities that are most often among the k best."""
        counts = [
            (seen.truth.winner.sum(axis=0, dtype=np.int64), (2 * seen.targets.sure + seen.targets.tied).sum(axis=0))
            for seen in map(self.look, self.blocks)
        ]
        wins, often = (np.sum(column, axis=0) for column in zip(*counts, strict=True))
        entities = self.bundle.entities
        top = sorted(range(len(entities)), key=lambda v: (-often[v], entities[v]))[: self.setting.k]
        return np.where(wins >= 0, 1, -1).astype(np.int8), top

    def look(self, rows: slice) -> Seen:
        """A block of patients; where the bundle does not say how often, a value that is missing adds nothing, as 0."""
        values = self.values[rows]
        if self.setting.explicit:
            truth = planned_truth(values, [self._planner(Way("random", "", "two_elbo")) for _ in values])
        else:
            truth = full_observation(self.bundle, np.where(values == MISSING, 0, values), solver=self.setting.solver)
        targets = Targets.of(truth, self.labels[rows], self.setting.k, self.k_labels)
        return Seen(self.patients[rows], values, rows, truth, targets)

    def constant(self, seen: Seen) -> Walk:
        """What constant answers have right: each duel's usual winner, the usual top k, the order by prevalence."""
        (majority, usual), known = self.usual, seen.truth.winner != 0
        right = ((seen.truth.winner == majority) & known).sum(axis=1, keepdims=True).astype(np.float64)
        top = (2 * seen.targets.sure + seen.targets.tied).astype(np.int8)
        shares = {"p_at_k": overlap(top, usual, self.setting.k) / self.setting.k}
        of_labels = precisions_by_prevalence(self.labels, self.k_labels) if self.k_labels else {}
        shares |= {f"label_{metric}": share[seen.rows] for metric, share in of_labels.items()}
        parts = {"sign_accuracy": (right, known.sum(axis=1, keepdims=True).astype(np.float64))}
        return Walk(parts | {metric: _share_part(share[:, None]) for metric, share in shares.items()}, {})

    def walk(self, seen: Seen, way: Way, seed: int, tick: Callable[[int], None]) -> Walk:
        """Follow a block of patients to the end; `tick` is called with how many are done."""
        compiled = is_compiled(self.bundle, way, self.setting)
        paths = self._compiled(seen, way, seed) if compiled else self._planned(seen, way, seed, tick)
        order, right, place, certified = paths
        if compiled:
            tick(len(seen.names))
        shares = seen.targets.precisions(place.astype(np.int16), self.setting.threads)
        won = (seen.truth.winner != 0).sum(axis=1, keepdims=True).astype(np.float64)
        rank = place * len(self.bundle.entities) + name_places(self.bundle.entities)
        inside = np.argsort(np.argsort(rank, axis=2), axis=2) < self.setting.k
        ended, needed = ends((inside != inside[:, -1:]).any(axis=2), certified)
        parts = {"sign_accuracy": (right, won), "p_at_k": _share_part(shares["p_at_k"]), **ended}
        if self.k_labels:
            parts["label_p_at_k"] = _share_part(shares["clinical_p_at_k"])
            parts["label_r_precision"] = _share_part(shares["clinical_r_precision"])
        part, whole = NEARLY
        below = whole * right < part * right[:, -1:]
        needed["sign_95"] = np.where(won[:, 0] > 0, rounds_until(below), np.nan)
        spent = spent_along(order, prices_of(self.bundle, self.setting))
        return Walk(parts, with_costs(needed, spent), spent=spent)

    def _compiled(self, seen: Seen, way: Way, seed: int) -> Paths:
        bundle, orders = self.bundle, None
        if way.allocation == "random":
            orders = measured_first(random_orders(bundle.features, seen.names, [seed])[:, 0], seen.values)
        paths = follow_rule(
            bundle,
            seen.values,
            seen.truth,
            allocation=way.allocation,
            gain=way.gain or None,
            target="linearity" if way.gain == "f_target" else None,
            orders=orders,
            k=self.setting.k,
            solver=self.setting.solver,
            threads=self.setting.threads,
        )
        right = paths.right[:, :, 0, 0].astype(np.float64)
        return paths.order, right, paths.place[:, :, 0].astype(np.int64), paths.certified

    def _planned(self, seen: Seen, way: Way, seed: int, tick: Callable[[int], None]) -> Paths:
        pairs = all_pairs(len(self.bundle.entities))

        def read(planner: TopKPlanner, patient: int) -> tuple[Any, ...]:
            (scores, place), winner = ranked(planner), seen.truth.winner[patient]
            calls = np.sign(scores[pairs[:, 0], pairs[:, 1]])
            return (0.5 * (1 + calls * winner))[winner != 0].sum(), place, planner.certified()

        planners = (self._planner(way, name, seed) for name in seen.names)
        order, right, place, certified = planned(planners, seen.values, read, tick=tick)
        return order[:, 1:], right, place, certified

    def _planner(self, way: Way, name: str = "", seed: int = 0) -> TopKPlanner:
        return planner_of(self.bundle, way, self.setting, patient=name, seed=seed)

    check = _planner
    """A `PlannerError`, or the `ConfigError` of a custom rule, where no planner goes this way."""


def is_compiled(bundle: Bundle, way: Way, setting: SimulationSetting) -> bool:
    """Whether the compiled engine follows this way; else the planner itself does."""
    known = way.score == "linearity" and way.allocation in COMPILED
    return known and not weighs_items(bundle, way, setting) and not setting.explicit


def weighs_items(bundle: Bundle, way: Way, setting: SimulationSetting) -> bool:
    """Whether a rule looks at costs, or at measurements that several features come from."""
    return way.allocation not in DRAWN and (prices_of(bundle, setting) is not None or bool(measurements_of(bundle)))


def told(planner: AnyPlanner, values: NDArray[np.int8]) -> AnyPlanner:
    """The planner, once it has been told all that was measured of a patient, values (M,)."""
    if known := {planner.bundle.features[j]: int(values[j]) for j in np.flatnonzero(values != MISSING)}:
        planner.observe_all(known)
    return planner


def steps(planner: Planner, values: NDArray[np.int8], order: NDArray[np.int64] | None = None) -> Iterator[int]:
    """Ask and tell a planner until all is known of a patient, values (M,); M + 1 times what was told last, or -1.

    order : what it is given instead of what it asks for, as long as it may be asked for.
    """
    features = planner.bundle.features
    for j in np.flatnonzero(values == MISSING):
        planner.skip(features[j])
    place = {feature: j for j, feature in enumerate(features)}
    given = iter([] if order is None else [features[j] for j in order if values[j] != MISSING])
    yield NONE
    for _ in features:
        feature = planner.next_feature() if order is None else next(given, None)
        if feature is None:
            yield NONE
            continue
        planner.observe(feature, int(values[place[feature]]))
        yield place[feature]


def planned(
    planners: Iterable[AnyPlanner],
    values: NDArray[np.int8],
    read: Callable[[AnyPlanner, int], tuple[Any, ...]],
    orders: NDArray[np.int64] | None = None,
    tick: Callable[[int], None] = lambda _: None,
) -> list[NDArray[Any]]:
    """Follow B patients, values (B, M), by a planner each: arrays (B, M + 1, ...) by t, from 0 to M.

    The first is the feature that was told last, -1 for none; then come the numbers of `read`, given a planner and the
    place of its patient. orders : (B, M) what planners are given; they choose unless it is. tick : as of `simulate`.
    """
    seen: list[list[tuple[Any, ...]]] = []
    for patient, planner in enumerate(planners):
        way = steps(planner, values[patient], None if orders is None else orders[patient])
        seen.append([(feature, *read(planner, patient)) for feature in way])
        tick(1)
    return [np.array([[found[field] for found in rounds] for rounds in seen]) for field in range(len(seen[0][0]))]


def ranked(planner: TopKPlanner, score: str | None = None) -> tuple[Floats, NDArray[np.int64]]:
    """A score (N, N) of a planner, the guiding one unless given, and (N,) how many entities are ahead of each by it."""
    scores, entities = planner.scores_by(score or planner.guide), planner.bundle.entities
    ranks = ranks_of(scores, np.arange(len(entities)), name_places(entities), planner._state.packed.tie)
    return scores, ranks.place


def planned_truth(values: NDArray[np.int8], planners: Sequence[TopKPlanner]) -> Outcomes:
    """What planners, one a patient, answer at all that was measured of P patients, values (P, M)."""
    answers = [ranked(told(planner, row)) for planner, row in zip(planners, values, strict=True)]
    scores, places = (np.array(part) for part in zip(*answers, strict=True))
    a, b = all_pairs(places.shape[1]).T
    winner = np.sign(scores[:, a, b]).astype(np.int8)
    return Outcomes(winner, places, np.zeros(winner.shape[1:], dtype=np.int8))


def measured_first(orders: NDArray[np.int64], values: NDArray[np.int8]) -> NDArray[np.int64]:
    """Orders (B, M) with what was not measured of each patient, values (B, M), at the end."""
    missing = np.take_along_axis(values == MISSING, orders, axis=1)
    return np.take_along_axis(orders, np.argsort(missing, axis=1, kind="stable"), axis=1)


def planner_of(
    bundle: Bundle, way: Way, setting: SimulationSetting, *, patient: str = "", seed: int = 0
) -> TopKPlanner:
    """A planner that goes this way; a `PlannerError`, or the `ConfigError` of a custom rule, where none does."""
    believes = setting.background is not None and (way.score == BACKGROUND or way.allocation == FRONTIER)
    return TopKPlanner(
        bundle,
        k=setting.k,
        score=way.score,
        gain=way.gain or "wald_magnitude",
        allocation=rule_of(way.allocation)() if ":" in way.allocation else way.allocation,
        solver=setting.solver,
        costs="equal" if prices_of(bundle, setting) is None or way.allocation in DRAWN else None,
        patient=patient,
        seed=seed,
        coupling=setting.coupling,
        holds=setting.holds,
        tau=setting.tau,
        background=setting.background(patient) if setting.background is not None and believes else None,
    )


def prices_of(bundle: Bundle, setting: SimulationSetting) -> Floats | None:
    """(M,) what the features cost; None where that is left aside, or they cost the same, so that none is weighed."""
    if setting.costs == "equal" or bundle.costs is None or bool((bundle.costs == bundle.costs[0]).all()):
        return None
    return bundle.costs


def spent_along(order: NDArray[np.int64], prices: Floats | None) -> Floats | None:
    """(B, M + 1) what the first t features of orders (B, M) cost, -1 standing for none; None without prices."""
    if prices is None:
        return None
    paid = np.where(order == NONE, 0.0, prices[order])
    return np.concatenate([np.zeros((len(order), 1)), np.cumsum(paid, axis=1)], axis=1)


def with_costs(needed: Mapping[str, Floats], spent: Floats | None) -> dict[tuple[str, str], Floats]:
    """What each criterion needs, (B,) rounds, and if there is what was spent by t, (B, M + 1), the cost of these."""
    every = {(criterion, "features"): rounds for criterion, rounds in needed.items()}
    if spent is None:
        return every
    for criterion, rounds in needed.items():
        reached = np.isfinite(rounds)
        last = np.where(reached, rounds, 0).astype(np.int64)
        every[criterion, "cost"] = np.where(reached, spent[np.arange(len(spent)), last], rounds)
    return every


def budgets_of(prices: Floats) -> Floats:
    """(C,) the budgets that curves by cost have: 0, multiples of the smallest price, and the price of all features.

    Where these would be more than `MOST_BUDGETS`, every second one, or third, and so on.
    """
    total, smallest = float(prices.sum()), float(prices[prices > 0].min())
    step = smallest * np.ceil(total / (smallest * MOST_BUDGETS))
    found = step * np.arange(np.floor(total / step) + 1)
    found = found if np.isclose(found[-1], total) else np.append(found, total)
    found[-1] = total
    return found


def within(budgets: Floats, spent: Floats) -> NDArray[np.int64]:
    """(B, C) the last t at which what was spent, (B, M + 1), is within each budget (C,)."""
    slack = 1e-9 * budgets[-1]  # of sums in different orders
    return np.stack([(spent <= budget + slack).sum(axis=1) - 1 for budget in budgets], axis=1)


def ends(
    away: NDArray[np.bool_], certified: NDArray[np.bool_]
) -> tuple[dict[str, tuple[Floats, Floats]], dict[str, Floats]]:
    """Parts and needs of a `Walk` by two criteria: the answer stays what it is at the end, and nothing can change it.

    away, certified : (B, M + 1) whether the answer is another than at the end, and whether it is certain.
    """
    each = np.ones((len(away), 1))
    settled = np.cumsum(away[:, ::-1], axis=1)[:, ::-1] == 0
    parts = {"settled": (settled.astype(np.float64), each), "certified": (certified.astype(np.float64), each)}
    return parts, {"settled": rounds_until(away), "certified": rounds_until(~certified)}


def rounds_until(missing: NDArray[np.bool_]) -> Floats:
    """(B,) the first t from which on nothing is missing, of masks (B, M + 1); inf where something is missing at M."""
    until: Floats = (missing.shape[1] - first_where(missing[:, ::-1])).astype(np.float64)
    until[missing[:, -1]] = np.inf
    return until


def _share_part(share: Floats) -> tuple[Floats, Floats]:
    """Shares (B, T), NaN of patients who have none, as whole numbers of units, and which patients count."""
    units: Floats = np.rint(np.nan_to_num(share) * UNIT)
    counts: Floats = 1.0 - np.isnan(share[:, :1])
    return units, counts
