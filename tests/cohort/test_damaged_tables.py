"""A plain table that somebody damaged: each fault is one clear line, and nothing is left behind."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from afa.cli.cohort import cohort_new, encode
from afa.errors import AfaError

LINE = re.compile(r".+: found .+; expected .+\. Next step: .+\.", re.DOTALL)
FEATURES = """\
feature,kind,unit,low,high,values,p_low,p_high,definition
age,continuous,years,,60,0 or more,,,Age.
sodium,continuous,mmol/l,135,145,,,,Serum sodium.
albumin,ordinal,grade,,0.5,"0 none, 4 most",,,Albumin in the urine.
oedema,binary,,,,"0 no, 1 yes",,,Swollen legs.
"""
VALUES = """\
patient,age,sodium,albumin,oedema
p1,48,141,1,0
p2,7,,0,0
p3,62,133.5,4,1
p4,51,138,,1
p5,60,146,0,0
"""
LABELS = "patient,kidney_disease,anaemia\np1,1,0\np2,0,\np3,1,1\np4,1,0\np5,0,0\n"
LIMIT = 2_000
"""Characters of a line that somebody still reads."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sound table with its features and labels."""
    for name, text in (("features.csv", FEATURES), ("values.csv", VALUES), ("labels.csv", LABELS)):
        (tmp_path / name).write_text(text)
    return tmp_path


def change(file: str, old: str, new: str) -> Callable[[Path], None]:
    """Replace a text that stands once in a file."""

    def damage(folder: Path) -> None:
        text = (folder / file).read_text()
        assert text.count(old) == 1, old
        (folder / file).write_text(text.replace(old, new))

    return damage


def lines(file: str, old: str, new: str) -> Callable[[Path], None]:
    """Replace a pattern wherever it stands in a file."""

    def damage(folder: Path) -> None:
        text, count = re.subn(old, new, (folder / file).read_text(), flags=re.MULTILINE)
        assert count
        (folder / file).write_text(text)

    return damage


def both(first: Callable[[Path], None], second: Callable[[Path], None]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        first(folder)
        second(folder)

    return damage


def raw(file: str, data: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / file).write_bytes(data) and None


def recoded(file: str, encoding: str) -> Callable[[Path], None]:
    return lambda folder: (folder / file).write_bytes((folder / file).read_text().encode(encoding)) and None


V, F, L = "values.csv", "features.csv", "labels.csv"
DAMAGE: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "semicolons": (lines(V, ",", ";"), ("columns separated by ';'", "save it with commas")),
    "tabs in a .csv": (lines(V, ",", "\t"), ("columns separated by '\\t'",)),
    "bars": (lines(V, ",", "|"), ("columns separated by '|'",)),
    "semicolons and decimal commas": (
        both(lines(V, ",", ";"), lines(V, r"\.", ",")),
        ("columns separated by",),
    ),
    "a quoted decimal comma": (change(V, "133.5", '"133,5"'), ("column sodium", "'133,5' (line 4)", "write 133.5")),
    "a bare decimal comma": (change(V, "133.5", "133,5"), ("line 4", "6 fields", "5, as in the header")),
    "decimal commas in every row": (
        lines(V, r"^(p\d),(\d+),", r"\1,\2,0,"),
        ("6 fields (lines 2, 3, 4, 5, 6)", "5, as in the header"),
    ),
    "a row of units": (
        change(V, "oedema\n", "oedema\n,years,mmol/l,grade,0/1\n"),
        ("column patient", "nothing (line 2)"),
    ),
    "a row of units with a name": (
        change(V, "oedema\n", "oedema\nunit,years,mmol/l,grade,yes/no\n"),
        ("line 2", "4 texts and no number, such as 'years' and 'mmol/l'", "features.csv"),
    ),
    "two files in one": (
        lambda f: (f / V).write_text(VALUES + VALUES.replace("p", "q")) and None,
        ("line 7", "second"),
    ),
    "a patient twice": (change(V, "p4,", "p2,"), ("column patient", "'p2' (lines 3, 5)", "each patient once")),
    "a patient without a name": (change(V, "p4,", ","), ("column patient", "nothing (line 5)", "name")),
    "a name with a space at its end": (change(V, "p4,", "p4 ,"), ("'p4 ' (line 5)",)),
    "a name with an invisible character": (change(V, "p4,", "p\u200b4,"), ("(line 5)", "invisible")),
    "a name of a thousand letters": (change(V, "p4,", "p" * 1000 + ","), ("(line 5)",)),
    "a word for missing": (change(V, "p2,7,,", "p2,7,NA,"), ("column sodium", "'NA' (line 3)", "leave it empty")),
    "a question mark": (change(V, "p2,7,,", "p2,7,?,"), ("'?' (line 3)",)),
    "nan": (change(V, "p2,7,,", "p2,7,nan,"), ("'nan' (line 3)",)),
    "infinite": (change(V, "133.5", "inf"), ("column sodium", "'inf' (line 4)", "a finite number, or nothing")),
    "beyond the largest number": (change(V, "133.5", "1e400"), ("'1e400' (line 4)",)),
    "a bound": (change(V, "133.5", "<135"), ("'<135' (line 4)", "without a unit or a bound")),
    "a unit in the cell": (change(V, "133.5", "133.5 mmol/l"), ("'133.5 mmol/l' (line 4)",)),
    "two numbers in a cell": (change(V, "133.5", "133/135"), ("'133/135' (line 4)",)),
    "a date in a cell": (change(V, "133.5", "01.05.2024"), ("'01.05.2024' (line 4)",)),
    "thousands with a comma": (change(V, "133.5", '"1,335"'), ("'1,335' (line 4)", "write 1335 or 1.335")),
    "thousands with a comma and decimals": (change(V, "133.5", '"1,335.5"'), ("'1,335.5' (line 4)", "write 1335.5:")),
    "an underscore in a number": (change(V, "133.5", "1_335"), ("'1_335' (line 4)",)),
    "digits of another script": (change(V, "133.5", "١٣٣"), ("(line 4)", "a finite number")),
    "a spreadsheet's fault": (change(V, "133.5", "#DIV/0!"), ("'#DIV/0!' (line 4)",)),
    "a formula": (change(V, "133.5", "=B2+1"), ("'=B2+1' (line 4)",)),
    "words for yes and no": (lines(V, r",([01])$", ",yes"), ("column oedema", "'yes' (lines 2, 3, 4, 5, 6)")),
    "a binary finding of 2": (change(V, "133.5,4,1", "133.5,4,2"), ("column oedema", "'2' (line 4)", "0 or 1")),
    "a binary finding of -1": (change(V, "133.5,4,1", "133.5,4,-1"), ("column oedema", "'-1' (line 4)")),
    "a binary finding of a half": (change(V, "133.5,4,1", "133.5,4,0.5"), ("'0.5' (line 4)",)),
    "mixed types": (lines(V, r"^p1,48", "p1,forty-eight"), ("column age", "'forty-eight' (line 2)")),
    "a column missing": (lines(V, r",[^,]*$", ""), ("no column for 1 of 4 features: oedema",)),
    "a column under another name": (change(V, "sodium", "Sodium"), ("features: sodium", "did you mean Sodium")),
    "a column twice": (change(V, "sodium", "age"), ("column age", "2 columns of this name")),
    "a column without a name": (change(V, "sodium", ""), ("features: sodium",)),
    "no names of patients": (lines(V, r"^\w+,", ""), ("a first column 'age', which is a feature",)),
    "no header": (lines(V, r"\Apatient.*\n", ""), ("no column for 4 of 4 features",)),
    "names of features in rows": (
        lambda f: pd.read_csv(f / V, header=None).T.to_csv(f / V, index=False, header=False),
        ("no column for 4 of 4 features",),
    ),
    "one column": (raw(V, b"patient\np1\n"), ("one column, 'patient'", "several columns")),
    "an empty file": (raw(V, b""), ("no header", "a header row")),
    "a header alone": (raw(V, VALUES.partition("\n")[0].encode()), ("no row", "add the patients")),
    "blank lines alone": (raw(V, b"\n\n\n"), ("no header",)),
    "a row cut short": (raw(V, VALUES.rstrip()[:-4].encode()), ("line 6", "3 fields", "may have been cut short")),
    "a row too long": (change(V, "133.5,4,1", "133.5,4,1,"), ("line 4", "6 fields")),
    "an open quote": (change(V, "p3,", '"p3,'), ("line 4", "text that is not CSV", "quotes")),
    "a NUL": (change(V, "133.5", "133\x00.5"), ("binary data", "save it as CSV in UTF-8")),
    "UTF-16": (recoded(V, "utf-16"), ("binary data",)),
    "Latin-1": (
        raw(V, VALUES.replace("p3", "Jörg").encode("latin-1")),
        ("line 4", "bytes that are not UTF-8", "save it as UTF-8"),
    ),
    "a spreadsheet named .csv": (raw(V, b"PK\x03\x04\x14\x00\x06\x00"), ("binary data",)),
    "no file": (lambda f: (f / V).unlink(), ("No such file", "check the path")),
    "a folder": (both(lambda f: (f / V).unlink(), lambda f: (f / V).mkdir()), ("Is a directory",)),
    "features: no file": (lambda f: (f / F).unlink(), ("features.csv", "No such file")),
    "features: empty": (raw(F, b""), ("features.csv", "no header")),
    "features: a kind that is none": (change(F, "ordinal", "grade"), ("line 4, column kind", "'grade'")),
    "features: cut points exchanged": (change(F, "135,145", "145,135"), ("line 3, column low", "145, above high")),
    "features: a cut point in words": (change(F, "135,145", "low,145"), ("column low", "'low'")),
    "features: a feature twice": (change(F, "sodium,", "age,"), ("line 3, column feature", "'age', as in line 2")),
    "features: a comma without quotes": (change(F, '"0 none, 4 most"', "0 none, 4 most"), ("line 4", "10 fields")),
    "features: no column of kinds": (lines(F, r"^(\w+),\w+,", r"\1,"), ("column kind", "no such column")),
    "labels: of unknown patients": (change(L, "p4,", "p9,"), ("column patient", "'p9' (line 5)", "table of values")),
    "labels: a patient twice": (change(L, "p4,", "p2,"), ("labels.csv, column patient", "'p2' (lines 3, 5)")),
    "labels: words": (lines(L, r"^(p\d),1", r"\1,yes"), ("column kidney_disease", "'yes' (lines 2, 4, 5)")),
    "labels: a grade": (change(L, "p3,1,1", "p3,3,1"), ("column kidney_disease", "'3' (line 4)", "0, 1 or nothing")),
    "labels: no file": (lambda f: (f / L).unlink(), ("key labels", "no such file")),
    "labels: empty": (raw(L, b""), ("labels.csv", "no")),
    "labels: an entity twice": (change(L, "anaemia", "kidney_disease"), ("2 columns of this name",)),
}


def seen(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def new_cohort(folder: Path) -> None:
    cohort_new("mine", folder / "cohorts", table=folder / V, features=folder / F, labels=folder / L, controls=None)


def test_there_are_sixty_and_the_sound_table_passes(folder: Path) -> None:
    assert len(DAMAGE) >= 60
    encode(folder / V, folder / F, folder / "out.csv")
    assert (folder / "out.csv").read_text().splitlines()[1:4] == ["p1,0,0,1,0", "p2,0,,0,0", "p3,1,-1,1,1"]
    new_cohort(folder)
    assert [path.name for path in (folder / "cohorts").iterdir()] == ["mine.yaml"]


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_table_gets_one_line_and_leaves_nothing_behind(folder: Path, name: str) -> None:
    damage, words = DAMAGE[name]
    damage(folder)
    before = seen(folder)
    with pytest.raises(AfaError) as stopped:
        new_cohort(folder)
    if not name.startswith("labels"):
        with pytest.raises(AfaError) as again:
            encode(folder / V, folder / F, folder / "out.csv")
        if "no file" not in name and "a folder" not in name:
            assert str(again.value) == str(stopped.value)
        else:
            stopped = again
    told = str(stopped.value)
    assert len(stopped.value.faults) == 1, told
    assert "\n" not in told
    assert LINE.fullmatch(told), told
    assert len(told) < LIMIT
    assert [word for word in words if word not in told] == [], told
    assert seen(folder) == before
    assert not (folder / "cohorts").exists()


@pytest.mark.parametrize(
    "harmless",
    [
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: text.replace(b"\n", b"\r"),
        lambda text: text.rstrip(b"\n"),
        lambda text: text + b"\n\n",
        lambda text: text.replace(b"62", b" 62"),
        lambda text: text.replace(b"62", b"6.2e1"),
        lambda text: text.replace(b"p2,7,,0", b'"p2","7","","0"'),
    ],
)
def test_what_harms_nobody_is_read_as_it_is_meant(folder: Path, harmless: Callable[[bytes], bytes]) -> None:
    encode(folder / V, folder / F, folder / "first.csv")
    (folder / V).write_bytes(harmless((folder / V).read_bytes()))
    encode(folder / V, folder / F, folder / "second.csv")
    assert (folder / "second.csv").read_bytes() == (folder / "first.csv").read_bytes()


def test_all_faults_are_named_at_once(folder: Path) -> None:
    change(V, "133.5,4,1", "low,4,2")(folder)
    change(V, "albumin", "albumen")(folder)
    with pytest.raises(AfaError) as stopped:
        encode(folder / V, folder / F, folder / "out.csv")
    places = [fault.where.rpartition("/")[2] for fault in stopped.value.faults]
    assert places == ["values.csv", "values.csv, column sodium", "values.csv, column oedema"]


@pytest.mark.parametrize("name", ["values.xlsx", "values.csv.gz", "values.parquet"])
def test_a_file_that_is_not_what_its_ending_says_is_one_line(folder: Path, name: str) -> None:
    (folder / name).write_bytes(gzip.compress(VALUES.encode())[:40])
    with pytest.raises(AfaError) as stopped:
        encode(folder / name, folder / F, folder / "out.csv")
    assert len(stopped.value.faults) == 1
    assert not (folder / "out.csv").exists()


@pytest.mark.slow
def test_a_million_rows_are_encoded_and_a_million_faults_are_one_line(folder: Path) -> None:
    row = "{},48,141,1,0\n"
    with (folder / V).open("w") as stream:
        stream.write(VALUES.partition("\n")[0] + "\n")
        stream.writelines(row.format(number) for number in range(1_000_000))
    encode(folder / V, folder / F, folder / "out.parquet")
    assert len(pd.read_parquet(folder / "out.parquet")) == 1_000_000
    (folder / V).write_text((folder / V).read_text().replace(",141,", ",none,"))
    with pytest.raises(AfaError) as stopped:
        encode(folder / V, folder / F, folder / "second.csv")
    assert len(stopped.value.faults) == 1
    assert "'none' (lines 2, 3," in str(stopped.value)
    assert "and 999,980 more" in str(stopped.value)
    assert not (folder / "second.csv").exists()


@pytest.mark.parametrize("name", ["values.gct", "values.gct.gz", "values.csv", "values.tsv"])
def test_a_table_of_genes_in_rows_says_how_to_turn_it(folder: Path, name: str) -> None:
    content = b"#1.2\n2\t2\nName\tDescription\tp1\tp2\nage\tyears\t48\t7\nsodium\tmmol\t141\t140\n"
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(AfaError, match=r"a row for each gene; expected a row for each patient.*turn rows and columns"):
        encode(path, features=folder / "features.csv", out=folder / "out.csv")
    assert not (folder / "out.csv").exists()
