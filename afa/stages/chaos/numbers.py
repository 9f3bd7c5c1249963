"""What `linearity` gains over `wald` on chaotic patients, and how stable it is who is called chaotic (tab:chaos)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.mrf import Floats
from afa.stages.chaos.tables import DEFINITIONS, MEASURING, METHODS, SELECTING
from afa.stats.accuracy import Part, Resampled, Signs, constant_answers, right_of
from afa.stats.resampling import Moments
from afa.stats.summary import summary_rows

Mask = NDArray[np.bool_]
TABLE = "chaos_gap"
TOP_QUARTILE = 75
GROUPS = ("chaotic", "non_chaotic")
BETWEEN = "chaotic_minus_non_chaotic"
GAP = "linearity_minus_wald"
PLAIN, *OTHERS = DEFINITIONS
VARIANTS = {PLAIN: None} | {definition: definition for definition in OTHERS}
"""How the summary names the groups of each definition."""
Groups = Mapping[tuple[str | None, str | None], Mask]
"""(P,) members of each group, by the stratum and variant of its rows."""


OTHER_ORDERS = "other_orders"
COMPARISONS: Sequence[tuple[str, str, str | None]] = [
    *((definition, "plain", None) for definition in OTHERS),
    ("early_50", "plain", OTHER_ORDERS),
    *((definition, "itself", OTHER_ORDERS) for definition in DEFINITIONS),
]
"""Two ways to say who is chaotic, by variant, reference and stratum of their rows (`membership_stability`)."""


def summarise_chaos(tables: Mapping[str, pd.DataFrame], *, resamples: int, confidence: float) -> pd.DataFrame:
    """Summary rows `chaos_gap` of the tables of `chaos`, all patients together; groups are fixed, patients resampled.

    `gap`, by t: sign accuracy of `linearity` less that of `wald`. The headline is over all patients on the measuring
    orders. Strata: `chaotic`, `non_chaotic`, and `chaotic_minus_non_chaotic`, the gap of one less that of the other.
    The variant is the definition where it is not `wald` over all rounds; the quantity `selecting` is counted on the
    orders that the groups were formed on. `accuracy`, by method and t: what the gap is between.

    Once: `majority`, the best constant answer per duel, chosen on the patients of the stratum or, `reference`
    `all_patients`, on all; `count` of patients by stratum, and of duels tied at full observation; and the rows of
    `membership_stability`. `correlation`, over patients, of flips by a definition with the number of the patient's
    values that are not 0, `flips_nonzero`, and with the magnitude, `flips_magnitude` (Spearman's). A group without a
    duel to call has its count alone.
    """
    patients = list(tables["duels"]["patient"].unique())
    resampled = Resampled.of(len(patients), resamples=resamples, confidence=confidence, purpose=TABLE)
    strata = chaos_strata(tables["flips"])
    winners = tables["duels"].pivot(index="patient", columns=["entity_a", "entity_b"], values="winner")
    target = winners.loc[patients].to_numpy(np.int8)
    groups = _groups(strata, patients)
    stability = membership_stability(strata, resampled)
    rows = [
        *_by_round(tables["rounds"], patients, groups, resampled),
        *_beside(target, groups, resampled),
        stability[stability["n"] > 0],
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

    Rows of the summary: `variant` is the definition, on the selecting orders; `reference` what it is held against,
    `plain`, which is `wald` over all rounds, or `itself`: on the same orders or, stratum `other_orders`, on the
    measuring ones.

    One row per comparison and `quantity`, with an interval over patients, memberships and ranks fixed: `agreement`,
    share of patients that both put into the same group; `chance`, the same were the two unrelated and of these sizes;
    `found`, share of the second's chaotic patients that the first has too; `flagged`, share of all patients that the
    first has, which is what `found` would be by chance; `rank_correlation`, Spearman's of the flips.
    """
    patients = list(strata["patient"].unique())
    rows = []
    for variant, reference, stratum in COMPARISONS:
        first = _cell(strata, variant, SELECTING, patients)
        definition = variant if reference == "itself" else PLAIN
        second = _cell(strata, definition, MEASURING if stratum else SELECTING, patients)
        for quantity, row in _stability(first, second, resampled):
            metric = "correlation" if quantity == "rank_correlation" else "rate"
            label = {"metric": metric, "quantity": quantity, "stratum": stratum, "variant": variant}
            rows.append(row.assign(reference=reference, **label))
    return pd.concat(rows, ignore_index=True)


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


def _what_flips_follow(strata: pd.DataFrame, patients: Sequence[str], resampled: Resampled) -> Iterator[pd.DataFrame]:
    for definition, variant in VARIANTS.items():
        cell = _cell(strata, definition, SELECTING, patients)
        for other in ("nonzero", "magnitude"):
            row = _rank_correlation(cell["flips"], cell[other], resampled)
            yield row.assign(metric="correlation", quantity=f"flips_{other}", variant=variant)


def _groups(strata: pd.DataFrame, patients: Sequence[str]) -> Groups:
    """All patients, and the groups formed on the selecting orders."""
    groups: dict[tuple[str | None, str | None], Mask] = {(None, None): np.ones(len(patients), dtype=bool)}
    for definition, variant in VARIANTS.items():
        chaotic = _cell(strata, definition, SELECTING, patients)["chaotic"].to_numpy(bool)
        for group, members in zip(GROUPS, (chaotic, ~chaotic), strict=True):
            groups[group, variant] = members
    return groups


def _by_round(
    rounds: pd.DataFrame, patients: Sequence[str], groups: Groups, resampled: Resampled
) -> Iterator[pd.DataFrame]:
    """Gaps and accuracies at every t, by group, on the measuring orders and then on the selecting ones."""
    for seed_set, quantity in ((MEASURING, None), (SELECTING, SELECTING)):
        parts = {method: _part(rounds, seed_set, method, patients) for method in METHODS}
        gaps = parts["linearity"][0] - parts["wald"][0], parts["wald"][1]
        for (stratum, variant), members in groups.items():
            if stratum and not _of(members, gaps)[1].any():
                continue
            label = {"quantity": quantity, "stratum": stratum, "variant": variant}
            yield _by_t(resampled.mean([_of(members, gaps)])).assign(metric="gap", reference=GAP, **label)
            for method, part in parts.items():
                yield _by_t(resampled.mean([_of(members, part)])).assign(metric="accuracy", method=method, **label)
        for variant in VARIANTS.values():
            chaotic, others = (_of(groups[group, variant], gaps) for group in GROUPS)
            if chaotic[1].any() and others[1].any():
                between = _by_t(resampled.gap([chaotic], [others])).assign(n=gaps[1].sum(axis=0).astype(np.int64))
                label = {"quantity": quantity, "stratum": BETWEEN, "variant": variant}
                yield between.assign(metric="gap", reference=GAP, **label)


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


def _beside(target: Signs, groups: Groups, resampled: Resampled) -> Iterator[pd.DataFrame]:
    """Sizes of the groups, ties, and what a constant answer per duel reaches; target : (P, Q)."""
    ties = {"quantity": "tied_at_full_observation", "value": int((target == 0).sum()), "n": target.size}
    sizes = [
        {"stratum": stratum, "variant": variant, "value": int(members.sum()), "n": len(members)}
        for (stratum, variant), members in groups.items()
    ]
    yield pd.DataFrame([*sizes, ties]).assign(metric="count")
    of_all = constant_answers(target)[0]
    for (stratum, variant), members in groups.items():
        of_group = np.where(members[:, None], target, 0).astype(np.int8)
        if of_group.any():
            answers = {None: constant_answers(of_group)[0]} | ({"all_patients": of_all} if stratum else {})
            for reference, answer in answers.items():
                share = resampled.mean([right_of(answer[:, :, None], of_group, of_group != 0)])
                yield share.assign(metric="majority", stratum=stratum, variant=variant, reference=reference)
