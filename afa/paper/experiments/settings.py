"""Pydantic models of the configuration sections that stages read.

Each setting has a default. The string below each setting explains the setting. The explanation is copied to
`config.yaml` and `config/README.md`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from afa.model.rule_names import IN_THE_GRID, RULE_NAMES, WITHOUT_GAIN
from afa.paper.experiments.base import Rounds, Section, Seeds


def _check_rule_names(names: tuple[str, ...]) -> tuple[str, ...]:
    own = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
    if not names or not all(name in RULE_NAMES or own.fullmatch(name) for name in names):
        raise ValueError(f"one or more of {', '.join(RULE_NAMES)}, or classes of your own as module:Class")
    return names


RuleNames = Annotated[tuple[str, ...], AfterValidator(_check_rule_names)]


class Inference(Section):
    """The mean-field iteration (tab:hyperparams)."""

    damping: float = Field(0.5, gt=0, le=1)
    """weight of the new marginals in each sweep; the old marginals have the remaining weight (the paper's eta)"""
    tolerance: float = Field(1e-4, gt=0, lt=1)
    """the iteration stops when no marginal probability changes by more than this (the paper's epsilon)"""
    max_iterations: int = Field(200, ge=1)
    """largest number of damped sweeps, after which coordinate ascent continues the iteration (the paper's T_max)"""


class ClosureSettings(Section):
    """How the two class models of a binary task are made (`afa.model.closure`); the paper uses `differential`.

    The option `explicit` needs a bundle with class-conditional probabilities.
    """

    coupling: Literal["differential", "shared", "explicit"] = "differential"
    """how the two class models of a binary task are made: `differential`, as in the paper; `shared`, with the same
    couplings in both classes; `explicit`, from the probabilities of a bundle that has them. The stages `binary`,
    `calibration` and `stopping` use this setting
    """
    strength: float = Field(0.9, gt=0, lt=1)
    """with `shared`, couplings are scaled down until beta L^2, their largest absolute row sum, is at most this"""


class RandomOrder(Section):
    """Accuracy of scores after each number of features observed in random order (sec:eval_score)."""

    seeds: Seeds = (0, 1, 2)
    """seeds of the random orders; each seed gives every patient one order"""
    starts: tuple[Literal["uniform", "warm"], ...] = Field(("uniform", "warm"), min_length=1)
    """where each run of mean-field inference starts: `uniform`, from uniform marginals; `warm`, from the solution of
    the previous round. Results are computed with the first start in the list, and are compared with results of the
    other start
    """


class Calibration(Section):
    """Calibration of the probabilities in binary tasks (decisions.md S15)."""

    rounds: Rounds = (10, 50, 100, 150, 200)
    """numbers of observed features at which probabilities are compared with outcomes, in addition to 0 and all"""


class Layer0(Section):
    """Removal of clusters of entities before any measurement, by bounds on scores (supp:layer0_lipschitz)."""

    clusters: tuple[PositiveInt, ...] = (5, 8, 10, 12, 15, 20, 24)
    """numbers of clusters that are tried; numbers above the number of entities are skipped"""
    simulated: int = Field(200, ge=20)
    """number of simulated patients in each configuration of `portfolio.yaml`"""


class Allocation(Section):
    """The allocation rules that are compared: every rule with every gain and every schedule (sec:eval_alloc)."""

    rules: RuleNames = IN_THE_GRID
    """allocation rules to compare: names, or your own classes as `module:Class`, with the module beside the Snakefile
    or installed. `afa.planner.rules.check_policy` tests such a class. Your own rule takes about a hundred times longer
    than a built-in one, because only built-in rules are compiled
    """
    gains: tuple[Literal["wald_magnitude", "cmi", "f_target"], ...] = Field(
        ("wald_magnitude", "cmi", "f_target"), min_length=1
    )
    """gains to compare: formulas for the information that a feature is expected to give about a duel"""
    schedules: tuple[Literal["every", "paper"], ...] = Field(("every", "paper"), min_length=1)
    """when features are ranked again: in `every` round, or as in the `paper` in rounds 1, 11, 51, 101 and 151"""
    seeds: Seeds = (0, 1, 2)
    """seeds of the random orders of the rule `random`"""

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the names of the parts of the allocation grid. A job computes one part for one shard of the patients.

        For each gain, one part of the grid contains all rules that choose features by this gain. The part `none`
        contains all rules that choose features without a gain.
        """
        without = [rule for rule in self.rules if rule in WITHOUT_GAIN]
        gains = self.gains if len(without) < len(self.rules) else ()
        return ("none", *gains) if without else gains

    def part(self, name: str) -> dict[str, Any]:
        """Return the settings of one part of the allocation grid, as a mapping."""
        rules = [rule for rule in self.rules if (rule in WITHOUT_GAIN) == (name == "none")]
        gains = ["cmi"] if name == "none" else [name]  # rules in the part `none` use no gain
        return {**self.model_dump(mode="json"), "rules": rules, "gains": gains}


ProbabilityAboveHalf = Annotated[float, Field(gt=0.5, lt=1)]
ShareBelowOne = Annotated[float, Field(ge=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0)]


class Stopping(Section):
    """The planners' stopping rules: how early they stop, and how often the answer is wrong (docs/stopping.md)."""

    rules: RuleNames = ("greedy", "priority_all")
    """allocation rules that choose the features of the stopped runs (docs/stopping.md), in addition to `random`. A rule
    is skipped, with a line in the stage's log, unless the stage `allocation` runs it with gain `cmi` and schedule
    `every`
    """
    probabilities: tuple[ProbabilityAboveHalf, ...] = Field((0.8, 0.9, 0.95, 0.99), min_length=1)
    """a run stops when the probability that its answer will not change is at least this; for the top k also when the
    posterior probability of the answer is at least this
    """
    gains: tuple[NotNegative, ...] = Field((0.1, 0.01, 0.001), min_length=1)
    """a run stops when no remaining feature has a gain above this, in nats"""
    budgets: tuple[ShareBelowOne, ...] = Field((0.1, 0.25, 0.5), min_length=1)
    """for comparison, a run stops when this share of all features is observed"""
    seed: int = Field(0, ge=0)
    """seed of each patient's random order"""


class Bootstrap(Section):
    """Intervals over patients."""

    resamples: int = Field(1000, ge=100)
    """number of bootstrap samples of the patients for each interval"""
    confidence: float = Field(0.95, gt=0, lt=1)
    """confidence level of the intervals"""


class Gauge(Section):
    """Comparison of two choices of class models (gauges) for duels between two entities (supp:maxent-vs-truegauge)."""

    seeds: Seeds = (0,)
    """seeds of the random orders along which the two choices of class models are compared"""
    rounds: Rounds = (10, 50, 100, 150, 200)
    """numbers of observed features at which scores with the two choices are correlated, in addition to 0 and all"""


class Chaos(Section):
    """Accuracy for chaotic patients, whose scores often change sign as features are observed (decisions.md A10)."""

    selecting_seeds: Seeds = (0, 1, 2)
    """seeds of the random orders that decide which patients are chaotic"""
    measuring_seeds: Seeds = (3, 4, 5)
    """seeds of the random orders on which chaotic and other patients are compared; must not contain a seed of
    `selecting_seeds`
    """

    @model_validator(mode="after")
    def _check_disjoint_seeds(self) -> Self:
        if common := sorted({*self.selecting_seeds} & {*self.measuring_seeds}):
            said = ", ".join(map(str, common))
            raise ValueError(f"no seed in both lists: {said} would measure the gap on orders that chose the patients")
        return self


class Layer1(Section):
    """Numbers of duels that are decided along random and informed orders of features (tab:layer1_informed)."""

    seeds: Seeds = (0,)
    """seeds of the random orders along which resolved duels are counted"""


class Labels(Section):
    """Accuracy of scores on the cohort's labels, for several encodings and class models, and for shuffled bundles."""

    seeds: Seeds = (0, 1, 2)
    """seeds of the random orders along which scores are compared with the cohort's labels"""
    percents: tuple[Annotated[int, Field(gt=0, lt=100)], ...] = Field((5, 10, 25, 50), min_length=1)
    """percentages of an entity's features at which scores are compared with labels, in addition to 0 and 100"""
    thresholds: tuple[Annotated[float, Field(ge=0)], ...] = Field((0.5, 0.25, 1.0), min_length=1)
    """cut points of the encoding by the cohort, in robust standard deviations from the cohort's median. The results are
    those of the first cut point; results with the other cut points show the sensitivity
    """
    strengths: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = Field((0.9, 0.5), min_length=1)
    """largest values of beta L^2 for shared couplings, as in `closure.strength`. The results are those of the first
    value; results with the other values show the sensitivity
    """
    permutations: int = Field(20, ge=1)
    """number of bundles with shuffled genes that are followed in the same orders as the real bundle. The smallest
    possible p is 1 / (1 + this number)
    """
    whole_permutations: int = Field(1000, ge=1)
    """number of bundles with shuffled genes that are evaluated at full observation only"""


class LabelsNeeded(Section):
    """Classifiers trained on labelled patients, compared with zero-shot scores on all other patients."""

    sizes: tuple[Annotated[int, Field(ge=2)], ...] = Field((10, 20, 50, 100), min_length=1)
    """numbers of labelled patients on whom classifiers are trained. The classifiers are compared with the zero-shot
    scores of the stage `labels` (docs/real_labels.md)
    """
    repeats: int = Field(4, ge=1)
    """number of random training sets of each size"""
    permuted: int = Field(2, ge=0)
    """number of the random training sets on which classifiers are also trained with shuffled labels"""
    labels: int = Field(6, ge=1)
    """largest number of labels that are used; if the cohort has more labels, a hash of their names selects them"""
    tested: int = Field(20, ge=2)
    """smallest number of patients left for evaluation; a size that leaves fewer patients is skipped for this label"""
    of_each_class: int = Field(3, ge=1)
    """smallest number of patients of each class left for evaluation"""


class Accurate(Section):
    """Comparison of mean-field inference with exact inference in the same states (docs/accurate.md)."""

    patients: int = Field(50, ge=1)
    """number of patients for whom mean-field is compared with exact inference (docs/accurate.md); a hash of their names
    decides which
    """
    linearity_patients: int = Field(12, ge=1)
    """number of the compared patients for whom the score `linearity`, which takes longer, is compared too"""
    seed: int = Field(0, ge=0)
    """seed for the choice of patients and for each patient's random order"""
    rounds: Rounds = (10, 50, 100, 150, 200)
    """numbers of observed features at which mean-field and exact inference are compared, in addition to 0 and all"""
    limit: float = Field(2e7, ge=0)
    """largest number of table entries for exact inference in one state. States that need more are counted, but not
    compared
    """


class Sanity(Section):
    """The acceptance tests (supp:sanity)."""

    seeds: Seeds = (0,)
    """seeds of the random orders along which the acceptance tests check score bounds and mean-field runs"""


class StageSettings(Section):
    """All settings that stages may read."""

    top_k: int = Field(5, ge=1)
    """k, the number of entities in the answer; in a bundle with k or fewer entities, one less than their number"""
    inference: Inference = Inference()
    closure: ClosureSettings = ClosureSettings()
    random_order: RandomOrder = RandomOrder()
    calibration: Calibration = Calibration()
    layer0: Layer0 = Layer0()
    allocation: Allocation = Allocation()
    stopping: Stopping = Stopping()
    bootstrap: Bootstrap = Bootstrap()
    accurate: Accurate = Accurate()
    chaos: Chaos = Chaos()
    gauge: Gauge = Gauge()
    labels: Labels = Labels()
    labels_needed: LabelsNeeded = LabelsNeeded()
    layer1: Layer1 = Layer1()
    sanity: Sanity = Sanity()
