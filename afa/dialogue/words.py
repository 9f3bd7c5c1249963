"""What the terminal, the page and the JSON lines share: names as people write them, and the answer in words."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple, cast

from afa.errors import Fault, PlannerError
from afa.io.csvfile import suggestion
from afa.model.bundle import Bundle
from afa.model.bundle.priors import starting_point
from afa.model.bundle.rates import Holds
from afa.planner import BinaryPlanner, Planner, Suggestion, TopKPlanner
from afa.planner.options import ALL_DUELS_UP_TO
from afa.planner.values import grades_of, meanings_of, scale_of, usual_range, with_number, words_of
from afa.planner.why import outcomes

ASSUMING = {
    "several": "Probabilities are of each by itself: several can be true.",
    "one": "Probabilities assume that exactly one of these is true.",
    "one or none": "Probabilities assume that at most one of these is true.",
}
BY_SCORE = "Ordered by preference score: by how much the findings favour one over the others, in nats; no probability."


def feature_named(planner: Planner, written: str) -> str:
    """The feature that a name stands for: itself, one of its aliases, or the only one that differs in case alone.

    A panel's name stands for itself. Raises `PlannerError` with the nearest name where there is none.
    """
    names: dict[str, str] = {name: name for name in planner.panels}
    names |= {alias: name for name, aliases in planner.asked_of.aliases.items() for alias in aliases}
    names |= {planner.asked_of.shown(name): name for name in planner.bundle.features}
    names |= {name: name for name in planner.bundle.features}
    if written in names:
        return names[written]
    alike = {name for shown, name in names.items() if shown.casefold() == written.casefold()}
    if len(alike) == 1:
        return alike.pop()
    step = suggestion(written, names, "ask for the list of features")
    raise PlannerError(Fault(f"feature {written!r}", "an unknown name", "a feature of the bundle, or an alias", step))


def entity_named(planner: Planner, typed: str) -> str:
    """The entity of this name, or the only one that differs from it in case alone."""
    names = planner.bundle.entities
    alike = [name for name in names if name == typed]
    alike = alike or [
        name for name in names if typed.casefold() in (name.casefold(), planner.asked_of.shown(name).casefold())
    ]
    if len(alike) == 1:
        return alike[0]
    step = suggestion(typed, names, "ask for the ranking, which has all names")
    raise PlannerError(Fault(f"entity {typed!r}", "an unknown name", "an entity of the bundle", step))


def scales_of(bundle: Bundle) -> dict[str, dict[str, Any]]:
    """By feature that `features.csv` describes: kind, unit, definition, the cut points or None, and words for codes."""
    table = None if bundle.rates is None else bundle.rates.table
    names = set() if table is None else set(table.names)
    return {
        name: scale_of(bundle, name)._asdict()
        | {"usual": usual_range(bundle, name), "words": words_of(bundle, name), "meanings": meanings_of(bundle, name)}
        | {"grades": grades_of(bundle, name)}
        for name in bundle.features
        if name in names
    }


def value_words(planner: Planner, feature: str) -> str:
    """The observed value of a feature in words: `12.5 K (high)`, or `high` where no number is known."""
    return with_number(planner.asked_of, feature, planner.observed[feature], planner.numbers.get(feature))


def question_of(planner: Planner) -> str:
    """What is asked: `which of 10?`, `which 2 of 10?` or `is it fever?`."""
    if isinstance(planner, BinaryPlanner):
        return f"is it {planner.asked_of.shown(planner.entity)}?"
    return f"which{'' if planner.k == 1 else f' {planner.k}'} of {len(planner.bundle.entities)}?"


def assumption_of(planner: Planner) -> str:
    """What the numbers beside the entities are, in a sentence."""
    if isinstance(planner, BinaryPlanner):
        one, other = map(planner.asked_of.shown, planner.bundle.entities)
        words = f"Probabilities are of {one} and of {other}."
    else:
        assert isinstance(planner, TopKPlanner)
        words = BY_SCORE if planner.ordered_by == "score" else ASSUMING[planner.holds or "one"]
    known = planner.background
    return words if known is None else f"{words} What is not measured is expected as in the background: {known.words}."


def start_of(planner: Planner) -> str:
    """Where the entities start before anything is measured, in a sentence."""
    bundle = planner.asked_of
    if isinstance(planner, BinaryPlanner):
        return starting_point(bundle, entity=planner.entity)
    assert isinstance(planner, TopKPlanner)
    if planner.ordered_by == "probability":
        return starting_point(bundle, cast(Holds | None, planner.holds))
    if bundle.priors.any():
        return "Before anything is measured all are as probable as priors.csv says."
    return "Before anything is measured all are equally probable; priors.csv can say otherwise."


def ending_of(planner: Planner) -> str:
    """When the planner stops asking, in a sentence."""
    stop, ends = planner.stop, list[str]()
    if stop.certain:
        ends.append("nothing left to measure can change the answer")
    if stop.posterior is not None:
        ends.append(f"the answer has probability {stop.posterior:g}")
    if stop.probability is not None:
        ends.append(f"the answer stays with probability {stop.probability:g}")
    if stop.gain is not None:
        ends.append(f"no gain is above {stop.gain:g}")
    if stop.budget is not None:
        ends.append(f"{stop.budget:g} is spent")
    if stop.own is not None:
        ends.append("a rule of your own holds")
    hint = "" if stop.posterior is not None else " (--posterior 0.9 can end it sooner)"
    return f"Asks until {' or '.join(ends)}{hint}." if ends else f"Asks until everything has been measured{hint}."


def answer_of(planner: Planner) -> dict[str, Any]:
    """The answer so far: `top_k`, or `entity` and `decision`, and what is known of it.

    `ordered_by` : what the answer is the first by, `probability` or `score`. `probability` : its posterior,
    `Planner.answer_probability`; where the order is by score, another set can be more probable. `ahead` : the lead in
    score there, else null. `undecided` : entities that tie for it, or []. `none` : all that was measured is as usual,
    so that no entity shows; of a bundle that says how often, that none holds is likelier than not, and `none_between`
    has its least and greatest probability. `certain` : nothing left to measure can change it. `words` : all of it.
    """
    answer: dict[str, Any] = {"top_k": planner.answer()}
    if isinstance(planner, BinaryPlanner):
        answer = {"entity": planner.entity, "decision": planner.decision()}
    explicit = planner.settings.get("coupling") == "explicit"
    answer |= {
        "ordered_by": planner.ordered_by,
        "probability": planner.answer_probability(),
        "ahead": planner.lead() if planner.ordered_by == "score" else None,
        "undecided": planner.undecided(),
        "none": planner.none_is_likelier() if explicit else planner.nothing_unusual(),
        "certain": planner.certain(),
        "words": planner.in_words(),
    }
    return answer | {"none_between": planner.none()} if explicit and isinstance(planner, TopKPlanner) else answer


class RankedEntity(NamedTuple):
    """One entity of the order that a screen shows: the number beside it, and its bar's share of the full length."""

    entity: str
    number: float
    bar: float


def order_of(planner: Planner, most: int) -> list[RankedEntity]:
    """The first entities of the planner's order, each with its probability, or its mean score where scores order."""
    if isinstance(planner, BinaryPlanner):
        shares = sorted(planner.probabilities().items(), key=lambda pair: -round(pair[1], 9))
        return [RankedEntity(name, share, share) for name, share in shares]
    assert isinstance(planner, TopKPlanner)
    ranked = planner.ranking()[:most]
    if planner.ordered_by == "probability":
        posterior = planner.probabilities()
        return [RankedEntity(name, posterior[name], posterior[name]) for name in ranked]
    scores = dict(zip(planner.bundle.entities, planner.strengths().tolist(), strict=True))
    least, largest = min(scores.values()), max(scores.values())
    span = largest - least
    return [RankedEntity(name, scores[name], (scores[name] - least) / span if span else 0.0) for name in ranked]


def standings(planner: TopKPlanner) -> list[dict[str, Any]]:
    """Every entity, best first: `entity`, `wins` (ties half), `certain` (its duels resolved), `posterior`.

    Where `ordered_by` is `score`, also `score`, the mean against the others; `posterior` can have another order then.
    """
    wins = dict(zip(planner.bundle.entities, planner.wins(), strict=True))
    by_score = planner.ordered_by == "score"
    scores = dict(zip(planner.bundle.entities, planner.strengths().tolist(), strict=True)) if by_score else {}
    posterior = planner.probabilities()
    resolved = Counter(name for duel in planner.resolved() for name in duel)
    return [
        {"entity": v, "wins": float(wins[v]), "certain": resolved[v], "posterior": posterior[v]}
        | ({"score": scores[v]} if by_score else {})
        for v in planner.ranking()
    ]


def outcomes_of(planner: Planner, item: Suggestion | None) -> dict[str, list[dict[str, Any]]]:
    """By feature of a suggestion, what each of its values would do to the answer; {} among too many entities."""
    if item is None or len(planner.bundle.entities) > ALL_DUELS_UP_TO:
        return {}
    return {feature: outcomes(planner, feature) for feature in item.features}
