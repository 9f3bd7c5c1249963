"""What a cohort is made of: which series, which samples, which controls, which rule gives each label."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from afa.yamlfile import load_model

Values = Annotated[tuple[str, ...], Field(min_length=1)]


def _plain_name(name: str) -> str:
    if not name or name.startswith(".") or "/" in name or "\\" in name or not name.isprintable():
        raise ValueError("the name of a file, without folders")
    return name


FileName = Annotated[str, AfterValidator(_plain_name)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ExpressionSource(_Strict):
    """Where the expression values lie in the series' folder, and what they are."""

    layout: Literal["sample_files", "count_matrix"] = Field(
        description="`sample_files`: a tar of one two-column file per sample; `count_matrix`: one genes x samples table"
    )
    file: FileName = Field(description="name under the series' `suppl/` folder, as GEO has it")
    joined_file: FileName | None = Field(
        None, description="name under `suppl/` of a genes x samples table of the same values, looked for in a mirror"
    )
    unit: Literal["tpm", "counts", "log2"] = Field(
        description="TPM and counts are log-transformed, log2 values are not"
    )
    row_ids: Literal["symbol", "ensembl"] = "symbol"
    sample_column: Literal["accession", "title_before_comma"] = Field(
        "accession", description="how a column of a matrix names its sample"
    )
    sha256: str | None = Field(None, pattern=r"^[0-9a-f]{64}$", description="of `file`, where it is known")
    joined_sha256: str | None = Field(
        None, pattern=r"^[0-9a-f]{64}$", description="of `joined_file`, where it is known"
    )


class Derived(_Strict):
    """A sample characteristic read out of another one by the first group of a regular expression."""

    source: str
    pattern: str

    @field_validator("pattern")
    @classmethod
    def _one_group(cls, pattern: str) -> str:
        try:
            groups = re.compile(pattern).groups
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"not a regular expression: {error}") from error
        if groups != 1:
            raise ValueError(f"must have exactly one group, has {groups}")
        return pattern


class OnePer(_Strict):
    """Keep one sample for each value of `key`: the first by `prefer`, then by the least number in `then`."""

    key: str
    prefer: dict[str, Values] = Field(default_factory=dict, description="characteristic -> values, best first")
    then: str | None = Field(None, description="numeric characteristic, least first")


class Selection(_Strict):
    """Which samples of the series take part; patients and controls pass through the same steps, in this order."""

    derive: dict[str, Derived] = Field(default_factory=dict)
    keep: dict[str, Values] = Field(default_factory=dict, description="characteristic -> values kept")
    drop: dict[str, Values] = Field(default_factory=dict, description="characteristic -> values dropped")
    one_per: OnePer | None = None


class Group(_Strict):
    """Samples whose characteristic has one of the values."""

    key: str
    values: Values


class LabelRule(_Strict):
    """One phenotype's label from one characteristic: a threshold, or the values that mean 1 and 0; else missing."""

    key: str
    at_least: float | None = None
    above: float | None = None
    positive: Values | None = None
    negative: Values | None = None
    reason: str
    off: str | None = Field(None, description="why the rule is not applied; its key's quantiles are shown instead")

    @model_validator(mode="after")
    def _one_kind(self) -> LabelRule:
        kinds = [self.at_least is not None, self.above is not None, self.positive is not None]
        if sum(kinds) != 1:
            raise ValueError("give exactly one of at_least, above, or positive with negative")
        if (self.positive is None) != (self.negative is None):
            raise ValueError("positive and negative go together")
        return self


class EncodingOverrides(_Strict):
    """A cohort's own choice of the ternary code; what is left out comes from the run's config."""

    test: Literal["empirical", "normal", "t"] | None = None
    level: float | None = Field(None, gt=0, lt=1)
    reference: Literal["controls", "cohort"] | None = None
    threshold: float | None = Field(None, ge=0, description="of the reference cohort, in robust standard deviations")


class CohortConfig(_Strict):
    """One file of `config/cohorts`."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    title: str
    series: str = Field(pattern=r"^GSE[0-9]+$")
    origin: Literal["geo", "simulated"] = "geo"
    expression: ExpressionSource
    metadata_file: FileName = Field(description="name under `matrix/`: the series matrix")
    mirror_metadata_file: FileName | None = Field(
        None, description="name under `metadata/` of a mirror: the same, as a table"
    )
    select: Selection = Selection()
    controls: Group
    patients: Group
    labels: dict[str, LabelRule] = Field(default_factory=dict)
    encoding: EncodingOverrides = EncodingOverrides()
    allow_missing_genes: bool = Field(
        False, description="drop features that the platform lacks from cohort and bundle, instead of stopping"
    )
    simulation: dict[str, Any] | None = Field(None, description="parameters of a simulated cohort")


def load_cohort_config(path: str | Path) -> CohortConfig:
    """Read and check one cohort file; every fault is reported at once, as a `ConfigError`."""
    return load_model(path, CohortConfig)
