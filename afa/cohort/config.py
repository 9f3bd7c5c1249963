"""Define the settings of a cohort: GEO series, selection of samples, controls, and one rule for each label."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from afa.cohort.counters import RowIds, Unit
from afa.errors import ConfigError, Fault
from afa.io.files import write_text
from afa.io.yamlfile import Strict, check_model, load_model

Share = Annotated[float, Field(ge=0, le=1)]
Prevalence = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
Spread = Annotated[float, Field(ge=0)]
Loadings = dict[str, Annotated[float, Field(ge=-1, le=1)]]
CharacteristicValues = Annotated[tuple[str, ...], Field(min_length=1)]


def _plain_name(name: str) -> str:
    if not name or name.startswith(".") or "/" in name or "\\" in name or not name.isprintable():
        raise ValueError("the name of a file, without folders")
    return name


FileName = Annotated[str, AfterValidator(_plain_name)]


class ExpressionSource(Strict):
    """Name, layout and unit of the file with a series' expression values."""

    layout: Literal["sample_files", "count_matrix"] = Field(
        description="`sample_files`: a tar with one file for each sample; `count_matrix`: one table of genes x samples"
    )
    file: FileName = Field(description="name of the file in the series' folder `suppl/`")
    joined_file: FileName | None = Field(
        None, description="name of a genes x samples table of the same values in `suppl/` of a mirror"
    )
    unit: Unit = Field(description="TPM and counts are log-transformed, log2 values are not")
    row_ids: RowIds = "symbol"
    gene_column: str | None = Field(None, description="name of the column of row ids, if it is not the first")
    transcripts: FileName | None = Field(
        None, description="name of a CSV `transcript,gene` in `suppl/`; rows of a gene's transcripts are summed"
    )
    count_column: str | None = Field(
        None,
        description="for `sample_files`: name of the column of values, if a file has several; for STAR's files "
        "`unstranded`, `forward` or `reverse`",
    )
    members: str | None = Field(
        None,
        description="for `sample_files`: pattern of the files of the tar that are read, such as `*.genes.results.gz`",
    )
    sample_column: Literal["accession", "title_before_comma"] = Field(
        "accession", description="how a column of a matrix is named after its sample"
    )
    sha256: str | None = Field(
        None, pattern=r"^[0-9a-f]{64}$", description="SHA-256 of `file`; another file is refused"
    )
    joined_sha256: str | None = Field(
        None, pattern=r"^[0-9a-f]{64}$", description="SHA-256 of `joined_file`; another file is refused"
    )

    @model_validator(mode="after")
    def _check_layout_options(self) -> Self:
        if self.layout != "sample_files" and (self.count_column or self.members):
            raise ValueError("count_column and members belong to the layout sample_files")
        return self


class Derived(Strict):
    """A sample characteristic that is extracted from another characteristic by a regular expression with one group."""

    source: str
    pattern: str

    @field_validator("pattern")
    @classmethod
    def _check_pattern(cls, pattern: str) -> str:
        try:
            groups = re.compile(pattern).groups
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"not a regular expression: {error}") from error
        if groups != 1:
            raise ValueError(f"must have exactly one group, has {groups}")
        return pattern


class OnePer(Strict):
    """Rule that keeps one sample for each value of the characteristic `key`.

    Samples with the same value of `key` are ranked by the lists of values in `prefer`. The sample that ranks first is
    kept. Ties are broken by a numeric characteristic, named by `then`: the sample with the smallest value is kept.
    """

    key: str
    prefer: dict[str, CharacteristicValues] = Field(
        default_factory=dict, description="characteristic -> values, the best first"
    )
    then: str | None = Field(None, description="numeric characteristic, whose smallest value is taken")


class Selection(Strict):
    """Steps that select samples of a series.

    The steps are applied in the order of the fields, to patients and controls alike.
    """

    derive: dict[str, Derived] = Field(default_factory=dict)
    keep: dict[str, CharacteristicValues] = Field(
        default_factory=dict, description="characteristic -> values of the samples that are kept"
    )
    drop: dict[str, CharacteristicValues] = Field(
        default_factory=dict, description="characteristic -> values of the samples that are excluded"
    )
    one_per: OnePer | None = None


class SampleGroup(Strict):
    """Group of all samples whose characteristic `key` has one of the values in `values`."""

    key: str
    values: CharacteristicValues


class LabelRule(Strict):
    """Rule that derives the label of one phenotype from one sample characteristic.

    The rule is either a threshold, or two lists of the values that mean label 1 and label 0. If a sample's value is in
    neither list, the sample has no label.
    """

    key: str
    at_least: float | None = None
    above: float | None = None
    positive: CharacteristicValues | None = None
    negative: CharacteristicValues | None = None
    reason: str
    off: str | None = Field(
        None, description="why the rule is not applied; the quantiles of its characteristic are recorded instead"
    )

    @model_validator(mode="after")
    def _check_rule_kind(self) -> LabelRule:
        kinds = [self.at_least is not None, self.above is not None, self.positive is not None]
        if sum(kinds) != 1:
            raise ValueError("give exactly one of at_least, above, or positive with negative")
        if (self.positive is None) != (self.negative is None):
            raise ValueError("positive and negative go together")
        return self


class EncodingOverrides(Strict):
    """Encoding settings of one cohort. A setting that is None is taken from the run's config."""

    test: Literal["empirical", "normal", "t"] | None = None
    level: float | None = Field(None, gt=0, lt=1)
    reference: Literal["controls", "cohort"] | None = None
    threshold: float | None = Field(
        None, ge=0, description="cut point of the reference `cohort`, in robust standard deviations from the median"
    )


class CohortConfig(Strict):
    """Content of a cohort file in `config/cohorts`, for a GEO series or a simulated series."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    title: str
    series: str = Field(pattern=r"^GSE[0-9]+$")
    citation: str | None = Field(None, description="citation of the series' paper")
    origin: Literal["geo", "simulated"] = "geo"
    expression: ExpressionSource
    metadata_file: FileName = Field(
        description="file that describes the samples: family SOFT file in `soft/`, or series matrix in `matrix/`"
    )
    mirror_metadata_file: FileName | None = Field(
        None, description="name of a table of the same content in `metadata/` of a mirror"
    )
    select: Selection = Selection()
    controls: SampleGroup
    patients: SampleGroup
    labels: dict[str, LabelRule] = Field(default_factory=dict)
    encoding: EncodingOverrides = EncodingOverrides()
    allow_missing_genes: bool | dict[str, str] = Field(
        False,
        description="remove features that the platform lacks from cohort and bundle, instead of stopping: all, "
        "or those named, each with the reason",
    )
    simulation: dict[str, Any] | None = Field(None, description="parameters of a simulated cohort")


def load_cohort_config(path: str | Path) -> CohortConfig:
    """Read and validate one cohort file. All errors in the file are raised as one `ConfigError`."""
    return load_model(path, CohortConfig)


INFLAMMATION = "inflammation"
"""The factor that also changes gene expression."""


class SimulationConfig(Strict):
    """Parameters of a simulated cohort, given in the `simulation` mapping of its config. Expression is in log2 units.

    A setting whose name ends in `_spread` is a standard deviation on the natural-log scale.
    """

    seed: int = Field(ge=0)
    n_patients: int = Field(167, ge=3)
    n_controls: int = Field(60, ge=3)
    n_background_genes: int = Field(5000, ge=0)

    prevalences: dict[str, Prevalence] = Field(description="phenotype -> share of patients who have it")
    default_prevalence: Prevalence | None = Field(
        None, description="prevalence of entities of the bundle that `prevalences` does not list"
    )
    factors: dict[str, Loadings] = Field(
        default_factory=dict, description="factor -> phenotype -> loading; `inflammation` also moves expression"
    )
    default_loading: Share = Field(
        0.4, description="loading on inflammation of phenotypes that `prevalences` does not list"
    )

    flipped_share: Share = Field(
        0.25, description="share of the bundle's non-zero potentials whose true sign is the opposite"
    )
    null_share: Share = Field(0.15, description="share of the bundle's non-zero potentials without a true effect")
    effect_median: Positive = Field(
        0.5, description="median absolute log2 fold change of a gene by a phenotype of strength 1"
    )
    effect_spread: Spread = 0.5
    effect_strengths: dict[str, Positive] = Field(
        default_factory=dict, description="phenotype -> factor by which its effects are multiplied"
    )
    extent_spread: Spread = Field(
        0.4, description="spread, between patients, of the effect of a phenotype on all its genes"
    )

    severity_mean: Spread = Field(1.0, description="mean inflammation score of patients; controls have 0")
    severity_sd: Spread = 0.5
    inflamed_share_background: Share = Field(
        0.4, description="share of the background genes that change with inflammation"
    )
    inflamed_sd_background: Spread = Field(
        0.6, description="standard deviation, over these genes, of the log2 change per unit of inflammation"
    )
    inflamed_share_bundle: Share = 0.8
    inflamed_sd_bundle: Spread = 1.0
    composition_sd: Spread = Field(
        0.2, description="standard deviation, over genes, of the log2 change per unit of biopsy composition"
    )

    baseline_sd: Spread = Field(2.0, description="standard deviation of the log2 abundance over genes")
    library_size_median: Positive = 4e6
    library_size_spread: Spread = 0.35
    dispersion_floor: Positive = Field(0.06, description="negative-binomial dispersion of a gene with many counts")
    dispersion_slope: Spread = Field(1.5, description="dispersion is floor + slope / mean count")
    dispersion_spread: Spread = Field(0.7, description="spread of the dispersions of genes around this trend")

    @model_validator(mode="after")
    def _check_shares_and_loadings(self) -> Self:
        if self.flipped_share + self.null_share > 1:
            raise ValueError("flipped_share and null_share must not exceed 1 together")
        loaded = {name for loadings in self.factors.values() for name in loadings}
        if unknown := sorted((loaded | set(self.effect_strengths)) - set(self.prevalences)):
            raise ValueError(f"factors and effect_strengths name phenotypes without a prevalence: {', '.join(unknown)}")
        for phenotype in sorted(loaded):
            communality = sum(loadings.get(phenotype, 0.0) ** 2 for loadings in self.factors.values())
            if communality > 1:
                raise ValueError(f"squared loadings of {phenotype} sum to {communality:.2f}, which must not exceed 1")
        return self


def simulation_config(config: CohortConfig) -> SimulationConfig:
    """Return the validated `simulation` settings of a cohort's config."""
    where = f"cohort {config.name}, simulation"
    if config.simulation is None:
        raise ConfigError(Fault(where, "nothing", "a mapping", "add the key, or fetch the cohort instead"))
    return check_model(config.simulation, SimulationConfig, where)


COHORT_TEMPLATE = Path(__file__).with_name("template.txt")
"""The template for the file of a new cohort."""


def write_cohort_template(name: str, folder: Path) -> Path:
    """Write the template of a new cohort file to `<folder>/<name>.yaml`.

    If the name is invalid or the file exists, a `ConfigError` is raised.
    """
    path = folder / f"{name}.yaml"
    if not name.replace("-", "").replace("_", "").isalnum() or not name.islower():
        expected = "lower-case letters, digits, - and _"
        raise ConfigError(Fault("the name of a cohort", repr(name), expected, "choose another name"))
    if path.exists():
        raise ConfigError(Fault(str(path), "a file", "no such file yet", "choose another name, or edit that file"))
    write_text(path, COHORT_TEMPLATE.read_text(encoding="utf-8").format(name=name))
    return path


def series_folder(series: str) -> str:
    """Return the path of a series' folder in GEO, such as `series/GSE193nnn/GSE193677`."""
    return f"series/GSE{series.removeprefix('GSE')[:-3]}nnn/{series}"


SOFT = (".soft", ".soft.gz")
"""Endings of a file that describes the samples of a series in GEO's SOFT format."""
SIMULATION_FILE = "truth/simulation.json"
TRUTH = ("effects", "genes", "people", "labels")
"""Tables of the true parameters of a simulated cohort, stored beside the file of its settings."""


def simulated_files(config: CohortConfig) -> list[str]:
    """Return the paths of the files of a simulated series, relative to the folder that contains them."""
    folder, kind = series_folder(config.series), "soft" if config.metadata_file.endswith(SOFT) else "matrix"
    given = [f"{folder}/{kind}/{config.metadata_file}", f"{folder}/suppl/{config.expression.file}"]
    return [*given, SIMULATION_FILE, *(f"truth/{name}.csv" for name in TRUTH)]
