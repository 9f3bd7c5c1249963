"""Rankings of entities at t observations, by what is expected of hidden features and by the scale of the scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from pydantic import Field

from afa.stages.base import Rounds, Section, Seeds, Stage
from afa.stages.ranking.tables import CLINICAL, OWN, POSTERIOR, PRIOR_WRONG, SIZE, patient_auroc
from afa.stages.ranking.tables import run as run
from afa.stages.topk import label_counts
from afa.stats.accuracy import Part, Resampled, precisions_by_prevalence
from afa.stats.resampling import interval
from afa.stats.summary import count_rows, summary_rows
from afa.stats.tables import Complete, axis_among, axis_of, groups

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap


class Settings(Section):
    """Entities ranked by the scale of scores and by what is predicted for unobserved features (docs/ranking.md)."""

    rounds: Rounds = (10, 50, 100, 150, 200)
    """t at which entities are ranked on several scales (docs/ranking.md), beside 0 and M"""
    seeds: Seeds = (0, 1, 2)
    """random orders along which that is done"""
    permutations: int = Field(20, ge=1)
    """bundles with shuffled genes, followed along the first seed's orders; p is never below 1 / (1 + their number)"""
    whole_permutations: int = Field(200, ge=1)
    """the same at full observation"""


STAGE = Stage(
    settings=("ranking", "top_k", "inference"),
    section=Settings,
    duels=True,
    tables={
        "decisions": "scale method target seed patient t accuracy accuracy_prior_wrong p_at_k cohort bundle",
        "entities": "scale entity support couplings mean sd cohort bundle",
        "labels": "patient entity label k k_clinical cohort bundle",
        "posterior": "seed patient t of_null of_likeliest cohort bundle",
        "truth": "scale target patient duels prior_wrong majority larger cohort bundle",
        "null": "scale method target t permutation metric value cohort bundle",
        "rankings": "scale method seed patient t p_at_k r_precision auroc correlation cohort bundle",
    },
    rows={
        "ranking": "how soon are entities ranked as at full observation, by the scale of scores and by what is"
        " expected of the hidden, and how much of it is size?",
        "clinical": "the rankings of `ranking` against clinical labels",
    },
    space_mb=0.9,
)
RAW, LINEARITY = "raw", "linearity"
COMPARED = ("population", "frequency")
"""Methods that are held against `linearity`."""
SHUFFLED, START = "shuffled_genes", "start"
AGAINST_LABELS = ("p_at_k", "r_precision", "auroc")
WEIGHTS = ("of_null", "of_likeliest")
READ = {
    "decisions": (["scale", "method", "target", "seed"], dict.fromkeys(("accuracy", PRIOR_WRONG, "p_at_k"), "")),
    "rankings": (["scale", "method", "seed"], dict.fromkeys(AGAINST_LABELS, CLINICAL) | {"correlation": SIZE}),
    "posterior": (["seed"], dict.fromkeys(WEIGHTS, POSTERIOR)),
}
"""By table: what names a run, and the metrics, each with its target where the table does not name it."""
BESIDE = (SIZE, POSTERIOR)
"""What describes a way and is no target of it: nothing is right or wrong there."""

GRAIN = 2.0**-24
"""Shares are rounded to multiples of this: their sums are then exact in any order of adding up."""


class Cell(NamedTuple):
    """One number of one way of ranking."""

    scale: str
    method: str
    target: str
    metric: str

    @property
    def keys(self) -> dict[str, str | None]:
        """The columns of the summary that name it; raw scores are the headline."""
        named = {PRIOR_WRONG: "accuracy"} | dict.fromkeys(WEIGHTS, "rate")
        return {
            "metric": named.get(self.metric, self.metric),
            "method": self.method or None,
            "target": None if self.target in BESIDE else self.target,
            "stratum": "prior_wrong" if self.metric == PRIOR_WRONG else None,
            "quantity": self.metric if self.target == POSTERIOR else None,
            "variant": None if self.scale == RAW else self.scale,
        }


@dataclass(frozen=True)
class Read:
    """The tables as arrays: sums and cases by cell, (P, T) each, of all seeds added up, and of the first alone."""

    rounds: list[int]
    patients: list[str]
    every: dict[Cell, Part]
    first: dict[Cell, Part]


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Summary rows `ranking` and `clinical` of the tables.

    The headline is the raw score; variants `uniform`, `cohort` and `shuffled` the same on another scale. By way and t
    the metrics of the tables; `gap`, the metric in `quantity` less that of `reference` on the same patients: of
    `linearity`, of `raw`, or of the same way at the `start`, t=0. Rows with `reference` `shuffled_genes` are means and
    quantiles over shuffled bundles, and `p_value`, its metric in `quantity`, the share of them that do no worse. What
    looks at no patient is a method too: `larger_support` and `prevalence_order`.

    Raises
    ------
    ConfigError : a table is not complete.

    """
    read = _read(tables)
    resampled = Resampled.of(read.patients, **dict(bootstrap), purpose="ranking")
    rows = [*_metrics(read, resampled), *_gaps(read, resampled), *_null(tables["null"], read, bootstrap.confidence)]
    rows += [*_constant(tables, read, resampled), *_counts(tables)]
    whole = pd.concat(rows, ignore_index=True)
    of_labels = whole["target"] == CLINICAL
    made = [
        summary_rows(name, part, allocation="random", start="uniform")
        for name, part in (("ranking", whole[~of_labels]), ("clinical", whole[of_labels]))
    ]
    return pd.concat(made, ignore_index=True)


def _read(tables: Mapping[str, pd.DataFrame]) -> Read:
    patients = [str(name) for name in pd.unique(tables["labels"]["patient"])]
    of_truth = {"target": axis_of(tables["truth"], ["scale", "target"])}
    of_truth["patient"] = axis_among(tables["truth"]["patient"], patients)
    truth = Complete.of("table truth", tables["truth"], of_truth)
    totals = {
        (*labels, metric): counts
        for metric, name in (("accuracy", "duels"), (PRIOR_WRONG, "prior_wrong"))
        for labels, counts in zip(of_truth["target"].labels, truth.column(name).astype(np.float64), strict=True)
    }
    every, first, rounds = dict[Cell, Part](), dict[Cell, Part](), list[int]()
    for name, (keys, metrics) in READ.items():
        table = tables[name]
        axes = {"run": axis_of(table, keys), "patient": axis_among(table["patient"], patients)}
        whole = Complete.of(f"table {name}", table, axes | {"t": axis_of(table, ["t"])})
        rounds = rounds or [int(t) for (t,) in whole.axes["t"].labels]
        for metric, target in metrics.items():
            cubes = whole.column(metric, may_miss=name == "rankings").astype(np.float64)
            for labels, cube in zip(axes["run"].labels, cubes, strict=True):
                way = {"scale": RAW, "method": COMPARED[0], "target": target, **dict(zip(keys, labels, strict=True))}
                cell = Cell(way["scale"], way["method"], way["target"], metric)
                known = (~np.isnan(cube)).astype(np.float64)
                cases = known * totals.get((cell.scale, cell.target, metric), np.ones(len(cube)))[:, None]
                values = np.rint(np.nan_to_num(cube) / GRAIN) * GRAIN
                first.setdefault(cell, (values, cases))
                before = every.get(cell, (np.zeros_like(values), np.zeros_like(cases)))
                every[cell] = before[0] + values, before[1] + cases
    return Read(rounds, patients, {cell: part for cell, part in every.items() if part[1].any()}, first)


def _metrics(read: Read, resampled: Resampled) -> Iterator[pd.DataFrame]:
    for cell, part in read.every.items():
        yield resampled.mean([part]).assign(t=read.rounds, **cell.keys)


def _gaps(read: Read, resampled: Resampled) -> Iterator[pd.DataFrame]:
    """A way less another, and less itself at no observation; both resampled together."""
    for cell, part in read.every.items():
        if cell.metric == PRIOR_WRONG or cell.target in BESIDE:
            continue
        against = {}
        if cell.method in COMPARED:
            against[LINEARITY] = read.every[cell._replace(method=LINEARITY)]
        if cell.scale != RAW and cell.target == CLINICAL:
            against[RAW] = read.every[cell._replace(scale=RAW)]
        if cell.metric == "accuracy":
            right, cases = (np.repeat(each[:, :1], len(read.rounds), axis=1) for each in part)
            against[START] = (right, cases)
        for reference, other in against.items():
            keys = cell.keys | {"metric": "gap", "quantity": cell.metric, "reference": reference}
            yield resampled.gap([part], [other]).assign(t=read.rounds, **keys)


def _null(null: pd.DataFrame, read: Read, confidence: float) -> Iterator[pd.DataFrame]:
    """What shuffled bundles come to, and how often they do no worse than the real one along the same orders.

    p is (1 + shuffled bundles that are no worse) / (1 + all of them); what is no target has none.
    """
    place = {t: i for i, t in enumerate(read.rounds)}
    for (*key, t), part in groups(null.dropna(subset=["value"]), "scale", "method", "target", "metric", "t"):
        cell = Cell(*key)
        values = part["value"].to_numpy(dtype=float)
        low, high = interval(values[:, None], confidence=confidence)
        rows = [{"value": values.mean(), "low": low[0], "high": high[0]}]
        right, cases = (each[:, place[t]].sum() for each in read.first[cell])
        if cell.target not in BESIDE:
            p = (1 + (values >= right / cases - 1e-6).sum()) / (1 + len(values))
            rows.append({"value": p, "metric": "p_value", "quantity": cell.metric})
        yield pd.DataFrame([cell.keys | {"reference": SHUFFLED, "t": t, "n": len(values)} | row for row in rows])


def _constant(tables: Mapping[str, pd.DataFrame], read: Read, resampled: Resampled) -> Iterator[pd.DataFrame]:
    """What looks at no patient: the larger support; and, chosen on these same, a sign for each duel and prevalence."""
    for (scale, target), part in groups(tables["truth"], "scale", "target"):
        counts = part.set_index("patient").loc[read.patients]
        constant, larger, cases = (counts[[name]].to_numpy(dtype=float) for name in ("majority", "larger", "duels"))
        keys = Cell(scale, "", target, "majority").keys
        if cases.any():
            yield resampled.mean([(constant, cases)]).assign(**keys)
            yield resampled.mean([(larger, cases)]).assign(**keys | {"metric": "accuracy", "method": "larger_support"})
    wide = tables["labels"].pivot(index="patient", columns="entity", values="label").loc[read.patients]
    labels, k = wide.to_numpy(dtype=np.float64, na_value=np.nan), int(tables["labels"]["k_clinical"].iloc[0])
    prevalence = np.nansum(labels, axis=0) / np.maximum((~np.isnan(labels)).sum(axis=0), 1)
    place = (prevalence[:, None] < prevalence).sum(axis=1)
    areas = patient_auroc(np.broadcast_to(place, (len(labels), 1, len(place))), labels)
    shown = {"auroc": (areas, ~np.isnan(areas))}
    for metric, share in precisions_by_prevalence(labels, k).items():
        shown[metric] = (share[:, None], (~np.isnan(share) & (k > 0))[:, None])
    for metric, (share, has) in shown.items():
        if has.any():
            values = np.rint(np.where(has, share, 0.0) / GRAIN) * GRAIN
            rows = resampled.mean([(values, has.astype(np.float64))])
            yield rows.assign(metric=metric, target=CLINICAL, method="prevalence_order")


def _counts(tables: Mapping[str, pd.DataFrame]) -> Iterator[pd.DataFrame]:
    truth, entities, labels = (tables[name] for name in ("truth", "entities", "labels"))
    n, k, k_clinical = labels["entity"].nunique(), int(labels["k"].iloc[0]), int(labels["k_clinical"].iloc[0])
    for (scale, target), part in groups(truth, "scale", "target"):
        if (target == OWN) == (scale != RAW):
            every = len(part) * n * (n - 1) // 2
            counts = {"tied_at_full_observation": (every - part["duels"].sum(), every)}
            counts["without_spread"] = (int((entities.loc[entities["scale"] == scale, "sd"] == 0).sum()), n)
            yield count_rows(counts).assign(target=target, variant=None if scale == RAW else scale)
    wide = labels.pivot(index="patient", columns="entity", values="label").to_numpy(dtype=np.float64, na_value=np.nan)
    counts = label_counts(wide, k, k_clinical)
    both = int(((wide == 1).any(axis=1) & (wide == 0).any(axis=1)).sum())
    of_one_class = {"patients_of_one_class": (len(wide) - both, len(wide))}
    counts = {"patients_without_positive": counts["patients_without_positive"]} | of_one_class | counts
    yield count_rows(counts).assign(target=CLINICAL)
