"""A command that is ended from outside, as a cluster does with a cancelled job, clears away what it has begun."""

import signal
import subprocess
import sys
from pathlib import Path

WRITES = """
import sys, time
import afa.cli
from afa.io.files import atomic_folder

def command(**_):
    with atomic_folder(sys.argv[1]) as temporary:
        (temporary / "half").write_text("half")
        print("begun", flush=True)
        time.sleep(60)

afa.cli.app = command
afa.cli.main()
"""


def test_a_terminated_command_leaves_nothing_of_what_it_was_writing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITES, str(tmp_path / "tables")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        assert list(tmp_path.iterdir())
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
