"""The league: orders and scores against hand-worked numbers and the planners; fields that nobody coded for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from afa.experiments.league import Settings, Task, follow_field, read_entrant, statistics
from afa.experiments.league_models import MISSING, Closed, Stated, measured_first
from afa.field import import_field
from afa.planner import BinaryPlanner, TopKPlanner
from afa.report.league import NOT_FETCHED, worth, write_league
from afa.stats.tables import write_tables

FIELDS = Path(__file__).parents[2] / "resources" / "fields"
WITH = [[0, 0.2, 0.8], [0.1, 0.3, 0.6], [0.5, 0.5, 0]]
WITHOUT = [[0, 0.8, 0.2], [0.2, 0.6, 0.2], [0.1, 0.9, 0]]
EXAMPLE = Stated(np.array([WITH, WITHOUT]), ("1", "2", "3"), np.zeros(2))
"""The worked example of base rates (docs/decisions.md, F1 to F14), without its couplings."""
SMALL = Settings(
    rounds=(0, 1, 2), seeds=(0, 1), shuffles=3, sizes=(10,), repeats=1, tested=20, resamples=100, confidence=0.9
)


def odds(model: Stated, values: list[int], t: int) -> float:
    row = np.array([values], dtype=np.int8)
    evidence = model.along(row, np.array([[0, 1, 2]]), [t])
    return float(evidence[0, 0, 0] - evidence[0, 0, 1])


def test_without_couplings_the_example_has_the_numbers_worked_by_hand() -> None:
    assert EXAMPLE.first() == pytest.approx([0.19274, 0.08630, 0.10175], abs=1e-5)
    assert [odds(EXAMPLE, [1, 1, -1], t) for t in range(4)] == pytest.approx([0, 1.38629, 2.48491, 4.09434], abs=1e-5)
    assert EXAMPLE.orders(np.array([[1, 1, -1]], dtype=np.int8))[0, 0] == 0


def test_a_value_that_was_not_measured_is_never_offered_and_tells_nothing() -> None:
    values = np.array([[MISSING, 1, -1], [1, MISSING, MISSING]], dtype=np.int8)
    orders = EXAMPLE.orders(values)
    assert orders.tolist() == [[2, 1, 0], [0, 1, 2]]
    assert measured_first(np.array([[0, 1, 2], [1, 2, 0]]), values).tolist() == [[1, 2, 0], [0, 1, 2]]
    evidence = EXAMPLE.along(values, orders, [1, 2, 3])
    assert evidence[0, 1].tolist() == evidence[0, 2].tolist()
    assert evidence[1, 0].tolist() == evidence[1, 2].tolist()


def test_shares_are_of_even_odds_and_first_places_are_shared_by_ties() -> None:
    binary = Task("a", ("a", "not a"), np.array([0, 0, 1, 1]), "a")
    scores = np.array([2.0, -1.0, -2.0, 0.0])
    evidence = np.stack([scores, np.zeros(4)], axis=1)[:, None]
    found = statistics(binary, binary.answers, evidence, np.ones((1, 4)))
    assert found["balanced_accuracy"][0, 0] == (0.5 + 0.75) / 2
    assert found["auroc"][0, 0] == 0.75
    which = Task("which", ("a", "b", "none of them"), np.array([0, 0, 1, 2]))
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
    assert worth(table, "auroc", 3) == "10 to 20"
    assert worth(table.assign(value=table["value"] - 0.2 * (table["model"] == "how often")), "auroc", 3) == "at most 10"
    assert worth(table[table["size"] == 10], "auroc", 3) == "more than 10"
    assert worth(table, "auroc", 5) == "not measured"


def test_fifty_patients_of_a_field_equal_the_stepwise_planner() -> None:
    entrant = read_entrant(FIELDS / "pima")
    assert not isinstance(entrant, str)
    values = entrant.values[~(entrant.values == MISSING).any(axis=1)][:50]
    model, names = Closed(entrant.directions, "differential", "diabetes"), entrant.features.names
    orders, rounds = model.orders(values), range(len(names) + 1)
    evidence = model.along(values, orders, rounds)
    for row, order, seen in zip(values, orders, evidence, strict=True):
        planner = BinaryPlanner(entrant.directions, entity="diabetes")
        for t in rounds:
            odds = seen[t, 0] - seen[t, 1]
            assert 1 / (1 + np.exp(-odds)) == pytest.approx(planner.probability(), abs=1e-9)
            if t < len(names):
                assert planner.next_feature() == names[order[t]]
                planner.observe(names[order[t]], int(row[order[t]]))


def test_patients_of_a_field_where_one_entity_holds_equal_the_stepwise_planner() -> None:
    entrant = read_entrant(FIELDS / "dermatology")
    assert not isinstance(entrant, str)
    values = entrant.values[~(entrant.values == MISSING).any(axis=1)][:3]
    model, names = Closed(entrant.directions, "differential", None), entrant.features.names
    orders = model.orders(values)
    evidence = model.along(values, orders, range(9))
    for row, order, seen in zip(values, orders, evidence, strict=True):
        planner = TopKPlanner(entrant.directions, k=1, allocation="greedy")
        for t in range(9):
            share = np.exp(seen[t] - seen[t].max())
            assert share / share.sum() == pytest.approx(planner.posterior(), abs=1e-9)
            assert planner.next_feature() == names[order[t]]
            planner.observe(names[order[t]], int(row[order[t]]))


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


def test_fields_that_nobody_coded_for_pass_and_a_table_that_is_not_there_is_shown(tmp_path: Path) -> None:
    fields = [made_up(tmp_path, "valves", holds="several"), made_up(tmp_path, "taps", holds="one or none")]
    made = []
    for folder in fields:
        entrant = read_entrant(folder)
        assert not isinstance(entrant, str)
        made.append(tmp_path / "league" / folder.name)
        write_tables(follow_field(entrant, SMALL), made[-1])
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
    curves = pd.read_csv(tmp_path / "page" / "curves.csv")
    gaps = curves[(curves["field"] == "valves") & (curves["model"] == "directions")]["n"].unique()
    assert gaps.tolist() == [60 - len(range(0, 60, 7))]
    again = read_entrant(fields[0])
    assert not isinstance(again, str)
    for name, table in follow_field(again, SMALL).items():
        pd.testing.assert_frame_equal(table, pd.read_parquet(made[0] / f"{name}.parquet"), check_dtype=False)
