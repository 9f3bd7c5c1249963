"""Names of the allocation rules, for settings and options that may not import NumPy.

`afa.planner.rules.RULES` contains the classes of the rules. A test checks that the names agree.
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

Each has a style in `RULE_STYLE` of `evaluate/figures.py` and words in `evaluate/templates/explorer_words.yaml` and
`notebooks/allocation.ipynb`.
"""

RULE_NAMES = (*IN_THE_GRID,)
"""All rules, those outside the grid last."""

WITHOUT_GAIN = ("random", "largest_unary")
"""Rules that use no gain: `looks_at` of their class is `nothing`."""

COMPARED = ("greedy", "largest_unary", "random")
"""Rules with which a simulation compares the planner's own rule by default."""

COMPARED_BINARY = ("greedy", "largest_unary", "random_own", "random")
"""Rules that a binary simulation compares by default; with one duel all rules with weights choose as `greedy`."""
