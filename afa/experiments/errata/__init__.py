"""The paper's errors as checks with a number, run each time: a function an item, one table (docs/errata.md)."""

from afa.experiments.errata.expression import CohortExpression, load_expression
from afa.experiments.errata.states import Sampling
from afa.experiments.errata.table import Extent, computed_errata, errata_table, summarise_errata

__all__ = [
    "CohortExpression",
    "Extent",
    "Sampling",
    "computed_errata",
    "errata_table",
    "load_expression",
    "summarise_errata",
]
