"""What both planners share: one patient in the entities of a bundle, a rule that chooses, the answers so far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from afa.engine.ranks import name_places
from afa.errors import Fault, PlannerError, check_number
from afa.io.later import Later
from afa.model.bundle import Bundle
from afa.planner.cluster import Clustering
from afa.planner.explicit import ExplicitPatient
from afa.planner.menu import (
    Action,
    Log,
    Offer,
    Suggestion,
    action_of,
    check_exclusive,
    chosen_item,
    excluded_by,
    given_values,
    history_of,
    menu_of,
    offer_of,
)
from afa.planner.options import ALL_DUELS_UP_TO, BACKGROUND, INFORMATION, NewPatient, Options
from afa.planner.rules import View
from afa.planner.rules.base import view_of
from afa.planner.values import (
    ReadValue,
    code_of,
    reading_of,
    same_unit,
    scale_of,
    unknown,
    with_number,
    written,
)
from afa.planner.why import (
    explained,
    in_words,
    outcomes,
    patients_behind,
    separated,
    shares,
    shown_entities,
    told_apart,
)
from afa.scores.belief import Background, Belief, ScoreTable

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = Later("pandas")

ALL_OBSERVED = "every feature has been observed"
OWN_CHOICE = "not asked for"
NAMED_FIRST = "to be measured first"


class Planner(ABC):
    """One patient of one bundle; `TopKPlanner` and `BinaryPlanner` say what the question is.

    asked_of : the bundle that was given. bundle : the entities that the duels are of. options : those of both planners.
    new_patient : makes a patient of whom nothing is known. settings : what was given, as plain values, from which
    `afa.planner.session` makes the same planner again, those of the one question and of the gauge too; `allocation` is
    None for a custom rule.
    """

    def __init__(
        self, asked_of: Bundle, bundle: Bundle, options: Options, new_patient: NewPatient, settings: Mapping[str, Any]
    ) -> None:
        self._menu = menu_of(bundle, options.costs, options.panels)
        self.settings = options.plain(self._menu.panels) | dict(settings)
        self.asked_of, self.bundle, self.k = asked_of, bundle, int(settings.get("k", 1))
        self.guide, self.gain = options.score, options.gain
        self.rule, self.stop = options.rule, options.rules_of_stopping
        self._first = self._menu.places(options.first)
        self.patient, self.seed = options.patient, options.seed
        self.reason = "nothing asked yet"
        self._index = {name: j for j, name in enumerate(bundle.features)}
        self._clustering = Clustering(replace(bundle, rates=None) if "tau" in settings else bundle)
        self._new_patient, self._state = new_patient, new_patient()
        self.background: Background | None = None
        self._at_first: Belief | None = None  # the belief before anything is observed
        if options.believes:
            self._at_first = Belief(self._score_table(), Background.given(asked_of, options.background))
            self.background = self._at_first.background
            self.settings["background"] = self.background.plain()
        self._belief = self._at_first and self._at_first.copy()
        self.at_once = int(options.together)
        self._log = Log()
        self._asked: Suggestion | None = None
        self._fresh = False  # whether `_asked` and `reason` are of the present state
        self._offered: Offer | None = None

    def __repr__(self) -> str:
        answer = f"; {self.in_words()}" if self.observed else ""
        return f"<{type(self).__name__} on {self.asked_of.name}: {len(self.observed)} observed{answer}>"

    @property
    def observed(self) -> dict[str, int]:
        """The values so far, in the order of their first observation."""
        return dict(self._log.observed)

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers behind those of the values that were given as numbers, in the units of their features."""
        return dict(self._log.numbers)

    @property
    def skipped(self) -> frozenset[str]:
        """The features that cannot be measured."""
        return frozenset(self._log.skipped)

    @property
    def spent(self) -> float:
        """What the observations have cost so far."""
        return self._log.spent

    @property
    def panels(self) -> tuple[str, ...]:
        """Names of the panels."""
        return tuple(self.settings["panels"])

    @property
    def priced(self) -> bool:
        """Whether costs or panels enter the choice."""
        return not self._menu.plain

    @property
    def actions(self) -> tuple[Action, ...]:
        """Every step so far, in order; undone ones are gone."""
        return tuple(self._log.actions)

    def suggest(self) -> Suggestion | None:
        """What to measure next, or None where there is nothing or a stopping rule holds; `reason` says which, and why.

        What the option `first` names comes first. Costs and panels change what the rule compares: the gain of an item,
        summed over its open features, by unit of its cost. Free items come first as long as they have a gain.
        """
        if not self._fresh:
            ended = self.stopped()
            self._asked = None if ended else self._first_item()
            self.reason = ended or (self._asked.reason if self._asked else "")
            self._fresh = True
        return self._asked

    def runners_up(self, most: int = 3) -> list[Suggestion]:
        """What the rule would have suggested, best first, had it not been for `suggest`'s item; empty without one."""
        first = self.suggest()
        others: list[Suggestion] = []
        if first is None:
            return others
        view, offered = self._view(), self._offer().affordable.copy()
        for item in range(most + 1):
            if not offered.any():
                break
            chosen = self._chosen_item(view, offered)
            others += [chosen] if item else []
            members = (first if not item else chosen).features
            offered &= ~np.isin(self._menu.item_of, [self._menu.of_feature[name] for name in members])
        return others

    def next_feature(self) -> str | None:
        """Name of the feature to measure next, or None; `suggest` has the whole panel and its cost."""
        suggested = self.suggest()
        return suggested.features[0] if suggested else None

    def stopped(self) -> str | None:
        """Why there is nothing more to ask for, or None: all is measured, or a rule of `stop` holds."""
        if len(self._log.observed) + len(excluded_by(self.bundle, self._log.observed)) == len(self.bundle.features):
            return ALL_OBSERVED
        if not self._offer().open.any():
            return "what is not observed cannot be measured"
        if not self._offer().affordable.any():
            return f"nothing open can be afforded: {self._left():g} of the budget of {self.stop.budget:g} is left"
        return None if self._to_begin_with() is not None else self.stop.met_by(self)

    @abstractmethod
    def certain(self) -> bool:
        """Whether no completion of the unobserved features can change the answer (tight `l1` bracket)."""

    @abstractmethod
    def answer(self) -> list[str]:
        """The entities of the present answer."""

    @abstractmethod
    def answer_probability(self) -> float:
        """The posterior probability of the present answer, in [0, 1]; what `Stop.posterior` is compared with."""

    @abstractmethod
    def probabilities(self) -> dict[str, float]:
        """The posterior probability of each entity, by name."""

    @abstractmethod
    def undecided(self) -> list[str]:
        """The entities between which nothing but their names decides at present; empty where the answer is no tie."""

    def in_words(self) -> str:
        """The answer so far in the words that the terminal, the page and JSON lines show.

        `fever (probability 0.81)`, where the order is by score `fever (ahead by 0.85)`, `undecided between a and b`,
        `none of these: ...` where nothing that was measured is unusual. `nothing left to measure can change this` is
        added where `certain` holds. The probability is `answer_probability`.
        """
        return in_words(self)

    def none_is_likelier(self) -> bool:
        """Whether that no entity holds is likelier than not; False where the bundle does not say how often."""
        return False

    def nothing_unusual(self) -> bool:
        """Whether something has been measured, and all of it is as usual: 0.

        False with the score `background`, to which a usual value says something.
        """
        return self.guide != BACKGROUND and bool(self._log.observed) and not any(self._log.observed.values())

    @abstractmethod
    def confidence(self) -> float:
        """The probability that `Stop.probability` is held against, in [0, 1]."""

    def largest_gain(self) -> float:
        """The largest gain, in nats, that an item has over its open features; what `Stop.gain` is compared with."""
        view, duels = self._view(), self._open_duels()
        by_entity = self.gain == INFORMATION
        gain = view.information() if by_entity else self._state.summed_gain(duels, np.ones(len(duels)))
        total = np.where(self._offer().affordable, gain, 0.0)
        return float(np.bincount(self._menu.item_of, weights=total).max())

    def observe(
        self,
        feature: str,
        value: int | str | None = None,
        *,
        number: float | None = None,
        cost: float | None = None,
    ) -> None:
        """Take in one measurement: -1, 0 or +1, or its word (`low`, `usual`, `high`, `no`, `yes`); or a number.

        Entities that do not hold the feature are left as they are.

        number : instead of `value`, in the feature's unit; read by the range of `features.csv`, and kept.
        cost : what was paid; unless given, the price of the feature, or of its panel where that is not paid for yet.
        """
        self.take_in({feature: self._reading(feature, value, number)}, cost=cost)

    def observe_all(
        self,
        values: Mapping[str, float | str] | pd.Series | None = None,
        *,
        numbers: Mapping[str, float] | pd.Series | None = None,
        cost: float | None = None,
    ) -> None:
        """Take in several measurements at once, such as a panel or what was known before (`cost=0`); all or none.

        values : codes or words by feature, such as a row of a table; what is missing (None, NaN) is left out.
        numbers : the same of what was measured as a number, in the unit of each feature.
        """
        self.take_in(given_values(self.bundle, values, numbers), cost=cost)

    def correct(self, feature: str, value: int | str | None = None, *, number: float | None = None) -> None:
        """Replace an earlier value by another, code, word or number, at no cost; everything is computed again."""
        self.correct_to(feature, self._reading(feature, value, number))

    def _reading(self, feature: str, value: Any, number: float | None) -> ReadValue:
        """What one value or number of a feature is read as; a `PlannerError` where it is no value of the feature."""
        if number is None:
            return ReadValue(code_of(self.bundle, feature, value))
        if value is not None:
            found = "a value and a number"
            raise PlannerError(Fault(f"feature {feature}", found, "one of the two", "give one of them"))
        code_of(self.bundle, feature, 0)  # a wrong name is an error of its own
        return reading_of(self.bundle, feature, number)

    def take_in(self, readings: Mapping[str, ReadValue], *, cost: float | None = None) -> None:
        """Take in several readings (`afa.planner.values`) at once; all or none.

        cost : what they cost together; None for the price of the menu.
        """
        for feature in readings.keys() & self._log.observed.keys():
            step = "correct the earlier value, or undo"
            raise PlannerError(Fault(f"feature {feature}", "a second observation", "at most one", step))
        check_exclusive(self.bundle, self._log.observed | {name: each.code for name, each in readings.items()})
        if cost is None:
            cost = float(self._offer().price[list({self._menu.of_feature[feature] for feature in readings})].sum())
        else:
            step = "leave it out for the price of the menu"
            expected = "a finite number, 0 or more"
            check_number(PlannerError, "cost of an observation", cost, expected, lambda x: 0 <= x < np.inf, step)
        asked = self._fresh and self._asked is not None and readings.keys() <= set(self._asked.features)
        self._take(action_of("observe", readings, float(cost), self.reason if asked else OWN_CHOICE))
        for name, reading in readings.items():
            self._note(name, reading.code)

    def correct_to(self, feature: str, reading: ReadValue) -> None:
        """Replace an earlier value by another reading, at no cost; everything is computed again."""
        if feature not in self._log.observed:
            step = "observe it"
            raise PlannerError(Fault(f"feature {feature}", "no observation", "an earlier one to correct", step))
        check_exclusive(self.bundle, self._log.observed | {feature: reading.code})
        self._take(action_of("correct", {feature: reading}, 0.0, f"{self._said(feature)} was wrong"))
        self._replay()

    def _said(self, feature: str) -> str:
        return with_number(self.asked_of, feature, self._log.observed[feature], self._log.numbers.get(feature))

    def skip(self, name: str) -> None:
        """Note that what has this name, a feature or what is open of a panel, cannot be measured, and ask no more.

        The answer goes on to leave it open, so that a certain answer holds whatever its value would have been.
        """
        asked = self._asked if self._fresh else None
        if asked is not None and name == asked.name:
            features = list(asked.features)
        elif name in self._index:
            features = [name]
        elif name in self._menu.names:
            members = self._menu.members[self._menu.names.index(name)]
            features = [self.bundle.features[j] for j in members if self._offer().open[j]]
        else:
            raise unknown(self._index, name)
        if not features or any(feature in self._log.observed for feature in features):
            step = "use correct() or undo() where the value is wrong"
            raise PlannerError(Fault(f"{name!r}", "already observed", "what is still open", step))
        self._take(Action("skip", tuple(features), (None,) * len(features), 0.0, "cannot be measured"))

    def undo(self) -> Action:
        """Take back the last step, whatever it was, and answer with it."""
        if not self._log.actions:
            raise PlannerError(Fault("undo", "no step to take back", "one or more", "observe something first"))
        *earlier, last = self._log.actions
        self._log = Log(earlier)
        self._forget()
        if last.kind != "skip":
            self._replay()
        return last

    def repeat(self, actions: Iterable[Action]) -> None:
        """Take the steps of an earlier session again, in their order, with what was paid and why."""
        for action in actions:
            for feature, value, measured, unit in action.rows():
                code_of(self.bundle, feature, 0 if value is None else value)
                known = scale_of(self.bundle, feature).unit
                if measured is not None and not same_unit(unit, known):
                    found, expected = f"{written(measured, unit)}", f"a number in {known or 'no unit'}"
                    step = "start again from the values themselves"
                    raise PlannerError(Fault(f"step {len(self.actions) + 1}, {feature}", found, expected, step))
                if measured is not None and reading_of(self.bundle, feature, measured).code != value:
                    found = f"{measured:g}, read as {reading_of(self.bundle, feature, measured).code}, and {value}"
                    step = "start again from the values themselves"
                    raise PlannerError(Fault(f"step {len(self.actions) + 1}, {feature}", found, "one value", step))
                if (feature in self._log.observed) != (action.kind == "correct"):
                    found = f"{action.kind} of a feature that is {'' if action.kind == 'correct' else 'already '}"
                    expected = "steps that can follow each other"
                    step = "start anew from the values themselves"
                    raise PlannerError(Fault(f"step {len(self.actions) + 1}", found + "observed", expected, step))
            self._take(action)
            check_exclusive(self.bundle, self._log.observed)
        self._replay()

    def copy(self) -> Self:
        """A planner of its own in the same state; bundle, menu and layout, which never change, are shared."""
        shared = self.bundle, self.asked_of, self._menu, self._index, self._state.packed
        return deepcopy(self, {id(part): part for part in shared})

    def history(self) -> pd.DataFrame:
        """One row for each value, in order: step, kind, feature, value (missing where skipped), cost, spent, reason.

        `number` and `unit` follow, missing and empty where a code was given. The cost of a panel stands at its first
        row.
        """
        columns = ["step", "kind", "feature", "value", "cost", "spent", "reason", "number", "unit"]
        return pd.DataFrame(history_of(self._log.actions), columns=columns).astype(
            {"value": "Int8", "number": "Float64"}
        )

    def explain(self, most: int = 10) -> pd.DataFrame:
        """The open features of largest total gain: feature, gain, duels it would move, its share, whom it tells apart.

        The gain is summed over all open duels, with more than 200 entities over those across the top-k boundary,
        each counted once, whatever the weights of the rule. Where there are costs or panels, `item`, `cost` and
        `gain_per_cost` are those of the feature's panel, and rows go by the last.
        """
        check_number(PlannerError, "most", most, "a whole number, 0 or more", lambda x: x >= 0 and x.is_integer())
        return explained(self, int(most))

    def outcomes(self, feature: str) -> pd.DataFrame:
        """What each value of an open feature would do: a row with `value`, and of the answer then what `in_words` says.

        The columns are `value`, `answer`, `probability`, `undecided`, `certain` and `words`.
        """
        code_of(self.bundle, feature, 0)
        return pd.DataFrame(outcomes(self, feature))

    def why(self, entity: str) -> pd.DataFrame:
        """Each finding's share for and against an entity: one row a finding, the strongest first.

        Columns: `feature`, `value`, `number`, `unit` and `share`: by how much the log-odds of the entity, in nats,
        would be lower without this finding. Where `ordered_by` is `score` it is the entity's mean score against the
        others. Shares need not add up where findings are coupled, or where one entity excludes the others.
        """
        columns = ["feature", "value", "number", "unit", "share"]
        return pd.DataFrame(shares(self, entity), columns=columns).astype({"number": "Float64"})

    @property
    @abstractmethod
    def ordered_by(self) -> Literal["probability", "score"]:
        """What orders the entities, `probability` or `score`; `answer` is the first of that order."""

    def lead(self) -> float:
        """By how much the answer is ahead where the order is by score; 0 where it is by probability."""
        return 0.0

    @abstractmethod
    def strengths(self) -> NDArray[np.float64]:
        """(N,) what `why` takes apart: log-odds of each entity in nats, or its mean score against the others."""

    def settled_probability(self) -> float:
        """Return `answer_probability`, or 0 where the answer is a tie; `Stop.posterior` is compared with it."""
        return 0.0 if self.undecided() else self.answer_probability()

    def fresh(self, patient: str = "") -> Self:
        """A planner with the same settings, for another patient, of whom nothing is known."""
        other = self._with(Log())
        other.patient, other.settings = patient, {**other.settings, "patient": patient}
        return other

    def without(self, feature: str) -> Self:
        """A planner in the state that it would have if this feature had not been observed; its steps are gone."""
        log = Log()
        log.observed = {name: value for name, value in self._log.observed.items() if name != feature}
        return self._with(log)

    def _with(self, log: Log) -> Self:
        other = self.copy()
        other._log = log
        other._replay()
        return other

    def _open_duels(self) -> NDArray[np.int64]:
        """Places of the duels that gains are summed over in what people read."""
        if len(self.bundle.entities) > ALL_DUELS_UP_TO:
            return self._view().contested
        return np.flatnonzero(~self._state.resolved())

    def _view(self) -> View:
        guided = self.guide == BACKGROUND
        view = view_of(
            self._state,
            self.bundle,
            score="linearity" if guided else self.guide,
            k=self.k,
            find_clusters=lambda: self._clustering.at(self._log.observed),
            patient=self.patient,
            seed=self.seed,
        )
        if (belief := self._belief) is None:
            return view
        assert self.background is not None
        view = replace(view, find_frontier=lambda: belief.frontier(self.k), background=self.background.words)
        if not guided:
            return view
        tie, rank = belief.table.tie, np.argsort(belief.order()) + 1
        return replace(view, tie=tie, find_scores=lambda: self.scores_by(BACKGROUND), find_rank=lambda: rank)

    def _chosen_item(self, view: View, offered: NDArray[np.bool_]) -> Suggestion:
        """What the rule chooses among the features on offer."""
        return chosen_item(self.rule, view, self._menu, self._offer().price, offered)

    def _to_begin_with(self) -> int | None:
        """The first item of the option `first` that is still open and can be afforded."""
        offered = self._menu.item_of[self._offer().affordable]
        return next((item for item in self._first if item in offered), None)

    def _first_item(self) -> Suggestion:
        """The rule's choice, its reason with what costs, panels and the budget did to it."""
        if (named := self._to_begin_with()) is not None:
            open_ = [self.bundle.features[j] for j in self._menu.members[named] if self._offer().open[j]]
            return Suggestion(self._menu.names[named], tuple(open_), float(self._offer().price[named]), NAMED_FIRST)
        view = self._view()
        item = self._chosen_item(view, self._offer().affordable)
        if self.at_once > 1:
            item = self._with_others(item)
        words = item.reason
        if item.over is not None:
            features, shown = [self._index[name] for name in item.features], shown_entities(self)
            if apart := told_apart(self._state, shown, features, item.over):
                words = f"best separates {apart}{' for its cost' if self.priced else ''}"
            if self._counts_patients:
                apart_of = separated(self._state, len(shown), features, item.over)
                between = {self.bundle.entities[v]: shown[v] for v in apart_of}
                if behind := patients_behind(self.asked_of, between, item.features[0]):
                    words += f"; labelled patients behind it: {behind}"
        if self.priced and not item.cost:
            words += "; free"
        if (self._offer().open != self._offer().affordable).any():
            first = self._chosen_item(view, self._offer().open)
            if first.name != item.name:
                name, left = self.asked_of.shown(first.name), f"{self._left():g} is left"
                words += f"; {name} comes first but costs {first.cost:g}, and {left}"
        return replace(item, reason=words)

    def _with_others(self, item: Suggestion) -> Suggestion:
        """The item with those that are best measured together with it, up to `together` of them."""
        offer, menu, belief = self._offer(), self._menu, self._belief
        assert belief is not None
        features = belief.together(
            self.at_once,
            self.k,
            offer.affordable,
            item_of=menu.item_of,
            price=offer.price,
            left=self._left(),
            first=[self._index[name] for name in item.features],
        )
        items = list(dict.fromkeys(int(menu.item_of[j]) for j in features))
        names = tuple(self.bundle.features[j] for j in features)
        cost = float(offer.price[items].sum())
        return replace(item, name=", ".join(menu.names[i] for i in items), features=names, cost=cost)

    @property
    def _counts_patients(self) -> bool:
        """Whether labelled patients stand behind the probabilities that the planner uses (`afa.update`)."""
        rates = self.asked_of.rates
        return rates is not None and rates.stated.patients is not None and self.settings.get("coupling") == "explicit"

    def _offer(self) -> Offer:
        """What can be asked for in the present state, made out once."""
        if self._offered is None:
            self._offered = offer_of(self._menu, self.bundle, self._log, self._left())
        return self._offered

    def _left(self) -> float:
        return np.inf if self.stop.budget is None else self.stop.budget - self.spent

    def _forget(self) -> None:
        """The state is another: `_asked` and `reason` are out of date, and what can be asked for too."""
        self._fresh, self._offered = False, None

    def _take(self, action: Action) -> None:
        self._log.add(action)
        self._forget()

    def _replay(self) -> None:
        """Bring the patient to what the log says, from nothing."""
        self._state = self._new_patient()
        self._belief = self._at_first and self._at_first.copy()
        for feature, value in self._log.observed.items():
            self._note(feature, value)
        self._forget()

    def _note(self, feature: str, value: int) -> None:
        """Let the patient's state and the belief take in one value."""
        self._state.observe(self._index[feature], value)
        if self._belief is not None:
            self._belief.observe(self._index[feature], value)

    def _score_table(self) -> ScoreTable:
        """The scores that the belief is about; entities of equal score come by name (decisions.md S6)."""
        if isinstance(self._state, ExplicitPatient):
            table = self._state.score_table(self.bundle.entities, self.bundle.features)
        else:
            table = ScoreTable.of_bundle(self.bundle)
        return replace(table, places=name_places(self.bundle.entities))

    def scores_by(self, score: str) -> NDArray[np.float64]:
        """(N, N) preference scores; score : its name, of which `background` is differences of expected scores."""
        if score != BACKGROUND or self._belief is None:
            return self._state.scores(score)
        mean = self._belief.mean
        found = mean[:, None] - mean[None, :]
        return np.where(np.abs(found) <= self._belief.table.tie, 0.0, found)

    def top_probability(self) -> float:
        """The probability that the present top k is that at full observation, ties counting as right.

        By the belief of the options `background`, which says how sure it is of a patient from that population: how
        often it is right has to be measured (docs/frontier.md). A `PlannerError` without it.
        """
        if self._belief is None:
            step = "give score='background', or allocation='frontier'"
            raise PlannerError(Fault("top_probability", "no background", "a planner with one", step))
        return self._belief.top_probability(self.k)
