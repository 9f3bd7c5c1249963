"""What `linearity` gains over `wald` on chaotic patients, and how stable it is who is called chaotic (tab:chaos)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.mrf import Floats
from afa.stages.chaos.tables import DEFINITIONS, MEASURING, METHODS, SELECTING
from afa.stats.accuracy import Part, Resampled, Signs, constant_answers, right_of
from afa.stats.correlation import Moments
from afa.stats.summary import summary_rows

Mask = NDArray[np.bool_]
TABLE = "chaos_gap"
TOP_QUARTILE = 75
GROUPS = ("chaotic", "non_chaotic")
BETWEEN = "chaotic_minus_non_chaotic"
GAP = "linearity_minus_wald"
PLAIN = next(iter(DEFINITIONS))
"""The definition whose groups bear no further name."""


class Told(NamedTuple):
    """Two ways to say who is chaotic: is the second what the first tells?"""

    definition: str
    seed_set: str
    of_definition: str
    of_seed_set: str


COMPARISONS: Mapping[str, Told] = {
    "wald_50": Told("wald_50", SELECTING, "wald", SELECTING),
    "linearity": Told("linearity", SELECTING, "wald", SELECTING),
    "early_50": Told("early_50", SELECTING, "wald", SELECTING),
    "early_50 other_orders": Told("early_50", SELECTING, "wald", MEASURING),
} | {
    f"{definition} other_orders of_itself": Told(definition, SELECTING, definition, MEASURING)
    for definition in DEFINITIONS
}
"""By the name in the summary; where no definition is named after `of`, it is `wald` over all rounds."""


def summarise_chaos(tables: Mapping[str, pd.DataFrame], *, resamples: int, confidence: float) -> pd.DataFrame:
    """Summary rows `chaos_gap` of the tables of `chaos`, all patients together; groups are fixed, patients resampled.

    `gap`, by t: sign accuracy of `linearity` less that of `wald`. The headline is over all patients on the measuring
    orders. Strata: `chaotic`, `non_chaotic`, and `chaotic_minus_non_chaotic`, the gap of one less that of the other;
    followed by the definition where it is not `wald` over all rounds, and by `selecting` where accuracy is counted on
    the orders that the groups were formed on. `accuracy`, by method and t: what the gap is between.

    Once: `majority`, the best constant answer per duel, chosen on the patients of the stratum or, `reference`
    `all_patients`, on all; `count` of patients by stratum, and of duels tied at full observation; and the rows of
    `membership_stability` as strata `stability ...`. `correlation`, over patients, of flips by a definition with
    `nonzero`, the number of the patient's values that are not 0, and with `magnitude` (Spearman's). A group without a
    duel to call has its count alone.
    """
    patients = list(tables["duels"]["patient"].unique())
    resampled = Resampled.of(len(patients), resamples=resamples, confidence=confidence, purpose=TABLE)
    strata = chaos_strata(tables["flips"])
    winners = tables["duels"].pivot(index="patient", columns=["entity_a", "entity_b"], values="winner")
    target = winners.loc[patients].to_numpy(np.int8)
    groups = {"": np.ones(len(patients), dtype=bool)} | _groups(strata, patients)
    rows = [
        *_by_round(tables["rounds"], patients, groups, resampled),
        *_beside(target, groups, resampled),
        _stability_rows(membership_stability(strata, resampled)),
        *_what_flips_follow(strata, patients, resampled),
    ]
    setting = {"allocation": "random", "schedule": "every", "target": "likelihood", "start": "uniform"}
    return summary_rows(TABLE, pd.concat(rows, ignore_index=True).assign(**setting))


def chaos_strata(flips: pd.DataFrame) -> pd.DataFrame:
    """Who is chaotic, by (patient, seed_set, definition), of the table `flips` of the whole cohort.

    Columns beside the key: `flips`, the mean over pairs and orders, and `magnitude`; the cohort's 75th percentile of
    the one and median of the other; `nonzero`; `chaotic`, flips at that percentile or above and magnitude above that
    median.
    """
    key = ["patient", "seed_set", "definition"]
    strata = flips[[*key, "magnitude", "nonzero"]].assign(flips=flips["flips"] / flips["runs"])
    cells = strata.groupby(["seed_set", "definition"], sort=False)
    strata["flips_quartile"] = cells["flips"].transform(lambda values: np.percentile(values, TOP_QUARTILE))
    strata["magnitude_median"] = cells["magnitude"].transform("median")
    chaotic = (strata["flips"] >= strata["flips_quartile"]) & (strata["magnitude"] > strata["magnitude_median"])
    columns = ["flips", "flips_quartile", "magnitude", "magnitude_median", "nonzero", "chaotic"]
    return strata.assign(chaotic=chaotic)[[*key, *columns]]


def membership_stability(strata: pd.DataFrame, resampled: Resampled) -> pd.DataFrame:
    """How well each first way to say who is chaotic tells the second (`COMPARISONS`), of the rows of `chaos_strata`.

    One row per comparison and `quantity`, with an interval over patients, memberships and ranks fixed: `agreement`,
    share of patients that both put into the same group; `chance`, the same were the two unrelated and of these sizes;
    `found`, share of the second's chaotic patients that the first has too; `flagged`, share of all patients that the
    first has, which is what `found` would be by chance; `rank_correlation`, Spearman's of the flips.
    """
    patients = list(strata["patient"].unique())
    rows = []
    for name, told in COMPARISONS.items():
        first = _cell(strata, told.definition, told.seed_set, patients)
        second = _cell(strata, told.of_definition, told.of_seed_set, patients)
        for quantity, row in _stability(first, second, resampled):
            rows.append(row.assign(comparison=name, quantity=quantity, **told._asdict()))
    table = pd.concat(rows, ignore_index=True)
    return table[["comparison", "quantity", *Told._fields, "value", "low", "high", "n"]]


def _cell(strata: pd.DataFrame, definition: str, seed_set: str, patients: Sequence[str]) -> pd.DataFrame:
    chosen = strata[(strata["definition"] == definition) & (strata["seed_set"] == seed_set)]
    return chosen.set_index("patient").loc[list(patients)]


def _stability(first: pd.DataFrame, second: pd.DataFrame, resampled: Resampled) -> Iterator[tuple[str, pd.DataFrame]]:
    a, b = (table["chaotic"].to_numpy(float) for table in (first, second))
    every = np.ones((len(a), 1))

    def chance(weights: Floats) -> Floats:
        share_a, share_b = (weights @ mask / weights.sum(axis=1) for mask in (a, b))
        unrelated: Floats = share_a * share_b + (1 - share_a) * (1 - share_b)
        return unrelated

    yield "agreement", resampled.mean([((a == b).astype(float)[:, None], every)])
    yield "chance", resampled.statistic(chance, len(a))
    yield "found", resampled.mean([((a * b)[:, None], b[:, None])])
    yield "flagged", resampled.mean([(a[:, None], every)])
    yield "rank_correlation", _rank_correlation(first["flips"], second["flips"], resampled)


def _rank_correlation(first: pd.Series, second: pd.Series, resampled: Resampled) -> pd.DataFrame:
    """Spearman's correlation over patients; its interval keeps the ranks that they have among all."""
    ranks = (np.asarray(values.rank(), dtype=np.float64)[:, None, None] for values in (first, second))
    return resampled.statistic(Moments.of(*ranks).only, len(first))


def _stability_rows(table: pd.DataFrame) -> pd.DataFrame:
    table = table[table["n"] > 0]
    of_ranks = table["quantity"] == "rank_correlation"
    stratum = "stability " + table["comparison"] + " " + table["quantity"]
    rows = table[["value", "low", "high", "n"]].assign(stratum=stratum)
    return rows.assign(metric=np.where(of_ranks, "correlation", "rate"))


def _what_flips_follow(strata: pd.DataFrame, patients: Sequence[str], resampled: Resampled) -> Iterator[pd.DataFrame]:
    for definition in DEFINITIONS:
        cell = _cell(strata, definition, SELECTING, patients)
        for quantity in ("nonzero", "magnitude"):
            row = _rank_correlation(cell["flips"], cell[quantity], resampled)
            yield row.assign(metric="correlation", stratum=_words(f"flips {quantity}", definition))


def _groups(strata: pd.DataFrame, patients: Sequence[str]) -> dict[str, Mask]:
    """(P,) members of each group by its name, as formed on the selecting orders."""
    groups: dict[str, Mask] = {}
    for definition in DEFINITIONS:
        chaotic = _cell(strata, definition, SELECTING, patients)["chaotic"].to_numpy(bool)
        for group, members in zip(GROUPS, (chaotic, ~chaotic), strict=True):
            groups[_words(group, definition)] = members
    return groups


def _words(group: str, definition: str, seed_set: str = MEASURING) -> str:
    parts = (group, "" if definition == PLAIN else definition, "" if seed_set == MEASURING else seed_set)
    return " ".join(filter(None, parts))


def _by_round(
    rounds: pd.DataFrame, patients: Sequence[str], groups: Mapping[str, Mask], resampled: Resampled
) -> Iterator[pd.DataFrame]:
    """Gaps and accuracies at every t, by group, on the measuring orders and then on the selecting ones."""
    for seed_set in (MEASURING, SELECTING):
        parts = {method: _part(rounds, seed_set, method, patients) for method in METHODS}
        gaps = parts["linearity"][0] - parts["wald"][0], parts["wald"][1]
        for name, members in groups.items():
            if name and not _of(members, gaps)[1].any():
                continue
            stratum = _words(name, PLAIN, seed_set) or None
            yield _by_t(resampled.mean([_of(members, gaps)])).assign(metric="gap", reference=GAP, stratum=stratum)
            for method, part in parts.items():
                accuracy = _by_t(resampled.mean([_of(members, part)]))
                yield accuracy.assign(metric="accuracy", method=method, stratum=stratum)
        for definition in DEFINITIONS:
            chaotic, others = (_of(groups[_words(group, definition)], gaps) for group in GROUPS)
            if chaotic[1].any() and others[1].any():
                between = _by_t(resampled.gap([chaotic], [others])).assign(n=gaps[1].sum(axis=0).astype(np.int64))
                stratum = _words(BETWEEN, definition, seed_set)
                yield between.assign(metric="gap", reference=GAP, stratum=stratum)


def _part(rounds: pd.DataFrame, seed_set: str, method: str, patients: Sequence[str]) -> Part:
    chosen = rounds[(rounds["seed_set"] == seed_set) & (rounds["method"] == method)]
    right, total = (
        chosen.pivot(index="patient", columns="t", values=name).loc[list(patients)].to_numpy(float)
        for name in ("right", "duels")
    )
    return right, total


def _of(members: Mask, part: Part) -> Part:
    """The same counts, with none for patients outside a group."""
    right, total = part
    return right * members[:, None], total * members[:, None]


def _by_t(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(t=np.arange(len(table)))


def _beside(target: Signs, groups: Mapping[str, Mask], resampled: Resampled) -> Iterator[pd.DataFrame]:
    """Sizes of the groups, ties, and what a constant answer per duel reaches; target : (P, Q)."""
    ties = {"stratum": "tied_at_full_observation", "value": int((target == 0).sum()), "n": target.size}
    sizes = [{"stratum": name or None, "value": int(group.sum()), "n": len(group)} for name, group in groups.items()]
    yield pd.DataFrame([*sizes, ties]).assign(metric="count")
    of_all = constant_answers(target)[0]
    for name, members in groups.items():
        of_group = np.where(members[:, None], target, 0).astype(np.int8)
        if of_group.any():
            answers = {None: constant_answers(of_group)[0]} | ({"all_patients": of_all} if name else {})
            for reference, answer in answers.items():
                share = resampled.mean([right_of(answer[:, :, None], of_group, of_group != 0)])
                yield share.assign(metric="majority", stratum=name or None, reference=reference)
