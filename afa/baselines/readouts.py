"""Decisions and precisions at the rounds read out, of language models and planner, and what they are held against."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from afa.baselines.course import Course
from afa.baselines.ours import READOUT_COLUMNS, Orders
from afa.baselines.protocol import BINARY, PLANNER, TOP_K
from afa.baselines.setting import Setting, labels_of
from afa.bundle import Bundle

_READOUT_TYPES = {
    **dict.fromkeys(("method", "task", "evidence", "entity", "patient"), "str"),
    "t": "int32",
    "decided": "bool",
    "decision": "Int8",
    "p_at_k": "Float64",
    "clinical_p_at_k": "Float64",
}


def readouts(setting: Setting, courses: Sequence[Course]) -> pd.DataFrame:
    """What models and planner say at the rounds read out."""
    rounds, patients, parts = setting.rounds, setting.patients, list[pd.DataFrame]()
    by_trial: dict[tuple[str, str, str], list[Course]] = {}
    for course in courses:
        by_trial.setdefault(course.trial.key[:3], []).append(course)
    parts += [one.readouts(patients, one.order, rounds, PLANNER) for one in setting.by_entity.values()]
    if setting.top_k is not None:
        parts.append(setting.top_k.readouts(patients, None, rounds, PLANNER))
    done = {(PLANNER, task, entity) for task in (BINARY, TOP_K) for entity in ("", *setting.by_entity)}
    for (method, task, entity), own in by_trial.items():
        evidence = setting.protocol.evidence_of(method)
        parts.append(_of_model(setting, own, evidence))
        if (evidence, task, entity) in done:
            continue
        done.add((evidence, task, entity))
        given = setting.orders(task, entity)
        orders = _completed(setting.bundle, own) if given is None else given
        if entity:
            parts.append(setting.by_entity[entity].readouts(patients, orders, rounds, evidence))
        elif setting.top_k is not None:
            seen = np.array([len(course.path) for course in own])
            parts.append(setting.top_k.readouts(patients, orders, rounds, evidence, observed=seen))
    whole = pd.concat([part.astype(_READOUT_TYPES) for part in parts], ignore_index=True)
    return whole[READOUT_COLUMNS]


def _of_model(setting: Setting, courses: Sequence[Course], evidence: str) -> pd.DataFrame:
    """What a model decided at the rounds read out; missing, and of precision 0, where it decided nothing."""
    method, task, entity, _ = courses[0].trial.key
    shown = [[turn for turn in course.turns if turn.t in set(setting.rounds)] for course in courses]
    keys = [(method, task, evidence, entity, course.trial.patient) for course in courses]
    rows = [
        (*key, turn.t, bool(turn.said.labels), turn.said.decision)
        for key, turns in zip(keys, shown, strict=True)
        for turn in turns
    ]
    table = pd.DataFrame(rows, columns=READOUT_COLUMNS[:-2]).reindex(columns=READOUT_COLUMNS)
    if setting.top_k is not None and not entity:
        place = np.array([[_places(setting.bundle, turn.said.labels) for turn in turns] for turns in shown])
        for name, share in setting.top_k.precisions(place.astype(np.int16)).items():
            table[name] = np.where(table["decided"] | np.isnan(share), share, 0.0)
    return table


def _places(bundle: Bundle, labels: Sequence[str]) -> list[int]:
    """Entities ahead of each: the labels in their order, and all others equal behind them (decisions.md S10)."""
    place = {label: i for i, label in enumerate(labels)}
    return [place.get(entity, len(labels)) for entity in bundle.entities]


def _completed(bundle: Bundle, courses: Sequence[Course]) -> Orders:
    """(P, M) the features that were observed in their order, then those that were not."""
    index = {name: j for j, name in enumerate(bundle.features)}
    rest = [[name for name in bundle.features if name not in set(course.path)] for course in courses]
    orders = [[index[name] for name in (*course.path, *others)] for course, others in zip(courses, rest, strict=True)]
    return np.array(orders, dtype=np.int64)


def targets(setting: Setting) -> pd.DataFrame:
    """By patient and entity: `likelihood`, the sign of S at full observation, 0 a tie; `clinical`, 0, 1 or missing."""
    parts = []
    labels = labels_of(setting.bundle, setting.cohort, setting.patients)
    for entity, task in setting.by_entity.items():
        mrf = setting.bundle.mrf(entity)
        score = np.array([mrf.energy(values) for values in setting.values])
        sign = np.sign(np.where(np.abs(score) <= 2 * task.task.tie, 0.0, score)).astype(np.int8)
        clinical = pd.Series(labels[:, setting.bundle.index(entity)]).astype("Int8")
        parts.append(
            pd.DataFrame({"entity": entity, "patient": setting.patients, "likelihood": sign, "clinical": clinical})
        )
    columns = {"entity": "str", "patient": "str", "likelihood": "Int8", "clinical": "Int8"}
    whole = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(columns))
    return whole.astype(columns)
