"""Acquisition step by step, for some patients: what the explorer page shows of every rule of the allocation grid.

The choices are those of the table `choices`; rankings, gains and certainty are computed again along them. The page is
one HTML file with its data, its styles, its scripts and a plotting library, and nothing fetched: what is large travels
packed, as base64 of gzip; names travel as JSON and are put on the page as text.
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
from afa.engine.course import CERTAIN, CHOICE, MISSING, MOMENTS, RANKS, SCORES
from afa.engine.follow import choose, follow
from afa.engine.layout import pack
from afa.engine.ranks import name_places
from afa.errors import ConfigError, Fault
from afa.evaluate.cells import TARGET
from afa.evaluate.simulate.walks import SimulationSetting, Way, planned, planner_of, ranked, rounds_until, steps
from afa.io.files import write_text
from afa.io.yamlfile import read_mapping
from afa.model.bundle import Bundle
from afa.model.mrf import Floats
from afa.planner import TopKPlanner
from afa.planner.options import BACKGROUND, FRONTIER, INFORMATION
from afa.planner.why import outcomes
from afa.scores.belief import Background

EVERY = "every"
SHOWN_FIRST = (("priority_clusters", "cmi"), ("priority_all", "cmi"))
"""Rule and gain that the page opens with, the paper's before ours; the first of the table where it has neither."""
RANKED = SCORES[:3]
"""The scores whose rankings are shown, of every run; of one with a background also `background`."""
OURS = Way(FRONTIER, "", BACKGROUND)
"""The planner with a background, which stands beside the rules of the grid."""

Orders = NDArray[np.int64]
Run = tuple[Way, int]
"""One way to choose features, and the seed that tells random orders apart."""
READ = RANKS | CERTAIN | CHOICE | MOMENTS
DIGITS = 3
EXPLAINED = 20
"""First choices of the run that the page opens with, of which it says why."""


class Walked(NamedTuple):
    """One run of B patients, by t from 0 to M, S scores.

    order : (B, M) features as observed, -1 where nothing was left to ask for. worth, fallback : (B, M) of each choice.
    resolved : (B, M + 1) number of duels. certified : (B, M + 1). place : (B, M + 1, S, N), as of `Followed`.
    margin : (B, M + 1) the guiding score of the last entity inside the top against the first outside. probability :
    (B, M + 1) that the top is right, of a run with a background.
    """

    order: NDArray[np.int64]
    worth: Floats
    fallback: NDArray[np.bool_]
    resolved: NDArray[np.int64]
    certified: NDArray[np.bool_]
    place: NDArray[np.int16]
    margin: Floats
    probability: Floats | None = None


@dataclass(frozen=True)
class Explored:
    """What the page is made of, in the types of JSON.

    summary : names and settings. Entities come by ascending name, so that an entity's number settles ties of name;
    features in bundle order, `cells` the ways to choose, `patients` with their labels by entity: 1, 0 or None;
    `typical`, the patient whose top settles at the median t, on whom the page opens.

    steps : one per patient: `values`, (M,) by feature; `why` of the cell that is `shown`: see `reasons_of`; and `runs`,
    one a cell: `order`, the features as observed; `worth` of each when it was chosen, to 3 digits, in nats (of
    `frontier` a weight without a unit); `fallback`, the t that decisions.md A7 chose; `resolved`, the duels that are by
    each t; `certified`, the first t, or None; `guide`, the number of the score that guides; `margin`, by t, to 3
    digits, that score of the last entity inside the top against the first outside; `probability`, by t, or None; and by
    score `settled`, the t from which the set of the k best is that of full observation, and `places`, at each t those
    of the entities in the ranking; ties have one place.
    """

    summary: dict[str, Any]
    steps: list[dict[str, Any]]


def explore(
    bundle: Bundle, cohort: Cohort, choices: pd.DataFrame, setting: SimulationSetting, *, most: int
) -> Explored:
    """Steps of at most `most` patients under each rule of the table `choices` of the allocation stage, and under ours.

    Patients are taken evenly, in the order of the cohort. The schedule shown is `every`, or the table's first where it
    has no other. Of ours (`OURS`) the background is all other patients of the cohort, without labels. setting : k,
    solver and threads of that stage; it knows no costs.

    Raises
    ------
    ConfigError : the table is empty, not complete, or of another bundle, cohort or k.

    """
    _check(len(choices) > 0, "table choices", "no row", "the choices of one rule or more", "run the allocation stage")
    schedule = EVERY if (choices["schedule"] == EVERY).any() else str(choices["schedule"].iloc[0])
    table = choices[choices["schedule"] == schedule]
    parts = {
        (Way(str(rule), str(gain), RANKED[0]), int(part["seed"].iloc[0])): part
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
        _check(whole, where, "other features", "each feature of the bundle once, of each patient", again)
        found = by_engine(bundle, values, run[0], orders, setting)
        same = np.array_equal(by_round["certified"].to_numpy(), found.certified)
        _check(same, f"{where}, column certified", "others", f"those of this bundle, cohort and k = {setting.k}", again)
        walked[run] = found._replace(fallback=by_round["fallback"].iloc[:, 1:].to_numpy(dtype=np.bool_))
    way, seed = runs[shown]
    planners = [planner_of(bundle, way, setting, patient=name, seed=seed) for name in names]
    believing: list[TopKPlanner] = []
    if len(cohort.patients) > 1 and bundle.ternary:
        others = replace(setting, background=partial(_others, bundle, cohort))
        believing = [planner_of(bundle, OURS, others, patient=name) for name in names]
        walked[OURS, 0] = by_planners(believing, values, RANKED, OURS)
    named = {"schedule": schedule, "shown": shown, "scores": list(RANKED), "background": words_of(believing)}
    return explored_of(bundle, cohort, rows, walked, planners, values, named)


def _others(bundle: Bundle, cohort: Cohort, name: str) -> Background:
    """Return the background of all other patients of the cohort."""
    values = np.where(cohort.values == MISSING, np.nan, cohort.values)
    return Background.of_patients(bundle, values, without=cohort.patients.index(name), name="other patients")


def words_of(planners: Sequence[TopKPlanner]) -> str:
    """Return what the background of planners is; "" where they have none."""
    return next((planner.background.words for planner in planners if planner.background is not None), "")


def evenly(n: int, most: int) -> list[int]:
    """At most `most` of n places, the first and the last among them."""
    return list(range(n)) if n <= most else [i * (n - 1) // max(most - 1, 1) for i in range(most)]


def by_engine(
    bundle: Bundle, values: NDArray[np.int8], way: Way, orders: Orders | None, setting: SimulationSetting
) -> Walked:
    """B patients, values (B, M), as the rule of a way chooses; or along orders (B, M)."""
    options: dict[str, Any] = {"gain": way.gain or None, "target": TARGET.get(way.gain), "ranks": RANKED}
    options |= {"k": setting.k, "solver": setting.solver, "threads": setting.threads}
    if orders is None:
        found = choose(bundle, values, READ, allocation=way.allocation, **options)
    else:
        found = follow(bundle, values, orders, READ, **options)
        asked = np.take_along_axis(values, orders, axis=1) != MISSING
        found = found._replace(order=np.where(asked, orders, -1))
    inside, outside = boundary_of(found.place[:, :, 0], name_places(bundle.entities), setting.k)
    path, row = np.ogrid[: len(inside), : inside.shape[1]]

    def expected(under: NDArray[np.int64], score: NDArray[np.int64]) -> Floats:
        return found.cross[path, row, under, score]

    own = expected(inside, inside) - expected(outside, outside)
    lead = 0.5 * (own + (expected(outside, inside) - expected(inside, outside)))  # eq:mu-D
    return Walked(
        found.order,
        found.worth,
        found.fallback,
        found.resolved.sum(axis=2),
        found.certified,
        found.place,
        np.where(np.abs(lead) > pack(bundle).tie, lead, 0.0),
    )


def by_planners(planners: Sequence[TopKPlanner], values: NDArray[np.int8], scores: Sequence[str], way: Way) -> Walked:
    """B patients, values (B, M), as planners ask, one each; with a background the last score is `background`."""
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
        worth = ahead[view.features.index(asked.features[0])] if asked else 0.0
        unweighed = worth <= 0 if way.allocation == FRONTIER else weighs and asked is not None and asked.over is None
        found = [ranked(planner, score) for score in scores]
        place = np.array([of_score for _, of_score in found], dtype=np.int16)
        margin = found[guide][0][boundary_of(place[guide], name_places(view.entities), planner.k)]
        probability = planner.top_probability() if believes else 0.0
        return worth, asked is not None and unweighed, view.resolved.sum(), view.certified, place, margin, probability

    told, worth, fallback, *by_round, probability = planned(planners, values, read)
    walked = Walked(told[:, 1:], worth[:, :-1], fallback[:, :-1], *by_round)
    return walked._replace(probability=probability) if believes else walked


def boundary_of(place: NDArray[np.int16], names: NDArray[np.int64], k: int) -> tuple[NDArray[np.int64], ...]:
    """The last entity inside the top and the first outside, each (...,), of places (..., N); `names` settle ties."""
    order = np.argsort(place.astype(np.int64) * len(names) + names, axis=-1)
    return order[..., k - 1], order[..., k]


def explored_of(
    bundle: Bundle,
    cohort: Cohort,
    rows: Sequence[int],
    runs: Mapping[Run, Walked],
    planners: Sequence[TopKPlanner],
    measured: NDArray[np.int8],
    named: Mapping[str, Any],
) -> Explored:
    """Some patients of a cohort, by their rows, along some runs; `named` is what the summary says of these.

    planners : one for each patient, not asked yet, that goes the way of the run that is shown first. measured : (B, M)
    their values, `MISSING` where there is none.
    """
    by_name = sorted(range(len(bundle.entities)), key=bundle.entities.__getitem__)
    entities, k, found = [bundle.entities[v] for v in by_name], planners[0].k, list[dict[str, Any]]()
    believing = any(run.probability is not None for run in runs.values())
    scores = [*named["scores"], *([BACKGROUND] if believing else [])]
    guides = {way.score: scores.index(way.score) if way.score in scores else 0 for way, _ in runs}
    for i, row in enumerate(rows):
        values, why = cohort.values[row].tolist(), reasons_of(planners[i], measured[i], by_name)
        each = [_steps(run, i, by_name, k, guides[way.score]) for (way, _), run in runs.items()]
        found.append({"values": values, "why": why, "runs": each})
    typical = middle([each["runs"][named["shown"]]["settled"][0] for each in found])
    labels = cohort.labels.reindex(columns=entities).astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
    patients = [
        {"name": cohort.patients[row], "labels": [None if np.isnan(label) else int(label) for label in labels[row]]}
        for row in rows
    ]
    several = len({way.score for way, _ in runs if way != OURS}) > 1
    cells = [
        {
            "rule": f"{way.allocation} by {way.score}" if several and way != OURS else way.allocation,
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
    """Return the place of the median, the lower one of two; the first of equal numbers.

    >>> middle([214, 9, 40])
    2
    """
    return sorted(range(len(numbers)), key=numbers.__getitem__)[(len(numbers) - 1) // 2]


def reasons_of(planner: TopKPlanner, values: NDArray[np.int8], by_name: Sequence[int]) -> list[dict[str, Any]]:
    """Why a planner makes each of its first choices for one patient, values (M,), in the types of JSON.

    `reason`, in words; `others`, what the rule would have taken instead, best first; `then`: each value that the
    feature can take, and the k best entities after it, by their numbers on the page.
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


def _steps(walked: Walked, path: int, by_name: Sequence[int], k: int, guide: int) -> dict[str, Any]:
    """One patient's run, up to the last feature that was observed."""
    taken = int((walked.order[path] >= 0).sum())
    places = walked.place[path, : taken + 1].swapaxes(0, 1)[:, :, list(by_name)]
    orders = np.argsort(places, axis=2, kind="stable")
    certified, sure = walked.certified[path, : taken + 1], walked.probability
    return {
        "order": walked.order[path, :taken].tolist(),
        "worth": _rounded(walked.worth[path, :taken]),
        "guide": guide,
        "probability": None if sure is None else _rounded(sure[path, : taken + 1]),
        "margin": _rounded(walked.margin[path, : taken + 1]),
        "fallback": (np.flatnonzero(walked.fallback[path, :taken]) + 1).tolist(),
        "resolved": walked.resolved[path, : taken + 1].tolist(),
        "certified": int(rounds_until(~certified[None])[0]) if certified[-1] else None,
        "settled": [settled_from(order, k) for order in orders],
        "places": places.tolist(),
    }


def _rounded(values: Floats) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values]


def settled_from(orders: NDArray[np.int64], k: int) -> int:
    """The t from which the set of the k best stays that of the last round; `orders` (T, N) of entities, best first."""
    inside = np.sort(orders[:, :k], axis=1)
    return int(rounds_until((inside != inside[-1]).any(axis=1)[None])[0])


def _check(holds: bool, where: str, found: str, expected: str, step: str) -> None:
    if not holds:
        raise ConfigError(Fault(where, found, expected, step))


def write_explorer(explored: Explored, path: str | Path) -> None:
    """Write the page; it appears when it is complete."""
    write_text(path, explorer_page(explored))


def explorer_page(explored: Explored) -> str:
    """The page as HTML, the same bytes for the same steps."""
    import bokeh  # noqa: PLC0415 (an extra brings it and what pages are made with; the steps need neither)
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
