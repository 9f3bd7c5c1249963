"""Sections of the configuration that several stages read. A section of one stage alone is `Settings` in its module."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PositiveInt

from afa.model.rule_names import IN_THE_GRID, RULE_NAMES, WITHOUT_GAIN
from afa.paper.experiments.base import Rounds, Section, Seeds


def _known_rules(names: tuple[str, ...]) -> tuple[str, ...]:
    own = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
    if not names or not all(name in RULE_NAMES or own.fullmatch(name) for name in names):
        raise ValueError(f"one or more of {', '.join(RULE_NAMES)}, or classes of your own as module:Class")
    return names


RuleNames = Annotated[tuple[str, ...], AfterValidator(_known_rules)]


class Inference(Section):
    """The mean-field iteration (tab:hyperparams)."""

    damping: float = Field(0.5, gt=0, le=1)
    """weight of the new marginals in each sweep (the paper's eta)"""
    tolerance: float = Field(1e-4, gt=0, lt=1)
    """largest change of a marginal probability at which a solve stops (epsilon)"""
    max_iterations: int = Field(200, ge=1)
    """sweeps before coordinate ascent takes over (T_max)"""


class Closure(Section):
    """The two class models of a binary task (`afa.model.closure`); the paper's is `differential`.

    `explicit` asks for a bundle that says how often.
    """

    coupling: Literal["differential", "shared", "explicit"] = "differential"
    """the two class models of a binary task: the paper's, ours with the couplings in both classes, or as a bundle
    states them that says how often. Stages `binary`, `calibration` and `stopping`; under `explicit` the top k of
    `stopping` too"""
    strength: float = Field(0.9, gt=0, lt=1)
    """beta L^2 that shared couplings are scaled down to"""


class RandomOrder(Section):
    """Sign convergence under random observation order (sec:eval_score)."""

    seeds: Seeds = (0, 1, 2)
    """one random order per patient and seed"""
    starts: tuple[Literal["uniform", "warm"], ...] = Field(("uniform", "warm"), min_length=1)
    """where each mean-field solve starts, afresh or from the previous round; the first is the headline, the others
    are compared with it"""


class Calibration(Section):
    """Reliability of the binary probability (S15)."""

    rounds: Rounds = (10, 50, 100, 150, 200)
    """t at which probabilities are held against the truth, beside 0 and M"""


class Layer0(Section):
    """Certificates that remove clusters of entities before anything is measured (supp:layer0_lipschitz)."""

    clusters: tuple[PositiveInt, ...] = (5, 8, 10, 12, 15, 20, 24)
    """numbers of clusters that Layer 0 is tried with; those above the number of entities are left out"""
    simulated: int = Field(200, ge=20)
    """patients of each configuration of the synthetic portfolio, `portfolio.yaml`"""


class Allocation(Section):
    """The grid of allocation rules (sec:eval_alloc): every rule by every gain and schedule."""

    rules: RuleNames = IN_THE_GRID
    """allocation rules that are compared, or a class of your own as `module:Class`, the module beside the Snakefile or
    installed (see `afa.planner.rules.check_policy`). Your own is followed patient by patient, which takes some hundred
    times longer"""
    gains: tuple[Literal["wald_magnitude", "cmi", "f_target"], ...] = Field(
        ("wald_magnitude", "cmi", "f_target"), min_length=1
    )
    """what a duel is expected to learn from a feature"""
    schedules: tuple[Literal["every", "paper"], ...] = Field(("every", "paper"), min_length=1)
    """when candidates are ranked again: each round, or at the paper's rounds 1, 11, 51, 101 and 151"""
    seeds: Seeds = (0, 1, 2)
    """random orders of the rule `random`"""

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

    rules: RuleNames = ("greedy", "priority_all")
    """allocation rules under which the planners' rules of stopping are measured (docs/stopping.md), beside `random`;
    one that the allocation grid does not have with gain `cmi` and schedule `every` is left out, and the log of
    the stage says so"""
    probabilities: tuple[Probability, ...] = Field((0.8, 0.9, 0.95, 0.99), min_length=1)
    """probabilities at which a run stops: that the answer stays as it is, and, in the top k, its posterior"""
    gains: tuple[NotNegative, ...] = Field((0.1, 0.01, 0.001), min_length=1)
    """gains, in nats, that the largest one left has to fall to"""
    budgets: tuple[Share, ...] = Field((0.1, 0.25, 0.5), min_length=1)
    """shares of all features after which a run stops, for comparison"""
    seed: int = Field(0, ge=0)
    """random order of each patient"""


class Bootstrap(Section):
    """Intervals over patients."""

    resamples: int = Field(1000, ge=100)
    """resamples of the patients behind each interval"""
    confidence: float = Field(0.95, gt=0, lt=1)
    """confidence of the intervals"""


TopK = Annotated[int, Field(ge=1)]

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
