"""Names of the allocation rules; nothing is imported here, since the workflow reads them when it starts."""

RULE_NAMES = ("random", "largest_unary", "greedy", "lucb", "clustered", "priority_clusters", "priority_all", "boundary")
"""`afa.allocate` has one class for each, `afa.engine.rules` the same compiled, by the place here."""

IN_THE_GRID = RULE_NAMES[:8]
"""Rules that a run compares unless its settings say otherwise.

Each stands in `config/config.yaml` and `config/README.md` (then `make schema`), has a style in `RULE_STYLE` of
`report/grid.py` and words in `report/templates/explorer_words.js` and `notebooks/allocation.ipynb`.
"""

WITHOUT_GAIN = RULE_NAMES[:2]
"""Rules that look at no gain."""
