"""What an exception means to whoever typed the command, as an error of afa's own with a next step."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from pathlib import Path

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
    if isinstance(error, ModuleNotFoundError) and (step := installing(error)):
        found = f"no package {(error.name or '').partition('.')[0]}"
        return AfaError(Fault(" ".join(["afa", *words[:1]]), found, "what this command needs", f"run {step}"))
    if isinstance(error, OSError) and error.errno in REFUSED + MISPLACED and isinstance(error.filename, str):
        return AfaError(_refusal(error, Path(error.filename)))
    return shortage(error, words)


def _refusal(error: OSError, path: Path) -> Fault:
    """A place where the system let nothing be read or written; a temporary's is its folder."""
    if _TEMPORARY.fullmatch(path.name):
        path = path.parent
    expected, step = "a place that may be used", "change its rights, or choose another place"
    if error.errno in MISPLACED:
        expected, step = "a path that fits what is there", "choose another path"
    return Fault(str(path), error.strerror or "an error", expected, step)
