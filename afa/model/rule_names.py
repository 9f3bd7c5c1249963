"""Names of the allocation rules, which choose the next feature to measure.

Modules that must not import NumPy use these names. A test checks that the names agree with those in
`afa.planner.rules.RULES`.
"""

IN_THE_GRID = (
    "random",
    "largest_unary",
    "greedy",
    "lucb",
    "clustered",
    "priority_clusters",
    "priority_all",
    "boundary",
)
"""Rules that a run compares by default, in order.

Each rule has a style in `RULE_STYLE` of `evaluate/figures.py`, and a description in
`evaluate/templates/explorer_words.yaml` and `notebooks/allocation.ipynb`.
"""

RULE_NAMES = (*IN_THE_GRID,)
"""All rules; the rules in `IN_THE_GRID` are first."""

WITHOUT_GAIN = ("random", "largest_unary")
"""Rules that use no gain: the attribute `looks_at` of their class is `nothing`."""

DEFAULT_COMPARED_RULES = ("greedy", "largest_unary", "random")
"""Rules that a simulation compares with the planner's own rule by default."""

COMPARED_BINARY = ("greedy", "largest_unary", "random_own", "random")
"""Rules that a binary simulation compares by default; with one duel, all rules with weights choose like `greedy`."""
