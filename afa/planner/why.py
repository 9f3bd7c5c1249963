"""Texts and tables that explain the suggestions and answers of a planner.

The module explains why a feature is suggested, what supports the answer, and how each result would change the answer.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax

from afa.engine.duels import sides_of
from afa.engine.patient_state import DuelWeights, PatientState
from afa.errors import Fault, PlannerError
from afa.io.csvfile import suggestion
from afa.model.arrays import Floats, Ints
from afa.model.mrf import VALUES
from afa.planner.values import scale_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from afa.model.bundle import Bundle
    from afa.planner.base import Planner

NUMBERS_AT_ONCE = 5_000_000
"""Largest number of gains (duels times features) that are computed for an explanation."""
LEAST_GAIN_SHARE = 0.2
"""An opponent is named if the gain of its duel is at least this fraction of the largest gain."""
MOST_NAMES = 3
"""Largest number of names in a text. If there are more, the last name is replaced by the number of the others."""
DUELS_AT_ONCE = 1_000


def separated_entities(state: PatientState, entities: tuple[str, ...], features: list[int], over: DuelWeights) -> str:
    """Return a text that names the entities that the given features help to tell apart, such as `a from b and c`.

    The function finds the duel (comparison of two entities) with the largest weighted gain. Of the two entities in this
    duel, a is the entity with the larger sum of gains over all its duels. After `from`, the text names the entities
    whose duels with a have a large gain. If no duel has a positive gain, return an empty text.
    """
    apart = separated(state, len(entities), features, over)
    return f"{entities[apart[0]]} from {listed([entities[v] for v in apart[1:]], MOST_NAMES)}" if apart else ""


def separated(state: PatientState, n_entities: int, features: list[int], over: DuelWeights) -> list[int]:
    """Return the indices of the entities that the given features help to tell apart.

    If the text of `separated_entities` is `a from b and c`, the result contains the indices of a, b and c. The result
    is empty if no duel (comparison of two entities) has a positive gain.
    """
    heaviest = np.argsort(-np.abs(over.weights), kind="stable")[: max(NUMBERS_AT_ONCE // state.packed.n_features, 1)]
    chosen = np.sort(heaviest)
    places = over.duels[chosen]
    gain = state.gain_of(features, places) * over.weights[chosen]
    if not len(gain) or not gain.max() > 0:
        return []
    pairs = sides_of(n_entities, places)
    total = np.bincount(pairs.ravel(), weights=np.repeat(gain, 2), minlength=n_entities)
    a, b = pairs[int(gain.argmax())]
    one = int(a if total[a] >= total[b] else b)
    against = np.where(pairs[:, 0] == one, pairs[:, 1], pairs[:, 0])
    matters = (pairs == one).any(axis=1) & (gain >= LEAST_GAIN_SHARE * gain.max())
    order = np.flatnonzero(matters)[np.argsort(-gain[matters], kind="stable")]
    return [one, *against[order].tolist()]


def posterior_weights(state: PatientState) -> DuelWeights:
    """Return the weight (w_a + w_b)^2 for each duel, where w_a and w_b are posterior probabilities.

    A duel compares two entities a and b. With these weights, the weighted sum of a feature's gains over all duels
    equals, to second order, the information that the feature gives about which entity is present (docs/decisions.md,
    F15).
    """
    a, b = sides_of(state.n_entities, np.arange(state.n_duels)).T
    posterior = softmax(state.log_evidence())
    return DuelWeights(state.n_duels, np.arange(state.n_duels), (posterior[a] + posterior[b]) ** 2)


def patients_behind(bundle: Bundle, entities: Mapping[str, str], feature: str) -> str:
    """Return a text with the numbers of labelled patients from whom a feature's probabilities were estimated.

    An example is `flu 4 with, 5 without`: 4 patients with flu and 5 without it. For each entity, the text contains the
    numbers of patients with and without it. If there are no labelled patients, return an empty text.

    Parameters
    ----------
    entities : entity -> name shown; names that are not entities of the bundle are skipped

    """
    place, known = bundle.features.index(feature), [name for name in entities if name in bundle.entities]
    counts = [(entities[name], *bundle.patients_behind(name)[place].tolist()) for name in known]
    said = [f"{name} {with_it} with, {without} without" for name, with_it, without in counts if with_it or without]
    return listed(said, MOST_NAMES) if said else ""


def explained(planner: Planner, most: int) -> pd.DataFrame:
    """Return the table of `Planner.explain`, which lists the features with the largest gains."""
    import pandas as pd  # noqa: PLC0415 (slow to import, and not needed for planning)

    state, bundle, menu, offer = planner._state, planner.bundle, planner._menu, planner._offer()
    duels = planner._open_duels()
    table, order, place = pd.DataFrame({"feature": bundle.features}), "gain", bundle.features.index
    table["gain"], table["duels_moved"] = _sum_and_count_gains(state, duels)
    if not menu.plain:
        order = "gain_per_cost"
        table["item"] = [menu.names[i] for i in menu.item_of]
        table["cost"] = offer.price[menu.item_of]
        table[order] = menu.per_cost(table["gain"].to_numpy(), offer.open)
    table = table[offer.open]
    everything = float(table["gain"].sum())
    table["share"] = table["gain"] / everything if everything > 0 else 0.0
    table = table.sort_values([order, "feature"], ascending=[False, True], ignore_index=True).head(most)
    over, names = DuelWeights(state.n_duels, duels, np.ones(len(duels))), shown_entities(planner)
    apart = (separated_entities(state, names, [place(name)], over) for name in table["feature"])
    return table.assign(tells=[f"tells {words}" if words else "" for words in apart])


def shown_entities(planner: Planner) -> tuple[str, ...]:
    """Return the display names of the entities in the order of the planner's bundle."""
    return tuple(map(planner.question_bundle.shown, planner.bundle.entities))


def _sum_and_count_gains(state: PatientState, duels: Ints) -> tuple[Floats, Ints]:
    """Return, for each feature, the sum of its gains over the given duels, and the number of positive gains.

    A duel is a comparison of two entities. Both results have the shape (M,).
    """
    total, moved = np.zeros(state.packed.n_features), np.zeros(state.packed.n_features, dtype=np.int64)
    for part in np.split(duels, range(DUELS_AT_ONCE, len(duels), DUELS_AT_ONCE)):
        gains = state.gains(np.isin(np.arange(state.n_duels), part))
        total += gains.sum(axis=0)
        moved += (gains > 0).sum(axis=0)
    return total, moved


def shares(planner: Planner, entity: str) -> list[dict[str, Any]]:
    """Return the rows of the table of `Planner.why`, sorted by the magnitude of `share`, largest first."""
    names = planner.bundle.entities
    if entity not in names:
        step = suggestion(str(entity), names, "see bundle.entities")
        raise PlannerError(Fault(f"entity {entity!r}", "an unknown name", "an entity of the bundle", step))
    v, now = names.index(entity), planner.strengths()
    rows = [
        {
            "feature": feature,
            "value": value,
            "number": planner.numbers.get(feature),
            "unit": scale_of(planner.question_bundle, feature).unit,
            "share": float(now[v] - planner.without(feature).strengths()[v]),
        }
        for feature, value in planner.observed.items()
    ]
    return sorted(rows, key=lambda row: -abs(row["share"]))


UNCHANGEABLE = "no remaining measurement can change this"


def in_words(planner: Planner) -> str:
    """Return the current answer as the text that `Planner.in_words` returns."""
    if planner.nothing_unusual() and planner.settings.get("coupling") != "explicit":  # `explicit` counts usual values
        return "none of these: nothing that was measured is unusual"
    shown = planner.question_bundle.shown
    tied = planner.undecided()
    sure = [shown(name) for name in planner.answer() if name not in tied]
    tied = [shown(name) for name in tied]
    parts = [", ".join(sure)] if sure else []
    words = ", then ".join([*parts, f"undecided between {listed(tied, MOST_NAMES)}"] if tied else parts)
    unchangeable = [UNCHANGEABLE] if planner.certain() else []
    if planner.none_is_likelier():
        most = words if tied else f"most: {words}, {planner.answer_probability():.2f}"
        return f"none is likely ({'; '.join([most, *unchangeable])})"
    known = list[str]()
    if not tied and planner.ordered_by == "probability":
        known = [f"probability {planner.answer_probability():.2f}"]
    elif not tied and (lead := planner.lead()) > 0:
        known = [f"ahead by {lead:.2f}"]
    if planner.guide == "background" and planner.background is not None:
        known.append(f"stays with probability {planner.top_probability():.2f} by {planner.background.words}")
    known += unchangeable
    return f"{words} ({'; '.join(known)})" if known else words


def listed(names: list[str], most: int) -> str:
    """Return names as a text, such as `a, b and 3 others`.

    If there are more than `most` names, the text contains the first `most` - 1 names and the number of the others.

    >>> listed(["a", "b", "c", "d", "e"], 3), listed(["a", "b"], 3)
    ('a, b and 3 others', 'a and b')
    """
    shown = names if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} others"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def outcomes(planner: Planner, feature: str) -> list[dict[str, Any]]:
    """Return the rows of the table of `Planner.outcomes`, one for each possible value of an unobserved feature."""
    rows = list[dict[str, Any]]()
    for value in itertools.compress(VALUES, planner.bundle.possible[planner.bundle.features.index(feature)]):
        after = planner.copy()
        after.observe(feature, value, cost=0.0)
        row = {"value": value, "answer": after.answer(), "probability": after.answer_probability()}
        rows.append(row | {"undecided": after.undecided(), "certain": after.certain(), "words": in_words(after)})
    return rows
