"""What a bundle that has no fault may still be told: names that look misspelt, and nothing about those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from afa.model.bundle import validate_bundle

ROWS = ("drought,soil_moisture,-1", "drought,leaf_firmness,-1", "overwatering,soil_moisture,1")


def notes(folder: Path, *more: str, header: str = "") -> list[str]:
    """The notes on names, of a bundle with `ROWS` and these rows beside."""
    (folder / "bundle.yaml").write_text(f'name: plants\nversion: "1"\n{header}')
    (folder / "unary.csv").write_text("\n".join(("entity,feature,potential", *ROWS, *more)) + "\n")
    (folder / "pairwise.csv").write_text("entity,feature_a,feature_b,potential\n")
    faults, found = validate_bundle(folder)
    assert faults == []
    return [note for note in found if "much like" in note]


def test_a_feature_in_one_row_that_is_much_like_another_is_noted(tmp_path: Path) -> None:
    assert notes(tmp_path, "overwatering,leaf_firmnes,-1", "overwatering,leaf_firmness,-1") == [
        "bundle.yaml: no list of features, and leaf_firmnes, in one row only, is much like leaf_firmness; "
        "correct it if the two are one"
    ]


@pytest.mark.parametrize("name", ["overwaterng", "overwateering", "Overwatering", "over_watering"])
def test_so_is_an_entity(tmp_path: Path, name: str) -> None:
    (note,) = notes(tmp_path, f"{name},leaf_firmness,1")
    assert name in note
    assert "overwatering" in note


def test_two_names_in_one_row_each_are_noted_once(tmp_path: Path) -> None:
    assert len(notes(tmp_path, "drought,brown_edge,1", "overwatering,brown_edges,1")) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [("CXCL8", "CXCL9"), ("HLA-DRA", "HLA-DRB"), ("COL1A1", "COL1A2"), ("rash", "rush"), ("growth", "gain")],
)
def test_digits_a_last_letter_and_short_names_tell_features_apart(tmp_path: Path, one: str, other: str) -> None:
    assert notes(tmp_path, f"drought,{one},1", f"drought,{other},1", f"overwatering,{one},1") == []


def test_names_that_differ_in_case_alone_are_noted_however_short(tmp_path: Path) -> None:
    (note,) = notes(tmp_path, "drought,rash,1", "overwatering,Rash,1")
    assert "Rash" in note
    assert "rash" in note


def test_a_potential_that_outweighs_all_others_is_noted(tmp_path: Path) -> None:
    notes(tmp_path, "drought,growth,80")
    assert (
        "unary.csv: potentials beyond 10 nats, after which nothing else counts: drought 80"
        in (validate_bundle(tmp_path)[1])
    )


def test_names_in_more_rows_than_one_are_taken_as_meant(tmp_path: Path) -> None:
    rows = [f"{entity},{name},1" for entity in ("drought", "overwatering") for name in ("brown_edge", "brown_edges")]
    assert notes(tmp_path, *rows) == []


def test_a_list_of_the_features_answers_the_question(tmp_path: Path) -> None:
    listed = "features: [soil_moisture, leaf_firmness, leaf_firmnes]\n"
    assert notes(tmp_path, "drought,leaf_firmnes,-1", header=listed) == []


@pytest.mark.slow
def test_a_bundle_of_thousands_of_features_is_not_searched(tmp_path: Path) -> None:
    assert notes(tmp_path, *(f"drought,leaf_firmness_{'x' * k},1" for k in range(1, 181))) != []
    names = [f"f{a}{b}{c}" for a in "abcdefgh" for b in "abcdefgh" for c in "abcdefghij"]
    assert notes(tmp_path, "drought,leaf_firmnes,-1", *(f"drought,{name},1" for name in names)) == []
