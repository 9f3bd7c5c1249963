"""Phenotype labels from sample characteristics, by the explicit rules of a cohort's configuration."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import pandas as pd

from afa.cohort.config import LabelRule
from afa.cohort.select import column, is_missing
from afa.errors import CohortError, Fault

_BOUND = re.compile(r"^\s*(≥|>=|>|≤|<=|<)\s*(.+)$")
_QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


def make_labels(samples: pd.DataFrame, rules: Mapping[str, LabelRule], entities: Sequence[str]) -> pd.DataFrame:
    """Labels `(n_patients, n_rules)`, Int8 in {0, 1, missing}: a column per rule that is on, in bundle order (D4).

    `samples` holds the patients' characteristics as strings. A rule for an entity that the bundle lacks does nothing,
    so that one cohort serves many bundles; `describe_labels` names it. A key that the series lacks, a value that its
    rule cannot read, and a rule that labels nobody are all reported together as one `CohortError`.
    """
    faults: list[Fault] = []
    columns: dict[str, list[int | None]] = {}
    for entity in [name for name in entities if name in rules and rules[name].off is None]:
        try:
            columns[entity] = _apply(samples, rules[entity], f"key labels.{entity}")
        except CohortError as error:
            faults += error.faults
    if faults:
        raise CohortError(faults)
    return pd.DataFrame(columns, index=samples.index, dtype="Int8")


def rule_text(rule: LabelRule) -> str:
    """A rule in words, such as `pucai >= 35`."""
    if rule.at_least is not None:
        return f"{rule.key} >= {rule.at_least:g}"
    if rule.above is not None:
        return f"{rule.key} > {rule.above:g}"
    return f"{rule.key}: 1 for {', '.join(rule.positive or ())}; 0 for {', '.join(rule.negative or ())}"


def describe_labels(
    samples: pd.DataFrame, rules: Mapping[str, LabelRule], labels: pd.DataFrame
) -> dict[str, dict[str, object]]:
    """What each rule did: its text, reason and counts of 1, 0 and missing; the quantiles of its key where it is off."""
    described: dict[str, dict[str, object]] = {}
    for entity, rule in rules.items():
        entry: dict[str, object] = {"rule": rule_text(rule), "reason": rule.reason}
        if rule.off is None and entity not in labels:
            entry["unused"] = "the bundle has no such entity"
        elif rule.off is None:
            label = labels[entity]
            entry["positive"] = int((label == 1).sum())
            entry["negative"] = int((label == 0).sum())
            entry["missing"] = int(label.isna().sum())
        else:
            entry["off"] = rule.off
            entry.update(key_quantiles(samples, rule.key, f"key labels.{entity}"))
        described[entity] = entry
    return described


def key_quantiles(samples: pd.DataFrame, key: str, asked_by: str) -> dict[str, object]:
    """Minimum, quartiles and maximum of the numbers in a characteristic, and how many samples have none."""
    numbers = pd.to_numeric(column(samples, key, asked_by), errors="coerce").dropna()
    quantiles = {f"{100 * share:g}%": round(float(numbers.quantile(share)), 6) for share in _QUANTILES if len(numbers)}
    return {"quantiles": quantiles, "without_number": len(samples) - len(numbers)}


def _apply(samples: pd.DataFrame, rule: LabelRule, where: str) -> list[int | None]:
    """One rule's label of every sample, in order."""
    values = column(samples, rule.key, where)
    if rule.positive is not None and rule.negative is not None:
        if both := sorted(set(rule.positive) & set(rule.negative)):
            raise CohortError(
                Fault(where, f"{', '.join(both)} both positive and negative", "each value once", "remove it from one")
            )
        meaning = dict.fromkeys(rule.negative, 0) | dict.fromkeys(rule.positive, 1)
        labels = [meaning.get(value) for value in values]
    else:
        labels = [_against_threshold(str(name), value, rule, where) for name, value in values.items()]
    if all(label is None for label in labels):
        found = ", ".join(map(repr, values.unique()[:8]))
        raise CohortError(
            Fault(
                where,
                f"no patient that `{rule_text(rule)}` labels; {rule.key} holds {found}",
                "at least one",
                "correct the rule",
            )
        )
    return labels


def _against_threshold(sample: str, value: str, rule: LabelRule, where: str) -> int | None:
    """1 where the value passes the rule's threshold, 0 where it does not, None where it is missing.

    A bound such as `≥250` counts where every value that it allows gives the same answer.
    """
    if is_missing(value):
        return None
    bound = _BOUND.match(value)
    sign, text = bound.groups() if bound else ("", value)
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    label = None if math.isnan(number) else _decide(sign, number, rule)
    if label is None:
        raise CohortError(
            Fault(
                f"{where}, sample {sample}",
                f"{rule.key} = {value!r}",
                f"a number, or a bound that decides `{rule_text(rule)}`",
                "use `positive` and `negative` values in the rule, or drop the sample",
            )
        )
    return label


def _decide(sign: str, number: float, rule: LabelRule) -> int | None:
    """The answer that all values allowed by `sign number` share, or None where they differ."""
    inclusive = rule.at_least is not None
    threshold = rule.at_least if rule.at_least is not None else rule.above
    assert threshold is not None
    passes = number >= threshold if inclusive else number > threshold
    match sign:
        case "":
            return int(passes)
        case "≥" | ">=":
            return 1 if passes else None
        case ">":
            return 1 if number >= threshold else None
        case "≤" | "<=":
            return None if passes else 0
        case _:
            return 0 if number <= threshold else None
