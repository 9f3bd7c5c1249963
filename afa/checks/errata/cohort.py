"""Items 10, 11, 19 and 21: what the values of a cohort's patients and the expression behind them decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.checks.errata.models import by_hash
from afa.checks.errata.rows import NEAR, Row, measured, rate
from afa.cohort.build import read_values
from afa.cohort.cohort import Cohort
from afa.cohort.config import CohortConfig
from afa.cohort.encode import Names, Test, choose_rows, encode, first_tier_present, log_values
from afa.cohort.geo import Source
from afa.engine.paths import sign_paths
from afa.errors import CohortError, Fault
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.orders import random_orders
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


COIN = 0.5
NO_EXPRESSION = "expression values of the cohort"
NO_DUEL = "bundles of two entities or more"


def vote_for_neither(bundle: Bundle, cohort: Cohort, solver: Solver, most_patients: int) -> list[Row]:
    """Item 10: how often `kl` at full observation lets both entities of a duel lose, and how many values are zero."""
    rows = some_patients(cohort, most_patients, purpose="votes")
    names = [cohort.patients[row] for row in rows]
    orders = random_orders(bundle.features, names, [0])
    paths = sign_paths(bundle, cohort.values[rows], orders, solver=solver, threads=1)
    final = {name: signs[:, 0, -1] for name, signs in paths.signs.items()}
    decided = final["wald"] != 0
    # `kl_reversed` is already turned round: +1 says that b, asked for, loses.
    neither = ((final["kl"] < 0) & (final["kl_reversed"] > 0))[decided]
    patients = np.repeat(np.array(names, dtype=object), decided.sum(axis=1))
    waits_for = "patients with a duel that is decided at full observation"
    return [
        rate(10, "neither", neither, patients=patients, pending=waits_for),
        measured(10, "zero_values", cohort.values == 0, claim=1 / 3),
    ]


def some_patients(cohort: Cohort, most: int, *, purpose: str) -> list[int]:
    """Rows of at most `most` patients, chosen by a hash of their names."""
    return sorted(by_hash(cohort.patients, purpose)[:most])


def opposite_profile(bundle: Bundle, cohort: Cohort) -> list[Row]:
    """Item 11: does a positive S tell a profile from its opposite?"""
    unary, quadratic = score_parts(bundle, cohort.values)
    tie = tie_of([bundle.mrf(entity) for entity in bundle.entities])
    positive = bundle.priors + unary + quadratic > tie
    mirrored = bundle.priors - unary + quadratic > tie
    negative = unary < -tie
    patients = np.repeat(np.array(cohort.patients, dtype=object), positive.shape[1])
    size = np.abs(unary) + np.abs(quadratic)
    share = np.abs(quadratic)[size > 0] / size[size > 0]
    return [
        *(
            rate(11, name, hits[among], patients=patients[among.ravel()], pending="patients with such a score")
            for name, hits, among in (
                ("against_unaries", positive & negative, np.ones_like(positive)),
                ("negative_sum_positive", positive, negative),
                ("mirror", mirrored, positive),
            )
        ),
        measured(11, "quadratic_share", share, pending="patients with a value that is not zero"),
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


def structural_ties(bundle: Bundle, cohort: Cohort, printed_share: float) -> list[Row]:
    """Item 19: the share of duels tied at full observation, where all others are one-sided; and whether it is one."""
    unary, quadratic = score_parts(bundle, cohort.values)
    scores = bundle.priors + unary + quadratic
    a, b = np.triu_indices(len(bundle.entities), 1)
    tied = np.abs(scores[:, a] - scores[:, b]) <= tie_of([bundle.mrf(entity) for entity in bundle.entities])
    of_patients = tied.mean(axis=1) if tied.size else np.zeros(0)
    return [
        measured(19, "structural_ties", tied, claim=printed_share, pending=NO_DUEL),
        measured(
            19,
            "ties_by_patient",
            of_patients,
            np.ptp,
            claim=0.0,
            holds=lambda each: bool(np.ptp(each) <= NEAR),
            pending=NO_DUEL,
        ),
    ]


def down_regulation(expression: CohortExpression | None) -> list[Row]:
    """Item 21: what a p-value two-sided about zero calls down, beside the one about the controls' centre."""
    if expression is None:
        return [Row(21, "lowest_written", pending=NO_EXPRESSION)]
    known = expression.values.to_numpy(dtype=np.float64)
    controls, patients = known[:, expression.is_control], known[:, ~expression.is_control]
    written, ours = written_code(expression), expression.code()
    lowest = patients < controls.min(axis=1, keepdims=True)
    above = patients >= np.median(controls, axis=1, keepdims=True)
    below_all, as_printed = "values below all controls", "values that are called down as printed"
    low, coin = written[lowest] < 0, lambda each: bool(each.mean() > COIN)
    return [
        measured(21, "lowest_written", low, claim=1.0, holds=coin, pending=below_all),
        measured(21, "lowest_centred", ours[lowest] < 0, pending=below_all),
        measured(21, "down_written", written < 0),
        measured(21, "up_written", written > 0),
        measured(21, "down_centred", ours < 0),
        measured(21, "up_centred", ours > 0),
        measured(21, "down_above_median", above[written < 0], pending=as_printed),
        measured(21, "negative_values", known < 0),
    ]
