"""Expression values of a cohort's patients and controls, and the ternary code as the paper prints it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.cohort.build import read_values
from afa.cohort.config import CohortConfig
from afa.cohort.encode import Test, encode
from afa.cohort.genes import Names, first_tier_present
from afa.cohort.geo import Source
from afa.cohort.transform import choose_rows, log_values
from afa.errors import CohortError, Fault


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
