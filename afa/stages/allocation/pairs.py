"""Which cells of the allocation grid are held against which, and at which rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from afa.orders import PAPER_ROUNDS
from afa.stages.allocation.cubes import Cell, Grid
from afa.stats.accuracy import Part, Resampled
from afa.stats.summary import Labelled

STEP = 10
RANDOM = Cell("random", "", "every")
SAME_GAIN = ("greedy", "clustered")
"""Rules that every other is compared with under the same gain and schedule: the paper's baselines."""


def shown_rounds(last_round: int) -> list[int]:
    """Every tenth round, and the last."""
    return sorted({*range(0, last_round + 1, STEP), last_round})


def compared_rounds(last_round: int) -> list[int]:
    """The paper's rounds, and the last."""
    return sorted({*(t for t in PAPER_ROUNDS if t < last_round), last_round})


def references(cell: Cell) -> dict[str, Cell]:
    """By name, what a cell is compared with, whether or not the grid has it.

    `random`; `greedy` and `clustered` with the same gain and schedule; `largest_unary` with the same schedule; and for
    the paper's schedule `every`, the same rule that scores again every round.
    """
    if cell == RANDOM:
        return {}
    others = {"random": RANDOM}
    if cell.gain:
        others |= {rule: Cell(rule, cell.gain, cell.schedule) for rule in SAME_GAIN}
    others["largest_unary"] = Cell("largest_unary", "", cell.schedule)
    if cell.schedule == "paper":
        others["every"] = cell._replace(schedule="every")
    return {name: other for name, other in others.items() if other != cell}


def gaps(grid: Grid, part: Callable[[Cell, Sequence[int]], Part], resampled: Resampled) -> Iterator[Labelled]:
    """Rows `gap` of every cell against its references: against `random` every tenth round, else at the paper's."""
    shown, compared = shown_rounds(grid.last_round), compared_rounds(grid.last_round)
    for cell in grid.runs:
        for name, other in references(cell).items():
            if other in grid.runs:
                rounds = shown if name == "random" else compared
                table = resampled.gap([part(cell, rounds)], [part(other, rounds)])
                yield table.assign(t=rounds), {"metric": "gap", "reference": name, **cell.label}
