"""Write the explorer page, which shows step by step how each rule chooses features for some patients.

The features that a rule chose are read from the table `choices`, and the page's rankings and gains are computed again
from these features. The page is one HTML file that includes its data, styles, scripts and a plotting library.
Names are stored as JSON and inserted into the page as plain text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.cohort.cohort import Cohort
from afa.engine.follow import choose, follow
from afa.engine.layout import pack
from afa.engine.ranks import name_places
from afa.engine.run import CERTAIN, CHOICE, ENGINE_SCORES, MISSING, MOMENTS, RANKS
from afa.errors import ConfigError, Fault
from afa.evaluate.simulate.walks import (
    SimulationSetting,
    Strategy,
    planned,
    planner_of,
    rounds_until,
    scores_and_ranks,
    steps,
)
from afa.io.files import write_text
from afa.io.yamlfile import read_mapping
from afa.model.arrays import Bools, Codes, Floats, Ints
from afa.model.bundle import Bundle
from afa.planner import TopKPlanner
from afa.planner.options import BACKGROUND, FRONTIER, INFORMATION
from afa.planner.why import outcomes
from afa.scores.belief import Background

EVERY_ROUND = "every"
SHOWN_FIRST = (("priority_clusters", "cmi"), ("priority_all", "cmi"))
"""Pairs of a rule and a gain. The page first shows the first of these pairs that the table has, else the first run of
the table.
"""
RANKING_SCORES = ENGINE_SCORES[:3]
"""Scores whose rankings are shown for every run. If the planners of a run have a `Background`, the ranking by the score
`background` is also shown."""
FRONTIER_STRATEGY = Strategy(FRONTIER, "", BACKGROUND)
"""The strategy of planners that have a `Background`, which is the distribution of each feature among all patients. The
page shows this strategy next to the rules of the table `choices`."""

Run = tuple[Strategy, int]
"""A way to choose features, and the seed of random orders."""
EXPLORER_RESULTS = RANKS | CERTAIN | CHOICE | MOMENTS
SHOWN_DECIMALS = 3
EXPLAINED = 20
"""Number of first choices for which the page gives reasons, in the run that it shows first."""


class ExploredRuns(NamedTuple):
    """Store the results of one run for B patients and S scores, for each t from 0 to M.

    Attributes
    ----------
    order : (B, M) int64, features in the order of observation, then -1
    chosen_gain : (B, M) float64, gain of each choice, nats
    fallback : (B, M) bool, True if no candidate had a positive gain
    resolved : (B, M + 1) int64, number of resolved duels
    certified : (B, M + 1) bool, True if the top k is certified
    place : (B, M + 1, S, N) int16, rank of each entity, as in `WalkResults`
    margin : (B, M + 1) float64, the first score, between the last entity inside the top k and the first entity outside

    probability : (B, M + 1) float64, probability that the top k is right. None if the planners of the run have no
        `Background`, which is the distribution of each feature among all patients

    """

    order: Ints
    chosen_gain: Floats
    fallback: Bools
    resolved: Ints
    certified: Bools
    place: NDArray[np.int16]
    margin: Floats
    probability: Floats | None = None


@dataclass(frozen=True)
class Explored:
    """Store the data that the explorer page shows, in JSON types.

    Attributes
    ----------
    summary : names and settings. Entities are sorted by name, and tied entities rank in this order. Features are in the
        order of the bundle. `cells` lists the strategies. `patients` contains the name of each patient, and the
        patient's label for each entity (1, 0 or None). `typical` is the index of the patient whom the page shows first.
        It is a typical patient, whose top k becomes final after the median number of features
    steps : one entry for each patient. `values` contains the value of each feature, (M,). `why` contains the result of
        `reasons_of` for the run that the page shows first. `runs` has one entry for each strategy. The keys of such an
        entry are: `order`, the features in the order of observation; `chosen_gain`, the gain of each choice in nats, to
        3 digits (for `frontier` a weight without a unit); `fallback`, each t at which the choice fell back to the rule
        of decisions.md A7; `resolved`, the number of resolved duels by t; `certified`, the first t with a certified top
        k, or None; `guide`, the index of the guiding score; `margin`, the margin of `ExploredRuns` by t, to 3 digits;
        `probability`, the probability by t that the top k is right, or None; `settled`, the t from which each score's
        top k no longer changes; `places`, the ranks of the entities by score and t, where tied entities have equal
        ranks

    """

    summary: dict[str, Any]
    steps: list[dict[str, Any]]


def explore(
    bundle: Bundle, cohort: Cohort, choices: pd.DataFrame, setting: SimulationSetting, *, most: int
) -> Explored:
    """Return the data of the explorer page for at most `most` patients.

    The page shows each rule of the table `choices` and the strategy `FRONTIER_STRATEGY`. The patients on the page are
    taken at even intervals from the cohort's list of patients. If the table `choices` contains several schedules
    (column `schedule`), the page shows only one of them: the schedule `every` if it occurs, else the schedule in the
    first row. Under `FRONTIER_STRATEGY`, the planner of each patient gets the distribution of each feature among all
    other patients; labels are not used.

    Parameters
    ----------
    choices : table `choices` of the allocation stage
    setting : k, solver and threads of the allocation stage. Costs are not supported.

    Raises
    ------
    ConfigError : the table is empty, incomplete, or belongs to another bundle, cohort or k.

    """
    _raise_unless(
        len(choices) > 0, "table choices", "no row", "the choices of one rule or more", "run the allocation stage"
    )
    schedule = EVERY_ROUND if (choices["schedule"] == EVERY_ROUND).any() else str(choices["schedule"].iloc[0])
    table = choices[choices["schedule"] == schedule]
    parts = {
        (Strategy(str(rule), str(gain), RANKING_SCORES[0]), int(part["seed"].iloc[0])): part
        for (rule, gain, _), part in table.groupby(["allocation", "gain", "seed"], sort=False)
    }
    runs, rows = list(parts), evenly(len(cohort.patients), most)
    shown = next((i for first in SHOWN_FIRST for i, (way, _) in enumerate(runs) if way[:2] == first), 0)
    names, place = [cohort.patients[row] for row in rows], {name: j for j, name in enumerate(bundle.features)}
    values, setting = cohort.values[rows], replace(setting, coupling="differential", costs="equal")
    walked = {}
    for run, part in parts.items():
        where = f"table choices, {' '.join(filter(None, run[0][:2]))}, seed {run[1]}"
        columns = ("feature", "fallback", "certified")
        by_round = {name: part.pivot(index="patient", columns="t", values=name).reindex(names) for name in columns}
        chosen = by_round["feature"].iloc[:, 1:].to_numpy()
        orders = np.array([[place.get(name, -1) for name in row] for row in chosen], dtype=np.int64)
        whole = np.array_equal(np.sort(orders), np.tile(np.arange(len(place)), (len(names), 1)))
        again = "run the allocation stage again for this bundle and cohort"
        _raise_unless(whole, where, "other features", "each feature of the bundle once, of each patient", again)
        found = by_engine(bundle, values, run[0], orders, setting)
        same = np.array_equal(by_round["certified"].to_numpy(), found.certified)
        _raise_unless(
            same, f"{where}, column certified", "others", f"those of this bundle, cohort and k = {setting.k}", again
        )
        walked[run] = found._replace(fallback=by_round["fallback"].iloc[:, 1:].to_numpy(dtype=np.bool_))
    way, seed = runs[shown]
    planners = [planner_of(bundle, way, setting, patient=name, seed=seed) for name in names]
    believing: list[TopKPlanner] = []
    if len(cohort.patients) > 1 and bundle.ternary:
        others = replace(setting, background=partial(_background_of_others, bundle, cohort))
        believing = [planner_of(bundle, FRONTIER_STRATEGY, others, patient=name) for name in names]
        walked[FRONTIER_STRATEGY, 0] = by_planners(believing, values, RANKING_SCORES, FRONTIER_STRATEGY)
    named = {
        "schedule": schedule,
        "shown": shown,
        "scores": list(RANKING_SCORES),
        "background": background_text(believing),
    }
    return explored_of(bundle, cohort, rows, walked, planners, values, named)


def _background_of_others(bundle: Bundle, cohort: Cohort, name: str) -> Background:
    """Return the distribution of each feature among all patients of the cohort except the patient `name`."""
    values = np.where(cohort.values == MISSING, np.nan, cohort.values)
    return Background.of_patients(bundle, values, without=cohort.patients.index(name), name="other patients")


def background_text(planners: Sequence[TopKPlanner]) -> str:
    """Return a text that names the source of the planners' `Background`, or an empty text if no planner has one."""
    return next((planner.background.words for planner in planners if planner.background is not None), "")


def evenly(n: int, most: int) -> list[int]:
    """Return at most `most` evenly spaced indices below n, including the first and the last index."""
    return list(range(n)) if n <= most else [i * (n - 1) // max(most - 1, 1) for i in range(most)]


def by_engine(
    bundle: Bundle, values: Codes, way: Strategy, orders: Ints | None, setting: SimulationSetting
) -> ExploredRuns:
    """Simulate B patients with the compiled engine, and return the results.

    If `orders` is None, the rule chooses the features.

    Parameters
    ----------
    values : (B, M) int8
    orders : (B, M) int64, or None

    """
    options: dict[str, Any] = {
        "gain": way.gain or None,
        "target": "linearity" if way.gain == "f_target" else None,
        "ranks": RANKING_SCORES,
    }
    options |= {"k": setting.k, "solver": setting.solver, "threads": setting.threads}
    if orders is None:
        found = choose(bundle, values, EXPLORER_RESULTS, allocation=way.allocation, **options)
    else:
        found = follow(bundle, values, orders, EXPLORER_RESULTS, **options)
        asked = np.take_along_axis(values, orders, axis=1) != MISSING
        found = found._replace(order=np.where(asked, orders, -1))
    inside, outside = boundary_of(found.place[:, :, 0], name_places(bundle.entities), setting.k)
    path, row = np.ogrid[: len(inside), : inside.shape[1]]

    def expected(under: Ints, score: Ints) -> Floats:
        return found.cross[path, row, under, score]

    own = expected(inside, inside) - expected(outside, outside)
    lead = 0.5 * (own + (expected(outside, inside) - expected(inside, outside)))  # eq:mu-D
    return ExploredRuns(
        found.order,
        found.chosen_gain,
        found.fallback,
        found.resolved.sum(axis=2),
        found.certified,
        found.place,
        np.where(np.abs(lead) > pack(bundle).tie, lead, 0.0),
    )


def by_planners(planners: Sequence[TopKPlanner], values: Codes, scores: Sequence[str], way: Strategy) -> ExploredRuns:
    """Simulate B patients with one planner for each patient, and return the results.

    If every planner has a `Background`, the score `background` is added to `scores`.

    Parameters
    ----------
    values : (B, M) int8

    """
    weighs = bool(way.gain) and way.gain != INFORMATION and ":" not in way.allocation
    believes = all(planner.background is not None for planner in planners)
    scores = [*scores, BACKGROUND] if believes else scores
    guide = scores.index(way.score) if way.score in scores else 0

    def read(planner: TopKPlanner, _: int) -> tuple[Any, ...]:
        view, asked = planner._view(), planner.suggest()
        if way.allocation == FRONTIER:
            ahead = view.frontier()
        elif way.gain == INFORMATION:
            ahead = view.information()
        else:
            ahead = view.total_gain(view.resolved) if way.gain else view.largest_unary
        chosen_gain = ahead[view.features.index(asked.features[0])] if asked else 0.0
        unweighed = (
            chosen_gain <= 0 if way.allocation == FRONTIER else weighs and asked is not None and asked.over is None
        )
        found = [scores_and_ranks(planner, score) for score in scores]
        place = np.array([of_score for _, of_score in found], dtype=np.int16)
        margin = found[guide][0][boundary_of(place[guide], name_places(view.entities), planner.k)]
        probability = planner.top_probability() if believes else 0.0
        return (
            chosen_gain,
            asked is not None and unweighed,
            view.resolved.sum(),
            view.certified,
            place,
            margin,
            probability,
        )

    observed_first, chosen_gain, fallback, *by_round, probability = planned(planners, values, read)
    walked = ExploredRuns(observed_first[:, 1:], chosen_gain[:, :-1], fallback[:, :-1], *by_round)
    return walked._replace(probability=probability) if believes else walked


def boundary_of(place: NDArray[np.int16], names: Ints, k: int) -> tuple[Ints, ...]:
    """Return the indices of the last entity inside the top k and the first entity outside it, (...) each.

    Parameters
    ----------
    place : (..., N) int16, ranks of the entities
    names : (N,) int64, position of each entity in the order by name, used to break ties

    """
    order = np.argsort(place.astype(np.int64) * len(names) + names, axis=-1)
    return order[..., k - 1], order[..., k]


def explored_of(
    bundle: Bundle,
    cohort: Cohort,
    rows: Sequence[int],
    runs: Mapping[Run, ExploredRuns],
    planners: Sequence[TopKPlanner],
    measured: Codes,
    named: Mapping[str, Any],
) -> Explored:
    """Return the data of the explorer page for the given runs and the given rows of a cohort.

    Parameters
    ----------
    planners : one planner without observations for each patient, with the options of the run that is shown first
    measured : (B, M) int8, values of the patients, or `MISSING` where not measured
    named : entries of the summary about the runs

    """
    by_name = sorted(range(len(bundle.entities)), key=bundle.entities.__getitem__)
    entities, k, found = [bundle.entities[v] for v in by_name], planners[0].k, list[dict[str, Any]]()
    believing = any(run.probability is not None for run in runs.values())
    scores = [*named["scores"], *([BACKGROUND] if believing else [])]
    guides = {way.score: scores.index(way.score) if way.score in scores else 0 for way, _ in runs}
    for i, row in enumerate(rows):
        values, why = cohort.values[row].tolist(), reasons_of(planners[i], measured[i], by_name)
        each = [_run_as_json(run, i, by_name, k, guides[way.score]) for (way, _), run in runs.items()]
        found.append({"values": values, "why": why, "runs": each})
    typical = middle([each["runs"][named["shown"]]["settled"][0] for each in found])
    labels = cohort.labels.reindex(columns=entities).astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
    patients = [
        {"name": cohort.patients[row], "labels": [None if np.isnan(label) else int(label) for label in labels[row]]}
        for row in rows
    ]
    several = len({way.score for way, _ in runs if way != FRONTIER_STRATEGY}) > 1
    cells = [
        {
            "rule": f"{way.allocation} by {way.score}" if several and way != FRONTIER_STRATEGY else way.allocation,
            "gain": way.gain,
            "seed": seed,
        }
        for way, seed in runs
    ]
    summary = {
        "cohort": cohort.name,
        "title": str(cohort.provenance.get("title", "")),
        "series": str(cohort.provenance.get("series", "")),
        "simulated": cohort.provenance.get("origin") == "simulated",
        "bundle": bundle.name,
        "version": bundle.version,
        "cohort_size": len(cohort.patients),
        "chosen": f"{len(rows)} of {len(cohort.patients)} patients, evenly by name.",
        "duels": len(entities) * (len(entities) - 1) // 2,
        "entities": list(map(bundle.shown, entities)),
        "features": list(map(bundle.shown, bundle.features)),
        "patients": patients,
        "cells": cells,
        "k": k,
        "explained": EXPLAINED,
        "typical": typical,
    }
    return Explored(summary | dict(named) | {"scores": scores}, found)


def middle(numbers: Sequence[int]) -> int:
    """Return the index of the lower median of the numbers. Of two equal numbers, the first counts as smaller.

    >>> middle([214, 9, 40])
    2
    """
    return sorted(range(len(numbers)), key=numbers.__getitem__)[(len(numbers) - 1) // 2]


def reasons_of(planner: TopKPlanner, values: Codes, by_name: Sequence[int]) -> list[dict[str, Any]]:
    """Return the reasons for a planner's first choices for one patient, in JSON types.

    In each entry, `reason` is a text, and `others` lists the rule's next best choices. `then` lists, for each possible
    value of the feature, the k best entities, numbered as on the page.

    Parameters
    ----------
    values : (M,) int8, values of the patient

    """
    number = {planner.bundle.entities[v]: i for i, v in enumerate(by_name)}
    place = {name: j for j, name in enumerate(planner.bundle.features)}
    found = []
    for _ in islice(steps(planner, values), EXPLAINED):
        asked = planner.suggest()
        if asked is None:
            break
        others = [place[other.features[0]] for other in planner.runners_up()]
        results = outcomes(planner, asked.features[0])
        then = [[int(result["value"]), [number[name] for name in result["answer"]]] for result in results]
        found.append({"reason": asked.reason, "others": others, "then": then})
    return found


def _run_as_json(walked: ExploredRuns, path: int, by_name: Sequence[int], k: int, guide: int) -> dict[str, Any]:
    """Return one patient's run, up to the last observed feature, in JSON types."""
    taken = int((walked.order[path] >= 0).sum())
    places = walked.place[path, : taken + 1].swapaxes(0, 1)[:, :, list(by_name)]
    orders = np.argsort(places, axis=2, kind="stable")
    certified, sure = walked.certified[path, : taken + 1], walked.probability
    return {
        "order": walked.order[path, :taken].tolist(),
        "chosen_gain": _round_values(walked.chosen_gain[path, :taken]),
        "guide": guide,
        "probability": None if sure is None else _round_values(sure[path, : taken + 1]),
        "margin": _round_values(walked.margin[path, : taken + 1]),
        "fallback": (np.flatnonzero(walked.fallback[path, :taken]) + 1).tolist(),
        "resolved": walked.resolved[path, : taken + 1].tolist(),
        "certified": int(rounds_until(~certified[None])[0]) if certified[-1] else None,
        "settled": [settled_from(order, k) for order in orders],
        "places": places.tolist(),
    }


def _round_values(values: Floats) -> list[float]:
    return [float(f"{value:.{SHOWN_DECIMALS}g}") for value in values]


def settled_from(orders: Ints, k: int) -> int:
    """Return the first t after which the set of the k best entities does not change.

    Parameters
    ----------
    orders : (T, N) int64, entities at each t, best first

    """
    inside = np.sort(orders[:, :k], axis=1)
    return int(rounds_until((inside != inside[-1]).any(axis=1)[None])[0])


def _raise_unless(holds: bool, where: str, found: str, expected: str, step: str) -> None:
    if not holds:
        raise ConfigError(Fault(where, found, expected, step))


def write_explorer(explored: Explored, path: str | Path) -> None:
    """Write the page. If writing the page fails, no incomplete file remains."""
    write_text(path, explorer_html(explored))


def explorer_html(explored: Explored) -> str:
    """Return the explorer page as HTML; equal contents give identical bytes."""
    import bokeh  # noqa: PLC0415 (optional dependency, needed for the page alone)
    from bokeh.resources import Resources  # noqa: PLC0415

    from afa.evaluate.page_parts import packed, page  # noqa: PLC0415

    said = read_mapping(Path(__file__).parent / "templates" / "explorer_words.yaml")
    words = said.pop("words")
    library = Resources(mode="inline", components=["bokeh", "bokeh-api"], minified=True, log_level="error")
    return page(
        "explorer.html",
        words=words,
        summary=explored.summary | {"said": said},
        version=bokeh.__version__,
        library=packed("\n".join(library.js_raw).encode()),
        steps=[packed(json.dumps(steps, separators=(",", ":")).encode()) for steps in explored.steps],
    )
