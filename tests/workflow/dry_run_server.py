"""Dry runs of the workflow in the current folder: a line of JSON in, a forked process, a line of JSON out.

Snakemake is imported once. Everything of `afa` that a dry run uses is imported in its own process, from the first
place on PYTHONPATH, as a user's `snakemake` does; only parsed sources are kept from run to run, by their content.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import snakemake.cli

from afa import codedigest

DIGESTS = Path(codedigest.__file__)
DIGESTS_AT_START = DIGESTS.read_bytes()


def parse_all() -> None:
    """Parse every module of the package once, for all dry runs."""
    for file in sorted(codedigest.PACKAGE.rglob("*.py")):
        parts = file.relative_to(codedigest.PACKAGE.parent).with_suffix("").parts
        codedigest.code_digest(".".join(parts).removesuffix(".__init__"))


def forget_the_package() -> None:
    """Have all of `afa` imported again, but the code that digests sources, unless that has been changed too."""
    kept = {"afa.codedigest"} if DIGESTS.read_bytes() == DIGESTS_AT_START else set()
    for name in [name for name in sys.modules if name.partition(".")[0] == "afa" and name not in kept]:
        del sys.modules[name]


def run_snakemake(arguments: list[str], answer: int) -> None:
    """Run Snakemake and write to `answer` its exit code and where each module of `afa` came from; never returns."""
    code: int | str | None = 1
    try:
        forget_the_package()
        snakemake.cli.main(arguments)
    except SystemExit as exit_:
        code = exit_.code
    finally:
        modules = {name: module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "afa"}
        with os.fdopen(answer, "w", encoding="utf-8") as pipe:
            json.dump({"code": code, "modules": modules}, pipe)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def serve() -> None:
    for line in sys.stdin:
        reading, writing = os.pipe()
        with tempfile.TemporaryFile() as said:
            child = os.fork()
            if child == 0:
                os.close(reading)
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                run_snakemake(json.loads(line), writing)
            os.close(writing)
            with os.fdopen(reading, encoding="utf-8") as pipe:
                answer = json.load(pipe)
            os.waitpid(child, 0)
            said.seek(0)
            answer["text"] = said.read().decode(errors="replace")
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    parse_all()
    serve()
