"""Archives made to write elsewhere, to fill memory or disk, or to keep a reader busy for ever."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from afa.cohort.archive import damage_of
from afa.cohort.expression import read_gene_matrix, read_sample_files
from afa.cohort.samples import read_family, read_series_matrix
from afa.errors import CohortError, ConfigError
from afa.io.files import LARGEST_UNPACKED

SOUND = gzip.compress(b"Gene\tGSM1\nMUC2\t1\n")
NAME = "GSM1_x.txt.gz"


def tar_of(*members: tarfile.TarInfo | bytes, form: int = tarfile.GNU_FORMAT) -> bytes:
    """Headers and contents in this order, without the checks of a writer."""
    blocks = [part.tobuf(form) if isinstance(part, tarfile.TarInfo) else padded(part) for part in members]
    return b"".join(blocks) + b"\0" * 1024


def padded(content: bytes) -> bytes:
    return content + b"\0" * (-len(content) % 512)


def header(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, link
    return info


def read(path: Path) -> object:
    return read_sample_files(path, ["GSM1"], {"MUC2"})


def refusal(path: Path) -> str:
    with pytest.raises(CohortError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def listing(folder: Path) -> Iterator[tuple[str, int]]:
    return ((str(path), path.lstat().st_size) for path in sorted(folder.rglob("*")))


@pytest.mark.parametrize(
    "name", [f"../../{NAME}", f"/tmp/{NAME}", f"a/../../../{NAME}", f"..\\{NAME}", f"./{NAME}", f"{'d' * 90}/{NAME}"]
)
def test_a_member_named_elsewhere_is_read_in_place_and_written_nowhere(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    (inside / "raw.tar").write_bytes(tar_of(header(name, len(SOUND)), SOUND))
    before = set(listing(tmp_path))
    if name.startswith("..\\"):
        assert "no file for 1 of 1 samples" in refusal(inside / "raw.tar")
    else:
        read(inside / "raw.tar")
    assert set(listing(tmp_path)) == before
    assert not Path("/tmp", NAME).exists()


@pytest.mark.parametrize(
    ("kind", "link"),
    [
        (tarfile.SYMTYPE, "../secret.txt.gz"),
        (tarfile.SYMTYPE, "/etc/passwd"),
        (tarfile.LNKTYPE, "../secret.txt.gz"),
        (tarfile.CHRTYPE, ""),
        (tarfile.BLKTYPE, ""),
        (tarfile.FIFOTYPE, ""),
        (tarfile.DIRTYPE, ""),
    ],
)
def test_links_and_devices_are_no_sample_files(tmp_path: Path, kind: bytes, link: str) -> None:
    (tmp_path / "secret.txt.gz").write_bytes(SOUND)
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "raw.tar"
    path.write_bytes(tar_of(header(NAME, kind=kind, link=link)))
    assert "no file for 1 of 1 samples" in refusal(path)


def test_a_hard_link_to_an_earlier_member_is_no_sample_file(tmp_path: Path) -> None:
    path = tmp_path / "raw.tar"
    link = header(NAME, kind=tarfile.LNKTYPE, link="other.txt.gz")
    path.write_bytes(tar_of(header("other.txt.gz", len(SOUND)), SOUND, link))
    assert "no file for 1 of 1 samples" in refusal(path)


def sized(size: int) -> bytes:
    """A header with a size in base 256 and a right checksum; at -512 the next header would be itself."""
    block = bytearray(header(NAME).tobuf(tarfile.GNU_FORMAT))
    block[124:136] = (b"\xff" if size < 0 else b"\x80") + size.to_bytes(11, "big", signed=True)
    block[148:156] = b" " * 8
    block[148:156] = f"{sum(block):06o}\0 ".encode()
    return bytes(block) + b"\0" * 1024


def pax(text: bytes, times: int = 1) -> bytes:
    extension = [header("pax", len(text), tarfile.XHDTYPE), text] * times
    return tar_of(*extension, header(NAME, len(SOUND)), SOUND)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (sized(-512), "a member of negative or impossible size"),
        (sized(1 << 80), "a member of negative or impossible size"),
        (pax(b"14 size=-1024\n"), "redefines a member's size"),
        (pax(b"24 GNU.sparse.major=1\n\n\n"), "redefines a member's size"),
        (pax(b"9" * 200_000), "an extended header without end"),
        (pax(b"11 path=aa\n", times=5000), "an extended header without end"),
        (tar_of(header(NAME, 0, tarfile.GNUTYPE_SPARSE)), "a file with holes"),
        (tar_of(header("x", 1 << 40, tarfile.GNUTYPE_LONGNAME)), "an extended header without end"),
    ],
    ids=["negative", "impossible", "pax size", "pax holes", "long pax", "many pax", "holes", "long name"],
)
def test_headers_that_lead_a_reader_in_circles_are_refused_at_once(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "raw.tar"
    path.write_bytes(content)
    begin = time.process_time()
    assert said in refusal(path)
    damage = damage_of(path)
    assert damage is not None
    assert said in damage.found
    assert time.process_time() - begin < 2


@pytest.mark.parametrize("name", ["raw.tar.gz", "raw.txt", "raw.tgz", "raw"])
def test_an_archive_of_another_name_or_kind_is_refused_in_our_words(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"Gene\tGSM1\n"))
    assert "not a tar archive" in refusal(path)


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gzip file of 4 MB that unpacks to 4 GB of zeros: one member of zeros, many times over."""
    path = tmp_path_factory.mktemp("bomb") / "bomb.gz"
    part = gzip.compress(bytes(1 << 26), mtime=0)
    path.write_bytes(part * 64)
    return path


READERS = {
    "gene_matrix": lambda path: read_gene_matrix(path, {"GSM1": "GSM1"}, {"MUC2"}),
    "series_matrix": read_series_matrix,
    "soft": read_family,
}
_CHILD = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from fuzz.test_hostile_archives import READERS
from afa.errors import AfaError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    READERS[sys.argv[1]](Path(sys.argv[2]))
except AfaError as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, error)
"""


def in_child(reader: str, path: Path, **environment: str) -> tuple[int, str]:
    """What a reader of its own process needed, in KB beyond what importing needs, and what it said."""
    command = [sys.executable, "-c", _CHILD, reader, str(path), str(Path(__file__).parent.parent)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout, "the bomb was read as a table"
    needed, _, said = done.stdout.partition(" ")
    return int(needed), said


@pytest.mark.parametrize("reader", READERS)
def test_a_gzip_file_that_unpacks_to_gigabytes_is_refused_in_little_memory_and_the_setting_is_named(
    bomb: Path, reader: str
) -> None:
    before = set(listing(bomb.parent))
    needed, said = in_child(reader, bomb, **{LARGEST_UNPACKED: "0.2"})
    assert needed < 400_000
    assert str(bomb) in said
    assert LARGEST_UNPACKED in said or f"{64 << 20} " in said
    assert set(listing(bomb.parent)) == before


def test_a_download_that_unpacks_to_more_than_the_setting_is_damaged_and_the_setting_is_named(
    bomb: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LARGEST_UNPACKED, "0.1")
    damage = damage_of(bomb)
    assert damage is not None
    assert damage.found == f"more than 0.1 GB unpacked, the most that {LARGEST_UNPACKED} allows"


@pytest.mark.slow
def test_the_default_limit_is_below_four_gigabytes(bomb: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LARGEST_UNPACKED, raising=False)
    damage = damage_of(bomb)
    assert damage is not None
    assert damage.found.startswith("more than 2 GB unpacked")


def test_a_larger_limit_lets_a_larger_file_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.txt.gz"
    path.write_bytes(gzip.compress(b"Gene\tGSM1\n" + b"MUC2\t1\n" * 1000))
    monkeypatch.setenv(LARGEST_UNPACKED, "0.000001")
    with pytest.raises(CohortError, match=LARGEST_UNPACKED):
        READERS["gene_matrix"](path)
    monkeypatch.setenv(LARGEST_UNPACKED, "0.0001")
    assert READERS["gene_matrix"](path).n_rows == 1000


def test_a_member_that_unpacks_to_gigabytes_is_refused_and_the_setting_is_named(
    bomb: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bomb.read_bytes()
    path = tmp_path / "raw.tar"
    path.write_bytes(tar_of(header(NAME, len(content)), content))
    monkeypatch.setenv(LARGEST_UNPACKED, "0.2")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert LARGEST_UNPACKED in refusal(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


@pytest.mark.parametrize("value", ["many", "-1", "0", "nan", "inf"])
def test_a_limit_that_is_no_size_is_refused_by_the_variables_name(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(SOUND)
    monkeypatch.setenv(LARGEST_UNPACKED, value)
    with pytest.raises(ConfigError, match=LARGEST_UNPACKED):
        READERS["gene_matrix"](path)


def test_an_endless_line_in_a_plain_file_is_not_held_in_memory_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    with path.open("wb") as stream:
        stream.write(b"Gene\tGSM1\nMUC2\t1\n")
        stream.truncate(1 << 30)  # a hole: zeros without a line's end, and no room on the disk
    needed, said = in_child("gene_matrix", path)
    assert needed < 600_000
    assert str(path) in said
