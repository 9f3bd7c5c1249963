"""The allocation grid: its cells, its tables, shards, and custom rules beside the compiled ones."""

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of

from afa.cohort.cohort import Cohort
from afa.engine.outcomes import follow_rule, full_observation
from afa.engine.rules import COMPILED
from afa.errors import ConfigError
from afa.evaluate.inputs import label_matrix
from afa.evaluate.targets import clinical_k
from afa.inference.meanfield import Solver
from afa.model.orders import random_order
from afa.model.rule_names import WITHOUT_GAIN
from afa.paper.experiments.allocation.cells import GridCell
from afa.paper.experiments.allocation.tables import GRID_GAINS, SCHEDULES, cells_of, follow_own_rule, run
from afa.paper.experiments.settings import Allocation, Inference
from afa.planner.rules import RULES
from afa.planner.rules.check import rule_of

SOLVER = Solver()


def made(n=6, m=7, patients=5, seed=0):
    rng = np.random.default_rng(seed)
    bundle = bundle_of(rng.integers(-4, 5, (n, m)) / 4, rng.integers(-2, 3, (n, m, m)) / 4)
    values = rng.integers(-1, 2, (patients, m)).astype(np.int8)
    names = tuple(f"p{i}" for i in range(patients))
    labels = pd.DataFrame(rng.integers(0, 2, (patients, n)), index=list(names), columns=list(bundle.entities))
    return bundle, Cohort("made", bundle.features, names, values, labels.astype("Int8"))


def grid(bundle, cohort, rules, gain="cmi", schedules=("every",), patients=None, seeds=(0, 1)):
    gains = GRID_GAINS if gain is None else (gain,)
    settings = Allocation(rules=tuple(rules), gains=gains, schedules=tuple(schedules), seeds=seeds)
    chosen = range(len(cohort.patients)) if patients is None else patients
    return run(bundle, cohort, chosen, allocation=settings, top_k=2, inference=Inference(), threads=1)


def test_the_grid_is_every_rule_by_gain_and_schedule_and_nothing_twice():
    cells = cells_of(list(RULES), GRID_GAINS, tuple(SCHEDULES))
    assert cells[:3] == [
        GridCell("random", "", "every"),
        GridCell("largest_unary", "", "every"),
        GridCell("largest_unary", "", "paper"),
    ]
    without, others = len(WITHOUT_GAIN), len(RULES) - len(WITHOUT_GAIN)
    gains = [gain for gain in GRID_GAINS for _ in range(2 * others)]
    assert [cell.gain for cell in cells[3:]] == [""] * 2 * (without - 2) + gains
    assert len(set(cells)) == len(cells)
    assert cells_of(["random"], GRID_GAINS, ["paper"]) == [GridCell("random", "", "every")]


@pytest.mark.parametrize("rules", [["random"], ["largest_unary", "random"], ["greedy"], ["mine:Rule"], list(RULES)])
def test_the_workflow_has_jobs_for_the_parts_of_the_grid_that_have_cells(rules):
    parts = Allocation(rules=tuple(rules)).parts
    assert list(parts) == list(
        dict.fromkeys(cell.gain or "none" for cell in cells_of(rules, GRID_GAINS, tuple(SCHEDULES)))
    )


@pytest.mark.parametrize("rules", [["random"], ["greedy"], list(RULES)])
def test_the_parts_of_the_grid_have_all_its_cells_once(rules):
    whole = Allocation(rules=tuple(rules))
    parts = [Allocation.model_validate(whole.part(name)) for name in whole.parts]
    cells = [cells_of(part.rules, part.gains, part.schedules) for part in (whole, *parts)]
    assert [cell for part in cells[1:] for cell in part] == cells[0]


def test_every_cell_has_every_patient_seed_round_and_readout():
    bundle, cohort = made()
    tables = grid(bundle, cohort, ["random", "greedy"], schedules=["paper"])
    keys = ["allocation", "gain", "schedule", "seed", "patient", "t"]
    assert len(tables["choices"]) == (2 + 1) * 5 * 8
    assert not tables["choices"].duplicated(keys).any()
    assert len(tables["rounds"]) == 2 * len(tables["choices"])
    assert not tables["rounds"].duplicated([*keys, "method"]).any()
    chosen = tables["choices"].query("t > 0").groupby(keys[:-1])["feature"].agg(sorted)
    assert (chosen.map(tuple) == tuple(sorted(bundle.features))).all()
    assert tables["choices"].query("t == 0")["feature"].isna().all()


def test_at_full_observation_every_rule_has_everything_right():
    bundle, cohort = made()
    tables = grid(bundle, cohort, RULES, None, SCHEDULES)
    duels = tables["duels"]
    decided = duels[duels["winner"] != 0].groupby("patient").size()
    end = tables["rounds"].query("t == 7")
    assert (end["right"] == end["patient"].map(decided)).all()
    assert (end["p_at_k"] == 1).all()
    assert not tables["choices"]["resolved_wrong"].any()


def test_precisions_by_hand():
    """Unary models alone, so that wald after both features is the truth; S = 2 x0, x0, -x0 and labels 0, 1, 1."""
    bundle = bundle_of([[2.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], np.zeros((3, 2, 2)))
    labels = pd.DataFrame([[0, 1, 1]], index=["p0"], columns=list(bundle.entities), dtype="Int8")
    cohort = Cohort("made", bundle.features, ("p0",), np.array([[1, 1]], dtype=np.int8), labels)
    tables = grid(bundle, cohort, ["largest_unary"])
    assert clinical_k(label_matrix(bundle, cohort), 2) == 1
    wald = tables["rounds"].query("method == 'wald'").set_index("t")
    # before any observation all three tie: the top 2 holds 2 x 2/3 of the right ones, the top 1 a positive in 2 of 3
    assert wald["p_at_k"].tolist() == pytest.approx([2 / 3, 1, 1])
    assert wald["clinical_p_at_k"].tolist() == pytest.approx([2 / 3, 0, 0])
    assert wald["clinical_r_precision"].tolist() == pytest.approx([2 / 3, 0.5, 0.5])
    targets = tables["targets"]
    assert targets["top"].tolist() == [2, 2, 0]
    assert targets["label"].tolist() == [0, 1, 1]


def test_entities_that_tie_for_the_last_place_are_each_a_right_answer():
    bundle = bundle_of([[2.0], [1.0], [1.0]], np.zeros((3, 1, 1)))
    labels = pd.DataFrame(index=["p0"])
    cohort = Cohort("made", bundle.features, ("p0",), np.array([[1]], dtype=np.int8), labels)
    tables = grid(bundle, cohort, ["greedy"])
    assert tables["targets"]["top"].tolist() == [2, 1, 1]
    assert tables["rounds"].query("t == 1")["p_at_k"].tolist() == [1, 1]
    assert tables["rounds"]["clinical_p_at_k"].isna().all()


def test_parts_of_the_patients_join_to_the_whole():
    bundle, cohort = made()
    rules, gain = ["random", "boundary"], "f_target"
    whole = grid(bundle, cohort, rules, gain)
    parts = [grid(bundle, cohort, rules, gain, patients=patients) for patients in ([0, 1], [], [2, 3, 4])]
    for name, table in whole.items():
        joined = pd.concat([part[name] for part in parts if len(part[name])], ignore_index=True)
        pd.testing.assert_frame_equal(joined, table)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("rule", [name for name in COMPILED if name in RULES and name != "random"])
def test_a_rule_of_ones_own_is_followed_as_the_compiled_one(rule, schedule):
    bundle, cohort = made(patients=3)
    truth = full_observation(bundle, cohort.values)
    rescoring = None if schedule == "every" else [0, 3, 5]
    options = {"gain": "cmi", "target": None, "rescoring": rescoring, "k": 2, "solver": SOLVER}
    compiled = follow_rule(bundle, cohort.values, truth, allocation=rule, threads=1, **options)
    own = follow_own_rule(bundle, cohort.values, truth, RULES[rule], names=cohort.patients, **options)
    assert (own.order == compiled.order).all()
    assert (own.fallback == compiled.fallback).all()
    for ours, theirs in zip(own[2:], compiled[2:], strict=True):
        assert (ours == theirs).all()


def test_a_rule_of_ones_own_is_named_by_module_and_class():
    bundle, cohort = made(patients=2)
    own = grid(bundle, cohort, ["afa.planner.rules.boundary:Boundary"])
    compiled = grid(bundle, cohort, ["boundary"])
    for name in ("rounds", "choices"):
        pd.testing.assert_frame_equal(*(part[name].drop(columns="allocation") for part in (own, compiled)))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("greedier", "no module and class"),
        ("no_such_module:Rule", "No module named 'no_such_module'"),
        ("afa.planner.rules:NoRule", "NoRule without choose"),
        ("afa.planner.rules:View", "View without choose"),
    ],
)
def test_a_rule_that_is_not_there_is_refused_with_its_name(name, found):
    with pytest.raises(ConfigError, match=f"{name}.*{found}"):
        rule_of(name)


def test_each_cell_is_noted(capsys):
    bundle, cohort = made()
    grid(bundle, cohort, ["greedy"])
    assert capsys.readouterr().out.splitlines() == ["greedy cmi every"]


def test_random_orders_are_those_of_the_other_stages():
    bundle, cohort = made()
    choices = grid(bundle, cohort, ["random"])["choices"].query("t > 0")
    for (patient, seed), part in choices.groupby(["patient", "seed"]):
        order = random_order(bundle.features, patient=patient, seed=seed)
        assert part["feature"].tolist() == [bundle.features[j] for j in order]
