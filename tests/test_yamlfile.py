"""YAML files: what a file may hold, and how each fault is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from afa.errors import ConfigError
from afa.yamlfile import load_model, read_mapping


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    width: int = 1


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    inner: Inner | None = None


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settings.yaml"


def refusal(file: Path, text: str) -> str:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        read_mapping(file)
    return str(raised.value)


def test_a_mapping_is_read_with_its_types(file: Path) -> None:
    file.write_text("a: 1\nb: 0.5\nc: [x, true]\nd:\ne: {f: 2024-01-02}\n")
    assert read_mapping(file) | {"e": None} == {"a": 1, "b": 0.5, "c": ["x", True], "d": None, "e": None}


def test_a_key_given_twice_is_refused_by_its_line(file: Path) -> None:
    assert f"{file}, line 3: found key 'a' given twice" in refusal(file, "a: 1\nb: 2\na: 3\n")


def test_a_key_given_twice_inside_a_mapping_is_refused_too(file: Path) -> None:
    assert "line 3: found key 'x' given twice" in refusal(file, "outer:\n  x: 1\n  x: 1\n")


def test_a_list_as_key_is_refused(file: Path) -> None:
    assert "a key that is a list" in refusal(file, "? [a, b]\n: 1\n")


@pytest.mark.parametrize(
    ("text", "found"),
    [("", "an empty file"), ("# only a comment\n", "an empty file"), ("- a\n", "a list"), ("3", "a int")],
)
def test_what_is_not_a_mapping_is_refused_by_what_it_is(file: Path, text: str, found: str) -> None:
    assert f"{file}: found {found}; expected a mapping" in refusal(file, text)


def test_what_was_found_is_named_once(file: Path) -> None:
    file.write_text("a: @b\n")
    with pytest.raises(ConfigError, match="line 1: found character '@' that cannot start any token; expected"):
        read_mapping(file)


def test_text_that_is_not_yaml_is_refused_by_its_line(file: Path) -> None:
    assert f"{file}, line 2" in refusal(file, "a: 1\nb: ]\nc: 2\n")


def test_bytes_that_are_not_utf8_are_refused(file: Path) -> None:
    file.write_bytes(b"name: caf\xe9\n")
    with pytest.raises(ConfigError, match=r"bytes that are not UTF-8.*save it as UTF-8"):
        read_mapping(file)


def test_a_missing_file_is_refused_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nosuch\.yaml: found No such file"):
        read_mapping(tmp_path / "nosuch.yaml")


def test_a_folder_is_refused_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        read_mapping(tmp_path)


@pytest.mark.parametrize("word", ["yes", "no", "on", "off", "Yes", "NO", "y", "n"])
def test_yes_no_on_and_off_are_words(file: Path, word: str) -> None:
    file.write_text(f"{word}: {word}\n")
    assert read_mapping(file) == {word: word}


@pytest.mark.parametrize(("word", "value"), [("true", True), ("False", False), ("TRUE", True)])
def test_true_and_false_are_truth_values(file: Path, word: str, value: bool) -> None:
    file.write_text(f"a: {word}\n")
    assert read_mapping(file) == {"a": value}


def test_a_tag_that_would_run_code_is_refused(file: Path) -> None:
    assert "python/object" in refusal(file, "a: !!python/object/apply:os.getcwd []\n")


def test_the_faults_of_a_model_name_file_and_key(file: Path) -> None:
    file.write_text("inner: {widht: 2, width: wide}\n")
    with pytest.raises(ConfigError) as raised:
        load_model(file, Outer)
    first, second, third = sorted(map(str, raised.value.faults), key=lambda fault: fault.split("key ")[1])
    assert first.startswith(f"{file}, key inner.widht: found an unknown key")
    assert "rename it to width" in first
    assert f"{file}, key inner.width: found 'wide'" in second
    assert f"{file}, key name: found nothing; expected a value. Next step: add the key." in third


def test_a_value_of_another_kind_is_refused_by_what_it_should_be(file: Path) -> None:
    file.write_text("name: a\ninner: {width: wide}\n")
    with pytest.raises(ConfigError, match=r"key inner\.width: found 'wide'; expected a valid integer"):
        load_model(file, Outer)


def test_a_file_of_too_many_values_is_refused_where_they_become_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr("afa.yamlfile.MOST_NODES", 10)
    path = tmp_path / "long.yaml"
    path.write_text("".join(f"k{i}: {i}\n" for i in range(20)))
    with pytest.raises(ConfigError, match=r"line 5: found more than 10 values"):
        read_mapping(path)
