"""The league: orders and scores against hand-worked numbers and the planners; fields that nobody coded for."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from afa.cohort.table_cohort import field_cohort, no_complete_patient
from afa.engine.follow import choose
from afa.engine.layout import Models
from afa.engine.run import CERTAIN, MISSING
from afa.evaluate.classifiers import trained
from afa.evaluate.entrants import (
    NO_ENTITY,
    Entrant,
    FieldTask,
    HypothesisModel,
    discounted,
    labels_for,
    measured_first,
    plainly_coupled,
    read_entrant,
    uncoupled,
    which,
    with_and_without,
)
from afa.evaluate.field import import_field
from afa.evaluate.long_tables import write_tables
from afa.model.bundle.rates import explicit_models
from afa.paper.experiments.league import LeagueSettings, follow_field, statistics
from afa.paper.report.league import BEST, NOT_FETCHED, labels_needed, ladder_at, passed, write_league
from afa.planner import BinaryPlanner, TopKPlanner

FIELDS = Path(__file__).parents[3] / "resources" / "fields"
WITH = [[0, 0.2, 0.8], [0.1, 0.3, 0.6], [0.5, 0.5, 0]]
WITHOUT = [[0, 0.8, 0.2], [0.2, 0.6, 0.2], [0.1, 0.9, 0]]
SHARED, CONDITION = np.zeros((2, 3, 3))
SHARED[0, 1] = SHARED[1, 0] = 0.5
CONDITION[1, 2] = CONDITION[2, 1] = -0.4
ALL = np.arange(3)
EXAMPLE = HypothesisModel(
    Models(
        "example",
        ("a", "not a"),
        ("1", "2", "3"),
        explicit_models(WITH, WITHOUT, SHARED, CONDITION, features=("1", "2", "3")),
        (ALL, ALL),
        np.array(WITHOUT),
    )
)
"""The worked example of base rates (docs/decisions.md, F1 to F14)."""
SMALL = LeagueSettings(
    rounds=(0, 1, 2), seeds=(0, 1), shuffles=3, sizes=(10,), repeats=1, tested=20, resamples=100, confidence=0.9
)


def odds(model: HypothesisModel, values: list[int]) -> list[float]:
    row = np.array([values], dtype=np.int8)
    evidence = model.along(row, np.array([[0, 1, 2]]), range(4))[0]
    return (evidence[:, 0] - evidence[:, 1]).tolist()


def entrant(name: str) -> Entrant:
    found = read_entrant(FIELDS / name)
    assert not isinstance(found, str)
    return found


def test_the_example_has_the_numbers_worked_by_hand_with_and_without_couplings() -> None:
    assert odds(EXAMPLE, [1, 1, -1]) == pytest.approx([0, 1.35662, 2.13990, 3.84434], abs=1e-5)
    alone = uncoupled(EXAMPLE)
    assert odds(alone, [1, 1, -1]) == pytest.approx([0, 1.38629, 2.48491, 4.09434], abs=1e-5)
    assert alone.orders(np.array([[1, 1, -1]], dtype=np.int8))[0, 0] == 0


def test_plain_couplings_have_the_energies_of_the_same_couplings_about_zero() -> None:
    values = np.array([[0, -1, -1], [1, 1, 0], [1, 0, -1], [0, 1, 0]])
    for model, moved in zip(EXAMPLE.models.models, plainly_coupled(EXAMPLE).models.models, strict=True):
        terms = model.terms[ALL, values + 1].sum(axis=1)
        plain = terms + 0.5 * np.einsum("ni,ij,nj->n", values, model.couplings.toarray(), values)
        assert np.ptp(plain - moved.energies(values)) < 1e-9


def test_a_value_that_was_not_measured_is_never_asked_for_and_tells_nothing() -> None:
    values = np.array([[MISSING, 1, -1], [1, MISSING, MISSING]], dtype=np.int8)
    assert EXAMPLE.orders(values).tolist() == [[2, 1, -1], [0, -1, -1]]
    assert measured_first(np.array([[0, 1, 2], [1, 2, 0]]), values).tolist() == [[1, 2, 0], [0, 1, 2]]
    evidence = EXAMPLE.planned(values, [1, 2, 3])
    assert evidence[0, 1].tolist() == evidence[0, 2].tolist()
    assert evidence[1, 0].tolist() == evidence[1, 1].tolist() == evidence[1, 2].tolist()
    draw = np.random.default_rng(0)
    given = draw.choice([-1, 0, 1, MISSING], size=(20, 3)).astype(np.int8)
    model = trained("naive_bayes", given, draw.permutation(np.arange(20) % 2), ("1", "2", "3"), draw)
    found = model.planned(values, [0, 1, 2, 3])
    assert found[1, 1].tolist() == found[1, 2].tolist() == found[1, 3].tolist() != found[1, 0].tolist()
    assert found[0, 2].tolist() == found[0, 3].tolist()


def test_shares_are_of_even_odds_and_first_places_are_shared_by_ties() -> None:
    binary = FieldTask("a", ("a", "not a"), np.array([0, 0, 1, 1]), "a")
    scores = np.array([2.0, -1.0, -2.0, 0.0])
    evidence = np.stack([scores, np.zeros(4)], axis=1)[:, None]
    found = statistics(binary, binary.answers, evidence, np.ones((1, 4)))
    assert found["balanced_accuracy"][0, 0] == (0.5 + 0.75) / 2
    assert found["auroc"][0, 0] == 0.75
    which = FieldTask("which", ("a", "b", "none of them"), np.array([0, 0, 1, 2]))
    evidence = np.array([[1.0, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]])[:, None]
    found = statistics(which, which.answers, evidence, np.array([[1.0, 1, 1, 1], [2, 0, 1, 0]]))
    assert found["first_place"][:, 0] == pytest.approx([(1 + 0 + 1 / 2 + 1 / 3) / 4, 2.5 / 3])
    assert found["by_class"][:, 0] == pytest.approx([(0.5 + 0.5 + 1 / 3) / 3, (1 + 0.5) / 2])


def test_the_worth_is_between_the_sizes_where_the_best_classifier_catches_up() -> None:
    rows = [
        (model, size, value)
        for model, values in {"how often": (0.8, 0.8), "logistic": (0.6, 0.85), "boosting": (0.7, 0.5)}.items()
        for size, value in zip((10, 20), values, strict=True)
    ]
    table = pd.DataFrame(rows, columns=["model", "size", "value"]).assign(metric="auroc", t=3)
    assert labels_needed(table, "auroc", 3) == "10 to 20"
    assert (
        labels_needed(table.assign(value=table["value"] - 0.2 * (table["model"] == "how often")), "auroc", 3)
        == "at most 10"
    )
    assert labels_needed(table[table["size"] == 10], "auroc", 3) == "more than 10"
    assert labels_needed(table, "auroc", 5) == "not measured"


def test_labels_alone_pass_where_the_best_of_their_models_first_does_better() -> None:
    values = {
        "how often": (0.8, 0.8, 0.8),
        "bundle and labels": (0.8, 0.85, 0.9),
        "labels alone": (0.6, 0.7, 0.8),
        "logistic": (0.5, 0.81, 0.95),
        "boosting": (0.5, 0.5, 0.5),
        "naive_bayes": (0.5, 0.5, 0.5),
    }
    rows = [(model, size, x) for model, each in values.items() for size, x in zip((10, 20, 50), each, strict=True)]
    table = pd.DataFrame(rows, columns=["model", "size", "value"]).assign(t=5, low=0.0, high=1.0)
    rungs = ladder_at(table, 5)
    assert rungs[BEST].tolist() == [0.5, 0.81, 0.95]
    assert (passed(rungs, "how often"), passed(rungs, "bundle and labels")) == ("10 to 20", "20 to 50")
    assert passed(ladder_at(table, 3), "how often") == "not measured"


def test_the_ladder_is_the_mean_over_draws_and_its_differences_are_of_the_same_draws(tmp_path: Path) -> None:
    field = read_entrant(made_up(tmp_path, "valves", holds="several"))
    assert not isinstance(field, str)
    tables = follow_field(field, SMALL.model_copy(update={"repeats": 3, "ladder_resamples": 20}))
    keys = ["task", "model", "size", "t"]
    drawn = tables["trained"][tables["trained"]["metric"] == "auroc"].groupby(keys)["value"].agg(["mean", "size"])
    ladder = tables["ladder"].set_index(keys)
    own = ladder.loc[drawn.index]
    assert own["value"].to_numpy() == pytest.approx(drawn["mean"].to_numpy())
    assert set(drawn["size"]) == {3}
    assert ((own["low"] <= own["value"] + 1e-9) & (own["value"] <= own["high"] + 1e-9)).mean() > 0.9
    by_model = tables["ladder"].pivot_table(index=["task", "size", "t"], columns="model", values="value")
    difference = by_model["bundle and labels"] - by_model["how often"]
    assert by_model["bundle and labels less how often"].to_numpy() == pytest.approx(difference.to_numpy())


def test_labels_of_a_task_are_those_that_an_update_takes(tmp_path: Path) -> None:
    valves, taps = (
        read_entrant(made_up(tmp_path, name, holds=holds))
        for name, holds in (("valves", "several"), ("taps", "one or none"))
    )
    assert not isinstance(valves, str)
    assert not isinstance(taps, str)
    one = labels_for(valves.bundle, FieldTask("torn", ("torn", "not torn"), np.array([0, 1]), "torn"), np.array([0, 1]))
    place = valves.bundle.index("torn")
    assert one[:, place].tolist() == [1, 0]
    assert np.isnan(np.delete(one, place, axis=1)).all()
    which_ = next(task for task in taps.tasks if task.entity is None)
    n = len(taps.bundle.entities)
    assert labels_for(taps.bundle, which_, np.arange(n + 1)).tolist() == [*np.eye(n).tolist(), [0.0] * n]


@pytest.mark.parametrize(("name", "entity"), [("pima", "diabetes"), ("kidney", "chronic_kidney_disease")])
@pytest.mark.parametrize("closure", ["explicit", "differential"])
def test_fifty_patients_of_a_field_equal_the_stepwise_planner(name: str, entity: str, closure: str) -> None:
    field = entrant(name)
    bundle = field.bundle if closure == "explicit" else field.directions
    values, names, rounds = field.values[:50], field.features, range(6)
    reading = with_and_without(bundle, entity, closure)  # type: ignore[arg-type]
    orders, evidence = reading.orders(values), reading.planned(values, rounds)
    # A planner's bracket counts the exact kappa, the engine's that of mean-field: it may settle a duel a round earlier.
    settled = choose(reading.models, values, CERTAIN, allocation="greedy", gain="cmi", k=1).resolved[:, :, 0]
    for row, order, seen, done in zip(values, orders, evidence, settled, strict=True):
        planner = BinaryPlanner(bundle, entity=entity)
        missing = [name for name, value in zip(names, row, strict=True) if value == MISSING]
        for gap in missing:
            planner.skip(gap)
        for t in rounds:
            stated = 1 / (1 + np.exp(seen[t, 1] - seen[t, 0]))
            assert stated == pytest.approx(planner.probability(), abs=1e-6)
            if t < len(names) - len(missing):
                assert done[t] or planner.next_feature() == names[order[t]]
                planner.observe(names[order[t]], int(row[order[t]]))


@pytest.mark.parametrize("how_often", [True, False])
def test_patients_of_a_field_where_one_entity_holds_equal_the_stepwise_planner(how_often: bool) -> None:
    field = entrant("dermatology")
    values = field.values[~(field.values == MISSING).any(axis=1)][:3]
    reading = which(field.bundle) if how_often else HypothesisModel(field.directions)
    bundle = field.bundle if how_often else field.directions
    orders, evidence = reading.orders(values), reading.planned(values, range(6))
    for row, order, seen in zip(values, orders, evidence, strict=True):
        planner = TopKPlanner(bundle, k=1, gain=None if how_often else "information", costs="equal", panels={})
        for t in range(6):
            share = np.exp(seen[t] - seen[t].max())
            assert share / share.sum() == pytest.approx(planner.posterior(), abs=1e-6)
            assert planner.next_feature() == field.features[order[t]]
            planner.observe(field.features[order[t]], int(row[order[t]]))


@pytest.mark.parametrize(("name", "entity"), [("pima", "diabetes"), ("dermatology", None)])
def test_findings_that_repeat_each_other_are_believed_as_the_planner_does(name: str, entity: str | None) -> None:
    field = entrant(name)
    values = field.values[(field.values == MISSING).any(axis=1)][:4]
    asked = with_and_without(field.bundle, entity, "explicit") if entity else which(field.bundle)
    reading, rounds = discounted(field.bundle, asked, entity), range(6)
    evidence, orders = reading.planned(values, rounds), uncoupled(asked).orders(values)
    less = 0
    for row, order, seen, plain in zip(values, orders, evidence, uncoupled(asked).planned(values, rounds), strict=True):
        if entity:
            planner: BinaryPlanner | TopKPlanner = BinaryPlanner(field.bundle, entity=entity, tau="effective")
        else:
            planner = TopKPlanner(field.bundle, k=1, costs="equal", tau="effective")
        for t in rounds:
            share = np.exp(seen[t] - seen[t].max())
            stated = share[0] / share.sum() if entity else share / share.sum()
            own = planner.probability() if isinstance(planner, BinaryPlanner) else planner.posterior()
            assert stated == pytest.approx(own, abs=1e-6)
            if order[t] >= 0:
                planner.observe(field.features[order[t]], int(row[order[t]]))
        less += np.ptp(seen[-1]) < np.ptp(plain[-1]) - 1e-6
    assert less  # somebody has findings that repeat each other
    everything = reading.along(values, orders, [values.shape[1]])
    assert reading.planned(values, [0, values.shape[1]])[:, 1:] == pytest.approx(everything)


def test_where_one_or_none_holds_the_posterior_is_the_planners_and_none_is_a_candidate(tmp_path: Path) -> None:
    found = read_entrant(made_up(tmp_path, "taps", holds="one or none"))
    assert not isinstance(found, str)
    values = found.values[:8]
    reading = which(found.bundle, NO_ENTITY)
    orders, evidence = reading.orders(values), reading.planned(values, range(4))
    for row, order, seen in zip(values, orders, evidence, strict=True):
        planner = TopKPlanner(found.bundle, k=1)
        for t in range(4):
            share = np.exp(seen[t]) / np.exp(seen[t]).sum()
            assert share[:2] == pytest.approx(planner.posterior(), abs=1e-6)
            assert share[2] == pytest.approx(planner.none()[0], abs=1e-6)
            if t < 3 and order[t] >= 0:
                planner.observe(found.features[order[t]], int(row[order[t]]))


def made_up(folder: Path, name: str, *, holds: str, address: str | None = None) -> Path:
    """A field of a valve, of which nobody has coded anything: 60 rows, gaps, one table in a mirror if `address`."""
    given = folder / "given" / name
    (given / "elicited").mkdir(parents=True)
    draw = np.random.default_rng(3)
    stuck = draw.random(60) < 0.4
    torn = ~stuck & (draw.random(60) < 0.5)
    heat, noise = draw.normal(60 + 15 * stuck, 6), (draw.random(60) < 0.2 + 0.6 * torn).astype(int)
    drip = draw.integers(0, 3, 60)
    values = [
        f"v{n},{h:.1f},{x},{d if n % 7 else ''}" for n, (h, x, d) in enumerate(zip(heat, noise, drip, strict=True))
    ]
    answers = "entity,feature,direction,p_high_with,p_high_without,p_low_with,p_low_without,confidence,reason\n"
    files = {
        "dictionary.csv": "feature,kind,unit,values,definition\nheat,continuous,C,above 0,Heat.\n"
        "noise,binary,none,0/1,Noise.\ndrip,ordinal,grade,0-2,Drip.\n",
        "entities.csv": "entity,definition\nstuck,Stuck.\ntorn,Torn.\n",
        "elicited/cuts_a.csv": "feature,low,high\nheat,50,68\nnoise,,0.5\ndrip,,1.5\n",
        "elicited/unary_a.csv": answers + "stuck,heat,1,0.8,0.1,0.02,0.1,0.9,x\nstuck,noise,0,0.3,0.3,0,0,0.3,x\n"
        "stuck,drip,0,0.3,0.3,0,0,0.2,x\ntorn,heat,0,0.2,0.2,0.1,0.1,0.3,x\ntorn,noise,1,0.8,0.2,0,0,0.9,x\n"
        "torn,drip,0,0.3,0.3,0,0,0.2,x\n",
        "values.csv": "valve,heat,noise,drip\n" + "\n".join(values) + "\n",
        "labels.csv": "valve,stuck,torn\n"
        + "".join(f"v{n},{int(s)},{int(t)}\n" for n, (s, t) in enumerate(zip(stuck, torn, strict=True))),
    }
    for path, text in files.items():
        (given / path).write_text(text)
    import_field(given, folder / name, holds=holds, address=address)  # type: ignore[arg-type]
    return folder / name


def test_a_table_of_which_nobody_has_every_value_is_told_from_others(tmp_path: Path) -> None:
    field = made_up(tmp_path, "valves", holds="several")
    assert not no_complete_patient(field_cohort(field))
    values = next(field.glob("values.csv*"))
    head, *rows = gzip.decompress(values.read_bytes()).decode().splitlines()
    values.write_bytes(gzip.compress("\n".join([head, *(f"{row.rpartition(',')[0]}, " for row in rows)]).encode()))
    cohort = field_cohort(field)
    assert no_complete_patient(cohort.model_copy(update={"sha256": None}))
    assert not no_complete_patient(cohort)  # the file has another digest, and is not read


def test_fields_that_nobody_coded_for_pass_and_a_table_that_is_not_there_is_shown(tmp_path: Path) -> None:
    fields = [made_up(tmp_path, "valves", holds="several"), made_up(tmp_path, "taps", holds="one or none")]
    made = []
    for folder in fields:
        field = read_entrant(folder)
        assert not isinstance(field, str)
        made.append(tmp_path / "league" / folder.name)
        write_tables(follow_field(field, SMALL), made[-1])
    absent = read_entrant(made_up(tmp_path, "pipes", holds="several", address="https://example.org/pipes.csv"))
    assert absent == "not fetched: https://example.org/pipes.csv"
    made.append(tmp_path / "league" / "pipes")
    made[-1].mkdir()
    (made[-1] / NOT_FETCHED).write_text(absent)
    write_league(made, tmp_path / "page")
    page = (tmp_path / "page" / "league.html").read_text()
    assert "pipes: not fetched: https://example.org/pipes.csv" in page
    assert "2 of 3 fields are shown" in page
    assert "2 of 3 fields: the tables of the others are not fetched" in (tmp_path / "page" / "league.svg").read_text()
    rows = pd.read_csv(tmp_path / "page" / "league.csv").set_index(["field", "task"])
    assert set(rows.index) == {("valves", "stuck"), ("valves", "torn"), ("taps", "which")}
    assert (rows["planner_all"] > 0.6).all()
    assert rows["planner_all"].tolist() == pytest.approx(rows["random_all"].tolist())
    assert page.index("labelled patients") < page.index("features observed")  # the ladder comes first
    assert "both" in (tmp_path / "page" / "ladder.svg").read_text()
    curves = pd.read_csv(tmp_path / "page" / "curves.csv")
    gaps = curves[(curves["field"] == "valves")].groupby("model")["n"].unique()
    assert gaps["how often, of complete patients"].tolist() == [60 - len(range(0, 60, 7))]
    assert gaps["directions"].tolist() == gaps["how often"].tolist() == [60]
    again = read_entrant(fields[0])
    assert not isinstance(again, str)
    for name, table in follow_field(again, SMALL).items():
        pd.testing.assert_frame_equal(table, pd.read_parquet(made[0] / f"{name}.parquet"), check_dtype=False)
