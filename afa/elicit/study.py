"""A study: what is to be elicited, from whom and how; a folder with `study.yaml` and `phenotypes.csv`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from afa.elicit.endpoint import USUAL, Manner
from afa.elicit.recorded import read_phenotypes
from afa.errors import ElicitationError
from afa.yamlfile import load_model

STUDY_FILE, PHENOTYPES_FILE, KEYWORDS_FILE, RECORD_FOLDER = "study.yaml", "phenotypes.csv", "keywords.csv", "record"
PAIR_RUN = "pairs"
"""The one run of the pairwise pass, and its voter's name in `models`."""


class Settings(BaseModel):
    """`study.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, description="the bundle's name begins with it")
    disease: str = Field(min_length=1, description="as it stands in every question")
    tissue: str = Field(min_length=1, description="where features are measured")
    most_genes: int = Field(25, ge=1, description="genes asked for per phenotype")
    snippet_length: int = Field(300, ge=0, description="characters of a snippet")
    voters: tuple[str, ...] = Field(("r1", "r2", "r3"), min_length=1, description="independent runs, by name")
    models: Mapping[str, str] = Field({}, description="voter -> model; AFA_LLM_MODEL for those that are not named")
    manner: Manner = Field(USUAL, description="how models are asked")
    abstracts: int = Field(0, ge=0, description="retrieved for each question; 0 asks without retrieval")
    references: bool = Field(False, description="keep only genes with a supported reference")
    provenance: Mapping[str, Any] = Field({}, description="what is known of a record made elsewhere")

    @field_validator("voters")
    @classmethod
    def _each_once(cls, voters: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(voters)) < len(voters) or PAIR_RUN in voters:
            raise ValueError(f"a voter stands twice, or is named {PAIR_RUN}, as the run that judges pairs is")
        return voters

    @model_validator(mode="after")
    def _fits(self) -> Settings:
        if others := sorted(set(self.models) - {*self.voters, PAIR_RUN}):
            raise ValueError(f"models names {', '.join(others)}, no voter and not {PAIR_RUN}")
        if self.references and not self.abstracts:
            raise ValueError("references needs abstracts above 0: without retrieval no reference is supported")
        return self


@dataclass(frozen=True)
class Study:
    """Settings, and phenotypes with the columns phenotype, group, definition, in the order of the bundle's entities."""

    settings: Settings
    phenotypes: pd.DataFrame

    @property
    def names(self) -> list[str]:
        """The phenotypes in order."""
        return [str(name) for name in self.phenotypes["phenotype"]]

    def definition(self, phenotype: str) -> str:
        """What a phenotype means; empty where nothing is said."""
        return str(self.phenotypes["definition"].iloc[self.names.index(phenotype)])


def load_study(folder: str | Path) -> Study:
    """Read a study's folder; a `ConfigError` or an `ElicitationError` lists every fault of a file at once."""
    root = Path(folder)
    settings = load_model(root / STUDY_FILE, Settings)
    faults: list[Any] = []
    phenotypes = read_phenotypes(root / PHENOTYPES_FILE, faults)
    if faults:
        raise ElicitationError(faults)
    return Study(settings, phenotypes)
