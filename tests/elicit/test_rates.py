"""Probabilities asked of models: cut points first, then how often; from a dictionary to a field and its bundle."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from elicit.llm_script import rates, schema, scripted
from elicit.llm_server import Document, serve
from typer.testing import CliRunner

from afa.cli import app
from afa.errors import AfaError
from afa.evaluate.field import build_field_bundle, import_field

DICTIONARY = """\
feature,kind,unit,values,definition
pressure,continuous,bar,above 0,Pressure at the outlet.
noise,binary,none,"0 no, 1 yes",The pump is louder than usual.
heat,continuous,degrees C,above 0,Temperature of the bearing.
pump_type,categorical-as-binary,none,0/1,One of two types.
"""
WORDS = {
    "reader": "keep pumps running",
    "phenotype": "phenotype",
    "gene": "feature",
    "genes": "features",
    "patient": "pump",
    "patients": "pumps",
}


@pytest.fixture
def pumps(tmp_path: Path) -> Path:
    """A study of two faults of a pump, by two voters of two models, with a table that nobody who is asked sees."""
    folder = tmp_path / "pumps"
    folder.mkdir()
    models = {"ann": "one-model", "ben": "another-model"}
    study = {"name": "pumps", "disease": "failure", "voters": list(models), "models": models, "words": WORDS}
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    (folder / "dictionary.csv").write_text(DICTIONARY)
    (folder / "entities.csv").write_text("entity,definition\nleak,The housing leaks.\nworn,The bearing is worn.\n")
    (folder / "values.csv").write_text("pump,pressure,noise,heat,pump_type\np1,9,1,25,0\np2,15,0,15,1\np3,25,1,,0\n")
    (folder / "labels.csv").write_text("pump,leak,worn\np1,1,0\np2,0,1\np3,0,0\n")
    return folder


def ask(folder: Path, out: Path, *options: str) -> str:
    result = CliRunner().invoke(app, ["elicit", "rates", str(folder), f"--out={out}", *options])
    if result.exception is not None:
        raise result.exception
    return result.output


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def test_answers_of_others_are_not_replaced(pumps: Path) -> None:
    (pumps / "elicited").mkdir()
    (pumps / "elicited" / "unary_mary.csv").write_text("mine")
    with pytest.raises(AfaError, match=r"a folder with other files: unary_mary\.csv"):
        ask(pumps, pumps / "elicited")


def test_a_dictionary_becomes_answers_a_field_and_a_bundle_and_the_record_says_the_same(pumps, tmp_path, monkeypatch):
    with serve(scripted) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        said = ask(pumps, pumps / "elicited", "--live", "--calls=20")
    assert "6 questions to 2 voters" in said
    everything = json.dumps([asked.document for asked in server.asked])
    assert not any(word in everything for word in ("p1,", "labels", "patient", " gene"))
    assert sorted(schema(asked.document) for asked in server.asked) == ["CutsAnswer"] * 2 + ["RatesAnswer"] * 4
    of_cuts = [asked.document["messages"][1]["content"] for asked in server.asked if "Unit:" in str(asked.document)]
    assert all("heat" in text and "noise" not in text for text in of_cuts)
    ask(pumps, tmp_path / "again")
    assert texts(tmp_path / "again") == texts(pumps / "elicited")
    assert set(texts(pumps / "elicited")) == {
        f"{kind}_{voter}.csv" for kind in ("cuts", "unary") for voter in ("ann", "ben")
    }
    cuts = pd.read_csv(pumps / "elicited" / "cuts_ann.csv", index_col="feature")
    assert cuts.loc["noise"].tolist() == pytest.approx([np.nan, 0.5], nan_ok=True)
    assert np.isnan(cuts.loc["heat", "low"])
    assert 10 <= cuts.loc["pressure", "low"] < 11
    import_field(pumps, tmp_path / "field" / "pumps")
    bundle = build_field_bundle(tmp_path / "field" / "pumps", tmp_path / "bundle", how_often=True)
    with_leak, without, _ = bundle.how_often("leak")
    shift = {row.feature: row.direction for row in pd.read_csv(pumps / "elicited" / "unary_ann.csv").itertuples()}
    for j, name in enumerate(bundle.features):
        assert with_leak[j, 2] - without[j, 2] == pytest.approx(0.6 * shift[name], abs=0.05)


def estimated(folder: Path, *options: str) -> dict[str, dict[str, object]]:
    """The estimate's rows by prompt."""
    result = CliRunner().invoke(app, ["elicit", "estimate", str(folder), "--json", *options], catch_exceptions=False)
    return {row["prompt"]: row for row in json.loads(result.output)["rows"]}


def test_the_estimate_is_of_cut_points_and_probabilities_and_then_of_nothing(pumps, tmp_path, monkeypatch):
    with serve(scripted) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        before = estimated(pumps)
        ask(pumps, tmp_path / "out", "--live", "--calls=20")
        after, nobody_asked = estimated(pumps), estimated(pumps, f"--record={tmp_path / 'other'}")
    assert {name: (row["questions"], row["calls"]) for name, row in before.items()} == {"cuts": (2, 2), "rates": (4, 4)}
    assert before == nobody_asked
    assert before["rates"]["how"] == "at most: the cut points are not known yet"
    assert {name: (row["calls"], row["how"]) for name, row in after.items()} == dict.fromkeys(
        ("cuts", "rates"), (0, "as counted")
    )
    sent = [len(str(asked.document["messages"][1]["content"]).encode()) for asked in server.asked]
    assert before["cuts"]["prompt_tokens"] + before["rates"]["prompt_tokens"] >= sum(sent)


def test_an_answer_that_cannot_be_is_asked_for_again_with_what_was_wrong(pumps, tmp_path, monkeypatch):
    wrong = {"above 1": ("p_low_with", 0.9), "cannot be low": ("p_low_with", 0.2), "none with": ("feature", "nose")}
    left = dict(wrong)

    def clumsy(document: Document) -> str:
        again = "Your last answer was not taken" in document["messages"][1]["content"]
        if schema(document) != "RatesAnswer" or again or not left:
            return scripted(document)
        answer, (key, value) = rates(document), left.pop(next(iter(left)))
        place = 1 if value == 0.2 else 0
        answer["features"][place][key] = value
        return json.dumps(answer)

    with serve(clumsy) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        ask(pumps, tmp_path / "out", "--live", "--calls=20", "--at-once=1")
    said = json.dumps([asked.document["messages"] for asked in server.asked])
    assert not left
    assert all("Your last answer was not taken: " in said and words in said for words in wrong)
    assert len(server.asked) == 9


def test_what_is_missing_is_a_line_and_nothing_is_left(pumps, tmp_path, monkeypatch):
    with pytest.raises(AfaError, match=r"no answer to 2 of 2 questions \(2 never asked\); expected"):
        ask(pumps, tmp_path / "out")
    (pumps / "dictionary.csv").unlink()
    with pytest.raises(AfaError, match=r"no features.csv and no dictionary.csv"):
        ask(pumps, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_answers_without_any_direction_are_a_fault_of_their_own_stage(pumps, tmp_path, monkeypatch):
    def undecided(document: Document) -> str:
        answer = json.loads(scripted(document))
        return json.dumps(
            {**answer, "features": [{**row, "direction": 0} for row in answer["features"]]}
            if schema(document) == "RatesAnswer"
            else answer
        )

    with serve(undecided) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(AfaError, match="no direction in any answer"):
            ask(pumps, tmp_path / "out", "--live", "--calls=20")
    assert not (tmp_path / "out").exists()
    shutil.rmtree(pumps / "record")
