"""Agreement of recorded answers: over runs, against other phenotypes, by the number of runs, and over wordings."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.elicit.study import PAIRWISE, UNARY
from afa.stages.drawn import generator_of
from afa.stages.elicitation_health.answers import Answers, Votes, votes

Counts = NDArray[np.int64]
OVERLAP = ["wording", "entity", "run_a", "run_b", "shared", "union", "same"]
BASELINE = ["wording", "entity", "shared", "union", "same"]
KEPT = ["wording", "entity", "runs", "min_agree", "orders", "kept"]
STABILITY = ["wording", "entity", "runs", "min_agree", "other_runs", "shared_runs", "orders", "shared", "union"]
WORDINGS = ["prompt", "wording_a", "wording_b", "entity", "shared", "union", "same", "expected_same"]
ANSWERS = ["wording", "run", "entity", "feature", "sign", "lit_prob", "named_by", "same", "phenotypes"]
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
    found = votes(answers)
    return {
        "asked": answers.asked,
        "answers": _with_others(answers),
        "overlap": _table(row for each in found for row in _overlap(each)).reindex(columns=OVERLAP),
        "baseline": _table(row for each in found for row in _baseline(each)).reindex(columns=BASELINE),
        "kept": _table(row for each in found for row in _kept(each)).reindex(columns=KEPT),
        "stability": _table(row for each in found for row in _stability(each)).reindex(columns=STABILITY),
        "wordings": _table([*_gene_wordings(found), *_pair_wordings(answers)]).reindex(columns=WORDINGS),
    }


def consensus_signs(signs: Counts, min_agree: int) -> Counts:
    """(E, G) +1 or -1 where at least `min_agree` runs name a gene, all with that sign, else 0, of votes (E, R, G)."""
    times, total = np.abs(signs).sum(axis=1), signs.sum(axis=1)
    kept: Counts = np.where((np.abs(total) == times) & (times >= min_agree), np.sign(total), 0)
    return kept


def run_orders(n_runs: int) -> list[tuple[int, ...]]:
    """Orders of the runs: all of them, or drawn ones where there are too many."""
    if n_runs <= ALL_ORDERS:
        return list(permutations(range(n_runs)))
    generator = generator_of("elicitation_health", "orders", n_runs)
    return [tuple(generator.permutation(n_runs).tolist()) for _ in range(DRAWN_ORDERS)]


def _with_others(answers: Answers) -> pd.DataFrame:
    """The genes named, each with how many runs name it too."""
    named, question = answers.named, ["wording", "entity", "feature"]
    times = named.groupby(question)["run"].transform("size")
    alike = named.groupby([*question, "sign"])["run"].transform("size")
    phenotypes = named.groupby("feature")["entity"].transform("nunique")
    whole = named.assign(named_by=times, same=alike - 1, phenotypes=phenotypes)
    return whole.reindex(columns=ANSWERS)


def _overlap(held: Votes) -> Iterator[pd.DataFrame]:
    for a, b in combinations(range(len(held.runs)), 2):
        counts = _shared(held.signs[:, a], held.signs[:, b])
        table = pd.DataFrame({"entity": held.entities, **counts})
        yield table.assign(wording=held.wording, run_a=held.runs[a], run_b=held.runs[b])


def _baseline(held: Votes) -> Iterator[pd.DataFrame]:
    n = len(held.entities)
    totals = {name: np.zeros(n, dtype=np.int64) for name in ("shared", "union", "same")}
    for a, b in permutations(range(len(held.runs)), 2):
        one, other = held.signs[:, a], held.signs[:, b]
        sizes = np.abs(one).sum(axis=1)[:, None] + np.abs(other).sum(axis=1)[None, :]
        shared = np.abs(one) @ np.abs(other).T
        same = (shared + one @ other.T) // 2
        for name, counts in (("shared", shared), ("union", sizes - shared), ("same", same)):
            totals[name] += np.where(np.eye(n, dtype=bool), 0, counts).sum(axis=1)
    yield pd.DataFrame({"wording": held.wording, "entity": held.entities, **totals})


def _kept(held: Votes) -> Iterator[pd.DataFrame]:
    orders = run_orders(len(held.runs))
    for runs in range(1, len(held.runs) + 1):
        for min_agree in range(1, runs + 1):
            kept = sum(np.abs(_first(held, order, runs, min_agree)).sum(axis=1) for order in orders)
            table = pd.DataFrame({"entity": held.entities, "kept": kept})
            yield table.assign(wording=held.wording, runs=runs, min_agree=min_agree, orders=len(orders))


def _stability(held: Votes) -> Iterator[pd.DataFrame]:
    orders, n = run_orders(len(held.runs)), len(held.runs)
    for runs in range(1, n):
        for min_agree in range(1, runs + 1):
            for other_runs, shared_runs in ((runs, max(0, 2 * runs - n)), (n, runs)):
                totals = {"shared": np.zeros(len(held.entities), dtype=np.int64)}
                totals["union"] = totals["shared"].copy()
                for order in orders:
                    one = _first(held, order, runs, min_agree)
                    other = _first(held, order[::-1], other_runs, min_agree)
                    same = (one * other > 0).sum(axis=1)
                    totals["shared"] += same
                    totals["union"] += np.abs(one).sum(axis=1) + np.abs(other).sum(axis=1) - same
                keys = {"runs": runs, "min_agree": min_agree, "other_runs": other_runs, "shared_runs": shared_runs}
                table = pd.DataFrame({"entity": held.entities, **totals})
                yield table.assign(wording=held.wording, orders=len(orders), **keys)


def _first(held: Votes, order: tuple[int, ...], runs: int, min_agree: int) -> Counts:
    return consensus_signs(held.signs[:, list(order[:runs])], min_agree)


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


def _table(parts: list[pd.DataFrame] | Iterator[pd.DataFrame]) -> pd.DataFrame:
    whole = [part for part in parts if len(part)]
    return pd.concat(whole, ignore_index=True) if whole else pd.DataFrame()
