"""The numbers of Layer 0: what it removes, by which rule, and how much of that full observation contradicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from afa.mrf import Floats
from afa.stats.accuracy import Part, Resampled
from afa.stats.summary import summary_rows

METHOD = {"f1": "wald", "f2": "stack_a", "sound": "wald"}
VARIANT = ["criterion", "rule"]
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


def summarise_layer0_bundle(tables: Mapping[str, pd.DataFrame], *, resamples: int, confidence: float) -> pd.DataFrame:
    """Summary rows `layer0_bundle` of the tables of `layer0_bundle`: the paper's number of clusters, then each.

    The headline is the paper's number of clusters; strata `clusters=C` are the sweep. `reference` is the variant:
    criterion and rule. Per variant: `count`, clusters removed of `n`, and `entities`; `rate`, share of the certificates
    of all patients that are false; `harmed`, patients who lose an entity of their top-k; `contradicted`, certificates
    that some patient contradicts; `duels`, dominations that the other side wins. Per number of clusters `rate`
    `f2_eligible`, the largest `contraction`, and in `nats` the two sides of separation and of activation. With the
    table `lift` also, by t, the `accuracy` of `greedy` on all duels, which knows no clusters, and the `gap` to it of
    `greedy` on the entities that a variant leaves.
    """
    layer0, patients, clusters = tables["layer0"], tables["patients"], tables["clusters"]
    resampled = _resampled(patients, "layer0_bundle", resamples, confidence)
    paper = layer0.loc[layer0["paper"], "n_clusters"].iloc[0]
    counts = list(dict.fromkeys(layer0["n_clusters"]))
    cuts = [(paper, ""), *((count, f"clusters={count}") for count in counts)]
    rows = []
    for count, cut in cuts:
        chosen = [table[table["n_clusters"] == count] for table in (layer0, patients, clusters)]
        rows += [_removed(chosen[0], cut), _false(chosen[1], cut, resampled), _geometry(chosen[2], cut)]
    if "lift" in tables:
        of_count = dict(list(tables["lift"].groupby("n_clusters", sort=False)))
        rows += [_gap_to_greedy(of_count[count], cut, resampled) for count, cut in cuts]
        rows.append(_greedy(of_count[paper], "", resampled))
    return summary_rows("layer0_bundle", pd.concat(rows, ignore_index=True))


def summarise_layer0_synthetic(
    tables: Mapping[str, pd.DataFrame], *, resamples: int, confidence: float
) -> pd.DataFrame:
    """Summary rows `layer0_synthetic` of the tables of `layer0_portfolio`: all configurations, then each.

    As `layer0_bundle`, with strata `config=NAME`; the headline adds up all configurations, and `configurations` counts
    those in which something is removed. With the table `lift` also, by t, the `accuracy` of `greedy` on all duels, and
    the `gap` to it of `greedy` on the entities that a variant leaves; the headline is a mean over configurations.
    """
    layer0, patients, clusters = tables["layer0"], tables["patients"], tables["clusters"]
    resampled = _resampled(patients, "layer0_synthetic", resamples, confidence)
    firing = layer0.assign(fired=layer0["clusters_out"] > 0).groupby(VARIANT, sort=False)["fired"]
    fired = firing.agg(value="sum", n="size").reset_index().assign(metric="count", stratum="configurations")
    rows = [_removed(layer0, ""), fired.pipe(_named), _false(patients, "", resampled)]
    for config in dict.fromkeys(layer0["bundle"]):
        chosen = [table[table["bundle"] == config] for table in (layer0, patients, clusters)]
        cut = f"config={config}"
        rows += [_removed(chosen[0], cut), _false(chosen[1], cut, resampled), _geometry(chosen[2], cut)]
    if "lift" in tables:
        rows += _lift(tables["lift"], resampled)
    return summary_rows("layer0_synthetic", pd.concat(rows, ignore_index=True))


def _resampled(patients: pd.DataFrame, purpose: str, resamples: int, confidence: float) -> Resampled:
    return Resampled.of(patients["patient"].nunique(), resamples=resamples, confidence=confidence, purpose=purpose)


def _removed(layer0: pd.DataFrame, cut: str) -> pd.DataFrame:
    """Clusters and entities removed, and the share of the certificates that some patient contradicts."""
    columns = ["clusters_out", "entities_out", "contradicted", "n_clusters", "entities"]
    total = layer0.groupby(VARIANT, sort=False)[columns].sum().reset_index()
    share = total["contradicted"] / total["entities_out"].replace(0, np.nan)
    parts = [
        total[VARIANT].assign(metric="count", stratum=_cut(cut), value=total["clusters_out"], n=total["n_clusters"]),
        total[VARIANT].assign(metric="count", stratum=_cut(cut, "entities"), value=total["entities_out"]),
        total[VARIANT].assign(metric="rate", stratum=_cut(cut, "contradicted"), value=share, n=total["entities_out"]),
    ]
    parts[1]["n"] = total["entities"]
    return _named(pd.concat(parts, ignore_index=True))


def _false(patients: pd.DataFrame, cut: str, resampled: Resampled) -> pd.DataFrame:
    """Shares of certificates, of patients and of dominations that are wrong, with intervals over patients."""
    rows = []
    for (criterion, rule), each in patients.groupby(["criterion", "rule"], sort=False):
        harmed = (each["false_certificates"] > 0).astype(np.int64)
        counted = each.assign(harmed=harmed, one=1).groupby("patient", sort=False).sum(numeric_only=True)
        for word, false, of in (
            ("", "false_certificates", "certificates"),
            ("harmed", "harmed", "one"),
            ("duels", "false_duels", "duels"),
        ):
            table = resampled.mean([(_column(counted, false), _column(counted, of))])
            rows.append(table.assign(stratum=_cut(cut, word), criterion=str(criterion), rule=str(rule)))
    return _named(pd.concat(rows, ignore_index=True).assign(metric="rate"))


def _geometry(clusters: pd.DataFrame, cut: str) -> pd.DataFrame:
    """What both conditions of Layer 0 rest on: contraction for `f2`, and distances within and between clusters."""
    n = len(clusters)
    listed = [
        ("rate", "f2_eligible", clusters["eligible_f2"].mean()),
        ("contraction", "", clusters["contraction"].max()),
        ("nats", "centroid_gap", clusters["gap"].iloc[0]),
        ("nats", "largest_radius", clusters["radius"].max()),
        ("nats", "within", clusters["within"].iloc[0]),
        ("nats", "between", clusters["between"].iloc[0]),
    ]
    cuts = pd.Series([_cut(cut, word) for _, word, _ in listed], dtype=object)
    values = {"metric": [metric for metric, *_ in listed], "value": [value for *_, value in listed]}
    return pd.DataFrame(values).assign(stratum=cuts, n=n)


def _lift(lift: pd.DataFrame, resampled: Resampled) -> Iterator[pd.DataFrame]:
    """The lift over all configurations, and in each of them."""
    configs = list(dict.fromkeys(lift["bundle"]))
    for cut, chosen in [("", configs), *((f"config={config}", [config]) for config in configs)]:
        among = lift[lift["bundle"].isin(chosen)]
        yield _gap_to_greedy(among, cut, resampled)
        yield _greedy(among, cut, resampled)


def _gap_to_greedy(lift: pd.DataFrame, cut: str, resampled: Resampled) -> pd.DataFrame:
    """By t, what each variant adds to the sign accuracy of `greedy`; intervals over patients."""
    rows = []
    for (criterion, rule), variant in lift.groupby(VARIANT, sort=False):
        gap = resampled.gap(_calls(variant, "right"), _calls(variant, "right_greedy"))
        rows.append(gap.assign(reference=f"{criterion}_{rule}", t=np.arange(len(gap))))
    return pd.concat(rows, ignore_index=True).assign(metric="gap", stratum=_cut(cut), **FOLLOWED)


def _greedy(lift: pd.DataFrame, cut: str, resampled: Resampled) -> pd.DataFrame:
    """Sign accuracy of `greedy` by t, which is the same beside every variant."""
    one = lift[(lift[VARIANT] == lift[VARIANT].iloc[0]).all(axis=1)]
    table = resampled.mean(_calls(one, "right_greedy"))
    return table.assign(metric="accuracy", stratum=_cut(cut), t=np.arange(len(table)), **FOLLOWED)


def _calls(variant: pd.DataFrame, right: str) -> list[Part]:
    """Of each configuration the right calls and the duels, (P, T) each."""
    shape = variant["patient"].nunique(), -1
    each = (table for _, table in variant.groupby("bundle", sort=False))
    return [(_column(table, right).reshape(shape), _column(table, "duels").reshape(shape)) for table in each]


def _named(rows: pd.DataFrame) -> pd.DataFrame:
    """`method` and `reference` in the place of criterion and rule."""
    reference = rows["criterion"].str.cat(rows["rule"], sep="_")
    return rows.assign(method=rows["criterion"].map(METHOD), reference=reference).drop(columns=VARIANT)


def _column(table: pd.DataFrame, name: str) -> Floats:
    return table[[name]].to_numpy(dtype=np.float64)


def _cut(*words: str) -> str | None:
    return " ".join(filter(None, words)) or None
