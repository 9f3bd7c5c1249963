"""The record: nothing that was written is lost or replaced, whoever writes, and what is no entry is named."""

from __future__ import annotations

import json
import os
import shutil
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from records import wordings

from afa.elicit.record import UNKNOWN, Entry, Messages, Question, Record, first_answer, request_key
from afa.errors import ElicitationError

ENTRY = Entry(
    question=Question("pairwise", {"phenotype": "Fibrosis", "gene1": "COL1A1", "gene2": "MUC2"}, "r1"),
    model="some-model",
    parameters={"temperature": 0.0, "seed": None, "most_tokens": 64, "structured": "json_schema"},
    prompt_digest="p" * 64,
    messages="m" * 64,
    outcome="answered",
    raw='{"lit_direction": "same"}',
    detail="",
    attempt=1,
    time="2026-03-01T12:00:00.000001+00:00",
    tokens=(100, 7),
    served_model="some-model-0301",
)


def _at(second: int, **changes: Any) -> Entry:
    return replace(ENTRY, time=f"2026-03-01T12:00:{second:02d}+00:00", **changes)


def _asked(number: int) -> Entry:
    return replace(ENTRY, question=Question("unary", {"phenotype": f"P{number}"}, "r1"))


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))


def test_an_entry_is_read_back_as_it_was_written(tmp_path):
    odd = replace(ENTRY, raw='{"a": "\x85\u2028\n\r\0 é 😀 {{"}', detail="β", tokens=UNKNOWN, parameters=UNKNOWN)
    for entry in (ENTRY, odd):
        Record(tmp_path).append(entry)
    assert sorted(Record(tmp_path).entries(), key=lambda entry: entry.detail) == [ENTRY, odd]
    assert first_answer(Record(tmp_path).attempts(ENTRY.key)) == ENTRY


def test_a_store_whose_folder_does_not_exist_is_empty_and_makes_none(tmp_path):
    store = Record(tmp_path / "new")
    assert list(store.entries()) == []
    assert first_answer(store.attempts(ENTRY.key)) is None
    assert not store.folder.exists()


def test_the_key_hangs_on_everything_that_an_answer_may_depend_on_and_on_nothing_else():
    others = [
        replace(ENTRY, question=replace(ENTRY.question, run="r2")),
        replace(ENTRY, question=replace(ENTRY.question, prompt="unary")),
        replace(ENTRY, question=replace(ENTRY.question, values={**ENTRY.question.values, "gene2": "TFF3"})),
        replace(ENTRY, model="other-model"),
        replace(ENTRY, parameters={**ENTRY.parameters, "seed": 1}),
        replace(ENTRY, prompt_digest="q" * 64),
        replace(ENTRY, messages="n" * 64),
    ]
    assert len({entry.key for entry in (ENTRY, *others)}) == 8
    same = replace(ENTRY, outcome="refused", raw="", detail="no", attempt=2, time=UNKNOWN, tokens=UNKNOWN)
    assert replace(same, served_model=UNKNOWN).key == ENTRY.key
    turned = dict(reversed(list(ENTRY.question.values.items())))
    assert replace(ENTRY, question=replace(ENTRY.question, values=turned)).key == ENTRY.key


def test_a_key_is_the_same_in_every_version_of_afa():
    key = request_key(Question("unary", {"phenotype": "Fibröse"}, "r1"), "m", {"seed": None}, "p", "w")
    assert key == "9386ceadf23cb2c9c571d84f26205536e6296574423a5a840dbd5fc80dd551be"


def test_later_answers_never_replace_the_first(tmp_path):
    store = Record(tmp_path)
    first, later = _at(1, outcome="answered", raw="first"), _at(2, raw="later")
    for entry in (_at(0, outcome="refused", raw=""), first, later):
        store.append(entry)
    assert first_answer(store.attempts(ENTRY.key)) == first
    assert first_answer(Record(tmp_path).attempts(ENTRY.key)) == first
    assert [entry.raw for entry in Record(tmp_path).attempts(ENTRY.key)] == ["", "first", "later"]


def test_a_running_store_and_one_that_reads_the_files_agree_though_the_clock_went_back(tmp_path):
    store = Record(tmp_path)
    for second in (5, 3, 4):
        store.append(_at(second, raw=str(second)))
    assert store.attempts(ENTRY.key) == Record(tmp_path).attempts(ENTRY.key)
    assert list(store.entries()) == list(Record(tmp_path).entries())


def test_files_only_ever_grow(tmp_path):
    store = Record(tmp_path)
    store.append(_at(1))
    (path,) = _files(tmp_path)
    before = path.read_bytes()
    store.append(_at(2))
    assert path.read_bytes().startswith(before)
    Record(tmp_path).append(_at(3))
    assert len(_files(tmp_path)) == 2


def test_a_torn_last_line_is_passed_over_and_left_as_it_is(tmp_path):
    store = Record(tmp_path)
    store.append(_at(1))
    store.append(_at(2, raw="é"))
    (path,) = _files(tmp_path)
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for end in (first + 1, first + 40, len(whole) - 2):
        path.write_bytes(whole[:end])
        torn = Record(tmp_path)
        assert [entry.time for entry in torn.entries()] == [_at(1).time]
        torn.append(_asked(end))
        assert path.read_bytes() == whole[:end]
        for other in set(_files(tmp_path)) - {path}:
            other.unlink()


def test_a_line_that_lacks_but_its_end_is_an_entry(tmp_path):
    Record(tmp_path).append(ENTRY)
    (path,) = _files(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    store = Record(tmp_path)
    assert list(store.entries()) == [ENTRY]


def test_zeros_at_the_end_after_a_loss_of_power_are_a_torn_line(tmp_path):
    Record(tmp_path).append(ENTRY)
    (path,) = _files(tmp_path)
    path.write_bytes(path.read_bytes() + b"\0" * 512)
    store = Record(tmp_path)
    assert list(store.entries()) == [ENTRY]


def test_after_a_failed_write_the_next_entry_goes_to_a_file_of_its_own(tmp_path, monkeypatch):
    store = Record(tmp_path)
    store.append(_at(1))
    (path,) = _files(tmp_path)

    def full(descriptor: int) -> None:
        os.truncate(descriptor, path.stat().st_size - 10)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            store.append(_at(2))
    store.append(_at(3))
    again = Record(tmp_path)
    assert [entry.time for entry in again.entries()] == [_at(1).time, _at(3).time]
    assert store.attempts(ENTRY.key) == again.attempts(ENTRY.key)


def _broken(line: bytes, **changes: Any) -> bytes:
    return json.dumps({**json.loads(line), **changes}).encode()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda line: line[:-5], "no JSON"),
        (lambda line: b"\xff" + line, "no JSON"),
        (lambda line: line.replace(b"same", b"s\xffme"), "no JSON"),
        (lambda line: b"[" * 100_000, "no JSON"),
        (lambda line: b"[1]", "no entry"),
        (lambda line: b"{}", "question: Field required"),
        (lambda line: _broken(line, remark=""), "remark: Unexpected"),
        (lambda line: _broken(line, outcome="perhaps"), "outcome"),
        (lambda line: _broken(line, attempt=0), "attempt"),
        (lambda line: _broken(line, attempt="1"), "attempt"),
        (lambda line: _broken(line, tokens=[1]), "tokens"),
        (lambda line: _broken(line, tokens=[-1, 1]), "tokens"),
        (lambda line: _broken(line, tokens="some"), "tokens"),
        (lambda line: _broken(line, raw=None), "raw"),
        (lambda line: _broken(line, time="yesterday"), "time"),
        (lambda line: _broken(line, parameters=3), "parameters"),
        (
            lambda line: _broken(line, question={"prompt": "unary", "values": {"k": 1}, "run": "r1"}),
            "question.values.k",
        ),
    ],
)
def test_a_faulty_line_is_named_with_its_file_and_number(tmp_path, change, why):
    store = Record(tmp_path)
    for second in (1, 2, 3):
        store.append(_at(second))
    (path,) = _files(tmp_path)
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], change(lines[1]), *lines[2:]]))
    with pytest.raises(ElicitationError) as raised:
        list(Record(tmp_path).entries())
    (fault,) = raised.value.faults
    assert fault.where == f"{path}, line 2"
    assert why in fault.found


def test_all_faulty_lines_are_named_at_once_and_no_entry_is_given(tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text("{}\n[]\n")
    with pytest.raises(ElicitationError) as raised:
        first_answer(Record(tmp_path).attempts(ENTRY.key))
    assert [fault.where.removeprefix(f"{tmp_path}/") for fault in raised.value.faults] == [
        "a.jsonl, line 1",
        "a.jsonl, line 2",
        "b.jsonl, line 1",
        "b.jsonl, line 2",
    ]


def test_a_store_with_a_faulty_line_takes_no_entry(tmp_path):
    (tmp_path / "a.jsonl").write_text("{}\n")
    with pytest.raises(ElicitationError):
        Record(tmp_path).append(ENTRY)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_what_cannot_be_read_is_named(tmp_path):
    (tmp_path / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(ElicitationError, match=r"folder\.jsonl: found Is a directory(.|\n)*pipe\.jsonl: found a pipe"):
        list(Record(tmp_path).entries())
    (tmp_path / "file").write_text("")
    with pytest.raises(ElicitationError, match="file: found a file; expected a folder"):
        list(Record(tmp_path / "file").entries())


def test_folders_of_two_people_merge_by_copying_their_files(tmp_path):
    one, other, both = (tmp_path / name for name in ("one", "other", "both"))
    mine, theirs = _at(2, raw="mine"), _at(1, raw="theirs")
    for folder, entries in ((one, (mine, _asked(1))), (other, (theirs, _asked(2)))):
        for entry in entries:
            Record(folder).append(entry)
    for folder in (one, other):
        shutil.copytree(folder, both, dirs_exist_ok=True)
    merged = Record(both)
    assert len(list(merged.entries())) == 4
    assert first_answer(merged.attempts(ENTRY.key)) == theirs
    turned = Record(tmp_path / "turned")
    for number, path in enumerate(reversed(_files(both))):
        turned.folder.mkdir(exist_ok=True)
        shutil.copy(path, turned.folder / f"{number}.jsonl")
    assert list(turned.entries()) == list(merged.entries())


def test_an_entry_that_was_copied_twice_counts_once(tmp_path):
    Record(tmp_path).append(ENTRY)
    (path,) = _files(tmp_path)
    shutil.copy(path, tmp_path / "copy.jsonl")
    assert Record(tmp_path).attempts(ENTRY.key) == [ENTRY]


def test_several_threads_write_to_one_store(tmp_path):
    store = Record(tmp_path)

    def write(start: int) -> None:
        for number in range(start, start + 10):
            store.append(_asked(number))

    threads = [threading.Thread(target=write, args=(start,)) for start in range(0, 80, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(store.entries())) == len(list(Record(tmp_path).entries())) == 80
    assert len(_files(tmp_path)) == 1


def test_entries_may_be_added_while_they_are_read(tmp_path):
    store = Record(tmp_path)
    for number in range(3):
        store.append(_asked(number))
    seen = 0
    for entry in store.entries():
        store.append(replace(entry, attempt=2, outcome="refused"))
        seen += 1
    assert seen == 3


def test_a_line_is_readable_json_with_every_field(tmp_path):
    Record(tmp_path).append(ENTRY)
    document = json.loads(_files(tmp_path)[0].read_text())
    fields = {name: value for name, value in asdict(ENTRY).items() if value != UNKNOWN}
    del fields["question"]["directions"]
    assert document == json.loads(json.dumps(fields))


MESSAGES = Messages("You read é.\n", "Disease: Crohn's disease\n")


def test_a_wording_is_found_by_the_digest_of_an_entry(tmp_path):
    Record(tmp_path).keep(MESSAGES)
    assert wordings(tmp_path)[MESSAGES.digest] == MESSAGES
    assert list(Record(tmp_path).entries()) == []


def test_a_text_of_many_wordings_is_written_once_whoever_keeps_it(tmp_path):
    system = "A long text. " * 100
    for turn in range(4):
        wordings = Record(tmp_path)
        wordings.keep(Messages(system, f"Turn {turn}\n"))
        wordings.keep(Messages(system, f"Turn {turn}\n"))
    written = "".join(path.read_text() for path in tmp_path.iterdir())
    assert written.count(json.dumps(system)) == 1
    assert written.count("\n") == 1 + 4 * 2


def test_a_torn_wording_is_kept_again(tmp_path):
    Record(tmp_path).keep(MESSAGES)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    Record(tmp_path).keep(MESSAGES)
    assert wordings(tmp_path)[MESSAGES.digest] == MESSAGES
