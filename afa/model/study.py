"""A study: the entities and features to elicit, the language model and its endpoint, and the settings of requests.

A study is a folder with the files `study.yaml` and `phenotypes.csv`, and optionally `keywords.csv` and `aliases.csv`.
If the study belongs to a data set (`afa.evaluate.field`), the entities are listed in `entities.csv` instead, and
`study.yaml` also names the file with the values of the features.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pandas as pd
from pydantic import Field, field_validator, model_validator

from afa.errors import AfaError, ElicitationError, Fault, check_number
from afa.io.csvfile import name_column, quoted, read_csv_table
from afa.io.yamlfile import Strict, load_model
from afa.model.bundle.rates import Holds
from afa.model.features import DISPLAY_COLUMNS, Features, read_features

STUDY_FILE, PHENOTYPES_FILE, KEYWORDS_FILE, ALIASES_FILE = "study.yaml", "phenotypes.csv", "keywords.csv", "aliases.csv"
ENTITIES_FILE, FEATURES_FILE, DICTIONARY_FILE = "entities.csv", "features.csv", "dictionary.csv"
ONE_OF_SEVERAL = "categorical-as-binary"
"""Word in the column `kind` of `dictionary.csv` for a feature that is one value of a categorical variable."""
RECORD_FOLDER = "record"
PAIR_RUN = "pairs"
"""Name of the only run of pairwise questions, and of its voter in `models`."""
SourceKind = Literal["article", "preprint"]
PairMode = Literal["each", "by_anchor", "conditional"]
UNARY, PAIRWISE, ANCHOR, CONDITIONAL = "unary", "pairwise", "anchor", "conditional"
CUTS, RATES = "cuts", "rates"
Ends = dict[str, tuple[float | None, float | None]]
"""Feature -> its low and high cut point, or None if the feature has no values on that side."""
PAIR_PROMPTS: Mapping[PairMode, str] = {"each": PAIRWISE, "by_anchor": ANCHOR, "conditional": CONDITIONAL}


NAME = r"^[a-z0-9][a-z0-9_-]*$"
SHA256 = r"^[0-9a-f]{64}$"


BASE_URL, MODEL, KEY = "AFA_LLM_BASE_URL", "AFA_LLM_MODEL", "AFA_LLM_API_KEY"
REMOVED = "[key removed]"
SHORTEST_KEY = 8
"""Shortest key to redact, in characters; shorter keys are dummy words that may occur in an answer."""


@dataclass(frozen=True)
class Endpoint:
    """Address, model and key of an endpoint of a language model.

    The key is read from the environment, and is never shown or recorded.

    Raises
    ------
    ElicitationError : the address, the model or the key cannot be used

    """

    base_url: str
    model: str
    key: str = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        ElicitationError.raise_for(self._endpoint_faults())

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] = os.environ, *, model: str = "", address: str = "", key: str = KEY
    ) -> Endpoint:
        """Return the endpoint described by `AFA_LLM_BASE_URL`, `AFA_LLM_MODEL` and `AFA_LLM_API_KEY`.

        Parameters
        ----------
        model, address : values to use instead of these variables
        key : name of the variable with the key

        Raises
        ------
        ElicitationError : lists the variables that are missing

        """
        found = {BASE_URL: address or environment.get(BASE_URL, ""), MODEL: model or environment.get(MODEL, "")}
        found[key] = environment.get(key, "")
        if lacking := [name for name, value in found.items() if not value]:
            step = "export it; endpoints that need no key take any text"
            raise ElicitationError(Fault(f"the environment, {name}", "nothing", "a value", step) for name in lacking)
        return cls(found[BASE_URL], found[MODEL], found[key])

    def redacted(self, text: str) -> str:
        """Return the text with the key removed, because an endpoint may repeat the key.

        The key is found in plain text and in text escaped as JSON.
        """
        return _pattern(self.key).sub(REMOVED, text) if len(self.key) >= SHORTEST_KEY else text

    def _endpoint_faults(self) -> Iterator[Fault]:
        # Error messages show neither the key nor the address, because the address may contain a password.
        where = "the endpoint's {} ({})"
        try:
            address = urlsplit(self.base_url)
            sound = address.scheme in ("http", "https") and bool(address.hostname) and (address.port or 1) > 0
            secret = address.username or address.password or address.query or address.fragment
        except ValueError:
            sound, secret = False, None
        if not sound or secret:
            found = "a user, a password or a query in it" if secret else "no address"
            step = "the key has its own variable; give the address as the endpoint's manual does"
            yield Fault(where.format("address", BASE_URL), found, "http(s)://host/path alone", step)
        if not self.model.strip():
            yield Fault(where.format("model", MODEL), "nothing", "the name of a model", "name it")
        if not re.fullmatch(r"[!-~]+", self.key):
            found = f"{len(self.key)} characters that no header takes, such as blanks or ends of lines"
            yield Fault(where.format("key", KEY), found, "printable ASCII without blanks", "copy the key alone")


@lru_cache
def _pattern(key: str) -> re.Pattern[str]:
    r"""Return a regular expression that matches the key.

    Each character of the key may be plain, preceded by a backslash, or written as `\u` and digits.
    """
    return re.compile("".join(rf"(?:\\?{re.escape(c)}|\\u(?i:{ord(c):04x}))" for c in key))


@dataclass(frozen=True)
class Manner:
    """Settings of requests to a language model.

    Parameters
    ----------
    temperature, seed, most_tokens : values sent with each request; None is not sent
    structured : how the request passes the schema of the answer: `json_schema` (with lengths and ranges), `bare_schema`
        (without them, for endpoints that refuse them), `json_object` (a request for JSON), `prompt` (in the prompt)
    stream : True to receive the answer in pieces
    timeout : longest time without receiving a byte, seconds
    deadline : longest time of one request, seconds
    calls : largest number of requests for one answer if the endpoint fails
    answers : largest number of answers that are requested if no answer fits the schema
    failures : number of consecutive failed attempts, over all questions, after which a run stops
    patience : longest `Retry-After` to wait for, seconds; if the endpoint asks for more, the run stops
    limit : name of the endpoint's parameter for `most_tokens`

    Raises
    ------
    ElicitationError : a number is out of its range

    """

    temperature: float | None = None
    seed: int | None = None
    most_tokens: int = 16_384
    structured: Literal["json_schema", "bare_schema", "json_object", "prompt"] = "json_schema"
    stream: bool = False
    timeout: float = 120.0
    deadline: float = 600.0
    calls: int = 5
    answers: int = 3
    failures: int = 20
    patience: float = 300.0
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_completion_tokens"

    def __post_init__(self) -> None:
        for name in ("most_tokens", "timeout", "deadline", "calls", "answers", "failures", "patience"):
            where, number, step = f"manner, {name}", getattr(self, name), "choose a larger one"
            check_number(ElicitationError, where, number, "a positive number", lambda x: x >= 1e-3, step)

    @property
    def parameters(self) -> dict[str, Any]:
        """Return the settings of requests that can affect an answer."""
        return {
            "temperature": None if self.temperature is None else float(self.temperature),
            "seed": self.seed,
            "most_tokens": self.most_tokens,
            "structured": self.structured,
        }


class Words(Strict):
    """Words of the domain that are used in prompts. The defaults are for the expression of genes in a tissue."""

    reader: str = Field("read the biomedical literature for a clinical team", description="task of the model")
    disease: str = "disease"
    tissue: str = Field("tissue", description="where a feature is measured")
    phenotype: str = Field("phenotype", description="an entity")
    patient: str = "patient"
    patients: str = "patients"
    gene: str = Field("gene", description="a feature")
    genes: str = "genes"
    expression: str = Field("expression", description="quantity of a feature that shifts")
    specific: str = Field("a function has been shown, not a genetic association alone", description="good evidence")
    named: str = Field("its symbol is the official one of HGNC", description="rule for names of features")
    unspecific: str = Field("general markers of inflammation or immune activation", description="what is no evidence")
    counts: str = Field(
        "Any tissue, cell type or model that takes part in the organ's function or disease counts",
        description="sources of evidence on a pair that count; the `scope` of the study follows",
    )
    excluded: str = Field("Other organs do not", description="sources that do not count; the `exclusions` follow")


class TableSource(Strict):
    """Location and licence of the table with the values and labels of a data set."""

    file: str = Field(description="name of the file, in the field's folder or in `<tables>/<field>`")
    sha256: str = Field(pattern=SHA256)
    labels_sha256: str | None = Field(None, pattern=SHA256, description="digest of labels.csv, if the folder lacks it")
    carried: bool = Field(description="true if the field's folder contains table and labels")
    licence: str = "not stated"
    citation: str = ""
    address: str | None = Field(None, description="address of the original, if the folder lacks it")


class Voter(Strict):
    """Model and endpoint of a voter (one run of a language model).

    If a setting is empty, its value is read from the environment.
    """

    model: str = Field("", description="name of the model; empty: AFA_LLM_MODEL")
    address: str = Field("", description="address of the endpoint; empty: AFA_LLM_BASE_URL")
    key: str = Field(KEY, description="name of the environment variable that holds the key")

    @model_validator(mode="before")
    @classmethod
    def _voter_from_name(cls, given: Any) -> Any:
        return {"model": given} if isinstance(given, str) else given


class StudySettings(Strict):
    """Settings in `study.yaml`."""

    name: str = Field(min_length=1, description="first part of the bundle's name")
    title: str = ""
    holds: Holds = Field("several", description="how many entities a patient can have, by the question")
    table: TableSource | None = Field(None, description="values and labels of a field")
    confounded: tuple[str, ...] = Field((), description="features that reveal how patients were recruited")
    disease: str = Field("", description="name of the disease in every question")
    tissue: str = Field("", description="where features are measured; may be empty")
    words: Words = Field(Words(), description="terms of the domain in prompts")
    most_genes: int = Field(25, ge=1, description="number of genes for each phenotype")
    bibliography: int = Field(0, ge=0, description="number of references for each phenotype")
    exactly: bool = Field(False, description="true: ask for exactly these numbers; false: at most")
    snippet_length: int = Field(300, ge=0, description="length of a snippet, in characters")
    scope: tuple[str, ...] = Field((), description="tissues, cells and models that count for a pair")
    exclusions: tuple[str, ...] = Field((), description="tissues, cells and models that do not count for a pair")
    voters: tuple[str, ...] = Field(("r1", "r2", "r3"), min_length=1, description="names of the independent runs")
    models: Mapping[str, Voter] = Field({}, description="voter -> model, or model, address and key variable")
    same_model: bool = Field(False, description="allow voters of one model; the bundle records this")
    manner: Manner = Field(Manner(), description="settings of requests")
    pairs: PairMode = Field("each", description="a question for each pair or anchor gene, or probabilities")
    abstracts: int = Field(0, ge=0, description="number of abstracts retrieved for each question")
    references: bool = Field(False, description="keep only genes that a cited abstract names")
    sources: tuple[SourceKind, ...] = Field(
        ("article", "preprint"), min_length=1, description="sources that support a gene"
    )
    provenance: Mapping[str, Any] = Field({}, description="origin of a record that was made elsewhere")

    @field_validator("voters")
    @classmethod
    def _each_once(cls, voters: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(voters)) < len(voters) or PAIR_RUN in voters:
            raise ValueError(f"a voter stands twice, or is named {PAIR_RUN}, as the run that judges pairs is")
        return voters

    @model_validator(mode="after")
    def _check_settings(self) -> StudySettings:
        if self.table is not None and not re.fullmatch(NAME, self.name):
            raise ValueError("the name of a field has lower-case letters, digits, - and _ alone")
        if self.table is None and not self.disease:
            raise ValueError("the key disease, what the entities are causes or kinds of: it is in every question")
        if others := sorted(set(self.models) - {*self.voters, PAIR_RUN}):
            raise ValueError(f"models names {', '.join(others)}, no voter and not {PAIR_RUN}")
        if self.references and not self.abstracts:
            raise ValueError("references needs abstracts above 0: without retrieval no reference is supported")
        return self

    @property
    def known_models(self) -> Mapping[str, str]:
        """Return a mapping from voters (runs of a language model) to models.

        If the settings do not name the model of a voter, the mapping does not contain this voter.
        """
        return {run: voter.model for run, voter in self.models.items() if voter.model}

    @property
    def variables(self) -> list[str]:
        """Return the names of the environment variables that are read when requests are sent."""
        voters = [self.voter(run) for run in (*self.voters, PAIR_RUN)]
        names = [name for voter in voters for name, own in ((BASE_URL, voter.address), (MODEL, voter.model)) if not own]
        return list(dict.fromkeys([*names, *(voter.key for voter in voters)]))

    def voter(self, run: str) -> Voter:
        """Return the settings of a voter (a run of a language model), given the voter's name.

        If `models` does not contain the name, return a `Voter` with default settings.
        """
        return self.models.get(run, Voter())


@dataclass(frozen=True)
class Study:
    """A study: its settings and its table of phenotypes (entities).

    The table has the columns phenotype, group and definition. The order of the phenotypes in the table is the order of
    the entities in the bundle.

    Parameters
    ----------
    aliases : gene -> other names, for searches and for the filter of evidence
    vocabulary : features that answers may use, from `features.csv`; if it is missing, answers give gene symbols
    features : definitions of the features, from `features.csv` or, if that is missing, `dictionary.csv`

    """

    settings: StudySettings
    phenotypes: pd.DataFrame
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    vocabulary: tuple[str, ...] = ()
    features: Features | None = None

    @property
    def usable(self) -> dict[str, Any]:
        """Return arguments for `afa.elicit.tables.usable_genes`, which selects the valid genes of an answer."""
        return {"most_genes": self.settings.most_genes, "vocabulary": self.vocabulary}

    @property
    def names(self) -> list[str]:
        """Return the names of the phenotypes in the order of the table."""
        return [str(name) for name in self.phenotypes["phenotype"]]

    def definition(self, phenotype: str) -> str:
        """Return the definition of a phenotype. The definition may be empty."""
        return str(self.phenotypes["definition"].iloc[self.names.index(phenotype)])

    def names_of(self, gene: str) -> tuple[str, ...]:
        """Return the symbol and the aliases of a gene."""
        return (gene, *self.aliases.get(gene, ()))


def study_files(folder: str | Path) -> dict[str, Path]:
    """Return the paths of the files in a folder that `load_study` reads.

    Rules of the workflow use the returned paths as inputs.

    Returns
    -------
    dict : content -> path; `study` and `entities` always, `features` and `aliases` if the files exist

    """
    root = Path(folder)
    own, cut = root / PHENOTYPES_FILE, root / FEATURES_FILE
    optional = {"features": cut if cut.exists() else root / DICTIONARY_FILE, "aliases": root / ALIASES_FILE}
    always = {"study": root / STUDY_FILE, "entities": own if own.exists() else root / ENTITIES_FILE}
    return always | {name: path for name, path in optional.items() if path.exists()}


def retrieves(folder: str | Path) -> bool:
    """Return True if the questions of a study include abstracts of articles.

    Return False if `study.yaml` cannot be read.
    """
    with suppress(AfaError):
        return load_model(Path(folder) / STUDY_FILE, StudySettings).abstracts > 0
    return False


def load_study(folder: str | Path) -> Study:
    """Return the study in a folder.

    If the study has errors, raise a `ConfigError` or an `ElicitationError` that lists all of them.
    """
    files = study_files(folder)
    settings = load_model(files["study"], StudySettings)
    faults: list[Fault] = []
    phenotypes = read_entities(files["entities"], faults)
    features = read_features(files["features"], {ONE_OF_SEVERAL: "binary"}) if "features" in files else None
    vocabulary = features.names if features else ()
    if settings.pairs == "by_anchor" and (spaced := [name for name in vocabulary if " " in name]):
        found, step = f"the feature {quoted(spaced[0])}", "rename it, or ask for pairs one by one"
        faults.append(Fault(str(files["features"]), found, "names without blanks, for pairs by anchor", step))
    aliases = _read_aliases(files["aliases"], faults) if "aliases" in files else {}
    ElicitationError.raise_for(faults)
    return Study(settings, phenotypes, aliases, vocabulary, features)


def read_entities(path: Path, faults: list[Fault]) -> pd.DataFrame:
    """Return the table of entities in `phenotypes.csv` or `entities.csv`.

    Errors in the file are appended to `faults`.

    Returns
    -------
    DataFrame : columns phenotype, group, definition

    """
    own = path.name == PHENOTYPES_FILE
    key, columns = ("phenotype", ("group", "definition")) if own else ("entity", ("definition",))
    shown = () if own else DISPLAY_COLUMNS
    table = read_csv_table(path, required=(key, *columns), optional=shown, unread=shown)
    sound = name_column(table, key) >= 0
    names = pd.Series(list(table.columns[key]), dtype=object)
    twice, step = names.duplicated().to_numpy(bool) & sound, "leave out slashes and dots at the start"
    table.wrong(twice, key, f"each {key} once", "remove the row", lambda row: f"{names[row]} again")
    strange = names.str.contains(r"^\.|[/\\]").to_numpy(bool)
    table.wrong(strange & sound, key, "a name that a file can have", step)
    faults += table.faults.listed()
    if not faults and not len(table):
        faults.append(Fault(str(path), "no rows", f"at least one {key}", "add the rows"))
    return pd.DataFrame({"phenotype": names, "group": "", **{name: table.columns[name] for name in columns}})


def _read_aliases(path: Path, faults: list[Fault]) -> dict[str, tuple[str, ...]]:
    table = read_csv_table(path, required=("feature", "alias"))
    for column in ("feature", "alias"):
        name_column(table, column)
    faults += table.faults.listed()
    aliases: dict[str, list[str]] = {}
    for gene, alias in zip(table.columns["feature"], table.columns["alias"], strict=True):
        aliases.setdefault(gene, []).append(alias)
    return {gene: tuple(names) for gene, names in aliases.items()}
