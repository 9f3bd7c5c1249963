"""One case: a broken file is read, and what comes out is held against what a reader promises."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from fuzz.corpus import OUT, Reader

from afa.errors import AfaError

CASES = int(os.environ.get("AFA_FUZZ_CASES", "30"))
"""Broken inputs for each reader."""
DRAWN = CASES // 5
"""Of these, how many are made whole of strange content; the others are sound files that were broken."""
BROKEN = CASES - DRAWN
SEED = os.environ.get("AFA_FUZZ_SEED", "0")
SECONDS = 5.0
"""Of processor time that a case may take."""
LONGEST_FAULT = 20_000
MOST_FAULTS = 2_000


class SlowError(BaseException):
    """A case that was stopped; no `Exception`, so that no handler of a reader takes it for a fault of the file."""


def check(reader: Reader, folder: Path, seconds: float = SECONDS) -> AfaError | None:
    """Read a folder of broken files; the error where the reader refuses it, None where it does not.

    An `AssertionError` for any other exception, a fault that names no file or cannot be printed, output after an
    error, or too long a time.
    """
    made = folder.parent / OUT
    before = _listing(folder.parent)
    refused = None
    begin = time.process_time()
    try:
        with _stopped_after(seconds), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(folder)
    except AfaError as error:
        refused = error
    except SlowError:
        raise AssertionError(f"{reader.name}: more than {seconds} s") from None
    except Exception as error:
        raise AssertionError(f"{reader.name}: {type(error).__name__}: {str(error)[:300]}") from error
    took = time.process_time() - begin
    assert took < seconds, f"{reader.name}: {took:.1f} s"
    if refused is None:
        shutil.rmtree(made, ignore_errors=True)
    else:
        _check_faults(refused, reader, folder)
    left = _listing(folder.parent) - before
    assert not left, f"{reader.name}: left {sorted(left)}"
    return refused


def _check_faults(error: AfaError, reader: Reader, folder: Path) -> None:
    assert error.faults, f"{reader.name}: an error without a fault"
    assert len(error.faults) < MOST_FAULTS, f"{reader.name}: {len(error.faults)} faults"
    for fault in error.faults:
        named = str(folder) in fault.where or str(folder.parent / OUT) in fault.where
        assert named or fault.where.startswith(reader.places or "\0"), f"{reader.name}: no file in {fault.where!r}"
        text = str(fault)
        assert text.isprintable(), f"{reader.name}: {text[:500]!r} cannot be printed on a line"
        assert len(text) < LONGEST_FAULT, f"{reader.name}: {len(text)} characters: {text[:300]}..."


def _listing(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


@contextlib.contextmanager
def _stopped_after(seconds: float) -> Iterator[None]:
    """Stop what runs inside after so many seconds of processor time: a hang must fail, not last."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SlowError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
