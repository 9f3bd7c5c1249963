"""The bundle format: its header, its digests, its faults all at once, and notes that are never faults."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from faulty import PAIRWISE, TINY, UNARY, change, check, only_fault

from afa.errors import BundleError
from afa.model.bundle import load_bundle, validate_bundle


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
    assert "put a text with ': ' in quotes" in fault.next_step


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
