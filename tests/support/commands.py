"""The command line called in this process: what a process of `afa` prints and returns, without two seconds of imports.

Where the process itself is tested (signals, terminals, memory, the installed program), tests start one.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from afa.cli import main


def afa(
    *arguments: object, typed: str = "", folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`afa` with these arguments in a folder, with these variables beside those there are; `typed` is its input."""
    words = ["afa", *map(str, arguments)]
    out, err = io.StringIO(), io.StringIO()
    sigterm = signal.getsignal(signal.SIGTERM)
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        chdir(folder or Path.cwd()),
        mock.patch.object(sys, "argv", words),
        mock.patch.object(sys, "stdin", io.StringIO(typed)),
        mock.patch.dict(os.environ, environment or {}),
    ):
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except Exception as error:
            traceback.print_exception(error)
            code = 1
        finally:
            signal.signal(signal.SIGTERM, sigterm)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())
