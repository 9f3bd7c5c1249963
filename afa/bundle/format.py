"""The bundle format: a folder with `bundle.yaml` and a few CSV files.

    bundle.yaml    name, version; optional: entities, features, value_domain, provenance, licence, digests
    unary.csv      entity,feature,potential[,p_low_with,p_high_with,p_low_without,p_high_without][,confidence]
                   [,evidence]            (a row with probabilities may leave its potential empty)
    pairwise.csv   entity,feature_a,feature_b,potential[,scope][,confidence][,evidence]
    priors.csv     entity,log_odds        (optional; an entity without a row has log-odds 0)
    costs.csv      feature,cost           (optional; a cost for every feature, or for the measurement it comes from)
    aliases.csv    feature,alias          (optional; several rows a feature are allowed)
    features.csv   feature,kind,unit,low,high,values,p_low,p_high,definition    (optional; `afa.features`; all features)
    groups.csv     feature,measurement,exclusive    (optional; what comes together, and what excludes each other)
    implies.csv    feature,parent         (optional; who has the feature has its parent too)

Where `bundle.yaml` lists `entities` or `features`, a row that names another is a fault. Where it does not, entities
come in the order of their first appearance in unary.csv and then pairwise.csv, and features in that of features.csv
or, without it, in sorted order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from afa.bundle.rates import FLOOR, Holds, Rates
from afa.csvfile import LONGEST_NAME
from afa.features import FEATURE_COLUMNS
from afa.files import sha256_of

HEADER = "bundle.yaml"
REQUIRED_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "unary.csv": ("entity", "feature", "potential"),
    "pairwise.csv": ("entity", "feature_a", "feature_b", "potential"),
    "priors.csv": ("entity", "log_odds"),
    "costs.csv": ("feature", "cost"),
    "aliases.csv": ("feature", "alias"),
    "features.csv": FEATURE_COLUMNS[:2],
    "groups.csv": ("feature",),
    "implies.csv": ("feature", "parent"),
}
ANNOTATIONS = ("confidence", "evidence")
SHARES = ("p_low_with", "p_high_with", "p_low_without", "p_high_without")
OPTIONAL_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "unary.csv": (*SHARES, *ANNOTATIONS),
    "pairwise.csv": ("scope", *ANNOTATIONS),
    "features.csv": FEATURE_COLUMNS[2:],
    "groups.csv": ("measurement", "exclusive"),
}
REQUIRED_FILES = ("unary.csv", "pairwise.csv")
VALUE_DOMAIN = [-1, 0, 1]
LARGEST_SPACE = 100_000_000
"""Entities times features: their table of unary potentials is dense."""
PROVENANCE_KEYS = ("model", "prompts", "date", "consensus")


def _quoted_text(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("text; put it in quotes, because YAML reads this as something else")
    if not value or value != value.strip() or not value.isprintable():
        raise ValueError("text that is not empty and has no spaces around it or invisible characters")
    if len(value) > LONGEST_NAME:
        raise ValueError(f"text of at most {LONGEST_NAME} characters")
    return value


Text = Annotated[str, BeforeValidator(_quoted_text)]


class Header(BaseModel):
    """What `bundle.yaml` says."""

    model_config = ConfigDict(extra="forbid")

    name: Text
    version: Text
    entities: list[Text] | None = None
    features: list[Text] | None = None
    value_domain: list[int] = VALUE_DOMAIN
    licence: str | None = None
    encoding: Literal["ranges", "controls", "cohort"] | None = None
    probability_floor: Annotated[float, Field(gt=0, lt=1 / 3)] = FLOOR
    holds: Holds = "several"
    provenance: dict[str, Any] = {}
    digests: dict[str, str] = {}

    @field_validator("value_domain")
    @classmethod
    def _only_ternary(cls, value: list[int]) -> list[int]:
        if value != VALUE_DOMAIN:
            raise ValueError(f"{VALUE_DOMAIN}, the only value domain that afa supports")
        return value


@dataclass(frozen=True)
class Potentials:
    """Rows of unary.csv or pairwise.csv as indices.

    `entity` (n_rows,), `features` (n_rows, 1) or (n_rows, 2) with the smaller index first, `value` (n_rows,) finite;
    `scope` (n_rows,) indices of `SCOPES`, None where no row says one.
    """

    entity: NDArray[np.int64]
    features: NDArray[np.int64]
    value: NDArray[np.float64]
    scope: NDArray[np.int8] | None = None


@dataclass(frozen=True)
class Content:
    """Everything that a sound bundle folder holds, with entities and features as indices."""

    header: Header
    entities: tuple[str, ...]
    features: tuple[str, ...]
    unary: Potentials
    pairwise: Potentials
    priors: NDArray[np.float64]
    costs: NDArray[np.float64] | None
    aliases: Mapping[str, tuple[str, ...]]
    rates: Rates | None


def digests_of(folder: str | Path) -> dict[str, str]:
    """The SHA-256 of every CSV file of the format that a folder holds, by file name."""
    return {name: sha256_of(Path(folder) / name) for name in REQUIRED_COLUMNS if (Path(folder) / name).is_file()}
