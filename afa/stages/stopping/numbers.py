"""The numbers of the rules of stopping over a cohort: who stops early, after how many features, and who wrongly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.mrf import Floats
from afa.stats.accuracy import Part, Resampled
from afa.stats.resampling import quartiles_of_rounds
from afa.stats.summary import summary_rows
from afa.stats.tables import Complete, axis_among, axis_of

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Summary rows `stopping` of the tables of `afa.stages.stopping`, all patients together.

    By method (`linearity`: the top k, `two_elbo`: the binary tasks, by closure in `coupling`), allocation and rule of
    stopping (`reference`, and `level`, which `certain` lacks): `rate`, of those stopped before full observation the
    share whose answer differs from it (a decision of 0 is half wrong, tasks tied at full observation are left out);
    quantities `stopped`, the share of all that stop; `nominal`, the error that the level stands for; `members`, the
    wrong share of the top k. `count`, quartiles of the features used, all of them where nothing stops. Tasks with a
    label: `balanced_accuracy` of those stopped, at the stop and, variant `full_observation`, of the same ones there.
    Once: counts of ties and of labels.
    """
    top_k, tasks = tables["top_k"], tables["tasks"]
    patients = [str(name) for name in pd.unique(tasks["patient"])]
    resampled = Resampled.of(patients, **dict(bootstrap), purpose="stopping")
    rows = [*_top_k_rows(top_k, patients, resampled), *_task_rows(tasks, patients, resampled)]
    return summary_rows("stopping", rows, schedule="every", start="uniform")


def _top_k_rows(top_k: pd.DataFrame, patients: Sequence[str], resampled: Resampled) -> Iterator[pd.DataFrame]:
    last_round, likelihood = int(top_k["t"].max()), {"target": "likelihood"}
    for (allocation, gain), part in top_k.groupby(["allocation", "gain"], sort=False):
        keys = {"patient": axis_among(part["patient"], patients), "rule": axis_of(part, ["stopping", "level"])}
        table = Complete.of(f"table top_k, {allocation}", part, keys)
        rules = _rules("linearity", str(allocation), str(gain), table.axes["rule"].labels)
        stopped, wrong = table.column("stopped").astype(np.float64), table.column("wrong").astype(np.float64)
        error = stopped * (wrong > 0), stopped
        members = stopped * wrong, stopped * table.column("members")
        every = stopped, np.ones_like(stopped)
        yield _label(rules, resampled.mean([error])).assign(metric="rate", **likelihood)
        yield _label(rules, resampled.mean([members])).assign(metric="rate", quantity="members", **likelihood)
        yield _label(rules, resampled.mean([every])).assign(metric="rate", quantity="stopped")
        yield _nominal(rules, stopped.sum(axis=0)).assign(**likelihood)
        yield from _features_used(table.column("t")[:, None], last_round, rules, resampled)


def _task_rows(tasks: pd.DataFrame, patients: Sequence[str], resampled: Resampled) -> Iterator[pd.DataFrame]:
    last_round, entities = int(tasks["t"].max()), [str(name) for name in pd.unique(tasks["entity"])]
    counted: set[str] = set()
    for (coupling, allocation, gain), part in tasks.groupby(["coupling", "allocation", "gain"], sort=False):
        keys = {
            "patient": axis_among(part["patient"], patients),
            "entity": axis_among(part["entity"], entities),
            "rule": axis_of(part, ["stopping", "level"]),
        }
        table = Complete.of(f"table tasks, {coupling}, {allocation}", part, keys)
        rules = _rules("two_elbo", str(allocation), str(gain), table.axes["rule"].labels, str(coupling))
        stopped, decision = table.column("stopped") > 0, table.column("decision")
        truth, label = table.column("likelihood"), 2 * table.column("clinical", may_miss=True) - 1
        if str(coupling) not in counted:
            yield _left_out(truth[..., 0], label[..., 0]).assign(coupling=str(coupling))
            counted.add(str(coupling))
        error = _share(0.5 * (1 - decision * truth), stopped & (truth != 0))
        yield _label(rules, resampled.mean([error])).assign(metric="rate", target="likelihood")
        every = _share(stopped.astype(np.float32), np.ones_like(stopped))
        yield _label(rules, resampled.mean([every])).assign(metric="rate", quantity="stopped")
        yield _nominal(rules, error[1].sum(axis=0)).assign(target="likelihood")
        yield from _features_used(table.column("t"), last_round, rules, resampled)
        for variant, answer in ((None, decision), ("full_observation", truth)):
            sides = [_share(0.5 * (1 + answer * side), stopped & (label == side)) for side in (1, -1)]
            if all(total.any() for _, total in sides):
                table_of = _label(rules, resampled.mean(sides))
                yield table_of.assign(metric="balanced_accuracy", variant=variant, target="clinical")


def _rules(method: str, allocation: str, gain: str, labels: Sequence[Any], coupling: str | None = None) -> pd.DataFrame:
    """What names the rules of stopping under one allocation in the summary, a row each, in the order of the columns."""
    rules = pd.DataFrame(labels, columns=["reference", "level"])
    rules["level"] = rules["level"].astype(float).where(rules["reference"] != "certain")
    return rules.assign(method=method, guide=method, gain=gain or None, allocation=allocation, coupling=coupling)


def _label(rules: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """One row for each rule, less those that have no case."""
    return table.join(rules)[table["n"] > 0]


def _nominal(rules: pd.DataFrame, cases: Floats) -> pd.DataFrame:
    """The error that a rule's level stands for, where it stands for one; of `certain` none."""
    error = (1 - rules["level"].fillna(1.0)).where(rules["reference"].isin(["certain", "probability"]))
    table = pd.DataFrame({"value": error, "n": cases.astype(np.int64), "metric": "rate", "quantity": "nominal"})
    return _label(rules, table).dropna(subset="value")


def _features_used(
    t: NDArray[np.float32], last_round: int, rules: pd.DataFrame, resampled: Resampled
) -> Iterator[pd.DataFrame]:
    """Quartiles of the rounds of the stops, (P, E, rules), all patients and entities together."""
    weights, rounds = resampled.every, np.arange(last_round + 1)
    for i in range(t.shape[-1]):
        by_then = (t[..., i, None] <= rounds).sum(axis=1).astype(np.float64)
        every = np.full(by_then.shape, float(t.shape[1]))
        table = quartiles_of_rounds(by_then, every, weights, confidence=resampled.confidence).assign(metric="count")
        yield table.join(rules.iloc[[i] * len(table)].reset_index(drop=True))


def _share(right: NDArray[np.float32], among: NDArray[np.bool_]) -> Part:
    """(P, rules) sums over entities of what is right, and of cases, from arrays (P, E, rules)."""
    sums = np.where(among, right, 0).sum(axis=1, dtype=np.float64)
    return sums, among.sum(axis=1).astype(np.float64)


def _left_out(truth: NDArray[np.float32], label: NDArray[np.float32]) -> pd.DataFrame:
    """Tasks tied at full observation, and those that have a label; (P, E) each."""
    counts = {("tied_at_full_observation", "likelihood"): truth == 0, ("labelled", "clinical"): ~np.isnan(label)}
    rows = [
        {"quantity": quantity, "target": target, "value": float(mask.sum()), "n": mask.size}
        for (quantity, target), mask in counts.items()
    ]
    return pd.DataFrame(rows).assign(metric="count", method="two_elbo")
