"""The tables of a bundle: every fault is named by file, line and column, with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from faulty import change, check, only_fault

from afa.model.bundle import load_bundle, save_bundle, validate_bundle


def test_a_missing_column_is_a_fault(folder: Path) -> None:
    (folder / "costs.csv").write_text("feature\nCXCL8\n")
    check(
        folder, "costs.csv, line 1, column cost", "no such column", "the column",
        "add it; the header is feature,cost",
    )  # fmt: skip


def test_an_unknown_column_is_a_fault_with_a_near_match(folder: Path) -> None:
    change(folder / "pairwise.csv", "confidence", "confidance")
    where = "pairwise.csv, line 1, column confidance"
    check(folder, where, "an unknown column", "only known columns", "rename it to confidence")


def test_an_unknown_column_like_nothing_else_lists_the_known_ones(folder: Path) -> None:
    (folder / "priors.csv").write_text("entity,log_odds,xyz\nfistula,1,2\n")
    step = "remove it; known columns: entity, log_odds, probability"
    check(folder, "priors.csv, line 1, column xyz", "an unknown column", "only known columns", step)


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_columns_with_another_mark_than_a_comma_are_one_fault_that_says_so(free: Path, mark: str) -> None:
    path = free / "unary.csv"
    path.write_text(path.read_text(encoding="utf-8").replace(",", mark), encoding="utf-8")
    first = validate_bundle(free)[0][0]
    assert first.found == f"columns separated by {mark!r}"
    assert first.where == f"{path}, line 1"


def test_a_column_given_twice_is_a_fault(folder: Path) -> None:
    (folder / "priors.csv").write_text("entity,log_odds,log_odds\nfistula,1,2\n")
    where = "priors.csv, line 1, column log_odds"
    check(folder, where, "2 columns of this name", "one", "remove the others")


def test_a_file_without_a_header_is_a_fault(folder: Path) -> None:
    (folder / "priors.csv").write_text("")
    check(folder, "priors.csv", "no header", "a header row", "write the header entity,log_odds,probability")


def test_a_row_longer_than_the_header_is_a_fault(folder: Path) -> None:
    change(folder / "unary.csv", "neutrophil recruitment", "neutrophils, recruited")
    step = "put a text that holds a comma in quotes"
    check(folder, "unary.csv, line 2", "6 fields", "5, as in the header", step)


def test_an_open_quote_is_a_fault(folder: Path) -> None:
    change(folder / "priors.csv", "fistula", '"fistula')
    fault = only_fault(folder)
    assert fault.where == f"{folder}/priors.csv, line 2"
    assert fault.found == "text that is not CSV (unexpected end of data)"


def test_bytes_that_are_not_utf8_are_a_fault_with_their_line(folder: Path) -> None:
    path = folder / "unary.csv"
    path.write_bytes(path.read_bytes().replace(b"matrix breakdown", b"d\xe9gradation"))
    check(
        folder, "unary.csv, line 7", "bytes that are not UTF-8 (invalid continuation byte)", "UTF-8 text",
        "save it as UTF-8",
    )  # fmt: skip


def test_a_binary_file_is_a_fault(folder: Path) -> None:
    (folder / "pairwise.csv").write_bytes(b"PK\x03\x04\0\0")
    step = "save it as CSV in UTF-8"
    check(folder, "pairwise.csv", "binary data", "a text file with comma-separated values", step)


@pytest.mark.parametrize(
    ("file", "old", "new", "line", "column"),
    [
        ("unary.csv", "bleeding,CXCL8", ",CXCL8", 2, "entity"),
        ("unary.csv", "bleeding,CXCL8", "bleeding,", 2, "feature"),
        ("pairwise.csv", "bleeding,MUC2", "bleeding,", 2, "feature_a"),
        ("priors.csv", "fistula", "", 2, "entity"),
        ("aliases.csv", "IL8", "", 2, "alias"),
    ],
)
def test_an_empty_name_is_a_fault(folder: Path, file: str, old: str, new: str, line: int, column: str) -> None:
    change(folder / file, old, new)
    where = f"{file}, line {line}, column {column}"
    check(folder, where, "nothing", "a name", "write the name or remove the row")


@pytest.mark.parametrize(("name", "shown"), [(" MUC2", "' MUC2'"), ("MU\u200bC2", r"'MU\u200bC2'")])
def test_a_name_with_spaces_around_it_or_invisible_characters_is_a_fault(folder: Path, name: str, shown: str) -> None:
    change(folder / "unary.csv", "bleeding,MUC2", f"bleeding,{name}")
    expected = "a name without spaces around it or invisible characters"
    check(folder, "unary.csv, line 3, column feature", shown, expected, "write MUC2")


@pytest.mark.parametrize("number", ["x", "nan", "inf", "-inf", "1e999", "1_0", "0x1", ""])
def test_a_potential_that_is_not_a_finite_number_is_a_fault(folder: Path, number: str) -> None:
    change(folder / "unary.csv", "bleeding,CXCL8,1", f"bleeding,CXCL8,{number}")
    found = repr(number) if number else "nothing"
    check(folder, "unary.csv, line 2, column potential", found, "a finite number", "correct the number")


def test_a_potential_whose_square_would_overflow_is_a_fault(folder: Path) -> None:
    change(folder / "unary.csv", "bleeding,CXCL8,1", "bleeding,CXCL8,1e300")
    expected = "a finite number, at most 1e+100 in size"
    check(folder, "unary.csv, line 2, column potential", "'1e300'", expected, "correct the number")


def test_a_short_row_lacks_its_last_columns(folder: Path) -> None:
    change(folder / "pairwise.csv", "fistula,CXCL8,TFF3,0,,unclear", "fistula,CXCL8,TFF3")
    check(folder, "pairwise.csv, line 5, column potential", "nothing", "a finite number", "correct the number")


@pytest.mark.parametrize("number", ["1.01", "-0.5", "high", "nan"])
def test_a_confidence_outside_0_to_1_is_a_fault(folder: Path, number: str) -> None:
    change(folder / "pairwise.csv", "0.6,opposite", f"{number},opposite")
    where = "pairwise.csv, line 2, column confidence"
    check(folder, where, repr(number), "a number in [0, 1]", "correct the number")


def test_a_feature_given_twice_for_an_entity_names_the_first_line(folder: Path) -> None:
    with (folder / "unary.csv").open("a") as stream:
        stream.write("bleeding,CXCL8,-1,,\n")
    expected = "each feature once for an entity"
    check(folder, "unary.csv, line 9", "the same as line 2", expected, "remove one of the two rows")


@pytest.mark.parametrize("row", ["bleeding,MUC2,CXCL8,1", "bleeding,CXCL8,MUC2,1"])
def test_a_pair_given_twice_in_either_order_names_the_first_line(folder: Path, row: str) -> None:
    with (folder / "pairwise.csv").open("a") as stream:
        stream.write(f"{row},,\n")
    expected = "each pair once for an entity, in either order"
    check(folder, "pairwise.csv, line 6", "the same as line 2", expected, "remove one of the two rows")


def test_a_feature_paired_with_itself_is_a_fault(folder: Path) -> None:
    change(folder / "pairwise.csv", "MUC2,CXCL8", "MUC2,MUC2")
    where = "pairwise.csv, line 2, column feature_b"
    check(folder, where, "MUC2 paired with itself", "two different features", "remove the row")


@pytest.mark.parametrize(
    ("file", "old", "new", "column", "close"),
    [
        ("unary.csv", "bleeding,CXCL8", "bleeding,CXCL9", "feature", "CXCL8"),
        ("unary.csv", "bleeding,CXCL8", "bleedin,CXCL8", "entity", "bleeding"),
        ("pairwise.csv", "bleeding,MUC2", "bleeding,MUC5", "feature_a", "MUC2"),
        ("priors.csv", "fistula", "fistulae", "entity", "fistula"),
        ("aliases.csv", "CXCL8,IL8", "CXCL,IL8", "feature", "CXCL8"),
    ],
)
def test_a_name_that_is_not_listed_is_a_fault_with_a_near_match(
    folder: Path, file: str, old: str, new: str, column: str, close: str
) -> None:
    change(folder / file, old, new)
    fault = only_fault(folder)
    assert fault.where == f"{folder}/{file}, line 2, column {column}"
    assert fault.expected == "a name listed in bundle.yaml"
    assert fault.next_step == f"did you mean {close}"


def test_without_lists_a_cost_or_prior_must_still_belong_to_a_potential(free: Path) -> None:
    (free / "costs.csv").write_text("feature,cost\ng1,1\ng2,1\ng3,1\ng33,1\n")
    fault = only_fault(free)
    assert fault.where == f"{free}/costs.csv, line 5, column feature"
    assert fault.expected == "a name used in unary.csv or pairwise.csv"


@pytest.mark.parametrize("cost", ["-1", "inf", "nan", "free", ""])
def test_a_negative_or_non_finite_cost_is_a_fault(folder: Path, cost: str) -> None:
    change(folder / "costs.csv", "AQP8,1", f"AQP8,{cost}")
    found = repr(cost) if cost else "nothing"
    check(folder, "costs.csv, line 2, column cost", found, "a finite number >= 0", "correct the number")


def test_a_feature_without_a_cost_is_a_fault(folder: Path) -> None:
    change(folder / "costs.csv", "MUC2,0\n", "")
    step = "add the missing rows or remove the file"
    check(folder, "costs.csv", "no cost for MUC2", "a cost for every feature", step)


def test_a_cost_given_twice_is_a_fault(folder: Path) -> None:
    change(folder / "costs.csv", "MUC2,0\n", "MUC2,0\nAQP8,1\n")
    check(folder, "costs.csv, line 6", "the same as line 2", "each feature once", "remove one of the two rows")


def test_a_prior_given_twice_is_a_fault(folder: Path) -> None:
    (folder / "priors.csv").write_text("entity,log_odds\nfistula,1\nfistula,2\n")
    check(folder, "priors.csv, line 3", "the same as line 2", "each entity once", "remove one of the two rows")


def test_a_prior_that_is_not_finite_is_a_fault(folder: Path) -> None:
    change(folder / "priors.csv", "-1.5", "-inf")
    check(folder, "priors.csv, line 2, column log_odds", "'-inf'", "a finite number", "correct the number")


def test_an_alias_of_two_features_is_a_fault(folder: Path) -> None:
    change(folder / "aliases.csv", "TFF3,ITF", "TFF3,IL8")
    where = "aliases.csv, line 4, column alias"
    check(folder, where, "'IL8', as in line 2", "each alias once", "remove one of the two rows")


def test_an_alias_that_is_the_name_of_a_feature_is_a_fault(folder: Path) -> None:
    change(folder / "aliases.csv", "TFF3,ITF", "TFF3,MUC2")
    found, expected = "MUC2, the name of a feature", "a name that no feature has"
    check(folder, "aliases.csv, line 4, column alias", found, expected, "remove the row")


def test_damaged_potentials_are_not_blamed_on_the_tables_beside_them(folder: Path) -> None:
    listed = "features: [AQP8, CXCL8, MMP9, MUC2, TFF3]\n"
    change(folder / "bundle.yaml", listed, "")
    (folder / "pairwise.csv").write_text("entity,feature_a,feature_b,potential\n")
    (folder / "unary.csv").write_text("entity,feature,potential\nble")
    faults, _ = validate_bundle(folder)
    assert {Path(fault.where.split(",")[0]).name for fault in faults} == {"unary.csv"}


FEATURES = """feature,kind,unit,low,high
heat,continuous,degrees C,36,70
noise,binary,,,
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b"degrees C", "°C".encode("latin-1"), "line 2: found bytes that are not UTF-8"),
        (b"heat,continuous", b"heat,Continuous", "line 2, column kind: found 'Continuous'"),
        (b"36,70", b"70,36", "line 2, column low: found 70, above high (36)"),
        (b"noise,binary", b"heat,binary", "line 3, column feature: found 'heat', as in line 2"),
        (b"degrees C", b"K\x1b[2J", "line 2: found the control character U+001B"),
        (b"degrees C", b"K\xc2\x9b2J", "line 2: found the control character U+009B"),
    ],
)
def test_one_wrong_cell_of_features_csv_is_one_fault(tmp_path, old, new, words):
    (tmp_path / "bundle.yaml").write_text('name: pump\nversion: "1"\n')
    rows = "leak,heat,,0.1,0.6,0.1,0.2\nleak,noise,,,0.6,,0.2\nworn,heat,,0.1,0.6,0.1,0.2\nworn,noise,,,0.6,,0.2\n"
    shares = "p_low_with,p_high_with,p_low_without,p_high_without"
    (tmp_path / "unary.csv").write_text(f"entity,feature,potential,{shares}\n{rows}")
    (tmp_path / "pairwise.csv").write_text("entity,feature_a,feature_b,potential\nleak,heat,noise,1\n")
    (tmp_path / "features.csv").write_bytes(FEATURES.encode())
    assert validate_bundle(tmp_path)[0] == []
    (tmp_path / "features.csv").write_bytes(FEATURES.encode().replace(old, new))
    faults, _ = validate_bundle(tmp_path)
    assert len(faults) == 1
    assert str(faults[0]).startswith(f"{tmp_path / 'features.csv'}, {words}")


@pytest.mark.parametrize("control", ["\x1b]8;;http://elsewhere\x07", "\x9b2J", "\u202e"])
@pytest.mark.parametrize("column", ["definition", "evidence", "display"])
def test_a_control_character_in_a_text_that_is_shown_is_a_fault(folder: Path, column: str, control: str) -> None:
    if column == "display":
        (folder / "display.csv").write_text(f"name,display\nMUC2,Mucin{control} 2\n")
        file, line = "display.csv", 2
    elif column == "evidence":
        rows = (folder / "unary.csv").read_text().splitlines()
        rows[1] = ",".join([*rows[1].split(",")[:4], f"shown{control} so"])
        (folder / "unary.csv").write_text("\n".join(rows) + "\n")
        file, line = "unary.csv", 2
    else:
        kinds = "".join(
            f"{name},continuous,what{control} it is\n" for name in ("AQP8", "CXCL8", "MMP9", "MUC2", "TFF3")
        )
        (folder / "features.csv").write_text(f"feature,kind,definition\n{kinds}")
        file, line = "features.csv", 2
    faults, _ = validate_bundle(folder)
    (fault, *_) = [fault for fault in faults if file in fault.where]
    assert f"{file}, line {line}" in fault.where
    assert "control character" in fault.found or "invisible" in fault.expected
    assert not any(mark in str(fault) for mark in control if not mark.isprintable())


def test_columns_without_a_name_are_told_by_their_places(folder: Path) -> None:
    (folder / "costs.csv").write_text("feature,cost,,\nCXCL8,1,,\n")
    assert (
        "found 2 columns without a name, the columns 3, 4; expected one. Next step: name or remove them"
        in "\n".join(map(str, validate_bundle(folder)[0]))
    )


SHOWN = 'name,display\nbleeding,"Bleeding, visible"\nMUC2,Mucin 2\n'


def test_display_names_stay_with_copies_and_restrictions_and_change_no_model(folder: Path, tmp_path: Path) -> None:
    digest = load_bundle(folder).digest
    (folder / "display.csv").write_text(SHOWN)
    bundle = load_bundle(folder)
    assert bundle.digest == digest
    names = ("bleeding", "not bleeding", "MUC2", "AQP8", "none")
    assert [bundle.shown(name) for name in names] == [
        "Bleeding, visible", "not Bleeding, visible", "Mucin 2", "AQP8", "none",
    ]  # fmt: skip
    assert bundle.restrict(["AQP8", "TFF3"]).display_names == {"bleeding": "Bleeding, visible"}
    save_bundle(bundle, tmp_path / "copy")
    assert (tmp_path / "copy/display.csv").read_text() == SHOWN


@pytest.mark.parametrize(
    ("rows", "where", "found"),
    [
        ("MUC3,Mucin", "line 2, column name", "'MUC3'"),
        ("MUC2,TFF3", "line 2, column display", "TFF3, the name of another"),
        ("MUC2,IL8", "line 2, column display", "IL8, the name of another"),
        ("MUC2,A\nTFF3,A", "line 3, column display", "'A', as in line 2"),
        ("MUC2,A\nMUC2,B", "line 3, column name", "'MUC2', as in line 2"),
        ("MUC2,", "line 2, column display", "nothing"),
    ],
)
def test_a_display_name_that_is_of_nothing_or_not_of_one_alone_is_a_fault(
    folder: Path, rows: str, where: str, found: str
) -> None:
    (folder / "display.csv").write_text(f"name,display\n{rows}\n")
    fault = only_fault(folder)
    assert (fault.where, fault.found) == (f"{folder}/display.csv, {where}", found)
