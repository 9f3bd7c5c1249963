"""Define `afa simulate` and `afa score`, which read patients with measured values.

`afa simulate` counts how many measurements each rule for choosing features needs until its answer is final.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from afa.cli import options
from afa.errors import ConfigError, Fault
from afa.io.files import check_place
from afa.model.rule_names import COMPARED_BINARY, DEFAULT_COMPARED_RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from afa.cohort.cells import GivenTable
    from afa.evaluate.simulate.walks import SimulationSetting

MOST_LISTED = 5


def simulate(
    bundle: options.BundleArgument,
    cohort: Annotated[
        Path,
        typer.Argument(
            metavar="COHORT",
            help="patients with measured values: a .csv or .parquet table, or a cohort folder",
        ),
    ],
    out: options.Out,
    task: options.TaskOptions,
    allocation: Annotated[
        str | None,
        typer.Option(
            help=(
                f"rules to compare, comma-separated, or module:Class; the default is the planner's own rule and "
                f"{', '.join(DEFAULT_COMPARED_RULES)}; with --entity {', '.join(COMPARED_BINARY)}"
            )
        ),
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(help="scores to compare, comma-separated; by default the planner's default score"),
    ] = None,
    gain: Annotated[
        str | None,
        typer.Option(
            help=(
                "gains to compare, comma-separated: cmi, f_target, wald_magnitude, information; "
                "by default cmi and the gain of a planner with default options"
            )
        ),
    ] = None,
    background: Annotated[
        str | None,
        typer.Option(
            help=(
                "frequencies of the features' values for the score `background` and the rule `frontier`: `patients` "
                "(from the other patients of this cohort), `elicited` (from the bundle's probabilities), `uniform`, or "
                "the path of a table of other patients. The default is `elicited` if the bundle has probabilities, "
                "else `uniform`"
            )
        ),
    ] = None,
    costs: options.CostsOption = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="CSV of labels, with a column of patients' names, and a column of 0, 1 or empty cells for each entity"
        ),
    ] = None,
    drop_missing: Annotated[bool, typer.Option(help="drop bundle features that the table lacks")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="seed of the first random order")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="number of random orders for each patient")] = 3,
    patients: Annotated[
        int | None,
        typer.Option(
            min=1, help="number of patients in a random sample that depends on --seed; by default all patients"
        ),
    ] = None,
    resamples: options.Resamples = 1000,
    confidence: options.Confidence = 0.95,
    threads: options.Threads = 1,
    explorer: Annotated[
        int,
        typer.Option(
            min=0,
            max=40,
            help="number of patients on the page explorer.html; with 0 or --entity, the page is not written",
        ),
    ] = 8,
    json: options.AsJson = False,
) -> None:
    """Simulate feature acquisition on measured patients.

    Write accuracy curves, and the number of features that each rule needs until its answer is final.
    """
    import numpy as np
    from tqdm import tqdm  # type: ignore[import-untyped]

    from afa.cohort.cells import read_labels, read_patients
    from afa.engine.run import MISSING
    from afa.evaluate.cross_validated import brought_text, update_brings
    from afa.evaluate.inputs import label_matrix
    from afa.evaluate.simulate import compared_strategies, runs_of, simulate_strategies, some_patients
    from afa.evaluate.simulate.walks import SimulationSetting
    from afa.evaluate.simulation_page import (
        CARD,
        FILES,
        cost_text,
        explore_simulation,
        labels_text,
        needed_text,
        write_simulation,
    )
    from afa.model.bundle import load_bundle
    from afa.model.bundle.priors import starting_point
    from afa.planner import GAINS, SCORES
    from afa.planner.options import gauge_of, question_arguments, tau_of

    model, costs = load_bundle(bundle), costs or "own"
    check_place(out, FILES, CARD)
    drawn = tuple(range(seed, seed + seeds))
    if not 0 < confidence < 1:
        raise ConfigError(Fault("--confidence", str(confidence), "a number between 0 and 1", "pass e.g. 0.95"))
    k, entity = question_arguments(model, task.k, task.entity)
    setting = SimulationSetting(
        k=k,
        entity=entity,
        coupling=gauge_of(model, task.coupling),
        holds=task.holds,
        tau=tau_of(task.tau),
        costs=costs,
        seeds=drawn,
        resamples=resamples,
        confidence=confidence,
        threads=threads,
    )
    gains, scores = _split_option_words("--gain", gain, GAINS), _split_option_words("--score", score, SCORES)
    rules = _split_option_words("--allocation", allocation)
    given = read_patients(cohort, model, drop_missing=drop_missing)
    given = given if labels is None else read_labels(labels, given)
    say = partial(typer.echo, err=json)  # with --json, messages are printed to stderr
    _print_ignored_data(given, say)
    setting, chosen = _with_background(setting, background, given), some_patients(given.cohort, patients, seed)
    ways = compared_strategies(given.bundle, setting, rules, gains, scores)
    measured = given.measured[[given.cohort.patients.index(name) for name in chosen.patients]]
    runs = runs_of(ways, drawn)
    with tqdm(total=len(runs) * len(chosen.patients), unit="walk", disable=None) as bar:
        made = simulate_strategies(given.bundle, chosen, ways, setting, measured=measured, tick=bar.update)
    card = {
        "bundle": {"name": model.name, "version": model.version, "digest": model.digest},
        "features": {"used": len(given.bundle.features), "dropped": list(given.dropped)},
        "cohort": {
            "name": chosen.name,
            "origin": chosen.provenance.get("origin"),
            "digests": dict(given.digests),
            "patients": len(given.cohort.patients),
            "simulated_on": len(chosen.patients),
            "not_measured": int((~measured).sum()),
            "ignored_columns": {"number": len(given.ignored), "first": list(given.ignored[:MOST_LISTED])},
        },
        "setting": {name: getattr(setting, name) for name in ("k", "entity", "coupling", "holds", "tau")},
        "ways": [way._asdict() for way in ways],
        "background": background or ("elicited" if model.has_probabilities else "uniform"),
        "costs": costs,
        "seeds": list(drawn),
        "resamples": resamples,
        "confidence": confidence,
    }
    explored = partial(explore_simulation, given.bundle, chosen, runs, setting, most=explorer, measured=measured)
    brought = None
    if labels is not None and setting.explicit:
        values = np.where(measured, chosen.values, MISSING).astype(np.int8)
        known = label_matrix(given.bundle, chosen)
        brought = update_brings(given.bundle, values, known, entity=entity, resamples=resamples, confidence=confidence)
    write_simulation(made, card, out, say, explored if explorer and entity is None else None, brought)
    if json:
        typer.echo(options.as_json(made.features_needed, out=str(out), patients=len(chosen.patients)))
        return
    asked_of_one = task.holds or ("one" if entity is None and not setting.explicit else None)
    said = (
        starting_point(given.bundle, asked_of_one, entity),
        f"Features needed, of {len(given.bundle.features)}\n{needed_text(made.features_needed)}",
        cost_text(made.curves),
        labels_text(made.curves),
        "" if brought is None else brought_text(brought, given.bundle),
        f"{len(chosen.patients)} patients, {len(ways)} ways, into {out}",
    )
    typer.echo("\n".join(filter(None, said)))


def score(
    bundle: options.BundleArgument,
    cohort: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE", help="patients' values: a .csv or .parquet table of -1, 0, 1, or a cohort folder"
        ),
    ],
    out: Annotated[Path, options.output_option(".csv", ".tsv", ".parquet")],
    holds: Annotated[
        Literal["several", "one", "one or none"] | None,
        typer.Option(help="number of entities that a patient can have; by default the bundle's setting"),
    ] = None,
    inference: Annotated[Literal["mean_field", "exact"], typer.Option(help="exact is slow")] = "mean_field",
    drop_missing: Annotated[bool, typer.Option(help="treat features that the table lacks as not measured")] = False,
    threads: options.Threads = 1,
) -> None:
    """Write the probability of each entity for each patient of a table, given all measured values."""
    from afa.cohort.cells import read_cells, read_patients
    from afa.evaluate.predict import predict_proba, write_probabilities
    from afa.model.bundle import load_bundle
    from afa.model.bundle.priors import starting_point

    model = load_bundle(bundle)
    given = read_patients(cohort, model, drop_missing=drop_missing)
    _print_ignored_data(given, typer.echo)
    found = predict_proba(model, given.frame(), holds=holds, inference=inference, threads=threads)
    if cohort.is_file():  # write the patients in the order of the table
        found = found.loc[list(read_cells(cohort, "feature", ()).names)]
    write_probabilities(found, out)
    typer.echo(starting_point(model, holds or ("one" if not model.has_probabilities else None)))
    if not model.has_probabilities:
        typer.echo("The bundle has no probabilities: probabilities assume that exactly one entity holds.")
    typer.echo(f"{len(found)} patients, {len(found.columns)} entities into {out}")


def _with_background(setting: SimulationSetting, named: str | None, given: GivenTable) -> SimulationSetting:
    """Return a copy of `setting` with a function `background`, which maps a patient's name to value frequencies.

    If `named` is None, the setting is returned unchanged. With `--background patients`, the value frequencies for a
    patient are counted among all other patients of the cohort.
    """
    from afa.scores.belief import Background

    if named is None:
        return setting
    if named != "patients":
        return replace(setting, background=cache(lambda patient: options.background_of(named, given.bundle, patient)))
    values, place = given.frame().to_numpy(), {name: i for i, name in enumerate(given.cohort.patients)}

    def others(patient: str) -> Background:
        return Background.of_patients(given.bundle, values, without=place.get(patient), name="others")

    return replace(setting, background=others)


def _split_option_words(option: str, text: str | None, known: Sequence[str] = ()) -> list[str]:
    """Return the distinct words of a comma-separated text, or an empty list if `text` is None.

    Raise a `ConfigError` if a word is empty, is repeated, or is not in `known` (unless `known` is empty).
    """
    if text is None:
        return []
    parts = [part.strip() for part in text.split(",")]
    if not all(parts) or len(set(parts)) < len(parts) or (known and not set(parts) <= set(known)):
        expected = f"a choice from {', '.join(known)}, each once" if known else "distinct words with commas between"
        raise ConfigError(Fault(option, repr(text), expected, f"pass e.g. {known[0] if known else 'greedy,random'}"))
    return parts


def _print_ignored_data(given: GivenTable, say: Callable[[str], None]) -> None:
    """Print which columns, features and labels are ignored or missing."""
    from afa.io.csvfile import visible

    if given.doubt:
        say(given.doubt)
    if not given.measured.all():
        share = 100 * (1 - given.measured.mean())
        say(f"{share:.{2 if share < 99 else 3}g} % of the values were not measured: they are not asked for")

    for names, words in (
        (given.ignored, "columns ignored, since the bundle does not know them"),
        (given.dropped, "features left out of the bundle, since the table lacks them"),
        (given.left_out, "labels not used, of patients that the table lacks"),
    ):
        if names:
            more = ", ..." if len(names) > MOST_LISTED else ""
            shown = ", ".join(visible(name) or "one without a name" for name in names[:MOST_LISTED])
            say(f"{words} ({len(names)}): {shown}{more}")
