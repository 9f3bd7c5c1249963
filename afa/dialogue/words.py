"""What is common to all ways of talking: names and values as people write them, and the answer so far."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from afa.bundle import Bundle
from afa.csvfile import number, suggestion
from afa.errors import Fault, PlannerError
from afa.mrf import VALUES
from afa.planner import BinaryPlanner, Planner, Suggestion, TopKPlanner
from afa.planner.options import ALL_DUELS_UP_TO
from afa.planner.why import outcomes

WRITTEN = {"-1": -1, "-": -1, "low": -1, "0": 0, "usual": 0, "1": 1, "+1": 1, "+": 1, "high": 1}
READ_AS = {-1: "low", 0: "usual", 1: "high"}
OF = {
    "several": "of each by itself",
    "one": "if exactly one of them holds",
    "one or none": "if at most one of them holds",
}


def feature_named(planner: Planner, written: str) -> str:
    """The feature that a name stands for: itself, one of its aliases, or the only one that differs in case alone.

    A panel's name stands for itself. Raises `PlannerError` with the nearest name where there is none.
    """
    names: dict[str, str] = {name: name for name in planner.panels}
    names |= {alias: name for name, aliases in planner.asked_of.aliases.items() for alias in aliases}
    names |= {name: name for name in planner.bundle.features}
    if written in names:
        return names[written]
    alike = {name for shown, name in names.items() if shown.casefold() == written.casefold()}
    if len(alike) == 1:
        return alike.pop()
    step = suggestion(written, names, "ask for the list of features")
    raise PlannerError(Fault(f"feature {written!r}", "an unknown name", "a feature of the bundle, or an alias", step))


def value_written(bundle: Bundle, feature: str, written: str) -> int:
    """-1, 0 or 1 from a sign, a digit or `low`, `usual`, `high`; from another number by the feature's range."""
    known, usual = WRITTEN.get(written.casefold()), range_of(bundle, feature)
    measured = number(written.replace(",", "."))
    if known is not None or (usual and math.isfinite(measured)):
        return read_number(bundle, feature, measured) if known is None else known
    possible = bundle.possible[bundle.features.index(feature)]
    *first, last = (str(value) for value, can_be in zip(VALUES, possible, strict=True) if can_be)
    expected = f"{', '.join(first)} or {last}" + (f", or a number ({usual})" if usual else "")
    raise PlannerError(Fault(f"value of {feature}", repr(written), expected, "write one of these"))


def range_of(bundle: Bundle, feature: str) -> str:
    """What is usual of a feature with a range, in words such as `usual: 4 to 10 K`; empty where it has none."""
    scale = scales_of(bundle).get(feature)
    if scale is None or scale["kind"] == "binary" or (scale["low"] is None and scale["high"] is None):
        return ""
    low, high = (None if cut is None else f"{cut:g}" for cut in (scale["low"], scale["high"]))
    between = f"{low} to {high}" if low and high else f"from {low}" if low else f"up to {high}"
    return f"usual: {between} {scale['unit'] or ''}".rstrip()


def scales_of(bundle: Bundle) -> dict[str, dict[str, Any]]:
    """By feature that `features.csv` describes: kind, unit, definition, and the cut points or None."""
    table = None if bundle.rates is None else bundle.rates.table
    if table is None:
        return {}
    cuts = [[None if math.isnan(cut) else cut for cut in side.tolist()] for side in (table.low, table.high)]
    rows = zip(table.names, table.kinds, table.units, table.definitions, *cuts, strict=True)
    keys = ("kind", "unit", "definition", "low", "high")
    return {name: dict(zip(keys, rest, strict=True)) for name, *rest in rows}


def read_number(bundle: Bundle, feature: str, measured: float) -> int:
    """-1, 0 or 1 from a number in the feature's unit: below `low`, between the two, above `high`."""
    if not range_of(bundle, feature):
        step = "give -1, 0 or 1"
        raise PlannerError(Fault(f"feature {feature}", "a number", "a feature with a range in features.csv", step))
    scale = scales_of(bundle)[feature]
    if scale["low"] is not None and measured < scale["low"]:
        return -1
    return int(scale["high"] is not None and measured > scale["high"])


def question_of(planner: Planner) -> str:
    """What is asked: `which of 10?`, `which 2 of 10?` or `is it fever?`."""
    if isinstance(planner, BinaryPlanner):
        return f"is it {planner.entity}?"
    return f"which{'' if planner.k == 1 else f' {planner.k}'} of {len(planner.bundle.entities)}?"


def answer_of(planner: Planner) -> dict[str, Any]:
    """The answer so far: `top_k`, or `entity` and `decision`, and what is known of it.

    `probability` : its posterior, `Planner.answer_probability`. `undecided` : entities that tie for it, or []. `none` :
    all that was measured is as usual, so that no entity shows; of a bundle that says how often, that none holds is
    likelier than not, and `none_between` has its least and greatest probability.
    `certain` : no measurement that is left can change it. `words` : all of it in words.
    """
    answer: dict[str, Any] = {"top_k": planner.answer()}
    if isinstance(planner, BinaryPlanner):
        answer = {"entity": planner.entity, "decision": planner.decision()}
    explicit = planner.settings.get("coupling") == "explicit"
    answer |= {
        "probability": planner.answer_probability(),
        "undecided": planner.undecided(),
        "none": planner.none_is_likelier() if explicit else planner.nothing_unusual(),
        "certain": planner.certain(),
        "words": planner.in_words(),
    }
    return answer | {"none_between": planner.none()} if explicit and isinstance(planner, TopKPlanner) else answer


def standings(planner: TopKPlanner) -> list[dict[str, Any]]:
    """Every entity, best first: `entity`, `wins` (ties half), `certain` (its duels resolved), `posterior`."""
    wins = dict(zip(planner.bundle.entities, planner.wins(), strict=True))
    posterior = posterior_of(planner)
    resolved = Counter(name for duel in planner.resolved() for name in duel)
    return [
        {"entity": v, "wins": float(wins[v]), "certain": resolved[v], "posterior": posterior[v]}
        for v in planner.ranking()
    ]


def posterior_is_of(planner: Planner) -> str:
    """What the numbers of `posterior_of` are the probability of."""
    if isinstance(planner, BinaryPlanner):
        return f"of {planner.bundle.entities[0]} and of {planner.bundle.entities[1]}"
    assert isinstance(planner, TopKPlanner)
    return OF[planner.holds or "one"]


def posterior_of(planner: Planner) -> dict[str, float]:
    """By entity, the probability that it holds if exactly one does; of one entity alone, of it and of its absence.

    Of a bundle that says how often, what `TopKPlanner.posterior` says of as many as hold.
    """
    if isinstance(planner, BinaryPlanner):
        return dict(zip(planner.bundle.entities, (planner.probability(), 1 - planner.probability()), strict=True))
    assert isinstance(planner, TopKPlanner)
    return dict(zip(planner.bundle.entities, planner.posterior().tolist(), strict=True))


def outcomes_of(planner: Planner, item: Suggestion | None) -> dict[str, list[dict[str, Any]]]:
    """By feature of a suggestion, what each of its values would do to the answer; {} among too many entities."""
    if item is None or len(planner.bundle.entities) > ALL_DUELS_UP_TO:
        return {}
    return {feature: outcomes(planner, feature) for feature in item.features}
