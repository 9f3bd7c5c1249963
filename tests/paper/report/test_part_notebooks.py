"""The notebooks of the report's parts where something is missing: labels, couplings, a stage, a column of a table."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of
from codes import label_tables
from notebook_cells import run_cells

from afa.cohort.cohort import Cohort, load_cohort, write_cohort
from afa.evaluate.summary import write_summary
from afa.model.bundle import save_bundle
from afa.paper.experiments.labels import summarise
from afa.paper.experiments.settings import Bootstrap, Labels

ROOT = Path(__file__).parents[3]
VALUES = np.array([[0, 0, 0, 0, 0], [1, -1, 0, 0, 1], [0, 0, 1, -1, 0]], dtype=np.int8)


def run_of(folder, bundle, labels=None):
    """A run of three patients, the first of them 0 in every feature; its bundle and cohort only."""
    names = ("p0", "p1", "p2")
    held = pd.DataFrame(labels or {}, index=list(names), dtype="Int8")
    values = VALUES[:, : len(bundle.features)]
    write_cohort(Cohort("tiny", bundle.features, names, values, held), folder / "cohort")
    save_bundle(bundle, folder / "bundle")
    (folder / "config.json").write_text('{"bootstrap": {"confidence": 0.95}}')
    return folder


def shown(run, name, folder, **more):
    """All that the notebook of this name printed or displayed, as text; its figure must be there."""
    ran = run_cells(name, run=str(run), figure=str(folder / name), paper=str(ROOT / "resources" / "paper"), **more)
    assert ran.figures == [(folder / f"{name}.svg").read_text(encoding="utf-8")]
    return ran.text


def test_without_any_label_no_phenotype_has_a_prevalence_and_an_unknown_origin_is_named(bundle_tiny, tmp_path):
    text = shown(run_of(tmp_path / "run", bundle_tiny), "cohort", tmp_path)
    drawn = (tmp_path / "cohort.svg").read_text(encoding="utf-8")
    n = len(bundle_tiny.entities)
    assert drawn.count("no label in this cohort") == text.count("no label") == n
    assert "Cohort tiny (origin not recorded), 3 patients: " in drawn
    assert f"0 of {n} phenotypes have labels" in drawn


def test_a_missing_label_is_not_counted_as_negative(bundle_tiny, tmp_path):
    labels = {"bleeding": [1, None, 0], "diarrhea": [None, None, None]}
    shown(run_of(tmp_path / "run", bundle_tiny, labels), "cohort", tmp_path)
    drawn = (tmp_path / "cohort.svg").read_text(encoding="utf-8")
    assert "1 / 2" in drawn
    assert drawn.count("no label in this cohort") == len(bundle_tiny.entities) - 1


def test_a_label_that_nobody_has_leaves_the_healthy_their_table(bundle_tiny, tmp_path):
    run = run_of(tmp_path / "run", bundle_tiny, {"bleeding": [0, 0, 0]})
    healthy = pd.DataFrame(VALUES[:2], ["h0", "h1"], list(bundle_tiny.features))
    cohort = replace(load_cohort(run / "cohort"), controls=healthy)
    few = Labels(thresholds=(0.5,), percents=(50,), seeds=(0,), permutations=2, whole_permutations=3)
    rows = summarise(label_tables(bundle_tiny, cohort, {0.5: cohort}, few), bootstrap=Bootstrap())
    (run / "curves").mkdir()
    write_summary([rows], run / "curves" / "labels.parquet")
    text = shown(run, "labels", tmp_path)
    assert "0 labels, 1 of one class left out" in text
    assert "healthy, no" in text
    assert "no label with both classes" in (tmp_path / "labels.svg").read_text(encoding="utf-8")


def test_the_bundles_page_counts_what_is_in_the_files(bundle_tiny, tmp_path):
    text = shown(run_of(tmp_path / "run", bundle_tiny), "bundle", tmp_path)
    lines = {
        line.rsplit(maxsplit=1)[0].strip(): line.split()[-1] for line in text.splitlines() if len(line.split()) > 1
    }
    assert (lines["unary potentials"], lines["couplings"]) == ("5", "3")
    assert "n = 3 couplings" in (tmp_path / "bundle.svg").read_text(encoding="utf-8")


def test_two_entities_without_couplings_have_a_page(tmp_path):
    two = replace(bundle_of([[1, 0, -1], [0, 1, 0]], np.zeros((2, 3, 3))), licence="CC0-1.0")
    text = shown(run_of(tmp_path / "run", two), "bundle", tmp_path)
    assert "1 pairs of entities, 1 of them share no feature" in text


@pytest.mark.parametrize("older", [False, True])
def test_inference_says_which_tables_are_not_there_or_too_old(bundle_tiny, tmp_path, older):
    run = run_of(tmp_path / "run", bundle_tiny)
    if older:
        (run / "tables" / "sign").mkdir(parents=True)
        rounds = pd.DataFrame({"method": ["linearity"], "t": [0], "solves": [3], "iterations": [9]})
        rounds.to_parquet(run / "tables" / "sign" / "rounds.parquet")
    text = shown(run, "inference", tmp_path)
    assert "not in this run: tables/sanity/contraction" in text
    said = "sign/rounds is of an older version, without start, capped" if older else "tables/sign/rounds"
    assert said in text


def test_inference_draws_what_the_tables_hold(bundle_tiny, tmp_path):
    run = run_of(tmp_path / "run", bundle_tiny)
    (run / "tables" / "sign").mkdir(parents=True)
    keys = {"method": "linearity", "start": "uniform", "t": [0, 0, 1]}
    work = {"solves": [3, 3, 2], "iterations": [30, 30, 8], "capped": [0, 1, 0]}
    pd.DataFrame({**keys, **work}).to_parquet(run / "tables" / "sign" / "rounds.parquet")
    text = shown(run, "inference", tmp_path)
    line = next(line for line in text.splitlines() if line.startswith("entity, uniform start"))
    assert line.split()[3:7] == ["8", "68", "1", "8.5"]
    assert "entity, uniform start (n = 8)" in (tmp_path / "inference.svg").read_text(encoding="utf-8")


def test_the_planner_is_driven_as_the_parameters_say_and_measures_what_the_patient_has(bundle_tiny, tmp_path):
    run = run_of(tmp_path / "run", bundle_tiny)
    text = shown(run, "planner", tmp_path, patient="p1", k="1", most="2")
    assert f"p1: {len(bundle_tiny.features)} features can be measured" in text
    first = text.partition("first: ")[2].partition(";")[0]
    found = VALUES[1][list(bundle_tiny.features).index(first)]
    assert re.search(rf"^1 +1 +{first} +{found} ", text, re.MULTILINE)
    assert shown(run, "planner", tmp_path, patient="p0", k="1", allocation="largest_unary") != text
