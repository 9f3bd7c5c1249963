"""Files and folders appear complete or not at all."""

from __future__ import annotations

import gzip
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pandas as pd
import pytest

from afa.cohort.cells import read_cells
from afa.errors import CohortError
from afa.io.csvfile import read_csv_table
from afa.io.files import LARGEST_UNPACKED, atomic_file, atomic_folder, read_unpacked, sha256_of

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


def test_a_packed_file_is_read_up_to_what_the_setting_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(b"a" * 1_000))
    monkeypatch.setenv(LARGEST_UNPACKED, "1e-6")
    assert read_unpacked(packed) == b"a" * 1_000
    packed.write_bytes(gzip.compress(b"a" * 1_001))
    with pytest.raises(OSError, match=LARGEST_UNPACKED):
        read_unpacked(packed)
    (fault,) = read_csv_table(packed, required=["a"]).faults.listed()
    assert str(fault).startswith(
        f"{packed}: found more than 1e-06 GB unpacked, the most that {LARGEST_UNPACKED} allows"
    )


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_a_table_of_more_cells_than_are_read_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("afa.io.csvfile.MOST_CELLS", 12)
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(end.join(["p,a,b", "x,0,1", "y,1,0", "z,0,0"]).encode()))
    assert list(read_csv_table(path, required=["p", "a", "b"]).columns["p"]) == ["x", "y", "z"]
    path.write_bytes(gzip.compress(end.join(["p,a,b", "x,0,1", "y,1,0", "z,0,0", "w,0,0"]).encode()))
    (fault,) = read_csv_table(path, required=["p", "a", "b"]).faults.listed()
    assert (fault.found, fault.expected) == ("5 lines of 3 fields", "at most 12 cells")


def test_a_parquet_table_of_more_cells_or_bytes_than_are_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.parquet"
    pd.DataFrame({"patient": ["p", "q"], "a": [0, 1]}).to_parquet(path, index=False)
    assert list(read_cells(path, "feature", ["a"]).columns["a"]) == ["0", "1"]
    monkeypatch.setenv(LARGEST_UNPACKED, "1e-9")
    with pytest.raises(CohortError, match=LARGEST_UNPACKED):
        read_cells(path, "feature", ["a"])
    monkeypatch.delenv(LARGEST_UNPACKED)
    monkeypatch.setattr("afa.cohort.cells.MOST_CELLS", 3)
    with pytest.raises(CohortError, match="2 patients x 2 columns; expected at most 3 cells"):
        read_cells(path, "feature", ["a"])
