"""Layer 0 on a bundle and a cohort: how much each rule removes, and how much of that full observation contradicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.stages.base import Column, Stage
from afa.stages.columns import LAYER0, columns
from afa.stages.inputs import top_k_size
from afa.stages.layer0.tables import layer0_bundle, layer0_lift
from afa.stats.accuracy import Part, Resampled, by_t
from afa.stats.summary import Labelled, labelled, summary_rows

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap, Inference, Layer0

STAGE = Stage(
    settings=("layer0.clusters", "top_k", "inference"),
    duels=True,
    tables={
        **LAYER0,
        "layer0": columns(
            "cohort bundle n_clusters paper criterion rule entities needed most_dominators clusters_out"
            " entities_out contradicted",
            paper=Column("", "whether this is the paper's number of clusters, ceil(sqrt N)"),
        ),
    },
    rows={
        "layer0_bundle": "what Layer 0 removes on the bundle, how many certificates are false, and what it adds to "
        "`greedy`"
    },
    space_mb=0.1,
)
METHOD = {"f1": "wald", "f2": "stack_a", "sound": "wald"}
ELIMINATION = ["criterion", "rule"]
FOLLOWED = {
    "method": "linearity",
    "guide": "linearity",
    "gain": "cmi",
    "allocation": "greedy",
    "schedule": "every",
    "target": "likelihood",
    "start": "uniform",
}
"""How the acquisition behind `gap` and `accuracy` was done and read out."""


def run(bundle: Bundle, cohort: Cohort, *, layer0: Layer0, top_k: int, inference: Inference) -> dict[str, pd.DataFrame]:
    """The tables of `layer0_bundle`, with the lift."""
    k, solver = top_k_size(bundle, top_k), Solver(**dict(inference))
    lift = partial(layer0_lift, solver=solver)
    return layer0_bundle(bundle, cohort, counts=layer0.clusters, k=k, solver=solver, lift=lift)


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Summary rows `layer0_bundle` of the tables: the paper's number of clusters, then each.

    The headline is the paper's number of clusters; the variant `clusters` is the sweep, `level` their number.
    `reference` is criterion and rule. By these: `count`, clusters removed of `n`, and `entities`; `rate`, share of the
    certificates of all patients that are false; `harmed`, patients who lose an entity of their top-k; `contradicted`,
    certificates that some patient contradicts; `duels`, dominations that the other side wins. Per number of clusters
    `rate` of `f2_eligible`, the largest `contraction`, and in `nats` the two sides of separation and of activation.
    With the table `lift` also, by t, the `accuracy` of `greedy` on all duels, which knows no clusters, and the `gap` to
    it of `greedy` on the entities that criterion and rule leave.
    """
    layer0 = tables["layer0"]
    resampled = resampled_patients(tables, bootstrap, "layer0_bundle")
    paper = layer0.loc[layer0["paper"], "n_clusters"].iloc[0]
    sweep = [(count, {"variant": "clusters", "level": count}) for count in dict.fromkeys(layer0["n_clusters"])]
    rows: list[Labelled] = []
    for count, label in [(paper, {}), *sweep]:
        chosen = where(tables, "n_clusters", count)
        rows += [(table, label) for table in (*removal(chosen, resampled), geometry(chosen["clusters"]))]
    if "lift" in tables:
        rows.append((greedy_accuracy(where(tables, "n_clusters", paper)["lift"], resampled), {}))
    return summary_rows("layer0_bundle", labelled(rows))


def resampled_patients(tables: Mapping[str, pd.DataFrame], bootstrap: Bootstrap, purpose: str) -> Resampled:
    return Resampled.of(tables["patients"]["patient"].nunique(), **dict(bootstrap), purpose=purpose)


def where(tables: Mapping[str, pd.DataFrame], column: str, value: object) -> dict[str, pd.DataFrame]:
    names = [name for name in ("layer0", "patients", "clusters", "lift") if name in tables]
    return {name: tables[name][tables[name][column] == value] for name in names}


def removal(tables: Mapping[str, pd.DataFrame], resampled: Resampled) -> Iterator[pd.DataFrame]:
    """What is removed, what of that is wrong and, where it was followed, what it adds to `greedy`."""
    yield _removed(tables["layer0"])
    yield _false(tables["patients"], resampled)
    if "lift" in tables:
        yield _gap_to_greedy(tables["lift"], resampled)


def _removed(layer0: pd.DataFrame) -> pd.DataFrame:
    """Clusters and entities removed, and the share of the certificates that some patient contradicts."""
    summed = ["clusters_out", "entities_out", "contradicted", "n_clusters", "entities"]
    total = layer0.groupby(ELIMINATION, sort=False)[summed].sum().reset_index()
    share = total["contradicted"] / total["entities_out"].replace(0, np.nan)
    parts = [
        total[ELIMINATION].assign(metric="count", value=total["clusters_out"], n=total["n_clusters"]),
        total[ELIMINATION].assign(
            metric="count", quantity="entities", value=total["entities_out"], n=total["entities"]
        ),
        total[ELIMINATION].assign(metric="rate", quantity="contradicted", value=share, n=total["entities_out"]),
    ]
    return named(pd.concat(parts, ignore_index=True))


def _false(patients: pd.DataFrame, resampled: Resampled) -> pd.DataFrame:
    """Shares of certificates, of patients and of dominations that are wrong, with intervals over patients."""
    rows = []
    for (criterion, rule), each in patients.groupby(ELIMINATION, sort=False):
        harmed = (each["false_certificates"] > 0).astype(np.int64)
        counted = each.assign(harmed=harmed, one=1).groupby("patient", sort=False).sum(numeric_only=True)
        for quantity, false, of in (
            (None, "false_certificates", "certificates"),
            ("harmed", "harmed", "one"),
            ("duels", "false_duels", "duels"),
        ):
            table = resampled.mean([(_column(counted, false), _column(counted, of))])
            rows.append(table.assign(quantity=quantity, criterion=str(criterion), rule=str(rule)))
    return named(pd.concat(rows, ignore_index=True).assign(metric="rate"))


def geometry(clusters: pd.DataFrame) -> pd.DataFrame:
    """What both conditions of Layer 0 rest on: contraction for `f2`, and distances within and between clusters."""
    rows = [
        ("rate", "f2_eligible", clusters["eligible_f2"].mean()),
        ("contraction", None, clusters["contraction"].max()),
        ("nats", "centroid_gap", clusters["gap"].iloc[0]),
        ("nats", "largest_radius", clusters["radius"].max()),
        ("nats", "within", clusters["within"].iloc[0]),
        ("nats", "between", clusters["between"].iloc[0]),
    ]
    return pd.DataFrame(rows, columns=["metric", "quantity", "value"]).assign(n=len(clusters))


def _gap_to_greedy(lift: pd.DataFrame, resampled: Resampled) -> pd.DataFrame:
    """By t, what each criterion and rule adds to the sign accuracy of `greedy`; intervals over patients."""
    rows = []
    for (criterion, rule), each in lift.groupby(ELIMINATION, sort=False):
        gap = resampled.gap(_calls(each, "right"), _calls(each, "right_greedy"))
        rows.append(by_t(gap).assign(reference=f"{criterion}_{rule}"))
    return pd.concat(rows, ignore_index=True).assign(metric="gap", **FOLLOWED)


def greedy_accuracy(lift: pd.DataFrame, resampled: Resampled) -> pd.DataFrame:
    """Sign accuracy of `greedy` by t, which is the same beside every criterion and rule."""
    one = lift[(lift[ELIMINATION] == lift[ELIMINATION].iloc[0]).all(axis=1)]
    return by_t(resampled.mean(_calls(one, "right_greedy"))).assign(metric="accuracy", **FOLLOWED)


def _calls(lift: pd.DataFrame, right: str) -> list[Part]:
    """Of each configuration the right calls and the duels, (P, T) each."""
    shape = lift["patient"].nunique(), -1
    each = (table for _, table in lift.groupby("bundle", sort=False))
    return [(_column(table, right).reshape(shape), _column(table, "duels").reshape(shape)) for table in each]


def named(rows: pd.DataFrame) -> pd.DataFrame:
    """`method` and `reference` in the place of criterion and rule."""
    reference = rows["criterion"].str.cat(rows["rule"], sep="_")
    return rows.assign(method=rows["criterion"].map(METHOD), reference=reference).drop(columns=ELIMINATION)


def _column(table: pd.DataFrame, name: str) -> Floats:
    return table[[name]].to_numpy(dtype=np.float64)
