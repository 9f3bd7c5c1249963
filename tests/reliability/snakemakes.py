"""Snakemake called without two seconds of imports: each call is a process forked from one that has imported it.

Where Snakemake's own start is tested (another Python path, signals, limits), tests start a process.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def snakemake(
    folder: Path, *arguments: object, environment: Mapping[str, str] | None = None, seconds: float = 0
) -> subprocess.CompletedProcess[str]:
    """Call Snakemake in a folder, with these variables beside those there are; all that it says is in `stdout`.

    After `seconds`, where given, it and its jobs are killed.
    """
    words = list(map(str, arguments))
    call = {"folder": str(folder), "arguments": words, "environment": {"PATH": PATH, **(environment or {})}}
    process = _server()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({**call, "seconds": seconds}) + "\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    return subprocess.CompletedProcess(words, answer["code"] or 0, answer["text"], "")


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
