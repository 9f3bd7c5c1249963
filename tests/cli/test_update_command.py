"""`afa update` at the command line: what it writes, says and refuses."""

import json
import re

import pandas as pd
import pytest
from rated import FEVERS, written
from typer.testing import CliRunner

from afa.cli import app
from afa.errors import AfaError
from afa.model.bundle import load_bundle

VALUES = "patient,red,blue,green,cough\na,1,0,0,1\nb,0,1,0,1\nc,0,0,0,0\n"
LABELS = "patient,flu\na,1\nb,1\nc,0\nz,0\n"


@pytest.fixture
def place(tmp_path):
    written(tmp_path / "fevers", FEVERS)
    (tmp_path / "values.csv").write_text(VALUES)
    (tmp_path / "labels.csv").write_text(LABELS)
    return tmp_path


def update(place, *more):
    names = [str(place / name) for name in ("fevers", "values.csv", "labels.csv")]
    return CliRunner().invoke(app, ["update", *names, "--out", str(place / "new"), *more])


def test_it_writes_a_bundle_with_the_patients_behind_each_probability(place):
    done = update(place)
    assert done.exit_code == 0
    assert load_bundle(place / "new").patients_behind("flu").tolist() == [[2, 1]] * 4
    assert "updated by 3 labelled patients: flu 2 with, 1 without, cold 0 with, 0 without" in done.output
    assert "labelled but not in the table (1): z" in done.output


def test_a_feature_that_the_table_lacks_is_named_and_stays_as_elicited(place):
    (place / "values.csv").write_text("patient,cough\na,1\nb,1\nc,0\n")
    done = update(place)
    assert "not in the table, so as elicited (3): red, blue, green" in done.output
    new, old = load_bundle(place / "new"), load_bundle(place / "fevers")
    assert (new.how_often("flu")[0][:3] == old.how_often("flu")[0][:3]).all()
    assert (new.how_often("flu")[0][3] != old.how_often("flu")[0][3]).any()


def test_json_is_what_the_provenance_says(place):
    said = json.loads(update(place, "--json").output)
    assert said["rows"] == [load_bundle(place / "new").provenance["updates"][0]]


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("fevers/unary.csv", "entity,feature,potential\nflu,red,1\n", "directions without probabilities"),
        ("labels.csv", "patient,flu\nz,1\n", "none of the cohort's patients"),
        ("labels.csv", "patient,flu\na,\n", "no label of 3 patients with values"),
        ("values.csv", VALUES.replace("c,0", "c,-1"), "feature red: found -1 of c; expected 0 or 1"),
    ],
)
def test_what_cannot_be_used_is_refused_and_nothing_is_written(place, file, text, expected):
    (place / file).write_text(text)
    if file.startswith("fevers"):
        (place / "fevers/features.csv").write_text(
            "feature,kind\nred,binary\nblue,binary\ngreen,binary\ncough,binary\n"
        )
    done = update(place)
    assert isinstance(done.exception, AfaError)
    assert expected in str(done.exception)
    assert not (place / "new").exists()


def test_show_prints_what_the_patients_moved(place):
    update(place)
    shown = CliRunner().invoke(app, ["bundle", "show", str(place / "new")]).output
    assert "updated by 3 labelled patients: flu 2 with, 1 without" in shown
    assert "probabilities that moved most:" in shown
    (place / "new/display.csv").write_text("name,display\nflu,Influenza\nblue,Blue lips\n")
    load_bundle(place / "new")
    named = CliRunner().invoke(app, ["bundle", "show", str(place / "new")]).output
    assert "updated by 3 labelled patients: Influenza 2 with, 1 without" in named
    assert re.search("Influenza +with +Blue lips", named)
    assert "updated by" not in CliRunner().invoke(app, ["bundle", "show", str(place / "fevers")]).output


def test_a_simulation_with_labels_says_what_an_update_would_have_brought(place):
    rows = [f"p{i},0,{i % 2},0,{int(i % 4 < 2)}" for i in range(16)]
    (place / "values.csv").write_text("\n".join(["patient,red,blue,green,cough", *rows]) + "\n")
    (place / "labels.csv").write_text("\n".join(["patient,flu", *(f"p{i},{i % 2}" for i in range(16))]) + "\n")
    names = [str(place / name) for name in ("fevers", "values.csv")]
    more = ["--entity", "flu", "--labels", str(place / "labels.csv"), "--out", str(place / "made")]
    done = CliRunner().invoke(app, ["simulate", *names, *more, "--resamples", "20", "--seeds", "1"])
    assert done.exit_code == 0, done.output
    assert "What `afa update` with these patients would have brought" in done.output
    table = pd.read_csv(place / "made" / "update.csv")
    assert table["question"].unique().tolist() == ["flu"]
    assert table["t"].tolist() == [1, 2, 3, 4]
    assert table["updated"].iloc[-1] > table["alone"].iloc[-1]  # blue goes with flu here, against what is elicited
