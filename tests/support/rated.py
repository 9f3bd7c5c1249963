"""Small random bundles that say how often, with the tables that they were made of."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from afa.model.bundle import Bundle
from afa.model.bundle.format import Potentials
from afa.model.bundle.model import packed_couplings
from afa.model.bundle.rates import NO_ROWS, ProbabilityRows, Rates, floored, three_values
from afa.model.features import features_of

KINDS = {
    "three": (True, True, True),
    "binary": (False, True, True),
    "above": (False, True, True),
    "below": (True, True, False),
}


@dataclass
class Rated:
    """A bundle, its P_1, P_0 (N, M, 3) and background (M, 3), and the features that entities speak of, (N, M)."""

    bundle: Bundle
    one: np.ndarray
    zero: np.ndarray
    background: np.ndarray
    spoken: np.ndarray

    def values(self, rng):
        """A full configuration, (M,), of values that can occur together."""
        found = np.array([rng.choice(np.flatnonzero(row)) - 1 for row in self.bundle.possible])
        for _, members in self.bundle.exclusive:
            found[list(members)] = np.arange(len(members)) == rng.integers(0, len(members) + 1)
        return found

    def named(self, values, features):
        """Values by name of some features."""
        return {self.bundle.features[j]: int(values[j]) for j in features}


def rated(rng, *, n=3, m=5, coupled=True, holds="several", speaks=0.8, priors=True, group=0):
    """N entities on M features of mixed kinds; rows of both classes, one, or a direction; couplings of all scopes.

    group : how many of the features, drawn, exclude each other.
    """
    kinds = rng.choice(list(KINDS), m)
    members = np.sort(rng.permutation(m)[:group]) if group else np.empty(0, dtype=int)
    kinds[members] = "binary"
    possible = np.array([KINDS[kind] for kind in kinds])

    def shares():
        return rng.dirichlet(np.ones(3)) * possible[j] if possible[j].all() else _one_sided(rng, possible[j])

    background = np.empty((m, 3))
    for j in range(m):
        background[j] = shares()
    table = pd.DataFrame(
        {
            "feature": [f"f{j}" for j in range(m)],
            "kind": ["binary" if kind == "binary" else "continuous" for kind in kinds],
            "low": ["" if kind in ("binary", "above") else "1" for kind in kinds],
            "high": ["" if kind in ("binary", "below") else "2" for kind in kinds],
            "p_low": [repr(float(p)) for p in background[:, 0]],
            "p_high": [repr(float(p)) for p in background[:, 2]],
        }
    )
    background = floored(background, possible)
    one, zero = np.tile(background, (n, 1, 1)), np.tile(background, (n, 1, 1))
    spoken, unary, rows = rng.random((n, m)) < speaks, np.zeros((n, m)), []
    for v, j in np.argwhere(spoken):
        way = rng.choice(["both", "both", "with", "direction"])
        said = [np.full(3, np.nan), np.full(3, np.nan)]
        if way == "direction":
            unary[v, j] = rng.choice([-1.0, 0.5, 1.0])
            tilted = background[j] * np.exp(unary[v, j] * np.array([-1, 0, 1]))
            one[v, j] = tilted / tilted.sum()
            continue
        said[0] = shares()
        one[v, j] = floored(said[0], possible[j])
        if way == "both":
            said[1] = shares()
            zero[v, j] = floored(said[1], possible[j])
        rows.append((v, j, *said))
    stated = NO_ROWS
    if rows:
        entity, feature = (np.array([row[i] for row in rows], dtype=np.int64) for i in (0, 1))
        with_, without = (np.array([three_values(row[i][0], row[i][2]) for row in rows]) for i in (2, 3))
        stated = ProbabilityRows(entity, feature, with_, without, np.zeros(len(rows), dtype=bool))
    pairs = [(v, j, k) for v in range(n) for j in range(m) for k in range(j + 1, m) if coupled and rng.random() < 0.4]
    pairs = [pair for pair in pairs if not {*pair[1:]} & {*members.tolist()}]
    triples = np.array(pairs, dtype=np.int64).reshape(-1, 3)
    scope = rng.integers(0, 3, len(pairs)).astype(np.int8)
    exclusive = (("group", tuple(members.tolist())),) if group else ()
    rates = Rates(m, features_of(table), stated, holds=holds, exclusive=exclusive)
    unary[stated.entity, stated.feature] = rates.directions()
    for v, j, k in pairs:
        spoken[v, [j, k]] = True
    spoken[:, members] |= spoken[:, members].any(axis=1, keepdims=True)
    bundle = Bundle(
        name="rated",
        version="1",
        entities=tuple(f"v{i}" for i in range(n)),
        features=tuple(table["feature"]),
        unary=unary,
        packed=packed_couplings(Potentials(triples[:, 0], triples[:, 1:], rng.normal(0, 0.7, len(pairs)), scope), n),
        priors=rng.normal(0, 1, n).round(2) if priors else np.zeros(n),
        rates=rates,
    )
    return Rated(bundle, one, zero, background, spoken)


def _one_sided(rng, possible):
    share = rng.uniform(0.03, 0.97)
    return np.where(possible, np.where([True, False, True], share, 1 - share), 0.0)


FEVERS = {
    "bundle.yaml": 'name: fevers\nversion: "1"\nholds: one or none\n',
    "features.csv": "feature,kind,p_high\nred,binary,0.2\nblue,binary,0.2\ngreen,binary,0.2\ncough,binary,0.3\n",
    "unary.csv": (
        "entity,feature,potential,p_high_with,p_high_without\n"
        "flu,red,,0.6,0.2\nflu,blue,,0.2,0.3\nflu,green,,0.1,0.3\nflu,cough,,0.9,0.3\ncold,cough,,0.7,0.3\n"
    ),
    "pairwise.csv": "entity,feature_a,feature_b,potential\n",
    "groups.csv": "feature,measurement,exclusive\nred,look,colour\nblue,look,colour\ngreen,look,colour\n",
}
"""Files of two entities, three colours of which a patient has at most one, seen with one look, and a cough."""


def written(folder, files):
    """A folder of these texts by name."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder
