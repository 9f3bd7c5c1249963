"""Fields: folders that nobody coded for become fields, and what is wrong with one is named."""

from __future__ import annotations

import gzip
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from afa.cohort.cohort import load_cohort
from afa.cohort.table_cohort import (
    Controls,
    build_table_cohort,
    encode_cohort,
    field_cohort,
    find_table,
    load_cohort_file,
    load_field,
    write_table_cohort,
)
from afa.elicit.consensus import pool_answers
from afa.errors import AfaError, CohortError, ConfigError
from afa.evaluate.entrants import read_entrant
from afa.evaluate.field import build_field_bundle, import_field, read_record
from afa.io.files import LARGEST_UNPACKED
from afa.model.bundle.read import entities_of
from afa.model.features import read_features
from afa.model.study import load_study

ROOT = Path(__file__).parents[2]
CARRIED, FETCHED = ("dermatology", "kidney", "pima"), ("diabetes_symptoms", "breast", "thyroid", "icu")
MIRROR = ROOT.parent / "shared" / "fields"
needs_mirror = pytest.mark.skipif(not MIRROR.is_dir(), reason="needs ../shared/fields")


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def pumps(tmp_path: Path) -> Path:
    """Two faults of a pump, of which any number may hold; some cells are missing."""
    return write(
        tmp_path / "given_pumps",
        {
            "dictionary.csv": "feature,kind,unit,values,definition\n"
            'pressure,continuous,bar,above 0,"Pressure, outlet."\nnoise,binary,none,"0 no, 1 yes",Noise.\n'
            "site_a,categorical-as-binary,none,0/1,Stands in A.\nsite_b,categorical-as-binary,none,0/1,Stands in B.\n",
            "entities.csv": "entity,definition\nleak,Leak.\nworn,Worn bearing.\n",
            "groups.csv": "feature,measurement\nsite_a,site\nsite_b,site\n",
            "elicited/cuts_ann.csv": "feature,low,high\npressure,2,6\nnoise,,0.5\n",
            "elicited/cuts_ben.csv": "feature,low,high\npressure,3,\nnoise,,0.5\n",
            "elicited/unary_ann.csv": "entity,feature,direction,p_high_with,p_high_without,p_low_with,p_low_without,"
            "confidence,reason\nleak,pressure,-1,0,0.1,0.8,0.1,0.9,it escapes\nworn,noise,1,0.9,0.2,0,0,0.8,friction\n",
            "values.csv": "pump,pressure,noise,site_a,site_b\n"
            + "".join(f"p{n},{n if n % 3 else ''},{n % 2},{int(n < 5)},{int(n >= 5)}\n" for n in range(9)),
            "labels.csv": "pump,leak,worn\n" + "".join(f"p{n},{int(n % 3 == 0)},{n % 2}\n" for n in range(9)),
            "SOURCE.md": "# pumps: what ails a pump\n\n- licence: CC0\n- citation: A. Smith: Pumps (2020).\n",
        },
    )


@pytest.fixture
def leaves(tmp_path: Path) -> Path:
    """One disease of a plant or none, a packed table, grades alone, pairs, nothing said of the source."""
    folder = write(
        tmp_path / "given_leaves",
        {
            "dictionary.csv": "feature,kind,unit,values,definition\nspots,ordinal,grade,0 none .. 3 many,Spots.\n"
            "wilt,ordinal,grade,0 none .. 3 all,Wilting.\n",
            "entities.csv": "entity,definition\nrust,Rust.\nblight,Blight.\n",
            "elicited/cuts_r1.csv": "feature,low,high\nspots,,0.5\nwilt,,1.5\n",
            "elicited/unary_r1.csv": "entity,feature,direction,p_high_with,p_high_without,p_low_with,p_low_without,"
            "confidence,reason\nrust,spots,1,0.9,0.2,0,0,1,x\nrust,wilt,0,0.2,0.2,0,0,0.5,x\n"
            "blight,spots,0,0.3,0.3,0,0,0.5,x\nblight,wilt,1,0.8,0.1,0,0,0.9,x\n",
            "elicited/pairs.csv": "entity,feature_a,feature_b,direction,scope,confidence,reason\n"
            "blight,spots,wilt,1,shared,0.4,age\n",
            "labels.csv": "plant,rust,blight\na,1,0\nb,0,1\nc,0,0\n",
        },
    )
    (folder / "values.csv.gz").write_bytes(gzip.compress(b"plant,spots,wilt\na,3,0\nb,0,2\nc,0,1\n"))
    return folder


def cohort_of(folder: Path, out: Path, entities: list[str], mirror: Path | None = None) -> pd.DataFrame:
    config = field_cohort(folder)
    files = find_table(config, mirror)
    build_table_cohort(config, files, encode_cohort(config, files), entities, out)
    return pd.read_parquet(out / "features.parquet").set_index("patient")


def test_a_made_up_field_keeps_what_was_given_and_says_what_was_seen(pumps: Path, tmp_path: Path) -> None:
    out = tmp_path / "pumps"
    remarks = import_field(pumps, out)
    made = "SOURCE.md entities.csv features.csv groups.csv labels.csv record study.yaml values.csv.gz"
    assert " ".join(path.name for path in sorted(out.iterdir())) == made
    features = read_features(out / "features.csv")
    assert features.kinds == ("continuous", "binary", "binary", "binary")
    assert (features.low[0], np.isnan(features.high[0])) == (2.5, True)  # one of two voters gives `high`: not more
    study, table = load_field(out)
    assert (study.name, study.title, study.holds, study.voters) == (
        "pumps",
        "What ails a pump",
        "several",
        ("ann", "ben"),
    )
    assert (table.licence, table.citation) == ("CC0", "A. Smith: Pumps (2020).")
    assert pd.read_csv(out / "groups.csv")["exclusive"].tolist() == [1, 1]
    assert remarks == [
        "voters gave probabilities for cut points of their own: pressure low 2 to 3",
        "no answer, taken as no shift: leak noise, leak site_a, leak site_b, worn pressure, worn site_a, ...",
        "the number of missing values alone predicts leak (AUROC 1.00): no method should use missingness as a feature",
    ]
    assert remarks[0] in (out / "SOURCE.md").read_text()
    cuts, unary, pairs = read_record(out).values()
    assert (cuts["voter"].tolist(), len(unary), len(pairs)) == (["ann", "ann", "ben", "ben"], 2, 0)
    assert pool_answers(unary, features)["feature"].tolist() == ["pressure", "noise"]
    again = tmp_path / "again" / "pumps"
    import_field(pumps, again)
    assert all(path.read_bytes() == (again / path.relative_to(out)).read_bytes() for path in out.rglob("*.*"))


def test_a_made_up_field_becomes_a_cohort_and_stages_refuse_its_gaps_in_one_line(pumps: Path, tmp_path: Path) -> None:
    import_field(pumps, tmp_path / "pumps")
    table = cohort_of(tmp_path / "pumps", tmp_path / "cohort", ["worn", "absent"])
    assert table["pressure"].isna().sum() == 3
    assert table.loc["p2"].tolist() == [-1, 0, 1, 0]
    card = yaml.safe_load((tmp_path / "cohort" / "cohort.yaml").read_text())
    assert card["missing"] == {"pressure": 3}
    assert card["labels"]["leak"] == {"unused": "the bundle has no such entity"}
    with pytest.raises(CohortError, match=r"patient p0, column pressure: found nothing, as in 3 cells") as stopped:
        load_cohort(tmp_path / "cohort")
    assert len(stopped.value.faults) == 1


def test_stages_take_the_patients_of_a_field_who_are_complete(pumps: Path, tmp_path: Path) -> None:
    import_field(pumps, tmp_path / "pumps")
    config = field_cohort(tmp_path / "pumps")
    files = find_table(config)
    encoded = encode_cohort(config, files)
    assert build_table_cohort(config, files, encoded, ["leak", "worn"], tmp_path / "cohort", complete=True) == 6
    cohort = load_cohort(tmp_path / "cohort")
    assert cohort.patients == ("p1", "p2", "p4", "p5", "p7", "p8")
    assert cohort.labels["worn"].tolist() == [1, 0, 0, 1, 1, 0]
    assert cohort.provenance["incomplete_patients_left_out"] == 3
    nobody = replace(encoded, values=encoded.values.mask(encoded.values.notna(), pd.NA))
    with pytest.raises(CohortError, match="a missing value in each of 9 patients"):
        build_table_cohort(config, files, nobody, ["leak"], tmp_path / "none", complete=True)


def test_controls_of_a_table_are_held_in_its_cohort_where_nothing_is_missing(pumps: Path, tmp_path: Path) -> None:
    import_field(pumps, tmp_path / "pumps")
    config = field_cohort(tmp_path / "pumps")
    config = config.model_copy(update={"controls": Controls(column="site_b", value="1"), "labels": None})
    files = find_table(config)
    encoded = encode_cohort(config, files)
    assert build_table_cohort(config, files, encoded, ["leak"], tmp_path / "cohort", complete=True) == 3
    cohort = load_cohort(tmp_path / "cohort")
    assert list(cohort.controls.index) == ["p5", "p7", "p8"]
    assert cohort.controls["pressure"].tolist() == [0, 0, 0]
    assert (cohort.provenance["controls"], cohort.provenance["controls_with_gaps"]) == (4, 1)


@pytest.mark.parametrize(("known", "held"), [(21, None), (20, "t")])
def test_a_cohort_says_how_its_controls_were_tested(known: int, held: str | None, tmp_path: Path) -> None:
    values = {"x": [float(n) if n < known else None for n in range(22)], "y": [1.0] * 3 + [None] * 19}
    table = pd.DataFrame({**values, "group": "healthy"}, index=pd.Index([f"c{n}" for n in range(22)], name="patient"))
    table.loc["ill"] = [50.0, 0.0, "ill"]
    table.to_csv(tmp_path / "table.csv")
    (tmp_path / "features.csv").write_text("feature,kind,unit,low,high\nx,continuous,,,\ny,continuous,,0.5,1.5\n")
    path, encoded = write_table_cohort(
        "mine", tmp_path, table=tmp_path / "table.csv", features=tmp_path / "features.csv", labels=None,
        controls=("group", "healthy"),
    )  # fmt: skip
    config = load_cohort_file(path)
    build_table_cohort(config, find_table(config), encoded, ["a"], tmp_path / "cohort")
    card = yaml.safe_load((tmp_path / "cohort" / "cohort.yaml").read_text())
    assert card["encoding"].get("test_of_controls") == held
    assert card["controls_with_gaps"] == 19


def test_a_made_up_field_has_a_bundle_of_its_answers(pumps: Path, leaves: Path, tmp_path: Path) -> None:
    import_field(pumps, tmp_path / "pumps")
    bundle = build_field_bundle(tmp_path / "pumps", tmp_path / "bundle")
    assert (bundle.name, bundle.entities) == ("pumps", ("leak", "worn"))
    assert bundle.features == ("pressure", "noise", "site_a", "site_b")
    assert bundle.unary.tolist() == [[-0.9, 0, 0, 0], [0, 0.8, 0, 0]]
    assert entities_of(tmp_path / "bundle") == entities_of(tmp_path / "pumps") == 2
    import_field(leaves, tmp_path / "leaves")
    bundle = build_field_bundle(tmp_path / "leaves", tmp_path / "bundle")
    assert bundle.unary.tolist() == [[1.0, 0], [0, 0.9]]
    assert bundle.packed.of(1)[2].tolist() == [0.4]
    assert bundle.provenance["voters"] == ["r1"]
    answers = tmp_path / "leaves" / "record" / "unary.csv"
    answers.write_text(answers.read_text().replace(",1,0.", ",0,0."))
    with pytest.raises(ConfigError, match="no direction in any answer"):
        build_field_bundle(tmp_path / "leaves", tmp_path / "again")


def test_another_made_up_field_is_complete_and_loads(leaves: Path, tmp_path: Path) -> None:
    assert import_field(leaves, tmp_path / "leaves", holds="one or none") == []
    assert load_field(tmp_path / "leaves")[0].holds == "one or none"
    cohort_of(tmp_path / "leaves", tmp_path / "cohort", ["rust", "blight"])
    cohort = load_cohort(tmp_path / "cohort")
    assert cohort.values.tolist() == [[1, 0], [0, 1], [0, 0]]
    assert cohort.labels["blight"].tolist() == [0, 1, 0]
    assert cohort.provenance["encoding"] == {"reference": "ranges"}


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("record/unary.csv", None, "record/unary.csv: found No such file"),
        ("record/cuts.csv", lambda _: b"", "record/cuts.csv: found no header"),
        ("record/pairs.csv", lambda data: data.replace(b",", b";"), "separated by ';'"),
        ("record/unary.csv", lambda data: data.replace(b",-1,", b",down,"), "column direction: found 'down'"),
        ("record/unary.csv", lambda data: data + b"\xe9", "bytes that are not UTF-8"),
    ],
)
def test_a_record_that_was_edited_wrongly_is_named(
    pumps: Path, tmp_path: Path, name: str, change: Callable[[bytes], bytes] | None, words: str
) -> None:
    import_field(pumps, tmp_path / "pumps")
    file = tmp_path / "pumps" / name
    data = file.read_bytes()
    file.unlink()
    if change is not None:
        file.write_bytes(change(data))
    with pytest.raises(CohortError, match=re.escape(words)):
        build_field_bundle(tmp_path / "pumps", tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_a_source_that_is_not_utf_8_is_named(pumps: Path, tmp_path: Path) -> None:
    (pumps / "SOURCE.md").write_bytes("# Pumps: für alle".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"SOURCE.md: found bytes that are not UTF-8"):
        import_field(pumps, tmp_path / "pumps")


def test_a_table_that_is_not_carried_is_known_by_its_digest(leaves: Path, tmp_path: Path) -> None:
    out = tmp_path / "leaves"
    import_field(leaves, out, address="https://example.org/leaves.csv")
    assert not (out / "values.csv.gz").exists()
    config = field_cohort(out)
    with pytest.raises(
        CohortError, match=r"fetch it from https://example.org/leaves.csv, or name a folder with leaves/"
    ):
        find_table(config)
    shutil.copytree(leaves, tmp_path / "mirror" / "leaves")
    assert find_table(config, tmp_path / "mirror").table == tmp_path / "mirror" / "leaves" / "values.csv.gz"
    (tmp_path / "mirror" / "leaves" / "values.csv.gz").write_bytes(gzip.compress(b"plant,spots,wilt\na,0,0\n"))
    (tmp_path / "mirror" / "leaves" / "labels.csv").unlink()
    with pytest.raises(CohortError, match="SHA-256") as stopped:
        find_table(config, tmp_path / "mirror")
    assert len(stopped.value.faults) == 2


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("dictionary.csv", "continuous", "number", ("dictionary.csv, line 2, column kind", "'number'")),
        ("entities.csv", "worn,", "leak,", ("entities.csv, line 3, column entity", "leak again")),
        (
            "groups.csv",
            "site_b,",
            "site_c,",
            ("groups.csv, column feature", "'site_c' (line 3)", "a name of dictionary.csv"),
        ),
        (
            "elicited/cuts_ann.csv",
            "noise,",
            "pressure,",
            ("cuts_ann.csv, column feature", "'pressure', as in line 2 (line 3)"),
        ),
        ("elicited/cuts_ann.csv", "2,6", "two,6", ("cuts_ann.csv, column low", "'two' (line 2)")),
        ("elicited/cuts_ann.csv", "2,6", "9,6", ("column low", "above high")),
        ("elicited/unary_ann.csv", "worn,", "torn,", ("column entity", "'torn' (line 3)", "did you mean worn")),
        ("elicited/unary_ann.csv", "-1,0,", "-0.5,0,", ("column direction", "-0.5", "-1, 0 or 1")),
        ("elicited/unary_ann.csv", "0.9,0.2,0,", "0.9,0.2,0.3,", ("1.2 high and low together", "at most 1")),
        ("elicited/unary_ann.csv", "0.8,friction", "80,friction", ("column confidence", "'80'", "[0, 1]")),
        ("values.csv", "noise,", "din,", ("no column for 1 of 4 features: noise",)),
        ("labels.csv", "p8,", "p9,", ("'p9' (line 10)", "table of values")),
        ("labels.csv", "worn", "torn", ("labels.csv", "the entities leak, worn")),
    ],
)
def test_what_is_wrong_with_a_folder_is_one_line_and_nothing_is_left(
    pumps: Path, tmp_path: Path, name: str, old: str, new: str, words: tuple[str, ...]
) -> None:
    text = (pumps / name).read_text()
    assert old in text
    (pumps / name).write_text(text.replace(old, new, 1))
    (pumps / "elicited" / "cuts_ben.csv").unlink()
    with pytest.raises(AfaError) as stopped:
        import_field(pumps, tmp_path / "pumps")
    assert len(stopped.value.faults) == 1, stopped.value
    assert [word for word in words if word not in str(stopped.value)] == [], stopped.value
    assert [path.name for path in tmp_path.iterdir()] == ["given_pumps"]


def test_a_folder_of_somebody_else_is_never_replaced(pumps: Path, tmp_path: Path) -> None:
    before = sorted(path.name for path in pumps.iterdir())
    with pytest.raises(ConfigError, match=r"a folder with other files: dictionary\.csv, elicited/cuts_\w+\.csv"):
        import_field(pumps, pumps)
    assert sorted(path.name for path in pumps.iterdir()) == before
    import_field(pumps, tmp_path / "pumps")
    import_field(pumps, tmp_path / "pumps")


def test_what_nobody_answered_is_said(pumps: Path, tmp_path: Path) -> None:
    (pumps / "elicited" / "cuts_ben.csv").unlink()
    cuts, labels = pumps / "elicited" / "cuts_ann.csv", pumps / "labels.csv"
    cuts.write_text("".join(line for line in cuts.open() if not line.startswith("pressure")))
    labels.write_text("".join(line for line in labels.open() if not line.startswith("p8")))
    unary = pumps / "elicited" / "unary_ann.csv"
    unary.write_text(unary.read_text().replace("leak,pressure,-1", "leak,pressure,1"))
    remarks = import_field(pumps, tmp_path / "pumps")
    assert "no cut point, so cut by the table itself: pressure" in remarks
    assert any(said.startswith("no answer, taken as no shift: leak noise, leak site_a") for said in remarks)
    assert "direction and probabilities say opposite things: leak pressure (ann)" in remarks
    assert "1 of 9 patients have no label: they are not scored" in remarks


def test_missing_parts_and_an_unfit_name_are_refused(pumps: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'My Pumps'"):
        import_field(pumps, tmp_path / "My Pumps")
    (pumps / "values.csv").unlink()
    shutil.rmtree(pumps / "elicited")
    with pytest.raises(CohortError) as stopped:
        import_field(pumps, tmp_path / "pumps")
    assert len(stopped.value.faults) == 3


@pytest.mark.parametrize("name", [*CARRIED, *FETCHED])
def test_a_field_of_the_project_is_sound_and_its_answers_pool(name: str) -> None:
    folder = ROOT / "resources" / "fields" / name
    table, features = load_field(folder)[1], read_features(folder / "features.csv")
    there = {path.name for path in folder.iterdir()} & {"values.csv.gz", "labels.csv"}
    assert (table.carried, len(there)) == ((True, 2) if name in CARRIED else (False, 0))
    unary = read_record(folder)["unary"]
    pooled = pool_answers(unary, features)
    assert len(pooled) == len(features) * len(pd.read_csv(folder / "entities.csv"))
    assert features.has_range.all()
    if name in CARRIED:
        config = field_cohort(folder)
        encoded = encode_cohort(config, find_table(config))
        assert tuple(encoded.values.columns) == features.names
        assert encoded.notes == []


@needs_mirror
@pytest.mark.parametrize("name", FETCHED)
def test_a_table_that_is_not_carried_is_found_in_a_mirror(name: str, tmp_path: Path) -> None:
    folder = ROOT / "resources" / "fields" / name
    entities = pd.read_csv(folder / "entities.csv")["entity"].tolist()
    table = cohort_of(folder, tmp_path / "cohort", entities, MIRROR)
    assert list(table.columns) == list(read_features(folder / "features.csv").names)
    assert len(table) == len(pd.read_csv(MIRROR / name / "labels.csv"))


@needs_mirror
@pytest.mark.parametrize("name", CARRIED)
def test_a_carried_field_is_what_its_command_makes_of_the_source(name: str, tmp_path: Path) -> None:
    folder = ROOT / "resources" / "fields" / name
    import_field(MIRROR / name, tmp_path / name, holds=load_field(folder)[0].holds)
    for path in sorted(folder.rglob("*.csv")):
        assert (tmp_path / name / path.relative_to(folder)).read_bytes() == path.read_bytes()
    with gzip.open(folder / "values.csv.gz") as packed:
        assert packed.read() == (MIRROR / name / "values.csv").read_bytes()


def test_a_cohort_file_of_a_table_names_its_wrong_keys(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "name: mine\ntitle: x\norigin: table\ntable: v.csv\nfeatures: f.csv\nencoding: {reference: controls}\n"
    )
    with pytest.raises(ConfigError, match="needs `controls`"):
        load_cohort_file(path)
    path.write_text("name: mine\ntitle: x\norigin: table\ntable: v.csv\nfeature: f.csv\n")
    with pytest.raises(ConfigError, match="rename it to features"):
        load_cohort_file(path)


def test_a_table_of_a_field_beyond_the_limit_of_the_project_is_refused_by_the_variables_name(
    leaves: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = b"plant,spots,wilt\na,3,0\n" + bytes(10_000_000)
    (leaves / "values.csv.gz").write_bytes(gzip.compress(bomb))
    monkeypatch.setenv(LARGEST_UNPACKED, "0.001")
    with pytest.raises(CohortError, match=LARGEST_UNPACKED):
        import_field(leaves, tmp_path / "leaves")


def test_a_field_needs_no_labels(pumps, tmp_path):
    (pumps / "labels.csv").unlink()
    remarks = import_field(pumps, tmp_path / "pumps")
    assert remarks[-1] == "no labels.csv: nothing will say how often an answer is right"
    assert not (tmp_path / "pumps" / "labels.csv").exists()
    bundle = build_field_bundle(tmp_path / "pumps", tmp_path / "bundle", how_often=True)
    config = field_cohort(tmp_path / "pumps")
    files = find_table(config)
    assert files.labels is None
    assert build_table_cohort(config, files, encode_cohort(config, files), bundle.entities, tmp_path / "cohort") == 9
    assert read_entrant(tmp_path / "pumps", None) == "no labels.csv, with which answers could be compared"


def test_a_column_of_diagnoses_is_turned_around_by_what_the_error_says(pumps, tmp_path):
    path = pumps / "labels.csv"
    path.write_text("pump,diagnosis\n" + "".join(f"p{n},{('leak', 'worn')[n % 2]}\n" for n in range(9)))
    with pytest.raises(CohortError, match=r"found the columns diagnosis; expected the entities leak, worn") as caught:
        import_field(pumps, tmp_path / "pumps")
    step = caught.value.faults[0].next_step
    assert "pandas.get_dummies(labels['diagnosis'], dtype=int)" in step
    labels = pd.read_csv(path, index_col=0)
    pd.get_dummies(labels["diagnosis"], dtype=int).to_csv(path)
    assert not any("no label" in remark for remark in import_field(pumps, tmp_path / "pumps"))


def named(folder: Path, column: str = "label") -> Path:
    """The field with a column of display names in the dictionary, one of them empty, and in the entities."""
    shown = {"feature": column, "pressure": "Outlet pressure", "noise": "", "site_a": "Site A", "site_b": "Site B"}
    shown |= {"entity": column, "leak": "Leaking housing", "worn": "Worn bearing"}
    for file in ("dictionary.csv", "entities.csv"):
        rows = [line.partition(",") for line in (folder / file).read_text().splitlines()]
        (folder / file).write_text("".join(f"{name},{shown[name]},{rest}\n" for name, _, rest in rows))
    return folder


DISPLAYED = {"pressure": "Outlet pressure", "site_a": "Site A", "site_b": "Site B"}
DISPLAYED |= {"leak": "Leaking housing", "worn": "Worn bearing"}


@pytest.mark.parametrize("column", ["display", "label", "name"])
def test_a_column_of_display_names_becomes_what_the_bundle_shows_and_changes_no_number(pumps, tmp_path, column):
    import_field(pumps, tmp_path / "plain" / "pumps")
    import_field(named(pumps, column), tmp_path / "pumps")
    read_features(tmp_path / "pumps/features.csv")  # what encodes a table ignores the column
    load_study(tmp_path / "pumps")
    assert pd.read_csv(tmp_path / "pumps/entities.csv").columns.tolist() == ["entity", "display", "definition"]
    bundle = build_field_bundle(tmp_path / "pumps", tmp_path / "bundle", how_often=True)
    assert bundle.display_names == DISPLAYED
    assert (bundle.shown("leak"), bundle.shown("noise")) == ("Leaking housing", "noise")
    plain = build_field_bundle(tmp_path / "plain" / "pumps", tmp_path / "without", how_often=True)
    assert (plain.digest, plain.display_names) == (bundle.digest, {})


@pytest.mark.parametrize(
    ("file", "old", "new", "where", "found"),
    [
        ("dictionary.csv", "Site B", "Site A", "dictionary.csv, line 5, column label", "'Site A', as in line 4"),
        ("dictionary.csv", "Site B", "noise", "dictionary.csv, line 5, column label", "noise, the name of another"),
        ("entities.csv", "Worn bearing", "Site A", "entities.csv, line 3, column label", "'Site A'"),
        ("dictionary.csv", "label,kind", "label,name", "dictionary.csv", "the columns label and name"),
    ],
)
def test_display_names_that_two_would_share_are_refused_by_line(pumps, tmp_path, file, old, new, where, found):
    path = named(pumps) / file
    text = path.read_text().replace(old, new, 1)
    if new == "label,name":
        text = "\n".join(f"{line},{'kind' if not at else 'binary'}" for at, line in enumerate(text.splitlines()))
    path.write_text(text)
    with pytest.raises(CohortError) as caught:
        import_field(pumps, tmp_path / "pumps")
    fault = caught.value.faults[0]
    assert (fault.where.removeprefix(f"{pumps}/"), fault.found) == (where, found)
