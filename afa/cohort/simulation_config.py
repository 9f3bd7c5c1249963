"""The parameters of a simulated cohort."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from afa.cohort.config import CohortConfig
from afa.errors import ConfigError, Fault
from afa.yamlfile import check_model

Share = Annotated[float, Field(ge=0, le=1)]
Prevalence = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
Spread = Annotated[float, Field(ge=0)]
Loadings = dict[str, Annotated[float, Field(ge=-1, le=1)]]

INFLAMMATION = "inflammation"


class SimulationConfig(BaseModel):
    """Parameters of a simulated cohort, the `simulation` mapping of its config; expression is in log2 units.

    A *spread* is a standard deviation on the natural-log scale.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    seed: int = Field(ge=0)
    n_patients: int = Field(167, ge=3)
    n_controls: int = Field(60, ge=3)
    n_background_genes: int = Field(5000, ge=0)

    prevalences: dict[str, Prevalence] = Field(description="phenotype -> share of patients who have it")
    default_prevalence: Prevalence | None = Field(None, description="of bundle entities that `prevalences` lacks")
    factors: dict[str, Loadings] = Field(
        default_factory=dict, description="factor -> phenotype -> loading; `inflammation` also moves expression"
    )
    default_loading: Share = Field(0.4, description="on inflammation, of phenotypes without a prevalence of their own")

    flipped_share: Share = Field(0.25, description="of the bundle's non-zero potentials: the truth has the other sign")
    null_share: Share = Field(0.15, description="of the bundle's non-zero potentials: the truth has no effect")
    effect_median: Positive = Field(0.5, description="|log2 fold change| of one gene in one phenotype, at strength 1")
    effect_spread: Spread = 0.5
    effect_strengths: dict[str, Positive] = Field(
        default_factory=dict, description="phenotype -> factor on its effects"
    )
    extent_spread: Spread = Field(0.4, description="between patients, of how far a phenotype moves all its genes")

    severity_mean: Spread = Field(1.0, description="inflammation score of patients; controls have 0")
    severity_sd: Spread = 0.5
    inflamed_share_background: Share = Field(0.4, description="of background genes that follow inflammation")
    inflamed_sd_background: Spread = Field(0.6, description="of their log2 change per unit of severity")
    inflamed_share_bundle: Share = 0.8
    inflamed_sd_bundle: Spread = 1.0
    composition_sd: Spread = Field(0.2, description="log2 change per unit of biopsy composition, over genes")

    baseline_sd: Spread = Field(2.0, description="of log2 abundance over genes")
    library_size_median: Positive = 4e6
    library_size_spread: Spread = 0.35
    dispersion_floor: Positive = Field(0.06, description="negative-binomial dispersion of a gene with many counts")
    dispersion_slope: Spread = Field(1.5, description="dispersion is floor + slope / mean count")
    dispersion_spread: Spread = Field(0.7, description="of genes about that trend")

    @model_validator(mode="after")
    def _possible(self) -> Self:
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
    """The checked `simulation` mapping of a cohort's config."""
    where = f"cohort {config.name}, simulation"
    if config.simulation is None:
        raise ConfigError(Fault(where, "nothing", "a mapping", "add the key, or fetch the cohort instead"))
    return check_model(config.simulation, SimulationConfig, where)
