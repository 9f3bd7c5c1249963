"""Stages through files give what the same functions give in memory."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from elicit.elicit_lab import Lab
from typer.testing import CliRunner

from afa.cli import app
from afa.elicit.stages import all_stages, build_recorded_bundle, recorded_answers
from afa.elicit.tables import COLUMNS, read_stage, write_stage
from afa.errors import ConfigError, ElicitationError
from afa.model.study import load_study

RECORDED = Path(__file__).parents[2] / "resources" / "elicitation"
STUDY = load_study(RECORDED)
AWKWARD = 'a "quoted", torn\rline\r\nand\nmore; NA é\u2028'


def test_the_stages_and_the_one_command_make_the_same_bundle_of_our_record(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.study, lab.record = RECORDED, RECORDED / "record"
    lab.elicit(min_agree=2)
    _, dropped = build_recorded_bundle(RECORDED, tmp_path / "bundle", min_agree=2)
    for path in (tmp_path / "bundle").iterdir():
        assert (lab.run / "bundle" / path.name).read_bytes() == path.read_bytes()
    assert (lab.run / "dropped.csv").read_text() == dropped.to_csv(index=False, lineterminator="\n")
    genes = pd.read_csv(tmp_path / "bundle" / "unary.csv").groupby("entity").size()
    assert len(read_stage(lab.run / "pairwise", "asked")["asked"]) == (genes * (genes - 1) // 2).sum()


def test_every_gene_and_pair_of_our_record_is_kept_or_dropped_with_a_reason() -> None:
    stages = all_stages(STUDY, recorded_answers(STUDY, RECORDED / "record"), None, min_agree=2)
    named = stages["unary"]["named"].drop_duplicates(["phenotype", "gene"])
    assert len(stages["consensus"]["kept"]) + len(stages["consensus"]["dropped"]) == len(named)
    assert stages["evidence"]["kept"].equals(stages["consensus"]["kept"])
    pairs, dropped = stages["pairwise"]["pairs"], stages["pairwise"]["dropped"]
    assert (pairs["sign"] == 0).sum() == len(dropped)
    assert (dropped["reason"] != "").all()


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    named = ("r1", "fever", "NA", "Upregulated", 0.1 + 0.2, AWKWARD, "literature", "1 2")
    tables = {
        "named": pd.DataFrame([named], columns=COLUMNS["named"]),
        "kept": pd.DataFrame([("fever", "NA", -1, 1 / 3, 2)], columns=COLUMNS["kept"]),
        "dropped": pd.DataFrame([], columns=COLUMNS["dropped"]),
    }
    write_stage(tmp_path / "stage", tables)
    for name, table in read_stage(tmp_path / "stage", *tables).items():
        assert table.values.tolist() == tables[name].values.tolist()
        assert list(table.columns) == list(tables[name].columns)


def test_a_table_with_a_fault_is_refused_by_line_and_column(tmp_path: Path) -> None:
    write_stage(tmp_path, {"kept": pd.DataFrame([("fever", "A", 5, 0.5, 2)], columns=COLUMNS["kept"])})
    with pytest.raises(ElicitationError, match=r"kept.csv, line 2, column potential: found '5'; expected a number in"):
        read_stage(tmp_path, "kept")


def test_a_stage_replaces_its_own_tables_and_no_other_folder(tmp_path: Path) -> None:
    tables = {"kept": pd.DataFrame([], columns=COLUMNS["kept"])}
    write_stage(tmp_path / "stage", tables)
    write_stage(tmp_path / "stage", tables)
    (tmp_path / "study.yaml").write_text("name: mine\n")
    with pytest.raises(ConfigError, match=r"a folder with other files: stage/kept\.csv, study\.yaml"):
        write_stage(tmp_path, tables)
    assert (tmp_path / "study.yaml").exists()


def test_a_stage_that_was_not_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ElicitationError, match=r"nothing/named.csv: found No such file"):
        read_stage(tmp_path / "nothing", "named")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"references": True}, "references needs abstracts above 0"),
        ({"models": {"r9": "m"}}, "models names r9, no voter"),
        ({"voters": ["r1", "r1"]}, "a voter stands twice"),
        ({"voters": ["pairs"]}, "is named pairs"),
        ({"manner": {"colour": "red"}}, "key manner.colour"),
        ({"manner": {"answers": 0}}, "manner, answers: found 0"),
    ],
)
def test_a_study_that_cannot_be_asked_is_refused(tmp_path: Path, settings: dict, told: str) -> None:
    lab = Lab(tmp_path, **settings)
    result = CliRunner().invoke(app, lab.command("unary"))
    assert told in str(result.exception)
