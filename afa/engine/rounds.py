"""What each round of a cohort under an allocation rule answers, against what is true at full observation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.engine.course import CERTAIN, RANKS, SIGNS, Followed
from afa.engine.follow import blocks, choose, follow
from afa.engine.layout import Indices
from afa.inference.meanfield import Solver

READOUTS = ("linearity", "wald")
KINDS = ("all", "first", "prior_wrong")


class Truth(NamedTuple):
    """P patients at full observation, N entities, Q duels.

    winner : (P, Q) int8, +1 where the first entity is ahead, 0 a tie. place : (P, N) entities ahead of each by more
    than its name. prior : (Q,) int8, the call of `linearity` before any observation.
    """

    winner: NDArray[np.int8]
    place: Indices
    prior: NDArray[np.int8]


class Record(NamedTuple):
    """P patients, rounds t from 0 to r; the second axis from the end of `right` and `place` is the readout.

    right : (P, r + 1, 2, 3) float32, duels called right, a tie one half: of all duels with a winner, of those that the
    first entity wins, and of those that `linearity` calls wrong at t = 0.
    place : (P, r + 1, 2, N) int16, entities ahead of each by more than its name.
    resolved, resolved_wrong : (P, r + 1) int32, duels that no completion can change, and those of them that full
    observation does not bear out. certified : (P, r + 1) whether the top-k cannot change any more.
    """

    right: NDArray[np.float32]
    place: NDArray[np.int16]
    resolved: NDArray[np.int32]
    resolved_wrong: NDArray[np.int32]
    certified: NDArray[np.bool_]


class Rounds(NamedTuple):
    """The fields of `Followed` that a record is made of, for P patients; signs and ranks by `READOUTS`."""

    signs: NDArray[np.int8]
    place: NDArray[np.int16]
    resolved: NDArray[np.bool_]
    certified: NDArray[np.bool_]


@dataclass(frozen=True)
class RulePaths:
    """P patients under one rule, r rounds each.

    order : (P, r) features in the order chosen. fallback : (P, r) whether no candidate had any gain left.
    record : what each round answers, t from 0 to r.
    """

    order: NDArray[np.int64]
    fallback: NDArray[np.bool_]
    record: Record


def full_observation(bundle: Bundle, values: NDArray[np.int8], *, solver: Solver | None = None) -> Truth:
    """What is true of P patients, values (P, M), once everything is measured."""
    m, score = values.shape[1], ("wald",)
    orders = np.tile(np.arange(m), (len(values), 1))
    end = follow(bundle, values, orders, SIGNS | RANKS, rounds=[m], signs=score, ranks=score, solver=solver, threads=1)
    nobody = np.zeros((1, m), dtype=np.int8)
    prior = follow(bundle, nobody, orders[:1, :0].reshape(1, 0), SIGNS, signs=READOUTS[:1], solver=solver, threads=1)
    return Truth(end.signs[:, 0, 0], end.place[:, 0, 0].astype(np.int64), prior.signs[0, 0, 0])


def follow_rule(
    bundle: Bundle,
    values: NDArray[np.int8],
    truth: Truth,
    *,
    allocation: str,
    gain: str | None = None,
    target: str | None = None,
    rescoring: Sequence[int] | None = None,
    orders: NDArray[np.int64] | None = None,
    k: int = 5,
    rounds: int | None = None,
    solver: Solver | None = None,
    threads: int | None = None,
) -> RulePaths:
    """Follow P patients under a rule, guided by `linearity`; the same bytes for any number of threads.

    values : (P, M) in {-1, 0, +1}. truth : of these patients. allocation : a name of `RULE_NAMES`. gain, target : as of
    `TopKPlanner`; not used by `random` and `largest_unary`. rescoring : numbers of observations after which candidates
    are ranked again, to be used up in that order; after every one where None. orders : (P, M), the order of each
    patient under `random`. rounds : M unless given.
    """
    rounds, read = values.shape[1] if rounds is None else rounds, SIGNS | RANKS | CERTAIN
    n_duels = len(bundle.entities) * (len(bundle.entities) - 1) // 2
    parts = []
    for rows in blocks(max(1, len(values)), 3 * (rounds + 1) * n_duels):
        if orders is not None and allocation == "random":
            found = follow(
                bundle,
                values[rows],
                orders[rows, :rounds],
                read,
                signs=READOUTS,
                ranks=READOUTS,
                k=k,
                solver=solver,
                threads=threads,
            )
        else:
            found = choose(
                bundle,
                values[rows],
                read,
                allocation=allocation,
                gain=gain,
                target=target,
                rescoring=rescoring,
                n_rounds=rounds,
                signs=READOUTS,
                ranks=READOUTS,
                k=k,
                solver=solver,
                threads=threads,
            )
        here = Truth(truth.winner[rows], truth.place[rows], truth.prior)
        parts.append((found.order, found.fallback, *record_of(found, here)))
    order, fallback, *record = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return RulePaths(order, fallback, Record(*record))


def record_of(found: Followed | Rounds, truth: Truth) -> Record:
    """What the rounds of P patients answer."""
    winner, wrong = truth.winner, truth.prior == -truth.winner
    decided = winner != 0
    among = np.stack([decided, winner > 0, decided & wrong], axis=2).astype(np.float32)
    weight = winner[:, :, None].astype(np.float32) * among
    right = np.empty((*found.signs.shape[:3], len(KINDS)), dtype=np.float32)
    resolved_wrong = np.empty(found.certified.shape, dtype=np.int32)
    for p in range(len(winner)):  # whole numbers, so that the order of a sum does not show
        right[p] = 0.5 * (found.signs[p].astype(np.float32) @ weight[p] + among[p].sum(axis=0))
        resolved_wrong[p] = (found.resolved[p] & (found.signs[p, :, 1] != winner[p])).sum(axis=1)
    return Record(right, found.place, found.resolved.sum(axis=2, dtype=np.int32), resolved_wrong, found.certified)
