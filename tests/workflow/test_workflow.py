"""The workflow as a Snakemake user meets it: targets, reruns, and errors before any job starts."""

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import snakemakes
from commands import afa

from afa.evaluate.summary import read_summary

ROOT = Path(__file__).parents[2]
OWN = ("cohort=demo", "bundle=tests/data/bundle_tiny", "run=mine")


def snakemake(folder, *arguments):
    return snakemakes.snakemake(folder, "--cores", "2", *arguments)


@pytest.fixture
def checkout(tmp_path):
    """The project's files, linked into a folder of its own, so that results and metadata are the test's."""
    for name in ("Snakefile", "profiles", "notebooks", "resources", "envs", "docs", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "workflow", tmp_path / "workflow")
    shutil.copytree(ROOT / "config", tmp_path / "config")
    return tmp_path


def test_jobs_find_afa_where_snakemake_is_called_by_its_path(checkout):
    program, made = Path(sys.executable).with_name("snakemake"), "results/mine/elicitation/unary/named.csv"
    command = [program, "--cores", "1", made, "--config", "cohort=demo", "run=mine"]
    subprocess.run(command, cwd=checkout, env={"PATH": "/usr/bin:/bin", "HOME": str(checkout)}, check=True)
    assert (checkout / made).is_file()


def test_a_wrong_setting_stops_the_run_with_its_key_before_any_job(checkout):
    stopped = snakemake(checkout, "-n", "--config", "chort=demo")
    assert stopped.returncode != 0
    assert re.search("key chort: .*unknown.*rename it to cohort", stopped.stdout), stopped.stdout
    assert "Traceback" not in stopped.stdout


@pytest.mark.slow
def test_a_rule_of_ones_own_is_in_the_grid_and_runs_again_when_it_changes(checkout):
    (checkout / "my_base.py").write_text("from afa.planner.rules import Greedy as Base\n")
    (checkout / "my_rule.py").write_text("from my_base import Base\n\n\nclass Mine(Base):\n    pass\n")
    settings = [*OWN, "shards=1"]
    settings.append("allocation={rules: [random, 'my_rule:Mine'], gains: [cmi], schedules: [every]}")
    target = "results/mine/curves/allocation.parquet"
    run = snakemake(checkout, target, "--config", *settings)
    assert run.returncode == 0, run.stdout
    rows = read_summary(checkout / target)
    own = rows[(rows["table"] == "allocation_sign") & (rows["allocation"] == "my_rule:Mine")]
    assert set(own["gain"]) == {"cmi"}
    (checkout / "my_base.py").write_text("from afa.planner.rules import Boundary as Base\n")
    again = snakemake(checkout, "-n", target, "--config", *settings)
    text = again.stdout
    assert "rule allocation_shard:" in text
    assert "rule chaos_tables:" not in text
    (checkout / "my_rule.py").unlink()
    gone = snakemake(checkout, "-n", target, "--config", *settings)
    assert gone.returncode != 0
    assert "key allocation.rules: found my_rule:Mine; expected a Python module my_rule" in gone.stdout


def test_the_project_and_a_bundle_may_lie_in_folders_of_any_name(tmp_path):
    folder = tmp_path / 'it\'s {x} {{y}} "here"'
    folder.mkdir()
    for name in ("profiles", "workflow", "config", "notebooks", "resources", "envs", "docs"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "tests/data/bundle_tiny", folder / "my doctor's bundle")
    run = snakemake(folder, "bundle", "--config", 'bundle="my doctor\'s bundle"', "run=mine")
    assert run.returncode == 0, run.stdout
    assert (folder / "results/mine/bundle/bundle.yaml").is_file()


def test_a_run_of_an_older_version_is_refused_in_one_line(checkout):
    old = checkout / "results/mine/summary"
    old.mkdir(parents=True)
    (old / "sign.csv").write_text("")
    run = snakemake(checkout, "-n", "--config", *OWN)
    assert run.returncode != 0
    assert "results/mine: found a run of a version before 0.2.0; expected" in run.stdout
    assert "Traceback" not in run.stdout


@pytest.mark.slow
def test_a_plain_table_becomes_a_cohort_and_becomes_it_again_when_it_changes(checkout):
    rows = [f"p{n},{n % 5},{7 - n % 4},{n / 3:.2f},{n % 2},{3 + n % 7}" for n in range(12)]
    (checkout / "values.csv").write_text("\n".join(["patient,AQP8,CXCL8,MMP9,MUC2,TFF3", *rows]))
    cuts = "feature,kind,low,high\nAQP8,ordinal,,2\nCXCL8,ordinal,4.5,6.5\nMMP9,continuous,1,3\nMUC2,binary,,\n"
    (checkout / "features.csv").write_text(cuts + "TFF3,ordinal,4,8\n")
    (checkout / "labels.csv").write_text("patient,bleeding\np0,1\np1,0\n")
    tables = ["--table", "values.csv", "--features", "features.csv", "--labels", "labels.csv"]
    made = afa("cohort", "new", "mine", *tables, folder=checkout)
    assert made.returncode == 0, made.stderr
    settings = ["--config", "cohort=mine", "bundle=tests/data/bundle_tiny"]
    run = snakemake(checkout, "cohort", *settings)
    assert run.returncode == 0, run.stdout
    card = (checkout / "results/mine/cohort/cohort.yaml").read_text()
    assert "origin: table" in card
    assert "patients: 12" in card
    assert "Nothing to be done" in snakemake(checkout, "cohort", *settings).stdout
    (checkout / "values.csv").write_text((checkout / "values.csv").read_text().replace("p0,0,", "p0,3,"))
    again = snakemake(checkout, "-n", "cohort", *settings)
    assert "rule encode_cohort:" in again.stdout


def test_a_field_is_a_cohort_of_its_own_name_with_a_bundle_of_its_own_and_what_makes_sense_of_it(checkout):
    planned = snakemake(checkout, "-n", "--config", "cohort=kidney")
    assert planned.returncode == 0, planned.stdout
    text = planned.stdout
    assert "resources/fields/kidney/values.csv.gz" in text
    assert "rule field_bundle:" in text
    assert "rule labels_tables:" in text
    for rule in ("sign_tables", "allocation_tables", "comparison", "elicit_unary", "explorer"):
        assert f"rule {rule}:" not in text
    missing = snakemake(checkout, "-n", "--config", "cohort=nowhere").stdout
    assert all(word in missing for word in ("kidney", "gse109142", "afa cohort new nowhere"))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.parent.name for path in ROOT.glob("resources/fields/*/study.yaml")))
def test_every_field_is_planned_down_to_its_report(checkout, name):
    mirror = ROOT.parent / "shared" / "fields"
    carried = (ROOT / "resources/fields" / name / "labels.csv").is_file()
    if not carried and not mirror.is_dir():
        pytest.skip("needs ../shared/fields")
    planned = snakemake(checkout, "-n", "--config", f"cohort={name}", f"tables={mirror}")
    assert planned.returncode == 0, planned.stdout
    text = planned.stdout
    rules = ("field_bundle", "encode_cohort", "labels_tables", "measured_field", "report_page")
    if name == "icu":  # nobody has every value
        rules = ("measured_field", "field_report")
        assert "rule encode_cohort:" not in text
    for rule in rules:
        assert f"rule {rule}:" in text


@pytest.mark.slow
def test_a_field_of_which_nobody_has_every_value_has_a_report_of_what_was_measured(checkout):
    (checkout / "resources").unlink()
    shutil.copytree(ROOT / "resources", checkout / "resources", copy_function=os.symlink)
    values = checkout / "resources/fields/pima/values.csv.gz"
    head, *rows = gzip.decompress(values.read_bytes()).decode().splitlines()
    gap = head.split(",").index("glucose_2h")
    cells = [row.split(",") for row in rows]
    lines = [",".join([*row[:gap], "", *row[gap + 1 :]]) for row in cells]
    study = checkout / "resources/fields/pima/study.yaml"
    for path, text in ((values, gzip.compress("\n".join([head, *lines]).encode())), (study, study.read_bytes())):
        path.unlink()
        path.write_bytes(text)
    digest = hashlib.sha256(values.read_bytes()).hexdigest()
    study.write_text(re.sub("sha256: [0-9a-f]{64}", f"sha256: {digest}", study.read_text(), count=1))
    made = snakemake(checkout, "--config", "cohort=pima", "run=gaps")
    assert made.returncode == 0, made.stdout
    assert "no patient has every value" in made.stdout
    page = (checkout / "results/gaps/report.html").read_text()
    assert "768 patients. After 3 of 8 features" in page
    assert "No patient has every value" in page
    assert "Nothing to be done" in snakemake(checkout, "--config", "cohort=pima", "run=gaps").stdout
