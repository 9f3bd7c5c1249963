"""Notes which files a job of the workflow opens to read. Python reads this file first where it is on the path.

Each process writes one file into the folder `AFA_READS`; what a child opens, such as the kernel of a notebook, counts
as opened by the process that `afa` was called in.
"""

import atexit
import json
import os
import sys
from pathlib import Path

FOLDER, CALLER = os.environ.get("AFA_READS", ""), "AFA_READS_ARGUMENTS"
opened = set()


def _listen(event, arguments):
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        path, mode, flags = arguments
        if not any(letter in (mode or "r") for letter in "wax+") and not (flags or 0) & (os.O_WRONLY | os.O_RDWR):
            opened.add(str(Path.cwd() / os.fsdecode(path)))


def _write():
    arguments = json.loads(os.environ.get(CALLER, "null")) or sys.argv
    told = {"arguments": arguments, "opened": sorted(opened), "noted": "AFA_SOURCES" in os.environ}
    Path(FOLDER, f"{os.getpid()}.json").write_text(json.dumps(told), encoding="utf-8")


def _is_afa():
    words = Path("/proc/self/cmdline").read_bytes().decode().split("\0")[:-1]
    return words if any(Path(word).name == "afa" for word in words[:2]) else None


if FOLDER:
    if CALLER not in os.environ and (words := _is_afa()):
        os.environ[CALLER] = json.dumps(words)
    if CALLER in os.environ:
        sys.addaudithook(_listen)
        atexit.register(_write)
