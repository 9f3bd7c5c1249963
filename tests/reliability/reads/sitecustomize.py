"""Notes which files a job of the workflow opens to read. Python reads this file first where it is on the path.

Each process writes one file into the folder `AFA_READS`; what a child opens, such as the kernel of a notebook, counts
as opened by the process that `afa` was called in.
"""

import atexit
import json
import os
import sys

FOLDER, CALLER = os.environ.get("AFA_READS", ""), "AFA_READS_ARGUMENTS"
opened = set()


def _listen(event, arguments):
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        path, mode, flags = arguments
        if not any(letter in (mode or "r") for letter in "wax+") and not (flags or 0) & (os.O_WRONLY | os.O_RDWR):
            opened.add(os.path.abspath(os.fsdecode(path)))


def _write():
    arguments = json.loads(os.environ.get(CALLER, "null")) or sys.argv
    with open(os.path.join(FOLDER, f"{os.getpid()}.json"), "w", encoding="utf-8") as file:
        json.dump({"arguments": arguments, "opened": sorted(opened), "noted": "AFA_SOURCES" in os.environ}, file)


def _is_afa():
    with open("/proc/self/cmdline", "rb") as file:
        words = file.read().decode().split("\0")[:-1]
    return words if any(os.path.basename(word) == "afa" for word in words[:2]) else None


if FOLDER:
    if CALLER not in os.environ and (words := _is_afa()):
        os.environ[CALLER] = json.dumps(words)
    if CALLER in os.environ:
        sys.addaudithook(_listen)
        atexit.register(_write)
