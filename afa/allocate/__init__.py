"""Allocation rules: which feature to measure next, given what every duel would gain. One file a rule.

A rule is a class with the method `choose(view) -> Choice`, in any file of this folder, and is known by the name of its
class: `PriorityAll` is `priority_all`. Its class says `in_the_grid = 9` where each run compares it, as the ninth, and
`looks_at = "nothing"` where it looks at no gain. The engine follows those in `COMPILED` of `afa.engine.rules`, with a
twin of their weights there; any other is followed patient by patient, some hundred times slower.
"""

from importlib import import_module

from afa.allocate.base import Choice, Rule, View
from afa.allocate.check import check_policy
from afa.rulenames import RULE_CLASSES

RULES: dict[str, type[Rule]] = {
    name: getattr(import_module(f"{__name__}.{module}"), class_name)
    for name, (module, class_name) in RULE_CLASSES.items()
}
"""The rules by name, read from this folder (`afa.rulenames`)."""

__all__ = ["RULES", "Choice", "Rule", "View", "check_policy"]
__all__ += [rule.__name__ for rule in RULES.values()]


def __getattr__(name: str) -> type[Rule]:
    """The class of a rule by its own name, such as `Boundary`."""
    for rule in RULES.values():
        if rule.__name__ == name:
            return rule
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
