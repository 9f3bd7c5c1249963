"""Stands for `afa` in jobs of the workflow: every result is a digest of the command and of all that it reads.

So a result shows whether it was made of what lies there now. Each line of the file `jobs.txt` has the outputs of a job,
a mark, and what it reads. `FAIL` names a way to fail, a moment, an output of the job that it is to happen to, and a
file that says that it has. A run starts this a hundred times: it imports little.
"""

import hashlib
import os
import sys
from itertools import pairwise

MAKES = ("--out", "--rows", "--readme", "--dropped", "--report")
READS = "reads:"
PLACES = ("resources/paper",)
"""Inputs that only tell a job where files lie: those that it reads of them are inputs as well."""


def job_of(words: list[str]) -> tuple[list[str], list[str]]:
    """The outputs and the inputs of the job that a command is of, as the workflow names them."""
    places = [word for option, word in pairwise(words) if option in MAKES]
    with open("jobs.txt", encoding="utf-8") as lines:
        for line in lines:
            made, _, inputs = line.rstrip("\n").partition(f"\t{READS}\t")
            outputs = made.split("\t")
            if any(f"{output}/".startswith(f"{place}/") for place in places for output in outputs):
                return outputs, inputs.split("\t")
    raise LookupError(words)


def read(inputs: list[str]) -> list[str]:
    """Every file among the inputs of a job, and in folders among them."""
    files = []
    for path in (path for path in inputs if path not in PLACES):
        inner = (f"{folder}/{name}" for folder, _, names in os.walk(path) for name in names)
        files += [path] if os.path.isfile(path) else sorted(inner)
    return [file for file in files if not os.path.basename(file).startswith(".")]


def content(words: list[str], inputs: list[str]) -> str:
    """What a job writes: its command, the lines of code that name it, and what it reads."""
    digest = hashlib.sha256(" ".join(words).encode())
    for module in sorted(name for name in os.listdir("afa/paper/experiments") if name.endswith(".py")):
        for line in _bytes(f"afa/paper/experiments/{module}").splitlines():
            if line.strip() == f'changed_by_the_test = "{words[0]} {words[1]}"'.encode():
                digest.update(line)
    for file in read(inputs):
        text = _bytes(file)
        if b"FAULT" in text:
            sys.exit(f"afa: {file}: found FAULT; expected no fault. Next step: correct it.")
        digest.update(f"{file}\0".encode() + text)
    return digest.hexdigest() + "\n"


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def write(path: str, text: str) -> None:
    """A result at once, as `afa.io.files` does; a shard, whose path has no ending, is a folder with a file."""
    folder, name = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    beside = f"{folder}/.{name}.part"
    if os.path.splitext(name)[1]:
        _write(beside, text)
    else:
        os.makedirs(beside, exist_ok=True)
        _write(f"{beside}/one.parquet", text)
    os.replace(beside, path)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def fail(moment: str, made: list[str]) -> None:
    """Fail if this is the moment of `FAIL`, and the job makes its output or a part of it."""
    way, when, target, done = (os.environ.get("FAIL") or "|||").split("|")
    if when != moment or not any(f"{path}/".startswith(f"{target}/") for path in made):
        return
    import errno
    import signal
    import time

    _write(done, "")
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
        raise OSError(errno.ENOSPC, "No space left on device", made[0])


def main() -> None:
    words = sys.argv[1:]
    made, inputs = job_of(words)
    fail("start", made)
    text = content(words, inputs)
    for number, path in enumerate(made):
        write(path, f"{path} {text}")
        if number == 0:
            fail("middle", made)
    fail("after", made)


if __name__ == "__main__":
    main()
