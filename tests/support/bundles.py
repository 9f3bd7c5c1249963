"""Random bundles for property tests."""

import numpy as np
from hypothesis import strategies as st

from afa.model.bundle import Bundle, PackedCouplings

POTENTIALS = st.one_of(st.sampled_from([-1.0, 0.0, 1.0]), st.floats(-2, 2).map(lambda v: round(v, 2)))

QUARTERS = st.one_of(st.just(0.0), st.just(0.0), st.integers(-6, 6).map(lambda n: n / 4))
"""Potentials whose sums are exact, so that a tie is a tie in any order of addition; many zeros, so supports differ."""


def bundle_of(unary, couplings, priors=None, features=None, entities=None):
    """A bundle from dense arrays: unary (N, M), couplings (N, M, M) of which the upper triangle is read."""
    unary = np.asarray(unary, dtype=float)
    n, m = unary.shape
    entity, row, column = np.nonzero(np.triu(np.asarray(couplings, dtype=float), 1))
    value = np.asarray(couplings, dtype=float)[entity, row, column]
    pointer = np.searchsorted(entity, np.arange(n + 1)).astype(np.int64)
    return Bundle(
        name="random",
        version="1",
        entities=tuple(entities or (f"v{i}" for i in range(n))),
        features=tuple(features or (f"f{j}" for j in range(m))),
        unary=unary,
        packed=PackedCouplings(pointer, row.astype(np.int32), column.astype(np.int32), value),
        priors=np.zeros(n) if priors is None else np.asarray(priors, dtype=float),
    )


def rearranged(bundle, entities=None, features=None):
    """The same models with entities and features at other positions; every name keeps its potentials."""
    entities, features = entities or bundle.entities, features or bundle.features
    rows = [bundle.entities.index(name) for name in entities]
    columns = [bundle.features.index(name) for name in features]
    couplings = [bundle.couplings(name).toarray()[np.ix_(columns, columns)] for name in entities]
    return bundle_of(bundle.unary[np.ix_(rows, columns)], couplings, bundle.priors[rows], features, entities)


@st.composite
def random_bundles(draw, entities=(2, 5), features=(2, 5), potentials=POTENTIALS):
    """Small bundles with any mixture of zero and non-zero potentials."""
    n, m = draw(st.integers(*entities)), draw(st.integers(*features))
    numbers = st.lists(potentials, min_size=n * m * (m + 1), max_size=n * m * (m + 1))
    drawn = np.array(draw(numbers)).reshape(n, m + 1, m)
    priors = [draw(st.sampled_from([0.0, 0.0, 0.5, -1.0])) for _ in range(n)]
    return bundle_of(drawn[:, 0], drawn[:, 1:], priors)


def models_of(bundle):
    """The models of all entities, in order."""
    return [bundle.mrf(entity) for entity in bundle.entities]


def energies(bundle, rows):
    """(N, rows) energy of each row under each entity."""
    return np.array([[model.energy(x) for x in rows] for model in models_of(bundle)])


@st.composite
def observed_bundles(draw, full=False, **kwargs):
    """A bundle and some observations (feature index -> value) in a drawn order; all features with `full`."""
    bundle = draw(random_bundles(**kwargs))
    indices = range(len(bundle.features))
    order = draw(st.permutations(indices)) if full else draw(st.lists(st.sampled_from(indices), unique=True))
    return bundle, {j: draw(st.sampled_from([-1, 0, 1])) for j in order}
