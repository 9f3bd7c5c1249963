"""The answers of a record as tables and arrays, each wording of a question by itself, and how far they agree.

They agree over runs, against other phenotypes, by the number of runs, and over wordings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.elicit.record import Entry, Record
from afa.elicit.study import ANCHOR, PAIR_PROMPTS, PAIRWISE, UNARY, Study
from afa.elicit.tables import SIGN, genes_named, pairs_judged, usable_genes
from afa.errors import ElicitationError, Fault
from afa.orders import generator_of
from afa.stats.tables import joined

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
    named, judged = [], []
    for wording, found in unary.items():
        usable, _ = usable_genes(genes_named(found), **study.usable)
        genes = usable.rename(columns={"phenotype": "entity", "gene": "feature"})
        named.append(genes.assign(sign=genes["direction"].map(SIGN).astype(np.int64), wording=wording))
    for wording, found in pairwise.items():
        pairs = pairs_judged(found).rename(columns={"phenotype": "entity"})
        first, second = np.sort(pairs[["gene_a", "gene_b"]].to_numpy(dtype=object), axis=1).T
        judged.append(pairs.assign(feature_a=first, feature_b=second, wording=wording))
    return Answers(
        entities=tuple(study.names),
        runs=study.settings.voters,
        named=joined(named, NAMED),
        judged=joined(judged, JUDGED),
        asked=joined([asked_genes, asked_pairs], ASKED),
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
    return found, joined(counts, ASKED)


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


Counts = NDArray[np.int64]
ALL_ORDERS = 5
"""Most runs of which every order is taken; of more, `DRAWN_ORDERS` stand for all."""
DRAWN_ORDERS = 200


def record_agreement(answers: Answers) -> dict[str, pd.DataFrame]:
    """The tables `asked`, `answers`, `overlap`, `baseline`, `kept`, `stability` and `wordings` of a record.

    `answers`, a row per gene that an answer names: `named_by` runs for the phenotype, of which `same` others with its
    direction, and for how many `phenotypes` the record names the gene at all.

    `overlap`, by (wording, entity, run_a, run_b): genes that both runs name (`shared`), that either does (`union`), and
    shared ones with one direction (`same`). `baseline` has the same counts of a run's answer for an entity against all
    other runs' answers for all other entities, summed: what agreement there is without an answer's own question.

    `kept`, by (wording, entity, runs, min_agree): genes that a consensus of the first `runs` keeps, summed over orders
    of the runs. `stability`: genes kept with one sign by both of two such consensuses, and by either. The other one is
    of the last `other_runs`, which has `shared_runs` in common with the first, or of all runs.

    `wordings`, by prompt, two wordings and entity: the counts of `overlap` for runs asked twice, summed; for pairs,
    those judged twice, those with one sign, and how many that would be by the shares of the signs alone.
    """
    found, named, question = votes(answers), answers.named, ["wording", "entity", "feature"]
    times, phenotypes = named.groupby(question)["run"], named.groupby("feature")["entity"]
    alike = named.groupby([*question, "sign"])["run"].transform("size")
    consensuses = [part for each in found for part in _consensuses(each)]
    return {
        "asked": answers.asked,
        "answers": named.assign(
            named_by=times.transform("size"), same=alike - 1, phenotypes=phenotypes.transform("nunique")
        ),
        "overlap": joined(part for each in found for part in _overlap(each)),
        "baseline": joined(map(_baseline, found)),
        **{name: joined(part for key, part in consensuses if key == name) for name in ("kept", "stability")},
        "wordings": joined([*_gene_wordings(found), *_pair_wordings(answers)]),
    }


def run_orders(n_runs: int) -> list[tuple[int, ...]]:
    """Orders of the runs: all of them, or drawn ones where there are too many."""
    if n_runs <= ALL_ORDERS:
        return list(permutations(range(n_runs)))
    generator = generator_of("elicitation_health", "orders", n_runs)
    return [tuple(generator.permutation(n_runs).tolist()) for _ in range(DRAWN_ORDERS)]


def _overlap(held: Votes) -> Iterator[pd.DataFrame]:
    for a, b in combinations(range(len(held.runs)), 2):
        counts = _shared(held.signs[:, a], held.signs[:, b])
        table = pd.DataFrame({"entity": held.entities, **counts})
        yield table.assign(wording=held.wording, run_a=held.runs[a], run_b=held.runs[b])


def _baseline(held: Votes) -> pd.DataFrame:
    n = len(held.entities)
    totals = {name: np.zeros(n, dtype=np.int64) for name in ("shared", "union", "same")}
    for a, b in permutations(range(len(held.runs)), 2):
        one, other = held.signs[:, a], held.signs[:, b]
        sizes = np.abs(one).sum(axis=1)[:, None] + np.abs(other).sum(axis=1)[None, :]
        shared = np.abs(one) @ np.abs(other).T
        same = (shared + one @ other.T) // 2
        for name, counts in (("shared", shared), ("union", sizes - shared), ("same", same)):
            totals[name] += np.where(np.eye(n, dtype=bool), 0, counts).sum(axis=1)
    return pd.DataFrame({"wording": held.wording, "entity": held.entities, **totals})


def _consensuses(held: Votes) -> Iterator[tuple[str, pd.DataFrame]]:
    orders, n = run_orders(len(held.runs)), len(held.runs)
    same_for_all = {"wording": held.wording, "entity": held.entities, "orders": len(orders)}
    for runs, min_agree in ((few, agree) for few in range(1, n + 1) for agree in range(1, few + 1)):
        of: dict[str, Any] = {**same_for_all, "runs": runs, "min_agree": min_agree}
        one = np.stack([_first(held, order, runs, min_agree) for order in orders], axis=1)
        yield "kept", pd.DataFrame({**of, "kept": np.abs(one).sum(axis=(1, 2))})
        for other_runs, shared_runs in ((runs, max(0, 2 * runs - n)), (n, runs)) if runs < n else ():
            other = np.stack([_first(held, order[::-1], other_runs, min_agree) for order in orders], axis=1)
            same = (one * other > 0).sum(axis=(1, 2))
            either = np.abs(one).sum(axis=(1, 2)) + np.abs(other).sum(axis=(1, 2)) - same
            keys = {"other_runs": other_runs, "shared_runs": shared_runs}
            yield "stability", pd.DataFrame({**of, **keys, "shared": same, "union": either})


def _first(held: Votes, order: tuple[int, ...], runs: int, min_agree: int) -> Counts:
    """(E, G) +1 or -1 where at least `min_agree` of the first runs name a gene, all with that sign, else 0."""
    signs = held.signs[:, list(order[:runs])]
    times, total = np.abs(signs).sum(axis=1), signs.sum(axis=1)
    return np.where((np.abs(total) == times) & (times >= min_agree), np.sign(total), 0)


def _gene_wordings(found: list[Votes]) -> Iterator[pd.DataFrame]:
    for one, other in combinations(found, 2):
        common = [entity for entity in one.entities if entity in other.entities]
        signs = [held.signs[[held.entities.index(entity) for entity in common]] for held in (one, other)]
        table = pd.DataFrame({"entity": common, **_shared(*signs)})
        yield table.assign(prompt=UNARY, wording_a=one.wording, wording_b=other.wording)


def _pair_wordings(answers: Answers) -> Iterator[pd.DataFrame]:
    pair = ["entity", "feature_a", "feature_b"]
    for one, other in combinations(answers.wordings(PAIRWISE), 2):
        parts = [answers.judged[answers.judged["wording"] == wording] for wording in (one, other)]
        both = parts[0].merge(parts[1], on=pair, suffixes=("_a", "_b"), validate="one_to_one")
        for entity, twice in both.groupby("entity", sort=False):
            counts = [(twice[side] == sign).sum() for sign in (-1, 0, 1) for side in ("sign_a", "sign_b")]
            expected = sum(a * b for a, b in zip(counts[::2], counts[1::2], strict=True)) / len(twice)
            same = int((twice["sign_a"] == twice["sign_b"]).sum())
            row = {"entity": entity, "shared": len(twice), "union": len(twice), "same": same}
            table = pd.DataFrame([{**row, "expected_same": expected}])
            yield table.assign(prompt=PAIRWISE, wording_a=one, wording_b=other)


def _shared(one: Counts, other: Counts) -> dict[str, Counts]:
    """By entity: genes that both votes (E, G) or (E, R, G) name, that either does, and that both do with one sign."""
    places = tuple(range(1, one.ndim))
    shared = np.abs(one * other).sum(axis=places)
    union = np.abs(one).sum(axis=places) + np.abs(other).sum(axis=places) - shared
    return {"shared": shared, "union": union, "same": (one * other > 0).sum(axis=places)}
