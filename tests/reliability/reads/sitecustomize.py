"""Notes which files a job of the workflow opens to read. Python reads this file first where it is on the path.

Each process writes one file into the folder `AFA_READS`, a line for each path when it is opened, so that a process that
is killed leaves its lines; what a child opens, such as the kernel of a notebook, counts as opened by the process that
`afa` was called in. A job ends with a comparison of its sources with their digests (`AFA_SOURCES`); what it opens for
this comparison does not count.
"""

import json
import os
import sys
from pathlib import Path

FOLDER, CALLER, DIGESTS = os.environ.get("AFA_READS", ""), "AFA_READS_ARGUMENTS", os.environ.get("AFA_SOURCES")
opened = set()


def _words_of_afa():
    words = Path("/proc/self/cmdline").read_bytes().decode().split("\0")[:-1]
    return words if any(Path(word).name == "afa" for word in words[:2]) else None


def _listen(event, arguments):
    if event != "open" or DIGESTS in opened or not isinstance(arguments[0], str | bytes | os.PathLike):
        return
    path, mode, flags = arguments
    if any(letter in (mode or "r") for letter in "wax+") or (flags or 0) & (os.O_WRONLY | os.O_RDWR):
        return
    path = str(Path.cwd() / os.fsdecode(path))
    if path not in opened:
        opened.add(path)
        os.write(NOTES, f"{path}\n".encode())


if FOLDER:
    if CALLER not in os.environ and (words := _words_of_afa()):
        os.environ[CALLER] = json.dumps(words)
    if CALLER in os.environ:
        NOTES = os.open(Path(FOLDER, f"{os.getpid()}.txt"), os.O_WRONLY | os.O_CREAT)
        told = {"arguments": json.loads(os.environ[CALLER]), "noted": DIGESTS is not None}
        os.write(NOTES, f"{json.dumps(told)}\n".encode())
        sys.addaudithook(_listen)
