"""How often, in a bundle's files: read, refused, noted, shown, written again, and turned to models (F1, F5, F10)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from afa.cli import app
from afa.engine.layout import pack
from afa.errors import BundleError, PlannerError
from afa.inference.class_odds import log_ratio
from afa.inference.exact import exact
from afa.inference.meanfield import Solver
from afa.io.files import sha256_of
from afa.model.bundle import Bundle, load_bundle, save_bundle, validate_bundle
from afa.model.bundle.rates import bundle_models
from afa.model.closure import closed_bundle, half_potentials
from afa.planner import TopKPlanner

FILES = {
    "bundle.yaml": 'name: worked\nversion: "1"\nencoding: ranges\nholds: one or none\n',
    "features.csv": (
        "feature,kind,unit,low,high,values,p_low,p_high,definition\n"
        "rash,binary,,,,0 no; 1 yes,,0.2,a rash\n"
        "iron,continuous,umol/l,10,30,,0.2,0.2,serum iron\n"
        "cells,continuous,G/l,4,,,0.1,,\n"
    ),
    "unary.csv": (
        "entity,feature,potential,p_low_with,p_high_with,p_low_without,p_high_without\n"
        "flu,rash,,,0.8,,0.2\n"
        "flu,iron,1,0.1,0.6,0.2,0.2\n"
        "flu,cells,,0.5,,0.1,\n"
        "cold,rash,,,0.3,,\n"
    ),
    "pairwise.csv": "entity,feature_a,feature_b,potential,scope\nflu,rash,iron,0.5,shared\nflu,iron,cells,-0.4,\n",
}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The worked example of decisions F1 to F16 as a folder."""
    folder = tmp_path / "worked"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def faults(folder: Path, file: str, old: str, new: str) -> list[str]:
    """What is wrong after one change, without the folder."""
    text = (folder / file).read_text()
    assert text.count(old) == 1
    (folder / file).write_text(text.replace(old, new))
    return [str(fault).removeprefix(f"{folder}/") for fault in validate_bundle(folder)[0]]


def test_a_folder_that_is_no_bundle_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "dictionary.csv").write_text("feature,kind\n")
    (fault,) = validate_bundle(tmp_path)[0]
    assert (fault.found, fault.next_step) == ("a folder without bundle.yaml", "check the path")
    (tmp_path / "study.yaml").write_text("name: pumps\n")
    assert validate_bundle(tmp_path)[0][0].next_step == f"make its bundle with `afa field bundle {tmp_path}`"


@pytest.mark.parametrize("given", [None, 3])
def test_what_is_no_path_is_one_line(given: Any) -> None:
    with pytest.raises(BundleError, match=f"^bundle: found {type(given).__name__}; expected the path of its folder"):
        load_bundle(given)


def test_it_reads_as_written(written: Path) -> None:
    bundle = load_bundle(written)
    assert bundle.features == ("rash", "iron", "cells")
    assert bundle.possible.tolist() == [[False, True, True], [True, True, True], [True, True, False]]
    assert bundle.rates is not None
    assert (bundle.rates.encoding, bundle.rates.holds, bundle.rates.floor) == ("ranges", "one or none", 0.01)
    one, zero, spoken = bundle.how_often("flu")
    np.testing.assert_allclose(one, [[0, 0.2, 0.8], [0.1, 0.3, 0.6], [0.5, 0.5, 0]])
    np.testing.assert_allclose(zero, [[0, 0.8, 0.2], [0.2, 0.6, 0.2], [0.1, 0.9, 0]])
    assert spoken.tolist() == [0, 1, 2]
    shared, condition = bundle.scoped("flu")
    assert [shared[0, 1], shared[1, 2], condition[0, 1], condition[1, 2]] == [0.5, 0, 0, -0.4]


def test_what_an_entity_is_silent_on_is_the_background_in_both_classes(written: Path) -> None:
    one, zero, spoken = load_bundle(written).how_often("cold")
    assert spoken.tolist() == [0]
    np.testing.assert_allclose(one[0], [0, 0.7, 0.3])
    np.testing.assert_allclose(zero[0], [0, 0.8, 0.2])
    np.testing.assert_allclose(one[1:], zero[1:])


def test_an_empty_potential_is_the_direction_of_the_probabilities(written: Path) -> None:
    assert load_bundle(written).unary.tolist() == [[1, 1, -1], [1, 0, 0]]


def test_a_direction_alone_tilts_the_background(written: Path) -> None:
    faults(written, "unary.csv", "flu,iron,1,0.1,0.6,0.2,0.2", "flu,iron,1,,,,")
    one, zero, _ = load_bundle(written).how_often("flu")
    np.testing.assert_allclose(one[1], [0.06045, 0.49292, 0.44663], atol=1e-5)
    np.testing.assert_allclose(zero[1], [0.2, 0.6, 0.2])


def test_a_background_that_is_not_stated_is_pooled_from_those_without(written: Path) -> None:
    faults(written, "features.csv", "rash,binary,,,,0 no; 1 yes,,0.2,a rash", "rash,binary,,,,,,,")
    faults(written, "unary.csv", "cold,rash,,,0.3,,", "cold,rash,,,0.3,,0.5")
    bundle = load_bundle(written)
    odds = np.sqrt((0.2 / 0.8) * (0.5 / 0.5))
    assert bundle.rates is not None
    assert bundle.rates.background[0, 2] == pytest.approx(odds / (1 + odds))


def test_where_nobody_states_it_the_background_is_uniform_and_noted(written: Path) -> None:
    faults(written, "features.csv", "rash,binary,,,,0 no; 1 yes,,0.2,a rash", "rash,binary,,,,,,,")
    for row in ("flu,rash,,,0.8,,0.2", "cold,rash,,,0.3,,"):
        faults(written, "unary.csv", row, ",".join(row.split(",")[:2]) + ",1,,,,")
    found, notes = validate_bundle(written)
    assert found == []
    assert any(note.startswith("features without a stated background, taken as uniform (1): rash") for note in notes)


def test_the_models_of_the_worked_example_are_those_of_its_files(written: Path) -> None:
    bundle = load_bundle(written)
    one, zero = bundle_models(bundle, "flu")
    assert [exact(model).log_partition for model in (one, zero)] == pytest.approx([0.01886, 0.00805], abs=1e-5)
    kappas = [log_ratio(*bundle_models(bundle, name)) for name in bundle.entities]
    assert kappas[0] == pytest.approx(0.01080, abs=1e-5)
    values = [[1, 1, -1], [1, 1, np.nan], [np.nan, 0, np.nan], [np.nan] * 3]
    found = bundle.energies(values, "explicit")[:, 0]
    np.testing.assert_allclose(found, [3.84434, 2.13491, -0.69315, 0], atol=1e-5)
    given = bundle.energies(values, "explicit", kappas)
    np.testing.assert_allclose(given[:, 0], found - kappas[0])


def test_of_rivals_silence_is_evidence_in_the_worked_example(written: Path) -> None:
    bundle = load_bundle(written)
    for seen, lead, posterior in (
        ({"rash": 1, "iron": 1, "cells": -1}, 3.83888, 0.97894),
        ({"iron": 1}, None, 0.75182),
    ):
        planner = TopKPlanner(bundle, k=1, holds="one", solver=Solver(tolerance=1e-12, max_iterations=2000))
        planner.observe_all(seen)
        assert planner.posterior()[0] == pytest.approx(posterior, abs=1e-5)
        assert lead is None or planner.scores()[0, 1] == pytest.approx(lead, abs=1e-5)


def test_energies_of_the_papers_closures_are_those_of_the_contrast(bundle_tiny: Bundle) -> None:
    values = [[1, 0, -1, 1, 0], [-1, -1, 1, 0, 1]]
    expected = [[bundle_tiny.mrf(entity).energy(x) for entity in bundle_tiny.entities] for x in values]
    np.testing.assert_allclose(bundle_tiny.energies(values), expected)
    np.testing.assert_allclose(
        bundle_tiny.energies(values, "shared"), values @ bundle_tiny.unary.T + bundle_tiny.priors
    )


def test_where_a_side_cannot_occur_values_count_from_the_middle(written: Path) -> None:
    model = load_bundle(written).mrf("flu")
    assert model.centre is not None
    assert model.centre.tolist() == [0.5, 0, -0.5]
    assert model.energy([1, 1, -1]) == pytest.approx(0.5 + 1 + 0.5 + 0.5 * 0.5 * 1 - 0.4 * 1 * -0.5)
    one, zero = half_potentials(model)
    assert one.energy([0, 1, 0]) - zero.energy([0, 1, 0]) == pytest.approx(model.energy([0, 1, 0]))
    with pytest.raises(PlannerError, match="feature rash: found -1; expected 0 or 1"):
        load_bundle(written).energies([[-1, 0, 0]])
    with pytest.raises(BundleError, match="features that cannot be -1, or cannot be"):
        pack(load_bundle(written))


def test_a_coupling_of_both_classes_is_in_neither_contrast(written: Path) -> None:
    bundle = load_bundle(written)
    for closure in ("differential", "shared"):
        closed = closed_bundle(bundle, "flu", closure)
        one, zero = (closed.mrf(name).couplings.toarray() for name in closed.entities)
        np.testing.assert_allclose(one - zero, bundle.contrast("flu", closure).couplings.toarray(), atol=1e-12)
        assert (one - zero)[0, 1] == 0
    assert bundle.contrast("flu").couplings[1, 2] == -0.4
    assert bundle.contrast("flu", "shared").couplings.nnz == 0


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        (
            "unary.csv",
            "flu,iron,1,0.1,0.6,0.2,0.2",
            "flu,iron,1,0.5,0.6,0.2,0.2",
            "unary.csv, line 3, column p_high_with: found 0.5 low and 0.6 high; expected at most 1 together",
        ),
        (
            "unary.csv",
            "flu,rash,,,0.8",
            "flu,rash,,0.1,0.8",
            "unary.csv, line 2, column p_low_with: found 0.1, though it cannot be low; expected nothing or 0",
        ),
        (
            "unary.csv",
            "flu,iron,1,0.1,0.6,",
            "flu,iron,1,,0.6,",
            "unary.csv, line 3, column p_low_with: found nothing beside the other side's probability; expected both",
        ),
        ("unary.csv", "flu,iron,1,0.1", "flu,iron,1,1.5", "unary.csv, line 3, column p_low_with: found '1.5'"),
        ("unary.csv", "cold,rash,,,0.3", "cold,rash,,,", "unary.csv, line 5, column potential: found nothing"),
        (
            "features.csv",
            "0 no; 1 yes,,0.2",
            "0 no; 1 yes,,",
            "",
        ),
        (
            "features.csv",
            "cells,continuous,G/l,4,,,0.1,,\n",
            "",
            "unary.csv, line 4, column feature: found 'cells'; expected a name in features.csv",
        ),
        (
            "features.csv",
            "0.2,0.2,serum",
            "0.9,0.2,serum",
            "features.csv, line 3, column p_high: found 0.9 low and 0.2",
        ),
        ("pairwise.csv", "0.5,shared", "0.5,both", "pairwise.csv, line 2, column scope: found 'both'"),
        ("bundle.yaml", "one or none", "some", "bundle.yaml, key holds: found 'some'"),
        ("bundle.yaml", "encoding: ranges", "encoding: rows", "bundle.yaml, key encoding: found 'rows'"),
        ("bundle.yaml", "encoding: ranges", "probability_floor: 0.5", "bundle.yaml, key probability_floor: found 0.5"),
    ],
)
def test_what_does_not_go_together_is_refused(written: Path, file: str, old: str, new: str, expected: str) -> None:
    found = faults(written, file, old, new)
    assert bool(found) == bool(expected)
    assert not expected or any(fault.startswith(expected) for fault in found)


def test_one_class_without_the_other_needs_a_background(written: Path) -> None:
    faults(written, "features.csv", "0 no; 1 yes,,0.2,a rash", "0 no; 1 yes,,,a rash")
    found = faults(written, "unary.csv", "flu,rash,,,0.8,,0.2", "flu,rash,,,0.8,,")
    assert [fault.split(": ")[0] for fault in found] == [
        f"unary.csv, line {line}, column p_high_without" for line in (2, 5)
    ]
    assert "nothing beside the probabilities with the entity, of a feature without a background" in found[0]


def test_shares_of_0_and_1_and_directions_against_them_are_noted(written: Path) -> None:
    assert faults(written, "unary.csv", "flu,iron,1,0.1,0.6,0.2,0.2", "flu,iron,-1,0.1,0.6,0,1") == []
    notes = validate_bundle(written)[1]
    assert any("counts as the floor, 0.01, or what it leaves (1): flu iron" in note for note in notes)
    faults(written, "unary.csv", "flu,iron,-1,0.1,0.6,0,1", "flu,iron,-1,0.1,0.6,0.2,0.2")
    assert any("a potential against its probabilities (1): flu iron" in note for note in validate_bundle(written)[1])


def test_groups_are_read(written: Path) -> None:
    (written / "groups.csv").write_text("feature,measurement,exclusive\niron,blood,\ncells,blood,\n")
    (written / "costs.csv").write_text("feature,cost\nrash,1\nblood,6\n")
    bundle = load_bundle(written)
    assert bundle.rates is not None
    assert bundle.rates.measurements == (("blood", (1, 2)),)
    assert bundle.costs is not None
    assert bundle.costs.tolist() == [1, 3, 3]


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("groups.csv", "feature,measurement\niron,\n", "line 2, column measurement: found nothing"),
        ("groups.csv", "feature,measurement\niron,rash\n", "line 2, column measurement: found rash, the name of a"),
        (
            "groups.csv",
            "feature,exclusive\nrash,colour\niron,colour\n",
            "column exclusive: found iron in colour, which",
        ),
        ("groups.csv", "feature,exclusive\nrash,colour\n", "column exclusive: found colour, of one feature"),
        ("groups.csv", "feature,exclusive\nrush,colour\n", "line 2, column feature: found 'rush'"),
        ("costs.csv", "feature,cost\nrash,1\n", "costs.csv: found no cost for iron, cells"),
    ],
)
def test_groups_that_do_not_fit_are_refused(written: Path, file: str, text: str, expected: str) -> None:
    (written / file).write_text(text)
    assert expected in str(validate_bundle(written)[0][0])


def test_a_bundle_with_implications_is_refused_in_one_line_that_names_the_last_version_to_read_it(
    written: Path,
) -> None:
    (written / "implies.csv").write_text("feature,parent\nrash,iron\n")
    stamped = (written / "bundle.yaml").read_text() + f"digests: {{implies.csv: {'0' * 64}}}\n"
    (written / "bundle.yaml").write_text(stamped)
    (written / "unary.csv").write_text("of another\n")
    with pytest.raises(BundleError) as error:
        load_bundle(written)
    assert str(error.value) == (
        f"{written / 'implies.csv'}: found implications; expected a bundle without them. "
        "Next step: remove the file, or use afa 0.2 (commit cab3b14), the last version that reads it."
    )


def test_a_feature_that_excludes_others_has_no_coupling(written: Path) -> None:
    faults(written, "features.csv", "iron,continuous,umol/l,10,30,,0.2", "iron,binary,,,,,")
    faults(written, "unary.csv", "flu,iron,1,0.1,0.6,0.2,0.2", "flu,iron,1,,0.6,,0.2")
    (written / "groups.csv").write_text("feature,exclusive\nrash,colour\niron,colour\n")
    found = [str(fault) for fault in validate_bundle(written)[0]]
    assert len(found) == 2
    assert "a coupling of rash and iron, of which the exclusive group colour has one" in found[0]


def test_written_and_read_again_it_is_the_same_to_the_byte(written: Path, tmp_path: Path) -> None:
    (written / "groups.csv").write_text("feature,measurement,exclusive\niron,blood,\ncells,blood,\n")
    bundle = load_bundle(written)
    save_bundle(bundle, tmp_path / "one")
    again = load_bundle(tmp_path / "one")
    save_bundle(again, tmp_path / "two")
    assert again.digest == bundle.digest
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert {"features.csv", "groups.csv"} < set(names)
    assert [sha256_of(tmp_path / "one" / name) for name in names] == [
        sha256_of(tmp_path / "two" / name) for name in names
    ]
    assert (tmp_path / "one" / "unary.csv").read_text().splitlines()[:3] == [
        "entity,feature,potential,p_low_with,p_high_with,p_low_without,p_high_without,confidence,evidence",
        "flu,rash,,0,0.8,0,0.2,,",
        "flu,iron,1,0.1,0.6,0.2,0.2,,",
    ]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("unary.csv", "0.1,0.6", "0.1,0.7"),
        ("features.csv", "0.2,0.2,serum", "0.2,0.3,serum"),
        ("pairwise.csv", "shared", "condition"),
        ("bundle.yaml", "one or none", "one"),
    ],
)
def test_the_digest_depends_on_what_a_model_depends_on(written: Path, file: str, old: str, new: str) -> None:
    before = load_bundle(written).digest
    assert faults(written, file, old, new) == []
    assert load_bundle(written).digest != before


def test_restricted_it_says_the_same_of_what_is_left(written: Path) -> None:
    bundle = load_bundle(written)
    fewer = bundle.restrict(["cells", "iron"])
    for entity in bundle.entities:
        for part, whole in zip(fewer.how_often(entity)[:2], bundle.how_often(entity)[:2], strict=True):
            np.testing.assert_allclose(part, whole[[2, 1]])
        assert fewer.scoped(entity)[1].toarray()[0, 1] == bundle.scoped(entity)[1].toarray()[1, 2]
    turned = bundle.restrict_entities(["cold", "flu"])
    for entity in bundle.entities:
        np.testing.assert_allclose(turned.how_often(entity)[0], bundle.how_often(entity)[0])
        assert (turned.scoped(entity)[0] != bundle.scoped(entity)[0]).nnz == 0


def test_a_bundle_of_directions_alone_has_no_probabilities(bundle_tiny: Bundle) -> None:
    assert bundle_tiny.rates is None
    with pytest.raises(BundleError, match="found directions without probabilities; expected probabilities"):
        bundle_tiny.how_often("fistula")


def test_it_is_shown_with_ranges_and_probabilities(written: Path) -> None:
    (written / "groups.csv").write_text("feature,measurement,exclusive\niron,blood,\ncells,blood,\n")
    shown = CliRunner().invoke(app, ["bundle", "show", str(written)]).output
    assert "4 rows with probabilities, encoded by ranges, floor 0.01; holds: one or none" in shown
    assert "measurement blood: iron, cells" in shown
    assert shown.splitlines()[-2].split()[-2:] == ["3", "1"]
    rows = CliRunner().invoke(app, ["bundle", "show", "--features", str(written)]).output.splitlines()
    assert rows[-1].split() == ["cells", "0", "1", "0", "1", "-1", "0", "from", "4", "0.1", "0.0"]


def test_copying_keeps_it(written: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(written, tmp_path / "copied")
    assert CliRunner().invoke(app, ["bundle", "copy", str(copied), "--out", str(tmp_path / "out")]).exit_code == 0
    assert load_bundle(tmp_path / "out").digest == load_bundle(written).digest
