"""Calls of Snakemake: a line of JSON in, a forked process in a session of its own, a line of JSON out.

Snakemake is imported once, with its plugins and the packages that `afa` stands on. Everything of `afa` is imported in
each process again, as a user's `snakemake` does: from the folder of the call where that has the package, else from
where it is installed. Only parsed sources are kept from call to call, by their content.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import snakemake.cli

from afa.paper import codedigest

DIGESTS_AT_START = Path(codedigest.__file__).read_bytes()
LONGEST = 3600
"""Longest time of a call, in seconds: a whole run on a busy machine takes a quarter of an hour."""


def import_packages() -> None:
    """Import the plugins of Snakemake, and what the modules of `afa` that the rules import stand on."""
    snakemake.cli.get_argument_parser()
    workflow = Path(__file__).parents[2] / "workflow/rules/common.smk"
    for module in re.findall(r"^from (afa[\w.]*) import", workflow.read_text(encoding="utf-8"), re.MULTILINE):
        importlib.import_module(module)
    importlib.import_module("smart_open")  # Snakemake's own, once it reads a rule


def parse_all() -> None:
    """Parse every module of the package once, for all calls."""
    code = codedigest.Code()
    for file in sorted(codedigest.PACKAGE.rglob("*.py")):
        parts = file.relative_to(codedigest.PACKAGE.parent).with_suffix("").parts
        code.parts(".".join(parts).removesuffix(".__init__"))


def forget_the_package(folder: Path) -> None:
    """Have all of `afa` imported again, but the code that digests sources, unless that has been changed too."""
    own = (folder / "afa").is_dir()
    is_changed = own and (folder / "afa/paper/codedigest.py").read_bytes() != DIGESTS_AT_START
    kept = set() if is_changed else {"afa.paper.codedigest"}
    for name in [name for name in sys.modules if name.partition(".")[0] == "afa" and name not in kept]:
        del sys.modules[name]
    if own:
        sys.path.insert(0, str(folder))
        codedigest.PACKAGE = folder / "afa"


def run_snakemake(call: dict[str, Any], answer: int) -> None:
    """Run Snakemake and write to `answer` its exit code and where each module of `afa` came from; never returns."""
    code: int | str | None = 1
    try:
        os.setsid()
        signal.setitimer(signal.ITIMER_REAL, call.get("seconds") or LONGEST)  # its signal ends the process at once
        os.chdir(call["folder"])
        os.environ.update(call["environment"])
        forget_the_package(Path(call["folder"]))
        sys.argv = ["snakemake", *call["arguments"]]
        snakemake.cli.main(call["arguments"])
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
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                run_snakemake(json.loads(line), writing)
            os.close(writing)
            _, status = os.waitpid(child, 0)
            with suppress(ProcessLookupError):  # jobs that have lost their Snakemake
                os.killpg(child, signal.SIGKILL)
            with os.fdopen(reading, encoding="utf-8") as pipe:
                told = pipe.read()
            answer = json.loads(told) if told else {"code": os.waitstatus_to_exitcode(status)}
            said.seek(0)
            answer["text"] = said.read().decode(errors="replace")
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    gc.disable()  # half of the time of parsing went into looking for garbage, and no call makes much
    import_packages()
    parse_all()
    serve()
