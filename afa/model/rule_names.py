"""Names of the allocation rules, read from the sources in `afa/planner/rules` without importing NumPy.

A rule is a class in that folder with the method `choose`; its name is the class name in snake case: `PriorityAll` is
`priority_all`. The class also has `in_the_grid`, the rule's position in `IN_THE_GRID`, and `looks_at`, the data that
the rule uses.
"""

import ast
import re
from math import inf
from pathlib import Path
from typing import NamedTuple


class _Rule(NamedTuple):
    """Module and class of a rule, and the class's attributes."""

    module: str
    class_name: str
    looks_at: str = "duels"
    in_the_grid: float = inf


def _rules() -> dict[str, _Rule]:
    found = dict[str, _Rule]()
    for path in (Path(__file__).parents[1] / "planner" / "rules").glob("*.py"):
        text = path.read_text(encoding="utf-8") if path.stem not in ("base", "check") else ""
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and "choose" in [getattr(part, "name", "") for part in node.body]:
                name = re.sub("(?<=[a-z])(?=[A-Z])", "_", node.name).lower()
                assigned = [part for part in node.body if isinstance(part, ast.Assign)]
                facts = {ast.unparse(part.targets[0]): ast.literal_eval(part.value) for part in assigned}
                found[name] = _Rule(path.stem, node.name, **facts)
    return dict(sorted(found.items(), key=lambda named: (named[1].in_the_grid, named[0])))


_RULES = {name: rule for name, rule in _rules().items() if rule.looks_at not in ("entities", "background")}

RULE_CLASSES = {name: (rule.module, rule.class_name) for name, rule in _RULES.items()}
"""Rule -> its module in `afa.planner.rules` and its class."""

RULE_NAMES = tuple(_RULES)
"""Names of all rules: those of the grid in its order, then the others by name."""

IN_THE_GRID = tuple(name for name, rule in _RULES.items() if rule.in_the_grid < inf)
"""Rules that a run compares by default.

Each is in the defaults of `config/` (`make schema`), has a style in `RULE_STYLE` of `evaluate/figures.py` and words in
`evaluate/templates/explorer_words.yaml` and `notebooks/allocation.ipynb`.
"""

WITHOUT_GAIN = tuple(name for name, rule in _RULES.items() if rule.looks_at == "nothing")
"""Rules that use no gain."""

COMPARED = "priority_all,greedy,largest_unary,random"
"""Rules that a simulation compares by default."""

COMPARED_BINARY = "greedy,largest_unary,random_own,random"
"""Rules that a binary simulation compares by default; with one duel all rules with weights choose as `greedy`."""
