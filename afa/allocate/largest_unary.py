"""`largest_unary`: the feature of largest total absolute effective unary, whatever the duels say (spec A7)."""

from __future__ import annotations

from dataclasses import replace

from afa.allocate.base import Choice, View, fall_back


class LargestUnary:
    """The rule that every other falls back on, as a rule of its own."""

    def choose(self, view: View) -> Choice:
        chosen = fall_back(view)
        return replace(chosen, reason="largest effective unary, summed over entities", fallback=False)
