"""The settings of a run: pydantic classes that define all keys of `config/config.yaml`. Unknown keys are errors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveInt

from afa.errors import ConfigError, Fault
from afa.io.yamlfile import check_model, load_model
from afa.paper.codedigest import user_files
from afa.paper.experiments.base import NamePart, Section
from afa.paper.experiments.settings import StageSettings

FIELDS_FOLDER = Path("resources/fields")
EXTRACTS_FOLDER = Path("resources/series")
"""Folder of the extracts of series bundled with the project, one folder for each accession."""
ANSWERS_FOLDER = Path("resources/baselines")
"""Folder of the bundled answers of language models that plan, one folder for each cohort."""
DEPENDED_ON = ("bundle", "top_k", "elicitation", "encoding", "inference")
"""Settings outside section `baselines` on which a language model's prompts depend."""


class LiveCalls(Section):
    """Settings for live calls to a language model, and the caps on these calls."""

    live: bool = False
    """true: ask a language model for the answers that the record lacks, and add its answers to the record. The
    environment variables `AFA_LLM_MODEL`, `AFA_LLM_BASE_URL` and `AFA_LLM_API_KEY` name the model, the endpoint and the
    key. At least one of the caps `calls`, `tokens` and `money` is required
    """
    calls: int | None = Field(None, ge=0)
    """largest number of calls, including the recorded calls of earlier runs"""
    tokens: int | None = Field(None, ge=0)
    """largest number of tokens, of prompts and answers together"""
    money: float | None = Field(None, ge=0)
    """largest cost, in the currency of `prompt_price` and `answer_price`, which this cap requires"""
    prompt_price: float = Field(0.0, ge=0)
    """price of a million tokens of prompts"""
    answer_price: float = Field(0.0, ge=0)
    """price of a million tokens of answers"""
    at_once: int = Field(4, ge=1)
    """number of calls that may wait for an answer at the same time"""

    @property
    def terms(self) -> str:
        """Return command-line options for the limits and prices of requests to a model, or "" if `live` is False."""
        given = {name: getattr(self, name) for name in LiveCalls.model_fields if name != "live"}
        words = [f"--{name.replace('_', '-')} {value}" for name, value in given.items() if value is not None]
        return " ".join(words) if self.live else ""


class Elicitation(LiveCalls):
    """How answers of language models are combined into a bundle; ignored if `bundle` names a folder."""

    min_agree: int = Field(2, ge=1)
    """a gene is used if at least this number of voters (independent runs) name it, all with the same direction"""
    study: Path = Path("resources/elicitation")
    """folder with the questions: `study.yaml` and `phenotypes.csv` (docs/elicitation.md)"""
    record: Path | None = None
    """folder of the answers; empty: the folder `record` of the study"""


class Encoding(Section):
    """How measured values are coded as -1, 0 or +1 (decisions.md D1); a cohort's file may override these settings."""

    test: Literal["empirical", "normal", "t"] = "empirical"
    """test that compares a value with the controls; `empirical` needs at least 20 controls at level 0.05"""
    level: float = Field(0.05, gt=0, lt=1)
    """significance level: a value whose p is below this is coded -1 or +1"""
    reference: Literal["controls", "cohort"] = "controls"
    """what a value is compared with: the controls, by `test` and `level` (`controls`), or the cohort's median, by
    `threshold` (`cohort`; docs/real_labels.md)
    """
    threshold: float = Field(0.5, ge=0)
    """with the reference `cohort`, a value farther than this from the median is coded -1 or +1. The unit is a robust
    standard deviation, 1.4826 times the median absolute deviation
    """


class Explorer(Section):
    """The page `explorer.html`, which shows step by step how features of some patients are chosen."""

    patients: int = Field(8, ge=1, le=40)
    """number of patients on the page `explorer.html`"""


class Baselines(LiveCalls):
    """Language models that choose features themselves (app. llm-planning-prompts), live or with recorded answers."""

    record: Literal["carried"] | Path | None = "carried"
    """folder of the answers of a language model that plans on its own (docs/baselines.md). `carried`: the answers
    bundled with the project for gse109142 and demo, which are used only with the default values of `bundle`, `top_k`,
    `elicitation`, `encoding`, `inference` and this section. Empty: no answers. If `live` is true, `carried` and empty
    mean `data/llm_baselines`
    """
    study: Path = Path("resources/elicitation")
    """folder with `study.yaml`, which names the disease and the model's settings, and with `keywords.csv` for the
    search of the literature
    """
    model: str | None = None
    """name of the model; empty: the model in `AFA_LLM_MODEL` if `live` is true, else the only model in the record"""
    methods: tuple[Literal["mrf_llm", "rag_llm", "knowledge_llm"], ...] = Field(("mrf_llm", "rag_llm"), min_length=1)
    """what the prompt contains: the bundle's potentials (`mrf_llm`), abstracts (`rag_llm`), or neither
    (`knowledge_llm`)
    """
    tasks: tuple[Literal["binary", "top_k"], ...] = Field(("binary", "top_k"), min_length=1)
    """`binary`: does the patient have this phenotype? `top_k`: which k phenotypes are the likeliest?"""
    turns: Literal["checkpoints", "stateless", "trajectory"] = "checkpoints"
    """`checkpoints`: features are observed in a given order, and the model decides at the numbers of observations in
    `rounds`. `stateless` and `trajectory`: the model also chooses each next feature, in `trajectory` with its earlier
    turns in the prompt; both take one call for each feature, patient and phenotype
    """
    horizon: int | None = Field(None, ge=1)
    """with `stateless` and `trajectory`, the model is asked until this number of features is observed; empty: all
    features
    """
    order: Literal["planner", "random"] = "planner"
    """with `checkpoints`, the order in which features are observed: the planner's, or random"""
    rounds: tuple[PositiveInt, ...] = (10, 50, 100, 150)
    """numbers of observed features at which decisions are evaluated, in addition to 0 and all"""
    patients: int = Field(10, ge=1)
    """number of patients about whom the language models are asked"""
    seed: int = 0
    """seed for the choice of patients and for the random order"""
    entities: tuple[str, ...] = ()
    """phenotypes about which binary questions are asked; empty: all"""
    abstracts: int = Field(8, ge=1)
    """number of abstracts on a phenotype in the prompts of `rag_llm`"""

    @property
    def folder(self) -> Path | None:
        """Return the folder of recorded answers, to which new answers are added. If no model is asked, return None."""
        if isinstance(self.record, Path):
            return self.record
        return Path("data/llm_baselines") if self.live else None

    @property
    def asked(self) -> str:
        """Return the settings that determine the questions to a language model, as JSON."""
        return self.model_dump_json(exclude={"record", *LiveCalls.model_fields})


class _Inputs(Section):
    """The inputs of a run: its patients and its bundle."""

    cohort: NamePart = "gse109142"
    """the patients: name of a file of `config/cohorts`, without `.yaml`, or of a folder of `resources/fields`. The
    project contains `gse109142`, `gse117993` and the simulated cohort `demo`
    """
    bundle: Path | None = None
    """folder of your own bundle; empty: the bundle of the field, or of the recorded elicitation"""
    run: NamePart | None = None
    """name of the folder under `results/`; empty: the cohort's name"""
    source: Literal["extract", "geo"] = "extract"
    """where a series is read from. `extract`: the extract bundled with the project (resources/series/README.md), or GEO
    if there is no extract. `geo`: always GEO. Both give the same numbers
    """
    geo_mirror: Path | None = None
    """folder with series in GEO's layout, which is read instead of the extract and GEO"""
    tables: Path | None = None
    """folder with the tables of fields that the project does not contain, as `<field>/<file>`"""
    geo_cache: Path = Path("data/geo")
    """folder in which files from GEO are saved for later runs"""
    shards: int = Field(1, ge=1)
    """number of jobs among which a stage's patients are divided. Results do not depend on it"""
    elicitation: Elicitation = Elicitation()
    encoding: Encoding = Encoding()


class RunConfig(StageSettings, _Inputs):
    """The settings of one run: its cohort, its bundle, and the settings of every stage."""

    baselines: Baselines = Baselines()
    explorer: Explorer = Explorer()

    @property
    def run_name(self) -> str:
        return self.run or self.cohort


def check_run_config(document: dict[str, Any]) -> RunConfig:
    """Validate a configuration after Snakemake has merged its parts. One `ConfigError` lists all invalid settings."""
    return check_model({key: value for key, value in document.items() if value != ""}, RunConfig, "the configuration")


def cohort_file(settings: RunConfig, *folders: Path) -> Path:
    """Return the path of the file that describes a run's cohort, in the first folder that contains such a file.

    `folders` are the folders `config/cohorts` of the workflow and of the user. The folders `resources/fields` of the
    workflow and of the user are searched too. If no folder contains the file, raise a `ConfigError` that lists the
    known cohorts.
    """
    paths = [folder / f"{settings.cohort}.yaml" for folder in folders]
    fields = [folder.parents[1] / FIELDS_FOLDER for folder in folders]
    for path in (*paths, *(folder / settings.cohort / "study.yaml" for folder in fields)):
        if path.is_file():
            return path
    known = sorted({file.stem for folder in folders for file in folder.glob("*.yaml")})
    known += sorted({file.parent.name for folder in fields for file in folder.glob("*/study.yaml")})
    step = f"choose one, or write {paths[0]} with `afa cohort new {settings.cohort}`"
    raise ConfigError(Fault("key cohort", repr(settings.cohort), f"one of {', '.join(known)}", step))


def bundled_extract(settings: RunConfig, series: str, home: Path = Path()) -> Path | None:
    """Return the folder of the bundled extract of a series, or None if the run reads the series from a mirror or GEO.

    Parameters
    ----------
    home : the folder that contains the workflow

    """
    folder = home / EXTRACTS_FOLDER / series
    return folder if settings.source == "extract" and settings.geo_mirror is None and folder.is_dir() else None


def language_models(settings: RunConfig, home: Path = Path()) -> dict[str, Baselines]:
    """Return a dictionary from the name of a summary table to the settings of the language models in this table.

    If the result is empty, no language model is asked.

    The project contains recorded answers for two tables. For the table `llm_baselines`, features were observed in a
    given order. For the table `llm_choosing`, the models chose which feature was observed next. The recorded answers
    are used if `record` is `carried`, `live` is false, and all settings that affect the prompts have their default
    values. If the recorded answers are used, the settings of the models are read from the folders of the answers. If
    the recorded answers are not used, the only table is `llm_baselines`, with the settings of the run.

    Parameters
    ----------
    home : the folder that contains the workflow

    """
    given, default = settings.baselines, RunConfig()
    same = all(getattr(settings, name) == getattr(default, name) for name in DEPENDED_ON)
    if given.live or given.record != "carried" or given.asked != default.baselines.asked or not same:
        return {} if given.folder is None else {"llm_baselines": given}
    found = {}
    for name, folder in (("llm_baselines", ANSWERS_FOLDER), ("llm_choosing", ANSWERS_FOLDER / "choosing")):
        answers = home / folder / settings.cohort
        if answers.is_dir():
            asked = load_model(answers / "asked.yaml", Baselines).model_dump(exclude_unset=True)
            found[name] = given.model_copy(update=asked | {"record": answers, "study": home / given.study})
    return found


def own_rule_files(settings: RunConfig) -> list[Path]:
    """Return the files of all modules with user-defined rules, and of all modules that these modules import.

    Raise a `ConfigError` if a module does not exist.
    """
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
