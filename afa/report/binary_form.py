"""The binary task in the form of the paper's table: accuracy under random order, and what informed orders add."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from afa.report.lines import Lines, lines_of
from afa.report.paper_tables import F_TARGET, START

METHODS = ("wald", "two_elbo", "stack_a")


def binary_form(summary: pd.DataFrame | Lines, *, rounds: Sequence[int], variant: str | None = None) -> pd.DataFrame:
    """One line per (target, method), one column per t: `0.53 (+29.7 / +30.6)`, as tab:classification_with_llm has it.

    In brackets the gains in percentage points over the random order: of `f_target`, looking ahead to the row's own
    score (to `two_elbo` for `wald`), and of `cmi`. summary : rows `binary`. variant : `support` counts t over the
    features of the entity's support. A target without cases has no line; a t that is not there has an empty cell.
    """
    summary = lines_of(summary)
    targets = [name for name in ("likelihood", "clinical") if (summary.rows["target"] == name).any()]
    lines = []
    for target in targets:
        for method in METHODS:
            cells = {f"t={t}": _cell(summary, target, method, t, variant) for t in rounds}
            if any(cells.values()):
                lines.append({"target": target, "method": method, **cells})
    return pd.DataFrame(lines)


def _cell(summary: Lines, target: str, method: str, t: int, variant: str | None) -> str:
    keys = {"table": "binary", "target": target, "method": method, "t": t, "variant": variant}
    keys |= {"schedule": "every", "start": START}
    random = summary.find(keys | {"metric": "accuracy", "allocation": "random"})
    if random is None:
        return ""
    informed = keys | {"metric": "gap", "allocation": "greedy", "reference": "random"}
    gains = [
        summary.find(informed | {"gain": gain, "guide": guide})
        for gain, guide in (("f_target", F_TARGET[method]), ("cmi", None))
    ]
    shown = " / ".join("-" if gain is None else f"{100 * gain['value']:+.1f}" for gain in gains)
    return f"{random['value']:.2f} ({shown})"
