"""The paper's errors as checks with a number, run each time: a function an item, one table (docs/errata.md)."""

from afa.checks.errata.cohort import CohortExpression, load_expression
from afa.checks.errata.rows import Errata, load_errata
from afa.checks.errata.states import Sampling
from afa.checks.errata.table import Extent, computed_errata, errata_table, summarise_errata

__all__ = [
    "CohortExpression",
    "Errata",
    "Extent",
    "Sampling",
    "computed_errata",
    "errata_table",
    "load_errata",
    "load_expression",
    "summarise_errata",
]
