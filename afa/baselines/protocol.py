"""How language models are asked to plan: which of them, for what, before whom, and after how many observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from afa.bundle import Bundle
from afa.codedigest import DIGEST_LENGTH
from afa.elicit.prompts import prompt_digest
from afa.errors import ConfigError, Fault
from afa.orders import random_order

KNOWLEDGE: Mapping[str, str] = {"mrf_llm": "potentials", "rag_llm": "literature", "knowledge_llm": "literature"}
"""The prompt of each baseline: with the bundle's potentials, or with abstracts (app. llm-planning-prompts).

`knowledge_llm`, which is ours, has the prompt of `rag_llm` without any abstract: all it has is what the model knows.
"""
METHODS = ("mrf_llm", "rag_llm")
"""The paper's two."""
BINARY, TOP_K = TASKS = ("binary", "top_k")
PROMPTS: Mapping[str, str] = {BINARY: "binary", TOP_K: "multiclass"}
CHECKPOINTS, STATELESS, TRAJECTORY = TURNS = ("checkpoints", "stateless", "trajectory")
"""Asked at some rounds alone, along an order of ours; or each turn, without or with the earlier turns listed."""
PLANNER, RANDOM = ORDERS = ("planner", "random")
CONTROL = "control"


@dataclass(frozen=True)
class Protocol:
    """The protocol of the baselines.

    rounds : t at which answers are read out, beside 0 and M. order : whose features are observed where models are
    asked at checkpoints. patients : how many, drawn by `seed`. entities : of the binary task; all where empty.
    answers : a turn is asked at most so many times while its answer breaks a rule. horizon : observations after which a
    model that chooses is asked for the last time; None: all.

    Raises
    ------
    ConfigError : a word that is none of these, or a number out of its range.

    """

    methods: Sequence[str] = METHODS
    tasks: Sequence[str] = TASKS
    turns: str = CHECKPOINTS
    order: str = PLANNER
    rounds: Sequence[int] = (10, 50, 100, 150)
    patients: int = 10
    seed: int = 0
    entities: Sequence[str] = ()
    k: int = 5
    answers: int = 3
    horizon: int | None = None

    def __post_init__(self) -> None:
        for name, known in (("methods", tuple(KNOWLEDGE)), ("tasks", TASKS)):
            given = getattr(self, name)
            if not given or not set(given) <= set(known) or len(set(given)) < len(given):
                raise _wrong(name, ", ".join(given), f"distinct words of {', '.join(known)}")
        for name, known in (("turns", TURNS), ("order", ORDERS)):
            if getattr(self, name) not in known:
                raise _wrong(name, getattr(self, name), " or ".join(known))
        for name in ("patients", "answers", "k"):
            if getattr(self, name) < 1:
                raise _wrong(name, str(getattr(self, name)), "1 or more")
        if self.horizon is not None and (self.horizon < 1 or self.at_checkpoints):
            raise _wrong("horizon", f"{self.horizon}, turns {self.turns}", "1 or more, with turns of the model's own")

    @property
    def at_checkpoints(self) -> bool:
        return self.turns == CHECKPOINTS

    def last_of(self, n_features: int) -> int:
        """The last round at which a model is asked, of M features."""
        return n_features if self.horizon is None else min(self.horizon, n_features)

    def rounds_of(self, n_features: int) -> list[int]:
        """The rounds that are read out, ascending, of M features."""
        last = self.last_of(n_features)
        return sorted({0, last, *(t for t in self.rounds if 0 < t < last)})

    def patients_of(self, names: Sequence[str]) -> list[str]:
        """Those of a cohort who are asked about, in the cohort's order: drawn by name, so that a seed is a set."""
        drawn = random_order(names, patient="", seed=self.seed, experiment="llm_baselines")
        chosen = set(drawn[: self.patients].tolist())
        return [name for i, name in enumerate(names) if i in chosen]

    def entities_of(self, bundle: Bundle) -> list[str]:
        """The entities of the binary task, in the bundle's order."""
        chosen = {bundle.entities[bundle.index(name)] for name in self.entities} or set(bundle.entities)
        return [name for name in bundle.entities if name in chosen]

    def evidence_of(self, method: str) -> str:
        """The path along which a model observes: ours by name, or its own, by its name."""
        return self.order if self.at_checkpoints else method


def prompts_of(protocol: Protocol) -> list[str]:
    """The names of the prompts that are asked."""
    return [f"{PROMPTS[task]}_{KNOWLEDGE[method]}" for method in protocol.methods for task in protocol.tasks]


def prompt_digests() -> str:
    """A digest over the wordings of all these prompts."""
    names = [f"{PROMPTS[task]}_{knowledge}" for task in TASKS for knowledge in dict.fromkeys(KNOWLEDGE.values())]
    return "".join(prompt_digest(name)[:DIGEST_LENGTH] for name in names)


def random_orders(
    bundle: Bundle, patients: Sequence[str], seed: int
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """(P, M) one random order per patient: that of the other stages for this seed."""
    drawn = [random_order(bundle.features, patient=name, seed=seed) for name in patients]
    return np.array(drawn, dtype=np.int64).reshape(len(patients), len(bundle.features))


def _wrong(name: str, found: str, expected: str) -> ConfigError:
    return ConfigError(Fault(f"baselines, {name}", found, expected, "correct it"))
