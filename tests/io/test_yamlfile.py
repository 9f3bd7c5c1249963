"""YAML files: what a file may hold, and how each fault is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from afa.errors import ConfigError
from afa.io.yamlfile import load_model, read_mapping


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
    [("", "an empty file"), ("# only a comment\n", "an empty file"), ("- a\n", "a list"), ("3", "a value alone")],
)
def test_what_is_not_a_mapping_is_refused_by_what_it_is(file: Path, text: str, found: str) -> None:
    assert f"{file}: found {found}; expected a mapping" in refusal(file, text)


@pytest.mark.parametrize(
    ("text", "line", "found", "step"),
    [
        ("a: 1\nb: @x\n", 2, "a text that begins with @, *, !, |", "put it in quotes"),
        ("a: *x\n", 1, "a text that begins with @, *, !, |", "put it in quotes"),
        ("a: !new 3\n", 1, "a text that begins with @, *, !, |", "put it in quotes"),
        ("a: |x\n  b\n", 1, "a text that begins with @, *, !, |", "put it in quotes"),
        ("a:\n\tb: 1\n", 2, "a tab", "replace the tab by blanks"),
        ("a: 1\nb: 'x\nc: 2\n", 2, "a quote that is not closed", "close the quote"),
        ("a: 'it's'\n", 1, "what does not go with", "in quotes, all of it"),
        ('a: "C:\\data"\n', 1, "a \\ in double quotes", "use single quotes"),
        ("a: [1, 2\nb: 3\n", 1, "a bracket that is not closed", "close it"),
        ("a: {b: 1\nc: 3\n", 1, "a bracket that is not closed", "close it"),
        ("a: b: c\n", 1, "what does not go with", "put a text with ': ' in quotes"),
        ("a: 1\n  b: 2\n", 2, "what does not go with the lines before it", "indent it"),
        ("a:\n  b: 1\n c: 2\n", 3, "what does not go with the lines before it", "indent it"),
        ("a: 1\n- b\n", 2, "what does not go with the lines before it", "indent it"),
        ("a: 1\nb: ]\nc: 2\n", 2, "what does not go with the lines before it", "indent it"),
        ("a: 1\nb\nc: 2\n", 2, "text without a key", "write it so"),
        ("a: 1\n---\nb: 2\n", 2, "a second document, after ---", "remove what follows ---"),
        ("a: 1\nb: \x07\n", 2, "the character '\\x07'", "remove it"),
    ],
)
def test_a_damaged_line_is_named_with_what_is_there_and_what_to_do(
    file: Path, text: str, line: int, found: str, step: str
) -> None:
    told = refusal(file, text)
    where, _, next_step = told.partition(" Next step: ")
    assert where.startswith(f"{file}, line {line}: found ")
    assert found in where
    assert step in next_step


def test_a_file_damaged_anywhere_is_named_in_one_line_without_the_words_of_a_parser(file: Path) -> None:
    whole = 'name: plants\nvoters: [a, b]\nmanner: {limit: 2}\nscope:\n  - "soil: wet"\n'
    words = (
        "block end",
        "token",
        "scalar",
        "simple key",
        "stream",
        "constructor",
        "found expected",
        "but found",
        "node",
    )
    refused = 0
    for put in ("'", '"', "[", "}", "\t", ": ", "\n- ", "@", "&", "!", "%", "\n x"):
        for place in range(0, len(whole), 3):
            try:
                file.write_text(whole[:place] + put + whole[place:], encoding="utf-8")
                read_mapping(file)
            except ConfigError as error:
                refused += 1
                told = str(error)
                assert told.startswith((f"{file}, line ", f"{file}: "))
                said = told.partition(" (")[0] + told.rpartition("); expected")[2]  # without the line itself
                assert "\n" not in told
                assert not [word for word in words if word in said], told
    assert refused > 50


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
    with pytest.raises(ConfigError, match=r"key inner\.width: found 'wide'; expected a whole number"):
        load_model(file, Outer)


def test_a_file_of_too_many_values_is_refused_where_they_become_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr("afa.io.yamlfile.MOST_NODES", 10)
    path = tmp_path / "long.yaml"
    path.write_text("".join(f"k{i}: {i}\n" for i in range(20)))
    with pytest.raises(ConfigError, match=r"line 5: found more than 10 values"):
        read_mapping(path)
