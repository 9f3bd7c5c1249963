"""Convert an exception into an `AfaError`, for example after a mistyped command or on a full disk.

The installed metadata (from pyproject.toml) show which extra of afa installs a missing package.
"""

from __future__ import annotations

import errno
import re
import resource
import shutil
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice, takewhile
from pathlib import Path
from traceback import walk_tb
from typing import Any

from afa.errors import AfaError, Fault, ResourceError
from afa.io.files import DISK_FULL_ERRORS
from afa.paper.sources import PACKAGE

PERMISSION_ERRORS = (errno.EACCES, errno.EPERM, errno.EROFS)
PATH_ERRORS = (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG)
_TEMPORARY = re.compile(r"\.(.+)\.afa-[a-z0-9_]{8}(\.\w+)?")  # a temporary file of `afa.io.files`


def as_error(error: Exception, words: Sequence[str]) -> AfaError | None:
    """Return the `AfaError` for an exception, or None if the exception is a bug.

    An `AfaError` is returned unchanged. The function creates an `AfaError` for a mistyped command, a missing package,
    an inaccessible path, or a lack of memory or disk space.

    Parameters
    ----------
    words : the command line without the program's name

    """
    if isinstance(error, AfaError):
        return error
    if callable(getattr(error, "format_message", None)):
        return AfaError(_usage_fault(error, words))
    if isinstance(error, ModuleNotFoundError) and (step := installing(error)):
        found = f"no package {(error.name or '').partition('.')[0]}"
        return AfaError(Fault(" ".join(["afa", *words[:1]]), found, "what this command needs", f"run {step}"))
    if (
        isinstance(error, OSError)
        and error.errno in PERMISSION_ERRORS + PATH_ERRORS
        and isinstance(error.filename, str)
    ):
        return AfaError(_refused_path_fault(error, Path(error.filename)))
    return shortage(error, words)


def _usage_fault(error: Any, words: Sequence[str]) -> Fault:
    """Convert Typer's error about a mistyped command line into a `Fault`."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    said, _, other = error.format_message().rstrip(".?").partition(". Did you mean ")
    if context is None:  # Typer's option parser raised the error
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


def _refused_path_fault(error: OSError, path: Path) -> Fault:
    """Return the `Fault` for a path that the operating system refuses to read or write.

    For a temporary file, the `Fault` names the folder of the file.
    """
    if _TEMPORARY.fullmatch(path.name):
        path = path.parent
    expected, step = "a place that may be used", "change its rights, or choose another place"
    if error.errno in PATH_ERRORS:
        expected, step = "a path that fits what is there", "choose another path"
    return Fault(str(path), error.strerror or "an error", expected, step)


RERUN_ADVICE = "then give the same command again: nothing half-written is left"
# If there is too little memory to start a thread or to load a library, only the exception's text shows the reason.
_SAYINGS = ("can't start new thread", "failed to map segment", "Cannot allocate memory")


def shortage(error: BaseException, words: Sequence[str]) -> ResourceError | None:
    """Return a `ResourceError` if `error` or one of its causes reports a lack of memory or disk space, else None.

    Parameters
    ----------
    words : the command line without the program's name

    """
    names = takewhile(lambda word: word.replace("-", "").isalnum() and not word.startswith("-"), words)
    command = " ".join(["afa", *islice(names, 2)])  # without files and options
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) and cause not in causes:
        causes.append(cause)
    for cause in causes:
        if isinstance(cause, OSError) and cause.errno in DISK_FULL_ERRORS:
            return ResourceError(_full_disk_fault(cause, command))
        lacks_memory = isinstance(cause, OSError) and cause.errno == errno.ENOMEM
        unsaid = isinstance(cause, ImportError | RuntimeError | OSError) and any(s in str(cause) for s in _SAYINGS)
        if isinstance(cause, MemoryError) or lacks_memory or unsaid:
            found, limit = "no memory left", resource.getrlimit(resource.RLIMIT_AS)[0]
            if str(cause):
                found += f" ({cause})"
            if limit != resource.RLIM_INFINITY:
                found += f" under a limit of {limit / 1e6:.0f} MB (ulimit -v)"
            step = f"give it more memory, fewer threads, or fewer patients a job (the key shards), {RERUN_ADVICE}"
            return ResourceError(Fault(command, found, "memory for what it computes", step))
    return None


def _full_disk_fault(error: OSError, command: str) -> Fault:
    path = Path(error.filename) if isinstance(error.filename, str) else None
    found = "the quota of this disk used up" if error.errno == errno.EDQUOT else "no room left on this disk"
    folder = next((place for place in (path.absolute().parents if path else ()) if place.is_dir()), None)
    if folder is not None:
        disk = shutil.disk_usage(folder)
        found += f" ({disk.free / 1e6:.1f} of {disk.total / 1e6:.1f} MB free by now)"
    return Fault(str(path or command), found, "room for the whole of it", f"free some, {RERUN_ADVICE}")


_NAMED_OTHERWISE = {"sklearn": "scikit_learn", "git": "gitpython"}
_DECLARED = re.compile(r"""([\w.-]+)[^;]*; extra == ['"]([\w.-]+)['"]""")


def installing(error: ModuleNotFoundError) -> str | None:
    """Return the pip command that installs a missing module, or None if no extra of afa installs the module.

    The candidates are all extras (optional dependencies) of afa that install the module. If a candidate installs all
    packages of another candidate and further packages, the larger candidate is excluded. If code in the folder
    `afa/elicit` imports the module, candidates whose names begin with `elicit` are preferred, such as the extra
    `elicitation`. The same rule holds for each other folder. If several candidates remain, the alphabetically last
    candidate is chosen.
    """
    module = (error.name or "").partition(".")[0]
    extras = {
        name: packages
        for name, packages in _packages_of_extras().items()
        if any(_provides_module(p, module) for p in packages)
    }
    smallest = [name for name in extras if not any(other < extras[name] for other in extras.values())]
    if not module or not smallest:
        return None
    files = [Path(frame.f_code.co_filename) for frame, _ in walk_tb(error.__traceback__)]
    room = next((file.parent.name for file in reversed(files) if file.is_relative_to(PACKAGE)), "")
    return f"pip install 'afa[{max(smallest, key=lambda name: (name.startswith(room), name))}]'"


def _packages_of_extras() -> dict[str, frozenset[str]]:
    """Return a mapping of each extra to its packages, including the packages of the extras that it contains."""
    from importlib import metadata

    try:
        declared = metadata.requires("afa") or []
    except metadata.PackageNotFoundError:  # afa runs from its source folder, without being installed
        return {}
    packages: defaultdict[str, set[str]] = defaultdict(set)
    for requirement in declared:
        if found := _DECLARED.fullmatch(requirement):
            packages[found[2]].add(found[1])
    return {name: frozenset(members) for name, members in packages.items()}


def _provides_module(package: str, module: str) -> bool:
    """Return True if the package's name equals or extends the module's name, as markdown-it-py extends markdown_it."""
    name = re.sub(r"[-_.]+", "_", package).casefold()
    module = _NAMED_OTHERWISE.get(module, module).casefold()
    return name == module or name.startswith(f"{module}_")
