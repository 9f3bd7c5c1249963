"""Items 15, 16, 17, 18, 19 and 22: where the paper's own printed numbers do not fit together."""

from __future__ import annotations

from functools import partial
from math import ceil

import numpy as np

from afa.experiments.errata.printed import Printed
from afa.experiments.errata.rows import EXACT, Row

M = "t=216"
ROUNDING = 0.0005
"""Half of the last digit of a share printed with three decimals."""
COIN = 0.5
METHOD_TABLE = {"ours": "ours", "random": "random", "LUCB": "lucb", "Cluster-LUCB": "clustered"}
"""Rules of tab:method_topk, a table without numbers, and the row that would hold the results of each."""
ORIGINS = {"sec:experiments": "an ongoing clinical trial", "supp:ternary": "a public GEO series"}
"""Where the samples come from, in the two places that say it."""


def chaotic_patients(printed: Printed) -> list[Row]:
    """Item 15: the two groups of tab:chaos against the size of the cohort."""
    point = partial(Row, item=15, label="tab:chaos, sec:eval_chaos")
    cohort = int(printed.claim("c044"))
    chaotic, others = (int(printed.cell("tab_chaos", "n", name)) for name in ("Chaotic", "Non-chaotic"))
    total, quartile = chaotic + others, ceil(cohort / 4)
    residuals = []
    for row in printed.rows("tab_chaos"):
        if row == "n":
            continue
        every, of_chaotic, of_others = printed.column("tab_chaos", row)
        residuals.append(every - (chaotic * of_chaotic + others * of_others) / total)
    return [
        point(
            name="group_total",
            claim="the chaotic and the other patients make up the cohort",
            claim_value=float(cohort),
            check=f"printed sizes of the two groups, {chaotic} and {others}, added",
            value=float(total),
            unit="count",
            n=2,
            holds=total == cohort,
            headline=True,
        ),
        point(
            name="top_quartile",
            claim="the chaotic patients are in the top quartile by flips, and above the median besides",
            claim_value=float(chaotic),
            check=f"the most patients that a top quartile of {cohort} holds, no two being equal",
            value=float(quartile),
            unit="count",
            n=1,
            holds=chaotic <= quartile,
        ),
        point(
            name="all_patients",
            claim="the column of all patients is over the cohort",
            check=f"that column less the mean of the other two weighted {chaotic} to {others}, largest: within "
            "rounding it is over the patients of the two groups",
            value=float(np.abs(residuals).max() / 100),
            unit="gap",
            n=len(residuals),
        ),
    ]


def clinical_ceiling(printed: Printed) -> list[Row]:
    """Item 16: accuracy at full observation against clinical labels, wherever it is printed."""
    point = partial(Row, item=16, label="sec:eval_mode1, tab:classification_with_llm, tab:m1acc")
    text = printed.claim("c082")
    table = printed.cell("tab_classification_with_llm", "Clinical / wald", M)
    wald, stack_a = (printed.cell("tab_m1acc", row, M) for row in ("wald", "stack_a_maxent"))
    ceilings = (text, table, wald, stack_a)
    claim = "accuracy against clinical labels has one ceiling at full observation"
    return [
        point(
            name="ceilings",
            claim=claim,
            claim_value=0.0,
            check=f"largest less least of the values printed: {', '.join(f'{value:g}' for value in ceilings)}",
            value=max(ceilings) - min(ceilings),
            unit="gap",
            n=len(ceilings),
            holds=max(ceilings) - min(ceilings) <= ROUNDING,
            headline=True,
        ),
        point(
            name="text_and_table",
            claim=claim,
            claim_value=0.0,
            check="the table of the binary task less the text beside it",
            value=table - text,
            unit="gap",
            n=2,
            # the table has two decimals
            holds=abs(table - text) <= 10 * ROUNDING,
        ),
        point(
            name="stack_a_and_wald",
            label="tab:m1acc",
            claim="at full observation every score is sign S",
            claim_value=0.0,
            check="stack_a less wald at full observation, both against clinical labels",
            value=stack_a - wald,
            unit="gap",
            n=2,
            holds=abs(stack_a - wald) <= ROUNDING,
        ),
    ]


def language_models(printed: Printed) -> list[Row]:
    """Item 17: the rows of language models against the planner's ceiling and against a coin."""
    point = partial(Row, item=17, label="tab:classification_with_llm")
    ceiling = printed.cell("tab_classification_with_llm", "Clinical / wald", M)
    rows = [printed.column("tab_classification_with_llm", f"LLM / {name}") for name in ("RAG-LLM", "MRF-LLM")]
    best = max(float(row[M]) for row in rows)
    early = np.array([value for row in rows for column, value in row.items() if column != M])
    return [
        point(
            name="above_ceiling",
            claim="the clinical ceiling is the bundle's: given the same knowledge no one passes it; the target of the "
            "language models' rows is not said",
            claim_value=0.0,
            check="best language model at full observation less the planner's clinical accuracy there",
            value=best - ceiling,
            unit="gap",
            n=len(rows),
            holds=best <= ceiling,
            headline=True,
        ),
        point(
            name="below_coin",
            claim="these are accuracies of a binary decision",
            claim_value=0.0,
            check="share of the language models' printed values before full observation that are below one half",
            value=float((early < COIN).mean()),
            unit="rate",
            n=len(early),
            holds=bool((early >= COIN).all()),
        ),
        point(
            name="least_accuracy",
            claim="these are accuracies of a binary decision",
            check="the least of them",
            value=float(early.min()),
            unit="accuracy",
            n=len(early),
        ),
    ]


def allocation_rules(printed: Printed) -> list[Row]:
    """Item 18: `greedy` and `clustered` in tab:m2_alloc, and the rules of tab:method_topk."""
    point = partial(Row, item=18, label="tab:m2_alloc, tab:method_topk")
    greedy, clustered = (printed.column("tab_m2_alloc", rule) for rule in ("greedy", "clustered"))
    difference = float((greedy - clustered).abs().max())
    results, methods = set(printed.rows("tab_m2_alloc")), set(METHOD_TABLE.values())
    unreported, undescribed = sorted(methods - results), sorted(results - methods)
    return [
        point(
            name="greedy_and_clustered",
            claim="greedy, over all pairs, and clustered, over champions, are two rules",
            check="largest difference of their sign accuracies over both gains, printed to three digits",
            value=difference,
            unit="gap",
            n=len(greedy),
            holds=difference > EXACT,
            headline=True,
        ),
        point(
            name="without_result",
            claim="every rule described is evaluated",
            claim_value=0.0,
            check=f"rules of tab:method_topk without a result: {', '.join(unreported) or 'none'}",
            value=float(len(unreported)),
            unit="count",
            n=len(methods),
            holds=not unreported,
        ),
        point(
            name="without_description",
            claim="every rule evaluated is described",
            claim_value=0.0,
            check=f"rules of tab:m2_alloc that tab:method_topk does not have: {', '.join(undescribed) or 'none'}",
            value=float(len(undescribed)),
            unit="count",
            n=len(results),
            holds=not undescribed,
        ),
    ]


def one_bracket(printed: Printed) -> list[Row]:
    """Item 19: rates of resolved duels of two scores that share a bracket, and eliminations per patient."""
    point = partial(Row, item=19, label="tab:layer1_informed, supp:l1-bracket")
    linearity, wald = (printed.column("tab_layer1_informed", f"M2 {name} (L1)") for name in ("linearity", "wald"))
    rows = [
        point(
            name=f"one_bracket_{order}",
            claim="one l1 bracket serves linearity and wald: it bounds S, whatever the score",
            claim_value=0.0,
            check=f"printed rates of one-sided brackets at t = 100, {order} order: linearity less wald; ours know no "
            "score",
            value=float(linearity[column] - wald[column]) / 100,
            unit="gap",
            n=2,
            holds=bool(linearity[column] == wald[column]),
            headline=order == "informed",
        )
        for order, column in (("informed", "Informed (%)"), ("random", "Random (%)"))
    ]
    eliminated, patients = int(printed.claim("c265")), int(printed.claim("c266"))
    rows.append(
        point(
            name="eliminations",
            label="supp:drop_pairs, supp:layer0_lipschitz",
            claim="Layer 0 uses the potentials alone, so that it removes the same clusters for every patient",
            claim_value=0.0,
            check=f"remainder of {eliminated} eliminations shared out among {patients} patients",
            value=float(eliminated % patients),
            unit="count",
            n=patients,
            holds=eliminated % patients == 0,
        )
    )
    return rows


def origin_of_cohort() -> list[Row]:
    """Item 22: where the paper says that its samples come from. Read, not computed."""
    places = "; ".join(f"{origin} ({label})" for label, origin in ORIGINS.items())
    origins = len(set(ORIGINS.values()))
    return [
        Row(
            item=22,
            name="origins",
            label="sec:experiments, supp:ternary",
            claim="the cohort has one origin",
            claim_value=1.0,
            check=f"origins named, by reading the text: {places}",
            value=float(origins),
            unit="count",
            n=len(ORIGINS),
            holds=origins == 1,
            headline=True,
        )
    ]
