"""What an exception means to whoever typed the command, as an error of afa's own with a next step."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from afa.errors import AfaError, Fault
from afa.extras import installing
from afa.shortage import shortage

REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
MISPLACED = (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG)
_TEMPORARY = re.compile(r"\.(.+)\.[a-z0-9_]{8}(\.\w+)?")  # what `afa.files` writes to before it renames


def as_error(error: Exception, words: Sequence[str]) -> AfaError | None:
    """The error itself where it is afa's own; one for what was missing, refused or used up; None for a fault of afa.

    words : the command line without the program's name.
    """
    if isinstance(error, AfaError):
        return error
    if callable(getattr(error, "format_message", None)):
        return AfaError(_mistyped(error, words))
    if isinstance(error, ModuleNotFoundError) and (step := installing(error)):
        found = f"no package {(error.name or '').partition('.')[0]}"
        return AfaError(Fault(" ".join(["afa", *words[:1]]), found, "what this command needs", f"run {step}"))
    if isinstance(error, OSError) and error.errno in REFUSED + MISPLACED and isinstance(error.filename, str):
        return AfaError(_refusal(error, Path(error.filename)))
    return shortage(error, words)


def _mistyped(error: Any, words: Sequence[str]) -> Fault:
    """What was wrong with the words of a command line, as Typer found it."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    said, _, other = error.format_message().rstrip(".?").partition(". Did you mean ")
    if context is None:  # what the parser of options found
        where = " ".join(["afa", *words[:1]])
        return Fault(where, said[:1].lower() + said[1:], "options as its help has them", f"run `{where} -h`")
    where, usage = context.command_path, " ".join(context.get_usage().split()).removeprefix("Usage: ").rstrip(".")
    name = (
        parameter.opts[0] if parameter and parameter.opts[0].startswith("-") else parameter and parameter.name.upper()
    )
    step = f"run `{where} -h`"
    if type(error).__name__ == "MissingParameter":
        return Fault(where, f"no {name}", usage, step)
    if parameter is not None:
        after = words[words.index(name) + 1 :] if name in words else ()
        expected = error.message.removeprefix("Input should be ").rstrip(".").partition(", unable")[0]
        if " is not one of " in expected:
            expected = "one of" + expected.partition(" is not one of")[2]
        return Fault(f"{where}, {name}", repr(after[0]) if after else "another value", expected, step)
    if near := getattr(error, "possibilities", None):
        return Fault(
            where, f"the unknown option {error.option_name}", usage, f"did you mean {' or '.join(near)}? {step}"
        )
    said = said.removeprefix("Got ")
    return Fault(where, said[:1].lower() + said[1:], usage, f"did you mean {other}? {step}" if other else step)


def _refusal(error: OSError, path: Path) -> Fault:
    """A place where the system let nothing be read or written; a temporary's is its folder."""
    if _TEMPORARY.fullmatch(path.name):
        path = path.parent
    expected, step = "a place that may be used", "change its rights, or choose another place"
    if error.errno in MISPLACED:
        expected, step = "a path that fits what is there", "choose another path"
    return Fault(str(path), error.strerror or "an error", expected, step)
