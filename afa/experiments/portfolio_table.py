"""The ten configurations of the synthetic Layer 0 portfolio, frozen (tab:layer0_synthetic).

The paper names the stories and prints a separation ratio for each configuration; the rest is ours. All numbers were
fixed before any elimination was counted: `spread`, how far entities of a cluster lie apart, was solved for the printed
separation ratio, and nothing else was tuned. Clusters have at most five entities, but for the blob: where more than k
are in one, the rule `n_minus_k` can never remove it. The stories are told in `afa.experiments.portfolio`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from afa.mrf import Floats

N_PATIENTS = 200


@dataclass(frozen=True)
class Configuration:
    """One configuration of a story.

    name, letter, story : as the paper prints them. separation : its printed separation ratio. sizes : entities of each
    cluster. block : features of a cluster's own (where clusters have none of their own: of all). shared : features
    that clusters share (`strain-id`: markers private to a strain). effect : unary potential of a cluster of mean
    potency. potency : of the weakest and the strongest cluster, as multiples; the others lie evenly between. coupling,
    reach : potential between features of a block at most `reach` apart on a ring. spread : scale of the deviations of
    entities from their cluster, in units of a potential (`compositional`: a share of the whole). n_true, loyalty : true
    entities of a patient, and the probability that each after the first is of the first one's cluster.
    """

    name: str
    letter: str
    story: str
    separation: float
    sizes: tuple[int, ...]
    block: int
    shared: int
    effect: float
    coupling: float
    reach: int
    spread: float
    potency: tuple[float, float] = (0.7, 1.3)
    n_true: int = 3
    loyalty: float = 0.8

    @property
    def home(self) -> NDArray[np.int64]:
        """(N,) the cluster that each entity was made in."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes).astype(np.int64)

    @property
    def potencies(self) -> Floats:
        """(C,) multiples of `effect`."""
        return np.linspace(*self.potency, len(self.sizes))


_DRUG = Configuration(
    name="drug_C4",
    letter="A",
    story="drug-family",
    separation=9.9,
    sizes=(5, 5, 5, 5),
    block=12,
    shared=8,
    effect=2.0,
    coupling=0.3,
    reach=1,
    spread=0.104,
)
_PATHWAY = Configuration(
    name="pathway_C4",
    letter="B",
    story="pathway-enrich",
    separation=140.0,
    sizes=(5, 5, 5, 5),
    block=12,
    shared=0,
    effect=5.0,
    coupling=0.2,
    reach=1,
    spread=0.09,
)
_STRAIN = Configuration(
    name="strain_C3",
    letter="C",
    story="strain-id",
    separation=506.0,
    sizes=(5, 5, 5),
    block=60,
    shared=3,
    effect=2.0,
    coupling=0.0,
    reach=0,
    spread=0.0459,
)
_HIERARCHY = Configuration(
    name="hier_C3",
    letter="D",
    story="hierarchical",
    separation=8.5,
    sizes=(5, 5, 5),
    block=10,
    shared=20,
    effect=2.0,
    coupling=0.3,
    reach=2,
    spread=0.282,
)
_MIXTURE = Configuration(
    name="compositional",
    letter="E",
    story="compositional",
    separation=2.5,
    sizes=(4, 4, 4, 4),
    block=40,
    shared=0,
    effect=1.0,
    coupling=0.4,
    reach=1,
    spread=0.416,
)
_OUTLIERS = Configuration(
    name="adversarial_ibd",
    letter="F",
    story="adversarial",
    separation=43.6,
    sizes=(21, 1, 1, 1, 1),
    block=22,
    shared=0,
    effect=1.0,
    coupling=1.0,
    reach=4,
    spread=0.0452,
)
PORTFOLIO = (
    _DRUG,
    replace(_DRUG, name="drug_C6", separation=12.4, sizes=(4,) * 6, spread=0.0549),
    _PATHWAY,
    replace(_PATHWAY, name="pathway_C5", separation=169.0, sizes=(4,) * 5, spread=0.0887),
    _STRAIN,
    replace(_STRAIN, name="strain_C5", separation=546.0, sizes=(4,) * 5, spread=0.0404),
    _HIERARCHY,
    replace(_HIERARCHY, name="hier_C4", separation=14.5, sizes=(5,) * 4, spread=0.159),
    _MIXTURE,
    _OUTLIERS,
)
"""The ten configurations of tab:layer0_synthetic, in its order."""
