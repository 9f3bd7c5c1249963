"""Write the parts of the report that compare a run with the paper: texts, tables and figures.

This module also writes the sections on language models and the sentence above each figure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup

from afa.engine.rules import CLUSTER_EVERY, SMALLEST_CLUSTER
from afa.evaluate.figures import new_figure, shared_legend
from afa.evaluate.summary import headline
from afa.model.bundle import Bundle
from afa.paper.report.paper_tables import EVERY_ROUND_KEYS, PAPER_FEATURES, START, SummaryLines
from afa.paper.report.screen import Row, StoredEffects
from afa.paper.report.tables import CLAIM_ROUND
from afa.paper.report.verdicts import (
    DIFFERENCE,
    NO_BETTER,
    NONE_HERE,
    NOT_RUN,
    NOTHING_TO_REPRODUCE,
    ONLY_HERE,
    OTHER_SIZE,
    OUTCOMES,
    REPRODUCED,
    REVERSES,
    SIMULATED,
    UNCLEAR,
    WITHIN_2_POINTS,
    WITHIN_5_POINTS,
    WITHIN_FACTOR_1_25,
    WITHIN_FACTOR_2,
    outcome,
)
from afa.planner.cluster import paper_clusters
from afa.scores.bracket import GAMMA

MOST_COLUMNS_ABREAST = 7
"""Number of columns of a printed table that fit side by side."""
LITTLE_ROOM_PERCENT = 90.0
"""If a constant answer reaches this accuracy in per cent, little room for improvement remains."""

TITLES = {
    "tab_m2_random_sign": "Sign accuracy of duels under a random order",
    "tab_chaos": "Lead of linearity over wald, by stability of the signs",
    "tab_classification_with_llm": "Binary classification, and the language models",
    "tab_m1agree": "Agreement of the closure with the other gauge",
    "tab_m1acc": "Clinical accuracy of duels under either gauge",
    "tab_layer1_informed": "Duels resolved by t = 100, random and informed order",
    "tab_layer0_synthetic": "Layer 0 on synthetic entities",
    "tab_m2_alloc": "Allocation rules: sign accuracy at t = 150",
    "tab_m2_phase1_pat5": "Precision of the top five",
}
"""Title of each printed table."""
SIGN_ACCURACY_KEYS = EVERY_ROUND_KEYS | {
    "table": "sign_accuracy_random",
    "metric": "accuracy",
    "allocation": "random",
    "target": "likelihood",
}
CHAOS_GAP_KEYS = EVERY_ROUND_KEYS | {
    "table": "chaos_gap",
    "metric": "gap",
    "allocation": "random",
    "target": "likelihood",
}
CHAOS_GAP_KEYS |= {"reference": "linearity_minus_wald"}
SENTENCES: Mapping[str, tuple[str, list[dict[str, Any]]]] = {
    "sign_convergence": (
        "Before any measurement, linearity has {:.0f} % of the duels right, from the bundle alone;"
        " at t = 50 it has {:.0f} %, wald {:.0f} %",
        [
            SIGN_ACCURACY_KEYS | {"method": method, "t": t}
            for method, t in (("linearity", 0), ("linearity", 50), ("wald", 50))
        ],
    ),
    "chaos": (
        "After two measurements linearity leads wald by {:.0f} points in chaotic patients and by {:.0f} in others;"
        " at t = 50 by {:.0f} in all",
        [
            CHAOS_GAP_KEYS | {"stratum": "chaotic", "t": 2},
            CHAOS_GAP_KEYS | {"stratum": "non_chaotic", "t": 2},
            CHAOS_GAP_KEYS | {"t": 50},
        ],
    ),
}
"""Figure before the appendix -> its title with placeholders, and the lines of the summary with the numbers."""
CONSTANT_KEYS = {"table": "allocation_p_at_k", "metric": "p_at_k", "guide": "linearity", "start": "uniform"}
CONSTANTS: Mapping[tuple[str, str], dict[str, Any]] = {
    ("top five", "likelihood"): CONSTANT_KEYS | {"method": "fixed_top_k"},
    ("top five", "clinical"): CONSTANT_KEYS | {"method": "prevalence_order"},
    ("binary", "likelihood"): {"table": "llm_baselines", "metric": "majority"},
    ("binary", "clinical"): {"table": "llm_baselines", "metric": "majority"},
}
"""The best constant answer for each task of the language model. For the top five, it is the best answer for all
patients of the run.
"""
FROM_PAPER = {"eta": "damping", "epsilon": "tolerance", "T_max": "max_iterations"}
"""Symbol of a setting of the paper -> its key in the section `inference` of the configuration."""
CITED = "GSE193677"
GAP_COLUMNS = {"gap": "value", "low": "low", "high": "high"}
TINTS = {
    "": "same",
    WITHIN_2_POINTS: "same",
    WITHIN_FACTOR_1_25: "same",
    WITHIN_5_POINTS: "near",
    WITHIN_FACTOR_2: "near",
}
"""Verdict on the size of a reproduced number -> tint of its cell. Cells with other outcomes have the tint `other`."""


class ShownCell(NamedTuple):
    """A table cell in the report: the paper's number, this run's number, and the background tint.

    If this run has no number for the cell, `ours` contains a verdict such as *not run*.
    """

    paper: str
    ours: str = ""
    tint: str = ""


class Tally(NamedTuple):
    """All effects with the same outcome, and the first sentence of the paragraph about these effects."""

    outcome: str
    lead: str
    rows: Sequence[Row]


LEADS_OF = {
    REPRODUCED: ("{} reproduces", "{} reproduce"),
    OTHER_SIZE: ("{} has the paper's direction, but another size", "{} have the paper's direction, but another size"),
    NONE_HERE: ("{} is absent here", "{} are absent here"),
    ONLY_HERE: ("{} is present here and absent in the paper", "{} are present here and absent in the paper"),
    REVERSES: ("{} is contradicted, in whole or in part", "{} are contradicted, in whole or in part"),
    NO_BETTER: (
        "{} is uninformative, because one fixed answer does as well",
        "{} are uninformative, because one fixed answer does as well",
    ),
    UNCLEAR: ("{} is undecided", "{} are undecided"),
}
"""Outcome -> the first words of its paragraph, for one effect and for several effects."""
NUMBER_WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def tallies(table: pd.DataFrame) -> list[Tally]:
    """Group the effects of the first screen by outcome, in the order of `OUTCOMES`.

    Effects that could not be judged in this run have no outcome, and are skipped.

    Parameters
    ----------
    table : from `afa.paper.report.screen.screen_table`

    """
    rows = table.to_dict("records")
    groups = {word: [row for row in rows if outcome(row) == word] for word in OUTCOMES}
    return [
        Tally(word, LEADS_OF[word][len(group) > 1].format(counted_as(len(group)).capitalize()), group)
        for word, group in groups.items()
        if group
    ]


def counted_as(n: int) -> str:
    """Return a number as a word if it is at most twelve, else as digits.

    >>> counted_as(2), counted_as(13)
    ('two', '13')
    """
    return NUMBER_WORDS[n] if n < len(NUMBER_WORDS) else str(n)


def sentences(table: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Return the paragraphs of the first screen. A paragraph is a first sentence and a list of further sentences.

    The first paragraph states how many of the paper's main effects are reproduced in this run. Each following paragraph
    is about one group of effects (`tallies`). If some effects are not reproduced, the last paragraph states the known
    reasons.
    """
    groups = tallies(table)
    judged = [row for group in groups for row in group.rows]
    if not judged:
        why = "the patients are simulated" if (table["verdict"] == SIMULATED).any() else "this run lacks their numbers"
        return [(f"No effect is judged: {why}.", [])]
    failed = [row for row in judged if outcome(row) != REPRODUCED]
    found: list[tuple[str, list[str]]] = [(title_of(table) + ".", [])]
    found += [
        (f"{group.lead}.", [row["said"] or f"{row['says'].capitalize()}." for row in group.rows]) for group in groups
    ]
    if failed:
        found.append(("Why, as far as it is known.", [*_constant_answer_sentences(failed), *_cause_sentences(failed)]))
    return found


def voter_ranges(voters: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Return the smallest and the largest value of each effect, over all voters (runs of language models).

    The keys of the result are the ids of the effects.

    Parameters
    ----------
    voters : from `afa.paper.report.screen.of_voters`

    """
    ends = voters.groupby("id", sort=False)["ours"].agg(["min", "max"])
    return {
        str(name): (float(low), float(high))
        for name, low, high in zip(ends.index, ends["min"], ends["max"], strict=True)
    }


def voters_said(table: pd.DataFrame, voters: pd.DataFrame) -> tuple[str, list[str]] | None:
    """Return a paragraph on the effects whose outcome changes if only one voter's answers are used.

    If there are no outcomes for single voters, return None.

    Parameters
    ----------
    table, voters : from `afa.paper.report.screen.screen_table` and `of_voters`

    """
    judged = [row for row in table.to_dict("records") if outcome(row)]
    came = {name: dict(zip(part["voter"], part["came"], strict=True)) for name, part in voters.groupby("id")}
    again = [row for row in judged if any(came.get(row["id"], {}).values())]
    if not again:
        return None
    other = {
        row["id"]: {voter: word for voter, word in came[row["id"]].items() if word != outcome(row)} for row in again
    }
    changed = [row for row in again if other[row["id"]]]
    stays = [row for row in again if not other[row["id"]]]
    get = "gets" if len(stays) == 1 else "get"
    lead = f"{counted_as(len(stays)).capitalize()} of {counted_as(len(again))} effects {get} the same verdict from the"
    lead += " answers of each single voter as from the consensus."
    said = [f"{'This is' if len(stays) == 1 else 'These are'} {_effect_names(stays)}."] if stays else []
    for row in changed:
        groups: dict[str, list[str]] = {}
        for voter, word in other[row["id"]].items():
            groups.setdefault(word, []).append(voter)
        words = ", ".join(f"{word} with {_list_in_words(names)}" for word, names in groups.items())
        said.append(f"{row['name'].capitalize()} changes: {words}; with the consensus: {outcome(row)}.")
    said.append(
        "Fixed for all voters are the patients, the measured genes and the couplings, which were asked once, after the"
        " consensus."
    )
    said += [f"{row['name'].capitalize()} is {row['alone']}." for row in again if row["alone"]]
    left = [row["name"] + f" ({row['alone']})" * bool(row["alone"]) for row in judged if row["id"] not in came]
    return lead, said + ([f"Not computed for single voters: {', '.join(left)}."] if left else [])


def _cause_sentences(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a sentence for each reason why results of this run differ from the paper's results.

    The reason that explains the most effects is first.
    """
    said: dict[str, list[Row]] = {}
    for row in rows:
        if row["because"]:
            said.setdefault(row["because"], []).append(row)
    for because, about in sorted(said.items(), key=lambda each: -len(each[1])):
        yield f"{because.removesuffix('.')} ({_effect_names(about)})."


def _constant_answer_sentences(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a sentence on constant answers, if a constant answer has an accuracy of at least `LITTLE_ROOM_PERCENT`."""
    if high := [row["constant"] for row in rows if row["constant"] >= LITTLE_ROOM_PERCENT]:
        ends = " to ".join(dict.fromkeys((f"{min(high):.0f}", f"{max(high):.0f}")))
        where = f"in {counted_as(len(high)) if len(high) < len(rows) else 'all'} of these effects"
        yield f"{where.capitalize()}, one fixed answer for all patients is right {ends} % of the time."


def _effect_names(rows: Sequence[Row]) -> str:
    return ", ".join(row["name"] for row in rows)


def title_of(table: pd.DataFrame) -> str:
    """Return a sentence with the numbers of effects that are reproduced, have another size, or are not reproduced."""
    found = {group.outcome: len(group.rows) for group in tallies(table)}
    judged = sum(found.values())
    if not judged:
        return "No effect is judged"
    came, sized = found.get(REPRODUCED, 0), found.get(OTHER_SIZE, 0)
    of = "the one effect" if judged == 1 else f"{counted_as(judged)} main effects"
    parts = [f"{counted_as(came)} reproduce{'s' * (came == 1)}"]
    parts += [f"{counted_as(sized)} ha{'s' if sized == 1 else 've'} another size"] if sized else []
    rest = judged - came - sized
    parts += [f"{counted_as(rest)} do{'es' * (rest == 1)} not reproduce"] if rest else []
    said = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + f" and {parts[-1]}"
    return f"Of {of} of the paper, {said}"


def figure(table: pd.DataFrame, carried: Sequence[StoredEffects], here: str, voters: pd.DataFrame) -> Markup:
    """Return an SVG figure of all effects that are differences of two shares.

    Diamonds mark the paper's values, discs mark values of this run, and squares mark values of other runs. A tick above
    a disc marks the value that is computed from the answers of one voter. The figure fits the screen of a telephone: it
    is narrow, and the name of each effect is above its row.
    """
    rows = table[(table["unit"] == DIFFERENCE) & table["ours"].notna() & table["paper"].notna()].set_index("id")
    ours = rows[["ours", "low", "high"]].set_axis(["value", "low", "high"], axis=1).bfill(axis=1)
    drawn, (axes,) = new_figure(4.6, 1.2 + 0.37 * len(rows))
    axes.axvline(0, color="0.5", linewidth=1)
    place = -np.arange(len(rows))
    axes.plot(rows["paper"], place, "D", color="black", markersize=6, label="paper")
    runs: dict[str, tuple[pd.DataFrame, float, dict[str, Any]]] = {here: (ours, 0.0, {"fmt": "o", "color": "#0072B2"})}
    for each in carried:
        saved = pd.DataFrame(each.rows, index=["value", "low", "high"]).T.reindex(rows.index)
        runs[each.cohort] = saved, -0.2, {"fmt": "s", "color": "#B85C00", "markerfacecolor": "white"}
    for name, (numbers, shift, style) in runs.items():
        value, low, high = (numbers[column] for column in ("value", "low", "high"))
        axes.errorbar(value, place + shift, xerr=np.array([value - low, high - value]), label=name, **style)
    alone = voters[voters["id"].isin(rows.index)]
    if len(alone):
        lines = rows.index.get_indexer(pd.Index(alone["id"]))
        axes.plot(alone["ours"], 0.14 - lines, "|", color="#0072B2", markersize=7, label="one voter's answers")
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_ylim(place.min(initial=0) - 0.5, 0.7)
    edge = axes.get_xlim()[0]
    for at, name in zip(place, rows["name"], strict=True):
        axes.text(edge, at + 0.32, f" {name}", va="center", ha="left", fontsize="medium")
    axes.set_xlim(left=edge)
    axes.set_xlabel("percentage points; lines: intervals over patients")
    shared_legend(drawn, columns=3)
    return Markup(drawn.svg())  # noqa: S704 (our own figure)


def counted(verdicts: pd.DataFrame) -> Iterator[tuple[str, dict[str, int]]]:
    """Count the verdicts on numbers in the paper's tables, then the verdicts on claims in the paper's text.

    Yield two pairs of a description and a dictionary. The dictionary contains the number of times that each verdict was
    given, such as `{"holds": 12, "within 2 points": 5}`.

    Parameters
    ----------
    verdicts : the counts of `afa.paper.report.comparison.count_verdicts`. Lines with nothing to reproduce are skipped

    """
    is_claim = verdicts["source"].str.startswith("claims")
    for what, part in (("numbers in its tables", verdicts[~is_claim]), ("claims of its text", verdicts[is_claim])):
        sums = part.drop(columns="source").sum()
        yield what, {str(name): int(n) for name, n in sums.items() if n and name != NOTHING_TO_REPRODUCE}


def errata_title(text: str) -> str:
    r"""Return a title that says how many errata, remarks and withdrawn errata the text of `errata.md` contains.

    >>> errata_title("# Errata\n\n**E1, A.** *Remark.* *Erratum.*\n\n**E2, B.** *Remark.*\n\n**E3, C.** *Withdrawn.*")
    '1 erratum of the paper, 1 remark, and 1 erratum that we withdrew'
    """
    items = re.split(r"\n(?=\*\*E\d+,)", text)[1:]
    errata = sum("*Erratum.*" in item for item in items)
    withdrawn = sum("*Withdrawn.*" in item for item in items)
    remarks = len(items) - errata - withdrawn
    parts = [f"{errata} errat{'um' if errata == 1 else 'a'} of the paper", f"{remarks} remark{'s' * (remarks != 1)}"]
    parts += [f"and {withdrawn} errat{'um' if withdrawn == 1 else 'a'} that we withdrew"] if withdrawn else []
    return ", ".join(parts)


def paper_shapes(comparison: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the name, the title and the blocks of each printed table. Rows and columns are in the paper's order.

    All rows of a block have the same columns. Each block maps the name of a row to the cells of the row.

    Parameters
    ----------
    comparison : as from `afa.paper.report.comparison.compare`

    """
    cells = comparison[comparison["kind"] == "cell"]
    shapes = []
    for name, part in cells.groupby("table", sort=False):
        blocks: dict[tuple[str, ...], dict[str, list[ShownCell]]] = {}
        for row, of_row in part.groupby("row", sort=False):
            for columns in _split_columns(list(of_row["column"])):
                cells_of_row = [_shown_cell(cell) for cell in of_row[of_row["column"].isin(columns)].to_dict("records")]
                blocks.setdefault(columns, {})[str(row)] = cells_of_row
        shapes.append({"name": name, "title": TITLES.get(str(name), name), "blocks": blocks})
    return shapes


def _split_columns(columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Split column names into groups of at most `MOST_COLUMNS_ABREAST` names. Columns of the same t stay together.

    >>> list(_split_columns(["t=1 a", "t=1 b", "t=2 a", "t=2 b", "t=3 a", "t=3 b", "t=4 a", "t=4 b"]))
    [('t=1 a', 't=1 b', 't=2 a', 't=2 b', 't=3 a', 't=3 b'), ('t=4 a', 't=4 b')]
    """
    part = list[str]()
    for _, group in groupby(columns, key=lambda name: name.split(maxsplit=1)[0]):
        same = list(group)
        if part and len(part) + len(same) > MOST_COLUMNS_ABREAST:
            yield tuple(part)
            part = []
        part += same
    yield tuple(part)


def _shown_cell(cell: Mapping[Any, Any]) -> ShownCell:
    if pd.isna(cell["ours"]):
        return ShownCell(cell["paper"], cell["verdict"])
    has_interval = pd.notna(cell["low"])  # a count has no interval and is shown without decimals
    digits = max(int(has_interval), min(3, len(cell["paper"].partition(".")[2])))
    ours = f"{cell['ours']:.{digits}f}"
    if has_interval:
        ours += f" ±{(cell['high'] - cell['low']) / 2:.{digits}f}"
    word = outcome(cell)
    return ShownCell(cell["paper"], ours, TINTS[cell["size"]] if word == REPRODUCED else "other" if word else "")


def language_model(summary: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the accuracy of the planner and of the language model `mrf_llm`, for each task, target and t.

    In each row, `planner` and `model` are the accuracies of the planner and of the language model, as shares between 0
    and 1. `gap` is `model` minus `planner` in percentage points, with an interval over patients. The list is empty if
    no language model was run.
    """
    lines, constants = SummaryLines(summary[summary["table"] == "llm_baselines"]), SummaryLines(summary)
    ways: dict[str, tuple[str, dict[str, Any]]] = {
        "top five": ("p_at_k", {"method": "linearity", "guide": "linearity", "allocation": "priority_all"}),
        "binary": ("accuracy", {"method": "two_elbo", "allocation": "greedy"}),
    }
    found = []
    rounds = sorted(lines.rows["t"].dropna().unique())
    for task, target, t in product(ways, ("likelihood", "clinical"), rounds):
        metric, planner = ways[task]
        keys = {"table": "llm_baselines", "metric": metric, "target": target, "t": t}
        own = EVERY_ROUND_KEYS | keys | planner | {"gain": "cmi"}
        mine, theirs = lines.find(own), lines.find(keys | {"method": "mrf_llm"})
        gap = lines.find(own | {"metric": "gap", "method": "mrf_llm", "reference": planner["method"]})
        if mine is not None and theirs is not None and gap is not None and pd.notna(gap["value"]):
            line = {"task": task, "target": target, "t": int(t), "cases": int(gap["n"])}
            line |= {"planner": float(mine["value"]), "model": float(theirs["value"])}
            best = constants.find(CONSTANTS[task, target] | {"target": target})
            line["constant"] = np.nan if best is None else float(best["value"])
            found.append(line | {name: 100 * float(gap[key]) for name, key in GAP_COLUMNS.items()})
    return found


def choosing(summary: pd.DataFrame) -> tuple[str, list[str]] | None:
    """Return a paragraph on a language model that chooses features: a first sentence and a list of further sentences.

    The model is compared with three alternatives: the planner with its own features, the planner with the features that
    the model chose, and the best constant answer. At each t above 0, the answer of each method is compared with the
    answer at full observation. If no language model chose features, return None.
    """
    lines = SummaryLines(summary[(summary["table"] == "llm_choosing") & (summary["target"] == "likelihood")])
    keys = {"table": "llm_choosing", "target": "likelihood"}
    own = EVERY_ROUND_KEYS | {"gain": "cmi", "allocation": "priority_all", "guide": "linearity"}
    same = {"stratum": "top_k", "variant": "same_order", "start": START, "reference": "mrf_llm"}
    ways: dict[str, dict[str, Any]] = {
        "model": {"metric": "p_at_k", "method": "mrf_llm"},
        "planner": own | {"metric": "p_at_k", "method": "linearity"},
        "along": same | {"metric": "p_at_k", "method": "linearity"},
        "constant": {"metric": "p_at_k", "method": "fixed_top_k"},
        "gap": own | {"metric": "gap", "method": "mrf_llm", "reference": "linearity"},
    }
    rounds = [int(t) for t in sorted(lines.rows["t"].dropna().unique()) if t > 0]
    found = {
        name: [line for t in rounds if (line := lines.find(keys | {"t": t} | way)) is not None]
        for name, way in ways.items()
    }
    if not rounds or any(len(each) < len(rounds) for each in found.values()):
        return None
    at: dict[str, list[int]] = {}
    for t, gap in zip(rounds, found["gap"], strict=True):
        word = "ahead of" if gap["low"] > 0 else "behind" if gap["high"] < 0 else "not distinguishable from"
        at.setdefault(word, []).append(t)
    parts = [f"{word} the planner after {_list_in_words(each)} features" for word, each in at.items()]
    shares = {name: _list_in_words([f"{100 * line['value']:.0f}" for line in each]) for name, each in found.items()}
    return (
        f"A language model with the same potentials, which chooses its own features, is {_list_in_words(parts)}.",
        [
            f"The share of the five named phenotypes that are among the five of full observation, for the same"
            f" {int(found['gap'][0]['n'])} patients after {_list_in_words(rounds)} features: the model"
            f" {shares['model']} %, the planner with its own features {shares['planner']} %, and the planner with the"
            f" model's features"
            f" {shares['along']} %.",
            f"The best constant answer for these patients has {100 * found['constant'][0]['value']:.0f} %.",
        ],
    )


def _list_in_words(parts: Sequence[object]) -> str:
    """Join the items of a list by commas and a final "and", such as `1, 2 and 3`."""
    words = [str(part) for part in parts]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def settings_beside(printed: pd.DataFrame, config: Mapping[str, Any], entities: int, features: int) -> list[Row]:
    """Return a row for each setting of the paper: symbol, description, the paper's value and the run's value.

    Parameters
    ----------
    printed : the table `hyperparams.csv`, with all values as text.
    config : the run's whole configuration.
    entities, features : numbers of entities and features of the run.

    """
    clusters = paper_clusters(entities)
    ours = {symbol: f"{config['inference'][key]:g}" for symbol, key in FROM_PAPER.items()}
    ours |= {
        "gamma": f"{GAMMA:g}",
        "K": f"ceil(sqrt({entities})) = {clusters}",
        "T_re": f"{CLUSTER_EVERY}",
        "C_min": f"{SMALLEST_CLUSTER}",
    }
    ours |= {"T_budget": f"{features}, all features"}
    wide = printed.pivot(index="row", columns="column", values="value").loc[printed["row"].unique()]
    return [
        {"symbol": row.Index, "what": row.Description, "paper": row.Value, "ours": ours.get(str(row.Index), "not run")}
        for row in wide.itertuples()
    ]


def complexity(summary: pd.DataFrame, bundle: Bundle, cases: int) -> list[Row]:
    """Compare the paper's statements on the computing cost of one step with numbers of operations in this run.

    The list is empty if the run has no counts. In each row, `what` is the operation, `paper` is the paper's statement,
    and `counted` is the number in this run.

    Parameters
    ----------
    summary : summary with the sweeps of mean-field solves along random orders.
    cases : number of followed random orders, over all patients.

    """
    lines = SummaryLines(summary[(summary["metric"] == "iterations") & summary["reference"].isna()])
    keys = {"table": SIGN_ACCURACY_KEYS["table"], "metric": "iterations", "allocation": "random", "schedule": "every"}
    later = {start: lines.find(keys | {"start": start}) for start in ("uniform", "warm")}
    duels, features = len(bundle.entities) * (len(bundle.entities) - 1) // 2, len(bundle.features)
    found: list[Row] = []
    degrees = np.concatenate(
        [np.diff(bundle.mrf(entity).couplings.indptr)[bundle.support(entity)] for entity in bundle.entities]
    )
    if len(degrees):
        counted = f"{degrees.mean():.1f} on average, at most {degrees.max()}, of {features - 1} other features"
        found.append(
            {"what": "neighbours that an observed value updates, in an entity", "paper": "O(deg)", "counted": counted}
        )
    uniform, warm = later["uniform"], later["warm"]
    if uniform is not None:
        each = uniform["n"] / (cases * features)
        counted = f"{each:.1f} on average: entities that have the feature, of {len(bundle.entities)}; {duels} duels"
        found.append({"what": "solves in a round, shared by all duels", "paper": "O(N)", "counted": counted})
    if uniform is not None and warm is not None:
        counted = f"{warm['value']:.1f} from the previous round, {uniform['value']:.1f} from uniform marginals"
        found.append(
            {"what": "sweeps of a solve after the first round", "paper": "fewer by a warm start", "counted": counted}
        )
    return found


def rounds_said(features: int) -> str:
    """Return a sentence on the share of features observed at t = 150, in the paper and in this run.

    >>> rounds_said(253)
    'Where the paper prints t = 150, 69 % of its 216 features are observed, and 59 % of the 253 here.'
    """
    theirs, ours = (100 * CLAIM_ROUND / n for n in (PAPER_FEATURES, features))
    if ours > 100:
        return f"This run has {features} features and no round t = {CLAIM_ROUND}, which the paper prints."
    return (
        f"Where the paper prints t = {CLAIM_ROUND}, {theirs:.0f} % of its {PAPER_FEATURES} features are observed,"
        f" and {ours:.0f} % of the {features} here."
    )


def f_target_said(summary: pd.DataFrame, jobs: pd.DataFrame, patients: int) -> str:
    """Return a sentence on the accuracy and the run time of the gain `f_target`, or "" if the run has no such numbers.

    Parameters
    ----------
    jobs : result of `afa.paper.report.benchmarks.read_jobs`. The name of a job of the allocation grid begins with its
        gain

    """
    lines, said = SummaryLines(summary), []
    for gain in ("f_target", "cmi", "wald_magnitude"):
        keys = EVERY_ROUND_KEYS | {
            "table": "allocation_sign",
            "metric": "accuracy",
            "method": "linearity",
            "guide": "linearity",
        }
        keys |= {"allocation": "greedy", "schedule": "paper", "target": "likelihood", "gain": gain, "t": CLAIM_ROUND}
        found = lines.find(keys)
        ours = jobs[(jobs["rule"] == "allocation_shard") & jobs["job"].str.startswith(f"{gain}/")]
        if found is not None and len(ours):
            said.append(f"{gain} {100 * found['value']:.1f} % in {ours['seconds'].sum():.0f} s")
    if not said or not said[0].startswith("f_target"):
        return ""
    return (
        f"The paper tries the F-target gain on ten patients, as it costs much more. Here it was run on all {patients}:"
        f" right duels by greedy at t = {CLAIM_ROUND},"
        f" and time of all rules of the grid with that gain: {', '.join(said)}."
    )


def not_run(comparison: pd.DataFrame, cohort: str) -> list[str]:
    """Return descriptions of the paper's results that this run did not compute: table rows, claims and a cohort."""
    found = []
    if cohort != CITED.lower():
        found.append(
            f"{CITED}, the public series that the paper cites: another cohort of this project,"
            f" make reproduce COHORT={CITED.lower()}."
        )
    lacking = comparison[comparison["verdict"] == NOT_RUN]
    cells = lacking[lacking["kind"] == "cell"]
    found += [f"{name}, row {row}: {len(part)} numbers." for (name, row), part in cells.groupby(["table", "row"])]
    claims = list(lacking.loc[lacking["kind"] != "cell", "id"])
    return found + ([f"{len(claims)} claims of the text: {', '.join(claims)}."] if claims else [])


def findings(summary: pd.DataFrame) -> dict[str, str]:
    """Return a dictionary from the name of a figure to a sentence on its main numbers.

    A figure has no entry in the dictionary if the summary lacks one of the figure's main numbers.
    """
    lines, said = SummaryLines(summary), {}
    for name, (words, readings) in SENTENCES.items():
        values = [np.nan if (line := lines.find(keys)) is None else 100 * line["value"] for keys in readings]
        if not np.isnan(values).any():
            said[name] = words.format(*values)
    rates = headline(summary[summary["metric"] == "rate"]).dropna(subset=["value"])
    gauges = rates[(rates["table"] == "gauge_agreement") & (rates["reference"] == "maxent_vs_true")]
    early = gauges[gauges["method"].isin(["two_elbo", "stack_a"]) & (gauges["t"] < gauges["t"].max())]["value"]
    if len(early):
        least, most = 100 * early.min(), 100 * early.max()
        said["gauge"] = (
            f"The two gauges decide alike on {least:.0f} to {most:.0f} % of the duels before full observation"
        )
    changed = rates[rates["table"] == "meanfield_vs_exact"]
    duels = 100 * changed.loc[changed["coupling"].isna(), "value"].max()
    tasks = 100 * changed.loc[changed["method"] == "posterior", "value"].max()
    if not np.isnan([duels, tasks]).any():
        said["accurate"] = (
            f"Mean-field changes at most {duels:.1f} % of the duels and {tasks:.1f} % of the binary tasks"
        )
    return said
