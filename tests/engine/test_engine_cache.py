"""The cache of compiled kernels: where it is, when it is thrown away, and what happens where there can be none."""

from __future__ import annotations

import errno
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numba
import numpy as np
import pytest

from afa.engine import compile as compiling


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty place for caches."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    compiling._usable_folder.cache_clear()
    yield tmp_path
    compiling._usable_folder.cache_clear()


def doubled(values: np.ndarray) -> float:
    """Twice the sum."""
    total = 0.0
    for value in values:
        total += 2.0 * value
    return total


def is_found() -> bool:
    """Whether a new process finds the kernel compiled; it must be right in any case."""
    compiling._usable_folder.cache_clear()
    kernel = compiling.kernel(entrance=True)(doubled)
    assert kernel(np.ones(3)) == 6.0
    return bool(sum(kernel.stats.cache_hits.values()))


def test_a_kernel_is_compiled_once_in_a_folder_of_the_place_that_the_user_names(place: Path) -> None:
    assert [is_found(), is_found()] == [False, True]
    (code,) = place.rglob("*.nbc")
    assert code.is_relative_to(compiling.cache_folder())
    assert compiling.cache_folder().parent == place / "afa"


def test_without_a_place_of_the_users_kernels_are_cached_where_the_system_has_its_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert compiling.cache_folder().parent == tmp_path / "caches" / "afa"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert compiling.cache_folder().parent == tmp_path / "me" / ".cache" / "afa"


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", ["emptied", "cut", "flipped", "removed"])
def test_a_folder_that_does_not_match_its_list_is_thrown_away_with_one_line(
    caplog: pytest.LogCaptureFixture, suffix: str, damage: str
) -> None:
    is_found()
    compiling.write_list()
    folder = compiling.cache_folder()
    (folder / "of_before").touch()
    (file,) = folder.rglob(f"*{suffix}")
    whole = file.read_bytes()
    flipped = whole[:-7] + bytes([whole[-7] ^ 255]) + whole[-6:]
    file.write_bytes({"emptied": b"", "cut": whole[:-7], "flipped": flipped, "removed": b""}[damage])
    os.utime(file, (1e9, 1e9))  # not newer than the list: no other process has compiled the kernel since
    if damage == "removed":
        file.unlink()
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert [is_found(), is_found()] == [False, True]
    (line,) = (line for line in caplog.messages if "compiling" not in line)
    assert line.startswith(f"afa: kernel cache {folder}: found files that are not those of its list; expected those of")
    assert not (folder / "of_before").exists()


def test_a_kernel_that_was_cached_after_the_list_was_written_is_found(caplog: pytest.LogCaptureFixture) -> None:
    compiling.write_list("planners")
    assert [is_found(), is_found()] == [False, True]
    assert compiling.compiled_groups() == ["planners"]
    compiling.write_list("all")
    assert compiling.compiled_groups() == ["planners", "all"]
    assert len(compiling.cached_files()) == 2


def test_a_kernel_that_another_process_compiled_after_the_list_was_written_is_no_damage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    is_found()
    compiling.write_list()
    listed = compiling.cache_folder() / compiling.LIST_FILE
    found = json.loads(listed.read_text())
    found["files"] = dict.fromkeys(found["files"], "0" * 64)  # two compilations of one kernel differ in bytes
    listed.write_text(json.dumps(found))
    os.utime(listed, (1e9, 1e9))
    with caplog.at_level(logging.WARNING):
        assert is_found()
    assert not [line for line in caplog.messages if "compiling" not in line]


@pytest.mark.parametrize("text", ["", "[]", '{"files": 3, "groups": {}}', '{"groups": {}}'])
def test_a_list_that_cannot_be_read_names_nothing(text: str) -> None:
    is_found()
    (compiling.cache_folder() / compiling.LIST_FILE).write_text(text)
    assert compiling.compiled_groups() == []
    assert is_found()


@pytest.mark.parametrize("because", ["a file", "no room", "no quota", "no home"])
def test_where_kernels_cannot_be_cached_one_line_says_so_and_they_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, because: str
) -> None:
    found = {"a file": "Not a directory", "no home": "no home folder"}.get(because, "too little room")
    if because == "a file":
        (tmp_path / "file").touch()
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    elif because == "no home":
        for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(Path, "home", _unknown)
    else:
        number = errno.ENOSPC if because == "no room" else errno.EDQUOT

        def refuse(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "posix_fallocate", refuse)
    with caplog.at_level(logging.WARNING):
        assert not is_found()
        kernel = compiling.kernel(entrance=True)(doubled)
        assert kernel(np.ones(4)) == 8.0
        compiling.write_list()
    (line,) = (line for line in caplog.messages if "compiling" not in line)
    assert line.startswith("afa: kernel cache")
    assert f"found {found}; expected a folder to write to" in line
    assert line.endswith("Next step: name one in NUMBA_CACHE_DIR.")
    assert not list(tmp_path.rglob("*.nbc"))


def _unknown() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_the_folder_is_named_by_installation_processor_version_and_every_file_that_kernels_depend_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def named(place: str) -> str:
        for folder in compiling.SOURCES:
            (tmp_path / place / folder).mkdir(parents=True, exist_ok=True)
        copied = shutil.copy(compiling.__file__, tmp_path / place / "engine")
        spec = importlib.util.spec_from_file_location("a_copy", copied)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name in ("_processor", "version"):
            monkeypatch.setattr(module, name, getattr(compiling, name))
        return module.cache_folder().name

    names = [named("one"), named("other")]
    assert named("one") == names[0]
    for folder in compiling.SOURCES:
        for text in ("x = 1\n", "x = 2\n"):
            (tmp_path / "one" / folder / "constants.py").write_text(text)
            names.append(named("one"))
    monkeypatch.setattr(compiling, "_processor", lambda: "another")
    names.append(named("one"))
    monkeypatch.setattr(compiling, "version", lambda _: "0.1")
    names.append(named("one"))
    assert len(set(names)) == len(names)


def test_the_settings_of_numba_are_left_as_they_are() -> None:
    before = numba.config.CACHE_DIR
    compiling.kernel(entrance=True)(doubled)
    assert before == numba.config.CACHE_DIR


PROGRAM = """
import sys, time
import numpy as np
from pathlib import Path
from afa.engine import compile as compiling

def total(values):
    found = 0.0
    for value in values:
        found += value
    return found

kernel = compiling.kernel(entrance=True)(total)
Path(sys.argv[1], sys.argv[2]).touch()
while len(list(Path(sys.argv[1]).iterdir())) < int(sys.argv[3]):
    time.sleep(0.01)
assert kernel(np.ones(2)) == 2.0
print(sum(kernel.stats.cache_misses.values()))
"""


def started(folder: Path, name: str, *, waits_for: int) -> subprocess.Popen[str]:
    """A process that compiles a kernel, or finds it, once so many have begun."""
    if not (folder / "program.py").exists():  # written again, a process that starts could find it empty
        (folder / "program.py").write_text(PROGRAM)
        (folder / "begun").mkdir()
    command = [sys.executable, folder / "program.py", folder / "begun", name, str(waits_for)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_one_line_on_stderr_says_that_kernels_are_compiled_and_none_where_they_are_found(tmp_path: Path) -> None:
    out, told = started(tmp_path, "first", waits_for=1).communicate()
    assert (out.strip(), told.strip()) == ("1", compiling.FIRST_MESSAGE)
    files = json.loads(next(tmp_path.rglob(compiling.LIST_FILE)).read_text())["files"]
    assert sorted(Path(name).suffix for name in files) == [".nbc", ".nbi"]
    out, told = started(tmp_path, "second", waits_for=1).communicate()
    assert (out.strip(), told) == ("0", "")


def test_processes_that_compile_at_once_are_all_right_and_leave_a_whole_cache(tmp_path: Path) -> None:
    processes = [started(tmp_path, str(n), waits_for=3) for n in range(3)]
    ended = [(process.communicate(), process.returncode) for process in processes]
    assert [code for _, code in ended] == [0, 0, 0], ended
    out, told = started(tmp_path, "last", waits_for=1).communicate()
    assert (out.strip(), told) == ("0", "")
