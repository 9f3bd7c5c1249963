"""What one round of one patient answers, held against full observation: duels called right, standings, certainty."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.engine.compile import kernel, laid_out
from afa.engine.kernels import Iteration, State, condition, new_state, sign, solve_all
from afa.engine.packed import Indices, Packed, pack
from afa.engine.standings import LINEARITY, WALD, Standings, duel_scores, is_certified, standings
from afa.engine.trajectories import all_pairs
from afa.inference.meanfield import Solver
from afa.mrf import Floats

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


def full_observation(bundle: Bundle, values: NDArray[np.int8], *, solver: Solver | None = None) -> Truth:
    """What is true of P patients, values (P, M), once everything is measured."""
    solver = solver or Solver()
    packed, pairs, n = pack(bundle), all_pairs(len(bundle.entities)), len(bundle.entities)
    start = new_state(packed)
    solve_all(packed, start, Iteration(solver.damping, solver.tolerance, solver.max_iterations, False))
    prior = duel_scores(start, LINEARITY, packed.tie)[pairs[:, 0], pairs[:, 1]]
    winner, place = np.zeros((len(values), len(pairs)), dtype=np.int8), np.zeros((len(values), n), dtype=np.int64)
    name_rank = np.argsort(sorted(range(n), key=bundle.entities.__getitem__))
    _observe_all(packed, laid_out(values), pairs, name_rank, winner, place)
    return Truth(winner, place, np.sign(prior).astype(np.int8))


@kernel()
def _observe_all(
    packed: Packed,
    values: NDArray[np.int8],
    pairs: NDArray[np.int64],
    name_rank: Indices,
    winner: NDArray[np.int8],
    place: Indices,
) -> None:
    everyone = np.arange(len(name_rank))
    for patient in range(len(values)):
        state = new_state(packed)
        for feature in range(packed.n_features):
            condition(packed, state, feature, values[patient, feature])
        scores = duel_scores(state, WALD, packed.tie)
        for p in range(len(pairs)):
            winner[patient, p] = sign(scores[pairs[p, 0], pairs[p, 1]], packed.tie)
        place[patient] = standings(scores, everyone, name_rank, packed.tie).place


def new_record(n_patients: int, n_rounds: int, n_entities: int) -> Record:
    """Space for the rounds of P patients."""
    shape = n_patients, n_rounds + 1
    return Record(
        np.zeros((*shape, 2, 3), dtype=np.float32),
        np.zeros((*shape, 2, n_entities), dtype=np.int16),
        np.zeros(shape, dtype=np.int32),
        np.zeros(shape, dtype=np.int32),
        np.zeros(shape, dtype=np.bool_),
    )


@kernel()
def write_round(
    packed: Packed,
    state: State,
    pairs: NDArray[np.int64],
    scores: Floats,
    standing: Standings,
    resolved: NDArray[np.bool_],
    name_rank: Indices,
    k: int,
    truth: Truth,
    record: Record,
    patient: int,
    t: int,
) -> None:
    """Write round t of one patient; `scores` and `standing` are those of `linearity`."""
    winner = truth.winner[patient]
    lead = np.empty(len(pairs))
    for p in range(len(pairs)):
        lead[p] = state.constant[pairs[p, 0]] - state.constant[pairs[p, 1]]
        if resolved[p]:
            record.resolved[patient, t] += 1
            if sign(lead[p], 0.0) != winner[p]:
                record.resolved_wrong[patient, t] += 1
    record.certified[patient, t] = is_certified(pairs, standing.order, k, lead, resolved)
    by_wald = duel_scores(state, WALD, packed.tie)
    _count_right(pairs, scores, winner, truth.prior, record.right[patient, t, LINEARITY])
    _count_right(pairs, by_wald, winner, truth.prior, record.right[patient, t, WALD])
    everyone = np.arange(len(name_rank))
    record.place[patient, t, LINEARITY] = standing.place
    record.place[patient, t, WALD] = standings(by_wald, everyone, name_rank, packed.tie).place


@kernel()
def _count_right(
    pairs: NDArray[np.int64],
    scores: Floats,
    winner: NDArray[np.int8],
    prior: NDArray[np.int8],
    right: NDArray[np.float32],
) -> None:
    for p in range(len(pairs)):
        if winner[p] == 0:
            continue
        call = sign(scores[pairs[p, 0], pairs[p, 1]], 0.0)
        credit = np.float32(0.5 * (1 + call * winner[p]))
        right[0] += credit
        if winner[p] > 0:
            right[1] += credit
        if prior[p] == -winner[p]:
            right[2] += credit
