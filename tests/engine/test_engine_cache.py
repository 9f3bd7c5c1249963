"""The cache of compiled kernels: what was damaged in it is compiled again, and never run."""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from afa.engine import compile as compiling
from afa.engine import kept


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(compiling, "CACHE_FOLDER", str(tmp_path))
    monkeypatch.setattr(kept._CheckedFiles, "complained", False)
    return tmp_path


def doubled(values: np.ndarray) -> float:
    """Twice the sum."""
    total = 0.0
    for value in values:
        total += 2.0 * value
    return total


def from_cache() -> bool:
    """Whether a new process would find the kernel compiled; it must be right in any case."""
    kernel = compiling.kernel(entrance=True)(doubled)
    assert kernel(np.ones(3)) == 6.0
    return bool(sum(kernel.stats.cache_hits.values()))


def test_a_kernel_is_compiled_once(folder: Path) -> None:
    assert [from_cache(), from_cache()] == [False, True]
    assert len(list(folder.rglob("*.nbc"))) == 1


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", ["emptied", "cut", "flipped", "of another kernel"])
def test_what_was_damaged_is_compiled_again_with_one_line_that_names_the_cache(
    folder: Path, caplog: pytest.LogCaptureFixture, suffix: str, damage: str
) -> None:
    from_cache()
    (file,) = folder.rglob(f"*{suffix}")
    whole = file.read_bytes()
    contents = whole[kept.DIGEST_SIZE :]
    file.write_bytes(
        {
            "emptied": b"",
            "cut": whole[:-7],
            "flipped": whole[:-7] + bytes([whole[-7] ^ 255]) + whole[-6:],
            "of another kernel": kept._digest("another", contents) + contents,
        }[damage]
    )
    with caplog.at_level(logging.WARNING):
        assert [from_cache(), from_cache()] == [False, True]
    (line,) = caplog.messages
    assert line.startswith(f"afa: kernel cache {folder}: found {file.name} damaged")
    assert file.read_bytes()[: kept.DIGEST_SIZE] == kept._digest(file.name, file.read_bytes()[kept.DIGEST_SIZE :])


def test_each_installation_keeps_kernels_of_its_own(tmp_path):
    kept = []
    for place in ("one", "other", "one"):
        (tmp_path / place).mkdir(exist_ok=True)
        spec = importlib.util.spec_from_file_location("a_copy", shutil.copy(compiling.__file__, tmp_path / place))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        kept.append(module.CACHE_FOLDER)
    assert kept[0] == kept[2] != kept[1]


def test_a_kernel_that_only_kernels_call_refuses_python(folder: Path) -> None:
    inner = compiling.kernel()(doubled)
    with pytest.raises(TypeError, match="kernel doubled: found a call from Python"):
        inner(np.ones(3))


def test_what_is_kept_of_a_kernel_serves_its_callers_too(folder: Path) -> None:
    from_cache()  # compiled and kept; found below, by a kernel that is not
    inner = compiling.kernel()(doubled)

    @compiling.kernel(entrance=True)
    def plus_one(values: np.ndarray) -> float:
        return inner(values) + 1.0

    assert plus_one(np.ones(3)) == 7.0
    assert sum(inner.stats.cache_hits.values()) == 1


SHARED = """
import sys, time
import numpy as np
from pathlib import Path
from afa.engine import compile as compiling

def slowly(x):
    return np.sort(np.array([x, 3.0]))[0] + 1.0

kernel = compiling.kernel(entrance=True)(slowly)
Path(sys.argv[1], sys.argv[2]).touch()
while len(list(Path(sys.argv[1]).iterdir())) < 4:
    time.sleep(0.01)
assert kernel(1.0) == 2.0
print(sum(kernel.stats.cache_misses.values()))
"""


def test_of_processes_that_need_a_kernel_at_once_one_compiles_it(tmp_path: Path) -> None:
    source, ready = tmp_path / "shared.py", tmp_path / "ready"
    source.write_text(SHARED)
    ready.mkdir()
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    started = [
        subprocess.Popen([sys.executable, source, ready, str(n)], env=environment, stdout=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    assert sorted(process.communicate()[0].strip() for process in started) == ["0", "0", "0", "1"]


def test_a_kernel_is_compiled_where_another_process_takes_too_long(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(kept, "PATIENCE", 0.1)
    kernel = compiling.kernel(entrance=True)(doubled)
    place = Path(kernel._cache.cache_path)
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / f"{kernel._cache._impl.filename_base}.lock"):
        assert kernel(np.ones(3)) == 6.0


@pytest.mark.parametrize("then", ["nothing", "an error"])
def test_an_interrupt_in_a_callback_of_the_compiler_is_raised_after_it(then: str) -> None:
    @ctypes.CFUNCTYPE(None)
    def interrupted() -> None:
        raise KeyboardInterrupt

    @kept.hearing_interrupts()
    def compile_it() -> None:
        interrupted()
        if then == "an error":
            raise RuntimeError("no compiled object yet")

    before = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt):
        compile_it()
    assert sys.unraisablehook is before


def test_an_error_of_the_compiler_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError), kept.hearing_interrupts():
        _ = 1 / 0
