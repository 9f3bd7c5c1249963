"""A small study and cohort for the LLM planners, abstracts at hand, and scripted models that plan well or badly."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
from elicit.llm_script import line, schema
from elicit.llm_server import Document, Reply, Script

from afa.cohort.cohort import Cohort
from afa.elicit.abstracts import Abstract, AbstractCache, Search
from afa.elicit.search import query_on

PATIENTS = 2
"""So many of the cohort are asked about: each costs a call for every model, task and round."""
DISEASE = "colitis"
CONTROL = "control"


def small_cohort(features, entities) -> Cohort:
    """Seven patients; `PATIENTS` are asked about. The last entity has no label."""
    values = np.random.default_rng(3).integers(-1, 2, (7, len(features))).astype(np.int8)
    names = [f"GSM90{i}" for i in range(7)]
    given = np.random.default_rng(4).integers(0, 2, (7, len(entities) - 1))
    labels = pd.DataFrame(given, index=names, columns=list(entities[:-1])).astype("Int8")
    return Cohort("small", tuple(features), tuple(names), values, labels)


def write_study(folder: Path, entities) -> Path:
    """A study whose only use here is its disease and its manner of asking."""
    folder.mkdir()
    (folder / "study.yaml").write_text(f"name: small\ndisease: {DISEASE}\ntissue: colon\nmanner: {{answers: 2}}\n")
    rows = "".join(f"{entity},none,\n" for entity in entities)
    (folder / "phenotypes.csv").write_text("phenotype,group,definition\n" + rows)
    return folder


def keep_abstracts(record: Path, entities) -> None:
    """Put one abstract on each entity where a run looks before it searches."""
    cache = AbstractCache(record / "retrieved")
    for number, entity in enumerate(entities, start=1):
        query = query_on((), (entity,), (DISEASE,))
        abstract = Abstract("pubmed", str(number), f"On {entity}", 2020, "Gut", f"Genes of {entity} rise.")
        cache.keep(Search("pubmed", query.written("pubmed"), 50, "2026-01-01", 1, (abstract,)))
        cache.keep(Search("preprint", query.written("preprint"), 50, "2026-01-01", 0, ()))


def sensible(document: Document) -> str:
    """Measures by the largest potential, and decides by the sum of those that agree with what was measured."""
    potentials, observed = _potentials(document), _observed(document)
    unobserved = _unobserved(document)
    worth = {name: sum(abs(unary.get(name, 0.0)) for unary in potentials.values()) for name in unobserved}
    pick = max(sorted(worth), key=worth.__getitem__) if worth else None
    score = {e: sum(p * observed.get(f, 0) for f, p in unary.items()) for e, unary in potentials.items()}
    return _answer(document, pick, score)


def refuses(_: Document) -> Reply:
    """Refuses everything."""
    return Reply(refusal="I give no medical advice.")


def picks(name: str | None) -> Script:
    """Decides well and always picks the same."""

    def script(document: Document) -> str:
        return json.dumps({**json.loads(sensible(document)), "next_gene_to_measure": name})

    return script


def with_changes(**changes) -> Script:
    """Plans well, but for these keys, where its answer has them."""

    def script(document: Document) -> str:
        answer = json.loads(sensible(document))
        return json.dumps({**answer, **{key: value for key, value in changes.items() if key in answer}})

    return script


def done_after(t: int) -> Script:
    """Plans well, and ends the measuring after so many observations."""

    def script(document: Document) -> str:
        answer = json.loads(sensible(document))
        return json.dumps({**answer, **({"done": True} if "done" in answer and len(_observed(document)) >= t else {})})

    return script


def _answer(document: Document, pick: str | None, score: dict[str, float]) -> str:
    answer = {"patient_id": line(document, "Patient"), "next_gene_to_measure": pick}
    if schema(document) == "BinaryTurn":
        condition = re.search(r"`control` or\s+`([^`]+)`", document["messages"][0]["content"]).group(1)
        probability = 1 / (1 + math.exp(-score.get(condition, 0.0)))
        answer |= {"top_k_labels": [condition if probability >= 0.5 else CONTROL], "lit_prob": probability}
        return json.dumps({**answer, "supporting_text": "By the potentials."})
    k, labels = _candidates(document)
    ranked = sorted(labels, key=lambda label: (-score.get(label, 0.0), label))
    return json.dumps({**answer, "top_k_labels": ranked[:k], "done": False})


def _candidates(document: Document) -> tuple[int, list[str]]:
    found = re.search(r"exactly (\d+) phenotypes.*?:\n(.*?)\n- ", document["messages"][0]["content"], re.DOTALL)
    return int(found.group(1)), [label.strip() for label in found.group(2).split("\n")]


def _potentials(document: Document) -> dict[str, dict[str, float]]:
    text, tables = document["messages"][0]["content"], {}
    for entity, singles in re.findall(r"^(\S+)\n  single: (.*)$", text, re.MULTILINE):
        tables[entity] = {f: float(v) for f, v in (part.rsplit(" ", 1) for part in singles.split(", ") if " " in part)}
    return tables


def _observed(document: Document) -> dict[str, int]:
    found = re.search(r"^Observed .*?measurement: (.*)$", document["messages"][1]["content"], re.MULTILINE).group(1)
    return {f: int(v) for f, v in (part.split("=") for part in found.split(", ") if "=" in part)}


def _unobserved(document: Document) -> list[str]:
    rest = re.search(r"^Unobserved .*?: (.*)$", document["messages"][1]["content"], re.MULTILINE).group(1)
    return [] if rest == "nothing is left" else rest.split(", ")
