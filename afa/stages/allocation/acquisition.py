"""When an allocation rule has seen enough: certificates, features saved at equal accuracy, duels resolved."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.mrf import Floats
from afa.stages.allocation.cubes import CLINICAL, LIKELIHOOD, SINGLE, Grid
from afa.stages.allocation.pairs import RANDOM, gaps, shown_rounds
from afa.stats.accuracy import Part, Resampled, mean_ratio
from afa.stats.summary import Labelled

QUARTILES: dict[str | None, float] = {"q25": 0.25, None: 0.5, "q75": 0.75}
LEVELS = (0.9, 0.95, 0.99)
QUANTITIES = (
    ("accuracy", "likelihood", "right"),
    ("p_at_k", "likelihood", LIKELIHOOD),
    ("p_at_k", "clinical", CLINICAL),
)


def certified_rows(grid: Grid, resampled: Resampled) -> Iterator[Labelled]:
    """By cell: `count`, the first t by which half of the runs are certified, `q25` and `q75` too; `rate` of `never`.

    A run is one order of one patient; a patient is resampled with all its runs. A run that is never certified is later
    than all others: a number that falls on such a run is missing. Of `certified` the `rate`, the share of runs
    certified by t, and `gap`, that share less the one of the cell in `reference`.
    """
    shown, weights = shown_rounds(grid.last_round), _plain_and_drawn(resampled)
    for cell in grid.runs:
        certified, runs = grid.choice_part("certified", 1.0, cell)
        by_then, among = weights @ certified, weights @ runs
        first = [_first(by_then >= share * among) for share in QUARTILES.values()]
        quartiles = table_of_rounds(np.stack(first, axis=1), resampled.confidence, grid.last_round)
        n = int(runs[:, 0].sum())
        yield quartiles.assign(quantity=np.array([*QUARTILES], dtype=object), n=n), {"metric": "count", **cell.label}
        last = runs[:, -1:] - certified[:, -1:], runs[:, -1:]
        yield resampled.mean([last]), {"metric": "rate", "quantity": "never", **cell.label}
        some = resampled.mean([grid.choice_part("certified", 1.0, cell, shown)])
        yield some.assign(t=shown), {"metric": "rate", "quantity": "certified", **cell.label}
    for rows, named in gaps(grid, partial(grid.choice_part, "certified", 1.0), resampled):
        yield rows, {**named, "quantity": "certified"}


def saved_rows(grid: Grid, resampled: Resampled) -> Iterator[Labelled]:
    """By cell, method and target: `count` of features until the cohort's mean stays at a share of its end or above.

    `quantity` is what the mean is of, sign `accuracy` or `p_at_k`, and `level` the share of it. With `reference`
    `random`: how many features fewer than the random order, resampled together; positive is saved.
    """
    weights = _plain_and_drawn(resampled)
    for quantity, target, column in QUANTITIES:
        if not grid.totals[column].any():
            continue
        for method in grid.methods:
            parts = {cell: grid.part(column, method, cell) for cell in grid.runs}
            needed = {cell: _needed(part, weights) for cell, part in parts.items()}
            for cell, rounds in needed.items():
                label = {**cell.label, "metric": "count", "quantity": quantity, "method": method, "target": target}
                n = int(parts[cell][1][:, 0].sum())
                own = table_of_rounds(rounds, resampled.confidence, grid.last_round)
                yield own.assign(level=LEVELS, n=n), label
                if RANDOM in needed and cell != RANDOM:
                    saved = table_of_rounds(needed[RANDOM] - rounds, resampled.confidence, grid.last_round)
                    yield saved.assign(level=LEVELS, n=n), {**label, "reference": "random"}


def bracket_rows(grid: Grid, resampled: Resampled) -> Iterator[Labelled]:
    """By cell: `rate`, the share of all duels that the tight l1 bracket has resolved, and `wrong`, of these.

    Ties are among the duels. `wrong` is 0, or the tables would not have been read.
    """
    shown, duels = shown_rounds(grid.last_round), float(grid.winners.shape[1])
    for cell in grid.runs:
        label = {**cell.label, "metric": "rate", "method": "wald", "reference": "l1_tight"}
        resolved = grid.choice_part("resolved", duels, cell, shown)
        yield resampled.mean([resolved]).assign(t=shown), label
        wrong = grid.choice_part("resolved_wrong", duels, cell, shown)[0], resolved[0]
        yield resampled.mean([wrong]).assign(t=shown), {**label, "quantity": "wrong"}


def _plain_and_drawn(resampled: Resampled) -> Floats:
    """(1 + R, P) weights: every patient once, then the resamples."""
    return np.vstack([np.ones(resampled.weights.shape[1]), resampled.weights])


def _needed(part: Part, weights: Floats) -> Floats:
    """(1 + R, levels) first t from which a mean stays at each of `LEVELS` of its end; NaN where there is no case."""
    right, total = part
    curve = mean_ratio([(right, total[:, :1])], weights)
    end = curve[:, -1:]
    needed = np.empty((len(weights), len(LEVELS)))
    for i, level in enumerate(LEVELS):
        below = curve < level * end * (1 - SINGLE)
        needed[:, i] = below.shape[1] - _first(below[:, ::-1])
    needed[np.isnan(end[:, 0])] = np.nan
    return needed


def _first(holds: NDArray[np.bool_]) -> Floats:
    """(R,) first column where each row holds; the number of columns where none does."""
    first: Floats = np.where(holds.any(axis=1), holds.argmax(axis=1), holds.shape[1]).astype(np.float64)
    return first


def table_of_rounds(statistics: Floats, confidence: float, last_round: int) -> pd.DataFrame:
    """`value`, `low`, `high` of rounds (1 + R, C), the first row plain; missing where beyond the last round.

    The interval widens to whole rounds: between two of them a statistic cannot lie.
    """
    plain, drawn = statistics[0], statistics[1:]
    low, high = np.full(plain.shape, np.nan), np.full(plain.shape, np.nan)
    known = ~np.isnan(drawn).all(axis=0)
    if known.any():
        tail = 100 * (1 - confidence) / 2
        low[known] = np.nanpercentile(drawn[:, known], tail, axis=0, method="lower")
        high[known] = np.nanpercentile(drawn[:, known], 100 - tail, axis=0, method="higher")
    table = pd.DataFrame({"value": plain, "low": low, "high": high})
    return table.where(table <= last_round)
