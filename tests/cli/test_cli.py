"""The command line: what a user reads when something is wrong, and that nothing half-made is left behind."""

import gzip
import re
import shutil
from pathlib import Path

import pytest
import yaml
from commands import afa
from typer.main import get_command

from afa.cli import app

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests/data/bundle_tiny"


def assert_answers_well(result, *words):
    """Exit code 2, the words in one line or more on standard error, and no traceback."""
    assert result.returncode == 2, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    for line in result.stderr.strip().splitlines():
        assert re.match(r"afa: .+: found .+; expected .+\. Next step: .+\.$", line), line
    missing = [word for word in words if word not in result.stderr]
    assert not missing, result.stderr


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    """A small simulated series in GEO's layout, and the cohort file that reads it."""
    folder = tmp_path_factory.mktemp("series")
    config = yaml.safe_load((ROOT / "config/cohorts/demo.yaml").read_text())
    config["simulation"] |= {"n_patients": 30, "n_controls": 24, "n_background_genes": 40}
    config["labels"] = {}
    (folder / "demo.yaml").write_text(yaml.safe_dump(config))
    made = afa("cohort", "simulate", folder / "demo.yaml", "--bundle", TINY, "--out", folder / "geo")
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture
def copy(series, tmp_path):
    """The series in a folder that a test may damage."""
    shutil.copytree(series, tmp_path / "copy")
    return tmp_path / "copy"


def fetch(folder):
    return afa("cohort", "fetch", folder / "demo.yaml", "--mirror", folder / "geo", "--out", folder / "source.json")


def build(folder, *more, bundle=TINY):
    fetched = fetch(folder)
    assert fetched.returncode == 0, fetched.stderr
    source = folder / "source.json"
    out = folder / "cohort"
    return afa("cohort", "build", folder / "demo.yaml", "--source", source, "--bundle", bundle, "--out", out, *more)


@pytest.fixture(scope="module")
def built(series, tmp_path_factory):
    """The series with its cohort; tests change neither."""
    folder = tmp_path_factory.mktemp("built") / "copy"
    shutil.copytree(series, folder)
    assert build(folder).returncode == 0
    return folder


def change(folder, **keys):
    path = folder / "demo.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | keys))


def counts_file(folder):
    return next((folder / "geo").rglob("*_counts.txt.gz"))


def test_a_series_becomes_a_cohort_that_can_be_shown(built):
    shown = afa("cohort", "show", built / "cohort")
    assert yaml.safe_load(shown.stdout)["controls"] == 24


def test_a_truncated_gzip_is_named(copy):
    path = counts_file(copy)
    path.write_bytes(path.read_bytes()[:-200])
    assert_answers_well(fetch(copy), path.name)
    assert not (copy / "source.json").exists()


def test_a_web_page_named_gz_is_named(copy):
    path = counts_file(copy)
    path.write_bytes(b"<!DOCTYPE html><html><body>503 Service Unavailable</body></html>")
    assert_answers_well(fetch(copy), path.name, "HTML")


def test_a_series_without_controls_is_refused(copy):
    change(copy, controls={"key": "diagnosis", "values": ["Healthy"]})
    assert_answers_well(build(copy), "diagnosis", "control", "Healthy")
    assert not (copy / "cohort").exists()


def test_twelve_controls_are_too_few_for_the_empirical_test_and_enough_for_t(copy):
    config = yaml.safe_load((copy / "demo.yaml").read_text())
    change(copy, simulation=config["simulation"] | {"n_controls": 12})
    shutil.rmtree(copy / "geo")
    afa("cohort", "simulate", copy / "demo.yaml", "--bundle", TINY, "--out", copy / "geo")
    assert_answers_well(build(copy), "12", "test", " t")
    assert not (copy / "cohort").exists()
    assert build(copy, "--test", "t").returncode == 0


def test_a_gene_that_the_platform_lacks_is_listed_or_dropped_on_request(copy):
    path = counts_file(copy)
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    kept = [line for line in lines if not line.startswith('"MUC2"')]
    path.write_bytes(gzip.compress("\n".join(kept).encode() + b"\n"))
    assert_answers_well(build(copy), "MUC2", "allow_missing_genes")
    assert not (copy / "cohort").exists()
    change(copy, allow_missing_genes=True)
    assert build(copy).returncode == 0
    assert yaml.safe_load((copy / "cohort/cohort.yaml").read_text())["dropped_features"] == ["MUC2"]
    signs = afa(*("stage", "sign", "--bundle", TINY, "--cohort", copy / "cohort", "--out", copy / "sign"))
    assert signs.returncode == 0, signs.stderr


@pytest.mark.parametrize(
    ("file", "row", "words"),
    [
        ("pairwise.csv", "bleeding,MUC2,CXCL8,1,,", ("pairwise.csv, line 6", "line 2")),
        ("pairwise.csv", "bleeding,MUC2,MUC2,1,,", ("pairwise.csv, line 6", "MUC2")),
        ("unary.csv", "bleeding,MUC3,1,,", ("unary.csv, line 9", "MUC3", "MUC2")),
        ("unary.csv", "diarrhea,MUC2,NaN,,", ("unary.csv, line 9", "potential", "NaN")),
    ],
)
def test_a_fault_in_a_bundle_is_named_by_file_and_line(tmp_path, file, row, words):
    folder = tmp_path / "bundle"
    shutil.copytree(TINY, folder)
    with (folder / file).open("a") as stream:
        stream.write(row + "\n")
    assert_answers_well(afa("bundle", "validate", folder), *words)
    assert_answers_well(afa("bundle", "copy", folder, "--out", tmp_path / "copy"), *words)
    assert not (tmp_path / "copy").exists()


def test_a_cohort_made_for_another_bundle_is_refused(built, tmp_path):
    other = ROOT / "afa/examples/anaemia/bundle"
    stopped = afa("stage", "sign", "--bundle", other, "--cohort", built / "cohort", "--out", tmp_path / "sign")
    assert_answers_well(stopped, "features", "build the cohort for this bundle")
    assert not (tmp_path / "sign").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sign", "--shard", "5/4"), ("--shard",)),
        (("sign", "--settings", '{"random_order": {"seeds": [1, 1]}}'), ("key random_order.seeds", "none twice")),
        (("sign", "--settings", '{"random_order": {"seed": [1]}}'), ("key random_order.seed", "rename it to seeds")),
        (("sign", "--settings", '{"gauge": {"seeds": [1]}}'), ("key gauge",)),
        (("gauge", "--settings", '{"gauge": {"rounds": [10, "ten"]}}'), ("key gauge.rounds",)),
        (("sign", "--settings", "seeds=1"), ("--settings", "a JSON object")),
        (
            ("labels", "--input", f"by_cohort={TINY}", "--settings", '{"labels": {"percents": [0, 150]}}'),
            ("key labels.percents.0", "key labels.percents.1"),
        ),
        (("nothing",), ("'nothing'", "the name of a stage")),
        (("calibration",), ("no binary", "--input binary=PATH")),
    ],
)
def test_a_wrong_argument_of_a_stage_is_named(built, tmp_path, arguments, words):
    stopped = afa("stage", *arguments, "--bundle", TINY, "--cohort", built / "cohort", "--out", tmp_path / "out")
    assert_answers_well(stopped, *words)
    assert not (tmp_path / "out").exists()


def test_one_entity_has_no_duel_and_still_is_a_task(copy, tmp_path):
    """The stages of duels say so; the binary task runs."""
    single = tmp_path / "single"
    single.mkdir()
    (single / "bundle.yaml").write_text('name: single\nversion: "1"\n')
    (single / "unary.csv").write_text("entity,feature,potential,confidence,evidence\nonly,MUC2,-1,,\nonly,CXCL8,1,,\n")
    (single / "pairwise.csv").write_text("entity,feature_a,feature_b,potential,confidence,evidence\n")
    assert build(copy, bundle=single).returncode == 0
    both = ("--bundle", single, "--cohort", copy / "cohort")
    for stage in ("sign", "gauge", "sanity"):
        assert_answers_well(afa("stage", stage, *both, "--out", tmp_path / stage), "one entity", "snakemake binary")
        assert not (tmp_path / stage).exists()
    ran = afa("stage", "binary", *both, "--out", tmp_path / "binary")
    assert ran.returncode == 0, ran.stderr


def test_a_parameter_without_a_value_names_itself(tmp_path):
    stopped = afa("notebook", "any.ipynb", "--out", tmp_path / "out.ipynb", "-p", "run")
    assert_answers_well(stopped, "--parameter", "'run'", "NAME=VALUE")


def test_debug_shows_the_traceback(tmp_path):
    shown = afa("--debug", "bundle", "copy", tmp_path / "none", "--out", tmp_path / "out")
    assert shown.returncode != 0
    assert "Traceback" in shown.stderr


def test_a_new_cohort_file_tells_what_is_left_to_fill_in(tmp_path):
    assert afa("cohort", "new", "mine", "--folder", tmp_path).returncode == 0
    assert_answers_well(afa("cohort", "fetch", tmp_path / "mine.yaml", "--out", tmp_path / "s.json"), "key series")
    assert_answers_well(afa("cohort", "new", "mine", "--folder", tmp_path), "mine.yaml")
    assert_answers_well(afa("cohort", "new", "../up", "--folder", tmp_path), "'../up'")


def test_one_thing_is_spelled_and_explained_alike_in_all_commands():
    def leaves(command, words=()):
        for name, inner in getattr(command, "commands", {}).items():
            yield from leaves(inner, (*words, name))
        if not hasattr(command, "commands"):
            yield words, command

    said = {
        "bundle": "bundle folder",
        "cohort": "cohort folder",
        "field": "field folder",
        "run": "folder of a finished",
    }
    other = {("simulate", "cohort"), ("score", "cohort")}
    found = set()
    for words, command in leaves(get_command(app)):
        for place, parameter in enumerate(command.params):
            if parameter.name in said and (*words, parameter.name) not in other:
                assert parameter.help.startswith(said[parameter.name]), words
                assert parameter.opts in ([parameter.name], [f"--{parameter.name}"]), words
                assert place == 0 or parameter.opts == [f"--{parameter.name}"], words
                found.add(parameter.name)
            elif (*words, parameter.name) not in other:
                assert not str(parameter.help).startswith(tuple(said.values())), (words, parameter.name)
    assert found == said.keys()
