"""Expression values of a cohort's patients and controls, and the ternary code as the paper prints it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import hypergeom

from afa.bundle import Bundle
from afa.checks.errata.rows import NEAR, Row
from afa.checks.errata.states import Sampling, share_interval, some_patients
from afa.cohort.build import read_values
from afa.cohort.cohort import Cohort
from afa.cohort.config import CohortConfig
from afa.cohort.encode import Test, encode
from afa.cohort.genes import Names, first_tier_present
from afa.cohort.geo import Source
from afa.cohort.transform import choose_rows, log_values
from afa.engine.paths import sign_paths
from afa.errors import CohortError, Fault
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.orders import random_order
from afa.preference import tie_of


@dataclass(frozen=True)
class CohortExpression:
    """Log2 expression of genes x samples, which samples are controls (n_samples,), and the cohort's ternary test."""

    values: pd.DataFrame
    is_control: NDArray[np.bool_]
    test: Test = "empirical"
    level: float = 0.05

    def __post_init__(self) -> None:
        if self.is_control.shape != (self.values.shape[1],) or self.is_control.all() or not self.is_control.any():
            found = f"{int(self.is_control.sum())} controls among {self.values.shape[1]} samples"
            step = "mark the controls of the series"
            raise CohortError(Fault("expression values", found, "patients and controls, one mark a sample", step))

    def code(self) -> NDArray[np.int8]:
        """(n_genes, n_patients) code by the test about the control centre, as the cohort was encoded (decision D1)."""
        coded = encode(self.values, self.is_control, test=self.test, level=self.level)
        return coded.to_numpy()[:, ~self.is_control]


def written_code(expression: CohortExpression) -> NDArray[np.int8]:
    """(n_genes, n_patients) code of eq:ternary-encoding as printed: p is the share of controls C with |C| > |x|."""
    known = expression.values.to_numpy(dtype=np.float64)
    controls, patients = known[:, expression.is_control], known[:, ~expression.is_control]
    size = np.sort(np.abs(controls), axis=1)
    p = np.empty(patients.shape)
    for gene in range(len(known)):
        p[gene] = 1.0 - np.searchsorted(size[gene], np.abs(patients[gene]), side="right") / size.shape[1]
    direction = np.sign(patients - controls.mean(axis=1, keepdims=True))
    return np.where(p < expression.level, direction, 0.0).astype(np.int8)


def load_expression(
    config: CohortConfig,
    source: Source,
    bundle: Bundle,
    *,
    test: Test = "empirical",
    level: float = 0.05,
    aliases: Names | None = None,
    ensembl: Names | None = None,
) -> CohortExpression:
    """Read the values that a cohort was encoded from, on the bundle's features; arguments as of `build_cohort`.

    Features without a row in the series are left out, as in the cohort. Errors are those of `build_cohort`.
    """
    other_names: Mapping[str, Sequence[str]] = aliases or {}
    names = {name: (*bundle.aliases.get(name, ()), *other_names.get(name, ())) for name in bundle.features}
    chosen, tiers, read = read_values(config, source, bundle.features, names, ensembl or {})
    raw = read.values[[*chosen.controls, *chosen.patients]]
    log = log_values(raw, config.expression.unit, read.library_size)
    values, _ = choose_rows(log, first_tier_present(tiers, map(str, log.index)), chosen.controls)
    is_control = np.isin(values.columns, chosen.controls)
    return CohortExpression(values, is_control, config.encoding.test or test, config.encoding.level or level)


BUDGET = 10
COIN = 0.5
NO_EXPRESSION = "expression values of the cohort"


def vote_for_neither(
    bundle: Bundle, cohort: Cohort, solver: Solver, most_patients: int, sampling: Sampling
) -> list[Row]:
    """Item 10: how often `kl` at full observation lets both entities of a duel lose, and how many values are zero."""
    point = partial(Row, item=10)
    rows = some_patients(cohort, most_patients, purpose="votes")
    names = [cohort.patients[row] for row in rows]
    orders = np.array([[random_order(bundle.features, patient=name, seed=0)] for name in names], dtype=np.int64)
    paths = sign_paths(bundle, cohort.values[rows], orders, solver=solver, threads=1)
    final = {name: signs[:, 0, -1] for name, signs in paths.signs.items()}
    decided = final["wald"] != 0
    # `kl_reversed` is already turned round: +1 says that b, asked for, loses.
    neither = ((final["kl"] < 0) & (final["kl_reversed"] > 0))[decided]
    patients = np.repeat(np.array(names, dtype=object), decided.sum(axis=1))
    zeros = float((cohort.values == 0).mean())
    n = len(neither)
    low, high = share_interval(neither, patients, sampling) if n else (None, None)
    return [
        point(
            name="neither",
            claim_value=0.0,
            value=float(neither.mean()) if n else None,
            low=low,
            high=high,
            n=n,
            holds=not bool(neither.any()) if n else None,
            pending="" if n else "patients with a duel that is decided at full observation",
        ),
        point(
            name="zero_values",
            claim_value=1 / 3,
            value=zeros,
            n=cohort.values.size,
        ),
    ]


def opposite_profile(bundle: Bundle, cohort: Cohort, sampling: Sampling) -> list[Row]:
    """Item 11: does a positive S tell a profile from its opposite?"""
    point = partial(Row, item=11)
    unary, quadratic = score_parts(bundle, cohort.values)
    tie = tie_of([bundle.mrf(entity) for entity in bundle.entities])
    prior = bundle.priors[None, :]
    positive = prior + unary + quadratic > tie
    mirrored = prior - unary + quadratic > tie
    against = positive & (unary < -tie)
    size = np.abs(unary) + np.abs(quadratic)
    share = np.divide(np.abs(quadratic), size, out=np.zeros_like(size), where=size > 0)
    patients = np.repeat(np.array(cohort.patients, dtype=object), positive.shape[1])

    def rate(name: str, hits: NDArray[np.bool_], among: NDArray[np.bool_]) -> Row:
        flat, kept = hits[among], patients[among.ravel()]
        low, high = share_interval(flat, kept, sampling) if len(kept) else (None, None)
        return point(
            name=name,
            claim_value=0.0,
            value=float(flat.mean()) if len(kept) else None,
            low=low,
            high=high,
            n=len(kept),
            holds=not bool(flat.any()) if len(kept) else None,
            pending="" if len(kept) else "patients with such a score",
        )

    every = np.ones_like(positive)
    return [
        rate("against_unaries", against, every),
        rate("negative_sum_positive", positive, unary < -tie),
        rate("mirror", mirrored, positive),
        point(
            name="quadratic_share",
            value=float(share[size > 0].mean()) if (size > 0).any() else None,
            n=int((size > 0).sum()),
            pending="" if (size > 0).any() else "patients with a value that is not zero",
        ),
    ]


def score_parts(bundle: Bundle, values: NDArray[np.int8]) -> tuple[Floats, Floats]:
    """Unary and quadratic part of S_v(x), each (P, N) nats, of configurations `values` (P, M); priors left out."""
    x = values.astype(np.float64)
    unary = x @ bundle.unary.T
    quadratic = np.empty_like(unary)
    for v in range(len(bundle.entities)):
        row, column, value = bundle.packed.of(v)
        quadratic[:, v] = (x[:, row] * x[:, column]) @ value
    return unary, quadratic


def support_met(bundle: Bundle) -> list[Row]:
    """Item 17: how much of an entity's support a random order over all M features meets by t = 10."""
    point = partial(Row, item=17)
    m = len(bundle.features)
    sizes = np.array([len(bundle.support(entity)) for entity in bundle.entities])
    drawn = min(BUDGET, m)
    informed = np.minimum(sizes, drawn)
    met = sizes * drawn / m
    return [
        point(name="support_met", value=float(met.mean()), n=len(sizes)),
        point(name="support_informed", value=float(informed.mean()), n=len(sizes)),
        point(
            name="support_missed",
            value=float(hypergeom.pmf(0, m, sizes, drawn).mean()),
            n=len(sizes),
        ),
    ]


def structural_ties(bundle: Bundle, cohort: Cohort, printed_share: float) -> list[Row]:
    """Item 19: the share of duels tied at full observation, where all others are one-sided; and whether it is one."""
    unary, quadratic = score_parts(bundle, cohort.values)
    scores = bundle.priors[None, :] + unary + quadratic
    a, b = np.triu_indices(len(bundle.entities), 1)
    tie = tie_of([bundle.mrf(entity) for entity in bundle.entities])
    tied = np.abs(scores[:, a] - scores[:, b]) <= tie
    point = partial(Row, item=19, pending="" if tied.size else "bundles of two entities or more")
    of_patients = tied.mean(axis=1) if tied.size else np.zeros(0)
    spread = float(np.ptp(of_patients)) if tied.size else None
    return [
        point(
            name="structural_ties",
            claim_value=printed_share,
            value=float(tied.mean()) if tied.size else None,
            n=int(tied.size),
        ),
        point(
            name="ties_by_patient",
            claim_value=0.0,
            value=spread,
            n=len(of_patients),
            holds=None if spread is None else spread <= NEAR,
        ),
    ]


def down_regulation(expression: CohortExpression | None) -> list[Row]:
    """Item 21: what a p-value two-sided about zero calls down, beside the one about the controls' centre."""
    point = partial(Row, item=21)
    if expression is None:
        return [point(name="lowest_written", pending=NO_EXPRESSION)]
    known = expression.values.to_numpy(dtype=np.float64)
    controls, patients = known[:, expression.is_control], known[:, ~expression.is_control]
    written, ours = written_code(expression), expression.code()
    lowest = patients < controls.min(axis=1, keepdims=True)
    above = patients >= np.median(controls, axis=1, keepdims=True)

    def share(name: str, hits: NDArray[np.bool_], waits_for: str = "") -> Row:
        value = float(hits.mean()) if hits.size else None
        return point(name=name, value=value, n=hits.size, pending="" if hits.size else waits_for)

    below_all = "values below all controls"
    called = share("lowest_written", written[lowest] < 0, below_all)
    verdict = called.value > COIN if called.value is not None else None
    return [
        replace(called, claim_value=1.0, holds=verdict),
        share("lowest_centred", ours[lowest] < 0, below_all),
        share("down_written", written < 0),
        share("up_written", written > 0),
        share("down_centred", ours < 0),
        share("up_centred", ours > 0),
        share("down_above_median", above[written < 0], "values that are called down as printed"),
        share("negative_values", known < 0),
    ]
