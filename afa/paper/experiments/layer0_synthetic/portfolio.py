"""Six synthetic scenarios with simulated entities and patients, on which Layer 0 (removal of entities) is tested.

The paper calls a scenario a story.

In each scenario, the potentials of entities are generated at random. The entities form clusters in all scenarios except
`composition`. The entities have no priors. Patients are exact samples from models with the generated potentials.
`config/portfolio.yaml` contains the parameters of each configuration. A comment in `config/portfolio.yaml` explains how
we chose the parameters. Each scenario has a class whose fields are the parameters of the scenario
(tab:layer0_synthetic).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationInfo

from afa.cohort.cohort import Cohort
from afa.cohort.config import Share
from afa.errors import ConfigError, Fault
from afa.inference.exact import sample
from afa.io.yamlfile import check_model, read_mapping
from afa.model.arrays import Floats, Ints
from afa.model.bundle import Bundle
from afa.model.bundle.format import Potentials
from afa.model.bundle.model import packed_couplings
from afa.model.orders import generator_of
from afa.paper.experiments.base import NamePart
from afa.planner.cluster import parameters


def _validator_against(key: str, holds: Callable[[Any, Any], bool], should: str) -> AfterValidator:
    """Return a validator that compares a field with the earlier field `key`, unless the earlier field is invalid."""

    def check(value: Any, others: ValidationInfo) -> Any:
        if key in others.data and not holds(value, others.data[key]):
            raise ValueError(should)
        return value

    return AfterValidator(check)


AmongEntities = _validator_against(
    "sizes", lambda n, sizes: n <= sum(sizes), "no more than the entities of all clusters"
)
AmongMarkers = _validator_against("markers", operator.le, "no more than the markers")
OfEveryCluster = _validator_against(
    "sizes", lambda supports, sizes: len(supports) == len(sizes), "one number for each cluster"
)
Sizes = Annotated[tuple[PositiveInt, ...], Field(min_length=2)]
Several = Annotated[int, Field(ge=2)]


class Configuration(BaseModel):
    """The parameters that all synthetic scenarios have.

    Parameters
    ----------
    name, letter, story : name, letter and story in the paper's table
    separation : the separation ratio in the paper's table
    sizes : number of entities in each cluster
    effect : unary potential, in nats
    spread : scale of the differences between entities and their cluster, in nats
    n_true : number of true entities of a patient
    loyalty : probability that each true entity of a patient after the first comes from the cluster of the first true
        entity

    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: NamePart
    letter: str = Field(pattern=r"^[A-Z]$")
    story: str
    separation: PositiveFloat
    sizes: Sizes
    effect: PositiveFloat
    spread: PositiveFloat
    n_true: Annotated[PositiveInt, AmongEntities]
    loyalty: Share

    @property
    def home(self) -> Ints:
        """Return the index of each entity's cluster.

        Returns
        -------
        home : (N,) int64

        """
        return np.repeat(np.arange(len(self.sizes)), self.sizes).astype(np.int64)


class Graded(Configuration):
    """Parameters of scenarios in which the effects of clusters differ in strength.

    Parameters
    ----------
    potency : effects of the weakest and the strongest cluster, as multiples of `effect`

    """

    potency: tuple[PositiveFloat, PositiveFloat]

    @property
    def potencies(self) -> Floats:
        """Return the effect of each cluster as a multiple of `effect`.

        The multiples are evenly spaced over the range `potency`.

        Returns
        -------
        potencies : (C,) float64

        """
        return np.linspace(*self.potency, len(self.sizes))


class Coupled(Configuration):
    """Parameters of scenarios with couplings between neighbouring features on a ring.

    Parameters
    ----------
    coupling, reach : two features at a distance of at most `reach` on a ring have a coupling of `coupling` nats

    """

    coupling: PositiveFloat
    reach: PositiveInt


class Blocks(Graded, Coupled):
    """Parameters of scenarios in which each cluster has its own block of features.

    Parameters
    ----------
    block : number of features in each cluster's block

    """

    block: Several


class SharedBlocks(Blocks):
    """Parameters of scenarios in which clusters have separate blocks of features, and some features in common.

    Parameters
    ----------
    shared : number of features common to all clusters. In the scenario `hierarchy`, it is the number of features that
        the two groups of families have together

    """

    shared: PositiveInt


class StrainIdentification(Graded):
    """Parameters of the scenario of strains, which differ by their alleles at the same markers.

    Parameters
    ----------
    markers : number of features. All clusters have the same features
    private : number of markers at which an entity differs from its cluster

    """

    markers: PositiveInt
    private: Annotated[PositiveInt, AmongMarkers]


class Composition(Graded, Coupled):
    """Parameters of the scenario in which entities are mixtures of components.

    Parameters
    ----------
    features : number of features. All components have the same features
    spread : here, the share of an entity that does not come from its own component

    """

    features: Several
    spread: Share


class BlobAndOutliers(Coupled):
    """Parameters of the scenario with one large cluster of entities (the blob) and single entities as outliers.

    Parameters
    ----------
    supports : number of features of each cluster. The large cluster comes first
    positive_share : share of the potentials that are above 0

    """

    supports: Annotated[tuple[Several, ...], OfEveryCluster]
    positive_share: Share


def load_portfolio(path: str | Path) -> tuple[Configuration, ...]:
    """Return the validated configurations in the order of the file. One `ConfigError` lists all invalid values."""
    configurations, faults = [], list[Fault]()
    for name, entry in read_mapping(path).items():
        try:
            configurations.append(_parse_configuration(name, entry, f"{path}, {name}"))
        except ConfigError as error:
            faults += error.faults
    if faults:
        raise ConfigError(faults)
    return tuple(configurations)


def _parse_configuration(name: str, entry: Any, where: str) -> Configuration:
    if not isinstance(entry, dict):
        found = "nothing" if entry is None else f"a {type(entry).__name__}"
        raise ConfigError(Fault(where, found, "the keys of a configuration", "write them below its name"))
    if "name" in entry:
        raise ConfigError(Fault(f"{where}, key name", "a second name", "the one above", "remove it"))
    story = entry.get("story")
    if not isinstance(story, str) or story not in STORIES:
        raise ConfigError(Fault(f"{where}, key story", repr(story)[:80], " or ".join(STORIES), "choose one of these"))
    return check_model({"name": name, **entry}, STORIES[story][0], where)


N_PATIENTS = 200


@dataclass(frozen=True, eq=False)
class PortfolioModel:
    """The potentials of N entities. The couplings of all entities have the same list of edges.

    Parameters
    ----------
    unary : (N, M) float64, nats
    edges : (E, 2) int64, pairs of features with the lower index first
    weight : (N, E) float64, nats

    """

    unary: Floats
    edges: Ints
    weight: Floats


def drug_family(config: SharedBlocks, draw: np.random.Generator) -> PortfolioModel:
    """Return a model whose entities are drugs, in families with separate targets and a common stress response.

    Each drug family has unary potentials on `block` target features of its own. Each of these potentials has a random
    sign and a magnitude proportional to the family's potency. The last `shared` features respond to stress. On these
    features, all families have the same potentials, with the magnitude `effect` / 2 and random signs. Each drug also
    has normally distributed off-target effects on all features.
    """
    centre = _cluster_centres(config, draw, shared=config.shared)
    coherent = np.sign(centre)
    centre[:, -config.shared :] = 0.5 * config.effect * draw.choice([-1.0, 1.0], config.shared)
    off_target = config.spread * draw.standard_normal((len(config.home), centre.shape[1]))
    return _coupled_model(config, centre[config.home] + off_target, coherent)


def pathway_enrichment(config: Blocks, draw: np.random.Generator) -> PortfolioModel:
    """Return a model whose entities are gene sets. Each gene set is enriched in one pathway module.

    A gene set has strong effects on the features of its module. The effects of gene sets of the same module differ only
    by small, uniformly distributed amounts. Couplings are weak.
    """
    centre = _cluster_centres(config, draw)
    own = (centre != 0)[config.home]
    differences = config.spread * draw.uniform(-1, 1, own.shape) * own
    return _coupled_model(config, centre[config.home] + differences, np.sign(centre))


def strain_identification(config: StrainIdentification, draw: np.random.Generator) -> PortfolioModel:
    """Return a model whose entities are strains. Each cluster is a lineage of strains with the same alleles.

    Markers are independent. At some markers, the potentials of a strain differ from the potentials of its lineage.
    These markers are drawn at random for each strain. The parameter `private` is the number of these markers.
    """
    alleles = draw.choice([-1.0, 1.0], (len(config.sizes), config.markers))
    unary = (config.effect * config.potencies[:, None] * alleles)[config.home]
    for strain in range(len(unary)):
        private = draw.choice(config.markers, config.private, replace=False)
        unary[strain, private] += config.spread * draw.choice([-1.0, 1.0], config.private)
    return PortfolioModel(unary, np.empty((0, 2), dtype=np.int64), np.empty((len(unary), 0)))


def hierarchy(config: SharedBlocks, draw: np.random.Generator) -> PortfolioModel:
    """Return a model whose entities form families. The families form two groups, as in a taxonomy.

    The first half of the families (rounded up) is the first group, and all other families are the second group. Each
    family has its own block of features. The last features of the model belong to no block. The first half of these
    last features belongs to the first group of families, and the second half belongs to the second group. The parameter
    `shared` is the number of features without a block. On the features of a group of families, all families of the
    group have the same potentials. The potentials of entities of the same family differ by normally distributed
    amounts.
    """
    centre = _cluster_centres(config, draw, shared=config.shared)
    coherent = np.sign(centre)
    order_of = (np.arange(len(config.sizes)) >= (len(config.sizes) + 1) // 2).astype(int)
    of_order = np.array_split(np.arange(centre.shape[1] - config.shared, centre.shape[1]), 2)
    signs = draw.choice([-1.0, 1.0], centre.shape[1])
    for family, order in enumerate(order_of):
        centre[family, of_order[order]] = config.effect * signs[of_order[order]]
    used = (centre != 0)[config.home]
    unary = centre[config.home] + config.spread * draw.standard_normal(used.shape) * used
    return _coupled_model(config, unary, coherent)


def composition(config: Composition, draw: np.random.Generator) -> PortfolioModel:
    """Return a model whose entities are mixtures of common components.

    The entities fill a simplex and form no clusters.

    In an entity's mixture, the component of the entity's group has at least the weight 1 - `spread`. The remaining
    weight `spread` is divided among all components at random, by a flat Dirichlet distribution. A component has
    normally distributed unary potentials on all features. The couplings of a component are between neighbouring
    features on a ring, and have random strengths.
    """
    n_components = len(config.sizes)
    components = config.effect * config.potencies[:, None] * draw.standard_normal((n_components, config.features))
    edges = _ring(np.arange(config.features), config.reach)
    strengths = config.coupling * draw.uniform(-1, 1, (n_components, len(edges)))
    rest = draw.dirichlet(np.ones(n_components), len(config.home))
    share = (1 - config.spread) * np.eye(n_components)[config.home] + config.spread * rest
    return PortfolioModel(share @ components, edges, share @ strengths)


def blob_and_outliers(config: BlobAndOutliers, draw: np.random.Generator) -> PortfolioModel:
    """Return the paper's adversarial geometry: one large cluster of entities (the blob) and single outliers.

    All entities in the large cluster have potentials on the same features. On each of these features, the unary
    potential is `effect` with probability `positive_share`, and otherwise -`effect`. Two features at a distance of at
    most `reach` on a ring are coupled. The potential of each coupling is `coupling` with probability `positive_share`,
    and otherwise -`coupling`. The potentials of the single entities in the large cluster differ from these values by
    normally distributed amounts. Every outlier has potentials on its own features. The potentials of outliers are
    generated in the same way, but without normally distributed differences.
    """
    starts = np.concatenate([[0], np.cumsum(config.supports)])
    blocks = [np.arange(first, last) for first, last in pairwise(starts)]
    rings = [_ring(block, config.reach) for block in blocks]
    edges = np.concatenate(rings)
    owner = np.repeat(np.arange(len(rings)), [len(ring) for ring in rings])
    unary = np.zeros((len(config.home), starts[-1]))
    weight = np.zeros((len(config.home), len(edges)))
    for cluster, block in enumerate(blocks):
        members = config.home == cluster
        unary[np.ix_(members, block)] = config.effect * _random_signs(len(block), config.positive_share, draw)
        held = np.flatnonzero(owner == cluster)
        weight[np.ix_(members, held)] = config.coupling * _random_signs(len(held), config.positive_share, draw)
    blob = (config.home == 0)[:, None]
    unary += config.spread * draw.standard_normal(unary.shape) * (blob & (unary != 0))
    weight += config.spread * draw.standard_normal(weight.shape) * (blob & (weight != 0))
    return PortfolioModel(unary, edges, weight)


STORIES: dict[str, tuple[type[Configuration], Callable[[Any, np.random.Generator], PortfolioModel]]] = {
    "drug-family": (SharedBlocks, drug_family),
    "pathway-enrich": (Blocks, pathway_enrichment),
    "strain-id": (StrainIdentification, strain_identification),
    "hierarchical": (SharedBlocks, hierarchy),
    "compositional": (Composition, composition),
    "adversarial": (BlobAndOutliers, blob_and_outliers),
}
"""Name of the scenario (story) in the paper -> class of the scenario's parameters, and generator of its potentials."""


def simulated_bundle(config: Configuration) -> Bundle:
    """Return a configuration's entities as a bundle.

    An entity's name contains its cluster and a number. The result is reproducible.
    """
    model = STORIES[config.story][1](config, generator_of("portfolio", config.name, "entities"))
    n, m = model.unary.shape
    entity, edge = np.nonzero(model.weight)
    packed = packed_couplings(Potentials(entity, model.edges[edge], model.weight[entity, edge]), n)
    number = np.concatenate([np.arange(size) for size in config.sizes])
    entities = tuple(f"c{cluster + 1}_{i + 1:02d}" for cluster, i in zip(config.home, number, strict=True))
    features = tuple(f"f{j + 1:03d}" for j in range(m))
    return Bundle(config.name, "1", entities, features, model.unary, packed, np.zeros(n))


def simulated_cohort(config: Configuration, bundle: Bundle, n_patients: int = N_PATIENTS) -> Cohort:
    """Return simulated patients. The labels of a patient name the entities that are present (true entities).

    The number of true entities of each patient is `n_true`. The first true entity is chosen uniformly at random. With
    probability `loyalty`, the next true entity is chosen from the cluster of the first true entity. Otherwise, or if
    this cluster has no entity left, the next true entity is chosen from all entities not chosen before. The patient's
    profile is an exact sample from p(x) ~ exp(mean of S_v(x) over the true entities v).
    """
    draw = generator_of("portfolio", config.name, "patients")
    entities = parameters(bundle)
    vectors = entities.values.toarray()
    labels = np.zeros((n_patients, len(bundle.entities)), dtype=np.int8)
    for true in labels:
        true[_true_entities(config, draw)] = 1
    values = np.empty((n_patients, len(bundle.features)), dtype=np.int8)
    sets, set_of = np.unique(labels, axis=0, return_inverse=True)
    for number, true in enumerate(sets):
        model = entities.model(vectors[true == 1].mean(axis=0))
        alike = set_of.ravel() == number
        values[alike] = sample(model, None, int(alike.sum()), generator=draw)
    patients = tuple(f"p{p + 1:03d}" for p in range(n_patients))
    table = pd.DataFrame(labels, index=list(patients), columns=list(bundle.entities))
    return Cohort(config.name, bundle.features, patients, values, table)


def _true_entities(config: Configuration, draw: np.random.Generator) -> list[int]:
    home = config.home
    true = [int(draw.integers(len(home)))]
    while len(true) < config.n_true:
        others = np.setdiff1d(np.arange(len(home)), true)
        own = others[home[others] == home[true[0]]]
        loyal = draw.random() < config.loyalty and len(own) > 0
        true.append(int(draw.choice(own if loyal else others)))
    return true


def _cluster_centres(config: Blocks, draw: np.random.Generator, *, shared: int = 0) -> Floats:
    """Return the unary potentials at the centre of each cluster, (C, M).

    The potentials have random signs on the cluster's own block, and are 0 on all other features.
    """
    n_clusters = len(config.sizes)
    centre = np.zeros((n_clusters, n_clusters * config.block + shared))
    for cluster, potency in enumerate(config.potencies):
        block = slice(cluster * config.block, (cluster + 1) * config.block)
        centre[cluster, block] = config.effect * potency * draw.choice([-1.0, 1.0], config.block)
    return centre


def _coupled_model(config: Blocks, unary: Floats, coherent: Floats) -> PortfolioModel:
    """Return a model with couplings between neighbouring features in each block.

    All couplings of a cluster are between features in the block of features that belongs to the cluster.

    The couplings favour values with the signs of the cluster's unary potentials.

    Parameters
    ----------
    unary : (N, M) nats
    coherent : (C, M) in {-1, 0, +1}

    """
    blocks = np.arange(len(config.sizes) * config.block).reshape(len(config.sizes), config.block)
    edges = np.concatenate([_ring(block, config.reach) for block in blocks])
    weight = config.coupling * coherent[:, edges[:, 0]] * coherent[:, edges[:, 1]]
    return PortfolioModel(unary, edges, weight[config.home])


def _ring(block: Ints, reach: int) -> Ints:
    """Return the distinct pairs of features at a distance of at most `reach` on a ring, sorted, (E, 2) int64."""
    apart = range(1, min(reach, len(block) - 1) + 1)
    pairs = [np.column_stack([block, np.roll(block, -distance)]) for distance in apart]
    return np.unique(np.sort(np.concatenate(pairs), axis=1), axis=0).astype(np.int64)


def _random_signs(n: int, positive_share: float, draw: np.random.Generator) -> Floats:
    return np.asarray(draw.choice([1.0, -1.0], n, p=[positive_share, 1 - positive_share]))
