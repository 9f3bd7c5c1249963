"""Define the names that figures and captions use for scores, gains, rules and score bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping

PRIORITY, RANDOM = "priority_clusters", "random"
"""The paper's rule, and the rule with which the paper compares it."""
METHOD_NAMES: Mapping[str, str] = {
    "wald": "Wald",
    "kl": "KL",
    "kl_nonzero": "KL without zero votes",
    "two_elbo": "two-ELBO",
    "stack_a": "stack-A",
    "cmi": "CMI",
    "wald_magnitude": "Wald magnitude",
    "f_target": "F-target",
    "largest_unary": "largest unary",
    "lucb": "LUCB",
    "priority_clusters": "priority, clusters",
    "priority_all": "priority, all",
    "l1_tight": "tight l1",
    "l1_paper": "the paper's l1",
    "hanson_wright": "Hanson-Wright",
}
_KNOWN = re.compile(rf"(?<![\w.`])(?:{'|'.join(sorted(METHOD_NAMES, key=len, reverse=True))})(?![\w`])")


def with_display_names(text: str) -> str:
    """Replace identifiers such as `kl_nonzero` by display names (`METHOD_NAMES`), except in backticks.

    >>> with_display_names("linearity less kl_nonzero, gain `cmi`")
    'linearity less KL without zero votes, gain `cmi`'
    """
    return _KNOWN.sub(lambda found: METHOD_NAMES[found[0]], text)
