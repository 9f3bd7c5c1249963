"""The numbers of the allocation grid over a cohort: sign accuracy and precision of the top-k under every rule.

A claim that one rule does better than another rests on a row `gap`: both rules on the same patients, resampled
together (tab:m2_alloc, tab:m2_phase1_pat5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import pandas as pd

from afa.mrf import Floats
from afa.stages.allocation.acquisition import bracket_rows, certified_rows, saved_rows
from afa.stages.allocation.cubes import CLINICAL, CLINICAL_R, LIKELIHOOD, UNIT, Grid, read_grid
from afa.stages.allocation.fixed_topk import fixed_top_k, overlap, positives_by_prevalence
from afa.stages.allocation.pairs import gaps, shown_rounds
from afa.stats.accuracy import Resampled, constant_answers, right_of
from afa.stats.summary import Labelled, labelled, summary_rows


def summarise_allocation(tables: Mapping[str, pd.DataFrame], *, resamples: int, confidence: float) -> pd.DataFrame:
    """Summary rows of the tables of the allocation stage, all patients together, the runs of a patient added up.

    `allocation_sign`, by cell (allocation, gain, schedule) and method: `accuracy` at every t; every tenth t
    `balanced_accuracy` over the two sides of a duel, `accuracy` in the stratum `prior_wrong`, and `gap`, the accuracy
    less that of the cell in `reference` (`afa.stages.allocation.pairs`). By cell `rate` of `fallback`, the rounds
    that decisions.md A7 decided. Once: `majority`, `prevalence`, `count` of duels tied at full observation.

    `allocation_p_at_k`, by target: `p_at_k` at every t; every tenth t `gap` and, against labels, `r_precision`. Once:
    the methods `fixed_top_k`, the best k entities for all these patients, and `prevalence_order`; counts of the labels.

    `certified_round`, `acquisition_saved` and `bracket_rate` are told in `afa.stages.allocation.acquisition`.

    Raises
    ------
    ConfigError : a table is not complete. SanityError : a rigorous bracket was wrong.

    """
    grid = read_grid(tables)
    resampled = Resampled.of(len(grid.winners), resamples=resamples, confidence=confidence, purpose="allocation")
    parts = {
        "allocation_sign": _sign_rows(grid, resampled),
        "allocation_p_at_k": _precision_rows(grid, resampled),
        "certified_round": certified_rows(grid, resampled),
        "acquisition_saved": saved_rows(grid, resampled),
        "bracket_rate": bracket_rows(grid, resampled),
    }
    setting = {"guide": "linearity", "start": "uniform"}
    made = [summary_rows(name, labelled(rows).assign(**setting)) for name, rows in parts.items()]
    return pd.concat(made, ignore_index=True)


def _sign_rows(grid: Grid, resampled: Resampled) -> Iterator[Labelled]:
    shown = shown_rounds(grid.last_round)
    for cell in grid.runs:
        for method in grid.methods:
            label = {**cell.label, "method": method, "target": "likelihood"}
            accuracy = resampled.mean([grid.part("right", method, cell)])
            yield accuracy.assign(t=range(grid.last_round + 1)), {"metric": "accuracy", **label}
            every, first, wrong = (
                grid.part(column, method, cell, shown) for column in ("right", "right_first", "right_prior_wrong")
            )
            balanced = resampled.mean([first, (every[0] - first[0], every[1] - first[1])])
            yield balanced.assign(t=shown), {"metric": "balanced_accuracy", **label}
            if wrong[1].any():
                rows = resampled.mean([wrong]).assign(t=shown)
                yield rows, {"metric": "accuracy", "stratum": "prior_wrong", **label}
        fallback = grid.choice_part("fallback", 1.0, cell)
        decided = fallback[0].sum(axis=1, keepdims=True), fallback[1][:, 1:].sum(axis=1, keepdims=True)
        yield resampled.mean([decided]), {"metric": "rate", "quantity": "fallback", **cell.label}
    for method in grid.methods:
        for rows, named in gaps(grid, partial(grid.part, "right", method), resampled):
            yield rows, {**named, "method": method, "target": "likelihood"}
    yield from _constant_signs(grid, resampled)


def _constant_signs(grid: Grid, resampled: Resampled) -> Iterator[Labelled]:
    """What needs no observation: the best constant sign per duel, chosen on these same patients, and the first's."""
    known = grid.winners != 0
    if known.any():
        for metric, answer in zip(("majority", "prevalence"), constant_answers(grid.winners), strict=True):
            share = resampled.mean([right_of(answer[:, :, None], grid.winners, known)])
            yield share, {"metric": metric, "target": "likelihood"}
    ties = {"value": float((~known).sum()), "n": known.size, "quantity": "tied_at_full_observation"}
    yield pd.DataFrame([ties]), {"metric": "count", "target": "likelihood"}


def _precision_rows(grid: Grid, resampled: Resampled) -> Iterator[Labelled]:
    shown = shown_rounds(grid.last_round)
    targets = {"likelihood": LIKELIHOOD} | ({"clinical": CLINICAL} if grid.has_clinical_target else {})
    for target, column in targets.items():
        for cell in grid.runs:
            for method in grid.methods:
                label = {**cell.label, "method": method, "target": target}
                table = _in_shares(resampled.mean([grid.part(column, method, cell)]))
                yield table.assign(t=range(grid.last_round + 1)), {"metric": "p_at_k", **label}
                if target == "clinical":
                    table = _in_shares(resampled.mean([grid.part(CLINICAL_R, method, cell, shown)]))
                    yield table.assign(t=shown), {"metric": "r_precision", **label}
        for method in grid.methods:
            for rows, named in gaps(grid, partial(grid.part, column, method), resampled):
                yield _in_shares(rows), {**named, "method": method, "target": target}
    yield from _constant_answers(grid, resampled)
    yield _label_counts(grid)


def _in_shares(table: pd.DataFrame) -> pd.DataFrame:
    """Numbers in units as shares."""
    return table.assign(**{name: table[name] / UNIT for name in ("value", "low", "high")})


def _constant_answers(grid: Grid, resampled: Resampled) -> Iterator[Labelled]:
    """Top-k answers that look at no patient, chosen on these same patients."""
    best = overlap(grid.top, fixed_top_k(grid.top, grid.k), grid.k) / grid.k
    yield _one_share(best, "p_at_k", "likelihood", "fixed_top_k", grid.totals[LIKELIHOOD], resampled)
    if grid.has_clinical_target:
        positives, known = (mask.sum(axis=1) for mask in (grid.labels == 1, ~np.isnan(grid.labels)))
        for metric, places in (("p_at_k", np.minimum(grid.k_clinical, known)), ("r_precision", positives)):
            found = positives_by_prevalence(grid.labels, places) / np.maximum(places, 1)
            yield _one_share(found, metric, "clinical", "prevalence_order", grid.totals[CLINICAL], resampled)


def _one_share(share: Floats, metric: str, target: str, method: str, cases: Floats, resampled: Resampled) -> Labelled:
    """The mean over the patients with cases of a share (P,)."""
    part = np.rint(share * UNIT) * cases, cases
    table = _in_shares(resampled.mean([(part[0][:, None], part[1][:, None])]))
    return table, {"metric": metric, "target": target, "method": method}


def _label_counts(grid: Grid) -> Labelled:
    """What the clinical target rests on; fewer than 2k labelled entities are not comparable with the paper."""
    patients, entities = grid.labels.shape
    labelled = int((~np.isnan(grid.labels)).any(axis=0).sum())
    counts = {
        "patients_without_positive": (int((~(grid.labels == 1).any(axis=1)).sum()), patients),
        "labelled": (labelled, entities),
        "k_clinical": (grid.k_clinical, labelled),
        "not_comparable": (int(labelled < 2 * grid.k), labelled),
    }
    rows = [{"quantity": name, "value": float(count), "n": n} for name, (count, n) in counts.items()]
    return pd.DataFrame(rows), {"metric": "count", "target": "clinical"}
