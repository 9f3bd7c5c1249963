"""Item 5: what halving the potentials does for mean-field, and whether anything on a bundle contracts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from afa.bundle import Bundle
from afa.closure import contraction
from afa.experiments.errata.exact_entities import Halves, chosen_duels
from afa.experiments.errata.rows import Row
from afa.inference.meanfield import ternary_moments
from afa.mrf import Floats

LARGEST_SLOPE = 2 / 3


def halved_contraction(bundle: Bundle, halves: Sequence[Halves], most_duels: int) -> list[Row]:
    """Item 5: what halving does for the solves, and whether anything contracts."""
    point = partial(Row, item=5, label="prop:halved, eq:mf-contraction")
    capped = {
        name: np.array([not getattr(entity, attribute).converged for entity in halves])
        for name, attribute in (("own", "own"), ("p1", "one"), ("p0", "zero"))
    }
    helps = "halved potentials converge where the entity's own do not"
    rows = [
        point(
            name=f"capped_{name}",
            claim=helps,
            check=f"before any observation, share of solves of {words} that reach the cap of damped sweeps",
            value=float(capped[name].mean()),
            unit="rate",
            n=len(halves),
            holds=bool(capped[name].mean() <= capped["own"].mean()) if name != "own" else None,
            headline=name == "p0",
        )
        for name, words in (
            ("p0", "the negative half-potential p_0"),
            ("p1", "the positive half-potential p_1"),
            ("own", "the entities' own p_v"),
        )
    ]
    slope = largest_slope()
    rows.append(
        point(
            name="slope",
            claim="the moment map of a site has a slope of at most L^2 = 1",
            claim_value=1.0,
            check="largest variance of a ternary feature over fields from -20 to 20: it is 2/3, at field 0",
            value=slope,
            unit="contraction",
            n=None,
            holds=bool(abs(slope - 1.0) <= 0.01),
        )
    )
    entities = np.array([contraction(entity.score) for entity in halves])
    duels = np.array([contraction(a - b) for a, b in chosen_duels(bundle, most_duels)])
    for name, words, betas in (("entities", "entities", entities), ("duels", "duels D_ab", duels)):
        if len(betas):
            rows += _contraction_rows(point, name, words, betas)
    return rows


def _contraction_rows(point: partial[Row], name: str, words: str, betas: Floats) -> list[Row]:
    claimed = "beta L^2 lies between 6 and 20, and between 3 and 10 once halved"
    ranges = [
        ("least", words, betas.min(), 6.0),
        ("largest", words, betas.max(), 20.0),
        ("halved_least", f"{words}, halved", betas.min() / 2, 3.0),
        ("halved_largest", f"{words}, halved", betas.max() / 2, 10.0),
    ]
    rows = [
        point(
            name=f"beta_{name}_{which}",
            claim=claimed,
            claim_value=claim_value,
            check=f"{which.removeprefix('halved_')} beta L^2 over {where}, before any observation, L = 1",
            value=float(value),
            unit="contraction",
            n=len(betas),
        )
        for which, where, value, claim_value in ranges
    ]
    rows.append(
        point(
            name=f"beta_{name}_halved_tight",
            claim="with the right slope the condition is 2/3 beta < 1",
            check=f"least 2/3 beta over {words}, halved: below 1 it would contract",
            value=float(LARGEST_SLOPE * betas.min() / 2),
            unit="contraction",
            n=len(betas),
        )
    )
    failing = betas >= 1
    for suffix, limit, words_limit in (("paper", 1.0, "beta / 2 < 1"), ("tight", 1.5, "beta / 2 < 3/2")):
        reached = failing & (betas / 2 < limit)
        rows.append(
            point(
                name=f"rescued_{name}_{suffix}",
                claim="models that fail the condition often meet it once halved",
                check=f"share of the {words} with beta of 1 or more that have {words_limit}",
                value=float(reached.sum() / failing.sum()) if failing.any() else None,
                unit="rate",
                n=int(failing.sum()),
                holds=bool(reached.any()) if failing.any() else None,
                pending="" if failing.any() else f"{words} whose beta is 1 or more: this bundle has none",
            )
        )
    return rows


def largest_slope() -> float:
    """Largest derivative of the ternary moment map, the variance q - m^2, over fields from -20 to 20."""
    m, q = ternary_moments(np.linspace(-20, 20, 4001))
    return float((q - m * m).max())
