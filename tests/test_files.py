"""Files and folders appear complete or not at all."""

from __future__ import annotations

import gzip
import os
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from afa.files import LARGEST_UNPACKED, atomic_file, atomic_folder, read_unpacked, sha256_of

Writer = Callable[[Path], AbstractContextManager[Path]]


@pytest.fixture(params=[0o022, 0o077, 0o002], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def fill(temporary: Path) -> None:
    (temporary / "part.txt" if temporary.is_dir() else temporary).write_text("half")


def stop_halfway(writer: Writer, target: Path, error: type[BaseException] = KeyboardInterrupt) -> None:
    with writer(target) as temporary:
        fill(temporary)
        raise error


BOTH = pytest.mark.parametrize("writer", [atomic_file, atomic_folder])


@BOTH
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_nothing_behind(tmp_path: Path, writer: Writer, error: type[BaseException]) -> None:
    with pytest.raises(error):
        stop_halfway(writer, tmp_path / "target", error)
    assert list(tmp_path.iterdir()) == []


@BOTH
def test_nothing_is_at_the_target_until_it_is_complete(tmp_path: Path, writer: Writer) -> None:
    with writer(tmp_path / "target") as temporary:
        fill(temporary)
        assert not (tmp_path / "target").exists()
        assert temporary.parent == tmp_path
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_an_error_leaves_the_earlier_file_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    target.write_text("earlier")
    with pytest.raises(KeyboardInterrupt):
        stop_halfway(atomic_file, target)
    assert target.read_text() == "earlier"


def test_an_error_leaves_the_earlier_folder_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "tables"
    target.mkdir()
    (target / "earlier.txt").write_text("earlier")
    with pytest.raises(KeyboardInterrupt):
        stop_halfway(lambda path: atomic_folder(path, ["earlier.txt"]), target)
    assert [path.name for path in target.iterdir()] == ["earlier.txt"]


def test_success_replaces_the_earlier_folder_whole(tmp_path: Path) -> None:
    target = tmp_path / "tables"
    target.mkdir()
    (target / "earlier.txt").write_text("earlier")
    with atomic_folder(target, ["*.txt"]) as temporary:
        fill(temporary)
    assert [path.name for path in target.iterdir()] == ["part.txt"]


def test_a_file_has_the_permissions_that_the_umask_leaves(tmp_path: Path, umask: int) -> None:
    with atomic_file(tmp_path / "file") as temporary:
        fill(temporary)
    assert mode(tmp_path / "file") == 0o666 & ~umask


def test_a_folder_has_the_permissions_that_the_umask_leaves(tmp_path: Path, umask: int) -> None:
    with atomic_folder(tmp_path / "folder") as temporary:
        fill(temporary)
    assert mode(tmp_path / "folder") == 0o777 & ~umask
    assert mode(tmp_path / "folder" / "part.txt") == 0o666 & ~umask


@BOTH
def test_folders_on_the_way_are_made(tmp_path: Path, writer: Writer) -> None:
    with writer(tmp_path / "a" / "b" / "target") as temporary:
        fill(temporary)
    assert (tmp_path / "a" / "b" / "target").exists()


def test_the_temporary_file_keeps_the_suffix_that_writers_look_at(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "figure.svg") as temporary:
        assert temporary.suffix == ".svg"


def test_the_digest_is_that_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert sha256_of(tmp_path / "file") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz"])
def test_a_file_is_read_up_to_the_limit_of_the_project_and_one_beyond_it_is_refused_by_the_variables_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    content = b"a,b\n" * 250
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    monkeypatch.setenv(LARGEST_UNPACKED, "1e-6")
    assert read_unpacked(tmp_path / name) == content
    monkeypatch.setenv(LARGEST_UNPACKED, "0.999e-6")
    with pytest.raises(OSError) as told:  # noqa: PT011 (its words are compared below)
        read_unpacked(tmp_path / name)
    assert LARGEST_UNPACKED in str(told.value.strerror)


def test_a_small_file_that_unpacks_to_gigabytes_is_not_unpacked_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bomb.csv.gz").write_bytes(gzip.compress(bytes(1 << 26)) * 64)  # 4 GB
    monkeypatch.setenv(LARGEST_UNPACKED, "0.1")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(OSError, match=r"more than 0\.1 GB unpacked"):
        read_unpacked(tmp_path / "bomb.csv.gz")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000
