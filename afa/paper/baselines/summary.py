"""Rows of `summary.csv` about language models as planners, and about the planner on the same patients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from afa.elicit.budget import NO_PRICES, Prices
from afa.errors import ElicitationError, Fault
from afa.evaluate.accuracy import Part, Resampled
from afa.evaluate.summary import count_rows, summary_rows
from afa.paper.baselines import BINARY, CONSTANT_ANSWER, KNOWLEDGE, PLANNER, TASKS, TOP_K
from afa.paper.baselines.stage import BINARY_RULE, GAIN
from afa.paper.baselines.trials import STANDS
from afa.paper.experiments.binary import truth_of

REFERENCE_TARGETS = ("likelihood", "clinical")
PRECISION = {"likelihood": "p_at_k", "clinical": "clinical_p_at_k"}
ACCURACY, BALANCED, P_AT_K = "accuracy", "balanced_accuracy", "p_at_k"


class Cut(NamedTuple):
    """The key columns of a summary row: task, metric, target, method and order.

    Parameters
    ----------
    method : a language model or a score
    evidence : the order along which the method is evaluated

    """

    task: str
    metric: str
    target: str
    method: str
    evidence: str


def credits_of(readouts: pd.DataFrame, targets: pd.DataFrame, resampled: Resampled) -> dict[Cut, list[Part]]:
    """Return the numbers of correct decisions and of all decisions, as arrays (P, T), for every key (`Cut`).

    For balanced accuracy, correct decisions and all decisions are counted separately for each class of patients. A
    target that is missing for all patients is excluded.
    """
    made: dict[Cut, list[Part]] = {}
    truth = targets.assign(clinical=2 * targets["clinical"] - 1)[["entity", "patient", *REFERENCE_TARGETS]]
    whole = readouts.merge(truth, on=["entity", "patient"], how="left")
    for name in ("decision", *PRECISION.values(), *REFERENCE_TARGETS):
        whole[name] = whole[name].astype("Float64").astype("float64")
    for (task, method, evidence), rows in whole.groupby(["task", "method", "evidence"], sort=False):
        for target in REFERENCE_TARGETS:
            if task == BINARY:
                # A tie counts as half correct (S5), and a missing decision counts as wrong.
                credit = ((1 + rows["decision"] * rows[target]) / 2).fillna(0.0)
                sides = [rows[target] == 1, rows[target] == -1]
                among = {ACCURACY: [sides[0] | sides[1]], BALANCED: sides}
            else:
                credit = rows[PRECISION[target]]
                among = {P_AT_K: [credit.notna()]}
            for metric, masks in among.items():
                if any(mask.any() for mask in masks):
                    cut = Cut(str(task), metric, target, str(method), str(evidence))
                    cases = (rows.assign(right=credit.where(mask, 0.0), of=mask) for mask in masks)
                    made[cut] = [(right, of) for right, of in (resampled.sums(each, "right", "of") for each in cases)]
    return made


SCRIPTED = "scripted"
"""Prefix of the names of scripted models, which tests use."""
SAME_ORDER = "same_order"
DEFAULT_SCORE = {BINARY: "two_elbo", TOP_K: "linearity"}
"""Default score of the planner for each task. The rows of this score state that the planner makes 0 calls."""


def summarise_baselines(
    tables: Mapping[str, pd.DataFrame],
    *,
    resamples: int,
    confidence: float,
    prices: Prices = NO_PRICES,
    table: str = "llm_baselines",
) -> pd.DataFrame:
    """Return the rows of the summary table `table`, computed from the tables that `run_baselines` returns.

    Every row is computed from all patients. Accuracies are given for each target and each number t of observed
    features. Counts are given for each task, which is named in the column `stratum`.

    Returns
    -------
    accuracy, balanced_accuracy : metrics of the binary task, for each model and for every score of the planner along
        its own order. A missing decision counts as wrong
    p_at_k : precision of the top k, for each model and for every score of the planner along its own order. If models
        choose features, it is also given for the best constant answer
    gap : metric of the model minus metric of the score in `reference`
    same_order : a variant. The planner's scores and the `gap` are computed along the order that the model in
        `reference` observed
    rate : share of turns without a decision, with the quantity `missing`
    count : numbers of turns, outcomes, faults by kind, calls and tokens. Calls and tokens are also given for the
        planner
    cost : cost of the calls, with the currency in `quantity`. It is given only if there are prices
    majority, prevalence : accuracy of the two constant answers. Counts of excluded targets are given with them

    Raises
    ------
    ElicitationError : the answers come from a scripted model.

    """
    refuse_scripted(tables["calls"])
    readouts, targets = tables["readouts"], tables["targets"]
    rules = {BINARY: BINARY_RULE, TOP_K: str(tables["protocol"]["top_k_rule"].iloc[0])}
    patients, rounds = list(dict.fromkeys(readouts["patient"])), sorted(set(readouts["t"]))
    resampled = Resampled.of(patients, resamples=resamples, confidence=confidence, purpose="llm_baselines")
    credit = credits_of(readouts, targets, resampled)
    rows = [
        *_accuracies(credit, resampled, rounds, rules),
        *_missing_decision_rows(readouts, resampled),
        *_constant_answer_rows(targets, resampled, patients),
        *_turn_outcome_rows(tables["turns"], tables["faults"]),
        *_usage(tables["calls"], prices),
    ]
    return summary_rows(table, pd.concat(rows, ignore_index=True))


def refuse_scripted(calls: pd.DataFrame) -> None:
    """Raise an `ElicitationError` if the answers come from a scripted model.

    The name of a scripted model begins with `scripted`. Both the requested model and the model that answered are
    checked.
    """
    names = sorted({*calls["model"], *calls["served_model"]})
    scripted = [name for name in names if name.lower().startswith(SCRIPTED)]
    if scripted:
        step = "do not report its numbers; ask a real model, or give its record"
        raise ElicitationError(Fault("llm_baselines", f"answers of {', '.join(scripted)}", "a language model's", step))


def _accuracies(
    credit: Mapping[Cut, list[Part]], resampled: Resampled, rounds: Sequence[int], rules: Mapping[str, str]
) -> Iterator[pd.DataFrame]:
    """Yield the accuracies of language models and planner, and their differences.

    A difference is the accuracy of a model minus the accuracy of one score of the planner.

    The planner is evaluated along its own order of features and along the model's order.
    """
    observed = {(cut.task, cut.method): cut.evidence for cut in credit if cut.method in KNOWLEDGE}
    for cut, parts in credit.items():
        shares = resampled.mean(parts).assign(t=rounds, metric=cut.metric, target=cut.target)
        if cut.method in KNOWLEDGE:
            yield shares.assign(method=cut.method)
            continue
        if cut.evidence == PLANNER:
            yield shares.assign(method=cut.method, **_planner_order_keys(cut.task, rules))
        if cut.method == CONSTANT_ANSWER:
            yield shares.assign(method=CONSTANT_ANSWER)
        for (task, model), evidence in observed.items():
            if task != cut.task:
                continue
            mine = credit[cut._replace(method=model, evidence=evidence)]
            gap = resampled.gap(mine, parts).assign(t=rounds, metric="gap", target=cut.target, method=model)
            if cut.method == CONSTANT_ANSWER:
                yield gap.assign(reference=CONSTANT_ANSWER)
            if cut.evidence == PLANNER and cut.metric != BALANCED:
                yield gap.assign(reference=cut.method, **_planner_order_keys(task, rules))
            if cut.evidence == evidence:
                same: dict[str, Any] = {"stratum": task, "variant": SAME_ORDER, "start": "uniform"}
                yield shares.assign(method=cut.method, reference=model, **same)
                if cut.metric != BALANCED:
                    yield gap.assign(reference=cut.method, **same)


def _planner_order_keys(task: str, rules: Mapping[str, str]) -> dict[str, str | None]:
    """Return the key columns of the summary rows for which the planner chose the order of features."""
    own = {"allocation": rules[task], "gain": GAIN, "schedule": "every", "start": "uniform"}
    return own | {"guide": "linearity" if task == TOP_K else None}


def _missing_decision_rows(readouts: pd.DataFrame, resampled: Resampled) -> Iterator[pd.DataFrame]:
    """Yield the share of evaluated turns without a decision, for each task, language model and t."""
    models = readouts[readouts["method"].isin(list(KNOWLEDGE))]
    for (task, method), rows in models.groupby(["task", "method"], sort=False):
        lacks = rows.assign(lacks=~rows["decided"], one=1.0)
        shares = resampled.share(lacks, "lacks", "one").assign(metric="rate", method=str(method))
        yield shares.assign(stratum=str(task), quantity="missing")


def _constant_answer_rows(
    targets: pd.DataFrame, resampled: Resampled, patients: Sequence[str]
) -> Iterator[pd.DataFrame]:
    """Yield the accuracy of the majority answer, the prevalence, and the number of binary cases without a target."""
    if targets.empty:
        return
    for name in REFERENCE_TARGETS:
        truth = truth_of(targets, name, patients, list(targets["entity"].unique()))
        left_out = "tied_at_full_observation" if name == "likelihood" else "without_label"
        yield count_rows({left_out: ((truth == 0).sum(), truth.size)}).assign(target=name)
        if truth.any():
            for share in resampled.constant(truth):
                yield share.assign(target=name)


def _turn_outcome_rows(turns: pd.DataFrame, faults: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield, for each task and model, the number of turns with each outcome, and how often each rule was broken."""
    for (method, task), rows in turns.groupby(["method", "task"], sort=False):
        asked = rows[rows["outcome"] != STANDS]
        counts = {"turns": len(asked), "done": int((asked["done"]).sum()), "stands": len(rows) - len(asked)}
        counts |= {str(name): int(n) for name, n in asked["outcome"].value_counts().sort_index().items()}
        counts |= {"asked_again": int((asked["asked"] - 1).sum()), "picked_by_rule": int(asked["by_rule"].sum())}
        broken = faults[(faults["method"] == method) & (faults["task"] == task)]
        kinds = (broken["part"] + "_" + broken["kind"]).value_counts().sort_index()
        counts |= {f"illegal_{name}": int(n) for name, n in kinds.items()}
        yield _task_count_rows(str(method), str(task), counts, len(asked))


def _usage(calls: pd.DataFrame, prices: Prices) -> Iterator[pd.DataFrame]:
    """Yield the number of requests, the number of tokens and the cost of each language model.

    For the planner, the number of requests, the number of tokens and the cost are 0.
    """
    used: list[tuple[str, str, dict[str, int]]] = []
    for (method, task), rows in calls.groupby(["method", "task"], sort=False):
        counts = {"calls": len(rows)} | {name: int(rows[name].sum()) for name in ("prompt_tokens", "answer_tokens")}
        used.append((str(method), str(task), counts | {"calls_uncounted": int(rows["prompt_tokens"].isna().sum())}))
    nothing = {"calls": 0, "prompt_tokens": 0, "answer_tokens": 0}
    used += [(DEFAULT_SCORE[task], task, nothing) for task in TASKS if (calls["task"] == task).any()]
    for method, task, counts in used:
        n, cost = counts["calls"], prices.of(counts["prompt_tokens"], counts["answer_tokens"])
        yield _task_count_rows(method, task, counts, n)
        if prices.of(1, 1) > 0 or not n:
            row = {"metric": "cost", "quantity": prices.currency, "method": method, "stratum": task}
            yield pd.DataFrame([{**row, "value": cost, "n": n}])


def _task_count_rows(method: str, task: str, counts: Mapping[str, int], n: int) -> pd.DataFrame:
    return count_rows({name: (count, n) for name, count in counts.items()}).assign(method=method, stratum=task)
