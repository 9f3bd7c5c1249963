"""Define `Planner`, the base class of `TopKPlanner` and `BinaryPlanner`.

A planner stores one patient's measurements, the models of a bundle, and the rule that chooses the next feature.
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
    read_number,
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
    """Suggest measurements for one patient. The subclasses `TopKPlanner` and `BinaryPlanner` define the question.

    Parameters
    ----------
    question_bundle : the bundle passed by the user
    bundle : the entities that are compared in duels; for the binary question the two classes of one entity
    options : the options common to both planners
    new_patient : function that returns the state of a patient without observations
    settings : plain values from which `afa.planner.session` makes an equal planner, including those of the question and
        of the closure; `allocation` is None for a custom rule

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
        self._fresh = False  # True if `_asked` and `reason` were computed for the current state
        self._offered: Offer | None = None

    def __repr__(self) -> str:
        answer = f"; {self.in_words()}" if self.observed else ""
        return f"<{type(self).__name__} on {self.question_bundle.name}: {len(self.observed)} observed{answer}>"

    @property
    def observed(self) -> dict[str, int]:
        """Return the observed code of each feature, in the order in which features were first observed."""
        return dict(self._log.observed)

    @property
    def numbers(self) -> dict[str, float]:
        """Return the measured number, in the feature's unit, of each feature that was entered as a number."""
        return dict(self._log.numbers)

    @property
    def skipped(self) -> frozenset[str]:
        """Return the features that were marked as not measurable."""
        return frozenset(self._log.skipped)

    @property
    def spent(self) -> float:
        """Return the total cost of the observations so far."""
        return self._log.spent

    @property
    def panels(self) -> tuple[str, ...]:
        """Return the names of the panels (features measured together)."""
        return tuple(self.settings["panels"])

    @property
    def priced(self) -> bool:
        """Return True if costs or panels affect which feature is suggested."""
        return not self._menu.plain

    @property
    def actions(self) -> tuple[Action, ...]:
        """Return all observations, corrections and skips in order, without undone steps."""
        return tuple(self._log.actions)

    def suggest(self) -> Suggestion | None:
        """Return the next feature or panel to measure, or None if no feature is left or a stopping rule is met.

        `reason` contains the explanation. Features and panels in the option `first` are suggested first. With costs or
        panels, the rule compares gain per unit of cost. The gain of a panel is the sum of the gains of its unobserved
        features. Free features with a positive gain precede all other features.
        """
        if not self._fresh:
            ended = self.stopped()
            self._asked = None if ended else self._first_item()
            self.reason = ended or (self._asked.reason if self._asked else "")
            self._fresh = True
        return self._asked

    def runners_up(self, most: int = 3) -> list[Suggestion]:
        """Return up to `most` alternatives to the suggestion of `suggest`, best first; empty without a suggestion."""
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
        """Return the name of the feature to measure next, or None. Use `suggest` to get a whole panel and its cost."""
        suggested = self.suggest()
        return suggested.features[0] if suggested else None

    def stopped(self) -> str | None:
        """Return in words why the planner stops measuring, or None if it does not stop.

        Measuring stops if no feature or budget is left, or if a rule of the option `stop` is met.
        """
        if len(self._log.observed) + len(excluded_by(self.bundle, self._log.observed)) == len(self.bundle.features):
            return ALL_OBSERVED
        if not self._offer().open.any():
            return "what is not observed cannot be measured"
        if not self._offer().affordable.any():
            return f"no remaining feature is affordable: {self._left():g} of the budget of {self.stop.budget:g} is left"
        return None if self._to_begin_with() is not None else self.stop.met_by(self)

    @abstractmethod
    def certain(self) -> bool:
        """Return True if no values of the unobserved features can change the answer (tight `l1` bracket)."""

    @abstractmethod
    def answer(self) -> list[str]:
        """Return the names of the entities that form the current answer."""

    @abstractmethod
    def answer_probability(self) -> float:
        """Return the posterior probability of the current answer, in [0, 1]."""

    @abstractmethod
    def probabilities(self) -> dict[str, float]:
        """Return a mapping from each entity's name to its posterior probability."""

    @abstractmethod
    def undecided(self) -> list[str]:
        """Return the entities that are tied for the answer, or an empty list if there is no tie.

        The tied entities' names are returned.
        """

    def in_words(self) -> str:
        """Return the current answer as the text that the terminal, the page and the JSON lines show.

        Examples are `fever (probability 0.81)` and `undecided between a and b`. If entities are ordered by score, an
        example is `fever (ahead by 0.85)`. If no measured value is unusual, the text starts with `none of these`. If no
        further measurement can change the answer, the text adds `nothing left to measure can change this`. The
        probability is `answer_probability`.
        """
        return in_words(self)

    def none_is_likelier(self) -> bool:
        """Return True if the probability that the patient has none of the entities is above 1/2."""
        return False

    def nothing_unusual(self) -> bool:
        """Return True if at least one feature has been measured and every measured value is usual (0).

        With the score `background`, `nothing_unusual` is always False, because usual values then change the scores.
        """
        return self.guide != BACKGROUND and bool(self._log.observed) and not any(self._log.observed.values())

    @abstractmethod
    def confidence(self) -> float:
        """Return the probability, in [0, 1], that the stopping rule `Stop.probability` compares with its threshold."""

    def largest_gain(self) -> float:
        """Return the largest gain of any affordable feature or panel, nats.

        `Stop.gain` uses this gain.
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
        """Record the value of one feature: a code -1, 0 or +1, the word for a code, or a number.

        Words are `low`, `usual`, `high`, `no` and `yes`. Entities whose models do not contain the feature keep their
        scores.

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
        """Record several measurements at once, such as a panel or earlier results (`cost=0`).

        If any value is invalid, no value is recorded.

        Parameters
        ----------
        values : codes or words by feature, such as a row of a table; missing values (None, NaN) are skipped
        numbers : numbers by feature, in the unit of each feature; missing values are skipped
        cost : the cost paid for all together; by default the price of the features or panels

        """
        self.observe_values(given_values(self.bundle, values, numbers), cost=cost)

    def correct(self, feature: str, value: int | str | None = None, *, number: float | None = None) -> None:
        """Replace an earlier value by another code, word or number, and recompute the patient's state.

        This costs nothing.
        """
        self.replace_value(feature, self._read_value(feature, value, number))

    def _read_value(self, feature: str, value: Any, number: float | None) -> ReadValue:
        """Return one entered value or number as a `ReadValue`.

        Raise a `PlannerError` if the feature cannot have the value.
        """
        if number is None:
            return ReadValue(code_of(self.bundle, feature, value))
        if value is not None:
            found = "a value and a number"
            raise PlannerError(Fault(f"feature {feature}", found, "one of the two", "give one of them"))
        code_of(self.bundle, feature, 0)  # raises an error if the bundle does not contain the feature
        return read_number(self.bundle, feature, number)

    def observe_values(self, read_values: Mapping[str, ReadValue], *, cost: float | None = None) -> None:
        """Record several values, `read_values`, at once. If any value is invalid, no value is recorded.

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
        self._take(action_of("observe", read_values, float(cost), self.reason if asked else OWN_CHOICE))
        for name, read_value in read_values.items():
            self._note(name, read_value.code)

    def replace_value(self, feature: str, read_value: ReadValue) -> None:
        """Replace a feature's earlier value by `read_value`, and recompute the patient's state.

        This costs nothing.
        """
        if feature not in self._log.observed:
            step = "observe it"
            raise PlannerError(Fault(f"feature {feature}", "no observation", "an earlier one to correct", step))
        check_exclusive(self.bundle, self._log.observed | {feature: read_value.code})
        self._take(action_of("correct", {feature: read_value}, 0.0, f"{self._said(feature)} was wrong"))
        self._replay()

    def _said(self, feature: str) -> str:
        return with_number(self.question_bundle, feature, self._log.observed[feature], self._log.numbers.get(feature))

    def skip(self, name: str) -> None:
        """Mark the feature `name`, or the unobserved features of the panel `name`, as not measurable.

        A skipped feature is never suggested again. If the answer is certain, no value of a skipped feature could change
        it.
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
        self._take(Action("skip", tuple(features), (None,) * len(features), 0.0, "cannot be measured"))

    def undo(self) -> Action:
        """Undo the last observation, correction or skip, and return it."""
        if not self._log.actions:
            raise PlannerError(Fault("undo", "no step to take back", "one or more", "observe something first"))
        *earlier, last = self._log.actions
        self._log = Log(earlier)
        self._forget()
        if last.kind != "skip":
            self._replay()
        return last

    def repeat(self, actions: Iterable[Action]) -> None:
        """Repeat the steps of an earlier session in order, with their costs and reasons."""
        for action in actions:
            for feature, value, measured, unit in action.rows():
                code_of(self.bundle, feature, 0 if value is None else value)
                known = scale_of(self.bundle, feature).unit
                if measured is not None and not same_unit(unit, known):
                    found, expected = f"{written(measured, unit)}", f"a number in {known or 'no unit'}"
                    step = "start again from the values themselves"
                    raise PlannerError(Fault(f"step {len(self.actions) + 1}, {feature}", found, expected, step))
                if measured is not None and read_number(self.bundle, feature, measured).code != value:
                    found = f"{measured:g}, read as {read_number(self.bundle, feature, measured).code}, and {value}"
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
        """Return an independent copy of the planner in its current state."""
        shared = self.bundle, self.question_bundle, self._menu, self._index, self._state.packed
        return deepcopy(self, {id(part): part for part in shared})

    def history(self) -> pd.DataFrame:
        """Return a table of all steps, with one row for each value.

        The columns are step, kind, feature, value, cost, spent, reason, number and unit. If a value was entered as a
        code, its `number` is missing and its `unit` is empty. The first row of a panel contains the cost of the whole
        panel.
        """
        columns = ["step", "kind", "feature", "value", "cost", "spent", "reason", "number", "unit"]
        return pd.DataFrame(history_of(self._log.actions), columns=columns).astype(
            {"value": "Int8", "number": "Float64"}
        )

    def explain(self, most: int = 10) -> pd.DataFrame:
        """Return the unobserved features with the largest gains, and the duels and entities that each feature affects.

        The column `duels_moved` counts the duels in which the feature has a positive gain. The column `share` is the
        feature's gain divided by the sum over all available features. The column `tells` names the entities that the
        feature helps to tell apart. The gain of a feature is summed over all unresolved duels. With more than 200
        entities, only duels across the top-k boundary are included. All duels have equal weight in the sum of gains.
        With costs or panels, the columns `item`, `cost` and `gain_per_cost` refer to the feature's panel, and rows are
        sorted by `gain_per_cost`.

        Parameters
        ----------
        most : largest number of rows

        """
        check_number(PlannerError, "most", most, "a whole number, 0 or more", lambda x: x >= 0 and x.is_integer())
        return explained(self, int(most))

    def outcomes(self, feature: str) -> pd.DataFrame:
        """Return one row for each possible value of an unobserved feature.

        Each row contains the answer that the planner would give if the feature had this value. The columns are `value`,
        `answer`, `probability`, `undecided`, `certain` and `words` (the text of `in_words`).
        """
        code_of(self.bundle, feature, 0)
        return pd.DataFrame(outcomes(self, feature))

    def why(self, entity: str) -> pd.DataFrame:
        """Return a table of how much each observation supports or opposes an entity.

        Rows are sorted by the magnitude of `share`, largest first. The columns are `feature`, `value`, `number`, `unit`
        and `share`. `share` is the decrease of the entity's log-odds, in nats, if this observation were removed. If
        entities are ordered by score, `share` is the decrease of the entity's mean score against all other entities.
        If features are coupled, or if one entity excludes all other entities, the shares need not add up to the
        log-odds.
        """
        columns = ["feature", "value", "number", "unit", "share"]
        return pd.DataFrame(shares(self, entity), columns=columns).astype({"number": "Float64"})

    @property
    @abstractmethod
    def ordered_by(self) -> Literal["probability", "score"]:
        """Return the name of the quantity that ranks the entities, `probability` or `score`."""

    def lead(self) -> float:
        """Return the score by which the answer leads, or 0 if entities are ordered by probability."""
        return 0.0

    @abstractmethod
    def strengths(self) -> Floats:
        """Return the log-odds of each entity in nats, or its mean score, (N,).

        `why` explains these values.
        """

    def settled_probability(self) -> float:
        """Return `answer_probability`, or 0 if the answer is a tie.

        `Stop.posterior` uses this probability.
        """
        return 0.0 if self.undecided() else self.answer_probability()

    def fresh(self, patient: str = "") -> Self:
        """Return a planner for another patient, with the same settings and without observations."""
        other = self._with(Log())
        other.patient, other.settings = patient, {**other.settings, "patient": patient}
        return other

    def without(self, feature: str) -> Self:
        """Return a copy of the planner in which this feature is unobserved."""
        log = Log()
        log.observed = {name: value for name, value in self._log.observed.items() if name != feature}
        return self._with(log)

    def _with(self, log: Log) -> Self:
        other = self.copy()
        other._log = log
        other._replay()
        return other

    def _open_duels(self) -> Ints:
        """Return the indices of the unresolved duels over which `explain` sums the gains."""
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

    def _chosen_item(self, view: View, offered: Bools) -> Suggestion:
        """Return the feature or panel that the allocation rule chooses among the available features."""
        return chosen_item(self.rule, view, self._menu, self._offer().price, offered)

    def _to_begin_with(self) -> int | None:
        """Return the index of the first affordable item of the option `first`, or None if there is none."""
        offered = self._menu.item_of[self._offer().affordable]
        return next((item for item in self._first if item in offered), None)

    def _first_item(self) -> Suggestion:
        """Return the feature or panel to suggest.

        The text of the suggestion's reason mentions the effects of costs, panels and the budget.
        """
        if (named := self._to_begin_with()) is not None:
            open_ = [self.bundle.features[j] for j in self._menu.members[named] if self._offer().open[j]]
            return Suggestion(self._menu.names[named], tuple(open_), float(self._offer().price[named]), NAMED_FIRST)
        view = self._view()
        item = self._chosen_item(view, self._offer().affordable)
        if self.at_once > 1:
            item = self._with_others(item)
        words = item.reason
        over = posterior_weights(self._state) if isinstance(self.rule, Information) else item.over
        if over is not None:
            features, shown = [self._index[name] for name in item.features], shown_entities(self)
            if apart := separated_entities(self._state, shown, features, over):
                words = f"best separates {apart}{' for its cost' if self.priced else ''}"
            if self._counts_patients:
                apart_of = separated(self._state, len(shown), features, over)
                between = {self.bundle.entities[v]: shown[v] for v in apart_of}
                if behind := patients_behind(self.question_bundle, between, item.features[0]):
                    words += f"; labelled patients behind it: {behind}"
        if self.priced and not item.cost:
            words += "; free"
        if (self._offer().open != self._offer().affordable).any():
            first = self._chosen_item(view, self._offer().open)
            if first.name != item.name:
                name, left = self.question_bundle.shown(first.name), f"{self._left():g} is left"
                words += f"; {name} comes first but costs {first.cost:g}, and {left}"
        return replace(item, reason=words)

    def _with_others(self, item: Suggestion) -> Suggestion:
        """Return a suggestion that adds other items to `item`, up to `together` items in total."""
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
        """Return True if the planner uses probabilities that were estimated from labelled patients (`afa.update`)."""
        rates = self.question_bundle.rates
        return (
            rates is not None
            and rates.probability_rows.patients is not None
            and self.settings.get("coupling") == "explicit"
        )

    def _offer(self) -> Offer:
        """Return the features that can be suggested in the current state, computed once for each state."""
        if self._offered is None:
            self._offered = offer_of(self._menu, self.bundle, self._log, self._left())
        return self._offered

    def _left(self) -> float:
        return np.inf if self.stop.budget is None else self.stop.budget - self.spent

    def _forget(self) -> None:
        """Discard the suggestion and the available features, because they belong to the previous state."""
        self._fresh, self._offered = False, None

    def _take(self, action: Action) -> None:
        self._log.add(action)
        self._forget()

    def _replay(self) -> None:
        """Rebuild the patient's state by repeating the observations in the log."""
        self._state = self._new_patient()
        self._belief = self._at_first and self._at_first.copy()
        for feature, value in self._log.observed.items():
            self._note(feature, value)
        self._forget()

    def _note(self, feature: str, value: int) -> None:
        """Update the patient's state and the belief about scores with one observed value."""
        self._state.observe(self._index[feature], value)
        if self._belief is not None:
            self._belief.observe(self._index[feature], value)

    def _score_table(self) -> ScoreTable:
        """Return the terms of all scores S_v as a `ScoreTable` for `Belief`.

        Entities with equal scores are sorted by name (decisions.md S6).
        """
        if isinstance(self._state, ExplicitPatient):
            table = self._state.score_table(self.bundle.entities, self.bundle.features)
        else:
            table = ScoreTable.of_bundle(self.bundle)
        return replace(table, places=name_places(self.bundle.entities))

    def scores_by(self, score: str) -> Floats:
        """Return the preference scores named `score`, (N, N).

        For the score `background`, a preference is the difference of two entities' expected scores.
        """
        if score != BACKGROUND or self._belief is None:
            return self._state.scores(score)
        mean = self._belief.mean
        found = mean[:, None] - mean[None, :]
        return np.where(np.abs(found) <= self._belief.table.tie, 0.0, found)

    def top_probability(self) -> float:
        """Return the probability that the current top k is also the top k at full observation. Ties count as right.

        The probability is valid only for patients from the population that the option `background` describes. The error
        rate of the answer must be measured on data (docs/frontier.md). Raise a `PlannerError` if the planner has no
        background.
        """
        if self._belief is None:
            step = "give score='background', or allocation='frontier'"
            raise PlannerError(Fault("top_probability", "no background", "a planner with one", step))
        return self._belief.top_probability(self.k)
