"""The class `Planner`, the base class of `TopKPlanner` and `BinaryPlanner`.

A planner contains one patient's measurements, the models of a bundle, and the rule that chooses the next feature.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from afa.engine.ranks import name_places
from afa.errors import Fault, PlannerError, check_number
from afa.io.later import Later
from afa.model.arrays import Bools, Floats, Ints
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
from afa.planner.rules.information import Information
from afa.planner.values import (
    ReadValue,
    code_of,
    number_with_unit,
    read_number,
    same_unit,
    scale_of,
    unknown,
    with_number,
)
from afa.planner.why import (
    explained,
    in_words,
    outcomes,
    patients_behind,
    posterior_weights,
    separated,
    separated_entities,
    shares,
    shown_entities,
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
    """Suggest measurements for one patient.

    `TopKPlanner` and `BinaryPlanner` are subclasses for two questions: which k entities are supported most, and is one
    entity present?

    Parameters
    ----------
    question_bundle : the bundle passed by the user
    bundle : the entities that are compared in duels; for the binary question the two classes of one entity
    options : the options common to both planners
    new_patient : function that returns the state of a patient without observations
    settings : the settings in a form that can be saved in a file, including the question and the closure;
        `afa.planner.session` makes an equal planner from them; `allocation` is None for a custom rule

    """

    def __init__(
        self,
        question_bundle: Bundle,
        bundle: Bundle,
        options: Options,
        new_patient: NewPatient,
        settings: Mapping[str, Any],
    ) -> None:
        self._menu = menu_of(bundle, options.costs, options.panels)
        self.settings = options.plain(self._menu.panels) | dict(settings)
        self.question_bundle, self.bundle, self.k = question_bundle, bundle, int(settings.get("k", 1))
        self.guide, self.gain = options.score, options.gain
        self.rule, self.stop = options.rule, options.rules_of_stopping
        self._first = self._menu.places(options.first)
        self.patient, self.seed = options.patient, options.seed
        self.reason = "nothing asked yet"
        self._index = {name: j for j, name in enumerate(bundle.features)}
        self._clustering = Clustering(replace(bundle, rates=None) if "tau" in settings else bundle)
        self._new_patient, self._state = new_patient, new_patient()
        self.background: Background | None = None
        self._at_first: Belief | None = None  # the belief without observations
        if options.believes:
            self._at_first = Belief(self._score_table(), Background.given(question_bundle, options.background))
            self.background = self._at_first.background
            self.settings["background"] = self.background.plain()
        self._belief = self._at_first and self._at_first.copy()
        self.at_once = int(options.together)
        self._log = Log()
        self._asked: Suggestion | None = None
        self._fresh = False  # True if `_asked` and `reason` belong to the current state
        self._offered: Offer | None = None

    def __repr__(self) -> str:
        answer = f"; {self.in_words()}" if self.observed else ""
        return f"<{type(self).__name__} on {self.question_bundle.name}: {len(self.observed)} observed{answer}>"

    @property
    def observed(self) -> dict[str, int]:
        """Return the code (-1, 0 or +1) of each observed feature.

        The features are in the order in which they were first observed.
        """
        return dict(self._log.observed)

    @property
    def numbers(self) -> dict[str, float]:
        """Return the measured number of each feature whose value was entered as a number.

        The number is in the unit of the feature.
        """
        return dict(self._log.numbers)

    @property
    def skipped(self) -> frozenset[str]:
        """Return the features that the user marked as not measurable."""
        return frozenset(self._log.skipped)

    @property
    def spent(self) -> float:
        """Return the total cost of all observations so far."""
        return self._log.spent

    @property
    def panels(self) -> tuple[str, ...]:
        """Return the names of the panels. A panel is a group of features that are measured together."""
        return tuple(self.settings["panels"])

    @property
    def priced(self) -> bool:
        """Return True if the suggestion can depend on costs or panels."""
        return not self._menu.plain

    @property
    def actions(self) -> tuple[Action, ...]:
        """Return all observations, corrections and skips in their order, except steps that were undone."""
        return tuple(self._log.actions)

    def suggest(self) -> Suggestion | None:
        """Return the next feature or panel to measure.

        Return None if no feature is left or a stopping rule is met. After the call, the attribute `reason` explains the
        result. Features and panels in the option `first` are suggested first. If there are costs or panels, the rule
        compares gains per unit of cost. The gain of a panel is the sum of the gains of its unobserved features. A free
        feature with a positive gain is suggested before any feature that costs something.
        """
        if not self._fresh:
            ended = self.stopped()
            self._asked = None if ended else self._item_to_suggest()
            self.reason = ended or (self._asked.reason if self._asked else "")
            self._fresh = True
        return self._asked

    def runners_up(self, most: int = 3) -> list[Suggestion]:
        """Return the next best alternatives to the result of `suggest`, best first.

        The argument `most` is the largest number of alternatives. If `suggest` returns None, return an empty list.
        """
        first = self.suggest()
        others: list[Suggestion] = []
        if first is None:
            return others
        view, offered = self._view(), self._offer().affordable.copy()
        for item in range(most + 1):
            if not offered.any():
                break
            chosen = self._choose_by_rule(view, offered)
            others += [chosen] if item else []
            members = (first if not item else chosen).features
            offered &= ~np.isin(self._menu.item_of, [self._menu.of_feature[name] for name in members])
        return others

    def next_feature(self) -> str | None:
        """Return the name of the feature to measure next, or None if nothing is suggested.

        Use `suggest` to get a whole panel and its cost.
        """
        suggested = self.suggest()
        return suggested.features[0] if suggested else None

    def stopped(self) -> str | None:
        """Return in words why the planner suggests no further measurement.

        Return None if the planner continues. The planner stops if no feature is left, if the budget is too small for
        any feature that is left, or if a rule of the option `stop` is met.
        """
        if len(self._log.observed) + len(excluded_by(self.bundle, self._log.observed)) == len(self.bundle.features):
            return ALL_OBSERVED
        if not self._offer().open.any():
            return "what is not observed cannot be measured"
        if not self._offer().affordable.any():
            left = f"{self._budget_left():g} of the budget of {self.stop.budget:g} is left"
            return f"no remaining feature is affordable: {left}"
        return None if self._affordable_first_item() is not None else self.stop.met_by(self)

    @abstractmethod
    def certain(self) -> bool:
        """Return True if the answer is certain to be the same after all features have been observed.

        The result is computed from the tight `l1` score bounds, which are bounds on the scores over all values of the
        unobserved features (`afa.scores.bracket`).
        """

    @abstractmethod
    def answer(self) -> list[str]:
        """Return the names of the entities in the current answer."""

    @abstractmethod
    def answer_probability(self) -> float:
        """Return the posterior probability of the current answer, from 0 to 1."""

    @abstractmethod
    def probabilities(self) -> dict[str, float]:
        """Return a mapping from the name of each entity to its posterior probability."""

    @abstractmethod
    def undecided(self) -> list[str]:
        """Return the names of the entities that are tied, so that the answer is undecided.

        If there is no tie, return an empty list.
        """

    def in_words(self) -> str:
        """Return the current answer as a text, which the terminal, the page and the JSON lines show.

        Examples are `fever (probability 0.81)`, `undecided between a and b` and, if entities are ordered by score,
        `fever (ahead by 0.85)`. If no measured value is unusual and the option `coupling` is not `explicit`, the text
        starts with `none of these`. If no further measurement can change the answer, the text contains `nothing left to
        measure can change this`. The probability in the text is `answer_probability`.
        """
        return in_words(self)

    def none_is_likelier(self) -> bool:
        """Return True if the patient probably has none of the entities.

        For a `BinaryPlanner`, the result is always False.
        """
        return False

    def nothing_unusual(self) -> bool:
        """Return True if at least one feature has been measured and every measured value is usual (0).

        With the score `background`, the result is always False.
        """
        return self.guide != BACKGROUND and bool(self._log.observed) and not any(self._log.observed.values())

    @abstractmethod
    def confidence(self) -> float:
        """Return the probability that the stopping rule `Stop.probability` compares with its threshold."""

    def largest_gain(self) -> float:
        """Return the largest gain of any feature or panel that the budget allows, in nats.

        The stopping rule `Stop.gain` compares this gain with its threshold.
        """
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
        """Record the value of one feature.

        The value is a code (-1, 0 or +1), a word (`low`, `usual`, `high`, `no` or `yes`), or a number. If the model of
        an entity does not contain the feature, the score of the entity does not change.

        Parameters
        ----------
        number : given instead of `value`, in the unit of the feature; encoded by the range in `features.csv`, and saved
        cost : the cost paid; by default the price of the feature, or of its panel if the panel has not been paid for

        """
        self.observe_values({feature: self._read_value(feature, value, number)}, cost=cost)

    def observe_all(
        self,
        values: Mapping[str, float | str] | pd.Series | None = None,
        *,
        numbers: Mapping[str, float] | pd.Series | None = None,
        cost: float | None = None,
    ) -> None:
        """Record several measurements at once, such as a panel.

        For results from before the session, use `cost=0`. If any value is invalid, no value is recorded.

        Parameters
        ----------
        values : codes or words by feature, such as a row of a table; missing values (None, NaN) are skipped
        numbers : numbers by feature, in the unit of each feature; missing values are skipped
        cost : the cost paid for all together; by default the price of the features or panels

        """
        self.observe_values(given_values(self.bundle, values, numbers), cost=cost)

    def correct(self, feature: str, value: int | str | None = None, *, number: float | None = None) -> None:
        """Replace the recorded value of a feature with another code, word or number.

        A correction costs nothing. The state of the patient is recomputed.
        """
        self.replace_value(feature, self._read_value(feature, value, number))

    def _read_value(self, feature: str, value: Any, number: float | None) -> ReadValue:
        """Return an entered code, word or number as a `ReadValue`.

        Raise a `PlannerError` if the feature cannot have the value.
        """
        if number is None:
            return ReadValue(code_of(self.bundle, feature, value))
        if value is not None:
            found = "a value and a number"
            raise PlannerError(Fault(f"feature {feature}", found, "one of the two", "give one of them"))
        code_of(self.bundle, feature, 0)  # raises an error for an unknown feature
        return read_number(self.bundle, feature, number)

    def observe_values(self, read_values: Mapping[str, ReadValue], *, cost: float | None = None) -> None:
        """Record several values at once, given as the mapping `read_values`.

        If any value is invalid, no value is recorded.

        Parameters
        ----------
        cost : the cost paid for all together; None for the price of the menu

        """
        for feature in read_values.keys() & self._log.observed.keys():
            step = "correct the earlier value, or undo"
            raise PlannerError(Fault(f"feature {feature}", "a second observation", "at most one", step))
        check_exclusive(self.bundle, self._log.observed | {name: each.code for name, each in read_values.items()})
        if cost is None:
            cost = float(self._offer().price[list({self._menu.of_feature[feature] for feature in read_values})].sum())
        else:
            step = "leave it out for the price of the menu"
            expected = "a finite number, 0 or more"
            check_number(PlannerError, "cost of an observation", cost, expected, lambda x: 0 <= x < np.inf, step)
        asked = self._fresh and self._asked is not None and read_values.keys() <= set(self._asked.features)
        self._record_action(action_of("observe", read_values, float(cost), self.reason if asked else OWN_CHOICE))
        for name, read_value in read_values.items():
            self._add_observation(name, read_value.code)

    def replace_value(self, feature: str, read_value: ReadValue) -> None:
        """Replace the recorded value of a feature by the value given as `read_value`.

        A correction costs nothing. The state of the patient is recomputed.
        """
        if feature not in self._log.observed:
            step = "observe it"
            raise PlannerError(Fault(f"feature {feature}", "no observation", "an earlier one to correct", step))
        check_exclusive(self.bundle, self._log.observed | {feature: read_value.code})
        self._record_action(action_of("correct", {feature: read_value}, 0.0, f"{self._value_text(feature)} was wrong"))
        self._rebuild_state()

    def _value_text(self, feature: str) -> str:
        return with_number(self.question_bundle, feature, self._log.observed[feature], self._log.numbers.get(feature))

    def skip(self, name: str) -> None:
        """Mark the feature `name`, or all unobserved features of the panel `name`, as not measurable.

        A skipped feature is not suggested again. If the answer was certain before a feature was skipped, the answer
        stays certain, because a certain answer does not depend on unobserved features.
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
            step = "correct the value, or undo"
            raise PlannerError(Fault(f"{name!r}", "already observed", "what is still open", step))
        self._record_action(Action("skip", tuple(features), (None,) * len(features), 0.0, "cannot be measured"))

    def undo(self) -> Action:
        """Undo the last step and return it. A step is an observation, a correction or a skip."""
        if not self._log.actions:
            raise PlannerError(Fault("undo", "no step to take back", "one or more", "observe something first"))
        *earlier, last = self._log.actions
        self._log = Log(earlier)
        self._invalidate_suggestions()
        if last.kind != "skip":
            self._rebuild_state()
        return last

    def repeat(self, actions: Iterable[Action]) -> None:
        """Repeat the steps of an earlier session in their order, with the same costs and reasons."""
        for action in actions:
            for feature, value, measured, unit in action.rows():
                code_of(self.bundle, feature, 0 if value is None else value)
                known = scale_of(self.bundle, feature).unit
                if measured is not None and not same_unit(unit, known):
                    found, expected = f"{number_with_unit(measured, unit)}", f"a number in {known or 'no unit'}"
                    step = "start again from the values themselves"
                    raise PlannerError(Fault(f"step {len(self.actions) + 1}, {feature}", found, expected, step))
                if measured is not None and read_number(self.bundle, feature, measured).code != value:
                    found = f"{measured:g}, read as {read_number(self.bundle, feature, measured).code}, and {value}"
                    step = "start again from the values themselves"
                    raise PlannerError(Fault(f"step {len(self.actions) + 1}, {feature}", found, "one value", step))
                if (feature in self._log.observed) != (action.kind == "correct"):
                    found = f"{action.kind} of a feature that is {'' if action.kind == 'correct' else 'already '}"
                    expected = "steps that can follow each other"
                    step = "start again from the values themselves"
                    raise PlannerError(Fault(f"step {len(self.actions) + 1}", found + "observed", expected, step))
            self._record_action(action)
            check_exclusive(self.bundle, self._log.observed)
        self._rebuild_state()

    def copy(self) -> Self:
        """Return a copy of the planner in its current state. Changes to the copy do not affect the planner."""
        shared = self.bundle, self.question_bundle, self._menu, self._index, self._state.packed
        return deepcopy(self, {id(part): part for part in shared})

    def history(self) -> pd.DataFrame:
        """Return a table of all steps, with one row for each value.

        The columns are step, kind, feature, value, cost, spent, reason, number and unit. If a value was not entered as
        a number, its `number` is missing and its `unit` is empty. If a step has several features, only its first row
        contains the cost, and this cost is for the whole step.
        """
        columns = ["step", "kind", "feature", "value", "cost", "spent", "reason", "number", "unit"]
        return pd.DataFrame(history_of(self._log.actions), columns=columns).astype(
            {"value": "Int8", "number": "Float64"}
        )

    def explain(self, most: int = 10) -> pd.DataFrame:
        """Return a table of the unobserved features with the largest gains, with one row for each feature.

        The gain of a feature is summed over all unresolved duels (comparisons of two entities) with equal weights. With
        more than 200 entities, only the unresolved duels between an entity in the top k and an entity outside it are
        included. The column `duels_moved` is the number of these duels in which the feature has a positive gain. The
        column `share` is the gain of the feature divided by the sum of the gains of all available features. The column
        `tells` names the entities that the feature helps to tell apart. The rows are sorted by `gain`. If there are
        costs or panels, the table also has the columns `item`, `cost` and `gain_per_cost`, and the rows are sorted by
        `gain_per_cost` instead. The columns `item`, `cost` and `gain_per_cost` describe the panel that contains the
        feature, or only the feature if it is in no panel.

        Parameters
        ----------
        most : largest number of rows

        """
        check_number(PlannerError, "most", most, "a whole number, 0 or more", lambda x: x >= 0 and x.is_integer())
        return explained(self, int(most))

    def outcomes(self, feature: str) -> pd.DataFrame:
        """Return a table with one row for each possible value of an unobserved feature.

        A row contains the answer that the planner would give if the feature had this value. The columns are `value`,
        `answer`, `probability`, `undecided`, `certain` and `words` (the text of `in_words`).
        """
        code_of(self.bundle, feature, 0)
        return pd.DataFrame(outcomes(self, feature))

    def why(self, entity: str) -> pd.DataFrame:
        """Return a table of how much each observation supports or opposes an entity.

        The columns are `feature`, `value`, `number`, `unit` and `share`. The column `share` contains the effect of each
        observation on the entity's log-odds: the log-odds, in nats, minus the log-odds without this observation. If
        entities are ordered by score, the log-odds are replaced by the mean of the entity's preference scores over all
        other entities. The sum of the column `share` can differ from the log-odds if features are coupled, or if a
        patient can have at most one entity. The rows are sorted by the magnitude of `share`, largest first.
        """
        columns = ["feature", "value", "number", "unit", "share"]
        return pd.DataFrame(shares(self, entity), columns=columns).astype({"number": "Float64"})

    @property
    @abstractmethod
    def ordered_by(self) -> Literal["probability", "score"]:
        """Return the quantity by which entities are ordered: `probability` or `score`."""

    def lead(self) -> float:
        """Return the smallest preference score of any entity in the answer against any entity outside the answer.

        If entities are ordered by probability, there is no such score, and the result is 0.
        """
        return 0.0

    @abstractmethod
    def strengths(self) -> Floats:
        """Return the log-odds of each entity in nats, as an array of shape (N,).

        If entities are ordered by score, the array contains, for each entity, the mean of its preference scores over
        all other entities. The method `why` explains these numbers.
        """

    def settled_probability(self) -> float:
        """Return `answer_probability`, or 0 if the answer is a tie.

        The stopping rule `Stop.posterior` compares this probability with its threshold.
        """
        return 0.0 if self.undecided() else self.answer_probability()

    def fresh(self, patient: str = "") -> Self:
        """Return a planner for another patient, with the same settings but without observations."""
        other = self._copy_with_log(Log())
        other.patient, other.settings = patient, {**other.settings, "patient": patient}
        return other

    def without(self, feature: str) -> Self:
        """Return a copy of the planner without the observation of this feature."""
        log = Log()
        log.observed = {name: value for name, value in self._log.observed.items() if name != feature}
        return self._copy_with_log(log)

    def _copy_with_log(self, log: Log) -> Self:
        other = self.copy()
        other._log = log
        other._rebuild_state()
        return other

    def _open_duels(self) -> Ints:
        """Return the indices of the unresolved duels (comparisons of two entities).

        If there are more than `ALL_DUELS_UP_TO` entities, only duels of an entity in the top k with an entity outside
        the top k are included.
        """
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

    def _choose_by_rule(self, view: View, offered: Bools) -> Suggestion:
        """Return the feature or panel that the allocation rule chooses from the available features."""
        return chosen_item(self.rule, view, self._menu, self._offer().price, offered)

    def _affordable_first_item(self) -> int | None:
        """Return the index of the first affordable item in the list `first`, or None if no item is affordable."""
        offered = self._menu.item_of[self._offer().affordable]
        return next((item for item in self._first if item in offered), None)

    def _item_to_suggest(self) -> Suggestion:
        """Return the feature or panel to suggest.

        The `reason` of the suggestion states how costs, panels and the budget affected the choice.
        """
        if (named := self._affordable_first_item()) is not None:
            open_ = [self.bundle.features[j] for j in self._menu.members[named] if self._offer().open[j]]
            return Suggestion(self._menu.names[named], tuple(open_), float(self._offer().price[named]), NAMED_FIRST)
        view = self._view()
        item = self._choose_by_rule(view, self._offer().affordable)
        if self.at_once > 1:
            item = self._add_further_items(item)
        words = item.reason
        over = posterior_weights(self._state) if isinstance(self.rule, Information) else item.over
        if over is not None:
            features, shown = [self._index[name] for name in item.features], shown_entities(self)
            if apart := separated_entities(self._state, shown, features, over):
                words = f"best separates {apart}{' for its cost' if self.priced else ''}"
            if self._has_patient_counts:
                apart_of = separated(self._state, len(shown), features, over)
                between = {self.bundle.entities[v]: shown[v] for v in apart_of}
                if behind := patients_behind(self.question_bundle, between, item.features[0]):
                    words += f"; labelled patients behind it: {behind}"
        if self.priced and not item.cost:
            words += "; free"
        if (self._offer().open != self._offer().affordable).any():
            first = self._choose_by_rule(view, self._offer().open)
            if first.name != item.name:
                name, left = self.question_bundle.shown(first.name), f"{self._budget_left():g} is left"
                words += f"; {name} comes first but costs {first.cost:g}, and {left}"
        return replace(item, reason=words)

    def _add_further_items(self, item: Suggestion) -> Suggestion:
        """Return a suggestion that contains `item` and further items, at most `together` items in total."""
        offer, menu, belief = self._offer(), self._menu, self._belief
        assert belief is not None
        features = belief.together(
            self.at_once,
            self.k,
            offer.affordable,
            item_of=menu.item_of,
            price=offer.price,
            left=self._budget_left(),
            first=[self._index[name] for name in item.features],
        )
        items = list(dict.fromkeys(int(menu.item_of[j]) for j in features))
        names = tuple(self.bundle.features[j] for j in features)
        cost = float(offer.price[items].sum())
        return replace(item, name=", ".join(menu.names[i] for i in items), features=names, cost=cost)

    @property
    def _has_patient_counts(self) -> bool:
        """Return True if the planner uses probabilities that `afa.update` estimated from labelled patients."""
        rates = self.question_bundle.rates
        return (
            rates is not None
            and rates.probability_rows.patients is not None
            and self.settings.get("coupling") == "explicit"
        )

    def _offer(self) -> Offer:
        """Return the features that can be suggested in the current state.

        The result is cached until the state changes.
        """
        if self._offered is None:
            self._offered = offer_of(self._menu, self.bundle, self._log, self._budget_left())
        return self._offered

    def _budget_left(self) -> float:
        return np.inf if self.stop.budget is None else self.stop.budget - self.spent

    def _invalidate_suggestions(self) -> None:
        """Discard the cached suggestion and the cached available features, because the state has changed."""
        self._fresh, self._offered = False, None

    def _record_action(self, action: Action) -> None:
        self._log.add(action)
        self._invalidate_suggestions()

    def _rebuild_state(self) -> None:
        """Rebuild the state of the patient from the observations in the log."""
        self._state = self._new_patient()
        self._belief = self._at_first and self._at_first.copy()
        for feature, value in self._log.observed.items():
            self._add_observation(feature, value)
        self._invalidate_suggestions()

    def _add_observation(self, feature: str, value: int) -> None:
        """Add one observed value to the state of the patient and to the belief about scores."""
        self._state.observe(self._index[feature], value)
        if self._belief is not None:
            self._belief.observe(self._index[feature], value)

    def _score_table(self) -> ScoreTable:
        """Return the `ScoreTable` from which the class `Belief` computes expected scores.

        The table orders entities with equal scores by name (docs/decisions.md, S6).
        """
        if isinstance(self._state, ExplicitPatient):
            table = self._state.score_table(self.bundle.entities, self.bundle.features)
        else:
            table = ScoreTable.of_bundle(self.bundle)
        return replace(table, places=name_places(self.bundle.entities))

    def scores_by(self, score: str) -> Floats:
        """Return the preference score of each entity over each other entity, as an array of shape (N, N).

        The parameter `score` is the name of the score. If it is `background`, the preference is the difference of the
        two entities' expected scores.
        """
        if score != BACKGROUND or self._belief is None:
            return self._state.scores(score)
        mean = self._belief.mean
        found = mean[:, None] - mean[None, :]
        return np.where(np.abs(found) <= self._belief.table.tie, 0.0, found)

    def top_probability(self) -> float:
        """Return the probability that the current top k is also the top k when all features have been observed.

        If entities are tied at the boundary of the top k, the current top k counts as correct. The probability is valid
        only for patients from the population that the option `background` describes. The error rate of the answer must
        be measured on data (docs/frontier.md). Raise a `PlannerError` if the planner has no background.
        """
        if self._belief is None:
            step = "give score='background', or allocation='frontier'"
            raise PlannerError(Fault("top_probability", "no background", "a planner with one", step))
        return self._belief.top_probability(self.k)
