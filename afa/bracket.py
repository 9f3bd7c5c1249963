"""Brackets: intervals that hold a score's full-observation value, so that a duel can be called early."""

from __future__ import annotations

import numpy as np

from afa.mrf import Evidence


def l1_budget(evidence: Evidence, *, form: str = "tight") -> float:
    """The most energy that the unobserved features can still add or take away (eq:unobs-budget).

    `tight` counts the couplings among unobserved features only; `paper` also those between observed and
    unobserved ones, which the effective unaries already hold (spec B1). Both are sound, `tight` is never wider.
    """
    hidden = ~evidence.observed
    strength = abs(evidence.mrf.couplings)
    among = strength[hidden][:, hidden].sum() / 2
    budget = np.abs(evidence.field).sum() + among
    if form == "paper":
        budget += strength[hidden][:, evidence.observed].sum()
    return float(budget)


def l1_interval(evidence: Evidence, *, form: str = "tight") -> tuple[float, float]:
    """The interval that S(x) lies in under every completion of the unobserved features (eq:l1-bracket)."""
    budget = l1_budget(evidence, form=form)
    return evidence.constant - budget, evidence.constant + budget
