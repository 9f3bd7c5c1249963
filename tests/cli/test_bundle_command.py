"""`afa bundle`: what stamping and showing say to someone who writes a bundle."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from afa.cli import app
from afa.errors import BundleError, ConfigError
from afa.model.bundle.write import write_bundle_template

TINY = Path(__file__).parents[1] / "data" / "bundle_tiny"


def answer(*arguments):
    ran = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return ran.exit_code, ran.output


def validate(folder):
    """Exit code as a command would have it, and the faults."""
    ran = CliRunner().invoke(app, ["bundle", "validate", str(folder)])
    return ran.exit_code, getattr(ran.exception, "faults", ())


def test_stamping_a_bundle_that_has_faults_says_so(tmp_path):
    folder = shutil.copytree(TINY, tmp_path / "mine")
    assert answer("bundle", "stamp", folder) == (0, f"stamped {folder}\n")
    with (folder / "costs.csv").open("a", encoding="utf-8") as costs:
        costs.write("MUC2,free\n")
    code, output = answer("bundle", "stamp", folder)
    assert (code, output.splitlines()[0]) == (0, f"stamped {folder}")
    assert f"note: it has faults (2); `afa bundle validate {folder}` names them" in output


def test_showing_the_features_has_a_row_for_each_with_its_cost():
    code, output = answer("bundle", "show", TINY, "--features")
    _, before, *rows = output.splitlines()
    lines = [row.split() for row in rows]
    assert code == 0
    assert before == "Before any measurement, by priors.csv: bleeding 0.5, diarrhea 0.5, fistula 0.182."
    assert lines[0] == ["feature", "up", "down", "same", "opposite", "cost"]
    assert lines[2] == ["CXCL8", "2", "0", "1", "1", "2.0"]


def test_a_new_bundle_is_a_folder_to_fill_in_and_validating_says_with_what(tmp_path):
    code, output = answer("bundle", "new", "plants", "--folder", tmp_path)
    folder = tmp_path / "plants"
    assert (code, output) == (0, f"wrote {folder}: fill in its files, then run `afa bundle validate {folder}`\n")
    assert sorted(path.name for path in folder.iterdir()) == ["bundle.yaml", "pairwise.csv", "unary.csv"]
    _, empty = validate(folder)
    assert [str(fault) for fault in empty] == [
        f"{folder}: found no entity; expected at least one. Next step: add rows to unary.csv."
    ]


def test_the_examples_in_the_comments_of_a_new_bundle_make_a_sound_one(tmp_path):
    answer("bundle", "new", "plants", "--folder", tmp_path)
    folder = tmp_path / "plants"
    lines = [line.removeprefix("#").strip() for line in (folder / "bundle.yaml").read_text().splitlines()]
    for file, commas in (("unary.csv", 2), ("pairwise.csv", 3)):
        (example,) = [line for line in lines if " " not in line and line.count(",") == commas]
        with (folder / file).open("a") as rows:
            rows.write(example + "\n")
    code, _ = validate(folder)
    assert code == 0
    lists = [line for line in lines if line.startswith(("entities:", "features:"))]
    with (folder / "bundle.yaml").open("a") as header:
        header.write("\n".join(lists) + "\n")
    assert validate(folder)[0] == 0


@pytest.mark.parametrize("name", ["a/b", "", "..", "a b", "-x", 'a"b'])
def test_a_bundle_s_name_must_do_for_a_folder(tmp_path, name):
    with pytest.raises(BundleError, match="expected letters, digits, - and _"):
        write_bundle_template(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_new_bundle_leaves_alone_what_is_there(tmp_path):
    (tmp_path / "plants").write_text("mine")
    with pytest.raises(ConfigError, match="found a file; expected a new or empty folder"):
        write_bundle_template("plants", tmp_path)
    assert (tmp_path / "plants").read_text() == "mine"


def test_validating_counts_what_it_has_read():
    assert answer("bundle", "validate", TINY)[1].splitlines()[-1] == f"{TINY}: no faults; 3 entities, 5 features"


def test_faults_are_told_to_another_program_by_their_parts(tmp_path):
    code, output = answer("bundle", "validate", TINY, "--json")
    assert (code, json.loads(output)["rows"]) == (0, [])
    answer("bundle", "new", "plants", "--folder", tmp_path)
    (tmp_path / "plants/unary.csv").write_text("entity,feature,potential\na,b,much\n")
    code, output = answer("bundle", "validate", tmp_path / "plants", "--json")
    rows = json.loads(output)["rows"]
    assert code == 2
    assert set(rows[0]) == {"where", "found", "expected", "next_step"}
    assert "'much'" in [row["found"] for row in rows]
