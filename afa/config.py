"""What a run of the workflow is: one model of `config/config.yaml` that knows every key and forbids all others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PositiveInt, create_model

from afa.codedigest import user_files
from afa.errors import ConfigError, Fault
from afa.stages import sections
from afa.stages.base import Section
from afa.yamlfile import check_model, load_model

if TYPE_CHECKING:
    from afa.stages.settings import Allocation, Bootstrap, Closure, Inference

Name = Annotated[str, Field(coerce_numbers_to_str=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


FIELDS = Path("resources/fields")
EXTRACTS = Path("resources/series")
"""Where the project carries extracts of series, each in a folder named by its accession."""
ANSWERS = Path("resources/baselines")
"""Where the project carries answers of a language model that plans, in a folder for each cohort."""
DEPENDED_ON = ("bundle", "top_k", "elicitation", "encoding", "inference")
"""The settings beside its own that a language model's prompts depend on: bundle, patients' values, planner's order."""


class Elicitation(Section):
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


class Encoding(Section):
    """The ternary code, by a test against the controls (decisions.md D1) or by the cohort; its file may override it."""

    test: Literal["empirical", "normal", "t"] = "empirical"
    level: float = Field(0.05, gt=0, lt=1)
    reference: Literal["controls", "cohort"] = "controls"
    threshold: float = Field(0.5, ge=0, description="of the reference cohort, in robust standard deviations")


class Explorer(Section):
    """The page to step through patients' acquisition."""

    patients: int = Field(8, ge=1, le=40, description="at most so many, spread over the cohort")


class Baselines(Section):
    """Language models that plan by themselves (app. llm-planning-prompts); off unless live or with a record."""

    record: Literal["carried"] | Path | None = Field(
        "carried", description="a folder of answers, or the project's own where made for this cohort and these settings"
    )
    live: bool = Field(False, description="ask the model of AFA_LLM_MODEL for what the record lacks")
    study: Path = Field(Path("resources/elicitation"), description="study.yaml: the disease, and how models are asked")
    model: str | None = Field(None, description="its name; AFA_LLM_MODEL, or the only one of the record, where empty")
    methods: tuple[Literal["mrf_llm", "rag_llm", "knowledge_llm"], ...] = Field(("mrf_llm", "rag_llm"), min_length=1)
    tasks: tuple[Literal["binary", "top_k"], ...] = Field(("binary", "top_k"), min_length=1)
    turns: Literal["checkpoints", "stateless", "trajectory"] = Field("checkpoints", description="when it is asked")
    horizon: int | None = Field(None, ge=1, description="observations at most, where it is asked each turn")
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
        if isinstance(self.record, Path):
            return self.record
        return Path("data/llm_baselines") if self.live else None

    @property
    def asked(self) -> list[str]:
        """The options that say what is asked of whom."""
        words = {name: ",".join(map(str, getattr(self, name))) for name in ("methods", "tasks", "rounds")}
        words |= {
            name: str(getattr(self, name)) for name in ("turns", "order", "patients", "seed", "abstracts", "study")
        }
        words |= {name: str(value) for name in ("model", "horizon") if (value := getattr(self, name))}
        entities = [f"--entity={name}" for name in self.entities]
        return [*(f"--{name}={word}" for name, word in words.items()), *entities]

    @property
    def terms(self) -> list[str]:
        """The options of a live run; empty where nothing is asked."""
        names = ("calls", "tokens", "money", "prompt_price", "answer_price", "at_once")
        given = {name: getattr(self, name) for name in names}
        options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value is not None]
        return ["--live", *options] if self.live else []


class _Run(Section):
    """What a run has beside the settings of its stages."""

    cohort: Name = Field(
        "gse109142", description="the name of a file of config/cohorts, or of a folder of resources/fields"
    )
    bundle: Path | None = Field(None, description="a bundle folder; the recorded elicitation where empty")
    run: Name | None = Field(None, description="the folder under results/; the cohort's name where empty")
    source: Literal["extract", "geo"] = Field(
        "extract", description="a series is read from the extract that the project carries, if any, or from GEO"
    )
    geo_mirror: Path | None = Field(None, description="a folder with series in GEO's layout, in the place of both")
    tables: Path | None = Field(
        None, description="a folder with tables of fields that are not carried, as <field>/<file>"
    )
    geo_cache: Path = Field(Path("data/geo"), description="where files fetched from GEO are kept")
    shards: int = Field(2, ge=1, description="jobs that the patients of one stage are split into")
    elicitation: Elicitation = Elicitation()
    encoding: Encoding = Encoding()
    baselines: Baselines = Baselines()
    explorer: Explorer = Explorer()

    @property
    def run_name(self) -> str:
        return self.run or self.cohort


if TYPE_CHECKING:

    class RunConfig(_Run):
        """One run: a cohort, a bundle and the settings of every stage (`afa.stages.sections`)."""

        top_k: int = 5
        allocation: Allocation = Allocation()
        chaos: Any = None
        elicitation_error: Any = None
        closure: Closure = Closure()
        inference: Inference = Inference()
        bootstrap: Bootstrap = Bootstrap()

else:
    RunConfig = create_model("RunConfig", __base__=_Run, **sections())


def check_run_config(document: dict[str, Any]) -> RunConfig:
    """Check a configuration as Snakemake has merged it; every fault at once, as a `ConfigError`."""
    return check_model({key: value for key, value in document.items() if value != ""}, RunConfig, "the configuration")


def cohort_file(settings: RunConfig, *folders: Path) -> Path:
    """The file of a run's cohort in the first of some folders `config/cohorts` that has it, or of a field beside them.

    A `ConfigError` names the cohorts that there are.
    """
    paths = [folder / f"{settings.cohort}.yaml" for folder in folders]
    fields = [folder.parents[1] / FIELDS for folder in folders]
    for path in (*paths, *(folder / settings.cohort / "study.yaml" for folder in fields)):
        if path.is_file():
            return path
    known = sorted({file.stem for folder in folders for file in folder.glob("*.yaml")})
    known += sorted({file.parent.name for folder in fields for file in folder.glob("*/study.yaml")})
    step = f"choose one, or write {paths[0]} with `afa cohort new {settings.cohort}`"
    raise ConfigError(Fault("key cohort", repr(settings.cohort), f"one of {', '.join(known)}", step))


def carried_extract(settings: RunConfig, series: str, home: Path = Path()) -> Path | None:
    """The folder of the extract that a run reads a real series from; None where it reads a mirror, or GEO.

    home : the folder that holds the workflow.
    """
    folder = home / EXTRACTS / series
    return folder if settings.source == "extract" and settings.geo_mirror is None and folder.is_dir() else None


def language_models(settings: RunConfig, home: Path = Path()) -> Baselines:
    """The language models of a run as set; with `carried`, as those were asked whose answers the project carries.

    They were asked with the default settings of all that their prompts depend on; with others nothing is run.
    home : the folder that holds the workflow.
    """
    given, default = settings.baselines, RunConfig()
    folder = home / ANSWERS / settings.cohort
    same = all(getattr(settings, name) == getattr(default, name) for name in DEPENDED_ON)
    if given.live or given.record != "carried" or given.asked != default.baselines.asked or not same:
        return given
    if not folder.is_dir():
        return given
    asked = load_model(home / ANSWERS / "asked.yaml", Baselines)
    given = given.model_copy(update=asked.model_dump(exclude_unset=True))
    return given.model_copy(update={"record": folder, "study": home / given.study})


def own_rule_files(settings: RunConfig) -> list[Path]:
    """The files of modules with user-defined rules, and of what they import; a `ConfigError` where there is none."""
    files: dict[Path, None] = {}
    for name in settings.allocation.rules:
        module = name.partition(":")[0]
        if module == name:
            continue
        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        found = user_files(module)
        if not found:
            step = "put the module beside the Snakefile, or install it"
            raise ConfigError(Fault("key allocation.rules", name, f"a Python module {module}", step))
        files |= dict.fromkeys(found)
    return list(files)
