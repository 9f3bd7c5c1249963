"""Names of the allocation rules, read from the source of `afa.allocate`: the workflow needs them without numerics."""

import ast
from pathlib import Path

_SOURCE = Path(__file__).parent / "allocate" / "__init__.py"
_RULES = next(
    node.value
    for node in ast.parse(_SOURCE.read_bytes()).body
    if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict)
)
RULE_NAMES = tuple(str(key.value) for key in _RULES.keys if isinstance(key, ast.Constant))
"""Those of `RULES`, in its order; `afa.engine.rules` has the same compiled, by the place here."""

IN_THE_GRID = RULE_NAMES[:8]
"""Rules that a run compares unless its settings say otherwise.

Each is in the defaults of `config/` (`make schema`), has a style in `RULE_STYLE` of `report/figures.py` and words in
`report/templates/explorer_words.js` and `notebooks/allocation.ipynb`.
"""

WITHOUT_GAIN = RULE_NAMES[:2]
"""Rules that look at no gain."""
