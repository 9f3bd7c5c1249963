"""Stands for `afa` in jobs of the workflow: every result is a digest of the command and of all that it reads.

So a result shows whether it was made of what lies there now. The file `inputs.json` says what each job reads. `FAIL`
names a way to fail, a moment, an output of the job that it is to happen to, and a file that says that it has.
"""

import errno
import hashlib
import json
import os
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path

MAKES = ("--out", "--readme", "--dropped", "--report")


def outputs(words: list[str]) -> list[Path]:
    """Every path that a command is to write."""
    return [Path(word) for option, word in pairwise(words) if option in MAKES]


def read(made: list[Path]) -> list[Path]:
    """Every file among the inputs that the workflow names for a job."""
    inputs = map(Path, json.loads(Path("inputs.json").read_bytes())[str(made[0])])
    files = [file for path in inputs for file in ([path] if path.is_file() else sorted(path.rglob("*")))]
    return [file for file in files if file.is_file() and not file.name.startswith(".")]


def content(words: list[str], made: list[Path]) -> str:
    """What a job writes: its command, the lines of code that name it, and what it reads."""
    digest = hashlib.sha256(" ".join(words).encode())
    for module in sorted(Path("afa/stages").glob("*.py")):
        for line in module.read_text(encoding="utf-8").splitlines():
            if line.strip() == f'changed_by_the_test = "{words[0]} {words[1]}"':
                digest.update(line.encode())
    for file in read(made):
        text = file.read_bytes()
        if b"FAULT" in text:
            sys.exit(f"afa: {file}: found FAULT; expected no fault. Next step: correct it.")
        digest.update(f"{file}\0".encode() + text)
    return digest.hexdigest() + "\n"


def write(path: Path, text: str) -> None:
    """The result at once, as `afa.files` does; a path without an ending is a folder with two files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix:
        beside = path.with_name(f".{path.name}.part")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
        return
    beside = path.with_name(f".{path.name}.part")
    beside.mkdir(exist_ok=True)
    (beside / "one.parquet").write_text(text, encoding="utf-8")
    (beside / "two.parquet").write_text(text[::-1], encoding="utf-8")
    beside.replace(path)


def fail(moment: str, made: list[Path]) -> None:
    """Fail if this is the moment of `FAIL`, and the job makes its output or a part of it."""
    way, when, target, done = (os.environ.get("FAIL") or "|||").split("|")
    if when != moment or not any(path.is_relative_to(target) for path in made):
        return
    Path(done).touch()
    if way == "kill of the job":
        os.kill(os.getpid(), signal.SIGKILL)
    elif way == "kill of Snakemake":
        os.kill(os.getpgrp(), signal.SIGKILL)
        time.sleep(0.3)
    elif way == "kill of the group":
        os.killpg(os.getpgrp(), signal.SIGKILL)
    elif way == "exception":
        raise RuntimeError("an error of the test")
    elif way == "gate":
        sys.exit("afa: found a check that does not hold; expected that it does")
    elif way == "exit 1":
        sys.exit(1)
    elif way == "full disk":
        raise OSError(errno.ENOSPC, "No space left on device", str(made[0]))


def main() -> None:
    words = sys.argv[1:]
    made = outputs(words)
    fail("start", made)
    text = content(words, made)
    for number, path in enumerate(made):
        write(path, text)
        if number == 0:
            fail("middle", made)
    fail("after", made)


if __name__ == "__main__":
    main()
