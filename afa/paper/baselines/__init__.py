"""Settings and prompts for evaluating language models as planners.

`Protocol` selects the tasks, patients and rounds. `briefings` makes the fixed part of each prompt from the names of the
phenotypes and from potentials or abstracts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from afa.elicit.answers import TEXT_LENGTH
from afa.elicit.prompts import prompt_digest
from afa.errors import BundleError, ConfigError, ElicitationError, Fault
from afa.model.bundle import Bundle
from afa.model.orders import random_order
from afa.paper.codedigest import DIGEST_LENGTH

if TYPE_CHECKING:
    from afa.paper.config import Baselines

KNOWLEDGE: Mapping[str, str] = {"mrf_llm": "potentials", "rag_llm": "literature", "knowledge_llm": "literature"}
"""The prompt of each baseline: with the bundle's potentials, or with abstracts (app. llm-planning-prompts). The paper
does not have `knowledge_llm`, which uses the prompt of `rag_llm` without abstracts, so that the model has only its own
knowledge.
"""
BINARY, TOP_K = TASKS = ("binary", "top_k")
PROMPTS: Mapping[str, str] = {BINARY: "binary", TOP_K: "multiclass"}
CHECKPOINTS, TRAJECTORY = "checkpoints", "trajectory"
"""Two values of `turns`. `CHECKPOINTS`: the model is asked only at some rounds, and the order is given. `TRAJECTORY`:
the model is asked at each turn, and the prompt lists the earlier turns.
"""
PLANNER = "planner"
CONTROL = "control"
BASELINE_TABLES = ("turns", "faults", "calls", "readouts", "targets", "protocol")
"""Names of the tables that `afa experiment baselines` writes."""
CONSTANT_ANSWER = "fixed_top_k"
"""Name of a constant answer: the k entities that are most often in the top k at full observation."""


@dataclass(frozen=True)
class Protocol:
    """The settings of one evaluation of language models as planners.

    Parameters
    ----------
    asked : settings of the section `baselines`
    k : number of entities in a top-k answer
    answers : largest number of answers in one turn. While the answer breaks a rule, the question of the turn is
        repeated

    Raises
    ------
    ConfigError : a method or a task occurs twice, or a horizon is set although models do not choose features.

    """

    asked: Baselines
    k: int = 5
    answers: int = 3

    def __post_init__(self) -> None:
        for name, given in (("methods", self.asked.methods), ("tasks", self.asked.tasks)):
            if len(set(given)) < len(given):
                raise ConfigError(Fault(f"baselines, {name}", ", ".join(given), "each once", "correct it"))
        if self.asked.horizon is not None and self.at_checkpoints:
            expected, step = "turns of the model's own", "leave it out, or choose stateless or trajectory"
            raise ConfigError(Fault("baselines, horizon", f"turns {self.asked.turns}", expected, step))

    @property
    def at_checkpoints(self) -> bool:
        return self.asked.turns == CHECKPOINTS

    def last_of(self, n_features: int) -> int:
        """Return how many features are observed when a language model gets its last question."""
        return min(self.asked.horizon or n_features, n_features)

    def rounds_of(self, n_features: int) -> list[int]:
        """Return the numbers of observed features at which answers are evaluated, in ascending order."""
        last = self.last_of(n_features)
        return sorted({0, last, *(t for t in self.asked.rounds if 0 < t < last)})

    def patients_of(self, names: Sequence[str]) -> list[str]:
        """Return the names of the evaluated patients, in the order of the cohort.

        Patients are selected by a hash of their name and the seed, so that the same seed always selects the same
        patients.
        """
        drawn = random_order(names, patient="", seed=self.asked.seed, experiment="llm_baselines")
        chosen = set(drawn[: self.asked.patients].tolist())
        return [name for i, name in enumerate(names) if i in chosen]

    def entities_of(self, bundle: Bundle) -> list[str]:
        """Return the entities about which binary questions are asked, in the bundle's order."""
        chosen = {bundle.entities[bundle.index(name)] for name in self.asked.entities} or set(bundle.entities)
        return [name for name in bundle.entities if name in chosen]

    def evidence_of(self, method: str) -> str:
        """Return the name of the order in which features are observed.

        If the model chooses the features, the name is `method`.
        """
        return self.asked.order if self.at_checkpoints else method


def prompts_of(protocol: Protocol) -> list[str]:
    """Return the names of the prompt templates that the protocol uses."""
    return [
        f"{PROMPTS[task]}_{KNOWLEDGE[method]}" for method in protocol.asked.methods for task in protocol.asked.tasks
    ]


def prompt_digests() -> str:
    """Return one digest of the prompt templates of all methods and tasks."""
    names = [f"{PROMPTS[task]}_{knowledge}" for task in TASKS for knowledge in dict.fromkeys(KNOWLEDGE.values())]
    return "".join(prompt_digest(name)[:DIGEST_LENGTH] for name in names)


ABSTRACTS_PER_PHENOTYPE = 2
"""Number of abstracts on each phenotype in a question about all phenotypes."""
AbstractsOfPhenotype = Callable[[str], Sequence[Mapping[str, str]]]
"""Function that returns title, source and text of the abstracts on a phenotype, best first."""


@dataclass(frozen=True, eq=False)
class Briefing:
    """The fixed part of a task's prompts, which is the same in all turns of a dialogue.

    Parameters
    ----------
    facts : values of the template
    labels : labels that the language model may assign to the patient. For the question about one condition, `control`
        comes first
    size : number of labels that the language model must assign to the patient
    features : names of all M features, sorted

    """

    prompt: str
    facts: Mapping[str, Any]
    labels: tuple[str, ...]
    size: int
    features: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Trial:
    """A task in which one language model decides about one patient.

    Parameters
    ----------
    order : the order in which features are observed, or None if the model chooses

    """

    method: str
    task: str
    entity: str
    patient: str
    values: Mapping[str, int]
    order: tuple[str, ...] | None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Return the trial's key: (method, task, entity, patient)."""
        return self.method, self.task, self.entity, self.patient

    @property
    def alias(self) -> str:
        """Return a code that is used in prompts and recorded answers instead of the patient's public sample name."""
        return f"P{hashlib.sha256(self.patient.encode()).hexdigest()[:8]}"


def briefings(
    bundle: Bundle, protocol: Protocol, *, disease: str, abstracts: AbstractsOfPhenotype | None
) -> dict[tuple[str, str, str], Briefing]:
    """Return the fixed part of the prompts for each (method, task, entity).

    In the key of the top-k task, the entity is "".

    Raises
    ------
    BundleError : an entity has the name `control`.
    ElicitationError : `rag_llm` has no abstract on its question.

    """
    if BINARY in protocol.asked.tasks and CONTROL in bundle.entities:
        raise BundleError(Fault(f"bundle {bundle.name}", f"an entity {CONTROL}", "another name", "rename the entity"))
    made: dict[tuple[str, str, str], Briefing] = {}
    for method, task in product(protocol.asked.methods, protocol.asked.tasks):
        prompt, features = f"{PROMPTS[task]}_{KNOWLEDGE[method]}", tuple(sorted(bundle.features))
        for entity in protocol.entities_of(bundle) if task == BINARY else [""]:
            labels, size = ((CONTROL, entity), 1) if entity else (bundle.entities, protocol.k)
            values = {"disease": disease, **_knowledge(bundle, method, [entity] if entity else labels, abstracts)}
            values |= (
                {"condition": entity, "text_length": TEXT_LENGTH} if entity else {"labels": list(labels), "k": size}
            )
            made[method, task, entity] = Briefing(prompt, values, labels, size, features)
    return made


def _knowledge(
    bundle: Bundle, method: str, about: Sequence[str], abstracts: AbstractsOfPhenotype | None
) -> dict[str, Any]:
    """Return facts about some entities for a prompt: potentials (method `mrf_llm`) or abstracts (method `rag_llm`)."""
    if method != "mrf_llm":
        return {"abstracts": _literature(about, abstracts) if method == "rag_llm" else []}
    tables = []
    for entity in about:
        v = bundle.index(entity)
        unary = [(bundle.features[j], float(bundle.unary[v, j])) for j in np.flatnonzero(bundle.unary[v])]
        pairs = zip(*bundle.packed.of(v), strict=True)
        pairwise = [(bundle.features[a], bundle.features[b], float(value)) for a, b, value in pairs]
        tables.append({"name": entity, "unary": unary, "pairwise": pairwise})
    return {"potentials": tables}


def _literature(entities: Sequence[str], abstracts: AbstractsOfPhenotype | None) -> list[Mapping[str, str]]:
    """Return the abstracts about some phenotypes, without duplicates.

    If there is only one phenotype, all abstracts about this phenotype are returned. If there are several phenotypes,
    only the `ABSTRACTS_PER_PHENOTYPE` best abstracts about each phenotype are returned.
    """
    found: dict[str, Mapping[str, str]] = {}
    for entity in entities:
        own = [] if abstracts is None else list(abstracts(entity))
        found |= {each["source"]: each for each in (own if len(entities) == 1 else own[:ABSTRACTS_PER_PHENOTYPE])}
    if not found:
        about = entities[0] if len(entities) == 1 else "any phenotype"
        step = "run once live with retrieval, or leave rag_llm out of baselines.methods"
        raise ElicitationError(Fault("rag_llm", f"no abstract on {about}", "at least one", step))
    return list(found.values())
