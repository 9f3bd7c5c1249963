"""What a machine can run short of, memory or disk, as an error of afa's own."""

from __future__ import annotations

import errno
import resource
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from afa.errors import Fault, ResourceError
from afa.files import NO_ROOM

AGAIN = "then give the same command again: nothing half-written is left"
# Neither of the two has a type of its own: a thread that cannot start, and a library that cannot be loaded.
_SAYINGS = ("can't start new thread", "failed to map segment", "Cannot allocate memory")


def shortage(error: BaseException, words: Sequence[str]) -> ResourceError | None:
    """What `error`, or an error behind it, ran short of while `words` of a command line ran; None if it was neither."""
    for cause in _behind(error):
        if isinstance(cause, OSError) and cause.errno in NO_ROOM:
            return ResourceError(_no_room(cause, _command(words)))
        lacks_memory = isinstance(cause, OSError) and cause.errno == errno.ENOMEM
        unsaid = isinstance(cause, ImportError | RuntimeError | OSError) and any(s in str(cause) for s in _SAYINGS)
        if isinstance(cause, MemoryError) or lacks_memory or unsaid:
            return ResourceError(_no_memory(cause, _command(words)))
    return None


def _no_room(error: OSError, command: str) -> Fault:
    path = Path(error.filename) if isinstance(error.filename, str) else None
    found = "the quota of this disk used up" if error.errno == errno.EDQUOT else "no room left on this disk"
    folder = next((place for place in (path.absolute().parents if path else ()) if place.is_dir()), None)
    if folder is not None:
        disk = shutil.disk_usage(folder)
        found += f" ({disk.free / 1e6:.1f} of {disk.total / 1e6:.1f} MB free by now)"
    return Fault(str(path or command), found, "room for the whole of it", f"free some, {AGAIN}")


def _no_memory(error: BaseException, command: str) -> Fault:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    found = f"no memory left ({error})" if str(error) else "no memory left"
    if limit != resource.RLIM_INFINITY:
        found += f" under a limit of {limit / 1e6:.0f} MB (ulimit -v)"
    step = f"give it more memory, fewer threads, or fewer patients a job (the key shards), {AGAIN}"
    return Fault(command, found, "memory for what it computes", step)


def _behind(error: BaseException) -> Iterator[BaseException]:
    """The error, then what it was raised from or while handling, back to the first."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _command(words: Sequence[str]) -> str:
    """`afa summary sign`: the command without its files and options."""
    names = []
    for word in words:
        if not word.replace("-", "").isalnum() or word.startswith("-"):
            break
        names.append(word)
    return " ".join(["afa", *names[:2]])
