"""What a language model reads before a patient: the condition or the candidates, and potentials or abstracts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from afa.baselines.protocol import BINARY, CONTROL, KNOWLEDGE, PROMPTS, TOP_K, Protocol
from afa.bundle import Bundle
from afa.elicit.answers import TEXT_LENGTH
from afa.errors import BundleError, ElicitationError, Fault

PER_PHENOTYPE = 2
"""Abstracts of each phenotype where the question is about all of them."""
Abstracts = Callable[[str], Sequence[Mapping[str, str]]]
"""What was retrieved on a phenotype: title, source and text of each abstract, the best first."""


@dataclass(frozen=True, eq=False)
class Briefing:
    """The part of a prompt that does not change from turn to turn.

    labels : what a decision may name, `control` first for a condition. size : how many labels a decision has.
    features : all M, in the order of names.
    """

    prompt: str
    told: Mapping[str, Any]
    labels: tuple[str, ...]
    size: int
    features: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Trial:
    """One patient before one model. order : whose features are observed, in this order; None where the model chooses.

    alias : the patient's name in prompts and records, from which nobody can tell a sample of a public series.
    """

    method: str
    task: str
    entity: str
    patient: str
    values: Mapping[str, int]
    order: tuple[str, ...] | None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Method, task, entity and patient."""
        return self.method, self.task, self.entity, self.patient

    @property
    def alias(self) -> str:
        return f"P{hashlib.sha256(self.patient.encode()).hexdigest()[:8]}"


def briefings(
    bundle: Bundle, protocol: Protocol, *, disease: str, abstracts: Abstracts | None
) -> dict[tuple[str, str, str], Briefing]:
    """By method, task and entity ("" for the top k).

    Raises
    ------
    BundleError : an entity named `control`. ElicitationError : `rag_llm` without a single abstract on its question.

    """
    if BINARY in protocol.tasks and CONTROL in bundle.entities:
        raise BundleError(Fault(f"bundle {bundle.name}", f"an entity {CONTROL}", "another name", "rename the entity"))
    made = {}
    for method in protocol.methods:
        for task in protocol.tasks:
            for entity in protocol.entities_of(bundle) if task == BINARY else [""]:
                about = [entity] if entity else list(bundle.entities)
                made[method, task, entity] = _briefing(
                    bundle, protocol, method, entity, {"disease": disease, **_told(bundle, method, about, abstracts)}
                )
    return made


def _briefing(bundle: Bundle, protocol: Protocol, method: str, entity: str, told: dict[str, Any]) -> Briefing:
    features = tuple(sorted(bundle.features))
    if entity:
        told |= {"condition": entity, "text_length": TEXT_LENGTH}
        return Briefing(f"{PROMPTS[BINARY]}_{KNOWLEDGE[method]}", told, (CONTROL, entity), 1, features)
    told |= {"labels": list(bundle.entities), "k": protocol.k}
    return Briefing(f"{PROMPTS[TOP_K]}_{KNOWLEDGE[method]}", told, bundle.entities, protocol.k, features)


def _told(bundle: Bundle, method: str, about: Sequence[str], abstracts: Abstracts | None) -> dict[str, Any]:
    """What a method reads about some entities."""
    if method == "mrf_llm":
        return _potentials(bundle, about)
    return _literature(about, abstracts) if method == "rag_llm" else {"abstracts": []}


def _potentials(bundle: Bundle, entities: Sequence[str]) -> dict[str, Any]:
    tables = []
    for entity in entities:
        v = bundle.index(entity)
        unary = [(bundle.features[j], float(bundle.unary[v, j])) for j in np.flatnonzero(bundle.unary[v])]
        pairs = zip(*bundle.packed.of(v), strict=True)
        pairwise = [(bundle.features[a], bundle.features[b], float(value)) for a, b, value in pairs]
        tables.append({"name": entity, "unary": unary, "pairwise": pairwise})
    return {"potentials": tables}


def _literature(entities: Sequence[str], abstracts: Abstracts | None) -> dict[str, Any]:
    """The abstracts on one phenotype, or the best few on each of several, none twice."""
    found: dict[str, Mapping[str, str]] = {}
    for entity in entities if abstracts is not None else ():
        own = list(abstracts(entity)) if abstracts is not None else []
        found |= {each["source"]: each for each in (own if len(entities) == 1 else own[:PER_PHENOTYPE])}
    if not found:
        about = entities[0] if len(entities) == 1 else "any phenotype"
        step = "run once live with retrieval, or leave rag_llm out of baselines.methods"
        raise ElicitationError(Fault("rag_llm", f"no abstract on {about}", "at least one", step))
    return {"abstracts": list(found.values())}
