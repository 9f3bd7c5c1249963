"""The rules of stopping and the levels at which they are tried, and where each ends a run that has been watched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.paths import Watched, WatchedTask


class Halt(NamedTuple):
    """A rule of stopping, by the name of its option of `afa.planner.Stop`, and its level.

    level : the probability that is asked for, 1 where `certain`; the largest gain that may be left, in nats; the budget
    as a share of all features, each at a cost of 1.
    """

    stopping: str
    level: float


@dataclass(frozen=True)
class Levels:
    """The levels of the rules that have one."""

    probabilities: Sequence[float] = (0.8, 0.9, 0.95, 0.99)
    gains: Sequence[float] = (0.1, 0.01, 0.001)
    budgets: Sequence[float] = (0.1, 0.25, 0.5)

    def stops(self, watched: Watched | WatchedTask) -> Iterator[tuple[Halt, NDArray[np.int64]]]:
        """Each rule with the first round at which it holds, (P,); M where none before the last does."""
        n_patients, last_round = watched.certain.shape[0], watched.certain.shape[1] - 1
        yield Halt("certain", 1.0), _first(watched.certain)
        for level in self.probabilities:
            yield Halt("probability", level), _first(watched.probability >= level)
        if isinstance(watched, Watched):  # of one task it is the same as the probability
            for level in self.probabilities:
                yield Halt("posterior", level), _first(watched.posterior >= level)
        for level in self.gains:
            yield Halt("gain", level), _first(watched.gain <= level)
        for level in self.budgets:
            yield Halt("budget", level), np.full(n_patients, int(level * last_round * (1 + 1e-12)), dtype=np.int64)


def _first(holds: NDArray[np.bool_]) -> NDArray[np.int64]:
    before = holds[:, :-1]
    first: NDArray[np.int64] = np.where(before.any(axis=1), before.argmax(axis=1), before.shape[1]).astype(np.int64)
    return first
