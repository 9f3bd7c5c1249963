"""The stage of the language models that plan: trials of a protocol, followed to their ends, and tables of all of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from afa.baselines import Abstracts, Briefing, Trial, briefings
from afa.baselines.asked import Source, follow_all
from afa.baselines.course import Course, follow
from afa.baselines.readouts import Setting, readouts, targets, top_k_rule, typed

TABLES = ("turns", "faults", "calls", "readouts", "targets", "protocol")
KEYS = ["method", "task", "entity", "patient"]
TURNS = [*KEYS, "t", "outcome", "asked", "decision", "probability", "labels", "done", "pick", "pick_fault"]
TURNS += ["label_fault", "measured", "by_rule"]
FAULTS = [*KEYS, "t", "asked", "part", "kind"]
CALLS = [*KEYS, "t", "asked", "attempt", "outcome", "prompt_tokens", "answer_tokens", "model", "served_model"]
CALLS += ["prompt", "prompt_digest", "parameters", "time"]


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
        "turns": typed(TURNS, [row for course in courses for row in _turns(course)]),
        "faults": typed(FAULTS, [{**_keys(course), **vars(each)} for course in courses for each in course.broken]),
        "calls": typed(CALLS, [row for course in courses for row in _calls(course, source)]),
        "readouts": readouts(setting, courses),
        "targets": targets(setting),
        "protocol": _protocol(setting, disease),
    }
    return {name: table.assign(cohort=setting.cohort.name, bundle=bundle.name) for name, table in tables.items()}


def _keys(course: Course) -> dict[str, Any]:
    return dict(zip(KEYS, course.trial.key, strict=True))


def _turns(course: Course) -> list[dict[str, Any]]:
    return [
        {**_keys(course), **vars(turn), **vars(turn.said), "labels": json.dumps(list(turn.said.labels))}
        for turn in course.turns
    ]


def _calls(course: Course, source: Source) -> list[dict[str, Any]]:
    rows = []
    for t, asked, request in course.requests:
        for entry in source.attempts(request):
            prompt, answer = (None, None) if isinstance(entry.tokens, str) else entry.tokens
            told = {"prompt_tokens": prompt, "answer_tokens": answer, "prompt": entry.question.prompt}
            told["parameters"] = json.dumps(entry.parameters, sort_keys=True)
            rows.append({**_keys(course), "t": t, "asked": asked, **vars(entry), **told})
    return rows


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
