"""Sections of the configuration that several stages read. A section of one stage alone is `Settings` in its module."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PositiveInt

from afa.rulenames import IN_THE_GRID, RULE_NAMES, WITHOUT_GAIN
from afa.stages.base import Rounds, Section, Seeds


def _known_rules(names: tuple[str, ...]) -> tuple[str, ...]:
    own = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
    if (
        not names
        or not all(name in RULE_NAMES or own.fullmatch(name) for name in names)
        or len(set(names)) < len(names)
    ):
        raise ValueError(f"one or more of {', '.join(RULE_NAMES)}, or classes of your own as module:Class, none twice")
    return names


RuleNames = Annotated[tuple[str, ...], AfterValidator(_known_rules)]


class Inference(Section):
    """The mean-field iteration (tab:hyperparams)."""

    damping: float = Field(0.5, gt=0, le=1, description="weight of the new marginals in each sweep")
    tolerance: float = Field(1e-4, gt=0, lt=1, description="largest change of a probability at which a solve stops")
    max_iterations: int = Field(200, ge=1, description="damped sweeps before coordinate ascent takes over")


class Closure(Section):
    """The two class models of a binary task (`afa.closure`); the paper's is `differential`.

    `explicit` asks for a bundle that says how often.
    """

    coupling: Literal["differential", "shared", "explicit"] = "differential"
    strength: float = Field(0.9, gt=0, lt=1, description="beta L^2 that shared couplings are scaled down to")


class RandomOrder(Section):
    """Sign convergence under random observation order (sec:eval_score)."""

    seeds: Seeds = Field((0, 1, 2), description="one random order per patient and seed")
    starts: tuple[Literal["uniform", "warm"], ...] = Field(
        ("uniform", "warm"), min_length=1, description="where each solve starts (M6); the first is the headline"
    )


class Calibration(Section):
    """Reliability of the binary probability (S15)."""

    rounds: Rounds = Field((10, 50, 100, 150, 200), description="t on the cohort, beside 0 and M")
    simulated: int = Field(200, ge=20, multiple_of=2, description="patients drawn from each task's own model")


class Layer0(Section):
    """Certificates that remove clusters of entities before anything is measured (supp:layer0_lipschitz)."""

    clusters: tuple[PositiveInt, ...] = Field((5, 8, 10, 12, 15, 20, 24), description="numbers of clusters tried")
    simulated: int = Field(200, ge=20, description="patients of each configuration of the portfolio")


class Allocation(Section):
    """The grid of allocation rules (sec:eval_alloc): every rule by every gain and schedule."""

    rules: RuleNames = Field(IN_THE_GRID, description="rules of afa.allocate, or module:Class")
    gains: tuple[Literal["wald_magnitude", "cmi", "f_target"], ...] = Field(
        ("wald_magnitude", "cmi", "f_target"), min_length=1, description="what a duel is expected to learn"
    )
    schedules: tuple[Literal["every", "paper"], ...] = Field(
        ("every", "paper"), min_length=1, description="when candidates are ranked again (A6)"
    )
    seeds: Seeds = Field((0, 1, 2), description="random orders of the rule `random`")

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts of the grid, one job per shard each: `none`, of the rules that look at no gain, and every gain."""
        without = [rule for rule in self.rules if rule in WITHOUT_GAIN]
        gains = self.gains if len(without) < len(self.rules) else ()
        return ("none", *gains) if without else gains

    def part(self, name: str) -> dict[str, Any]:
        """The settings of one of the parts, as a document."""
        rules = [rule for rule in self.rules if (rule in WITHOUT_GAIN) == (name == "none")]
        gains = ["cmi"] if name == "none" else [name]  # which no rule of the part `none` looks at
        return {**self.model_dump(mode="json"), "rules": rules, "gains": gains}


Probability = Annotated[float, Field(gt=0.5, lt=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0)]


class Stopping(Section):
    """The planners' rules of stopping: how early they end, and how often wrongly (docs/stopping.md)."""

    rules: RuleNames = Field(
        ("greedy", "priority_all"), description="allocation rules of the grid that are looked at, beside random"
    )
    probabilities: tuple[Probability, ...] = Field((0.8, 0.9, 0.95, 0.99), min_length=1)
    gains: tuple[NotNegative, ...] = Field((0.1, 0.01, 0.001), min_length=1, description="largest gain left, in nats")
    budgets: tuple[Share, ...] = Field((0.1, 0.25, 0.5), min_length=1, description="shares of all features")
    seed: int = Field(0, ge=0, description="of the random order")


class Bootstrap(Section):
    """Intervals over patients."""

    resamples: int = Field(1000, ge=100)
    confidence: float = Field(0.95, gt=0, lt=1)


TopK = Annotated[int, Field(ge=1, description="size of the top set, less than the number of entities")]

SHARED: dict[str, tuple[Any, Any]] = {
    "top_k": (TopK, 5),
    "inference": (Inference, Inference()),
    "closure": (Closure, Closure()),
    "random_order": (RandomOrder, RandomOrder()),
    "calibration": (Calibration, Calibration()),
    "layer0": (Layer0, Layer0()),
    "allocation": (Allocation, Allocation()),
    "stopping": (Stopping, Stopping()),
    "bootstrap": (Bootstrap, Bootstrap()),
}
"""Type and default of each setting that several stages read, by its key."""
