"""Numbers of entities that Layer 0 removes before any observation, and shares of wrong removals.

A removal is wrong if the removed entity is in at least one patient's top k at full observation. The stage also measures
whether the rule `greedy` chooses better first features after entities have been removed. For this comparison, `greedy`
chooses features twice: first with all entities, then only with the entities that Layer 0 keeps. For both choices of
features, the stage counts how many duels (comparisons of two entities) the score `linearity` decides correctly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from afa.cohort.cohort import Cohort
from afa.engine.paths import first_signs
from afa.evaluate.accuracy import Part, Resampled, by_t, right_of
from afa.evaluate.inputs import each_in_threads, final_differences, top_k_size
from afa.evaluate.long_tables import rows_of
from afa.evaluate.summary import Labelled, labelled, summary_rows
from afa.inference.meanfield import Solver
from afa.model.arrays import Bools, Floats
from afa.model.bundle import Bundle
from afa.planner.cluster import paper_clusters, parameters
from afa.planner.layer0 import (
    CRITERIA,
    EXCLUSION_RULES,
    SOUND,
    Partition,
    centroid_certificates,
    completion_bounds,
    partition,
    sound_certificates,
)
from afa.scores.copeland import ranking
from afa.scores.preference import tie_of

if TYPE_CHECKING:
    from afa.paper.experiments.settings import Bootstrap, Inference, Layer0

METHOD_OF_CRITERION = {"f1": "wald", "f2": "stack_a", "sound": "wald"}
ELIMINATION = ["criterion", "rule"]
FOLLOWED_KEYS = {
    "method": "linearity",
    "guide": "linearity",
    "gain": "cmi",
    "allocation": "greedy",
    "schedule": "every",
    "target": "likelihood",
    "start": "uniform",
}
"""Key columns of the rows `gap` and `accuracy`: how features were chosen and how the result was evaluated."""
N_ROUNDS = 10
Removed = Mapping[tuple[int, str, str], tuple[str, ...]]
"""(number of clusters, criterion, rule) -> names of the entities that Layer 0 eliminates."""


def run(bundle: Bundle, cohort: Cohort, *, layer0: Layer0, top_k: int, inference: Inference) -> dict[str, pd.DataFrame]:
    """Run Layer 0 with each number of clusters in `layer0.clusters` and with the paper's number of clusters.

    The removed entities are compared with the top k of every patient at full observation. Numbers of clusters that
    exceed the number of entities are skipped. A variant of Layer 0 is a pair (criterion, rule). The criteria `f1` and
    `f2` use the paper's centroid score. With the rule `n_minus_k`, an entity is removed if at least n - k of the n
    entities are certified to be better. With the rule `k`, an entity is removed if at least k entities are certified to
    be better. The criterion `sound` is combined only with the rule `k`.

    Returns
    -------
    layer0 : one row for each (n_clusters, criterion, rule). `paper` is True for the paper's number of clusters.
        `entities` is the number of entities. `needed` is the required number of better entities, and `most_dominators`
        is the largest number of better entities that any entity has. `clusters_out` and `entities_out` are the numbers
        of removed clusters and entities. `contradicted` is the number of removed entities that are in at least one
        patient's top k at full observation
    patients : one row for each (n_clusters, criterion, rule, patient). `certificates` is the number of entities
        certified to be outside the top k. `false_certificates` is the number of these entities that are in the
        patient's top k. `duels` is the number of certified duels with a winner at full observation. `false_duels` is
        the number of these duels in which the certificate names the wrong winner
    clusters : one row for each (n_clusters, cluster). A cluster has the name of its first member. `members` is the
        number of its members. `radius` is the largest l1 distance of a member to the centroid, and `spread` is the
        largest l-infinity distance. `score` (nats) and `converged` describe the centroid. `contraction`, `eligible_f2`
        and `lipschitz_f2` describe the cluster. `lipschitz_f2` is missing if the cluster is not eligible. The other
        columns have the same value for all clusters. `gap` is the smallest l1 distance between centroids. `separation`
        is `gap` divided by the largest radius. `within` and `between` are the two sides of the activation condition.
        Distances are in nats, like potentials
    lift : the result of `layer0_lift` for the entities that each variant removes at each number of clusters

    """
    n, k, solver = len(bundle.entities), top_k_size(bundle, top_k), Solver(**dict(inference))
    counts = sorted({count for count in (*layer0.clusters, paper_clusters(n)) if count <= n})
    tables = layer0_tables(bundle, cohort, counts, k=k, solver=solver)
    tables["layer0"]["paper"] = tables["layer0"]["n_clusters"] == paper_clusters(n)
    return tables


def top_k(bundle: Bundle, energy: Floats, k: int) -> Bools:
    """Return a mask of each patient's k best entities according to Copeland's rule (decisions.md S6).

    Parameters
    ----------
    energy : (P, N) float64, nats

    Returns
    -------
    best : (P, N) bool

    """
    tie = tie_of([bundle.mrf(entity) for entity in bundle.entities])
    best = [ranking(scores[:, None] - scores[None, :], bundle.entities, tie=tie)[:k] for scores in energy]
    return np.array([np.isin(bundle.entities, names) for names in best])


def layer0_tables(
    bundle: Bundle, cohort: Cohort, counts: Sequence[int], *, k: int, solver: Solver, threads: int | None = 1
) -> dict[str, pd.DataFrame]:
    """Return the tables of `run` for the numbers of clusters in `counts`, without the column `paper`.

    Raises
    ------
    PlannerError : k is not below the number of entities.

    """
    entities, energy = parameters(bundle), bundle.energies(cohort.values)
    top, tie = top_k(bundle, energy, k), tie_of([bundle.mrf(entity) for entity in bundle.entities])
    sound = sound_certificates(entities, k, bounds=completion_bounds(bundle))
    variants, patients, clusters = [], [], []
    removed: dict[tuple[int, str, str], tuple[str, ...]] = {}
    for count in counts:
        parted = partition(entities, count, solver=solver)
        clusters.append(_cluster_table(parted))
        of_centroids = [
            (criterion, rule, centroid_certificates(parted, k, criterion=criterion, rule=rule))
            for criterion, rule in product(CRITERIA, EXCLUSION_RULES)
        ]
        for criterion, rule, certificates in (*of_centroids, (SOUND, "k", sound)):
            keys: dict[str, Any] = {"n_clusters": count, "criterion": criterion, "rule": rule}
            out, (better, worse) = certificates.out, np.nonzero(certificates.beats)
            lead = energy[:, better] - energy[:, worse]
            of_all = {
                "entities": len(out),
                "needed": certificates.needed,
                "most_dominators": int(certificates.dominators.max()),
                "clusters_out": int(certificates.clusters_out(parted.label).sum()),
                "entities_out": int(out.sum()),
                "contradicted": int((top.any(axis=0) & out).sum()),
            }
            of_patients = {
                "patient": cohort.patients,
                "certificates": int(out.sum()),
                "false_certificates": (top & out).sum(axis=1),
                "duels": (np.abs(lead) > tie).sum(axis=1),
                "false_duels": (lead < -tie).sum(axis=1),
            }
            variants.append(keys | of_all)
            patients.append(pd.DataFrame(of_patients).assign(**keys))
            removed[count, criterion, rule] = certificates.eliminated
    tables = {
        "layer0": pd.DataFrame(variants),
        "patients": pd.concat(patients, ignore_index=True),
        "clusters": pd.concat(clusters, ignore_index=True),
        "lift": layer0_lift(bundle, cohort, removed, solver=solver, threads=threads),
    }
    return {name: table.assign(cohort=cohort.name, bundle=bundle.name) for name, table in tables.items()}


def _cluster_table(parted: Partition) -> pd.DataFrame:
    within, between = parted.activation
    alike = ("radius", "spread", "score", "converged", "contraction")
    table = pd.DataFrame({name: [getattr(cluster, name) for cluster in parted.clusters] for name in alike})
    constants = pd.Series([cluster.lipschitz("f2") for cluster in parted.clusters], dtype="float64")
    return table.assign(
        n_clusters=len(table),
        cluster=[cluster.members[0] for cluster in parted.clusters],
        members=[len(cluster.members) for cluster in parted.clusters],
        eligible_f2=constants.notna(),
        lipschitz_f2=constants,
        gap=parted.gap,
        separation=parted.separation,
        within=within,
        between=between,
    )


def layer0_lift(
    bundle: Bundle,
    cohort: Cohort,
    removed: Removed,
    *,
    rounds: int = N_ROUNDS,
    solver: Solver | None = None,
    threads: int | None = 1,
) -> pd.DataFrame:
    """Return numbers of correct decisions after t features that `greedy` chose, with and without Layer 0.

    The table has one row for each (n_clusters, criterion, rule, patient, t), with t from 0 to `rounds`. Duels of
    removed entities are also evaluated.

    Parameters
    ----------
    removed : names of the entities that Layer 0 removes, for each (number of clusters, criterion, rule)

    Returns
    -------
    right : number of correct decisions along the order that `greedy` chooses for the remaining entities. A tie counts
        one half
    right_greedy : number of correct decisions along the order that `greedy` chooses for all entities
    duels : number of duels with a winner at full observation (decisions.md S11)

    """
    rounds = min(rounds, len(bundle.features))
    target = np.sign(final_differences(bundle, cohort.values)).astype(np.int8)

    def calls_without(names: tuple[str, ...]) -> Part:
        left = [name for name in bundle.entities if name not in names]
        looked_at = bundle.restrict_entities(left) if names else bundle
        signs = first_signs(bundle, looked_at, cohort.values, rounds, solver=solver)
        return right_of(np.moveaxis(signs, 1, 2), target, np.ones(target.shape, dtype=np.bool_))

    distinct = list(dict.fromkeys([(), *removed.values()]))
    found = dict(zip(distinct, each_in_threads(calls_without, distinct, threads), strict=True))
    everyone, _ = found[()]
    tables = []
    for (n_clusters, criterion, rule), names in removed.items():
        right, duels = found[names]
        table = rows_of(patient=cohort.patients, t=range(rounds + 1))
        keys: dict[str, Any] = {"n_clusters": n_clusters, "criterion": criterion, "rule": rule}
        counts = {"right": right.ravel(), "right_greedy": everyone.ravel(), "duels": duels.ravel().astype(np.int64)}
        tables.append(table.assign(**keys, **counts))
    return pd.concat(tables, ignore_index=True)


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Return the rows of the table `layer0_bundle` in `summary.csv`.

    Rows with an empty column `variant` are results for the paper's number of clusters. Rows with the variant `clusters`
    are given for each number of clusters, which is in the column `level`. The column `reference` contains criterion and
    rule.

    Returns
    -------
    count : number of removed clusters for each reference, out of `n` clusters. The quantity `entities` counts entities
        instead
    rate : share of false certificates over all patients, for each reference. The quantity `harmed` is the share of
        patients who lose an entity of their top k. `contradicted` is the share of removed entities that are in at least
        one patient's top k. `duels` is the share of certified duels with the wrong winner. `f2_eligible` is the share
        of eligible clusters, for each number of clusters
    contraction, nats : for each number of clusters. `contraction` is the largest contraction. `nats` has both sides of
        the separation and of the activation condition
    accuracy, gap : for each t. `accuracy` is the sign accuracy if `greedy` considers all entities. `gap` is the sign
        accuracy if `greedy` considers only the remaining entities, minus `accuracy`

    """
    layer0 = tables["layer0"]
    resampled = Resampled.of(tables["patients"]["patient"].unique(), **dict(bootstrap), purpose="layer0_bundle")
    paper = layer0.loc[layer0["paper"], "n_clusters"].iloc[0]
    sweep = [(count, {"variant": "clusters", "level": count}) for count in dict.fromkeys(layer0["n_clusters"])]
    rows: list[Labelled] = []
    for count, label in [(paper, {}), *sweep]:
        chosen = where(tables, "n_clusters", count)
        rows += [(table, label) for table in (*removal(chosen, resampled), geometry(chosen["clusters"]))]
    rows.append((greedy_accuracy(where(tables, "n_clusters", paper)["lift"], resampled), {}))
    return summary_rows("layer0_bundle", labelled(rows))


def where(tables: Mapping[str, pd.DataFrame], column: str, value: object) -> dict[str, pd.DataFrame]:
    return {name: tables[name][tables[name][column] == value] for name in ("layer0", "patients", "clusters", "lift")}


def removal(tables: Mapping[str, pd.DataFrame], resampled: Resampled) -> Iterator[pd.DataFrame]:
    """Yield counts of removals, shares of wrong removals, and the effect of Layer 0 on `greedy`.

    The effect is the change of the sign accuracy at each t.
    """
    summed = ["clusters_out", "entities_out", "contradicted", "n_clusters", "entities"]
    total = tables["layer0"].groupby(ELIMINATION, sort=False)[summed].sum().reset_index()
    contradicted = total["contradicted"] / total["entities_out"].replace(0, np.nan)
    for metric, quantity, value, n in (
        ("count", None, total["clusters_out"], total["n_clusters"]),
        ("count", "entities", total["entities_out"], total["entities"]),
        ("rate", "contradicted", contradicted, total["entities_out"]),
    ):
        yield with_summary_columns(total[ELIMINATION].assign(metric=metric, quantity=quantity, value=value, n=n))
    patients = tables["patients"].assign(harmed=tables["patients"]["false_certificates"] > 0, one=1)
    for (criterion, rule), each in patients.groupby(ELIMINATION, sort=False):
        for quantity, false, of in (
            (None, "false_certificates", "certificates"),
            ("harmed", "harmed", "one"),
            ("duels", "false_duels", "duels"),
        ):
            share = resampled.share(each, false, of, by=None).assign(metric="rate", quantity=quantity)
            yield with_summary_columns(share.assign(criterion=str(criterion), rule=str(rule)))
    for (criterion, rule), each in tables["lift"].groupby(ELIMINATION, sort=False):
        gap = resampled.gap(_duel_counts(each, "right", resampled), _duel_counts(each, "right_greedy", resampled))
        yield by_t(gap).assign(metric="gap", reference=f"{criterion}_{rule}", **FOLLOWED_KEYS)


def geometry(clusters: pd.DataFrame) -> pd.DataFrame:
    """Return summary rows about the clusters of entities, such as the largest contraction constant and radius."""
    rows = [
        ("rate", "f2_eligible", clusters["eligible_f2"].mean()),
        ("contraction", None, clusters["contraction"].max()),
        ("nats", "centroid_gap", clusters["gap"].iloc[0]),
        ("nats", "largest_radius", clusters["radius"].max()),
        ("nats", "within", clusters["within"].iloc[0]),
        ("nats", "between", clusters["between"].iloc[0]),
    ]
    return pd.DataFrame(rows, columns=["metric", "quantity", "value"]).assign(n=len(clusters))


def greedy_accuracy(lift: pd.DataFrame, resampled: Resampled) -> pd.DataFrame:
    """Return the sign accuracy at each t if `greedy` chooses features for all entities.

    The accuracy does not depend on the criterion and the rule of Layer 0.
    """
    one = lift[(lift[ELIMINATION] == lift[ELIMINATION].iloc[0]).all(axis=1)]
    return by_t(resampled.mean(_duel_counts(one, "right_greedy", resampled))).assign(metric="accuracy", **FOLLOWED_KEYS)


def _duel_counts(lift: pd.DataFrame, right: str, resampled: Resampled) -> list[Part]:
    """Return for each configuration the numbers of correct decisions and of duels, two arrays of shape (P, T)."""
    return [resampled.part(table, right, "duels") for _, table in lift.groupby("bundle", sort=False)]


def with_summary_columns(rows: pd.DataFrame) -> pd.DataFrame:
    """Replace the columns `criterion` and `rule` with the summary's columns `method` and `reference`."""
    reference = rows["criterion"].str.cat(rows["rule"], sep="_")
    return rows.assign(method=rows["criterion"].map(METHOD_OF_CRITERION), reference=reference).drop(columns=ELIMINATION)
