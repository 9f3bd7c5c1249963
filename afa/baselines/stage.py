"""The stage of the language models that plan: trials of a protocol, followed to their ends, and tables of all of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from afa.baselines.asked import Source, follow_all
from afa.baselines.briefing import Abstracts, Briefing, Trial, briefings
from afa.baselines.course import Course, follow
from afa.baselines.ours import top_k_rule
from afa.baselines.readouts import readouts, targets
from afa.baselines.setting import Setting
from afa.elicit.record import Entry

TABLES = ("turns", "faults", "calls", "readouts", "targets", "protocol")
KEYS = ["method", "task", "entity", "patient", "t"]
TURN_COLUMNS = {
    **dict.fromkeys(KEYS[:-1], "str"),
    "t": "int32",
    "outcome": "str",
    "asked": "int32",
    "decision": "Int8",
    "probability": "Float64",
    "labels": "str",
    "done": "bool",
    "pick": "str",
    "pick_fault": "str",
    "label_fault": "str",
    "measured": "str",
    "by_rule": "bool",
}
FAULT_COLUMNS = {**dict.fromkeys(KEYS[:-1], "str"), "t": "int32", "asked": "int32", "part": "str", "kind": "str"}
CALL_COLUMNS = {
    **dict.fromkeys(KEYS[:-1], "str"),
    "t": "int32",
    "asked": "int32",
    "attempt": "int32",
    "outcome": "str",
    "prompt_tokens": "Int64",
    "answer_tokens": "Int64",
    "model": "str",
    "served_model": "str",
    "prompt": "str",
    "prompt_digest": "str",
    "parameters": "str",
    "time": "str",
}


def run_baselines(
    setting: Setting,
    source: Source,
    *,
    disease: str,
    abstracts: Abstracts | None,
    before: Callable[[Sequence[tuple[Trial, Briefing]]], None] = lambda _: None,
    progress: bool = False,
) -> dict[str, pd.DataFrame]:
    """Follow every trial; `before` hears of them before anything is asked.

    Returns `turns` (one row per trial and turn), `faults` (per broken part of an answer), `calls` (per call that was
    ever made for these turns), `readouts` (decisions and precisions at the rounds read out: of the models, and of every
    score of the planner along each path of `evidence`), `targets` (per patient and entity) and `protocol` (one row).
    The tables hang on what was answered, not on whether it was answered now.
    """
    bundle, protocol = setting.bundle, setting.protocol
    told = briefings(bundle, protocol, disease=disease, abstracts=abstracts)
    trials = setting.trials(told)
    before(trials)
    courses = follow_all([follow(trial, briefing, protocol) for trial, briefing in trials], source, progress=progress)
    tables = {
        "turns": _table(TURN_COLUMNS, [row for course in courses for row in _turns(course)]),
        "faults": _table(FAULT_COLUMNS, [row for course in courses for row in _faults(course)]),
        "calls": _table(CALL_COLUMNS, [row for course in courses for row in _calls(course, source)]),
        "readouts": readouts(setting, courses),
        "targets": targets(setting),
        "protocol": _protocol(setting, disease),
    }
    return {name: table.assign(cohort=setting.cohort.name, bundle=bundle.name) for name, table in tables.items()}


def _table(columns: Mapping[str, str], rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(columns)).astype(dict(columns))


def _turns(course: Course) -> list[tuple[Any, ...]]:
    return [
        (
            *course.trial.key,
            turn.t,
            turn.outcome,
            turn.asked,
            turn.said.decision,
            turn.said.probability,
            json.dumps(list(turn.said.labels)),
            turn.said.done,
            turn.said.pick,
            turn.said.pick_fault,
            turn.said.label_fault,
            turn.measured,
            turn.by_rule,
        )
        for turn in course.turns
    ]


def _faults(course: Course) -> list[tuple[Any, ...]]:
    return [(*course.trial.key, each.t, each.asked, each.part, each.kind) for each in course.broken]


def _calls(course: Course, source: Source) -> list[tuple[Any, ...]]:
    return [
        (*course.trial.key, t, asked, *_call(entry))
        for t, asked, request in course.requests
        for entry in source.attempts(request)
    ]


def _call(entry: Entry) -> tuple[Any, ...]:
    prompt, answer = (None, None) if isinstance(entry.tokens, str) else entry.tokens
    parameters = json.dumps(entry.parameters, sort_keys=True)
    model = (entry.model, entry.served_model, entry.question.prompt, entry.prompt_digest, parameters, entry.time)
    return entry.attempt, entry.outcome, prompt, answer, *model


def _protocol(setting: Setting, disease: str) -> pd.DataFrame:
    protocol = setting.protocol
    row = {
        "turns": protocol.turns,
        "order": protocol.order if protocol.at_checkpoints else "its own",
        "patients": len(setting.patients),
        "seed": protocol.seed,
        "k": protocol.k,
        "answers": protocol.answers,
        "disease": disease,
        "features": len(setting.bundle.features),
        "top_k_rule": top_k_rule(setting.bundle),
        "horizon": protocol.horizon,
    }
    return pd.DataFrame([row]).astype({"horizon": "Int64"})
