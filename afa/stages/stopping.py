"""Where each rule of stopping ends an acquisition, and what the answer is worth there (`afa.planner.Stop`).

Every patient of a cohort is followed to full observation, in the top-k setting and as a binary task of each entity; a
rule stops at the first round at which it holds. What is answered then is held against what full observation answers.
The engine follows them, but for the top k under `explicit`: there the planners themselves do, a patient at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.closure import STRENGTH, Closure
from afa.cohort.cohort import Cohort
from afa.engine.paths import Watched, WatchedTask, watch, watch_task
from afa.engine.rounds import full_observation
from afa.engine.tasks import task_of
from afa.errors import ConfigError, Fault, SanityError
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.orders import random_orders
from afa.planner import TopKPlanner
from afa.stages.base import Column, Stage, columns
from afa.stages.inputs import closures_beside, note, top_k_size
from afa.stages.simulate.walks import Gauge, Way, planned_truth, planner_of, steps
from afa.stages.topk import Targets
from afa.stats.accuracy import Part, Resampled
from afa.stats.resampling import first_where, quartiles_of_rounds
from afa.stats.summary import summary_rows
from afa.stats.tables import Complete, Tables, axis_among, axis_of, by_patient, read_table

if TYPE_CHECKING:
    from afa.stages import settings

OWN = {
    "gain": Column("", "gain that the allocation rule maximises; empty where it looks at none"),
    "t": Column("observations", "features observed when the run ended; M where nothing ended it before"),
    "decision": Column("sign", "decision when the run ended: 1 for the entity, -1 against, 0 a tie"),
    "likelihood": Column("sign", "decision at full observation, 0 for a tie"),
    "members": Column("count", "members of the answer, k"),
    "wrong": Column(
        "count", "those of them that are not among the k best at full observation, ties for the last places being right"
    ),
}
STAGE = Stage(
    inputs=("bundle", "cohort", "allocation"),
    settings=("stopping", "top_k", "inference", "closure"),
    scopes=True,
    sharded=True,
    duels=True,
    tables={
        "tasks": columns(
            "cohort bundle patient coupling entity allocation gain stopping level t stopped decision likelihood"
            " clinical",
            **OWN,
        ),
        "top_k": columns("cohort bundle patient allocation gain stopping level t stopped members wrong", **OWN),
    },
    rows={
        "stopping": "how early does each rule of stopping end, and how often is the answer then not that of full "
        "observation?"
    },
    space_mb=0.1,
)


def run(
    bundle: Bundle,
    cohort: Cohort,
    allocation: Tables,
    patients: Sequence[int],
    *,
    stopping: settings.Stopping,
    top_k: int,
    inference: settings.Inference,
    closure: settings.Closure,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """The tables of `stopping_tables`; allocation : tables of that stage, whose orders are followed again.

    The tasks are stopped under the run's closure and, where the bundle says how often, every other; the top k under the
    run's own. The grid's orders are those of directions: under `explicit` the rules choose by how often instead.
    """
    names = [cohort.patients[p] for p in patients]
    rules = [rule for rule in stopping.rules if rule != RANDOM]
    orders: Mapping[str, NDArray[np.int64] | None] = dict.fromkeys(rules)
    if closure.coupling != "explicit":
        orders = stored_orders(allocation.folder, bundle, names, rules, note)
    return stopping_tables(
        bundle,
        cohort,
        patients,
        orders,
        stopping,
        k=top_k_size(bundle, top_k),
        solver=Solver(**dict(inference)),
        couplings=closures_beside(bundle, cohort, closure.coupling),
        strength=closure.strength,
        threads=threads,
    )


class Halt(NamedTuple):
    """A rule of stopping, by the name of its option of `afa.planner.Stop`, and its level.

    level : the probability that is asked for, 1 where `certain`; the largest gain that may be left, in nats; the budget
    as a share of all features, each at a cost of 1.
    """

    stopping: str
    level: float


def stops(levels: settings.Stopping, watched: Watched | WatchedTask) -> Iterator[tuple[Halt, NDArray[np.int64]]]:
    """Each rule with the first round at which it holds, (P,); M where none before the last does."""
    n_patients, last_round = watched.certain.shape[0], watched.certain.shape[1] - 1
    yield Halt("certain", 1.0), first_where(watched.certain[:, :-1])
    for level in levels.probabilities:
        yield Halt("probability", level), first_where(watched.probability[:, :-1] >= level)
    if isinstance(watched, Watched):  # of one task it is the same as the probability
        for level in levels.probabilities:
            yield Halt("posterior", level), first_where(watched.posterior[:, :-1] >= level)
    for level in levels.gains:
        yield Halt("gain", level), first_where(watched.gain[:, :-1] <= level)
    for level in levels.budgets:
        yield Halt("budget", level), np.full(n_patients, int(level * last_round * (1 + 1e-12)), dtype=np.int64)


RANDOM, GREEDY = "random", "greedy"
STORED = {"gain": "cmi", "schedule": "every"}
"""The cells of the allocation grid whose orders are followed again: the gain and the schedule of a planner."""
ASKED = Way(RANDOM, STORED["gain"], "two_elbo")
"""How a planner goes under `explicit`."""


def stopping_tables(
    bundle: Bundle,
    cohort: Cohort,
    patients: Sequence[int],
    orders: Mapping[str, NDArray[np.int64] | None],
    stopping: settings.Stopping,
    *,
    k: int,
    solver: Solver,
    couplings: Sequence[Closure] = ("differential",),
    strength: float = STRENGTH,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Stop the chosen patients (row indices of the cohort) by every rule, under every order of observation.

    orders : by allocation rule, (P, M) features as the rule chose them for these patients in the top-k setting, or None
    for a planner to choose. A random order is followed beside them, and beside that of `greedy` in the binary tasks.
    stopping : the levels that are tried, and the seed of the random order.
    couplings, strength : which two class models a task has (`afa.closure`), each in its turn; the first is the run's
    own, by which the top k is chosen too.

    Returns two tables, by (patient, allocation, gain, stopping, level), of tasks also by coupling and entity. `t`: the
    round of the stop; `stopped`: whether it lies before full observation.

    `top_k`: `members`, k; `wrong`, members of the answer that are not among the k best at full observation, any of
    those that tie for the last places being right.

    `tasks`: `decision` at the stop, `likelihood` at full observation, the signs of the score; `clinical`, the label.

    Raises
    ------
    SanityError : full observation contradicts an answer that was certain.

    """
    names, values = [cohort.patients[p] for p in patients], cohort.values[list(patients)]
    random = random_orders(bundle.features, names, [stopping.seed])[:, 0]
    unlabelled = np.full((len(names), len(bundle.entities)), np.nan)
    explicit, duels = couplings[0] == "explicit", bundle.contrasts()
    gauge, asked = Gauge("explicit" if explicit else None), ASKED if explicit else ASKED._replace(score="linearity")
    if explicit:
        truth = planned_truth(values, [planner_of(bundle, asked, k, gauge, solver) for _ in names])
    else:
        truth = full_observation(duels, values, solver=solver)
    targets = Targets.of(truth, unlabelled, k, 0)
    parts: dict[str, list[pd.DataFrame]] = {"top_k": [], "tasks": []}
    for allocation, order in {**orders, RANDOM: random}.items():
        if explicit or order is None:
            way = asked._replace(allocation=allocation)
            planners = [planner_of(bundle, way, k, gauge, solver, patient=name, seed=stopping.seed) for name in names]
            watched = watch_planners(planners, values, order)
        else:
            watched = watch(duels, values, order, k=k, solver=solver, threads=threads)
        for halt, rounds in stops(stopping, watched):
            answer = watched.inside[np.arange(len(names)), rounds]
            tied = np.minimum((answer & targets.tied).sum(axis=1), targets.slots)  # any of these is right
            wrong = k - (answer & targets.sure).sum(axis=1) - tied
            answers = {"members": np.int16(k), "wrong": wrong.astype(np.int16)}
            parts["top_k"].append(_rows(names, allocation, halt, rounds, values.shape[1], answers))
    for coupling, entity in product(couplings, bundle.entities):
        task = task_of(bundle, entity, solver=solver, coupling=coupling, strength=strength)
        labels = cohort.labels.reindex(columns=[entity])[entity].astype("Int8").array[list(patients)]
        for allocation, of_task in ((GREEDY, None), (RANDOM, random)):
            seen = watch_task(task, values, of_task, threads=threads)
            for halt, rounds in stops(stopping, seen):
                decision = seen.decision[np.arange(len(names)), rounds]
                answers = {"decision": decision, "likelihood": seen.decision[:, -1], "clinical": labels}
                rows = _rows(names, allocation, halt, rounds, values.shape[1], answers)
                parts["tasks"].append(rows.assign(coupling=coupling, entity=entity))
    tables = {name: by_patient(rows, names) for name, rows in parts.items()}
    check_certain(tables)
    return tables


def watch_planners(
    planners: Sequence[TopKPlanner], values: NDArray[np.int8], orders: NDArray[np.int64] | None
) -> Watched:
    """Follow P patients, values (P, M), by a planner each, along orders (P, M) or as the planners choose."""
    read: list[list[tuple[Any, ...]]] = []
    for i, planner in enumerate(planners):
        read.append([])
        for _ in steps(planner, values[i], None if orders is None else orders[i]):
            posterior = 0.0 if planner.undecided() else planner.answer_probability()
            inside = np.isin(planner.bundle.entities, planner.top_k())
            certain, probability = planner.certified(), planner.boundary_probability()
            read[-1].append((inside, certain, probability, posterior, planner.largest_gain()))
    return Watched(*(np.array([[seen[field] for seen in rounds] for rounds in read]) for field in range(5)))


def check_certain(tables: Mapping[str, pd.DataFrame]) -> None:
    """A `SanityError` where full observation contradicts an answer that was certain."""
    for name, table in tables.items():
        certain = table[(table["stopping"] == "certain") & table["stopped"]]
        differs = certain["wrong"] > 0 if name == "top_k" else certain["decision"] != certain["likelihood"]
        if differs.any():
            case = certain[differs].iloc[0]
            keys = [key for key in ("patient", "coupling", "entity", "allocation") if key in table]
            where = ", ".join(f"{key} {case[key]}" for key in keys)
            found = f"an answer certain at t = {case['t']} that full observation contradicts"
            step = "this is a fault of the program: report the bundle and this patient"
            raise SanityError(Fault(f"stopping, {name}, {where}", found, "none", step))


def stored_orders(
    folder: Path, bundle: Bundle, names: Sequence[str], rules: Sequence[str], report: Callable[[str], None]
) -> dict[str, NDArray[np.int64]]:
    """By rule, (P, M) features in the order of the table `choices` of the allocation stage, for P patients by name.

    A rule that the table does not have with `cmi` and the schedule `every` is left out, and `report` says so.

    Raises
    ------
    ConfigError : there is no such table, or a rule lacks a patient or a round in it.

    """
    column = {feature: j for j, feature in enumerate(bundle.features)}
    kept = [(key, "==", value) for key, value in STORED.items()] + [("allocation", "in", list(rules)), ("t", ">", 0)]
    choices = read_table(folder, "choices", columns=["patient", "allocation", "t", "feature"], filters=kept)
    choices = choices[choices["patient"].isin(list(names))]
    orders = {}
    for rule in rules:
        of_rule = choices[choices["allocation"] == rule]
        if of_rule.empty and names:
            report(f"{rule} is left out: the allocation grid does not have it with {STORED['gain']} at every round")
            continue
        wide = of_rule.assign(feature=of_rule["feature"].map(column)).pivot(
            index="patient", columns="t", values="feature"
        )
        order = wide.reindex(list(names)).to_numpy(dtype=np.float64)
        every = np.arange(len(bundle.features))
        if order.shape != (len(names), len(every)) or (np.sort(order, axis=1) != every).any():
            where = f"{folder / 'choices.parquet'}, rule {rule}"
            expected = f"all {len(every)} features of each of {len(names)} patients"
            raise ConfigError(Fault(where, "other choices", expected, "run the allocation stage again"))
        orders[rule] = np.ascontiguousarray(order, dtype=np.int64)
    return orders


def _rows(
    names: Sequence[str],
    allocation: str,
    halt: Halt,
    rounds: NDArray[np.int64],
    last_round: int,
    answers: Mapping[str, Any],
) -> pd.DataFrame:
    gain = "" if allocation == RANDOM else STORED["gain"]
    table = pd.DataFrame({"patient": list(names), "allocation": allocation, "gain": gain, **halt._asdict()})
    return table.assign(t=rounds.astype(np.int16), stopped=rounds < last_round, **answers)


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: settings.Bootstrap) -> pd.DataFrame:
    """Summary rows `stopping`, all patients together.

    By method (`linearity`: the top k, `two_elbo`: the binary tasks, by closure in `coupling`), allocation and rule of
    stopping (`reference`, and `level`, which `certain` lacks): `rate`, of those stopped before full observation the
    share whose answer differs from it (a decision of 0 is half wrong, tasks tied at full observation are left out);
    quantities `stopped`, the share of all that stop; `nominal`, the error that the level stands for; `members`, the
    wrong share of the top k. `count`, quartiles of the features used, all of them where nothing stops. Tasks with a
    label: `balanced_accuracy` of those stopped, at the stop and, variant `full_observation`, of the same ones there.
    Once: counts of ties and of labels.
    """
    patients = [str(name) for name in pd.unique(tables["tasks"]["patient"])]
    resampled = Resampled.of(patients, **dict(bootstrap), purpose="stopping")
    rows: list[pd.DataFrame] = []
    for name, keys in (("top_k", ["allocation", "gain"]), ("tasks", ["coupling", "allocation", "gain"])):
        last_round = int(tables[name]["t"].max())
        for key, part in tables[name].groupby(keys, sort=False):
            rows += _rows_of(name, part, dict(zip(keys, map(str, key), strict=True)), last_round, patients, resampled)
    return summary_rows("stopping", rows, schedule="every", start="uniform")


def _rows_of(
    name: str,
    part: pd.DataFrame,
    keys: Mapping[str, str],
    last_round: int,
    patients: Sequence[str],
    resampled: Resampled,
) -> Iterator[pd.DataFrame]:
    """The rows of one order in one table, by arrays (P, E, rules): the top k is one entity, which has no name."""
    binary, rule = name == "tasks", axis_of(part, ["stopping", "level"])
    method, words = "two_elbo" if binary else "linearity", [word for key, word in keys.items() if key != "gain"]
    axes = {"patient": axis_among(part["patient"], patients)}
    axes |= {"entity": axis_of(part, ["entity"])} if binary else {}
    table = Complete.of(f"table {', '.join([name, *words])}", part, {**axes, "rule": rule})
    rules = pd.DataFrame(rule.labels, columns=["reference", "level"]).assign(method=method, guide=method, **keys)
    rules["level"] = rules["level"].astype(float).where(rules["reference"] != "certain")
    rules["gain"] = keys["gain"] or None

    def column(each: str) -> NDArray[np.float32]:
        return table.column(each, may_miss=each == "clinical").reshape(len(patients), -1, len(rules))

    def shares(*parts: Part) -> pd.DataFrame:
        return _label(rules, resampled.mean(list(parts)))

    stopped = column("stopped") > 0
    if binary:
        decision, truth, label = column("decision"), column("likelihood"), 2 * column("clinical") - 1
        if keys["allocation"] == GREEDY:  # the same along every order
            yield _left_out(truth[..., 0], label[..., 0]).assign(coupling=keys["coupling"])
        error = _share(0.5 * (1 - decision * truth), stopped & (truth != 0))
    else:
        error = _share(column("wrong") > 0, stopped)
    yield shares(error).assign(metric="rate", target="likelihood")
    if not binary:
        wrong, members = (_share(column(each), stopped)[0] for each in ("wrong", "members"))
        yield shares((wrong, members)).assign(metric="rate", quantity="members", target="likelihood")
    yield shares(_share(stopped, np.ones_like(stopped))).assign(metric="rate", quantity="stopped")
    yield _nominal(rules, error[1].sum(axis=0)).assign(target="likelihood")
    yield from _features_used(column("t"), last_round, rules, resampled)
    for variant, answer in ((None, decision), ("full_observation", truth)) if binary else ():
        sides = [_share(0.5 * (1 + answer * side), stopped & (label == side)) for side in (1, -1)]
        if all(total.any() for _, total in sides):
            yield shares(*sides).assign(metric="balanced_accuracy", variant=variant, target="clinical")


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


def _share(right: NDArray[np.float32] | NDArray[np.bool_], among: NDArray[np.bool_]) -> Part:
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
