"""What a Python process spends its processor time on, written at its end: first on PYTHONPATH, in every job of a run.

Each process adds a line to a file of its own in the folder AFA_PARTS: the rule, by the log that it writes to, the
program, and seconds by part. A part that begins inside another one is taken from it.
"""

import atexit
import builtins
import importlib
import json
import os
import re
import sys
import threading
import time
from collections import defaultdict
from functools import wraps
from pathlib import Path

WRAPPED = {  # what is called for a part, by the module that has it
    "numba.core.dispatcher": [("kernels", "Dispatcher.compile")],
    "pandas": [("tables", name) for name in ("read_csv", "read_parquet", "DataFrame.to_csv", "DataFrame.to_parquet")],
    "matplotlib.figure": [("figures", "Figure.savefig")],
}
seconds = defaultdict(float, interpreter=time.process_time())
parts = ["computing"]
main = threading.get_ident()
plain_import = builtins.__import__


def settle():
    """Give the part that it is in all time that no part has been given yet."""
    seconds[parts[-1]] += time.process_time() - sum(seconds.values())


def counted(part, function):
    """The same function, whose time counts for a part."""

    @wraps(function)
    def call(*given, **named):
        if threading.get_ident() != main or parts[-1] == part:
            return function(*given, **named)
        settle()
        parts.append(part)
        try:
            return function(*given, **named)
        finally:
            settle()
            parts.pop()
            if part == "imports":
                wrap_imported()

    return call


def wrap_imported():
    """Wrap what has been imported since."""
    for module in [name for name in WRAPPED if name in sys.modules]:
        for part, name in WRAPPED.pop(module):
            *owners, last = name.split(".")
            owner = sys.modules[module]
            for each in owners:
                owner = getattr(owner, each)
            setattr(owner, last, counted(part, getattr(owner, last)))


def write():
    """Add the line of this process."""
    settle()
    target = re.search(r"/logs/([^/.]+)", str(Path("/proc/self/fd/1").readlink()))
    line = {"rule": target[1] if target else "", "program": Path(sys.argv[0] or "python").stem, **seconds}
    with (Path(os.environ["AFA_PARTS"]) / f"{os.getpid()}.json").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


if "AFA_PARTS" in os.environ:
    builtins.__import__ = counted("imports", plain_import)
    importlib.import_module = counted("imports", importlib.import_module)
    atexit.register(write)
