"""Snakemake called without two seconds of imports: each call is a process forked from one that has imported it.

Where Snakemake's own start is tested (another Python path, signals, limits), tests start a process.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def snakemake(
    folder: Path, *arguments: object, environment: Mapping[str, str] | None = None, seconds: float = 0
) -> subprocess.CompletedProcess[str]:
    """Call Snakemake in a folder, with more environment variables; all that it prints is in `stdout`.

    If `seconds` is given, Snakemake and its jobs are killed after this time.
    """
    words = list(map(str, arguments))
    answer = call(folder, words, environment, seconds)
    return subprocess.CompletedProcess(words, answer["code"] or 0, answer["text"], "")


def call(
    folder: Path, words: Sequence[str], environment: Mapping[str, str] | None = None, seconds: float = 0
) -> dict[str, Any]:
    """Call Snakemake and return its exit code, its text, and the files of the modules of `afa` that it imported."""
    request = {"folder": str(folder), "arguments": words, "environment": {"PATH": PATH, **(environment or {})}}
    process = _server()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({**request, "seconds": seconds}) + "\n")
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


def metadata_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Return Snakemake's record of every file that runs in a folder made, by path; temporary files have one too."""
    metadata = folder / ".snakemake/metadata"
    files = [path for path in metadata.rglob("*") if path.is_file()]
    keys = ("".join(part.removeprefix("@") for part in path.relative_to(metadata).parts) for path in files)
    return {
        base64.b64decode(key).decode(): json.loads(path.read_text(encoding="utf-8"))
        for key, path in zip(keys, files, strict=True)
    }


@cache
def _server() -> subprocess.Popen[str]:
    """The process that all calls are forked from; it ends with this one."""
    command = [sys.executable, str(ROOT / "tests/workflow/snakemake_server.py")]
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.communicate)
    return process
