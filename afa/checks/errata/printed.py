"""What the paper prints, as tables: single cells and claims by their id (resources/paper)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil

import numpy as np
import pandas as pd

from afa.checks.errata.rows import EXACT, Row
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
    point = partial(Row, item=15)
    cohort = int(printed.claim("c044"))
    chaotic, others = (int(printed.cell("tab_chaos", "n", name)) for name in ("Chaotic", "Non-chaotic"))
    total, quartile = chaotic + others, ceil(cohort / 4)
    return [
        point(
            name="group_total",
            claim_value=float(cohort),
            value=float(total),
            n=2,
            holds=total == cohort,
        ),
        point(
            name="top_quartile",
            claim_value=float(chaotic),
            value=float(quartile),
            n=1,
            holds=chaotic <= quartile,
        ),
    ]


def clinical_ceiling(printed: Printed) -> list[Row]:
    """Item 16: accuracy at full observation against clinical labels, wherever it is printed."""
    point = partial(Row, item=16)
    text = printed.claim("c082")
    table = printed.cell("tab_classification_with_llm", "Clinical / wald", M)
    wald, stack_a = (printed.cell("tab_m1acc", row, M) for row in ("wald", "stack_a_maxent"))
    return [
        point(
            name="text_and_table",
            claim_value=0.0,
            value=table - text,
            n=2,
            # the table has two decimals
            holds=abs(table - text) <= 10 * ROUNDING,
        ),
        point(
            name="stack_a_and_wald",
            claim_value=0.0,
            value=stack_a - wald,
            n=2,
            holds=abs(stack_a - wald) <= ROUNDING,
        ),
    ]


def language_models(printed: Printed) -> list[Row]:
    """Item 17: the rows of language models before full observation against a coin."""
    point = partial(Row, item=17)
    rows = [printed.column("tab_classification_with_llm", f"LLM / {name}") for name in ("RAG-LLM", "MRF-LLM")]
    early = np.array([value for row in rows for column, value in row.items() if column != M])
    return [
        point(
            name="below_coin",
            claim_value=0.0,
            value=float((early < COIN).mean()),
            n=len(early),
            holds=bool((early >= COIN).all()),
        ),
        point(name="least_accuracy", value=float(early.min()), n=len(early)),
    ]


def allocation_rules(printed: Printed) -> list[Row]:
    """Item 18: `greedy` and `clustered` in tab:m2_alloc, and the rules of tab:method_topk."""
    point = partial(Row, item=18)
    greedy, clustered = (printed.column("tab_m2_alloc", rule) for rule in ("greedy", "clustered"))
    difference = float((greedy - clustered).abs().max())
    results, methods = set(printed.rows("tab_m2_alloc")), set(METHOD_TABLE.values())
    unreported, undescribed = sorted(methods - results), sorted(results - methods)
    return [
        point(
            name="greedy_and_clustered",
            value=difference,
            n=len(greedy),
            holds=difference > EXACT,
        ),
        point(
            name="without_result",
            claim_value=0.0,
            value=float(len(unreported)),
            n=len(methods),
            holds=not unreported,
        ),
        point(
            name="without_description",
            claim_value=0.0,
            value=float(len(undescribed)),
            n=len(results),
            holds=not undescribed,
        ),
    ]


def one_bracket(printed: Printed) -> list[Row]:
    """Item 19: rates of resolved duels of two scores that share a bracket, and eliminations per patient."""
    point = partial(Row, item=19)
    linearity, wald = (printed.column("tab_layer1_informed", f"M2 {name} (L1)") for name in ("linearity", "wald"))
    rows = [
        point(
            name=f"one_bracket_{order}",
            claim_value=0.0,
            value=float(linearity[column] - wald[column]) / 100,
            n=2,
            holds=bool(linearity[column] == wald[column]),
        )
        for order, column in (("informed", "Informed (%)"), ("random", "Random (%)"))
    ]
    eliminated, patients = int(printed.claim("c265")), int(printed.claim("c266"))
    rows.append(
        point(
            name="eliminations",
            claim_value=0.0,
            value=float(eliminated % patients),
            n=patients,
            holds=eliminated % patients == 0,
        )
    )
    return rows


def origin_of_cohort() -> list[Row]:
    """Item 22: where the paper says that its samples come from. Read, not computed."""
    origins = len(set(ORIGINS.values()))
    return [
        Row(
            item=22,
            name="origins",
            claim_value=1.0,
            value=float(origins),
            n=len(ORIGINS),
            holds=origins == 1,
        )
    ]
