"""Compiled sums over who speaks of a feature, where features imply one another (`afa.inference.hierarchy`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from afa.engine.compile import kernel
from afa.mrf import Floats

Indices = npt.NDArray[np.int64]
NOWHERE = -1
"""The nearest present ancestor of a feature that has none to be read given: above the root, where P = 1."""
NEGLIGIBLE = 1e-12
"""A posterior whose entropy of a feature is not computed; all of them together are below N times this, in nats."""


class Spoken(NamedTuple):
    """What N entities say of T features. Who speaks of a feature speaks of its ancestors, others follow the background.

    parent : (T,) one parent a feature, or `NOWHERE`. starts : (T + 1,) where the entities that speak of a feature begin
    in `entities`, ascending, and in `p`, their probabilities. b : (T,) the background. floor : what a ratio of two
    probabilities is kept away from 0 and 1.
    """

    parent: Indices
    starts: Indices
    entities: Indices
    p: Floats
    b: Floats
    floor: float


@kernel(entrance=True)
def nearest(parent: Indices, present: npt.NDArray[np.bool_], found: Indices) -> None:
    """The nearest present ancestor of each feature; ancestors come first."""
    for feature in range(parent.size):
        above = parent[feature]
        found[feature] = NOWHERE if above == NOWHERE else above if present[above] else found[above]


@kernel(inline=True)
def _kept(ratio: float, floor: float) -> float:
    return min(max(ratio, floor), 1.0 - floor)


@kernel(inline=True)
def _entropy(p: float) -> float:
    entropy: float = -p * np.log(p) - (1.0 - p) * np.log(1.0 - p)
    return entropy


@kernel(entrance=True)
def given(feature: int, above: int, spoken: Spoken, own: Floats) -> int:
    """Write P(feature | ancestor) of the entities that speak of anything between the two into `own` (N,).

    Returns the feature whose column names them: the last one below the ancestor. All others follow the background.
    """
    parent, starts, entities, p, b, _ = spoken
    top, n_between, at = feature, 1, parent[feature]
    while at != above:
        top, n_between, at = at, n_between + 1, parent[at]
    for step in range(n_between - 1, -1, -1):  # from the top down: the lowest statement counts
        at = feature
        for _ in range(step):
            at = parent[at]
        for place in range(starts[at], starts[at + 1]):
            own[entities[place]] = p[place] * (b[feature] / b[at])
    if above >= 0:
        whole = starts[above]
        for place in range(starts[top], starts[top + 1]):
            while entities[whole] < entities[place]:
                whole += 1
            own[entities[place]] /= p[whole]
    return top


@kernel(entrance=True)
def add_up(features: Indices, aboves: Indices, is_there: bool, spoken: Spoken, total: Floats) -> float:
    """Add log P(features | ancestors), or of their absence, to `total` (N,) but for the sum that all share."""
    starts, entities, b, floor = spoken.starts, spoken.entities, spoken.b, spoken.floor
    shared, own = 0.0, np.empty(total.size)
    for i in range(features.size):
        feature, above = features[i], aboves[i]
        usual = _kept(b[feature] / (b[above] if above >= 0 else 1.0), floor)
        log_usual = np.log(usual if is_there else 1.0 - usual)
        shared += log_usual
        top = given(feature, above, spoken, own)
        for place in range(starts[top], starts[top + 1]):
            v = entities[place]
            ratio = _kept(own[v], floor)
            total[v] += np.log(ratio if is_there else 1.0 - ratio) - log_usual
    return shared


@kernel(entrance=True)
def told(features: Indices, aboves: Indices, weight: Floats, spoken: Spoken, found: Floats) -> None:
    """H(m) - sum_v w_v H(theta_v) of each feature, with the mean m = sum_v w_v theta_v."""
    starts, entities, b, floor = spoken.starts, spoken.entities, spoken.b, spoken.floor
    own = np.empty(weight.size)
    for i in range(features.size):
        feature, above = features[i], aboves[i]
        top = given(feature, above, spoken, own)
        mass = mean = inside = 0.0
        for place in range(starts[top], starts[top + 1]):
            w, theta = weight[entities[place]], _kept(own[entities[place]], floor)
            mass += w
            mean += w * theta
            if w > NEGLIGIBLE:
                inside += w * _entropy(theta)
        usual, rest = _kept(b[feature] / (b[above] if above >= 0 else 1.0), floor), max(0.0, 1.0 - mass)
        found[i] = max(0.0, _entropy(mean + rest * usual) - inside - rest * _entropy(usual))


@kernel(entrance=True)
def means(order: Indices, aboves: Indices, weight: Floats, spoken: Spoken, up: Indices, found: Floats) -> None:
    """Write the mean of P(feature | the one above) into `found` (T,), for features in a given order.

    Who is silent on a feature has it as often as the background among those with its parent, so that one look at who
    speaks of it is enough. No ratio is kept from 0 and 1. order : features by what is above them, parents first;
    it leaves out no parent but what is above. up : where an entity stands in the column of a feature's parent, for each
    place of `p`.
    """
    parent, starts, entities, p, b, _ = spoken
    whole, last = np.ones(weight.size), NOWHERE
    for i in range(order.size):
        feature = order[i]
        above, at = aboves[feature], parent[feature]
        if above != last:
            for place in range(starts[above], starts[above + 1]):
                whole[entities[place]] = p[place]
            last = above
        speaking = theirs = 0.0
        for place in range(starts[feature], starts[feature + 1]):
            v = entities[place]
            speaking += weight[v] * p[place] / whole[v]
            theirs += weight[v] * (1.0 if at == above else p[up[place]] / whole[v])
        of_parent = 1.0 if at == above else found[at]
        share = b[feature] / (b[at] if at >= 0 else 1.0)
        found[feature] = speaking + share * max(0.0, of_parent - theirs)
