"""The answers of a record as tables and arrays, each wording of a question by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.elicit.record import Entry, Record
from afa.elicit.study import ANCHOR, PAIR_PROMPTS, PAIRWISE, UNARY, Study
from afa.elicit.tables import SIGN, genes_named, pairs_judged, usable_genes
from afa.errors import ElicitationError, Fault

NAMED = ["wording", "run", "entity", "feature", "sign", "lit_prob"]
JUDGED = ["wording", "entity", "feature_a", "feature_b", "sign", "lit_prob"]
ASKED = ["prompt", "wording", "entity", "asked", "answered"]
OTHER_BUNDLE = "build the bundle from this record, or leave the record out"


@dataclass(frozen=True)
class Answers:
    """What a record holds, for the phenotypes and runs of its study, in their order.

    named : columns `NAMED`, one row per gene that an answer names, sign +1 or -1. judged : columns `JUDGED`, one row
    per pair, sign +1, -1 or 0, genes of a pair in the order of their names. asked : columns `ASKED`, how many unary
    answers (of as many runs) or pairs there are. wording : digest of the template asked with, or `unknown`.
    """

    entities: tuple[str, ...]
    runs: tuple[str, ...]
    named: pd.DataFrame
    judged: pd.DataFrame
    asked: pd.DataFrame

    def wordings(self, prompt: str) -> list[str]:
        """Wordings of a prompt that have an answer, by name."""
        of_prompt = self.asked[(self.asked["prompt"] == prompt) & (self.asked["answered"] > 0)]
        return sorted(of_prompt["wording"].unique())


@dataclass(frozen=True)
class Votes:
    """The unary answers to one wording: `signs` (E, R, G) is +1 or -1 where a run names a gene, else 0.

    Entities are those that every run has answered for.
    """

    wording: str
    entities: tuple[str, ...]
    runs: tuple[str, ...]
    signs: NDArray[np.int64]


def read_answers(study: Study, record: str | Path, counting: Collection[str] = ()) -> Answers:
    """The answers of a record to the questions of a study.

    counting : digests of the answers that the bundle is made of (`afa.elicit.record.Entry.digest`). Where a question
    has several answers in one wording, as of two models, the one among these counts; without one the question has no
    answer in this wording.

    Raises
    ------
    ElicitationError : faults of the record.

    """
    names = set(study.names)
    entries = [entry for entry in Record(Path(record)).entries() if entry.question.values.get("phenotype") in names]
    unary, asked_genes = _by_wording(entries, study, UNARY, counting)
    pairwise, asked_pairs = _by_wording(entries, study, PAIRWISE, counting)
    named = [_named(found, study).assign(wording=wording) for wording, found in unary.items()]
    judged = [_judged(found).assign(wording=wording) for wording, found in pairwise.items()]
    return Answers(
        entities=tuple(study.names),
        runs=study.settings.voters,
        named=_joined(named, NAMED),
        judged=_joined(judged, JUDGED),
        asked=_joined([asked_genes, asked_pairs], ASKED),
    )


def votes(answers: Answers) -> list[Votes]:
    """The unary answers as arrays, wording by wording, on all genes that the record names, by name."""
    genes = sorted(answers.named["feature"].unique())
    column = {gene: place for place, gene in enumerate(genes)}
    asked = answers.asked[(answers.asked["prompt"] == UNARY) & (answers.asked["answered"] == len(answers.runs))]
    tables = []
    for wording in answers.wordings(UNARY):
        complete = set(asked.loc[asked["wording"] == wording, "entity"])
        entities = tuple(entity for entity in answers.entities if entity in complete)
        signs = np.zeros((len(entities), len(answers.runs), len(genes)), dtype=np.int64)
        own = answers.named[(answers.named["wording"] == wording) & answers.named["entity"].isin(complete)]
        place = (own["entity"].map(entities.index), own["run"].map(answers.runs.index), own["feature"].map(column))
        signs[tuple(codes.to_numpy(np.int64) for codes in place)] = own["sign"].to_numpy(np.int64)
        tables.append(Votes(wording, entities, answers.runs, signs))
    return tables


def check_of_record(bundle: Bundle, answers: Answers) -> None:
    """An `ElicitationError` where a unary potential of the bundle has another sign than every answer, or none."""
    signs = {(row.entity, row.feature, row.sign) for row in answers.named.itertuples()}
    for index, entity in enumerate(bundle.entities):
        for place in np.flatnonzero(bundle.unary[index]):
            feature, sign = bundle.features[place], int(np.sign(bundle.unary[index, place]))
            if (entity, feature, sign) not in signs:
                where, found = f"bundle {bundle.name}, {entity}, {feature}", f"sign {sign:+d}, in no answer"
                raise ElicitationError(Fault(where, found, "a potential that the record's answers give", OTHER_BUNDLE))


def _by_wording(
    entries: Sequence[Entry], study: Study, prompt: str, counting: Collection[str]
) -> tuple[dict[str, list[Entry]], pd.DataFrame]:
    """The answers to each wording of a prompt, at most one per question, and how many there are by phenotype.

    Pairs are counted however they were asked for: one by one, by anchor, or by conditional probabilities.
    """
    kinds = {UNARY} if prompt == UNARY else set(PAIR_PROMPTS.values())
    of_prompt = [entry for entry in entries if entry.question.prompt in kinds]
    found, counts = {}, []
    for wording in sorted({entry.prompt_digest for entry in of_prompt}):
        own = [entry for entry in of_prompt if entry.prompt_digest == wording]
        if prompt == UNARY:
            own = [entry for entry in own if entry.question.run in study.settings.voters]
        by_question: dict[tuple[object, ...], list[Entry]] = {}
        for entry in own:
            by_question.setdefault(entry.question.name, []).append(entry)
        chosen = [_chosen(attempts, counting) for attempts in by_question.values()]
        found[wording] = [entry for entry in chosen if entry is not None]
        asked = [name for attempts in by_question.values() for name in _each(attempts[0])]
        answered = [name for entry in found[wording] for name in _each(entry)]
        count = pd.DataFrame({"entity": study.names, "prompt": prompt, "wording": wording})
        count["asked"] = len(study.settings.voters) if prompt == UNARY else _counted(asked, study.names)
        counts.append(count.assign(answered=_counted(answered, study.names)))
    return found, _joined(counts, ASKED)


def _chosen(attempts: Sequence[Entry], counting: Collection[str]) -> Entry | None:
    """The one answer among the attempts at a question; of several the one that counts."""
    answered = list({entry.key: entry for entry in attempts[::-1] if entry.outcome == "answered"}.values())
    if len(answered) > 1:
        answered = [entry for entry in answered if entry.digest in counting]
    return answered[0] if len(answered) == 1 else None


def _each(entry: Entry) -> list[str]:
    """The phenotype of a question, once for each pair that it is about."""
    values = entry.question.values
    return [values["phenotype"]] * (len(values["partners"].split()) if entry.question.prompt == ANCHOR else 1)


def _counted(names: Iterable[str], order: Sequence[str]) -> NDArray[np.int64]:
    counts = Counter(names)
    return np.array([counts[name] for name in order], dtype=np.int64)


def _named(entries: Sequence[Entry], study: Study) -> pd.DataFrame:
    usable, _ = usable_genes(genes_named(entries), **study.usable)
    renamed = usable.rename(columns={"phenotype": "entity", "gene": "feature"})
    return renamed.assign(sign=renamed["direction"].map(SIGN).astype(np.int64))


def _judged(entries: Sequence[Entry]) -> pd.DataFrame:
    pairs = pairs_judged(entries).rename(columns={"phenotype": "entity"})
    genes = pairs[["gene_a", "gene_b"]].to_numpy(dtype=object)
    ordered = np.array([sorted(pair) for pair in genes], dtype=object).reshape(-1, 2)
    return pairs.assign(feature_a=ordered[:, 0], feature_b=ordered[:, 1])


def _joined(tables: Iterable[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    filled = [table for table in tables if len(table)]
    whole = pd.concat(filled, ignore_index=True) if filled else pd.DataFrame()
    return whole.reindex(columns=list(columns))
