"""Exact answers by listing all 3^n configurations: what small models are held to."""

from itertools import product

import numpy as np
from hypothesis import strategies as st

from afa.model.mrf import PairwiseMRF


def configurations(n):
    """All ternary configurations of n features, shape (3^n, n)."""
    return np.array(list(product((-1, 0, 1), repeat=n)), dtype=float).reshape(3**n, n)


def completions(mrf, observations):
    """Every configuration that agrees with `observations` (index -> value), shape (3^|A|, M)."""
    hidden = [j for j in range(mrf.n_features) if j not in observations]
    table = np.zeros((3 ** len(hidden), mrf.n_features))
    table[:, hidden] = configurations(len(hidden))
    for j, value in observations.items():
        table[:, j] = value
    return table


def energies(mrf, table):
    """E(x) of each row, by the formula and nothing else."""
    dense = mrf.couplings.toarray()
    return mrf.prior + table @ mrf.unary + 0.5 * np.einsum("ij,jk,ik->i", table, dense, table)


def posterior(mrf, observations):
    """Completions, their probabilities, and log Z(x_obs)."""
    table = completions(mrf, observations)
    energy = energies(mrf, table)
    top = energy.max()
    weight = np.exp(energy - top)
    return table, weight / weight.sum(), float(np.log(weight.sum()) + top)


def product_measure(probabilities):
    """All configurations and their weights under independent features, `probabilities` (M, 3) of -1, 0, +1."""
    table = configurations(len(probabilities))
    chosen = np.asarray(probabilities)[np.arange(len(probabilities)), table.astype(int) + 1]
    return table, chosen.prod(axis=1)


def completed_product(marginals, observed):
    """The product measure of some marginals with the observed features (index -> value) at their values."""
    m, q = marginals.first, marginals.second
    probabilities = np.column_stack([(q - m) / 2, 1 - q, (q + m) / 2])
    for j, value in observed.items():
        probabilities[j] = np.eye(3)[value + 1]
    return product_measure(probabilities)


def exact_log_odds(models, observed):
    """Enumerated log P(a | x_obs) - log P(b | x_obs), priors included once."""
    each = [model.prior + posterior(model, observed)[2] - posterior(model, {})[2] for model in models]
    return each[0] - each[1]


def enumerated_cmi(models, observed):
    """I(y; x_f | x_obs) from the joint table of y and x_f, at every feature."""
    odds = exact_log_odds(models, observed)
    of_y = np.array([1 / (1 + np.exp(-odds)), 1 / (1 + np.exp(odds))])
    solved = [posterior(model, observed) for model in models]
    gains = np.zeros(models[0].n_features)
    for f in range(models[0].n_features):
        joint = np.array(
            [
                [of_y[y] * weight[table[:, f] == x].sum() for x in (-1, 0, 1)]
                for y, (table, weight, _) in enumerate(solved)
            ]
        )
        independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
        present = joint > 0
        gains[f] = (joint[present] * np.log(joint[present] / independent[present])).sum()
    return gains


@st.composite
def models(draw, sizes=(3, 6), potentials=None, prior=True):
    """Random pairwise models with a name of each feature; couplings may be absent."""
    n = draw(st.integers(*sizes))
    values = (
        potentials
        if potentials is not None
        else st.one_of(st.sampled_from([-1.0, 0.0, 1.0]), st.floats(-2, 2).map(lambda v: round(v, 3)))
    )
    unary = [draw(values) for _ in range(n)]
    couplings = np.zeros((n, n))
    for j in range(n):
        for other in range(j):
            couplings[j, other] = couplings[other, j] = draw(values)
    return PairwiseMRF(unary, couplings, draw(st.floats(-1, 1)) if prior else 0.0)


@st.composite
def observations(draw, mrf):
    """Some features of a model with a value each."""
    chosen = draw(st.lists(st.integers(0, mrf.n_features - 1), unique=True, max_size=mrf.n_features))
    return {j: draw(st.sampled_from([-1, 0, 1])) for j in chosen}


@st.composite
def observed_models(draw, **kwargs):
    """A model and some observations of it."""
    mrf = draw(models(**kwargs))
    return mrf, draw(observations(mrf))
