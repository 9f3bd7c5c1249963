"""Kills its whole process group at one moment of its run, once. Python reads this file first where it is on the path.

The moment is an event of Python's audit hooks, such as `os.rename` or `open` (for writing), on a path that matches
`AFA_CUE_PATH`. The file `AFA_CUE_DONE` says that it has come.
"""

import os
import signal
import sys
from fnmatch import fnmatchcase
from pathlib import Path

EVENT, PATTERN, DONE = (os.environ.get(f"AFA_CUE_{name}", "") for name in ("EVENT", "PATH", "DONE"))
DESTINATION = MODE = 1  # of the arguments of `os.rename` and of `open`


def _listen(event, arguments):
    if event != EVENT or (event == "open" and "w" not in (arguments[MODE] or "")):
        return
    path = arguments[DESTINATION if event == "os.rename" else 0]
    if isinstance(path, str | bytes | os.PathLike) and fnmatchcase(str(Path.cwd() / os.fsdecode(path)), PATTERN):
        try:
            os.close(os.open(DONE, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.killpg(os.getpgrp(), signal.SIGKILL)


if EVENT:
    sys.addaudithook(_listen)
