"""Models of the configuration sections that stages read.

Each field has a default. The docstring below a field is its meaning in `config.yaml` and `config/README.md`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, PositiveInt, model_validator

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
    """number of damped sweeps before coordinate ascent takes over (T_max)"""


class Closure(Section):
    """The two class models of a binary task (`afa.model.closure`); the paper's is `differential`.

    `explicit` needs a bundle with probabilities.
    """

    coupling: Literal["differential", "shared", "explicit"] = "differential"
    """the two class models of a binary task: `differential`, the paper's; `shared`, with the same couplings in both
    classes; or `explicit`, from the probabilities of a bundle that has them. Used by the stages `binary`, `calibration`
    and `stopping`; with `explicit` also for the top k of `stopping`
    """
    strength: float = Field(0.9, gt=0, lt=1)
    """beta L^2 to which shared couplings are scaled down"""


class RandomOrder(Section):
    """Sign convergence under random observation order (sec:eval_score)."""

    seeds: Seeds = (0, 1, 2)
    """seeds of the random orders; each seed gives every patient one order"""
    starts: tuple[Literal["uniform", "warm"], ...] = Field(("uniform", "warm"), min_length=1)
    """start of each mean-field solve: `uniform`, or `warm`, from the previous round; results are reported for the
    first, and the others are compared with it
    """


class Calibration(Section):
    """Reliability of the binary probability (S15)."""

    rounds: Rounds = (10, 50, 100, 150, 200)
    """numbers of observed features t at which probabilities are compared with the outcome, in addition to 0 and M"""


class Layer0(Section):
    """Certificates that remove clusters of entities before anything is measured (supp:layer0_lipschitz)."""

    clusters: tuple[PositiveInt, ...] = (5, 8, 10, 12, 15, 20, 24)
    """numbers of clusters for Layer 0; numbers above the number of entities are skipped"""
    simulated: int = Field(200, ge=20)
    """number of patients in each configuration of the synthetic portfolio, `portfolio.yaml`"""


class Allocation(Section):
    """The grid of allocation rules (sec:eval_alloc): every rule with every gain and schedule."""

    rules: RuleNames = IN_THE_GRID
    """allocation rules that are compared: names, or user-defined classes as `module:Class`, where the module is beside
    the Snakefile or installed (see `afa.planner.rules.check_policy`). User-defined rules are followed patient by
    patient, which takes some hundred times longer
    """
    gains: tuple[Literal["wald_magnitude", "cmi", "f_target"], ...] = Field(
        ("wald_magnitude", "cmi", "f_target"), min_length=1
    )
    """the information that a feature is expected to give about a duel"""
    schedules: tuple[Literal["every", "paper"], ...] = Field(("every", "paper"), min_length=1)
    """when candidates are ranked again: `every` round, or (`paper`) at the paper's rounds 1, 11, 51, 101 and 151"""
    seeds: Seeds = (0, 1, 2)
    """seeds of the random orders of the rule `random`"""

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the parts of the grid. There is one job for each part and shard.

        The part `none` has the rules without a gain. Each gain is a further part.
        """
        without = [rule for rule in self.rules if rule in WITHOUT_GAIN]
        gains = self.gains if len(without) < len(self.rules) else ()
        return ("none", *gains) if without else gains

    def part(self, name: str) -> dict[str, Any]:
        """Return the settings of one part of the grid, as a document."""
        rules = [rule for rule in self.rules if (rule in WITHOUT_GAIN) == (name == "none")]
        gains = ["cmi"] if name == "none" else [name]  # rules of the part `none` use no gain
        return {**self.model_dump(mode="json"), "rules": rules, "gains": gains}


Probability = Annotated[float, Field(gt=0.5, lt=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0)]


class Stopping(Section):
    """The planners' stopping rules: when they stop, and how often the answer is then wrong (docs/stopping.md)."""

    rules: RuleNames = ("greedy", "priority_all")
    """allocation rules with which stopping rules are evaluated (docs/stopping.md), in addition to `random`. A rule that
    is not in the allocation grid with gain `cmi` and schedule `every` is skipped, and the stage's log says so
    """
    probabilities: tuple[Probability, ...] = Field((0.8, 0.9, 0.95, 0.99), min_length=1)
    """probabilities at which a run stops: that the answer will not change, and, for the top k, its posterior
    probability
    """
    gains: tuple[NotNegative, ...] = Field((0.1, 0.01, 0.001), min_length=1)
    """thresholds in nats: a run stops when no remaining feature has a larger gain"""
    budgets: tuple[Share, ...] = Field((0.1, 0.25, 0.5), min_length=1)
    """shares of all features after which a run stops, for comparison"""
    seed: int = Field(0, ge=0)
    """seed of each patient's random order"""


class Bootstrap(Section):
    """Intervals over patients."""

    resamples: int = Field(1000, ge=100)
    """number of bootstrap resamples of the patients for each interval"""
    confidence: float = Field(0.95, gt=0, lt=1)
    """confidence level of the intervals"""


class Gauge(Section):
    """The closure of a duel compared with its true gauge (supp:maxent-vs-truegauge)."""

    seeds: Seeds = (0,)
    """seeds of the random orders along which a duel's closure is compared with its true gauge"""
    rounds: Rounds = (10, 50, 100, 150, 200)
    """numbers of observed features t at which the two are correlated, in addition to 0 and M"""


class Chaos(Section):
    """Chaotic patients, selected on some random orders and measured on others (decisions.md A10)."""

    selecting_seeds: Seeds = (0, 1, 2)
    """seeds of the random orders by which patients are classified as chaotic"""
    measuring_seeds: Seeds = (3, 4, 5)
    """seeds of the random orders on which the gap is measured; none may be in `selecting_seeds`"""

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if common := sorted({*self.selecting_seeds} & {*self.measuring_seeds}):
            said = ", ".join(map(str, common))
            raise ValueError(f"no seed in both lists: {said} would measure the gap on orders that chose the patients")
        return self


class Layer1(Section):
    """Duels resolved along random and informed orders (tab:layer1_informed)."""

    seeds: Seeds = (0,)
    """seeds of the random orders along which resolved duels are counted"""


class Labels(Section):
    """Comparison of scores with the cohort's labels, by reference and coupling, and with chance."""

    seeds: Seeds = (0, 1, 2)
    """seeds of the random orders along which scores are compared with the cohort's labels"""
    percents: tuple[Annotated[int, Field(gt=0, lt=100)], ...] = Field((5, 10, 25, 50), min_length=1)
    """percentages of an entity's support at which scores are compared, in addition to 0 and 100"""
    thresholds: tuple[Annotated[float, Field(ge=0)], ...] = Field((0.5, 0.25, 1.0), min_length=1)
    """cut points, in robust standard deviations from the cohort's median; results are reported for the first, and the
    others show how sensitive they are
    """
    strengths: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = Field((0.9, 0.5), min_length=1)
    """values of beta L^2 to which shared couplings are scaled (as `closure.strength`); results are reported for the
    first, and the others show how sensitive they are
    """
    permutations: int = Field(20, ge=1)
    """number of bundles with shuffled genes, followed like the real bundle; the smallest possible p is 1 / (1 + this
    number)
    """
    whole_permutations: int = Field(1000, ge=1)
    """number of bundles with shuffled genes at full observation"""


class LabelsNeeded(Section):
    """Classifiers trained on labelled patients, compared with zero-shot scores on all other patients."""

    sizes: tuple[Annotated[int, Field(ge=2)], ...] = Field((10, 20, 50, 100), min_length=1)
    """numbers of labelled patients for training classifiers, which are compared with the zero-shot scores of `labels`
    (docs/labels_needed.md)
    """
    repeats: int = Field(4, ge=1)
    """number of samples of the labelled patients"""
    permuted: int = Field(2, ge=0)
    """number of these samples that are also trained with shuffled labels"""
    labels: int = Field(6, ge=1)
    """largest number of labels, chosen by hashes of their names"""
    tested: int = Field(20, ge=2)
    """least number of patients left for evaluation; a size that leaves fewer for a label is skipped for that label"""
    of_each_class: int = Field(3, ge=1)
    """least number of patients of each class left for evaluation"""


class Accurate(Section):
    """Comparison of mean-field decisions with exact inference on the same states (docs/accurate.md)."""

    patients: int = Field(50, ge=1)
    """number of patients for whom mean-field is compared with exact inference (docs/accurate.md), chosen by a hash of
    their names
    """
    linearity_patients: int = Field(12, ge=1)
    """number of these patients for whom `linearity` is also compared, which needs moments and takes longer"""
    seed: int = Field(0, ge=0)
    """seed for the choice of patients and for each patient's random order"""
    rounds: Rounds = (10, 50, 100, 150, 200)
    """numbers of observed features t at which the two are compared, in addition to 0 and M"""
    limit: float = Field(2e7, ge=0)
    """largest number of table entries that exact inference may use in one state; states that need more are excluded and
    counted
    """


class Sanity(Section):
    """The acceptance tests (supp:sanity)."""

    seeds: Seeds = (0,)
    """seeds of the random orders along which brackets and solves are checked"""


class StageSettings(Section):
    """Everything in the configuration that a stage may read."""

    top_k: int = Field(5, ge=1)
    """size of the top set; with k or fewer entities, the number of entities minus one"""
    inference: Inference = Inference()
    closure: Closure = Closure()
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
