"""What the paper prints, as tables: single cells and claims by their id (resources/paper)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np
import pandas as pd

from afa.checks.errata.rows import EXACT, Row, measured, rate
from afa.errors import ConfigError, Fault


@dataclass(frozen=True)
class Printed:
    """The paper's tables by file name without its ending, such as `tab_chaos`, and `claims`."""

    tables: Mapping[str, pd.DataFrame]

    def cell(self, table: str, row: str, column: str) -> float:
        """One printed number, as printed; a `ConfigError` where there is none."""
        cells = self._table(table)
        found = cells[(cells["row"] == row) & (cells["column"] == column)]["value"]
        return self._number(found, f"{table}, row {row}, column {column}")

    def column(self, table: str, row: str) -> pd.Series:
        """All numbers of one row, by column, in the order printed; a `ConfigError` where there is none."""
        cells = self._table(table)
        found = cells[cells["row"] == row].set_index("column")["value"]
        if found.empty:
            raise self._missing(f"{table}, row {row}")
        return pd.to_numeric(found)

    def rows(self, table: str) -> list[str]:
        """The names of a table's rows, in the order printed."""
        return list(dict.fromkeys(self._table(table)["row"]))

    def claim(self, identifier: str) -> float:
        """The number of one claim of the text, in its own unit; a `ConfigError` where there is none."""
        claims = self._table("claims")
        return self._number(claims[claims["id"] == identifier]["value"], f"claims, {identifier}")

    def _table(self, name: str) -> pd.DataFrame:
        if name not in self.tables:
            raise self._missing(name)
        return self.tables[name]

    def _number(self, found: pd.Series, where: str) -> float:
        values = pd.to_numeric(found, errors="coerce")
        if len(values) != 1 or values.isna().any():
            raise self._missing(where)
        return float(values.iloc[0])

    @staticmethod
    def _missing(where: str) -> ConfigError:
        step = "restore resources/paper"
        return ConfigError(Fault("the paper's tables", f"not exactly one number at {where}", "one", step))


M = "t=216"
ROUNDING = 0.0005
"""Half of the last digit of a share printed with three decimals."""
COIN = 0.5
METHOD_TABLE = {"ours": "ours", "random": "random", "LUCB": "lucb", "Cluster-LUCB": "clustered"}
"""Rules of tab:method_topk, a table without numbers, and the row that would hold the results of each."""
ORIGINS = {"sec:experiments": "an ongoing clinical trial", "supp:ternary": "a public GEO series"}
"""Where the samples come from, in the two places that say it."""


def chaotic_patients(printed: Printed) -> list[Row]:
    """Item 15: the two groups of tab:chaos against the size of the cohort."""
    cohort = int(printed.claim("c044"))
    chaotic, others = (int(printed.cell("tab_chaos", "n", name)) for name in ("Chaotic", "Non-chaotic"))
    total, quartile = chaotic + others, ceil(cohort / 4)
    return [
        Row(15, "group_total", float(total), float(cohort), n=2, holds=total == cohort),
        Row(15, "top_quartile", float(quartile), float(chaotic), n=1, holds=chaotic <= quartile),
    ]


def clinical_ceiling(printed: Printed) -> list[Row]:
    """Item 16: accuracy at full observation against clinical labels, wherever it is printed."""
    table = printed.cell("tab_classification_with_llm", "Clinical / wald", M)
    wald, stack_a = (printed.cell("tab_m1acc", row, M) for row in ("wald", "stack_a_maxent"))
    apart, above = table - printed.claim("c082"), stack_a - wald
    return [
        # the table has two decimals
        Row(16, "text_and_table", apart, 0.0, n=2, holds=abs(apart) <= 10 * ROUNDING),
        Row(16, "stack_a_and_wald", above, 0.0, n=2, holds=abs(above) <= ROUNDING),
    ]


def language_models(printed: Printed) -> list[Row]:
    """Item 17: the rows of language models before full observation against a coin."""
    rows = [printed.column("tab_classification_with_llm", f"LLM / {name}") for name in ("RAG-LLM", "MRF-LLM")]
    early = np.array([value for row in rows for column, value in row.items() if column != M])
    return [rate(17, "below_coin", early < COIN), measured(17, "least_accuracy", early, np.min)]


def allocation_rules(printed: Printed) -> list[Row]:
    """Item 18: `greedy` and `clustered` in tab:m2_alloc, and the rules of tab:method_topk."""
    greedy, clustered = (printed.column("tab_m2_alloc", rule) for rule in ("greedy", "clustered"))
    difference = float((greedy - clustered).abs().max())
    results, methods = set(printed.rows("tab_m2_alloc")), set(METHOD_TABLE.values())
    return [
        Row(18, "greedy_and_clustered", difference, n=len(greedy), holds=difference > EXACT),
        *(
            Row(18, name, float(len(missing)), 0.0, n=n, holds=not missing)
            for name, missing, n in (
                ("without_result", methods - results, len(methods)),
                ("without_description", results - methods, len(results)),
            )
        ),
    ]


def one_bracket(printed: Printed) -> list[Row]:
    """Item 19: rates of resolved duels of two scores that share a bracket, and eliminations per patient."""
    linearity, wald = (printed.column("tab_layer1_informed", f"M2 {name} (L1)") for name in ("linearity", "wald"))
    apart = (linearity - wald) / 100
    eliminated, patients = int(printed.claim("c265")), int(printed.claim("c266"))
    rest = eliminated % patients
    return [
        *(
            Row(19, f"one_bracket_{order}", float(apart[column]), 0.0, n=2, holds=bool(apart[column] == 0))
            for order, column in (("informed", "Informed (%)"), ("random", "Random (%)"))
        ),
        Row(19, "eliminations", float(rest), 0.0, n=patients, holds=rest == 0),
    ]


def origin_of_cohort() -> list[Row]:
    """Item 22: where the paper says that its samples come from. Read, not computed."""
    origins = len(set(ORIGINS.values()))
    return [Row(22, "origins", float(origins), 1.0, n=len(ORIGINS), holds=origins == 1)]
