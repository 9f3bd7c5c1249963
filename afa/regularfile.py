"""Reading a file whole, where it is a file: a pipe or a device could be read for ever."""

from __future__ import annotations

import errno
import math
import stat
from pathlib import Path


def read_whole(path: Path, largest: float = math.inf) -> bytes:
    """The bytes of a regular file; an `OSError` whose `strerror` says what is there instead, or that it is too large.

    `largest` is in bytes.
    """
    try:
        status = path.stat()
    except ValueError:
        raise OSError(errno.EINVAL, "a path that no file can have") from None
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise OSError(errno.EINVAL, "a pipe or a device")
    if status.st_size > largest:
        raise OSError(errno.EFBIG, f"{status.st_size} bytes, of which at most {largest:.0f} are read")
    return path.read_bytes()
