"""The files of a study that are read are those that it lists: rules name them as inputs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from afa.model.study import load_study, retrieves, study_files

FILES = {
    "study.yaml": "name: small\ndisease: a disease\n",
    "phenotypes.csv": "phenotype,group,definition\nfever,,\n",
    "entities.csv": "entity,definition\nfever,\n",
    "features.csv": "feature,kind,unit,values,definition\nA,continuous,,,\n",
    "dictionary.csv": "feature,kind,unit,values,definition\nB,continuous,,,\n",
    "aliases.csv": "feature,alias\nA,another\n",
    "keywords.csv": "kind,name,words\n",
    "notes.csv": "of no use\n",
}
opened: list[str] = []
sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)


@pytest.mark.parametrize(
    ("there", "read"),
    [
        (set(FILES), {"study.yaml", "phenotypes.csv", "features.csv", "aliases.csv"}),
        ({"study.yaml", "entities.csv", "dictionary.csv"}, {"study.yaml", "entities.csv", "dictionary.csv"}),
        ({"study.yaml", "phenotypes.csv"}, {"study.yaml", "phenotypes.csv"}),
    ],
)
def test_the_files_that_a_study_lists_are_those_that_are_opened_to_read_it(
    tmp_path: Path, there: set[str], read: set[str]
) -> None:
    for name in there:
        (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    opened.clear()
    load_study(tmp_path)
    assert {Path(path).name for path in opened if Path(path).parent == tmp_path} == read
    assert {path.name for path in study_files(tmp_path).values()} == read


def test_a_study_retrieves_where_it_asks_for_abstracts(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    assert not retrieves(tmp_path)
    study.write_text(FILES["study.yaml"], encoding="utf-8")
    assert not retrieves(tmp_path)
    study.write_text(FILES["study.yaml"] + "abstracts: 2\n", encoding="utf-8")
    assert retrieves(tmp_path)
