"""What a run of the workflow is: one model of `config/config.yaml` that knows every key and forbids all others."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveInt

from afa.errors import ConfigError, Fault
from afa.yamlfile import check_model

Name = Annotated[str, Field(coerce_numbers_to_str=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


RULES = (
    "random",
    "largest_unary",
    "greedy",
    "lucb",
    "clustered",
    "priority_clusters",
    "priority_all",
    "boundary",
)
WITHOUT_GAIN = ("random", "largest_unary")
"""Rules that look at no gain."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Elicitation(_Strict):
    """How answers of a model become a bundle; not used when `bundle` names a folder."""

    min_agree: int = Field(2, ge=1, description="runs that must name a gene, all with one direction")
    study: Path = Field(Path("resources/elicitation"), description="a folder with study.yaml and phenotypes.csv")
    record: Path | None = Field(None, description="the folder of answers; `record` in the study's where empty")
    live: bool = Field(False, description="ask the model of AFA_LLM_MODEL for what the record lacks")
    calls: int | None = Field(None, ge=0, description="cap of a live run: calls that the record may come to")
    tokens: int | None = Field(None, ge=0, description="cap of a live run: tokens of prompts and answers")
    money: float | None = Field(None, ge=0, description="cap of a live run, in the currency of the prices")
    prompt_price: float = Field(0.0, ge=0, description="of a million tokens of prompts")
    answer_price: float = Field(0.0, ge=0, description="of a million tokens of answers")
    at_once: int = Field(4, ge=1, description="calls that are open at once")

    @property
    def terms(self) -> str:
        """The options of a live run that say what it may cost; empty where nothing is asked."""
        names = ("calls", "tokens", "money", "prompt_price", "answer_price", "at_once")
        given = {name: getattr(self, name) for name in names if self.live}
        return " ".join(f"--{name.replace('_', '-')} {v}" for name, v in given.items() if v is not None)


class Encoding(_Strict):
    """The ternary code, by a test against the controls (spec D1) or by the cohort; its own file may override it."""

    test: Literal["empirical", "normal", "t"] = "empirical"
    level: float = Field(0.05, gt=0, lt=1)
    reference: Literal["controls", "cohort"] = "controls"
    threshold: float = Field(0.5, ge=0, description="of the reference cohort, in robust standard deviations")


class Closure(_Strict):
    """The two class models of a binary task (`afa.closure`); the paper's is `differential`."""

    coupling: Literal["differential", "shared"] = "differential"
    strength: float = Field(0.9, gt=0, lt=1, description="beta L^2 that shared couplings are scaled down to")


class Inference(_Strict):
    """The mean-field iteration (tab:hyperparams)."""

    damping: float = Field(0.5, gt=0, le=1)
    tolerance: float = Field(1e-4, gt=0, lt=1)
    max_iterations: int = Field(200, ge=1)


class RandomOrder(_Strict):
    """Sign convergence under random observation order (sec:eval_score)."""

    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1, description="one random order per patient and seed")
    starts: tuple[Literal["uniform", "warm"], ...] = Field(
        ("uniform", "warm"), min_length=1, description="where each solve starts (spec M6); the first is the headline"
    )


Flip = Annotated[float, Field(ge=0, le=0.5)]


class Gauge(_Strict):
    """The closure of a duel against its true gauge (supp:maxent-vs-truegauge)."""

    seeds: tuple[int, ...] = Field((0,), min_length=1, description="one random order per patient and seed")
    rounds: tuple[PositiveInt, ...] = Field(
        (10, 50, 100, 150, 200), description="t of the correlations, beside 0 and M"
    )


class Calibration(_Strict):
    """Reliability of the binary probability (spec S15)."""

    rounds: tuple[PositiveInt, ...] = Field((10, 50, 100, 150, 200), description="t on the cohort, beside 0 and M")
    simulated: int = Field(200, ge=20, multiple_of=2, description="patients drawn from each task's own model")


class Accurate(_Strict):
    """Decisions by mean-field and by accurate inference on the same states (docs/accurate.md)."""

    patients: int = Field(50, ge=1, description="chosen by a hash of their names")
    linearity_patients: int = Field(
        12, ge=1, description="of these, for `linearity`, which takes moments and more time"
    )
    seed: int = Field(0, ge=0, description="of the patients and of their random order")
    rounds: tuple[PositiveInt, ...] = Field((10, 50, 100, 150, 200), min_length=1, description="t, beside 0 and M")
    chains: int = Field(300, ge=4, description="of a state that is sampled")
    steps: int = Field(200, ge=1, description="that each chain takes from independent features to the model")
    limit: float = Field(2e7, ge=0, description="entries of one exact solve; states that take more are sampled")


class ElicitationError(_Strict):
    """Accuracy at full observation when signs of the potentials are wrong."""

    flips: tuple[Flip, ...] = Field(
        (0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5), min_length=2, description="chances that a sign is turned round"
    )
    replicates: int = Field(5, ge=1, description="flipped models of each entity at each chance")
    simulated: int = Field(200, ge=20, multiple_of=2, description="patients drawn from each task's own model")


class Labels(_Strict):
    """Scores against the cohort's labels by reference and coupling, beside chance; nothing here is chosen by labels."""

    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1, description="one random order per patient and seed")
    percents: tuple[Annotated[int, Field(gt=0, lt=100)], ...] = Field(
        (5, 10, 25, 50), min_length=1, description="shares of an entity's support at which it is read, beside 0 and 100"
    )
    thresholds: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        (0.5, 0.25, 1.0), min_length=1, description="of the reference cohort; the first is the headline"
    )
    strengths: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = Field(
        (0.9, 0.5), min_length=1, description="of shared couplings; the first is the headline"
    )
    permutations: int = Field(20, ge=1, description="bundles with shuffled genes, followed as the real one")
    whole_permutations: int = Field(1000, ge=1, description="the same at full observation, which costs little")


class LabelsNeeded(_Strict):
    """Classifiers trained on some labelled patients, held against the zero-shot scores of `labels` on the others."""

    sizes: tuple[Annotated[int, Field(ge=2)], ...] = Field(
        (10, 20, 50, 100), min_length=1, description="numbers of labelled patients"
    )
    repeats: int = Field(4, ge=1, description="draws of the labelled patients")
    permuted: int = Field(2, ge=0, description="of these, with shuffled labels as well: chance")
    labels: int = Field(6, ge=1, description="labels used, chosen by hashes of their names")
    tested: int = Field(20, ge=2, description="patients that have to be left to be told, or the size is left out")
    of_each_class: int = Field(3, ge=1, description="the same, of each class")


class Ranking(_Strict):
    """Entities ranked by the scale of their scores and by what is expected of the hidden (docs/ranking.md)."""

    rounds: tuple[PositiveInt, ...] = Field((10, 50, 100, 150, 200), description="t that are read, beside 0 and M")
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1, description="one random order per patient and seed")
    permutations: int = Field(20, ge=1, description="bundles with shuffled genes, followed as the real one")
    whole_permutations: int = Field(200, ge=1, description="the same at full observation, which costs little")


class Chaos(_Strict):
    """Chaotic patients: chosen on some orders, looked at on others (spec A10)."""

    selecting_seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1, description="orders that say who is chaotic")
    measuring_seeds: tuple[int, ...] = Field((3, 4, 5), min_length=1, description="orders that the gap is measured on")


class Layer0(_Strict):
    """Certificates that remove clusters of entities before anything is measured (supp:layer0_lipschitz)."""

    clusters: tuple[PositiveInt, ...] = Field((5, 8, 10, 12, 15, 20, 24), description="numbers of clusters tried")
    simulated: int = Field(200, ge=20, description="patients of each configuration of the portfolio")


def _known_rules(names: tuple[str, ...]) -> tuple[str, ...]:
    own = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
    if not names or not all(name in RULES or own.fullmatch(name) for name in names) or len(set(names)) < len(names):
        raise ValueError(f"one or more of {', '.join(RULES)}, or classes of your own as module:Class, none twice")
    return names


class Allocation(_Strict):
    """The grid of allocation rules (sec:eval_alloc): every rule by every gain and schedule."""

    rules: Annotated[tuple[str, ...], AfterValidator(_known_rules)] = Field(
        RULES, description="rules of afa.allocate, or module:Class"
    )
    gains: tuple[Literal["wald_magnitude", "cmi", "f_target"], ...] = Field(
        ("wald_magnitude", "cmi", "f_target"), min_length=1, description="what a duel is expected to learn"
    )
    schedules: tuple[Literal["every", "paper"], ...] = Field(
        ("every", "paper"), min_length=1, description="when candidates are ranked again (spec A6)"
    )
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1, description="random orders of the rule `random`")

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts of the grid, one job per shard each: `none`, of the rules that look at no gain, and every gain."""
        without = [rule for rule in self.rules if rule in WITHOUT_GAIN]
        gains = self.gains if len(without) < len(self.rules) else ()
        return ("none", *gains) if without else gains


Probability = Annotated[float, Field(gt=0.5, lt=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0)]


class Stopping(_Strict):
    """The planners' rules of stopping: how early they end, and how often wrongly (docs/stopping.md)."""

    rules: Annotated[tuple[str, ...], AfterValidator(_known_rules)] = Field(
        ("greedy", "priority_all"), description="allocation rules of the grid that are looked at, beside random"
    )
    probabilities: tuple[Probability, ...] = Field((0.8, 0.9, 0.95, 0.99), min_length=1)
    gains: tuple[NotNegative, ...] = Field((0.1, 0.01, 0.001), min_length=1, description="largest gain left, in nats")
    budgets: tuple[Share, ...] = Field((0.1, 0.25, 0.5), min_length=1, description="shares of all features")
    seed: int = Field(0, ge=0, description="of the random order")


class Layer1(_Strict):
    """Duels resolved along random and informed orders (tab:layer1_informed)."""

    seeds: tuple[int, ...] = Field((0,), min_length=1, description="one random order per patient and seed")


class Sanity(_Strict):
    """The acceptance tests (supp:sanity)."""

    seeds: tuple[int, ...] = Field(
        (0,), min_length=1, description="random orders along which brackets and solves are checked"
    )


class Explorer(_Strict):
    """The page to step through patients' acquisition."""

    patients: int = Field(8, ge=1, le=40, description="at most so many, spread over the cohort")


class Comparison(_Strict):
    """When a number that the paper prints counts as reproduced."""

    confidence: float = Field(0.95, gt=0, lt=1, description="of the paper's own binomial error at its n")
    largest_error: float = Field(
        0.2, gt=0, le=1, description="half-width of that error above which a printed share does not compare"
    )


class Baselines(_Strict):
    """Language models that plan by themselves (app. llm-planning-prompts); off unless live or with a record."""

    record: Path | None = Field(None, description="a folder of answers; where empty, data/llm_baselines if live")
    live: bool = Field(False, description="ask the model of AFA_LLM_MODEL for what the record lacks")
    study: Path = Field(Path("resources/elicitation"), description="study.yaml: the disease, and how models are asked")
    model: str | None = Field(None, description="its name; AFA_LLM_MODEL, or the only one of the record, where empty")
    methods: tuple[Literal["mrf_llm", "rag_llm"], ...] = Field(("mrf_llm", "rag_llm"), min_length=1)
    tasks: tuple[Literal["binary", "top_k"], ...] = Field(("binary", "top_k"), min_length=1)
    turns: Literal["checkpoints", "stateless", "trajectory"] = Field("checkpoints", description="when it is asked")
    order: Literal["planner", "random"] = Field("planner", description="what is observed at checkpoints")
    rounds: tuple[PositiveInt, ...] = Field((10, 50, 100, 150), description="t read out, beside 0 and M")
    patients: int = Field(10, ge=1, description="how many are asked about")
    seed: int = Field(0, description="which patients, and which random order")
    entities: tuple[str, ...] = Field((), description="of the binary task; all where empty")
    abstracts: int = Field(8, ge=1, description="shown on a phenotype to rag_llm")
    calls: int | None = Field(None, ge=0, description="cap over all that the record has used")
    tokens: int | None = Field(None, ge=0, description="cap on tokens of prompts and answers")
    money: float | None = Field(None, ge=0, description="cap in the currency of the prices")
    prompt_price: float = Field(0, ge=0, description="of a million tokens of prompts")
    answer_price: float = Field(0, ge=0, description="of a million tokens of answers")
    at_once: int = Field(4, ge=1, description="calls that are open at once")

    @property
    def folder(self) -> Path | None:
        """Where answers are read and kept; None where the baselines are not run."""
        return self.record or (Path("data/llm_baselines") if self.live else None)

    @property
    def asked(self) -> list[str]:
        """The options that say what is asked of whom."""
        words = {name: ",".join(map(str, getattr(self, name))) for name in ("methods", "tasks", "rounds")}
        words |= {
            name: str(getattr(self, name)) for name in ("turns", "order", "patients", "seed", "abstracts", "study")
        }
        words |= {"model": self.model} if self.model else {}
        entities = [f"--entity={name}" for name in self.entities]
        return [*(f"--{name}={word}" for name, word in words.items()), *entities]

    @property
    def terms(self) -> list[str]:
        """The options of a live run; empty where nothing is asked."""
        names = ("calls", "tokens", "money", "prompt_price", "answer_price", "at_once")
        given = {name: getattr(self, name) for name in names}
        options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value is not None]
        return ["--live", *options] if self.live else []


class Bootstrap(_Strict):
    """Intervals over patients."""

    resamples: int = Field(1000, ge=100)
    confidence: float = Field(0.95, gt=0, lt=1)


class RunConfig(_Strict):
    """One run: a cohort, a bundle and settings."""

    cohort: Name = Field("demo", description="the name of a file of config/cohorts")
    bundle: Path | None = Field(None, description="a bundle folder; the recorded elicitation where empty")
    run: Name | None = Field(None, description="the folder under results/; the cohort's name where empty")
    geo_mirror: Path | None = Field(None, description="a folder with series in GEO's layout; GEO itself where empty")
    geo_cache: Path = Field(Path("data/geo"), description="where files fetched from GEO are kept")
    top_k: int = Field(5, ge=1, description="size of the top set, less than the number of entities")
    shards: int = Field(2, ge=1, description="jobs that the patients of one stage are split into")
    elicitation: Elicitation = Elicitation()
    encoding: Encoding = Encoding()
    inference: Inference = Inference()
    closure: Closure = Closure()
    random_order: RandomOrder = RandomOrder()
    gauge: Gauge = Gauge()
    calibration: Calibration = Calibration()
    accurate: Accurate = Accurate()
    elicitation_error: ElicitationError = ElicitationError()
    labels: Labels = Labels()
    labels_needed: LabelsNeeded = LabelsNeeded()
    ranking: Ranking = Ranking()
    chaos: Chaos = Chaos()
    allocation: Allocation = Allocation()
    layer0: Layer0 = Layer0()
    layer1: Layer1 = Layer1()
    stopping: Stopping = Stopping()
    sanity: Sanity = Sanity()
    baselines: Baselines = Baselines()
    bootstrap: Bootstrap = Bootstrap()
    explorer: Explorer = Explorer()
    comparison: Comparison = Comparison()

    @property
    def run_name(self) -> str:
        return self.run or self.cohort


def check_run_config(document: dict[str, Any]) -> RunConfig:
    """Check a configuration as Snakemake has merged it; every fault at once, as a `ConfigError`."""
    return check_model({key: value for key, value in document.items() if value != ""}, RunConfig, "the configuration")


def cohort_file(settings: RunConfig, folder: Path) -> Path:
    """The file of a run's cohort under `folder`; a `ConfigError` names the cohorts that there are."""
    path = folder / f"{settings.cohort}.yaml"
    if not path.is_file():
        known = sorted(file.stem for file in folder.glob("*.yaml"))
        step = f"choose one, or write {path} with `afa cohort new {settings.cohort}`"
        raise ConfigError(Fault("key cohort", repr(settings.cohort), f"one of {', '.join(known)}", step))
    return path


def own_rule_files(settings: RunConfig) -> list[Path]:
    """The files of the modules that hold allocation rules of one's own; a `ConfigError` where there is none."""
    files = []
    for name in settings.allocation.rules:
        module = name.partition(":")[0]
        if module == name:
            continue
        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        try:
            found = find_spec(module)
        except ImportError:
            found = None
        if found is None or found.origin is None:
            step = "put the module beside the Snakefile, or install it"
            raise ConfigError(Fault("key allocation.rules", name, f"a Python module {module}", step))
        files.append(Path(found.origin))
    return files
