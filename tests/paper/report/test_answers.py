"""The hand-kept answers: every claim has one, every name in it stands for something, and what is wrong is named."""

import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
import yaml

from afa.errors import ConfigError
from afa.evaluate.summary import KEYS, METRICS, TABLES
from afa.io.yamlfile import load_model
from afa.paper.report.comparison import UNITS, load_printed
from afa.paper.report.paper_tables import PRINTED_TABLES, TEXT_COLUMNS
from afa.paper.report.verdicts import (
    COMPARED_KINDS,
    END,
    ClaimAnswer,
    ClaimAnswers,
    is_number,
    relation_of,
    scaled_line,
)

ROOT = Path(__file__).parents[3]
PAPER = ROOT / "resources" / "paper"
FILE = PAPER / "answers.yaml"
ANSWERS = load_model(FILE, ClaimAnswers)
PRINTED = load_printed(PAPER)
CLAIMS = PRINTED["claims"].set_index("id")
CELLS = {
    f"{name} | {row} | {column}"
    for name in PRINTED_TABLES
    for row, column in PRINTED[name][["row", "column"]].itertuples(index=False)
    if column not in TEXT_COLUMNS
}


def faults_of(claim, answers=ANSWERS):
    """What a claim's answer lacks of what it needs, or has beside it."""
    given = [key for key in ("cell", "line", "fact", "holds") if getattr(claim, key)]
    needed = (1,) if claim.answer in COMPARED_KINDS else (0, 1) if claim.answer.startswith("not_") else (0,)
    if len(given) not in needed:
        yield f"{claim.answer} with {', '.join(given) or 'nothing to read'}"
    if claim.answer not in COMPARED_KINDS and claim.why is None:
        yield f"{claim.answer} without a reason"
    if claim.answer in ("erratum", "decision") and not claim.see:
        yield f"{claim.answer} without an id"
    if claim.cell is not None and claim.cell.count(" | ") != 2:
        yield f"cell {claim.cell}"
    sides = [side for text in claim.holds for side in relation_of(text)[::2] if not is_number(side)]
    if claim.less is not None and (claim.line is None or not set(claim.less) <= CELLS):
        yield f"less {', '.join(claim.less)}"
    others = [*claim.also.values(), *([claim.line] if claim.line else [])]
    for _, reading in map(scaled_line, [*others, *sides]):
        name, *pairs = shlex.split(reading)
        if name not in answers.lines:
            yield f"no line {name}"
        elif not all("=" in pair for pair in pairs) or not set(answers.keys(reading)) <= set(KEYS):
            yield f"no keys in {reading}"


def read_claims():
    return {name: answer for name, answer in ANSWERS.claims.items() if answer.answer in COMPARED_KINDS}


def test_every_claim_is_answered_once_and_in_the_papers_order():
    assert list(ANSWERS.claims) == list(CLAIMS.index)
    assert len(ANSWERS.claims) == 332


def test_every_id_that_is_referred_to_stands_in_the_documents():
    known = {
        found
        for name in ("errata", "decisions")
        for found in re.findall(r"^\*\*([A-Z]\d+),", (ROOT / "docs" / f"{name}.md").read_text(), re.MULTILINE)
    }
    used = {name for answer in (*ANSWERS.claims.values(), *ANSWERS.cells) for name in answer.see}
    assert used - known == set()
    assert {name for answer in ANSWERS.claims.values() if answer.answer == "erratum" for name in answer.see} > {"E5"}
    assert all(any(name[0] == "E" for name in a.see) for a in ANSWERS.claims.values() if a.answer == "erratum")


def test_every_cell_that_a_claim_refers_to_is_printed():
    named = {answer.cell for answer in ANSWERS.claims.values() if answer.cell is not None}
    assert named - CELLS == set()


@pytest.mark.parametrize("rule", ANSWERS.cells, ids=lambda rule: f"{rule.table} {rule.row} {rule.column}")
def test_every_pattern_of_cells_covers_one_that_no_earlier_pattern_covers(rule):
    earlier = ANSWERS.cells[: ANSWERS.cells.index(rule)]
    split = [cell.split(" | ") for cell in CELLS]
    free = [cell for cell in split if not any(other.covers(*cell) for other in earlier)]
    assert any(rule.covers(*cell) for cell in free)


def test_a_number_is_read_as_a_number_and_a_comparison_as_relations():
    for name, answer in read_claims().items():
        if CLAIMS.loc[name, "kind"] == "comparison":
            assert answer.holds or answer.less, name
            assert answer.answer in ("paired", "erratum"), name
        else:
            assert answer.answer in ("row", "erratum"), name


def test_a_claimed_share_says_how_many_patients_are_behind_it():
    for name, answer in read_claims().items():
        unit = UNITS[CLAIMS.loc[name, "unit"]]
        if unit in ("share", "percent") and not answer.holds:
            table = (answer.cell or "").split(" | ")[0]
            assert answer.patients or ANSWERS.patients[table], name


def test_two_claims_of_one_number_have_one_answer():
    """A number that the paper repeats, by the first words of the claim, is read from one line."""
    texts = CLAIMS["claim"].str.replace(r" \((caption|second printing of the caption)\)", "", regex=True)
    for names in texts.groupby(texts).groups.values():
        readings = {(a.cell, a.line, a.fact, a.holds) for a in (ANSWERS.claims[name] for name in names)}
        assert len(readings) == 1, list(names)


def test_claims_of_a_correlation_read_it_as_the_printed_cells_do():
    """Pooled over duels, as the paper's text has it: `tab:m1agree` and the sentences on it speak of one number."""
    texts = [text for answer in read_claims().values() for text in answer.holds if text.startswith("correlation ")]
    assert len(texts) == 16
    for text in texts:
        reading = ANSWERS.keys(relation_of(text)[0])
        track = {"two_elbo": "F1-track", "stack_a": "F2-track"}[str(reading["method"])]
        cell = PRINTED_TABLES["tab_m1agree"](f"Pearson correlation / {track}", "")
        assert {key: value for key, value in reading.items() if key != "t"} == dict(cell.where), text


def test_every_line_is_one_of_the_summarys_tables_and_metrics():
    for name, keys in ANSWERS.lines.items():
        assert keys["table"] in TABLES, name
        assert keys["metric"] in METRICS, name
        assert keys.get("t", END) == END or isinstance(keys["t"], int)


def test_no_line_and_no_reason_is_there_for_nothing():
    text = FILE.read_text()
    used = text.partition("\ncells:")[2] + (PAPER / "headlines.yaml").read_text()
    for name in (*ANSWERS.lines, *ANSWERS.reasons):
        assert re.search(rf"[\" \[{{]{name}\b", used), name


def test_every_table_of_the_paper_has_its_place_in_the_report():
    labels = {"tab:" + name.removeprefix("tab_") for name in PRINTED_TABLES}
    assert labels <= set(ANSWERS.places)
    for label in labels:
        assert (ROOT / "notebooks" / f"{ANSWERS.places[label].removeprefix('notebook ')}.ipynb").is_file(), label


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        ("sign method=kl t=M", {"method": "kl", "t": "M"}),
        ("sign t=10", {"t": 10}),
        ("sign metric=rate variant=clusters level=5", {"metric": "rate", "variant": "clusters", "level": 5}),
        ("sign stratum='two words'", {"stratum": "two words"}),
    ],
)
def test_a_reading_is_a_line_with_keys_added_or_changed(reading, expected):
    assert ANSWERS.keys(reading) == {**ANSWERS.lines["sign"], **expected}


def test_a_relation_has_one_operator_between_two_sides():
    assert relation_of("sign t=1 > sign t=2") == ("sign t=1", ">", "sign t=2")
    assert relation_of("removed stratum=a=5 = 0") == ("removed stratum=a=5", "=", "0")
    assert (is_number("0.5"), is_number("sign t=1")) == (True, False)


def test_every_answer_has_what_it_needs_and_nothing_beside():
    assert {name: found for name, each in ANSWERS.claims.items() if (found := list(faults_of(each)))} == {}
    assert [rule for rule in ANSWERS.cells if rule.answer != "judged" and rule.why is None] == []


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ({"answer": "row"}, "row with nothing to read"),
        ({"answer": "row", "line": "sign t=1", "fact": "patients"}, "row with line, fact"),
        ({"answer": "not_comparable", "line": "sign t=1"}, "not_comparable without a reason"),
        ({"answer": "background", "why": "motive", "line": "sign t=1"}, "background with line"),
        ({"answer": "erratum", "line": "sign t=1"}, "erratum without an id"),
        ({"answer": "row", "cell": "tab_chaos"}, "cell tab_chaos"),
        ({"answer": "row", "line": "sing t=1"}, "no line sing"),
        ({"answer": "row", "line": "sign t"}, "no keys in sign t"),
        ({"answer": "paired", "holds": ["sign colour=blue > 0"]}, "no keys in sign colour=blue"),
    ],
)
def test_an_answer_that_lacks_something_would_be_noticed(claim, words):
    assert list(faults_of(ClaimAnswer.model_validate(claim))) == [words]


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ({"answer": "rwo", "line": "sign t=1"}, "c001.answer"),
        ({"answer": "row", "line": "sign t=1", "hold": []}, "c001.hold: found an unknown key"),
    ],
)
def test_a_claim_in_another_form_is_refused_by_its_id(tmp_path, claim, words):
    document = yaml.safe_load(FILE.read_text())
    document["claims"]["c001"] = claim
    (tmp_path / "answers.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError, match=words):
        load_model(tmp_path / "answers.yaml", ClaimAnswers)


def test_the_papers_tables_are_asked_for_where_they_are_not(tmp_path):
    pd.DataFrame({"id": []}).to_csv(tmp_path / "claims.csv")
    with pytest.raises(ConfigError, match=r"no tab_m2_random_sign.*pass resources/paper"):
        load_printed(tmp_path)
