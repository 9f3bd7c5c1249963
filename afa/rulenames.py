"""Names of the allocation rules; nothing is imported here, since the workflow reads them when it starts."""

RULE_NAMES = ("random", "largest_unary", "greedy", "lucb", "clustered", "priority_clusters", "priority_all", "boundary")
"""`afa.allocate` has one class for each, `afa.engine.rules` the same compiled, by the place here."""

WITHOUT_GAIN = RULE_NAMES[:2]
"""Rules that look at no gain."""
