"""A disk that is soon full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A file system of `size` (as `mount` takes it) at `folder`; the test is skipped where none may be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("a full disk was not tried: there is no command mount")
    if mounted.returncode != 0:
        pytest.skip(f"a full disk was not tried: {mounted.stderr.strip() or 'mount failed'} (it takes root)")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def resize(folder: Path, size: str) -> None:
    """Give the file system at `folder` another size."""
    subprocess.run(["mount", "-o", f"remount,size={size}", str(folder)], check=True)
