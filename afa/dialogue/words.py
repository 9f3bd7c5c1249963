"""Look up typed names and describe the planner's answer in words, for the terminal, the web page and JSON lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from afa.errors import Fault, PlannerError
from afa.io.csvfile import suggestion
from afa.model.bundle import Bundle
from afa.model.bundle.priors import starting_point
from afa.model.bundle.rates import Holds
from afa.planner import BinaryPlanner, Planner, Suggestion, TopKPlanner
from afa.planner.options import ALL_DUELS_UP_TO
from afa.planner.values import code_words, grades_of, meanings_of, scale_of, usual_range, with_number
from afa.planner.why import outcomes

ASSUMPTION_TEXTS = {
    "several": "Each of these has its own probability: several can be true at once.",
    "one": "The probabilities assume that exactly one of these is true.",
    "one or none": "The probabilities assume that at most one of these is true.",
}
BY_SCORE = (
    "Ordered by preference score, in nats: how strongly the findings favour each over the others; not a probability."
)


def feature_named(planner: Planner, written: str) -> str:
    """Return the feature whose name or alias is `written`. Upper and lower case are equivalent.

    The name of a panel is returned unchanged. If the name is unknown, a `PlannerError` suggests the most similar name.
    """
    names: dict[str, str] = {name: name for name in planner.panels}
    names |= {alias: name for name, aliases in planner.question_bundle.aliases.items() for alias in aliases}
    names |= {planner.question_bundle.shown(name): name for name in planner.bundle.features}
    names |= {name: name for name in planner.bundle.features}
    step = "ask for the list of features"
    return _look_up_name(written, names, "feature", "a feature of the bundle, or an alias", step)


def entity_named(planner: Planner, written: str) -> str:
    """Return the entity whose name is `written`. Upper and lower case are equivalent."""
    names = {planner.question_bundle.shown(name): name for name in planner.bundle.entities}
    names |= {name: name for name in planner.bundle.entities}
    return _look_up_name(
        written, names, "entity", "an entity of the bundle", "ask for the ranking, which has all names"
    )


def _look_up_name(written: str, names: Mapping[str, str], what: str, expected: str, step: str) -> str:
    if written in names:
        return names[written]
    alike = {name for shown, name in names.items() if shown.casefold() == written.casefold()}
    if len(alike) == 1:
        return alike.pop()
    step = suggestion(written, names, step)
    raise PlannerError(Fault(f"{what} {written!r}", "an unknown name", expected, step))


def scales_of(bundle: Bundle) -> dict[str, dict[str, Any]]:
    """Return kind, unit, definition and cut points of each feature in `features.csv`, and words for -1, 0 and +1."""
    table = None if bundle.rates is None else bundle.rates.table
    names = set() if table is None else set(table.names)
    return {
        name: scale_of(bundle, name)._asdict()
        | {"usual": usual_range(bundle, name), "words": code_words(bundle, name), "meanings": meanings_of(bundle, name)}
        | {"grades": grades_of(bundle, name)}
        for name in bundle.features
        if name in names
    }


def value_words(planner: Planner, feature: str) -> str:
    """Return the observed value of a feature in words, such as `12.5 K (high)`.

    If the number is unknown, the text is only the code in words, such as `high`.
    """
    return with_number(planner.question_bundle, feature, planner.observed[feature], planner.numbers.get(feature))


def open_features(planner: Planner) -> list[str]:
    """Return the features that are neither observed nor skipped."""
    closed = planner.observed.keys() | planner.skipped
    return [name for name in planner.bundle.features if name not in closed]


def question_of(planner: Planner) -> str:
    """Return the planner's question in words: `which of 10?`, `which 2 of 10?` or `is it fever?`."""
    if isinstance(planner, BinaryPlanner):
        return f"is it {planner.question_bundle.shown(planner.entity)}?"
    return f"which{'' if planner.k == 1 else f' {planner.k}'} of {len(planner.bundle.entities)}?"


def assumption_of(planner: Planner) -> str:
    """Return a sentence that explains which probabilities or scores are shown beside the entities."""
    if isinstance(planner, BinaryPlanner):
        one, other = map(planner.question_bundle.shown, planner.bundle.entities)
        words = f"The probabilities of {one} and of {other} add up to 1."
    else:
        assert isinstance(planner, TopKPlanner)
        words = BY_SCORE if planner.ordered_by == "score" else ASSUMPTION_TEXTS[planner.holds or "one"]
    known = planner.background
    return words if known is None else f"{words} What is not measured is expected as in the background: {known.words}."


def start_of(planner: Planner) -> str:
    """Return a sentence that describes the probabilities before any measurement."""
    bundle = planner.question_bundle
    if isinstance(planner, BinaryPlanner):
        return starting_point(bundle, entity=planner.entity)
    assert isinstance(planner, TopKPlanner)
    if planner.ordered_by == "probability":
        return starting_point(bundle, cast(Holds | None, planner.holds))
    if bundle.priors.any():
        return "Before any measurement, all are as probable as priors.csv says."
    return "Before any measurement, all entities are equally probable; priors.csv can give other probabilities."


def ending_of(planner: Planner) -> str:
    """Return a sentence that explains when the planner stops."""
    stop, ends = planner.stop, list[str]()
    if stop.certain:
        ends.append("no remaining measurement can change the answer")
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
    """Return the planner's answer so far, as a dict.

    For a `TopKPlanner`, the dict contains the key `top_k`. For a `BinaryPlanner`, it contains `entity` and `decision`
    instead. All other keys are the same for both planners, except `none_between`. The value of `ordered_by` is
    `probability` or `score`, the quantity by which entities are ranked. `probability` is the result of
    `Planner.answer_probability`. `ahead` is the smallest score of any entity in the answer against any entity outside
    the answer. If entities are ranked by probability, `ahead` is None. `undecided` lists tied entities. `certain` is
    True if no further measurement can change the answer. `words` is the whole answer as text.

    The meaning of the key `none` depends on the setting `coupling`. With `coupling="explicit"`, the value of `none` is
    True if the patient probably has none of the entities. With any other coupling, the value of `none` is the result of
    `Planner.nothing_unusual`: True if at least one value has been measured and all measured values are usual (code 0).
    With `coupling="explicit"`, the dict of a `TopKPlanner` also contains the key `none_between`: a lower and an upper
    bound on the probability that no entity is present.
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
    """One row of the ranking on a screen: the entity, its probability or score, and the bar's length from 0 to 1."""

    entity: str
    number: float
    bar: float


def order_of(planner: Planner, most: int) -> list[RankedEntity]:
    """Return the entities that the planner ranks highest, with their probabilities or mean scores.

    For a `TopKPlanner`, the argument `most` is the largest number of returned entities.
    """
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


def ranking_rows(planner: TopKPlanner) -> list[dict[str, Any]]:
    """Return one row for every entity, best entity first.

    A row contains `entity`, `wins`, `certain` and `posterior` (the posterior probability). Each entity is compared with
    every other entity. `wins` is the number of comparisons that the entity wins; a tie counts as half a win. `certain`
    is the number of comparisons whose winner no further measurement can change. If the planner's `ordered_by` is
    `score`, a row also contains `score` (the mean score against the other entities), and the rows are sorted by score
    instead of by posterior probability.
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
    """Return how each value of each suggested feature would change the answer.

    The result is empty if there is no suggestion, or if the bundle has more than `ALL_DUELS_UP_TO` entities.
    """
    if item is None or len(planner.bundle.entities) > ALL_DUELS_UP_TO:
        return {}
    return {feature: outcomes(planner, feature) for feature in item.features}
