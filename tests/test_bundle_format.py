"""The bundle format: every fault is named by file, line and column, with what to do; notes are never faults."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from afa.bundle import load_bundle, validate_bundle
from afa.errors import BundleError, Fault

TINY = Path(__file__).parent / "data" / "bundle_tiny"
UNARY = "entity,feature,potential,confidence,evidence\n"
PAIRWISE = "entity,feature_a,feature_b,potential,confidence,evidence\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tiny bundle without digests."""
    copy = Path(shutil.copytree(TINY, tmp_path / "bundle"))
    header = copy / "bundle.yaml"
    header.write_text(header.read_text().partition("digests:")[0])
    return copy


@pytest.fixture
def free(tmp_path: Path) -> Path:
    """A bundle whose header lists neither entities nor features."""
    (tmp_path / "bundle.yaml").write_text('name: free\nversion: "1"\n')
    (tmp_path / "unary.csv").write_text(UNARY + "late,g3,1,,\nearly,g1,1,,\n")
    (tmp_path / "pairwise.csv").write_text(PAIRWISE + "other,g2,g3,1,,\n")
    return tmp_path


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def only_fault(folder: Path) -> Fault:
    faults, notes = validate_bundle(folder)
    assert len(faults) == 1, list(map(str, faults))
    assert notes == []
    return faults[0]


def check(folder: Path, where: str, found: str, expected: str, next_step: str) -> None:
    """The folder has exactly this fault; `where` is relative to it."""
    fault = only_fault(folder)
    assert fault.where == f"{folder}/{where}"
    assert fault.found == found
    assert fault.expected == expected
    assert fault.next_step == next_step


def test_the_tiny_bundle_is_sound() -> None:
    assert validate_bundle(TINY) == ([], ["priors.csv: entities without a row have log-odds 0 (2)"])


def test_without_lists_entities_come_in_order_of_appearance_and_features_sorted(free: Path) -> None:
    bundle = load_bundle(free)
    assert bundle.entities == ("late", "early", "other")
    assert bundle.features == ("g1", "g2", "g3")


def test_a_pair_feature_without_a_unary_is_legal(free: Path) -> None:
    assert load_bundle(free).support("other").tolist() == [1, 2]


def test_confidence_and_evidence_columns_may_be_missing(free: Path) -> None:
    (free / "unary.csv").write_text("potential,feature,entity\n-2.5,g1,v\n")
    (free / "pairwise.csv").write_text("entity,feature_a,feature_b,potential\n")
    assert load_bundle(free).unary.tolist() == [[-2.5]]


@pytest.mark.parametrize("name", ["NA", "null", "1", "TRUE", "-"])
def test_names_that_other_tools_take_for_something_else_stay_text(free: Path, name: str) -> None:
    (free / "unary.csv").write_text(UNARY + f"v,{name},1,,\n")
    (free / "pairwise.csv").write_text(PAIRWISE)
    assert load_bundle(free).features == (name,)


def test_windows_line_ends_blank_lines_and_a_byte_order_mark_are_read(free: Path) -> None:
    text = "\ufeff" + UNARY + "v,g1,1,,\n\nv,g2,-1,,\n"
    (free / "unary.csv").write_bytes(text.replace("\n", "\r\n").encode())
    assert load_bundle(free).unary[0].tolist() == [1, -1, 0]


def test_a_line_break_inside_evidence_does_not_shift_line_numbers(folder: Path) -> None:
    change(folder / "unary.csv", "diarrhea,AQP8,-1", "diarrhea,AQP8,minus")
    line = next(
        number
        for number, text in enumerate((folder / "unary.csv").read_text().splitlines(), start=1)
        if text.startswith("diarrhea,AQP8")
    )
    check(folder, f"unary.csv, line {line}, column potential", "'minus'", "a finite number", "correct the number")
    assert line == 5


def test_a_path_that_is_no_folder_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"gone: found nothing; expected a bundle folder with bundle\.yaml"):
        load_bundle(tmp_path / "gone")
    with pytest.raises(BundleError, match="found a file; expected a bundle folder"):
        load_bundle(TINY / "unary.csv")


@pytest.mark.parametrize(("name", "header"), [("unary.csv", UNARY), ("pairwise.csv", PAIRWISE)])
def test_a_missing_potentials_file_is_a_fault(folder: Path, name: str, header: str) -> None:
    (folder / name).unlink()
    check(folder, name, "no such file", "a CSV file", f"write it with the header {header.strip()}; it may have no rows")


def test_a_missing_header_file_is_a_fault(folder: Path) -> None:
    (folder / "bundle.yaml").unlink()
    (folder / "priors.csv").unlink()
    check(folder, "bundle.yaml", "No such file or directory", "a readable file", "check the path")


def test_a_missing_required_key_is_a_fault(folder: Path) -> None:
    change(folder / "bundle.yaml", 'version: "1"\n', "")
    check(folder, "bundle.yaml, key version", "nothing", "a value", "add the key")


def test_an_unknown_key_is_a_fault_with_a_near_match(folder: Path) -> None:
    change(folder / "bundle.yaml", "licence:", "license:")
    check(folder, "bundle.yaml, key license", "an unknown key", "only known keys", "rename it to licence")


@pytest.mark.parametrize(
    ("old", "new", "key", "found"),
    [
        ('version: "1"', "version: 1.10", "version", "1.1"),
        ("[bleeding,", "[false,", "entities.0", "False"),
        ("[AQP8,", "[2024-01-01,", "features.0", "datetime.date(2024, 1, 1)"),
    ],
)
def test_text_that_yaml_takes_for_something_else_asks_for_quotes(
    folder: Path, old: str, new: str, key: str, found: str
) -> None:
    change(folder / "bundle.yaml", old, new)
    expected = "text; put it in quotes, because YAML reads this as something else"
    assert (f"{folder}/bundle.yaml, key {key}", found, expected) in [
        (fault.where, fault.found, fault.expected) for fault in validate_bundle(folder)[0]
    ]


@pytest.mark.parametrize("name", ['""', '" tiny"', '"tiny\\u200b"'])
def test_a_name_in_the_header_is_visible_text(folder: Path, name: str) -> None:
    change(folder / "bundle.yaml", "name: tiny", f"name: {name}")
    assert only_fault(folder).expected == "text that is not empty and has no spaces around it or invisible characters"


def test_another_value_domain_is_a_fault(folder: Path) -> None:
    change(folder / "bundle.yaml", "[-1, 0, 1]", "[0, 1]")
    check(
        folder,
        "bundle.yaml, key value_domain",
        "[0, 1]",
        "[-1, 0, 1], the only value domain that afa supports",
        "correct the value",
    )


def test_a_name_listed_twice_is_a_fault(folder: Path) -> None:
    change(folder / "bundle.yaml", "MUC2, TFF3]", "MUC2, TFF3, MUC2]")
    check(folder, "bundle.yaml, key features", "MUC2 2 times", "each name once", "remove the others")


def test_an_empty_list_of_names_is_a_fault(free: Path) -> None:
    (free / "bundle.yaml").write_text('name: free\nversion: "1"\nfeatures: []\n')
    faults = validate_bundle(free)[0]
    assert str(faults[0]).startswith(f"{free}/bundle.yaml, key features: found an empty list; expected at least one")


def test_broken_yaml_is_a_fault_with_its_line(folder: Path) -> None:
    change(folder / "bundle.yaml", "licence: MIT", "licence: MIT: BSD")
    fault = only_fault(folder)
    assert fault.where == f"{folder}/bundle.yaml, line 7"
    assert fault.expected == "valid YAML"


def test_a_missing_column_is_a_fault(folder: Path) -> None:
    change(folder / "priors.csv", "entity,log_odds", "entity")
    (folder / "priors.csv").write_text("entity\nfistula\n")
    check(
        folder, "priors.csv, line 1, column log_odds", "no such column", "the column",
        "add it; the header is entity,log_odds",
    )  # fmt: skip


def test_an_unknown_column_is_a_fault_with_a_near_match(folder: Path) -> None:
    change(folder / "pairwise.csv", "confidence", "confidance")
    where = "pairwise.csv, line 1, column confidance"
    check(folder, where, "an unknown column", "only known columns", "rename it to confidence")


def test_an_unknown_column_like_nothing_else_lists_the_known_ones(folder: Path) -> None:
    (folder / "priors.csv").write_text("entity,log_odds,xyz\nfistula,1,2\n")
    step = "remove it; known columns: entity, log_odds"
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
    check(folder, "priors.csv", "no header", "a header row", "write the header entity,log_odds")


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
    check(folder, where, "IL8, as in line 2", "each alias once", "remove one of the two rows")


def test_an_alias_that_is_the_name_of_a_feature_is_a_fault(folder: Path) -> None:
    change(folder / "aliases.csv", "TFF3,ITF", "TFF3,MUC2")
    found, expected = "MUC2, the name of a feature", "a name that no feature has"
    check(folder, "aliases.csv, line 4, column alias", found, expected, "remove the row")


def test_a_file_edited_after_stamping_is_a_fault_that_names_the_command(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(TINY, tmp_path / "bundle"))
    change(folder / "unary.csv", "bleeding,CXCL8,1", "bleeding,CXCL8,-1")
    fault = only_fault(folder)
    assert fault.where == f"{folder}/bundle.yaml, key digests.unary.csv"
    assert fault.next_step == f"restore the file, or, if the edit is meant, run `afa bundle stamp {folder}`"


def test_a_stamped_file_that_is_gone_is_a_fault(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(TINY, tmp_path / "bundle"))
    (folder / "costs.csv").unlink()
    fault = only_fault(folder)
    assert fault.where == f"{folder}/bundle.yaml, key digests.costs.csv"
    assert fault.found == "no such file in the folder"


def test_a_digest_of_an_unknown_file_is_a_fault(folder: Path) -> None:
    with (folder / "bundle.yaml").open("a") as stream:
        stream.write("digests: {unary.cvs: abc}\n")
    fault = only_fault(folder)
    assert fault.found == "a digest of an unknown file"
    assert fault.next_step == "rename it to unary.csv"


def test_a_bundle_without_any_entity_is_a_fault(free: Path) -> None:
    (free / "unary.csv").write_text(UNARY)
    (free / "pairwise.csv").write_text(PAIRWISE)
    fault = only_fault(free)
    assert str(fault) == f"{free}: found no entity; expected at least one. Next step: add rows to unary.csv."


def test_a_bundle_without_any_feature_is_a_fault(free: Path) -> None:
    (free / "bundle.yaml").write_text('name: free\nversion: "1"\nentities: [v]\n')
    (free / "unary.csv").write_text(UNARY)
    (free / "pairwise.csv").write_text(PAIRWISE)
    assert only_fault(free).found == "no feature"


def test_all_faults_are_reported_at_once_in_file_and_line_order(folder: Path) -> None:
    change(folder / "bundle.yaml", "licence:", "license:")
    change(folder / "unary.csv", "fistula,MMP9,1", "fistula,MMP9,x")
    change(folder / "unary.csv", "bleeding,CXCL8,1", "bleeding,CXCL8,y")
    change(folder / "pairwise.csv", "MUC2,CXCL8", "MUC2,MUC2")
    change(folder / "costs.csv", "AQP8,1", "AQP8,-1")
    with pytest.raises(BundleError) as caught:
        load_bundle(folder)
    places = [fault.where.removeprefix(f"{folder}/") for fault in caught.value.faults]
    assert places == [
        "bundle.yaml, key license",
        "unary.csv, line 2, column potential",
        "unary.csv, line 7, column potential",
        "pairwise.csv, line 2, column feature_b",
        "costs.csv, line 2, column cost",
    ]


def test_a_fault_of_every_row_is_shown_for_the_first_fifty_and_counted_for_the_rest(free: Path) -> None:
    (free / "unary.csv").write_text(UNARY + "".join(f"v,g{row},x,,\n" for row in range(1000)))
    faults = validate_bundle(free)[0]
    assert len(faults) == 51
    assert faults[-1].where == f"{free}/unary.csv, column potential"
    assert faults[-1].found == "950 more rows with this fault"


def test_missing_provenance_licence_and_digests_are_notes(free: Path) -> None:
    faults, notes = validate_bundle(free)
    assert faults == []
    assert notes == [
        "bundle.yaml: provenance does not say model, prompts, date, consensus",
        "bundle.yaml: no licence",
        f"bundle.yaml: no digests, so a later edit goes unseen; `afa bundle stamp {free}` adds them",
    ]


def test_names_without_potentials_are_a_note(free: Path) -> None:
    (free / "bundle.yaml").write_text('name: f\nversion: "1"\nfeatures: [g1, g2, g3, g4]\n')
    assert "features without any potential (1): g4" in validate_bundle(free)[1]


def test_a_file_that_looks_like_a_misspelt_one_is_a_note(free: Path) -> None:
    (free / "prior.csv").write_text("entity,log_odds\n")
    (free / "README.md").write_text("hello")
    notes = [note for note in validate_bundle(free)[1] if "is not read" in note]
    assert notes == ["prior.csv is not read; if it is meant as priors.csv, rename it"]
