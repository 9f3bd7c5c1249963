"""Run the experiment with language models as planners, and return its tables.

The tables contain the true answers, and the decisions of language models and planner at some rounds. The planner is
evaluated along two orders of features: its own order, and the order in which a language model observed the features. If
the planner is evaluated along the language model's order of features, the planner and the language model decide about a
patient from the same observed values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.cohort.cohort import Cohort
from afa.engine.outcomes import READOUTS, follow_rule, full_observation
from afa.engine.tasks import TASK_SCORES, follow_orders, task_of
from afa.evaluate.inputs import label_matrix
from afa.evaluate.long_tables import joined, rows_of
from afa.evaluate.targets import Targets, clinical_k
from afa.inference.meanfield import Solver
from afa.model.arrays import Codes, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.closure import closed_bundle
from afa.model.orders import random_orders
from afa.paper.baselines import (
    BINARY,
    CONSTANT_ANSWER,
    PLANNER,
    TOP_K,
    AbstractsOfPhenotype,
    Briefing,
    Protocol,
    Trial,
    briefings,
)
from afa.paper.baselines.trials import AnswerSource, TrialDialogue, follow_all
from afa.paper.experiments.binary import targets_of
from afa.planner import ALL_DUELS_UP_TO

GAIN = "cmi"
BINARY_RULE = "greedy"
TableParts = Iterator[pd.DataFrame]
TRIAL_COLUMNS = ["method", "task", "entity", "patient"]
TURN_COLUMNS = [
    *TRIAL_COLUMNS,
    "t",
    "outcome",
    "asked",
    "decision",
    "probability",
    "labels",
    "done",
    "pick",
    "pick_fault",
]
TURN_COLUMNS += ["label_fault", "measured", "by_rule"]
FAULT_COLUMNS = [*TRIAL_COLUMNS, "t", "asked", "part", "kind"]
CALL_COLUMNS = [
    *TRIAL_COLUMNS,
    "t",
    "asked",
    "attempt",
    "outcome",
    "prompt_tokens",
    "answer_tokens",
    "model",
    "served_model",
]
CALL_COLUMNS += ["prompt", "prompt_digest", "parameters", "time"]
TURN_KEYS = ["method", "task", "evidence", "entity", "patient", "t"]
READOUT_COLUMNS = [*TURN_KEYS, "decided", "decision", "p_at_k", "clinical_p_at_k"]
COLUMN_TYPES = {
    **dict.fromkeys(("t", "asked", "attempt"), "int32"),
    **dict.fromkeys(("decision", "likelihood", "clinical"), "Int8"),
    **dict.fromkeys(("prompt_tokens", "answer_tokens"), "Int64"),
    **dict.fromkeys(("probability", "p_at_k", "clinical_p_at_k"), "Float64"),
    **dict.fromkeys(("decided", "done", "by_rule"), "bool"),
}
"""Types of columns. All other columns are text."""


def typed(columns: Sequence[str], rows: pd.DataFrame | list[dict[str, Any]]) -> pd.DataFrame:
    """Return a table, possibly without rows, whose columns have the types in `COLUMN_TYPES`."""
    return pd.DataFrame(rows, columns=list(columns)).astype({name: COLUMN_TYPES.get(name, "str") for name in columns})


def top_k_rule(bundle: Bundle) -> str:
    """Return the name of the rule with which `TopKPlanner` chooses features by default."""
    return "priority_all" if len(bundle.entities) <= ALL_DUELS_UP_TO else "priority_clusters"


class OneTask:
    """The binary task of one entity for P patients.

    Attributes
    ----------
    values : (P, M) int8 in {-1, 0, +1}, the patients' values
    order : (P, M) int64, order in which the rule `greedy` with the gain `cmi` chooses the features

    """

    def __init__(self, bundle: Bundle, entity: str, values: Codes, solver: Solver, threads: int | None) -> None:
        closed = closed_bundle(bundle, entity)
        follow = partial(follow_rule, closed, values, full_observation(closed, values, solver=solver))
        self.task, self.values = task_of(bundle, entity, solver=solver), values
        self.order = follow(allocation=BINARY_RULE, gain=GAIN, k=1, solver=solver, threads=threads).order

    def readouts(self, orders: Ints, seen: Ints) -> Mapping[str, Mapping[str, NDArray[Any]]]:
        """Return a decision for each score: the sign of the score after the first `seen` features of each order.

        Parameters
        ----------
        orders : (P, M) int64
        seen : (P, T) int64, numbers of observed features

        Returns
        -------
        decision : (P T,) int64 in {-1, 0, +1}

        """
        paths = follow_orders(self.task, self.values, orders[:, None, :])
        pairs = zip(paths.t[:, 0], seen, strict=True)
        steps = np.array([np.searchsorted(t, wanted, side="right") - 1 for t, wanted in pairs])
        scores = {name: np.take_along_axis(getattr(paths, name)[:, 0], steps, axis=1) for name in TASK_SCORES}
        return {name: {"decision": np.sign(score).astype(int).ravel()} for name, score in scores.items()}


class TopK:
    """The top-k task for P patients.

    Attributes
    ----------
    order : (P, M) int64, order in which `TopKPlanner` chooses the features

    """

    def __init__(
        self, bundle: Bundle, cohort: Cohort, k_clinical: int, *, k: int, solver: Solver, threads: int | None
    ) -> None:
        bundle, values = bundle.contrasts(), cohort.values
        truth = full_observation(bundle, values, solver=solver)
        self._follow = partial(follow_rule, bundle, values, truth, k=k, solver=solver, threads=threads)
        self._own, self._threads = self._follow(allocation=top_k_rule(bundle), gain=GAIN), threads
        self._targets, self.order = Targets.of(truth, label_matrix(bundle, cohort), k, k_clinical), self._own.order

    def readouts(self, orders: Ints, seen: Ints) -> Mapping[str, Mapping[str, NDArray[Any]]]:
        """Return the precisions of the top k, for each score.

        The scores are computed after the first `seen` features of each order.

        Parameters
        ----------
        orders : (P, M) int64
        seen : (P, T) int64, numbers of observed features

        """
        paths = self._own if orders is self.order else self._follow(allocation="random", orders=orders)
        places = np.take_along_axis(paths.place, seen[:, :, None, None], axis=1)
        return {name: self.precisions(places[:, :, i]) for i, name in enumerate(READOUTS)}

    def constant(self, rounds: int) -> Mapping[str, Floats]:
        """Return the precisions of the best constant answer, which names the same k entities for all patients.

        Parameters
        ----------
        rounds : number of rounds at which the answer is evaluated

        """
        wanted = self._targets.sure + self._targets.tied * 0.5
        place = np.argsort(np.argsort(-wanted.sum(axis=0), kind="stable"), kind="stable")
        return self.precisions(np.broadcast_to(place, (len(wanted), rounds, len(place))).astype(np.int16))

    def precisions(self, place: NDArray[np.int16]) -> Mapping[str, Floats]:
        """Return the precision of the k highest-ranked entities, for each patient and round.

        Parameters
        ----------
        place : (P, T, N) int16, number of entities ranked before each entity

        Returns
        -------
        p_at_k : (P T,) float64 in [0, 1]
        clinical_p_at_k : (P T,) float64 in [0, 1], or NaN for a patient without a positive label

        """
        made = self._targets.precisions(place, self._threads)
        return {name: made[name].ravel() for name in ("p_at_k", "clinical_p_at_k")}


class BaselineSetting:
    """The patients that a protocol selects, and the planner's tasks for these patients.

    Attributes
    ----------
    tasks : tasks of the protocol. The key of a binary task is its entity, and the key of the top-k task is ""
    rounds : numbers of observed features at which decisions are evaluated

    """

    def __init__(
        self, bundle: Bundle, cohort: Cohort, protocol: Protocol, *, solver: Solver, threads: int | None = None
    ) -> None:
        self.bundle, self.protocol, self.rounds = bundle, protocol, protocol.rounds_of(len(bundle.features))
        self.patients = protocol.patients_of(cohort.patients)
        rows, names = [cohort.patients.index(name) for name in self.patients], tuple(self.patients)
        self.cohort = replace(cohort, patients=names, values=cohort.values[rows], labels=cohort.labels.iloc[rows])
        entities = protocol.entities_of(bundle) if BINARY in protocol.asked.tasks else []
        self.tasks: dict[str, OneTask | TopK] = {
            name: OneTask(bundle, name, self.cohort.values, solver, threads) for name in entities
        }
        if TOP_K in protocol.asked.tasks:
            clinical = clinical_k(label_matrix(bundle, cohort), protocol.k)
            self.tasks[""] = TopK(bundle, self.cohort, clinical, k=protocol.k, solver=solver, threads=threads)

    def orders(self, entity: str) -> Ints | None:
        """Return the orders in which features are observed, or None if the models choose features.

        Returns
        -------
        orders : (P, M) int64, or None

        """
        if not self.protocol.at_checkpoints:
            return None
        if self.protocol.asked.order != PLANNER:
            return random_orders(self.bundle.features, self.patients, [self.protocol.asked.seed])[:, 0]
        return self.tasks[entity].order

    def trials(self, briefed: Mapping[tuple[str, str, str], Briefing]) -> list[tuple[Trial, Briefing]]:
        """Return each trial with the fixed part of its prompts, in the order of `briefed`."""
        made = []
        for (method, task, entity), briefing in briefed.items():
            orders = self.orders(entity)
            for p, patient in enumerate(self.patients):
                values = dict(zip(self.bundle.features, map(int, self.cohort.values[p]), strict=True))
                order = None if orders is None else tuple(self.bundle.features[j] for j in orders[p])
                made.append((Trial(method, task, entity, patient, values, order), briefing))
        return made

    def readouts(self, entity: str, orders: Ints, evidence: str, observed: Sequence[int] | None = None) -> TableParts:
        """Yield one table of the planner's decisions for each score. The columns are `READOUT_COLUMNS`.

        Parameters
        ----------
        orders : (P, M) int64
        observed : (P,) number of features in each patient's order that were observed. At later rounds, the decision
            stays the same

        """
        most = np.full(len(self.patients), len(self.bundle.features)) if observed is None else np.array(observed)
        seen = np.minimum(np.array(self.rounds)[None, :], most[:, None])
        task = BINARY if entity else TOP_K
        keys: dict[str, Any] = {"task": task, "evidence": evidence, "entity": entity, "decided": True}
        for method, said in self.tasks[entity].readouts(orders, seen).items():
            yield rows_of(patient=self.patients, t=self.rounds).assign(method=method, **keys, **said)


def readouts(setting: BaselineSetting, dialogues: Sequence[TrialDialogue]) -> pd.DataFrame:
    """Return a table of the decisions of language models and planner at the evaluated rounds."""
    parts = [part for entity, one in setting.tasks.items() for part in setting.readouts(entity, one.order, PLANNER)]
    top_k = setting.tasks.get("")
    if isinstance(top_k, TopK) and not setting.protocol.at_checkpoints:
        same: dict[str, Any] = {
            "method": CONSTANT_ANSWER,
            "task": TOP_K,
            "evidence": CONSTANT_ANSWER,
            "entity": "",
            "decided": True,
        }
        keys = rows_of(patient=setting.patients, t=setting.rounds)
        parts.append(keys.assign(**same, **top_k.constant(len(setting.rounds))))
    done = {(PLANNER, entity) for entity in setting.tasks}
    for (method, _, entity), group in groupby(dialogues, lambda dialogue: dialogue.trial.key[:3]):
        own = list(group)
        evidence = setting.protocol.evidence_of(method)
        parts.append(_model_readouts(setting, own, evidence))
        if (evidence, entity) in done:
            continue
        done.add((evidence, entity))
        given = setting.orders(entity)
        orders = _complete_orders(setting.bundle, own) if given is None else given
        observed = None if entity else [len(dialogue.path) for dialogue in own]
        parts += setting.readouts(entity, orders, evidence, observed)
    return pd.concat([typed(READOUT_COLUMNS, part) for part in parts], ignore_index=True)


def _model_readouts(setting: BaselineSetting, dialogues: Sequence[TrialDialogue], evidence: str) -> pd.DataFrame:
    """Return a language model's decisions at the evaluated rounds.

    The precision of an answer without a valid top k is 0.
    """
    method, task, entity, _ = dialogues[0].trial.key
    shown = [[turn for turn in dialogue.turns if turn.t in set(setting.rounds)] for dialogue in dialogues]
    rows = [
        (method, task, evidence, entity, dialogue.trial.patient, turn.t, bool(turn.said.labels), turn.said.decision)
        for dialogue, turns in zip(dialogues, shown, strict=True)
        for turn in turns
    ]
    table = pd.DataFrame(rows, columns=READOUT_COLUMNS[:-2]).reindex(columns=READOUT_COLUMNS)
    one = setting.tasks[entity]
    if isinstance(one, TopK):
        place = np.array([[_entity_ranks(setting.bundle, turn.said.labels) for turn in turns] for turns in shown])
        for name, share in one.precisions(place.astype(np.int16)).items():
            table[name] = np.where(table["decided"] | np.isnan(share), share, 0.0)
    return table


def _entity_ranks(bundle: Bundle, labels: Sequence[str]) -> list[int]:
    """Return each entity's rank in a model's answer: the number of entities that are ranked before this entity.

    The entities that the answer names are ranked in the order of the answer. All entities that the answer does not name
    share the next rank (decisions.md S10).
    """
    place = {label: i for i, label in enumerate(labels)}
    return [place.get(entity, len(labels)) for entity in bundle.entities]


def _complete_orders(bundle: Bundle, dialogues: Sequence[TrialDialogue]) -> Ints:
    """Return, for each patient, an order of all M features that begins with the observed features, (P, M) int64."""
    index = {name: j for j, name in enumerate(bundle.features)}
    orders = [dict.fromkeys((*dialogue.path, *bundle.features)) for dialogue in dialogues]
    return np.array([[index[name] for name in order] for order in orders], dtype=np.int64)


def targets(setting: BaselineSetting) -> pd.DataFrame:
    """Return the true answers of the binary tasks, one row for each patient and entity.

    The column `likelihood` contains the sign of the score S at full observation (all features observed), or 0 for a
    tie. The column `clinical` contains the patient's label: 0, 1 or missing.
    """
    parts = [
        targets_of(setting.bundle, setting.cohort, entity, "differential", one.task.tie)
        for entity, one in setting.tasks.items()
        if isinstance(one, OneTask)
    ]
    columns = ("entity", "patient", "likelihood", "clinical")
    return typed(columns, joined(parts, columns))


def run_baselines(
    setting: BaselineSetting,
    source: AnswerSource,
    *,
    disease: str,
    abstracts: AbstractsOfPhenotype | None,
    before: Callable[[Sequence[tuple[Trial, Briefing]]], None] = lambda _: None,
    progress: bool = False,
) -> dict[str, pd.DataFrame]:
    """Run every trial and return the tables of the experiment.

    The tables do not depend on the order in which answers arrive.

    Parameters
    ----------
    before : function called with all trials before the first question

    Returns
    -------
    tables : `turns` has one row for each trial and turn. `faults` has one row for each invalid part of an answer.
        `calls` has one row for each attempt at a question of these turns. `readouts` has decisions and precisions at
        the evaluated rounds, for the models, and for every score of the planner along each order (`evidence`).
        `targets` has one row for each patient and entity. `protocol` has one row

    """
    bundle, protocol = setting.bundle, setting.protocol
    briefed = briefings(bundle, protocol, disease=disease, abstracts=abstracts)
    trials = setting.trials(briefed)
    before(trials)
    dialogues = follow_all([TrialDialogue(*trial, protocol).follow() for trial in trials], source, progress=progress)
    tables = {
        "turns": typed(TURN_COLUMNS, [row for dialogue in dialogues for row in _turn_rows(dialogue)]),
        "faults": typed(
            FAULT_COLUMNS, [{**_trial_keys(dialogue), **each} for dialogue in dialogues for each in dialogue.broken]
        ),
        "calls": typed(CALL_COLUMNS, [row for dialogue in dialogues for row in _call_rows(dialogue, source)]),
        "readouts": readouts(setting, dialogues),
        "targets": targets(setting),
        "protocol": _protocol(setting, disease),
    }
    return {name: table.assign(cohort=setting.cohort.name, bundle=bundle.name) for name, table in tables.items()}


def _trial_keys(dialogue: TrialDialogue) -> dict[str, Any]:
    return dict(zip(TRIAL_COLUMNS, dialogue.trial.key, strict=True))


def _turn_rows(dialogue: TrialDialogue) -> list[dict[str, Any]]:
    return [
        {**_trial_keys(dialogue), **vars(turn), **vars(turn.said), "labels": json.dumps(list(turn.said.labels))}
        for turn in dialogue.turns
    ]


def _call_rows(dialogue: TrialDialogue, source: AnswerSource) -> list[dict[str, Any]]:
    rows = []
    for t, asked, request in dialogue.requests:
        for entry in source.attempts(request):
            prompt, answer = (None, None) if isinstance(entry.tokens, str) else entry.tokens
            details = {"prompt_tokens": prompt, "answer_tokens": answer, "prompt": entry.question.prompt}
            details["parameters"] = json.dumps(entry.parameters, sort_keys=True)
            rows.append({**_trial_keys(dialogue), "t": t, "asked": asked, **vars(entry), **details})
    return rows


def _protocol(setting: BaselineSetting, disease: str) -> pd.DataFrame:
    protocol, asked = setting.protocol, setting.protocol.asked
    row = {
        "turns": asked.turns,
        "order": asked.order if protocol.at_checkpoints else "its own",
        "patients": len(setting.patients),
        "seed": asked.seed,
        "k": protocol.k,
        "answers": protocol.answers,
        "disease": disease,
        "features": len(setting.bundle.features),
        "top_k_rule": top_k_rule(setting.bundle),
        "horizon": asked.horizon,
    }
    return pd.DataFrame([row]).astype({"horizon": "Int64"})
