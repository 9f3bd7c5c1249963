from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from cohort.geo_layout import raw_tar
from cohort.http_server import Reply, Site, serve

from afa.cohort.download import check_intact, download
from afa.errors import DownloadError

TEXT = "".join(f"gene{i}\t{i * i}\n" for i in range(2000)).encode()
GZ = gzip.compress(TEXT, mtime=0)
SHA = hashlib.sha256(GZ).hexdigest()
PAGE = b"\n<!DOCTYPE html><html><body>Service temporarily unavailable</body></html>"

get = partial(download, retries=2, timeout=5.0, backoff=0.01)


@pytest.fixture
def target(tmp_path) -> Iterator[Path]:
    target = tmp_path / "cache" / "file.txt.gz"
    yield target
    left = [path.name for path in target.parent.glob("*") if path.name != target.name] if target.parent.exists() else []
    assert not left, "a temporary file was left behind"


def refusal(site: Site, target: Path, **keys) -> str:
    with pytest.raises(DownloadError) as caught:
        get(f"{site.url}/file.txt.gz", target, **keys)
    return str(caught.value)


def test_a_file_is_fetched_as_it_is(target):
    with serve({"/file.txt.gz": Reply(GZ)}) as site:
        assert get(f"{site.url}/file.txt.gz", target, sha256=SHA) == target
    assert target.read_bytes() == GZ


def test_a_gzip_file_announced_as_an_encoding_is_not_unpacked(target):
    reply = Reply(GZ, headers={"Content-Encoding": "x-gzip", "Content-Type": "text/plain"})
    with serve({"/file.txt.gz": reply}) as site:
        get(f"{site.url}/file.txt.gz", target, sha256=SHA)
    assert target.read_bytes() == GZ


def test_a_redirect_through_an_html_answer_is_followed(target):
    moved = Reply(PAGE, 302, {"Location": "/there.txt.gz", "Content-Type": "text/html"})
    with serve({"/file.txt.gz": moved, "/there.txt.gz": Reply(GZ)}) as site:
        get(f"{site.url}/file.txt.gz", target)
    assert target.read_bytes() == GZ


@pytest.mark.parametrize("sha256", [None, SHA])
def test_a_file_that_is_there_is_not_fetched_again(target, sha256):
    target.parent.mkdir()
    target.write_bytes(GZ)
    with serve({"/file.txt.gz": Reply(b"other")}) as site:
        get(f"{site.url}/file.txt.gz", target, sha256=sha256)
        assert site.requests == []


@pytest.mark.parametrize("damaged", [b"", GZ[:-20], PAGE])
def test_a_damaged_file_that_is_there_is_fetched_again_and_said_to_be(target, damaged, caplog):
    target.parent.mkdir()
    target.write_bytes(damaged)
    with serve({"/file.txt.gz": Reply(GZ)}) as site:
        get(f"{site.url}/file.txt.gz", target)
    assert target.read_bytes() == GZ
    assert f"{target}: found " in caplog.text
    assert "fetching it again" in caplog.text


def test_a_file_with_another_hash_is_fetched_again(target):
    target.parent.mkdir()
    target.write_bytes(b"old")
    with serve({"/file.txt.gz": Reply(GZ)}) as site:
        get(f"{site.url}/file.txt.gz", target, sha256=SHA)
    assert target.read_bytes() == GZ


def test_an_old_file_stays_when_the_new_one_is_refused(target):
    target.parent.mkdir()
    target.write_bytes(b"old")
    with serve({"/file.txt.gz": Reply(PAGE)}) as site:
        refusal(site, target, sha256=SHA)
    assert target.read_bytes() == b"old"


def test_a_missing_file_sends_the_reader_to_the_cohorts_config(target):
    with serve({}) as site:
        message = refusal(site, target)
    assert "HTTP status 404" in message
    assert "check the series and the file name in the cohort's config" in message


def test_a_host_that_refuses_is_named_with_the_next_step(target):
    with serve({}) as site:
        pass
    message = refusal(site, target)
    assert "no answer" in message
    assert "check the network" in message


def test_an_address_that_is_not_http_is_refused(target):
    with pytest.raises(DownloadError, match="not http or https"):
        get("nonsense", target)


def test_a_tar_is_fetched_whole_or_not_at_all(tmp_path):
    whole = raw_tar([("GSM1_a.txt.gz", GZ), ("GSM2_b.txt.gz", GZ)])
    cut = whole[: len(whole) // 2]
    with serve({"/x.tar": Reply(whole), "/cut.tar": Reply(cut)}) as site:
        assert get(f"{site.url}/x.tar", tmp_path / "x.tar").read_bytes() == whole
        with pytest.raises(DownloadError, match="breaks off"):
            get(f"{site.url}/cut.tar", tmp_path / "cut.tar")


def _tar_cut_between_members() -> bytes:
    member = 512 + -(-len(GZ) // 512) * 512
    return raw_tar([("GSM1_a.txt.gz", GZ), ("GSM2_b.txt.gz", GZ)])[:member]


def _tar_with_a_broken_header() -> bytes:
    whole = raw_tar([("GSM1_a.txt.gz", GZ), ("GSM2_b.txt.gz", GZ)])
    member = len(_tar_cut_between_members())
    return whole[:member] + b"\x07" * 512 + whole[member + 512 :]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt.gz", PAGE, "an HTML page"),
        ("a.txt.gz", GZ[: len(GZ) // 2], "a truncated gzip file"),
        ("a.txt.gz", TEXT, "bytes that are not gzip"),
        ("a.txt.gz", b"", "an empty file"),
        ("a.tsv", PAGE, "an HTML page"),
        ("a.tar", PAGE, "an HTML page"),
        ("a.tar", TEXT, "bytes that are not a tar archive"),
        ("a.tar", raw_tar([("GSM1_a.txt.gz", GZ)])[:700], "breaks off after member GSM1_a.txt.gz"),
        ("a.tar", _tar_cut_between_members(), "breaks off after member GSM1_a.txt.gz"),
        ("a.tar", _tar_with_a_broken_header(), "damaged after member GSM1_a.txt.gz"),
    ],
)
def test_a_damaged_file_of_a_mirror_is_named(tmp_path, name, content, said):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DownloadError) as caught:
        check_intact(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "fetch it again" in str(caught.value)


def test_a_missing_file_is_not_intact(tmp_path):
    with pytest.raises(DownloadError, match="No such file"):
        check_intact(tmp_path / "a.gz")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt.gz", GZ),
        ("two_members.gz", GZ + GZ),
        ("a.tsv", TEXT),
        ("a.tar", raw_tar([("GSM1_a.txt.gz", GZ)])),
    ],
)
def test_whole_files_are_intact(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    check_intact(path)
