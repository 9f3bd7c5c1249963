"""One cache, several processes, a process that is killed, a disk that fails, and places that are taken."""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest
from cohort.http_server import Reply, Site, serve

from afa.cohort import download as module
from afa.cohort.download import download
from afa.errors import DownloadError

GZ = gzip.compress(bytes(range(256)) * 2000, mtime=0)
SHA = hashlib.sha256(GZ).hexdigest()
FILE = "/file.txt.gz"
HALF = 2 << 20
CHILD = """
import pathlib, signal, sys
from afa.cohort.download import download
from afa.errors import DownloadError
signal.signal(signal.SIGINT, signal.default_int_handler)
url, target = sys.argv[1], pathlib.Path(sys.argv[2])
try:
    download(url, target, retries=1, backoff=0.01)
except DownloadError as error:
    print(error)
print([path.name for path in target.parent.iterdir()])
"""

get = partial(download, retries=2, timeout=30.0, backoff=0.01)


@pytest.fixture
def target(tmp_path) -> Path:
    return tmp_path / "cache" / "file.txt.gz"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refusal(url: str, target: Path) -> str:
    with pytest.raises(DownloadError) as caught:
        get(url, target, retries=0)
    assert "Next step: " in str(caught.value)
    return str(caught.value)


def test_processes_that_fetch_one_file_at_once_all_get_it_whole(target):
    slow = Reply(GZ, wait=threading.Barrier(2), pause=0.005, piece=1 << 16)
    context = get_context("forkserver")
    context.set_forkserver_preload(["afa.cohort.download"])
    with serve({FILE: slow}) as site, context.Pool(2) as pool:
        call = partial(get, site.url + FILE, target, sha256=SHA)
        results = [pool.apply_async(call) for _ in range(2)]
        assert [result.get(60) for result in results] == [target] * 2
        assert len(site.requests) == 2
    assert target.read_bytes() == GZ
    assert names(target.parent) == [target.name]


def stopped_halfway(site: Site, target: Path, how: signal.Signals) -> None:
    """Begin a download in a process of its own, and stop that process when half of the file has come."""
    target.parent.mkdir()
    run = subprocess.Popen(
        [sys.executable, "-c", CHILD, site.url + FILE, str(target)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 30
        while sum(path.stat().st_size for path in target.parent.iterdir()) < HALF and time.monotonic() < until:
            time.sleep(0.01)
        run.send_signal(how)
        assert run.wait(20) != 0
    finally:
        run.kill()
        run.wait()


def half_served(hold: threading.Event) -> list[Reply]:
    return [Reply(b"x" * HALF, length=2 * HALF, hold=hold), Reply(GZ)]


def test_a_killed_download_leaves_nothing_that_counts_or_blocks_the_next(target):
    hold = threading.Event()
    with serve({FILE: half_served(hold)}) as site:
        stopped_halfway(site, target, signal.SIGKILL)
        hold.set()
        assert [name.startswith(".") for name in names(target.parent)] == [True]
        start = time.monotonic()
        get(site.url + FILE, target)
        assert time.monotonic() - start < 5.0
    assert target.read_bytes() == GZ
    assert names(target.parent) == [target.name], "what the killed process left is removed"


def test_an_interrupted_download_ends_at_once_and_leaves_nothing(target):
    hold = threading.Event()
    with serve({FILE: half_served(hold)}) as site:
        stopped_halfway(site, target, signal.SIGINT)
        hold.set()
    assert names(target.parent) == []


def test_a_process_that_sets_up_no_logging_still_says_on_standard_error_that_it_waits(target):
    with serve({FILE: [Reply(b"", 503, {"Retry-After": "0"}), Reply(GZ)]}) as site:
        child = [sys.executable, "-c", CHILD, site.url + FILE, str(target)]
        run = subprocess.run(child, capture_output=True, text=True, check=True)
    assert "the server asks for 0 seconds (Retry-After): trying again in 0 seconds (1 left)" in run.stderr
    assert run.stdout == "['file.txt.gz']\n"


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "No space left on device; expected room to write the file. Next step: free space on the disk"),
        (errno.EDQUOT, "Disk quota exceeded; expected room to write the file. Next step: free space on the disk"),
        (errno.EACCES, "Permission denied; expected a folder that can be read and written"),
        (errno.EROFS, "Read-only file system; expected a folder that can be read and written"),
        (errno.EIO, "Input/output error; expected a file that can be written in this place"),
    ],
)
def test_a_disk_that_fails_inside_the_file_is_named_at_once(target, monkeypatch, number, said):
    class Failing:
        def __init__(self, **_: object) -> None:
            pass

        def __call__(self, url, stream, _pooch) -> None:
            stream.write(b"half")
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(module.pooch, "HTTPDownloader", Failing)
    message = refusal("http://127.0.0.1:9/file.txt.gz", target)
    assert f"{target}: found {said}" in message
    assert "or choose another folder for the cache" in message
    assert names(target.parent) == []


def test_a_folder_in_the_files_place_is_named(target):
    target.mkdir(parents=True)
    assert f"{target}: found Is a directory" in refusal("http://127.0.0.1:9/file.txt.gz", target)


def test_a_file_in_the_folders_place_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    target = tmp_path / "file" / "a.gz"
    message = refusal("http://127.0.0.1:9/a.gz", target)
    assert f"{target}: found " in message
    assert "expected a file that can be written in this place" in message
