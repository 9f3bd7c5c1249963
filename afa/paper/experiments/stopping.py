"""The round at which each stopping rule of `afa.planner.Stop` stops, and the accuracy of the answer at this round.

In the top-k task and in the binary task of each entity, all features of every patient are observed one by one. A
stopping rule stops at the first round at which the rule's condition is met. The answer at the round of the stop is
compared with the answer at full observation. If class models are made from probabilities (`explicit`), a separate
planner for each patient computes the top-k answers. The compiled engine computes all other answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.cohort.cohort import Cohort
from afa.engine.outcomes import full_observation
from afa.engine.paths import StoppingQuantities, TaskStoppingQuantities, stopping_quantities, task_stopping_quantities
from afa.engine.tasks import task_of
from afa.errors import ConfigError, Fault, SanityError
from afa.evaluate.accuracy import Part, Resampled
from afa.evaluate.inputs import closures_beside, note, top_k_size
from afa.evaluate.long_tables import CompleteTable, StageTables, axis_among, axis_of, by_patient, groups, read_table
from afa.evaluate.resampling import first_where, quartiles_of_rounds
from afa.evaluate.simulate.walks import SimulationSetting, Strategy, planned, planned_truth, planner_of
from afa.evaluate.summary import count_rows, summary_rows
from afa.evaluate.targets import Targets
from afa.inference.meanfield import Solver
from afa.model.arrays import Bools, Codes, Ints
from afa.model.bundle import Bundle
from afa.model.orders import random_orders
from afa.planner import TopKPlanner

if TYPE_CHECKING:
    from afa.paper.experiments import settings


RANDOM, GREEDY = "random", "greedy"
GRID_GAIN_AND_SCHEDULE = {"gain": "cmi", "schedule": "every"}
"""Gain and schedule of the strategies of the stage `allocation` whose orders of features are used. Planners have the
same gain and schedule.
"""
EXPLICIT_STRATEGY = Strategy(RANDOM, GRID_GAIN_AND_SCHEDULE["gain"], "two_elbo")
"""How a planner chooses features if class models are made from probabilities (`explicit`)."""


def run(
    bundle: Bundle,
    cohort: Cohort,
    allocation: StageTables,
    patients: Sequence[int],
    *,
    stopping: settings.Stopping,
    top_k: int,
    inference: settings.Inference,
    closure: settings.ClosureSettings,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Apply every stopping rule to the chosen patients, for every order of observation.

    The top-k task uses the orders that the stage `allocation` chose, and a random order. Binary tasks use the order
    that `greedy` chooses and a random order. The setting `closure` determines how class models are made. The top-k task
    is run only with these class models. If the bundle's probabilities fit the cohort's encoding, binary tasks are also
    run with class models made in all other ways that the bundle allows. If class models are made from probabilities
    (`explicit`), the top-k task does not use the orders of the stage `allocation`, because these orders do not depend
    on probabilities. Instead, a planner for each patient chooses the next feature to observe.

    Parameters
    ----------
    allocation : tables of the stage `allocation`
    patients : row indices of the cohort

    Returns
    -------
    top_k, tasks : one row for each (patient, allocation, gain, stopping, level), in `tasks` also for each coupling and
        entity. `t` is the round of the stop, and `stopped` is True if this round is before full observation. `level`
        depends on the stopping rule: the required probability (1 for `certain`), the largest remaining gain in nats, or
        the budget as a share of all features, each at a cost of 1. In `top_k`, `members` is k, and `wrong` is the
        number of members of the answer that are not among the k best at full observation. Entities tied for the last of
        the k places count as correct. In `tasks`, `decision` is the sign of the score at the stop, `likelihood` is its
        sign at full observation, and `clinical` is the label.

    Raises
    ------
    ConfigError : as in `stored_orders`.
    SanityError : an answer declared certain differs from the answer at full observation.

    """
    names, values, solver = (
        [cohort.patients[p] for p in patients],
        cohort.values[list(patients)],
        Solver(**dict(inference)),
    )
    k, everyone, last_round = top_k_size(bundle, top_k), np.arange(len(names)), values.shape[1]
    random = random_orders(bundle.features, names, [stopping.seed])[:, 0]
    unlabelled = np.full((len(names), len(bundle.entities)), np.nan)
    explicit, duels = closure.coupling == "explicit", bundle.contrasts()
    rules = [rule for rule in stopping.rules if rule != RANDOM]
    orders: Mapping[str, Ints | None] = dict.fromkeys(rules)
    setting = SimulationSetting(k=k, coupling="explicit" if explicit else None, costs="equal", solver=solver)
    asked = EXPLICIT_STRATEGY if explicit else EXPLICIT_STRATEGY._replace(score="linearity")
    if explicit:
        truth = planned_truth(values, [planner_of(bundle, asked, setting) for _ in names])
    else:
        truth = full_observation(duels, values, solver=solver)
        orders = stored_orders(allocation.folder, bundle, names, rules) if rules else {}
    targets = Targets.of(truth, unlabelled, k, 0)
    parts: dict[str, list[pd.DataFrame]] = {"top_k": [], "tasks": []}

    def add(table: str, rule: str, halt: Halt, rounds: Ints, **columns: Any) -> None:
        keys = {"patient": names, "allocation": rule, "gain": "" if rule == RANDOM else GRID_GAIN_AND_SCHEDULE["gain"]}
        stopped = pd.DataFrame({**keys, "stopping": halt[0], "level": halt[1], "t": rounds.astype(np.int16)})
        parts[table].append(stopped.assign(stopped=rounds < last_round, **columns))

    for rule, order in {**orders, RANDOM: random}.items():
        if explicit or order is None:
            way = asked._replace(allocation=rule)
            planners = [planner_of(bundle, way, setting, patient=name, seed=stopping.seed) for name in names]
            watched = watch_planners(planners, values, order)
        else:
            watched = stopping_quantities(duels, values, order, k=k, solver=solver, threads=threads)
        for halt, rounds in stops(stopping, watched):
            answer = watched.inside[everyone, rounds]
            tied = np.minimum((answer & targets.tied).sum(axis=1), targets.slots)  # any tied entities are correct
            wrong = k - (answer & targets.sure).sum(axis=1) - tied
            add("top_k", rule, halt, rounds, members=np.int16(k), wrong=wrong.astype(np.int16))
    for coupling, entity in product(closures_beside(bundle, cohort, closure.coupling), bundle.entities):
        task = task_of(bundle, entity, solver=solver, coupling=coupling, strength=closure.strength)
        clinical = cohort.labels.reindex(columns=[entity])[entity].astype("Int8").array[list(patients)]
        for rule, order in ((GREEDY, None), (RANDOM, random)):
            seen = task_stopping_quantities(task, values, order, threads=threads)
            answers = {"likelihood": seen.decision[:, -1], "clinical": clinical, "coupling": coupling, "entity": entity}
            for halt, rounds in stops(stopping, seen):
                add("tasks", rule, halt, rounds, decision=seen.decision[everyone, rounds], **answers)
    tables = {name: by_patient(rows, names) for name, rows in parts.items()}
    check_certain(tables)
    return tables


Halt = tuple[str, float]
"""Name of a stopping rule (an option of `afa.planner.Stop`), and the level at which the rule stops."""


def stops(
    levels: settings.Stopping, watched: StoppingQuantities | TaskStoppingQuantities
) -> Iterator[tuple[Halt, Ints]]:
    """Yield each stopping rule (`Halt`) with the rounds at which the rule stops for the P patients, (P,) int64.

    A rule stops for a patient at the first round at which the rule's condition is met. If the condition is not met
    before full observation, the round is the number M of features.
    """
    n_patients, last_round = watched.certain.shape[0], watched.certain.shape[1] - 1
    yield ("certain", 1.0), first_where(watched.certain[:, :-1])
    probabilities = {"probability": watched.probability}
    if isinstance(watched, StoppingQuantities):  # binary tasks do not need `posterior`: it would equal `probability`
        probabilities["posterior"] = watched.posterior
    for name, probability in probabilities.items():
        for level in levels.probabilities:
            yield (name, level), first_where(probability[:, :-1] >= level)
    for level in levels.gains:
        yield ("gain", level), first_where(watched.gain[:, :-1] <= level)
    for level in levels.budgets:
        yield ("budget", level), np.full(n_patients, int(level * last_round * (1 + 1e-12)), dtype=np.int64)


def watch_planners(planners: Sequence[TopKPlanner], values: Codes, orders: Ints | None) -> StoppingQuantities:
    """Observe the features of P patients with planners, and return the stopping quantities at each round.

    Unless `orders` are given, a separate planner for each patient chooses the features.

    Parameters
    ----------
    values : (P, M) int8
    orders : (P, M) int64, or None

    """

    def read(planner: TopKPlanner, _: int) -> tuple[Any, ...]:
        posterior = planner.settled_probability()
        inside = np.isin(planner.bundle.entities, planner.top_k())
        certain, probability = planner.certified(), planner.boundary_probability()
        return inside, certain, probability, posterior, planner.largest_gain()

    return StoppingQuantities(*planned(planners, values, read, orders)[1:])


def check_certain(tables: Mapping[str, pd.DataFrame]) -> None:
    """Raise a `SanityError` if an answer declared certain differs from the answer at full observation."""
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


def stored_orders(folder: Path, bundle: Bundle, names: Sequence[str], rules: Sequence[str]) -> dict[str, Ints]:
    """Return {allocation rule: orders in which this rule chose the features of each patient}.

    The orders are read from the table `choices` of the stage `allocation`, for the gain `cmi` and the schedule `every`.
    If the table lacks a rule, the rule is skipped and named in the log.

    Parameters
    ----------
    names : (P,) names of the patients

    Returns
    -------
    orders : (P, M) int64, indices of features

    Raises
    ------
    ConfigError : the table does not exist, or it lacks a patient or a round of a rule.

    """
    column = {feature: j for j, feature in enumerate(bundle.features)}
    filters = [(key, "==", value) for key, value in GRID_GAIN_AND_SCHEDULE.items()] + [
        ("allocation", "in", list(rules)),
        ("t", ">", 0),
    ]
    choices = read_table(folder, "choices", columns=["patient", "allocation", "t", "feature"], filters=filters)
    choices = choices[choices["patient"].isin(list(names))]
    orders = {}
    for rule in rules:
        of_rule = choices[choices["allocation"] == rule]
        if of_rule.empty and names:
            gain = GRID_GAIN_AND_SCHEDULE["gain"]
            note(f"{rule} is left out: the allocation grid does not have it with {gain} at every round")
            continue
        of_rule = of_rule.assign(feature=of_rule["feature"].map(column))
        wide = of_rule.pivot(index="patient", columns="t", values="feature")
        order = wide.reindex(list(names)).to_numpy(dtype=np.float64)
        every = np.arange(len(bundle.features))
        if order.shape != (len(names), len(every)) or (np.sort(order, axis=1) != every).any():
            where = f"{folder / 'choices.parquet'}, rule {rule}"
            expected = f"all {len(every)} features of each of {len(names)} patients"
            raise ConfigError(Fault(where, "other choices", expected, "run the allocation stage again"))
        orders[rule] = np.ascontiguousarray(order, dtype=np.int64)
    return orders


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: settings.Bootstrap) -> pd.DataFrame:
    """Return the rows of the table `stopping` in `summary.csv`.

    There is one row for each method, allocation and stopping rule. The column `method` contains `linearity` for the top
    k and `two_elbo` for binary tasks. For binary tasks, the column `coupling` says how the two class models were made.
    The column `reference` contains the stopping rule, and the column `level` contains the level of this rule. For the
    rule `certain`, the column `level` is empty.

    Returns
    -------
    rate : share of wrong answers among runs that stopped before full observation. An answer is wrong if it differs from
        the answer at full observation. A decision of 0 is half wrong, and tasks tied at full observation are excluded.
        The quantity `stopped` is the share of runs that stop. `nominal` is the error rate that the level permits.
        `members` is the share of wrong entities in the top k
    count : quartiles of the number of features used, where a run without a stop uses M features. The numbers of ties
        and of labels are given once
    balanced_accuracy : balanced accuracy at the stop, for stopped tasks with a label. The variant `full_observation`
        evaluates the same tasks at full observation

    """
    patients = [str(name) for name in pd.unique(tables["tasks"]["patient"])]
    resampled = Resampled.of(patients, **dict(bootstrap), purpose="stopping")
    rows: list[pd.DataFrame] = []
    for name, keys in (("top_k", ["allocation", "gain"]), ("tasks", ["coupling", "allocation", "gain"])):
        last_round = int(tables[name]["t"].max())
        for key, part in groups(tables[name], *keys):
            rows += _stopping_rows(name, part, dict(zip(keys, key, strict=True)), last_round, resampled)
    return summary_rows("stopping", rows, schedule="every", start="uniform")


def _stopping_rows(
    name: str, part: pd.DataFrame, keys: Mapping[str, str], last_round: int, resampled: Resampled
) -> Iterator[pd.DataFrame]:
    """Yield the summary rows about one order of observation in one table.

    The rows are computed from arrays with the axes patient, entity and stopping rule. For the top-k task, the axis of
    entities has length 1.
    """
    binary, rule = name == "tasks", axis_of(part, ["stopping", "level"])
    method, words = "two_elbo" if binary else "linearity", [word for key, word in keys.items() if key != "gain"]
    axes = {"patient": axis_among(part["patient"], list(resampled.units))}
    axes |= {"entity": axis_of(part, ["entity"])} if binary else {}
    whole = CompleteTable.of(f"table {', '.join([name, *words])}", part, {**axes, "rule": rule})
    rules = pd.DataFrame(rule.labels, columns=["reference", "level"]).assign(method=method, guide=method, **keys)
    rules["level"] = rules["level"].astype(float).where(rules["reference"] != "certain")
    rules["gain"] = keys["gain"] or None

    def column(each: str) -> NDArray[np.float32]:
        return whole.column(each, may_miss=each == "clinical").reshape(len(resampled.units), -1, len(rules))

    def labelled(table: pd.DataFrame) -> pd.DataFrame:
        return table.join(rules)[table["n"] > 0]

    def shares(*parts: Part) -> pd.DataFrame:
        return labelled(resampled.mean(list(parts)))

    stopped = column("stopped") > 0
    if binary:
        decision, truth, label = column("decision"), column("likelihood"), 2 * column("clinical") - 1
        if keys["allocation"] == GREEDY:  # the numbers of ties and labels are the same for all orders
            tied, known = truth[..., 0] == 0, ~np.isnan(label[..., 0])
            counts = ("tied_at_full_observation", "likelihood", tied), ("labelled", "clinical", known)
            for quantity, target, mask in counts:
                rows = count_rows({quantity: (mask.sum(), mask.size)})
                yield rows.assign(target=target, method=method, coupling=keys["coupling"])
        error = _sum_over_entities(0.5 * (1 - decision * truth), stopped & (truth != 0))
    else:
        error = _sum_over_entities(column("wrong") > 0, stopped)
    yield shares(error).assign(metric="rate", target="likelihood")
    if not binary:
        wrong, members = (_sum_over_entities(column(each), stopped)[0] for each in ("wrong", "members"))
        yield shares((wrong, members)).assign(metric="rate", quantity="members", target="likelihood")
    yield shares(_sum_over_entities(stopped, np.ones_like(stopped))).assign(metric="rate", quantity="stopped")
    nominal = (1 - rules["level"].fillna(1.0)).where(rules["reference"].isin(["certain", "probability"]))
    cases = error[1].sum(axis=0).astype(np.int64)
    table = labelled(pd.DataFrame({"value": nominal, "n": cases})).dropna(subset="value")
    yield table.assign(metric="rate", quantity="nominal", target="likelihood")
    rounds, t, weights = np.arange(last_round + 1), column("t"), resampled.every
    for i in range(len(rules)):
        by_then = (t[..., i, None] <= rounds).sum(axis=1).astype(np.float64)
        every = np.full(by_then.shape, float(t.shape[1]))
        table = quartiles_of_rounds(by_then, every, weights, confidence=resampled.confidence)
        yield table.join(rules.iloc[[i] * len(table)].reset_index(drop=True)).assign(metric="count")
    for variant, answer in ((None, decision), ("full_observation", truth)) if binary else ():
        sides = [_sum_over_entities(0.5 * (1 + answer * side), stopped & (label == side)) for side in (1, -1)]
        if all(total.any() for _, total in sides):
            yield shares(*sides).assign(metric="balanced_accuracy", variant=variant, target="clinical")


def _sum_over_entities(right: NDArray[np.float32] | Bools, among: Bools) -> Part:
    """Return two arrays (P, rules): numbers of correct cases and of all cases, summed over entities.

    Parameters
    ----------
    right, among : (P, E, rules)

    """
    sums = np.where(among, right, 0).sum(axis=1, dtype=np.float64)
    return sums, among.sum(axis=1).astype(np.float64)
