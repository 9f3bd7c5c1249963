"""The configurations of the synthetic Layer 0 portfolio, read from `config/portfolio.yaml` (tab:layer0_synthetic).

Each story has a class of its own, whose fields are the numbers that it uses; `layer0_synthetic.portfolio` tells the
stories. What the numbers are, and how they were fixed, stands at the head of that file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationInfo, field_validator

from afa.config import Name
from afa.errors import ConfigError, Fault
from afa.mrf import Floats
from afa.yamlfile import check_model, read_mapping

Sizes = Annotated[tuple[PositiveInt, ...], Field(min_length=2)]
Several = Annotated[int, Field(ge=2)]
Share = Annotated[float, Field(ge=0, le=1)]


class Configuration(BaseModel):
    """What all stories have.

    name, letter, story : as the paper prints them. separation : its printed separation ratio. sizes : entities of each
    cluster. effect : unary potential in nats. spread : scale of what sets entities apart from their cluster, in nats.
    n_true, loyalty : true entities of a patient, and the probability that each after the first is of the first one's
    cluster.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: Name
    letter: str = Field(pattern=r"^[A-Z]$")
    story: str
    separation: PositiveFloat
    sizes: Sizes
    effect: PositiveFloat
    spread: PositiveFloat
    n_true: PositiveInt
    loyalty: Share

    @field_validator("n_true")
    @classmethod
    def _no_more_than_there_are(cls, n_true: int, others: ValidationInfo) -> int:
        if n_true > sum(others.data.get("sizes", (n_true,))):
            raise ValueError("no more than the entities of all clusters")
        return n_true

    @property
    def home(self) -> NDArray[np.int64]:
        """(N,) the cluster that each entity was made in."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes).astype(np.int64)


class Graded(Configuration):
    """Clusters of different strength. potency : of the weakest and the strongest, as multiples of `effect`."""

    potency: tuple[PositiveFloat, PositiveFloat]

    @property
    def potencies(self) -> Floats:
        """(C,) multiples of `effect`, evenly between the two."""
        return np.linspace(*self.potency, len(self.sizes))


class Coupled(Configuration):
    """Features on rings. coupling, reach : potential in nats between features at most `reach` apart on a ring."""

    coupling: PositiveFloat
    reach: PositiveInt


class Blocks(Graded, Coupled):
    """block : features of a cluster's own."""

    block: Several


class DrugFamily(Blocks):
    """shared : features that all clusters share."""

    shared: PositiveInt


class PathwayEnrichment(Blocks):
    """No more than the blocks."""


class Hierarchy(Blocks):
    """shared : features of both orders together."""

    shared: PositiveInt


class StrainIdentification(Graded):
    """markers : features, all of every cluster. private : markers at which an entity departs from its cluster."""

    markers: PositiveInt
    private: PositiveInt

    @field_validator("private")
    @classmethod
    def _among_the_markers(cls, private: int, others: ValidationInfo) -> int:
        if private > others.data.get("markers", private):
            raise ValueError("no more than the markers")
        return private


class Composition(Graded, Coupled):
    """features : of all components. spread : here the share of an entity that is not of its own component."""

    features: Several
    spread: Share


class BlobAndOutliers(Coupled):
    """supports : features of each cluster, the blob first. positive_share : of the potentials, how many are above 0."""

    supports: tuple[Several, ...]
    positive_share: Share

    @field_validator("supports")
    @classmethod
    def _one_for_each_cluster(cls, supports: tuple[int, ...], others: ValidationInfo) -> tuple[int, ...]:
        if len(supports) != len(others.data.get("sizes", supports)):
            raise ValueError("one number for each cluster")
        return supports


KINDS: dict[str, type[Configuration]] = {
    "drug-family": DrugFamily,
    "pathway-enrich": PathwayEnrichment,
    "strain-id": StrainIdentification,
    "hierarchical": Hierarchy,
    "compositional": Composition,
    "adversarial": BlobAndOutliers,
}
"""By the story's name in the paper."""


def load_portfolio(path: str | Path) -> tuple[Configuration, ...]:
    """Read and check a portfolio, its configurations in the file's order; all faults at once, as a `ConfigError`."""
    configurations, faults = [], list[Fault]()
    for name, entry in read_mapping(path).items():
        try:
            configurations.append(_configuration(name, entry, f"{path}, {name}"))
        except ConfigError as error:
            faults += error.faults
    if faults:
        raise ConfigError(faults)
    return tuple(configurations)


def _configuration(name: str, entry: Any, where: str) -> Configuration:
    if not isinstance(entry, dict):
        found = "nothing" if entry is None else f"a {type(entry).__name__}"
        raise ConfigError(Fault(where, found, "the keys of a configuration", "write them below its name"))
    if "name" in entry:
        raise ConfigError(Fault(f"{where}, key name", "a second name", "the one above", "remove it"))
    story = entry.get("story")
    if not isinstance(story, str) or story not in KINDS:
        raise ConfigError(Fault(f"{where}, key story", repr(story)[:80], " or ".join(KINDS), "choose one of these"))
    return check_model({"name": name, **entry}, KINDS[story], where)
