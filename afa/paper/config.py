"""What a run of the workflow is: one model of `config/config.yaml` that knows every key and forbids all others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, PositiveInt, create_model

from afa.errors import ConfigError, Fault
from afa.io.yamlfile import check_model, load_model
from afa.paper.codedigest import user_files
from afa.paper.experiments import sections
from afa.paper.experiments.base import Name, Section
from afa.paper.experiments.settings import SHARED, TopK

if TYPE_CHECKING:
    from afa.paper.experiments.settings import Allocation, Bootstrap, Closure, Inference

FIELDS = Path("resources/fields")
EXTRACTS = Path("resources/series")
"""Where the project carries extracts of series, each in a folder named by its accession."""
ANSWERS = Path("resources/baselines")
"""Where the project carries answers of a language model that plans, in a folder for each cohort."""
DEPENDED_ON = ("bundle", "top_k", "elicitation", "encoding", "inference")
"""The settings beside its own that a language model's prompts depend on: bundle, patients' values, planner's order."""


class Asking(Section):
    """Whether a model is asked, and what that may cost."""

    live: bool = False
    """ask the model of the variable `AFA_LLM_MODEL` for what the record lacks, and add it there. Address and key come
    from `AFA_LLM_BASE_URL` and `AFA_LLM_API_KEY`, never from here. A live run starts only with one cap or more"""
    calls: int | None = Field(None, ge=0)
    """cap on the calls that the record may come to, those of earlier runs included"""
    tokens: int | None = Field(None, ge=0)
    """cap on the tokens of prompts and answers"""
    money: float | None = Field(None, ge=0)
    """cap on money, in the currency of the two prices, which it needs"""
    prompt_price: float = Field(0.0, ge=0)
    """price of a million tokens of prompts; with both at 0 no cost is shown"""
    answer_price: float = Field(0.0, ge=0)
    """price of a million tokens of answers"""
    at_once: int = Field(4, ge=1)
    """calls that are open at once"""

    @property
    def terms(self) -> str:
        """The options of a live run that say what it may cost; empty where nothing is asked."""
        given = {name: getattr(self, name) for name in Asking.model_fields if name != "live"}
        words = [f"--{name.replace('_', '-')} {value}" for name, value in given.items() if value is not None]
        return " ".join(words) if self.live else ""


class Elicitation(Asking):
    """How answers of a model become a bundle; not used when `bundle` names a folder."""

    min_agree: int = Field(2, ge=1)
    """how many of the study's voters, three in ours, must name a gene, all with one direction. No key of
    `elicitation` is used with a bundle of your own"""
    study: Path = Path("resources/elicitation")
    """a folder with `study.yaml` and `phenotypes.csv`: what is asked, of whom and how (docs/elicitation.md)"""
    record: Path | None = None
    """the folder of answers; empty: `record` in the study's folder"""


class Encoding(Section):
    """The ternary code, by a test against the controls (decisions.md D1) or by the cohort; its file may override it."""

    test: Literal["empirical", "normal", "t"] = "empirical"
    """how a value is tested against the controls; `empirical` needs 20 controls at level 0.05"""
    level: float = Field(0.05, gt=0, lt=1)
    """p below which a value counts as -1 or +1"""
    reference: Literal["controls", "cohort"] = "controls"
    """what values are held against: the controls, by the two keys above, or the cohort itself, by distance from its
    median (docs/real_labels.md)"""
    threshold: float = Field(0.5, ge=0)
    """of the reference `cohort`: distance in robust standard deviations (1.4826 times the median absolute deviation)
    beyond which a value counts as -1 or +1"""


class Explorer(Section):
    """The page to step through patients' acquisition."""

    patients: int = Field(8, ge=1, le=40)
    """patients on the page `explorer.html`, spread over the cohort"""


class Baselines(Asking):
    """Language models that plan by themselves (app. llm-planning-prompts); off unless live or with a record."""

    record: Literal["carried"] | Path | None = "carried"
    """a folder of answers of a language model that plans by itself (docs/baselines.md); `carried`: those in
    resources/baselines/README.md, of gse109142 and demo, with the methods, tasks and phenotypes that they have.
    They are left out where this section, `bundle`, `top_k`, `elicitation`, `encoding` or `inference` is not as in
    `config.yaml`. Empty: not run. If live, another value than a folder means `data/llm_baselines`"""
    study: Path = Path("resources/elicitation")
    """a folder with `study.yaml`: the disease, and how models are asked (`manner`); and `keywords.csv` for the
    literature"""
    model: str | None = None
    """the model; empty: `AFA_LLM_MODEL`, or without `live` the only one of the record"""
    methods: tuple[Literal["mrf_llm", "rag_llm", "knowledge_llm"], ...] = Field(("mrf_llm", "rag_llm"), min_length=1)
    """told the bundle's potentials, or abstracts, or neither"""
    tasks: tuple[Literal["binary", "top_k"], ...] = Field(("binary", "top_k"), min_length=1)
    """each phenotype by itself; the top k of all"""
    turns: Literal["checkpoints", "stateless", "trajectory"] = "checkpoints"
    """asked once at each of the rounds read out, along an order of ours; or each turn, measuring what it picks,
    without or with the earlier turns listed. Each turn is M + 1 calls a patient and phenotype"""
    horizon: int | None = Field(None, ge=1)
    """with `stateless` and `trajectory`: observations after which the model is asked for the last time; later rounds
    are not read out. Empty: all"""
    order: Literal["planner", "random"] = "planner"
    """whose features are observed at checkpoints"""
    rounds: tuple[PositiveInt, ...] = (10, 50, 100, 150)
    """t that are read out, beside 0 and M"""
    patients: int = Field(10, ge=1)
    """patients who are asked about"""
    seed: int = 0
    """which patients these are, and which random order"""
    entities: tuple[str, ...] = ()
    """phenotypes of the binary task; empty: all"""
    abstracts: int = Field(8, ge=1)
    """abstracts on a phenotype that `rag_llm` is shown"""

    @property
    def folder(self) -> Path | None:
        """Where answers are read and kept; None where the baselines are not run."""
        if isinstance(self.record, Path):
            return self.record
        return Path("data/llm_baselines") if self.live else None

    @property
    def asked(self) -> str:
        """What is asked of whom, as JSON."""
        return self.model_dump_json(exclude={"record", *Asking.model_fields})


class _Inputs(Section):
    """What a run is made of: its patients and its knowledge."""

    cohort: Name = "gse109142"
    """a file of `config/cohorts`, without `.yaml`, or a folder of `resources/fields`; `gse117993` is carried too,
    and `demo` is simulated, for trials and for any bundle"""
    bundle: Path | None = None
    """a bundle folder of your own; empty: the field's own, or the recorded elicitation, by consensus"""
    run: Name | None = None
    """folder under `results/`; empty: the cohort's name"""
    source: Literal["extract", "geo"] = "extract"
    """where a real series is read from: the extract that the project carries (resources/series/README.md), and GEO
    where there is none; or GEO in any case. Both give the same numbers"""
    geo_mirror: Path | None = None
    """a folder with series laid out as GEO has them, which is read in the place of both. The simulated cohort needs
    none of them"""
    tables: Path | None = None
    """a folder with tables of fields that are not carried, as `<field>/<file>`"""
    geo_cache: Path = Path("data/geo")
    """where files fetched from GEO are kept for the next run"""
    top_k: TopK = SHARED["top_k"][1]
    """size of the top set; where there are no more entities than that, one less than them"""
    shards: int = Field(1, ge=1)
    """jobs that the patients of a stage are split into; changes no number. No more than there are patients"""
    elicitation: Elicitation = Elicitation()
    encoding: Encoding = Encoding()


if TYPE_CHECKING:

    class _Stages(_Inputs):
        """And what the stages read."""

        allocation: Allocation = Allocation()
        chaos: Any = None
        closure: Closure = Closure()
        inference: Inference = Inference()
        bootstrap: Bootstrap = Bootstrap()

else:
    read = {name: kind for name, kind in sections().items() if name not in _Inputs.model_fields}
    _Stages = create_model("_Stages", __base__=_Inputs, **read)


class RunConfig(_Stages):
    """One run: a cohort, a bundle and the settings of every stage."""

    baselines: Baselines = Baselines()
    explorer: Explorer = Explorer()

    @property
    def run_name(self) -> str:
        return self.run or self.cohort


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


def language_models(settings: RunConfig, home: Path = Path()) -> dict[str, Baselines]:
    """Return how the language models of a run are asked, by table of the summary; {} where none is run.

    `llm_baselines` is as set. With `carried` it is as those were asked whose answers the project carries, and
    `llm_choosing` is beside it, where models chose their own features. They were asked with the default settings of all
    that their prompts depend on; with others neither is run.
    home : the folder that holds the workflow.
    """
    given, default = settings.baselines, RunConfig()
    same = all(getattr(settings, name) == getattr(default, name) for name in DEPENDED_ON)
    if given.live or given.record != "carried" or given.asked != default.baselines.asked or not same:
        return {} if given.folder is None else {"llm_baselines": given}
    found = {}
    for name, folder in (("llm_baselines", ANSWERS), ("llm_choosing", ANSWERS / "choosing")):
        answers = home / folder / settings.cohort
        if answers.is_dir():
            asked = load_model(answers / "asked.yaml", Baselines).model_dump(exclude_unset=True)
            found[name] = given.model_copy(update=asked | {"record": answers, "study": home / given.study})
    return found


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
